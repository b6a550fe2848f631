//! Getting chunks, and giving them back.
//!
//! A READ tells which way to go. A chunk that was never taken is taken with an FAA of its segment's count of taken chunks, and
//! nobody else gets that one; a WRITE says what it is for. Chunks that are free again are found in the [table](super::grid) by a
//! READ, and taken by a chain of CASes, one for the word of each. So it is three round trips either way. Giving back is one
//! chain, posted and not waited for.
//!
//! When an FAA takes the count past the end of a segment, what is left before the end becomes free chunks, so nothing is lost
//! and nothing is handed out twice.

use super::heap::ThreadHeap;
use super::worker::Worker;
use crate::error::{self, Error, Result};
use crate::io::Purpose;
use crate::io::Retry;
use crate::io::operations::*;
use crate::segment::classes::Class;
use crate::segment::control;
use crate::segment::grid::{Grid, Run, Use};
use farfield_fabric::chain::Slot;
use farfield_sim::ObjectType;
use farfield_words::Address;
use farfield_words::Block;
use farfield_words::WORD_BYTES;
use farfield_words::geometry::Geometry;

/// How much of a memory node's segments is used, and for what.
///
/// From [`ComputeThread::heap_use`]. What is neither live nor cached has never been used, or is free in whole chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeapUse {
    /// The memory node.
    pub node: u16,
    /// The bytes that its segments have for objects.
    pub size_bytes: u64,
    /// The bytes of the blocks that objects are in.
    pub live_bytes: u64,
    /// The bytes of free blocks: in the lists of threads, in the pool, and in what is left of chunks that are cut into blocks.
    pub cached_bytes: u64,
}

impl HeapUse {
    /// That of a memory node, from the words in front of its segments: taken and freed chunks, and live bytes.
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
        // Below 0 as long as a thread has told of what it freed, and not another of what it allocated.
        usage.live_bytes = usage.live_bytes.cast_signed().max(0).cast_unsigned();
        usage.cached_bytes = usage.cached_bytes.saturating_sub(usage.live_bytes);
        usage
    }
}

/// How often a thread that ends tries again to give back what it holds, if others do the same.
const ATTEMPTS_TO_LEAVE: u32 = 8;

/// How many words a READ or WRITE of a long run has.
pub(crate) const WORDS_PER_READ: usize = 1024;
/// How many chunks of pages a thread gets in one go for what it has to give.
const MOST_PAGE_CHUNKS: u32 = 8;
/// The words of a segment's header that say how it is used: taken and freed chunks, live bytes.
const HEAD_WORDS: usize = 3;

impl ThreadHeap {
    /// A block of a class, on a node.
    pub(crate) async fn allocate_small(
        &self,
        ct: &Worker,
        node: u16,
        class: Class,
        rotate: bool,
    ) -> Result<Option<Address>> {
        loop {
            if self.has_surplus.get() || self.wants_page.get().is_some() {
                ct.flush_surplus().await?;
            }
            if let Some(address) = self.take_local(node, class) {
                return Ok(Some(address));
            }
            if !self.refill(ct, node, class, rotate).await? {
                return Ok(self.take_local(node, class));
            }
        }
    }

    /// Gets blocks for the thread's list; gives whether it is worth looking there again.
    async fn refill(&self, ct: &Worker, node: u16, class: Class, rotate: bool) -> Result<bool> {
        if self.is_refilling.replace(true) {
            // Another task of the thread is at it, and may get enough for both.
            ct.give_way().await;
            return Ok(true);
        }
        let _done = ResetOnDrop(&self.is_refilling);
        let _said = SayOnDrop(ct);
        if self.take_spare() {
            return Ok(true);
        }
        // Until what is taken is in a list: who sweeps memory waits for that.
        let _guard = ct.pinned();
        let segment = self.segment_in_turn(node);
        let mut chain = ct.empty_chain();
        let head = chain.read(ct.pool_at(node, class), 1);
        let counts = chain.read(control::taken_chunks(segment), 2);
        let done = ct.submit(chain).await?;
        let (head, counts) = (done.word(&head), [done.words(&counts)[0], done.words(&counts)[1]]);
        drop(done);
        if ct.take_page(node, class, head).await? {
            return Ok(true);
        }
        let wanted = Wanted { class: Some(class), block_bytes: class.bytes(), insist: false };
        let run = ct.take_run(node, wanted, rotate, Some(counts)).await?;
        let Some(run) = run else { return Ok(false) };
        let (start, bytes) = self.grid.blocks(run.segment, run.first, class);
        self.process.known.learn(&self.grid, run.segment, run.first, Some(class));
        let piece = super::cache::Piece { start, bytes };
        self.veto(start, bytes);
        self.nodes[usize::from(node)].borrow_mut().put_piece(class, piece);
        Ok(true)
    }

