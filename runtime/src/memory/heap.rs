//! A thread's heap: blocks of far memory without a header and, in the common case, without a round trip.
//!
//! A thread takes a *chunk* of a segment with one FAA on the segment's bump counter and cuts blocks off it. Freed
//! blocks go to the thread's own lists, by memory node and size, and from there to new objects of that size. Surplus
//! goes to the process's [`Pool`] and is taken from there before a new chunk.
//!
//! Sizes are rounded up so that a block's alignment is the largest power of two that divides its size; a block of a
//! type aligned to 64 bytes is simply one whose size is a multiple of 64. So size alone names a list.
//!
//! When an FAA takes the counter past the end of its segment, the thread whose chunk straddles the end owns what is left
//! before it; nobody else does, so nothing is lost and nothing is handed out twice.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;

use super::pool::{Piece, Pool};
use super::registry::refused;
use super::site::{Placement, Policy};
use crate::cluster::ComputeThread;
use crate::cluster::control::{self, CONTROL_BYTES, HEADER_BYTES};
use crate::error::{self, Error, PointerFault, Result};
use crate::fabric::host::Geometry;
use crate::layout::{Remote, WORD_BYTES};
use crate::pointer::{Address, RemotePtr};
use crate::sim::blocks::Kind;
use crate::sim::watch::Watch;
use rand::RngExt;

/// Blocks up to this size have a list of their own for each multiple of 8.
const SMALL_BYTES: u64 = 512;
const SMALL_CLASSES: usize = (SMALL_BYTES / WORD_BYTES as u64) as usize;
/// The largest alignment that blocks can have; chunks are aligned to it.
pub(crate) const MAX_ALIGN: u64 = 4096;
/// How many free blocks of a size a thread keeps before it gives half of them to the pool.
const KEEP_BLOCKS: usize = 256;
/// How many blocks a thread takes from the pool at a time.
const TAKE_BLOCKS: usize = 64;

/// How often a thread whose garbage may be all that fills the memory tries to have it freed before it gives up.
const ATTEMPTS: u32 = 256;

/// A block: where it is and how large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) address: Address,
    pub(crate) bytes: u64,
}

impl Block {
    /// The block that the object behind `ptr` is in. One READ if `T` has a tail.
    pub(crate) async fn of<T: Remote>(ptr: RemotePtr<T>, ct: &ComputeThread) -> Result<Self> {
        let mut bytes = T::SIZE as u64;
        if T::TAIL_STRIDE > 0 {
            let length = ct.read_word(ptr.address().add(T::TAIL_OFFSET as u64)).await?;
            bytes = bytes.saturating_add(length.saturating_mul(T::TAIL_STRIDE as u64));
        }
        let address = ptr.address();
        ct.heap().check(address, bytes)?;
        if !address.bits().is_multiple_of(T::ALIGN as u64) {
            let fault = PointerFault::Misaligned { align: T::ALIGN as u32 };
            return Err(Error::from(error::InvalidPointer { address, fault }));
        }
        Ok(Self { address, bytes: class_bytes(bytes, T::ALIGN as u64) })
    }
}

/// The size of the blocks that serve objects of `bytes` bytes aligned to `align`.
pub(crate) fn class_bytes(bytes: u64, align: u64) -> u64 {
    let granule = if bytes <= SMALL_BYTES {
        WORD_BYTES as u64
    } else {
        // Four sizes to each doubling.
        (bytes.next_power_of_two() / 8).min(MAX_ALIGN)
    };
    bytes.max(1).next_multiple_of(granule.max(align))
}

/// The alignment that every block of a size has.
fn block_align(block_bytes: u64) -> u64 {
    (1 << block_bytes.trailing_zeros()).min(MAX_ALIGN)
}

/// One thread's blocks.
pub(crate) struct ThreadHeap {
    pool: Arc<Pool>,
    geometry: Geometry,
    chunk_bytes: u64,
    nodes: Vec<RefCell<NodeHeap>>,
    policy: Policy,
    next_node: Cell<u16>,
    /// The thread's own memory node.
    own_node: u16,
    /// Buffers for the images of unpublished objects, kept for the next.
    images: RefCell<Vec<Vec<u64>>>,
    /// Objects allocated and freed by this thread.
    pub(crate) allocated: Cell<u64>,
    pub(crate) freed: Cell<u64>,
    /// The simulator, which knows each object.
    watch: Option<Watch>,
    thread: u32,
}

/// What a thread holds of one memory node.
struct NodeHeap {
    small: [Vec<Address>; SMALL_CLASSES],
    large: HashMap<u64, Vec<Address>>,
    chunk: Piece,
    /// The segment (of this node) to take the next chunk from, unless it is full.
    turn: u16,
    /// Segments that have no chunk left; empty before the first chunk.
    full: Vec<bool>,
}

