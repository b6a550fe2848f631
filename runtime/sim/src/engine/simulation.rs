//! A test's handle to a simulated cluster.

use std::fmt;
use std::time::Duration;

use super::SharedWorld;
use crate::books::trace::since_start;
use crate::fault::Fault;

/// A handle to a simulated cluster, which `Cluster::simulation` returns.
///
/// A clone is cheap, and is a handle to the same cluster.
#[derive(Clone)]
pub struct Simulation {
    world: SharedWorld,
}

impl Simulation {
    /// Makes a handle to a world.
    pub fn new(world: SharedWorld) -> Self {
        Self { world }
    }

    /// Returns the seed of the run.
    pub fn seed(&self) -> u64 {
        self.world.lock().books.seed()
    }

    /// Returns the hash of all events so far. Two runs with the same hash did the same at the same times.
    pub fn trace_hash(&self) -> u64 {
        self.world.lock().books.trace.hash()
    }

    /// Returns the number of executed operations: each READ, WRITE, CAS and FAA counts.
    pub fn operations(&self) -> u64 {
        self.world.lock().books.trace.operations()
    }

    /// Returns the virtual time since the cluster was connected.
    pub fn now(&self) -> Duration {
        since_start(self.world.lock().now())
    }

    /// Returns the time of a round trip on an idle network: the option `rtt`.
    pub fn rtt(&self) -> Duration {
        since_start(self.world.lock().config().rtt)
    }

    /// Returns the trace in at most `lines` lines, oldest first: time, thread and task, operation, address and field, values. The trace ends at
    /// the first failure.
    ///
    /// If the trace is longer, operations in the middle are left out, and a line says how many: the beginning (at most 256 lines) and the end (at
    /// most 1024) are kept. If the run is stuck, the gap shows the objects that its threads wait for: their allocations, first and last changes,
    /// and retirements. An operation that a task repeats with the same result is shown once.
    pub fn trace(&self, lines: usize) -> String {
        self.world.lock().books.table(lines)
    }

    /// Returns one line about the current waits of a run, as in the report of a livelock or a deadlock: what each thread waits for, the number of
    /// its attempts and since when; held locks and their owners; arrivals at barriers; claimed names. Useful if a run is slow without a finding:
    /// the task with the most attempts comes first.
    pub fn waiting(&self) -> String {
        self.world.lock().waiting()
    }

    /// Injects a fault.
    pub fn inject(&self, fault: Fault) {
        self.world.lock().inject(fault);
    }
}

impl fmt::Debug for Simulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Simulation")
            .field("seed", &self.seed())
            .field("now", &self.now())
            .finish_non_exhaustive()
    }
}
