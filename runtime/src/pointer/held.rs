//! Objects that a program frees by itself, and those that are kept from being taken for lost.

use std::fmt;
use std::rc::Rc;

use super::{Pointer, RemotePtr};
use crate::error::Result;
use crate::memory::block::block_of;
use crate::memory::heap::ThreadHeap;
use crate::memory::holdings::Content;
use crate::session::ComputeThread;
use farfield_words::Remote;

/// An object that is kept though no root leads to it: see [`ComputeThread::hold`].
pub struct Held<T> {
    object: RemotePtr<T>,
    heap: Rc<ThreadHeap>,
    place: u32,
}

impl<T> Held<T> {
    /// The object.
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
    /// Keeps an object from being taken for lost, for as long as the value that this gives lives.
    ///
    /// When a process has died, the memory of objects that no root leads to is taken back while the others go on. Whatever a guard
    /// protects is safe from that, and so are an [`Owned`](crate::Owned), what was written with [`Owned::write`](crate::Owned::write)
    /// by a process that lives, and what is retired. An object that was unlinked and that the program keeps *without a guard*, to
    /// link it again or to [`delete`](Self::delete) it later, has to be held. Hold it before the guard is dropped under which it was
    /// unlinked. No round trip.
    pub fn hold<P: Pointer>(&self, object: P) -> Held<P::Pointee> {
        let object = RemotePtr::<P::Pointee>::from_address(object.points_to());
        let heap = Rc::clone(self.heap());
        if heap.process.sweep_barrier.is_called() {
            heap.with_candidates(|candidates| candidates.uses(object.address()));
        }
        let place = heap.holdings.hold(object.address(), Content::Written);
        Held { object, heap, place }
    }

    /// Frees an object that no other thread can reach: one that was never shared, or at a quiescent point.
    ///
    /// No round trip; for a type with a `Tail` one, unless the process knows the chunk that the object is in, and now and then some
    /// to give back what is surplus. For an object that others may still hold a pointer to, use
    /// [`Guard::sched_reclaim`](crate::Guard::sched_reclaim). One that has been unlinked and is kept until then without a guard has to
    /// be [held](Self::hold).
    ///
    /// # Errors
    /// [`Error::InvalidPointer`] if no object can be there.
    pub async fn delete<P: Pointer<Pointee: Remote>>(&self, object: P) -> Result<()> {
        let block = block_of::<P::Pointee>(object.points_to(), self).await?;
        self.delete_block(block).await
    }
}
