//! Memory nodes of `shm:`, `tcp://` and `rdma://` clusters.
//!
//! A memory node hosts segments for compute threads of other processes, admits processes that know the secret, and detects when one has ended. The
//! command `farfield memnode` is a memory node. Processes reach it by one or more *ways*:
//!
//! | way | for | who executes operations |
//! |---|---|---|
//! | `shm:NAME` | processes of its machine and user | each process: it maps the memory |
//! | `tcp://ADDR:PORT` | processes of any machine | the memory node, in one thread |
//! | `rdma://ADDR:PORT` | processes of any machine, with the feature `verbs` or `verbs-dlopen` | the RDMA device |
//!
//! A memory node with both `shm:` and `tcp://` is a cluster by itself, whose processes on its own machine do not pay for the network.
//! `rdma://` goes with no other way: operations of a device are not atomic with those of processors.
//!
//! ```
//! use farfield::memory_node::{MemoryNode, MemoryNodeOptions};
//! use farfield::prelude::*;
//!
//! # fn main() -> farfield::Result<()> {
//! # let name = format!("doc-{}", std::process::id());
//! let mut options = MemoryNodeOptions::new(&format!("shm:{name}"));
//! options.listen.push("tcp://127.0.0.1:0".to_owned());
//! options.segment_bytes = 1 << 20;
//! let node = MemoryNode::listen(&options)?;
//! let (stopper, urls) = (node.stopper()?, node.urls().to_vec());
//! let serving = std::thread::spawn(|| node.serve());
//! for url in &urls {
//!     // In any process of this user; by the second URL, in any process of this machine.
//!     let cluster = Cluster::connect(url)?;
//!     cluster.run(2, async |ct| ct.barrier("both are here").await)?;
//! }
//! stopper.stop();
//! serving.join().unwrap()
//! # }
//! ```

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::error::{self, Error, Result};
pub use crate::observer::{NodeMetrics, Observer};
use crate::session::contents::ClusterContents;
pub use farfield_fabric::Stopper;
use farfield_fabric::tcp::TcpListen;
#[cfg(feature = "_verbs")]
use farfield_fabric::verbs::VerbsNodeOptions;
use farfield_fabric::{lease_ms, memory_node, secret};

/// The default lease.
const LEASE: Duration = Duration::from_secs(2);

/// The options of a memory node.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MemoryNodeOptions {
    /// The ways by which processes reach it, each of a kind:
    /// - `shm:NAME`, with the cluster's name.
    /// - `tcp://ADDR:PORT`. Port 0 chooses a free port. Without a secret only a loopback address is listened on. With `?encrypt=no`
    ///   clients with `encrypt=no` are served, too: they prove that they know the secret, and the rest is sent in the clear.
    /// - `rdma://ADDR:PORT`, with the address of an RDMA device; any address if there is only one device.
    pub listen: Vec<String>,
    /// The number of memory nodes that the segments are divided among, 1 to 1024, as if there were so many processes; more than one only with `shm:`.
    pub nodes: u16,
    /// The number of segments of each; 1024 in all.
    pub segments: u16,
    /// The size of each segment, 27336 bytes to 128 TiB, rounded down to words.
    pub segment_bytes: u64,
    /// A file with the cluster's secret, readable by its owner only. Without a secret every process is admitted that reaches the memory node and knows
    /// of none.
    pub secret_file: Option<PathBuf>,
    /// The time without a heartbeat after which a process counts as stalled, and is evicted if it is on a network; 100 ms to an hour. The first memory
    /// node's lease applies.
    pub lease: Duration,
    /// True if the memory of dead processes is swept while others live. Programs then must [hold](crate::ComputeThread::hold) objects that they have
    /// unlinked and keep without a guard. Otherwise that memory is collected when a process joins that finds no other member, or by
    /// [`Cluster::collect`](crate::Cluster::collect). The first memory node's option applies.
    pub sweep: bool,
}

