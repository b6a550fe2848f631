//! The status of a memory node, readable while it serves.

use std::fmt;
use std::ops::Range;
use std::sync::OnceLock;

use crate::admission::ClientCounts;
use farfield_words::Address;
use farfield_words::geometry::Geometry;

/// Loads a word of a memory node's own segments; 0 outside of them.
type Load = Box<dyn Fn(Address) -> u64 + Send + Sync>;

/// A memory node's words and counts.
pub struct NodeStatus {
    own: Geometry,
    load: Load,
    /// Its number in the cluster and the cluster's geometry, once they are set.
    position: OnceLock<(u16, Geometry)>,
    pub(crate) clients: ClientCounts,
}

impl NodeStatus {
    pub(crate) fn new(own: Geometry, load: impl Fn(Address) -> u64 + Send + Sync + 'static) -> Self {
        Self { own, load: Box::new(load), position: OnceLock::new(), clients: ClientCounts::default() }
    }

    /// Sets its number and the geometry of its cluster, which never change.
    pub(crate) fn set_position(&self, node: u16, cluster: Geometry) {
        let _ = self.position.set((node, cluster));
    }

    /// Returns which of a cluster's memory nodes it is, and the geometry of the cluster; before the first client, those of a cluster of this node
    /// alone.
    pub fn position(&self) -> (Range<u16>, Geometry) {
        let (node, geometry) = self.position.get().copied().unwrap_or((0, self.own));
        (node..node + self.own.nodes(), geometry)
    }

    /// Loads a word of its memory; returns 0 outside of it.
    pub fn load(&self, at: Address) -> u64 {
        let (nodes, geometry) = self.position();
        let segment = at.segment().checked_sub(geometry.segments_of(nodes.start).start);
        segment.map_or(0, |segment| (self.load)(Address::new(segment, at.offset())))
    }

    /// Returns the numbers of clients that have joined, of clients that are connected, and of refused connections.
    pub fn counts(&self) -> [u64; 3] {
        self.clients.get()
    }
}

impl fmt::Debug for NodeStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeStatus").field("clients", &self.clients).finish_non_exhaustive()
    }
}
