//! Fabrics: they move words between a compute thread and far memory.
//!
//! A fabric executes *chains*: lists of READ, WRITE, CAS and FAA on one memory node, in program order, with one completion. It knows addresses and
//! words, and not their meaning.
//!
//! Architecture invariant: only fabrics know about mapped memory, queue pairs or virtual time, and only fabrics read the clock or start threads. The
//! layers above ask their [`Endpoint`].
//!
//! # Memory model
//!
//! The same on every fabric:
//! - an 8-byte word is atomic;
//! - single-word operations are sequentially consistent;
//! - a longer READ or WRITE is a sequence of word accesses, and may be torn between words; the accesses are in address order, except on real devices,
//!   which promise none, and on `sim:words=any`;
//! - inside a chain, operations take effect in program order;
//! - a chain that its thread has completed, posted without waiting, or detached takes effect before later chains of the thread to the same memory
//!   node. So a chain that undoes an operation can not overtake it.
//!
//! # Fabrics
//!
//! | module | URL | an operation completes |
//! |---|---|---|
//! | [`host`] | `local:` | in the call that posts it |
//! | [`shm`] | `shm:NAME` | in the call that posts it: several processes map the memory |
//! | [`host::Delayed`] | `local:delay=N` | at a seeded poll up to the `N`th, so that tasks of a thread interleave |
//! | crate `farfield-sim` | `sim:` | in virtual time, a round trip later |
//! | [`tcp`] | `tcp://` | when the memory node's answer has arrived |
//! | `verbs` | `rdma://` | when the device reports its completion; requires the feature `verbs` |
//!
//! # Modules
//!
//! | module | contents | look here to |
//! |---|---|---|
//! | [`chain`] | chains and their operations | add an operation |
//! | [`Endpoint`] | a thread's access to a fabric | write a fabric; `conformance` checks it |
//! | [`Contents`] | the initial words of a memory node's segments, and the mark of a departed client | change what a memory node writes |
//! | [`memory_node`], `server` | a memory node's memory, and the loop that serves its clients | let clients reach it by another way |
//! | `admission`, `status` | who is admitted to a memory node, and what other threads may know of it | |
//! | `handshake`, `question`, [`secret`] | messages of a connection before its first operation, and on its control connection | change the protocol |
//! | [`stall`] | reports of waits that last too long | report another kind of wait |
//! | [`files`], [`Stopper`], [`Parker`] | safe opening of files; stopping a memory node; putting a thread to sleep | |
//! | [`program`] | names of functions, for other processes of the same program | |
//! | [`error`] | errors of fabrics | add an error |

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(any(target_os = "linux", feature = "_verbs"))]
mod admission;
pub mod chain;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod contents;
mod endpoint;
pub mod error;
pub mod files;
#[cfg(fuzzing)]
pub mod fuzzing;
#[cfg(any(target_os = "linux", feature = "_verbs"))]
mod handshake;
pub mod host;
#[cfg(any(target_os = "linux", feature = "_verbs"))]
mod lanes;
#[cfg(target_os = "linux")]
pub mod memory_node;
mod park;
mod prefetch;
pub mod program;
#[cfg(any(target_os = "linux", feature = "_verbs"))]
mod question;
#[cfg(any(target_os = "linux", feature = "_verbs"))]
pub mod secret;
#[cfg(target_os = "linux")]
mod server;
#[cfg(target_os = "linux")]
pub mod shm;
#[cfg(test)]
#[path = "../../tests/skip/mod.rs"]
mod skip;
pub mod stall;
#[cfg(any(target_os = "linux", feature = "_verbs"))]
mod status;
#[cfg(any(target_os = "linux", feature = "_verbs"))]
mod stopper;
#[cfg(target_os = "linux")]
pub mod tcp;
mod unposted;
#[cfg(feature = "_verbs")]
#[cfg_attr(docsrs, doc(cfg(feature = "verbs")))]
pub mod verbs;

pub use contents::{Contents, Departure};
pub use endpoint::{Endpoint, Posted, Ticket};
pub use error::{Error, Result};
pub use park::Parker;
pub use prefetch::{prefetch, prefetch_line};
#[cfg(any(target_os = "linux", feature = "_verbs"))]
pub use status::NodeStatus;
#[cfg(any(target_os = "linux", feature = "_verbs"))]
pub use stopper::{Stopper, lease_ms};
pub use unposted::Unposted;
