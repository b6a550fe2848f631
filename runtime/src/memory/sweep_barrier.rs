//! The sweep barrier: while another process sweeps, this process vetoes the candidates that it holds.
//!
//! A [sweep](crate::sweep) lists *candidates*, blocks that seem to be lost. Each process reads the list in its keeper, and each of its threads
//! *acknowledges* it when it next pins, allocates, writes or waits. From then on the threads *veto* candidates, in one of two ways. A block is
//! vetoed as *used* if it is an object, so that the targets of its links are used, too:
//! - at the acknowledgement, objects that the thread holds as [`Held`](crate::Held), or has written and perhaps not linked;
//! - afterwards, objects that the thread holds, and those whose address is in a word that it writes or exchanges.
//!
//! A block is vetoed as *kept* if it is not an object, or not any more:
//! - at the acknowledgement, blocks in the thread's free lists and in its limbo list, and those of an [`Owned`](crate::Owned), which is written
//!   when it is linked;
//! - afterwards, blocks that the thread retires, deletes, takes from the pool or puts into its lists.
//!
//! When all threads have acknowledged the list, the keeper vetoes the blocks of ended threads, and writes the acknowledgement into the
//! process's record. It writes the vetoes into the list when the sweeper requests them.
//!
//! All other blocks that a thread holds are protected by a guard, and the sweep waits until those guards are dropped: blocks that a chain in
//! flight moves, a chunk that was just taken, an object that was just unlinked.
//!
//! # Costs
//!
//! While no process sweeps: a load and a comparison for each write, as on `local:`. In a cluster that is swept, also a push and a pop for
//! each new object.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::cache::{NodeCache, Spare, free_blocks};
use super::candidates::Candidates;
use super::heap::ThreadHeap;
use super::holdings::Written;
use super::process::Process;
use super::worker::Worker;
use crate::epoch::Limbo;
use crate::io::operations::*;
use crate::segment::classes::Class;
use crate::segment::grid::Grid;
use farfield_fabric::chain::{Op, RawChain};
use farfield_sim::Plant;
use farfield_words::Address;
use farfield_words::Block;

/// The state of a process during other processes' sweeps.
#[derive(Default)]
pub(crate) struct SweepBarrier {
    /// The number of the current list; 0 if no process sweeps.
    number: AtomicU64,
    candidates: Mutex<Option<Arc<Candidates>>>,
    /// The reports of its threads.
    threads: Mutex<Vec<Arc<ThreadReport>>>,
    /// True if no process sweeps in this cluster.
    is_disabled: AtomicBool,
    /// The objects that its ended threads had written.
    pub(crate) written: Mutex<Written>,
    /// The answer in its record.
    answer: AtomicU64,
}

/// The report of a thread to its process.
#[derive(Default)]
struct ThreadReport {
    /// The number of the last list that it has acknowledged.
    acknowledged: AtomicU64,
    /// The approximate number of bytes that it has in free blocks and in garbage.
    held_bytes: AtomicU64,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The protected values are consistent at any time.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SweepBarrier {
    /// Returns whether a process sweeps, as far as this one knows.
    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        self.number.load(Ordering::Relaxed) != 0
    }

    /// The current list.
    pub(crate) fn candidates(&self) -> Option<Arc<Candidates>> {
        lock(&self.candidates).clone()
    }

    /// Sets the current list; `None` if no process sweeps.
    pub(crate) fn set_candidates(&self, candidates: Option<Arc<Candidates>>) {
        let number = candidates.as_ref().map_or(0, |candidates| candidates.number);
        *lock(&self.candidates) = candidates;
        self.number.store(number, Ordering::Release);
    }

    /// The answer in the process's record.
    pub(crate) fn answer(&self) -> u64 {
        self.answer.load(Ordering::Relaxed)
    }

    /// Remembers the answer that was written into the process's record.
    pub(crate) fn set_answer(&self, word: u64) {
        self.answer.store(word, Ordering::Relaxed);
    }

    /// Returns whether all threads have acknowledged a list. The process has taken over the blocks of the others, which have ended.
    fn have_all_acknowledged(&self, number: u64) -> bool {
        lock(&self.threads).iter().all(|thread| thread.acknowledged.load(Ordering::Acquire) == number)
    }

    /// The number of threads that have not acknowledged the current list.
    pub(crate) fn unacknowledged_threads(&self) -> usize {
        let number = self.number.load(Ordering::Relaxed);
        lock(&self.threads)
            .iter()
            .filter(|thread| thread.acknowledged.load(Ordering::Acquire) != number)
            .count()
    }

