//! Objects that a program frees itself, and objects that a sweep must not reclaim.

use std::fmt;
use std::rc::Rc;

use super::counted::report_if_counted;
use super::{Pointer, RemotePtr};
use crate::error::Result;
use crate::io::at_first_poll;
use crate::memory::heap::ThreadHeap;
use crate::memory::holdings::Content;
use crate::session::ComputeThread;
use farfield_words::{Address, Remote};

/// An object that a sweep must not reclaim although it is not reachable from a root. Made by [`ComputeThread::hold`].
pub struct Held<T> {
    object: RemotePtr<T>,
    heap: Rc<ThreadHeap>,
    place: u32,
}

impl<T> Held<T> {
    /// Returns a pointer to the object.
    pub fn as_ptr(&self) -> RemotePtr<T> {
        self.object
    }
}

impl<T> Drop for Held<T> {
    fn drop(&mut self) {
        self.heap.holdings.release(self.place);
    }
}

impl<T> fmt::Debug for Held<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Held({})", self.object.address())
    }
}

impl ComputeThread {
    /// Protects an object from being reclaimed by a sweep, until the returned value is dropped. No round trip.
    ///
    /// After the death of a process, a sweep reclaims objects that are not reachable from any root, while other processes run. It spares objects that
    /// a guard protects, each [`Owned`](crate::Owned), objects written with [`Owned::write`](crate::Owned::write) by a live process, and retired
    /// objects. An object that was unlinked and that the program keeps *without a guard*, to link it again or to [`delete`](Self::delete) it later,
    /// must be held. Call `hold` before the drop of the guard under which it was unlinked.
    pub fn hold<P: Pointer>(&self, object: P) -> Held<P::Pointee> {
        let object = RemotePtr::<P::Pointee>::from_address(object.points_to());
        let heap = Rc::clone(self.heap());
        if heap.process.sweep_barrier.is_active() {
            heap.with_candidates(|candidates| candidates.mark_used(object.address()));
        }
        let place = heap.holdings.hold(object.address(), Content::Written);
        Held { object, heap, place }
    }

    /// Frees an object that no other thread can reach: because it was never shared, or at a quiescent point.
    ///
    /// No round trip; one for a type with a `Tail`, unless the process knows the chunk of the object; occasionally more, to return surplus blocks to
    /// the pool. If other threads may still have a pointer to the object, use [`Guard::sched_reclaim`](crate::Guard::sched_reclaim). An unlinked
    /// object that is kept without a guard must be [held](Self::hold) until then.
    ///
    /// # Errors
    /// [`Error::InvalidPointer`](crate::Error::InvalidPointer) if no object can be at the address.
    #[inline]
    pub fn delete<P: Pointer<Pointee: Remote>>(&self, object: P) -> impl Future<Output = Result<()>> {
        let at = object.points_to();
        report_if_counted::<P::Pointee>(at);
        self.delete_unreported::<P::Pointee>(at)
    }

    /// Frees an object that does not count any more.
    #[inline]
    pub(crate) fn delete_unreported<T: Remote>(&self, at: Address) -> impl Future<Output = Result<()>> {
        at_first_poll(move || self.delete_object::<T>(at).ok_or(at), |at| self.finish_deletion::<T>(at))
    }

    /// The part of a deletion that may wait. An object with a tail is not freed yet.
    async fn finish_deletion<T: Remote>(&self, at: Address) -> Result<()> {
        if T::TAIL_STRIDE > 0 {
            let block = self.heap().look_up(self, at).await?;
            self.delete_block(block).transpose()?;
        }
        // Getting a page may fail; the block is free nevertheless.
        let _ = self.flush_surplus().await;
        Ok(())
    }
}
