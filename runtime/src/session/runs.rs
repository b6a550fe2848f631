//! The runs of a process that are under way, and what their ended threads had retired.
//!
//! Several runs may be under way at once, started by different threads of the program. Threads, indices and barriers are each run's
//! own; memory and roots are the cluster's. Refused are
//! - a run inside a run: it would block a compute thread, with its guards, its tasks and what it has not posted yet, for as long as
//!   other threads compute, which may be waiting for just that;
//! - a second run of a group in one process: the process's record describes one.
//!
//! # When what ended threads had retired may be freed
//!
//! Where a process is alone it frees everything at the end of its last run. Both are under one lock: runs are counted, and garbage is
//! taken, while none is counted. So the garbage that is taken was unlinked before any run that is under way had begun, and no thread
//! of such a run can find it.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use super::{Cluster, Shared, lock};
use crate::epoch::{BlockKind, Limbo};
use crate::error::{self, Error, Result};
use crate::memory::cache::Spare;
use crate::segment::grid::Grid;
use farfield_sim::NO_THREAD;

/// The runs of a process.
#[derive(Default)]
pub(crate) struct Runs {
    counted: Mutex<Counted>,
    /// Whether a run of a group is under way.
    is_joint: AtomicBool,
}

#[derive(Default)]
struct Counted {
    under_way: usize,
}

thread_local! {
    /// The clusters in whose runs this thread of the system computes.
    static COMPUTES_IN: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

fn key(shared: &Shared) -> usize {
    std::ptr::from_ref(shared).addr()
}

/// This thread of the system computes in a run.
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

/// A run that is under way; dropped at its end, also when a thread of it panicked.
pub(crate) struct UnderWay(Arc<Shared>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut counted = lock(&self.0.runs.counted);
        counted.under_way -= 1;
        let orphans = self.0.take_if_quiescent(&counted);
        drop(counted);
        self.0.free_all(orphans);
    }
}

/// A run of a group that is under way in this process.
pub(crate) struct JointUnderWay<'a>(&'a Runs);

impl Drop for JointUnderWay<'_> {
    fn drop(&mut self) {
        self.0.is_joint.store(false, Ordering::Release);
    }
}

fn refused(value: &str, reason: &'static str) -> Error {
    Error::from(error::InvalidArgument { argument: "run", value: value.into(), reason })
}

impl Cluster {
    /// Counts a run as under way.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the calling thread computes in a run of this cluster.
    pub(crate) fn begin_run(&self) -> Result<UnderWay> {
        let shared: &Arc<Shared> = &self.shared;
        if COMPUTES_IN.with_borrow(|clusters| clusters.contains(&key(shared))) {
            let reason = "it would block the compute thread that starts it: start it on a thread of its own";
            return Err(refused("inside a run of the same cluster", reason));
        }
        lock(&shared.runs.counted).under_way += 1;
        Ok(UnderWay(Arc::clone(shared)))
    }

    /// Claims the process's record for a run of a group.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if one is under way.
    pub(crate) fn begin_joint_run(&self) -> Result<JointUnderWay<'_>> {
        let runs = &self.shared.runs;
        if runs.is_joint.swap(true, Ordering::AcqRel) {
            let reason = "a process takes part in one at a time: wait for the other, or connect once more";
            return Err(refused("a second one of a group", reason));
        }
        Ok(JointUnderWay(runs))
    }

    /// Frees everything that the threads of earlier runs had retired, and gives how many objects. The end of the last run does
    /// so by itself; only one that was still under way then leaves something to do. No round trip.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if a run is under way: its threads may hold pointers.
    pub fn clear(&self) -> Result<u64> {
        let counted = lock(&self.shared.runs.counted);
        if counted.under_way > 0 {
            let value = format!("with {} runs under way", counted.under_way).into();
            let reason = "threads may hold pointers to what would be freed";
            return Err(Error::from(error::InvalidArgument { argument: "clear", value, reason }));
        }
        let orphans = self.shared.take_if_quiescent(&counted);
        drop(counted);
        Ok(self.shared.free_all(orphans))
    }
}

impl Shared {
    /// How many runs are under way.
    pub(crate) fn runs_under_way(&self) -> usize {
        lock(&self.runs.counted).under_way
    }

    /// Takes what ended threads had retired if no thread is left. Where other processes may be at work it waits for a run of this one.
    fn take_if_quiescent(&self, counted: &Counted) -> Vec<Limbo> {
        if counted.under_way > 0 || self.has_strangers() {
            return Vec::new();
        }
        self.orphans.take()
    }

    /// Frees what no thread can hold.
    fn free_all(&self, orphans: Vec<Limbo>) -> u64 {
        if orphans.is_empty() {
            return 0;
        }
        let mut freed = 0;
        let grid = Grid::new(self.config.geometry);
        let mut spare = Spare::default();
        for mut limbo in orphans {
            while let Some((block, kind)) = limbo.pop_any() {
                if let Some(watch) = self.watch(&Rc::default()) {
                    watch.freed(NO_THREAD, block.address);
                }
                self.registry.freed(block.address);
                let node = self.config.geometry.node_of(block.address.segment());
                spare.put(&grid, node, block, kind);
                freed += u64::from(kind == BlockKind::Object);
            }
        }
        match &self.process {
            Some(process) => process.give_spare(spare),
            None if self.quarantines() => {
                lock(&self.spare).append(&mut spare.take_accounts());
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
