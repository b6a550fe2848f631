//! A simulated cluster, seen from outside.

use std::fmt;
use std::time::Duration;

use super::SharedWorld;
use crate::books::trace::since_start;
use crate::fault::Fault;

/// A simulated cluster, seen from outside: `Cluster::simulation` gives it.
///
/// Cloning it is cheap and gives the same one.
#[derive(Clone)]
pub struct Simulation {
    world: SharedWorld,
}

impl Simulation {
    /// The view on a world.
    pub fn new(world: SharedWorld) -> Self {
        Self { world }
    }

    /// What the run was drawn from.
    pub fn seed(&self) -> u64 {
        self.world.lock().books.seed()
    }

    /// The hash of everything that has happened. Two runs with the same hash did the same at the same times.
    pub fn trace_hash(&self) -> u64 {
        self.world.lock().books.trace.hash()
    }

    /// How many operations have been executed: each READ, WRITE, CAS and FAA counts.
    pub fn operations(&self) -> u64 {
        self.world.lock().books.trace.operations()
    }

    /// The virtual time since the cluster was connected.
    pub fn now(&self) -> Duration {
        since_start(self.world.lock().now())
    }

    /// How long a round trip takes where nothing is in the way: the option `rtt`.
    pub fn rtt(&self) -> Duration {
        since_start(self.world.lock().config().rtt)
    }

    /// What happened, in at most `lines` lines, oldest first: when, which thread and task, what it did, where, to which fields, with
    /// which values. Ends at the first failure, if there was one.
    ///
    /// What does not fit is left out in the middle, and the place says how many operations are missing: the beginning is kept (at
    /// most 256 lines), and the end (at most 1024). Between them, if the run did not end, is what is known of the objects that its
    /// threads wait for: who made each, who changed it first and last, who retired it. An operation that a task repeats with the same
    /// result is shown once.
    pub fn trace(&self, lines: usize) -> String {
        self.world.lock().books.table(lines)
    }

    /// Who waits for what at this moment of a run, how often it has tried and since when; which locks are held, by whom and since when; who has
    /// arrived at which barrier, and which names are claimed. One line: what the report of a livelock or a deadlock says. Useful where a
    /// run is slow and the simulator finds nothing wrong: a task that has tried for long is named first.
    pub fn waiting(&self) -> String {
        self.world.lock().waiting()
    }

    /// Lets something go wrong.
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
