//! `Shared<'g, T>`: the value of a link, with the lifetime of the guard under which it was loaded.
//!
//! The lifetime is the protection. A `Shared<'g, T>` is loaded under the guard that `'g` borrows. Everything reached through it (its fields' places,
//! their elements, snapshots, and the links in them) has that lifetime, too. A read through another guard can only shorten it: the result lives while
//! *both* guards do. This follows from epoch-based reclamation. An object found through `object` was reachable at some moment after the guard of
//! `object` was pinned, so only that guard is known to protect it; a guard pinned later may be younger than the object's retirement.
//!
//! [`Shared::as_ptr`] removes the lifetime: the plain pointer that it returns has no protection.
//!
//! The second parameter names the marks of the link. `#[marks(deleted)]` on a field of `Node` declares the type `NodeMarked`. The field's link is a
//! `Link<T, NodeMarked>`, its value is a `Shared<'g, T, NodeMarked>`, and only that type has `is_deleted`. A pointer without named marks is a
//! `Shared<'g, T>`, and has no marks.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use crate::pointer::{Address, RemotePtr};
use farfield_words::{Remote, mark_bits};

/// The type of the object and that of the marks. As a function's result they do not restrict sending the pointer between threads.
type Pointee<T, M> = fn() -> (T, M);

/// The named marks of a link: a type that `#[marks(…)]` declares.
///
/// Implemented by `#[marks(…)]` only.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not name a link's marks",
    label = "is not declared by `#[marks(…)]`",
    note = "`#[marks(deleted)]` on a field of `Node` declares `NodeMarked`"
)]
pub trait Marks: 'static {}

/// The marks of a [`Shared`]'s link: named ones, or `()`, which has none.
///
/// Implemented for these, and by `#[marks(…)]` for no other type.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not name a link's marks",
    label = "is not declared by `#[marks(…)]`",
    note = "`#[marks(deleted)]` on a field of `Node` declares `NodeMarked`"
)]
pub trait MaybeMarks: sealed::Sealed + 'static {
    /// What a pointer keeps beside its address: the link's word, or nothing.
    #[doc(hidden)]
    type Kept: Copy;

    /// Decodes a link's word, of which `mask` has the bits for marks.
    #[doc(hidden)]
    fn decode(word: u64, mask: u64) -> (Address, Self::Kept);

    /// Returns the link's word.
    #[doc(hidden)]
    fn word(address: Address, kept: Self::Kept) -> u64;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for () {}
    impl<M: super::Marks> Sealed for M {}
}

impl MaybeMarks for () {
    type Kept = ();

    #[inline]
    fn decode(word: u64, _: u64) -> (Address, ()) {
        (Address::from_bits(word), ())
    }
    #[inline]
    fn word(address: Address, (): ()) -> u64 {
        address.bits()
    }
}

#[diagnostic::do_not_recommend]
impl<M: Marks> MaybeMarks for M {
    type Kept = u64;

    #[inline]
    fn decode(word: u64, mask: u64) -> (Address, u64) {
        (Address::from_bits(word & !mask), word)
    }
    #[inline]
    fn word(_: Address, word: u64) -> u64 {
        word
    }
}

/// A pointer loaded under a guard: an address, and the mark bits of the link.
///
/// The object is not freed while the guard is held, even if another thread unlinks and retires it meanwhile. The compiler rejects the use of the
/// pointer, and of everything reached through it, after the guard is dropped: that is the lifetime `'g`.
///
/// `M` is the type that declares the link's [marks](Marks), or `()`: such a pointer is its address, and takes 8 bytes.
///
/// Equality compares address *and* marks, like the words in far memory. It dereferences to `T`'s accessors, which ignore the marks.
pub struct Shared<'g, T, M: MaybeMarks = ()> {
    /// The object's address. Stored, since dereferencing returns a reference to it.
    address: Address,
    /// With marks, the link's word: the address, and the marks in the lowest bits that are zero by its alignment. A traversal keeps its pointers in the memory
    /// of its `async fn`, where each word is a store at each step, so a pointer without marks has none.
    kept: M::Kept,
    guard: PhantomData<(&'g (), Pointee<T, M>)>,
}

impl<'g, T> Shared<'g, T> {
    /// The null pointer, without marks.
    pub const NULL: Self = Self::unmarked(Address::NULL);

    #[inline]
    pub(crate) const fn unmarked(address: Address) -> Self {
        Self { address, kept: (), guard: PhantomData }
    }