impl MemoryNodeOptions {
    /// Returns options for one way, for one segment of 256 MiB, without a secret, with a lease of 2 s, without sweeping.
    pub fn new(listen: &str) -> Self {
        Self {
            listen: vec![listen.to_owned()],
            nodes: 1,
            segments: 1,
            segment_bytes: 256 << 20,
            secret_file: None,
            lease: LEASE,
            sweep: false,
        }
    }
}

/// The ways by which a memory node is reached, at most one of each kind.
#[derive(Default)]
struct Ways {
    shm: Option<Box<str>>,
    tcp: Option<TcpListen>,
    rdma: Option<SocketAddr>,
}

impl Ways {
    /// # Errors
    /// [`Error::InvalidUrl`] with the reason.
    fn parse(listen: &[String]) -> Result<Self> {
        let mut ways = Self::default();
        for url in listen {
            ways.add(url).map_err(|reason| {
                Error::from(error::InvalidUrl { url: url.as_str().into(), reason: reason.into() })
            })?;
        }
        Ok(ways)
    }

    fn add(&mut self, url: &str) -> Result<(), &'static str> {
        const TWICE: &str = "a memory node listens once on a kind of network";
        const MIXED: &str = "operations of an RDMA device are not atomic with those of processors: start a memory node for `rdma://` alone";
        if let Some(name) = url.strip_prefix("shm:") {
            if self.shm.replace(name.into()).is_some() {
                return Err(TWICE);
            }
        } else {
            let (network, place) = url
                .split_once("://")
                .ok_or("a memory node listens on shm:NAME, tcp://ADDR:PORT or rdma://ADDR:PORT")?;
            let (address, option) = place.split_once('?').unwrap_or((place, ""));
            let address =
                address.parse().map_err(|_| "it is not an address and a port, as tcp://10.0.0.7:7000")?;
            let is_second = match (network, option) {
                ("tcp", "" | "encrypt=yes" | "encrypt=no") => {
                    self.tcp.replace(TcpListen { address, serves_plain: option == "encrypt=no" }).is_some()
                }
                ("tcp", _) => return Err("its only option is `encrypt`, `yes` or `no`"),
                ("rdma", "") => self.rdma.replace(address).is_some(),
                ("rdma", _) => return Err("it has no options"),
                _ => return Err("a memory node listens on `shm`, `tcp` or `rdma`"),
            };
            if is_second {
                return Err(TWICE);
            }
        }
        if self.rdma.is_some() && (self.shm.is_some() || self.tcp.is_some()) {
            return Err(MIXED);
        }
        Ok(())
    }
}

/// A memory node that listens for clients.
pub struct MemoryNode {
    node: memory_node::MemoryNode,
    urls: Vec<String>,
}

impl MemoryNode {
    /// Makes the memory and listens. With `shm:`, removes the files of an earlier memory node of this name that was killed. With `rdma:`, the memory is
    /// locked, on huge pages if the system has free ones.
    ///
    /// # Errors
    /// - [`Error::InvalidUrl`] for a way that is none, and for ways that do not go together.
    /// - [`Error::InvalidArgument`] for another option out of its bounds, an address that is in use, not of this machine, or not loopback without a
    ///   secret, or a secret's file that is missing, empty or readable by others.
    /// - [`Error::CannotServe`] if another memory node serves under this name, processes still use the memory of an earlier one, the
    ///   directory belongs to another user, or the system has less memory.
    /// - [`Error::System`] if the memory can not be mapped, registered or locked (the message names the limit), there is no RDMA device, or it may not
    ///   be used.
    pub fn listen(options: &MemoryNodeOptions) -> Result<Self> {
        let MemoryNodeOptions { listen, nodes, segments, segment_bytes, secret_file, lease, sweep } = options;
        let (nodes, segments, segment_bytes) = (*nodes, *segments, *segment_bytes);
        let ways = Ways::parse(listen)?;
        let lease_ms = lease_ms(*lease)?;
        let secret = secret::of_node(secret_file.as_deref())?;
        let contents = Box::new(ClusterContents { sweeps: *sweep });
        let node = match ways.rdma {
            #[cfg(feature = "_verbs")]
            Some(listen) => {
                let options = VerbsNodeOptions { listen, nodes, segments, segment_bytes, lease_ms };
                memory_node::MemoryNode::listen_verbs(&options, secret, contents)?
            }
            #[cfg(not(feature = "_verbs"))]
            Some(_) => {
                return Err(Error::other("this build has no RDMA: it needs `--features verbs`"));
            }
            None => {
                let (shm, tcp) = (ways.shm.clone(), ways.tcp.clone());
                let options = memory_node::NodeOptions { shm, tcp, nodes, segments, segment_bytes, lease_ms };
                memory_node::MemoryNode::listen(&options, secret, contents)?
            }
        };
        let url = |url: &String| match (node.address(), url.split_once("://")) {
            (Some(address), Some((network, _))) => format!("{network}://{address}"),
            _ => url.clone(),
        };
        Ok(Self { urls: listen.iter().map(url).collect(), node })
    }

