//! Sweeping: reclaiming the memory of dead processes, while others live.
//!
//! Only in a cluster that was made so (`farfield memnode --sweep`), because programs have an obligation: an object that was unlinked and is kept
//! without a guard must be [held](ComputeThread::hold), or a sweep takes it for lost.
//!
//! A sweep does the work of a [collection](crate::admin::collect) concurrently with the other members. The sweeper, the keeper of one process, does
//! not know which blocks the other processes hold, so it asks them. Since they continue to allocate and link, it asks about a limited set of blocks.
//!
//! 1. It marks the blocks that are reachable from the roots. All other blocks are the *candidates*. Candidates are a heuristic: safety does not
//!    depend on which blocks are listed. A wrong or stale mark makes a candidate too many, or too few.
//! 2. It publishes their list, and waits until each process has acknowledged it (see `memory/sweep_barrier.rs`). From that moment, *A*, each process
//!    vetoes the candidates that it holds or acquires, either as *used* or as only *kept*. It reads the pool.
//! 3. It waits for the epoch to advance twice. It reads the pool again, and then all blocks that were in it neither time: any of their words may be a
//!    link.
//! 4. It waits for the epoch to advance twice again, and then for each process's vetoes.
//! 5. A candidate is in use if it was vetoed as used, or if it is pointed to by a block that is in use or is not a candidate. The sweeper *retires*
//!    the candidates that are neither in use nor kept nor were in the pool: those blocks are lost.
//!
//! If a process dies meanwhile, its vetoes may be lost; then no block is retired, and the sweep is repeated. A process that joins acknowledges the
//! list before its first operation, and one that leaves writes its vetoes first.
//!
//! # Why that is safe
//!
//! Claim: a candidate that a process uses when the last veto has been read is vetoed, or found in step 3, or in the pool.
//!
//! - *A process held it at A, in one of the ways that the sweep barrier lists*: it was vetoed. It may also have been held under a guard. That guard
//!   was dropped before step 3 began, and the candidate had been linked, held, retired, or put into a free list. After A each of these is a veto;
//!   before A the candidate is one of the other cases.
//! - *It is reachable from a root.* Take the links on the path. A link that was written after A vetoed its target. A link that was written before A
//!   existed in step 3, so it was seen if the block that contains it was read. Every block was read except those that were in the pool. A block that
//!   was in the pool after A and is on the path now was taken from the pool since, and its contents were written after that. A block that is kept was
//!   free at A, so its current contents were written after A; or it was unlinked since, and is not on the path.
//! - *It was unlinked after A.* Until then it was reachable from a root. If that was before step 3 ended, the thread that unlinked it has dropped the
//!   guard under which it did so, and has retired the block, held it, or linked it again: a veto. If it was later, step 3 found it as above.
//! - *A process took it from the pool after A*: a veto.
//!
//! Lost blocks stay lost, because no link points to them. A reader may still access a block that a process unlinked before it died and did not
//! retire, so lost blocks are retired, not freed.
//!
//! # Costs
//!
//! A sweep reads all objects that are reachable from the roots, up to 32 at a time, and then all blocks in use once, 8 KiB at a time. For each block
//! of a chunk with candidates it writes three bits. The other processes read one of these and write the rest; during a sweep they look up each word
//! that they write. The sweeper needs local memory for a bit in 64 of all far memory. A list takes at most a 32nd of a segment, which is enough for
//! all of a segment, or less if memory is short. A sweep takes as many rounds as that requires, and as many passes as free memory.
//!
//! Marking is conservative: a stale word can keep garbage alive. An unused candidate stays if a word that is no link happens to equal its address.
//! The next sweep, or a collection, frees it. The count of live bytes is not corrected before that either.

use std::time::Duration;

