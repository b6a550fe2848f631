//! Sweeping: taking back what the dead have left, while others live.
//!
//! Only in a cluster that was made so (`farfield memnode --sweep`): a program owes something for it. An object that it has unlinked and
//! keeps without a guard must be [held](ComputeThread::hold), or a sweep takes it for lost.
//!
//! What [`collect`](super::collect) does for a process that is alone, one keeper does here beside all others, which go on. It can
//! not know what they hold, so it asks them; and since they go on, it asks about few blocks and not about all.
//!
//! 1. It marks what roots lead to. All other blocks are the *candidates*. Nothing rests on this but that they are not all there are:
//!    marks that are wrong or old make a candidate too many, or one too few.
//! 2. It publishes their list, and waits until each process [has heard](super::sweep_barrier) of it. From that moment, *A*, whoever has or
//!    gets a candidate vetoes it, as one that is used or one that is only kept. It reads the pool.
//! 3. It waits for the epoch to advance twice. It reads the pool again, and then all blocks that have not been in it: any of their
//!    words may be a link.
//! 4. It waits for the epoch to advance twice again, and then for each process's vetoes.
//! 5. A candidate is used if it is vetoed so, or if a block leads to it that is used or no candidate. It *retires* those that are
//!    neither used nor kept nor were in the pool: those blocks are lost.
//!
//! If a process dies meanwhile, its vetoes may have died with it; then nothing is retired, and it is tried again. One that joins
//! hears of the list before it does anything, and one that leaves gives its vetoes first.
//!
//! # Why that is safe
//!
//! Claim: a candidate that somebody uses when the last veto has been read is vetoed, or found in step 3, or in the pool.
//!
//! - *Somebody held it at A, in one of the ways that are [listed](super::sweep_barrier)*: it was vetoed. Held otherwise, under a guard: that
//!   guard was over when step 3 began, and what it held had been linked, held, retired, or put into a list, which is a veto each if it was
//!   done after A, and else is one of the other cases.
//! - *A root leads to it.* Take the links on the way there. One that was written after A vetoed what it leads to. One that was written
//!   before was there in step 3, so it was seen if the block that it is in was looked at: which it was, unless that was in the pool.
//!   A block that was in the pool after A and is on the way now was taken from there since, and what is in it was written after that.
//!   One that is kept was free at A, and so was what is in it; or it was unlinked since, and is not on the way.
//! - *Somebody unlinked it after A.* Until then a root led to it. If that was before step 3 was over, whoever did it has left the
//!   guard under which he did, and has retired the block, held it, or linked it again: a veto. If it was later, step 3 found it as above.
//! - *Somebody got it from the pool after A*: a veto.
//!
//! What is lost stays lost: nothing leads to it. A reader may still be in a block that a process unlinked and died before
//! retiring it; so lost blocks are retired, not freed.
//!
//! # What it costs
//!
//! It reads all blocks that are in use, once, 8 KiB at a time, and before that all that roots lead to, up to 32 objects at a time; for
//! each block of a chunk with candidates it writes three bits. The others read one of those and write the rest, and while a sweep
//! lasts, look up each word that they write. A bit in 64 of all far memory is kept here meanwhile. A list takes up a 32nd of a segment
//! at most, which is enough for all of a segment, or less where memory is short; there are as many rounds as that takes, and as many
//! passes as free something.
//!
//! Old words lead somewhere, too: a candidate that nobody uses stays if a word that is no link happens to be its address. It comes
//! back with the next sweep, or when a process finds itself alone and collects. The count of live bytes is not mended before that,
//! either.

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

/// In a list's number: its vetoes are asked for.
pub(crate) const ASKED: u64 = 1;
/// How often all candidates are gone through.
const MOST_PASSES: u32 = 8;
/// The shortest list that is worth making, in words.
const FEWEST_WORDS: usize = 64;
/// For how long others are waited for at a time.
const PATIENCE: Duration = Duration::from_secs(10);

