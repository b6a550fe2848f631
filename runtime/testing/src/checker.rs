//! `Checker`: runs a structure under many seeds, and shows the first failure, shrunk.

use std::fmt::{self, Write as _};
use std::ops::Range;
use std::panic;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

use crate::check::Found;
use crate::erased::{DynTested, Typed};
use crate::linearizability::{SEARCH_LIMIT, Undecided};
use crate::model::Model;
use crate::plan::{Faults, Plan};
use crate::run::{run_erased, run_within};
use crate::shrink::{MOST_RUNS, Shrunk, shrink_erased};
use crate::tested::{OperationOf, Tested};

/// The environment variable with the one seed to run, as for `#[farfield::test(sim)]`.
const SEED_VARIABLE: &str = "FARFIELD_SEED";
/// The environment variable with the number of trace lines to show of a failing run.
const TRACE_VARIABLE: &str = "FARFIELD_TRACE";

/// How to check a structure: seeds, faults, and budgets.
///
/// The result depends on these settings and the structure, but not on [`jobs`](Self::jobs).
#[derive(Clone, Debug)]
#[must_use = "a checker has no effect until a structure is run"]
pub struct Checker {
    seeds: Range<u64>,
    faults: Faults,
    options: String,
    jobs: usize,
    search_limit: u64,
    most_undecided: usize,
    shrinking_runs: usize,
    all_seeds: bool,
}

impl Default for Checker {
    fn default() -> Self {
        Self {
            seeds: 0..1000,
            faults: Faults::None,
            options: String::new(),
            jobs: thread::available_parallelism().map_or(1, usize::from),
            search_limit: SEARCH_LIMIT,
            most_undecided: 0,
            shrinking_runs: MOST_RUNS,
            all_seeds: false,
        }
    }
}

impl Checker {
    /// 1,000 seeds without faults, in as many parallel jobs as the machine has processors.
    pub fn new() -> Self {
        Self::default()
    }

    /// The seeds to run, the last excluded.
    pub fn seeds(self, seeds: Range<u64>) -> Self {
        Self { seeds, ..self }
    }

    /// Selects whether drawn plans have faults; by default they have none.
    pub fn faults(self, faults: Faults) -> Self {
        Self { faults, ..self }
    }

    /// Further options of the cluster's URL, such as `rtt=3us`, after those of the plan.
    pub fn options(self, options: &str) -> Self {
        Self { options: options.to_owned(), ..self }
    }

    /// Number of seeds that run in parallel, each on an OS thread; at least one.
    pub fn jobs(self, jobs: usize) -> Self {
        Self { jobs: jobs.max(1), ..self }
    }

    /// Step limit of the search for a linearization, for each part of a history; by default [`SEARCH_LIMIT`].
    pub fn search_limit(self, steps: u64) -> Self {
        Self { search_limit: steps, ..self }
    }

    /// Number of runs that may have undecided histories; by default 0. If more have, the check fails. They are always counted and shown.
    pub fn most_undecided(self, runs: usize) -> Self {
        Self { most_undecided: runs, ..self }
    }

    /// Limit of the runs that shrink the first failing plan: by default [`MOST_RUNS`]; with 0 it is not shrunk.
    pub fn shrinking_runs(self, runs: usize) -> Self {
        Self { shrinking_runs: runs, ..self }
    }

    /// Runs all seeds, even after a failure. By default the first failing seed is the last one.
    pub fn all_seeds(self) -> Self {
        Self { all_seeds: true, ..self }
    }

    /// Runs the seeds.
    pub fn run<T: Tested>(&self) -> Summary<T::Model> {
        self.run_erased(&Typed::<T>::new())
    }

    /// Runs the seeds in a test, or only the seed in the variable `FARFIELD_SEED`.
    ///
    /// # Panics
    /// If a seed fails, or more histories than allowed are undecided. The message is the summary; with `FARFIELD_TRACE=n` it includes the
    /// last `n` operations of the failing run.
    #[track_caller]
    pub fn assert_sound<T: Tested>(&self) {
        let replayed = number(SEED_VARIABLE).map(|seed| self.clone().seeds(seed..seed.saturating_add(1)));
        let summary = replayed.as_ref().unwrap_or(self).run::<T>();
        if !summary.is_sound() {
            let smallest =
                summary.shrunk.as_ref().map(|shrunk| &shrunk.plan).or(summary.first_failing.as_ref());
            let traced = number(TRACE_VARIABLE).zip(smallest).and_then(|(lines, plan)| {
                let simulation = run_within::<T>(plan, self.search_limit).simulation?;
                Some(simulation.trace(lines as usize))
            });
            panic!("{summary}{}", traced.unwrap_or_default());
        }
    }

    /// The plan of a seed under these settings.
    pub fn plan<T: Tested>(&self, seed: u64) -> Plan<OperationOf<T>> {
        self.plan_of(&Typed::<T>::new(), seed)
    }

    fn plan_of<M: Model>(&self, tested: &dyn DynTested<M>, seed: u64) -> Plan<M::Operation> {
        let mut plan = tested.plan(seed, self.faults);
        if !plan.options.is_empty() && !self.options.is_empty() {
            plan.options.push(',');
        }
        plan.options.push_str(&self.options);
        plan
    }

