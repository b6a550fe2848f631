//! Retirement: from the moment an object is unlinked until its memory is free.
//!
//! A thread keeps what it retires in its own [`Limbo`](crate::epoch::Limbo), tagged with the epoch. Every
//! [`RETIRED_PER_ADVANCE`] objects it tries to advance the epoch, without waiting for anything, and frees what has expired.
//! What an ended thread leaves behind the others of its process take over.

use super::worker::Worker;
use crate::epoch::BlockKind;
use crate::error::{self, Error, HeldBackBy, Result};
use crate::io::Purpose;
use crate::io::Retry;
use crate::io::operations::*;
use crate::io::{Reclamation, count};
use farfield_sim::Plant;
use farfield_words::Block;

/// How many objects a thread retires between attempts to advance the epoch.
pub(crate) const RETIRED_PER_ADVANCE: u64 = 64;
/// In a small segment fewer: those that take up this part of it. What was retired in the last few epochs stays for as long as
/// threads are pinned, also while they wait for memory.
const RETIRED_SHARE_PER_ADVANCE: u64 = 512;
/// How often in a row a thread that is about to end looks in vain whether the epoch has advanced.
const ATTEMPTS_TO_LEAVE: u32 = 64;
/// A thread that has retired so many objects, or a 16th of a segment, helps with every further one.
const MOST_RETIRED: usize = 4096;

impl Worker {
    /// Frees an object that no other thread can reach.
    pub(crate) async fn delete_block(&self, block: Block) -> Result<()> {
        self.heap().check_deletion(block)?;
        self.forget_compensations(block);
        self.heap().free(block);
        // Getting a page may fail; the block is free all the same.
        let _ = self.flush_surplus().await;
        Ok(())
    }

    pub(crate) fn retire(&self, block: Block) -> Result<()> {
        self.heap().check_retirement(block, self.limbo.borrow().last())?;
        count(&self.io.counters.retired, 1);
        self.heap().veto_freed(block);
        self.put_in_limbo(block, BlockKind::Object);
        let left = self.until_advance.get() - 1;
        if left > 0 {
            self.until_advance.set(left);
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

    /// Retires a block that was no object's, under a guard.
    pub(crate) fn retire_block(&self, block: Block) {
        self.heap().veto_freed(block);
        self.put_in_limbo(block, BlockKind::Internal);
    }

    fn put_in_limbo(&self, block: Block, kind: BlockKind) {
        let is_low = self.has(Plant::LowTag);
        let tag = if is_low { self.process.collector.epoch() } else { self.io.epoch.tag() };
        self.heap().note_retired(block, self.expires(tag));
        self.limbo.borrow_mut().push(tag, block, kind);
        self.advance_for(tag, block);
    }

    /// Whether this thread has retired anything that is not freed.
    pub(crate) fn has_garbage(&self) -> bool {
        !self.limbo.borrow().is_empty()
    }

    /// Whether this thread has retired more than it should hold.
    pub(crate) fn has_too_much_garbage(&self) -> bool {
        let limbo = self.limbo.borrow();
        limbo.objects() > MOST_RETIRED || limbo.bytes() > self.heap().segment_bytes() / 16
    }

    /// How reclamation stands, and who holds it back. No round trip if all compute threads are in one process; otherwise one.
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

    /// Tries to advance the epoch and frees what this thread retired long enough ago; gives how many objects.
    ///
    /// Retiring does it by itself now and then, without waiting. No round trip if all compute threads are in one process,
    /// or if another thread of this process is at it; otherwise two, at most.
    pub(crate) async fn try_reclaim(&self) -> u64 {
        self.poll_detached();
        self.step().await;
        let freed = self.free_expired(self.known_epoch());
        // Getting a page for what is surplus may fail; it is free all the same.
        let _ = self.flush_surplus().await;
        freed
    }

    /// The thread is about to end where other processes may hold pointers: waits, for a while, until what it has retired can be
    /// freed, and what others of its process have left. The rest is for whoever comes next.
    pub(crate) async fn leave_garbage(&self) {
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

    /// Frees what this thread retired long enough before `epoch`.
    pub(crate) fn free_expired(&self, epoch: u64) -> u64 {
        let epoch = epoch + u64::from(self.has(Plant::EarlyReclamation));
        self.free_all(|| self.limbo.borrow_mut().pop_expired(epoch))
    }

    /// Frees everything that this thread has retired, at a point that the caller knows to be quiescent: no thread of
    /// the cluster holds a pointer that it loaded before. Gives how many objects. No round trip.
    ///
    /// A barrier that every thread passes without a guard is such a point.
    ///
    /// # Errors
    /// [`Error::Pinned`] if this thread holds a guard.
    pub(crate) async fn reclaim_deferred(&self) -> Result<u64> {
        // What was posted and left may still write to what guards protected.
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
