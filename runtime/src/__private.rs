//! Items that generated code uses. Not part of the interface: they change without notice.

/// What `#[delegated]` and `#[derive(Message)]` generate.
pub mod delegation {
    pub use crate::delegation::{Args, Delegated, DelegatedMethod, Method, request, through};
    pub use farfield_words::{Message, Reader, Writer};
}

pub mod metadata;
mod refused;

pub use farfield_macros::implement;

pub use crate::cell::{NewObject, Owned, Place, Tag, attach, fetch};
pub use crate::entry::{run_main, run_sim_test, run_test};
pub use crate::pointer::Site;
pub use crate::pointer::{Address, Marks, RemotePtr, Shared};
pub use crate::{ComputeThread, Error, Result};
pub use farfield_words::{
    DefaultInit, Describer, Field, FieldInfo, FrozenField, Initial, Pod, Remote, Word, fingerprint,
    fingerprint_of,
};
pub use refused::Refused;
pub use std::result::Result::Ok;

/// Describes a struct that is nested in another.
pub fn describe_nested<T: Remote>(describer: &mut Describer) {
    describer.nested::<T>();
}

/// The result of decoding a field.
pub type Decoded<T> = farfield_words::Result<T>;

/// The type of a field's initial value.
pub type Init<F> = <F as Field>::Init;

/// A pointer with mark bits: the value of a link.
pub trait Marked: Sized {
    /// Returns whether a bit is set.
    fn has_mark(&self, bit: u64) -> bool;
    /// Returns the pointer with a bit set.
    #[must_use]
    fn set_mark(self, bit: u64) -> Self;
    /// Returns the pointer with a bit clear.
    #[must_use]
    fn clear_mark(self, bit: u64) -> Self;
}

impl<T: Remote, M: Marks> Marked for Shared<'_, T, M> {
    #[inline]
    fn has_mark(&self, bit: u64) -> bool {
        self.marks() & bit != 0
    }
    #[inline]
    fn set_mark(self, bit: u64) -> Self {
        self.with_marks(self.marks() | bit)
    }
    #[inline]
    fn clear_mark(self, bit: u64) -> Self {
        self.with_marks(self.marks() & !bit)
    }
}

/// Allocates a block and builds an object's image.
#[inline]
pub fn new_in<'a, T: Remote>(site: impl Into<Site<'a>>, init: T::Init) -> NewObject<'a, T> {
    NewObject::new(site.into(), init)
}

/// Returns whether a handle has frozen fields.
pub const fn is_frozen<T: Remote>() -> bool {
    let mut index = 0;
    while index < T::FIELDS.len() {
        if T::FIELDS[index].shape.frozen {
            return true;
        }
        index += 1;
    }
    false
}

/// Proves that the type of `#[marks(like = …)]` names marks.
pub const fn are_marks<M: Marks>() {}

/// Returns the offset of the length word of a struct's tail, `within` its last field.
pub const fn tail_offset<T: Remote>(within: usize) -> usize {
    T::FIELDS[T::FIELDS.len() - 1].offset + within
}

/// Returns the offset of field number `INDEX` of a `T`, in bytes.
#[inline]
pub const fn offset<T: Remote, const INDEX: usize>() -> usize {
    const { T::FIELDS[INDEX].offset }
}

/// Returns the place of field number `INDEX` of the `T` at `at`.
#[inline]
pub const fn place<'g, T: Remote, F, const INDEX: usize>(at: Address) -> Place<'g, F> {
    Place::at_address(at.add(offset::<T, INDEX>() as u64))
}

/// Returns the part of an image or snapshot that begins with field number `INDEX` of a `T`.
#[inline]
pub fn part<T: Remote, const INDEX: usize>(at: Address, bytes: &[u8]) -> (Address, &[u8]) {
    (at.add(offset::<T, INDEX>() as u64), &bytes[offset::<T, INDEX>()..])
}
