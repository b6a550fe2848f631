//! Metrics of a cluster, as a memory node sees it.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::memory::usage::HeapUse;
use crate::segment::control;
use crate::segment::grid::Grid;
use farfield_words::Address;
use farfield_words::geometry::Geometry;

/// Reads the metrics of a cluster from the memory of one of its memory nodes. It sends no messages to processes.
#[derive(Clone)]
pub struct Observer(Arc<dyn Fn() -> NodeMetrics + Send + Sync>);

/// Metrics of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeMetrics {
    /// The epoch. 0 if this is not the first memory node, which holds it.
    pub epoch: u64,
    /// The number of processes that were admitted.
    pub joined: u64,
    /// The number of admitted processes that are connected.
    pub connected: u64,
    /// The number of processes that were refused.
    pub refused: u64,
    /// The number of evicted processes: those that ended without leaving, or whose lease expired. Known to the first memory node.
    pub evictions: u64,
    /// The bytes that were reclaimed from dead processes. Known to the first memory node.
    pub taken_back_bytes: u64,
    /// The estimated bytes lost by processes that have died since the last collection. Known to the first memory node.
    pub uncollected_bytes: u64,
    /// The heap use of the memory nodes that this process hosts, as far as compute processes have reported it.
    pub heap: Vec<HeapUse>,
}

impl NodeMetrics {
    /// Computes the metrics of some of a cluster's memory nodes from their words.
    pub(crate) fn of(
        geometry: Geometry,
        nodes: Range<u16>,
        load: impl Fn(Address) -> u64,
        [joined, connected, refused]: [u64; 3],
    ) -> Self {
        let grid = Grid::new(geometry);
        let of_first = |at| if nodes.contains(&0) { load(at) } else { 0 };
        let (epoch, evictions) = (of_first(control::epoch()), of_first(control::evictions()));
        let taken_back_bytes =
            of_first(control::swept_bytes()).wrapping_add(of_first(control::collected_bytes()));
        let uncollected_bytes = of_first(control::left_bytes()).cast_signed().max(0).cast_unsigned();
        let heap = nodes.map(|node| {
            let heads = geometry.segments_of(node).map(|segment| {
                [control::taken_chunks(segment), control::freed_chunks(segment), control::live_bytes(segment)]
                    .map(&load)
            });
            HeapUse::of(&grid, geometry, node, heads)
        });
        let heap = heap.collect();
        Self { epoch, joined, connected, refused, evictions, taken_back_bytes, uncollected_bytes, heap }
    }
}

impl Observer {
    pub(crate) fn new(observe: impl Fn() -> NodeMetrics + Send + Sync + 'static) -> Self {
        Self(Arc::new(observe))
    }

    /// Returns the current metrics. Costs a few loads for each segment.
    pub fn metrics(&self) -> NodeMetrics {
        (self.0)()
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Observer").field(&self.metrics()).finish()
    }
}
