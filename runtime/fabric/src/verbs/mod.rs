//! The verbs fabric: far memory is memory of other machines, reached by RDMA over reliable connections.
//!
//! | module | contents |
//! |---|---|
//! | `binding` | the binding of rdma-core |
//! | `config` | the options of a URL |
//! | `device` | devices and their limits |
//! | `region` | protection domains and registered memory, with the safety argument for work requests |
//! | `objects` | the count of objects that are not destroyed |
//! | `manager`, `identifier` | the connection manager: requests for connections, and their end |
//! | `queue_pair`, `batch` | posting work requests |
//! | `queue` | completion queues, and the buffers of messages |
//! | `network` | a process's side: connections of lanes (`lanes`), and control connections |
//! | `server` | a memory node's side |
//!
//! Threads post on lanes (`lanes`). A chain becomes linked work requests of which the last is signalled.
//!
//! # Additions to the memory model
//!
//! - Atomics are as atomic as the device reports, at least with respect to all others through it. So every process accesses far memory through the
//!   device, including one on the memory node's own machine.
//! - The specification does not say that a WRITE of a word is atomic with respect to a CAS or FAA of it, and `rdma_rxe` is not made so: see
//!   `pipeline`. If other threads may try a CAS of a word, Farfield's own structures change it by a CAS, too
//!   ([`RawChain::replace`](crate::chain::RawChain::replace)). A user's `store` to such a word may be lost.
//! - The specification promises no order between the words of one READ or WRITE. Farfield does not rely on one.
//! - An invalid address stops a chain before its first operation, not in its middle.

mod batch;
mod binding;
pub mod config;
mod device;
mod identifier;
mod manager;
mod network;
mod objects;
mod queue;
mod queue_pair;
mod region;
mod server;
#[cfg(test)]
pub(crate) mod tests;

pub use device::{Atomics, DeviceInfo, PortInfo, devices};
pub use network::{Client, Verbs};
pub use server::{Server, VerbsNodeOptions};
