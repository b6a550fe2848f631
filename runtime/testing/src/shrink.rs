//! Shrinking: from a failing plan to a small plan that fails in the same check.
//!
//! A smaller plan is a different run: without one operation, all later random choices of the simulator change. So a candidate is run with
//! its own seed and then with others. It is accepted if the same [`Check`] fails under any of them. The candidates are the following, in
//! this order, repeated until none fails:
//!
//! 1. a cluster without variation: each option at its plainest value;
//! 2. each task as a thread of its own; a thread removed, a task removed;
//! 3. a run of operations removed, first half of them, finally single ones (Zeller and Hildebrandt, "Simplifying and Isolating
//!    Failure-Inducing Input", TSE 2002);
//! 4. a pause removed, a request to reclaim removed;
//! 5. a scripted fault removed; random faults replaced by a scripted one, at any moment of the run's beginning; an operation removed and
//!    the scripted fault moved;
//! 6. a simpler operation ([`Tested::simpler`]).
//!
//! The result depends only on the plan and the budget. It is a local minimum: no single further step of this list fails under
//! [`SEEDS_TRIED`] seeds.

use std::ops::Range;
use std::time::Duration;

use crate::check::{Check, Found};
use crate::erased::{DynTested, Typed};
use crate::linearizability::SEARCH_LIMIT;
use crate::model::Model;
use crate::plan::{Dead, Plan, Scripted};
use crate::run::run_erased;
use crate::tested::{OperationOf, Tested};

/// Number of seeds that are tried for a candidate besides its own.
pub const SEEDS_TRIED: u64 = 24;

/// Default limit of the runs that shrinking takes.
pub const MOST_RUNS: usize = 5000;

/// Moments at which a scripted fault is tried: after a number of chains, or at a number of microseconds.
const MOMENTS: Range<u64> = 0..80;

/// Duration of a scripted cut: the longest of a random cut with the default round trip.
const CUT_US: u64 = 200;

/// A plan that was shrunk.
#[derive(Clone, Debug)]
pub struct Shrunk<O> {
    /// The plan; it fails with its seed.
    pub plan: Plan<O>,
    /// The failure.
    pub found: Found,
    /// Number of runs that shrinking took.
    pub runs: usize,
    /// True if the budget sufficed to try all steps.
    pub is_smallest: bool,
}

/// Shrinks a plan while the check `by` fails, in at most `most_runs` runs. Returns `None` if it does not fail in the plan itself.
pub fn shrink<T: Tested>(
    plan: &Plan<OperationOf<T>>,
    by: Check,
    most_runs: usize,
) -> Option<Shrunk<OperationOf<T>>> {
    shrink_erased(&Typed::<T>::new(), plan, by, most_runs)
}

/// As [`shrink`], with the structure's type erased.
pub(crate) fn shrink_erased<M: Model>(
    tested: &dyn DynTested<M>,
    plan: &Plan<M::Operation>,
    by: Check,
    most_runs: usize,
) -> Option<Shrunk<M::Operation>> {
    let fails = |plan: &Plan<M::Operation>| {
        run_erased(tested, plan, SEARCH_LIMIT).found.into_iter().find(|found| found.by == by)
    };
    shrink_with(plan.clone(), most_runs, fails, |operation| tested.simpler(operation))
}

/// Shrinks with any predicate for failure.
fn shrink_with<O: Clone + PartialEq>(
    plan: Plan<O>,
    most_runs: usize,
    fails: impl Fn(&Plan<O>) -> Option<Found>,
    simpler: impl Fn(&O) -> Vec<O>,
) -> Option<Shrunk<O>> {
    let found = fails(&plan)?;
    let mut shrinking = Shrinking { plan, found, runs: 1, most_runs, fails };
    loop {
        let before = shrinking.plan.clone();
        shrinking.plainer_cluster();
        shrinking.fewer_threads();
        shrinking.fewer_operations();
        shrinking.fewer_pauses();
        shrinking.fewer_faults();
        shrinking.simpler_operations(&simpler);
        if shrinking.is_exhausted() || shrinking.is_as_small_as(&before) {
            break;
        }
    }
    let is_smallest = !shrinking.is_exhausted();
    let Shrinking { plan, found, runs, .. } = shrinking;
    Some(Shrunk { plan, found, runs, is_smallest })
}

/// The smallest plan so far.
struct Shrinking<O, F> {
    plan: Plan<O>,
    found: Found,
    runs: usize,
    most_runs: usize,
    fails: F,
}

impl<O: Clone + PartialEq, F: Fn(&Plan<O>) -> Option<Found>> Shrinking<O, F> {
    fn is_exhausted(&self) -> bool {
        self.runs >= self.most_runs
    }

    /// True if the plans differ only in their seeds.
    fn is_as_small_as(&self, other: &Plan<O>) -> bool {
        self.plan == Plan { seed: self.plan.seed, ..other.clone() }
    }

