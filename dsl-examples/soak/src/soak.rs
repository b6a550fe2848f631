//! Runs seeds of a tested structure. `farfield-testing` defines runs and their checks.

use std::ops::Range;

use farfield::sim::Simulation;
use farfield_sim::Plant;
use farfield_testing::{Checker, Faults, Found, Model, Tested, Undecided};

/// The result of one seed's run.
#[derive(Debug)]
pub struct Outcome {
    /// The failures.
    pub found: Vec<Found>,
    /// Parts of the history that were too hard to check.
    pub undecided: Vec<Undecided>,
    /// Number of operations that began.
    pub operations: usize,
    /// The plan, a few lines.
    pub plan: String,
    /// The simulated cluster after the run, with its trace; none if connecting failed.
    pub simulation: Option<Simulation>,
}

/// The result of many seeds' runs.
#[derive(Debug)]
pub struct Soaked {
    /// Number of operations that began.
    pub operations: usize,
    /// The seeds with undecided histories.
    pub undecided: Vec<u64>,
    /// The failing seeds, and their failures.
    pub failing: Vec<(u64, Vec<Found>)>,
    /// The first failing plan, shrunk.
    pub smallest: Option<String>,
}

/// Runs one seed.
pub(crate) fn run<T: Tested>(seed: u64, faults: Faults, plant: Plant) -> Outcome {
    let plan = Checker::new().faults(faults).options(&options(plant)).plan::<T>(seed);
    let outcome = farfield_testing::run::<T>(&plan);
    Outcome {
        operations: outcome.operations(),
        found: outcome.found,
        undecided: outcome.undecided,
        plan: plan.show(T::Model::show),
        simulation: outcome.simulation,
    }
}

/// Runs many seeds.
pub(crate) fn soak<T: Tested>(seeds: Range<u64>, faults: Faults, jobs: usize, plant: Plant) -> Soaked {
    let checker = Checker::new().seeds(seeds).faults(faults).jobs(jobs).all_seeds();
    let summary = checker.options(&options(plant)).run::<T>();
    Soaked {
        operations: summary.operations,
        undecided: summary.undecided.iter().map(|(seed, _)| *seed).collect(),
        smallest: summary.smallest(),
        failing: summary.failing,
    }
}

/// The options of the cluster's URL that plant a bug.
pub(crate) fn options(plant: Plant) -> String {
    if plant == Plant::None { String::new() } else { format!("plant={}", plant.name()) }
}
