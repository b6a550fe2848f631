//! The last message of the handshake: the segments that a memory node hosts.
//!
//! A client computes addresses from every number of it. So parsing checks all of them: a [`Welcome`] has a [`Geometry`] and as many segments, each of
//! which begins at a word and ends in the address space.

use super::{Fields, MAGIC, NodePosition, printable_reason, truncate_reason};
#[cfg(any(fuzzing, test))]
use farfield_words::Address;
use farfield_words::WORD_BYTES;
use farfield_words::geometry::Geometry;

/// The most segments of a memory node.
pub(crate) const MAX_SEGMENTS: usize = 1024;
const WELCOME_HEAD_BYTES: usize = 44;
const ENTRY_BYTES: usize = 16;
/// The byte order of this machine.
const BYTE_ORDER: [u8; 2] = 0x0102_u16.to_ne_bytes();
/// The longest [`Welcome`].
pub(crate) const MAX_WELCOME_BYTES: usize = WELCOME_HEAD_BYTES + MAX_SEGMENTS * ENTRY_BYTES;

/// A memory node's description of itself for a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Welcome {
    /// The client's number: no two clients of the memory node ever have the same.
    pub client: u32,
    /// The version of the control blocks.
    pub layout: u64,
    /// The lease of a client: the longest time between two heartbeats.
    pub lease_ms: u32,
    /// True if the memory node can disconnect a client whose lease has expired.
    pub disconnects: bool,
    /// The geometry of the memory that it hosts: that of one memory node, except on `shm:`.
    pub geometry: Geometry,
    /// Its segments, as many as in the geometry.
    pub segments: Vec<Segment>,
}

/// A segment's address in the memory of its node, and its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub base: u64,
    pub rkey: u32,
}

impl Welcome {
    /// Encodes the message, or the refusal with a reason.
    pub(crate) fn to_bytes(this: Result<&Self, &str>) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        match this {
            Ok(welcome) => {
                bytes.extend(0_u32.to_le_bytes());
                bytes.extend(welcome.client.to_le_bytes());
                bytes.extend((welcome.segments.len() as u32).to_le_bytes());
                bytes.extend(welcome.layout.to_le_bytes());
                bytes.extend(welcome.geometry.segment_bytes().to_le_bytes());
                bytes.extend(welcome.lease_ms.to_le_bytes());
                bytes.extend(welcome.geometry.nodes().to_le_bytes());
                bytes.extend(BYTE_ORDER);
                bytes.extend(u32::from(welcome.disconnects).to_le_bytes());
                for segment in &welcome.segments {
                    bytes.extend(segment.base.to_le_bytes());
                    bytes.extend(segment.rkey.to_le_bytes());
                    bytes.extend([0; 4]);
                }
            }
            Err(reason) => {
                let reason = truncate_reason(reason);
                bytes.extend((reason.len() as u32).to_le_bytes());
                bytes.extend(reason.as_bytes());
            }
        }
        bytes
    }

    /// Parses the message of a memory node whose layout must have version `known`. The error is the memory node's reason, or names the fault
    /// of the message.
    pub(crate) fn parse(bytes: &[u8], known: u64) -> Result<Self, String> {
        let strange = || "it does not speak Farfield's protocol".to_owned();
        let mut fields = Fields(bytes);
        if fields.take() != Some(MAGIC) {
            return Err(strange());
        }
        match fields.u32() {
            Some(0) => {}
            Some(_) => return Err(printable_reason(fields.0)),
            None => return Err(strange()),
        }
        let client = fields.u32().ok_or_else(strange)?;
        let count = fields.u32().ok_or_else(strange)? as usize;
        let layout = fields.u64().ok_or_else(strange)?;
        let segment_bytes = fields.u64().ok_or_else(strange)?;
        let lease_ms = fields.u32().ok_or_else(strange)?;
        let nodes = fields.u16().ok_or_else(strange)?;
        if fields.take().ok_or_else(strange)? != BYTE_ORDER {
            return Err("its memory has words in the other byte order".to_owned());
        }
        let disconnects = match fields.u32().ok_or_else(strange)? {
            0 => false,
            1 => true,
            _ => return Err(strange()),
        };
        if layout != known {
            return Err(format!(
                "its memory has layout version {layout}, this build knows {known}: use one version of Farfield"
            ));
        }
        if nodes == 0 || !count.is_multiple_of(usize::from(nodes)) {
            return Err(format!("its table has {count} segments on {nodes} memory nodes"));
        }
        let per_node = count as u64 / u64::from(nodes);
        let geometry =
            Geometry::new(nodes.into(), per_node, segment_bytes).map_err(|wrong| format!("its {wrong}"))?;
        if count == 0 || count > MAX_SEGMENTS || fields.0.len() != count * ENTRY_BYTES {
            return Err(format!("its table of {count} segments has {} bytes", fields.0.len()));
        }
        let mut segments = Vec::with_capacity(count);
        while let (Some(base), Some(rkey), Some(_)) = (fields.u64(), fields.u32(), fields.u32()) {
            if !base.is_multiple_of(WORD_BYTES as u64) || base.checked_add(segment_bytes).is_none() {
                return Err(format!("it has a segment at an invalid address, {base:#x}"));
            }
            segments.push(Segment { base, rkey });
        }
        Ok(Self { client, layout, lease_ms, disconnects, geometry, segments })
    }

    /// Returns whether the segments are where an arena maps them: in order, each a stride behind the one before.
    pub(crate) fn is_mapped_evenly(&self) -> bool {
        let stride = 1 << self.geometry.stride_log2();
        (0..).step_by(stride).zip(&self.segments).all(|(base, segment)| segment.base == base)
    }
}

