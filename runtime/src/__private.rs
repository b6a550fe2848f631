//! What generated code uses. Not part of the interface: it changes without notice.

pub use crate::layout::{DefaultInit, Field, FieldInfo, FrozenField, Initial, Pod, Remote, Word, fingerprint, fingerprint_of};
pub use crate::memory::site::Site;
pub use crate::place::{Array, Place, attach, fetch};
pub use crate::pointer::{Address, Owned, RemotePtr, Shared};
pub use crate::entry::{run_main, run_test};
pub use crate::{ComputeThread, Error, Result};
pub use std::result::Result::Ok;

/// A field's bytes in far memory.
pub type Cell<F> = <F as Field>::Cell;
/// What a handle keeps of a field.
pub type Stored<F> = <F as Field>::Stored;
/// What a new object's field is built from.
pub type Init<F> = <F as Field>::Init;
/// What a snapshot holds of a field.
pub type Value<'g, F> = <F as Field>::Value<'g>;
/// What a handle's accessor gives for a field.
pub type Kept<'a, F> = <F as Field>::Kept<'a>;

/// Allocates a block and builds an object's image.
pub async fn new_in<'a, T: Remote>(site: impl Into<Site<'a>>, init: T::Init) -> Result<Owned<T>> {
    Owned::new(site.into(), init).await
}

/// Whether a handle has anything to read.
pub const fn is_frozen<T: Remote>() -> bool {
    let mut index = 0;
    while index < T::FIELDS.len() {
        if T::FIELDS[index].frozen {
            return true;
        }
        index += 1;
    }
    false
}

/// Where the length word of a struct's tail is, if its last field `F`, number `INDEX`, has one.
pub const fn tail_offset<T: Remote, F: Field, const INDEX: usize>() -> usize {
    if F::TAIL_STRIDE == 0 { 0 } else { T::FIELDS[INDEX].offset + F::TAIL_OFFSET }
}

/// The place of field number `INDEX` of the `T` at `at`.
#[inline]
pub const fn place<T: Remote, F: Field, const INDEX: usize>(at: Address) -> Place<F> {
    Place::from_address(at.add(const { T::FIELDS[INDEX].offset as u64 }))
}

/// Writes field number `INDEX` of a `T` into its image.
#[inline]
pub fn encode<T: Remote, F: Field, const INDEX: usize>(init: F::Init, out: &mut [u8]) {
    F::encode(init, &mut out[const { T::FIELDS[INDEX].offset }..]);
}

/// The value of field number `INDEX` of the `T` at `at`.
#[inline]
pub fn decode<'g, T: Remote, F: Field, const INDEX: usize>(at: Address, bytes: &[u8]) -> Result<F::Value<'g>> {
    F::decode(place::<T, F, INDEX>(at).address(), &bytes[const { T::FIELDS[INDEX].offset }..])
}

/// What a handle keeps of field number `INDEX` of the `T` at `at`.
#[inline]
pub fn store<T: Remote, F: Field, const INDEX: usize>(at: Address, bytes: &[u8]) -> Result<F::Stored> {
    F::store(place::<T, F, INDEX>(at).address(), &bytes[const { T::FIELDS[INDEX].offset }..])
}

/// What a handle's accessor gives.
#[inline]
pub fn kept<F: Field>(stored: &F::Stored) -> F::Kept<'_> {
    F::kept(stored)
}

/// The value of a field that has a default.
pub fn default_init<F: DefaultInit>() -> F::Init {
    F::default_init()
}
