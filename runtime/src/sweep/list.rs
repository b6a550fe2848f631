//! The list of candidates in far memory: publishing and freeing it.

use std::sync::Arc;

use super::sweeper::Round;
use crate::admin::Pace;
use crate::error::Result;
use crate::io::operations::*;
use crate::memory::candidates::{BlockRange, Candidates};
use crate::memory::map::Map;
use crate::segment::grid::{Grid, Use};
use crate::segment::{control, decode};
use crate::session::ComputeThread;
use farfield_words::WORD_BYTES;

/// The divisor of free memory that bounds the size of a list.
const FREE_SHARE: u64 = 8;

/// The bytes of a block for a list: a power of two, up to the largest blocks with a class. Lists differ in size from one sweep to the next. If each had a
/// block of its own size, each would take another chunk, whose free blocks are candidates of the next sweep and make its list longer.
fn block_bytes(grid: &Grid, words: usize) -> u64 {
    let bytes = (words * WORD_BYTES) as u64;
    if bytes > grid.chunk_bytes() / 2 { bytes } else { bytes.next_power_of_two() }
}

impl ComputeThread {
    /// Returns the maximum size of a list, in words: other allocations must not run out of memory because of it.
    pub(crate) fn max_list_words(&self, map: &Map) -> usize {
        let (grid, segments) = (map.grid, self.heap().geometry.segments_of(0));
        let free = segments.map(|segment| {
            let used = map.tables[usize::from(segment)].iter().filter(|usage| **usage != Use::Free).count();
            (grid.chunks(segment) - used as u64) * grid.chunk_bytes()
        });
        let free = (free.sum::<u64>() / FREE_SHARE).max(grid.chunk_bytes() / 2);
        Candidates::max_words(&grid).min(free as usize / WORD_BYTES)
    }

    /// Writes a list and publishes it.
    pub(crate) async fn publish_list(
        &self,
        ranges: &[BlockRange],
        round: &Round,
        pace: &Pace,
    ) -> Result<Arc<Candidates>> {
        let count = pace.lists.get() + 1;
        pace.lists.set(count);
        let number = (u64::from(round.me) + 1) << 32 | u64::from(count) << 1;
        let candidates = Candidates::new(number, ranges);
        let words = candidates.to_words(ranges);
        let list = self.take_control_block(block_bytes(&self.heap().grid, words.len())).await?;
        pace.list.set(Some(list));
        // If this process dies, the next sweeper finds the list here.
        self.write_word(control::own_list_of_candidates(), list.address.bits()).await?;
        self.write_far(list.address, &words).await?;
        self.write_word(control::list_of_candidates(), list.address.bits()).await?;
        Ok(Arc::new(candidates))
    }

    /// Withdraws and frees the list of candidates, if there is one. From its allocation until it is freed its address is in the control block, so it
    /// is not lost if this process dies.
    pub(crate) async fn withdraw_list(&self, pace: &Pace) -> Result<()> {
        let Some(list) = pace.list.get() else { return Ok(()) };
        self.write_word(control::list_of_candidates(), 0).await?;
        self.wait_for_readers(pace).await?;
        pace.list.set(None);
        self.write_word(control::own_list_of_candidates(), 0).await?;
        self.put_control_page(list);
        // Immediately: this process may be the next to die.
        self.give_surplus();
        Ok(())
    }

    /// Frees the list of a sweeper that has died.
    pub(crate) async fn free_abandoned_list(&self, pace: &Pace) -> Result<()> {
        let word = self.read_word(control::own_list_of_candidates()).await?;
        if let Some(at) = decode::list(&self.heap().grid, control::own_list_of_candidates(), word)?
            && let Ok(list) = self.heap().look_up(self, at).await
        {
            pace.list.set(Some(list));
            self.withdraw_list(pace).await?;
        }
        Ok(())
    }

    /// Waits until no process reads a withdrawn list any more.
    async fn wait_for_readers(&self, pace: &Pace) -> Result<()> {
        let (epoch, _) = self.read_announcements().await?;
        while self.read_epoch().await? < epoch + 2 {
            self.step().await;
            pace.park(self).await;
        }
        Ok(())
    }

    /// Withdraws the list, because the process leaves in the middle of a sweep.
    pub(crate) async fn abandon_sweep(&self, pace: &Pace) -> Result<()> {
        if let Some(list) = pace.list.take() {
            self.write_word(control::list_of_candidates(), 0).await?;
            self.write_word(control::own_list_of_candidates(), 0).await?;
            // Other processes may be reading it.
            let _guard = self.pin();
            self.retire_block(list);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farfield_words::geometry::Geometry;
    use std::collections::BTreeSet;

    #[test]
    fn lists_of_all_sizes_take_few_sizes_of_blocks() {
        for segment_bytes in [64 << 10, 256 << 10, 1 << 30] {
            let grid = Grid::new(Geometry::new(1, 1, segment_bytes).unwrap());
            let largest = grid.chunk_bytes() as usize / 2 / WORD_BYTES;
            let sizes: BTreeSet<u64> = (2..=largest).map(|words| block_bytes(&grid, words)).collect();
            assert!(sizes.len() <= 10 && sizes.last() == Some(&(grid.chunk_bytes() / 2)), "{sizes:?}");
            for words in 2..2 * largest {
                assert!(block_bytes(&grid, words) >= (words * WORD_BYTES) as u64, "{words} words");
            }
        }
    }
}
