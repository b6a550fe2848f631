//! Delegation: values that belong to one compute thread, which executes what others request of it.
//!
//! One-sided access moves data to the code; delegation moves the code's name and its arguments to the data. After Gossamer's `Trust<T>` and the request slots of
//! HERD (Kalia, Kaminsky and Andersen, SIGCOMM 2014).
//!
//! | module | contents |
//! |---|---|
//! | `trust` | [`Trust`], its requests, and stored handles |
//! | `context` | [`Context`]: what delegated code may use |
//! | `objects` | the values of a trustee, and the count of their handles |
//! | `way` | handles on their way from thread to thread |
//! | `function` | names of functions, and their calls |
//! | `method` | methods of `#[delegated]` impls |
//! | `serde` | messages that serde carries |
//! | `slots` | the words through which batches are exchanged |
//! | `caller` | the client's side of a pair of threads |
//! | `desk` | the trustee's side |
//! | `looks` | what a thread without work looks at, where memory is mapped |
//! | `mirror` | mailboxes on memory nodes: both sides where threads have no memory that others can write |
//! | `direct` | lines between threads, which carry batches instead of mailboxes |
//! | `state` | what a thread has of all this; a *round* of its work |
//! | `attend` | work that waits; how a thread begins and ends |
//!
//! # A request
//!
//! A client and a trustee are a *pair*. The client allocates its words, and greets the trustee's desk, at its first request. From then on it puts requests into a queue; a
//! round writes as many as fit into a batch, and the header last. The trustee finds the batch in its own memory, calls the functions, and writes all answers at
//! once, with a header. So an awaited request takes one way there and one way back, and `n` requests that are made at one time share them.
//!
//! # Exactly once
//!
//! A batch is written by one chain, is executed when its header has the next number, and answered in a slot that is written again only for the batch four later,
//! which the client sends after it has taken this answer. So each request is executed once at most, and its answer reaches its waiter, or the client is told that the
//! trustee has ended: by its notice, which names the last batch that was executed, or because it is dead. Then batches in flight may have been executed.
//!
//! # Costs
//!
//! An idle trustee looks at one line, and at the slots of the clients that were active lately: see `looks`.

mod attend;
mod caller;
mod context;
mod desk;
mod direct;
mod function;
mod looks;
mod method;
mod mirror;
mod objects;
#[cfg(feature = "serde")]
mod serde;
mod slots;
mod state;
mod trust;
mod way;

#[cfg(feature = "serde")]
pub use self::serde::Serde;
pub(crate) use attend::attend;
pub use context::{Context, Reaction};
pub use function::{Delegated, Method};
pub use method::{Args, DelegatedMethod, Request, request, through};
pub use trust::{StoredTrust, Trust};
