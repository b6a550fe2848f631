//! Memory nodes of `tcp://` clusters.
//!
//! A memory node hosts segments for compute threads on other machines, or in other processes of its own machine. The command `farfield memnode` is a
//! memory node. One thread executes the operations of all clients.
//!
//! ```
//! use farfield::tcp::{MemoryNode, MemoryNodeOptions};
//! use farfield::{Cluster, ComputeThread};
//!
//! # fn main() -> farfield::Result<()> {
//! let node = MemoryNode::listen(&MemoryNodeOptions::new("127.0.0.1:0".parse().unwrap(), 2, 1 << 20))?;
//! let (port, stopper) = (node.port(), node.stopper()?);
//! let serving = std::thread::spawn(move || node.serve());
//! let cluster = Cluster::connect(&format!("tcp://127.0.0.1:{port}"))?;
//! # drop(cluster);
//! stopper.stop();
//! # serving.join().unwrap()
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
use farfield_fabric::tcp::{Server, TcpNodeOptions};

/// The options of a memory node.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MemoryNodeOptions {
    /// The address to listen on. Port 0 chooses a free port.
    pub listen: SocketAddr,
    /// The number of segments, 1 to 1024.
    pub segments: usize,
    /// The size of each segment, 27336 bytes to 256 TiB, rounded down to words.
    pub segment_bytes: u64,
    /// A file with the cluster's secret, readable by its owner only. Without a secret only a loopback address is listened on, and every process of this
    /// machine that knows of no secret is admitted.
    pub secret_file: Option<PathBuf>,
    /// The time without a heartbeat after which other processes evict a process; 100 ms to an hour. The first memory node's lease applies.
    pub lease: Duration,
    /// True if the memory of dead processes is swept while others live: see [`shm::MemoryNodeOptions`](crate::shm::MemoryNodeOptions). The first
    /// memory node's option applies.
    pub sweep: bool,
    /// True if clients with `encrypt=no` are served, too. They prove that they know the secret, and the rest is sent in the clear.
    pub serves_plain: bool,
}

impl MemoryNodeOptions {
    /// Returns options without a secret, with a lease of 2 s, without sweeping, for encrypted connections only.
    pub fn new(listen: SocketAddr, segments: usize, segment_bytes: u64) -> Self {
        Self {
            listen,
            segments,
            segment_bytes,
            secret_file: None,
            lease: Duration::from_secs(2),
            sweep: false,
            serves_plain: false,
        }
    }
}

/// A memory node that listens for clients.
pub struct MemoryNode(Server);

impl MemoryNode {
    /// Maps the segments and listens.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for an option out of its bounds, an address that is in use, not of this machine, or
    /// not loopback without a secret, or a secret's file that is missing, empty or readable by others; [`Error::System`](crate::Error::System) if the
    /// memory can not be mapped.
    pub fn listen(options: &MemoryNodeOptions) -> Result<Self> {
        let MemoryNodeOptions { listen, segments, segment_bytes, secret_file, lease, sweep, serves_plain } =
            options;
        let lease_ms = lease_ms(*lease)?;
        let secret = secret::of_node(secret_file.as_deref())?;
        let options = TcpNodeOptions {
            listen: *listen,
            segments: *segments,
            segment_bytes: *segment_bytes,
            lease_ms,
            serves_plain: *serves_plain,
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
    /// [`Error::System`](crate::Error::System) if it can not wait for its sockets. Errors of a connection are reported to its client only.
    pub fn serve(mut self) -> Result<()> {
        Ok(self.0.serve()?)
    }
}

impl fmt::Debug for MemoryNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryNode").field("port", &self.port()).finish()
    }
}
