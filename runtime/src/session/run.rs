//! Runs: the threads of one `cluster.run`, and which of them are still there.

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
use crate::segment::control::{CONTROL_BYTES, MOST_PROCESSES, bytes_of_slots};
use crate::segment::grid::Grid;
use farfield_fabric::host::ThreadReservation;
use farfield_words::Address;
use farfield_words::ThreadId;

/// How many threads a simulated run has at most: they take about 4 GiB.
const MOST_SIMULATED: usize = 1 << 18;

/// Checks how many threads a run is to have, and reserves them unless they are simulated. Every limit that depends on the number
/// of threads alone is checked here, before any of them is started.
///
/// # Errors
/// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for none and for too many, naming the limit.
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
    if processes > MOST_PROCESSES {
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
    /// Tells this run from others of the cluster.
    number: u64,
    threads: usize,
    /// The identity of thread 0; the others follow.
    first_id: NonZeroU64,
    /// The processes that the threads are in, and how many threads each has.
    processes: Vec<Arc<Process>>,
    threads_per_process: usize,
    /// What advances their epochs, in a simulator that does.
    eager: Option<Arc<Eager>>,
    /// True if the processes end with the run.
    has_own_processes: bool,
    /// Threads that have ended.
    departed: AtomicU64,
    /// Which threads no longer count as their process's, where they are simulated: one may die while it leaves.
    gone: Vec<AtomicBool>,
    /// True once a simulated keeper is the last, which looks for losses when all threads have ended.
    has_last_keeper: AtomicBool,
    kind: RunKind,
    /// The barriers that threads wait at, where they are counted here.
    barriers: Mutex<HashMap<Box<str>, Arrivals>>,
}

/// The origin of a run.
enum RunKind {
    /// The program's, in this process alone.
    Local,
    /// This process's part of a run of several processes.
    Joint(Joint),
    /// The library's own, of one thread that computes nothing.
    Background,
}

