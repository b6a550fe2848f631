//! Tokens: the words that a thread writes into locks.
//!
//! | bits | contents |
//! |---|---|
//! | 16..64 | the [identity](super::identities) of the thread |
//! | 1..16 | a sequence number |
//! | 0 | 1: a token is odd, unlike the word of a free lock or of a failed write |
//!
//! If an acquisition is abandoned in flight, a CAS *from the token* releases its lock. That is correct only if no other acquisition has the same
//! token. A sequence number of 15 bits repeats after 32,768 acquisitions, so its width alone proves nothing.
//!
//! Invariant: a token is *outstanding* from the moment it is issued until its attempt has failed, its lock's release has taken effect, or
//! the CAS that [compensates](super::compensation) for either has. No two outstanding tokens of a cluster are equal.
//!
//! - Tokens of different threads differ in the identity, which is unique among live threads.
//! - The sequence numbers of one thread form 512 groups of 64. Each group counts its outstanding tokens. A thread enters a group only while this
//!   count is 0, so all 64 numbers are free, and it issues each of them once. If all groups have outstanding tokens, because hundreds of locks are
//!   held for a long time, the thread continues with a *further identity*. It is the thread's own until it ends, and has no outstanding tokens.
//!
//! Why that suffices: when a token ceases to be outstanding, a CAS from it has taken effect or never will. A later acquisition with the same token is
//! posted after that. A lock of a dead owner is taken over by a CAS from the owner's token. A dead thread issues no tokens, so the lock is still held
//! by the acquisition that was found.
//!
//! Cost: an increment and a decrement for each acquisition, half a kilobyte for each thread, no round trip.

use std::cell::{Cell, RefCell};

use farfield_words::ThreadId;

/// Returns the word that replaces the token of a failed write: an even word that names the thread.
pub(crate) fn failed_write(token: u64) -> u64 {
    token >> IDENTITY_SHIFT << IDENTITY_SHIFT
}

/// Bits of a token below the identity: the sequence number and the mark that it is a token.
const IDENTITY_SHIFT: u32 = ThreadId::TOKEN_SHIFT;
const SEQUENCE_BITS: u32 = IDENTITY_SHIFT - 1;
const SEQUENCES: u16 = 1 << SEQUENCE_BITS;
const GROUPS: usize = 512;
const GROUP_SEQUENCES: u16 = SEQUENCES / GROUPS as u16;
const _: () = assert!(GROUP_SEQUENCES <= u8::MAX as u16, "a group's count fits into a byte");

/// The low bits of a token in which those of one group differ.
const GROUP_MASK: u64 = 2 * GROUP_SEQUENCES as u64 - 1;

/// A thread's tokens: the next one, and the outstanding ones.
pub(crate) struct Tokens {
    /// The identity in new tokens.
    identity: Cell<ThreadId>,
    /// The next token. After the identity's last sequence number, that of the first with the next higher identity, which is not issued: the first
    /// token of a group is replaced.
    next: Cell<u64>,
    /// The number of outstanding tokens of the current identity, by group.
    outstanding: Box<[Cell<u8>; GROUPS]>,
    further: RefCell<Vec<ThreadId>>,
}

fn group(token: u64) -> usize {
    (token >> 1) as usize % usize::from(SEQUENCES) / usize::from(GROUP_SEQUENCES)
}

impl Tokens {
    pub(super) fn new(identity: ThreadId) -> Self {
        Self {
            identity: Cell::new(identity),
            next: Cell::new(identity.number().get() << IDENTITY_SHIFT | 1),
            outstanding: Box::new([const { Cell::new(0) }; GROUPS]),
            further: RefCell::default(),
        }
    }

    /// Issues a token, which is outstanding until it is [settled](Self::settle). `another` returns a further identity.
    #[inline]
    pub(super) fn issue(&self, another: impl FnOnce() -> Option<ThreadId>) -> u64 {
        let mut token = self.next.get();
        if token & GROUP_MASK == 1 {
            token = self.enter_group(another);
        }
        self.next.set(token + 2);
        let count = &self.outstanding[group(token)];
        count.set(count.get() + 1);
        token
    }

    /// Enters a group without outstanding tokens. Returns its first token.
    #[cold]
    fn enter_group(&self, another: impl FnOnce() -> Option<ThreadId>) -> u64 {
        let first = group(self.next.get());
        let mut groups = (first..GROUPS).chain(0..first);
        let free = groups.find(|group| self.outstanding[*group].get() == 0);
        if free.is_none() {
            // A process has 16 million identities. They are all in use only with 2^33 outstanding tokens; then numbers repeat.
            if let Some(identity) = another() {
                self.identity.set(identity);
                self.further.borrow_mut().push(identity);
            }
            self.outstanding.iter().for_each(|count| count.set(0));
        }
        let sequence = free.unwrap_or(0) as u64 * u64::from(GROUP_SEQUENCES);
        self.identity.get().number().get() << IDENTITY_SHIFT | sequence << 1 | 1
    }

    /// Ends the time in which the token is outstanding.
    #[inline]
    pub(super) fn settle(&self, token: u64) {
        // The groups of an earlier identity are not entered again.
        if token >> IDENTITY_SHIFT == self.identity.get().number().get() {
            let count = &self.outstanding[group(token)];
            count.set(count.get().saturating_sub(1));
        }
    }

    /// Returns the further identities, which end with the thread.
    pub(crate) fn take_further(&self) -> Vec<ThreadId> {
        self.further.take()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::num::NonZeroU64;

    use super::*;

    fn id(number: u64) -> ThreadId {
        ThreadId::new(NonZeroU64::new(number).unwrap())
    }

    #[test]
    fn a_token_is_odd_and_names_its_thread() {
        let tokens = Tokens::new(id(7 << 24 | 9));
        for _ in 0..3 * u32::from(SEQUENCES) {
            let token = tokens.issue(|| panic!("everything is settled"));
            assert!(token % 2 == 1 && token > 1, "{token:#x}");
            assert_eq!(ThreadId::of_token(token), Some(id(7 << 24 | 9)));
            tokens.settle(token);
        }
        assert_eq!(ThreadId::of_token(0), None);
        assert_eq!(ThreadId::of_token(1), None, "an abandoned lock has no owner");
    }

    /// Tokens with random lifetimes, some as long as many rounds of the sequence.
    #[test]
    fn no_two_outstanding_tokens_are_equal() {
        use rand::rngs::SmallRng;
        use rand::{RngExt, SeedableRng};
        for held_for_ever in [0.0, 0.001, 0.02, 0.5] {
            let mut rng = SmallRng::seed_from_u64(1);
            let (tokens, mut next) = (Tokens::new(id(1)), 1);
            let (mut outstanding, mut recent) = (HashSet::new(), Vec::new());
            for _ in 0..4 * u32::from(SEQUENCES) {
                let token = tokens.issue(|| {
                    next += 1;
                    Some(id(next))
                });
                assert!(outstanding.insert(token), "{held_for_ever}: {token:#x} was issued twice");
                if !rng.random_bool(held_for_ever) {
                    recent.push(token);
                }
                while recent.len() > 100 {
                    let settled = recent.swap_remove(rng.random_range(0..recent.len()));
                    assert!(outstanding.remove(&settled));
                    tokens.settle(settled);
                }
            }
            assert_eq!(next > 1, held_for_ever > 0.01, "further identities are for many tokens that stay");
            assert_eq!(tokens.take_further().len() as u64, next - 1);
        }
    }
}
