//! Retirement: from the moment an object is unlinked until its memory is free.
//!
//! A thread puts retired blocks into its own [`Limbo`](crate::epoch::Limbo), tagged with the epoch. After every
//! [`RETIRED_PER_ADVANCE`] objects it tries to advance the epoch, without waiting, and frees the expired blocks.
//! When a thread ends, the other threads of its process take over its limbo list.

use std::cell::RefMut;

use super::block::{block_of, known_block, sized_block_of};
use super::worker::Worker;
use crate::epoch::{BlockKind, Limbo, Run};
use crate::error::{self, Error, HeldBackBy, Result};
use crate::io::Purpose;
use crate::io::Retry;
use crate::io::operations::*;
use crate::io::{Reclamation, count};
use farfield_sim::Plant;
use farfield_words::{Address, Block, Remote};

/// The number of objects that a thread retires between attempts to advance the epoch.
pub(crate) const RETIRED_PER_ADVANCE: u64 = 64;
/// The divisor of a segment's size that bounds their bytes, so there are fewer in a small segment. Blocks retired in the last few epochs
/// stay in limbo as long as threads are pinned, also while these wait for memory.
const RETIRED_SHARE_PER_ADVANCE: u64 = 512;
/// The number of consecutive attempts without a new epoch after which an ending thread gives up.
const ATTEMPTS_TO_LEAVE: u32 = 64;
/// The number of epochs for which a thread or process that is about to end frees garbage. A few are enough for objects; giving back many free blocks takes a page of the pool,
/// and so an epoch, for some hundred of them. If the allocator's words are corrupt, freeing may make new garbage for ever.
pub(crate) const EPOCHS_TO_LEAVE: u32 = 1 << 14;
/// The number of retired objects beyond which a thread waits for its attempts to advance the epoch. An attempt at each retirement would cost more than
/// retiring, and while another process is idle, all of them fail.
const MAX_RETIRED: usize = 4096;

/// The number of retired blocks of the library's own from which on a thread tries to advance the epoch whenever it takes a page of the pool.
const MAX_INTERNAL: usize = 16;

/// The number of retired bytes beyond which a thread attempts it at each retirement, and waits.
pub(crate) fn max_garbage(segment_bytes: u64) -> u64 {
    segment_bytes / 16
}

impl Worker {
    /// Frees the object at `address`, which no other thread can reach. Like [`Worker::delete_block`]; also `None` if the type has a tail: then the
    /// block is to be [looked up](super::heap::ThreadHeap::look_up) first.
    pub(crate) fn delete_object<T: Remote>(&self, address: Address) -> Option<Result<()>> {
        match known_block::<T>(address, self.heap()) {
            Some(block) => self.delete_block(block),
            None => self.delete_unknown(block_of::<T>(address, self.heap())?),
        }
    }

    #[cold]
    fn delete_unknown(&self, block: Result<Block>) -> Option<Result<()>> {
        block.map_or_else(|error| Some(Err(error)), |block| self.delete_block(block))
    }

    /// Frees an object that no other thread can reach. `None` if the object is freed, and [`Worker::flush_surplus`] has work to do.
    #[inline(always)]
    #[allow(clippy::inline_always)] // into `delete_object`
    pub(crate) fn delete_block(&self, block: Block) -> Option<Result<()>> {
        if let Err(error) = self.heap().check_deletion(block) {
            return Some(Err(error));
        }
        self.forget_compensations(block);
        self.heap().free(block);
        (!self.heap().has_to_flush()).then_some(Ok(()))
    }

    /// Retires the object at `address`. Like [`Worker::retire`]; also `None` if the type has a tail, as in [`Worker::delete_object`].
    pub(crate) fn retire_object<T: Remote>(&self, address: Address) -> Option<Result<()>> {
        match known_block::<T>(address, self.heap()) {
            Some(block) => self.retire(block),
            None => self.retire_unknown(block_of::<T>(address, self.heap())?),
        }
    }

    /// Like [`retire_object`](Self::retire_object), for an object whose tail has `tail` elements.
    pub(crate) fn retire_sized<T: Remote>(&self, address: Address, tail: u64) -> Option<Result<()>> {
        match sized_block_of::<T>(address, tail, self.heap()) {
            Ok(block) => self.retire(block),
            Err(error) => Some(Err(error)),
        }
    }

    #[cold]
    fn retire_unknown(&self, block: Result<Block>) -> Option<Result<()>> {
        block.map_or_else(|error| Some(Err(error)), |block| self.retire(block))
    }

    /// Retires an object. After some retirements also starts to advance the epoch, and frees the expired blocks. `None` if the object is retired, and
    /// the thread has to wait for the reclamation of others, or to move free blocks to the pool.
    #[inline(always)]
    #[allow(clippy::inline_always)] // into `retire_object`
    pub(crate) fn retire(&self, block: Block) -> Option<Result<()>> {
        let limbo = self.limbo.borrow_mut();
        if let Err(error) = self.heap().check_retirement(block, limbo.ends_with(block.address)) {
            return Some(Err(error));
        }
        count(&self.io.counters.retired, 1);
        let mut must_wait = self.put_in_limbo(limbo, block, BlockKind::Object);
        let until_advance = self.until_advance.get() - 1;
        self.until_advance.set(until_advance);
        if until_advance == 0 {
            must_wait |= self.advance_after(block);
        }
        if must_wait || self.heap().has_to_flush() {
            return None;
        }
        if self.heap().is_observed {
            self.free_eagerly();
        }
        Some(Ok(()))
    }

