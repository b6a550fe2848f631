//! The messages between a client and a memory node before the first operation.
//!
//! On `shm:` there is only a control connection, a Unix socket. The segment table has the offset of each segment in the shared memory, and a
//! descriptor of that memory is passed with the [`Welcome`]. The rest is about RDMA.
//!
//! A client has two kinds of connections to a memory node. The *control* connection proves that it knows the cluster's secret
//! and receives the segment table; its queue pair is in a protection domain of its own, where no segment is. A *lane* is a
//! queue pair on which operations run. It is opened with a key derived from the secret and from the two random numbers of the control connection, and
//! with an increasing number, so a recorded request can not be replayed.
//!
//! | control connection | carries |
//! |---|---|
//! | request (client) | [`Hello`]: version, cluster, node, incarnation, a random number, proof |
//! | reply (node) | [`Reply`]: incarnation, a random number, proof over both numbers |
//! | message (client) | [`Join`]: the cluster, and the node's position in it, as the client knows them; proof over both numbers |
//! | message (node) | [`Welcome`]: the client's number and the segment table; or the reason of a refusal |
//!
//! A lane needs only a request. A request that is not accepted is rejected with a line of text.
//!
//! Proofs are HMAC-SHA-256, compared in constant time. Neither the secret nor a key is ever sent. Everything else is sent unencrypted, like all RDMA
//! traffic: the proofs protect against unauthenticated clients and mistakes, not against eavesdroppers.
//!
//! Every message has a fixed size and format; others are refused. Parsing stays inside the received bytes, and never trusts a count. Numbers are
//! little-endian.

use farfield_words::fingerprint;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

mod welcome;

pub(crate) use welcome::MAX_SEGMENTS;
#[cfg(any(fuzzing, test))]
pub(crate) use welcome::join_any;
pub(crate) use welcome::{MAX_WELCOME_BYTES, Segment, Welcome};

/// The version of the protocol. Other versions are refused.
const VERSION: u8 = 5;
pub(crate) const MAGIC: [u8; 4] = [b'f', b'f', b'd', VERSION];

/// A number that is used once.
pub(crate) type Nonce = [u8; 16];
/// The truncated proof in a request, whose size is limited.
type ShortProof = [u8; 16];
pub(crate) type Proof = [u8; 32];
/// The key with which lanes are opened.
pub(crate) type Key = [u8; 32];

/// The most that a request carries over RDMA's connection manager: 56 bytes.
pub(crate) const HELLO_BYTES: usize = 56;
pub(crate) const REPLY_BYTES: usize = 64;
pub(crate) const JOIN_BYTES: usize = 56;
/// The longest reason for a refusal; a rejection of the connection manager has room for 148 bytes.
pub(crate) const MAX_REASON_BYTES: usize = 120;

/// A request for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub kind: ConnectionKind,
    /// The number that the memory node has in the cluster, as the client knows it.
    pub node: u16,
    /// The cluster; 0 if the client does not know it yet.
    pub cluster: u64,
    /// The incarnation that the client knows; 0 if it knows none.
    pub incarnation: u64,
    /// A random number for a control connection; for a lane, the client's number, the lane's, and that of the one it
    /// replaces.
    pub nonce: Nonce,
}

/// The kind of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionKind {
    Control,
    Lane,
}

/// The answer to the request for a control connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub incarnation: u64,
    pub nonce: Nonce,
}

/// The client's request to join the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Join {
    pub position: NodePosition,
    /// The client's number, assigned by the first memory node; 0 in a request to that node.
    pub process: u32,
}

/// A memory node's position in its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodePosition {
    pub cluster: u64,
    pub node: u16,
    pub nodes: u16,
}

/// The cluster's secret: the contents of a file, or empty.
#[derive(Clone)]
pub struct Secret(Box<[u8]>);

/// The message that a proof is for: a proof for one message is invalid for another.
#[derive(Clone, Copy)]
enum ProofPurpose {
    Hello = 1,
    Reply = 2,
    Join = 3,
    Key = 4,
    Channel = 5,
    Peer = 6,
}

/// The proof of an end of a line between compute threads, the one that has connected or the other one: it knows the secret, and has seen both
/// hellos.
#[cfg(target_os = "linux")]
fn peer_mac(secret: &Secret, has_connected: bool, hellos: [&[u8]; 2]) -> Hmac<Sha256> {
    let [first, second] = hellos;
    mac(&secret.0, ProofPurpose::Peer, &[&[u8::from(has_connected)], first, second])
}

#[cfg(target_os = "linux")]
pub(crate) fn peer_proof(secret: &Secret, has_connected: bool, hellos: [&[u8]; 2]) -> Proof {
    peer_mac(secret, has_connected, hellos).finalize().into_bytes().into()
}

