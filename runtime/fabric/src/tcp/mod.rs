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

pub use server::{Server, TcpNodeOptions};
pub use status::NodeStatus;

use crate::error::Result;
use crate::handshake::Secret;
use crate::lanes;
use config::TcpConfig;
use network::Tcp;

/// A process's connections.
pub type Client = lanes::client::Client<Tcp>;
/// One thread's access to far memory.
pub type TcpEndpoint = lanes::endpoint::LaneEndpoint<Tcp>;

impl Client {
    /// Connects to all memory nodes of a cluster, whose memory must have this version of the layout.
    ///
    /// # Errors
    /// [`Error::CannotConnect`](crate::Error::CannotConnect) naming the first memory node that can not be connected to.
    pub fn connect(config: &TcpConfig, layout: u64) -> Result<Self> {
        Self::connect_with(config, &config.nodes.secret()?, layout)
    }

    fn connect_with(config: &TcpConfig, secret: &Secret, layout: u64) -> Result<Self> {
        if !config.encrypt {
            tracing::warn!("connections to memory nodes are not encrypted: encrypt=no");
        }
        Self::connect_by(Tcp::new(secret.clone(), config.encrypt), &config.nodes, secret, layout)
    }
}
