//! The memory node's side: segments, and connections to them.
//!
//! A memory node hosts memory: its device executes the operations. One thread handles requests for connections, and sleeps in between. The first
//! client that proves its knowledge of the secret sets the node's position in a cluster; clients that expect another position are refused. A client's
//! lanes are closed when its control connection ends, so only connected clients can post.

mod clients;
mod status;

use std::collections::HashMap;
use std::io::{ErrorKind, Read};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::device::{Device, Limits, check};
use super::identifier::Id;
use super::manager::{Channel, CmEvent, EventKind, wait_for};
use super::queue::{Completions, Messages, RECEIVED};
use super::queue_pair::QueuePair;
use super::region::{Access, Domain, Region};
use crate::error::{self, Error, Result};
use crate::handshake::{
    ConnectionKind, Hello, JOIN_BYTES, Join, Key, MAX_SEGMENTS, MAX_WELCOME_BYTES, NodePosition, Nonce,
    Reply, Secret, Segment, Welcome,
};
use crate::lanes::node::UNKNOWN_CLIENT;
use crate::lanes::wire::Outcome;
use crate::{Contents, Departure, Stopper};
use farfield_words::WORD_BYTES;
use farfield_words::geometry::Geometry;

pub(super) use status::NodeStatus;

/// The timeout of a client's proof that it knows the secret.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// The most clients in the handshake at a time.
const MAX_UNAUTHENTICATED: usize = 64;
/// Client numbers are below this: they are part of compute threads' identities.
const MAX_CLIENTS: u32 = 1 << 24;

/// The options of a memory node.
#[derive(Clone, Debug)]
pub struct VerbsNodeOptions {
    /// An address of the device, and a port; 0 for any.
    pub listen: SocketAddr,
    /// The number of segments that it hosts.
    pub segments: usize,
    /// The size of each segment.
    pub segment_bytes: u64,
    /// The lease of a client: the longest time between two heartbeats.
    pub lease_ms: u32,
}

/// A listening memory node.
pub struct Server {
    listener: Id,
    channel: Arc<Channel>,
    /// The protection domain of the segments, and that of connections in the handshake, which has no segment.
    domain: Arc<Domain>,
    unauthenticated_domain: Arc<Domain>,
    device: Device,
    limits: Limits,
    /// Its segments and counts.
    status: Arc<NodeStatus>,
    /// The geometry of its own segments.
    own: Geometry,
    lease_ms: u32,
    contents: Box<dyn Contents>,
    secret: Secret,
    incarnation: u64,
    /// Its position in a cluster, if a client has set it.
    position: Option<NodePosition>,
    next_client: u32,
    clients: HashMap<u32, Client>,
    connections: HashMap<usize, ServerConnection>,
    stop: (UnixStream, UnixStream),
}

struct Client {
    key: Key,
    /// The process's number, assigned by the first memory node.
    process: u32,
    /// The number of its newest lane: numbers increase.
    newest: u32,
}

/// The memory node's end of a connection. The queue pair is destroyed first: after that no message arrives in its buffers.
enum ServerConnection {
    /// A connection in the handshake: the client has not proven yet that it knows the secret.
    Unauthenticated {
        queue_pair: QueuePair,
        completions: Arc<Completions>,
        messages: Messages,
        nonces: (Nonce, Nonce),
        until: Instant,
    },
    Control {
        queue_pair: QueuePair,
        client: u32,
        completions: Arc<Completions>,
        messages: Messages,
    },
    Lane {
        queue_pair: QueuePair,
        client: u32,
        lane: u32,
    },
}

impl ServerConnection {
    fn id(&self) -> &Id {
        match self {
            Self::Unauthenticated { queue_pair, .. }
            | Self::Control { queue_pair, .. }
            | Self::Lane { queue_pair, .. } => queue_pair.id(),
        }
    }
}

