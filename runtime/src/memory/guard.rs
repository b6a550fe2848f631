//! `Guard`: protection for loaded pointers.

use std::ops::Deref;

use super::epoch::Pin;
use super::heap::Block;
use crate::cluster::ComputeThread;
use crate::error::Result;
use crate::layout::Remote;
use crate::pointer::Shared;

/// While it is held, nothing that was reachable since it was pinned is freed.
///
/// Made by [`ComputeThread::pin`], at the cost of a store and a fence in local memory and of no round trip. It
/// dereferences to its [`ComputeThread`], so it can be given wherever one is asked for. Several guards of one thread
/// may overlap, in any order.
///
/// Hold it for an operation, not for a program: memory retired meanwhile waits for it.
pub struct Guard<'ct> {
    ct: &'ct ComputeThread,
    pin: Pin,
}

impl ComputeThread {
    /// Protects what is loaded from now on, until the guard is dropped. No round trip.
    #[inline]
    pub fn pin(&self) -> Guard<'_> {
        Guard { ct: self, pin: self.epoch.pin() }
    }
}

impl Guard<'_> {
    /// Retires an object that this thread has unlinked: frees it once no guard can reach it any more.
    ///
    /// No round trip (one for a type with a `Tail`, whose length is read). Now and then it tries to advance the epoch
    /// and frees what has expired, in local memory only.
    ///
    /// # Errors
    /// [`Error::InvalidPointer`](crate::Error::InvalidPointer) if no object can be there.
    pub async fn sched_reclaim<T: Remote>(&self, object: Shared<'_, T>) -> Result<()> {
        self.ct.retire(Block::of::<T>(object.as_ptr(), self).await?);
        Ok(())
    }

    /// Moves the guard to the current epoch, if it is the only one of its thread to hold the old one back.
    ///
    /// The exclusive borrow proves that no [`Shared`] loaded under it is still in use.
    pub fn repin(&mut self) {
        let pin = self.ct.epoch.pin();
        self.ct.epoch.unpin(std::mem::replace(&mut self.pin, pin));
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
        self.ct.epoch.unpin(self.pin);
    }
}