/// The numbers of threads that have arrived at a barrier, and that have gone on from it.
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
            gone: (0..simulated_threads).map(|_| AtomicBool::new(false)).collect(),
            has_last_keeper: AtomicBool::new(false),
            barriers: Mutex::default(),
        };
        // What threads of earlier runs held is for those of this one's first process.
        run.processes[0].give_spare(std::mem::take(&mut *lock(&shared.spare)));
        if run.has_own_processes {
            run.processes[0].give_quarantined(std::mem::take(&mut *lock(&shared.quarantined)));
        }
        Ok(run)
    }

    /// A run of the library's own, of one thread that computes nothing.
    pub(crate) fn in_background(cluster: &Cluster) -> Result<Self> {
        let mut run = Self::new(cluster, 1, None)?;
        run.kind = RunKind::Background;
        Ok(run)
    }

    pub(crate) fn is_in_background(&self) -> bool {
        matches!(self.kind, RunKind::Background)
    }

    /// What the [keeper](super::keeper) belongs to: a run of one thread, in the process that all runs are in.
    pub(crate) fn of_keeper(cluster: &Cluster) -> Result<Self> {
        let run = Self::in_background(cluster)?;
        // It was counted when the process was made.
        run.processes[0].add_threads(1_usize.wrapping_neg());
        Ok(run)
    }

    pub(crate) fn id_of(&self, index: usize) -> ThreadId {
        ThreadId::new(self.first_id.saturating_add(index as u64))
    }

    /// The number of the process that a thread is in.
    pub(crate) fn number_of_process(&self, index: usize) -> usize {
        index / self.threads_per_process
    }

    /// The process that a thread is in.
    pub(crate) fn process_of(&self, index: usize) -> &Arc<Process> {
        &self.processes[self.number_of_process(index)]
    }

    /// The process of the run that has a slot, by its number among them: only simulated runs have more than one.
    pub(crate) fn process_in_slot(&self, slot: Address) -> Option<(usize, &Process)> {
        self.processes
            .iter()
            .map(|process| &**process)
            .enumerate()
            .find(|(_, process)| process.has_slot(slot))
    }

    /// A thread has died, and nothing of it takes effect any more.
    pub(crate) fn died(&self, index: usize) {
        let process = self.process_of(index);
        // One that died while it left was the last, or another is, or will be.
        let is_leaving = self.gone[index].swap(true, Ordering::Relaxed);
        let last = if is_leaving {
            process.is_gone().filter(|_| process.has_no_thread())
        } else {
            process.thread_is_gone()
        };
        if let Some(identity) = last
            && self.cluster.shared.evict_simulated(identity)
            && let Some(eager) = &self.eager
        {
            eager.evicted(process);
        }
    }

    /// A thread leaves: it is about not to count as its process's any more.
    pub(crate) fn leaves(&self, index: usize) {
        if let Some(gone) = self.gone.get(index) {
            gone.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn eager(&self) -> Option<&Arc<Eager>> {
        self.eager.as_ref()
    }

    /// A process has been evicted, if it is one of this run.
    pub(crate) fn evicted(&self, identity: u32) {
        self.eager.as_ref().inspect(|eager| eager.evicted_identity(identity));
    }

    /// The threads of the run, those of other processes among them.
    pub(crate) fn threads(&self) -> usize {
        self.joint().map_or(self.threads, |joint| joint.threads)
    }

    /// The threads of other processes that come before this one's.
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

    /// A thread arrives at a barrier; returns how many arrivals complete its use.
    pub(crate) fn arrive(&self, barrier: &str) -> u64 {
        let mut barriers = lock(&self.barriers);
        let arrivals = barriers.entry(barrier.into()).or_default();
        arrivals.arrived += 1;
        arrivals.arrived.next_multiple_of(self.threads as u64)
    }

    /// Whether the use of a barrier is complete that so many arrivals complete; otherwise how many there are. Its last thread to ask
    /// forgets the barrier, which can begin anew: all that have arrived have gone on.
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

    /// Whether any thread has ended, so that nobody can expect all of them to arrive anywhere.
    pub(crate) fn anyone_departed(&self) -> bool {
        self.departed.load(Ordering::SeqCst) > 0
    }

    /// Whether all threads have ended their work or died.
    pub(crate) fn is_over(&self) -> bool {
        self.departed.load(Ordering::SeqCst) >= self.threads as u64
    }

    /// Makes the simulated keeper that calls this the last one, unless there is one; returns whether it is now.
    pub(crate) fn becomes_last_keeper(&self) -> bool {
        !self.has_last_keeper.swap(true, Ordering::SeqCst)
    }

    /// The last keeper may have died: another takes its place.
    pub(crate) fn needs_last_keeper(&self) {
        self.has_last_keeper.store(false, Ordering::SeqCst);
    }

    /// Vetoes what processes that have left keep for later runs: free blocks of their ended threads, and those that are kept out of use.
    pub(crate) fn veto_left(&self, grid: &Grid, candidates: &Candidates) {
        if self.has_own_processes {
            self.processes.iter().filter(|process| process.has_left()).for_each(|process| {
                process.veto_spare(grid, candidates);
            });
        }
    }

    /// A thread has ended its work: others need not expect it anywhere.
    pub(crate) fn depart(&self) {
        self.departed.fetch_add(1, Ordering::SeqCst);
    }

    /// A thread exists no more. It had counted `metrics`.
    pub(crate) fn account(&self, index: usize, metrics: Metrics) {
        let shared = &self.cluster.shared;
        *lock(&shared.totals) += metrics;
        shared.end_identity(self.id_of(index));
    }
}

impl Drop for Run {
    /// A run that was given up leaves processes behind that have not left.
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
            if let Some(identity) = process.is_gone() {
                self.cluster.shared.evict_simulated(identity);
            }
        }
    }
}

/// Processes for a run: one of this process's threads, or where compute nodes are simulated one for each.
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
