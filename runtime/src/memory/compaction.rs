//! What is tried before anybody is told that memory is out.
//!
//! Free memory may be in the lists of other threads, in the garbage of any thread, or in blocks of the wrong size. A thread that
//! finds none therefore
//! 1. asks everyone to give back what they keep: the threads of its process by a counter of theirs, which they compare when they
//!    pin, allocate and wait, and other processes by a counter beside the epoch, which each reads with its next step;
//! 2. gives back what it keeps itself, and tries to reclaim, also what ended threads of its process have retired: where a run or a client
//!    goes on for ever, nobody else does;
//! 3. now and then *recuts*: takes all pages off the pool's lists, puts together what is in them, and makes free chunks of those
//!    that no block of is in use;
//!
//! and looks again, a bounded number of times, waiting in between.
//!
//! Recutting changes what a chunk is used for, and processes remember what chunks are used for. So a chunk is *retired* before it
//! is free: it is marked, a counter beside the epoch is raised, and it waits for the epoch to advance twice. By then every
//! process has read that counter together with a later epoch, and forgotten what it knew.

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

/// How often a thread looks again that is alone and has no garbage.
const ATTEMPTS_ALONE: u32 = 8;
/// How often any other does, at least.
const ATTEMPTS: u32 = 256;
/// For how long, at least, where time is real: a thread that holds memory or a guard may have to wait for a processor.
const PATIENCE: Duration = Duration::from_millis(20);
/// How often in a row recutting is tried though it finds nothing: what the last one freed may be what the next one needs.
const MOST_FRUITLESS_RECUTS: u32 = 3;
/// How many attempts there are to one recut.
const ATTEMPTS_PER_RECUT: u32 = 16;

/// An allocation that finds no memory.
pub(crate) struct Compaction<'a> {
    attempts: u32,
    began: Duration,
    /// How many of the last recuts have found nothing.
    fruitless_recuts: u32,
    backoff: Retry<'a, Worker>,
}

impl<'a> Compaction<'a> {
    pub(crate) fn new(ct: &'a Worker) -> Self {
        Self { attempts: 0, began: Duration::ZERO, fruitless_recuts: 0, backoff: Retry::for_holder(ct) }
    }

    /// Once an attempt has failed, counts of free chunks are not trusted.
    pub(crate) fn free_chunks(&self) -> FreeChunks {
        if self.attempts > 0 { FreeChunks::Everywhere } else { FreeChunks::IfCounted }
    }

    /// Tries to get memory freed; gives whether it is worth looking again.
    pub(crate) async fn relieve(&mut self, ct: &Worker) -> Result<bool> {
        let attempt = self.attempts;
        self.attempts += 1;
        if attempt == 0 {
            ct.ask_for_memory();
            self.began = ct.time();
        }
        // Simulated processes have epochs of their own, and another's tags mean nothing to them.
        if ct.io.endpoint.virtual_time().is_none() {
            ct.take_orphans();
        }
        ct.try_reclaim().await;
        ct.give_everything_on_listed();
        ct.wait_for_detached().await;
        // What one frees, pages above all, is what makes further chunks whole for the next.
        let again = attempt > 0 && self.fruitless_recuts < MOST_FRUITLESS_RECUTS && !ct.has_garbage();
        if attempt % ATTEMPTS_PER_RECUT == 1 || again {
            let mut chunks = 0;
            for node in 0..ct.heap().geometry.nodes() {
                chunks += ct.recut(node).await?;
            }
            self.fruitless_recuts = if chunks > 0 { 0 } else { self.fruitless_recuts + 1 };
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

impl Worker {
    /// Asks all threads to give back what they keep.
    #[cold]
    fn ask_for_memory(&self) {
        if self.process.ask_for_memory() {
            let mut chain = self.empty_chain();
            chain.fetch_add(control::requests_for_memory(), 1);
            self.submit_detached(chain, |_, _| ());
        }
    }

    /// Gives back what the thread keeps if it has been asked to since it last did; hears of sweeps, too.
    #[inline]
    pub(crate) fn hear_requests(&self) {
        self.hear_of_sweep();
        self.free_eagerly();
        let requests = self.process.requests();
        if requests != self.heap().served_requests.get() {
            self.answer_request(requests);
        }
    }

    #[cold]
    fn answer_request(&self, requests: u64) {
        self.heap().served_requests.set(requests);
        self.process.end_quarantine();
        let epoch = self.advance_epoch();
        self.free_expired(epoch);
        self.give_everything();
    }

    /// Makes free chunks of those that are cut into blocks none of which is in use; gives how many.
    async fn recut(&self, node: u16) -> Result<usize> {
        let _guard = self.pinned();
        let segments = self.heap().geometry.segments_of(node);
        let first = control::pool_head(segments.start, 0);
        let mut chunks = 0;
        let heads = self.read_words(first, CLASSES, |words| Ok(words.to_vec())).await?;
        for (index, head) in heads.into_iter().enumerate().filter(|(_, head)| *head != 0) {
            let Some(class) = Class::from_index(index) else { continue };
            let pages = self.take_all_pages(node, class, head).await?;
            chunks += self.sort_out(node, class, pages).await?;
        }
        self.give_everything_on_listed();
        Ok(chunks)
    }

    /// Takes all pages off a list.
    async fn take_all_pages(&self, node: u16, class: Class, mut head: u64) -> Result<Vec<Page>> {
        let at = self.pool_at(node, class);
        // Read first: what comes after a page does not change while this thread is pinned and the page is on the list.
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
                    let found = done.word(&slot);
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
                        ct.take_in(node, class, page);
                    }
                },
            );
            match taken.await? {
                Ok(pages) => return Ok(pages),
                Err(found) => head = found,
            }
        }
    }

    /// Takes a page's blocks in, and retires the page.
    fn take_in(&self, node: u16, class: Class, page: Page) {
        let mut cache = self.heap().nodes[usize::from(node)].borrow_mut();
        cache.put_entries(&self.heap().grid, class, page.entries());
        drop(cache);
        self.retire_page(class, &page);
    }

    /// Retires the chunks that are in `pages` as a whole, and takes in the rest; gives how many.
    async fn sort_out(&self, node: u16, class: Class, pages: Vec<Page>) -> Result<usize> {
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
                self.heap().forget_page(page.at);
                self.heap().nodes[usize::from(node)].borrow_mut().put_entries(&grid, class, page.entries());
            } else {
                self.take_in(node, class, page);
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
            // Others may still be reading pages there.
            self.heap().note_page(block.address, block.bytes, ObjectType::internal("chunk"));
            self.heap().process.known.learn(&grid, segment, chunk, None);
            let mut chain = self.empty_chain();
            chain.write(self.heap().grid.word(segment, chunk), &[Use::Large(1).to_word()]);
            self.submit_detached(chain, |_, _| ());
            blocks.push(block);
        }
        let mut chain = self.empty_chain();
        chain.fetch_add(control::recut_chunks(), 1);
        let retire = move |ct: &Self, _: &_| blocks.into_iter().for_each(|block| ct.retire_block(block));
        self.submit_and(chain, retire).await?;
        Ok(chunks)
    }
}
