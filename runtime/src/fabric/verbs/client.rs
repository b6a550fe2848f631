//! The client's side: a process that is connected to the memory nodes of a cluster.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::config::{Config, Sharing};
use super::device::{Atomics, Device, Domain, Limits, Reach, Region};
use super::handshake::{
    Hello, JOIN_BYTES, Join, Key, Kind, MAX_WELCOME_BYTES, Nonce, Reply, Secret, Segment, Welcome,
};
use super::lane::{Connect, Lane, Wire};
use super::manager::{Id, What, cannot_connect, connect, resolve};
use super::pipeline::{Credits, Request};
use super::queue::{Batch, Completion, Completions, Messages, Outcome, RECEIVED, Target};
use crate::cluster::control::LAYOUT_VERSION;
use crate::error::{Error, Result};
use crate::fabric::chain::Chain;
use crate::fabric::host::Geometry;
use crate::layout::{WORD_BYTES, fingerprint};
use crate::pointer::Address;

/// Requests in a lane's send queue, if the device has so many: what a few tens of tasks have in flight.
const REQUESTS: u32 = 256;
/// Memory that a lane reads into and writes from.
const RING_BYTES: u64 = 128 << 10;
/// WRITEs up to this size travel in their work request: the words of a small node.
const INLINE_BYTES: u32 = 64;
/// How many READs a reply's sender is never behind with: completions that tell of nothing but themselves.
const SPARE_COMPLETIONS: u32 = 8;

/// How many READs try out the first lane to a memory node.
const READS_TO_TRY: usize = 4;

/// A process's connections.
///
/// Lanes hold their node, so that it is there when they connect anew; nodes do not hold lanes.
pub(crate) struct Client {
    nodes: Vec<(Arc<Node>, Lanes)>,
    sharing: Sharing,
    geometry: Geometry,
    /// The process's number among all that have ever connected.
    number: u32,
    connected: Instant,
    /// Lanes for `rr` and `rand`, in the order in which threads ask.
    next_lane: AtomicU64,
    /// How long the quickest READ took of those that tried the first lanes; to the memory node where that is longest.
    round_trip_ns: AtomicU64,
}

/// A memory node, as a client knows it.
pub(super) struct Node {
    /// Its place in the cluster, and its address as it was given.
    number: u16,
    name: Box<str>,
    address: SocketAddr,
    secret: Secret,
    timeout: Duration,
    ack_timeout: Option<u8>,
    cluster: u64,
    nodes: u16,
    incarnation: u64,
    first_segment: u16,
    segments: Vec<Segment>,
    session: Mutex<Session>,
}

/// A control connection that is open, and what it gave.
struct Session {
    client: u32,
    key: Key,
    lanes: u32,
    /// As long as it is there, so are the client's lanes.
    _control: Control,
}

/// Makes the lanes to a node.
pub(super) struct Connector(Arc<Node>);

/// The control connection, in the order in which it is destroyed.
struct Control {
    id: Id,
    completions: Completions,
    messages: Messages,
    reply: Reply,
    nonce: Nonce,
}

impl Control {
    /// Asks for a control connection. `incarnation` is the one that is wanted, 0 for any.
    fn open(address: SocketAddr, hello: Hello, secret: &Secret, timeout: Duration) -> Result<Self, String> {
        let deadline = Instant::now() + timeout;
        let text = |error: Error| error.to_string();
        let (id, device) = resolve(address, deadline, |device| ack_timeout(device, timeout))?;
        check(device)?;
        let domain = Domain::new(device).map_err(text)?;
        let completions = Completions::new(device, SPARE_COMPLETIONS, true).map_err(text)?;
        let messages = Messages::new(&domain, MAX_WELCOME_BYTES.max(JOIN_BYTES)).map_err(text)?;
        id.create_qp(&domain, completions.as_ptr(), 4, 0).map_err(text)?;
        messages.expect(&id).map_err(text)?;
        let mut nonce = Nonce::default();
        getrandom::fill(&mut nonce).map_err(|error| error.to_string())?;
        let hello = Hello { nonce, ..hello };
        let (data, _) = connect(&id, &hello.with_secret(secret), 0, deadline)?;
        let reply = Reply::parse(&data, secret, &nonce)?;
        Ok(Self { id, completions, messages, reply, nonce })
    }

