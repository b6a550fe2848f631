//! The epoch of a process, the slots of its threads, and their pins: see the [head of the room](super) for the argument.

use std::cell::Cell;

use crossbeam_utils::CachePadded;

use super::primitive::{Arc, AtomicU64, Mutex, Ordering, fence};

/// A slot's value while its thread is not pinned. Epochs start above it.
const IDLE: u64 = 0;
pub(crate) const FIRST_EPOCH: u64 = 1;

/// The number of epochs after its tag until an object's memory may be reused.
pub(crate) const GRACE_EPOCHS: u64 = 2;

/// The local view of the epoch, and the slots of the process's threads.
pub(crate) struct Collector {
    epoch: CachePadded<AtomicU64>,
    slots: Mutex<Vec<Arc<Slot>>>,
}

/// The oldest epoch in which a guard of one thread was pinned, or [`IDLE`]. Only the thread itself writes it.
struct Slot {
    shown: CachePadded<AtomicU64>,
    /// The thread's number in its run.
    thread: usize,
}

impl Collector {
    pub(crate) fn new() -> Self {
        Self { epoch: CachePadded::new(AtomicU64::new(FIRST_EPOCH)), slots: Mutex::new(Vec::new()) }
    }

    /// Adds a slot for the calling thread.
    pub(crate) fn register(collector: &Arc<Self>, thread: usize) -> Participant {
        let slot = Arc::new(Slot { shown: CachePadded::new(AtomicU64::new(IDLE)), thread });
        collector.slots.lock().expect("no slot holder panics").push(Arc::clone(&slot));
        Participant {
            collector: Arc::clone(collector),
            slot,
            oldest: Cell::new(IDLE),
            guards: Default::default(),
            #[cfg(all(test, loom))]
            without: Cell::new(None),
        }
    }

    /// Returns the local view of the epoch. It may lag behind the cluster's epoch, and is never ahead.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Raises the local view to at least `epoch`, which some process has reached.
    pub(crate) fn observe(&self, epoch: u64) {
        self.epoch.fetch_max(epoch, Ordering::AcqRel);
    }

    /// Returns whether no thread is pinned in an epoch before `epoch`. If `epoch` is already observed, that remains so.
    pub(crate) fn has_caught_up(&self, epoch: u64) -> bool {
        Self::all_show(&self.slots.lock().expect("no slot holder panics"), epoch)
    }

    /// Returns the thread that is pinned in the oldest epoch before the local view, if any.
    pub(crate) fn laggard(&self) -> Option<usize> {
        let epoch = self.epoch();
        self.oldest_guard().filter(|(shown, _)| *shown < epoch).map(|(_, thread)| thread)
    }

    /// Returns the epoch of the oldest guard, and its thread.
    pub(crate) fn oldest_guard(&self) -> Option<(u64, usize)> {
        let slots = self.slots.lock().expect("no slot holder panics");
        let pinned = slots.iter().map(|slot| (slot.shown.load(Ordering::Relaxed), slot.thread));
        pinned.filter(|(shown, _)| *shown > IDLE).min()
    }

    /// Clears the slots of dead threads, which perform no more accesses. Returns the epochs that they showed.
    pub(crate) fn abandon(&self) -> Vec<u64> {
        let slots = self.slots.lock().expect("no slot holder panics");
        let shown = slots.iter().map(|slot| slot.shown.swap(IDLE, Ordering::AcqRel));
        shown.filter(|shown| *shown != IDLE).collect()
    }

    fn all_show(slots: &[Arc<Slot>], epoch: u64) -> bool {
        fence(Ordering::SeqCst);
        let shows = |slot: &Arc<Slot>| {
            let pinned = slot.shown.load(Ordering::Relaxed);
            pinned == IDLE || pinned >= epoch
        };
        let all = slots.iter().all(shows);
        // The threads' accesses before they unpinned happen before the accesses that follow.
        fence(Ordering::Acquire);
        all
    }

    /// Advances the epoch if every pinned slot shows it; for a process that is the cluster's only member. Returns the resulting epoch.
    ///
    /// Returns immediately if another thread is advancing.
    pub(crate) fn try_advance(&self) -> u64 {
        let Ok(slots) = self.slots.try_lock() else { return self.epoch() };
        // Only the holder of the lock advances, so the epoch does not change from here on.
        let epoch = self.epoch.load(Ordering::Relaxed);
        if !Self::all_show(&slots, epoch) {
            return epoch;
        }
        self.epoch.store(epoch + 1, Ordering::Release);
        epoch + 1
    }
}

