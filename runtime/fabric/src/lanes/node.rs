//! A memory node, as a client knows it: its session, and the connections of its lanes.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::config::NodesConfig;
use super::wire::{Connect, Wire};
use crate::admission::UNKNOWN_CLIENT;
use crate::error::{self, Error, Result};
use crate::handshake::{
    ConnectionKind, HELLO_BYTES, Hello, Join, Key, NodePosition, Nonce, Reply, Secret, Segment, Welcome,
};
use crate::question::{Answer, Asker, Transport};
use crate::stall::lock;
use farfield_words::geometry::Geometry;

/// A network: opens connections to memory nodes. Errors are reasons, in one line.
pub(crate) trait Network: Send + Sync {
    /// A control connection, closed when it is dropped.
    type Control: Transport + Send;
    /// The connection of a lane.
    type Wire: Wire;

    /// Opens a control connection by a request. Returns it, and the memory node's reply.
    fn open_control(
        &self,
        address: SocketAddr,
        hello: &[u8; HELLO_BYTES],
        deadline: Instant,
    ) -> Result<(Self::Control, Vec<u8>), String>;

    /// Opens the connection of a lane by a request.
    fn open_lane(
        &self,
        address: SocketAddr,
        hello: &[u8; HELLO_BYTES],
        deadline: Instant,
    ) -> Result<Self::Wire, String>;
}

/// A memory node, as a client knows it.
pub(crate) struct Node<N: Network> {
    pub(crate) network: Arc<N>,
    pub(crate) position: NodePosition,
    /// The number of its first segment in the cluster, and this process's number.
    first_segment: u16,
    process: u32,
    /// Its address as in the URL, and resolved.
    name: Box<str>,
    pub(crate) address: SocketAddr,
    timeout: Duration,
    incarnation: u64,
    segments: Vec<Segment>,
    session: Mutex<Session<N>>,
}

/// The way to a segment: its memory node, and its key and its first word's address there.
pub(crate) struct Route {
    pub(crate) node: u16,
    pub(crate) key: u32,
    pub(crate) base: u64,
}

/// An open control connection, and the results of its handshake.
struct Session<N: Network> {
    client: u32,
    key: Key,
    lanes: u32,
    /// The client's lanes stay open as long as it.
    control: N::Control,
    asker: Asker,
    /// When the last attempt to connect failed, and the reason, if it did fail.
    failure: Option<(Instant, String)>,
}

/// Makes the successive connections of a lane to a node.
pub(crate) struct Connector<N: Network> {
    node: Arc<Node<N>>,
    /// The number of the last connection; 0 before the first.
    last: AtomicU32,
}

/// A memory node that has replied, and that the process has not joined yet.
pub(crate) struct Introduced<N: Network> {
    address: SocketAddr,
    control: N::Control,
    reply: Reply,
    nonce: Nonce,
}

impl<N: Network> Introduced<N> {
    /// Opens a control connection to the memory node that the client expects to have this number.
    pub(crate) fn to(
        network: &N,
        address: SocketAddr,
        number: u16,
        secret: &Secret,
        timeout: Duration,
    ) -> Result<Self, String> {
        let deadline = Instant::now() + timeout;
        let mut nonce = Nonce::default();
        getrandom::fill(&mut nonce).map_err(|error| error.to_string())?;
        let hello = Hello { kind: ConnectionKind::Control, node: number, cluster: 0, incarnation: 0, nonce };
        let (control, reply) = network.open_control(address, &hello.with_secret(secret), deadline)?;
        let reply = Reply::parse(&reply, secret, &nonce)?;
        Ok(Self { address, control, reply, nonce })
    }

    pub(crate) fn incarnation(&self) -> u64 {
        self.reply.incarnation
    }

    /// Requests to join the cluster, and waits for the welcome.
    pub(crate) fn join(
        &mut self,
        join: Join,
        secret: &Secret,
        layout: u64,
        timeout: Duration,
    ) -> Result<Welcome, String> {
        let until = Instant::now() + timeout;
        self.control.send(&join.to_bytes(secret, &self.nonce, &self.reply.nonce), until)?;
        Welcome::parse(&self.control.receive(until)?, layout)
    }
}

