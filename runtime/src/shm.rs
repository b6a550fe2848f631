//! Memory nodes of `shm:` clusters, whose processes share a machine.
//!
//! A memory node allocates the memory, admits processes that know the secret, and detects when one has ended. The command `farfield memnode` is a
//! memory node. No operation involves it. On Linux.
//!
//! ```
//! use farfield::prelude::*;
//! use farfield::shm::{MemoryNode, MemoryNodeOptions};
//!
//! # fn main() -> farfield::Result<()> {
//! # let name = format!("doc-{}", std::process::id());
//! let mut options = MemoryNodeOptions::new(&name);
//! options.segment_bytes = 1 << 20;
//! let node = MemoryNode::listen(&options)?;
//! let stopper = node.stopper()?;
//! std::thread::scope(|scope| {
//!     scope.spawn(|| node.serve());
//!     let cluster = Cluster::connect(&format!("shm:{name}"))?; // in any process of this user
//!     cluster.run(2, async |ct| ct.barrier("both are here").await)?;
//!     drop(cluster);
//!     stopper.stop();
//!     Ok(())
//! })
//! # }
//! ```

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
pub use crate::observer::{NodeMetrics, Observer};
use crate::session::contents::ClusterContents;
pub use farfield_fabric::Stopper;
use farfield_fabric::lease_ms;
use farfield_fabric::secret;
use farfield_fabric::shm::{Server, ShmNodeOptions};
use farfield_words::geometry::Geometry;

/// The default lease.
const LEASE: Duration = Duration::from_secs(1);

/// The options of a memory node.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MemoryNodeOptions {
    /// The cluster's name: `shm:NAME`.
    pub name: String,
    /// The number of memory nodes that the segments are divided among, 1 to 1024, as if there were so many processes.
    pub nodes: u16,
    /// The number of segments of each; 1024 in all.
    pub segments: u16,
    /// The size of each segment, 27336 bytes to 256 TiB, rounded down to words. The system allocates the memory when the node starts.
    pub segment_bytes: u64,
    /// A file with the cluster's secret, readable by its owner only. Without a secret, every process of the user is admitted.
    pub secret_file: Option<PathBuf>,
    /// The time without a heartbeat after which a process counts as stalled; 100 ms to an hour.
    pub lease: Duration,
    /// True if the memory of dead processes is swept while others live. Programs then must [hold](crate::ComputeThread::hold) objects that they have
    /// unlinked and keep without a guard. Otherwise that memory is collected when a process joins that finds no other member, or by
    /// [`Cluster::collect`](crate::Cluster::collect).
    pub sweep: bool,
}

impl MemoryNodeOptions {
    /// Returns options for one segment of 256 MiB, without a secret, with a lease of a second, without sweeping.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            nodes: 1,
            segments: 1,
            segment_bytes: 256 << 20,
            secret_file: None,
            lease: LEASE,
            sweep: false,
        }
    }
}

/// A memory node that listens for clients.
pub struct MemoryNode(Arc<Server>);

impl MemoryNode {
    /// Allocates the memory and listens. Removes the files of an earlier memory node of this name that was killed.
    ///
    /// # Errors
    /// [`Error::CannotServe`] if another memory node serves under this name, processes still use the memory of an earlier one, the directory belongs
    /// to another user, or the system has less memory; [`Error::InvalidArgument`] for an option out of its bounds, or a secret's file that is
    /// missing, empty or readable by others; [`Error::System`].
    pub fn listen(options: &MemoryNodeOptions) -> Result<Self> {
        let geometry =
            Geometry::rounded(options.nodes.into(), options.segments.into(), options.segment_bytes)
                .map_err(farfield_words::Error::from)?;
        let of_server = ShmNodeOptions {
            name: options.name.as_str().into(),
            geometry,
            lease_ms: lease_ms(options.lease)?,
        };
        let secret = secret::of_node(options.secret_file.as_deref())?;
        let contents = Box::new(ClusterContents { sweeps: options.sweep });
        let server = Server::listen(of_server, secret, contents)?;
        Ok(Self(Arc::new(server)))
    }

    /// Returns a handle that stops it.
    ///
    /// # Errors
    /// [`Error::System`] if the process has too many open files.
    pub fn stopper(&self) -> Result<Stopper> {
        Ok(self.0.stopper()?)
    }

    /// Returns an observer of the cluster, for any thread.
    pub fn observer(&self) -> Observer {
        let (server, geometry) = (Arc::clone(&self.0), self.0.arena().geometry());
        Observer::new(move || {
            let load = |at| server.arena().word(at).map_or(0, |word| word.load(Ordering::SeqCst));
            NodeMetrics::of(geometry, 0..geometry.nodes(), load, server.counts())
        })
    }

    /// Serves until it is stopped. Then all connections are closed and the cluster's directory is removed. The memory itself is freed when the last
    /// process that uses it has ended.
    pub fn serve(self) {
        self.0.serve();
    }
}

impl fmt::Debug for MemoryNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryNode").finish_non_exhaustive()
    }
}
