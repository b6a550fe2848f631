//! Epochs: when may a retired object's memory be used again?
//!
//! Epoch-based reclamation after Fraser ("Practical lock-freedom", 2004), for the threads of one process. A global
//! epoch counts upwards. A thread that is about to follow links *pins*: it announces the epoch it saw in its slot. An
//! object that has been unlinked is retired with the epoch of that moment, its *tag*. The epoch advances from `e` to
//! `e + 1` only when every pinned slot shows `e`, so a slot that shows `m` holds the epoch at `m + 1` or below. Memory
//! tagged `t` may be used again once the epoch is `t + 2`.
//!
//! # Why that is safe
//!
//! Let a reader be pinned at `m`, and let it reach an object that is retired with tag `t`. The reader's fence (in
//! [`Participant::pin`]) and the retirer's (in [`Participant::tag`]) are ordered one way or the other. Had the
//! retirer's come first, the reader would have seen the object unlinked; so the reader's came first, and the retirer,
//! loading the epoch after its own fence, saw at least what the reader had seen: `t >= m`. The slot holds the epoch at
//! `m + 1 < t + 2`. The memory stays until the reader unpins.
//!
//! # Several tasks, one slot
//!
//! The tasks of a thread pin independently and overlap, so a thread may never be without a guard. A slot therefore
//! shows the *oldest* epoch that a guard of its thread was pinned in, and later guards join the current epoch instead
//! of prolonging the old one: when the last guard of the oldest epoch is dropped, the slot moves on. As long as a slot
//! shows `m` the epoch is `m` or `m + 1`, so two counters suffice. The first guard of a thread in `m + 1` repeats the
//! fence, which is what the argument above needs.
//!
//! # Costs
//!
//! A pin is one store and one fence, or a counter's increment if the thread is pinned already; an unpin is a store or a
//! decrement. Neither touches far memory. An advance reads every slot; one thread at a time does it and the others
//! return at once.

use std::cell::Cell;

use crossbeam_utils::CachePadded;

use crate::primitive::{Arc, AtomicU64, Mutex, Ordering, fence};

/// A slot's value while its thread is not pinned. Epochs start above it.
const IDLE: u64 = 0;
const FIRST_EPOCH: u64 = 1;

/// How many epochs after its tag an object's memory may be used again.
pub(crate) const GRACE_EPOCHS: u64 = 2;

/// The process's epoch and the slots of its threads.
pub(crate) struct Collector {
    epoch: CachePadded<AtomicU64>,
    slots: Mutex<Vec<Arc<Slot>>>,
}

/// The oldest epoch that a guard of one thread was pinned in, or [`IDLE`]. Written by its thread only.
struct Slot(CachePadded<AtomicU64>);

impl Collector {
    pub(crate) fn new() -> Self {
        Self { epoch: CachePadded::new(AtomicU64::new(FIRST_EPOCH)), slots: Mutex::new(Vec::new()) }
    }

