//! A process's connection to a cluster, and what all of its threads share.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crossbeam_utils::atomic::AtomicCell;
use farfield_fabric::host::BackgroundThread;
use farfield_fabric::stall::Waits;
use farfield_sim::{self as sim, Simulation};

use super::backing::Backing;
use super::group::Group;
use super::member_state::MemberState;
use super::runs::Runs;
use super::stalls;
use super::url::Config;
use crate::epoch::Collector;
use crate::io::{Endpoint, Failures, Identities, Metrics};
use crate::memory::cache::Spare;
use crate::memory::process::Process;
use crate::memory::registry::Registry;
use crate::memory::worker::Orphans;

/// A connection to far memory, from which compute threads are started.
///
/// Cloning it is cheap and gives the same cluster.
///
/// ```
/// use farfield::prelude::*;
///
/// # fn main() -> farfield::Result<()> {
/// let cluster = Cluster::connect("local:nodes=2,size=1MiB")?;
/// let indices = cluster.run(4, async |ct| Ok(ct.index()))?;
/// assert_eq!(indices, [0, 1, 2, 3]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Cluster {
    pub(crate) shared: Arc<Shared>,
    /// The keeper, if there is one and this is not its own.
    #[allow(dead_code)] // it ends when it is dropped
    pub(crate) keeper: Option<Arc<BackgroundThread>>,
    /// Which part of a group of processes this one is in the runs that are started here.
    pub(crate) group: Option<Arc<Group>>,
}

/// What all threads of a process share of a cluster. Off the data path, but for `backing` and `collector`, to which each
/// thread has its own reference.
pub(crate) struct Shared {
    pub(crate) url: Box<str>,
    pub(crate) config: Config,
    pub(crate) backing: Backing,
    pub(crate) collector: crate::epoch::primitive::Arc<Collector>,
    /// The process, where it is one for as long as it is connected; where it is simulated, each run has several.
    pub(crate) process: Option<Arc<Process>>,
    pub(crate) member_state: AtomicCell<MemberState>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) runs: Runs,
    /// Free blocks that the threads of ended runs held, where a process is there for a run only.
    pub(crate) spare: Mutex<Spare>,
    /// Blocks that simulated runs have kept out of use.
    pub(crate) quarantined: Mutex<Spare>,
    pub(crate) identities: Arc<Identities>,
    pub(crate) failures: Arc<Failures>,
    /// What ended threads had retired.
    pub(crate) orphans: Arc<Orphans>,
    pub(crate) next_run: AtomicU64,
    /// What ended threads had counted.
    pub(crate) totals: Mutex<Metrics>,
    /// After what time a wait is reported, and what such a report needs to know of other processes.
    pub(crate) stall_limit: Option<Duration>,
    pub(crate) others: stalls::Others,
}

impl Cluster {
    /// The same, for the keeper: it ends when all others are gone.
    pub(crate) fn without_keeper(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), keeper: None, group: None }
    }

    /// The URL it was connected with.
    pub fn url(&self) -> &str {
        &self.shared.url
    }

    /// Whether far memory is this process's own: empty when it was connected to, and gone with it (`local:`, `sim:`). Otherwise
    /// others may use it at the same time, and have used it before (`shm:`, `rdma:`).
    pub fn is_private(&self) -> bool {
        !self.shared.has_strangers()
    }

    /// How many memory nodes there are.
    pub fn nodes(&self) -> usize {
        usize::from(self.shared.config.geometry.nodes())
    }

    /// What all threads that have ended asked of far memory, together.
    pub fn metrics(&self) -> Metrics {
        *lock(&self.shared.totals)
    }

    /// The simulator's side of the cluster, if it is a simulated one (`sim:`).
    pub fn simulation(&self) -> Option<Simulation> {
        self.shared.world().cloned().map(Simulation::new)
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("url", &self.shared.url).finish_non_exhaustive()
    }
}

impl Shared {
    /// How many threads share a process, unless it is all of them.
    pub(crate) fn threads_per_process(&self) -> Option<usize> {
        self.world().map(|world| world.lock().config().threads_per_node as usize)
    }

    /// Where the network is simulated.
    pub(crate) fn world(&self) -> Option<&sim::SharedWorld> {
        self.backing.world()
    }

    /// Whether processes that this one knows nothing of may be at work in the cluster.
    pub(crate) fn has_strangers(&self) -> bool {
        self.backing.has_strangers()
    }

    pub(crate) fn endpoint(&self, seed: u64, thread: Option<usize>, stalls: Option<Arc<Waits>>) -> Endpoint {
        self.backing.endpoint(&self.config, seed, thread, stalls)
    }
}

/// Locks what is whole at every moment, also when a thread panicked.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
