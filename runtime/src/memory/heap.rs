//! A thread's heap: blocks of far memory without a header and, in the common case, without a round trip.
//!
//! | where free memory is | how much | how it is reached |
//! |---|---|---|
//! | a thread's own lists, by memory node and [class](super::classes) | about two pages' worth of each class, and a chunk | no round trip |
//! | the [pool](super::pool) on its memory node | what is more | three round trips for some 250 blocks |
//! | [chunks](super::grid) that are free | | three round trips |
//!
//! A thread allocates from its lists, then from the pool, then from a free chunk. It frees to its lists, whoever allocated the
//! object; what is more than it should keep goes to the pool, posted and not waited for. When there is nothing left
//! anywhere, everyone is asked to give back what they keep, before anybody is told so: [`compaction`](super::compaction).

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use super::cache::{NodeCache, Spare, page_words};
use super::compaction::Compaction;
use super::holdings::Holdings;
use super::placement::{Placement, Policy};
use super::process::Process;
use super::registry::{Registry, refused};
use super::sweep_barrier::Listener;
use super::worker::Worker;
use crate::error::{self, Error, PointerFault, Result};
use crate::io::operations::*;
use crate::segment::classes::{Class, MAX_ALIGN};
use crate::segment::grid::{Grid, Run, Use};
use farfield_sim::ObjectType;
use farfield_sim::Watch;
use farfield_words::Address;
use farfield_words::Block;
use farfield_words::geometry::Geometry;
use farfield_words::{Remote, WORD_BYTES};
use rand::RngExt;

/// One thread's blocks.
pub(crate) struct ThreadHeap {
    pub(crate) registry: Arc<Registry>,
    pub(crate) process: Arc<Process>,
    pub(crate) geometry: Geometry,
    pub(crate) grid: Grid,
    pub(crate) nodes: Vec<RefCell<NodeCache>>,
    policy: Policy,
    next_node: Cell<u16>,
    /// The thread's own memory node.
    own_node: u16,
    /// Words of a page of the pool, and their class.
    pub(crate) page_words: usize,
    pub(crate) page_class: Class,
    /// Whether there is anything to give to the pool, and whether that is everything.
    pub(crate) has_surplus: Cell<bool>,
    pub(crate) gives_all: Cell<bool>,
    /// A node on which a page is wanted.
    pub(crate) wants_page: Cell<Option<u16>>,
    /// Whether the thread is short of memory itself.
    pub(crate) is_short: Cell<bool>,
    /// Whether none was to be had, so that blocks are listed in each other.
    pub(crate) lacks_pages: Cell<bool>,
    /// Whether a task of the thread is getting memory.
    pub(crate) is_refilling: Cell<bool>,
    /// The last request to give memory back that the thread has heard.
    pub(crate) heard: Cell<u64>,
    /// A buffer for a page.
    pub(crate) page: Cell<Vec<u64>>,
    /// Buffers for the images of unpublished objects, kept for the next.
    images: RefCell<Vec<Vec<u64>>>,
    /// Objects that no root may lead to.
    pub(crate) holdings: Holdings,
    /// Objects allocated and freed by this thread.
    pub(crate) allocated: Cell<u64>,
    pub(crate) freed: Cell<u64>,
    /// The simulator, which knows each object.
    pub(crate) watch: Option<Watch>,
    pub(crate) thread: u32,
    /// Last: when it goes everything has been left to the process.
    pub(crate) listener: Listener,
}

