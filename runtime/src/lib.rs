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
//! | send work to them from another executor | [`Client`] |
//! | define what lives in far memory | [`#[remote]`](macro@remote), [`Word`](macro@Word), [`Atomic`], [`Link`], [`StampedLink`], [`Lock`], [`Versioned`], [`Tail`] |
//! | point to it | [`RemotePtr`], [`Shared`], [`Owned`] |
//! | reach a field | [`Place`], [`fetch!`](macro@fetch) |
//! | not free what others still read | [`Guard`] |
//!
//! The memory model is the same wherever far memory is: a word of 8 bytes is atomic; operations on one word are
//! sequentially consistent; a longer read or write is a sequence of word accesses in address order, which may be torn
//! between words; the operations of a chain take effect in program order, and so do chains of one thread to one memory node.

#![cfg_attr(docsrs, feature(doc_cfg))]

// The generated code names this crate by its name, here as elsewhere.
#[allow(unused_extern_crates)]
extern crate self as farfield;

#[cfg(not(target_pointer_width = "64"))]
compile_error!("farfield needs a target with 64-bit pointers: far memory is addressed by 64-bit words");

mod admin;
mod cell;
mod client;
mod cluster;
mod directory;
mod entry;
mod epoch;
pub mod error;
#[cfg(all(fuzzing, target_os = "linux"))]
pub mod fuzzing;
mod io;
mod membership;
mod memory;
#[cfg(any(target_os = "linux", feature = "_verbs"))]
mod observer;
mod pointer;
#[cfg(feature = "_verbs")]
#[cfg_attr(docsrs, doc(cfg(feature = "verbs")))]
pub mod rdma;
mod segment;
mod session;
#[cfg(target_os = "linux")]
pub mod shm;
pub mod sim;
mod sweep;

