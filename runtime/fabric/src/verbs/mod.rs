//! The verbs fabric: far memory is memory of other machines, reached by RDMA over reliable connections.
//!
//! | module | what it does |
//! |---|---|
//! | [`binding`] | names the binding of rdma-core |
//! | [`config`] | what a URL asks for |
//! | [`device`] | devices and their limits |
//! | [`region`] | registered memory, and why a work request can break nothing here |
//! | [`objects`] | counts what was made and not destroyed |
//! | [`manager`], [`identifier`] | connections: how they are asked for, and how they end |
//! | [`queue_pair`], [`batch`] | posting work requests |
//! | [`queue`] | completions, and the buffers of messages |
//! | [`pipeline`] | from chains to work requests and back, within credits |
//! | [`endpoint`] | a thread's access |
//! | [`lane`] | a connection that threads post on |
//! | [`client`], [`node`] | a process's side: the cluster, and each of its memory nodes |
//! | [`server`] | a memory node's side |
//!
//! A compute thread has one lane to each memory node, its own or shared with others. A chain becomes linked work requests of which
//! the last is signalled. It is posted when the thread has nothing else to do, so that what its tasks have to post at one time
//! is posted with one doorbell. No operation allocates.
//!
//! # What it adds to the memory model
//!
//! - Atomics are as atomic as the device reports, at least with respect to all others through it. So everybody reaches far memory
//!   through the device, also a process on the memory node's own machine.
//! - The specification does not say that a WRITE of a word is atomic with respect to a CAS or FAA of it, and `rdma_rxe` is not made so: see
//!   [`pipeline`]. Where Farfield's own structures change a word that others try to change by CAS, they replace it by a CAS
//!   ([`Chain::replace`]). A user's `store` to such a word may be lost.
//! - The specification promises no order between the words of one READ or WRITE. Nothing in Farfield relies on one.
//! - An invalid address stops a chain before its first operation, not in its middle.

mod batch;
mod binding;
mod client;
pub mod config;
mod device;
mod endpoint;
mod identifier;
mod lane;
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
