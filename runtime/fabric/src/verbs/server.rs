//! The memory node's side: segments, and connections to them.
//!
//! A memory node hosts memory and does nothing else: operations are its device's work. One thread waits for requests for
//! connections, checks them, and sleeps in between. It takes its place in a cluster from the first client that proves to know
//! the secret; clients that take it for something else are refused. A client's lanes are closed when its control connection
//! ends, so nobody posts who is not known.

mod clients;
mod seen;

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
use super::manager::{Channel, Event, What, wait_for};
use super::node::UNKNOWN_CLIENT;
use super::queue::{Completions, Messages, Outcome, RECEIVED};
use super::queue_pair::QueuePair;
use super::region::{Domain, Reach, Region};
use crate::error::{self, Error, Result};
use crate::handshake::{
    Hello, JOIN_BYTES, Join, Key, Kind, MAX_SEGMENTS, MAX_WELCOME_BYTES, Nonce, Place, Reply, Secret,
    Segment, Welcome,
};
use crate::{Contents, Gone, Stopper};
use farfield_words::WORD_BYTES;
use farfield_words::geometry::Geometry;

pub(super) use seen::Seen;

/// How long a client may take to prove that it knows the secret.
const PATIENCE: Duration = Duration::from_secs(5);
/// How many may be at that at a time.
const MOST_STRANGERS: usize = 64;
/// Client numbers end here: compute threads' identities are made of them.
const MOST_CLIENTS: u32 = 1 << 24;

/// What a memory node hosts, and for whom.
#[derive(Clone, Debug)]
pub struct Options {
    /// An address of the device, and a port; 0 for any.
    pub listen: SocketAddr,
    /// How many segments it hosts.
    pub segments: usize,
    /// The size of each.
    pub segment_bytes: u64,
    /// How long a client may go without a sign of life.
    pub lease_ms: u32,
}

/// A memory node that listens.
pub struct Server {
    listener: Id,
    channel: Arc<Channel>,
    /// Where the segments are registered, and where strangers are let in.
    domain: Arc<Domain>,
    anteroom: Arc<Domain>,
    device: Device,
    limits: Limits,
    /// Its segments, and what it has counted.
    seen: Arc<Seen>,
    /// Its segments alone.
    own: Geometry,
    lease_ms: u32,
    contents: Box<dyn Contents>,
    secret: Secret,
    incarnation: u64,
    /// Its place, once somebody has said.
    place: Option<Place>,
    next_client: u32,
    clients: HashMap<u32, Client>,
    ends: HashMap<usize, End>,
    stop: (UnixStream, UnixStream),
}

struct Client {
    key: Key,
    /// The number that the first memory node has given it, by which others know it.
    process: u32,
    /// Its newest lane: numbers only grow.
    newest: u32,
}