    /// Returns the URLs by which clients reach it, in the order of [`MemoryNodeOptions::listen`], with the ports that it listens on.
    pub fn urls(&self) -> &[String] {
        &self.urls
    }

    /// Returns the name of its RDMA device, if it has one.
    pub fn device(&self) -> Option<String> {
        self.node.device()
    }

    /// Returns an observer of this memory node's part of the cluster, for any thread.
    pub fn observer(&self) -> Observer {
        let status = self.node.status();
        Observer::new(move || {
            let (nodes, geometry) = status.position();
            NodeMetrics::of(geometry, nodes, |at| status.load(at), status.counts())
        })
    }

    /// Returns a handle that stops it.
    ///
    /// # Errors
    /// [`Error::System`] if the process has too many open files.
    pub fn stopper(&self) -> Result<Stopper> {
        Ok(self.node.stopper()?)
    }

    /// Serves until it is stopped. Then all connections are closed, and the name and files of a `shm:` cluster are given up. Memory that processes map
    /// is freed when the last of them has ended; other memory at once.
    ///
    /// # Errors
    /// [`Error::System`] if it can not wait for its sockets; [`Error::Other`] if its RDMA device is removed. Errors of a connection are reported to its
    /// client only.
    pub fn serve(self) -> Result<()> {
        Ok(self.node.serve()?)
    }
}

impl fmt::Debug for MemoryNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryNode").field("urls", &self.urls).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(listen: &[&str]) -> String {
        let mut options = MemoryNodeOptions::new(listen[0]);
        options.listen = listen.iter().map(|url| (*url).to_owned()).collect();
        options.segment_bytes = 1 << 20;
        let said = MemoryNode::listen(&options).unwrap_err().to_string();
        assert!(!said.contains('\n'), "{said}");
        said
    }

    #[test]
    fn ways_that_do_not_go_together_are_refused_with_the_reason() {
        for other in ["shm:way", "tcp://127.0.0.1:0"] {
            for listen in [[other, "rdma://127.0.0.1:0"], ["rdma://127.0.0.1:0", other]] {
                assert!(refused(&listen).contains("not atomic with those of processors"), "{listen:?}");
            }
            assert!(refused(&[other, other]).contains("once on a kind of network"));
        }
    }

    #[test]
    fn a_way_that_is_none_is_refused_by_name() {
        for (way, reason) in [
            ("local:", "listens on shm:NAME"),
            ("udp://127.0.0.1:0", "`shm`, `tcp` or `rdma`"),
            ("tcp://localhost", "not an address and a port"),
            ("tcp://127.0.0.1:0?timeout=5s", "only option is `encrypt`"),
            ("rdma://127.0.0.1:0?encrypt=no", "no options"),
            ("shm:a/b", "not a valid cluster name"),
        ] {
            let said = refused(&[way]);
            assert!(said.contains(way) && said.contains(reason), "{said}");
        }
    }

    #[test]
    fn only_segments_that_processes_map_are_divided() {
        let mut options = MemoryNodeOptions::new("tcp://127.0.0.1:0");
        options.nodes = 2;
        assert!(MemoryNode::listen(&options).unwrap_err().to_string().contains("memory nodes is 2"));
    }
}
