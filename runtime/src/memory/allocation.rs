//! Allocation: a block for an object, or an out-of-memory error.
//!
//! A block comes from the thread's own lists, without a round trip, in the common case. If these have none, the thread tries in turn
//! 1. blocks of ended threads of its process, without a round trip;
//! 2. a page of the [pool](super::pool);
//! 3. a chunk, which is cut into blocks; for a block without a class, as many [chunks](super::chunks) as it takes;
//! 4. the same on the other memory nodes;
//! 5. [compaction](super::compaction), and then all of this again.

use super::cache::Piece;
use super::chunks::{FreeChunks, Wanted};
use super::compaction::Compaction;
use super::heap::ThreadHeap;
use super::placement::{Placement, Policy, SegmentOrder, Target};
use super::worker::Worker;
use crate::error::{self, Error, Result};
use crate::io::operations::*;
use crate::segment::classes::{Class, MAX_ALIGN};
use crate::segment::control;
use farfield_words::Address;
use farfield_words::Block;
use rand::RngExt;

impl ThreadHeap {
    /// The memory node to try first, and the order in which its segments are used.
    #[inline]
    pub(crate) fn choose_target(&self, ct: &Worker, placement: Placement) -> Target {
        match placement {
            Placement::Default => match self.fixed_target {
                Some(target) => target,
                None => self.choose_by(ct, self.policy),
            },
            Placement::By(policy) => self.choose_by(ct, policy),
            // One node needs no division.
            Placement::Near(_) | Placement::Node(_) if self.nodes.len() == 1 => Target::on(0),
            Placement::Near(address) => {
                Target::on(self.geometry.node_of(address.segment()) % self.geometry.nodes())
            }
            Placement::Node(node) => Target::on(node % self.geometry.nodes()),
        }
    }

    fn choose_by(&self, ct: &Worker, policy: Policy) -> Target {
        let nodes = self.geometry.nodes();
        match policy {
            Policy::Random => Target::on(ct.rng().random_range(0..nodes)),
            Policy::GlobalRoundRobin => {
                let node = self.next_node.get();
                self.next_node.set(if node + 1 == nodes { 0 } else { node + 1 });
                Target::on(node)
            }
            Policy::GlobalModulo => Target::on((self.thread % u32::from(nodes)) as u16),
            Policy::LocalRoundRobin => Target { node: self.own_node, segments: SegmentOrder::Rotating },
            Policy::LocalModulo => Target::on(self.own_node),
        }
    }

    /// Allocates a block for `bytes` bytes aligned to `align` from the thread's own lists of the target node, if they have one. No round trip.
    #[inline]
    pub(crate) fn allocate_from_lists(&self, target: Target, bytes: u64, align: u64) -> Option<Block> {
        let bytes = self.grid.block_bytes(bytes, align);
        let class = self.grid.class_of(bytes)?;
        let mut cache = self.node_at(target.node).borrow_mut();
        let address = cache.take(class)?;
        cache.add_live(class.bytes());
        self.allocated.set(self.allocated.get() + 1);
        Some(Block { address, bytes })
    }

    /// Allocates a block for `bytes` bytes aligned to `align`.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if no segment of any node can serve it, [`Error::InvalidAllocation`] if none ever could.
    pub(crate) async fn allocate(
        &self,
        ct: &Worker,
        target: Target,
        bytes: u64,
        align: u64,
    ) -> Result<Block> {
        let impossible = |reason| Error::from(error::InvalidAllocation { size_bytes: bytes, reason });
        if bytes == 0 {
            return Err(impossible("an object needs at least a byte"));
        }
        if align > MAX_ALIGN.min(self.grid.chunk_bytes()) {
            return Err(impossible("its alignment is over 4096 bytes, or over that of a chunk"));
        }
        if bytes > self.geometry.segment_bytes() {
            return Err(impossible("an object may not be larger than a segment"));
        }
        let block_bytes = self.grid.block_bytes(bytes, align);
        // In a box, so that the future of an allocation that needs none of this is small.
        Box::pin(self.allocate_slowly(ct, target, bytes, block_bytes)).await
    }