    /// Gives the calling thread a slot.
    pub(crate) fn register(collector: &Arc<Self>) -> Participant {
        let slot = Arc::new(Slot(CachePadded::new(AtomicU64::new(IDLE))));
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

    /// Advances the epoch if every pinned slot has caught up with it; gives the epoch as it is then.
    ///
    /// If another thread is at it already, returns at once.
    pub(crate) fn try_advance(&self) -> u64 {
        let Ok(slots) = self.slots.try_lock() else {
            return self.epoch.load(Ordering::Acquire);
        };
        // Only the holder of the lock advances, so the epoch stays put from here on.
        let epoch = self.epoch.load(Ordering::Relaxed);
        fence(Ordering::SeqCst);
        for slot in slots.iter() {
            let pinned = slot.0.load(Ordering::Relaxed);
            if pinned != IDLE && pinned != epoch {
                return epoch;
            }
        }
        // What the threads did before they unpinned happened before the advance.
        fence(Ordering::Acquire);
        self.epoch.store(epoch + 1, Ordering::Release);
        epoch + 1
    }
}

/// A thread's side of the scheme.
pub(crate) struct Participant {
    collector: Arc<Collector>,
    slot: Arc<Slot>,
    /// What the slot shows.
    oldest: Cell<u64>,
    /// Guards pinned in `oldest` and in `oldest + 1`, by the epoch's lowest bit.
    guards: [Cell<u32>; 2],
    /// A planted bug for the model checker to find: this thread leaves a fence out.
    #[cfg(all(test, loom))]
    without: Cell<Option<Fence>>,
}

/// The two fences of a reader.
#[cfg_attr(not(all(test, loom)), allow(dead_code))] // told apart by the planted bugs only
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fence {
    /// After the slot shows the epoch.
    Announced,
    /// Before a thread's first guard in the epoch after the one its slot shows.
    Joined,
}

/// Names the epoch that a guard was pinned in: its lowest bit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pin(usize);

impl Participant {
    /// Enters the current epoch. Undone by [`Participant::unpin`].
    #[inline]
    pub(crate) fn pin(&self) -> Pin {
        let epoch = self.collector.epoch.load(Ordering::Relaxed);
        let pin = Pin((epoch & 1) as usize);
        let guards = self.guards[pin.0].get();
        if self.oldest.get() == IDLE {
            self.announce(epoch);
            self.oldest.set(epoch);
        } else if guards == 0 {
            // The thread's first guard in `oldest + 1`; the slot stays where it is.
            self.fence(Fence::Joined);
        }
        self.guards[pin.0].set(guards + 1);
        pin
    }

    /// Stays in the oldest epoch that a guard of this thread is in, or enters the current one if there is none: for an
    /// operation in flight, which may touch whatever a guard of this thread protects. Undone by [`Participant::unpin`].
    pub(crate) fn pin_oldest(&self) -> Pin {
        let oldest = self.oldest.get();
        if oldest == IDLE {
            return self.pin();
        }
        let pin = Pin((oldest & 1) as usize);
        self.guards[pin.0].set(self.guards[pin.0].get() + 1);
        pin
    }

    /// Shows `epoch` in the slot, and orders that before every later access of this thread.
    #[inline]
    fn announce(&self, epoch: u64) {
        if cfg!(all(target_arch = "x86_64", not(loom))) {
            // An exchange is a full barrier on x86, and cheaper than a store and `mfence`.
            self.slot.0.swap(epoch, Ordering::SeqCst);
            std::sync::atomic::compiler_fence(Ordering::SeqCst);
        } else {
            self.slot.0.store(epoch, Ordering::Relaxed);
            self.fence(Fence::Announced);
        }
    }

    #[inline]
    #[cfg_attr(not(all(test, loom)), allow(clippy::unused_self))]
    fn fence(&self, which: Fence) {
        #[cfg(all(test, loom))]
        if self.without.get() == Some(which) {
            return;
        }
        let _ = which;
        fence(Ordering::SeqCst);
    }

    /// Leaves the epoch that `pin` entered.
    #[inline]
    pub(crate) fn unpin(&self, pin: Pin) {
        let left = self.guards[pin.0].get() - 1;
        self.guards[pin.0].set(left);
        let oldest = self.oldest.get();
        if left == 0 && pin.0 as u64 == oldest & 1 {
            let next = if self.guards[pin.0 ^ 1].get() > 0 { oldest + 1 } else { IDLE };
            self.oldest.set(next);
            self.slot.0.store(next, Ordering::Release);
        }
    }

    /// How many guards the thread holds.
    pub(crate) fn guards(&self) -> u32 {
        self.guards[0].get() + self.guards[1].get()
    }

    /// The tag for an object that this thread has unlinked.
    #[inline]
    pub(crate) fn tag(&self) -> u64 {
        fence(Ordering::SeqCst);
        self.collector.epoch.load(Ordering::Relaxed)
    }

