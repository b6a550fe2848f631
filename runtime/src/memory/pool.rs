//! The pool: free blocks in far memory, for any thread of any process.
//!
//! A memory node has a list of *pages* for each class, its head in the node's first segment. A page is a block whose first
//! word leads to the next page and whose other words are the addresses of free blocks. So some 250 blocks come and go with
//! one page: giving is one chain, the page's WRITE and the head's CAS, posted and not waited for; taking is a READ of the
//! head, a READ of the page and a CAS, one after the other.
//!
//! It is Treiber's stack, and what makes a pop of it safe is what the pool serves: a thread that takes a page holds a guard
//! from before it reads the head until its CAS is done, and a page that was taken is *retired*, not freed. So no page that a
//! thread has seen at the head can come back there before that thread is done: if the CAS succeeds, what was read is true.
//!
//! The linearization points are the two CASes. A page has an eighth of a chunk, 2 KiB at most. Blocks of that size and more are
//! their own pages; for smaller ones a page is a block of another class, or, where memory is short, one of themselves with
//! as many addresses as it has room for.
//!
//! A link or an entry that leads to no block of its class is [corrupted](crate::Error::Corrupted), and so is a list that leads back to
//! itself. The page stays where it is, and whoever needs blocks of that class is told.
//!
//! A thread that ends or whose future is dropped leaves nothing behind: whoever finds the completion takes in what it brings.

use super::cache::{Batch, free_blocks};
use super::heap::ThreadHeap;
use super::worker::Worker;
use crate::error::Result;
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
const MEMBER: u64 = 1;

const PAGE: ObjectType = ObjectType::internal("page of free blocks");

/// What a page lists.
pub(crate) struct Page {
    pub(crate) at: Address,
    pub(crate) is_member: bool,
    pub(crate) words: Vec<u64>,
}

impl Page {
    /// The link to the next one.
    pub(crate) fn next(&self) -> u64 {
        self.words[0]
    }

    pub(crate) fn entries(&self) -> &[u64] {
        &self.words[1..]
    }
}

/// Looks whether what a page lists can be blocks of a class on a memory node.
fn check_entries(grid: &Grid, node: u16, class: Class, page: Address, entries: &[u64]) -> Result<()> {
    let can_be = |at| grid.is_on_node(at, node) && grid.begins_block(at, class);
    match free_blocks(grid, class, entries).position(|(at, _)| !can_be(at)) {
        None => Ok(()),
        Some(index) => {
            let what = format!("page[{index}] of free blocks of {} bytes", class.bytes());
            let at = page.add(((index + 1) * WORD_BYTES) as u64);
            Err(corrupted_as(what, at, entries[index], "no such block can be there"))
        }
    }
}

impl ThreadHeap {
    /// Blocks to give to the pool, if there are too many.
    pub(crate) fn next_batch(&self) -> Option<Batch> {
        let all = self.gives_all.get();
        let keep = if all { 0 } else { self.keeps() };
        for (node, cache) in self.nodes.iter().enumerate() {
            let mut cache = cache.borrow_mut();
            let Some(class) = cache.surplus(keep) else { continue };
            let has_room = class.words() >= self.page_words;
            // Where memory is short, a page of another class would keep that one's chunk from becoming free.
            let is_own = has_room || self.is_short.get();
            let page = if is_own { None } else { cache.take(self.page_class) };
            if page.is_some() {
                self.lacks_pages.set(false);
            } else if !has_room && !all && !self.lacks_pages.get() {
                // Its blocks have no room for a page; one will be had when there is an occasion to wait for it.
                self.wants_page.set(Some(node as u16));
                continue;
            }
            let is_member = page.is_none();
            let room = if is_member { class.words().min(self.page_words) } else { self.page_words };
            let page = page.or_else(|| cache.take(class))?;
            let mut words = self.page.take();
            cache.fill(class, room - 1, all, &mut words);
            return Some(Batch { node: node as u16, class, page, is_member, words });
        }
        None
    }

