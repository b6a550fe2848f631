//! What there is to see of a memory node while it serves.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::fabric::host::Geometry;
use crate::fabric::verbs::device::Region;
use crate::layout::WORD_BYTES;
use crate::observer::NodeMetrics;

/// Its segments, and what it has counted.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(super) regions: Vec<Region>,
    pub(super) segment_bytes: u64,
    /// Its place in the cluster, once somebody has said.
    pub(super) node: AtomicU64,
    pub(super) joined: AtomicU64,
    pub(super) connected: AtomicU64,
    pub(super) refused: AtomicU64,
}

impl Seen {
    pub(crate) fn metrics(&self) -> NodeMetrics {
        let node = self.node.load(Ordering::Relaxed) as u16;
        let per_node = self.regions.len() as u16;
        let geometry =
            Geometry { nodes: node + 1, segments_per_node: per_node, segment_bytes: self.segment_bytes };
        let first = node * per_node;
        let counts =
            [&self.joined, &self.connected, &self.refused].map(|count| count.load(Ordering::Relaxed));
        NodeMetrics::of(
            geometry,
            node..node + 1,
            |at| {
                let region = self.regions.get(usize::from(at.segment() - first));
                let word = region.and_then(|region| region.words().get(at.offset() as usize / WORD_BYTES));
                word.map_or(0, |word| word.load(Ordering::Relaxed))
            },
            counts,
        )
    }
}
