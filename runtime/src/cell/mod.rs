//! Places: typed addresses of fields, and what can be done there.
//!
//! `node.next()` is a `Place<Link<Node>>`: an address, computed without touching memory, and a type that says which
//! operations there are. Each operation posts as few one-sided operations as it can; its documentation counts them in
//! round trips, uncontended.
//!
//! | declared type | its place can |
//! |---|---|
//! | a plain value, a nested `#[remote]` struct | `read` |
//! | [`Atomic<T>`] | `load`, `store`, `swap`, `compare_exchange`, `fetch_*` |
//! | [`Link<T>`] | `load`, `store`, `compare_exchange`, publishing an [`Owned<T>`](crate::Owned) |
//! | [`StampedLink<T>`] | the same, with a stamp that changes on every store |
//! | [`Lock`] | `try_acquire`, `acquire` |
//! | [`Versioned<T>`] | `read` that is never torn, `write` |
//! | `[F; N]`, [`Tail<F>`] | `at(index)` |

mod array;
mod atomic;
mod cached;
mod chain;
mod fetch;
mod link;
mod lock;
mod locks;
mod owned;
mod read;
mod results;
mod stamped;
mod tail;
#[cfg(test)]
mod tests;
mod versioned;

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

pub use array::Array;
pub use atomic::Atomic;
pub use cached::Cached;
pub use chain::{Chain, Readable};
pub use fetch::{FieldGroup, fetch};
pub use link::{CompareExchangeError, Link, LinkWord};
pub use lock::{Lock, LockGuard, LockState, ReleaseError};
pub use owned::{Owned, Publish};
pub use read::Read;
pub use results::{Pending, PendingLock, Written};
pub use stamped::{Stamped, StampedLink};
pub use tail::{Tail, TailRef};
pub use versioned::{Version, Versioned};

use crate::error::Result;
use crate::io::operations::*;
use crate::pointer::Guard;
use crate::pointer::{Address, RemotePtr, Shared};
use crate::session::ComputeThread;
use farfield_words::scratch::bytes;
use farfield_words::{FrozenField, Remote, WORD_BYTES};

/// The address of a field declared as `F`, which may be used for `'g`.
///
/// A place got from a [`Shared<'g, T>`](Shared), directly or through other places, snapshots or tails, lives for `'g`: using it
/// when the guard is gone does not compile. A place got from a [`RemotePtr`] or a handle is a `Place<'static, F>`: it may
/// be used as long as the pointer may, which the program has to know.
#[repr(transparent)]
pub struct Place<'g, F> {
    address: Address,
    field: PhantomData<fn() -> F>,
    guard: PhantomData<&'g ()>,
}

impl<F> Place<'_, F> {
    /// What is taken to be an `F` at `address`, for as long as the caller says.
    #[inline]
    pub(crate) const fn at_address(address: Address) -> Self {
        Self { address, field: PhantomData, guard: PhantomData }
    }

    /// Where it is. For comparing and printing: an address protects nothing.
    #[inline]
    pub const fn address(self) -> Address {
        self.address
    }
}

impl<F> Place<'static, F> {
    /// What is taken to be an `F` at `address`. As with [`RemotePtr::from_address`], nothing keeps it there: a wrong address
    /// gives an error or stale values, never undefined behaviour.
    #[inline]
    pub const fn from_address(address: Address) -> Self {
        Self::at_address(address)
    }
}

impl<F> Clone for Place<'_, F> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}
impl<F> Copy for Place<'_, F> {}
impl<F> PartialEq for Place<'_, F> {
    fn eq(&self, other: &Self) -> bool {
        self.address == other.address
    }
}
impl<F> Eq for Place<'_, F> {}
impl<F> fmt::Debug for Place<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Place({})", self.address)
    }
}

/// A nested struct's place has its fields' accessors.
impl<'g, T: Remote> Deref for Place<'g, T> {
    type Target = T::Fields<'g>;
    #[inline]
    fn deref(&self) -> &T::Fields<'g> {
        T::fields(&self.address)
    }
}

impl<'g, F: FrozenField> Place<'g, F> {
    /// Reads the field: one READ. It is whole if it is frozen; what changes in it may be torn between words.
    ///
    /// # Errors
    /// [`Error::InvalidPointer`](crate::Error::InvalidPointer), or [`Error::InvalidValue`](crate::Error::InvalidValue) if no value has the bits found.
    #[inline]
    pub fn read(self, g: &'g Guard<'_>) -> Read<'g, F> {
        Read::new(self.address, g)
    }
}

impl<'g, T: Remote, M> Shared<'g, T, M> {
    /// Reads every field with one READ, however many there are. What changes may be torn between fields, never inside
    /// a word. The links in the snapshot live no longer than this pointer, whichever guard they are read under.
    ///
    /// # Errors
    /// [`Error::InvalidPointer`](crate::Error::InvalidPointer) if it is null or does not point into far memory; [`Error::InvalidValue`](crate::Error::InvalidValue) if a field
    /// has bits that no value of its type has.
    #[inline]
    pub fn read(self, g: &'g Guard<'_>) -> Read<'g, T> {
        Read::new(self.address(), g)
    }
}

impl<T: Remote> RemotePtr<T> {
    /// Reads every field with one READ. See [`Shared::read`].
    ///
    /// # Errors
    /// As [`Shared::read`].
    #[inline]
    pub fn read<'g>(self, g: &'g Guard<'_>) -> Read<'g, T> {
        Read::new(self.address(), g)
    }
}

/// Builds a local handle: reads the frozen fields with one READ, or none if there are none.
#[doc(hidden)]
pub async fn attach<T: Remote<Stored = T>>(ptr: RemotePtr<T>, ct: &ComputeThread) -> Result<T> {
    let at = ptr.address();
    read::check_aligned(at, T::ALIGN)?;
    let (start, end) = const { farfield_words::frozen_span(T::FIELDS) };
    let mut image = ct.heap().take_image(T::SIZE / WORD_BYTES);
    if start < end {
        let frozen = &mut image[start / WORD_BYTES..end / WORD_BYTES];
        let read = |words: &[u64]| {
            frozen.copy_from_slice(words);
            Ok(())
        };
        ct.read_words(at.add(start as u64), (end - start) / WORD_BYTES, read).await?;
    }
    let handle = T::store(at, bytes(&image));
    ct.heap().return_image(image);
    Ok(handle?)
}
