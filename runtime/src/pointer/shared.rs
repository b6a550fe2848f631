//! `Shared<'g, T>`: what a link holds, for as long as the guard it was loaded under.
//!
//! The lifetime is the protection. A `Shared<'g, T>` is loaded under the guard that `'g` borrows, and everything got from it
//! (its fields' places, their elements, snapshots, and the links in them) has that lifetime too. A read through another
//! guard can only shorten it: the result lives while *both* guards do. The argument is that of epoch-based
//! reclamation: an object found from `object` was reachable at some moment after the guard of `object` was pinned, so only
//! that guard is known to protect it; a guard pinned later may be younger than the object's retirement.
//!
//! [`Shared::as_ptr`] is the way out: the plain pointer that it returns has no lifetime and no protection.
//!
//! The second parameter says which marks the link has. `#[marks(deleted)]` on a field of `Node` declares the type
//! `NodeMarked`; the field's link is a `Link<T, NodeMarked>`, what it holds is a `Shared<'g, T, NodeMarked>`, and only that
//! has `is_deleted`. A pointer without named marks is a `Shared<'g, T>`.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use crate::pointer::{Address, RemotePtr};
use farfield_words::Remote;

/// What a pointer leads to and how it is marked: a function's result, so that the pointer may be sent wherever it is used.
type Pointee<T, M> = fn() -> (T, M);

/// The named marks of a link: a type that `#[marks(…)]` declares.
///
/// Not for implementing by hand.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not name a link's marks",
    label = "is not declared by `#[marks(…)]`",
    note = "`#[marks(deleted)]` on a field of `Node` declares `NodeMarked`"
)]
pub trait Marks: 'static {}

/// A pointer loaded under a guard: an address and the marks that stood beside it in the link.
///
/// While the guard is held the object is not freed, even if another thread unlinks and retires it meanwhile. The
/// lifetime `'g` makes the compiler refuse to use the pointer, or anything got through it, after the guard is gone.
///
/// `M` is the type that declares the link's [marks](Marks), or `()`.
///
/// Equality compares address *and* marks, as the word in far memory would. It dereferences to `T`'s accessors, for
/// which the marks do not matter.
pub struct Shared<'g, T, M = ()> {
    /// Where it points. It is here, and not computed where it is used, because dereferencing needs a reference to it.
    address: Address,
    /// The link's word: the address and, in the bits that its alignment leaves free, the marks.
    word: u64,
    guard: PhantomData<(&'g (), Pointee<T, M>)>,
}

impl<T> Shared<'_, T> {
    /// The pointer that points nowhere, without marks.
    pub const NULL: Self = Self::unmarked(Address::NULL);
}

impl<'g, T> Shared<'g, T> {
    /// The same address, as a link with the marks `M` holds it, with none of them set: to set one before it is stored.
    #[inline]
    #[must_use]
    pub const fn as_marked<M: Marks>(self) -> Shared<'g, T, M> {
        Shared::unmarked(self.address)
    }
}

impl<'g, T, M> Shared<'g, T, M> {
    #[inline]
    pub(crate) const fn unmarked(address: Address) -> Self {
        Self { address, word: address.bits(), guard: PhantomData }
    }

    /// Where it points, without the marks. For comparing and printing: an address protects nothing.
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

    /// The same address with no mark, as a pointer without named marks: what is followed, whichever link it came from.
    #[inline]
    #[must_use]
    pub const fn without_marks(self) -> Shared<'g, T> {
        Shared::unmarked(self.address)
    }

    /// The plain pointer, without marks, without a lifetime, and **without the guard's protection**: the one way to keep
    /// a pointer for longer than its guard.
    ///
    /// The caller answers for the object then: that it is never retired while the pointer is used (a sentinel, a root), or that it
    /// is protected by another guard. An object that was unlinked and is used after the guard must be
    /// [held](crate::ComputeThread::hold). The simulator reports an access through it to an object that was freed
    /// ([`Finding::UseAfterFree`](crate::sim::Finding)).
    #[inline]
    pub const fn as_ptr(self) -> RemotePtr<T> {
        RemotePtr::from_address(self.address)
    }
}

impl<T: Remote, M> Shared<'_, T, M> {
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

impl<T, M> Clone for Shared<'_, T, M> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}
impl<T, M> Copy for Shared<'_, T, M> {}
/// Address and marks, also of links whose marks have different names.
impl<T, M, N> PartialEq<Shared<'_, T, N>> for Shared<'_, T, M> {
    #[inline]
    fn eq(&self, other: &Shared<'_, T, N>) -> bool {
        self.word == other.word
    }
}
impl<T, M> Eq for Shared<'_, T, M> {}
/// Whether it is this pointer, unmarked.
impl<T, M> PartialEq<RemotePtr<T>> for Shared<'_, T, M> {
    #[inline]
    fn eq(&self, other: &RemotePtr<T>) -> bool {
        self.word == other.address().bits()
    }
}
impl<T, M> fmt::Debug for Shared<'_, T, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.address)?;
        match self.marks() {
            0 => Ok(()),
            marks => write!(f, "+{marks:#b}"),
        }
    }
}

impl<'g, T: Remote, M> Deref for Shared<'g, T, M> {
    type Target = T::Fields<'g>;
    #[inline]
    fn deref(&self) -> &T::Fields<'g> {
        T::fields(&self.address)
    }
}

impl<T, M> super::sealed::Sealed for Shared<'_, T, M> {
    fn points_to(&self) -> Address {
        self.address
    }
}
impl<T, M> super::Pointer for Shared<'_, T, M> {
    type Pointee = T;
}