use crate::admin::Pace;
use crate::admin::collect::TraceMode;
use crate::error::{Error, Result};
use crate::io::operations::*;
use crate::memory::candidates::{BlockRange, Candidates, bits};
use crate::memory::far::WORDS_PER_READ;
use crate::memory::heap::ThreadHeap;
use crate::memory::map::Map;
use crate::pointer::{Address, Walk};
use crate::segment::classes::{CLASSES, Class};
use crate::segment::control::{self, ListHead, SLOT_PAGES};
use crate::session::ComputeThread;
use farfield_sim::Plant;
use farfield_words::Block;
use farfield_words::WORD_BYTES;
use farfield_words::link_target;

/// A flag in a list's number: vetoes are requested.
pub(crate) const VETOES_REQUESTED: u64 = 1;
/// The maximum number of passes over all candidates.
const MAX_PASSES: u32 = 8;
/// The minimum size of a list, in words.
const MIN_LIST_WORDS: usize = 64;
/// The time for which the sweeper waits for other processes in each step.
const PATIENCE: Duration = Duration::from_secs(10);

/// The outcome of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SweepOutcome {
    /// These bytes were lost, and have been retired.
    Bytes(u64),
    /// No memory is lost, or another process sweeps or collects.
    Nothing,
    /// A process died meanwhile, or did not answer.
    Aborted,
}

/// The state at the beginning of a round.
pub(crate) struct Round {
    pub(crate) me: u32,
    pub(crate) evictions: u64,
}

/// The links that step 3 has found.
#[derive(Default)]
struct Links {
    /// The candidates that other blocks point to.
    found: Vec<usize>,
    /// Links between candidates: from and to, sorted by from.
    between: Vec<(usize, usize)>,
}

impl Links {
    /// Returns the targets of a candidate's links.
    fn of(&self, index: usize) -> impl Iterator<Item = usize> {
        let first = self.between.partition_point(|(from, _)| *from < index);
        self.between[first..].iter().take_while(move |(from, _)| *from == index).map(|(_, to)| *to)
    }

    /// Returns for each candidate whether it is kept, or in use: vetoed as used, or the target of a block in use.
    fn vetoed(
        &self,
        candidates: &Candidates,
        used: impl Iterator<Item = u64>,
        kept: impl Iterator<Item = u64>,
    ) -> Vec<bool> {
        let mut pending: Vec<usize> = bits(used).chain(self.found.iter().copied()).collect();
        let mut is_vetoed = vec![false; candidates.index_bound()];
        while let Some(index) = pending.pop() {
            if !std::mem::replace(&mut is_vetoed[index], true) {
                pending.extend(self.of(index));
            }
        }
        bits(kept).for_each(|index| is_vetoed[index] = true);
        is_vetoed
    }
}

impl ThreadHeap {
    /// Reports to the simulator that a block is lost.
    fn note_lost(&self, block: Block) {
        if let Some(watch) = &self.watch {
            watch.lost(self.thread, block.address, block.bytes);
        }
    }
}

impl ComputeThread {
    // ---- a sweep -----------------------------------------------------------------------------------------------

    /// Sweeps memory if processes have lost some, and no other process sweeps.
    pub(crate) async fn sweep(&self, pace: &Pace) -> Result<SweepOutcome> {
        let Some(member) = self.process.member() else { return Ok(SweepOutcome::Nothing) };
        let me = member.identity;
        let [exits, collected, _, swept, sweeper] = self.read_array(control::unclean_exits()).await?;
        let left_bytes = self.read_word(control::left_bytes()).await?;
        let word = u64::from(me) + 1;
        // An earlier sweep of this process may have failed before it cleared the word.
        let is_free = sweeper == 0 || sweeper == word || !self.is_member(sweeper - 1).await?;
        if exits == collected
            || exits == swept
            || !is_free
            || self.compare_exchange_word(control::sweeper(), sweeper, word).await? != sweeper
        {
            return Ok(SweepOutcome::Nothing);
        }
        let outcome = match self.read_word(control::collector()).await? {
            0 => self.sweep_in_rounds(me, pace).await,
            // A process is about to collect.
            _ => Ok(SweepOutcome::Nothing),
        };
        self.withdraw_list(pace).await?;
        if let Ok(SweepOutcome::Bytes(_)) = outcome {
            self.write_word(control::swept_exits(), exits).await?;
            self.fetch_add_word(control::left_bytes(), left_bytes.wrapping_neg()).await?;
        }
        self.compare_exchange_word(control::sweeper(), word, 0).await?;
        outcome
    }

