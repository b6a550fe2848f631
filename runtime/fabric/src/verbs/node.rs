//! A memory node, as a client knows it: its session, and the connections of its lanes.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::batch::{Batch, Refused};
use super::config::VerbsConfig;
use super::device::{SPARE_COMPLETIONS, ack_timeout, check};
use super::lane::{Connect, Wire};
use super::manager::{EventKind, cannot_connect, connect, resolve, wait_for};
use super::pipeline::{Credits, MOST_REQUESTS, Request};
use super::queue::{Completion, Completions, Messages, Outcome, RECEIVED};
use super::queue_pair::QueuePair;
use super::region::{Access, Domain, Region};
use crate::chain::SINGLE_WORDS;
use crate::error::{self, Error, Result};
use crate::handshake::{
    ConnectionKind, Hello, JOIN_BYTES, Join, Key, MAX_WELCOME_BYTES, NodePosition, Nonce, Reply, Secret,
    Segment, Welcome,
};
use crate::question::{Answer, Asker, Transport};
use crate::stall::{blocked, lock};
use farfield_words::WORD_BYTES;
use farfield_words::geometry::Geometry;

/// The requests in a lane's send queue, if the device allows as many: enough for a few tens of tasks.
const REQUESTS: u32 = MOST_REQUESTS as u32;
/// The places of single operations in a lane's ring: more than most threads have in flight. Those beyond are copied once more.
const PLACES: usize = 512;
/// The size of the rest of a lane's ring, into which it reads and from which it writes.
const RING_BYTES: u64 = 128 << 10;
/// WRITEs up to this size are inline in their work request: the words of a small node.
const INLINE_BYTES: u32 = 64;

/// A memory node, as a client knows it.
pub(super) struct Node {
    position: NodePosition,
    /// The number of its first segment in the cluster, and this process's number.
    first_segment: u16,
    process: u32,
    /// Its address as in the URL, and resolved.
    name: Box<str>,
    address: SocketAddr,
    timeout: Duration,
    ack_timeout: Option<u8>,
    incarnation: u64,
    segments: Vec<Segment>,
    session: Mutex<Session>,
}

/// The way to a segment: its memory node, and its key and its first word's address there.
pub(super) struct Route {
    pub(super) node: u16,
    pub(super) key: u32,
    pub(super) base: u64,
}

/// An open control connection, and the results of its handshake.
struct Session {
    client: u32,
    key: Key,
    lanes: u32,
    /// The client's lanes stay open as long as it.
    control: Control,
    asker: Asker,
}

/// Makes the successive connections of a lane to a node.
pub(super) struct Connector {
    node: Arc<Node>,
    /// The number of the last connection; 0 before the first.
    last: AtomicU32,
}

/// The control connection.
pub(super) struct Control {
    queue_pair: QueuePair,
    completions: Arc<Completions>,
    messages: Messages,
    reply: Reply,
    nonce: Nonce,
    /// True if a receive buffer is posted.
    expects: bool,
}

impl Session {
    fn new(secret: &Secret, control: Control, client: u32) -> Self {
        Self {
            client,
            key: secret.key(&control.nonce, &control.reply.nonce),
            lanes: 0,
            control,
            asker: Asker::default(),
        }
    }
}

impl Control {
    /// Opens a control connection. The incarnation in `hello` is the expected one, 0 for any.
    pub(super) fn open(
        address: SocketAddr,
        hello: Hello,
        secret: &Secret,
        timeout: Duration,
    ) -> Result<Self, String> {
        let deadline = Instant::now() + timeout;
        let text = |error: Error| error.to_string();
        let (id, device) = resolve(address, deadline, |device| ack_timeout(device, timeout))?;
        check(device)?;
        let domain = Domain::new(device).map_err(text)?;
        let completions = Completions::new(device, SPARE_COMPLETIONS, true).map_err(text)?;
        let messages = Messages::new(&domain, MAX_WELCOME_BYTES.max(JOIN_BYTES)).map_err(text)?;
        let queue_pair = QueuePair::new(id, &domain, &completions, 4, 0).map_err(|(_, error)| text(error))?;
        messages.expect(&queue_pair).map_err(text)?;
        let mut nonce = Nonce::default();
        getrandom::fill(&mut nonce).map_err(|error| error.to_string())?;
        let hello = Hello { nonce, ..hello };
        let (data, _) = connect(queue_pair.id(), &hello.with_secret(secret), 0, deadline)?;
        let reply = Reply::parse(&data, secret, &nonce)?;
        Ok(Self { queue_pair, completions, messages, reply, nonce, expects: true })
    }

