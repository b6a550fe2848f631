//! `Guard`: protection for loaded pointers.

use std::ops::Deref;

use super::counted::report_if_counted;
use super::{MaybeMarks, Shared};
use crate::epoch::{GRACE_EPOCHS, Pin};
use crate::error::Result;
use crate::io::at_first_poll;
use crate::io::operations::*;
use crate::session::ComputeThread;
use farfield_words::{Address, Remote};

/// A pin of a compute thread. While it is held, no object that was reachable since it was pinned is freed.
///
/// Made by [`ComputeThread::pin`], at the cost of a store and a fence in local memory and of no round trip. It dereferences to its [`ComputeThread`],
/// so it can be passed wherever a `&ComputeThread` is expected. Several guards of one thread may overlap, in any order.
///
/// Hold a guard for one operation, not for a whole program. Memory retired meanwhile is not freed before the guard is dropped. Threads that have
/// retired more than `max-retired` in the cluster's URL get an error that names the thread or process with the oldest guard
/// ([`Error::ReclamationHeldBack`](crate::Error::ReclamationHeldBack)).
pub struct Guard<'ct> {
    ct: &'ct ComputeThread,
    pin: Pin,
}

/// The epoch in which a guard was pinned. See [`Guard::epoch`].
///
/// Only comparisons have a meaning. Values of guards of different threads are never equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PinnedEpoch {
    epoch: u64,
    /// Names the thread, and the last barrier that it had passed: behind one, memory may be freed without a new epoch.
    quiescent_points: u64,
}

/// The time until all guards are dropped that were held at a moment. See [`Guard::grace_period`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GracePeriod {
    /// The epoch in which it is over.
    ends_in: u64,
}

impl ComputeThread {
    /// Pins the thread: protects pointers loaded from now on, until the guard is dropped. No round trip.
    #[inline]
    pub fn pin(&self) -> Guard<'_> {
        self.serves_requests();
        Guard { ct: self, pin: self.enter_for_guard() }
    }

    /// Returns whether a [grace period](Guard::grace_period) is over. No round trip.
    pub fn is_over(&self, period: GracePeriod) -> bool {
        self.known_epoch() >= period.ends_in
    }
}

