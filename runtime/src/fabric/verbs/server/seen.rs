//! What there is to see of a memory node while it serves.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::fabric::verbs::region::Region;
use crate::observer::NodeMetrics;
use farfield_words::WORD_BYTES;
use farfield_words::geometry::Geometry;

/// Its segments, and what it has counted.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(super) regions: Vec<Region>,
    /// Its segments alone.
    own: Geometry,
    /// Its place in the cluster and the cluster's geometry, once a client has said.
    pub(super) place: OnceLock<(u16, Geometry)>,
    pub(super) joined: AtomicU64,
    pub(super) connected: AtomicU64,
    pub(super) refused: AtomicU64,
}

impl Seen {
    pub(super) fn new(regions: Vec<Region>, own: Geometry) -> Self {
        let [joined, connected, refused] = [(); 3].map(|()| AtomicU64::new(0));
        Self { regions, own, place: OnceLock::new(), joined, connected, refused }
    }

    pub(crate) fn metrics(&self) -> NodeMetrics {
        let (node, geometry) = self.place.get().copied().unwrap_or((0, self.own));
        let first = geometry.segments_of(node).start;
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