    #[cold]
    async fn allocate_slowly(
        &self,
        ct: &Worker,
        first: Target,
        bytes: u64,
        block_bytes: u64,
    ) -> Result<Block> {
        let class = self.grid.class_of(block_bytes);
        let mut compaction = Compaction::new(ct);
        loop {
            for offset in 0..self.geometry.nodes() {
                // Wide enough: a node's number and the number of nodes are below 2^16.
                let node =
                    ((u32::from(first.node) + u32::from(offset)) % u32::from(self.geometry.nodes())) as u16;
                let target = Target { node, ..first };
                let block = match class {
                    Some(class) => {
                        let address = self.allocate_small(ct, target, class).await?;
                        address.map(|address| Block { address, bytes: block_bytes })
                    }
                    None => self.allocate_large(ct, target, block_bytes, compaction.free_chunks()).await?,
                };
                if let Some(block) = block {
                    self.allocated.set(self.allocated.get() + 1);
                    self.node(block.address).borrow_mut().add_live(block.bytes);
                    return Ok(block);
                }
            }
            if !compaction.run_attempt(ct).await? {
                let segments = (0..self.geometry.segments()).map(|segment| segment as u16).collect();
                tracing::warn!(size_bytes = bytes, "out of memory");
                return Err(Error::from(error::OutOfMemory { size_bytes: bytes, segments }));
            }
        }
    }

    /// A block of a class, on the target node alone.
    async fn allocate_small(&self, ct: &Worker, target: Target, class: Class) -> Result<Option<Address>> {
        loop {
            if self.has_surplus.get() || self.wants_page() {
                ct.flush_surplus().await?;
            }
            if let Some(address) = self.take_local(target.node, class) {
                return Ok(Some(address));
            }
            if !self.refill(ct, target, class).await? {
                return Ok(self.take_local(target.node, class));
            }
        }
    }

    /// Gets blocks for the thread's list. Returns `false` if the node has none.
    pub(crate) async fn refill(&self, ct: &Worker, target: Target, class: Class) -> Result<bool> {
        let node = target.node;
        if self.is_refilling.replace(true) {
            // Another task of the thread is refilling, and may get enough for both.
            ct.give_way().await;
            return Ok(true);
        }
        let _refilling = ResetOnDrop(&self.is_refilling);
        let _reports = ReportOnDrop(ct);
        if self.take_spare() {
            return Ok(true);
        }
        // Until the blocks are in a list: a sweep waits for guards.
        let _guard = ct.pinned();
        let segment = self.current_segment(node);
        let mut chain = ct.empty_chain();
        let head = chain.read(ct.pool_at(node, class), 1);
        let counts = chain.read(control::taken_chunks(segment), 2);
        let done = ct.submit(chain).await?;
        let (head, counts) = (done.word(head), [done.words(counts)[0], done.words(counts)[1]]);
        drop(done);
        if ct.take_page(node, class, head).await? {
            ct.reclaim_internal();
            return Ok(true);
        }
        let wanted =
            Wanted { class: Some(class), block_bytes: class.bytes(), free_chunks: FreeChunks::IfCounted };
        let run = ct.take_run(target, wanted, Some(counts)).await?;
        let Some(run) = run else { return Ok(false) };
        let (start, bytes) = self.grid.blocks(run.segment, run.first, class);
        self.process.known.learn(&self.grid, run.segment, run.first, Some(class));
        self.veto(start, bytes);
        self.nodes[usize::from(node)].borrow_mut().put_piece(class, Piece { start, bytes });
        Ok(true)
    }

    /// A block with chunks of its own, on the target node alone.
    async fn allocate_large(
        &self,
        ct: &Worker,
        target: Target,
        block_bytes: u64,
        free_chunks: FreeChunks,
    ) -> Result<Option<Block>> {
        ct.give_surplus();
        // Like in `refill`.
        let _guard = ct.pinned();
        let wanted = Wanted { class: None, block_bytes, free_chunks };
        let run = ct.take_run(target, wanted, None).await?;
        let block = run.map(|run| self.grid.large(run, self.grid.large_align(block_bytes)));
        if let Some(block) = block {
            self.veto(block.address, block.bytes);
        }
        Ok(block)
    }

    /// The segment that the next chunk comes from.
    fn current_segment(&self, node: u16) -> u16 {
        self.geometry.segments_of(node).start + self.nodes[usize::from(node)].borrow().current_segment
    }

    /// Removes a block of the library's own from the counts of objects.
    pub(crate) fn uncount(&self, block: Block) {
        self.allocated.set(self.allocated.get() - 1);
        self.node(block.address).borrow_mut().add_live(block.bytes.wrapping_neg());
    }
}

/// Reports the bytes that the thread holds, whether a refill has succeeded or not.
struct ReportOnDrop<'a>(&'a Worker);

impl Drop for ReportOnDrop<'_> {
    fn drop(&mut self) {
        self.0.report_held_bytes();
    }
}

struct ResetOnDrop<'a>(&'a std::cell::Cell<bool>);

impl Drop for ResetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}
