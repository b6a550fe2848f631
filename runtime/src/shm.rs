//! The other side of `shm:`: the memory node of a cluster whose processes share a machine.
//!
//! It makes the memory, lets processes in that know the secret, and knows when one has ended; the command
//! `farfield memnode` is one. No operation goes through it. On Linux.
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

/// How long a process may go without a sign of life, if nobody says.
const LEASE: Duration = Duration::from_secs(1);

/// What a memory node hosts, and for whom.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MemoryNodeOptions {
    /// What the cluster is called: `shm:NAME`.
    pub name: String,
    /// How many memory nodes the segments are divided among, 1 to 1024: as if there were so many.
    pub nodes: u16,
    /// How many segments each has; 1024 in all.
    pub segments: u16,
    /// The size of each, 27336 bytes to 256 TiB, rounded down to words. The system gives the memory when the node starts.
    pub segment_bytes: u64,
    /// A file with the cluster's secret, readable by its owner only. Without one every process of the user is let in.
    pub secret_file: Option<PathBuf>,
    /// How long a process may go without a sign of life before it counts as stalled; 100 ms to an hour.
    pub lease: Duration,
    /// Whether memory of processes that have died is taken back while others live. Programs then have to [hold](crate::ComputeThread::hold)
    /// what they have unlinked and keep without a guard. Otherwise it is taken back when a process joins that finds no other, or by
    /// [`Cluster::collect`](crate::Cluster::collect).
    pub sweep: bool,
}

impl MemoryNodeOptions {
    /// One segment of 256 MiB, no secret, a lease of a second, no sweeping.
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
    /// Makes the memory and listens. What an earlier memory node of this name has left behind that was killed is removed.
    ///
    /// # Errors
    /// [`Error::CannotServe`] if another serves under this name, processes still use the memory of an earlier one, the directory is
    /// somebody else's, or the system has less memory to give; [`Error::InvalidArgument`] for an option out of its bounds, or a secret's file that is
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

    /// What makes it stop.
    ///
    /// # Errors
    /// [`Error::System`] if the process has too many open files.
    pub fn stopper(&self) -> Result<Stopper> {
        Ok(self.0.stopper()?)
    }

    /// What tells how the cluster stands, from any thread.
    pub fn observer(&self) -> Observer {
        let (server, geometry) = (Arc::clone(&self.0), self.0.arena().geometry());
        Observer::new(move || {
            let load = |at| server.arena().word(at).map_or(0, |word| word.load(Ordering::SeqCst));
            NodeMetrics::of(geometry, 0..geometry.nodes(), load, server.counts())
        })
    }

    /// Serves until it is told to stop; then all connections are closed and the cluster's directory is removed. The memory itself is gone when
    /// the last process has ended that uses it.
    pub fn serve(self) {
        self.0.serve();
    }
}

impl fmt::Debug for MemoryNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryNode").finish_non_exhaustive()
    }
}
