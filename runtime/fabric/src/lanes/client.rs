//! The client's side: a process that is connected to the memory nodes of a cluster.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use super::config::{NodesConfig, Sharing};
use super::lane::Lane;
use super::node::{Connector, Introduced, Network, Node, Route, cannot_connect};
use super::sets::{self, Lanes, OwnSet, Pool, SharedSet};
use crate::chain::RawChain;
use crate::error::{Error, Result};
use crate::handshake::{Join, NodePosition, Secret, cluster_of};
use crate::stall::lock;
use farfield_words::Address;
use farfield_words::WORD_BYTES;
use farfield_words::geometry::Geometry;

/// The number of READs that measure the first lane to a memory node.
const READS_TO_TRY: usize = 4;

/// The round trip in nanoseconds before it was measured.
const UNMEASURED: u64 = 1;

/// A process's connections.
///
/// Lanes own a share in their node, so that they can reconnect; nodes do not own lanes.
#[allow(private_bounds)] // each network has an alias with its own
pub struct Client<N: Network> {
    pub(crate) nodes: Vec<Arc<Node<N>>>,
    /// The lanes of compute threads: as many as runs have needed so far.
    lanes: Mutex<Pool<Connector<N>>>,
    sharing: Sharing,
    geometry: Geometry,
    /// The way to each segment.
    routes: Arc<[Route]>,
    /// The process's number, which no other process of the cluster ever has, and its lease.
    number: u32,
    lease: Duration,
    /// The lanes that background threads share.
    background: OnceLock<SharedSet<Connector<N>>>,
    connected: Instant,
    /// Lanes for `rr` and `rand`, in the order in which threads ask.
    next_lane: AtomicU64,
    /// The time of the fastest READ on a new lane; the largest of all memory nodes.
    round_trip_ns: AtomicU64,
}

#[allow(private_bounds)]
impl<N: Network> Client<N> {
    /// Connects to all memory nodes of a cluster, whose memory must have this version of the layout.
    ///
    /// # Errors
    /// [`Error::CannotConnect`] naming the first that can not be connected to.
    pub(crate) fn connect_by(network: N, config: &NodesConfig, secret: &Secret, layout: u64) -> Result<Self> {
        let network = Arc::new(network);
        let mut introduced = Vec::new();
        for (number, name) in (0_u16..).zip(&config.nodes) {
            let address = resolve_name(name)?;
            let node = Introduced::to(&*network, address, number, secret, config.timeout)
                .map_err(|reason| cannot_connect(name, reason))?;
            introduced.push((number, name, node));
        }
        let incarnations: Vec<u64> = introduced.iter().map(|(_, _, node)| node.incarnation()).collect();
        let (cluster, nodes) = (cluster_of(&incarnations), introduced.len() as u16);
        let mut joined = Vec::new();
        let mut geometry = None;
        let (mut process, mut lease) = (0, Duration::ZERO);
        for (number, name, mut node) in introduced {
            let failed = |reason: String| cannot_connect(name, reason);
            let position = NodePosition { cluster, node: number, nodes };
            let join = Join { position, process };
            let welcome = node.join(join, secret, layout, config.timeout).map_err(failed)?;
            let own = welcome.geometry;
            let cluster = position.cluster_of(own).map_err(failed)?;
            let first = *geometry.get_or_insert(cluster);
            if cluster != first {
                return Err(failed(format!(
                    "it has {} segments of {} bytes, and {} has {} of {}: they must be alike",
                    own.segments(),
                    own.segment_bytes(),
                    config.nodes[0],
                    first.segments_per_node(),
                    first.segment_bytes()
                )));
            }
            if number == 0 {
                process = welcome.client;
                lease = Duration::from_millis(u64::from(welcome.lease_ms));
            }
            let node = Node::new(
                Arc::clone(&network),
                (position, process),
                name,
                cluster,
                (config, secret),
                node,
                welcome,
            );
            joined.push(Arc::new(node));
        }
        let geometry = geometry.ok_or_else(|| Error::other("a cluster has at least one memory node"))?;
        Ok(Self {
            routes: joined.iter().flat_map(|node: &Arc<Node<N>>| node.routes()).collect(),
            nodes: joined,
            lanes: Mutex::default(),
            sharing: config.sharing,
            geometry,
            number: process,
            lease,
            background: OnceLock::new(),
            connected: Instant::now(),
            next_lane: AtomicU64::new(config.seed),
            round_trip_ns: AtomicU64::new(UNMEASURED),
        })
    }

