//! Words of far memory: the encoding of values, the addresses of words, and the geometry of a cluster's memory.
//!
//! This crate is the bottom layer of Farfield. It moves no word: fabrics (`farfield-fabric`) move words, and the library (`farfield`) defines their
//! meaning.
//!
//! | module or item | contents | look here to |
//! |---|---|---|
//! | [`Address`] | 16 bits of segment, 48 of offset; compressed addresses | change what an address can name |
//! | [`Block`] | the memory of an object: an address and a size | change what identifies an object's memory |
//! | [`geometry`] | nodes, segments and their sizes, checked on construction | change the bounds of a cluster's memory |
//! | [`Pod`], [`Word`], [`Field`] | the types that far memory can hold, and their encodings | add a plain type |
//! | [`Message`] | values that are sent to other threads, and the encodings of those that are no words | send another kind of value |
//! | [`Remote`], [`FieldInfo`], [`Shape`] | the layout that `#[remote]` generates for a struct | change what a layout guarantees |
//! | [`fingerprint`] | a 64-bit hash of a layout | change which layouts count as equal |
//! | [`describe`], [`layouts`] | writing and reading layouts as text, for programs without the type | add a kind of field |
//! | [`scratch`] | a buffer of words on the stack, as large as a layout | read an object without allocating |
//! | [`try_array`] | arrays that are built one value after the other | decode an array |
//! | [`ThreadId`] | the identity of a compute thread, as lock words hold it | change a lock's token |
//! | [`units`] | sizes and durations in the notation of URLs | add a unit |
//! | [`error`] | errors of this crate, and [`errors!`], which defines each layer's error type | add an error |
//!
//! Far memory holds plain bits. Three traits say which types a program may store there:
//!
//! - [`Pod`]: a value with a checked encoding of its own size: integers, `bool`, remote pointers, arrays of these. In a
//!   `#[remote]` struct it is a *frozen* field: written once, before the object is published.
//! - [`Word`]: a [`Pod`] of at most 8 bytes, which an atomic cell can hold.
//! - [`Field`]: anything a field of a `#[remote]` struct may be declared as: each [`Pod`], and the cells that have
//!   operations of their own (`Atomic`, `Link`, `Lock`, …).
//!
//! `#[remote]` implements [`Remote`] for a struct. Generated code lists the fields and their offsets only; these traits do the rest.
//!
//! Invariants that the layers above rely on:
//! 1. Decoding is total: any bits give a value or an error, never undefined behaviour.
//! 2. A remote layout is aligned to at least 8 bytes and its size is a multiple of 8, so it is a whole number of words.
//! 3. Multi-byte values are stored in the machine's own byte order; the fingerprint includes which one it is.
//! 4. A [`Geometry`] is checked: no arithmetic with its numbers overflows.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod address;
mod array;
mod block;
mod bytes;
pub mod describe;
pub mod error;
mod field;
pub mod fingerprint;
pub mod geometry;
pub mod layouts;
mod message;
mod pod;
mod printable;
mod remote;
pub mod scratch;
mod thread_id;
pub mod units;
mod word;

pub use address::{Address, MOST_MARKS, link_target, mark_bits};
pub use array::{try_array, try_map};
pub use block::Block;
pub use bytes::{Bytes, InStrings, InWords};
pub use describe::{Describe, Describer};
pub use error::{Error, PointerFault, Result};
pub use field::{DefaultInit, Field, FrozenField, Initial, invalid_value};
pub use geometry::Geometry;
pub use message::{Message, Reader, Writer};
pub use pod::Pod;
pub use remote::{FieldInfo, Remote, Shape, fingerprint_of, frozen_span};
pub use thread_id::ThreadId;
pub use word::{Integer, Word};

/// The bytes of a word of far memory.
pub const WORD_BYTES: usize = 8;
