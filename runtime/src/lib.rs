//! Farfield: distributed data structures over far memory, written as ordinary async Rust.
//!
//! Annotate a struct with [`#[remote]`](macro@remote); its fields then live in *far memory*, which is this process's
//! own, another process's, or another machine's. Methods on it are ordinary `async fn`s that take a
//! [`&ComputeThread`](ComputeThread).
//!
//! ```
//! use farfield::prelude::*;
//!
//! /// A counter that every thread of the cluster can add to.
//! #[remote]
//! pub struct Counter {
//!     value: Atomic<u64>,
//! }
//!
//! fn main() -> farfield::Result<()> {
//!     let cluster = Cluster::connect("local:")?;
//!     cluster.run(4, async |ct| {
//!         let root = ct.root_or_init("hits", async || {
//!             Counter::new_in(ct, Counter::init()).await?.write(ct).await
//!         }).await?;
//!         root.value().fetch_add(ct, 1).await?;
//!         ct.barrier("counted").await?;
//!         assert_eq!(root.value().load(ct).await?, 4);
//!         Ok(())
//!     })?;
//!     Ok(())
//! }
//! ```
//!
//! Two mantras explain the rest:
//!
//! 1. **Data is distributed, code is replicated.** An object is in one place; each thread has a *handle* of its own.
//! 2. **`This` is for data, `self` is for code.** `handle.this()` points to the object, and what it gives access to is
//!    far away; `self` is here, with what was read once and never changes.
//!
//! | to | use |
//! |---|---|
//! | connect and start threads | [`Cluster`], [`ComputeThread`] |
//! | define what lives in far memory | [`#[remote]`](macro@remote), [`Word`](macro@Word), [`Atomic`], [`Link`], [`StampedLink`], [`Lock`], [`Versioned`], [`Tail`] |
//! | point to it | [`RemotePtr`], [`Shared`], [`Owned`] |
//! | reach a field | [`Place`], [`fetch!`](macro@fetch) |
//! | not free what others still read | [`Guard`] |
//!
//! The memory model is the same wherever far memory is: a word of 8 bytes is atomic; operations on one word are
//! sequentially consistent; a longer read or write is a sequence of word accesses in address order, which may be torn
//! between words; the operations of a chain take effect in program order.

#![cfg_attr(docsrs, feature(doc_cfg))]

// The generated code names this crate by its name, here as elsewhere.
#[allow(unused_extern_crates)]
extern crate self as farfield;

#[cfg(not(target_pointer_width = "64"))]
compile_error!("farfield needs a target with 64-bit pointers: far memory is addressed by 64-bit words");

mod cluster;
mod entry;
mod error;
mod fabric;
pub mod layout;
mod memory;
mod place;
mod pointer;
mod primitive;
mod task;

pub use cluster::{Cluster, ComputeThread, Metrics, ThreadId};
pub use error::{Error, PointerFault, Result};
pub use farfield_macros::{Word, fetch, main, remote, test};
pub use layout::{Pod, Remote, Word};
pub use memory::guard::Guard;
pub use memory::site::Site;
pub use place::{
    Atomic, CompareExchangeError, FieldGroup, Link, LinkWord, Lock, LockGuard, LockState, Place, Read,
    Stamped, StampedLink, Tail, TailRef, Version, Versioned,
};
pub use pointer::{Address, Owned, Publish, RemotePtr, Shared};
pub use task::Backoff;

/// What a program that defines or uses remote structs needs.
pub mod prelude {
    pub use crate::{
        Atomic, Cluster, ComputeThread, Guard, Link, Lock, LockGuard, Owned, Place, RemotePtr, Shared,
        Stamped, StampedLink, Tail, Versioned, Word, fetch, remote,
    };
}

/// What generated code uses. Not part of the interface.
#[doc(hidden)]
pub mod __private;
