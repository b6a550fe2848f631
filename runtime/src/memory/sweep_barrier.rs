//! What a process says while another sweeps memory: which of the candidates it holds.
//!
//! A [sweep](super::sweep) lists *candidates*, blocks that look as if nobody used them. Each process hears of the list from its
//! keeper, and each of its threads when it next pins, allocates, writes or waits. From then on they *veto* candidates, in one of
//! two ways. A block is *used* that is an object, so that what it leads to is used, too:
//! - when a thread hears, those that it holds as [`Held`](super::holdings::Held), or has written and perhaps not linked;
//! - afterwards, those that it holds, and those whose address is in a word that it writes or exchanges.
//!
//! A block is *kept* that is none, or no longer:
//! - when a thread hears, those in its lists of free blocks and in its limbo, and those for an [`Owned`](crate::Owned), which is written
//!   when it is linked;
//! - afterwards, those that it retires, deletes, takes from the pool or into its lists.
//!
//! When all threads have heard, the keeper adds what ended threads have left, and says so in the process's record. It writes the
//! vetoes themselves into the list when it is asked for them.
//!
//! What a thread holds otherwise it holds under a guard, and the sweep waits until those are over: a chain in flight that
//! moves blocks, a chunk that was just taken, an object that was just unlinked.
//!
//! # Costs
//!
//! While nobody sweeps: a load and a comparison for each write, as on `local:`, and in a cluster that is swept a push and a pop for
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
use farfield_fabric::chain::{Chain, Op};
use farfield_sim::Plant;
use farfield_words::Address;
use farfield_words::Block;

/// A process's part in sweeps.
#[derive(Default)]
pub(crate) struct SweepBarrier {
    /// The number of the list that it has heard of, or 0.
    number: AtomicU64,
    candidates: Mutex<Option<Arc<Candidates>>>,
    /// What each of its threads says.
    threads: Mutex<Vec<Arc<Said>>>,
    /// True if no process sweeps in this cluster.
    is_disabled: AtomicBool,
    /// What its ended threads had written.
    pub(crate) written: Mutex<Written>,
    /// What its record says.
    said: AtomicU64,
}

/// What a thread says to its process.
#[derive(Default)]
struct Said {
    /// The last list that it has heard of.
    heard: AtomicU64,
    /// About how many bytes it has in free blocks and in garbage.
    held_bytes: AtomicU64,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What these protect is whole at every moment.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SweepBarrier {
    /// Whether somebody sweeps, as far as the process knows.
    #[inline]
    pub(crate) fn is_called(&self) -> bool {
        self.number.load(Ordering::Relaxed) != 0
    }

    /// The list that it has heard of.
    pub(crate) fn candidates(&self) -> Option<Arc<Candidates>> {
        lock(&self.candidates).clone()
    }

    /// The process has heard of a list, or of its end.
    pub(crate) fn hear(&self, candidates: Option<Arc<Candidates>>) {
        let number = candidates.as_ref().map_or(0, |candidates| candidates.number);
        *lock(&self.candidates) = candidates;
        self.number.store(number, Ordering::Release);
    }

    /// What its record says.
    pub(crate) fn has_said(&self) -> u64 {
        self.said.load(Ordering::Relaxed)
    }

    pub(crate) fn says(&self, word: u64) {
        self.said.store(word, Ordering::Relaxed);
    }

    /// Whether all threads have heard of a list: what others left that have ended is where the process can see it.
    fn have_all_heard(&self, number: u64) -> bool {
        lock(&self.threads).iter().all(|thread| thread.heard.load(Ordering::Acquire) == number)
    }

    /// How many threads have not heard of the list that the process has heard of.
    pub(crate) fn silent_threads(&self) -> usize {
        let number = self.number.load(Ordering::Relaxed);
        lock(&self.threads).iter().filter(|thread| thread.heard.load(Ordering::Acquire) != number).count()
    }

    /// No process sweeps in this cluster, so threads keep no account of what they hold. Called before the process has compute threads.
    pub(crate) fn disable(&self) {
        self.is_disabled.store(true, Ordering::Release);
    }

    /// Returns whether a process may sweep in this cluster.
    pub(crate) fn is_enabled(&self) -> bool {
        !self.is_disabled.load(Ordering::Acquire)
    }

    /// About how many bytes its threads have in free blocks and in garbage.
    fn held_bytes(&self) -> u64 {
        lock(&self.threads).iter().map(|thread| thread.held_bytes.load(Ordering::Relaxed)).sum()
    }
}

/// What tells that a thread has heard. It lives longer than everything else of its thread.
pub(crate) struct Listener {
    process: Arc<Process>,
    said: Arc<Said>,
    /// The list that it has heard of last.
    candidates: RefCell<Option<Arc<Candidates>>>,
}

impl Listener {
    pub(crate) fn new(process: &Arc<Process>) -> Self {
        let said = Arc::new(Said::default());
        lock(&process.sweep_barrier.threads).push(Arc::clone(&said));
        Self { process: Arc::clone(process), said, candidates: RefCell::default() }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        lock(&self.process.sweep_barrier.threads).retain(|said| !Arc::ptr_eq(said, &self.said));
    }
}

impl ThreadHeap {
    /// Vetoes what the thread holds.
    pub(crate) fn veto_held(&self, candidates: &Candidates) {
        for node in &self.nodes {
            node.borrow().veto(&self.grid, candidates);
        }
        self.holdings.veto(candidates);
    }

