//! The status of a memory node, readable while it serves.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use crate::host::Arena;
use crate::lanes::admission::ClientCounts;
use farfield_words::Address;
use farfield_words::geometry::Geometry;

/// A memory node's segments and counts.
pub struct NodeStatus {
    arena: Arc<Arena>,
    /// Its number in the cluster and the cluster's geometry, once a client has set them.
    pub(super) position: OnceLock<(u16, Geometry)>,
    pub(super) clients: ClientCounts,
}

impl NodeStatus {
    pub(super) fn new(arena: Arc<Arena>) -> Self {
        Self { arena, position: OnceLock::new(), clients: ClientCounts::default() }
    }

    /// Returns its number and the geometry of its cluster; before the first client, those of a cluster of this node alone.
    pub fn position(&self) -> (u16, Geometry) {
        self.position.get().copied().unwrap_or_else(|| (0, self.arena.geometry()))
    }

    /// Loads a word of its memory; returns 0 outside of it.
    pub fn load(&self, at: Address) -> u64 {
        let (node, geometry) = self.position();
        let segment = at.segment().checked_sub(geometry.segments_of(node).start);
        let word = segment.and_then(|segment| self.arena.word(Address::new(segment, at.offset())).ok());
        word.map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// Returns the numbers of clients that have joined, of clients that are connected, and of refused connections.
    pub fn counts(&self) -> [u64; 3] {
        self.clients.get()
    }
}
