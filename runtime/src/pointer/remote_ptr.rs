//! `RemotePtr<T>`: a typed address without a lifetime.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::ops::Deref;

use crate::pointer::Guard;
use crate::pointer::{Address, MaybeMarks, Shared};
use farfield_words::{Pod, Remote, Word};

/// A plain pointer to a `T` in far memory.
///
/// It is `Copy`, takes 8 bytes, and may be stored in a frozen field or a root. It does not protect its object. Use it only for objects that are not
/// retired meanwhile (a structure's sentinels, its root object), and reach all others through [`Shared`].
///
/// It dereferences to `T`'s accessors, so `ptr.next()` is the place of the field `next`. Like the pointer, that place has no lifetime and no
/// protection. A pointer loaded from it is protected by the guard of the load.
#[repr(transparent)]
pub struct RemotePtr<T> {
    address: Address,
    pointee: PhantomData<fn() -> T>,
}

impl<T> RemotePtr<T> {
    /// The null pointer. Using it is [`Error::InvalidPointer`](crate::Error::InvalidPointer).
    pub const NULL: Self = Self::from_address(Address::NULL);

    /// Makes a pointer to the `T` that is assumed to be at `address`.
    ///
    /// Always safe: using a wrong address results in an error or stale values, never undefined behaviour.
    #[inline]
    pub const fn from_address(address: Address) -> Self {
        Self { address, pointee: PhantomData }
    }

    /// Returns the address.
    #[inline]
    pub const fn address(self) -> Address {
        self.address
    }

    /// Returns whether the pointer is null.
    #[inline]
    pub const fn is_null(self) -> bool {
        self.address.is_null()
    }
}

impl<T: Remote> RemotePtr<T> {
    /// Converts the pointer to one with the lifetime of `g`, for objects that are never retired while the result is in use, such as a sentinel. No
    /// round trip.
    #[inline]
    pub const fn shared<'g>(self, _: &'g Guard<'_>) -> Shared<'g, T> {
        Shared::unmarked(self.address)
    }
}

impl<T> Clone for RemotePtr<T> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for RemotePtr<T> {}
impl<T> Default for RemotePtr<T> {
    fn default() -> Self {
        Self::NULL
    }
}
impl<T> PartialEq for RemotePtr<T> {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.address == other.address
    }
}
impl<T> Eq for RemotePtr<T> {}
impl<T> Hash for RemotePtr<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.address.hash(state);
    }
}
impl<T: Remote, M: MaybeMarks> PartialEq<Shared<'_, T, M>> for RemotePtr<T> {
    #[inline]
    fn eq(&self, other: &Shared<'_, T, M>) -> bool {
        other == self
    }
}
impl<T> fmt::Debug for RemotePtr<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.address, f)
    }
}

impl<T: Remote> Deref for RemotePtr<T> {
    type Target = T::Fields<'static>;
    #[inline]
    fn deref(&self) -> &T::Fields<'static> {
        T::fields(&self.address)
    }
}

impl<T: farfield_words::Remote> Pod for RemotePtr<T> {
    const FINGERPRINT: u64 = farfield_words::fingerprint::name("RemotePtr");
    #[inline]
    fn encode(self, out: &mut [u8]) {
        self.address.bits().encode(out);
    }
    #[inline]
    fn decode(bytes: &[u8]) -> Option<Self> {
        u64::decode(bytes).map(|bits| Self::from_address(Address::from_bits(bits)))
    }
    fn describe(describer: &mut farfield_words::Describer) {
        describer.pointer::<T>();
    }
}

impl<T: farfield_words::Remote> Word for RemotePtr<T> {
    #[inline]
    fn to_word(self) -> u64 {
        self.address.bits()
    }
    #[inline]
    fn from_word(word: u64) -> Option<Self> {
        Some(Self::from_address(Address::from_bits(word)))
    }
    fn initial() -> Self {
        Self::NULL
    }
}

impl<T> super::sealed::Sealed for RemotePtr<T> {
    fn points_to(&self) -> Address {
        self.address
    }
}
impl<T> super::Pointer for RemotePtr<T> {
    type Pointee = T;
}