    /// Accepts a candidate if it fails under its own seed or one of `others` more.
    fn try_with(&mut self, candidate: Plan<O>, others: u64) -> bool {
        if self.is_as_small_as(&candidate) {
            return false;
        }
        let own = candidate.seed;
        for seed in [own].into_iter().chain((0..others).filter(|seed| *seed != own)) {
            if self.is_exhausted() {
                return false;
            }
            self.runs += 1;
            let candidate = Plan { seed, ..candidate.clone() };
            if let Some(found) = (self.fails)(&candidate) {
                (self.plan, self.found) = (candidate, found);
                return true;
            }
        }
        false
    }

    /// Accepts the plan changed by `change`, if it fails.
    fn attempt(&mut self, change: impl FnOnce(&mut Plan<O>)) -> bool {
        let mut candidate = self.plan.clone();
        change(&mut candidate);
        self.try_with(candidate, SEEDS_TRIED)
    }

    fn plainer_cluster(&mut self) {
        self.attempt(Plan::make_plain);
        let plainer: [fn(&mut Plan<O>); 10] = [
            |plan| plan.recovers_first = false,
            |plan| plan.crash_permille = 0,
            |plan| plan.cut_permille = 0,
            |plan| plan.slow_percent = 0,
            |plan| plan.stall_percent = 0,
            |plan| plan.rate_million = None,
            |plan| plan.nodes = 1,
            |plan| plan.threads_per_node = 1,
            |plan| plan.dead = Dead::Cleared,
            |plan| plan.jitter_percent = 0,
        ];
        for change in plainer {
            self.attempt(change);
        }
    }

    fn fewer_threads(&mut self) {
        self.attempt(|plan| plan.threads = plan.threads.drain(..).flatten().map(|task| vec![task]).collect());
        for thread in (0..self.plan.threads.len()).rev() {
            if self.plan.threads.len() > 1 {
                self.attempt(|plan| drop(plan.threads.remove(thread)));
            }
        }
        for thread in 0..self.plan.threads.len() {
            for task in (0..self.plan.threads[thread].len()).rev() {
                if self.plan.threads[thread].len() > 1 {
                    self.attempt(|plan| drop(plan.threads[thread].remove(task)));
                }
            }
        }
    }

    fn fewer_operations(&mut self) {
        let mut length = self.plan.operations().count().div_ceil(2);
        while length > 0 {
            let mut start = 0;
            while start < self.plan.operations().count() {
                let kept = |number: usize| !(start..start + length).contains(&number);
                // On success the following operations have moved to `start`.
                if !self.attempt(|plan| retain(plan, kept)) {
                    start += length;
                }
            }
            length /= 2;
        }
    }

    fn fewer_pauses(&mut self) {
        self.attempt(|plan| steps(plan).for_each(|step| step.pause = Duration::ZERO));
        self.attempt(|plan| steps(plan).for_each(|step| step.reclaims = false));
        for number in 0..self.plan.operations().count() {
            self.attempt(|plan| {
                steps(plan).nth(number).into_iter().for_each(|step| step.pause = Duration::ZERO);
            });
            self.attempt(|plan| steps(plan).nth(number).into_iter().for_each(|step| step.reclaims = false));
        }
    }

    fn fewer_faults(&mut self) {
        for number in (0..self.plan.script.len()).rev() {
            self.attempt(|plan| {
                plan.script.remove(number);
            });
        }
        for plainly in [true, false] {
            if self.plan.crash_permille + self.plan.cut_permille > 0 {
                self.script_faults(plainly);
            }
        }
        let mut number = self.plan.operations().count();
        while number > 0 && self.plan.script.len() == 1 {
            number -= 1;
            for moment in MOMENTS {
                let mut plan = self.plan.clone();
                retain(&mut plan, |kept| kept != number);
                plan.script[0] = plan.script[0].moved_to(moment);
                if self.try_with(plan, 0) {
                    break;
                }
            }
        }
    }

    /// Tries to replace random faults by a scripted one; on a cluster without other variation if `plainly`.
    fn script_faults(&mut self, plainly: bool) {
        let (crash, cut) = (self.plan.crash_permille > 0, self.plan.cut_permille > 0);
        for moment in MOMENTS {
            for compute in 0..self.plan.threads.len() {
                let crashes = crash.then_some(Scripted::Crash { compute, after_chains: moment });
                let memories = if cut { 0..self.plan.nodes as u16 } else { 0..0 };
                let cuts =
                    memories.map(|memory| Scripted::Cut { compute, memory, at_us: moment, us: CUT_US });
                for scripted in crashes.into_iter().chain(cuts) {
                    let script = self.plan.script.iter().copied().chain([scripted]).collect();
                    let mut plan = Plan { crash_permille: 0, cut_permille: 0, script, ..self.plan.clone() };
                    if plainly {
                        plan.make_plain();
                    }
                    if self.try_with(plan, 0) {
                        return;
                    }
                }
            }
        }
    }

    fn simpler_operations(&mut self, simpler: impl Fn(&O) -> Vec<O>) {
        for number in 0..self.plan.operations().count() {
            let candidates = self.plan.operations().nth(number).map(&simpler).unwrap_or_default();
            for operation in candidates {
                if self.attempt(|plan| {
                    steps(plan).nth(number).into_iter().for_each(|step| step.operation = operation.clone());
                }) {
                    break;
                }
            }
        }
    }
}