    /// Returns the geometry of the cluster, from its memory nodes' welcomes.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    pub(crate) fn routes(&self) -> &Arc<[Route]> {
        &self.routes
    }

    /// Returns the process's number, which no other process of this incarnation of the cluster ever has.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns the lease: the longest time between two heartbeats of the process.
    pub fn lease(&self) -> Duration {
        self.lease
    }

    /// Returns whether a process is gone, so that no operation of it takes effect any more: the question itself disconnects it. `None` if a
    /// memory node does not answer. The first node is asked last: it marks the process as departed.
    pub fn is_gone(&self, process: u32) -> Option<bool> {
        for node in self.nodes.iter().rev() {
            if !node.is_gone(process)? {
                return Some(false);
            }
        }
        Some(true)
    }

    /// Opens lanes for background threads.
    pub fn prepare_background(&self) -> Result<()> {
        let set = sets::shared(self.open()?);
        // Another thread may have set them first.
        let _ = self.background.set(set);
        Ok(())
    }

    pub(crate) fn background_lanes(&self) -> Lanes<Connector<N>> {
        let none = || Arc::from(Vec::new());
        Lanes::Shared(self.background.get().map_or_else(none, Arc::clone))
    }

    /// Opens a lane to each memory node. READs through the first ones measure the round trip.
    fn open(&self) -> Result<OwnSet<Connector<N>>> {
        let measures = self.round_trip() == UNMEASURED;
        let open = |node: &Arc<Node<N>>| {
            let mut lane = Lane::new(node.connector())?;
            if measures {
                let took = try_out(&mut lane, node.first_segment())?;
                self.round_trip_ns.fetch_max(took.as_nanos() as u64, Ordering::Relaxed);
            }
            Ok(lane)
        };
        self.nodes.iter().map(open).collect()
    }

    pub(crate) fn connected(&self) -> Instant {
        self.connected
    }

    /// Opens as many lanes as a run of `threads` threads uses.
    pub fn prepare(&self, threads: usize) -> Result<()> {
        while self.pool().lacks(self.sharing, threads) {
            // Without the lock, since a connection may take long; another run may add a set first.
            let set = self.open()?;
            let mut pool = self.pool();
            if pool.lacks(self.sharing, threads) {
                pool.add(self.sharing, set);
            }
        }
        Ok(())
    }

    fn pool(&self) -> MutexGuard<'_, Pool<Connector<N>>> {
        lock(&self.lanes, || "another thread that takes its lanes".to_owned())
    }

    pub(crate) fn round_trip(&self) -> u64 {
        self.round_trip_ns.load(Ordering::Relaxed)
    }

    /// Returns the lanes of a thread.
    pub(crate) fn lanes_of(&self, thread: usize) -> Lanes<Connector<N>> {
        let turn = self.next_lane.fetch_add(1, Ordering::Relaxed);
        let unconnected = || self.nodes.iter().map(|node| Lane::unconnected(node.connector())).collect();
        self.pool().take(self.sharing, thread, turn, unconnected)
    }

    /// Takes back the lanes that a thread had for itself.
    pub(crate) fn give_back(&self, set: OwnSet<Connector<N>>) {
        self.pool().give_back(set);
    }
}

/// Reads through a lane a few times. Returns the time of the fastest READ.
fn try_out<N: Network>(lane: &mut Lane<Connector<N>>, segment: u16) -> Result<Duration> {
    let mut quickest = Duration::MAX;
    for _ in 0..READS_TO_TRY {
        let mut chain = RawChain::default();
        chain.read(Address::new(segment, WORD_BYTES as u64), 1);
        let began = Instant::now();
        let number = lane.push(chain);
        while !lane.is_done(number) {
            std::thread::yield_now();
        }
        lane.take(number).1?;
        quickest = quickest.min(began.elapsed());
    }
    Ok(quickest.max(Duration::from_nanos(1)))
}

fn resolve_name(name: &str) -> Result<SocketAddr> {
    let failed = |reason: String| cannot_connect(name, reason);
    let mut addresses = name.to_socket_addrs().map_err(|error| failed(error.to_string()))?;
    addresses.next().ok_or_else(|| failed("the name has no address".to_owned()))
}
