//! A thread's heap: blocks of far memory without a header and, in the common case, without a round trip.
//!
//! | free memory | amount | costs of an access |
//! |---|---|---|
//! | a thread's own lists, by memory node and [class](crate::segment::classes) | about two pages' worth of each class, and a chunk | no round trip |
//! | the [pool](super::pool) on its memory node | the surplus | three round trips for some 250 blocks |
//! | free [chunks](crate::segment::grid) | | three round trips |
//!
//! A thread [allocates](super::allocation) from its lists, then from the pool, then from a free chunk. It frees to its lists, also objects that
//! another thread allocated. Surplus blocks go to the pool, posted and not waited for. An allocation that finds no memory requests all threads
//! to return their free blocks before it fails: [`compaction`](super::compaction).

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use super::cache::{NodeCache, Spare, page_words};
use super::holdings::{Holdings, Tracking};
use super::image::Images;
use super::placement::{Policy, SegmentOrder, Target};
use super::pool::PageSupply;
use super::process::Process;
use super::registry::{Registry, refused};
use super::sweep_barrier::Handshake;
use crate::epoch::{BlockKind, Run};
use crate::error::{PointerFault, Result};
use crate::segment::classes::Class;
use crate::segment::grid::{ChunkRun, Grid};
use farfield_sim::ObjectType;
use farfield_sim::Watch;
use farfield_words::Address;
use farfield_words::Block;
use farfield_words::geometry::Geometry;
use farfield_words::{Remote, WORD_BYTES};

/// The free blocks of a thread.
pub(crate) struct ThreadHeap {
    pub(crate) registry: Arc<Registry>,
    pub(crate) process: Arc<Process>,
    pub(crate) geometry: Geometry,
    pub(crate) grid: Grid,
    pub(crate) nodes: Vec<RefCell<NodeCache>>,
    pub(super) policy: Policy,
    /// The target of the policy, if it is always the same.
    pub(super) fixed_target: Option<Target>,
    pub(super) next_node: Cell<u16>,
    /// The thread's own memory node.
    pub(super) own_node: u16,
    /// The words of a page of the pool, and the class of its block.
    pub(crate) page_words: usize,
    pub(crate) page_class: Class,
    /// True if there may be blocks or chunks to return.
    pub(crate) has_surplus: Cell<bool>,
    pub(super) page_supply: Cell<PageSupply>,
    /// True while a task of the thread gets blocks.
    pub(super) is_refilling: Cell<bool>,
    /// The last request to return memory that the thread has served.
    pub(super) served_requests: Cell<u64>,
    /// A buffer for a page.
    pub(super) page: Cell<Vec<u64>>,
    pub(crate) images: Images,
    /// Objects that may not be reachable from any root.
    pub(crate) holdings: Holdings,
    /// Objects allocated and freed by this thread.
    pub(crate) allocated: Cell<u64>,
    pub(crate) freed: Cell<u64>,
    /// The simulator's books of objects.
    pub(crate) watch: Option<Watch>,
    /// True if the simulator watches objects, or if another process may sweep. Otherwise no change of an object is reported.
    pub(crate) is_observed: bool,
    pub(crate) thread: u32,
    /// Dropped last: by then the process has taken over the thread's blocks.
    pub(crate) handshake: Handshake,
}

impl ThreadHeap {
    pub(crate) fn new(
        registry: Arc<Registry>,
        process: Arc<Process>,
        geometry: Geometry,
        policy: Policy,
        (thread, process_index): (usize, usize),
        watch: Option<Watch>,
    ) -> Self {
        let grid = Grid::new(geometry);
        let page_words = page_words(grid.chunk_bytes());
        let first_segment = (thread % usize::from(geometry.segments_per_node())) as u16;
        let own_node = (process_index % usize::from(geometry.nodes())) as u16;
        let is_swept = process.member().is_some() && process.sweep_barrier.is_enabled();
        let fixed_target = match policy {
            Policy::LocalRoundRobin => Some(Target { node: own_node, segments: SegmentOrder::Rotating }),
            Policy::LocalModulo => Some(Target::on(own_node)),
            Policy::GlobalRoundRobin if geometry.nodes() == 1 => Some(Target::on(0)),
            _ => None,
        };
        Self {
            registry,
            served_requests: Cell::new(process.requests()),
            holdings: Holdings::new(if is_swept { Tracking::On } else { Tracking::Off }),
            is_observed: is_swept || watch.is_some(),
            handshake: Handshake::new(&process),
            process,
            geometry,
            grid,
            nodes: (0..geometry.nodes()).map(|_| RefCell::new(NodeCache::new(first_segment))).collect(),
            policy,
            own_node,
            fixed_target,
            next_node: Cell::new((thread % usize::from(geometry.nodes())) as u16),
            page_words,
            page_class: Class::of((page_words * WORD_BYTES) as u64)
                .expect("a page is smaller than half a chunk"),
            has_surplus: Cell::default(),
            page_supply: Cell::default(),
            is_refilling: Cell::default(),
            page: Cell::default(),
            images: Images::default(),
            allocated: Cell::new(0),
            freed: Cell::new(0),
            watch,
            thread: thread as u32,
        }
    }

