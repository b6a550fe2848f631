//! Tokens: the words that a thread puts into locks.
//!
//! | bits | what |
//! |---|---|
//! | 16..64 | the [identity](super::member_state) of the thread |
//! | 1..16 | a sequence number |
//! | 0 | 1: a token is odd, so it is neither a free lock nor what a failed write leaves |
//!
//! A lock whose acquisition is given up in flight is released by a CAS *from the token*. That is right only as long as no other
//! acquisition has the same token. A sequence of 15 bits comes round after 32,768 acquisitions, so its width alone proves nothing.
//!
//! Invariant: a token is *outstanding* from the moment it is issued until its attempt has failed, its lock's release has taken effect, or
//! the CAS that [makes up](super::compensation) for either has. No two outstanding tokens of a cluster are equal.
//!
//! - Those of different threads differ in the identity: no two threads that live have the same.
//! - For those of one thread, sequence numbers are divided into 512 groups of 64, and each group counts its outstanding tokens. A
//!   thread enters a group only while that count is 0; so all 64 numbers are free, and it issues each of them once. If all groups
//!   have outstanding tokens, as when hundreds of locks are held for a long time, the thread goes on with a *further identity*,
//!   which is its own until it ends, and under which nothing is outstanding.
//!
//! Why that is enough: a CAS from the token has taken effect before the token ceases to be outstanding, or never will, and a later
//! acquisition with this token is posted after that. A lock that is taken over from a dead owner is taken by a CAS from the owner's token, too; a dead thread issues none,
//! so the lock is still held by the acquisition that was found.
//!
//! Cost: a counter up and a counter down for each acquisition, half a kilobyte for each thread, no round trip.

use std::cell::{Cell, RefCell};

use farfield_words::ThreadId;

/// What a failed write leaves in place of its token: an even word that names the thread.
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

/// A thread's tokens: which is next, and which are outstanding.
pub(crate) struct Tokens {
    /// What tokens are issued under.
    identity: Cell<ThreadId>,
    next: Cell<u16>,
    /// Outstanding tokens of the current identity, by group.
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
            next: Cell::new(0),
            outstanding: Box::new([const { Cell::new(0) }; GROUPS]),
            further: RefCell::default(),
        }
    }

    /// Issues a token, which is outstanding until it is [settled](Self::settle). `another` returns a further identity.
    #[inline]
    pub(super) fn issue(&self, another: impl FnOnce() -> Option<ThreadId>) -> u64 {
        if self.next.get().is_multiple_of(GROUP_SEQUENCES) {
            self.enter_group(another);
        }
        let sequence = self.next.get();
        self.next.set((sequence + 1) % SEQUENCES);
        let token = self.identity.get().number().get() << IDENTITY_SHIFT | u64::from(sequence) << 1 | 1;
        let count = &self.outstanding[group(token)];
        count.set(count.get() + 1);
        token
    }

    #[cold]
    fn enter_group(&self, another: impl FnOnce() -> Option<ThreadId>) {
        let first = usize::from(self.next.get() / GROUP_SEQUENCES);
        let groups = (first..GROUPS).chain(0..first);
        let free = groups.into_iter().find(|group| self.outstanding[*group].get() == 0);
        if let Some(group) = free {
            self.next.set(group as u16 * GROUP_SEQUENCES);
            return;
        }
        // A process has 16 million identities. That they all live takes 2^33 outstanding tokens; then numbers repeat.
        if let Some(identity) = another() {
            self.identity.set(identity);
            self.next.set(0);
            self.further.borrow_mut().push(identity);
        }
        self.outstanding.iter().for_each(|count| count.set(0));
    }

    /// The token is no longer outstanding.
    #[inline]
    pub(super) fn settle(&self, token: u64) {
        // The groups of an earlier identity are not entered again.
        if ThreadId::of_token(token) == Some(self.identity.get()) {
            let count = &self.outstanding[group(token)];
            count.set(count.get().saturating_sub(1));
        }
    }

    /// The further identities, which end with the thread.
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

    /// Random lives of tokens, some as long as many rounds of the sequence.
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
