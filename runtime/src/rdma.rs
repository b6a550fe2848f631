//! Memory nodes of `rdma://` clusters, and the RDMA devices of a machine.
//!
//! A memory node hosts segments for compute threads on other machines, or in other processes of its own machine. The command `farfield memnode` is a
//! memory node. Its processor executes no operations: the RDMA device does. In a build with the feature `verbs` or `verbs-dlopen`.
//!
//! ```no_run
//! use farfield::rdma::{MemoryNode, MemoryNodeOptions};
//!
//! # fn main() -> farfield::Result<()> {
//! let listen = "192.168.0.7:7000".parse().unwrap();
//! let node = MemoryNode::listen(&MemoryNodeOptions::new(listen, 2, 1 << 30))?;
//! let stopper = node.stopper()?; // for another thread, or a signal handler
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

/// The options of a memory node.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MemoryNodeOptions {
    /// The address to listen on, which selects the RDMA device; any address if there is only one device. Port 0 chooses a free port.
    pub listen: SocketAddr,
    /// The number of segments, 1 to 1024.
    pub segments: usize,
    /// The size of each segment, 27336 bytes to 256 TiB, rounded down to words.
    pub segment_bytes: u64,
    /// A file with the cluster's secret, readable by its owner only. Without a secret, every process without one is admitted.
    pub secret_file: Option<PathBuf>,
    /// The time without a heartbeat after which other processes evict a process; 100 ms to an hour. The first memory node's lease applies.
    pub lease: Duration,
    /// True if the memory of dead processes is swept while others live: see [`shm::MemoryNodeOptions`](crate::shm::MemoryNodeOptions). The first
    /// memory node's option applies.
    pub sweep: bool,
}

impl MemoryNodeOptions {
    /// Returns options without a secret, with a lease of 2 s, without sweeping.
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
    /// Maps and registers the segments, on huge pages if the system has free ones, and listens.
    ///
    /// # Errors
    /// [`Error::System`](crate::Error::System) if there is no RDMA device, it may not be used, the port is in use, or the memory can not be allocated
    /// or locked (the message names the limit); [`Error::InvalidArgument`](crate::Error::InvalidArgument) for an option out of its bounds, or a
    /// secret's file that is missing, empty or readable by others.
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

    /// Returns an observer of this memory node's part of the cluster, for any thread.
    pub fn observer(&self) -> Observer {
        let status = self.0.status();
        Observer::new(move || {
            let (node, geometry) = status.position();
            NodeMetrics::of(geometry, node..node + 1, |at| status.load(at), status.counts())
        })
    }

    /// Returns the port that it listens on.
    pub fn port(&self) -> u16 {
        self.0.port()
    }

    /// Returns the name of its RDMA device.
    pub fn device(&self) -> String {
        self.0.device_name()
    }

    /// Returns a handle that stops it.
    ///
    /// # Errors
    /// [`Error::System`](crate::Error::System) if the process has too many open files.
    pub fn stopper(&self) -> Result<Stopper> {
        Ok(self.0.stopper()?)
    }

    /// Serves until it is stopped. Then all connections are closed and the memory is freed.
    ///
    /// # Errors
    /// [`Error::Other`](crate::Error::Other) if its device is removed. Errors of a connection are reported to its client only.
    pub fn serve(mut self) -> Result<()> {
        Ok(self.0.serve()?)
    }
}

impl fmt::Debug for MemoryNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryNode").field("device", &self.device()).field("port", &self.port()).finish()
    }
}

/// Lists the RDMA devices of this machine.
///
/// # Errors
/// [`Error::System`](crate::Error::System) if there are none, or they may not be used.
pub fn devices() -> Result<Vec<DeviceInfo>> {
    Ok(verbs::devices()?)
}