/// A thread's slot and guards.
pub(crate) struct Participant {
    collector: Arc<Collector>,
    slot: Arc<Slot>,
    /// The value of the slot.
    oldest: Cell<u64>,
    /// Guards pinned in `oldest` and in `oldest + 1`, by the epoch's lowest bit.
    guards: [Cell<u32>; 2],
    /// A planted bug for the model checker: the part of a pin that this thread omits.
    #[cfg(all(test, loom))]
    without: Cell<Option<Part>>,
}

/// The parts of a pin that make it safe.
#[cfg_attr(not(all(test, loom)), allow(dead_code))] // only planted bugs name the variants
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// The fence after the slot shows the epoch.
    Fence,
    /// The second load of the epoch.
    Look,
}

/// The epoch in which a guard was pinned, by its lowest bit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pin(usize);

impl Participant {
    /// Enters the current epoch. Undone by [`Participant::unpin`].
    #[inline]
    pub(crate) fn pin(&self) -> Pin {
        // Acquire: a thread that is pinned already loads its links after this load.
        let mut epoch = self.collector.epoch.load(Ordering::Acquire);
        if self.oldest.get() == IDLE {
            loop {
                self.show(epoch);
                let now = self.collector.epoch.load(Ordering::Acquire);
                if now == epoch || !self.has(Part::Look) {
                    break;
                }
                epoch = now;
            }
            self.oldest.set(epoch);
        }
        let pin = Pin((epoch & 1) as usize);
        self.guards[pin.0].set(self.guards[pin.0].get() + 1);
        pin
    }

    /// Enters the oldest epoch of this thread's guards, or the current epoch if the thread has no guard. An operation in flight does so, because it
    /// may access every object that one of the thread's guards protects. Undone by [`Participant::unpin`].
    #[inline]
    pub(crate) fn pin_oldest(&self) -> Pin {
        let oldest = self.oldest.get();
        if oldest == IDLE {
            return self.pin();
        }
        let pin = Pin((oldest & 1) as usize);
        self.guards[pin.0].set(self.guards[pin.0].get() + 1);
        pin
    }

    /// A pin that protects nothing: a planted bug.
    pub(crate) fn pin_nothing(&self) -> Pin {
        Pin(self.guards.len())
    }

    /// Shows `epoch` in the slot, and orders the store before every later access of this thread.
    #[inline]
    fn show(&self, epoch: u64) {
        if cfg!(all(target_arch = "x86_64", not(loom))) {
            // An exchange is a full barrier on x86, and cheaper than a store and `mfence`.
            self.slot.shown.swap(epoch, Ordering::SeqCst);
            std::sync::atomic::compiler_fence(Ordering::SeqCst);
        } else {
            self.slot.shown.store(epoch, Ordering::Relaxed);
            if self.has(Part::Fence) {
                fence(Ordering::SeqCst);
            }
        }
    }

    /// Returns false if a planted bug omits the part.
    #[inline]
    #[cfg_attr(not(all(test, loom)), allow(clippy::unused_self))]
    fn has(&self, _part: Part) -> bool {
        #[cfg(all(test, loom))]
        return self.without.get() != Some(_part);
        #[cfg(not(all(test, loom)))]
        true
    }

    /// Leaves the epoch of `pin`. Returns whether the slot has moved on from it.
    #[inline]
    pub(crate) fn unpin(&self, pin: Pin) -> bool {
        let Some(guards) = self.guards.get(pin.0) else { return false };
        let left = guards.get() - 1;
        guards.set(left);
        let oldest = self.oldest.get();
        let moves = left == 0 && pin.0 as u64 == oldest & 1;
        if moves {
            let next = if self.guards[pin.0 ^ 1].get() > 0 { oldest + 1 } else { IDLE };
            self.oldest.set(next);
            self.slot.shown.store(next, Ordering::Release);
        }
        moves
    }

    /// Returns the epoch in the slot, if the thread is pinned.
    pub(crate) fn oldest(&self) -> Option<u64> {
        Some(self.oldest.get()).filter(|oldest| *oldest != IDLE)
    }

    /// Returns whether a guard of this thread keeps the others in an epoch before `epoch`.
    pub(crate) fn is_pinned_before(&self, epoch: u64) -> bool {
        (IDLE + 1..epoch).contains(&self.oldest.get())
    }

