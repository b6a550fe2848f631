//! Taking and returning chunks.
//!
//! A READ of a segment's counters decides between two ways, of three round trips each in most cases:
//! - chunks that were never taken: an FAA of the count of taken chunks takes them for this thread alone, and a WRITE puts their use into the
//!   [chunk table](crate::segment::grid);
//! - chunks that are free again: a READ of a part of the table finds them, and a chain of CASes takes them, one for the word of each.
//!
//! The table of a large segment is long, 512 KiB for one GiB, so it is not read as a whole. A search for one chunk begins behind the one that the thread has found last, where chunks are not taken again as
//! likely as in front of it. A search for several begins at the front, so that long runs stay at the end. The first READ has [`FIRST_SEARCHED`] words, and each further one, for another round trip, eight times as many.
//!
//! Returning chunks is one chain, posted and not waited for.
//!
//! When an FAA takes the count past the end of a segment, the chunks before the end become free chunks. So no chunk is lost or taken twice.

use super::placement::{SegmentOrder, Target};
use super::worker::Worker;
use crate::error::Result;
use crate::io::operations::*;
use crate::segment::classes::Class;
use crate::segment::control;
use crate::segment::grid::{ChunkRun, Grid, Use};

/// The words of the chunk table that are searched first: all words of a segment of 8 MiB.
const FIRST_SEARCHED: u64 = 512;

/// A request for adjacent chunks.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    /// The class of the blocks that the chunk is cut into; none for one large block.
    pub(crate) class: Option<Class>,
    /// The size of the large block, or of one of the blocks of the class.
    pub(crate) block_bytes: u64,
    pub(crate) free_chunks: FreeChunks,
}

/// When the chunk table is searched for free chunks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum FreeChunks {
    /// Where the segment counts enough of them.
    IfCounted,
    /// Everywhere: the count may be out of date.
    Everywhere,
}

impl Wanted {
    /// The use of the chunks, and their number, which depends on the segment.
    fn usage(self, grid: &Grid, segment: u16) -> (Use, u64) {
        let chunks = grid.chunks_for(segment, self.block_bytes);
        self.class.map_or((Use::Large(chunks), chunks), |class| (Use::Small(class), 1))
    }

    /// Returns whether a run has room. One of its chunks may be the short one at the end of the segment.
    fn fits(self, grid: &Grid, run: ChunkRun) -> bool {
        let room = match self.class {
            Some(class) => grid.blocks(run.segment, run.first, class).1,
            None => grid.large(run, grid.large_align(self.block_bytes)).bytes,
        };
        room >= self.block_bytes
    }
}

impl Worker {
    /// Takes chunks on the target node alone. `counts` are the numbers of taken and of freed chunks in the current segment, if they were just
    /// read.
    pub(crate) async fn take_run(
        &self,
        target: Target,
        wanted: Wanted,
        mut counts: Option<[u64; 2]>,
    ) -> Result<Option<ChunkRun>> {
        let (heap, grid) = (self.heap(), self.heap().grid);
        let segments = heap.geometry.segments_of(target.node);
        let current = heap.nodes[usize::from(target.node)].borrow().current_segment;
        for step in 0..segments.len() {
            let position = (usize::from(current) + step) % segments.len();
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
            if wanted.free_chunks == FreeChunks::Everywhere || free.cast_signed() >= chunks.cast_signed() {
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
                let next = match target.segments {
                    SegmentOrder::Rotating => (position + 1) % segments.len(),
                    SegmentOrder::Same => position,
                };
                heap.nodes[usize::from(target.node)].borrow_mut().current_segment = next as u16;
                return Ok(run);
            }
        }
        self.give_surplus();
        Ok(None)
    }

