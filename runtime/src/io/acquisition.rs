//! Acquisitions of locks: where a lock is, and how this thread holds it.

use std::thread::panicking;

use farfield_sim::Plant;
use farfield_words::Address;

use super::compensation::{Compensating, Exchange};
use super::posting::{Operations, Thread};
use super::tokens::failed_write;

/// A free lock whose last owner died and left something to be put right. No token: those begin above it.
pub(crate) const ABANDONED: u64 = 1;

/// Where a lock is and how it is held.
///
/// Small, because guards are moved in and out of results on every update.
#[derive(Debug)]
pub(crate) struct Acquisition {
    pub(crate) at: Address,
    pub(crate) token: u64,
    pub(crate) held: Hold,
    /// True if the lock's word becomes [`ABANDONED`] when it is released, and not 0.
    pub(crate) needs_recovery: bool,
    /// True if a panic was under way before it was taken.
    pub(crate) was_panicking: bool,
}

/// Whether the lock's word is the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    Yes,
    No,
    /// The CAS that is to take it is in flight, or its outcome is unknown.
    Taking,
    /// The WRITE that releases it is in flight, or its outcome is unknown.
    Releasing,
}

impl Acquisition {
    /// A WRITE that releases the lock is posted, among other changes; whether they are made is known later. If they are not, what
    /// the lock protects may be half changed. (If they are, this changes nothing: the word is not the token any more.)
    pub(crate) fn may_be_released<T: Thread>(&mut self, ct: &T) {
        if self.held == Hold::Yes {
            ct.io().task_stack.lets_go(self.token);
            self.held = Hold::Releasing;
            self.needs_recovery = true;
        }
    }

    /// The lock is released.
    pub(crate) fn settle<T: Thread>(self, ct: &T) {
        if self.held == Hold::Releasing {
            ct.settle_token(self.token);
        }
    }

    /// What the lock's word becomes when it is released.
    #[inline]
    pub(crate) fn free(&self) -> u64 {
        if self.needs_recovery { ABANDONED } else { 0 }
    }

    /// The lock is given back without waiting. If its acquisition is in flight, a CAS from the token releases it if it is taken, and leaves any
    /// other owner alone.
    #[inline]
    pub(crate) fn end<T: Thread>(&self, ct: &T) {
        let Self { at, token, held, was_panicking, .. } = *self;
        let free = self.free();
        match held {
            Hold::Yes => {
                let free = if panicking() && !was_panicking { ABANDONED } else { free };
                ct.io().task_stack.lets_go(token);
                ct.post_word(Exchange::new(at, token, free));
            }
            Hold::No => {}
            Hold::Taking | Hold::Releasing => {
                ct.io().task_stack.lets_go(token);
                if held == Hold::Taking && ct.has(Plant::KeptAttempt) {
                    return;
                }
                ct.compensate(Exchange::new(at, token, free));
            }
        }
    }
}

/// What is left of the right to write if its holder is gone; `None` if nobody holds it.
pub(crate) fn right_of_dead_writer(right: u64) -> Option<u64> {
    (!right.is_multiple_of(2)).then(|| failed_write(right))
}
