//! Runs: the threads of one `cluster.run`, and which of them are still there.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Cluster, Metrics, ThreadId, lock};

/// The threads of one [`Cluster::run`].
pub(crate) struct Run {
    cluster: Cluster,
    /// Tells this run from others of the cluster.
    number: u64,
    threads: usize,
    /// The identity of thread 0; the others follow.
    first_id: NonZeroU64,
    /// Threads that have ended.
    departed: AtomicU64,
}

impl Run {
    pub(crate) fn new(cluster: &Cluster, threads: usize) -> Self {
        let shared = &cluster.shared;
        let first_id = shared.next_thread.fetch_add(threads as u64, Ordering::Relaxed);
        let run = Self {
            cluster: cluster.clone(),
            number: shared.next_run.fetch_add(1, Ordering::Relaxed),
            threads,
            first_id: NonZeroU64::new(first_id)
                .expect("identities start at 1 and 64 bits of them do not run out"),
            departed: AtomicU64::new(0),
        };
        lock(&shared.live).extend((0..threads).map(|index| run.id_of(index)));
        run
    }

    pub(crate) fn id_of(&self, index: usize) -> ThreadId {
        ThreadId(self.first_id.saturating_add(index as u64))
    }

    pub(crate) fn threads(&self) -> usize {
        self.threads
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
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
