//! The answers of a process to another's sweep. Its keeper acknowledges the list, and writes the process's vetoes.

use std::sync::Arc;

use super::sweeper::VETOES_REQUESTED;
use crate::error::Result;
use crate::io::operations::*;
use crate::memory::candidates::{Candidates, Marks};
use crate::segment::control::{self, ListHead, ListRange, Record};
use crate::segment::decode::{self, corrupted_as};
use crate::session::ComputeThread;
use farfield_words::Address;
use farfield_words::WORD_BYTES;

/// The number of words of vetoes that are written at a time.
const VETOES_PER_CHAIN: usize = 32;

impl ComputeThread {
    /// Reads the current list and answers, for a keeper. One round trip while no process sweeps. Returns the number of unclean exits if no
    /// process sweeps although memory is lost.
    pub(crate) async fn answer_sweep(&self) -> Result<Option<u64>> {
        let Some(member) = self.process.member() else { return Ok(None) };
        let sweep_barrier = &self.process.sweep_barrier;
        let [exits, collected, _, swept, sweeper, list] = self.read_array(control::unclean_exits()).await?;
        let is_due = exits != collected && exits != swept;
        // The list of a sweeper that has died stays.
        let is_free = sweeper == 0 || sweeper == u64::from(member.identity) + 1;
        let is_due = is_due && (is_free || !self.is_member(sweeper - 1).await?);
        let debt = is_due.then_some(exits);
        if list == 0 {
            sweep_barrier.set_candidates(None);
            return Ok(debt);
        }
        // The list is not freed while this thread is pinned, if it is still the published one.
        let _guard = self.pin();
        let word = self.read_word(control::list_of_candidates()).await?;
        let Some(page) = decode::list(&self.heap().grid, control::list_of_candidates(), word)? else {
            sweep_barrier.set_candidates(None);
            return Ok(debt);
        };
        let head = self.read_words(page, ListHead::WORDS, |words| Ok(ListHead::from_words(words))).await?;
        let number = head.number & !VETOES_REQUESTED;
        if number == 0 {
            // The sweep has ended.
            sweep_barrier.set_candidates(None);
            return Ok(debt);
        }
        let candidates = match sweep_barrier.candidates().filter(|candidates| candidates.number == number) {
            Some(candidates) => candidates,
            None => self.receive_candidates(page, number, !head.not_ranges as usize).await?,
        };
        self.check_for_sweep();
        let answer_at = Record::sweep_answer(member.record());
        let answer = sweep_barrier.answer();
        if answer & !VETOES_REQUESTED != number {
            if self.has_process_acknowledged(&candidates) {
                self.write_word(answer_at, number).await?;
                sweep_barrier.set_answer(number);
            }
        } else if head.number != answer {
            // A thread may have ended since all threads acknowledged the list.
            self.veto_ended(&candidates);
            self.write_vetoes(page, &candidates).await?;
            self.write_word(answer_at, head.number).await?;
            sweep_barrier.set_answer(head.number);
        }
        Ok(debt)
    }

    async fn receive_candidates(&self, page: Address, number: u64, ranges: usize) -> Result<Arc<Candidates>> {
        let grid = self.heap().grid;
        let at = page.add(ListHead::BYTES);
        if ranges > Candidates::max_words(&grid) / ListRange::WORDS {
            let (at, word) = (ListHead::not_ranges(page), !(ranges as u64));
            return Err(corrupted_as("list of candidates", at, word, "no list has so many ranges"));
        }
        let words = ranges * ListRange::WORDS;
        let (ranges, bits) = Candidates::decode_ranges(&grid, at, &self.read_far(at, words).await?)?;
        let at = at.add((words * WORD_BYTES) as u64);
        let candidates = Candidates::from_bits(number, &ranges, self.read_far(at, bits).await?);
        let candidates = Arc::new(candidates);
        self.process.sweep_barrier.set_candidates(Some(Arc::clone(&candidates)));
        self.process.sleepers.wake();
        Ok(candidates)
    }

    /// Adds this process's vetoes to those of others.
    async fn write_vetoes(&self, page: Address, candidates: &Candidates) -> Result<()> {
        let (offset, count) = candidates.vetoes();
        let vetoed = candidates.vetoed().into_iter().flat_map(Marks::words);
        let known = self.read_far(page.add(offset), count).await?;
        let missing = vetoed.zip(known).enumerate().map(|(index, (mine, known))| (index, mine, known));
        let mut missing: Vec<_> = missing.filter(|(_, mine, known)| mine & !known != 0).collect();
        while !missing.is_empty() {
            let mut changed = Vec::new();
            for some in missing.chunks(VETOES_PER_CHAIN) {
                let mut chain = self.empty_chain();
                chain.set_of_allocator();
                let exchange = |(index, mine, known): &(usize, u64, u64)| {
                    let at = page.add(offset + (index * WORD_BYTES) as u64);
                    chain.compare_exchange(at, *known, known | mine)
                };
                let slots: Vec<_> = some.iter().map(exchange).collect();
                let done = self.submit(chain).await?;
                for ((index, mine, known), slot) in some.iter().zip(&slots) {
                    let now = done.word(*slot);
                    if now != *known && mine & !now != 0 {
                        changed.push((*index, *mine, now));
                    }
                }
            }
            missing = changed;
        }
        Ok(())
    }

    /// Writes the vetoes of a process that is about to leave.
    pub(crate) async fn hand_over_vetoes(&self) {
        // Blocks that ended threads hold go to other processes.
        let _ = self.answer_sweep().await;
        let Some(candidates) = self.process.sweep_barrier.candidates() else { return };
        let _guard = self.pin();
        let Ok(word) = self.read_word(control::list_of_candidates()).await else { return };
        if let Ok(Some(page)) = decode::list(&self.heap().grid, control::list_of_candidates(), word)
            && let Ok(word) = self.read_word(page).await
            && word & !VETOES_REQUESTED == candidates.number
        {
            let _ = self.write_vetoes(page, &candidates).await;
        }
    }
}
