//! The client's side: a process that is connected to the memory nodes of a cluster.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use super::config::{Sharing, VerbsConfig};
use super::device::Device;
use super::manager::cannot_connect;
use super::node::{Control, Node, ThreadLane};
use crate::chain::RawChain;
use crate::error::{Error, Result};
use crate::handshake::{ConnectionKind, Hello, Join, NodePosition};
use crate::stall::lock;
use farfield_words::Address;
use farfield_words::geometry::Geometry;
use farfield_words::{WORD_BYTES, fingerprint};

/// The number of READs that measure the first lane to a memory node.
const READS_TO_TRY: usize = 4;

/// A process's connections.
///
/// Lanes own a share in their node, so that they can reconnect; nodes do not own lanes.
pub struct Client {
    nodes: Vec<(Arc<Node>, Lanes)>,
    sharing: Sharing,
    geometry: Geometry,
    /// The process's number, which no other process of the cluster ever has, and its lease.
    number: u32,
    lease: Duration,
    /// Lanes for background threads, one to each node.
    background: OnceLock<Vec<Arc<ThreadLane>>>,
    connected: Instant,
    /// Lanes for `rr` and `rand`, in the order in which threads ask.
    next_lane: AtomicU64,
    /// The time of the fastest READ on a new lane; the largest of all memory nodes.
    round_trip_ns: AtomicU64,
}

/// The lanes to a node, as many as runs have needed so far.
type Lanes = Mutex<Vec<Arc<ThreadLane>>>;

impl Client {
    /// Connects to all memory nodes of a cluster, whose memory must have this version of the layout.
    ///
    /// # Errors
    /// [`Error::CannotConnect`] naming the first that can not be connected to; [`Error::System`].
    pub fn connect(config: &VerbsConfig, layout: u64) -> Result<Self> {
        Device::all()?;
        let secret = config.secret()?;
        let mut opened = Vec::new();
        for (number, name) in (0_u16..).zip(&config.nodes) {
            let address = resolve_name(name)?;
            let hello = Hello {
                kind: ConnectionKind::Control,
                node: number,
                cluster: 0,
                incarnation: 0,
                nonce: [0; 16],
            };
            let control = Control::open(address, hello, &secret, config.timeout)
                .map_err(|reason| cannot_connect(name, reason))?;
            opened.push((number, name, address, control));
        }
        let incarnations: Vec<u64> = opened.iter().map(|(_, _, _, control)| control.incarnation()).collect();
        let (cluster, nodes) = (cluster_of(&incarnations), opened.len() as u16);
        let mut joined = Vec::new();
        let mut geometry = None;
        let (mut process, mut lease) = (0, Duration::ZERO);
        for (number, name, address, mut control) in opened {
            let failed = |reason: String| cannot_connect(name, reason);
            let position = NodePosition { cluster, node: number, nodes };
            let join = Join { position, process };
            let welcome = control.join(join, &secret, layout, config.timeout).map_err(failed)?;
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
                (position, process),
                (name.clone(), address),
                cluster,
                &secret,
                config,
                control,
                welcome,
            );
            joined.push((Arc::new(node), Mutex::default()));
        }
        let geometry = geometry.ok_or_else(|| Error::other("a cluster has at least one memory node"))?;
        Ok(Self {
            nodes: joined,
            sharing: config.sharing,
            geometry,
            number: process,
            lease,
            background: OnceLock::new(),
            connected: Instant::now(),
            next_lane: AtomicU64::new(config.seed),
            round_trip_ns: AtomicU64::new(1),
        })
    }

    /// Returns the geometry of the cluster, from its memory nodes' welcomes.
    pub fn geometry(&self) -> Geometry {
        self.geometry
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
        for (node, _) in self.nodes.iter().rev() {
            if !node.is_gone(process)? {
                return Some(false);
            }
        }
        Some(true)
    }

    /// Opens lanes for background threads.
    pub fn prepare_background(&self) -> Result<()> {
        let mut lanes = Vec::new();
        for (node, _) in &self.nodes {
            let lane = node.open_lane()?;
            let took = try_out(&lane, node.first_segment())?;
            self.round_trip_ns.fetch_max(took.as_nanos() as u64, Ordering::Relaxed);
            lanes.push(Arc::new(lane));
        }
        // Another thread may have set them first.
        let _ = self.background.set(lanes);
        Ok(())
    }

    pub(super) fn background_lanes(&self) -> Vec<Arc<ThreadLane>> {
        self.background.get().cloned().unwrap_or_default()
    }

    pub(super) fn connected(&self) -> Instant {
        self.connected
    }

    /// Opens as many lanes as a run of `threads` threads uses.
    pub fn prepare(&self, threads: usize) -> Result<()> {
        for (node, lanes) in &self.nodes {
            let mut lanes = lock(lanes, || "another run to open its lanes".to_owned());
            while lanes.len() < self.sharing.lanes(threads) {
                let lane = node.open_lane()?;
                if lanes.is_empty() {
                    let took = try_out(&lane, node.first_segment())?;
                    self.round_trip_ns.fetch_max(took.as_nanos() as u64, Ordering::Relaxed);
                }
                lanes.push(Arc::new(lane));
            }
        }
        Ok(())
    }

    pub(super) fn round_trip(&self) -> u64 {
        self.round_trip_ns.load(Ordering::Relaxed)
    }

    /// Returns the lanes of a thread, one to each memory node.
    pub(super) fn lanes_of(&self, thread: usize) -> Vec<Arc<ThreadLane>> {
        let turn = self.next_lane.fetch_add(1, Ordering::Relaxed);
        self.nodes
            .iter()
            .map(|(_, lanes)| {
                let lanes = lock(lanes, || "another run to open its lanes".to_owned());
                Arc::clone(&lanes[self.sharing.lane(thread, turn, lanes.len())])
            })
            .collect()
    }
}