    async fn sweep_in_rounds(&self, me: u32, pace: &Pace) -> Result<SweepOutcome> {
        self.free_abandoned_list(pace).await?;
        let mut freed = 0;
        for _ in 0..MAX_PASSES {
            let Some((bytes, rounds)) = self.sweep_pass(me, pace).await? else {
                return Ok(SweepOutcome::Aborted);
            };
            freed += bytes;
            // Blocks of one list may point to blocks of another, which the next pass frees.
            if bytes == 0 || rounds <= 1 {
                break;
            }
            self.wait_for_garbage(pace).await;
        }
        self.wait_for_garbage(pace).await;
        tracing::info!(freed_bytes = freed, "swept the memory of ended processes");
        Ok(SweepOutcome::Bytes(freed))
    }

    /// Waits, up to a limit, until lost blocks are freed, and gives all free blocks to the pool.
    async fn wait_for_garbage(&self, pace: &Pace) {
        for _ in 0..64 {
            if !self.has_garbage() {
                break;
            }
            pace.park(self).await;
        }
        self.give_everything();
    }

    /// Sweeps all candidates once, in as many rounds as required. Returns the bytes that were lost and the number of rounds; `None` if the sweep was
    /// aborted.
    async fn sweep_pass(&self, me: u32, pace: &Pace) -> Result<Option<(u64, u32)>> {
        let mut before = self.read_map().await?;
        self.mark_all(&mut before, TraceMode::Concurrent(pace)).await?;
        let mut max_words = self.max_list_words(&before);
        let mut candidates = before.candidates(None);
        if candidates.iter().map(BlockRange::words).sum::<usize>() > max_words {
            // Excluding at least those that are known to be free.
            candidates = before.candidates(Some(&self.read_pool(pace).await?));
        }
        let (mut freed, mut rounds, mut rest) = (0, 0, &candidates[..]);
        while !rest.is_empty() {
            let ends = rest.iter().scan(ListHead::WORDS, |words, range| {
                *words += range.words();
                Some(*words)
            });
            let (part, further) = rest.split_at(ends.take_while(|end| *end <= max_words).count().max(1));
            match self.sweep_round(me, part, &before, pace).await {
                Ok(Some(bytes)) => (freed, rounds, rest) = (freed + bytes, rounds + 1, further),
                Ok(None) => return Ok(None),
                Err(Error::OutOfMemory(_)) if max_words > MIN_LIST_WORDS => max_words /= 2,
                Err(error) => return Err(error),
            }
        }
        Ok(Some((freed, rounds)))
    }

    // ---- one round ---------------------------------------------------------------------------------------------

    /// Sweeps some candidates. Returns the bytes that were lost; `None` if the sweep was aborted.
    async fn sweep_round(
        &self,
        me: u32,
        ranges: &[BlockRange],
        before: &Map,
        pace: &Pace,
    ) -> Result<Option<u64>> {
        let evictions = self.read_word(control::evictions()).await?;
        let round = Round { me, evictions };
        let candidates = self.publish_list(ranges, &round, pace).await?;
        if !self.wait_for_members(candidates.number, &round, pace).await? {
            return Ok(None);
        }
        let free_before = self.read_pool(pace).await?;
        if !self.wait_for_epochs(&round, pace).await? {
            return Ok(None);
        }
        let mut free = self.read_pool(pace).await?;
        free.mark_all_of(&free_before);
        let links = if self.has(Plant::SweepWithoutSecondLook) {
            Links::default()
        } else {
            self.read_links(&free, &candidates, pace).await?
        };
        let are_complete = self.wait_for_epochs(&round, pace).await?
            && self.request_vetoes(&candidates, &round, pace).await?;
        if !are_complete {
            return Ok(None);
        }
        let mut lost = self.lost(&candidates, before, &free, links, pace).await?;
        if self.has(Plant::SweepButOne) {
            lost.pop();
        }
        let bytes = lost.iter().map(|block| block.bytes).sum();
        self.fetch_add_word(control::swept_bytes(), bytes).await?;
        let guard = self.pin();
        for block in lost {
            self.heap().note_lost(block);
            self.retire_block(block);
        }
        drop(guard);
        self.withdraw_list(pace).await?;
        Ok(Some(bytes))
    }

