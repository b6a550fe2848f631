//! A compute thread: a [`Worker`] in a run.

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
use crate::io::{ChainBuffers, IoParts, Metrics, Purpose};
use crate::memory::candidates::Candidates;
use crate::memory::heap::ThreadHeap;
use crate::memory::worker::{RunHooks, Worker, WorkerParts};
use crate::segment::grid::Grid;

/// One thread's access to far memory.
///
/// [`Cluster::run`] makes one for each thread that it starts. Every function that accesses far memory takes a reference to it, or to a
/// [`Guard`](crate::Guard), which dereferences to it. It is not `Sync`: counters, caches and retired objects belong to one thread and need no
/// synchronisation.
pub struct ComputeThread {
    /// Its I/O, heap and epochs.
    worker: Worker,
    /// Buffers for [`Chain`](crate::Chain)s.
    pub(crate) buffers: ChainBuffers,
    /// True once its end is announced to the run's other threads and processes.
    has_departed: Cell<bool>,
    /// The processes that it has begun to evict, unless a task of it is evicting: see `membership/members.rs`.
    pub(crate) unfinished_evictions: Cell<Option<Vec<u32>>>,
    /// Its number among the threads of the run.
    index: usize,
    pub(crate) run: Arc<Run>,
    cluster: Cluster,
}

/// The hooks that a worker calls in its run.
struct HooksOfRun {
    cluster: Cluster,
    run: Arc<Run>,
    index_here: usize,
    id: ThreadId,
}

impl RunHooks for HooksOfRun {
    fn veto_departed(&self, grid: &Grid, candidates: &Candidates) {
        self.run.veto_departed(grid, candidates);
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
            if run.is_background() {
                format!("the background thread ({id}) of pid {pid}")
            } else {
                format!("thread {} ({id}) of pid {pid}", run.threads_before() + index)
            }
        });
        let heap = ThreadHeap::new(
            Arc::clone(&shared.registry),
            Arc::clone(&process),
            shared.config.geometry,
            shared.config.policy,
            (run.threads_before() + index, run.process_index(index)),
            shared.watch(&task),
        );
        let io = IoParts {
            endpoint: shared.endpoint(seed, (!run.is_background()).then_some(index), stalls.clone()),
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
            max_retired: shared.config.max_retired(),
            eager: run.eager().cloned(),
            orphans: Arc::clone(&shared.orphans),
            failures: Arc::clone(&shared.failures),
            is_shared: shared.is_shared(),
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
            buffers: ChainBuffers::default(),
            has_departed: Cell::new(false),
            unfinished_evictions: Cell::new(Some(Vec::new())),
            index: run.threads_before() + index,
            run: Arc::clone(run),
            cluster: cluster.clone(),
        }
    }

    /// Returns the thread without its run.
    pub(crate) fn worker(&self) -> &Worker {
        &self.worker
    }

    /// Returns the thread's number in its run: 0 to [`threads`](Self::threads) - 1.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Returns the thread's number among the threads of the run in this process.
    pub(crate) fn index_here(&self) -> usize {
        self.worker.index_here
    }

    /// Returns the number of the running task: its index among those of [`tasks`](Self::tasks), 0 outside of tasks.
    pub fn task(&self) -> usize {
        self.task_number() as usize
    }

    /// Returns the number of compute threads of the run.
    pub fn threads(&self) -> usize {
        self.run.threads()
    }

    /// Returns the number of memory nodes of the cluster.
    pub fn nodes(&self) -> usize {
        usize::from(self.cluster.shared.config.geometry.nodes())
    }

    /// Returns the thread's identity, which is unique in the cluster while the thread exists.
    pub fn id(&self) -> ThreadId {
        self.worker.id()
    }

    /// Returns the cluster that the thread belongs to.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Returns whether operations are over when they are posted, so that a round trip costs nothing: on `local:` and `shm:`, without `delay`. A structure may then
    /// read words one by one that it would otherwise read together, and needs no cache to save round trips. [`Place::immediate`](crate::Place::immediate) accesses a word there without
    /// a future.
    #[inline]
    pub fn is_immediate(&self) -> bool {
        self.io.endpoint.immediate().is_some()
    }

    /// Returns the time since the cluster was connected, by the fabric's clock: virtual in the simulator.
    pub fn now(&self) -> Duration {
        self.time()
    }

    /// Returns exact counts of this thread's operations on far memory.
    pub fn metrics(&self) -> Metrics {
        let (io, heap) = (&self.io, self.heap());
        io.counters.snapshot(io.endpoint.doorbells(), heap.allocated.get(), heap.freed.get())
    }

    /// Sleeps, while the thread has no operation in flight and waits for another process.
    #[allow(clippy::unused_self)] // only a thread sleeps
    pub(crate) fn park(&self, duration: Duration) {
        farfield_fabric::host::sleep(duration);
    }

    /// Announces the thread's end to the run's other threads and processes, once.
    pub(crate) fn depart(&self) {
        if self.has_departed.replace(true) {
            return;
        }
        self.run.depart();
        if let Some(joint) = self.run.joint() {
            joint.depart(self);
        }
    }

    /// Waits until all chains that this thread has posted have completed. A thread that may still write must not count as ended.
    pub(crate) async fn settle(&self) {
        self.give_up_compensations();
        while self.io.endpoint.is_underway() {
            // No other thread finds these completions.
            self.continue_step();
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
    /// Leaves the run: no thread waits for this one any more, and the process's other threads adopt its limbo list.
    fn drop(&mut self) {
        if let Some(service) = self.worker.service.get() {
            service.ends(&self.worker);
        }
        self.abandon_step();
        self.give_up_compensations();
        self.forget_detached();
        self.leave_epochs();
        self.check_for_sweep();
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
