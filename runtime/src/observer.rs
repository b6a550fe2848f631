//! How a cluster stands, as a memory node sees it.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::memory::usage::HeapUse;
use crate::segment::control;
use crate::segment::grid::Grid;
use farfield_words::Address;
use farfield_words::geometry::Geometry;

/// Tells how a cluster stands, as one of its memory nodes sees it. No process is asked.
#[derive(Clone)]
pub struct Observer(Arc<dyn Fn() -> NodeMetrics + Send + Sync>);

/// How a cluster stands.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeMetrics {
    /// The epoch; 0 if this is not the first memory node, which alone knows it.
    pub epoch: u64,
    /// How many processes have been let in.
    pub joined: u64,
    /// How many of them are there.
    pub connected: u64,
    /// How many were refused.
    pub refused: u64,
    /// How many were evicted, having ended without leaving or been silent for too long; as the first memory node knows.
    pub evictions: u64,
    /// The bytes that were taken back from processes that had ended; as the first memory node knows.
    pub taken_back_bytes: u64,
    /// About how many bytes processes have left that have ended since; as the first memory node knows.
    pub uncollected_bytes: u64,
    /// How the memory of the memory nodes that are hosted here is used, as far as processes have told.
    pub heap: Vec<HeapUse>,
}

impl NodeMetrics {
    /// Those of some of a cluster's memory nodes, given their words.
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

    /// How it stands now. A few loads for each segment.
    pub fn metrics(&self) -> NodeMetrics {
        (self.0)()
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Observer").field(&self.metrics()).finish()
    }
}
