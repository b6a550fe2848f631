//! The TCP fabric: far memory is memory of other machines, reached by any network.
//!
//! | module | contents |
//! |---|---|
//! | `config` | the options of a URL |
//! | `channel` | records, sealed by Noise or plain, and the beginning of a connection |
//! | `frame` | batches of operations, and their answers |
//! | `line` | a client's end of a connection |
//! | `network` | a process's side: connections of a [lane](crate::lanes), and control connections |
//! | `server`, `status` | a memory node's side |
//!
//! Threads post on [lanes](crate::lanes), as over RDMA. All chains that a thread's tasks have ready become one frame, which is written by one system call. The
//! memory node's thread executes it in order and answers by one frame.
//!
//! # Additions to the memory model
//!
//! None: the memory node's processor executes all operations, as on the [host](crate::host), and those of a lane in the order in which they were posted.

mod channel;
pub mod config;
mod frame;
mod line;
mod network;
mod server;
mod status;
#[cfg(test)]
pub(crate) mod tests;

pub use network::{Client, TcpEndpoint};
pub use server::{Server, TcpNodeOptions};
pub use status::NodeStatus;