    /// Takes chunks that were never taken before: an FAA, and a WRITE of their use.
    async fn take_fresh(&self, segment: u16, chunks: u64, usage: Use) -> Result<Option<ChunkRun>> {
        let mut chain = self.empty_chain();
        let slot = chain.fetch_add(control::taken_chunks(segment), chunks);
        let give_back =
            |ct: &Self, run: Option<ChunkRun>| run.into_iter().for_each(|run| ct.heap().give_run(run));
        let took = self.submit_or(
            chain,
            move |ct, done| {
                let (first, most) = (done.word(slot), ct.heap().grid.chunks(segment));
                let run = ChunkRun { segment, first, chunks: chunks.min(most.saturating_sub(first)) };
                let (run, short) = if run.chunks == chunks { (Some(run), None) } else { (None, Some(run)) };
                give_back(ct, short.filter(|run| run.chunks > 0));
                run
            },
            give_back,
        );
        let Some(run) = took.await? else { return Ok(None) };
        let mut chain = self.empty_chain();
        chain.write(self.heap().grid.word(segment, run.first), &words_for(usage, chunks));
        // Waited for: the table must have a chunk's use before an object is allocated in the chunk.
        self.submit_or(chain, move |_, _| Some(run), give_back).await
    }

    /// Looks for free chunks: a READ of a part of the table, in most cases.
    async fn find_free(&self, segment: u16, wanted: Wanted) -> Result<Option<ChunkRun>> {
        let grid = self.heap().grid;
        let (table, chunks) = (grid.chunks(segment), wanted.usage(&grid, segment).1);
        let node = self.heap().geometry.node_of(segment);
        let cache = &self.heap().nodes[usize::from(node)];
        let position = usize::from(segment - self.heap().geometry.segments_of(node).start);
        let begin = if chunks == 1 { cache.borrow().searched(position).min(table) } else { 0 };
        let mut most = FIRST_SEARCHED;
        for part in [begin..table, 0..begin] {
            let (mut from, mut adjacent) = (part.start, 0);
            while from < part.end {
                let to = part.end.min(from + most);
                let found = self.read_words(grid.word(segment, from), (to - from) as usize, |words| {
                    for (chunk, word) in (from..).zip(words) {
                        adjacent = if *word == Use::Free.to_word() { adjacent + 1 } else { 0 };
                        if adjacent >= chunks {
                            let run = ChunkRun { segment, first: chunk + 1 - chunks, chunks };
                            if wanted.fits(&grid, run) {
                                return Ok(Some(run));
                            }
                        }
                    }
                    Ok(None)
                });
                if let Some(run) = found.await? {
                    if chunks == 1 {
                        cache.borrow_mut().set_searched(position, run.first + 1);
                    }
                    return Ok(Some(run));
                }
                (from, most) = (to, most * 8);
            }
        }
        Ok(None)
    }

    /// Takes chunks that are free again: a search of the table, and a chain with a CAS for each chunk.
    async fn claim_free(&self, segment: u16, wanted: Wanted) -> Result<Option<ChunkRun>> {
        let (usage, chunks) = wanted.usage(&self.heap().grid, segment);
        loop {
            let Some(run) = self.find_free(segment, wanted).await? else { return Ok(None) };
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
                    let ours = slots.iter().filter(|slot| is_ours(**slot)).count() as u64;
                    let mut chain = ct.empty_chain();
                    chain.fetch_add(control::freed_chunks(segment), ours.wrapping_neg());
                    ct.submit_detached(chain, |_, _| ());
                    if ours == chunks {
                        return Some(run);
                    }
                    // Another thread has taken one of them first.
                    for (slot, first) in slots.iter().zip(run.first..) {
                        if is_ours(*slot) {
                            ct.heap().give_run(ChunkRun { segment, first, chunks: 1 });
                        }
                    }
                    None
                },
                |ct, run: Option<ChunkRun>| run.into_iter().for_each(|run| ct.heap().give_run(run)),
            );
            if let Some(run) = claimed.await? {
                return Ok(Some(run));
            }
            self.give_surplus();
            // The other thread has gone on. Where operations complete immediately, a task that gave way here would wait until the thread's other tasks wait, too, or have ended.
            if self.io.endpoint.immediate().is_none() {
                self.give_way().await;
            }
        }
    }

    /// Returns chunks that the thread has freed, without waiting.
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
}

/// The words of chunks with a use, in the chunk table.
fn words_for(usage: Use, chunks: u64) -> Vec<u64> {
    let further = std::iter::repeat_n(Use::Continued, chunks as usize - 1);
    std::iter::once(usage).chain(further).map(Use::to_word).collect()
}