    /// Returns the epoch that a pin of this thread has entered, and not left.
    #[inline]
    pub(crate) fn epoch_of(&self, pin: Pin) -> u64 {
        // Pins are in `oldest` or in `oldest + 1`.
        let oldest = self.oldest.get();
        oldest + ((oldest ^ pin.0 as u64) & 1)
    }

    /// Returns the number of guards of the thread.
    pub(crate) fn guards(&self) -> u32 {
        self.guards[0].get() + self.guards[1].get()
    }

    /// Returns the tag for an object that this thread has unlinked under a guard that it still holds: an upper bound on the epoch of the unlinking.
    #[inline]
    pub(crate) fn tag(&self) -> u64 {
        debug_assert_ne!(self.oldest.get(), IDLE, "only a pinned thread retires");
        self.oldest.get() + 1
    }
}

impl Drop for Participant {
    fn drop(&mut self) {
        if let Ok(mut slots) = self.collector.slots.lock() {
            slots.retain(|slot| !Arc::ptr_eq(slot, &self.slot));
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn two() -> (Arc<Collector>, Participant, Participant) {
        let collector = Arc::new(Collector::new());
        let (a, b) = (Collector::register(&collector, 0), Collector::register(&collector, 1));
        (collector, a, b)
    }

    #[test]
    fn a_pinned_thread_holds_the_epoch_one_ahead() {
        let (collector, a, _b) = two();
        let pin = a.pin();
        assert_eq!(collector.try_advance(), FIRST_EPOCH + 1);
        assert_eq!(collector.try_advance(), FIRST_EPOCH + 1);
        a.unpin(pin);
        assert_eq!(collector.try_advance(), FIRST_EPOCH + 2);
    }

    #[test]
    fn overlapping_guards_of_one_thread_let_the_epoch_pass() {
        let (collector, a, _b) = two();
        let mut pin = a.pin();
        for advanced in 1..100 {
            assert_eq!(collector.try_advance(), FIRST_EPOCH + advanced);
            let next = a.pin();
            a.unpin(pin);
            pin = next;
            assert_eq!(a.guards(), 1);
        }
    }

    #[test]
    fn an_old_guard_holds_the_epoch_under_newer_ones() {
        let (collector, a, _b) = two();
        let old = a.pin();
        collector.try_advance();
        for _ in 0..3 {
            let newer = a.pin();
            assert_eq!(collector.try_advance(), FIRST_EPOCH + 1);
            a.unpin(newer);
        }
        a.unpin(old);
        assert_eq!(collector.try_advance(), FIRST_EPOCH + 2);
    }

    #[test]
    fn a_pin_keeps_its_epoch_while_others_come_and_go() {
        let (collector, a, _b) = two();
        let old = a.pin();
        collector.try_advance();
        let new = a.pin();
        assert_eq!([a.epoch_of(old), a.epoch_of(new)], [FIRST_EPOCH, FIRST_EPOCH + 1]);
        a.unpin(old);
        assert_eq!(a.epoch_of(new), FIRST_EPOCH + 1);
        collector.try_advance();
        let newest = a.pin();
        assert_eq!([a.epoch_of(new), a.epoch_of(newest)], [FIRST_EPOCH + 1, FIRST_EPOCH + 2]);
        a.unpin(new);
        assert_eq!(a.epoch_of(newest), FIRST_EPOCH + 2);
    }

    #[test]
    fn an_operation_in_flight_protects_like_the_oldest_guard() {
        let (collector, a, _b) = two();
        let old = a.pin();
        assert_eq!(collector.try_advance(), FIRST_EPOCH + 1);
        let newer = a.pin();
        let in_flight = a.pin_oldest();
        a.unpin(old);
        a.unpin(newer);
        assert_eq!(collector.try_advance(), FIRST_EPOCH + 1);
        a.unpin(in_flight);
        assert_eq!(collector.try_advance(), FIRST_EPOCH + 2);
    }

    #[test]
    fn idle_and_departed_threads_hold_nothing_back() {
        let (collector, a, b) = two();
        let pin = a.pin();
        drop(b);
        assert_eq!(collector.try_advance(), FIRST_EPOCH + 1);
        a.unpin(pin);
        drop(a);
        assert_eq!(collector.try_advance(), FIRST_EPOCH + 2);
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
