//! `Process`: the memory that the threads of a process share.
//!
//! It has the process's level of the [epochs](crate::epoch), the known uses of chunks, and the free blocks of ended threads. In a cluster of
//! several processes it is a [`Member`], and the epochs have a second level in far memory.

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

/// A process: threads that share memory and an epoch slot, and fail together.
pub(crate) struct Process {
    pub(crate) collector: Arc<Collector>,
    /// The uses of chunks that it has read.
    pub(crate) known: Known,
    /// The free blocks of its ended threads.
    spare: Mutex<Spare>,
    /// Freed blocks that the simulator does not hand out again as long as there are others; `None` once memory was short.
    quarantine: Mutex<Option<Spare>>,
    /// The number of requests to its threads to return memory.
    requests: AtomicU64,
    /// Its threads that may sleep.
    pub(crate) sleepers: std::sync::Arc<Sleepers>,
    /// The number of its threads that have neither ended nor died.
    threads: AtomicUsize,
    /// Its vetoes while another process sweeps memory.
    pub(crate) sweep_barrier: SweepBarrier,
    membership: Membership,
    /// True if it has died in the simulator: its slots are idle, even if its threads have guards.
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

    /// One of several processes. It tries the slot `number` first.
    pub(crate) fn one_of_several(identity: u32, number: usize, threads: usize, segments: u32) -> Self {
        let membership = Membership::Member(Member::new(identity, number));
        Self { membership, ..Self::solo(Arc::new(Collector::new()), threads, segments) }
    }

    /// The process as a member of its cluster, if the cluster has several processes.
    #[inline]
    pub(crate) fn member(&self) -> Option<&Member> {
        self.membership.member()
    }

    /// Compares the counters beside the epoch, which were just read, with those read before.
    pub(crate) fn observe_counters(&self, requests: u64, coalesced: u64) {
        let Some(member) = self.member() else { return };
        if member.observe_requests(requests) {
            self.requests.fetch_add(1, Ordering::Relaxed);
        }
        if member.observe_coalesced(coalesced) {
            self.known.forget();
        }
    }

    /// The slot of a process that was behind the epoch in the last scan.
    pub(crate) fn behind(&self) -> Option<Address> {
        self.member()?.behind()
    }

    /// Returns whether this is its slot.
    pub(crate) fn has_slot(&self, slot: Address) -> bool {
        self.member().is_some_and(|member| member.has_slot(slot))
    }

    /// The number of requests to its threads to return memory.
    #[inline]
    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Requests its threads to return memory. Returns whether there are other processes.
    pub(crate) fn ask_for_memory(&self) -> bool {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.sleepers.wake();
        self.member().is_some()
    }

    fn spare(&self) -> MutexGuard<'_, Spare> {
        // The lists of addresses are consistent at any time, also after a panic.
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over the free blocks of a thread that ends.
    pub(crate) fn give_spare(&self, mut spare: Spare) {
        self.spare().append(&mut spare);
    }

    pub(crate) fn take_spare(&self) -> Spare {
        std::mem::take(&mut *self.spare())
    }

    fn quarantined(&self) -> MutexGuard<'_, Option<Spare>> {
        self.quarantine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a free block into quarantine, unless memory was short. Returns whether it is there.
    pub(crate) fn quarantine(&self, grid: &Grid, node: u16, block: Block) -> bool {
        self.quarantined().as_mut().map(|kept| kept.put(grid, node, block, BlockKind::Internal)).is_some()
    }

    /// Makes the quarantined blocks spare, because memory is short.
    pub(crate) fn end_quarantine(&self) {
        if let Some(kept) = self.quarantined().take() {
            self.give_spare(kept);
        }
    }

    /// Takes the quarantined blocks, for the quarantine of a later run.
    pub(crate) fn take_quarantined(&self) -> Spare {
        self.quarantined().as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Puts the quarantined blocks of an earlier run into quarantine.
    pub(crate) fn give_quarantined(&self, spare: Spare) {
        *self.quarantined() = Some(spare);
    }

    /// Vetoes the free blocks of its ended threads, and the quarantined ones.
    pub(crate) fn veto_spare(&self, grid: &Grid, candidates: &Candidates) {
        self.spare().veto(grid, candidates);
        self.quarantined().iter().for_each(|kept| kept.veto(grid, candidates));
    }

    /// The bytes of free blocks of its ended threads, and of quarantined blocks.
    pub(crate) fn spare_bytes(&self, grid: &Grid) -> u64 {
        let mut sum = 0;
        self.spare().for_each(grid, |_, bytes| sum += bytes);
        self.quarantined().iter().for_each(|kept| kept.for_each(grid, |_, bytes| sum += bytes));
        sum
    }

    /// Returns whether it was a member of the cluster and has left without dying.
    pub(crate) fn has_left(&self) -> bool {
        self.member().is_some_and(Member::has_left)
    }

    /// Adds threads to the process.
    pub(crate) fn add_threads(&self, threads: usize) {
        self.threads.fetch_add(threads, Ordering::AcqRel);
    }

    /// Returns whether at most one of its threads has not ended.
    pub(crate) fn has_one_thread(&self) -> bool {
        self.threads.load(Ordering::Acquire) <= 1
    }

    /// Returns whether all of its threads have ended, or are about to.
    pub(crate) fn has_no_thread(&self) -> bool {
        self.threads.load(Ordering::Acquire) == 0
    }

    /// Counts a thread that has ended or died. Returns the process's identity if it is a member and the thread was its last.
    pub(crate) fn end_thread(&self) -> Option<u32> {
        let is_last = self.threads.fetch_sub(1, Ordering::AcqRel) == 1;
        self.identity().filter(|_| is_last)
    }

    /// The process's identity, if it is a member.
    pub(crate) fn identity(&self) -> Option<u32> {
        self.member().map(|member| member.identity)
    }
}