/// Reads through a lane a few times. Returns the time of the fastest READ.
fn try_out(lane: &ThreadLane, segment: u16) -> Result<Duration> {
    let mut quickest = Duration::MAX;
    for _ in 0..READS_TO_TRY {
        let mut chain = RawChain::default();
        chain.read(Address::new(segment, WORD_BYTES as u64), 1);
        let began = Instant::now();
        let number = lane.push(chain);
        loop {
            if let Some((_, result)) = lane.poll(number) {
                result?;
                break;
            }
            std::thread::yield_now();
        }
        quickest = quickest.min(began.elapsed());
    }
    Ok(quickest.max(Duration::from_nanos(1)))
}

/// Returns the identity of a cluster, a hash of its memory nodes' incarnations in order.
fn cluster_of(incarnations: &[u64]) -> u64 {
    let name = fingerprint::name("farfield cluster");
    incarnations.iter().fold(name, |hash, incarnation| fingerprint::number(hash, *incarnation)).max(1)
}

fn resolve_name(name: &str) -> Result<SocketAddr> {
    let failed = |reason: String| cannot_connect(name, reason);
    let mut addresses = name.to_socket_addrs().map_err(|error| failed(error.to_string()))?;
    addresses.next().ok_or_else(|| failed("the name has no address".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_connections_end_with_the_client() {
        let Some(address) = super::super::tests::address() else { return };
        let nodes = super::super::tests::Nodes::serve(&address, 2, 1, 1 << 16, None);
        let client = Client::connect(
            &VerbsConfig::new(&nodes.names()).unwrap(),
            crate::contents::tests::Empty::VERSION,
        )
        .unwrap();
        client.prepare(3).unwrap();
        let node = Arc::downgrade(&client.nodes[1].0);
        assert!(node.upgrade().is_some());
        drop(client);
        assert!(node.upgrade().is_none());
    }

    #[test]
    fn the_identity_of_a_cluster_depends_on_the_order_of_its_memory_nodes() {
        assert_ne!(cluster_of(&[1, 2]), cluster_of(&[2, 1]));
        assert_ne!(cluster_of(&[1]), cluster_of(&[1, 1]));
        assert_eq!(cluster_of(&[1, 2]), cluster_of(&[1, 2]));
    }
}