    /// See [`Collector::try_advance`].
    pub(crate) fn try_advance(&self) -> u64 {
        self.collector.try_advance()
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
        let (a, b) = (Collector::register(&collector), Collector::register(&collector));
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
    fn an_operation_in_flight_holds_what_the_oldest_guard_did() {
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
    fn idle_and_departed_threads_cost_nothing() {
        let (collector, a, b) = two();
        let pin = a.pin();
        drop(b);
        assert_eq!(collector.try_advance(), FIRST_EPOCH + 1);
        a.unpin(pin);
        drop(a);
        assert_eq!(collector.try_advance(), FIRST_EPOCH + 2);
    }
}

/// Run with `RUSTFLAGS="--cfg loom" cargo test --release -p farfield --lib loom`.
#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;

    struct Scenario {
        /// How many epochs after its tag the object is freed.
        grace: u64,
        /// Whether the reader's guard begins under an older one, while a third thread moves the epoch on.
        overlapping: bool,
        /// The fence that the reader leaves out.
        without: Option<Fence>,
    }

    /// A one-link structure: the writer unlinks an object, retires it and frees it `grace` epochs later; a reader that
    /// reached it must not find it freed.
    fn reader_against_reclaimer(scenario: Scenario) {
        let Scenario { grace, overlapping, without } = scenario;
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(4);
        builder.check(move || {
            let collector = Arc::new(Collector::new());
            let link = Arc::new(AtomicU64::new(1));
            let freed = Arc::new(AtomicU64::new(0));
            let reader = {
                let (collector, link, freed) =
                    (Arc::clone(&collector), Arc::clone(&link), Arc::clone(&freed));
                loom::thread::spawn(move || {
                    let me = Collector::register(&collector);
                    me.without.set(without);
                    let outer = overlapping.then(|| me.pin());
                    let pin = me.pin();
                    if let Some(outer) = outer {
                        me.unpin(outer);
                    }
                    if link.load(Ordering::Acquire) == 1 {
                        assert_eq!(freed.load(Ordering::Relaxed), 0, "a reachable object was freed");
                    }
                    me.unpin(pin);
                })
            };
            let advancer = overlapping.then(|| {
                let collector = Arc::clone(&collector);
                loom::thread::spawn(move || collector.try_advance())
            });
            let me = Collector::register(&collector);
            let pin = me.pin();
            link.store(0, Ordering::Release);
            let tag = me.tag();
            me.unpin(pin);
            for _ in 0..2 {
                if me.try_advance() >= tag + grace {
                    freed.store(1, Ordering::Relaxed);
                    break;
                }
            }
            reader.join().unwrap();
            if let Some(advancer) = advancer {
                advancer.join().unwrap();
            }
        });
    }

    #[test]
    fn loom_no_reader_finds_its_object_freed() {
        reader_against_reclaimer(Scenario { grace: GRACE_EPOCHS, overlapping: false, without: None });
    }

    #[test]
    fn loom_overlapping_guards_protect_as_one_does() {
        reader_against_reclaimer(Scenario { grace: GRACE_EPOCHS, overlapping: true, without: None });
    }

    #[test]
    #[should_panic(expected = "a reachable object was freed")]
    fn loom_catches_memory_freed_one_epoch_early() {
        reader_against_reclaimer(Scenario { grace: GRACE_EPOCHS - 1, overlapping: false, without: None });
    }

    #[test]
    #[should_panic(expected = "a reachable object was freed")]
    fn loom_catches_a_pin_without_its_fence() {
        let without = Some(Fence::Announced);
        reader_against_reclaimer(Scenario { grace: GRACE_EPOCHS, overlapping: false, without });
    }

    #[test]
    #[should_panic(expected = "a reachable object was freed")]
    fn loom_catches_an_overlapping_pin_without_its_fence() {
        let without = Some(Fence::Joined);
        reader_against_reclaimer(Scenario { grace: GRACE_EPOCHS, overlapping: true, without });
    }
}