#[cfg(target_os = "linux")]
pub(crate) fn is_peer_proof(secret: &Secret, has_connected: bool, hellos: [&[u8]; 2], proof: &[u8]) -> bool {
    peer_mac(secret, has_connected, hellos).verify_slice(proof).is_ok()
}

impl Secret {
    pub fn new(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }

    /// Returns the pre-shared key of channels over TCP.
    pub(crate) fn shared_key(&self) -> Key {
        mac(&self.0, ProofPurpose::Channel, &[]).finalize().into_bytes().into()
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the key of lanes after a handshake with these random numbers.
    pub fn key(&self, client: &Nonce, node: &Nonce) -> Key {
        mac(&self.0, ProofPurpose::Key, &[client, node]).finalize().into_bytes().into()
    }
}

fn mac(key: &[u8], purpose: ProofPurpose, parts: &[&[u8]]) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.update(&[purpose as u8]);
    for part in parts {
        mac.update(part);
    }
    mac
}

/// Takes fixed-size fields off the front of a message.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*field)
    }
    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }
    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }
    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }
}

impl Hello {
    /// Returns the nonce of a lane: the client's number, the lane's, and that of the lane it replaces, or 0. No operation of the replaced lane
    /// may arrive once this one is open.
    pub(crate) fn lane(client: u32, lane: u32, replaced: u32) -> Nonce {
        let mut nonce = [0; 16];
        nonce[..4].copy_from_slice(&client.to_le_bytes());
        nonce[4..8].copy_from_slice(&lane.to_le_bytes());
        nonce[8..12].copy_from_slice(&replaced.to_le_bytes());
        nonce
    }

    /// Returns the client's number, the lane's, and that of the lane it replaces.
    pub(crate) fn client_and_lanes(&self) -> [u32; 3] {
        let mut fields = Fields(&self.nonce);
        [(); 3].map(|()| fields.u32().unwrap_or_default())
    }

    fn head(&self) -> [u8; HELLO_BYTES - size_of::<ShortProof>()] {
        let mut head = [0; _];
        head[..4].copy_from_slice(&MAGIC);
        head[4] = self.kind as u8;
        head[6..8].copy_from_slice(&self.node.to_le_bytes());
        head[8..16].copy_from_slice(&self.cluster.to_le_bytes());
        head[16..24].copy_from_slice(&self.incarnation.to_le_bytes());
        head[24..40].copy_from_slice(&self.nonce);
        head
    }

    pub(crate) fn to_bytes(self, key: &[u8]) -> [u8; HELLO_BYTES] {
        let head = self.head();
        let proof: Proof = mac(key, ProofPurpose::Hello, &[&head]).finalize().into_bytes().into();
        let mut bytes = [0; HELLO_BYTES];
        bytes[..head.len()].copy_from_slice(&head);
        bytes[head.len()..].copy_from_slice(&proof[..size_of::<ShortProof>()]);
        bytes
    }

    pub(crate) fn with_secret(self, secret: &Secret) -> [u8; HELLO_BYTES] {
        self.to_bytes(&secret.0)
    }

    /// Parses a request; the connection manager may have padded it. Does not check the proof.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, &'static str> {
        let mut fields = Fields(bytes.get(..HELLO_BYTES).ok_or("this is not Farfield's protocol")?);
        let short = "the request is too short";
        let magic: [u8; 4] = fields.take().ok_or(short)?;
        if magic[..3] != MAGIC[..3] {
            return Err("this is not Farfield's protocol");
        }
        if magic[3] != VERSION {
            return Err(
                "client and memory node speak different versions of the protocol: use one version of Farfield",
            );
        }
        let kind = match fields.take::<2>().ok_or(short)?[0] {
            0 => ConnectionKind::Control,
            1 => ConnectionKind::Lane,
            _ => return Err("the request is for an unknown kind of connection"),
        };
        Ok(Self {
            kind,
            node: fields.u16().ok_or(short)?,
            cluster: fields.u64().ok_or(short)?,
            incarnation: fields.u64().ok_or(short)?,
            nonce: fields.take().ok_or(short)?,
        })
    }

    /// Returns whether the bytes that it was parsed from have a valid proof with this key.
    pub(crate) fn is_proven(&self, bytes: &[u8], key: &[u8]) -> bool {
        let head = self.head();
        let proof = bytes.get(head.len()..HELLO_BYTES).unwrap_or_default();
        mac(key, ProofPurpose::Hello, &[&head]).verify_truncated_left(proof).is_ok()
    }

    pub(crate) fn is_proven_by(&self, bytes: &[u8], secret: &Secret) -> bool {
        self.is_proven(bytes, &secret.0)
    }
}

impl Reply {
    fn head(&self) -> [u8; REPLY_BYTES - size_of::<Proof>()] {
        let mut head = [0; _];
        head[..4].copy_from_slice(&MAGIC);
        head[8..16].copy_from_slice(&self.incarnation.to_le_bytes());
        head[16..32].copy_from_slice(&self.nonce);
        head
    }

