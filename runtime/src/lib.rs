//! Farfield: distributed data structures over far memory, written as ordinary async Rust.
//!
//! Annotate a struct with [`#[remote]`](macro@remote); its fields are then stored in *far memory*, which is memory of this process, of a memory node
//! on this machine, or of other machines. Methods on it are ordinary `async fn`s that take a [`&ComputeThread`](ComputeThread). Each operation
//! documents its cost in *round trips*.
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
//! Two rules explain the rest:
//!
//! 1. **Data is distributed, code is replicated.** An object is in one place; each thread has its own *handle* to it.
//! 2. **`This` is for data, `self` is for code.** `handle.this()` points to the object in far memory, and its fields are read and written there.
//!    `self` is local, with frozen fields that were read once and never change.
//!
//! # Which item for which task
//!
//! | to | use |
//! |---|---|
//! | connect, start threads | [`Cluster`]: [`connect`](Cluster::connect) lists the URLs, [`run`](Cluster::run) starts threads |
//! | write a program or a test without a `Cluster` of its own | [`#[farfield::main]`](macro@main), [`#[farfield::test]`](macro@test) |
//! | call far memory from tokio or another executor | [`Client`] |
//! | define the fields of an object | [`#[remote]`](macro@remote): [`Atomic`], [`Link`], [`TaggedLink`], [`StampedLink`], [`Lock`], [`Versioned`], [`Tail`], [`Array`] |
//! | store a type of one's own in a field | [`#[derive(Word)]`](macro@Word), [`Pod`] |
//! | give a value to one thread, which executes what others request | [`Trust`], by [`ComputeThread::entrust`]; [`#[delegated]`](macro@delegated), [`#[derive(Message)]`](macro@Message) |
//! | point to an object | [`RemotePtr`], [`Shared`], [`Owned`] |
//! | read and change a field | [`Place`]; several fields with [`fetch!`](macro@fetch) |
//! | combine operations into one round trip | [`Chain`] |
//! | allocate near another object | [`Site`], [`ComputeThread::near`] |
//! | protect objects from being freed while they are read | [`Guard`], by [`ComputeThread::pin`] |
//! | free an object | [`Guard::sched_reclaim`]; one that was never shared: [`ComputeThread::delete`] |
//! | find an object by name | [`ComputeThread::root_or_init`], [`publish`](ComputeThread::publish), [`lookup`](ComputeThread::lookup) |
//! | wait for all threads | [`ComputeThread::barrier`] |
//! | overlap round trips, retry, sleep, set a deadline | [`ComputeThread::tasks`], [`Backoff`], [`ComputeThread::sleep`], [`ComputeThread::within`] |
//! | cache the frozen fields of objects | [`Cached`] |
//! | run several processes | [`memory_node::MemoryNode`], [`Cluster::in_group`] |
//! | inspect, save and restore a cluster | [`ComputeThread::status`], [`ComputeThread::dump`], [`Cluster::checkpoint`], [`Cluster::restore`] |
//! | test with the simulator | [`sim`] |
//! | count operations and memory | [`Metrics`], [`HeapUse`], [`Reclamation`] |
//! | handle errors | [`Error`] |
//!
//! # Memory model
//!
//! It is the same on every fabric. A word of 8 bytes is atomic. Operations on one word are sequentially consistent. A longer READ or WRITE is a
//! sequence of word accesses and may be torn between words; the accesses are in address order, except on real devices, which promise none, and on
//! `sim:words=any`. The operations of a chain take effect in program order, and so do the chains of one thread to one memory node.
//!
//! # Rooms
//!
//! For contributors: a module of this crate is a *room*, and each room imports only rooms above it in this table. `cargo doc
//! --document-private-items` shows them. `ARCHITECTURE.md` has the whole map and the crates below this one (`farfield-words`, `farfield-fabric`,
//! `farfield-sim`).
//!
//! | room | contents | look here to |
//! |---|---|---|
//! | `error` | [`Error`] | add an error |
//! | `epoch` | epochs and pins of one process, with the proof; [`LocalEpoch`] | change the grace period, or the cost of a pin |
//! | `segment` | layout of control blocks, member records and chunk tables | change the bytes of metadata |
//! | `io` | posting, completion and compensation of operations; tasks and idle threads | change what happens around every operation |
//! | `memory` | heap, pool, limbo lists, epochs of the cluster | change allocation or reclamation |
//! | `session` | [`Cluster`], runs, [`ComputeThread`], URLs | add an option or a fabric |
//! | `pointer` | [`RemotePtr`], [`Shared`], [`Guard`] | change how pointers are protected |
//! | `cell` | [`Place`], [`Atomic`], [`Link`], [`Lock`], [`Versioned`], [`Chain`] | add a kind of field, or an operation |
//! | `membership` | joining, leaving, eviction, groups | change when a process counts as dead |
//! | `directory` | roots and barriers | change how names are agreed on |
//! | `admin` | status, dumps, checkpoints, collection | show or save more of a cluster |
//! | `sweep` | reclaiming memory of dead processes while others live | change the sweep, or its proof |
//! | `delegation` | [`Trust`], request slots | change how threads execute what others request |
//! | `cluster` | connecting, running, the keeper | change what happens in the background |
//! | `client` | calls from other executors | change queues, deadlines, cancellation |
//! | `memory_node`, `observer`, `rdma` | memory nodes, their metrics, and RDMA devices | change the interface of memory nodes |
//! | `sim`, `entry`, `__private` | the simulator's interface; what the macros call | change `#[farfield::test]`, or generated code |

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
mod delegation;
mod directory;
mod entry;
mod epoch;
pub mod error;
#[cfg(all(fuzzing, target_os = "linux"))]
pub mod fuzzing;
mod io;
mod membership;
mod memory;
#[cfg(target_os = "linux")]
pub mod memory_node;
#[cfg(target_os = "linux")]
mod observer;
mod pointer;
#[cfg(feature = "_verbs")]
#[cfg_attr(docsrs, doc(cfg(feature = "verbs")))]
pub mod rdma;
mod segment;
mod session;
pub mod sim;
mod sweep;

