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
use super::placement::Policy;
use super::pool::PageSupply;
use super::process::Process;
use super::registry::{Registry, refused};
use super::sweep_barrier::Handshake;
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
    /// Unused buffers for the images of unpublished objects.
    images: RefCell<Vec<Vec<u64>>>,
    /// Objects that may not be reachable from any root.
    pub(crate) holdings: Holdings,
    /// Objects allocated and freed by this thread.
    pub(crate) allocated: Cell<u64>,
    pub(crate) freed: Cell<u64>,
    /// The simulator's books of objects.
    pub(crate) watch: Option<Watch>,
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
        Self {
            registry,
            served_requests: Cell::new(process.requests()),
            holdings: Holdings::new(if process.member().is_some() && process.sweep_barrier.is_enabled() {
                Tracking::On
            } else {
                Tracking::Off
            }),
            handshake: Handshake::new(&process),
            process,
            geometry,
            grid,
            nodes: (0..geometry.nodes()).map(|_| RefCell::new(NodeCache::new(first_segment))).collect(),
            policy,
            own_node: (process_index % usize::from(geometry.nodes())) as u16,
            next_node: Cell::new((thread % usize::from(geometry.nodes())) as u16),
            page_words,
            page_class: Class::of((page_words * WORD_BYTES) as u64)
                .expect("a page is smaller than half a chunk"),
            has_surplus: Cell::default(),
            page_supply: Cell::default(),
            is_refilling: Cell::default(),
            page: Cell::default(),
            images: RefCell::default(),
            allocated: Cell::new(0),
            freed: Cell::new(0),
            watch,
            thread: thread as u32,
        }
    }

    pub(crate) fn segment_bytes(&self) -> u64 {
        self.geometry.segment_bytes()
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

    /// A block from the thread's own lists.
    #[inline]
    pub(crate) fn take_local(&self, node: u16, class: Class) -> Option<Address> {
        self.nodes[usize::from(node)].borrow_mut().take(class)
    }

    /// The thread's free blocks on the node of an address.
    #[inline]
    pub(crate) fn node(&self, address: Address) -> &RefCell<NodeCache> {
        // One node needs no division.
        let node = if self.nodes.len() == 1 { 0 } else { self.geometry.node_of(address.segment()) };
        &self.nodes[usize::from(node)]
    }

    /// Reports a new object to the simulator, or to the registry.
    #[inline]
    pub(crate) fn note_allocated<T: Remote>(&self, block: Block, bytes: usize) {
        if self.watch.is_some() {
            self.note_block(
                block.address,
                bytes as u64,
                ObjectType { name: T::NAME, fields: T::FIELDS, is_object: true },
            );
        } else {
            self.registry.allocated(block.address);
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
    pub(crate) fn check_deletion(&self, block: Block) -> Result<()> {
        if self.watch.is_some() {
            return Ok(());
        }
        if let Some(class) = self.grid.class_of(block.bytes)
            && self.node(block.address).borrow_mut().ends_with(class, block.address)
        {
            return Err(refused(block.address, PointerFault::NoObject));
        }
        self.registry.check_deletion(block.address)
    }

    /// Checks that the program may retire an object after `last`.
    ///
    /// # Errors
    /// Like [`ThreadHeap::check_deletion`].
    pub(crate) fn check_retirement(&self, block: Block, last: Option<Block>) -> Result<()> {
        if self.watch.is_some() {
            return Ok(());
        }
        if last == Some(block) {
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
    pub(crate) fn free(&self, block: Block) {
        self.veto_freed(block);
        self.registry.freed(block.address);
        self.freed.set(self.freed.get() + 1);
        self.take_back(block, block.bytes);
    }

    /// Frees a block of the library's own.
    pub(crate) fn put(&self, block: Block) {
        self.take_back(block, 0);
    }

    /// Puts a free block into the thread's lists. `live` of its bytes were counted as live.
    fn take_back(&self, block: Block, live: u64) {
        self.note_freed(block.address);
        let mut node = self.node(block.address).borrow_mut();
        node.add_live(live.wrapping_neg());
        if self.put_in_quarantine(block) {
            return;
        }
        let is_surplus = if let Some(class) = self.grid.class_of(block.bytes) {
            node.put(class, block.address) > self.max_cached_blocks()
        } else {
            node.runs.extend(self.grid.run_of(block));
            true
        };
        if is_surplus {
            self.has_surplus.set(true);
        }
    }

    /// Puts a free block into quarantine, if the simulator has one.
    #[inline]
    fn put_in_quarantine(&self, block: Block) -> bool {
        self.watch.as_ref().is_some_and(|watch| watch.quarantines())
            && self.process.quarantine(&self.grid, self.geometry.node_of(block.address.segment()), block)
    }

    /// The number of free blocks of a class that the thread keeps.
    pub(crate) fn max_cached_blocks(&self) -> usize {
        2 * self.page_words
    }

    /// Reports to the simulator that a block is free.
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
