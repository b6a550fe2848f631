//! A compute thread without its run: its I/O, its blocks, and its part in epochs.
//!
//! What allocates, retires and frees works on a [`Worker`]. It knows nothing of clusters, runs and members; what it needs of those is handed
//! over when it is made.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farfield_fabric::chain::Chain;
use farfield_fabric::stall::DescribeWait;
use farfield_sim::Sim;

use super::candidates::Candidates;
use super::eager::Eager;
use super::global::Step;
use super::heap::ThreadHeap;
use super::process::Process;
use super::reclaim::RETIRED_PER_ADVANCE;
use crate::epoch::{Limbo, Pin};
use crate::io::{Failures, Io, IoParts, Purpose, Thread};
use crate::segment::grid::Grid;

/// Blocks that ended threads of a process had retired.
#[derive(Default)]
pub(crate) struct Orphans(Mutex<Vec<Limbo>>);

impl Orphans {
    fn list(&self) -> MutexGuard<'_, Vec<Limbo>> {
        // A list of lists is whole at every moment.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over what a thread had retired when it ended.
    pub(crate) fn adopt(&self, limbo: Limbo) {
        if !limbo.is_empty() {
            self.list().push(limbo);
        }
    }

    /// Hands over what ended threads had retired.
    pub(crate) fn take(&self) -> Vec<Limbo> {
        std::mem::take(&mut *self.list())
    }

    /// Looks at what ended threads had retired.
    pub(crate) fn for_each(&self, each: impl FnMut(&Limbo)) {
        self.list().iter().for_each(each);
    }
}

/// An epoch in which a thread has found that it has retired too much.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldBack {
    pub(crate) epoch: u64,
    pub(crate) since: Duration,
    /// The number of calls that found so.
    pub(crate) calls: u32,
    /// True once a call has failed for it.
    pub(crate) has_failed: bool,
}

/// What a worker asks of the layers above.
pub(crate) trait RunHooks {
    /// Vetoes blocks that processes of the same run keep which have left.
    fn veto_departed(&self, grid: &Grid, candidates: &Candidates);

    /// What a wait is for, as a function that says so when a report is made.
    fn describes(&self, purpose: Purpose<'_>) -> DescribeWait;
}

/// A compute thread without its run.
pub struct Worker {
    pub(crate) io: Io<Self>,
    heap: Rc<ThreadHeap>,
    /// What it shares with the threads of its process.
    pub(crate) process: Arc<Process>,
    /// The step that it takes for its process, and how many chains from now it takes the next.
    pub(crate) step: RefCell<Option<Step>>,
    pub(crate) until_step: Cell<u32>,
    /// What it has retired, and how many objects more before the next attempt to advance the epoch.
    pub(crate) limbo: RefCell<Limbo>,
    pub(crate) until_advance: Cell<u64>,
    /// How many retired bytes it may keep, and the epoch in which it had more.
    pub(crate) most_retired: u64,
    pub(crate) held_back: Cell<Option<HeldBack>>,
    /// What advances epochs in the simulator, if it does, and the epoch at which the thread last freed what had expired.
    pub(crate) eager: Option<Arc<Eager>>,
    pub(crate) freed_at: Cell<u64>,
    pub(crate) orphans: Arc<Orphans>,
    pub(crate) failures: Arc<Failures>,
    /// True if processes that this one does not know may use the cluster.
    pub(crate) is_shared: bool,
    /// Its number among the threads of the run that are in this process.
    pub(crate) index_here: usize,
    run_hooks: Box<dyn RunHooks>,
}

/// What a worker is made of, besides its I/O.
pub(crate) struct WorkerParts {
    pub(crate) heap: ThreadHeap,
    pub(crate) process: Arc<Process>,
    pub(crate) most_retired: u64,
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
            most_retired,
            eager,
            orphans,
            failures,
            is_shared,
            index_here,
            run_hooks,
        } = parts;
        Self {
            io: Io::new(io),
            heap: Rc::new(heap),
            process,
            step: RefCell::default(),
            until_step: Cell::default(),
            limbo: RefCell::default(),
            until_advance: Cell::new(RETIRED_PER_ADVANCE),
            most_retired,
            held_back: Cell::default(),
            eager,
            freed_at: Cell::default(),
            orphans,
            failures,
            is_shared,
            index_here,
            run_hooks,
        }
    }

    #[inline]
    pub(crate) fn heap(&self) -> &Rc<ThreadHeap> {
        &self.heap
    }

    pub(crate) fn run_hooks(&self) -> &dyn RunHooks {
        &*self.run_hooks
    }

    /// Protects what is loaded from now on, until what this returns is dropped. No round trip.
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
    fn writes_chain(&self, chain: &Chain) {
        self.veto_written(chain);
    }

    #[inline]
    fn accesses(&self) {
        self.hear_of_sweep();
    }

    #[inline]
    fn posts_chain(&self) {
        self.count_towards_step();
    }

    fn waits_for_round_trips(&self, round_trips: u64) {
        self.count_wait_towards_step(round_trips);
    }

    #[inline]
    fn serves_requests(&self) {
        self.hear_requests();
    }

    fn drives_background(&self) {
        self.go_on_with_step();
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
