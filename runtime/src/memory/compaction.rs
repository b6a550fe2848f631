//! Compaction: attempts to free memory before an allocation fails.
//!
//! Free memory may be in the lists of other threads, in the garbage of any thread, or in blocks of the wrong size. So a thread that finds none
//! 1. requests all threads to return their free blocks: the threads of its process by a counter in local memory, which they compare when they
//!    pin, allocate and wait, and other processes by a counter beside the epoch, which each reads in its next step;
//! 2. returns its own free blocks, and tries to reclaim, also the limbo lists of ended threads of its process: in a run or client
//!    that does not end, no other thread takes them over;
//! 3. in some attempts *coalesces* blocks: it takes all pages off the pool's lists, adds up the blocks of each chunk, and frees the chunks
//!    whose blocks are all free;
//!
//! and tries the allocation again, a bounded number of times, with waits in between.
//!
//! Coalescing changes the use of a chunk, and processes cache the uses of chunks. So a chunk is *retired* before it is free: it is marked, a
//! counter beside the epoch is incremented, and it waits in limbo until the epoch has advanced twice. By then every process has read that counter
//! together with a later epoch, and cleared its cache.

use std::collections::HashMap;
use std::time::Duration;

use super::chunks::FreeChunks;
use super::pool::{Page, PageBlock};
use super::worker::Worker;
use crate::error::Result;
use crate::io::Purpose;
use crate::io::Retry;
use crate::io::operations::*;
use crate::segment::classes::{CLASSES, Class};
use crate::segment::control;
use crate::segment::grid::Use;
use crate::segment::walk::Walk;
use farfield_sim::ObjectType;
use farfield_words::Address;
use farfield_words::Block;

/// The number of attempts of a thread that is alone and has no garbage.
const ATTEMPTS_ALONE: u32 = 8;
/// The minimum number of attempts of any other thread.
const ATTEMPTS: u32 = 256;
/// The minimum time of its attempts, on fabrics with real time: a thread that holds memory or a guard may have to wait for a processor.
const PATIENCE: Duration = Duration::from_millis(100);
/// The number of consecutive coalescings that may find no chunk: blocks that one coalescing frees may complete a chunk for the next one.
const MAX_FRUITLESS: u32 = 3;
/// The number of attempts per coalescing.
const ATTEMPTS_PER_COALESCING: u32 = 16;

/// An allocation that finds no memory.
pub(crate) struct Compaction<'a> {
    attempts: u32,
    began: Duration,
    /// The number of consecutive coalescings without a free chunk.
    fruitless: u32,
    backoff: Retry<'a, Worker>,
}

impl<'a> Compaction<'a> {
    pub(crate) fn new(ct: &'a Worker) -> Self {
        Self { attempts: 0, began: Duration::ZERO, fruitless: 0, backoff: Retry::for_holder(ct) }
    }

    /// After a failed attempt the counts of free chunks are not trusted.
    pub(crate) fn free_chunks(&self) -> FreeChunks {
        if self.attempts > 0 { FreeChunks::Everywhere } else { FreeChunks::IfCounted }
    }

    /// Makes an attempt to free memory. Returns whether the allocation should be tried again.
    pub(crate) async fn run_attempt(&mut self, ct: &Worker) -> Result<bool> {
        let attempt = self.attempts;
        self.attempts += 1;
        if attempt == 0 {
            ct.ask_for_memory();
            self.began = ct.time();
        }
        // Each simulated process has epochs of its own, so the tags of another's limbo lists are meaningless to it.
        if ct.io.endpoint.virtual_time().is_none() {
            ct.take_orphans();
        }
        ct.try_reclaim().await;
        ct.give_everything_on_listed();
        ct.wait_for_detached().await;
        // Blocks that one coalescing frees, above all pages, complete further chunks for the next one.
        let again = attempt > 0 && self.fruitless < MAX_FRUITLESS && !ct.has_garbage();
        if attempt % ATTEMPTS_PER_COALESCING == 1 || again {
            let mut chunks = 0;
            for node in 0..ct.heap().geometry.nodes() {
                chunks += ct.coalesce(node).await?;
            }
            self.fruitless = if chunks > 0 { 0 } else { self.fruitless + 1 };
        }
        let is_one_thread = ct.process.member().is_none() && ct.is_only_thread();
        let is_alone = is_one_thread && !ct.has_garbage() && !again;
        let is_patient =
            ct.io.endpoint.virtual_time().is_none() && ct.time().saturating_sub(self.began) < PATIENCE;
        if attempt >= if is_alone { ATTEMPTS_ALONE } else { ATTEMPTS } && (is_alone || !is_patient) {
            return Ok(false);
        }
        self.backoff.wait_a_round_trip_for(Purpose::Memory).await;
        Ok(true)
    }
}

/// The number of the last answered request of a thread that always has something to look for: no request has it.
pub(crate) const ALWAYS: u64 = u64::MAX;

impl Worker {
    /// Requests all threads to return their free blocks.
    #[cold]
    fn ask_for_memory(&self) {
        if self.process.ask_for_memory() {
            let mut chain = self.empty_chain();
            chain.fetch_add(control::requests_for_memory(), 1);
            self.submit_detached(chain, |_, _| ());
        }
    }

    /// Returns the thread's free blocks if there is a new request, and acknowledges sweeps.
    #[inline]
    pub(crate) fn check_requests(&self) {
        self.check_for_sweep();
        self.free_eagerly();
        let requests = self.process.requests();
        if requests != self.heap().served_requests.get() {
            self.answer_request(requests);
        }
    }

