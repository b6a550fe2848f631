//! `Guard`: protection for loaded pointers.

use std::ops::Deref;

use super::Shared;
use crate::epoch::Pin;
use crate::error::Result;
use crate::io::operations::*;
use crate::memory::block::block_of;
use crate::session::ComputeThread;
use farfield_words::Remote;

/// While it is held, nothing that was reachable since it was pinned is freed.
///
/// Made by [`ComputeThread::pin`], at the cost of a store and a fence in local memory and of no round trip. It
/// dereferences to its [`ComputeThread`], so it can be given wherever one is asked for. Several guards of one thread
/// may overlap, in any order.
///
/// Hold it for an operation, not for a program: memory retired meanwhile waits for it, and past `max-retired` in the cluster's URL threads that
/// retire more get an error that names who holds it ([`Error::ReclamationHeldBack`](crate::Error::ReclamationHeldBack)).
pub struct Guard<'ct> {
    ct: &'ct ComputeThread,
    pin: Pin,
}

impl ComputeThread {
    /// Protects what is loaded from now on, until the guard is dropped. No round trip.
    #[inline]
    pub fn pin(&self) -> Guard<'_> {
        self.serves_requests();
        Guard { ct: self, pin: self.enter_for_guard() }
    }
}

impl Guard<'_> {
    /// Retires an object that this thread has unlinked: frees it once no guard can reach it any more.
    ///
    /// No round trip; for a type with a `Tail` one, unless the process knows the chunk that the object is in. Now and then it
    /// begins to advance the epoch, without waiting, and frees what has expired. A thread that has retired more than 4,096 objects, or a 16th of a segment,
    /// which have not been freed helps each time: [`try_reclaim`](ComputeThread::try_reclaim), which waits for up to two round
    /// trips where compute threads are in several processes.
    ///
    /// # Errors
    /// [`Error::InvalidPointer`](crate::Error::InvalidPointer) if no object can be there; in debug builds if none is, or it is
    /// retired already. [`Error::ReclamationHeldBack`](crate::Error::ReclamationHeldBack) if this thread has retired more bytes than `max-retired` in the
    /// cluster's URL allows, and a guard that somebody keeps holds them back. In that case the object is retired all the same: it must not be
    /// retired again, and is freed like the others once the guard is gone. After any other error it is not retired.
    pub async fn sched_reclaim<T: Remote, M>(&self, object: Shared<'_, T, M>) -> Result<()> {
        self.ct.retire(block_of::<T>(object.address(), self).await?)?;
        if self.ct.has_too_much_garbage() {
            self.ct.try_reclaim().await;
            if self.ct.has_too_much_garbage() {
                // Whoever holds it back may only need a processor.
                self.ct.give_way().await;
            }
        }
        // Getting a page may fail; the object is retired all the same.
        let _ = self.ct.flush_surplus().await;
        self.ct.check_retired().await
    }

    /// Gives up the protection: the same as dropping the guard. No round trip.
    pub fn unpin(self) {}

    /// Moves the guard to the current epoch, if it is the only one of its thread to hold the old one back.
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