    /// Disables the barrier: no process sweeps in this cluster, so threads do not track their objects. Called before the process has compute
    /// threads.
    pub(crate) fn disable(&self) {
        self.is_disabled.store(true, Ordering::Release);
    }

    /// Returns whether a process may sweep in this cluster.
    pub(crate) fn is_enabled(&self) -> bool {
        !self.is_disabled.load(Ordering::Acquire)
    }

    /// The approximate number of bytes that its threads have in free blocks and in garbage.
    fn held_bytes(&self) -> u64 {
        lock(&self.threads).iter().map(|thread| thread.held_bytes.load(Ordering::Relaxed)).sum()
    }
}

/// A thread's side of the barrier. The process waits for the thread's acknowledgement until it is dropped. It is dropped last: by then the
/// process has taken over the thread's blocks.
pub(crate) struct Handshake {
    process: Arc<Process>,
    report: Arc<ThreadReport>,
    /// The last list that the thread has acknowledged.
    candidates: RefCell<Option<Arc<Candidates>>>,
}

impl Handshake {
    pub(crate) fn new(process: &Arc<Process>) -> Self {
        let report = Arc::new(ThreadReport::default());
        lock(&process.sweep_barrier.threads).push(Arc::clone(&report));
        Self { process: Arc::clone(process), report, candidates: RefCell::default() }
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        lock(&self.process.sweep_barrier.threads).retain(|report| !Arc::ptr_eq(report, &self.report));
    }
}

impl ThreadHeap {
    /// Vetoes the thread's free blocks and tracked objects.
    pub(crate) fn veto_held(&self, candidates: &Candidates) {
        for node in &self.nodes {
            node.borrow().veto(&self.grid, candidates);
        }
        self.holdings.veto(candidates);
    }

    /// Vetoes the blocks in a range of bytes that the thread acquires.
    #[inline]
    pub(crate) fn veto(&self, at: Address, bytes: u64) {
        if self.process.sweep_barrier.is_active() {
            self.with_candidates(|candidates| candidates.mark_kept(at, bytes));
        }
    }

    /// Vetoes a block that is not an object any more.
    #[inline]
    pub(crate) fn veto_freed(&self, block: Block) {
        self.veto(block.address, block.bytes);
        self.holdings.forget(block.address);
    }

    /// Vetoes free blocks that the thread takes from a page.
    pub(crate) fn veto_blocks(&self, class: Class, entries: &[u64]) {
        if self.process.sweep_barrier.is_active() {
            self.with_candidates(|candidates| {
                for (at, bytes) in free_blocks(&self.grid, class, entries) {
                    candidates.mark_kept(at, bytes);
                }
            });
        }
    }

    /// Vetoes free memory that the thread takes over from ended ones.
    pub(crate) fn veto_spare(&self, spare: &Spare) {
        if self.process.sweep_barrier.is_active() {
            self.with_candidates(|candidates| spare.veto(&self.grid, candidates));
        }
    }

    #[cold]
    pub(crate) fn with_candidates(&self, then: impl FnOnce(&Candidates)) {
        if let Some(candidates) = &*self.handshake.candidates.borrow() {
            then(candidates);
        }
    }
}

impl NodeCache {
    fn veto(&self, grid: &Grid, candidates: &Candidates) {
        self.for_each(grid, |at, bytes| candidates.mark_kept(at, bytes));
    }
}

impl Spare {
    pub(crate) fn veto(&self, grid: &Grid, candidates: &Candidates) {
        self.for_each(grid, |at, bytes| candidates.mark_kept(at, bytes));
    }
}

impl Limbo {
    pub(crate) fn veto(&self, candidates: &Candidates) {
        self.blocks().for_each(|block| candidates.mark_kept(block.address, block.bytes));
    }
}

impl Worker {
    /// Reports the bytes that the thread has in free blocks and in garbage, for the case that its process dies. Called when pages of blocks
    /// are moved, so the error is at most a page for each size, and 64 retired objects.
    pub(crate) fn report_held_bytes(&self) {
        if self.process.member().is_none() {
            return;
        }
        let mut bytes = self.limbo.borrow().bytes();
        for node in &self.heap().nodes {
            bytes += node.borrow().bytes(&self.heap().grid);
        }
        self.heap().handshake.report.held_bytes.store(bytes, Ordering::Relaxed);
    }

