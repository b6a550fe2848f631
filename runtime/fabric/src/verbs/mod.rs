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
//! | `pipeline` | from chains to work requests and back, within credits |
//! | `endpoint` | a thread's endpoint |
//! | `lane` | a connection on which threads post chains |
//! | `inquiry` | questions of stall reports to the thread that uses a lane |
//! | `lanes` | the lanes of threads, of their own or shared |
//! | `client`, `node` | a process's side: the cluster, and each of its memory nodes |
//! | `server` | a memory node's side |
//!
//! A compute thread has one lane to each memory node, its own or shared with others. A chain becomes linked work requests of which the last is
//! signalled. It is posted when the thread has no other work, so that the chains of all its tasks share a doorbell. No operation allocates.
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
mod client;
pub mod config;
mod device;
mod endpoint;
mod identifier;
mod inquiry;
mod lane;
mod lanes;
mod manager;
mod node;
mod objects;
mod pipeline;
mod queue;
mod queue_pair;
mod region;
mod server;
#[cfg(test)]
pub(crate) mod tests;

pub use client::Client;
pub use device::{Atomics, DeviceInfo, PortInfo, devices};
pub use endpoint::Verbs;
pub use server::{Server, VerbsNodeOptions};