    /// The thread takes some bytes into its hands.
    #[inline]
    pub(crate) fn veto(&self, at: Address, bytes: u64) {
        if self.process.sweep_barrier.is_called() {
            self.with_candidates(|candidates| candidates.keeps(at, bytes));
        }
    }

    /// A block is no object any more.
    #[inline]
    pub(crate) fn veto_freed(&self, block: Block) {
        self.veto(block.address, block.bytes);
        self.holdings.forget(block.address);
    }

    /// The thread takes over free blocks.
    pub(crate) fn veto_blocks(&self, class: Class, entries: &[u64]) {
        if self.process.sweep_barrier.is_called() {
            self.with_candidates(|candidates| {
                for (at, bytes) in free_blocks(&self.grid, class, entries) {
                    candidates.keeps(at, bytes);
                }
            });
        }
    }

    /// The thread takes over what an ended one has left.
    pub(crate) fn veto_spare(&self, spare: &Spare) {
        if self.process.sweep_barrier.is_called() {
            self.with_candidates(|candidates| spare.veto(&self.grid, candidates));
        }
    }

    #[cold]
    pub(crate) fn with_candidates(&self, then: impl FnOnce(&Candidates)) {
        if let Some(candidates) = &*self.listener.candidates.borrow() {
            then(candidates);
        }
    }
}

impl NodeCache {
    fn veto(&self, grid: &Grid, candidates: &Candidates) {
        self.for_each(grid, |at, bytes| candidates.keeps(at, bytes));
    }
}

impl Spare {
    pub(crate) fn veto(&self, grid: &Grid, candidates: &Candidates) {
        self.for_each(grid, |at, bytes| candidates.keeps(at, bytes));
    }
}

impl Limbo {
    pub(crate) fn veto(&self, candidates: &Candidates) {
        self.blocks().for_each(|block| candidates.keeps(block.address, block.bytes));
    }
}

impl Worker {
    /// Says how many bytes the thread has in free blocks and in garbage, where others may want to know when it has died. Called where
    /// blocks move by the page, so what it said is out by a page for each size at most, and by 64 retired objects.
    pub(crate) fn report_held_bytes(&self) {
        if self.process.member().is_none() {
            return;
        }
        let mut bytes = self.limbo.borrow().bytes();
        for node in &self.heap().nodes {
            bytes += node.borrow().bytes(&self.heap().grid);
        }
        self.heap().listener.said.held_bytes.store(bytes, Ordering::Relaxed);
    }