    /// The approximate number of bytes that this process has in free blocks and in garbage.
    pub(crate) fn process_held_bytes(&self) -> u64 {
        let mut bytes = self.process.sweep_barrier.held_bytes() + self.process.spare_bytes(&self.heap().grid);
        self.orphans.for_each(|limbo| bytes += limbo.bytes());
        bytes
    }

    /// Acknowledges the list of a sweep, if there is one.
    #[inline]
    pub(crate) fn check_for_sweep(&self) {
        if self.process.sweep_barrier.is_active() {
            self.acknowledge_sweep();
        }
    }

    #[cold]
    fn acknowledge_sweep(&self) {
        let (handshake, sweep_barrier) = (&self.heap().handshake, &self.process.sweep_barrier);
        if handshake.report.acknowledged.load(Ordering::Relaxed)
            == sweep_barrier.number.load(Ordering::Acquire)
        {
            return;
        }
        let Some(candidates) = sweep_barrier.candidates() else { return };
        if !self.has(Plant::SweepWithoutHoldings) {
            self.heap().veto_held(&candidates);
        }
        self.limbo.borrow().veto(&candidates);
        let number = candidates.number;
        *handshake.candidates.borrow_mut() = Some(candidates);
        handshake.report.acknowledged.store(number, Ordering::Release);
    }

    /// Vetoes the candidates in the words that a chain writes.
    #[inline]
    pub(crate) fn veto_written(&self, chain: &RawChain) {
        if self.process.sweep_barrier.is_active() {
            self.acknowledge_sweep();
            if chain.is_of_allocator() || self.has(Plant::SweepWithoutWrites) {
                return;
            }
            self.heap().with_candidates(|candidates| {
                for op in chain.ops() {
                    match op {
                        Op::Write { slot, .. } => {
                            chain
                                .written(slot.range())
                                .iter()
                                .for_each(|word| candidates.mark_targets_used(*word));
                        }
                        Op::CompareExchange { new, .. } => candidates.mark_targets_used(*new),
                        Op::Read { .. } | Op::FetchAdd { .. } => {}
                    }
                }
            });
        }
    }

    /// Vetoes the candidates in words that the thread writes.
    #[inline]
    pub(crate) fn veto_words(&self, words: &[u64]) {
        if self.process.sweep_barrier.is_active() {
            self.veto_words_of_sweep(words);
        }
    }

    #[cold]
    fn veto_words_of_sweep(&self, words: &[u64]) {
        self.acknowledge_sweep();
        self.heap().with_candidates(|candidates| {
            for word in words {
                candidates.mark_targets_used(*word);
            }
        });
    }

    /// Takes over the limbo lists of ended threads of the process.
    pub(crate) fn take_orphans(&self) {
        for orphan in self.orphans.take() {
            if self.process.sweep_barrier.is_active() {
                self.heap().with_candidates(|candidates| orphan.veto(candidates));
            }
            self.limbo.borrow_mut().absorb(orphan);
        }
    }

    /// Returns whether all threads of the process have acknowledged a list. If so, vetoes the blocks of ended threads, too. For the keeper.
    pub(crate) fn has_process_acknowledged(&self, candidates: &Candidates) -> bool {
        if !self.process.sweep_barrier.have_all_acknowledged(candidates.number)
            && !self.has(Plant::SweepWithoutThreads)
        {
            return false;
        }
        self.veto_ended(candidates);
        true
    }

    /// Vetoes the blocks of ended threads of the process: free blocks, garbage, and objects that they had written. Also those of simulated
    /// processes that have left: the cluster keeps them for later runs, and they are no members that could veto.
    pub(crate) fn veto_ended(&self, candidates: &Candidates) {
        let grid = &self.heap().grid;
        self.process.veto_spare(grid, candidates);
        lock(&self.process.sweep_barrier.written).veto(candidates);
        self.orphans.for_each(|limbo| limbo.veto(candidates));
        self.run_hooks().veto_departed(grid, candidates);
    }

    /// Removes the objects that this thread and ended ones of its process have written: none of them will be linked.
    pub(crate) fn forget_written(&self) {
        self.heap().holdings.forget_written();
        *lock(&self.process.sweep_barrier.written) = Written::default();
    }

    /// Vetoes all blocks of this thread and of ended threads of its process, also if no other process sweeps.
    pub(crate) fn veto_everything(&self, candidates: &Candidates) {
        self.heap().veto_held(candidates);
        self.limbo.borrow().veto(candidates);
        self.veto_ended(candidates);
    }
}
