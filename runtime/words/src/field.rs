//! `Field`: the types that a field of a `#[remote]` struct may have.

use std::fmt::Debug;

use crate::Address;
use crate::error::{self, Error, Result};
use crate::{Describe, Describer, Pod, Shape};

/// A type that a field of a `#[remote]` struct may have.
///
/// A declaration has a different type in each context; each is an associated type:
///
/// | type | a plain `u64` | `Atomic<u64>` | nested `#[remote] Point` |
/// |---|---|---|---|
/// | [`Cell`](Field::Cell): its bytes in far memory | `u64` | 8 bytes | `PointThis` |
/// | [`Init`](Field::Init): the argument that builds a new field | `u64` | `u64` | `PointInit` |
/// | [`Value`](Field::Value): in a snapshot | `u64` | `u64` | `PointSnapshot` |
/// | [`Stored`](Field::Stored): kept by a handle | `u64` | its `Place` | the handle `Point` |
/// | [`Kept`](Field::Kept): returned by a handle's accessor | `u64` | its `Place` | `&Point` |
///
/// Not to be implemented by hand: every plain type is a field, and `#[remote]` implements it for its struct.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot live in far memory",
    label = "cannot be a field of a `#[remote]` struct",
    note = "use a plain value (`u64`, `[u8; 32]`, `RemotePtr<T>`, …), a cell (`Atomic<T>`, `Link<T>`, `Lock`, `Versioned<T>`), another `#[remote]` struct, or mark the field `#[local]`"
)]
pub trait Field: Sized + 'static {
    /// The type whose size and alignment the field has in far memory.
    type Cell: 'static;
    /// The argument from which a new object's field is built.
    type Init;
    /// The field's type in a snapshot.
    type Value<'g>: Clone + Debug;
    /// The field's type in a handle.
    type Stored;
    /// The type that a handle's accessor returns.
    type Kept<'a>;

    /// The declaration's part of a layout fingerprint.
    const FINGERPRINT: u64;
    /// True if any part of the field is frozen, so that a handle has to read it on `attach`.
    const FROZEN: bool;
    /// The bytes of one tail element, or 0 if the field has a fixed size.
    const TAIL_STRIDE: usize = 0;
    /// The offset of the tail's length word, in bytes from the field's start.
    const TAIL_OFFSET: usize = 0;

    /// The field's entry in a layout.
    const SHAPE: Shape = Shape {
        fingerprint: Self::FINGERPRINT,
        size: size_of::<Self::Cell>(),
        align: align_of::<Self::Cell>(),
        frozen: Self::FROZEN,
        tail_stride: Self::TAIL_STRIDE,
        tail_offset: Self::TAIL_OFFSET,
        describe: Describe(Self::describe),
    };

    /// Writes the field's description, for programs that do not have the type.
    #[doc(hidden)]
    fn describe(describer: &mut Describer);

    /// Returns the bytes that a new object needs beyond its fixed part.
    fn tail_bytes(init: &Self::Init) -> usize {
        let _ = init;
        0
    }

    /// Writes a new field's bytes to the front of `out`, which is zero.
    fn encode(init: Self::Init, out: &mut [u8]);

    /// Decodes the field whose bytes are at the front of `bytes`, read from `at`.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] if no value has these bits.
    fn decode<'g>(at: Address, bytes: &[u8]) -> Result<Self::Value<'g>>;

    /// Builds the handle's part for the field at `at`, whose bytes are at the front of `bytes`.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] if a frozen value has impossible bits.
    fn store(at: Address, bytes: &[u8]) -> Result<Self::Stored>;

    /// Returns a handle's view of the field.
    fn kept(stored: &Self::Stored) -> Self::Kept<'_>;
}

/// A field whose value one READ of its bytes determines: a plain value, a nested struct, an array.
pub trait FrozenField: Field {}

impl<T: Pod> FrozenField for T {}

impl<T: Pod> Field for T {
    type Cell = T;
    type Init = T;
    type Value<'g> = T;
    type Stored = T;
    type Kept<'a> = T;

    const FINGERPRINT: u64 = T::FINGERPRINT;
    const FROZEN: bool = size_of::<T>() > 0;

    fn describe(describer: &mut Describer) {
        <T as Pod>::describe(describer);
    }
    #[inline]
    fn encode(init: T, out: &mut [u8]) {
        Pod::encode(init, out);
    }
    #[inline]
    fn decode<'g>(at: Address, bytes: &[u8]) -> Result<Self::Value<'g>> {
        Pod::decode(bytes).ok_or_else(|| invalid_value::<T>(at))
    }
    #[inline]
    fn store(at: Address, bytes: &[u8]) -> Result<T> {
        <T as Field>::decode(at, bytes)
    }
    #[inline]
    fn kept(stored: &T) -> T {
        *stored
    }
}

/// A field with a default initial value: an atomic, a link, a lock, an array of them.
pub trait DefaultInit: Field {
    /// Returns the default initial value.
    fn default_init() -> Self::Init;
}

/// A value that can initialise, or be compared with, a field built from an `I`: an `I`, or for a link any pointer without marks or with the link's
/// own marks.
///
/// Setters of generated `Init` types and `Owned::set` take it, so that
/// `Node::init(key).next(shared)` needs no conversion.
#[diagnostic::on_unimplemented(
    message = "this field cannot hold `{Self}`",
    label = "expected `{I}`",
    note = "a link holds a `Shared` or a `RemotePtr` to the struct it points to, an atomic or a plain field its value",
    note = "a pointer from a link with other marks is used without them: `pointer.without_marks()`"
)]
pub trait Initial<I> {
    /// Converts to the value from which the field is built.
    fn into_init(self) -> I;
}

impl<I> Initial<I> for I {
    #[inline]
    fn into_init(self) -> I {
        self
    }
}

/// Returns the error for bits that are not a `T`.
#[cold]
pub fn invalid_value<T>(address: Address) -> Error {
    Error::from(error::InvalidValue { address, type_name: std::any::type_name::<T>() })
}