impl NodePosition {
    /// Returns the geometry of the cluster, given that of the memory node in this position. All memory nodes are alike; one whose segments count as
    /// those of several, as on `shm:`, is alone.
    ///
    /// # Errors
    /// The reason, in one line: the position does not exist, or all memory nodes together are too large.
    pub(crate) fn cluster_of(&self, own: Geometry) -> Result<Geometry, String> {
        if self.node >= self.nodes {
            return Err(format!("there is no memory node {} of {}", self.node, self.nodes));
        }
        if own.nodes() != 1 {
            let is_alone = self.nodes == 1;
            return is_alone
                .then_some(own)
                .ok_or_else(|| format!("its table is that of {} memory nodes", own.nodes()));
        }
        let per_node = own.segments_per_node().into();
        Geometry::new(self.nodes.into(), per_node, own.segment_bytes())
            .map_err(|wrong| format!("with {} memory nodes like it the {wrong}", self.nodes))
    }
}

/// Parses bytes as a welcome, and computes what clients compute from it: on a network, as that of memory node `node` of `nodes`.
#[cfg(any(fuzzing, test))]
pub(crate) fn join_any(bytes: &[u8], (node, nodes): (u16, u16), at: Address) {
    use crate::host::Arena;
    // The version that it says.
    let known = bytes.get(16..24).map_or(0, |layout| Fields(layout).u64().unwrap_or_default());
    let welcome = match Welcome::parse(bytes, known) {
        Ok(welcome) => welcome,
        Err(reason) => return assert!(!reason.contains('\n'), "{reason:?}"),
    };
    let own = welcome.geometry;
    assert_eq!(welcome.segments.len() as u64, u64::from(own.segments()));
    // On `shm:`.
    if welcome.is_mapped_evenly() && own.mapped_bytes() <= 64 << 20 {
        let arena = Arena::new(own).expect("there is so much address space");
        assert_eq!(arena.word(at).is_ok(), own.check(at, 1).is_ok());
        for segment in 0..own.segments() {
            let last = Address::new(segment as u16, own.segment_bytes() - WORD_BYTES as u64);
            assert_eq!(arena.word(last).expect("it is inside").load(std::sync::atomic::Ordering::Relaxed), 0);
        }
    }
    // On a network.
    let position = NodePosition { cluster: 1, node, nodes };
    match position.cluster_of(own) {
        Err(reason) => assert!(!reason.contains('\n'), "{reason:?}"),
        Ok(cluster) => {
            let first = cluster.segments_of(position.node).start;
            let hosted = first..first + own.segments() as u16;
            assert!(usize::from(hosted.end - hosted.start) == welcome.segments.len());
            if cluster.check(at, 1).is_ok() && hosted.contains(&at.segment()) {
                let segment = welcome.segments[usize::from(at.segment() - first)];
                assert!(segment.base + at.offset() < segment.base + own.segment_bytes());
            }
        }
    }
}
