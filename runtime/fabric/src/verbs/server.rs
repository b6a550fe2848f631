//! The memory node's side: segments, and connections to them.
//!
//! A memory node hosts memory: its device executes the operations. One thread handles requests for connections, and sleeps in between. Who is admitted is
//! decided in [`admission`](crate::admission). A client's lanes are closed when its control connection ends, so only connected clients can post.

mod clients;

use std::collections::HashMap;
use std::io::{ErrorKind, Read};
use std::net::{IpAddr, SocketAddr};
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
use crate::admission::{Admission, AdmittedLane, own_geometry};
use crate::error::{self, Error, Result};
use crate::handshake::{
    ConnectionKind, Hello, JOIN_BYTES, MAX_WELCOME_BYTES, Nonce, Secret, Segment, Welcome,
};
use crate::lanes::wire::Outcome;
use crate::status::NodeStatus;
use crate::{Contents, Departure, Stopper};
use farfield_words::WORD_BYTES;

/// The timeout of a client's proof that it knows the secret.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// The most clients in the handshake at a time.
const MAX_UNAUTHENTICATED: usize = 64;

/// The options of a memory node.
#[derive(Clone, Debug)]
pub struct VerbsNodeOptions {
    /// An address of the device, and a port; 0 for any.
    pub listen: SocketAddr,
    /// The number of memory nodes that its segments are divided among: 1.
    pub nodes: u16,
    /// The number of segments that it hosts.
    pub segments: u16,
    /// The size of each segment.
    pub segment_bytes: u64,
    /// The lease of a client: the longest time between two heartbeats.
    pub lease_ms: u32,
}

/// A listening memory node.
pub struct Server {
    address: IpAddr,
    listener: Id,
    channel: Arc<Channel>,
    /// The protection domain of the segments, and that of connections in the handshake, which has no segment.
    domain: Arc<Domain>,
    unauthenticated_domain: Arc<Domain>,
    device: Device,
    limits: Limits,
    /// Its segments.
    regions: Arc<[Region]>,
    status: Arc<NodeStatus>,
    admission: Admission,
    connections: HashMap<usize, ServerConnection>,
    stop: (UnixStream, UnixStream),
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
        let own = own_geometry(options.nodes, options.segments, options.segment_bytes, false)?;
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
        let regions: Result<Arc<[Region]>> =
            (0..options.segments).map(|_| Region::new(&domain, bytes, Access::Remote)).collect();
        let regions = regions?;
        let system = |cause| Error::from(error::System { action: "start a memory node", cause });
        let stop = UnixStream::pair().map_err(system)?;
        stop.0.set_nonblocking(true).map_err(system)?;
        let observed = Arc::clone(&regions);
        let status = NodeStatus::new(own, move |at| {
            let region = observed.get(usize::from(at.segment()));
            let word = region.and_then(|region| region.words().get(at.offset() as usize / WORD_BYTES));
            word.map_or(0, |word| word.load(Ordering::Relaxed))
        });
        Ok(Self {
            address: options.listen.ip(),
            listener,
            channel,
            unauthenticated_domain: Domain::new(device)?,
            domain,
            device,
            limits,
            status: Arc::new(status),
            regions,
            admission: Admission::new(own, options.lease_ms, contents, secret, true)?,
            connections: HashMap::new(),
            stop,
        })
    }

    /// Returns the address on which it listens.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::new(self.address, self.listener.port())
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
    }

    fn take(&mut self, CmEvent { kind, id }: CmEvent) {
        match kind {
            EventKind::Request { id, data, reads } => {
                let number = id.number();
                match self.accept_connection(id, &data, reads) {
                    Ok(connection) => drop(self.connections.insert(number, connection)),
                    Err(reason) => {
                        self.status.clients.refused();
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
        let hello = self.admission.check_hello(data)?;
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
        let reply = messages.expect(&queue_pair).and_then(|()| {
            let (reply, nonce) = self.admission.reply(hello)?;
            queue_pair.id().accept(&reply, 0, 0).map_err(Error::other).map(|()| nonce)
        });
        let nonce = reply.map_err(|error| refuse(queue_pair.id(), error))?;
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
        let AdmittedLane { client, lane, replaced } =
            self.admission.lane(hello, data).map_err(|reason| refuse(&id, reason))?;
        // Chains that the client has abandoned may still be on their way: without their queue pair they do not arrive.
        self.close_lanes(|of, lane| (of, lane) == (client, replaced));
        let completions = Completions::new(self.device, 8, false).map_err(|error| refuse(&id, error))?;
        let queue_pair =
            QueuePair::new(id, &self.domain, &completions, 4, 0).map_err(|(id, error)| refuse(&id, error))?;
        let accepted = queue_pair.id().accept(&[], reads.min(self.limits.reads_in), 0);
        accepted.map_err(|error| refuse(queue_pair.id(), error))?;
        Ok(ServerConnection::Lane { queue_pair, client, lane })
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
            let message = Welcome::to_bytes(answer.as_ref().map_err(String::as_str));
            let sent = messages.send(&queue_pair, &message);
            match answer {
                Ok(Welcome { client, .. }) if sent.is_ok() && messages.expect(&queue_pair).is_ok() => {
                    let connection = ServerConnection::Control { queue_pair, client, completions, messages };
                    self.connections.insert(number, connection);
                }
                refused => {
                    // The client reads the reason and closes the connection, or is disconnected after the timeout.
                    tracing::info!(?refused, "client refused");
                    if let Ok(Welcome { client, .. }) = refused {
                        self.disconnect_client(client, Departure::FromNode);
                    }
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

    /// Answers a request to join.
    fn welcome(&mut self, message: &[u8], nonces: &(Nonce, Nonce)) -> Result<Welcome, String> {
        let Self { admission, regions, status, .. } = self;
        let segment = |region: &Region| Segment { base: region.base(), rkey: region.keys().1 };
        let format = |node, cluster, contents: &dyn Contents| {
            // Its segments are all zero.
            for (number, region) in (0..).zip(&**regions) {
                for (offset, word) in contents.initial_words(node == 0 && number == 0) {
                    region.words()[offset as usize / WORD_BYTES].store(word, Ordering::Release);
                }
            }
            status.set_position(node, cluster);
            Ok(())
        };
        admission.join(message, nonces, regions.iter().map(segment), format, &status.clients, false)
    }
}

/// Refuses a connection that is asked for, and returns the reason.
fn refuse(id: &Id, reason: impl ToString) -> String {
    let reason = reason.to_string();
    id.reject(&reason);
    reason
}