    pub(super) fn incarnation(&self) -> u64 {
        self.reply.incarnation
    }

    /// Requests to join the cluster, and waits for the welcome.
    pub(super) fn join(
        &mut self,
        join: Join,
        secret: &Secret,
        layout: u64,
        timeout: Duration,
    ) -> Result<Welcome, String> {
        let until = Instant::now() + timeout;
        self.send(&join.to_bytes(secret, &self.nonce, &self.reply.nonce), until)?;
        Welcome::parse(&self.receive(until)?, layout)
    }

    /// Posts a receive buffer, unless one is still posted for an answer that never arrived.
    fn expect(&mut self) -> Result<(), String> {
        if !self.expects {
            self.messages.expect(&self.queue_pair).map_err(|error| error.to_string())?;
            self.expects = true;
        }
        Ok(())
    }
}

impl Transport for Control {
    fn send(&mut self, message: &[u8], _until: Instant) -> Result<(), String> {
        self.expect()?;
        self.messages.send(&self.queue_pair, message).map_err(|error| error.to_string())
    }

    fn receive(&mut self, until: Instant) -> Result<Vec<u8>, String> {
        let _waiting = blocked(|| "a memory node's answer on the control connection".to_owned());
        self.expect()?;
        while Instant::now() < until {
            self.completions.rearm();
            let (mut arrived, mut has_failed) = (None, false);
            self.completions.take(|completion| match completion.outcome {
                Outcome::Done if completion.number == RECEIVED => arrived = Some(completion.bytes),
                Outcome::Done => {}
                _ => has_failed = true,
            });
            if let Some(bytes) = arrived {
                self.expects = false;
                return Ok(self.messages.received(bytes));
            } else if has_failed {
                return Err("it has closed the connection".to_owned());
            }
            let descriptors: Vec<_> = self.completions.descriptor().into_iter().collect();
            wait_for(&descriptors, until.saturating_duration_since(Instant::now()));
        }
        Err("it does not answer".to_owned())
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.queue_pair.id().disconnect();
    }
}

impl Node {
    /// Makes the record of a memory node that has welcomed this process.
    pub(super) fn new(
        (position, process): (NodePosition, u32),
        (name, address): (Box<str>, SocketAddr),
        cluster: Geometry,
        secret: &Secret,
        config: &VerbsConfig,
        control: Control,
        welcome: Welcome,
    ) -> Self {
        Self {
            position,
            first_segment: cluster.segments_of(position.node).start,
            process,
            name,
            address,
            timeout: config.timeout,
            ack_timeout: config.ack_timeout,
            incarnation: control.incarnation(),
            segments: welcome.segments,
            session: Mutex::new(Session::new(secret, control, welcome.client)),
        }
    }

    pub(super) fn first_segment(&self) -> u16 {
        self.first_segment
    }

    /// Returns the ways to its segments, in order.
    pub(super) fn routes(&self) -> impl Iterator<Item = Route> {
        let node = self.position.node;
        self.segments.iter().map(move |Segment { base, rkey }| Route { node, key: *rkey, base: *base })
    }

    /// Returns whether a process is gone from this node: the question itself disconnects it. `None` if the node does not answer.
    pub(super) fn is_gone(&self, process: u32) -> Option<bool> {
        let mut session =
            lock(&self.session, || "another thread of this process that asks the memory node".to_owned());
        let Session { control, asker, .. } = &mut *session;
        let answer = asker.ask(control, process, self.timeout).ok()?;
        Some(answer == Answer::Gone)
    }

    /// Returns the connector of a new lane.
    pub(super) fn connector(self: &Arc<Self>) -> Connector {
        Connector { node: Arc::clone(self), last: AtomicU32::new(0) }
    }

