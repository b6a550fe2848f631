//! Runs: the threads of one `cluster.run`, their processes and their barriers.

use std::collections::HashMap;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::group::Joint;
use super::{Cluster, Shared, lock};
use crate::error::{self, Error, Result};
use crate::io::Metrics;
use crate::memory::candidates::Candidates;
use crate::memory::eager::Eager;
use crate::memory::process::Process;
use crate::segment::control::{CONTROL_BYTES, MAX_PROCESSES, bytes_of_slots};
use crate::segment::grid::Grid;
use farfield_fabric::host::ThreadReservation;
use farfield_words::Address;
use farfield_words::ThreadId;

/// The limit of threads in a simulated run: they take about 4 GiB.
const MOST_SIMULATED: usize = 1 << 18;

/// Checks the number of threads of a run, and reserves them unless they are simulated. All limits that depend only on this number are checked here,
/// before any thread starts.
///
/// # Errors
/// [`Error::InvalidArgument`] for 0 threads and for too many; the message names the limit.
pub(crate) fn reserve(shared: &Shared, threads: usize) -> Result<ThreadReservation> {
    let refused = |value: String, reason| {
        Err(Error::from(error::InvalidArgument { argument: "threads", value: value.into(), reason }))
    };
    if threads == 0 {
        return refused(threads.to_string(), "a run needs at least one thread");
    }
    let Some(threads_per_process) = shared.threads_per_process() else {
        return Ok(ThreadReservation::new(threads)?);
    };
    if threads > MOST_SIMULATED {
        return refused(threads.to_string(), "a simulated run has at most 262144 threads");
    }
    let processes = threads.div_ceil(threads_per_process);
    let on_nodes = || format!("{threads} on {processes} compute nodes");
    if processes > MAX_PROCESSES {
        let reason = "a cluster has epoch slots for 16510 compute nodes; raise the option `threads-per-node`";
        return refused(on_nodes(), reason);
    }
    if bytes_of_slots(processes) > shared.config.geometry.segment_bytes() - CONTROL_BYTES {
        let reason =
            "their epoch slots do not fit in segment 0; raise the option `size` or `threads-per-node`";
        return refused(on_nodes(), reason);
    }
    Ok(ThreadReservation::new(0)?)
}

/// The threads of one [`Cluster::run`].
pub(crate) struct Run {
    cluster: Cluster,
    /// The run's number in this process.
    number: u64,
    threads: usize,
    /// The identity of thread 0. The others have consecutive ones.
    first_id: NonZeroU64,
    /// The processes of the run's threads.
    processes: Vec<Arc<Process>>,
    threads_per_process: usize,
    /// Eager reclamation, if the simulator does it.
    eager: Option<Arc<Eager>>,
    /// True if the processes end with the run.
    has_own_processes: bool,
    /// The number of ended threads.
    departed: AtomicU64,
    /// For each simulated thread, true if its process no longer counts it. A thread may die while it leaves.
    uncounted: Vec<AtomicBool>,
    /// True if a simulated keeper is the last one. It checks for lost memory after all threads have ended.
    has_last_keeper: AtomicBool,
    kind: RunKind,
    /// The barriers of runs in one process.
    barriers: Mutex<HashMap<Box<str>, Arrivals>>,
}

/// The kind of a run.
enum RunKind {
    /// A run of the program in this process.
    Local,
    /// This process's part of a run of several processes.
    Joint(Joint),
    /// A run of the library with one background thread.
    Background,
}

/// The numbers of threads that have arrived at a barrier, and that have passed it.
#[derive(Default)]
struct Arrivals {
    arrived: u64,
    passed: u64,
}