    pub(crate) fn to_bytes(self, secret: &Secret, client: &Nonce) -> [u8; REPLY_BYTES] {
        let head = self.head();
        let proof: Proof =
            mac(&secret.0, ProofPurpose::Reply, &[&head, client]).finalize().into_bytes().into();
        let mut bytes = [0; REPLY_BYTES];
        bytes[..head.len()].copy_from_slice(&head);
        bytes[head.len()..].copy_from_slice(&proof);
        bytes
    }

    /// Parses a reply, and checks the proof that the memory node knows the secret.
    pub(crate) fn parse(bytes: &[u8], secret: &Secret, client: &Nonce) -> Result<Self, &'static str> {
        let strange = "it does not speak Farfield's protocol";
        let bytes = bytes.get(..REPLY_BYTES).ok_or(strange)?;
        let mut fields = Fields(bytes);
        if fields.take() != Some(MAGIC) || fields.u32().is_none() {
            return Err(strange);
        }
        let incarnation = fields.u64().ok_or(strange)?;
        let reply = Self { incarnation, nonce: fields.take().ok_or(strange)? };
        let proven = mac(&secret.0, ProofPurpose::Reply, &[&reply.head(), client]).verify_slice(fields.0);
        proven.map(|()| reply).map_err(|_| "it does not know the cluster's secret")
    }
}

impl Join {
    fn head(&self) -> [u8; JOIN_BYTES - size_of::<Proof>()] {
        let mut head = [0; _];
        head[..4].copy_from_slice(&MAGIC);
        head[8..16].copy_from_slice(&self.position.cluster.to_le_bytes());
        head[16..18].copy_from_slice(&self.position.node.to_le_bytes());
        head[18..20].copy_from_slice(&self.position.nodes.to_le_bytes());
        head[20..24].copy_from_slice(&self.process.to_le_bytes());
        head
    }

    pub(crate) fn to_bytes(self, secret: &Secret, client: &Nonce, node: &Nonce) -> [u8; JOIN_BYTES] {
        let head = self.head();
        let proof: Proof =
            mac(&secret.0, ProofPurpose::Join, &[&head, client, node]).finalize().into_bytes().into();
        let mut bytes = [0; JOIN_BYTES];
        bytes[..head.len()].copy_from_slice(&head);
        bytes[head.len()..].copy_from_slice(&proof);
        bytes
    }

    pub(crate) fn parse(
        bytes: &[u8],
        secret: &Secret,
        client: &Nonce,
        node: &Nonce,
    ) -> Result<Self, &'static str> {
        let strange = "the client does not speak Farfield's protocol";
        if bytes.len() != JOIN_BYTES {
            return Err(strange);
        }
        let mut fields = Fields(bytes);
        if fields.take() != Some(MAGIC) || fields.u32().is_none() {
            return Err(strange);
        }
        let position = NodePosition {
            cluster: fields.u64().ok_or(strange)?,
            node: fields.u16().ok_or(strange)?,
            nodes: fields.u16().ok_or(strange)?,
        };
        let join = Self { position, process: fields.u32().ok_or(strange)? };
        let proven = mac(&secret.0, ProofPurpose::Join, &[&join.head(), client, node]).verify_slice(fields.0);
        proven.map(|()| join).map_err(|_| "the client does not know the cluster's secret")
    }
}

/// Parses bytes as each of the messages.
#[cfg(any(fuzzing, test))]
pub(crate) fn parse_any(bytes: &[u8]) {
    let secret = Secret::new(b"open sesame");
    if let Ok(hello) = Hello::parse(bytes) {
        hello.is_proven_by(bytes, &secret);
        hello.client_and_lanes();
    }
    let _ = Reply::parse(bytes, &secret, &[0; 16]);
    let _ = Join::parse(bytes, &secret, &[0; 16], &[0; 16]);
    drop(Welcome::parse(bytes, 0));
    printable_reason(bytes);
}

/// Returns the identity of a cluster, a hash of its memory nodes' incarnations in order.
pub(crate) fn cluster_of(incarnations: &[u64]) -> u64 {
    let name = fingerprint::name("farfield cluster");
    incarnations.iter().fold(name, |hash, incarnation| fingerprint::number(hash, *incarnation)).max(1)
}

/// Truncates a reason to the bytes that are sent.
pub(crate) fn truncate_reason(reason: &str) -> &str {
    let mut end = reason.len().min(MAX_REASON_BYTES);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    &reason[..end]
}

/// A refusal reason from an untrusted peer, reduced to one printable line.
pub(crate) fn printable_reason(bytes: &[u8]) -> String {
    let bytes = &bytes[..bytes.len().min(MAX_REASON_BYTES)];
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let text = String::from_utf8_lossy(&bytes[..end]);
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests;
