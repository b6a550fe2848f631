//! The pool: free blocks in far memory, for any thread of any process.
//!
//! A memory node has a list of *pages* for each class; the list's head is in the node's first segment. A page is a block whose first word
//! links to the next page and whose other words are the addresses of free blocks. So one page moves some 250 blocks. Pushing a page is one
//! chain, the page's WRITE and the head's CAS, posted and not waited for. Popping one is a READ of the head, a READ of the page and a CAS,
//! in sequence.
//!
//! It is Treiber's stack. Its pop is safe by the reclamation that the pool serves: a thread that takes a page holds a guard
//! from before it reads the head until its CAS is done, and a page that was taken is *retired*, not freed. So no page that a thread has seen
//! at the head can return there before the thread's CAS: if the CAS succeeds, the page's words are as they were read.
//!
//! The linearization points are the two CASes. A page has an eighth of a chunk, 2 KiB at most. Blocks of that size and more are
//! their own pages. For smaller ones a page is a block of another class or, where memory is short, one of themselves with
//! as many addresses as it has room for.
//!
//! A link or an entry that points to no block of its class is [corrupted](crate::Error::Corrupted), and so is a list with a cycle.
//! The page stays on the list, and each allocation that reads it fails with that error.
//!
//! A thread that ends or whose future is dropped loses no block: the completion's callback puts the page's blocks into the thread's lists.

use super::cache::{Batch, free_blocks};
use super::heap::ThreadHeap;
use super::placement::Target;
use super::worker::Worker;
use crate::error::Result;
use crate::io::Purpose;
use crate::io::Retry;
use crate::io::operations::*;
use crate::segment::classes::Class;
use crate::segment::control;
use crate::segment::decode::corrupted_as;
use crate::segment::grid::Grid;
use farfield_sim::ObjectType;
use farfield_words::Address;
use farfield_words::Block;
use farfield_words::WORD_BYTES;

/// In a link to a page: the page is one of the blocks that it lists.
const LISTED: u64 = 1;

const PAGE: ObjectType = ObjectType::internal("page of free blocks");

/// The largest number of consecutive chunks that a thread takes for pages.
const MAX_PAGE_CHUNKS: u32 = 8;
/// The number of times that an ending thread tries to return its blocks while other threads change the same lists.
const ATTEMPTS_TO_LEAVE: u32 = 8;

/// The blocks that a thread moves from its lists to the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Release {
    /// Those above the number that a thread keeps.
    Surplus,
    /// All.
    All,
    /// All, on pages that are blocks of the class that they list. Memory is short: a page of another class would keep its own chunk from
    /// becoming free.
    AllOnListed,
}

/// The block that a page is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageBlock {
    /// One of the free blocks that the page lists.
    Listed,
    /// A block of the class for pages.
    Separate,
}

/// The supply of separate blocks for pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum PageSupply {
    /// Pages are taken from the thread's own lists.
    #[default]
    Normal,
    /// Surplus blocks on this node wait for a page. The thread gets one where it can wait for it.
    Wanted(u16),
    /// No block for a page was found, so blocks are listed on one of themselves.
    Exhausted,
}

/// A page that was read.
pub(crate) struct Page {
    pub(crate) at: Address,
    pub(crate) block: PageBlock,
    pub(crate) words: Vec<u64>,
}

impl Page {
    /// The link to the next page.
    pub(crate) fn next(&self) -> u64 {
        self.words[0]
    }

    pub(crate) fn entries(&self) -> &[u64] {
        &self.words[1..]
    }
}

/// Checks that the entries of a page can be blocks of a class on a memory node.
fn check_entries(grid: &Grid, node: u16, class: Class, page: Address, entries: &[u64]) -> Result<()> {
    let bytes = class.bytes();
    let can_be = |at| grid.is_on_node(at, node) && grid.begins_block(at, bytes);
    match free_blocks(grid, class, entries).position(|(at, _)| !can_be(at)) {
        None => Ok(()),
        Some(index) => {
            let what = format!("page[{index}] of free blocks of {bytes} bytes");
            let at = page.add(((index + 1) * WORD_BYTES) as u64);
            Err(corrupted_as(what, at, entries[index], "no such block can be at this address"))
        }
    }
}

impl ThreadHeap {
    /// Takes the request for a page. Returns the node that surplus blocks wait on.
    #[inline]
    fn take_wanted_page(&self) -> Option<u16> {
        let PageSupply::Wanted(node) = self.page_supply.get() else { return None };
        self.page_supply.set(PageSupply::Normal);
        Some(node)
    }

    /// Returns whether [`Worker::flush_surplus`] has work to do.
    #[inline]
    pub(crate) fn has_to_flush(&self) -> bool {
        self.has_surplus.get() || self.wants_page()
    }

    /// Returns whether surplus blocks wait for a page.
    #[inline]
    pub(super) fn wants_page(&self) -> bool {
        matches!(self.page_supply.get(), PageSupply::Wanted(_))
    }