impl NodeHeap {
    fn list(&mut self, block_bytes: u64) -> &mut Vec<Address> {
        if block_bytes <= SMALL_BYTES {
            &mut self.small[(block_bytes / WORD_BYTES as u64) as usize - 1]
        } else {
            self.large.entry(block_bytes).or_default()
        }
    }

    /// Cuts a block off the chunk.
    fn cut(&mut self, block_bytes: u64) -> Option<Address> {
        let start = self.chunk.start;
        let padding = self.chunk.padding(block_align(block_bytes));
        let used = padding + block_bytes;
        if self.chunk.bytes < used {
            return None;
        }
        self.chunk = Piece { start: start.add(used), bytes: self.chunk.bytes - used };
        Some(start.add(padding))
    }
}

impl ThreadHeap {
    pub(crate) fn new(
        pool: Arc<Pool>,
        geometry: Geometry,
        policy: Policy,
        thread: usize,
        process: usize,
        watch: Option<Watch>,
    ) -> Self {
        let empty = || NodeHeap {
            small: [const { Vec::new() }; SMALL_CLASSES],
            large: HashMap::new(),
            chunk: Piece { start: Address::NULL, bytes: 0 },
            turn: (thread % usize::from(geometry.segments_per_node)) as u16,
            full: Vec::new(),
        };
        Self {
            pool,
            geometry,
            // Large enough to make an FAA rare, small enough that a few threads do not use up a small segment.
            chunk_bytes: (geometry.segment_bytes / 64).next_power_of_two().clamp(1024, 64 * 1024),
            nodes: (0..geometry.nodes).map(|_| RefCell::new(empty())).collect(),
            policy,
            own_node: (process % usize::from(geometry.nodes)) as u16,
            next_node: Cell::new((thread % usize::from(geometry.nodes)) as u16),
            images: RefCell::default(),
            allocated: Cell::new(0),
            freed: Cell::new(0),
            watch,
            thread: thread as u32,
        }
    }

    pub(crate) fn segment_bytes(&self) -> u64 {
        self.geometry.segment_bytes
    }

    /// Zeroed words for an object's image, from a buffer used before if there is one.
    pub(crate) fn take_image(&self, words: usize) -> Vec<u64> {
        let mut image = self.images.borrow_mut().pop().unwrap_or_default();
        image.clear();
        image.resize(words, 0);
        image
    }

    pub(crate) fn return_image(&self, image: Vec<u64>) {
        let mut images = self.images.borrow_mut();
        if images.len() < 8 {
            images.push(image);
        }
    }

    /// A block for `bytes` bytes aligned to `align`.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if no segment of any node can serve it, [`Error::InvalidAllocation`] if none ever could.
    pub(crate) async fn allocate(
        &self,
        ct: &ComputeThread,
        at: Placement,
        bytes: u64,
        align: u64,
    ) -> Result<Block> {
        let impossible = |reason| Error::from(error::InvalidAllocation { size_bytes: bytes, reason });
        if align > MAX_ALIGN {
            return Err(impossible("its alignment is over 4096 bytes"));
        }
        if bytes > self.geometry.segment_bytes {
            return Err(impossible("an object may not be larger than a segment"));
        }
        let block_bytes = class_bytes(bytes, align);
        let by = |policy| match policy {
            Policy::Random => ct.rng().random_range(0..self.geometry.nodes),
            Policy::GlobalRoundRobin => {
                let node = self.next_node.get();
                self.next_node.set(if node + 1 == self.geometry.nodes { 0 } else { node + 1 });
                node
            }
            Policy::GlobalModulo => (self.thread % u32::from(self.geometry.nodes)) as u16,
            Policy::LocalRoundRobin | Policy::LocalModulo => self.own_node,
        };
        let rotate = matches!(at, Placement::By(Policy::LocalRoundRobin))
            || (at == Placement::Default && self.policy == Policy::LocalRoundRobin);
        let first = match at {
            Placement::Default => by(self.policy),
            Placement::By(policy) => by(policy),
            Placement::Near(address) => self.geometry.node_of(address.segment()) % self.geometry.nodes,
            Placement::Node(node) => node % self.geometry.nodes,
        };
        for attempt in 0..=ATTEMPTS {
            for offset in 0..self.geometry.nodes {
                // Wide enough: a node's number and the number of nodes are below 2^16.
                let node = ((u32::from(first) + u32::from(offset)) % u32::from(self.geometry.nodes)) as u16;
                if let Some(address) = self.allocate_on(ct, node, block_bytes, rotate).await? {
                    self.allocated.set(self.allocated.get() + 1);
                    return Ok(Block { address, bytes: block_bytes });
                }
            }
            // What this thread has retired may only wait for another thread to go on.
            if attempt == ATTEMPTS || !ct.has_garbage() {
                break;
            }
            ct.try_reclaim().await;
            ct.yield_now().await;
        }
        let segments = (0..self.geometry.segments()).map(|segment| segment as u16).collect();
        Err(Error::from(error::OutOfMemory { size_bytes: bytes, segments }))
    }