    /// Starts to advance the epoch, and frees the expired blocks. Returns whether more are left than the thread should keep.
    #[cold]
    fn advance_after(&self, block: Block) -> bool {
        let bytes = (self.heap().segment_bytes() / RETIRED_SHARE_PER_ADVANCE).max(block.bytes);
        self.until_advance.set(RETIRED_PER_ADVANCE.min(bytes / block.bytes));
        self.advance_and_free();
        self.has_too_much_garbage()
    }

    fn advance_and_free(&self) {
        self.poll_detached();
        let epoch = self.advance_epoch();
        self.free_expired(epoch);
        self.report_held_bytes();
    }

    /// Retires a block of the library's own, under a guard.
    pub(crate) fn retire_block(&self, block: Block) {
        self.put_in_limbo(self.limbo.borrow_mut(), block, BlockKind::Internal);
    }

    /// Starts to advance the epoch if the thread has retired many blocks of the library's own, and frees the expired ones. Otherwise a thread that
    /// retires no objects would take new memory for each page of the pool.
    pub(crate) fn reclaim_internal(&self) {
        if self.limbo.borrow().internal() >= MAX_INTERNAL {
            self.advance_and_free();
        }
    }

    /// Returns whether the thread may have retired more bytes than it should keep.
    #[inline(always)]
    #[allow(clippy::inline_always)] // into `retire`
    fn put_in_limbo(&self, mut limbo: RefMut<'_, Limbo>, block: Block, kind: BlockKind) -> bool {
        let tag = if self.heap().is_observed { self.observe_retired(block) } else { self.io.epoch.tag() };
        limbo.push(tag, block, kind);
        limbo.bytes() > self.most_unchecked
    }

    /// Reports a retired block to a sweep and to the simulator. Returns its tag.
    #[inline(never)]
    fn observe_retired(&self, block: Block) -> u64 {
        self.heap().veto_freed(block);
        let is_low = self.has(Plant::LowTag);
        let tag = if is_low { self.process.collector.epoch() } else { self.io.epoch.tag() };
        self.heap().note_retired(block, self.expires(tag));
        self.advance_for_retired(tag, block);
        tag
    }

    /// Returns whether this thread has retired blocks that are not freed yet.
    pub(crate) fn has_garbage(&self) -> bool {
        !self.limbo.borrow().is_empty()
    }

    /// Returns whether this thread has retired more than it should keep.
    pub(crate) fn has_too_much_garbage(&self) -> bool {
        let limbo = self.limbo.borrow();
        limbo.objects() > MAX_RETIRED || limbo.bytes() > max_garbage(self.heap().segment_bytes())
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
    /// end, and other processes may hold pointers. After [`ATTEMPTS_TO_LEAVE`] without a new epoch, or [`EPOCHS_TO_LEAVE`], the remaining blocks stay
    /// for the next thread.
    pub(crate) async fn drain_limbo(&self) {
        if !self.is_shared {
            return;
        }
        let mut backoff = Retry::for_holder(self).bounded();
        let (mut fruitless, mut epochs) = (0, 0);
        while fruitless < ATTEMPTS_TO_LEAVE && epochs < EPOCHS_TO_LEAVE {
            self.take_orphans();
            if !self.has_garbage() {
                return;
            }
            let epoch = self.process.collector.epoch();
            self.try_reclaim().await;
            (fruitless, epochs) = if self.process.collector.epoch() == epoch {
                (fruitless + 1, epochs)
            } else {
                (0, epochs + 1)
            };
            backoff.wait_for(Purpose::Epoch).await;
        }
    }

    /// Frees this thread's blocks that have expired by `epoch`. Returns the number of freed objects.
    pub(crate) fn free_expired(&self, epoch: u64) -> u64 {
        let epoch = epoch + u64::from(self.has(Plant::EarlyReclamation));
        self.free_all(|limbo| limbo.pop_expired(epoch))
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
        self.passes_quiescent_point();
        Ok(self.free_all(Limbo::pop_any))
    }

    fn free_all(&self, next: impl Fn(&mut Limbo) -> Option<Run>) -> u64 {
        let mut freed = 0;
        loop {
            let Some(run) = next(&mut self.limbo.borrow_mut()) else { break };
            self.heap().free_run(&run);
            freed += run.objects() as u64;
            self.limbo.borrow_mut().recycle(run);
        }
        count(&self.io.counters.reclaimed, freed);
        if freed > 0 {
            tracing::trace!(freed, "reclaimed");
        }
        self.give_surplus();
        freed
    }
}