impl<N: Network> Node<N> {
    /// Makes the record of a memory node that has welcomed this process.
    pub(crate) fn new(
        network: Arc<N>,
        (position, process): (NodePosition, u32),
        name: &str,
        cluster: Geometry,
        (config, secret): (&NodesConfig, &Secret),
        introduced: Introduced<N>,
        welcome: Welcome,
    ) -> Self {
        let Introduced { address, control, reply, nonce } = introduced;
        let key = secret.key(&nonce, &reply.nonce);
        Self {
            network,
            position,
            first_segment: cluster.segments_of(position.node).start,
            process,
            name: name.into(),
            address,
            timeout: config.timeout,
            incarnation: reply.incarnation,
            segments: welcome.segments,
            session: Mutex::new(Session {
                client: welcome.client,
                key,
                lanes: 0,
                control,
                asker: Asker::default(),
                failure: None,
            }),
        }
    }

    pub(crate) fn first_segment(&self) -> u16 {
        self.first_segment
    }

    /// Returns the ways to its segments, in order.
    pub(crate) fn routes(&self) -> impl Iterator<Item = Route> {
        let node = self.position.node;
        self.segments.iter().map(move |Segment { base, rkey }| Route { node, key: *rkey, base: *base })
    }

    /// Returns whether a process is gone from this node: the question itself disconnects it. `None` if the node does not answer.
    pub(crate) fn is_gone(&self, process: u32) -> Option<bool> {
        let mut session =
            lock(&self.session, || "another thread of this process that asks the memory node".to_owned());
        let Session { control, asker, .. } = &mut *session;
        let answer = asker.ask(control, process, self.timeout).ok()?;
        Some(answer == Answer::Gone)
    }

    /// Returns the connector of a new lane.
    pub(crate) fn connector(self: &Arc<Self>) -> Connector<N> {
        Connector { node: Arc::clone(self), last: AtomicU32::new(0) }
    }

    /// Makes a connection that replaces number `last`, and stores its own number there. If another thread's attempt fails meanwhile, so does this one:
    /// threads that reconnect at the same time wait for one timeout, not one after the other.
    fn connect(&self, last: &AtomicU32) -> Result<N::Wire> {
        let began = Instant::now();
        let mut session =
            lock(&self.session, || "another thread of this process that asks the memory node".to_owned());
        let connected = match &session.failure {
            Some((failed, reason)) if *failed >= began => Err(reason.clone()),
            _ => self.connect_in(&mut session, last),
        };
        connected.map_err(|reason| {
            if reason == UNKNOWN_CLIENT {
                Error::from(error::Evicted { process: self.process })
            } else {
                cannot_connect(&self.name, reason)
            }
        })
    }

    fn connect_in(&self, session: &mut Session<N>, last: &AtomicU32) -> Result<N::Wire, String> {
        let wire = self.open_lane(session, last);
        session.failure = wire.as_ref().err().map(|reason| (Instant::now(), reason.clone()));
        wire
    }

    fn open_lane(&self, session: &mut Session<N>, last: &AtomicU32) -> Result<N::Wire, String> {
        let deadline = Instant::now() + self.timeout;
        session.lanes += 1;
        let nonce = Hello::lane(session.client, session.lanes, last.load(Ordering::Relaxed));
        let NodePosition { cluster, node, .. } = self.position;
        let incarnation = self.incarnation;
        let hello = Hello { kind: ConnectionKind::Lane, node, cluster, incarnation, nonce };
        let wire = self.network.open_lane(self.address, &hello.to_bytes(&session.key), deadline)?;
        last.store(session.lanes, Ordering::Relaxed);
        Ok(wire)
    }
}

impl<N: Network> Connect for Connector<N> {
    type Wire = N::Wire;

    fn connect(&self) -> Result<N::Wire> {
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

/// Returns the error of a failed connection to an address.
pub(crate) fn cannot_connect(address: &str, reason: impl Into<Box<str>>) -> Error {
    Error::from(error::CannotConnect { address: address.into(), reason: reason.into() })
}
