//! The clients of a memory node: who is admitted, under which number, and who has departed. The same for each fabric.
//!
//! The first client that proves its knowledge of the secret sets the node's position in a cluster; clients that expect another position are refused. A
//! memory node whose memory processes of its machine map is a cluster [alone](Admission::stay_alone). A client on a network
//! opens lanes with the key of its control connection, and with increasing numbers, so a recorded request opens none.
//!
//! When a client's control connection ends, its lanes are closed, so no operation of it takes effect in this node's memory any more. The first memory
//! node marks this in the client's record, as a hint: other nodes may not have noticed. A process that reads the hint asks each node to disconnect
//! the client, the first node last; the first node then marks it as gone everywhere. A node that is a cluster alone marks this at once. The same
//! question disconnects a client whose lease has expired. A client that maps the memory can not be disconnected: it has departed when it has ended.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{self, Error, Result};
use crate::handshake::{
    ConnectionKind, Hello, Join, Key, MAX_SEGMENTS, NodePosition, Nonce, REPLY_BYTES, Reply, Secret, Segment,
    Welcome, cluster_of,
};
use crate::{Contents, Departure};
use farfield_words::Address;
use farfield_words::geometry::Geometry;

/// Client numbers are below this: they are part of compute threads' identities.
const MAX_CLIENTS: u32 = 1 << 24;
/// The refusal of a lane for a client that is not connected.
pub(crate) const UNKNOWN_CLIENT: &str = "the memory node does not know this client";
/// The refusal of a client whose proof is invalid.
pub(crate) const NO_PROOF: &str = "the client does not know the cluster's secret";

/// The numbers of clients that have joined, of connected clients, and of refused connections.
#[derive(Debug, Default)]
pub(crate) struct ClientCounts {
    joined: AtomicU64,
    connected: AtomicU64,
    refused: AtomicU64,
}

impl ClientCounts {
    pub(crate) fn refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> [u64; 3] {
        [&self.joined, &self.connected, &self.refused].map(|count| count.load(Ordering::Relaxed))
    }
}

/// The clients of a memory node, and its position in a cluster.
pub(crate) struct Admission {
    /// The geometry of its own segments.
    own: Geometry,
    lease_ms: u32,
    contents: Box<dyn Contents>,
    secret: Secret,
    /// True if it can disconnect a client that is silent.
    disconnects: bool,
    incarnation: u64,
    /// Its position in a cluster, if it is set.
    position: Option<NodePosition>,
    next_client: u32,
    clients: HashMap<u32, Client>,
}

struct Client {
    key: Key,
    /// The process's number, assigned by the first memory node.
    process: u32,
    /// The number of its newest lane: numbers increase.
    newest: u32,
    /// True if it maps the memory.
    is_here: bool,
}

/// A lane that may be opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AdmittedLane {
    pub(crate) client: u32,
    pub(crate) lane: u32,
    /// The lane that it replaces, which must be closed first: chains that the client has abandoned may still be on their way.
    pub(crate) replaced: u32,
}

/// Returns the geometry of a memory node's own segments. They can be divided among several memory nodes if it is alone in its cluster.
///
/// # Errors
/// [`Error::InvalidArgument`].
pub(crate) fn own_geometry(
    nodes: u16,
    segments: u16,
    segment_bytes: u64,
    is_alone: bool,
) -> Result<Geometry> {
    let invalid = |argument, value: u32, reason| {
        Error::from(error::InvalidArgument { argument, value: value.to_string().into(), reason })
    };
    if nodes > 1 && !is_alone {
        let reason = "only the segments of a `shm:` cluster can be divided; start several memory nodes";
        return Err(invalid("memory nodes", nodes.into(), reason));
    }
    let geometry = Geometry::rounded(nodes.into(), segments.into(), segment_bytes)
        .map_err(farfield_words::Error::from)?;
    if geometry.segments() as usize > MAX_SEGMENTS {
        return Err(invalid("segments", geometry.segments(), "a memory node has up to 1024 segments"));
    }
    Ok(geometry)
}

impl Admission {
    /// Makes the admission of a memory node without clients.
    pub(crate) fn new(
        own: Geometry,
        lease_ms: u32,
        contents: Box<dyn Contents>,
        secret: Secret,
        disconnects: bool,
    ) -> Result<Self> {
        Ok(Self {
            own,
            lease_ms,
            contents,
            secret,
            disconnects,
            incarnation: getrandom::u64().map_err(Error::other)?.max(1),
            position: None,
            next_client: 1,
            clients: HashMap::new(),
        })
    }

