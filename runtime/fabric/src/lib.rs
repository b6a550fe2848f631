//! Fabrics: what moves words between a compute thread and far memory.
//!
//! A fabric executes *chains*: lists of READ, WRITE, CAS and FAA on one memory node, in program order, with one completion. It knows
//! addresses and words, and nothing of what they mean.
//!
//! Architecture invariant: fabrics are the only crates that know about mapped memory, queue pairs or virtual time, and
//! the only ones that read the clock or start threads. Everything above asks its [`Endpoint`].
//!
//! # Memory model
//!
//! The same on every fabric:
//! - an 8-byte word is atomic;
//! - single-word operations are sequentially consistent;
//! - a longer READ or WRITE is a sequence of word accesses, and may be torn between words; they are in address order, but
//!   for real devices, which promise none;
//! - inside a chain, operations take effect in program order;
//! - a chain that its thread has completed, posted without waiting, or given up takes effect before what the thread posts
//!   to the same memory node afterwards. So what undoes an operation can not overtake it.
//!
//! # Fabrics
//!
//! | module | URL | an operation completes |
//! |---|---|---|
//! | [`host`] | `local:` | in the call that posts it |
//! | [`shm`] | `shm:NAME` | likewise: the memory is mapped by several processes |
//! | [`host::Delayed`] | `local:delay=N` | at a seeded poll up to the `N`th, so that tasks of a thread interleave |
//! | crate `farfield-sim` | `sim:` | in virtual time, a round trip later |
//! | `verbs` | `rdma://` | when the device says so; in a build with the feature `verbs` |
//!
//! # Modules
//!
//! | module | what it has | look here to |
//! |---|---|---|
//! | [`chain`] | chains and their operations | add an operation |
//! | [`Endpoint`] | a thread's access to a fabric | write a fabric; `conformance` checks it |
//! | [`Contents`] | what a memory node puts into its memory, and marks there when a client has gone | |
//! | `handshake`, `question`, [`secret`] | what both ends of a connection say before and beside operations | change the protocol |
//! | [`stall`] | waits that last too long, and the report of them | |
//! | [`files`], [`Stopper`] | files that others may have replaced; how a memory node is told to stop | |
//! | [`error`] | what can go wrong here | |

#![cfg_attr(docsrs, feature(doc_cfg))]

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
#[cfg_attr(not(feature = "_verbs"), allow(dead_code))] // lanes are RDMA's
mod handshake;
pub mod host;
mod park;
mod prefetch;
#[cfg(any(target_os = "linux", feature = "_verbs"))]
mod question;
#[cfg(any(target_os = "linux", feature = "_verbs"))]
pub mod secret;
#[cfg(target_os = "linux")]
pub mod shm;
#[cfg(test)]
#[path = "../../tests/skip/mod.rs"]
mod skip;
pub mod stall;
#[cfg(any(target_os = "linux", feature = "_verbs"))]
mod stopper;
#[cfg(feature = "_verbs")]
#[cfg_attr(docsrs, doc(cfg(feature = "verbs")))]
pub mod verbs;

pub use contents::{Contents, Departure};
pub use endpoint::{Endpoint, Posted, Ticket};
pub use error::{Error, Result};
pub use park::Parker;
pub use prefetch::prefetch;
#[cfg(any(target_os = "linux", feature = "_verbs"))]
pub use stopper::{Stopper, lease_ms};
