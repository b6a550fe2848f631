//! The use of memory: the numbers of live, cached and free bytes, as far as threads have flushed their counts.

use super::worker::Worker;
use crate::error::Result;
use crate::io::operations::*;
use crate::segment::control;
use crate::segment::grid::Grid;
use farfield_fabric::chain::Slot;
use farfield_words::geometry::Geometry;

/// The number of words of a segment's header that are read: taken chunks, freed chunks, live bytes.
const HEAD_WORDS: usize = 3;

/// The use of a memory node's segments.
///
/// From [`ComputeThread::heap_use`](crate::ComputeThread::heap_use). Bytes that are neither live nor cached were never used, or are free in whole chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeapUse {
    /// The memory node.
    pub node: u16,
    /// The bytes that its segments have for objects.
    pub size_bytes: u64,
    /// The bytes of the blocks that objects are in.
    pub live_bytes: u64,
    /// The bytes of free blocks: in the lists of threads, in the pool, and in chunks that are cut into blocks.
    pub cached_bytes: u64,
}

impl HeapUse {
    /// The use of a memory node, from the words of its segments' headers: taken chunks, freed chunks, live bytes.
    pub(crate) fn of(
        grid: &Grid,
        geometry: Geometry,
        node: u16,
        heads: impl Iterator<Item = [u64; HEAD_WORDS]>,
    ) -> Self {
        let mut usage = Self { node, ..Self::default() };
        for (segment, [taken, free, live]) in geometry.segments_of(node).zip(heads) {
            let bytes = grid.bytes(segment);
            let used = taken.min(grid.chunks(segment)).saturating_sub(free) * grid.chunk_bytes();
            usage.size_bytes += bytes;
            usage.live_bytes = usage.live_bytes.wrapping_add(live);
            usage.cached_bytes += used.min(bytes);
        }
        // May be negative until all threads have flushed their deltas: one may flush frees before another flushes the allocations.
        usage.live_bytes = usage.live_bytes.cast_signed().max(0).cast_unsigned();
        usage.cached_bytes = usage.cached_bytes.saturating_sub(usage.live_bytes);
        usage
    }
}

impl Worker {
    /// Adds the thread's allocated and freed bytes since its last flush to the counts of the memory nodes, without waiting.
    pub(crate) fn flush_live_bytes(&self) {
        self.heap().take_spare();
        for (node, cache) in (0..).zip(&self.heap().nodes) {
            let live = std::mem::take(&mut cache.borrow_mut().live);
            if live != 0 {
                let mut chain = self.empty_chain();
                let segment = self.heap().geometry.segments_of(node).start;
                chain.fetch_add(control::live_bytes(segment), live);
                self.submit_detached(chain, |_, _| ());
            }
        }
    }

    /// The use of memory on each memory node. One round trip: a chain for each of them, all posted together.
    ///
    /// A thread counts its allocations and frees locally. It adds them to the memory nodes' counts when it ends, and when this is called on
    /// it. So the figures are exact once all other threads have ended.
    ///
    /// # Errors
    /// Those of a READ.
    pub(crate) async fn heap_use(&self) -> Result<Vec<HeapUse>> {
        self.flush_live_bytes();
        let (grid, geometry) = (self.heap().grid, self.heap().geometry);
        let ask = |node| {
            let mut chain = self.empty_chain();
            let segments = geometry.segments_of(node);
            let heads: Vec<Slot> =
                segments.map(|segment| chain.read(control::taken_chunks(segment), HEAD_WORDS)).collect();
            (node, heads, self.submit(chain))
        };
        let asked: Vec<_> = (0..geometry.nodes()).map(ask).collect();
        let mut nodes = Vec::with_capacity(asked.len());
        for (node, heads, answer) in asked {
            let answer = answer.await?;
            let words = heads.iter().map(|head| std::array::from_fn(|word| answer.words(*head)[word]));
            let usage = HeapUse::of(&grid, geometry, node, words);
            nodes.push(usage);
        }
        Ok(nodes)
    }
}