    /// Returns the lost blocks: those that are neither reachable from a root, nor in the pool, nor held by this process, and whose address is in no
    /// word of a block in use. For a simulated keeper whose process is the only member, after a sweep.
    pub(crate) async fn lost_blocks(&self) -> Result<Vec<Block>> {
        let pace = Pace::default();
        let mut used = self.read_map().await?;
        self.mark_all(&mut used, TraceMode::Concurrent(&pace)).await?;
        let free = self.read_pool(&pace).await?;
        let candidates = Candidates::new(1, &used.candidates(Some(&free)));
        self.veto_everything(&candidates);
        let links = self.read_links(&free, &candidates, &pace).await?;
        let [used, kept] = candidates.vetoed();
        let is_vetoed = links.vetoed(&candidates, used.words(), kept.words());
        let lost = candidates.indices().filter(|index| !is_vetoed[*index]);
        Ok(lost.map(|index| candidates.block(index)).collect())
    }

    /// Reads the use of chunks, and marks the blocks in the pool.
    pub(crate) async fn read_pool(&self, pace: &Pace) -> Result<Map> {
        let heap = self.heap();
        let (grid, geometry) = (heap.grid, heap.geometry);
        let mut free = self.read_map().await?;
        for node in 0..geometry.nodes() {
            for class in (0..CLASSES).filter_map(Class::from_index) {
                // The successor of a page does not change while this thread is pinned and the page is in the list.
                let _guard = self.pin();
                let mut link = self.read_word(self.pool_at(node, class)).await?;
                let mut walk = Walk::new();
                while link != 0 {
                    let found = self.read_page(node, class, link).await?;
                    walk.visit_address(found.at)?;
                    let of_page = heap.class_of_page(class, found.block);
                    free.mark(Block { address: found.at, bytes: of_page.bytes() });
                    for (at, bytes) in crate::memory::cache::free_blocks(&grid, class, found.entries()) {
                        for offset in (0..bytes).step_by(class.bytes() as usize) {
                            free.mark(Block { address: at.add(offset), bytes: class.bytes() });
                        }
                    }
                    link = found.next();
                    pace.pause(self).await;
                }
            }
        }
        Ok(free)
    }

    /// Returns whether no process has died since the round began, and the time is not over.
    async fn is_still_valid(&self, round: &Round, until: Duration) -> Result<bool> {
        Ok(self.now() < until && self.read_word(control::evictions()).await? == round.evictions)
    }

    /// Waits until all members have answered with `word`. Returns false if a process dies or does not answer in time.
    async fn wait_for_members(&self, word: u64, round: &Round, pace: &Pace) -> Result<bool> {
        let until = self.now() + PATIENCE;
        loop {
            let members = self.members().await?;
            // Check for evictions again: these answers may be older than one.
            if !self.is_still_valid(round, until).await? || members.iter().any(|member| member.is_gone()) {
                return Ok(false);
            }
            if members.iter().all(|member| member.words.sweep_answer == word) {
                return Ok(true);
            }
            pace.park(self).await;
        }
    }

    /// Waits until all current guards are dropped. Returns false if a process dies or the epoch does not advance in time.
    async fn wait_for_epochs(&self, round: &Round, pace: &Pace) -> Result<bool> {
        let until = self.now() + PATIENCE;
        let (mut epoch, _) = self.read_announcements().await?;
        if self.has(Plant::SweepWithoutGuards) {
            epoch -= 2;
        }
        while self.read_epoch().await? < epoch + 2 {
            if !self.is_still_valid(round, until).await? {
                return Ok(false);
            }
            self.step().await;
            pace.park(self).await;
        }
        Ok(true)
    }

