//! Acquisitions of locks: the address of a lock, and the state in which this thread holds it.

use std::thread::panicking;

use farfield_sim::Plant;
use farfield_words::Address;

use super::compensation::{Compensating, Exchange};
use super::posting::{Operations, Thread};
use super::tokens::failed_write;

/// The word of a free lock whose last owner died in its critical section. It is less than any token.
pub(crate) const ABANDONED: u64 = 1;

/// The address of a lock and the state in which it is held.
///
/// Small and of whole words, because every update moves guards into results and out of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acquisition {
    pub(crate) at: Address,
    pub(crate) token: u64,
    /// A [`Hold`] and the two flags. 0 if the lock is held, needs no recovery, and was not taken by a panicking thread.
    state: u64,
}

/// Whether the lock's word is this thread's token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    Yes = 0,
    No = 1,
    /// The CAS that takes it is in flight, or its outcome is unknown.
    Taking = 2,
    /// The WRITE that releases it is in flight, or its outcome is unknown.
    Releasing = 3,
}

const HOLD: u64 = 3;
const NEEDS_RECOVERY: u64 = 1 << 2;
const WAS_PANICKING: u64 = 1 << 3;

impl Acquisition {
    #[inline]
    pub(crate) fn new(at: Address, token: u64, held: Hold, is_panicking: bool) -> Self {
        Self { at, token, state: held as u64 | if is_panicking { WAS_PANICKING } else { 0 } }
    }

    #[inline]
    pub(crate) fn held(&self) -> Hold {
        match self.state & HOLD {
            0 => Hold::Yes,
            1 => Hold::No,
            2 => Hold::Taking,
            _ => Hold::Releasing,
        }
    }

    #[inline]
    pub(crate) fn set_held(&mut self, held: Hold) {
        self.state = self.state & !HOLD | held as u64;
    }

    /// Returns whether a release writes [`ABANDONED`] instead of 0.
    #[inline]
    pub(crate) fn needs_recovery(&self) -> bool {
        self.state & NEEDS_RECOVERY != 0
    }

    #[inline]
    pub(crate) fn set_needs_recovery(&mut self, needs_recovery: bool) {
        self.state = self.state & !NEEDS_RECOVERY | if needs_recovery { NEEDS_RECOVERY } else { 0 };
    }

    /// Returns whether the thread was panicking before it took the lock.
    fn was_panicking(&self) -> bool {
        self.state & WAS_PANICKING != 0
    }

    /// A chain that changes the protected data and releases the lock is about to be posted. If it fails, the data may be changed in part, so its
    /// compensation leaves [`ABANDONED`]. (If it succeeds, the compensating CAS fails.)
    pub(crate) fn may_be_released<T: Thread>(&mut self, ct: &T) {
        if self.held() == Hold::Yes {
            ct.io().task_stack.lets_go(self.token);
            self.set_held(Hold::Releasing);
            self.set_needs_recovery(true);
        }
    }

    /// A chain that was executed in the call that posted it has released the lock.
    #[inline]
    pub(crate) fn is_released<T: Thread>(self, ct: &T) {
        match self.held() {
            Hold::Yes => {
                ct.io().task_stack.lets_go(self.token);
                ct.settle_token(self.token);
            }
            Hold::Releasing => ct.settle_token(self.token),
            Hold::No | Hold::Taking => {}
        }
    }

    /// The lock is released.
    pub(crate) fn settle<T: Thread>(self, ct: &T) {
        if self.held() == Hold::Releasing {
            ct.settle_token(self.token);
        }
    }

    /// Returns the lock's word after its release.
    #[inline]
    pub(crate) fn free(&self) -> u64 {
        if self.needs_recovery() { ABANDONED } else { 0 }
    }

    /// Releases the lock without waiting. If the acquisition is in flight, a CAS from the token releases the lock if the acquisition succeeds, and
    /// fails otherwise.
    #[inline]
    pub(crate) fn end<T: Thread>(&self, ct: &T) {
        let (at, token, held) = (self.at, self.token, self.held());
        let free = self.free();
        match held {
            Hold::Yes => {
                let free = if panicking() && !self.was_panicking() { ABANDONED } else { free };
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

/// Returns the word that the write lock of a `Versioned` value becomes if its holder is gone; `None` if it is free.
pub(crate) fn write_lock_of_dead_writer(word: u64) -> Option<u64> {
    (!word.is_multiple_of(2)).then(|| failed_write(word))
}
