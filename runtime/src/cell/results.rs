//! What the operations of a chain bring, until somebody has looked at it.
//!
//! A place for results is shared, by reference count, between the chain and every pending result. The thread keeps all that
//! it ever made; one that nobody else refers to is used again, so there is no allocation once the thread has warmed up.

use std::marker::PhantomData;
use std::rc::Rc;

use super::LockGuard;
use super::Owned;
use crate::error::{self, Error, Result};
use crate::io::{Found, Results};
use crate::memory::worker::Worker;
use crate::pointer::{Address, RemotePtr};
use farfield_words::Remote;

/// The result of an operation of a [`Chain`](crate::Chain).
#[must_use = "the result is what the operation was for"]
pub struct Pending<'g, T> {
    pub(super) results: Rc<Results>,
    pub(super) found: Found,
    /// What a CAS expected.
    pub(super) expected: u64,
    pub(super) decode: fn(Address, &[u64], u64) -> Result<T>,
    pub(super) thread: PhantomData<&'g Worker>,
}

/// The result of trying to take a lock in a [`Chain`](crate::Chain). Dropped without a look, it gives the lock back.
#[must_use = "the lock may be taken"]
pub struct PendingLock<'g> {
    /// Until somebody has looked.
    pub(super) guard: Option<LockGuard<'g>>,
    pub(super) results: Rc<Results>,
    pub(super) found: Found,
    /// What the lock's word is expected to be.
    pub(super) expected: u64,
}

/// A new object that a [`Chain`](crate::Chain) writes. Dropped without [`take`](Self::take), it counts as published once the chain
/// has been posted; it is freed if the chain is dropped instead.
#[must_use = "an object that no link holds is lost: take it back"]
pub struct Written<T> {
    pub(super) results: Rc<Results>,
    pub(super) part: usize,
    /// Published already: not freed with this value.
    pub(super) object: Owned<T>,
}

impl<T: Remote> Written<T> {
    /// Where the object is: to link it, in the same chain or later.
    pub fn as_ptr(&self) -> RemotePtr<T> {
        self.object.as_ptr()
    }

    /// The object again, as it was before: after a chain in which no link was made to hold it, such as one whose CAS has failed.
    ///
    /// Only the caller knows that nothing holds it. An object that a link does hold must not be taken back: dropping the `Owned`
    /// frees it under its readers. The simulator reports their next access.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the chain has not been submitted, or has failed so that its WRITE may still come.
    pub fn take(mut self) -> Result<Owned<T>> {
        if self.results.done.get() <= self.part {
            return Err(Error::from(error::InvalidArgument {
                argument: "written object",
                value: format!("at {}", self.object.as_ptr().address()).into(),
                reason: "its chain has not been submitted, or has failed",
            }));
        }
        self.object.set_unpublished();
        Ok(self.object)
    }
}

impl<T> Pending<'_, T> {
    /// The result, once the chain has been submitted.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] if no value has the bits found; [`Error::InvalidArgument`] if the chain has not been
    /// submitted or has failed before this operation.
    pub fn get(self) -> Result<T> {
        let words = self.results.words(&self.found)?;
        (self.decode)(self.found.at, &words, self.expected)
    }
}

impl<'g> PendingLock<'g> {
    /// The lock, if it was free.
    ///
    /// # Errors
    /// As [`Pending::get`].
    pub fn get(self) -> Result<Option<LockGuard<'g>>> {
        Ok(self.get_or_word()?.ok())
    }

    /// Returns whether the lock was as expected, and so is taken.
    #[inline]
    pub(super) fn is_taken(&self) -> Result<bool> {
        Ok(self.results.words(&self.found)?[0] == self.expected)
    }

    /// The lock, which [is taken](Self::is_taken).
    #[inline]
    pub(super) fn confirmed(mut self) -> Option<LockGuard<'g>> {
        let mut guard = self.guard.take()?;
        guard.confirm();
        Some(guard)
    }

    /// The lock, or what its word was instead of what was expected.
    pub(super) fn get_or_word(mut self) -> Result<Result<LockGuard<'g>, u64>> {
        let found = self.results.words(&self.found)?[0];
        let expected = self.expected;
        Ok(self.guard.take().ok_or(found).and_then(|mut guard| {
            if found == expected {
                guard.confirm();
                return Ok(guard);
            }
            guard.forget();
            Err(found)
        }))
    }
}

impl Drop for PendingLock<'_> {
    /// Nobody has looked. What was posted is undone by the guard; what was not must not be undone before it is done.
    fn drop(&mut self) {
        let Some(guard) = &mut self.guard else { return };
        if self.found.part >= self.results.posted.get()
            && let Some(exchange) = guard.abandon()
        {
            self.results.abandoned.borrow_mut().push((self.found.part, exchange));
        }
    }
}