impl Run {
    pub(crate) fn new(cluster: &Cluster, threads: usize, joint: Option<Joint>) -> Result<Self> {
        let shared = &cluster.shared;
        // Each simulated compute node is a process of its own.
        let threads_per_process = shared.threads_per_process().unwrap_or(threads);
        let first_id = shared.identities.begin(threads as u64)?;
        let processes = match &shared.process {
            Some(process) => {
                process.add_threads(threads);
                vec![Arc::clone(process)]
            }
            None => own_processes(shared, first_id.get(), threads, threads_per_process),
        };
        let simulated_threads = if shared.world().is_some() { threads } else { 0 };
        let run = Self {
            cluster: cluster.clone(),
            number: shared.next_run.fetch_add(1, Ordering::Relaxed),
            threads,
            first_id,
            threads_per_process,
            eager: Eager::new(shared.world(), &processes).map(Arc::new),
            processes,
            has_own_processes: shared.process.is_none(),
            kind: joint.map_or(RunKind::Local, RunKind::Joint),
            departed: AtomicU64::new(0),
            uncounted: (0..simulated_threads).map(|_| AtomicBool::new(false)).collect(),
            has_last_keeper: AtomicBool::new(false),
            barriers: Mutex::default(),
        };
        // The first process takes over the free blocks of earlier runs.
        run.processes[0].give_spare(std::mem::take(&mut *lock(&shared.spare)));
        if run.has_own_processes {
            run.processes[0].give_quarantined(std::mem::take(&mut *lock(&shared.quarantined)));
        }
        Ok(run)
    }

    /// Makes a run of the library with one background thread.
    pub(crate) fn in_background(cluster: &Cluster) -> Result<Self> {
        let mut run = Self::new(cluster, 1, None)?;
        run.kind = RunKind::Background;
        Ok(run)
    }

    pub(crate) fn is_background(&self) -> bool {
        matches!(self.kind, RunKind::Background)
    }

    /// Makes the run of the [keeper](crate::cluster::keeper): one thread in the process of all runs.
    pub(crate) fn of_keeper(cluster: &Cluster) -> Result<Self> {
        let run = Self::in_background(cluster)?;
        // The process has counted this thread since its creation.
        run.processes[0].add_threads(1_usize.wrapping_neg());
        Ok(run)
    }

    /// Returns the identity of a thread.
    pub(crate) fn id_of(&self, index: usize) -> ThreadId {
        ThreadId::new(self.first_id.saturating_add(index as u64))
    }

    /// Returns the index of a thread's process. Only simulated runs have several processes.
    pub(crate) fn process_index(&self, thread: usize) -> usize {
        thread / self.threads_per_process
    }

    /// Returns the process of a thread.
    pub(crate) fn process_of(&self, index: usize) -> &Arc<Process> {
        &self.processes[self.process_index(index)]
    }

    /// Returns the run's process with this epoch slot, and its index.
    pub(crate) fn process_in_slot(&self, slot: Address) -> Option<(usize, &Process)> {
        self.processes
            .iter()
            .map(|process| &**process)
            .enumerate()
            .find(|(_, process)| process.has_slot(slot))
    }

    /// Records the death of a simulated thread. None of its operations is in flight.
    pub(crate) fn thread_died(&self, index: usize) {
        let process = self.process_of(index);
        // A thread that died while it left is already uncounted.
        let is_leaving = self.uncounted[index].swap(true, Ordering::Relaxed);
        let last = if is_leaving {
            process.identity().filter(|_| process.has_no_thread())
        } else {
            process.end_thread()
        };
        if let Some(identity) = last
            && self.cluster.shared.evict_simulated(identity)
            && let Some(eager) = &self.eager
        {
            eager.evicted(process);
        }
    }