    /// Chunks for a large object, on a node.
    pub(crate) async fn allocate_large(
        &self,
        ct: &Worker,
        node: u16,
        block_bytes: u64,
        rotate: bool,
        insist: bool,
    ) -> Result<Option<Block>> {
        ct.give_surplus();
        // As in `refill`.
        let _guard = ct.pinned();
        let wanted = Wanted { class: None, block_bytes, insist };
        let run = ct.take_run(node, wanted, rotate, None).await?;
        let block = run.map(|run| self.grid.large(run, self.grid.large_align(block_bytes)));
        if let Some(block) = block {
            self.veto(block.address, block.bytes);
        }
        Ok(block)
    }

    /// The segment that the next chunk comes from.
    fn segment_in_turn(&self, node: u16) -> u16 {
        self.geometry.segments_of(node).start + self.nodes[usize::from(node)].borrow().turn
    }
}

/// Chunks side by side that are wanted.
#[derive(Clone, Copy)]
struct Wanted {
    /// The class of blocks that they are cut into, if not for one large one.
    class: Option<Class>,
    /// The size of the block, or of one of the blocks, that they must have room for.
    block_bytes: u64,
    /// Whether to look for free ones even where there seem to be none.
    insist: bool,
}

impl Wanted {
    /// What chunks of a segment are used for, and how many it takes.
    fn usage(self, grid: &Grid, segment: u16) -> (Use, u64) {
        let chunks = grid.chunks_for(segment, self.block_bytes);
        self.class.map_or((Use::Large(chunks), chunks), |class| (Use::Small(class), 1))
    }

    /// Whether chunks have room, one of which may be the short one at the end of its segment.
    fn fits(self, grid: &Grid, run: Run) -> bool {
        let room = match self.class {
            Some(class) => grid.blocks(run.segment, run.first, class).1,
            None => grid.large(run, grid.large_align(self.block_bytes)).bytes,
        };
        room >= self.block_bytes
    }
}

/// Says how much the thread holds when it has more, or has given up.
struct SayOnDrop<'a>(&'a Worker);

impl Drop for SayOnDrop<'_> {
    fn drop(&mut self) {
        self.0.say_held_bytes();
    }
}

struct ResetOnDrop<'a>(&'a std::cell::Cell<bool>);

impl Drop for ResetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

impl Worker {
    /// Gives back what is surplus, and gets a page for it if there is none. No round trip for most calls.
    #[inline]
    pub(crate) async fn flush_surplus(&self) -> Result<()> {
        self.give_surplus();
        if let Some(node) = self.heap().wants_page.take() {
            Box::pin(self.get_page(node)).await?;
        }
        Ok(())
    }

    #[cold]
    async fn get_page(&self, node: u16) -> Result<()> {
        let mut node = Some(node);
        for _ in 0..MOST_PAGE_CHUNKS {
            let Some(on) = node else { break };
            let found = self.heap().refill(self, on, self.heap().page_class, false).await?;
            self.heap().lacks_pages.set(!found);
            self.heap().has_surplus.set(true);
            self.give_surplus();
            node = self.heap().wants_page.take();
        }
        Ok(())
    }

