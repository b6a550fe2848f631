//! Retirement: from the moment an object is unlinked until its memory is free.
//!
//! A thread puts retired blocks into its own [`Limbo`](crate::epoch::Limbo), tagged with the epoch. After every
//! [`RETIRED_PER_ADVANCE`] objects it tries to advance the epoch, without waiting, and frees the expired blocks.
//! When a thread ends, the other threads of its process take over its limbo list.

use super::worker::Worker;
use crate::epoch::BlockKind;
use crate::error::{self, Error, HeldBackBy, Result};
use crate::io::Purpose;
use crate::io::Retry;
use crate::io::operations::*;
use crate::io::{Reclamation, count};
use farfield_sim::Plant;
use farfield_words::Block;

/// The number of objects that a thread retires between attempts to advance the epoch.
pub(crate) const RETIRED_PER_ADVANCE: u64 = 64;
/// The divisor of a segment's size that bounds their bytes, so there are fewer in a small segment. Blocks retired in the last few epochs
/// stay in limbo as long as threads are pinned, also while these wait for memory.
const RETIRED_SHARE_PER_ADVANCE: u64 = 512;
/// The number of consecutive attempts without a new epoch after which an ending thread gives up.
const ATTEMPTS_TO_LEAVE: u32 = 64;
/// The number of retired objects beyond which a thread waits for an attempt to advance the epoch at each retirement. The same holds beyond a 16th of a
/// segment.
const MAX_RETIRED: usize = 4096;

impl Worker {
    /// Frees an object that no other thread can reach.
    pub(crate) async fn delete_block(&self, block: Block) -> Result<()> {
        self.heap().check_deletion(block)?;
        self.forget_compensations(block);
        self.heap().free(block);
        // Getting a page may fail; the block is free nevertheless.
        let _ = self.flush_surplus().await;
        Ok(())
    }

    pub(crate) fn retire(&self, block: Block) -> Result<()> {
        self.heap().check_retirement(block, self.limbo.borrow().last())?;
        count(&self.io.counters.retired, 1);
        self.heap().veto_freed(block);
        self.put_in_limbo(block, BlockKind::Object);
        let remaining = self.until_advance.get() - 1;
        if remaining > 0 {
            self.until_advance.set(remaining);
        } else {
            let bytes = (self.heap().segment_bytes() / RETIRED_SHARE_PER_ADVANCE).max(block.bytes);
            self.until_advance.set(RETIRED_PER_ADVANCE.min(bytes / block.bytes));
            self.poll_detached();
            let epoch = self.advance_epoch();
            self.free_expired(epoch);
            self.report_held_bytes();
        }
        Ok(())
    }

    /// Retires a block of the library's own, under a guard.
    pub(crate) fn retire_block(&self, block: Block) {
        self.heap().veto_freed(block);
        self.put_in_limbo(block, BlockKind::Internal);
    }

    fn put_in_limbo(&self, block: Block, kind: BlockKind) {
        let is_low = self.has(Plant::LowTag);
        let tag = if is_low { self.process.collector.epoch() } else { self.io.epoch.tag() };
        self.heap().note_retired(block, self.expires(tag));
        self.limbo.borrow_mut().push(tag, block, kind);
        self.advance_for_retired(tag, block);
    }

    /// Returns whether this thread has retired blocks that are not freed yet.
    pub(crate) fn has_garbage(&self) -> bool {
        !self.limbo.borrow().is_empty()
    }

    /// Returns whether this thread has retired more than it should keep.
    pub(crate) fn has_too_much_garbage(&self) -> bool {
        let limbo = self.limbo.borrow();
        limbo.objects() > MAX_RETIRED || limbo.bytes() > self.heap().segment_bytes() / 16
    }

    /// The state of reclamation, and the thread or process that holds it back. No round trip if all compute threads are in one process;
    /// otherwise one.
    ///
    /// # Errors
    /// Those of a READ.
    pub(crate) async fn reclamation(&self) -> Result<Reclamation> {
        let (epoch, process) = self.read_announcements().await?;
        self.known_epoch();
        let thread = self.process.collector.laggard();
        let limbo = self.limbo.borrow();
        Ok(Reclamation {
            epoch,
            held_back_by: thread.map(HeldBackBy::Thread).or(process.map(HeldBackBy::Process)),
            retired_objects: limbo.objects() as u64,
            retired_bytes: limbo.bytes(),
        })
    }

    /// Tries to advance the epoch, and frees this thread's expired blocks. Returns the number of freed objects.
    ///
    /// Retiring does so regularly, without waiting. No round trip if all compute threads are in one process, or if another thread of
    /// this process takes a [step](super::global); otherwise two, at most.
    pub(crate) async fn try_reclaim(&self) -> u64 {
        self.poll_detached();
        self.step().await;
        let freed = self.free_expired(self.known_epoch());
        // Getting a page for surplus blocks may fail; they are free nevertheless.
        let _ = self.flush_surplus().await;
        freed
    }

    /// Waits until the blocks in the limbo lists of this thread and of ended threads of its process can be freed: the thread is about to
    /// end, and other processes may hold pointers. After [`ATTEMPTS_TO_LEAVE`] the remaining blocks stay for the next thread.
    pub(crate) async fn drain_limbo(&self) {
        if !self.is_shared {
            return;
        }
        let mut backoff = Retry::for_holder(self).bounded();
        let mut fruitless = 0;
        while fruitless < ATTEMPTS_TO_LEAVE {
            self.take_orphans();
            if !self.has_garbage() {
                return;
            }
            let epoch = self.process.collector.epoch();
            self.try_reclaim().await;
            fruitless = if self.process.collector.epoch() == epoch { fruitless + 1 } else { 0 };
            backoff.wait_for(Purpose::Epoch).await;
        }
    }

    /// Frees this thread's blocks that have expired by `epoch`. Returns the number of freed objects.
    pub(crate) fn free_expired(&self, epoch: u64) -> u64 {
        let epoch = epoch + u64::from(self.has(Plant::EarlyReclamation));
        self.free_all(|| self.limbo.borrow_mut().pop_expired(epoch))
    }

    /// Frees all blocks that this thread has retired, at a quiescent point: no thread of the cluster holds a pointer that it loaded
    /// before. The caller guarantees that. Returns the number of freed objects. No round trip.
    ///
    /// A barrier that every thread passes without a guard is a quiescent point.
    ///
    /// # Errors
    /// [`Error::Pinned`] if this thread holds a guard.
    pub(crate) async fn reclaim_deferred(&self) -> Result<u64> {
        // Detached chains may still write to blocks that guards protected.
        self.wait_for_detached().await;
        let guards = self.io.epoch.guards();
        if guards > 0 {
            return Err(Error::from(error::Pinned { operation: "reclaim_deferred", guards }));
        }
        Ok(self.free_all(|| self.limbo.borrow_mut().pop_any()))
    }

    fn free_all(&self, mut next: impl FnMut() -> Option<(Block, BlockKind)>) -> u64 {
        let mut freed = 0;
        while let Some((block, kind)) = next() {
            match kind {
                BlockKind::Object => {
                    self.heap().free(block);
                    freed += 1;
                }
                BlockKind::Internal => self.heap().put(block),
            }
        }
        count(&self.io.counters.reclaimed, freed);
        if freed > 0 {
            tracing::trace!(freed, "reclaimed");
        }
        self.give_surplus();
        freed
    }
}
