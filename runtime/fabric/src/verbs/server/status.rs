//! The status of a memory node, readable while it serves.

use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use crate::lanes::admission::ClientCounts;
use crate::verbs::region::Region;
use farfield_words::geometry::Geometry;
use farfield_words::{Address, WORD_BYTES};

/// A memory node's segments and counts.
#[derive(Debug)]
pub struct NodeStatus {
    pub(super) regions: Vec<Region>,
    /// The geometry of its own segments.
    own: Geometry,
    /// Its number in the cluster and the cluster's geometry, once a client has set them.
    pub(super) position: OnceLock<(u16, Geometry)>,
    pub(super) clients: ClientCounts,
}

impl NodeStatus {
    pub(super) fn new(regions: Vec<Region>, own: Geometry) -> Self {
        Self { regions, own, position: OnceLock::new(), clients: ClientCounts::default() }
    }

    /// Returns its number and the geometry of its cluster; before the first client, those of a cluster of this node alone.
    pub fn position(&self) -> (u16, Geometry) {
        self.position.get().copied().unwrap_or((0, self.own))
    }

    /// Loads a word of its memory; returns 0 outside of it.
    pub fn load(&self, at: Address) -> u64 {
        let (node, geometry) = self.position();
        let segment = at.segment().checked_sub(geometry.segments_of(node).start);
        let region = segment.and_then(|segment| self.regions.get(usize::from(segment)));
        let word = region.and_then(|region| region.words().get(at.offset() as usize / WORD_BYTES));
        word.map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// Returns the numbers of clients that have joined, of clients that are connected, and of refused connections.
    pub fn counts(&self) -> [u64; 3] {
        self.clients.get()
    }
}
