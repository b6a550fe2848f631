//! `LocalEpoch`: epoch-based reclamation for objects of this process, without far memory and without a cluster.
//!
//! The same scheme as for far memory, at its lower level: what is proven and model-checked in [`epoch`](super) holds
//! here too. A thread [registers](LocalEpoch::register), pins, and retires boxes that no new reader can reach; each is
//! dropped once no guard can reach it any more. What a thread that ends has retired is dropped by those that remain, or with
//! the `LocalEpoch`.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use super::primitive::Arc;
use super::{Collector, GRACE_EPOCHS, Participant, Pin};

/// How many objects a thread retires between attempts to advance the epoch.
const RETIRED_PER_ADVANCE: u32 = 64;

/// Whatever can be dropped.
trait Garbage: Send {}
impl<T: Send> Garbage for T {}

/// Retired objects and the tags that they were retired with, oldest first.
type Limbo = VecDeque<(u64, Box<dyn Garbage>)>;

/// When may an object that threads of this process share be dropped?
///
/// ```
/// use std::sync::atomic::{AtomicUsize, Ordering};
/// use farfield::LocalEpoch;
///
/// struct Page(u64);
/// let epoch = LocalEpoch::new();
/// let thread = epoch.register();
/// let guard = thread.pin(); // what is loaded from now on stays until the guard is dropped
/// let unlinked = Box::new(Page(7));
/// guard.retire(unlinked); // dropped when no guard can reach it
/// drop(guard);
/// let dropped: usize = (0..4).map(|_| thread.try_reclaim()).sum();
/// assert_eq!(dropped, 1);
/// ```
///
/// Cloning it is cheap and gives the same.
#[derive(Clone)]
pub struct LocalEpoch {
    collector: Arc<Collector>,
    /// What threads that have ended had retired.
    orphans: std::sync::Arc<Mutex<Vec<Limbo>>>,
}

impl LocalEpoch {
    /// One with no threads.
    pub fn new() -> Self {
        Self { collector: Arc::new(Collector::new()), orphans: std::sync::Arc::default() }
    }

    /// The calling thread takes part.
    pub fn register(&self) -> LocalThread {
        LocalThread {
            epoch: self.clone(),
            participant: Collector::register(&self.collector, 0),
            limbo: RefCell::default(),
            until_advance: Cell::new(RETIRED_PER_ADVANCE),
        }
    }

    fn orphans(&self) -> std::sync::MutexGuard<'_, Vec<Limbo>> {
        // A list of lists is whole at every moment.
        self.orphans.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for LocalEpoch {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for LocalEpoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalEpoch").field("epoch", &self.collector.epoch()).finish_non_exhaustive()
    }
}

/// A thread's part in a [`LocalEpoch`].
pub struct LocalThread {
    epoch: LocalEpoch,
    participant: Participant,
    limbo: RefCell<Limbo>,
    until_advance: Cell<u32>,
}

impl LocalThread {
    /// Protects what is loaded from now on, until the guard is dropped: an exchange and a load of local memory. Guards of one
    /// thread may overlap.
    #[inline]
    pub fn pin(&self) -> LocalGuard<'_> {
        LocalGuard { thread: self, pin: self.participant.pin() }
    }

    /// Tries to advance the epoch and drops what was retired long enough ago; gives how many objects. Retiring does it by
    /// itself now and then.
    pub fn try_reclaim(&self) -> usize {
        let epoch = self.epoch.collector.try_advance();
        let mut dropped = drop_expired(&self.limbo, epoch);
        let orphans = std::mem::take(&mut *self.epoch.orphans());
        for limbo in orphans {
            let limbo = RefCell::new(limbo);
            dropped += drop_expired(&limbo, epoch);
            let left = limbo.into_inner();
            if !left.is_empty() {
                self.epoch.orphans().push(left);
            }
        }
        dropped
    }

    /// How many objects this thread has retired that are not dropped yet.
    pub fn retired(&self) -> usize {
        self.limbo.borrow().len()
    }
}

/// Drops what has expired, with nothing borrowed: a destructor may retire something itself.
fn drop_expired(limbo: &RefCell<Limbo>, epoch: u64) -> usize {
    let mut dropped = 0;
    loop {
        let expired = limbo.borrow().front().is_some_and(|(tag, _)| tag + GRACE_EPOCHS <= epoch);
        if !expired {
            return dropped;
        }
        let object = limbo.borrow_mut().pop_front();
        drop(object);
        dropped += 1;
    }
}

impl fmt::Debug for LocalThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalThread").field("retired", &self.retired()).finish_non_exhaustive()
    }
}

impl Drop for LocalThread {
    /// What it has retired is left to the others.
    fn drop(&mut self) {
        let limbo = self.limbo.take();
        if !limbo.is_empty() {
            self.epoch.orphans().push(limbo);
        }
    }
}

/// Protection for what a thread loads while it is held.
pub struct LocalGuard<'t> {
    thread: &'t LocalThread,
    pin: Pin,
}

impl LocalGuard<'_> {
    /// Drops `object` once no guard can reach it any more. It must be unlinked: nobody who pins from now on finds it.
    pub fn retire<T: Send + 'static>(&self, object: Box<T>) {
        let thread = self.thread;
        thread.limbo.borrow_mut().push_back((thread.participant.tag(), object));
        let left = thread.until_advance.get() - 1;
        if left > 0 {
            thread.until_advance.set(left);
        } else {
            thread.until_advance.set(RETIRED_PER_ADVANCE);
            thread.try_reclaim();
        }
    }

    /// Moves the guard to the current epoch. The exclusive borrow proves that nothing loaded under it is still in use.
    pub fn repin(&mut self) {
        let pin = self.thread.participant.pin();
        self.thread.participant.unpin(std::mem::replace(&mut self.pin, pin));
    }

    /// Gives up the protection: the same as dropping the guard.
    pub fn unpin(self) {}
}

impl fmt::Debug for LocalGuard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalGuard").finish_non_exhaustive()
    }
}

impl Drop for LocalGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.thread.participant.unpin(self.pin);
    }
}
