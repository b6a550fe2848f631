//! The active runs of a process, and the objects that their ended threads have retired.
//!
//! Several runs may be active concurrently, started by different threads of the program. Each run has its own threads, indices and barriers; memory
//! and roots belong to the cluster. Two kinds of run are refused:
//! - a run inside a run: it would block a compute thread, with its guards, its tasks and its unposted operations, while the new run's threads may
//!   wait for them;
//! - a second run of a group in one process: the process's record describes only one.
//!
//! # Freeing the objects of ended threads
//!
//! A process that is alone in its cluster frees all retired objects when its last active run ends. One lock protects the count of runs and the
//! taking of the limbo lists, and they are taken only while the count is 0. So every taken object was unlinked before any active run began, and no
//! thread of such a run can reach it.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use super::{Cluster, Shared, lock};
use crate::epoch::Limbo;
use crate::error::{self, Error, Result};
use crate::memory::cache::Spare;
use crate::segment::grid::Grid;
use farfield_sim::NO_THREAD;

/// The runs of a process.
#[derive(Default)]
pub(crate) struct Runs {
    /// The number of active runs.
    active: Mutex<usize>,
    /// True while a run of a group is active.
    is_joint: AtomicBool,
}

thread_local! {
    /// The clusters in whose runs this system thread computes.
    static COMPUTES_IN: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

fn key(shared: &Shared) -> usize {
    std::ptr::from_ref(shared).addr()
}

/// Marks this system thread as computing in a run.
pub(crate) struct Computing;

impl Computing {
    pub(crate) fn begin(shared: &Shared) -> Self {
        COMPUTES_IN.with_borrow_mut(|clusters| clusters.push(key(shared)));
        Self
    }
}

impl Drop for Computing {
    fn drop(&mut self) {
        COMPUTES_IN.with_borrow_mut(Vec::pop);
    }
}

/// Counts a run as active until it is dropped, also after a panic.
pub(crate) struct ActiveRun(Arc<Shared>);

impl Drop for ActiveRun {
    fn drop(&mut self) {
        let mut active = lock(&self.0.runs.active);
        *active -= 1;
        let orphans = self.0.take_if_quiescent(*active);
        drop(active);
        self.0.free_all(orphans);
    }
}

/// Claims the process's record for a run of a group until it is dropped.
pub(crate) struct ActiveJointRun<'a>(&'a Runs);

impl Drop for ActiveJointRun<'_> {
    fn drop(&mut self) {
        self.0.is_joint.store(false, Ordering::Release);
    }
}

fn refused(value: &str, reason: &'static str) -> Error {
    Error::from(error::InvalidArgument { argument: "run", value: value.into(), reason })
}

impl Cluster {
    /// Counts a run as active.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the calling thread computes in a run of this cluster.
    pub(crate) fn begin_run(&self) -> Result<ActiveRun> {
        let shared: &Arc<Shared> = &self.shared;
        if COMPUTES_IN.with_borrow(|clusters| clusters.contains(&key(shared))) {
            let reason = "it would block the compute thread that starts it: start it on a thread of its own";
            return Err(refused("inside a run of the same cluster", reason));
        }
        *lock(&shared.runs.active) += 1;
        Ok(ActiveRun(Arc::clone(shared)))
    }

    /// Claims the process's record for a run of a group.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if one is active.
    pub(crate) fn begin_joint_run(&self) -> Result<ActiveJointRun<'_>> {
        let runs = &self.shared.runs;
        if runs.is_joint.swap(true, Ordering::AcqRel) {
            let reason = "a process runs one at a time: wait for its end, or connect a second time";
            return Err(refused("a second one of a group", reason));
        }
        Ok(ActiveJointRun(runs))
    }

    /// Frees all objects that the threads of earlier runs have retired. Returns their number. The end of the last active run does so automatically.
    /// No round trip.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if a run is active: its threads may hold pointers.
    pub fn clear(&self) -> Result<u64> {
        let active = lock(&self.shared.runs.active);
        if *active > 0 {
            let value = format!("with {} active runs", *active).into();
            let reason = "their threads may hold pointers to retired objects";
            return Err(Error::from(error::InvalidArgument { argument: "clear", value, reason }));
        }
        let orphans = self.shared.take_if_quiescent(*active);
        drop(active);
        Ok(self.shared.free_all(orphans))
    }
}

impl Shared {
    /// Returns the number of active runs.
    pub(crate) fn active_runs(&self) -> usize {
        *lock(&self.runs.active)
    }

    /// Takes the limbo lists of ended threads if no run is active. In a shared cluster the threads of a later run adopt them.
    fn take_if_quiescent(&self, active: usize) -> Vec<Limbo> {
        if active > 0 || self.is_shared() {
            return Vec::new();
        }
        self.orphans.take()
    }

    /// Frees retired objects that no thread can reach.
    fn free_all(&self, orphans: Vec<Limbo>) -> u64 {
        if orphans.is_empty() {
            return 0;
        }
        let mut freed = 0;
        let grid = Grid::new(self.config.geometry);
        let mut spare = Spare::default();
        for mut limbo in orphans {
            while let Some(run) = limbo.pop_any() {
                for (block, kind) in run.blocks() {
                    if let Some(watch) = self.watch(&Rc::default()) {
                        watch.freed(NO_THREAD, block.address);
                    }
                    self.registry.freed(block.address);
                    let node = self.config.geometry.node_of(block.address.segment());
                    spare.put(&grid, node, block, kind);
                }
                freed += run.objects() as u64;
            }
        }
        match &self.process {
            Some(process) => process.give_spare(spare),
            None if self.quarantines() => {
                lock(&self.spare).append(&mut spare.take_live_counts());
                lock(&self.quarantined).append(&mut spare);
            }
            None => lock(&self.spare).append(&mut spare),
        }
        let mut totals = lock(&self.totals);
        totals.freed += freed;
        totals.reclaimed += freed;
        freed
    }
}