    /// The class of a page's block; the page lists blocks of `class`.
    pub(crate) fn class_of_page(&self, class: Class, block: PageBlock) -> Class {
        match block {
            PageBlock::Listed => class,
            PageBlock::Separate => self.page_class,
        }
    }

    /// The next blocks to move to the pool.
    fn next_batch(&self, release: Release) -> Option<Batch> {
        let keep = if release == Release::Surplus { self.max_cached_blocks() } else { 0 };
        for (node, cache) in self.nodes.iter().enumerate() {
            let mut cache = cache.borrow_mut();
            let Some(class) = cache.surplus(keep) else { continue };
            let has_room = class.words() >= self.page_words;
            let is_on_listed = has_room || release == Release::AllOnListed;
            let page = if is_on_listed { None } else { cache.take(self.page_class) };
            let supply = self.page_supply.get();
            if page.is_some() && supply == PageSupply::Exhausted {
                self.page_supply.set(PageSupply::Normal);
            } else if page.is_none()
                && !has_room
                && release == Release::Surplus
                && supply != PageSupply::Exhausted
            {
                self.page_supply.set(PageSupply::Wanted(node as u16));
                continue;
            }
            let block = if page.is_some() { PageBlock::Separate } else { PageBlock::Listed };
            let room = self.class_of_page(class, block).words().min(self.page_words);
            let page = page.or_else(|| cache.take(class))?;
            let mut words = self.page.take();
            cache.fill(class, room - 1, release, &mut words);
            return Some(Batch { node: node as u16, class, page, block, words });
        }
        None
    }

    /// Returns whether there are more small blocks than fit on a few listed pages, and no separate page.
    fn has_many_blocks(&self, node: u16) -> bool {
        self.nodes[usize::from(node)].borrow_mut().lacks_page(self.page_class)
    }

    /// Puts back blocks that did not get to the pool.
    fn put_batch(&self, batch: &Batch) {
        let mut cache = self.nodes[usize::from(batch.node)].borrow_mut();
        let class = self.class_of_page(batch.class, batch.block);
        self.veto(batch.page, class.bytes());
        self.veto_blocks(batch.class, &batch.words[1..]);
        cache.put(class, batch.page);
        cache.put_entries(&self.grid, batch.class, &batch.words[1..]);
        self.has_surplus.set(true);
    }
}

impl Worker {
    /// The head of a list of the pool.
    pub(crate) fn pool_at(&self, node: u16, class: Class) -> Address {
        control::pool(self.heap().geometry.segments_of(node).start, class)
    }

    /// Moves surplus blocks to the pool, without waiting.
    #[inline]
    pub(crate) fn give_surplus(&self) {
        if self.heap().has_surplus.get() {
            self.give_to_pool(Release::Surplus);
        }
    }

    /// Moves surplus blocks to the pool, and first gets a page for them if there is none. No round trip for most calls.
    #[inline]
    pub(crate) async fn flush_surplus(&self) -> Result<()> {
        self.give_surplus();
        if let Some(node) = self.heap().take_wanted_page() {
            // Most callers do without a page, and would drop the error of another chain.
            Box::pin(self.in_service(self.get_page(node))).await?;
        }
        Ok(())
    }

    /// Moves all blocks in the lists of this thread and of ended threads to the pool, without waiting.
    pub(crate) fn give_everything(&self) {
        self.heap().take_spare();
        self.give_to_pool(Release::All);
    }

    /// Like [`give_everything`](Self::give_everything), on pages that are blocks of the class that they list.
    pub(crate) fn give_everything_on_listed(&self) {
        self.process.end_quarantine();
        self.heap().take_spare();
        self.give_to_pool(Release::AllOnListed);
    }

    #[cold]
    fn give_to_pool(&self, release: Release) {
        let heap = self.heap();
        heap.has_surplus.set(true);
        // A CAS that fails puts its blocks back, so there may be surplus again.
        while heap.has_surplus.replace(false) {
            self.give_runs();
            while let Some(batch) = heap.next_batch(release) {
                self.give_batch(batch);
            }
        }
        self.report_held_bytes();
    }

    #[cold]
    async fn get_page(&self, node: u16) -> Result<()> {
        let mut node = Some(node);
        for _ in 0..MAX_PAGE_CHUNKS {
            let Some(on) = node else { break };
            let found = self.heap().refill(self, Target::on(on), self.heap().page_class).await?;
            self.heap().page_supply.set(if found { PageSupply::Normal } else { PageSupply::Exhausted });
            self.give_to_pool(Release::Surplus);
            node = self.heap().take_wanted_page();
        }
        Ok(())
    }