    /// Returns the same address as the value of a link with the marks `M`, none of which is set. Use it to set a mark before a store.
    #[inline]
    #[must_use]
    pub const fn as_marked<M: Marks>(self) -> Shared<'g, T, M> {
        Shared { address: self.address, kept: self.address.bits(), guard: PhantomData }
    }
}

impl<'g, T, M: MaybeMarks> Shared<'g, T, M> {
    /// Returns the address, without marks. For comparisons and output: an address is no protection.
    #[inline]
    pub const fn address(self) -> Address {
        self.address
    }

    /// Returns the mark bits of the link; 0 without named marks.
    #[inline]
    pub fn marks(self) -> u64 {
        self.to_word() ^ self.address.bits()
    }

    /// Returns whether the address is null, marked or not.
    #[inline]
    pub const fn is_null(self) -> bool {
        self.address.is_null()
    }

    /// Returns the same address without marks, and as a pointer without named marks.
    #[inline]
    #[must_use]
    pub const fn without_marks(self) -> Shared<'g, T> {
        Shared::unmarked(self.address)
    }

    /// Returns the plain pointer, without marks, without a lifetime, and **without the guard's protection**. This is the only way to keep a pointer
    /// for longer than its guard.
    ///
    /// The caller must ensure that the object is never retired while the pointer is used (a sentinel, a root), or is protected by another guard. An
    /// unlinked object that is used after the guard must be [held](crate::ComputeThread::hold). The simulator reports an access through the pointer
    /// to a freed object ([`Finding::UseAfterFree`](crate::sim::Finding)).
    #[inline]
    pub const fn as_ptr(self) -> RemotePtr<T> {
        RemotePtr::from_address(self.address)
    }

    /// Encodes the link's word.
    #[inline]
    pub(crate) fn to_word(self) -> u64 {
        M::word(self.address, self.kept)
    }
}

impl<T: Remote, M: MaybeMarks> Shared<'_, T, M> {
    /// The number of mark bits in a link to `T` with named marks: the zero bits of its alignment, 6 at most.
    pub const MARK_BITS: u32 = mark_bits(T::ALIGN);
    const MARK_MASK: u64 = (1 << Self::MARK_BITS) - 1;

    /// Decodes a link's word. A word with other bits below the object's alignment than those of named marks is a wrong address, and its use an error.
    #[inline]
    pub(crate) fn from_word(word: u64) -> Self {
        let (address, kept) = M::decode(word, Self::MARK_MASK);
        Self { address, kept, guard: PhantomData }
    }
}

impl<T: Remote, M: Marks> Shared<'_, T, M> {
    /// Returns the same address with exactly these marks. Bits beyond the [number of marks](Self::MARK_BITS) are dropped.
    ///
    /// `#[marks(…)]` generates named methods that call this.
    #[inline]
    #[must_use]
    pub const fn with_marks(self, marks: u64) -> Self {
        let word = self.address.bits() | (marks & Self::MARK_MASK);
        Self { address: self.address, kept: word, guard: PhantomData }
    }
}

impl<T, M: MaybeMarks> Clone for Shared<'_, T, M> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}
impl<T, M: MaybeMarks> Copy for Shared<'_, T, M> {}
/// Compares address and marks. The two links may have different names of marks.
impl<T, M: MaybeMarks, N: MaybeMarks> PartialEq<Shared<'_, T, N>> for Shared<'_, T, M> {
    #[inline]
    fn eq(&self, other: &Shared<'_, T, N>) -> bool {
        self.to_word() == other.to_word()
    }
}
impl<T, M: MaybeMarks> Eq for Shared<'_, T, M> {}
/// True if the addresses are equal and no mark is set.
impl<T, M: MaybeMarks> PartialEq<RemotePtr<T>> for Shared<'_, T, M> {
    #[inline]
    fn eq(&self, other: &RemotePtr<T>) -> bool {
        self.to_word() == other.address().bits()
    }
}
impl<T, M: MaybeMarks> fmt::Debug for Shared<'_, T, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.address)?;
        match self.marks() {
            0 => Ok(()),
            marks => write!(f, "+{marks:#b}"),
        }
    }
}

impl<'g, T: Remote, M: MaybeMarks> Deref for Shared<'g, T, M> {
    type Target = T::Fields<'g>;
    #[inline]
    fn deref(&self) -> &T::Fields<'g> {
        T::fields(&self.address)
    }
}

impl<T, M: MaybeMarks> super::sealed::Sealed for Shared<'_, T, M> {
    fn points_to(&self) -> Address {
        self.address
    }
}
impl<T, M: MaybeMarks> super::Pointer for Shared<'_, T, M> {
    type Pointee = T;
}