    pub(crate) fn segment_bytes(&self) -> u64 {
        self.geometry.segment_bytes()
    }

    /// A block from the thread's own lists.
    #[inline]
    pub(crate) fn take_local(&self, node: u16, class: Class) -> Option<Address> {
        self.nodes[usize::from(node)].borrow_mut().take(class)
    }

    /// The thread's free blocks on the node of an address.
    #[inline]
    pub(crate) fn node(&self, address: Address) -> &RefCell<NodeCache> {
        match &self.nodes[..] {
            // One node needs no division.
            [only] => only,
            nodes => &nodes[usize::from(self.geometry.node_of(address.segment()))],
        }
    }

    /// The thread's free blocks on a node.
    #[inline]
    pub(super) fn node_at(&self, node: u16) -> &RefCell<NodeCache> {
        match &self.nodes[..] {
            [only] => only,
            nodes => &nodes[usize::from(node)],
        }
    }

    /// Reports a new object to the simulator, or to the registry.
    #[inline]
    pub(crate) fn note_allocated<T: Remote>(&self, block: Block, bytes: usize) {
        if !self.is_observed || self.watch.is_none() {
            self.registry.allocated(block.address);
        } else {
            self.note_block(
                block.address,
                bytes as u64,
                ObjectType { name: T::NAME, fields: T::FIELDS, is_object: true },
            );
        }
    }

    /// Reports to the simulator that a block holds data of this type.
    pub(crate) fn note_block(&self, at: Address, bytes: u64, kind: ObjectType) {
        if let Some(watch) = &self.watch {
            watch.allocated(self.thread, at, bytes, kind);
        }
    }

    // ---- freeing -------------------------------------------------------------------------------------------------

    /// Checks that the program may free an object.
    ///
    /// # Errors
    /// [`Error::InvalidPointer`](crate::Error::InvalidPointer) if the object is known to be freed or retired.
    #[inline(always)]
    #[allow(clippy::inline_always)] // the size is often a constant of a type
    pub(crate) fn check_deletion(&self, block: Block) -> Result<()> {
        if self.watch.is_some() {
            return Ok(());
        }
        if let Some(class) = self.grid.class_of(block.bytes)
            && self.node(block.address).borrow().ends_with(class, block.address)
        {
            return Err(refused(block.address, PointerFault::NoObject));
        }
        self.registry.check_deletion(block.address)
    }

    /// Checks that the program may retire an object. `is_last` is true if it is the one that the thread retired last.
    ///
    /// # Errors
    /// Like [`ThreadHeap::check_deletion`].
    #[inline]
    pub(crate) fn check_retirement(&self, block: Block, is_last: bool) -> Result<()> {
        if self.watch.is_some() {
            return Ok(());
        }
        if is_last {
            return Err(refused(block.address, PointerFault::Retired));
        }
        self.registry.note_retirement(block.address)
    }

    /// Reports to the simulator that a block is in limbo until the epoch is `expires`.
    #[inline]
    pub(crate) fn note_retired(&self, block: Block, expires: u64) {
        if let Some(watch) = &self.watch {
            watch.retired(self.thread, block.address, expires);
        }
    }

    /// Frees an object's block. No round trip.
    #[inline(always)]
    #[allow(clippy::inline_always)] // the size is often a constant of a type
    pub(crate) fn free(&self, block: Block) {
        if self.is_observed {
            self.veto_freed(block);
        }
        self.registry.freed(block.address);
        self.freed.set(self.freed.get() + 1);
        self.take_back(block, block.bytes);
    }

    /// Frees the block of an object that was never published. No round trip.
    #[cold]
    pub(crate) fn free_unpublished(&self, block: Block) {
        self.free(block);
    }