    /// Chunks for what is wanted. With `rotate` the next are taken from the next segment. `counts` are how many chunks of the
    /// segment in turn were taken and are free again a moment ago, if that is known.
    async fn take_run(
        &self,
        node: u16,
        wanted: Wanted,
        rotate: bool,
        mut counts: Option<[u64; 2]>,
    ) -> Result<Option<Run>> {
        let (heap, grid) = (self.heap(), self.heap().grid);
        let segments = heap.geometry.segments_of(node);
        let turn = heap.nodes[usize::from(node)].borrow().turn;
        for step in 0..segments.len() {
            let position = (usize::from(turn) + step) % segments.len();
            let segment = segments.start + position as u16;
            let [taken, free] = match counts.take() {
                Some(counts) => counts,
                None => {
                    self.read_words(control::taken_chunks(segment), 2, |words| Ok([words[0], words[1]]))
                        .await?
                }
            };
            let (usage, chunks) = wanted.usage(&grid, segment);
            let mut run = None;
            if wanted.insist || free.cast_signed() >= chunks.cast_signed() {
                run = self.claim_free(segment, wanted).await?;
            }
            if run.is_none() && taken < grid.chunks(segment) {
                run = self.take_fresh(segment, chunks, usage).await?;
                if let Some(short) = run.filter(|run| !wanted.fits(&grid, *run)) {
                    heap.give_run(short);
                    run = None;
                }
            }
            if run.is_some() {
                let next = if rotate { (position + 1) % segments.len() } else { position };
                heap.nodes[usize::from(node)].borrow_mut().turn = next as u16;
                return Ok(run);
            }
        }
        self.give_surplus();
        Ok(None)
    }

    /// Takes chunks that were never taken before. One FAA, and a WRITE of what they are for.
    async fn take_fresh(&self, segment: u16, chunks: u64, usage: Use) -> Result<Option<Run>> {
        let mut chain = self.empty_chain();
        let slot = chain.fetch_add(control::taken_chunks(segment), chunks);
        let give = |ct: &Self, run: Option<Run>| run.into_iter().for_each(|run| ct.heap().give_run(run));
        let took = self.submit_or(
            chain,
            move |ct, done| {
                let (first, most) = (done.word(&slot), ct.heap().grid.chunks(segment));
                let run = Run { segment, first, chunks: chunks.min(most.saturating_sub(first)) };
                let (run, short) = if run.chunks == chunks { (Some(run), None) } else { (None, Some(run)) };
                give(ct, short.filter(|run| run.chunks > 0));
                run
            },
            give,
        );
        let Some(run) = took.await? else { return Ok(None) };
        let mut chain = self.empty_chain();
        chain.write(self.heap().grid.word(segment, run.first), &words_for(usage, chunks));
        // Waited for: no object may be where its chunk does not say so.
        self.submit_or(chain, move |_, _| Some(run), give).await
    }

    /// Takes chunks that are free again. A READ of the table, and a chain with a CAS for each chunk.
    async fn claim_free(&self, segment: u16, wanted: Wanted) -> Result<Option<Run>> {
        let (usage, chunks) = wanted.usage(&self.heap().grid, segment);
        let table = self.heap().grid.chunks(segment) as usize;
        loop {
            let found = self.read_words(self.heap().grid.word(segment, 0), table, |words| {
                let mut free = 0;
                for (chunk, word) in (0..).zip(words) {
                    free = if *word == Use::Free.to_word() { free + 1 } else { 0 };
                    if free >= chunks {
                        let run = Run { segment, first: chunk + 1 - chunks, chunks };
                        if wanted.fits(&self.heap().grid, run) {
                            return Ok(Some(run));
                        }
                    }
                }
                Ok(None)
            });
            let Some(run) = found.await? else { return Ok(None) };
            let mut chain = self.empty_chain();
            let slots: Vec<_> = words_for(usage, chunks)
                .into_iter()
                .zip(run.first..)
                .map(|(word, chunk)| {
                    chain.compare_exchange(self.heap().grid.word(segment, chunk), Use::Free.to_word(), word)
                })
                .collect();
            let claimed = self.submit_or(
                chain,
                move |ct, done| {
                    let is_ours = |slot| done.word(slot) == Use::Free.to_word();
                    let ours = slots.iter().filter(|slot| is_ours(slot)).count() as u64;
                    let mut chain = ct.empty_chain();
                    chain.fetch_add(control::freed_chunks(segment), ours.wrapping_neg());
                    ct.submit_detached(chain, |_, _| ());
                    if ours == chunks {
                        return Some(run);
                    }
                    // Somebody was faster with one of them.
                    for (slot, first) in slots.iter().zip(run.first..) {
                        if is_ours(slot) {
                            ct.heap().give_run(Run { segment, first, chunks: 1 });
                        }
                    }
                    None
                },
                |ct, run: Option<Run>| run.into_iter().for_each(|run| ct.heap().give_run(run)),
            );
            if let Some(run) = claimed.await? {
                return Ok(Some(run));
            }
            self.give_surplus();
            self.give_way().await;
        }
    }