impl ThreadHeap {
    pub(crate) fn new(
        registry: Arc<Registry>,
        process: Arc<Process>,
        geometry: Geometry,
        policy: Policy,
        (thread, number_of_process): (usize, usize),
        watch: Option<Watch>,
    ) -> Self {
        let grid = Grid::new(geometry);
        let page_words = page_words(grid.chunk_bytes());
        let turn = (thread % usize::from(geometry.segments_per_node())) as u16;
        Self {
            registry,
            heard: Cell::new(process.requests()),
            holdings: Holdings::new(process.shared.is_some() && process.sweep_barrier.may_be_asked()),
            listener: Listener::new(&process),
            process,
            geometry,
            grid,
            nodes: (0..geometry.nodes()).map(|_| RefCell::new(NodeCache::new(turn))).collect(),
            policy,
            own_node: (number_of_process % usize::from(geometry.nodes())) as u16,
            next_node: Cell::new((thread % usize::from(geometry.nodes())) as u16),
            page_words,
            page_class: Class::of((page_words * WORD_BYTES) as u64)
                .expect("a page is smaller than half a chunk"),
            has_surplus: Cell::default(),
            gives_all: Cell::default(),
            wants_page: Cell::default(),
            lacks_pages: Cell::default(),
            is_short: Cell::default(),
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

    // ---- allocation --------------------------------------------------------------------------------------------

    /// A block for `bytes` bytes aligned to `align`, at a [place](Self::place).
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if no segment of any node can serve it, [`Error::InvalidAllocation`] if none ever could.
    pub(crate) async fn allocate(
        &self,
        ct: &Worker,
        at: (u16, bool),
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
        Box::pin(self.allocate_slowly(ct, at, bytes, block_bytes)).await
    }

    /// As [`allocate`](Self::allocate), if the thread's own lists on the node `at` can serve it.
    #[inline]
    pub(crate) fn allocate_at_once(&self, at: (u16, bool), bytes: u64, align: u64) -> Option<Block> {
        let bytes = self.grid.block_bytes(bytes, align);
        let address = self.take_for_object(at.0, self.grid.class_of(bytes)?)?;
        Some(Block { address, bytes })
    }

    #[cold]
    async fn allocate_slowly(
        &self,
        ct: &Worker,
        (first, rotate): (u16, bool),
        bytes: u64,
        block_bytes: u64,
    ) -> Result<Block> {
        let class = self.grid.class_of(block_bytes);
        let mut compaction = Compaction::new(ct);
        loop {
            for offset in 0..self.geometry.nodes() {
                // Wide enough: a node's number and the number of nodes are below 2^16.
                let node = ((u32::from(first) + u32::from(offset)) % u32::from(self.geometry.nodes())) as u16;
                let block = match class {
                    Some(class) => {
                        let address = self.allocate_small(ct, node, class, rotate).await?;
                        address.map(|address| Block { address, bytes: block_bytes })
                    }
                    None => self.allocate_large(ct, node, block_bytes, rotate, compaction.is_felt()).await?,
                };
                if let Some(block) = block {
                    return Ok(self.allocated(block));
                }
            }
            if !compaction.relieve(ct).await? {
                let segments = (0..self.geometry.segments()).map(|segment| segment as u16).collect();
                tracing::warn!(size_bytes = bytes, "out of memory");
                return Err(Error::from(error::OutOfMemory { size_bytes: bytes, segments }));
            }
        }
    }

    /// Which memory node to try first, and whether to take chunks from its segments in turn.
    #[inline]
    pub(crate) fn place(&self, ct: &Worker, at: Placement) -> (u16, bool) {
        let nodes = self.geometry.nodes();
        let by = |policy| match policy {
            Policy::Random => ct.rng().random_range(0..nodes),
            Policy::GlobalRoundRobin => {
                let node = self.next_node.get();
                self.next_node.set(if node + 1 == nodes { 0 } else { node + 1 });
                node
            }
            Policy::GlobalModulo => (self.thread % u32::from(nodes)) as u16,
            Policy::LocalRoundRobin | Policy::LocalModulo => self.own_node,
        };
        let policy = match at {
            Placement::Default => self.policy,
            Placement::By(policy) => policy,
            Placement::Near(address) => return (self.geometry.node_of(address.segment()) % nodes, false),
            Placement::Node(node) => return (node % nodes, false),
        };
        (by(policy), policy == Policy::LocalRoundRobin)
    }

    /// A block from the thread's own lists, for an object.
    #[inline]
    fn take_for_object(&self, node: u16, class: Class) -> Option<Address> {
        let mut cache = self.nodes[usize::from(node)].borrow_mut();
        let address = cache.take(class)?;
        cache.live = cache.live.wrapping_add(class.bytes());
        self.allocated.set(self.allocated.get() + 1);
        Some(address)
    }

    fn allocated(&self, block: Block) -> Block {
        self.allocated.set(self.allocated.get() + 1);
        self.node(block.address).borrow_mut().add_live(block.bytes);
        block
    }

    /// A block is not for an object after all.
    pub(crate) fn disown(&self, block: Block) {
        self.allocated.set(self.allocated.get() - 1);
        self.node(block.address).borrow_mut().add_live(block.bytes.wrapping_neg());
    }

    /// A block from the thread's own lists.
    #[inline]
    pub(crate) fn take_local(&self, node: u16, class: Class) -> Option<Address> {
        self.nodes[usize::from(node)].borrow_mut().take(class)
    }

    /// What a thread holds of the node that an address is on.
    #[inline]
    pub(crate) fn node(&self, address: Address) -> &RefCell<NodeCache> {
        // With one node there is nothing to divide.
        let node = if self.nodes.len() == 1 { 0 } else { self.geometry.node_of(address.segment()) };
        &self.nodes[usize::from(node)]
    }

    /// Tells the simulator what a new block is for.
    #[inline]
    pub(crate) fn note_allocated<T: Remote>(&self, block: Block, bytes: usize) {
        if self.watch.is_some() {
            self.note_page(
                block.address,
                bytes as u64,
                ObjectType { name: T::NAME, fields: T::FIELDS, is_object: true },
            );
        } else {
            self.registry.allocated(block.address);
        }
    }

    /// Tells the simulator of memory that is used, if not for an object.
    pub(crate) fn note_page(&self, at: Address, bytes: u64, kind: ObjectType) {
        if let Some(watch) = &self.watch {
            watch.allocated(self.thread, at, bytes, kind);
        }
    }

    // ---- what becomes of objects ---------------------------------------------------------------------------------

    /// Whether an object may be freed by its user.
    ///
    /// # Errors
    /// [`Error::InvalidPointer`] if the object is known not to be one, or to be retired.
    pub(crate) fn check_deletion(&self, block: Block) -> Result<()> {
        if self.watch.is_some() {
            return Ok(());
        }
        if let Some(class) = self.grid.class_of(block.bytes)
            && self.node(block.address).borrow_mut().ends_with(class, block.address)
        {
            return Err(refused(block.address, PointerFault::NoObject));
        }
        self.registry.deletes(block.address)
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
        self.registry.retires(block.address)
    }

    /// Tells the simulator that a block is in limbo until the epoch is `expires`.
    #[inline]
    pub(crate) fn note_retired(&self, block: Block, expires: u64) {
        if let Some(watch) = &self.watch {
            watch.retired(self.thread, block.address, expires);
        }
    }

    /// Takes an object's block back. No round trip.
    pub(crate) fn free(&self, block: Block) {
        self.gives_up(block);
        self.registry.freed(block.address);
        self.freed.set(self.freed.get() + 1);
        self.take_back(block, block.bytes);
    }

    /// Takes a block back that was no object's.
    pub(crate) fn put(&self, block: Block) {
        self.take_back(block, 0);
    }

    /// Takes a block back of which some bytes were an object's.
    fn take_back(&self, block: Block, live: u64) {
        self.forget_page(block.address);
        let mut node = self.node(block.address).borrow_mut();
        node.add_live(live.wrapping_neg());
        if self.is_quarantined(block) {
            return;
        }
        let is_surplus = if let Some(class) = self.grid.class_of(block.bytes) {
            node.put(class, block.address) > self.keeps()
        } else {
            node.runs.extend(self.grid.run_of(block));
            true
        };
        if is_surplus {
            self.has_surplus.set(true);
        }
    }

    /// Keeps a free block out of use, if the simulator wants that.
    #[inline]
    fn is_quarantined(&self, block: Block) -> bool {
        self.watch.as_ref().is_some_and(|watch| watch.quarantines())
            && self.process.quarantine(&self.grid, self.geometry.node_of(block.address.segment()), block)
    }

    /// How many free blocks of a class the thread keeps.
    pub(crate) fn keeps(&self) -> usize {
        2 * self.page_words
    }

    /// Tells the simulator that memory is not used that was no object's.
    pub(crate) fn forget_page(&self, at: Address) {
        if let Some(watch) = &self.watch {
            watch.freed(self.thread, at);
        }
    }

    /// Chunks that are not needed.
    pub(crate) fn give_run(&self, run: Run) {
        self.veto(self.grid.start(run.segment, run.first), run.chunks * self.grid.chunk_bytes());
        let node = self.geometry.node_of(run.segment);
        self.nodes[usize::from(node)].borrow_mut().runs.push(run);
        self.has_surplus.set(true);
    }

    /// Takes in what ended threads of the process have left; gives whether there was anything.
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

    // ---- addresses -----------------------------------------------------------------------------------------------

    /// The class of the blocks around an address, if the process knows it.
    #[inline]
    pub(crate) fn known_class(&self, at: Address) -> Option<Class> {
        self.process.known.class(at.segment(), self.grid.chunk_of(at)?)
    }

    /// The block that begins at `at`. One READ if the process does not know the chunk.
    pub(crate) async fn look_up(&self, ct: &Worker, at: Address) -> Result<Block> {
        let none = || refused(at, PointerFault::NoObject);
        let chunk = self.grid.chunk_of(at).ok_or_else(none)?;
        let usage = if let Some(class) = self.known_class(at) {
            Use::Small(class)
        } else {
            let word = ct.read_word(self.grid.word(at.segment(), chunk)).await?;
            self.grid.usage(at.segment(), chunk, word)?
        };
        match usage {
            Use::Small(class) if self.grid.begins_block(at, class) => {
                self.process.known.learn(&self.grid, at.segment(), chunk, Some(class));
                Ok(Block { address: at, bytes: class.bytes() })
            }
            Use::Large(chunks) => {
                let run = Run { segment: at.segment(), first: chunk, chunks };
                let align = self.grid.large_align(at.offset());
                let block = self.grid.large(run, align);
                if block.address == at { Ok(block) } else { Err(none()) }
            }
            _ => Err(none()),
        }
    }

    /// Whether `address` can be an object's: inside a segment and past its control structures.
    pub(crate) fn check(&self, address: Address, bytes: u64) -> Result<()> {
        let fault = if address.is_null() {
            PointerFault::Null
        } else if u32::from(address.segment()) >= self.geometry.segments() {
            PointerFault::NoSegment { segments: self.geometry.segments() }
        } else if address.offset() < self.grid.origin(address.segment())
            || address.offset().saturating_add(bytes) > self.grid.limit(address.segment())
        {
            PointerFault::PastSegment { size_bytes: self.geometry.segment_bytes() }
        } else {
            return Ok(());
        };
        Err(Error::from(error::InvalidPointer { address, fault }))
    }
}

impl Drop for ThreadHeap {
    /// The thread is gone; what it held is for the others of its process.
    fn drop(&mut self) {
        let mut spare = Spare::default();
        for (node, cache) in self.nodes.iter_mut().enumerate() {
            cache.get_mut().drain(node as u16, &mut spare);
        }
        self.holdings.leave(&self.process);
        self.process.give_spare(spare);
    }
}