    /// Also called for every thread with a service, which has no number of a request: so other threads need no look for one.
    #[cold]
    fn answer_request(&self, requests: u64) {
        if let Some(service) = self.service.get() {
            service.round(self);
            self.heap().served_requests.set(ALWAYS);
            if self.answered.replace(requests) == requests {
                return;
            }
        } else {
            self.heap().served_requests.set(requests);
        }
        self.process.end_quarantine();
        let epoch = self.advance_epoch();
        self.free_expired(epoch);
        self.give_everything();
    }

    /// Retires the chunks of a memory node whose blocks are all in the pool. Returns their number.
    async fn coalesce(&self, node: u16) -> Result<usize> {
        let _guard = self.pinned();
        let segments = self.heap().geometry.segments_of(node);
        let first = control::pool_head(segments.start, 0);
        let mut chunks = 0;
        let heads = self.read_words(first, CLASSES, |words| Ok(words.to_vec())).await?;
        for (index, head) in heads.into_iter().enumerate().filter(|(_, head)| *head != 0) {
            let Some(class) = Class::from_index(index) else { continue };
            let pages = self.take_all_pages(node, class, head).await?;
            chunks += self.retire_whole_chunks(node, class, pages).await?;
        }
        self.give_everything_on_listed();
        Ok(chunks)
    }

    /// Takes all pages off a list.
    async fn take_all_pages(&self, node: u16, class: Class, mut head: u64) -> Result<Vec<Page>> {
        let at = self.pool_at(node, class);
        // Read before the CAS: the successor of a page does not change while this thread is pinned and the page is on the list.
        loop {
            let (mut pages, mut walk) = (Vec::new(), Walk::new());
            let mut link = head;
            while link != 0 {
                let page = self.read_page(node, class, link).await?;
                walk.visit_address(page.at)?;
                link = page.next();
                pages.push(page);
            }
            let (seen, mut chain) = (head, self.empty_chain());
            let slot = chain.compare_exchange(at, seen, 0);
            let taken = self.submit_or(
                chain,
                move |ct, done| {
                    let found = done.word(slot);
                    if found != seen {
                        return Err(found);
                    }
                    for page in &pages {
                        ct.heap().veto_blocks(class, page.entries());
                    }
                    Ok(pages)
                },
                move |ct, taken: std::result::Result<Vec<Page>, u64>| {
                    for page in taken.into_iter().flatten() {
                        ct.absorb_page(node, class, page);
                    }
                },
            );
            match taken.await? {
                Ok(pages) => return Ok(pages),
                Err(found) => head = found,
            }
        }
    }

    /// Puts a page's blocks into the thread's lists, and retires the page.
    fn absorb_page(&self, node: u16, class: Class, page: Page) {
        let mut cache = self.heap().nodes[usize::from(node)].borrow_mut();
        cache.put_entries(&self.heap().grid, class, page.entries());
        drop(cache);
        self.retire_page(class, &page);
    }

    /// Retires the chunks whose blocks are all in `pages`, and puts the other blocks into the thread's lists. Returns the number of chunks.
    async fn retire_whole_chunks(&self, node: u16, class: Class, pages: Vec<Page>) -> Result<usize> {
        let grid = self.heap().grid;
        let mut free: HashMap<(u16, u64), u64> = HashMap::new();
        let mut count = |at: Address, bytes| {
            if let Some(chunk) = grid.chunk_of(at) {
                *free.entry((at.segment(), chunk)).or_default() += bytes;
            }
        };
        for page in &pages {
            if page.block == PageBlock::Listed {
                count(page.at, class.bytes());
            }
            for (at, bytes) in super::cache::free_blocks(&grid, class, page.entries()) {
                count(at, bytes);
            }
        }
        free.retain(|(segment, chunk), bytes| *bytes == grid.blocks(*segment, *chunk, class).1);
        let is_whole =
            |at: Address| grid.chunk_of(at).is_some_and(|chunk| free.contains_key(&(at.segment(), chunk)));
        for mut page in pages {
            let is_kept = |entry: &u64| !is_whole(Address::from_bits(*entry));
            page.words = [0].into_iter().chain(page.entries().iter().copied().filter(is_kept)).collect();
            if page.block == PageBlock::Listed && is_whole(page.at) {
                self.heap().note_freed(page.at);
                self.heap().nodes[usize::from(node)].borrow_mut().put_entries(&grid, class, page.entries());
            } else {
                self.absorb_page(node, class, page);
            }
        }
        let mut whole: Vec<_> = free.into_keys().collect();
        whole.sort_unstable();
        let chunks = whole.len();
        if whole.is_empty() {
            return Ok(0);
        }
        let mut blocks = Vec::with_capacity(chunks);
        for (segment, chunk) in whole {
            let block = Block { address: grid.start(segment, chunk), bytes: grid.chunk_bytes() };
            // Other threads may still read pages in it.
            self.heap().note_block(block.address, block.bytes, ObjectType::internal("chunk"));
            self.heap().process.known.learn(&grid, segment, chunk, None);
            let mut chain = self.empty_chain();
            chain.write(self.heap().grid.word(segment, chunk), &[Use::Large(1).to_word()]);
            self.submit_detached(chain, |_, _| ());
            blocks.push(block);
        }
        let mut chain = self.empty_chain();
        chain.fetch_add(control::coalesced_chunks(), 1);
        let retire = move |ct: &Self, _: &_| blocks.into_iter().for_each(|block| ct.retire_block(block));
        self.submit_and(chain, retire).await?;
        Ok(chunks)
    }
}