impl Guard<'_> {
    /// Returns the epoch in which the guard is pinned. No round trip.
    ///
    /// An object that a thread reached under a guard is protected by each later guard of the thread whose epoch is equal. So a program that remembers a pointer,
    /// and the epoch of the guard under which it last found it in the structure, can use it under such a guard without looking for it again. The object may
    /// have been removed from the structure since. An object that is deleted, not retired, is not protected.
    ///
    /// # Why that is safe
    ///
    /// Let guard `A` be pinned in epoch `p` when the object is reachable, and guard `B` in the same epoch `p`. The thread of `A` has read `p`, so the epoch is at
    /// least `p` at that moment, and at least `p` when the object is unlinked, which is later. The tag of a retired object is an upper bound on
    /// that epoch, so it is at least `p`, and the memory is not reused before the epoch is `p + 2`. While `B` is held, the slot of its thread shows `p` or `p - 1`,
    /// so the epoch is at most `p + 1`; and epochs only grow, so it has never been `p + 2` before.
    ///
    /// That holds in a process that is alone, whose epochs are its own; among several, where a view of the epoch that lags behind only makes `p` smaller; and in the
    /// simulator, which advances the epoch earlier, but by the same rule. A sweep frees an object that a dead process has unlinked when the epoch has advanced
    /// twice since it found no link to it, which is `p + 2` at the earliest, too. [`reclaim_deferred`](ComputeThread::reclaim_deferred)
    /// and the end of the last run do not wait for epochs. So values from before a barrier, and from after it, are never equal, and neither are those of two threads.
    ///
    /// ```
    /// use farfield::prelude::*;
    ///
    /// # fn main() -> farfield::Result<()> {
    /// Cluster::connect("local:")?.run(1, async |ct| {
    ///     let found = ct.pin().epoch();
    ///     // Another operation, later: is a pointer that the first one found protected still?
    ///     assert_eq!(ct.pin().epoch(), found);
    ///     ct.barrier("freed").await?;
    ///     assert_ne!(ct.pin().epoch(), found);
    ///     Ok(())
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn epoch(&self) -> PinnedEpoch {
        let epoch = self.ct.io.epoch.epoch_of(self.pin);
        PinnedEpoch { epoch, quiescent_points: self.ct.quiescent_points.get() }
    }

    /// Begins a grace period, which is over when all guards of all threads have been dropped that are held now. No round trip, and nothing to be given back.
    ///
    /// So a program can protect memory of its own by the same guards as far memory: what no thread can find any more is used again when
    /// [the period is over](ComputeThread::is_over). As for retired objects, that may take as long as a guard is held, and longer: until the epoch has advanced, which
    /// [`try_reclaim`](ComputeThread::try_reclaim) and retirements see to.
    ///
    /// ```
    /// use farfield::prelude::*;
    ///
    /// # fn main() -> farfield::Result<()> {
    /// Cluster::connect("local:")?.run(1, async |ct| {
    ///     let reader = ct.pin();
    ///     let period = ct.pin().grace_period();
    ///     for _ in 0..10 {
    ///         ct.try_reclaim().await;
    ///     }
    ///     assert!(!ct.is_over(period), "the reader may use what it has found");
    ///     drop(reader);
    ///     while !ct.is_over(period) {
    ///         ct.try_reclaim().await;
    ///     }
    ///     Ok(())
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn grace_period(&self) -> GracePeriod {
        GracePeriod { ends_in: self.ct.io.epoch.tag() + GRACE_EPOCHS }
    }

    /// Retires an object that this thread has unlinked. It is freed once no guard protects it.
    ///
    /// No round trip; one for a type with a `Tail`, unless the process knows the chunk of the object. After some retirements it also starts to
    /// advance the epoch, without waiting, and frees objects whose grace period is over. A thread with more than 4,096 retired objects that are not
    /// freed then calls [`try_reclaim`](ComputeThread::try_reclaim), which takes up to two round trips if compute threads are in several processes.
    /// A thread with more than a 16th of a segment does so at each retirement.
    ///
    /// # Errors
    /// [`Error::InvalidPointer`](crate::Error::InvalidPointer) if no object can be at the address; in debug builds also if no object is there, or it
    /// is already retired. [`Error::ReclamationHeldBack`](crate::Error::ReclamationHeldBack) if this thread has retired more bytes than `max-retired`
    /// in the cluster's URL allows, and a guard keeps them from being freed. After that error the object *is* retired: do not retire it again. It is
    /// freed like the others once the guard is dropped. After any other error the object is not retired.
    #[inline]
    pub fn sched_reclaim<T: Remote, M: MaybeMarks>(
        &self,
        object: Shared<'_, T, M>,
    ) -> impl Future<Output = Result<()>> {
        let at = object.address();
        report_if_counted::<T>(at);
        at_first_poll(move || self.ct.retire_object::<T>(at).ok_or(at), |at| self.finish_retirement::<T>(at))
    }

    /// The part of a retirement that may wait. An object with a tail is not retired yet.
    async fn finish_retirement<T: Remote>(&self, at: Address) -> Result<()> {
        if T::TAIL_STRIDE > 0 {
            let block = self.ct.heap().look_up(self, at).await?;
            if let Some(retired) = self.ct.retire(block) {
                return retired;
            }
        }
        self.settle_retirement().await
    }

    /// What remains to be done after a retirement, and may wait.
    pub(crate) async fn settle_retirement(&self) -> Result<()> {
        if self.ct.has_too_much_garbage() {
            self.ct.try_reclaim().await;
            if self.ct.has_too_much_garbage() {
                // The thread with the guard may only need the processor.
                self.ct.give_way().await;
            }
        }
        // Allocating a page may fail; the object is retired all the same.
        let _ = self.ct.flush_surplus().await;
        self.ct.check_retired().await
    }

    /// Ends the protection, like dropping the guard. No round trip.
    pub fn unpin(self) {}

    /// Moves the guard to the current epoch. The old epoch is released if no other guard of the thread is in it. No round trip.
    ///
    /// The exclusive borrow proves that no [`Shared`] loaded under it is still in use.
    pub fn repin(&mut self) {
        let pin = self.ct.enter_epoch();
        self.ct.leave_epoch(std::mem::replace(&mut self.pin, pin));
        if let Some(sim) = self.ct.io.endpoint.virtual_time() {
            sim.unpins();
            sim.pins(|| self.ct.process.collector.epoch());
        }
    }
}

impl Deref for Guard<'_> {
    type Target = ComputeThread;
    #[inline]
    fn deref(&self) -> &ComputeThread {
        self.ct
    }
}

impl Drop for Guard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.ct.leave_for_guard(self.pin);
    }
}
