//! What a process does while another sweeps: its keeper hears of the list and answers.

use std::sync::Arc;

use memoffset::offset_of;

use super::{ASKED, ENTRY_WORDS, HEAD_WORDS, VETO_WORDS};
use crate::cluster::ComputeThread;
use crate::cluster::control::{self, Record};
use crate::error::Result;
use crate::layout::WORD_BYTES;
use crate::memory::heap::Block;
use crate::memory::witness::Candidates;
use crate::pointer::Address;

/// How many vetoes are written at a time.
const VETOES_PER_CHAIN: usize = 32;

impl ComputeThread {
    /// For a keeper: hears of a list, and answers. One round trip where nobody sweeps. Gives what is owed if
    /// nobody sweeps it up.
    pub(crate) async fn attend_sweep(&self) -> Result<Option<u64>> {
        let Some(member) = &self.process.shared else { return Ok(None) };
        let witness = &self.process.witness;
        let [debts, collected, _, swept, sweeper, list] = self.read_array(control::debts()).await?;
        let is_due = debts != collected && debts != swept;
        // One that has died over it leaves its list.
        let is_due = is_due && (sweeper == 0 || !self.is_member(sweeper - 1).await?);
        let owed = is_due.then_some(debts);
        if list == 0 {
            witness.hear(None);
            return Ok(owed);
        }
        // It is not freed while this thread is pinned, if it is still the one.
        let _guard = self.pin();
        let page = Address::from_bits(self.read_word(control::candidates()).await?);
        if page.is_null() {
            witness.hear(None);
            return Ok(owed);
        }
        let [word, count] = self.read_words(page, HEAD_WORDS, |words| Ok([words[0], words[1]])).await?;
        let number = word & !ASKED;
        if number == 0 {
            // It is over.
            witness.hear(None);
            return Ok(owed);
        }
        let candidates = match witness.candidates().filter(|candidates| candidates.number == number) {
            Some(candidates) => candidates,
            None => self.hear_of_candidates(page, number, !count as usize).await?,
        };
        self.hear_of_sweep();
        let attends = member.record().add(offset_of!(Record, attends) as u64);
        let has_said = witness.has_said();
        if has_said & !ASKED != number {
            if self.has_process_heard(&candidates) {
                self.write_word(attends, number).await?;
                witness.says(number);
            }
        } else if word != has_said {
            self.write_vetoes(page, &candidates).await?;
            self.write_word(attends, word).await?;
            witness.says(word);
        }
        Ok(owed)
    }

    async fn hear_of_candidates(&self, page: Address, number: u64, count: usize) -> Result<Arc<Candidates>> {
        let entries = page.add((HEAD_WORDS * WORD_BYTES) as u64);
        let bytes = (count * (ENTRY_WORDS + VETO_WORDS) * WORD_BYTES) as u64;
        self.heap().check(entries, bytes)?;
        let words = self.read_far(entries, count * ENTRY_WORDS).await?;
        let blocks = words.chunks(ENTRY_WORDS);
        let blocks = blocks.map(|words| Block { address: Address::from_bits(!words[0]), bytes: !words[1] });
        let candidates = Arc::new(Candidates::new(number, blocks.collect()));
        self.process.witness.hear(Some(Arc::clone(&candidates)));
        Ok(candidates)
    }

    async fn write_vetoes(&self, page: Address, candidates: &Candidates) -> Result<()> {
        let count = candidates.blocks().len();
        let mut words = HEAD_WORDS + ENTRY_WORDS * count..;
        for vetoed in candidates.vetoed() {
            let mut vetoed =
                words.by_ref().take(count).enumerate().filter(|(index, _)| vetoed.has(*index)).peekable();
            while vetoed.peek().is_some() {
                let mut chain = self.empty_chain();
                for (_, word) in vetoed.by_ref().take(VETOES_PER_CHAIN) {
                    chain.write(page.add((word * WORD_BYTES) as u64), &[1]);
                }
                self.submit(chain).await?;
            }
        }
        Ok(())
    }

    /// The process is about to leave: whoever sweeps gets its vetoes.
    pub(crate) async fn leave_sweep(&self) {
        let Some(candidates) = self.process.witness.candidates() else { return };
        let _guard = self.pin();
        let Ok(page) = self.read_word(control::candidates()).await else { return };
        let page = Address::from_bits(page);
        if !page.is_null()
            && let Ok(word) = self.read_word(page).await
            && word & !ASKED == candidates.number
        {
            let _ = self.write_vetoes(page, &candidates).await;
        }
    }
}