/// What became of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Swept {
    /// So many bytes were lost, and come free.
    Bytes(u64),
    /// There is nothing to do, or somebody else does it.
    Nothing,
    /// A process died meanwhile, or did not answer.
    Disturbed,
}

/// How things stood when a round began.
pub(crate) struct Round {
    pub(crate) me: u32,
    pub(crate) evictions: u64,
}

/// What was found in step 3.
#[derive(Default)]
struct Links {
    /// The candidates that something else leads to.
    found: Vec<usize>,
    /// From which candidate to which, in the order of where from.
    between: Vec<(usize, usize)>,
}

impl Links {
    /// Where a candidate leads.
    fn of(&self, index: usize) -> impl Iterator<Item = usize> {
        let first = self.between.partition_point(|(from, _)| *from < index);
        self.between[first..].iter().take_while(move |(from, _)| *from == index).map(|(_, to)| *to)
    }

    /// Says of each candidate whether it is kept, or used: vetoed so, or led to by a block in use.
    fn vetoed(
        &self,
        candidates: &Candidates,
        used: impl Iterator<Item = u64>,
        kept: impl Iterator<Item = u64>,
    ) -> Vec<bool> {
        let mut pending: Vec<usize> = bits(used).chain(self.found.iter().copied()).collect();
        let mut is_vetoed = vec![false; candidates.most()];
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
    /// Tells the simulator that memory is used for nothing, whatever it was for.
    fn note_lost(&self, block: Block) {
        if let Some(watch) = &self.watch {
            watch.lost(self.thread, block.address, block.bytes);
        }
    }
}

impl ComputeThread {
    // ---- who sweeps --------------------------------------------------------------------------------------------

    /// Sweeps memory if processes have left some, and nobody else does.
    pub(crate) async fn sweep(&self, pace: &Pace) -> Result<Swept> {
        let Some(member) = self.process.member() else { return Ok(Swept::Nothing) };
        let me = member.identity;
        let [debts, collected, _, swept, sweeper] = self.read_array(control::debts()).await?;
        let left_bytes = self.read_word(control::left_bytes()).await?;
        let word = u64::from(me) + 1;
        // An earlier sweep of this process may have failed before it could say that it was over.
        let is_free = sweeper == 0 || sweeper == word || !self.is_member(sweeper - 1).await?;
        if debts == collected
            || debts == swept
            || !is_free
            || self.compare_exchange_word(control::sweeper(), sweeper, word).await? != sweeper
        {
            return Ok(Swept::Nothing);
        }
        let outcome = match self.read_word(control::collector()).await? {
            0 => self.sweep_in_rounds(me, pace).await,
            // Somebody wants to be alone.
            _ => Ok(Swept::Nothing),
        };
        self.take_back_list(pace).await?;
        if let Ok(Swept::Bytes(_)) = outcome {
            self.write_word(control::swept_debts(), debts).await?;
            self.fetch_add_word(control::left_bytes(), left_bytes.wrapping_neg()).await?;
        }
        self.compare_exchange_word(control::sweeper(), word, 0).await?;
        outcome
    }

    async fn sweep_in_rounds(&self, me: u32, pace: &Pace) -> Result<Swept> {
        self.take_over_list(pace).await?;
        let mut freed = 0;
        for _ in 0..MOST_PASSES {
            let Some((bytes, rounds)) = self.sweep_pass(me, pace).await? else { return Ok(Swept::Disturbed) };
            freed += bytes;
            // What was lost leads from one list to another.
            if bytes == 0 || rounds <= 1 {
                break;
            }
            self.wait_for_garbage(pace).await;
        }
        self.wait_for_garbage(pace).await;
        tracing::info!(freed_bytes = freed, "swept what processes that have ended had left");
        Ok(Swept::Bytes(freed))
    }

