//! The soak: seeds of a tested structure, and what is wrong with them.
//!
//! What a run is, and what is judged of it, is told in `farfield-testing`.

use std::fmt;

use farfield::sim::Simulation;
use farfield_testing::{Checker, Faults, Found, Model, Tested, Undecided};

use crate::planted::Check;

/// What became of one seed's run.
#[derive(Debug)]
pub struct Outcome {
    /// What is wrong, if anything is.
    pub caught: Vec<Caught>,
    /// The parts of the history that were too hard to be checked.
    pub undecided: Vec<Undecided>,
    /// How many operations began.
    pub operations: usize,
    /// What was run, a few lines.
    pub plan: String,
    /// The cluster as the run left it, with its trace; none if it could not be made.
    pub simulation: Option<Simulation>,
}

/// What became of many seeds' runs.
#[derive(Debug)]
pub struct Soaked {
    /// How many operations began.
    pub operations: usize,
    /// The seeds of which a history was too hard to be checked.
    pub undecided: Vec<u64>,
    /// The seeds that fail, and what is wrong with them.
    pub failing: Vec<(u64, Vec<Found>)>,
    /// The first that fails, in its smallest form.
    pub smallest: Option<String>,
}

/// Something wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caught {
    /// What caught it.
    pub by: Check,
    /// What it is.
    pub message: String,
}

impl fmt::Display for Caught {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.by.name(), self.message)
    }
}

impl From<Found> for Caught {
    fn from(found: Found) -> Self {
        use farfield_testing::Check as By;
        let by = match found.by {
            By::Linearizability => Check::Linearizability,
            By::Memory => Check::Memory,
            By::Leak => Check::Leak,
            By::Stuck => Check::Stuck,
            By::OutOfTime => Check::OutOfTime,
            _ => Check::Error,
        };
        Self { by, message: found.message }
    }
}

/// Runs one seed.
pub(crate) fn run<T: Tested>(seed: u64, faults: Faults, options: &str) -> Outcome {
    let plan = Checker::new().faults(faults).options(options).plan::<T>(seed);
    let outcome = farfield_testing::run::<T>(&plan);
    Outcome {
        operations: outcome.operations(),
        caught: outcome.found.into_iter().map(Caught::from).collect(),
        undecided: outcome.undecided,
        plan: plan.show(T::Model::show),
        simulation: outcome.simulation,
    }
}

/// Runs many seeds.
pub(crate) fn soak<T: Tested>(checker: &Checker) -> Soaked {
    let summary = checker.run::<T>();
    Soaked {
        operations: summary.operations,
        undecided: summary.undecided.iter().map(|(seed, _)| *seed).collect(),
        smallest: summary.smallest(),
        failing: summary.failing,
    }
}