    /// Searches all blocks that are neither candidates nor free for links to candidates.
    async fn read_links(&self, free: &Map, candidates: &Candidates, pace: &Pace) -> Result<Links> {
        let mut links = Links::default();
        let list = pace.list.get().map(|list| list.address);
        // The addresses in the directory and those of pages of slots. The pool's blocks are known; counts, names, descriptions and what slots have are no links.
        let descriptions = self.kept_descriptions().await?;
        let pages = self.read_far(control::epoch_page(0), SLOT_PAGES).await?;
        let of_slots: Vec<Address> = pages.iter().map(|word| link_target(*word)).collect();
        for word in self.directory_values().await?.into_iter().chain(pages) {
            links.found.extend(candidates.in_word(word));
        }
        links.found.extend(descriptions.iter().filter_map(|at| candidates.at(*at)));
        let mut chunks = Vec::new();
        free.for_each_chunk(|_, _, class, all| chunks.push((class, all)));
        for (class, all) in chunks {
            let end = all.address.offset() + all.bytes;
            let bytes = all.bytes - end.saturating_sub(self.heap().grid.limit(all.address.segment()));
            let words = self.scan_far(all.address, bytes as usize / WORD_BYTES, pace).await?;
            let per_block = class.map_or(words.len(), Class::words).max(1);
            for (index, words) in words.chunks(per_block).enumerate() {
                let at = all.address.add((index * per_block * WORD_BYTES) as u64);
                let is_list =
                    list.is_some_and(|list| (at..at.add((words.len() * WORD_BYTES) as u64)).contains(&list));
                if is_list || free.is_marked(at) || descriptions.contains(&at) || of_slots.contains(&at) {
                    continue;
                }
                let found = words.iter().filter_map(|word| candidates.in_word(*word));
                match candidates.at(at).filter(|index| candidates.block(*index).address == at) {
                    Some(candidate) => links.between.extend(found.map(|index| (candidate, index))),
                    None => links.found.extend(found),
                }
            }
        }
        links.between.sort_unstable();
        Ok(links)
    }

    /// Reads words that may be freed concurrently.
    pub(crate) async fn scan_far(&self, at: Address, words: usize, pace: &Pace) -> Result<Vec<u64>> {
        let mut read = Vec::with_capacity(words);
        while read.len() < words {
            let mut chain = self.empty_chain();
            let count = (words - read.len()).min(WORDS_PER_READ);
            let slot = chain.scan(at.add((read.len() * WORD_BYTES) as u64), count);
            let done = self.submit(chain).await?;
            read.extend_from_slice(done.words(slot));
            drop(done);
            pace.pause(self).await;
        }
        Ok(read)
    }

    /// Requests the vetoes and waits for all of them. Returns false if a process dies or does not answer in time.
    async fn request_vetoes(&self, candidates: &Candidates, round: &Round, pace: &Pace) -> Result<bool> {
        let Some(list) = pace.list.get() else { return Ok(false) };
        self.write_word(list.address, candidates.number | VETOES_REQUESTED).await?;
        self.wait_for_members(candidates.number | VETOES_REQUESTED, round, pace).await
    }

    /// Returns the candidates that are not in use.
    async fn lost(
        &self,
        candidates: &Candidates,
        before: &Map,
        free: &Map,
        links: Links,
        pace: &Pace,
    ) -> Result<Vec<Block>> {
        let Some(list) = pace.list.get() else { return Ok(Vec::new()) };
        let (offset, count) = candidates.vetoes();
        let vetoes = self.read_far(list.address.add(offset), count).await?;
        let [used, kept] = [&vetoes[..count / 2], &vetoes[count / 2..]].map(|words| words.iter().copied());
        let is_vetoed = links.vetoed(candidates, used, kept);
        let others = candidates.indices().filter(|index| !is_vetoed[*index]);
        let blocks = others.map(|index| candidates.block(index));
        Ok(blocks.filter(|block| !free.is_marked(block.address) && before.agrees(free, *block)).collect())
    }
}
