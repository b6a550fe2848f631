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
mod fetch;
mod link;
mod lock;
mod stamped;
mod tail;
mod versioned;

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

pub use array::Array;
pub use atomic::Atomic;
pub use fetch::{FieldGroup, fetch};
pub use link::{CompareExchangeError, Link, LinkWord};
pub use lock::{Lock, LockGuard, LockState};
pub use stamped::{Stamped, StampedLink};
pub use tail::{Tail, TailRef};
pub use versioned::{Version, Versioned};

use crate::cluster::ComputeThread;
use crate::error::{Error, PointerFault, Result};
use crate::layout::scratch::{Scratch, bytes};
use crate::layout::{Field, FrozenField, Remote, WORD_BYTES};
use crate::memory::guard::Guard;
use crate::pointer::{Address, RemotePtr, Shared};

/// The address of a field declared as `F`.
#[repr(transparent)]
pub struct Place<F> {
    address: Address,
    field: PhantomData<fn() -> F>,
}

impl<F> Place<F> {
    /// What is taken to be an `F` at `address`.
    #[inline]
    pub const fn from_address(address: Address) -> Self {
        Self { address, field: PhantomData }
    }

    /// Where it is.
    #[inline]
    pub const fn address(self) -> Address {
        self.address
    }
}

impl<F> Clone for Place<F> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}
impl<F> Copy for Place<F> {}
impl<F> PartialEq for Place<F> {
    fn eq(&self, other: &Self) -> bool {
        self.address == other.address
    }
}
impl<F> Eq for Place<F> {}
impl<F> fmt::Debug for Place<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Place({})", self.address)
    }
}

/// A nested struct's place has its fields' accessors.
impl<T: Remote> Deref for Place<T> {
    type Target = T::Fields;
    #[inline]
    fn deref(&self) -> &T::Fields {
        T::fields(&self.address)
    }
}

impl<F: FrozenField> Place<F> {
    /// Reads the field: one READ. It is whole if it is frozen; what changes in it may be torn between words.
    ///
    /// # Errors
    /// [`Error::InvalidPointer`], or [`Error::InvalidValue`] if no value has the bits found.
    #[inline]
    pub async fn read<'g>(self, g: &'g Guard<'_>) -> Result<F::Value<'g>> {
        read_field::<F>(self.address, g).await
    }
}

impl<'g, T: Remote> Shared<'g, T> {
    /// Reads every field with one READ, however many there are. What changes may be torn between fields, never inside
    /// a word.
    ///
    /// # Errors
    /// [`Error::InvalidPointer`] if it is null or does not point into far memory; [`Error::InvalidValue`] if a field
    /// has bits that no value of its type has.
    #[inline]
    pub async fn read<'r>(self, g: &'r Guard<'_>) -> Result<T::Value<'r>> {
        read_object::<T>(self.address(), g).await
    }
}

impl<T: Remote> RemotePtr<T> {
    /// Reads every field with one READ. See [`Shared::read`].
    ///
    /// # Errors
    /// As [`Shared::read`].
    #[inline]
    pub async fn read<'g>(self, g: &'g Guard<'_>) -> Result<T::Value<'g>> {
        read_object::<T>(self.address(), g).await
    }
}

#[inline]
async fn read_object<'g, T: Remote>(at: Address, ct: &ComputeThread) -> Result<T::Value<'g>> {
    check_aligned(at, T::ALIGN)?;
    ct.read::<T::Cell, _>(at, |bytes| T::decode(at, bytes)).await
}

/// An object's alignment beyond a word's, which the fabric does not know of.
#[inline]
fn check_aligned(address: Address, align: usize) -> Result<()> {
    if align > WORD_BYTES && !address.bits().is_multiple_of(align as u64) {
        return Err(Error::InvalidPointer { address, fault: PointerFault::Misaligned { align: align as u32 } });
    }
    Ok(())
}

/// One READ of the words that hold an `F`, which need not begin at a word's boundary.
#[inline]
async fn read_field<'g, F: Field>(at: Address, ct: &ComputeThread) -> Result<F::Value<'g>> {
    // Where the field is narrower than a word its neighbours come along.
    if align_of::<F::Cell>() >= WORD_BYTES {
        return ct.read::<F::Cell, _>(at, |bytes| F::decode(at, bytes)).await;
    }
    let within = (at.bits() % WORD_BYTES as u64) as usize;
    let first = Address::from_bits(at.bits() - within as u64);
    let words = (within + size_of::<F::Cell>()).div_ceil(WORD_BYTES);
    ct.read_words(first, words, |words| F::decode(at, &bytes(words)[within..])).await
}

/// Builds a local handle: reads the frozen fields with one READ, or none if there are none.
#[doc(hidden)]
pub async fn attach<T: Remote<Stored = T>>(ptr: RemotePtr<T>, ct: &ComputeThread) -> Result<T> {
    let at = ptr.address();
    check_aligned(at, T::ALIGN)?;
    let (start, end) = const { crate::layout::frozen_span(T::FIELDS) };
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
    handle
}

/// Scratch space is only ever as large as a layout.
const _: () = assert!(Scratch::<[u8; 9]>::WORDS == 2);