    /// Waits, for a while, until what was lost is free, and gives it to whoever needs it.
    async fn wait_for_garbage(&self, pace: &Pace) {
        for _ in 0..64 {
            if !self.has_garbage() {
                break;
            }
            pace.park(self).await;
        }
        self.give_everything();
    }

    /// Sweeps all candidates once, in as many rounds as it takes. Gives the bytes that were lost, and how many rounds there were;
    /// nothing if it was disturbed.
    async fn sweep_pass(&self, me: u32, pace: &Pace) -> Result<Option<(u64, u32)>> {
        let mut before = self.read_map().await?;
        self.mark_all(&mut before, TraceMode::Beside(pace)).await?;
        let mut most_words = self.most_list_words(&before);
        let mut candidates = before.candidates(None);
        if candidates.iter().map(BlockRange::words).sum::<usize>() > most_words {
            // Then at least without those that are known to be free.
            candidates = before.candidates(Some(&self.read_pool(pace).await?));
        }
        let (mut freed, mut rounds, mut rest) = (0, 0, &candidates[..]);
        while !rest.is_empty() {
            let ends = rest.iter().scan(ListHead::WORDS, |words, range| {
                *words += range.words();
                Some(*words)
            });
            let (part, further) = rest.split_at(ends.take_while(|end| *end <= most_words).count().max(1));
            match self.sweep_round(me, part, &before, pace).await {
                Ok(Some(bytes)) => (freed, rounds, rest) = (freed + bytes, rounds + 1, further),
                Ok(None) => return Ok(None),
                Err(Error::OutOfMemory(_)) if most_words > FEWEST_WORDS => most_words /= 2,
                Err(error) => return Err(error),
            }
        }
        Ok(Some((freed, rounds)))
    }

    // ---- one round ---------------------------------------------------------------------------------------------

    /// Sweeps some candidates. Gives the bytes that were lost; nothing if it was disturbed.
    async fn sweep_round(
        &self,
        me: u32,
        ranges: &[BlockRange],
        before: &Map,
        pace: &Pace,
    ) -> Result<Option<u64>> {
        let evictions = self.read_word(control::evictions()).await?;
        let round = Round { me, evictions };
        let candidates = self.publish_candidates(ranges, &round, pace).await?;
        if !self.wait_for_members(candidates.number, &round, pace).await? {
            return Ok(None);
        }
        let at_once = self.read_pool(pace).await?;
        if !self.wait_for_epochs(&round, pace).await? {
            return Ok(None);
        }
        let mut free = self.read_pool(pace).await?;
        free.mark_all_of(&at_once);
        let links = if self.has(Plant::SweepWithoutSecondLook) {
            Links::default()
        } else {
            self.read_links(&free, &candidates, pace).await?
        };
        let are_heard = self.wait_for_epochs(&round, pace).await?
            && self.ask_for_vetoes(&candidates, &round, pace).await?;
        if !are_heard {
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
        self.take_back_list(pace).await?;
        Ok(Some(bytes))
    }

    /// The blocks that are lost: no root leads to them, they are neither in the pool nor this process's, and no word of a block in use looks like a link
    /// to them. For a simulated keeper whose process is the only member, after a sweep.
    pub(crate) async fn lost_blocks(&self) -> Result<Vec<Block>> {
        let pace = Pace::default();
        let mut used = self.read_map().await?;
        self.mark_all(&mut used, TraceMode::Beside(&pace)).await?;
        let free = self.read_pool(&pace).await?;
        let candidates = Candidates::new(1, &used.candidates(Some(&free)));
        self.veto_everything(&candidates);
        let links = self.read_links(&free, &candidates, &pace).await?;
        let [used, kept] = candidates.vetoed();
        let is_vetoed = links.vetoed(&candidates, used.words(), kept.words());
        let lost = candidates.indices().filter(|index| !is_vetoed[*index]);
        Ok(lost.map(|index| candidates.block(index)).collect())
    }

    /// What chunks are used for, and what is in the pool.
    pub(crate) async fn read_pool(&self, pace: &Pace) -> Result<Map> {
        let heap = self.heap();
        let (grid, geometry) = (heap.grid, heap.geometry);
        let mut free = self.read_map().await?;
        for node in 0..geometry.nodes() {
            for class in (0..CLASSES).filter_map(Class::from_index) {
                // What comes after a page does not change while this thread is pinned and the page is on the list.
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
                    pace.breathe(self).await;
                }
            }
        }
        Ok(free)
    }

