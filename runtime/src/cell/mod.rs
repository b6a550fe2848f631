//! Places: typed addresses of fields, and the operations on them.
//!
//! `node.next()` is a `Place<Link<Node>>`: an address, computed without a memory access, and a type that determines the operations. Each method
//! documents its round trips, without contention.
//!
//! | declared type | operations of its place |
//! |---|---|
//! | a plain value, a nested `#[remote]` struct | `read` |
//! | [`Atomic<T>`] | `load`, `store`, `swap`, `compare_exchange`, `fetch_*` |
//! | [`Link<T>`] | `load`, `store`, `compare_exchange`, publishing an [`Owned<T>`](crate::Owned) |
//! | [`TaggedLink<T, G>`] | the same, with a tag beside the pointer |
//! | [`StampedLink<T>`] | the same, with a stamp that changes on every store |
//! | [`Lock`] | `try_acquire`, `acquire` |
//! | [`Versioned<T>`] | `read`, which is never torn, and `write` |
//! | `[F; N]`, [`Tail<F>`] | `at(index)` |

mod array;
mod atomic;
mod blob;
mod cached;
mod chain;
mod fetch;
mod immediate;
mod link;
mod lock;
mod locks;
pub mod op;
mod owned;
mod read;
mod stamped;
mod tagged;
mod tail;
#[cfg(test)]
mod tests;
mod versioned;

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

pub use array::Array;
pub use atomic::Atomic;
pub use blob::{Blob, BlobSnapshot, SizeClass};
pub use cached::Cached;
pub use chain::Chain;
pub use fetch::{FieldGroup, fetch};
pub use immediate::Immediate;
pub use link::{CompareExchangeError, Link, LinkWord};
pub use lock::{Lock, LockGuard, LockState, ReleaseError};
pub use owned::{NewObject, Owned, Publish};
pub use read::Read;
pub use stamped::{Stamped, StampedLink};
pub use tagged::{Tag, Tagged, TaggedLink, TaggedWord};
pub use tail::{Tail, TailRef};
pub use versioned::{Version, Versioned};

use crate::error::Result;
use crate::io::operations::*;
use crate::pointer::Guard;
use crate::pointer::{Address, MaybeMarks, RemotePtr, Shared};
use crate::session::ComputeThread;
use farfield_words::scratch::bytes;
use farfield_words::{FrozenField, Remote, WORD_BYTES};

/// The address of a field that is declared as `F`. It may be used for `'g`.
///
/// A place reached from a [`Shared<'g, T>`](Shared), directly or through other places, snapshots or tails, has the lifetime `'g`: its use after the
/// drop of the guard does not compile. A place reached from a [`RemotePtr`] or a handle is a `Place<'static, F>`: it is valid as long as the pointer,
/// which the program has to ensure.
#[repr(transparent)]
pub struct Place<'g, F> {
    address: Address,
    field: PhantomData<fn() -> F>,
    guard: PhantomData<&'g ()>,
}

impl<F> Place<'_, F> {
    /// Makes the place of the `F` that is assumed to be at `address`. The caller chooses the lifetime.
    #[inline]
    pub(crate) const fn at_address(address: Address) -> Self {
        Self { address, field: PhantomData, guard: PhantomData }
    }

    /// Returns the address. For comparisons and output: an address is no protection.
    #[inline]
    pub const fn address(self) -> Address {
        self.address
    }
}

impl<F> Place<'static, F> {
    /// Makes the place of the `F` that is assumed to be at `address`. It is not protected, like [`RemotePtr::from_address`]: using a wrong address
    /// results in an error or stale values, never undefined behaviour.
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

/// The place of a nested struct has its fields' accessors.
impl<'g, T: Remote> Deref for Place<'g, T> {
    type Target = T::Fields<'g>;
    #[inline]
    fn deref(&self) -> &T::Fields<'g> {
        T::fields(&self.address)
    }
}

impl<'g, F: FrozenField> Place<'g, F> {
    /// Reads the field. One READ. Frozen fields are never torn; fields that change may be torn between words.
    ///
    /// # Errors
    /// [`Error::InvalidPointer`](crate::Error::InvalidPointer) if the object is not in far memory;
    /// [`Error::InvalidValue`](crate::Error::InvalidValue) if the bits encode no value.
    #[inline]
    pub fn read(self, g: &'g Guard<'_>) -> Read<'g, F> {
        Read::new(self.address, g)
    }
}

impl<'g, T: Remote, M: MaybeMarks> Shared<'g, T, M> {
    /// Reads all fields with one READ. Fields that change may be torn between fields, never inside a word. Links in the snapshot have the lifetime of
    /// this pointer, also if they are read under another guard.
    ///
    /// # Errors
    /// [`Error::InvalidPointer`](crate::Error::InvalidPointer) if the pointer is null or does not point into far memory;
    /// [`Error::InvalidValue`](crate::Error::InvalidValue) if the bits of a field encode no value of its type.
    #[inline]
    pub fn read(self, g: &'g Guard<'_>) -> Read<'g, T> {
        Read::new(self.address(), g)
    }
}

impl<T: Remote> RemotePtr<T> {
    /// Reads all fields with one READ. See [`Shared::read`].
    ///
    /// # Errors
    /// Those of [`Shared::read`].
    #[inline]
    pub fn read<'g>(self, g: &'g Guard<'_>) -> Read<'g, T> {
        Read::new(self.address(), g)
    }
}

/// Builds a local handle: reads the frozen fields with one READ, or with none if no field is frozen.
#[doc(hidden)]
pub async fn attach<T: Remote<Stored = T>>(ptr: RemotePtr<T>, ct: &ComputeThread) -> Result<T> {
    let at = ptr.address();
    read::check_aligned(at, T::ALIGN)?;
    let (start, end) = const { farfield_words::frozen_span(T::FIELDS) };
    let mut image = ct.heap().images.take(T::SIZE / WORD_BYTES);
    if start < end {
        let frozen = &mut image[start / WORD_BYTES..end / WORD_BYTES];
        let read = |words: &[u64]| {
            frozen.copy_from_slice(words);
            Ok(())
        };
        ct.read_words(at.add(start as u64), (end - start) / WORD_BYTES, read).await?;
    }
    let handle = T::store(at, bytes(&image));
    ct.heap().images.put(image);
    Ok(handle?)
}