    /// About how many bytes this process has in free blocks and in garbage.
    pub(crate) fn process_holds(&self) -> u64 {
        let mut bytes = self.process.sweep_barrier.held_bytes() + self.process.spare_bytes(&self.heap().grid);
        self.orphans.for_each(|limbo| bytes += limbo.bytes());
        bytes
    }

    /// Hears that somebody sweeps, if somebody does.
    #[inline]
    pub(crate) fn hear_of_sweep(&self) {
        if self.process.sweep_barrier.is_called() {
            self.hear_now();
        }
    }

    #[cold]
    fn hear_now(&self) {
        let (listener, sweep_barrier) = (&self.heap().listener, &self.process.sweep_barrier);
        if listener.said.heard.load(Ordering::Relaxed) == sweep_barrier.number.load(Ordering::Acquire) {
            return;
        }
        let Some(candidates) = sweep_barrier.candidates() else { return };
        if !self.has(Plant::SweepWithoutHoldings) {
            self.heap().veto_held(&candidates);
        }
        self.limbo.borrow().veto(&candidates);
        let number = candidates.number;
        *listener.candidates.borrow_mut() = Some(candidates);
        listener.said.heard.store(number, Ordering::Release);
    }

    /// The thread writes a chain's words.
    #[inline]
    pub(crate) fn veto_written(&self, chain: &Chain) {
        if self.process.sweep_barrier.is_called() {
            self.hear_now();
            if chain.is_of_allocator() || self.has(Plant::SweepWithoutWrites) {
                return;
            }
            self.heap().with_candidates(|candidates| {
                for op in chain.ops() {
                    match op {
                        Op::Write { slot, .. } => {
                            chain.written(slot).iter().for_each(|word| candidates.uses_word(*word));
                        }
                        Op::CompareExchange { new, .. } => candidates.uses_word(*new),
                        Op::Read { .. } | Op::FetchAdd { .. } => {}
                    }
                }
            });
        }
    }

    /// The thread writes words.
    #[inline]
    pub(crate) fn veto_words(&self, words: &[u64]) {
        if self.process.sweep_barrier.is_called() {
            self.hear_now();
            self.heap()
                .with_candidates(|candidates| words.iter().for_each(|word| candidates.uses_word(*word)));
        }
    }

    /// Takes over what ended threads of the process have retired.
    pub(crate) fn take_orphans(&self) {
        for orphan in self.orphans.take() {
            if self.process.sweep_barrier.is_called() {
                self.heap().with_candidates(|candidates| orphan.veto(candidates));
            }
            self.limbo.borrow_mut().absorb(orphan);
        }
    }

    /// For the keeper: whether the process's threads have all heard of a list. If so, what ended threads have left is vetoed, too.
    pub(crate) fn has_process_heard(&self, candidates: &Candidates) -> bool {
        if !self.process.sweep_barrier.have_all_heard(candidates.number)
            && !self.has(Plant::SweepWithoutThreads)
        {
            return false;
        }
        self.veto_ended(candidates);
        true
    }

    /// Vetoes what ended threads of the process have left: spare blocks, garbage, and objects that they had written. Simulated processes that have
    /// left keep such things for later runs, and no member of their own says so.
    pub(crate) fn veto_ended(&self, candidates: &Candidates) {
        let grid = &self.heap().grid;
        self.process.veto_spare(grid, candidates);
        lock(&self.process.sweep_barrier.written).veto(candidates);
        self.orphans.for_each(|limbo| limbo.veto(candidates));
        self.run_hooks().veto_departed(grid, candidates);
    }

    /// Forgets what this thread and the ended ones of its process have written: nothing of it will be linked.
    pub(crate) fn forget_written(&self) {
        self.heap().holdings.forget_written();
        *lock(&self.process.sweep_barrier.written) = Written::default();
    }

    /// Vetoes all that this thread and its process have, whether other processes sweep or not.
    pub(crate) fn veto_everything(&self, candidates: &Candidates) {
        self.heap().veto_held(candidates);
        self.limbo.borrow().veto(candidates);
        self.veto_ended(candidates);
    }
}