impl Server {
    /// Registers the memory and listens.
    pub fn listen(options: &VerbsNodeOptions, secret: Secret, contents: Box<dyn Contents>) -> Result<Self> {
        let invalid = |argument, value: String, reason| {
            Error::from(error::InvalidArgument { argument, value: value.into(), reason })
        };
        if options.segments == 0 || options.segments > MAX_SEGMENTS {
            let reason = "a memory node has 1 to 1024 segments";
            return Err(invalid("segments", options.segments.to_string(), reason));
        }
        let own = Geometry::rounded(1, options.segments as u64, options.segment_bytes)
            .map_err(farfield_words::Error::from)?;
        let bytes = own.segment_bytes();
        let devices = Device::all()?;
        let channel = Channel::new()?;
        let listener = Id::new(&channel)?;
        listener.listen(options.listen).map_err(|cause| {
            let reason = match cause.kind() {
                ErrorKind::AddrInUse => "another program listens there already",
                ErrorKind::AddrNotAvailable | ErrorKind::NotFound => {
                    "no RDMA device of this machine has this address"
                }
                ErrorKind::PermissionDenied => "no permission to listen on this port",
                _ => return Error::from(error::System { action: "listen", cause }),
            };
            invalid("listening address", options.listen.to_string(), reason)
        })?;
        let device = match (listener.device(), devices) {
            (Some(device), _) => device,
            (None, [device]) => *device,
            (None, _) => {
                let reason = "there are several RDMA devices: give the address of the one to use";
                return Err(invalid("listening address", options.listen.to_string(), reason));
            }
        };
        let limits = check(device).map_err(Error::other)?;
        if bytes > limits.region_bytes {
            let reason = "the RDMA device registers no memory of this size";
            return Err(invalid("segment size", bytes.to_string(), reason));
        }
        let domain = Domain::new(device)?;
        let regions: Result<Vec<Region>> =
            (0..options.segments).map(|_| Region::new(&domain, bytes, Access::Remote)).collect();
        let system = |cause| Error::from(error::System { action: "start a memory node", cause });
        let stop = UnixStream::pair().map_err(system)?;
        stop.0.set_nonblocking(true).map_err(system)?;
        Ok(Self {
            listener,
            channel,
            unauthenticated_domain: Domain::new(device)?,
            domain,
            device,
            limits,
            status: Arc::new(NodeStatus::new(regions?, own)),
            own,
            lease_ms: options.lease_ms,
            contents,
            secret,
            incarnation: getrandom::u64().map_err(Error::other)?.max(1),
            position: None,
            next_client: 0,
            clients: HashMap::new(),
            connections: HashMap::new(),
            stop,
        })
    }

    /// Returns the port on which it listens.
    pub fn port(&self) -> u16 {
        self.listener.port()
    }

    /// Returns the name of its device.
    pub fn device_name(&self) -> String {
        self.device.name()
    }

    /// Returns its status, which other threads may read.
    pub fn status(&self) -> Arc<NodeStatus> {
        Arc::clone(&self.status)
    }

    /// Returns the handle that stops it.
    pub fn stopper(&self) -> Result<Stopper> {
        let failed = |cause| Error::from(error::System { action: "start a memory node", cause });
        self.stop.1.try_clone().map(Stopper::new).map_err(failed)
    }

    /// Serves until its stopper stops it; then closes all connections.
    ///
    /// # Errors
    /// If its device is removed.
    pub fn serve(&mut self) -> Result<()> {
        loop {
            let now = Instant::now();
            let mut descriptors = vec![self.stop.0.as_fd(), self.channel.as_fd()];
            let mut remaining = Duration::from_secs(3600);
            for connection in self.connections.values() {
                match connection {
                    ServerConnection::Unauthenticated { completions, until, .. } => {
                        descriptors.extend(completions.descriptor());
                        remaining = remaining.min(until.saturating_duration_since(now));
                    }
                    ServerConnection::Control { completions, .. } => {
                        descriptors.extend(completions.descriptor());
                    }
                    ServerConnection::Lane { .. } => {}
                }
            }
            wait_for(&descriptors, remaining);
            if (&self.stop.0).read(&mut [0; 1]).is_ok() {
                self.close();
                return Ok(());
            }
            while let Some(event) = self.channel.next() {
                if matches!(event.kind, EventKind::Ended) && event.id == self.listener.number() {
                    self.close();
                    return Err(Error::other(format!("the RDMA device {} was removed", self.device.name())));
                }
                self.take(event);
            }
            self.poll_unauthenticated();
            self.answer_clients();
        }
    }

    fn close(&mut self) {
        for connection in self.connections.values() {
            connection.id().disconnect();
        }
        self.connections.clear();
        self.clients.clear();
    }

    fn take(&mut self, CmEvent { kind, id }: CmEvent) {
        match kind {
            EventKind::Request { id, data, reads } => {
                let number = id.number();
                match self.accept_connection(id, &data, reads) {
                    Ok(connection) => drop(self.connections.insert(number, connection)),
                    Err(reason) => {
                        self.status.refused.fetch_add(1, Ordering::Relaxed);
                        tracing::info!(%reason, "connection refused");
                    }
                }
            }
            EventKind::Ended | EventKind::Failed(_) | EventKind::Refused(_) => self.remove(id),
            _ => {}
        }
    }

