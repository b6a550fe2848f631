//! The other side of `rdma://`: memory nodes, and the devices of a machine.
//!
//! A memory node hosts segments for compute threads on other machines, or in other processes of its own; the command
//! `farfield memnode` is one. Its processor does nothing for an operation: the RDMA device does. In a build with the feature
//! `verbs` or `verbs-dlopen`.
//!
//! ```no_run
//! use farfield::rdma::{MemoryNode, MemoryNodeOptions};
//!
//! # fn main() -> farfield::Result<()> {
//! let listen = "192.168.0.7:7000".parse().unwrap();
//! let node = MemoryNode::listen(&MemoryNodeOptions::new(listen, 2, 1 << 30))?;
//! let stopper = node.stopper()?; // for whoever is to end it: a signal's handler, another thread
//! node.serve()?;
//! # stopper.stop();
//! # Ok(())
//! # }
//! ```

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::error::Result;
pub use crate::observer::{NodeMetrics, Observer};
use crate::session::contents::ClusterContents;
pub use farfield_fabric::Stopper;
use farfield_fabric::lease_ms;
use farfield_fabric::secret;
use farfield_fabric::verbs::{self, Server};
pub use farfield_fabric::verbs::{Atomics, DeviceInfo, PortInfo};

/// What a memory node hosts, and for whom.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MemoryNodeOptions {
    /// Where to listen: an address of the RDMA device to use; of all if there is only one. Port 0 chooses a free one.
    pub listen: SocketAddr,
    /// How many segments, 1 to 1024.
    pub segments: usize,
    /// The size of each, 27336 bytes to 256 TiB, rounded down to words.
    pub segment_bytes: u64,
    /// A file with the cluster's secret, readable by its owner only. Without one anybody is let in who has none either.
    pub secret_file: Option<PathBuf>,
    /// How long a process may go without a sign of life before others have it shut out; 100 ms to an hour. That of the first memory
    /// node counts.
    pub lease: Duration,
    /// Whether memory of processes that have died is taken back while others live: see
    /// [`shm::MemoryNodeOptions`](crate::shm::MemoryNodeOptions). That of the first memory node counts.
    pub sweep: bool,
}

impl MemoryNodeOptions {
    /// Options without a secret, a lease of 2 s, no sweeping.
    pub fn new(listen: SocketAddr, segments: usize, segment_bytes: u64) -> Self {
        Self {
            listen,
            segments,
            segment_bytes,
            secret_file: None,
            lease: Duration::from_secs(2),
            sweep: false,
        }
    }
}

/// A memory node that listens for clients.
pub struct MemoryNode(Server);

impl MemoryNode {
    /// Maps and registers the segments, on huge pages if the system has some, and listens.
    ///
    /// # Errors
    /// [`Error::System`](crate::Error::System) if there is no RDMA device, it may not be used, the port is in use, or the memory
    /// can not be had or locked (the message names the limit); [`Error::InvalidArgument`](crate::Error::InvalidArgument) for an
    /// option out of its bounds, or a secret's file that is missing, empty or readable by others.
    pub fn listen(options: &MemoryNodeOptions) -> Result<Self> {
        let MemoryNodeOptions { listen, segments, segment_bytes, secret_file, lease, sweep } = options;
        let lease_ms = lease_ms(*lease)?;
        let secret = secret::of_node(secret_file.as_deref())?;
        let options = verbs::VerbsNodeOptions {
            listen: *listen,
            segments: *segments,
            segment_bytes: *segment_bytes,
            lease_ms,
        };
        let contents = Box::new(ClusterContents { sweeps: *sweep });
        Ok(Self(Server::listen(&options, secret, contents)?))
    }

    /// What tells how its part of the cluster stands, from any thread.
    pub fn observer(&self) -> Observer {
        let status = self.0.status();
        Observer::new(move || {
            let (node, geometry) = status.position();
            NodeMetrics::of(geometry, node..node + 1, |at| status.load(at), status.counts())
        })
    }

    /// The port that it listens on.
    pub fn port(&self) -> u16 {
        self.0.port()
    }

    /// The RDMA device that it uses.
    pub fn device(&self) -> String {
        self.0.device_name()
    }

    /// What ends it.
    ///
    /// # Errors
    /// [`Error::System`](crate::Error::System) if the process has too many open files.
    pub fn stopper(&self) -> Result<Stopper> {
        Ok(self.0.stopper()?)
    }

    /// Serves until it is told to stop; then all connections are closed and the memory is gone.
    ///
    /// # Errors
    /// [`Error::Other`](crate::Error::Other) if its device is removed. What is wrong with a connection is its client's to know.
    pub fn serve(mut self) -> Result<()> {
        Ok(self.0.serve()?)
    }
}

impl fmt::Debug for MemoryNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryNode").field("device", &self.device()).field("port", &self.port()).finish()
    }
}

/// The RDMA devices of this machine.
///
/// # Errors
/// [`Error::System`](crate::Error::System) if there are none, or they may not be used.
pub fn devices() -> Result<Vec<DeviceInfo>> {
    Ok(verbs::devices()?)
}