pub use admin::{Dumped, DumpedTarget, DumpedValue, MemberStatus, RootStatus, Status};
pub use cell::{
    Array, Atomic, Blob, BlobSnapshot, Cached, Chain, CompareExchangeError, FieldGroup, Immediate, Link,
    LinkWord, Lock, LockGuard, LockState, NewObject, Owned, Place, Publish, Read, ReleaseError, SizeClass,
    Stamped, StampedLink, Tag, Tagged, TaggedLink, TaggedWord, Tail, TailRef, Version, Versioned, op,
};
pub use client::{Call, Client, ClientOptions};
#[cfg(feature = "serde")]
pub use delegation::Serde;
pub use delegation::{Context, Reaction, Request, StoredTrust, Trust};
pub use epoch::{LocalEpoch, LocalGuard, LocalThread};
pub use error::{Error, HeldBackBy, PointerFault, Result};
pub use farfield_fabric::{prefetch, prefetch_line};
/// Implements [`Message`](trait@Message): the type can be sent to another compute thread, as an argument or a result of a [request](Trust). For structs and
/// enums whose fields are messages.
///
/// ```
/// use farfield::prelude::*;
///
/// #[derive(Message)]
/// enum Change {
///     Clear,
///     Push(String),
///     Replace { at: u32, by: String },
/// }
///
/// # Cluster::connect("local:size=64KiB")?.run(1, async |ct| {
/// let lines = ct.entrust(vec![String::from("one")]).await?;
/// let change = Change::Replace { at: 0, by: "two".into() };
/// let length = lines.apply(ct, change, |lines, change: Change| {
///     match change {
///         Change::Clear => lines.clear(),
///         Change::Push(line) => lines.push(line),
///         Change::Replace { at, by } => lines[at as usize] = by,
///     }
///     lines.len() as u64
/// });
/// assert_eq!(length.await?, 1);
/// # Ok(()) })?;
/// # Ok::<(), farfield::Error>(())
/// ```
///
/// A variant is sent as its index, one word, and its fields. A type parameter of a field must be a message, unless it is that of a [`Trust`] or a
/// [`RemotePtr`]. A type with [`#[derive(Word)]`](macro@Word) is a message already.
///
/// The prelude has this macro, not the trait: a bound needs `use farfield::Message`.
///
/// The fingerprint depends on the names of the type, its variants and its fields, their order, and the fields' types.
///
/// `#[message(crate = path)]` names the crate if it was renamed.
pub use farfield_macros::Message;
/// Implements [`Word`]: the type can be held by an [`Atomic`] and by plain fields. For newtypes around a word, and enums without fields.
///
/// The type must be `Copy` and `Debug`, and an enum needs a `#[repr]` of a fixed width. Reading bits of no variant returns [`Error::InvalidValue`].
/// The initial value of an atomic is the variant with discriminant 0, or else the first one.
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
/// `#[word(crate = path)]` names the crate if it was renamed.
pub use farfield_macros::Word;
/// Generates a client of a type, which requests the methods of an `impl` block from the thread that has the value.
///
/// ```
/// use farfield::prelude::*;
///
/// pub struct Counter(u64);
///
/// #[delegated]
/// impl Counter {
///     /// Adds to the counter, and returns its value.
///     pub fn add(&mut self, n: u64) -> u64 {
///         self.0 += n;
///         self.0
///     }
/// }
///
/// # fn main() -> farfield::Result<()> {
/// Cluster::connect("local:")?.run(2, async |ct| {
///     let root = ct.root_or_init("hits", async || {
///         Trust::from(CounterClient::entrust(ct, Counter(0)).await?).store(ct).await
///     });
///     let counter = CounterClient::open(root.await?, ct).await?;
///     assert!(counter.add(ct, 5).await? <= 10);
///     ct.barrier("counted").await
/// })?;
/// # Ok(())
/// # }
/// ```
///
/// | generated for `Counter` | contents |
/// |---|---|
/// | `CounterClient` | a [`Trust`]`<Counter>`: converts from and into it, dereferences to it, and is a [message](trait@Message) |
/// | `CounterClient::entrust(ct, value)` | gives a value to this thread: [`ComputeThread::entrust`] |
/// | `CounterClient::open(stored, ct)` | makes a client of a stored handle: [`Trust::open`] |
/// | `client.add(ct, n)` | requests `Counter::add`, with the costs and errors of [`Trust::apply`] |
/// | `client.via(context)` | the methods for delegated code, a `CounterRequests`: with `client = Name`, a `NameRequests` |
/// | `client.via(context).add(n)` | a [`Request`] of `Counter::add`, for [`post`](Request::post) or [`apply_then`](Request::apply_then) |
///
/// A method takes `&self` or `&mut self`, then perhaps a [`&Context<'_>`](Context), and up to six arguments. Arguments and result are
/// [messages](trait@Message). Functions without `self` are left alone; a method that must not be requested belongs in another block. A type has
/// one such block. The client is as visible as the most visible of its methods, and the type must be so, too.
///
/// Unlike functions for [`Trust::apply`], methods are named by their interface: the names of type and method, the receiver, and the types of arguments and
/// result. So builds of a program that differ can request each other's methods. [`Error::DelegationRefused`] if the trustee's build has no method
/// with this interface, or if another thread's value was not given by `CounterClient::entrust`.
///
/// | option | meaning |
/// |---|---|
/// | `#[delegated(client = Name)]` | the name of the client |
/// | `#[delegated(crate = path)]` | the path of this crate, if it was renamed |
pub use farfield_macros::delegated;
/// Reads several fields of one object with one READ, of the smallest span of words that covers them.
///
/// `fetch!(g, node.{key, next})` is a future of a `Result` of the tuple of their values. One round trip, for up to eight fields. The expression
/// before the dot is a pointer or a place.
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
/// If the crate was renamed: `fetch!(crate = path, g, node.{key, next})`.
pub use farfield_macros::fetch;
/// Connects to a cluster and runs an `async fn main(ct: &ComputeThread) -> Result<()>` on its compute threads.
///
/// | option | meaning | default |
/// |---|---|---|
/// | `threads = N` | the number of compute threads | 1 |
/// | `cluster = "URL"` | the cluster; the variable `FARFIELD_CLUSTER` overrides it | `"local:"` |
/// | `crate = path` | the path of this crate, if it was renamed | `::farfield` |
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
/// Stores a struct's fields in far memory.
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
/// | `#[remote(crate = path)]` | the path of this crate, if it was renamed |
/// | `#[local]`, `#[local(default = EXPR)]` | the field is in the handle only |
/// | `#[marks(a, b)]` | names for the mark bits of a [`Link`], an array or a [`Tail`] of them, lowest first: 3, or up to 6 for a link of a struct to itself, one for each zero bit of its alignment |
/// | `#[marks(like = path)]` | the same marks as another link's, by the type that declares them (`NodeMarked`) |
/// | `#[accessor(name)]` | the name of the field's accessors, if not the field's |
///
/// | generated for `Node` | contents |
/// |---|---|
/// | `Node` | the handle: `#[local]` fields, `this()`, an accessor for each field |
/// | `NodeThis` | the layout |
/// | `NodeFields` | the accessors of [`RemotePtr`]`<Node>` and [`Shared`]`<Node>`: each returns a [`Place`] |
/// | `NodeInit`, `Node::init(…)` | the values of a new object: an argument for each field without a default, a setter for each other |
/// | `Node::new_in(site, init)` | allocates, and builds the image: a [`NewObject`], the future of an [`Owned`]`<Node>` |
/// | `Node::attach(ptr, ct)` | builds a handle: one READ, or none if no field is frozen |
/// | `NodeSnapshot<'g>` | the result of `read`; without `'g` if no field's value has the lifetime of a guard |
/// | `NodeMarked` | the marks of `next`, as part of its type: it is a `Link<Node<K>, NodeMarked>`, which holds a [`Shared`]`<'g, Node<K>, NodeMarked>` |
/// | `NodeMarks` | `is_deleted`, `with_deleted`, `without_deleted` on the values of such a link, and on no other pointer |
/// | `impl Remote for Node` | name, fields, size, alignment and fingerprint, as constants |
///
/// [`Field`](layout::Field) lists the types of fields, and [`Place`] their operations. The book has a reference with a program that uses every
/// option.
pub use farfield_macros::remote;
/// Declares the [tag](Tag) of a [`TaggedLink`]: bit fields of at most 16 bits together.
///
/// ```
/// use farfield::prelude::*;
///
/// /// What a bucket knows of an entry.
/// #[tag(fingerprint: 8, size: 6, moved)]
/// pub struct SlotTag;
///
/// #[remote]
/// struct Entry {
///     key: u64,
/// }
///
/// #[remote]
/// struct Bucket {
///     slots: [TaggedLink<Entry, SlotTag>; 7],
/// }
///
/// # Cluster::connect("local:size=64KiB")?.run(1, async |ct| {
/// let g = &ct.pin();
/// let bucket = Bucket::new_in(ct, Bucket::init()).await?.write(ct).await?;
/// let slot = bucket.slots().at(0);
/// let empty = slot.load(g).await?;
/// let entry = Entry::new_in(ct, Entry::init(7)).await?;
/// let stored = slot.compare_exchange(g, empty, entry, SlotTag::new(0x5a, 1, false)).await?;
/// assert!(stored.is_ok());
/// let seen = slot.load(g).await?; // the tag is known before the entry is read
/// assert_eq!((seen.tag().fingerprint(), seen.tag().size(), seen.tag().moved()), (0x5a, 1, false));
/// assert_eq!(seen.shared().read(g).await?.key, 7);
/// # Ok(()) })?;
/// # Ok::<(), farfield::Error>(())
/// ```
///
/// `name: N` is a number of N bits, from 1 to 16: a `u8` or a `u16`. A name alone is a `bool`. For each there are a method `name` and a method
/// `with_name`, which returns the tag with another value. `new` takes all values in their order. A value of more bits than its field panics, in a constant
/// at compile time. `#[tag(crate = path, …)]` names the crate if it was renamed.
pub use farfield_macros::tag;
/// Turns an `async fn` that takes a `&ComputeThread` and returns `()` or a `Result<()>` into a test.
///
/// Takes the options of [`main`](macro@main). The function runs on each thread; an error fails the test with its message. Waits longer than five
/// seconds are reported, unless the variable `FARFIELD_STALL` sets another limit: see [`Cluster::connect`].
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
pub use farfield_words::{Address, Bytes, InStrings, InWords, Message, Pod, Remote, ThreadId, Word};
pub use io::{KeeperFailures, Metrics, Reclamation};
pub use memory::placement::Policy;
pub use memory::usage::HeapUse;
pub use pointer::{
    GracePeriod, Guard, Held, Marks, MaybeMarks, PinnedEpoch, Pointer, RemotePtr, Shared, Site, Walk,
};
pub use session::{Backoff, Cluster, ComputeThread, Random};

/// Layouts: the encoding of values in far memory, word by word. From the crate `farfield-words`, which documents it.
pub mod layout {
    pub use farfield_words::{
        DefaultInit, Describe, Describer, Error, Field, FieldInfo, FrozenField, Initial, Integer, Pod,
        Remote, Shape, WORD_BYTES, Word, fingerprint, fingerprint_of,
    };
}

/// The items that programs with remote structs use.
pub mod prelude {
    pub use crate::{
        Atomic, Backoff, Blob, Chain, Cluster, ComputeThread, Context, Guard, Link, Lock, LockGuard, Owned,
        Place, RemotePtr, Result, Shared, Site, SizeClass, Stamped, StampedLink, Tagged, TaggedLink,
        TaggedWord, Tail, Trust, Versioned, Walk, Word, delegated, fetch, op, remote, tag,
    };
    // Not the trait: its `read` and `write` would hide accessors of fields with these names.
    pub use farfield_macros::Message;
}

/// Items that generated code uses. Not part of the interface.
#[doc(hidden)]
pub mod __private;
