//! The results of a chain's operations.
//!
//! A chain's frame (`io/frame.rs`) keeps its results. The chain and each pending result share it, by reference count.

use std::marker::PhantomData;
use std::rc::Rc;

use super::LockGuard;
use super::Owned;
use crate::error::{self, Error, Result};
use crate::io::{Found, Frame};
use crate::memory::worker::Worker;
use crate::pointer::{Address, RemotePtr};
use farfield_words::Remote;

/// The result of an operation of a [`Chain`](crate::Chain).
#[must_use = "read the result by `get` when the chain has completed"]
pub struct Pending<'g, T> {
    pub(super) frame: Rc<Frame>,
    pub(super) at: Address,
    pub(super) found: Found,
    /// Decodes the words of the operation at this address, given the expected word of a CAS.
    pub(super) decode: fn(Address, &[u64], u64) -> Result<T>,
    pub(super) thread: PhantomData<&'g Worker>,
}

/// The result of trying to take a lock in a [`Chain`](crate::Chain). If it is dropped without a call of [`get`](Self::get), the lock is released.
#[must_use = "the lock may be taken"]
pub struct PendingLock<'g> {
    /// `None` once the outcome was read.
    pub(super) guard: Option<LockGuard<'g>>,
    pub(super) frame: Rc<Frame>,
    pub(super) found: Found,
}

/// A new object that a [`Chain`](crate::Chain) writes. Dropped without [`take`](Self::take), it counts as published once the chain has been posted.
/// If the chain is dropped instead, the object is freed.
#[must_use = "an object that no link holds is lost: call `take`"]
pub struct Written<T> {
    pub(super) frame: Rc<Frame>,
    pub(super) part: u32,
    /// Marked as published: not freed with this value.
    pub(super) object: Owned<T>,
}

impl<T: Remote> Written<T> {
    /// Returns the object's address: to link it, in the same chain or later.
    pub fn as_ptr(&self) -> RemotePtr<T> {
        self.object.as_ptr()
    }

    /// Returns the object as unpublished, after a chain that linked it nowhere, such as one whose CAS has failed.
    ///
    /// The caller must know that no link holds it. If a link does, dropping the `Owned` frees the object under its readers. The simulator reports
    /// their next access.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the chain was not submitted, or failed so that its WRITE may still take effect.
    pub fn take(mut self) -> Result<Owned<T>> {
        if !self.frame.is_done(self.part) {
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
    /// Returns the result of a submitted chain.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] if the bits encode no value. [`Error::InvalidArgument`] if the chain was not submitted, or failed before this
    /// operation.
    #[inline]
    pub fn get(self) -> Result<T> {
        self.frame.result(self.at, self.found, |words, expected| (self.decode)(self.at, words, expected))
    }
}

impl<'g> PendingLock<'g> {
    /// Returns the lock, if it was free.
    ///
    /// # Errors
    /// Those of [`Pending::get`].
    pub fn get(self) -> Result<Option<LockGuard<'g>>> {
        Ok(self.get_or_word()?.ok())
    }

    /// Returns whether the lock's word was as expected, so that the lock is taken.
    #[inline]
    pub(super) fn is_taken(&self) -> Result<bool> {
        let at = self.guard.as_ref().map_or(Address::NULL, LockGuard::address);
        self.frame.result(at, self.found, |words, expected| Ok(words[0] == expected))
    }

    /// Returns the guard of a lock that [is taken](Self::is_taken).
    #[inline]
    pub(super) fn confirmed(mut self) -> Option<LockGuard<'g>> {
        let mut guard = self.guard.take()?;
        guard.confirm();
        Some(guard)
    }

    /// Returns the lock, or the word that was found instead of the expected one.
    pub(super) fn get_or_word(mut self) -> Result<Result<LockGuard<'g>, u64>> {
        let at = self.guard.as_ref().map_or(Address::NULL, LockGuard::address);
        let (found, expected) =
            self.frame.result(at, self.found, |words, expected| Ok((words[0], expected)))?;
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
    /// The outcome was never read. The guard undoes a posted CAS; a CAS that is not posted yet is undone only after it.
    fn drop(&mut self) {
        if let Some(guard) = &mut self.guard {
            self.frame.abandons(self.found, || guard.abandon());
        }
    }
}
