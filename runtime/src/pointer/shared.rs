//! `Shared<'g, T>`: what a link holds, for as long as the guard it was loaded under.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use crate::layout::Remote;
use crate::pointer::{Address, RemotePtr};

/// What a pointer leads to: a function's result, so that the pointer may be sent wherever it is used.
type Pointee<T> = fn() -> T;

/// A pointer loaded under a guard: an address and the marks that stood beside it in the link.
///
/// While the guard is held the object is not freed, even if another thread unlinks and retires it meanwhile. The
/// lifetime `'g` makes the compiler refuse to use the pointer after the guard is gone.
///
/// Equality compares address *and* marks, as the word in far memory would. It dereferences to `T`'s accessors, for
/// which the marks do not matter.
pub struct Shared<'g, T> {
    /// Where it points. It is here, and not computed where it is used, because dereferencing needs a reference to it.
    address: Address,
    /// The link's word: the address and, in the bits that its alignment leaves free, the marks.
    word: u64,
    guard: PhantomData<(&'g (), Pointee<T>)>,
}

impl<T> Shared<'_, T> {
    /// The unmarked pointer that points nowhere.
    pub const NULL: Self = Self::unmarked(Address::NULL);

    #[inline]
    pub(crate) const fn unmarked(address: Address) -> Self {
        Self { address, word: address.bits(), guard: PhantomData }
    }

    /// Where it points, without the marks.
    #[inline]
    pub const fn address(self) -> Address {
        self.address
    }

    /// The mark bits that stood in the link beside the address.
    #[inline]
    pub const fn marks(self) -> u64 {
        self.word ^ self.address.bits()
    }

    /// Whether it points nowhere, marked or not.
    #[inline]
    pub const fn is_null(self) -> bool {
        self.address.is_null()
    }

    /// The same address with no mark.
    #[inline]
    #[must_use]
    pub const fn without_marks(self) -> Self {
        Self::unmarked(self.address)
    }

    /// The plain pointer, without marks and without the guard's protection. If the object has been unlinked, and is used when the
    /// guard is gone, [hold](crate::ComputeThread::hold) it.
    #[inline]
    pub const fn as_ptr(self) -> RemotePtr<T> {
        RemotePtr::from_address(self.address)
    }
}

impl<T: Remote> Shared<'_, T> {
    /// How many mark bits a link to `T` has: the zero bits below its alignment.
    pub const MARK_BITS: u32 = T::ALIGN.trailing_zeros();
    const MARK_MASK: u64 = T::ALIGN as u64 - 1;

    /// What a link with this word holds.
    #[inline]
    pub(crate) fn from_word(word: u64) -> Self {
        Self { address: Address::from_bits(word & !Self::MARK_MASK), word, guard: PhantomData }
    }

    /// The word that a link holding this has.
    #[inline]
    pub(crate) fn to_word(self) -> u64 {
        self.word
    }

    /// The same address with exactly these marks; bits that `T`'s alignment has no room for are dropped.
    ///
    /// `#[marks(…)]` generates named helpers over this.
    #[inline]
    #[must_use]
    pub const fn with_marks(self, marks: u64) -> Self {
        let word = self.address.bits() | (marks & Self::MARK_MASK);
        Self { address: self.address, word, guard: PhantomData }
    }
}

impl<T> Clone for Shared<'_, T> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Shared<'_, T> {}
impl<T> PartialEq for Shared<'_, T> {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.word == other.word
    }
}
impl<T> Eq for Shared<'_, T> {}
/// Whether it is this pointer, unmarked.
impl<T> PartialEq<RemotePtr<T>> for Shared<'_, T> {
    #[inline]
    fn eq(&self, other: &RemotePtr<T>) -> bool {
        self.word == other.address().bits()
    }
}
impl<T> fmt::Debug for Shared<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.address)?;
        match self.marks() {
            0 => Ok(()),
            marks => write!(f, "+{marks:#b}"),
        }
    }
}

impl<T: Remote> Deref for Shared<'_, T> {
    type Target = T::Fields;
    #[inline]
    fn deref(&self) -> &T::Fields {
        T::fields(&self.address)
    }
}
