//! A compute thread: one thread of a run.

use std::cell::Cell;
use std::fmt;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use farfield_fabric::stall::DescribeWait;
use farfield_words::ThreadId;

use super::Cluster;
use super::run::Run;
use crate::epoch::Collector;
use crate::io::operations::*;
use crate::io::{IoParts, Metrics, Purpose, ResultsPool};
use crate::memory::candidates::Candidates;
use crate::memory::heap::ThreadHeap;
use crate::memory::worker::{RunHooks, Worker, WorkerParts};
use crate::segment::grid::Grid;

/// One thread's access to far memory.
///
/// [`Cluster::run`] makes one for each thread it starts. Everything that reaches far memory takes it, or a
/// [`Guard`](crate::Guard), which dereferences to it. It is not `Sync`: what a thread counts, caches and retires is its
/// own, and costs no synchronisation.
pub struct ComputeThread {
    /// Its I/O, its heap and its part in epochs.
    worker: Worker,
    /// Places for the results of [`Chain`](crate::Chain)s, in use or not.
    pub(crate) results: ResultsPool,
    /// True if the other threads of the run, and other processes, have been told that it has ended.
    has_departed: Cell<bool>,
    /// Its number among the threads of the run.
    index: usize,
    pub(crate) run: Arc<Run>,
    cluster: Cluster,
}

/// What a worker asks of its run.
struct HooksOfRun {
    cluster: Cluster,
    run: Arc<Run>,
    index_here: usize,
    id: ThreadId,
}

impl RunHooks for HooksOfRun {
    fn veto_left(&self, grid: &Grid, candidates: &Candidates) {
        self.run.veto_left(grid, candidates);
    }

    fn describes(&self, purpose: Purpose<'_>) -> DescribeWait {
        self.cluster.describes(purpose, self.id, &self.run, self.index_here)
    }
}

impl ComputeThread {
    pub(crate) fn new(cluster: &Cluster, run: &Arc<Run>, index: usize) -> Self {
        let shared = &cluster.shared;
        let id = run.id_of(index);
        let process = Arc::clone(run.process_of(index));
        let task = Rc::new(Cell::new(0));
        let seed = shared.config.seed.wrapping_add(id.number().get().wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let stalls = shared.waits_of(|| {
            let pid = std::process::id();
            if run.is_in_background() {
                format!("the thread in the background ({id}) of pid {pid}")
            } else {
                format!("thread {} ({id}) of pid {pid}", run.threads_before() + index)
            }
        });
        let heap = ThreadHeap::new(
            Arc::clone(&shared.registry),
            Arc::clone(&process),
            shared.config.geometry,
            shared.config.policy,
            (run.threads_before() + index, run.number_of_process(index)),
            shared.watch(&task),
        );
        let io = IoParts {
            endpoint: shared.endpoint(seed, (!run.is_in_background()).then_some(index), stalls.clone()),
            epoch: Collector::register(&process.collector, index),
            identities: Arc::clone(&shared.identities),
            sleepers: Arc::clone(&process.sleepers),
            stalls,
            task,
            id,
            geometry: shared.config.geometry,
            seed,
            contenders: run.threads(),
        };
        let parts = WorkerParts {
            heap,
            process,
            most_retired: shared.config.most_retired(),
            eager: run.eager().cloned(),
            orphans: Arc::clone(&shared.orphans),
            failures: Arc::clone(&shared.failures),
            has_strangers: shared.has_strangers(),
            index_here: index,
            run_hooks: Box::new(HooksOfRun {
                cluster: cluster.clone(),
                run: Arc::clone(run),
                index_here: index,
                id,
            }),
        };
        Self {
            worker: Worker::new(io, parts),
            results: ResultsPool::default(),
            has_departed: Cell::new(false),
            index: run.threads_before() + index,
            run: Arc::clone(run),
            cluster: cluster.clone(),
        }
    }

    /// The thread without its run.
    pub(crate) fn worker(&self) -> &Worker {
        &self.worker
    }

    /// The thread's number in its run: 0 to [`threads`](Self::threads) - 1.
    pub fn index(&self) -> usize {
        self.index
    }

    /// As [`index`](Self::index), among the threads of the run that are in this process.
    pub(crate) fn index_here(&self) -> usize {
        self.worker.index_here
    }

    /// The number of the task that runs: its index among those of [`tasks`](Self::tasks), 0 outside.
    pub fn task(&self) -> usize {
        self.task_number() as usize
    }

    /// How many compute threads the run has.
    pub fn threads(&self) -> usize {
        self.run.threads()
    }

    /// How many memory nodes the cluster has.
    pub fn nodes(&self) -> usize {
        usize::from(self.cluster.shared.config.geometry.nodes())
    }

    /// The thread's identity, unique in the cluster for as long as it exists.
    pub fn id(&self) -> ThreadId {
        self.worker.id()
    }

    /// The cluster that the thread belongs to.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The time since the cluster was connected, by the fabric's clock.
    pub fn now(&self) -> Duration {
        self.time()
    }

    /// What this thread has asked of far memory so far.
    pub fn metrics(&self) -> Metrics {
        let (io, heap) = (&self.io, self.heap());
        io.counters.snapshot(io.endpoint.doorbells(), heap.allocated.get(), heap.freed.get())
    }

    /// Sleeps: for waiting until another process does something, when nothing of this thread is under way.
    #[allow(clippy::unused_self)] // only a thread sleeps
    pub(crate) fn park(&self, duration: Duration) {
        farfield_fabric::host::sleep(duration);
    }

    /// Tells the other threads of the run that the thread has ended, unless they have been told.
    pub(crate) fn depart(&self) {
        if self.has_departed.replace(true) {
            return;
        }
        self.run.depart();
        if let Some(joint) = self.run.joint() {
            joint.depart(self);
        }
    }

    /// Waits until everything that this thread has posted has been executed. A thread that still writes must not count
    /// as gone.
    pub(crate) async fn settle(&self) {
        self.give_up_compensations();
        while self.io.endpoint.is_underway() {
            // Their completions are found by nobody else.
            self.go_on_with_step();
            self.poll_detached();
            self.give_way().await;
        }
    }
}

#[doc(hidden)]
impl Deref for ComputeThread {
    type Target = Worker;

    #[inline]
    fn deref(&self) -> &Worker {
        &self.worker
    }
}

impl fmt::Debug for ComputeThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ComputeThread")
            .field("index", &self.index)
            .field("id", &self.id())
            .finish_non_exhaustive()
    }
}

impl Drop for ComputeThread {
    /// The thread leaves its run: nobody may wait for it any more, and what it had retired is left to the others.
    fn drop(&mut self) {
        self.abandon_step();
        self.give_up_compensations();
        self.forget_detached();
        self.leave_epochs();
        self.hear_of_sweep();
        if self.io.endpoint.virtual_time().is_none_or(|sim| !sim.has_lost_memory()) {
            self.orphans.adopt(self.limbo.take());
        }
        self.depart();
        self.run.account(self.index_here(), self.metrics());
        for identity in self.io.tokens.take_further() {
            self.cluster.shared.identities.end(identity);
        }
    }
}