    /// Records that a thread leaves: its process is about to uncount it.
    pub(crate) fn thread_leaves(&self, index: usize) {
        if let Some(uncounted) = self.uncounted.get(index) {
            uncounted.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn eager(&self) -> Option<&Arc<Eager>> {
        self.eager.as_ref()
    }

    /// Records an eviction, if the process belongs to this run.
    pub(crate) fn process_evicted(&self, identity: u32) {
        self.eager.as_ref().inspect(|eager| eager.evicted_by_identity(identity));
    }

    /// Returns the number of threads in the run, including those of other processes.
    pub(crate) fn threads(&self) -> usize {
        self.joint().map_or(self.threads, |joint| joint.threads)
    }

    /// Returns the index of this process's first thread in the run.
    pub(crate) fn threads_before(&self) -> usize {
        self.joint().map_or(0, |joint| joint.first)
    }

    pub(crate) fn joint(&self) -> Option<&Joint> {
        match &self.kind {
            RunKind::Joint(joint) => Some(joint),
            RunKind::Local | RunKind::Background => None,
        }
    }

    pub(crate) fn number(&self) -> u64 {
        self.joint().map_or(self.number, |joint| joint.number)
    }

    /// Counts an arrival at a barrier. Returns the number of arrivals at which the barrier opens.
    pub(crate) fn arrive(&self, barrier: &str) -> u64 {
        let mut barriers = lock(&self.barriers);
        let arrivals = barriers.entry(barrier.into()).or_default();
        arrivals.arrived += 1;
        arrivals.arrived.next_multiple_of(self.threads as u64)
    }

    /// Passes a barrier that has opened at `complete` arrivals. The last thread to pass removes the barrier, so that its name can be used again.
    ///
    /// # Errors
    /// The number of arrivals, if it is less than `complete`.
    pub(crate) fn pass(&self, barrier: &str, complete: u64) -> Result<(), u64> {
        let mut barriers = lock(&self.barriers);
        let Some(arrivals) = barriers.get_mut(barrier) else { return Ok(()) };
        if arrivals.arrived < complete {
            return Err(arrivals.arrived);
        }
        arrivals.passed += 1;
        if arrivals.passed == arrivals.arrived {
            barriers.remove(barrier);
        }
        Ok(())
    }

    /// Returns whether a thread has ended. A barrier then waits in vain.
    pub(crate) fn has_departures(&self) -> bool {
        self.departed.load(Ordering::SeqCst) > 0
    }

    /// Returns whether all threads have ended or died.
    pub(crate) fn is_over(&self) -> bool {
        self.departed.load(Ordering::SeqCst) >= self.threads as u64
    }

    /// Makes the calling simulated keeper the last one. Returns false if another is.
    pub(crate) fn claim_last_keeper(&self) -> bool {
        !self.has_last_keeper.swap(true, Ordering::SeqCst)
    }

    /// Lets another keeper become the last one, since that one may have died.
    pub(crate) fn release_last_keeper(&self) {
        self.has_last_keeper.store(false, Ordering::SeqCst);
    }

    /// Vetoes the blocks that processes have kept for later runs when they left: free blocks of ended threads, and quarantined blocks.
    pub(crate) fn veto_departed(&self, grid: &Grid, candidates: &Candidates) {
        if self.has_own_processes {
            self.processes.iter().filter(|process| process.has_left()).for_each(|process| {
                process.veto_spare(grid, candidates);
            });
        }
    }

    /// Records the end of a thread's work. Barriers no longer wait for it.
    pub(crate) fn depart(&self) {
        self.departed.fetch_add(1, Ordering::SeqCst);
    }

    /// Adds the metrics of an ended thread to the totals, and frees its identity.
    pub(crate) fn account(&self, index: usize, metrics: Metrics) {
        let shared = &self.cluster.shared;
        *lock(&shared.totals) += metrics;
        shared.end_identity(self.id_of(index));
    }
}

impl Drop for Run {
    /// Hands the free blocks on, and evicts processes that a cancelled run has not taken out of the cluster.
    fn drop(&mut self) {
        if !self.has_own_processes {
            return;
        }
        for (number, process) in self.processes.iter().enumerate() {
            let first = (number * self.threads_per_process) as u32;
            let mut threads = first..first + self.threads_per_process as u32;
            if self
                .cluster
                .shared
                .world()
                .is_none_or(|world| !threads.any(|thread| world.lock().has_lost_memory(thread)))
            {
                lock(&self.cluster.shared.spare).append(&mut process.take_spare());
                lock(&self.cluster.shared.quarantined).append(&mut process.take_quarantined());
            }
            if let Some(identity) = process.identity() {
                self.cluster.shared.evict_simulated(identity);
            }
        }
    }
}

/// Makes the processes of a run: one, or one for each simulated compute node.
fn own_processes(
    shared: &Shared,
    first_id: u64,
    threads: usize,
    threads_per_process: usize,
) -> Vec<Arc<Process>> {
    let (processes, segments) = (threads.div_ceil(threads_per_process), shared.config.geometry.segments());
    let process = |number: usize| {
        let first = number * threads_per_process;
        let threads = (threads - first).min(threads_per_process);
        Arc::new(match (processes, shared.backing.identity()) {
            (1, None) => {
                Process::solo(crate::epoch::primitive::Arc::clone(&shared.collector), threads, segments)
            }
            (_, identity) => {
                let identity = identity.unwrap_or((first_id + first as u64) as u32);
                Process::one_of_several(identity, number, threads, segments)
            }
        })
    };
    (0..processes).map(process).collect()
}