/// All steps, by thread.
fn steps<O>(plan: &mut Plan<O>) -> impl Iterator<Item = &mut crate::plan::Step<O>> {
    plan.threads.iter_mut().flatten().flatten()
}

/// Keeps the operations of some numbers, counted by thread.
fn retain<O>(plan: &mut Plan<O>, keeps: impl Fn(usize) -> bool) {
    let mut number = 0..;
    for task in plan.threads.iter_mut().flatten() {
        task.retain(|_| number.next().is_some_and(&keeps));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Faults, Step};

    /// A bug that needs two threads and these operations, under any seed.
    fn needs(wanted: &'static [u64]) -> impl Fn(&Plan<u64>) -> Option<Found> {
        move |plan| {
            let has = |wanted| plan.threads.iter().flatten().flatten().any(|step| step.operation == wanted);
            let fails = plan.threads.len() > 1 && wanted.iter().all(|wanted| has(*wanted));
            fails.then(|| Found { by: Check::Error, message: format!("{wanted:?}") })
        }
    }

    fn drawn(seed: u64, faults: Faults) -> Plan<u64> {
        Plan::draw(seed, faults, |random| random.fresh())
    }

    #[test]
    fn irrelevant_parts_are_removed() {
        for seed in 0..20 {
            let shrunk = shrink_with(drawn(seed, Faults::Injected), 20_000, needs(&[3, 11]), |_| vec![]);
            let shrunk = shrunk.expect("it fails");
            assert!(shrunk.is_smallest);
            assert_eq!(shrunk.plan.operations().copied().collect::<Vec<_>>(), [3, 11], "{}", shrunk.plan);
            let threads = std::mem::take(&mut { shrunk.plan.clone() }.threads);
            assert_eq!(threads.len(), 2, "{}", shrunk.plan);
            assert_eq!(shrunk.plan, Plan { seed: shrunk.plan.seed, ..Plan::plain(threads) });
            assert!(steps(&mut shrunk.plan.clone()).all(|step| step.pause.is_zero() && !step.reclaims));
        }
    }

    #[test]
    fn runs_are_bounded_and_counted() {
        for most_runs in [1, 2, 50, 300] {
            let runs = std::cell::Cell::new(0);
            let fails = |plan: &Plan<u64>| {
                runs.set(runs.get() + 1);
                needs(&[3, 11])(plan)
            };
            let shrunk = shrink_with(drawn(1, Faults::None), most_runs, fails, |_| vec![]);
            let shrunk = shrunk.expect("it fails");
            assert!(shrunk.runs <= most_runs && shrunk.runs == runs.get() && !shrunk.is_smallest);
        }
    }

    #[test]
    fn a_plan_that_does_not_fail_is_not_shrunk() {
        assert!(shrink_with(drawn(1, Faults::None), 100, |_| None, |_| vec![]).is_none());
    }

    #[test]
    fn a_candidate_is_tried_under_several_seeds() {
        // One operation suffices, under one seed in seven.
        let fails = |plan: &Plan<u64>| {
            let fails = plan.seed % 7 == 3 && plan.operations().any(|operation| *operation == 4);
            fails.then(|| Found { by: Check::Error, message: String::new() })
        };
        let shrunk = shrink_with(drawn(10, Faults::None), 20_000, fails, |_| vec![]).expect("it fails");
        assert_eq!(shrunk.plan.operations().count(), 1);
    }

    #[test]
    fn a_random_fault_becomes_a_scripted_one() {
        let fails = |plan: &Plan<u64>| {
            let dies = plan.crash_permille > 0
                || plan.script.contains(&Scripted::Crash { compute: 1, after_chains: 9 });
            dies.then(|| Found { by: Check::Leak, message: String::new() })
        };
        let plan = Plan { crash_permille: 5, threads_per_node: 1, ..drawn(2, Faults::None) };
        // Compute node 1 exists only with two threads.
        let fails = |plan: &Plan<u64>| fails(plan).filter(|_| plan.threads.len() > 1);
        let shrunk = shrink_with(plan, 20_000, fails, |_| vec![]).expect("it fails");
        assert_eq!(shrunk.plan.script, [Scripted::Crash { compute: 1, after_chains: 9 }]);
        assert!(shrunk.plan.crash_permille == 0 && shrunk.plan.operations().count() == 0);
    }

    #[test]
    fn operations_become_simpler() {
        let fails = |plan: &Plan<u64>| {
            let fails = plan.operations().any(|operation| *operation >= 5);
            fails.then(|| Found { by: Check::Error, message: String::new() })
        };
        let shrunk =
            shrink_with(drawn(3, Faults::None), 20_000, fails, |operation| (0..*operation).collect());
        let steps: Vec<Step<u64>> =
            shrunk.expect("it fails").plan.threads.into_iter().flatten().flatten().collect();
        assert_eq!(steps, [Step::new(5)]);
    }
}