    /// Moves all blocks of a thread that ends to the pool, and waits until they are there. The other threads of the process take over blocks
    /// that do not get there.
    pub(crate) async fn release_heap(&self) {
        self.flush_live_bytes();
        for node in 0..self.heap().geometry.nodes() {
            if self.heap().has_many_blocks(node) {
                // On listed pages, each chain would move only a few of them.
                let _ = self.get_page(node).await;
            }
        }
        self.give_everything();
        self.wait_for_detached().await;
        let mut backoff = Retry::for_holder(self).bounded();
        for _ in 0..ATTEMPTS_TO_LEAVE {
            if !self.heap().has_surplus.get() {
                break;
            }
            backoff.wait_for(Purpose::Pool).await;
            self.give_everything();
            self.wait_for_detached().await;
        }
    }

    fn give_batch(&self, batch: Batch) {
        let head = self.pool_at(batch.node, batch.class);
        let link = batch.page.bits() | if batch.block == PageBlock::Listed { LISTED } else { 0 };
        let seen = {
            let mut cache = self.heap().nodes[usize::from(batch.node)].borrow_mut();
            // The thread's next page links to this one.
            std::mem::replace(&mut cache.class(batch.class).head, link)
        };
        let bytes = self.heap().class_of_page(batch.class, batch.block).bytes();
        self.heap().note_block(batch.page, bytes, PAGE);
        let mut batch = batch;
        batch.words[0] = seen;
        let mut chain = self.empty_chain();
        chain.set_of_allocator();
        chain.write(batch.page, &batch.words);
        let slot = chain.compare_exchange(head, seen, link);
        self.submit_detached(chain, move |ct, done| {
            // Without a known outcome the blocks may be in the pool: they are lost, not allocated twice.
            let Some(done) = done else { return };
            let found = done.word(slot);
            if found != seen {
                ct.heap().nodes[usize::from(batch.node)].borrow_mut().class(batch.class).head = found;
                ct.heap().note_freed(batch.page);
                ct.heap().put_batch(&batch);
            }
            ct.heap().page.set(batch.words);
        });
    }

    /// Takes a page from the pool. `head` is the list's head, which was read under the caller's guard. Returns `false` if the list is empty.
    /// Two round trips; none if the list is empty.
    pub(crate) async fn take_page(&self, node: u16, class: Class, mut head: u64) -> Result<bool> {
        let at = self.pool_at(node, class);
        loop {
            self.heap().nodes[usize::from(node)].borrow_mut().class(class).head = head;
            if head == 0 {
                return Ok(false);
            }
            let page = self.read_page(node, class, head).await?;
            let (next, seen) = (page.next(), head);
            let mut chain = self.empty_chain();
            chain.set_of_allocator();
            let slot = chain.compare_exchange(at, seen, next);
            let found = self.submit_and(chain, move |ct, done| {
                let found = done.word(slot);
                if found == seen {
                    ct.heap().veto_blocks(class, page.entries());
                    let mut cache = ct.heap().nodes[usize::from(node)].borrow_mut();
                    cache.class(class).head = next;
                    cache.put_entries(&ct.heap().grid, class, page.entries());
                    drop(cache);
                    ct.retire_page(class, &page);
                }
                found
            });
            head = found.await?;
            if head == seen {
                return Ok(true);
            }
        }
    }

    /// Reads the page that a link on a memory node points to. One READ.
    pub(crate) async fn read_page(&self, node: u16, class: Class, link: u64) -> Result<Page> {
        let heap = self.heap();
        let at = Address::from_bits(link & !LISTED);
        let block = if link & LISTED != 0 { PageBlock::Listed } else { PageBlock::Separate };
        let of_page = heap.class_of_page(class, block);
        if !heap.grid.is_on_node(at, node) || !heap.grid.begins_block(at, of_page.bytes()) {
            let what = format!("pool of {} bytes", class.bytes());
            return Err(corrupted_as(
                what,
                self.pool_at(node, class),
                link,
                "no page can be at this address",
            ));
        }
        let words = heap.page_words.min(of_page.words());
        let words = self.read_words(at, words, |words| Ok(words.to_vec())).await?;
        check_entries(&heap.grid, node, class, at, &words[1..])?;
        Ok(Page { at, block, words })
    }

    /// Retires a page that is off its list: other threads may still read it.
    pub(crate) fn retire_page(&self, class: Class, page: &Page) {
        let bytes = self.heap().class_of_page(class, page.block).bytes();
        self.retire_block(Block { address: page.at, bytes });
    }
}

/// Reads words as pages that list blocks of each class, and uses the blocks.
#[cfg(any(fuzzing, test))]
pub(crate) fn decode_any(grid: &Grid, words: &[u64]) {
    for class in (0..crate::segment::classes::CLASSES).filter_map(Class::from_index) {
        if grid.class_of(class.bytes()) == Some(class)
            && check_entries(grid, 0, class, Address::new(0, 1 << 15), words).is_ok()
        {
            for (at, bytes) in free_blocks(grid, class, words) {
                assert!(grid.has(at, bytes) && grid.chunk_of(at).is_some(), "{at}, {bytes} bytes");
            }
        }
    }
}