    fn run_erased<M: Model>(&self, tested: &dyn DynTested<M>) -> Summary<M> {
        let count = self.seeds.end.saturating_sub(self.seeds.start) as usize;
        let first_failure = AtomicU64::new(u64::MAX);
        let runs = in_parallel(self.jobs, count, |index| {
            let seed = self.seeds.start + index as u64;
            if !self.all_seeds && seed > first_failure.load(Ordering::Relaxed) {
                return None;
            }
            let outcome = run_erased(tested, &self.plan_of(tested, seed), self.search_limit);
            if !outcome.found.is_empty() {
                first_failure.fetch_min(seed, Ordering::Relaxed);
            }
            Some((outcome.operations(), outcome.undecided, outcome.found))
        });
        let mut summary = Summary {
            faults: self.faults,
            most_undecided: self.most_undecided,
            seeds: 0,
            operations: 0,
            undecided: vec![],
            failing: vec![],
            first_failing: None,
            shrunk: None,
        };
        for (seed, run) in (self.seeds.start..).zip(runs) {
            let Some((operations, undecided, found)) = run else { break };
            summary.seeds += 1;
            summary.operations += operations;
            summary.undecided.extend((!undecided.is_empty()).then_some((seed, undecided)));
            if !found.is_empty() {
                summary.failing.push((seed, found));
                // Later seeds are ignored: the timing of jobs determines whether they were run.
                if !self.all_seeds {
                    break;
                }
            }
        }
        if let Some((seed, found)) = summary.failing.first() {
            let plan = self.plan_of(tested, *seed);
            if self.shrinking_runs > 0 {
                summary.shrunk = shrink_erased(tested, &plan, found[0].by, self.shrinking_runs);
            }
            summary.first_failing = Some(plan);
        }
        summary
    }
}

/// The result of many runs.
pub struct Summary<M: Model> {
    faults: Faults,
    most_undecided: usize,
    /// Number of seeds that were run.
    pub seeds: usize,
    /// Number of operations that began.
    pub operations: usize,
    /// The seeds with undecided histories, and their undecided parts.
    pub undecided: Vec<(u64, Vec<Undecided>)>,
    /// The failing seeds, and their failures.
    pub failing: Vec<(u64, Vec<Found>)>,
    /// The first failing plan.
    pub first_failing: Option<Plan<M::Operation>>,
    /// The first failing plan, shrunk.
    pub shrunk: Option<Shrunk<M::Operation>>,
}

impl<M: Model> Summary<M> {
    /// Returns whether no seed fails and at most the allowed number of histories is undecided.
    pub fn is_sound(&self) -> bool {
        self.failing.is_empty() && self.undecided.len() <= self.most_undecided
    }

    /// The first failing plan, shrunk, with its failure. `None` if no seed fails.
    pub fn smallest(&self) -> Option<String> {
        let ((seed, found), original) = self.failing.first().zip(self.first_failing.as_ref())?;
        let mut text = format!("seed {seed} fails");
        // Writing to a string does not fail.
        let found = match &self.shrunk {
            None => {
                let _ = write!(text, ":\n\n{}\n", original.show(M::show));
                found.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
            }
            Some(Shrunk { plan, found, runs, is_smallest }) => {
                let (from, to) = (size(original), size(plan));
                let limit = if *is_smallest { "" } else { ", the limit" };
                let shown = plan.show(M::show);
                let _ = write!(text, "; shrunk from {from} to {to} in {runs} runs{limit}:\n\n{shown}\n");
                found.to_string()
            }
        };
        Some(format!("{text}{found}\n"))
    }
}

impl<M: Model> fmt::Display for Summary<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { faults, most_undecided, seeds, operations, undecided, failing, .. } = self;
        let faults = if *faults == Faults::Injected { "with" } else { "without" };
        let (failures, unknown) = (failing.len(), undecided.len());
        writeln!(
            f,
            "{seeds} seeds {faults} faults, {operations} operations: {failures} failing, {unknown} undecided"
        )?;
        if let Some((seed, parts)) = undecided.first() {
            writeln!(f, "seed {seed}, {} ({most_undecided} such runs are allowed)", parts[0])?;
        }
        let (Some((seed, _)), Some(smallest)) = (failing.first(), self.smallest()) else { return Ok(()) };
        f.write_str(&smallest)?;
        // The test harness names threads after their tests.
        let current = thread::current();
        let test = current.name().filter(|name| *name != "main").unwrap_or_default();
        let command = format!("{SEED_VARIABLE}={seed} cargo test {test}");
        writeln!(f, "\nto replay it: {}", command.trim_end())
    }
}

impl<M: Model> fmt::Debug for Summary<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The size of a plan, in words.
fn size<O>(plan: &Plan<O>) -> String {
    let plural = |count, what| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let (operations, threads) = (plan.operations().count(), plan.threads.len());
    format!("{} of {}", plural(operations, "operation"), plural(threads, "thread"))
}

/// A number from an environment variable, if it is set.
fn number(variable: &str) -> Option<u64> {
    let value = std::env::var(variable).ok()?;
    let number = value.parse();
    Some(number.unwrap_or_else(|_| panic!("{variable}={value:?} is not a number")))
}

/// Calls `work(0)` to `work(count - 1)` on `jobs` OS threads; returns the results in order.
pub fn in_parallel<R: Send>(jobs: usize, count: usize, work: impl Fn(usize) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let take = || {
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                return done;
            }
            done.push((index, work(index)));
        }
    };
    let mut done: Vec<(usize, R)> = thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs.clamp(1, count.max(1))).map(|_| scope.spawn(take)).collect();
        let joined = workers.into_iter().map(|worker| worker.join());
        joined.flat_map(|done| done.unwrap_or_else(|payload| panic::resume_unwind(payload))).collect()
    });
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}
