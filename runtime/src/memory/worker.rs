//! A compute thread without its run: its I/O, its heap, and its epochs.
//!
//! The functions that allocate, retire and free blocks work on a [`Worker`]. It does not know clusters, runs and members; its constructor
//! receives the values and the [hooks](RunHooks) that it needs of those.

use std::any::Any;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashSet;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farfield_fabric::chain::RawChain;
use farfield_fabric::stall::DescribeWait;
use farfield_sim::Sim;

use super::candidates::Candidates;
use super::compaction::ALWAYS;
use super::eager::Eager;
use super::global::Step;
use super::heap::ThreadHeap;
use super::process::Process;
use super::reclaim::{RETIRED_PER_ADVANCE, max_garbage};
use crate::epoch::{Limbo, Pin};
use crate::io::{Failures, Io, IoParts, Purpose, Thread};
use crate::segment::grid::Grid;

/// More than a thread counts of points that may be quiescent.
const QUIESCENT_POINTS: u64 = 1 << 32;
/// The number of threads of all clusters and runs of this program so far.
static THREADS: AtomicU64 = AtomicU64::new(0);

/// The limbo lists of ended threads of a process.
#[derive(Default)]
pub(crate) struct Orphans(Mutex<Vec<Limbo>>);

impl Orphans {
    fn list(&self) -> MutexGuard<'_, Vec<Limbo>> {
        // The list is consistent at any time.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the limbo list of a thread that ends.
    pub(crate) fn adopt(&self, limbo: Limbo) {
        if !limbo.is_empty() {
            self.list().push(limbo);
        }
    }

    /// Takes all limbo lists.
    pub(crate) fn take(&self) -> Vec<Limbo> {
        std::mem::take(&mut *self.list())
    }

    /// Visits all limbo lists.
    pub(crate) fn for_each(&self, each: impl FnMut(&Limbo)) {
        self.list().iter().for_each(each);
    }
}

/// The last epoch in which a thread had retired too much.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldBack {
    pub(crate) epoch: u64,
    pub(crate) since: Duration,
    /// The number of calls in that epoch that found the limit exceeded.
    pub(crate) calls: u32,
    /// True once a call has failed because of the limit.
    pub(crate) has_failed: bool,
}

/// The functions of the run that a worker calls.
pub(crate) trait RunHooks {
    /// Vetoes the blocks of processes of the same run that have left.
    fn veto_departed(&self, grid: &Grid, candidates: &Candidates);

    /// The purpose of a wait, as a function that a report of a stall calls.
    fn describes(&self, purpose: Purpose<'_>) -> DescribeWait;
}

/// Work that a thread does for others, between the polls of its tasks: delegation.
pub(crate) trait Service {
    /// Does what there is to do. Returns whether there was anything.
    fn round(&self, worker: &Worker) -> bool;

    /// Returns whether others may have work for the thread, or answers, which only polling finds.
    fn attends(&self) -> bool;

    /// Sleeps for `most` at most, until others have work or answers, or the thread is woken. Returns `false` if it can not.
    fn sleeps(&self, worker: &Worker, most: Option<Duration>) -> bool;

    /// The thread ends.
    fn ends(&self, worker: &Worker);

    fn as_any(&self) -> &dyn Any;
}

/// A compute thread without its run.
pub struct Worker {
    pub(crate) io: Io<Self>,
    heap: Rc<ThreadHeap>,
    /// The memory that it shares with the threads of its process.
    pub(crate) process: Arc<Process>,
    /// The step that it takes for its process, and the number of chains until the next one.
    pub(crate) step: RefCell<Option<Step>>,
    pub(crate) until_step: Cell<u32>,
    /// Steps that it has begun without waiting for them.
    pub(super) steps: Cell<u32>,
    /// True if it takes one.
    pub(crate) takes_step: Cell<bool>,
    /// The blocks that it has retired, and the number of retirements until the next attempt to advance the epoch.
    pub(crate) limbo: RefCell<Limbo>,
    pub(crate) until_advance: Cell<u64>,
    /// The maximum number of retired bytes, and the last epoch in which it had more.
    pub(crate) max_retired: u64,
    pub(crate) held_back: Cell<Option<HeldBack>>,
    /// The number of retired bytes up to which a retirement has nothing to check.
    pub(super) most_unchecked: u64,
    /// Eager reclamation, if the simulator advances epochs, and the epoch in which the thread last freed expired blocks.
    pub(crate) eager: Option<Arc<Eager>>,
    pub(crate) freed_at: Cell<u64>,
    /// Counts points that may be quiescent: barriers that it has passed, and calls of `reclaim_deferred`. They end the meaning of epochs that were
    /// remembered before. Each thread begins at another multiple of [`QUIESCENT_POINTS`], so the values of two threads differ.
    pub(crate) quiescent_points: Cell<u64>,
    pub(crate) orphans: Arc<Orphans>,
    pub(crate) failures: Arc<Failures>,
    /// True if independent processes may use the cluster concurrently.
    pub(crate) is_shared: bool,
    /// Its number among the threads of the run that are in this process.
    pub(crate) index_here: usize,
    run_hooks: Box<dyn RunHooks>,
    /// The entries of the directory that its tasks have claimed, or try to claim.
    pub(crate) claimed_names: RefCell<HashSet<usize>>,
    /// What it does for others, and the number of the last request of its process that it has answered since.
    pub(crate) service: OnceCell<Rc<dyn Service>>,
    pub(super) answered: Cell<u64>,
}

/// The parts of a worker, besides its I/O.
pub(crate) struct WorkerParts {
    pub(crate) heap: ThreadHeap,
    pub(crate) process: Arc<Process>,
    pub(crate) max_retired: u64,
    pub(crate) eager: Option<Arc<Eager>>,
    pub(crate) orphans: Arc<Orphans>,
    pub(crate) failures: Arc<Failures>,
    pub(crate) is_shared: bool,
    pub(crate) index_here: usize,
    pub(crate) run_hooks: Box<dyn RunHooks>,
}

impl Worker {
    pub(crate) fn new(io: IoParts, parts: WorkerParts) -> Self {
        let WorkerParts {
            heap,
            process,
            max_retired,
            eager,
            orphans,
            failures,
            is_shared,
            index_here,
            run_hooks,
        } = parts;
        let most_unchecked = max_retired.min(max_garbage(heap.segment_bytes()));
        Self {
            io: Io::new(io),
            heap: Rc::new(heap),
            process,
            step: RefCell::default(),
            until_step: Cell::default(),
            steps: Cell::default(),
            takes_step: Cell::default(),
            limbo: RefCell::default(),
            until_advance: Cell::new(RETIRED_PER_ADVANCE),
            max_retired,
            held_back: Cell::default(),
            most_unchecked,
            eager,
            freed_at: Cell::default(),
            quiescent_points: Cell::new(THREADS.fetch_add(1, Ordering::Relaxed) * QUIESCENT_POINTS),
            orphans,
            failures,
            is_shared,
            index_here,
            run_hooks,
            claimed_names: RefCell::default(),
            service: OnceCell::new(),
            answered: Cell::new(0),
        }
    }