    /// Takes a place in a cluster, and waits for the answer.
    fn join(&self, join: Join, secret: &Secret, timeout: Duration) -> Result<Welcome, String> {
        let deadline = Instant::now() + timeout;
        let message = join.to_bytes(secret, &self.nonce, &self.reply.nonce);
        self.messages.send(&self.id, &message).map_err(|error| error.to_string())?;
        let mut answer = None;
        while Instant::now() < deadline {
            self.completions.tell_again();
            self.completions.take(|completion| match completion.outcome {
                Outcome::Done if completion.number == RECEIVED => answer = Some(Some(completion.bytes)),
                Outcome::Done => {}
                _ => answer = answer.or(Some(None)),
            });
            match answer {
                Some(Some(bytes)) => return Welcome::parse(&self.messages.received(bytes)),
                Some(None) => return Err("it has closed the connection".to_owned()),
                None => {
                    let descriptors: Vec<_> = self.completions.descriptor().into_iter().collect();
                    super::manager::wait_for(
                        &descriptors,
                        deadline.saturating_duration_since(Instant::now()),
                    );
                }
            }
        }
        Err("it does not answer".to_owned())
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.id.disconnect();
    }
}

/// Whether Farfield can use a device.
pub(super) fn check(device: Device) -> Result<Limits, String> {
    let limits = device.limits().map_err(|error| error.to_string())?;
    suffices(&limits)
        .map(|()| limits)
        .map_err(|lack| format!("the RDMA device {} has no {lack}", device.name()))
}

/// What a device lacks.
fn suffices(limits: &Limits) -> Result<(), &'static str> {
    match limits.atomics {
        Atomics::None => Err("atomics"),
        _ if limits.reads_out == 0 || limits.reads_in == 0 => Err("READs"),
        _ if limits.requests == 0 || limits.completions <= SPARE_COMPLETIONS => Err("room for requests"),
        Atomics::Device | Atomics::Global => Ok(()),
    }
}

/// How long a device waits before it sends a packet again, as the power of two that it takes.
///
/// Hardware tries eight times within the timeout. A device in software may take longer for an answer than that, and what it sends
/// again is harmful: it is told to wait as good as for ever, and the clock above it decides.
pub(super) fn ack_timeout(device: Device, timeout: Duration) -> u8 {
    if device.is_software() {
        return 24;
    }
    let each_ns = timeout.as_nanos() / 8;
    (8..24).rfind(|exponent| 4096_u128 << exponent <= each_ns).unwrap_or(8)
}

impl Client {
    /// Connects to all memory nodes of a cluster.
    ///
    /// # Errors
    /// [`Error::CannotConnect`] naming the first that can not be connected to; [`Error::System`].
    pub(crate) fn connect(config: &Config) -> Result<Self> {
        Device::all()?;
        let secret = config.secret()?;
        let mut opened = Vec::new();
        for (number, name) in (0_u16..).zip(&config.nodes) {
            let address = resolve_name(name)?;
            let hello =
                Hello { kind: Kind::Control, node: number, cluster: 0, incarnation: 0, nonce: [0; 16] };
            let control = Control::open(address, hello, &secret, config.timeout)
                .map_err(|reason| cannot_connect(name, reason))?;
            opened.push((number, name, address, control));
        }
        let incarnations: Vec<u64> =
            opened.iter().map(|(_, _, _, control)| control.reply.incarnation).collect();
        let (cluster, nodes) = (cluster_of(&incarnations), opened.len() as u16);
        let mut joined = Vec::new();
        let mut geometry = None;
        let mut process = 0;
        for (number, name, address, control) in opened {
            let failed = |reason: String| cannot_connect(name, reason);
            let join = Join { cluster, node: number, nodes };
            let welcome = control.join(join, &secret, config.timeout).map_err(failed)?;
            if welcome.layout != LAYOUT_VERSION {
                return Err(failed(format!(
                    "its memory has layout version {}, this build knows {LAYOUT_VERSION}",
                    welcome.layout
                )));
            }
            let shape = (welcome.segments.len(), welcome.segment_bytes);
            let (segments, bytes) = *geometry.get_or_insert(shape);
            if shape != (segments, bytes) {
                return Err(failed(format!(
                    "it has {} segments of {} bytes, and {} has {segments} of {bytes}: they must be alike",
                    shape.0, shape.1, config.nodes[0]
                )));
            }
            if number == 0 {
                process = welcome.client;
            }
            let node = Node {
                number,
                name: name.clone(),
                address,
                secret: secret.clone(),
                timeout: config.timeout,
                ack_timeout: config.ack_timeout,
                cluster,
                nodes,
                incarnation: control.reply.incarnation,
                first_segment: number * segments as u16,
                segments: welcome.segments,
                session: Mutex::new(Session {
                    client: welcome.client,
                    key: secret.key(&control.nonce, &control.reply.nonce),
                    lanes: 0,
                    _control: control,
                }),
            };
            joined.push((Arc::new(node), Mutex::default()));
        }
        let (segments, segment_bytes) = geometry.unwrap_or((0, 0));
        let geometry = Geometry { nodes, segments_per_node: segments as u16, segment_bytes };
        if geometry.checked_segments().is_none() {
            let reason = format!(
                "{nodes} memory nodes with {segments} segments each are more than a pointer can name"
            );
            return Err(cannot_connect(&config.nodes[0], reason));
        }
        Ok(Self {
            nodes: joined,
            sharing: config.sharing,
            geometry,
            number: process,
            connected: Instant::now(),
            next_lane: AtomicU64::new(config.seed),
            round_trip_ns: AtomicU64::new(1),
        })
    }