/// An end of a connection. The queue pair is destroyed first: after that no message arrives in its buffers.
enum End {
    /// Somebody who has yet to prove that he knows the secret.
    Stranger {
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

impl End {
    fn id(&self) -> &Id {
        match self {
            Self::Stranger { queue_pair, .. }
            | Self::Control { queue_pair, .. }
            | Self::Lane { queue_pair, .. } => queue_pair.id(),
        }
    }
}

impl Server {
    /// Registers the memory and listens.
    pub fn listen(options: &Options, secret: Secret, contents: Box<dyn Contents>) -> Result<Self> {
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
                ErrorKind::AddrInUse => "somebody listens there already",
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
            (0..options.segments).map(|_| Region::new(&domain, bytes, Reach::Remote)).collect();
        let system = |cause| Error::from(error::System { action: "start a memory node", cause });
        let stop = UnixStream::pair().map_err(system)?;
        stop.0.set_nonblocking(true).map_err(system)?;
        Ok(Self {
            listener,
            channel,
            anteroom: Domain::new(device)?,
            domain,
            device,
            limits,
            seen: Arc::new(Seen::new(regions?, own)),
            own,
            lease_ms: options.lease_ms,
            contents,
            secret,
            incarnation: getrandom::u64().map_err(Error::other)?.max(1),
            place: None,
            next_client: 0,
            clients: HashMap::new(),
            ends: HashMap::new(),
            stop,
        })
    }

    /// The port on which it listens.
    pub fn port(&self) -> u16 {
        self.listener.port()
    }

    /// The name of its device.
    pub fn device_name(&self) -> String {
        self.device.name()
    }

    /// What others may see of it.
    pub fn seen(&self) -> Arc<Seen> {
        Arc::clone(&self.seen)
    }

    /// What makes it stop.
    pub fn stopper(&self) -> Result<Stopper> {
        let failed = |cause| Error::from(error::System { action: "start a memory node", cause });
        self.stop.1.try_clone().map(Stopper::new).map_err(failed)
    }

    /// Serves until it is told to stop; then all connections are closed.
    ///
    /// # Errors
    /// If its device is removed.
    pub fn serve(&mut self) -> Result<()> {
        loop {
            let now = Instant::now();
            let mut descriptors = vec![self.stop.0.as_fd(), self.channel.as_fd()];
            let mut left = Duration::from_secs(3600);
            for end in self.ends.values() {
                match end {
                    End::Stranger { completions, until, .. } => {
                        descriptors.extend(completions.descriptor());
                        left = left.min(until.saturating_duration_since(now));
                    }
                    End::Control { completions, .. } => descriptors.extend(completions.descriptor()),
                    End::Lane { .. } => {}
                }
            }
            wait_for(&descriptors, left);
            if (&self.stop.0).read(&mut [0; 1]).is_ok() {
                self.close();
                return Ok(());
            }
            while let Some(event) = self.channel.next() {
                if matches!(event.what, What::Ended) && event.id == self.listener.number() {
                    self.close();
                    return Err(Error::other(format!("the RDMA device {} was removed", self.device.name())));
                }
                self.take(event);
            }
            self.hear_strangers();
            self.hear_clients();
        }
    }

    fn close(&mut self) {
        for end in self.ends.values() {
            end.id().disconnect();
        }
        self.ends.clear();
        self.clients.clear();
    }

    fn take(&mut self, Event { what, id }: Event) {
        match what {
            What::Request { id, data, reads } => {
                let number = id.number();
                match self.admit(id, &data, reads) {
                    Ok(end) => drop(self.ends.insert(number, end)),
                    Err(reason) => {
                        self.seen.refused.fetch_add(1, Ordering::Relaxed);
                        tracing::info!(%reason, "connection refused");
                    }
                }
            }
            What::Ended | What::Failed(_) | What::Refused(_) => self.remove(id),
            _ => {}
        }
    }

    /// An end of a connection that has ended, and if it was a client's control connection all of the client's.
    fn remove(&mut self, number: usize) {
        let Some(end) = self.ends.remove(&number) else { return };
        end.id().disconnect();
        if let End::Control { client, .. } = end {
            tracing::info!(client, "client has left");
            self.shut_out(client, Gone::Here);
        }
    }

    /// Closes the lanes that are chosen by their client and their number.
    fn close_lanes(&mut self, chosen: impl Fn(u32, u32) -> bool) {
        self.ends.retain(|_, end| {
            let goes = matches!(end, End::Lane { client, lane, .. } if chosen(*client, *lane));
            if goes {
                end.id().disconnect();
            }
            !goes
        });
    }

    /// Answers a request for a connection; the error says why it was refused.
    fn admit(&mut self, id: Id, data: &[u8], reads: u8) -> Result<End, String> {
        let hello = self.examine(&id, data).map_err(|reason| refuse(&id, reason))?;
        match hello.kind {
            Kind::Control => self.admit_stranger(id, &hello),
            Kind::Lane => self.admit_lane(id, &hello, data, reads),
        }
    }

    fn examine(&self, id: &Id, data: &[u8]) -> Result<Hello, &'static str> {
        let hello = Hello::parse(data)?;
        if hello.kind == Kind::Control && !hello.is_proven_by(data, &self.secret) {
            return Err("the client does not know the cluster's secret");
        }
        if hello.incarnation != 0 && hello.incarnation != self.incarnation {
            return Err("the memory node was started anew: what was in it is gone");
        }
        if id.device() != Some(self.device) {
            return Err("the memory node's segments are on another of its RDMA devices");
        }
        Ok(hello)
    }

    fn admit_stranger(&self, id: Id, hello: &Hello) -> Result<End, String> {
        let strangers = self.ends.values().filter(|end| matches!(end, End::Stranger { .. })).count();
        if strangers >= MOST_STRANGERS {
            return Err(refuse(&id, "too many clients connect at once: try again"));
        }
        let bytes = MAX_WELCOME_BYTES.max(JOIN_BYTES);
        let parts = Completions::new(self.device, 8, true)
            .and_then(|completions| Ok((completions, Messages::new(&self.anteroom, bytes)?)));
        let (completions, messages) = parts.map_err(|error| refuse(&id, error))?;
        let queue_pair = QueuePair::new(id, &self.anteroom, &completions, 4, 0)
            .map_err(|(id, error)| refuse(&id, error))?;
        let mut nonce = Nonce::default();
        let reply = messages.expect(&queue_pair).and_then(|()| {
            getrandom::fill(&mut nonce).map_err(Error::other)?;
            let reply = Reply { incarnation: self.incarnation, nonce };
            let reply = reply.to_bytes(&self.secret, &hello.nonce);
            queue_pair.id().accept(&reply, 0, 0).map_err(Error::other)
        });
        reply.map_err(|error| refuse(queue_pair.id(), error))?;
        let until = Instant::now() + PATIENCE;
        Ok(End::Stranger { queue_pair, completions, messages, nonces: (hello.nonce, nonce), until })
    }

    fn admit_lane(&mut self, id: Id, hello: &Hello, data: &[u8], reads: u8) -> Result<End, String> {
        let [number, lane, replaced] = hello.client_and_lanes();
        let Some(client) = self.clients.get_mut(&number) else { return Err(refuse(&id, UNKNOWN_CLIENT)) };
        if !hello.is_proven(data, &client.key) || lane <= client.newest {
            return Err(refuse(&id, "the client does not know the cluster's secret"));
        }
        client.newest = lane;
        // What the client has given up may still be on its way: without its queue pair it arrives nowhere.
        self.close_lanes(|client, lane| (client, lane) == (number, replaced));
        let completions = Completions::new(self.device, 8, false).map_err(|error| refuse(&id, error))?;
        let queue_pair =
            QueuePair::new(id, &self.domain, &completions, 4, 0).map_err(|(id, error)| refuse(&id, error))?;
        let accepted = queue_pair.id().accept(&[], reads.min(self.limits.reads_in), 0);
        accepted.map_err(|error| refuse(queue_pair.id(), error))?;
        Ok(End::Lane { queue_pair, client: number, lane })
    }

    /// Looks whether strangers have said who they are, and shows those out who take too long.
    fn hear_strangers(&mut self) {
        let now = Instant::now();
        let mut said = Vec::new();
        for (number, end) in &self.ends {
            if let End::Stranger { completions, until, .. } = end {
                completions.tell_again();
                let mut heard = None;
                completions.take(|completion| match completion.outcome {
                    Outcome::Done if completion.number == RECEIVED => heard = Some(Some(completion.bytes)),
                    Outcome::Done => {}
                    _ => heard = Some(None),
                });
                if heard.is_none() && *until <= now {
                    heard = Some(None);
                }
                said.extend(heard.map(|heard| (*number, heard)));
            }
        }
        for (number, bytes) in said {
            let Some(End::Stranger { queue_pair, completions, messages, nonces, .. }) =
                self.ends.remove(&number)
            else {
                continue;
            };
            let Some(bytes) = bytes else {
                tracing::info!("a client that did not say who it is was shown out");
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
                    self.seen.joined.fetch_add(1, Ordering::Relaxed);
                    self.seen.connected.store(self.clients.len() as u64, Ordering::Relaxed);
                    let end = End::Control { queue_pair, client, completions, messages };
                    self.ends.insert(number, end);
                }
                refused => {
                    // It reads why before the connection is gone: it closes it itself, or is shown out in time.
                    tracing::info!(?refused, "client refused");
                    let until = now + PATIENCE;
                    self.ends
                        .insert(number, End::Stranger { queue_pair, completions, messages, nonces, until });
                }
            }
        }
    }

    /// What a client is told that wants to join, and its number as a process.
    fn welcome(&mut self, message: &[u8], nonces: &(Nonce, Nonce)) -> Result<(Welcome, u32), String> {
        let Join { place: join, process } = Join::parse(message, &self.secret, &nonces.0, &nonces.1)?;
        match self.place {
            None => {
                let cluster = join.cluster_of(self.own)?;
                self.format(join.node);
                // It has one place for good.
                let _ = self.seen.place.set((join.node, cluster));
                self.place = Some(join);
                tracing::info!(node = join.node, nodes = join.nodes, "memory node of a cluster");
            }
            Some(place) if place != join => {
                let Place { node, nodes, .. } = place;
                return Err(format!(
                    "it is memory node {node} of another cluster of {nodes}: give all of its nodes, in its order"
                ));
            }
            Some(_) => {}
        }
        if self.next_client == MOST_CLIENTS {
            return Err("too many clients have connected since it was started".to_owned());
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
            segments: self.seen.regions.iter().map(segment).collect(),
        };
        Ok((welcome, process))
    }

    /// Writes the control blocks of its segments, which are all zero.
    fn format(&self, node: u16) {
        for (number, region) in (0..).zip(&self.seen.regions) {
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
