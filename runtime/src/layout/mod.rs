//! Layouts: how values lie in far memory, word by word.
//!
//! Far memory holds plain bits. What a program may put there is decided by three traits:
//!
//! - [`Pod`]: a value with a checked encoding of its own size: integers, `bool`, `RemotePtr`, arrays of these. In a
//!   `#[remote]` struct it is a *frozen* field: written once, before the object is published.
//! - [`Word`]: a [`Pod`] of at most 8 bytes, which an atomic cell can hold.
//! - [`Field`]: anything a field of a `#[remote]` struct may be declared as: each [`Pod`], and the cells that have
//!   operations of their own ([`Atomic`](crate::Atomic), [`Link`](crate::Link), [`Lock`](crate::Lock), …).
//!
//! [`Remote`] is what `#[remote]` implements for a struct. Everything a cell can do with far memory is in these traits;
//! generated code only says which fields there are and where.
//!
//! Invariants that the rest of the runtime relies on:
//! 1. Decoding is total: any bits give a value or an error, never undefined behaviour.
//! 2. A remote layout is aligned to at least 8 bytes and its size is a multiple of 8, so it is a whole number of words.
//! 3. Multi-byte values are stored in the machine's own byte order; the fingerprint includes which one it is.

pub(crate) mod describe;
pub(crate) mod described;
mod field;
pub mod fingerprint;
mod pod;
mod remote;
pub(crate) mod scratch;
mod word;

pub use describe::{Describe, Describer};
pub use field::{DefaultInit, Field, FrozenField, Initial};
pub(crate) use field::{invalid_value, try_array, try_map};
pub use pod::Pod;
pub(crate) use remote::frozen_span;
pub use remote::{FieldInfo, Remote, Shape, fingerprint_of};
pub use word::{Integer, Word};

/// The bytes of a word of far memory.
pub const WORD_BYTES: usize = 8;