    pub(crate) fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// The process's number among all that have ever connected to this incarnation of the cluster.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    pub(super) fn connected(&self) -> Instant {
        self.connected
    }

    /// Opens as many lanes as a run of so many threads uses.
    pub(crate) fn prepare(&self, threads: usize) -> Result<()> {
        for (node, lanes) in &self.nodes {
            let mut lanes = lock(lanes);
            while lanes.len() < self.sharing.lanes(threads) {
                let lane = Lane::new(Connector(Arc::clone(node)))?;
                if lanes.is_empty() {
                    let took = try_out(&lane, node.first_segment)?;
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

    /// The lanes of a thread, one to each memory node.
    pub(super) fn lanes_of(&self, thread: usize) -> Vec<Arc<ThreadLane>> {
        let turn = self.next_lane.fetch_add(1, Ordering::Relaxed);
        self.nodes
            .iter()
            .map(|(_, lanes)| {
                let lanes = lock(lanes);
                Arc::clone(&lanes[self.sharing.lane(thread, turn, lanes.len())])
            })
            .collect()
    }
}

/// Locks what is whole at every moment.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads through a lane a few times; gives how long the quickest took.
fn try_out(lane: &ThreadLane, segment: u16) -> Result<Duration> {
    let mut quickest = Duration::MAX;
    for _ in 0..READS_TO_TRY {
        let mut chain = Chain::default();
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

/// What a cluster is called: it follows from its memory nodes, each in its place.
fn cluster_of(incarnations: &[u64]) -> u64 {
    let name = fingerprint::name("farfield cluster");
    incarnations.iter().fold(name, |hash, incarnation| fingerprint::number(hash, *incarnation)).max(1)
}

fn resolve_name(name: &str) -> Result<SocketAddr> {
    let failed = |reason: String| cannot_connect(name, reason);
    let mut addresses = name.to_socket_addrs().map_err(|error| failed(error.to_string()))?;
    addresses.next().ok_or_else(|| failed("the name has no address".to_owned()))
}

impl Node {
    /// A session: the one that there is, or a new one if the memory node does not know it any more.
    fn renew(&self, session: &mut Session) -> Result<(), String> {
        let hello = Hello {
            kind: Kind::Control,
            node: self.number,
            cluster: self.cluster,
            incarnation: self.incarnation,
            nonce: [0; 16],
        };
        let control = Control::open(self.address, hello, &self.secret, self.timeout)?;
        let join = Join { cluster: self.cluster, node: self.number, nodes: self.nodes };
        let welcome = control.join(join, &self.secret, self.timeout)?;
        *session = Session {
            client: welcome.client,
            key: self.secret.key(&control.nonce, &control.reply.nonce),
            lanes: 0,
            _control: control,
        };
        Ok(())
    }

    fn open_lane(&self) -> Result<Connection, String> {
        let mut session = lock(&self.session);
        match self.open_lane_in(&mut session) {
            Err(reason) if reason == UNKNOWN_CLIENT => {
                self.renew(&mut session)?;
                self.open_lane_in(&mut session)
            }
            opened => opened,
        }
    }

    fn open_lane_in(&self, session: &mut Session) -> Result<Connection, String> {
        let text = |error: Error| error.to_string();
        let deadline = Instant::now() + self.timeout;
        let (id, device) = resolve(self.address, deadline, |device| {
            self.ack_timeout.unwrap_or_else(|| ack_timeout(device, self.timeout))
        })?;
        let limits = check(device)?;
        let domain = Domain::new(device).map_err(text)?;
        let requests =
            REQUESTS.min(limits.requests).min(limits.completions.saturating_sub(SPARE_COMPLETIONS));
        let completions = Completions::new(device, requests + SPARE_COMPLETIONS, false).map_err(text)?;
        let ring = Region::new(&domain, RING_BYTES, Reach::Local).map_err(text)?;
        // A device may have room for less than it is asked for, and refuse.
        let inline_bytes =
            if let Ok(bytes) = id.create_qp(&domain, completions.as_ptr(), requests, INLINE_BYTES) {
                bytes.min(INLINE_BYTES)
            } else {
                id.create_qp(&domain, completions.as_ptr(), requests, 0).map_err(text)?;
                0
            };
        session.lanes += 1;
        let nonce = Hello::lane(session.client, session.lanes);
        let (node, cluster, incarnation) = (self.number, self.cluster, self.incarnation);
        let hello = Hello { kind: Kind::Lane, node, cluster, incarnation, nonce };
        let (_, reads) = connect(&id, &hello.to_bytes(&session.key), limits.reads_out, deadline)?;
        if reads == 0 {
            return Err("its device answers no READs".to_owned());
        }
        let credits = Credits {
            requests: requests as usize,
            reads: usize::from(reads),
            words: RING_BYTES as usize / WORD_BYTES,
            inline_words: inline_bytes as usize / WORD_BYTES,
        };
        let batch = Batch::new(credits.requests, &ring);
        Ok(Connection { id, completions, ring, credits, batch })
    }
}

/// What a memory node says of a lane for a client that it does not know, or no longer.
pub(super) const UNKNOWN_CLIENT: &str = "the memory node does not know this client";

pub(super) type ThreadLane = Lane<Connector>;
/// The lanes to a node, as many as a run has needed so far.
type Lanes = Mutex<Vec<Arc<ThreadLane>>>;

/// A connection and what belongs to it, in the order in which it is destroyed.
pub(super) struct Connection {
    id: Id,
    completions: Completions,
    ring: Region,
    credits: Credits,
    batch: Batch,
}

impl Wire for Connection {
    type Ring = Region;

    fn credits(&self) -> Credits {
        self.credits
    }
    fn ring(&self) -> &Region {
        &self.ring
    }
    fn add(&mut self, request: &Request<'_>, target: Target) -> bool {
        self.batch.push(request, target);
        !self.batch.is_full()
    }
    fn post(&mut self) -> bool {
        self.batch.post(&self.id)
    }
    #[inline]
    fn completions(&mut self, each: impl FnMut(Completion)) -> usize {
        self.completions.take(each)
    }
    fn has_ended(&mut self) -> bool {
        self.id.channel().next().is_some_and(|event| matches!(event.what, What::Ended))
    }
    fn stop(&mut self) {
        self.id.stop();
    }
}

impl Connect for Connector {
    type Wire = Connection;

    fn connect(&self) -> Result<Connection> {
        self.0.open_lane().map_err(|reason| cannot_connect(&self.0.name, reason))
    }
    fn segments(&self) -> (u16, &[Segment]) {
        (self.0.first_segment, &self.0.segments)
    }
    fn node(&self) -> u16 {
        self.0.number
    }
    fn timeout(&self) -> Duration {
        self.0.timeout
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_without_atomics_is_not_used() {
        let limits = Limits {
            requests: 100,
            completions: 100,
            reads_out: 16,
            reads_in: 16,
            atomics: Atomics::Device,
            region_bytes: 1 << 40,
            ports: 1,
        };
        assert_eq!(suffices(&limits), Ok(()));
        assert_eq!(suffices(&Limits { atomics: Atomics::None, ..limits }), Err("atomics"));
        assert_eq!(suffices(&Limits { reads_in: 0, ..limits }), Err("READs"));
        assert_eq!(suffices(&Limits { completions: 8, ..limits }), Err("room for requests"));
    }

    #[test]
    fn nothing_stays_connected_when_the_client_is_gone() {
        let Some(address) = super::super::tests::address() else { return };
        let nodes = super::super::tests::Nodes::serve(&address, 2, 1, 1 << 16, None);
        let client = Client::connect(&Config::new(&nodes.names()).unwrap()).unwrap();
        client.prepare(3).unwrap();
        let node = Arc::downgrade(&client.nodes[1].0);
        assert!(node.upgrade().is_some());
        drop(client);
        assert!(node.upgrade().is_none());
    }

    #[test]
    fn the_order_of_memory_nodes_tells_clusters_apart() {
        assert_ne!(cluster_of(&[1, 2]), cluster_of(&[2, 1]));
        assert_ne!(cluster_of(&[1]), cluster_of(&[1, 1]));
        assert_eq!(cluster_of(&[1, 2]), cluster_of(&[1, 2]));
    }
}
