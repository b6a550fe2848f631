//! A process's connection to a cluster, and the state that its threads share.

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
/// Clones are cheap and refer to the same cluster.
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
    /// The keeper thread of this process, in all handles except the keeper's own.
    #[allow(dead_code)] // it ends when it is dropped
    pub(crate) keeper: Option<Arc<BackgroundThread>>,
    /// The group whose part this process runs, for runs that this handle starts.
    pub(crate) group: Option<Arc<Group>>,
}

/// The state of a cluster that all threads of a process share. It is off the data path, except `backing` and `collector`, to which each thread has
/// its own reference.
pub(crate) struct Shared {
    pub(crate) url: Box<str>,
    pub(crate) config: Config,
    pub(crate) backing: Backing,
    pub(crate) collector: crate::epoch::primitive::Arc<Collector>,
    /// The process of all runs; `None` on `sim:`, where each run makes its own processes.
    pub(crate) process: Option<Arc<Process>>,
    pub(crate) member_state: AtomicCell<MemberState>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) runs: Runs,
    /// Free blocks of the processes of ended runs.
    pub(crate) spare: Mutex<Spare>,
    /// Quarantined blocks of ended simulated runs.
    pub(crate) quarantined: Mutex<Spare>,
    pub(crate) identities: Arc<Identities>,
    pub(crate) failures: Arc<Failures>,
    /// The limbo lists of ended threads.
    pub(crate) orphans: Arc<Orphans>,
    pub(crate) next_run: AtomicU64,
    /// The summed metrics of ended threads.
    pub(crate) totals: Mutex<Metrics>,
    /// The time after which a wait is reported as a stall.
    pub(crate) stall_limit: Option<Duration>,
    /// The other members, for reports of stalls.
    pub(crate) others: stalls::Others,
}

impl Cluster {
    /// Returns a handle for the keeper, which ends when all other handles are dropped.
    pub(crate) fn without_keeper(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), keeper: None, group: None }
    }

    /// Returns the URL of the cluster.
    pub fn url(&self) -> &str {
        &self.shared.url
    }

    /// Returns whether far memory belongs to this process alone: it is empty at first, and freed with the last handle (`local:`, `sim:`). Otherwise
    /// other processes may use it concurrently, and may have used it before (`shm:`, `rdma:`).
    pub fn is_private(&self) -> bool {
        !self.shared.is_shared()
    }

    /// Returns the number of memory nodes.
    pub fn nodes(&self) -> usize {
        usize::from(self.shared.config.geometry.nodes())
    }

    /// Returns the summed metrics of all ended threads.
    pub fn metrics(&self) -> Metrics {
        *lock(&self.shared.totals)
    }

    /// Returns the simulator's interface, on `sim:`.
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
    /// Returns the number of threads in each simulated process.
    pub(crate) fn threads_per_process(&self) -> Option<usize> {
        self.world().map(|world| world.lock().config().threads_per_node as usize)
    }

    /// Returns the simulated world, on `sim:`.
    pub(crate) fn world(&self) -> Option<&sim::SharedWorld> {
        self.backing.world()
    }

    /// Returns whether independent processes may use the cluster concurrently.
    pub(crate) fn is_shared(&self) -> bool {
        self.backing.is_shared()
    }

    /// Makes the endpoint of a thread.
    pub(crate) fn endpoint(&self, seed: u64, thread: Option<usize>, stalls: Option<Arc<Waits>>) -> Endpoint {
        self.backing.endpoint(&self.config, seed, thread, stalls)
    }
}

/// Locks a mutex and ignores poisoning: its value is consistent even if a thread has panicked.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
