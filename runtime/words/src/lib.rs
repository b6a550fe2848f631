//! Words of far memory: what a value looks like there, where it is, and how much room there is.
//!
//! The bottom layer of Farfield. Nothing here moves a word: the crate has addresses, the shape of a cluster's memory, the encodings of
//! values, and the errors of all three. Fabrics (`farfield-fabric`) move words; the library (`farfield`) gives them meaning.
//!
//! | module or item | what it is | look here to |
//! |---|---|---|
//! | [`Address`] | 16 bits of segment, 48 of offset; compressed addresses | change what an address can name |
//! | [`Block`] | the memory of an object: an address and a size | |
//! | [`geometry`] | nodes, segments and their sizes, checked when made | change the bounds of a cluster's memory |
//! | [`Pod`], [`Word`], [`Field`] | what may lie in far memory, and how it is encoded | add a plain type |
//! | [`Remote`], [`FieldInfo`], [`Shape`] | what `#[remote]` implements for a struct | change what a layout promises |
//! | [`fingerprint`] | 64 bits that tell layouts apart | |
//! | [`describe`], [`layouts`] | layouts as text, for programs that do not have the type | add a kind of field |
//! | [`scratch`] | a buffer of words on the stack | |
//! | [`ThreadId`] | names a compute thread, in the words of locks | |
//! | [`units`] | sizes and durations as URLs write them | |
//! | [`error`] | errors of all this, and [`errors!`], which makes each layer's error type | add an error |
//!
//! Far memory holds plain bits. What a program may put there is decided by three traits:
//!
//! - [`Pod`]: a value with a checked encoding of its own size: integers, `bool`, remote pointers, arrays of these. In a
//!   `#[remote]` struct it is a *frozen* field: written once, before the object is published.
//! - [`Word`]: a [`Pod`] of at most 8 bytes, which an atomic cell can hold.
//! - [`Field`]: anything a field of a `#[remote]` struct may be declared as: each [`Pod`], and the cells that have
//!   operations of their own (`Atomic`, `Link`, `Lock`, …).
//!
//! [`Remote`] is what `#[remote]` implements for a struct. Everything a cell can do with far memory is in these traits;
//! generated code only says which fields there are and where.
//!
//! Invariants that the layers above rely on:
//! 1. Decoding is total: any bits give a value or an error, never undefined behaviour.
//! 2. A remote layout is aligned to at least 8 bytes and its size is a multiple of 8, so it is a whole number of words.
//! 3. Multi-byte values are stored in the machine's own byte order; the fingerprint includes which one it is.
//! 4. A [`Geometry`] is checked: no arithmetic with its numbers overflows.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod address;
mod block;
pub mod describe;
pub mod error;
mod field;
pub mod fingerprint;
pub mod geometry;
pub mod layouts;
mod pod;
mod printable;
mod remote;
pub mod scratch;
mod thread_id;
pub mod units;
mod word;

pub use address::{Address, link_targets};
pub use block::Block;
pub use describe::{Describe, Describer};
pub use error::{Error, PointerFault, Result};
pub use field::{DefaultInit, Field, FrozenField, Initial, invalid_value, try_array, try_map};
pub use geometry::Geometry;
pub use pod::Pod;
pub use remote::{FieldInfo, Remote, Shape, fingerprint_of, frozen_span};
pub use thread_id::ThreadId;
pub use word::{Integer, Word};

/// The bytes of a word of far memory.
pub const WORD_BYTES: usize = 8;