    /// Frees the blocks of a run. No round trip.
    pub(crate) fn free_run(&self, run: &Run) {
        if self.is_observed {
            return run.blocks().for_each(|(block, kind)| match kind {
                BlockKind::Object => self.free(block),
                BlockKind::Internal => self.put(block),
            });
        }
        let is_near = |one: Address, other: Address| {
            self.nodes.len() == 1
                || self.geometry.node_of(one.segment()) == self.geometry.node_of(other.segment())
        };
        for (blocks, bytes, kind) in run.same(is_near) {
            let mut node = self.node(blocks[0].address).borrow_mut();
            if kind == BlockKind::Object {
                for block in blocks {
                    self.registry.freed(block.address);
                }
                node.add_live((blocks.len() as u64 * bytes).wrapping_neg());
            }
            match self.grid.class_of(bytes) {
                Some(class) => self.note_kept(node.put_all(class, blocks.iter().map(|block| block.address))),
                None => blocks.iter().for_each(|block| self.put_large(&mut node, Block { bytes, ..*block })),
            }
        }
        self.freed.set(self.freed.get() + run.objects() as u64);
    }

    /// Remembers that a list has more blocks than the thread keeps.
    #[inline]
    fn note_kept(&self, blocks: usize) {
        if blocks > self.max_cached_blocks() {
            self.has_surplus.set(true);
        }
    }

    /// Frees a block of the library's own.
    pub(crate) fn put(&self, block: Block) {
        self.take_back(block, 0);
    }

    /// Puts a free block into the thread's lists. `live` of its bytes were counted as live.
    #[inline(always)]
    #[allow(clippy::inline_always)] // as above
    fn take_back(&self, block: Block, live: u64) {
        if !self.is_observed || !self.observe_freed(block, live) {
            self.put_into(&mut self.node(block.address).borrow_mut(), block, live);
        }
    }

    /// Reports a free block to the simulator. Returns whether the block is in quarantine.
    #[cold]
    fn observe_freed(&self, block: Block, live: u64) -> bool {
        self.note_freed(block.address);
        let is_in_quarantine = self.put_in_quarantine(block);
        if is_in_quarantine {
            self.node(block.address).borrow_mut().add_live(live.wrapping_neg());
        }
        is_in_quarantine
    }

    #[inline(always)]
    #[allow(clippy::inline_always)] // the size is often a constant of the type
    fn put_into(&self, node: &mut NodeCache, block: Block, live: u64) {
        node.add_live(live.wrapping_neg());
        let Some(class) = self.grid.class_of(block.bytes) else { return self.put_large(node, block) };
        self.note_kept(node.put(class, block.address));
    }

    #[cold]
    fn put_large(&self, node: &mut NodeCache, block: Block) {
        node.runs.extend(self.grid.run_of(block));
        self.has_surplus.set(true);
    }

    /// Puts a free block into quarantine, if the simulator has one.
    fn put_in_quarantine(&self, block: Block) -> bool {
        self.watch.as_ref().is_some_and(|watch| watch.quarantines())
            && self.process.quarantine(&self.grid, self.geometry.node_of(block.address.segment()), block)
    }

    /// The number of free blocks of a class that the thread keeps.
    #[inline]
    pub(crate) fn max_cached_blocks(&self) -> usize {
        2 * self.page_words
    }

    /// Reports to the simulator that a block is free.
    #[inline]
    pub(crate) fn note_freed(&self, at: Address) {
        if let Some(watch) = &self.watch {
            watch.freed(self.thread, at);
        }
    }

    /// Adds chunks to those to be returned.
    pub(crate) fn give_run(&self, run: ChunkRun) {
        self.veto(self.grid.start(run.segment, run.first), run.chunks * self.grid.chunk_bytes());
        let node = self.geometry.node_of(run.segment);
        self.nodes[usize::from(node)].borrow_mut().runs.push(run);
        self.has_surplus.set(true);
    }

    /// Puts the blocks of ended threads of the process into this thread's lists. Returns `false` if there were none.
    pub(crate) fn take_spare(&self) -> bool {
        let spare = self.process.take_spare();
        self.veto_spare(&spare);
        let found = !spare.is_empty();
        for (node, class, block) in spare.blocks {
            self.nodes[usize::from(node)].borrow_mut().put(class, block);
        }
        for (node, class, piece) in spare.pieces {
            self.nodes[usize::from(node)].borrow_mut().put_piece(class, piece);
        }
        for (node, run) in spare.runs {
            self.nodes[usize::from(node)].borrow_mut().runs.push(run);
        }
        for (node, live) in spare.live {
            let mut cache = self.nodes[usize::from(node)].borrow_mut();
            cache.live = cache.live.wrapping_add(live);
        }
        self.has_surplus.set(self.has_surplus.get() | found);
        found
    }
}

impl Drop for ThreadHeap {
    /// Passes the thread's blocks to the other threads of its process.
    fn drop(&mut self) {
        let mut spare = Spare::default();
        for (node, cache) in self.nodes.iter_mut().enumerate() {
            cache.get_mut().drain(node as u16, &mut spare);
        }
        self.holdings.hand_over(&self.process);
        self.process.give_spare(spare);
    }
}