pub use admin::{Dumped, DumpedValue, MemberStatus, RootStatus, Status};
pub use cell::{
    Array, Atomic, Cached, Chain, CompareExchangeError, FieldGroup, Link, LinkWord, Lock, LockGuard,
    LockState, Owned, Pending, PendingLock, Place, Publish, Read, Readable, ReleaseError, Stamped,
    StampedLink, Tail, TailRef, Version, Versioned, Written,
};
pub use client::{Call, Client, ClientOptions};
pub use epoch::{LocalEpoch, LocalGuard, LocalThread};
pub use error::{Error, HeldBackBy, PointerFault, Result};
/// Lets a newtype around a word, or an enum without fields, be held by an [`Atomic`] and by plain fields.
///
/// The type must be `Copy` and `Debug`, and an enum needs a `#[repr]` of a fixed width. Bits that stand for no variant are
/// [`Error::InvalidValue`] when they are read. An atomic starts as the variant whose discriminant is 0, else as the first.
///
/// ```
/// use farfield::prelude::*;
///
/// #[derive(Clone, Copy, Debug, PartialEq, Eq, Word)]
/// #[repr(u8)]
/// enum State {
///     Waiting,
///     Running,
/// }
///
/// assert_eq!(State::from_word(1), Some(State::Running));
/// assert_eq!(State::from_word(2), None);
/// assert_eq!(State::initial(), State::Waiting);
/// ```
///
/// `#[word(crate = path)]` says where the crate is, if it was renamed.
pub use farfield_macros::Word;
/// Reads several fields of one object with one READ, of the smallest span of words that covers them.
///
/// `fetch!(g, node.{key, next})` is a future of a `Result` of the tuple of their values. One round trip, for up to eight
/// fields. In front of the dot stands any expression that gives a pointer or a place.
///
/// ```
/// # use farfield::prelude::*;
/// #[remote]
/// struct Node {
///     key: u64,
///     next: Link<Node>,
///     hits: Atomic<u64>,
/// }
///
/// async fn successor<'g>(node: Shared<'g, Node>, g: &'g Guard<'_>) -> farfield::Result<Shared<'g, Node>> {
///     let (key, next) = fetch!(g, node.{key, next}).await?;
///     Ok(if key == 0 { Shared::NULL } else { next })
/// }
/// ```
///
/// With the crate renamed: `fetch!(crate = path, g, node.{key, next})`.
pub use farfield_macros::fetch;
/// Connects to a cluster and runs an `async fn main(ct: &ComputeThread) -> Result<()>` on its compute threads.
///
/// | option | meaning | default |
/// |---|---|---|
/// | `threads = N` | how many compute threads | 1 |
/// | `cluster = "URL"` | the cluster; the variable `FARFIELD_CLUSTER` overrides it | `"local:"` |
/// | `crate = path` | where the crate is, if it was renamed | `::farfield` |
///
/// An error is printed as one line, and the program exits with code 2.
///
/// ```
/// use farfield::prelude::*;
///
/// #[farfield::main(threads = 2)]
/// async fn main(ct: &ComputeThread) -> farfield::Result<()> {
///     ct.barrier("both are here").await
/// }
/// ```
pub use farfield_macros::main;
/// Puts a struct's fields into far memory.
///
/// ```
/// use farfield::prelude::*;
///
/// /// A node of a list.
/// #[remote]
/// pub struct Node<K: Word> {
///     key: K, // plain, so frozen once the node is published
///     #[marks(deleted)]
///     next: Link<Node<K>>,
///     lock: Lock,
///     #[local]
///     visits: std::cell::Cell<u64>, // in the handle, never in far memory
/// }
///
/// # Cluster::connect("local:size=64KiB")?.run(1, async |ct| {
/// let node = Node::new_in(ct, Node::init(7_u64)).await?.write(ct).await?;
/// let handle = Node::attach(node, ct).await?; // one READ
/// assert_eq!(handle.key(), 7); // no round trip
/// let g = &ct.pin();
/// let seen = node.read(g).await?; // one READ for all fields
/// assert!(!seen.next.is_deleted() && !seen.lock.is_held());
/// # Ok(()) })?;
/// # Ok::<(), farfield::Error>(())
/// ```
///
/// | option | meaning |
/// |---|---|
/// | `#[remote(align = N)]` | objects are aligned to `N` bytes: a power of two from 8 to 4096 |
/// | `#[remote(crate = path)]` | where the crate is, if it was renamed |
/// | `#[local]`, `#[local(default = EXPR)]` | the field is in the handle only |
/// | `#[marks(a, b)]` | names for the mark bits of a [`Link`], an array or a [`Tail`] of them, lowest first |
/// | `#[marks(like = path)]` | the marks that another link has, by the type that declares them (`NodeMarked`) |
/// | `#[accessor(name)]` | what the field's accessors are called, if not like the field |
///
/// | generated for `Node` | what it is |
/// |---|---|
/// | `Node` | the handle: `#[local]` fields, `this()`, an accessor for each field |
/// | `NodeThis` | the layout |
/// | `NodeFields` | the accessors of [`RemotePtr`]`<Node>` and [`Shared`]`<Node>`: each gives a [`Place`] |
/// | `NodeInit`, `Node::init(…)` | the values of a new object: an argument for each field without a default, a setter for each other |
/// | `Node::new_in(site, init)` | allocates, and builds the image: an [`Owned`]`<Node>` |
/// | `Node::attach(ptr, ct)` | builds a handle: one READ, or none if no field is frozen |
/// | `NodeSnapshot<'g>` | what `read` returns; without `'g` where no field's value can be bound to a guard |
/// | `NodeMarked` | the marks of `next`, as part of its type: it is a `Link<Node<K>, NodeMarked>`, which holds a [`Shared`]`<'g, Node<K>, NodeMarked>` |
/// | `NodeMarks` | `is_deleted`, `with_deleted`, `without_deleted` on what such a link holds, and on no other pointer |
/// | `impl Remote for Node` | name, fields, size, alignment and fingerprint, as constants |
///
/// What a field may be declared as is told at [`Field`](layout::Field), and what its place can do at [`Place`]. The book has
/// a reference with a program that uses everything.
pub use farfield_macros::remote;
/// Makes a test of an `async fn` that takes a `&ComputeThread` and gives nothing or a `Result<()>`.
///
/// Takes the options of [`main`](macro@main). The function runs on each thread; an error fails the test with its message. What waits for longer than
/// five seconds is reported, unless the variable `FARFIELD_STALL` says otherwise: see [`Cluster::connect`].
///
/// ```
/// use farfield::prelude::*;
///
/// #[farfield::test(threads = 4, cluster = "local:delay=3")]
/// async fn every_thread_arrives(ct: &ComputeThread) -> farfield::Result<()> {
///     ct.barrier("here").await
/// }
/// ```
pub use farfield_macros::test;
pub use farfield_words::units::parse_size;
pub use farfield_words::{Address, Pod, Remote, ThreadId, Word};
pub use io::{KeeperFailures, Metrics, Reclamation};
pub use memory::placement::Policy;
pub use memory::usage::HeapUse;
pub use pointer::{Guard, Held, Marks, Pointer, RemotePtr, Shared, Site, Walk};
pub use session::{Backoff, Cluster, ComputeThread, Random};

/// Layouts: how values lie in far memory, word by word. From the crate `farfield-words`, which has the whole story.
pub mod layout {
    pub use farfield_words::{
        DefaultInit, Describe, Describer, Error, Field, FieldInfo, FrozenField, Initial, Integer, Pod,
        Remote, Shape, WORD_BYTES, Word, fingerprint, fingerprint_of,
    };
}

/// What a program that defines or uses remote structs needs.
pub mod prelude {
    pub use crate::{
        Atomic, Backoff, Chain, Cluster, ComputeThread, Guard, Link, Lock, LockGuard, Owned, Place,
        RemotePtr, Result, Shared, Site, Stamped, StampedLink, Tail, Versioned, Walk, Word, fetch, remote,
    };
}

/// What generated code uses. Not part of the interface.
#[doc(hidden)]
pub mod __private;
