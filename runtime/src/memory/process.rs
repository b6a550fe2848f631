//! `Process`: what the threads of a process share of memory.
//!
//! Its own level of the [epochs](crate::epoch), what it knows of chunks, and the free blocks that its ended threads have left. Where
//! there are several processes it is a [`Member`] of those whose level of the epochs is in far memory.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::cache::Spare;
use super::candidates::Candidates;
use super::known::Known;
use super::member::{Member, Membership};
use super::sweep_barrier::SweepBarrier;
use crate::epoch::primitive::Arc;
use crate::epoch::{BlockKind, Collector};
use crate::io::Sleepers;
use crate::segment::grid::Grid;
use farfield_words::Address;
use farfield_words::Block;

/// A process: the threads that share memory, a fate, and a slot.
pub(crate) struct Process {
    pub(crate) collector: Arc<Collector>,
    /// What it knows of chunks.
    pub(crate) known: Known,
    /// What its ended threads held.
    spare: Mutex<Spare>,
    /// Freed blocks that are kept out of use as long as there are others, in the simulator; none once memory was short.
    quarantine: Mutex<Option<Spare>>,
    /// How often its threads have been asked to give back memory.
    requests: AtomicU64,
    /// Its threads that may be asleep.
    pub(crate) sleepers: std::sync::Arc<Sleepers>,
    /// Its threads that have neither ended nor died.
    threads: AtomicUsize,
    /// What it says while another process sweeps memory.
    pub(crate) sweep_barrier: SweepBarrier,
    membership: Membership,
    /// Whether it has died and its slots are idle, whatever guards its threads have: in the simulator.
    pub(crate) is_abandoned: AtomicBool,
}

impl Process {
    /// The only process of its cluster.
    pub(crate) fn solo(collector: Arc<Collector>, threads: usize, segments: u32) -> Self {
        Self {
            collector,
            known: Known::new(segments),
            spare: Mutex::default(),
            quarantine: Mutex::new(Some(Spare::default())),
            requests: AtomicU64::new(0),
            sleepers: std::sync::Arc::default(),
            threads: AtomicUsize::new(threads),
            sweep_barrier: SweepBarrier::default(),
            membership: Membership::Solo,
            is_abandoned: AtomicBool::new(false),
        }
    }

    /// One of several processes, and the slot that it tries first.
    pub(crate) fn one_of_several(identity: u32, number: usize, threads: usize, segments: u32) -> Self {
        let membership = Membership::Member(Member::new(identity, number));
        Self { membership, ..Self::solo(Arc::new(Collector::new()), threads, segments) }
    }

    /// The process as a member of its cluster, if that has several processes.
    #[inline]
    pub(crate) fn member(&self) -> Option<&Member> {
        self.membership.member()
    }

    /// It has read the counters beside the epoch.
    pub(crate) fn hear_counters(&self, requests: u64, recut: u64) {
        let Some(member) = self.member() else { return };
        if member.reads_requests(requests) {
            self.requests.fetch_add(1, Ordering::Relaxed);
        }
        if member.reads_recut(recut) {
            self.known.forget();
        }
    }

    /// The slot of a process that is behind the epoch, as it was last seen.
    pub(crate) fn behind(&self) -> Option<Address> {
        self.member()?.behind()
    }

    /// Whether this is its slot.
    pub(crate) fn has_slot(&self, slot: Address) -> bool {
        self.member().is_some_and(|member| member.has_slot(slot))
    }

    /// How often its threads have been asked to give back memory.
    #[inline]
    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Asks its threads to give back memory; gives whether there are other processes to be asked.
    pub(crate) fn ask_for_memory(&self) -> bool {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.sleepers.wake();
        self.member().is_some()
    }

    fn spare(&self) -> MutexGuard<'_, Spare> {
        // Lists of addresses are whole at every moment, also when their user panicked.
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a thread held that has ended.
    pub(crate) fn give_spare(&self, mut spare: Spare) {
        self.spare().append(&mut spare);
    }

    pub(crate) fn take_spare(&self) -> Spare {
        std::mem::take(&mut *self.spare())
    }

    fn quarantined(&self) -> MutexGuard<'_, Option<Spare>> {
        self.quarantine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a free block out of use, unless memory was short; returns whether it does.
    pub(crate) fn quarantine(&self, grid: &Grid, node: u16, block: Block) -> bool {
        self.quarantined().as_mut().map(|kept| kept.put(grid, node, block, BlockKind::Internal)).is_some()
    }

    /// Memory is short: what was kept out of use is spare from now on.
    pub(crate) fn end_quarantine(&self) {
        if let Some(kept) = self.quarantined().take() {
            self.give_spare(kept);
        }
    }

    /// What is kept out of use, for a later run to keep.
    pub(crate) fn take_quarantined(&self) -> Spare {
        self.quarantined().as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Keeps what an earlier run kept out of use.
    pub(crate) fn give_quarantined(&self, spare: Spare) {
        *self.quarantined() = Some(spare);
    }

    /// Vetoes what its ended threads held, and what is kept out of use.
    pub(crate) fn veto_spare(&self, grid: &Grid, candidates: &Candidates) {
        self.spare().veto(grid, candidates);
        self.quarantined().iter().for_each(|kept| kept.veto(grid, candidates));
    }

    /// The bytes that its ended threads held, and those that are kept out of use.
    pub(crate) fn spare_bytes(&self, grid: &Grid) -> u64 {
        let mut sum = 0;
        self.spare().for_each(grid, |_, bytes| sum += bytes);
        self.quarantined().iter().for_each(|kept| kept.for_each(grid, |_, bytes| sum += bytes));
        sum
    }

    /// True once it has left the cluster, as one of several that did not die.
    pub(crate) fn has_left(&self) -> bool {
        self.member().is_some_and(Member::has_left)
    }

    /// It has more threads.
    pub(crate) fn add_threads(&self, threads: usize) {
        self.threads.fetch_add(threads, Ordering::AcqRel);
    }

    /// True if all of its threads but one have ended.
    pub(crate) fn has_one_thread(&self) -> bool {
        self.threads.load(Ordering::Acquire) <= 1
    }

    /// True if all of its threads have ended, or are about to.
    pub(crate) fn has_no_thread(&self) -> bool {
        self.threads.load(Ordering::Acquire) == 0
    }

    /// One of its threads has ended or died; gives who it is if it was the last and others may see it.
    pub(crate) fn thread_is_gone(&self) -> Option<u32> {
        let last = self.threads.fetch_sub(1, Ordering::AcqRel) == 1;
        self.is_gone().filter(|_| last)
    }

    /// All of its threads are gone, whatever they did; gives who it is if others may see it.
    pub(crate) fn is_gone(&self) -> Option<u32> {
        self.member().map(|member| member.identity)
    }
}