    /// Makes a connection that replaces number `last`, and stores its own number there.
    fn connect(&self, last: &AtomicU32) -> Result<Connection> {
        let mut session =
            lock(&self.session, || "another thread of this process that asks the memory node".to_owned());
        self.connect_in(&mut session, last).map_err(|reason| {
            if reason == UNKNOWN_CLIENT {
                Error::from(error::Evicted { process: self.process })
            } else {
                cannot_connect(&self.name, reason)
            }
        })
    }

    fn connect_in(&self, session: &mut Session, last: &AtomicU32) -> Result<Connection, String> {
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
        let places = (PLACES * SINGLE_WORDS * WORD_BYTES) as u64;
        let ring = Region::new(&domain, places + RING_BYTES, Access::Local).map_err(text)?;
        // A device that supports fewer inline bytes may refuse.
        let queue_pair = QueuePair::new(id, &domain, &completions, requests, INLINE_BYTES)
            .or_else(|(id, _)| QueuePair::new(id, &domain, &completions, requests, 0))
            .map_err(|(_, error)| text(error))?;
        session.lanes += 1;
        let nonce = Hello::lane(session.client, session.lanes, last.load(Ordering::Relaxed));
        let NodePosition { cluster, node, .. } = self.position;
        let incarnation = self.incarnation;
        let hello = Hello { kind: ConnectionKind::Lane, node, cluster, incarnation, nonce };
        let (_, reads) = connect(queue_pair.id(), &hello.to_bytes(&session.key), limits.reads_out, deadline)?;
        last.store(session.lanes, Ordering::Relaxed);
        if reads == 0 {
            return Err("its device answers no READs".to_owned());
        }
        let credits = Credits {
            requests: requests as usize,
            reads: usize::from(reads),
            words: RING_BYTES as usize / WORD_BYTES,
            places: PLACES,
            inline_words: queue_pair.inline_bytes().min(INLINE_BYTES) as usize / WORD_BYTES,
        };
        let batch = Batch::new(credits.requests, &ring);
        Ok(Connection { queue_pair, completions, ring, credits, batch })
    }
}

/// A memory node's refusal of a lane for a client that it does not know.
pub(super) const UNKNOWN_CLIENT: &str = "the memory node does not know this client";

/// A connection and its resources. The queue pair is destroyed first: after that the device does not touch the ring.
pub(super) struct Connection {
    queue_pair: QueuePair,
    completions: Arc<Completions>,
    ring: Region,
    credits: Credits,
    batch: Batch,
}

impl Wire for Connection {
    type Ring = Region;

    fn credits(&self) -> Credits {
        self.credits
    }
    #[inline]
    fn ring(&self) -> &Region {
        &self.ring
    }
    #[allow(clippy::inline_always)] // as `Batch::add`
    #[inline(always)]
    fn add(&mut self, request: Request) {
        self.batch.add(request);
    }
    fn signal_last(&mut self) {
        self.batch.signal_last();
    }
    #[inline]
    fn post(&mut self) -> Result<(), Refused> {
        self.batch.post(&self.queue_pair, &self.ring)
    }
    #[inline]
    fn completions(&mut self, each: impl FnMut(Completion)) -> usize {
        self.completions.take(each)
    }
    fn has_ended(&mut self) -> bool {
        self.queue_pair.id().channel().next().is_some_and(|event| matches!(event.kind, EventKind::Ended))
    }
    fn queue_pair_state(&mut self) -> &'static str {
        self.queue_pair.queue_pair_state()
    }
    fn stop(&mut self) {
        self.queue_pair.stop();
    }
}

impl Connect for Connector {
    type Wire = Connection;

    fn connect(&self) -> Result<Connection> {
        self.node.connect(&self.last)
    }
    #[inline]
    fn segments(&self) -> (u16, &[Segment]) {
        (self.node.first_segment, &self.node.segments)
    }
    fn node(&self) -> u16 {
        self.node.position.node
    }
    fn timeout(&self) -> Duration {
        self.node.timeout
    }
}