    /// Whether nobody has died since the round began, and it is not too late.
    async fn is_undisturbed(&self, round: &Round, until: Duration) -> Result<bool> {
        Ok(self.now() < until && self.read_word(control::evictions()).await? == round.evictions)
    }

    /// Waits until all members say `word`; gives whether they do and nobody has died.
    async fn wait_for_members(&self, word: u64, round: &Round, pace: &Pace) -> Result<bool> {
        let until = self.now() + PATIENCE;
        loop {
            let members = self.members().await?;
            // What it says was said before whoever is gone was evicted.
            if !self.is_undisturbed(round, until).await? || members.iter().any(|member| member.is_gone()) {
                return Ok(false);
            }
            if members.iter().all(|member| member.words.attends == word) {
                return Ok(true);
            }
            pace.park(self).await;
        }
    }

    /// Waits until all guards are over that are held now; gives whether nobody has died meanwhile.
    async fn wait_for_epochs(&self, round: &Round, pace: &Pace) -> Result<bool> {
        let until = self.now() + PATIENCE;
        let (mut epoch, _) = self.read_announcements().await?;
        if self.has(Plant::SweepWithoutGuards) {
            epoch -= 2;
        }
        while self.read_epoch().await? < epoch + 2 {
            if !self.is_undisturbed(round, until).await? {
                return Ok(false);
            }
            self.step().await;
            pace.park(self).await;
        }
        Ok(true)
    }

    /// Looks for what leads to candidates, in everything that is neither a candidate nor free.
    async fn read_links(&self, free: &Map, candidates: &Candidates, pace: &Pace) -> Result<Links> {
        let mut links = Links::default();
        let list = pace.list.get().map(|list| list.address);
        // The directory's addresses and those of slots. What leads from the pool is known; counts, names and descriptions are no links.
        let descriptions = self.kept_descriptions().await?;
        let pages = self.read_far(control::epoch_page(0), SLOT_PAGES).await?;
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
                if is_list || free.is_marked(at) || descriptions.contains(&at) {
                    continue;
                }
                let found = words.iter().flat_map(|word| candidates.in_word(*word));
                match candidates.at(at).filter(|index| candidates.block(*index).address == at) {
                    Some(candidate) => links.between.extend(found.map(|index| (candidate, index))),
                    None => links.found.extend(found),
                }
            }
        }
        links.between.sort_unstable();
        Ok(links)
    }

    /// Reads any number of words, beside others that may be freeing what is there.
    pub(crate) async fn scan_far(&self, at: Address, words: usize, pace: &Pace) -> Result<Vec<u64>> {
        let mut read = Vec::with_capacity(words);
        while read.len() < words {
            let mut chain = self.empty_chain();
            let count = (words - read.len()).min(WORDS_PER_READ);
            let slot = chain.scan(at.add((read.len() * WORD_BYTES) as u64), count);
            let done = self.submit(chain).await?;
            read.extend_from_slice(done.words(&slot));
            drop(done);
            pace.breathe(self).await;
        }
        Ok(read)
    }

    /// Asks for the vetoes and waits until all are written; gives whether they are.
    async fn ask_for_vetoes(&self, candidates: &Candidates, round: &Round, pace: &Pace) -> Result<bool> {
        let Some(list) = pace.list.get() else { return Ok(false) };
        self.write_word(list.address, candidates.number | ASKED).await?;
        self.wait_for_members(candidates.number | ASKED, round, pace).await
    }

    /// The candidates that nobody uses.
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
