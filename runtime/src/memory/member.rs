//! `Membership`: a process among the others of its cluster.
//!
//! A process is alone, as on `local:`, or it is a *member*: it has an epoch slot and a record in far memory, which `membership` acquires and
//! releases, and takes [steps](super::global) of the cluster's epoch.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::segment::record::Places;
use crossbeam_utils::atomic::AtomicCell;
use farfield_words::Address;

/// The relation of a process to its cluster.
pub(crate) enum Membership {
    /// The cluster has no other process.
    Solo,
    /// The cluster has several processes.
    Member(Member),
}

impl Membership {
    /// The process as a member, if it is one.
    #[inline]
    pub(crate) fn member(&self) -> Option<&Member> {
        match self {
            Self::Solo => None,
            Self::Member(member) => Some(member),
        }
    }
}

/// A process of several.
pub(crate) struct Member {
    /// The process's number. No other process of the cluster has or ever had it.
    pub(crate) identity: u32,
    /// The slot that it tries first.
    pub(crate) number: usize,
    joining: AtomicCell<Joining>,
    /// The addresses of its slot and its record, and the epoch in the slot.
    slot: AtomicU64,
    record: AtomicU64,
    announced: AtomicU64,
    /// True once its record has named a group.
    has_group: AtomicBool,
    /// The counters beside the epoch when it last read them: requests for memory, and coalesced chunks.
    requests: AtomicU64,
    coalesced: AtomicU64,
    /// True while one of its threads takes a step.
    is_stepping: AtomicBool,
    /// The slot of a process that was behind the epoch in the last scan, for reports; 0 for none.
    behind: AtomicU64,
    /// The slots in the last scan.
    slots: Mutex<Slots>,
}

/// The progress of a member on its way into the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Joining {
    /// It has no slot.
    Outside,
    /// A thread of it takes a slot.
    UnderWay,
    /// It has or had a slot.
    Joined,
}

/// The epoch slots of a cluster.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Slots {
    pub(super) used: usize,
    /// The pages of the used slots; null for a page that is not allocated yet.
    pub(super) pages: Vec<Address>,
}

impl Member {
    /// A member without a slot.
    pub(crate) fn new(identity: u32, number: usize) -> Self {
        Self {
            identity,
            number,
            joining: AtomicCell::new(Joining::Outside),
            slot: AtomicU64::new(0),
            record: AtomicU64::new(0),
            announced: AtomicU64::new(0),
            has_group: AtomicBool::new(false),
            requests: AtomicU64::new(0),
            coalesced: AtomicU64::new(0),
            is_stepping: AtomicBool::new(false),
            behind: AtomicU64::new(0),
            slots: Mutex::default(),
        }
    }

    // ---- joining and leaving -----------------------------------------------------------------------------------

    /// Begins to join, if no thread of the process has. Returns the state before.
    pub(crate) fn begin_joining(&self) -> Joining {
        match self.joining.compare_exchange(Joining::Outside, Joining::UnderWay) {
            Ok(before) | Err(before) => before,
        }
    }

    /// Completes the attempt to join that [`begin_joining`](Self::begin_joining) began.
    pub(crate) fn end_joining(&self, has_joined: bool) {
        self.joining.store(if has_joined { Joining::Joined } else { Joining::Outside });
    }

    /// Sets the member's places, and its announced epoch.
    pub(crate) fn set_places(&self, places: Places, epoch: u64) {
        self.announced.store(epoch, Ordering::Relaxed);
        self.record.store(places.record.bits(), Ordering::Release);
        self.slot.store(places.slot.bits(), Ordering::Release);
    }

    /// Removes the member's places, and returns them for the caller to release in far memory.
    pub(crate) fn clear_places(&self) -> Option<Places> {
        let slot = Address::from_bits(self.slot.swap(0, Ordering::AcqRel));
        (!slot.is_null()).then_some(Places { slot, record: self.record() })
    }

    /// Notes that its record names a group.
    pub(crate) fn note_group(&self) {
        self.has_group.store(true, Ordering::Relaxed);
    }

    /// Returns whether its record has ever named a group.
    pub(crate) fn has_group(&self) -> bool {
        self.has_group.load(Ordering::Relaxed)
    }

    /// Returns whether the member has released its places. One that died has not.
    pub(crate) fn has_left(&self) -> bool {
        !self.record().is_null() && self.slot().is_null()
    }

    /// The address of its record; null before it has one.
    pub(crate) fn record(&self) -> Address {
        Address::from_bits(self.record.load(Ordering::Acquire))
    }

    /// The address of its slot; null if it has none.
    pub(super) fn slot(&self) -> Address {
        Address::from_bits(self.slot.load(Ordering::Acquire))
    }

    /// Returns whether this is its slot.
    pub(crate) fn has_slot(&self, slot: Address) -> bool {
        self.slot.load(Ordering::Relaxed) == slot.bits()
    }

    // ---- steps -------------------------------------------------------------------------------------------------

    /// Begins a step. Returns `false` if the member has not joined, or another thread of the process takes one.
    pub(super) fn begin_step(&self) -> bool {
        self.joining.load() == Joining::Joined && !self.is_stepping.swap(true, Ordering::AcqRel)
    }

    pub(super) fn end_step(&self) {
        self.is_stepping.store(false, Ordering::Release);
    }

    /// Stores the counter of requests for memory. Returns whether it has changed.
    pub(crate) fn observe_requests(&self, requests: u64) -> bool {
        self.requests.swap(requests, Ordering::Relaxed) != requests
    }

    /// Stores the counter of coalescings. Returns whether it has changed.
    pub(crate) fn observe_coalesced(&self, coalesced: u64) -> bool {
        self.coalesced.swap(coalesced, Ordering::Relaxed) != coalesced
    }

    /// The last epoch that the member has announced.
    pub(super) fn announced(&self) -> u64 {
        self.announced.load(Ordering::Relaxed)
    }

    pub(super) fn set_announced(&self, epoch: u64) {
        self.announced.store(epoch, Ordering::Relaxed);
    }

    /// Announces `epoch` without a step, unless the member has announced a later one. Returns its slot, to be written.
    pub(super) fn announce(&self, epoch: u64) -> Option<Address> {
        let slot = self.slot();
        let is_current = self.announced() <= epoch;
        (!slot.is_null() && is_current).then(|| {
            self.set_announced(epoch);
            slot
        })
    }

    /// The slot of a process that was behind the epoch in the last scan.
    pub(crate) fn behind(&self) -> Option<Address> {
        let slot = Address::from_bits(self.behind.load(Ordering::Relaxed));
        (!slot.is_null()).then_some(slot)
    }

    pub(super) fn set_behind(&self, slot: Option<Address>) {
        self.behind.store(slot.map_or(0, Address::bits), Ordering::Relaxed);
    }

    pub(super) fn slots(&self) -> MutexGuard<'_, Slots> {
        // The result of a scan is consistent at any time.
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