    /// Sets the position of the only memory node of a cluster. Its segments are prepared.
    pub(crate) fn stay_alone(&mut self) {
        self.position = Some(NodePosition { cluster: cluster_of(&[self.incarnation]), node: 0, nodes: 1 });
    }

    /// Checks a request for a connection. A lane's proof is checked by [`lane`](Self::lane).
    pub(crate) fn check_hello(&self, bytes: &[u8]) -> Result<Hello, &'static str> {
        let hello = Hello::parse(bytes)?;
        if hello.kind == ConnectionKind::Control && !hello.is_proven_by(bytes, &self.secret) {
            return Err(NO_PROOF);
        }
        if hello.incarnation != 0 && hello.incarnation != self.incarnation {
            return Err("the memory node was restarted: its former contents are lost");
        }
        Ok(hello)
    }

    /// Returns the reply to the request for a control connection, and its random number.
    pub(crate) fn reply(&self, hello: &Hello) -> Result<([u8; REPLY_BYTES], Nonce)> {
        let mut nonce = Nonce::default();
        getrandom::fill(&mut nonce).map_err(Error::other)?;
        let reply = Reply { incarnation: self.incarnation, nonce };
        Ok((reply.to_bytes(&self.secret, &hello.nonce), nonce))
    }

    /// Admits the client that sends this request to join, and which is here if it maps the memory. If it sets the node's position, `format` prepares the
    /// segments for it, and receives the cluster's geometry.
    ///
    /// # Errors
    /// The reason, in one line.
    pub(crate) fn join(
        &mut self,
        message: &[u8],
        nonces: &(Nonce, Nonce),
        segments: impl IntoIterator<Item = Segment>,
        format: impl FnOnce(u16, Geometry, &dyn Contents) -> Result<(), String>,
        counts: &ClientCounts,
        is_here: bool,
    ) -> Result<Welcome, String> {
        let Join { position: join, process } = Join::parse(message, &self.secret, &nonces.0, &nonces.1)?;
        match self.position {
            None => {
                let cluster = join.cluster_of(self.own)?;
                format(join.node, cluster, &*self.contents)?;
                self.position = Some(join);
                tracing::info!(node = join.node, nodes = join.nodes, "memory node of a cluster");
            }
            Some(NodePosition { nodes: 1, .. }) if join.nodes != 1 => {
                return Err("it is the only memory node of its cluster: give no other".to_owned());
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
        let key = self.secret.key(&nonces.0, &nonces.1);
        self.clients.insert(client, Client { key, process, newest: 0, is_here });
        counts.joined.fetch_add(1, Ordering::Relaxed);
        counts.connected.store(self.clients.len() as u64, Ordering::Relaxed);
        tracing::info!(client, process, "client has joined");
        Ok(Welcome {
            client,
            layout: self.contents.layout_version(),
            lease_ms: self.lease_ms,
            disconnects: self.disconnects,
            geometry: self.own,
            segments: segments.into_iter().collect(),
        })
    }

    /// Checks the request for a lane.
    pub(crate) fn lane(&mut self, hello: &Hello, bytes: &[u8]) -> Result<AdmittedLane, &'static str> {
        let [client, lane, replaced] = hello.client_and_lanes();
        let known = self.clients.get_mut(&client).ok_or(UNKNOWN_CLIENT)?;
        if !hello.is_proven(bytes, &known.key) || lane <= known.newest {
            return Err(NO_PROOF);
        }
        known.newest = lane;
        Ok(AdmittedLane { client, lane, replaced })
    }

    /// Returns the number that a process has as a client of this node, and whether it maps the memory.
    pub(crate) fn client_of(&self, process: u32) -> Option<(u32, bool)> {
        let (number, client) = self.clients.iter().find(|(_, client)| client.process == process)?;
        Some((*number, client.is_here))
    }

    /// Removes a client all of whose connections are closed. Returns its process.
    pub(crate) fn remove(&mut self, client: u32, counts: &ClientCounts) -> Option<u32> {
        let removed = self.clients.remove(&client)?;
        counts.connected.store(self.clients.len() as u64, Ordering::Relaxed);
        Some(removed.process)
    }

    /// Marks a process's record, if this is the first memory node. `word` finds the words of its first segment.
    pub(crate) fn mark<'a>(
        &self,
        process: u32,
        departure: Departure,
        word: &dyn Fn(Address) -> Option<&'a AtomicU64>,
    ) {
        let Some(NodePosition { node: 0, nodes, .. }) = self.position else { return };
        let departure = if nodes == 1 { Departure::FromCluster } else { departure };
        self.contents.mark_departed(process, departure, word);
    }
}
