//! `LocalEpoch`: epoch-based reclamation for objects of this process, without far memory and without a cluster.
//!
//! It is the process level of the scheme for far memory, so the proofs and model checks of [`epoch`](super) hold here, too. A thread
//! [registers](LocalEpoch::register), pins, and retires boxes that no new reader can reach. Each box is dropped once no guard protects it. Boxes of a
//! thread that has ended are dropped by the remaining threads, or with the `LocalEpoch`.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use super::primitive::Arc;
use super::{Collector, GRACE_EPOCHS, Participant, Pin};

/// The number of objects that a thread retires between attempts to advance the epoch.
const RETIRED_PER_ADVANCE: u32 = 64;

/// A value that can be dropped.
trait Garbage: Send {}
impl<T: Send> Garbage for T {}

/// Retired objects and their tags, oldest first.
type Limbo = VecDeque<(u64, Box<dyn Garbage>)>;

/// Epoch-based reclamation of objects that threads of this process share.
///
/// A retired object is dropped once every guard that was pinned before its retirement is gone.
///
/// ```
/// use std::sync::atomic::{AtomicUsize, Ordering};
/// use farfield::LocalEpoch;
///
/// struct Page(u64);
/// let epoch = LocalEpoch::new();
/// let thread = epoch.register();
/// let guard = thread.pin(); // objects loaded from now on stay until the guard is dropped
/// let unlinked = Box::new(Page(7));
/// guard.retire(unlinked); // dropped when no guard can reach it
/// drop(guard);
/// let dropped: usize = (0..4).map(|_| thread.try_reclaim()).sum();
/// assert_eq!(dropped, 1);
/// ```
///
/// Clones share one epoch. Cloning costs a reference count.
#[derive(Clone)]
pub struct LocalEpoch {
    collector: Arc<Collector>,
    /// Limbo lists of threads that have ended.
    orphans: std::sync::Arc<Mutex<Vec<Limbo>>>,
}

impl LocalEpoch {
    /// Makes an epoch without threads.
    pub fn new() -> Self {
        Self { collector: Arc::new(Collector::new()), orphans: std::sync::Arc::default() }
    }

    /// Registers the calling thread.
    pub fn register(&self) -> LocalThread {
        LocalThread {
            epoch: self.clone(),
            participant: Collector::register(&self.collector, 0),
            limbo: RefCell::default(),
            until_advance: Cell::new(RETIRED_PER_ADVANCE),
        }
    }

    fn orphans(&self) -> std::sync::MutexGuard<'_, Vec<Limbo>> {
        // Every state of a list of lists is consistent, also after a panic.
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

/// A thread that is registered with a [`LocalEpoch`].
pub struct LocalThread {
    epoch: LocalEpoch,
    participant: Participant,
    limbo: RefCell<Limbo>,
    until_advance: Cell<u32>,
}

impl LocalThread {
    /// Protects pointers loaded from now on, until the guard is dropped. Costs an exchange and a load of local memory. Guards of one thread may
    /// overlap.
    #[inline]
    pub fn pin(&self) -> LocalGuard<'_> {
        LocalGuard { thread: self, pin: self.participant.pin() }
    }

    /// Tries to advance the epoch and drops the objects whose grace period is over. Returns their number. [`LocalGuard::retire`] calls it after every
    /// 64 objects.
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

    /// Returns how many objects this thread has retired and not yet dropped.
    pub fn retired(&self) -> usize {
        self.limbo.borrow().len()
    }
}

/// Drops expired objects. Nothing is borrowed meanwhile, since a destructor may retire objects itself.
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
    /// Moves the thread's retired objects to the remaining threads.
    fn drop(&mut self) {
        let limbo = self.limbo.take();
        if !limbo.is_empty() {
            self.epoch.orphans().push(limbo);
        }
    }
}

/// A pin of a thread. It protects the pointers loaded while it is held.
pub struct LocalGuard<'t> {
    thread: &'t LocalThread,
    pin: Pin,
}

impl LocalGuard<'_> {
    /// Drops `object` once no guard protects it. The object must be unlinked: no thread that pins later can reach it.
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

    /// Moves the guard to the current epoch. The exclusive borrow proves that no pointer loaded under it is still in use.
    pub fn repin(&mut self) {
        let pin = self.thread.participant.pin();
        self.thread.participant.unpin(std::mem::replace(&mut self.pin, pin));
    }

    /// Ends the protection, like dropping the guard.
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