    /// Gives the thread a service, unless it has one.
    pub(crate) fn service_or(&self, make: impl FnOnce() -> Rc<dyn Service>) -> &Rc<dyn Service> {
        self.service.get_or_init(|| {
            self.answered.set(self.heap.served_requests.replace(ALWAYS));
            make()
        })
    }

    #[inline]
    pub(crate) fn heap(&self) -> &Rc<ThreadHeap> {
        &self.heap
    }

    pub(crate) fn run_hooks(&self) -> &dyn RunHooks {
        &*self.run_hooks
    }

    /// Protects the objects that are loaded from now on until the result is dropped. No round trip.
    #[inline]
    pub(crate) fn pinned(&self) -> Pinned<'_> {
        self.serves_requests();
        Pinned { worker: self, pin: self.enter_for_guard() }
    }

    /// Enters the current epoch for a guard.
    #[inline]
    pub(crate) fn enter_for_guard(&self) -> Pin {
        match self.io.endpoint.virtual_time() {
            None => self.io.epoch.pin(),
            Some(sim) => self.enter_simulated(sim),
        }
    }

    /// Leaves the epoch of a guard that is dropped.
    #[inline]
    pub(crate) fn leave_for_guard(&self, pin: Pin) {
        match self.io.endpoint.virtual_time() {
            None => drop(self.io.epoch.unpin(pin)),
            Some(sim) => self.leave_simulated(sim, pin),
        }
    }

    /// Records a point that may be quiescent.
    pub(crate) fn passes_quiescent_point(&self) {
        self.quiescent_points.set(self.quiescent_points.get() + 1);
    }

    #[cold]
    fn enter_simulated(&self, sim: &Sim) -> Pin {
        let pin = self.enter_epoch();
        sim.pins(|| self.process.collector.epoch());
        pin
    }

    #[cold]
    fn leave_simulated(&self, sim: &Sim, pin: Pin) {
        self.leave_epoch(pin);
        sim.unpins();
    }
}

/// A guard of the library's own.
pub(crate) struct Pinned<'a> {
    worker: &'a Worker,
    pin: Pin,
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        self.worker.leave_for_guard(self.pin);
    }
}

impl Thread for Worker {
    #[inline]
    fn io(&self) -> &Io<Self> {
        &self.io
    }

    #[inline]
    fn writes_words(&self, words: &[u64]) {
        self.veto_words(words);
    }

    #[inline]
    fn writes_chain(&self, chain: &RawChain) {
        self.veto_written(chain);
    }

    #[inline]
    fn accesses(&self) {
        self.check_for_sweep();
    }

    #[inline]
    fn posts_chain(&self) {
        self.count_towards_step();
    }

    #[inline]
    fn is_quiet(&self) -> bool {
        !self.process.sweep_barrier.is_active() && self.is_before_step()
    }

    #[inline]
    fn counts_chain(&self) {
        self.until_step.set(self.until_step.get() - 1);
    }

    fn waits_for_round_trips(&self, round_trips: u64) {
        self.count_wait_towards_step(round_trips);
    }

    #[inline]
    fn serves_requests(&self) {
        self.check_requests();
    }

    #[inline]
    fn attends(&self) -> bool {
        self.service.get().is_some_and(|service| service.attends())
    }

    fn sleeps_for_others(&self, most: Option<Duration>) -> bool {
        self.service.get().is_some_and(|service| service.sleeps(self, most))
    }

    fn serves_others(&self) -> bool {
        self.service.get().is_some_and(|service| service.round(self))
    }

    fn drives_background(&self) {
        self.continue_step();
    }

    #[inline]
    fn protects(&self) -> Pin {
        self.enter_oldest_epoch()
    }

    #[inline]
    fn unprotects(&self, pin: Pin) {
        self.leave_epoch(pin);
    }

    fn describes(&self, purpose: Purpose<'_>) -> DescribeWait {
        self.run_hooks.describes(purpose)
    }
}