    async fn allocate_on(
        &self,
        ct: &ComputeThread,
        node: u16,
        block_bytes: u64,
        rotate: bool,
    ) -> Result<Option<Address>> {
        if let Some(address) = self.take_local(node, block_bytes) {
            return Ok(Some(address));
        }
        {
            let mut heap = self.nodes[usize::from(node)].borrow_mut();
            let list = heap.list(block_bytes);
            self.pool.take(node, block_bytes, TAKE_BLOCKS, list);
            if let Some(address) = list.pop() {
                return Ok(Some(address));
            }
        }
        let wanted = self.chunk_bytes.max(block_bytes + block_align(block_bytes));
        while let Some(chunk) = self.take_chunk(ct, node, wanted, rotate).await? {
            self.replace_chunk(node, chunk);
            if let Some(address) = self.take_local(node, block_bytes) {
                return Ok(Some(address));
            }
        }
        // The segments are used up; what is left are pieces.
        while let Some(piece) = self.pool.take_piece(node, block_bytes, block_align(block_bytes)) {
            self.replace_chunk(node, piece);
            if let Some(address) = self.take_local(node, block_bytes) {
                return Ok(Some(address));
            }
        }
        Ok(None)
    }

    /// A block from the thread's own list or chunk.
    #[inline]
    fn take_local(&self, node: u16, block_bytes: u64) -> Option<Address> {
        let mut heap = self.nodes[usize::from(node)].borrow_mut();
        heap.list(block_bytes).pop().or_else(|| heap.cut(block_bytes))
    }

    /// Makes `chunk` the one to cut from; the rest of the old one goes to the pool.
    fn replace_chunk(&self, node: u16, chunk: Piece) {
        let old = std::mem::replace(&mut self.nodes[usize::from(node)].borrow_mut().chunk, chunk);
        // A piece must not come back to the thread that just found it too small.
        if old.bytes >= WORD_BYTES as u64 {
            self.pool.give_piece(node, old);
        }
    }

    /// A chunk of `bytes` bytes, or what is left of a segment of the node: one FAA for each segment tried. With `rotate` the
    /// next chunk comes from the next segment.
    async fn take_chunk(
        &self,
        ct: &ComputeThread,
        node: u16,
        bytes: u64,
        rotate: bool,
    ) -> Result<Option<Piece>> {
        let segments = self.geometry.segments_per_node;
        loop {
            let segment = {
                let mut heap = self.nodes[usize::from(node)].borrow_mut();
                heap.full.resize(usize::from(segments), false);
                let in_turn =
                    (0..segments).map(|step| (u32::from(heap.turn) + u32::from(step)) % u32::from(segments));
                let Some(segment) =
                    in_turn.map(|segment| segment as u16).find(|at| !heap.full[usize::from(*at)])
                else {
                    return Ok(None);
                };
                heap.turn = if rotate { (segment + 1) % segments } else { segment };
                segment
            };
            let id = node * segments + segment;
            let start = ct.fetch_add_word(control::bump_of(id), bytes).await?;
            let end = self.geometry.segment_bytes;
            if start.saturating_add(bytes) >= end {
                // Full, or about to be: the next chunk comes from another.
                self.nodes[usize::from(node)].borrow_mut().full[usize::from(segment)] = true;
            }
            if start < end {
                return Ok(Some(Piece { start: Address::new(id, start), bytes: bytes.min(end - start) }));
            }
        }
    }

    /// Fresh memory, never used before and so all zero, for a part of the control block that grows.
    pub(crate) async fn take_page(&self, ct: &ComputeThread, bytes: u64) -> Result<Address> {
        match self.take_chunk(ct, 0, bytes, false).await? {
            Some(page) if page.bytes == bytes => {
                if let Some(watch) = &self.watch {
                    watch.allocated(
                        self.thread,
                        page.start,
                        bytes,
                        Kind { name: "epoch slots", fields: &[] },
                    );
                }
                Ok(page.start)
            }
            _ => Err(Error::from(error::OutOfMemory { size_bytes: bytes, segments: vec![0] })),
        }
    }