    /// Whether there are more small blocks than fit in a few pages made of themselves, and no page for them.
    pub(crate) fn has_many_blocks(&self, node: u16) -> bool {
        self.nodes[usize::from(node)].borrow_mut().lacks_page(self.page_class)
    }

    /// Takes back what did not get to the pool.
    pub(crate) fn put_batch(&self, batch: &Batch) {
        let mut cache = self.nodes[usize::from(batch.node)].borrow_mut();
        let class = if batch.is_member { batch.class } else { self.page_class };
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

    /// Gives back what is surplus, without waiting.
    #[inline]
    pub(crate) fn give_surplus(&self) {
        if self.heap().has_surplus.get() {
            self.give_now();
        }
    }

    #[cold]
    fn give_now(&self) {
        let heap = self.heap();
        while heap.has_surplus.replace(false) {
            self.give_runs();
            while let Some(batch) = heap.next_batch() {
                self.give_batch(batch);
            }
        }
        heap.gives_all.set(false);
        self.say_held_bytes();
    }

    fn give_batch(&self, batch: Batch) {
        let head = self.pool_at(batch.node, batch.class);
        let link = batch.page.bits() | if batch.is_member { MEMBER } else { 0 };
        let seen = {
            let mut cache = self.heap().nodes[usize::from(batch.node)].borrow_mut();
            // What this thread posts next comes after it.
            std::mem::replace(&mut cache.class(batch.class).head, link)
        };
        let bytes = if batch.is_member { batch.class } else { self.heap().page_class }.bytes();
        self.heap().note_page(batch.page, bytes, PAGE);
        let mut batch = batch;
        batch.words[0] = seen;
        let mut chain = self.empty_chain();
        chain.set_of_allocator();
        chain.write(batch.page, &batch.words);
        let slot = chain.compare_exchange(head, seen, link);
        self.submit_detached(chain, move |ct, done| {
            // Where the outcome is not known the blocks may be there: they are lost, not given twice.
            let Some(done) = done else { return };
            let found = done.word(&slot);
            if found != seen {
                ct.heap().nodes[usize::from(batch.node)].borrow_mut().class(batch.class).head = found;
                ct.heap().forget_page(batch.page);
                ct.heap().put_batch(&batch);
            }
            ct.heap().page.set(batch.words);
        });
    }

    /// Takes a page from the pool, whose list had this head a moment ago, under a guard; gives whether there was one. Two round
    /// trips if there was, otherwise none.
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
                let found = done.word(&slot);
                if found == seen {
                    ct.heap().veto_blocks(class, page.entries());
                    let mut cache = ct.heap().nodes[usize::from(node)].borrow_mut();
                    cache.class(class).head = next;
                    cache.put_entries(&ct.heap().grid, class, page.entries());
                    drop(cache);
                    ct.retire_page(class, page.at, page.is_member);
                }
                found
            });
            head = found.await?;
            if head == seen {
                return Ok(true);
            }
        }
    }

    /// The page that a link leads to, on a memory node. One READ.
    pub(crate) async fn read_page(&self, node: u16, class: Class, link: u64) -> Result<Page> {
        let heap = self.heap();
        let (at, is_member) = (Address::from_bits(link & !MEMBER), link & MEMBER != 0);
        let of_page = if is_member { class } else { heap.page_class };
        if !heap.grid.is_on_node(at, node) || !heap.grid.begins_block(at, of_page) {
            let what = format!("pool of {} bytes", class.bytes());
            return Err(corrupted_as(
                what,
                self.pool_at(node, class),
                link,
                "no page can be where its list leads",
            ));
        }
        let words = heap.page_words.min(of_page.words());
        let words = self.read_words(at, words, |words| Ok(words.to_vec())).await?;
        check_entries(&heap.grid, node, class, at, &words[1..])?;
        Ok(Page { at, is_member, words })
    }

    /// A page is off its list: its block may be used again once nobody can be reading it.
    pub(crate) fn retire_page(&self, class: Class, at: Address, is_member: bool) {
        let class = if is_member { class } else { self.heap().page_class };
        self.retire_block(Block { address: at, bytes: class.bytes() });
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
