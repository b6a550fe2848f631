//! Lanes: a thread's connections to memory nodes on a network, RDMA or TCP.
//!
//! A network is a [`Network`](node::Network), which opens connections, and a [`Wire`](wire::Wire), which posts requests on one. All else is the same on each:
//!
//! | module | contents |
//! |---|---|
//! | `config` | the options of a URL |
//! | `client`, `node` | a process's side: the cluster, and each of its memory nodes |
//! | `endpoint` | a thread's endpoint |
//! | `sets` | the lanes of threads, of their own or shared |
//! | `lane` | a connection on which threads post chains, its failures and its timeout |
//! | `pipeline` | from chains to requests and back, within credits |
//! | `wire` | a connection, as a lane uses it |
//! | `inquiry` | questions of stall reports to the thread that uses a lane |
//!
//! A compute thread has one lane to each memory node, its own or shared with others. A chain is posted when the thread has no other work, so that the
//! chains of all its tasks share a doorbell, or a system call. No operation allocates.

pub(crate) mod client;
pub(crate) mod config;
pub(crate) mod endpoint;
mod inquiry;
pub(crate) mod lane;
pub(crate) mod node;
pub(crate) mod pipeline;
mod sets;
pub(crate) mod wire;
