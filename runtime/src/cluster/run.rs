//! Runs: the threads of one `cluster.run`, and which of them are still there.

use std::collections::HashMap;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::{Cluster, Metrics, ThreadId, lock};
use crate::memory::global::Process;

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
    /// Threads that have ended.
    departed: AtomicU64,
    /// How many threads have arrived at each barrier, where that is counted here.
    barriers: Mutex<HashMap<Box<str>, u64>>,
}

impl Run {
    pub(crate) fn new(cluster: &Cluster, threads: usize) -> Self {
        let shared = &cluster.shared;
        // Each simulated compute node is a process of its own.
        let threads_per_process = shared.threads_per_process().unwrap_or(threads);
        let processes = threads.div_ceil(threads_per_process);
        let segments = shared.config.geometry.segments();
        let process = |number: usize| {
            let threads = (threads - number * threads_per_process).min(threads_per_process);
            Arc::new(match processes {
                1 if !shared.has_strangers() => {
                    Process::alone(crate::primitive::Arc::clone(&shared.collector), threads, segments)
                }
                _ => Process::one_of_several(number, threads, segments),
            })
        };
        let first_id = shared.next_thread.fetch_add(threads as u64, Ordering::Relaxed);
        let run = Self {
            cluster: cluster.clone(),
            number: shared.next_run.fetch_add(1, Ordering::Relaxed),
            threads,
            first_id: NonZeroU64::new(first_id)
                .expect("identities start at 1 and 64 bits of them do not run out"),
            processes: (0..processes).map(process).collect(),
            threads_per_process,
            departed: AtomicU64::new(0),
            barriers: Mutex::default(),
        };
        // What threads of earlier runs held is for those of this one's first process.
        run.processes[0].give_spare(std::mem::take(&mut *lock(&shared.spare)));
        lock(&shared.live).extend((0..threads).map(|index| run.id_of(index)));
        run
    }

    pub(crate) fn id_of(&self, index: usize) -> ThreadId {
        ThreadId(self.first_id.saturating_add(index as u64))
    }

    /// The number of the process that a thread is in.
    pub(crate) fn number_of_process(&self, index: usize) -> usize {
        index / self.threads_per_process
    }

    /// The process that a thread is in.
    pub(crate) fn process_of(&self, index: usize) -> &Arc<Process> {
        &self.processes[self.number_of_process(index)]
    }

    /// A thread has died, and nothing of it takes effect any more.
    pub(crate) fn died(&self, index: usize) {
        if let Some(slot) = self.process_of(index).thread_is_gone() {
            self.cluster.shared.clear_epoch_slot(slot);
        }
    }

    pub(crate) fn threads(&self) -> usize {
        self.threads
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// A thread arrives at a barrier; gives how many had before.
    pub(crate) fn arrive(&self, barrier: &str) -> u64 {
        let mut barriers = lock(&self.barriers);
        let count = barriers.entry(barrier.into()).or_default();
        *count += 1;
        *count - 1
    }

    /// How many threads have arrived at a barrier.
    pub(crate) fn arrivals(&self, barrier: &str) -> u64 {
        lock(&self.barriers).get(barrier).copied().unwrap_or(0)
    }

    /// Whether any thread has ended, so that nobody can expect all of them to arrive anywhere.
    pub(crate) fn anyone_departed(&self) -> bool {
        self.departed.load(Ordering::SeqCst) > 0
    }

    /// The thread has ended, having counted `metrics`.
    pub(crate) fn depart(&self, index: usize, metrics: Metrics) {
        let shared = &self.cluster.shared;
        *lock(&shared.totals) += metrics;
        lock(&shared.live).remove(&self.id_of(index));
        self.departed.fetch_add(1, Ordering::SeqCst);
    }
}

impl Drop for Run {
    /// A run that was given up leaves processes behind that have not left.
    fn drop(&mut self) {
        for process in &self.processes {
            lock(&self.cluster.shared.spare).append(&mut process.take_spare());
            if let Some(slot) = process.is_gone() {
                self.cluster.shared.clear_epoch_slot(slot);
            }
        }
    }
}