    /// Removes an ended connection, and all of a client's if it was its control connection.
    fn remove(&mut self, number: usize) {
        let Some(connection) = self.connections.remove(&number) else { return };
        connection.id().disconnect();
        if let ServerConnection::Control { client, .. } = connection {
            tracing::info!(client, "client has disconnected");
            self.disconnect_client(client, Departure::FromNode);
        }
    }

    /// Closes the lanes for whose client and number `chosen` returns true.
    fn close_lanes(&mut self, chosen: impl Fn(u32, u32) -> bool) {
        self.connections.retain(|_, connection| {
            let goes =
                matches!(connection, ServerConnection::Lane { client, lane, .. } if chosen(*client, *lane));
            if goes {
                connection.id().disconnect();
            }
            !goes
        });
    }

    /// Answers a request for a connection. The error is the reason of a refusal.
    fn accept_connection(&mut self, id: Id, data: &[u8], reads: u8) -> Result<ServerConnection, String> {
        let hello = self.check_hello(&id, data).map_err(|reason| refuse(&id, reason))?;
        match hello.kind {
            ConnectionKind::Control => self.accept_control(id, &hello),
            ConnectionKind::Lane => self.accept_lane(id, &hello, data, reads),
        }
    }

    fn check_hello(&self, id: &Id, data: &[u8]) -> Result<Hello, &'static str> {
        let hello = Hello::parse(data)?;
        if hello.kind == ConnectionKind::Control && !hello.is_proven_by(data, &self.secret) {
            return Err("the client does not know the cluster's secret");
        }
        if hello.incarnation != 0 && hello.incarnation != self.incarnation {
            return Err("the memory node was restarted: its former contents are lost");
        }
        if id.device() != Some(self.device) {
            return Err("the memory node's segments are on another of its RDMA devices");
        }
        Ok(hello)
    }

    fn accept_control(&self, id: Id, hello: &Hello) -> Result<ServerConnection, String> {
        let unauthenticated = self
            .connections
            .values()
            .filter(|connection| matches!(connection, ServerConnection::Unauthenticated { .. }))
            .count();
        if unauthenticated >= MAX_UNAUTHENTICATED {
            return Err(refuse(&id, "too many clients connect at the same time: try again"));
        }
        let bytes = MAX_WELCOME_BYTES.max(JOIN_BYTES);
        let parts = Completions::new(self.device, 8, true)
            .and_then(|completions| Ok((completions, Messages::new(&self.unauthenticated_domain, bytes)?)));
        let (completions, messages) = parts.map_err(|error| refuse(&id, error))?;
        let queue_pair = QueuePair::new(id, &self.unauthenticated_domain, &completions, 4, 0)
            .map_err(|(id, error)| refuse(&id, error))?;
        let mut nonce = Nonce::default();
        let reply = messages.expect(&queue_pair).and_then(|()| {
            getrandom::fill(&mut nonce).map_err(Error::other)?;
            let reply = Reply { incarnation: self.incarnation, nonce };
            let reply = reply.to_bytes(&self.secret, &hello.nonce);
            queue_pair.id().accept(&reply, 0, 0).map_err(Error::other)
        });
        reply.map_err(|error| refuse(queue_pair.id(), error))?;
        let until = Instant::now() + HANDSHAKE_TIMEOUT;
        Ok(ServerConnection::Unauthenticated {
            queue_pair,
            completions,
            messages,
            nonces: (hello.nonce, nonce),
            until,
        })
    }

    fn accept_lane(
        &mut self,
        id: Id,
        hello: &Hello,
        data: &[u8],
        reads: u8,
    ) -> Result<ServerConnection, String> {
        let [number, lane, replaced] = hello.client_and_lanes();
        let Some(client) = self.clients.get_mut(&number) else { return Err(refuse(&id, UNKNOWN_CLIENT)) };
        if !hello.is_proven(data, &client.key) || lane <= client.newest {
            return Err(refuse(&id, "the client does not know the cluster's secret"));
        }
        client.newest = lane;
        // Chains that the client has abandoned may still be on their way: without their queue pair they do not arrive.
        self.close_lanes(|client, lane| (client, lane) == (number, replaced));
        let completions = Completions::new(self.device, 8, false).map_err(|error| refuse(&id, error))?;
        let queue_pair =
            QueuePair::new(id, &self.domain, &completions, 4, 0).map_err(|(id, error)| refuse(&id, error))?;
        let accepted = queue_pair.id().accept(&[], reads.min(self.limits.reads_in), 0);
        accepted.map_err(|error| refuse(queue_pair.id(), error))?;
        Ok(ServerConnection::Lane { queue_pair, client: number, lane })
    }

    /// Handles messages of connections in the handshake, and disconnects those that time out.
    fn poll_unauthenticated(&mut self) {
        let now = Instant::now();
        let mut arrived = Vec::new();
        for (number, connection) in &self.connections {
            if let ServerConnection::Unauthenticated { completions, until, .. } = connection {
                completions.rearm();
                let mut received = None;
                completions.take(|completion| match completion.outcome {
                    Outcome::Done if completion.number == RECEIVED => received = Some(Some(completion.bytes)),
                    Outcome::Done => {}
                    _ => received = Some(None),
                });
                if received.is_none() && *until <= now {
                    received = Some(None);
                }
                arrived.extend(received.map(|received| (*number, received)));
            }
        }
        for (number, bytes) in arrived {
            let Some(ServerConnection::Unauthenticated { queue_pair, completions, messages, nonces, .. }) =
                self.connections.remove(&number)
            else {
                continue;
            };
            let Some(bytes) = bytes else {
                tracing::info!("a client was disconnected: it did not finish the handshake");
                queue_pair.id().disconnect();
                continue;
            };
            let answer = self.welcome(&messages.received(bytes), &nonces);
            let message =
                Welcome::to_bytes(answer.as_ref().map(|(welcome, _)| welcome).map_err(String::as_str));
            let sent = messages.send(&queue_pair, &message);
            match answer {
                Ok((Welcome { client, .. }, process))
                    if sent.is_ok() && messages.expect(&queue_pair).is_ok() =>
                {
                    tracing::info!(client, process, "client has joined");
                    let key = self.secret.key(&nonces.0, &nonces.1);
                    self.clients.insert(client, Client { key, process, newest: 0 });
                    self.status.joined.fetch_add(1, Ordering::Relaxed);
                    self.status.connected.store(self.clients.len() as u64, Ordering::Relaxed);
                    let connection = ServerConnection::Control { queue_pair, client, completions, messages };
                    self.connections.insert(number, connection);
                }
                refused => {
                    // The client reads the reason and closes the connection, or is disconnected after the timeout.
                    tracing::info!(?refused, "client refused");
                    let until = now + HANDSHAKE_TIMEOUT;
                    self.connections.insert(
                        number,
                        ServerConnection::Unauthenticated {
                            queue_pair,
                            completions,
                            messages,
                            nonces,
                            until,
                        },
                    );
                }
            }
        }
    }

    /// Answers a request to join. Returns the welcome, and the process's number.
    fn welcome(&mut self, message: &[u8], nonces: &(Nonce, Nonce)) -> Result<(Welcome, u32), String> {
        let Join { position: join, process } = Join::parse(message, &self.secret, &nonces.0, &nonces.1)?;
        match self.position {
            None => {
                let cluster = join.cluster_of(self.own)?;
                self.format(join.node);
                // The position never changes.
                let _ = self.status.position.set((join.node, cluster));
                self.position = Some(join);
                tracing::info!(node = join.node, nodes = join.nodes, "memory node of a cluster");
            }
            Some(position) if position != join => {
                let NodePosition { node, nodes, .. } = position;
                return Err(format!(
                    "it is memory node {node} of another cluster of {nodes}: give all nodes of that cluster in the same order"
                ));
            }
            Some(_) => {}
        }
        if self.next_client == MAX_CLIENTS {
            return Err("too many clients have connected since it was started: start it again".to_owned());
        }
        let client = self.next_client;
        self.next_client += 1;
        let process = if join.node == 0 { client } else { process };
        let segment = |region: &Region| Segment { base: region.base(), rkey: region.keys().1 };
        let welcome = Welcome {
            client,
            layout: self.contents.layout_version(),
            lease_ms: self.lease_ms,
            geometry: self.own,
            segments: self.status.regions.iter().map(segment).collect(),
        };
        Ok((welcome, process))
    }

    /// Writes the initial words of its segments, which are all zero.
    fn format(&self, node: u16) {
        for (number, region) in (0..).zip(&self.status.regions) {
            let is_first = node == 0 && number == 0;
            for (offset, word) in self.contents.initial_words(is_first) {
                region.words()[offset as usize / WORD_BYTES].store(word, Ordering::Release);
            }
        }
    }
}

/// Refuses a connection that is asked for, and returns the reason.
fn refuse(id: &Id, reason: impl ToString) -> String {
    let reason = reason.to_string();
    id.reject(&reason);
    reason
}