    /// Gives chunks back, without waiting.
    pub(crate) fn give_runs(&self) {
        for cache in &self.heap().nodes {
            while let Some(run) = { cache.borrow_mut().runs.pop() } {
                let mut chain = self.empty_chain();
                chain.write(
                    self.heap().grid.word(run.segment, run.first),
                    &vec![Use::Free.to_word(); run.chunks as usize],
                );
                chain.fetch_add(control::freed_chunks(run.segment), run.chunks);
                self.submit_detached(chain, |_, _| ());
            }
        }
    }

    /// The thread is about to end: it gives back all that it holds, and waits until that is there.
    pub(crate) async fn leave_heap(&self) {
        self.tell_live_bytes();
        for node in 0..self.heap().geometry.nodes() {
            if self.heap().has_many_blocks(node) {
                // Without a page it takes a chain for each few of them.
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
        // What has not got there is for the others of the process.
    }

    /// Tells memory nodes how many bytes this thread has allocated and freed since it last did, without waiting.
    pub(crate) fn tell_live_bytes(&self) {
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

    /// How much memory is used on each memory node. One round trip: a chain for each of them, all posted at once.
    ///
    /// Threads count what they allocate and free for themselves, and tell when they end, and when this is called on them: the figures
    /// are exact when all others have ended.
    ///
    /// # Errors
    /// Those of a READ.
    pub(crate) async fn heap_use(&self) -> Result<Vec<HeapUse>> {
        self.tell_live_bytes();
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
            let words = heads.iter().map(|head| std::array::from_fn(|word| answer.words(head)[word]));
            let usage = HeapUse::of(&grid, geometry, node, words);
            nodes.push(usage);
        }
        Ok(nodes)
    }

    /// Reads any number of words.
    pub(crate) async fn read_far(&self, at: Address, words: usize) -> Result<Vec<u64>> {
        let mut read = Vec::with_capacity(words);
        while read.len() < words {
            let count = (words - read.len()).min(WORDS_PER_READ);
            let from = at.add((read.len() * WORD_BYTES) as u64);
            self.read_words(from, count, |words| {
                read.extend_from_slice(words);
                Ok(())
            })
            .await?;
        }
        Ok(read)
    }

    /// Writes any number of words.
    pub(crate) async fn write_far(&self, at: Address, words: &[u64]) -> Result<()> {
        for (index, part) in words.chunks(WORDS_PER_READ).enumerate() {
            self.write_words(at.add((index * WORDS_PER_READ * WORD_BYTES) as u64), part).await?;
        }
        Ok(())
    }

    /// Takes back a part of the control block that is not needed after all.
    pub(crate) fn put_control_page(&self, block: Block) {
        self.heap().holdings.forget(block.address);
        self.heap().put(block);
    }

    /// Memory on the first memory node, all zero, for a part of the control block that grows.
    pub(crate) async fn take_control_page(&self, bytes: u64) -> Result<Block> {
        let block = self.take_control_block(bytes).await?;
        self.write_far(block.address, &vec![0; bytes as usize / WORD_BYTES]).await?;
        Ok(block)
    }

    /// The same, with anything in it.
    pub(crate) async fn take_control_block(&self, bytes: u64) -> Result<Block> {
        let heap = self.heap();
        let block = heap.allocate(self, (0, false), bytes, WORD_BYTES as u64).await?;
        heap.disown(block);
        heap.holdings.wrote(block.address);
        heap.note_page(block.address, bytes, ObjectType::internal("epoch slots"));
        if heap.geometry.node_of(block.address.segment()) > 0 {
            self.put_control_page(block);
            return Err(Error::from(error::OutOfMemory { size_bytes: bytes, segments: vec![0] }));
        }
        Ok(block)
    }
}

/// The words of chunks that are put to a use.
fn words_for(usage: Use, chunks: u64) -> Vec<u64> {
    let further = std::iter::repeat_n(Use::Continued, chunks as usize - 1);
    std::iter::once(usage).chain(further).map(Use::to_word).collect()
}
