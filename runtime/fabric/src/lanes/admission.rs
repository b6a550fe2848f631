//! The clients of a memory node: who is admitted, under which number, and who has departed. The same for each network.
//!
//! The first client that proves its knowledge of the secret sets the node's position in a cluster; clients that expect another position are refused. A
//! client opens lanes with the key of its control connection, and with increasing numbers, so a recorded request opens none.
//!
//! When a client's control connection ends, its lanes are closed, so no operation of it takes effect in this node's memory any more. The first memory
//! node marks this in the client's record, as a hint: other nodes may not have noticed. A process that reads the hint asks each node to disconnect
//! the client, the first node last; the first node then marks it as gone everywhere. The same question disconnects a client whose lease has expired.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use super::node::UNKNOWN_CLIENT;
use crate::error::{Error, Result};
use crate::handshake::{
    ConnectionKind, Hello, Join, Key, NodePosition, Nonce, REPLY_BYTES, Reply, Secret, Segment, Welcome,
};
use crate::{Contents, Departure};
use farfield_words::Address;
use farfield_words::geometry::Geometry;

/// Client numbers are below this: they are part of compute threads' identities.
const MAX_CLIENTS: u32 = 1 << 24;
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
    incarnation: u64,
    /// Its position in a cluster, if a client has set it.
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
}

/// A lane that may be opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AdmittedLane {
    pub(crate) client: u32,
    pub(crate) lane: u32,
    /// The lane that it replaces, which must be closed first: chains that the client has abandoned may still be on their way.
    pub(crate) replaced: u32,
}

impl Admission {
    /// Makes the admission of a memory node without clients.
    pub(crate) fn new(
        own: Geometry,
        lease_ms: u32,
        contents: Box<dyn Contents>,
        secret: Secret,
    ) -> Result<Self> {
        Ok(Self {
            own,
            lease_ms,
            contents,
            secret,
            incarnation: getrandom::u64().map_err(Error::other)?.max(1),
            position: None,
            next_client: 0,
            clients: HashMap::new(),
        })
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

    /// Admits the client that sends this request to join. If it is the first, `format` prepares the segments for the node's position, and receives
    /// the cluster's geometry.
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
    ) -> Result<Welcome, String> {
        let Join { position: join, process } = Join::parse(message, &self.secret, &nonces.0, &nonces.1)?;
        match self.position {
            None => {
                let cluster = join.cluster_of(self.own)?;
                format(join.node, cluster, &*self.contents)?;
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
        let key = self.secret.key(&nonces.0, &nonces.1);
        self.clients.insert(client, Client { key, process, newest: 0 });
        counts.joined.fetch_add(1, Ordering::Relaxed);
        counts.connected.store(self.clients.len() as u64, Ordering::Relaxed);
        tracing::info!(client, process, "client has joined");
        Ok(Welcome {
            client,
            layout: self.contents.layout_version(),
            lease_ms: self.lease_ms,
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

    /// Returns the number that a process has as a client of this node.
    pub(crate) fn client_of(&self, process: u32) -> Option<u32> {
        self.clients.iter().find(|(_, client)| client.process == process).map(|(client, _)| *client)
    }

    /// Removes a client all of whose connections are closed. Returns its process.
    pub(crate) fn remove(&mut self, client: u32, counts: &ClientCounts) -> Option<u32> {
        let removed = self.clients.remove(&client)?;
        counts.connected.store(self.clients.len() as u64, Ordering::Relaxed);
        Some(removed.process)
    }

    /// Removes all clients, whose connections are closed, without a mark.
    pub(crate) fn clear(&mut self) {
        self.clients.clear();
    }

    /// Marks a process's record, if this is the first memory node. `word` finds the words of its first segment.
    pub(crate) fn mark<'a>(
        &self,
        process: u32,
        departure: Departure,
        word: &dyn Fn(Address) -> Option<&'a AtomicU64>,
    ) {
        if self.position.is_some_and(|position| position.node == 0) {
            self.contents.mark_departed(process, departure, word);
        }
    }
}