    /// A page that is not needed after all.
    pub(crate) fn give_page_back(&self, start: Address, bytes: u64) {
        if let Some(watch) = &self.watch {
            watch.freed(self.thread, start);
        }
        self.pool.give_piece(0, Piece { start, bytes });
    }

    /// Tells the simulator what a new block is for.
    #[inline]
    pub(crate) fn note_allocated<T: Remote>(&self, block: Block, bytes: usize) {
        if let Some(watch) = &self.watch {
            let kind = Kind { name: T::NAME, fields: T::FIELDS };
            watch.allocated(self.thread, block.address, bytes as u64, kind);
        } else {
            self.pool.registry.allocated(block.address);
        }
    }

    /// Whether an object may be freed by its user.
    ///
    /// # Errors
    /// [`Error::InvalidPointer`] if the object is known not to be one, or to be retired.
    pub(crate) fn check_deletion(&self, block: Block) -> Result<()> {
        if self.watch.is_some() {
            return Ok(());
        }
        let node = self.geometry.node_of(block.address.segment());
        if self.nodes[usize::from(node)].borrow_mut().list(block.bytes).last() == Some(&block.address) {
            return Err(refused(block.address, PointerFault::NoObject));
        }
        self.pool.registry.deletes(block.address)
    }

    /// Whether an object may be retired after `last`.
    ///
    /// # Errors
    /// As [`ThreadHeap::check_deletion`].
    pub(crate) fn check_retirement(&self, block: Block, last: Option<Block>) -> Result<()> {
        if self.watch.is_some() {
            return Ok(());
        }
        if last == Some(block) {
            return Err(refused(block.address, PointerFault::Retired));
        }
        self.pool.registry.retires(block.address)
    }

    #[inline]
    pub(crate) fn note_retired(&self, block: Block) {
        if let Some(watch) = &self.watch {
            watch.retired(self.thread, block.address);
        }
    }

    /// Takes a block back. No round trip.
    pub(crate) fn free(&self, block: Block) {
        if let Some(watch) = &self.watch {
            watch.freed(self.thread, block.address);
        } else {
            self.pool.registry.freed(block.address);
        }
        self.freed.set(self.freed.get() + 1);
        let node = self.geometry.node_of(block.address.segment());
        let mut heap = self.nodes[usize::from(node)].borrow_mut();
        let list = heap.list(block.bytes);
        list.push(block.address);
        if list.len() > KEEP_BLOCKS {
            self.pool.give(node, block.bytes, list.drain(..KEEP_BLOCKS / 2));
        }
    }

    /// Whether `address` can be a block's: inside a segment and past its control block.
    pub(crate) fn check(&self, address: Address, bytes: u64) -> Result<()> {
        let fault = if address.is_null() {
            PointerFault::Null
        } else if u32::from(address.segment()) >= self.geometry.segments() {
            PointerFault::NoSegment { segments: self.geometry.segments() }
        } else if address.offset() < first_free(address.segment())
            || address.offset().saturating_add(bytes) > self.geometry.segment_bytes
        {
            PointerFault::PastSegment { size_bytes: self.geometry.segment_bytes }
        } else {
            return Ok(());
        };
        Err(Error::from(error::InvalidPointer { address, fault }))
    }
}

/// Where a segment's allocatable part begins.
pub(crate) fn first_free(segment: u16) -> u64 {
    if segment == 0 { CONTROL_BYTES } else { HEADER_BYTES }
}

impl Drop for ThreadHeap {
    /// The thread is gone; its blocks go to the pool.
    fn drop(&mut self) {
        for (node, heap) in self.nodes.iter_mut().enumerate() {
            let node = node as u16;
            let heap = heap.get_mut();
            for (class, list) in heap.small.iter_mut().enumerate() {
                if !list.is_empty() {
                    self.pool.give(node, (class as u64 + 1) * WORD_BYTES as u64, list.drain(..));
                }
            }
            for (block_bytes, list) in heap.large.drain() {
                self.pool.give(node, block_bytes, list);
            }
            if heap.chunk.bytes > 0 {
                self.pool.give_piece(node, heap.chunk);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn blocks_are_large_and_aligned_enough(bytes in 0_u64..1 << 20, align_log2 in 3_u32..13) {
            let align = 1 << align_log2;
            let block = class_bytes(bytes, align);
            proptest::prop_assert!(block >= bytes && block > 0);
            proptest::prop_assert!(block_align(block) >= align);
            proptest::prop_assert!(block <= (bytes + bytes / 4).max(8).next_multiple_of(align.max(8)));
            proptest::prop_assert_eq!(class_bytes(block, align), block, "a block's size is its own class");
        }
    }
}
