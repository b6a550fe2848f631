//! Strategies: plans that `proptest` generates and shrinks.
//!
//! They are composed of proptest's own strategies, so proptest shrinks them: towards fewer threads, fewer operations, no pauses, a cluster
//! without variation, no faults, and simpler operations as their strategy defines them. The simulator's seed is part of a plan and is not
//! shrunk, since a smaller seed is no simpler. If a failure depends on the interleaving, [`shrink`](crate::shrink) gets further: it tries
//! other seeds for each smaller plan.

use std::fmt::Debug;
use std::ops::Range;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;

use crate::plan::{Dead, Faults, LONGEST_PAUSE_NS, MOST_CHANGES, Plan, Scripted, Step};

/// Plans of 1 to 4 threads with one or two tasks, each with a number of operations from the range `operations`, on one of many networks.
///
/// Distinct values (see [`Model::puts`](crate::Model::puts)) are numbered afterwards, in a `prop_map`, through [`Plan::operations_mut`].
///
/// ```
/// use farfield_testing::{Faults, strategy};
/// use proptest::prelude::*;
///
/// # use proptest::strategy::ValueTree;
/// # use proptest::test_runner::TestRunner;
/// let plans = strategy::plans(0..3_u64, 0..6, Faults::None);
/// let plan = plans.new_tree(&mut TestRunner::deterministic()).unwrap().current();
/// assert!(plan.operations().all(|key| *key < 3));
/// ```
pub fn plans<O: Clone + Debug>(
    operation: impl Strategy<Value = O>,
    operations: Range<usize>,
    faults: Faults,
) -> impl Strategy<Value = Plan<O>> {
    let network = (
        1..=2_u64,
        1..=2_u64,
        prop_oneof![Just(0_u64), Just(10), Just(50), Just(90)],
        prop_oneof![Just(None), Just(Some(20_u64)), Just(Some(1))],
        prop_oneof![2 => Just(0_u64), 1 => Just(40)],
        prop_oneof![Just(0_u64), Just(5), Just(12), Just(25), Just(40)],
        prop_oneof![2 => Just(Dead::Cleared), 1 => Just(Dead::Marked), 1 => Just(Dead::Swept)],
    );
    let odds = || match faults {
        Faults::None => Just(0).boxed(),
        Faults::Injected => prop_oneof![Just(0_u64), Just(20), Just(50)].boxed(),
    };
    let script = match faults {
        Faults::None => Just(Vec::new()).boxed(),
        Faults::Injected => vec(scripted(), 0..=1).boxed(),
    };
    let threads = vec(vec(vec(steps(operation), operations), 1..=2), 1..=4);
    (any::<u64>().no_shrink(), threads, network, odds(), odds(), script).prop_map(
        |(seed, threads, network, crash_permille, cut_permille, script)| {
            let (nodes, threads_per_node, jitter_percent, rate_million, slow_percent, stall_percent, dead) =
                network;
            Plan {
                seed,
                nodes,
                threads_per_node,
                dead,
                jitter_percent,
                rate_million,
                slow_percent,
                stall_percent,
                crash_permille,
                cut_permille,
                script,
                ..Plan::plain(threads)
            }
        },
    )
}

/// Operations, some with a pause before them.
pub fn steps<O: Clone + Debug>(operation: impl Strategy<Value = O>) -> impl Strategy<Value = Step<O>> {
    let pause = prop_oneof![3 => Just(0), 1 => 0..LONGEST_PAUSE_NS].prop_map(Duration::from_nanos);
    (pause, operation, any::<bool>()).prop_map(|(pause, operation, reclaims)| Step {
        pause,
        operation,
        reclaims,
    })
}

/// A fault of one of the first four threads or compute nodes.
pub fn scripted() -> impl Strategy<Value = Scripted> {
    let chains = 0..60_u64;
    prop_oneof![
        (0..4_usize, chains.clone(), 1..200_u64).prop_map(|(compute, after_chains, us)| Scripted::Stall {
            compute,
            after_chains,
            us
        }),
        (0..4_usize, 0..100_u64, 1..200_u64).prop_map(|(compute, at_us, us)| Scripted::Cut {
            compute,
            memory: 0,
            at_us,
            us
        }),
        (0..4_usize, chains).prop_map(|(compute, after_chains)| Scripted::Crash { compute, after_chains }),
        (0..4_usize, 1..8_usize, 1..=MOST_CHANGES, 0..3000_u64).prop_map(
            |(thread, operation, changes, after_ns)| Scripted::Death { thread, operation, changes, after_ns }
        ),
    ]
}

#[cfg(test)]
mod tests {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;

    use super::*;

    /// Simplifies while `fails` holds, as proptest's runner does.
    fn shrunk(faults: Faults, fails: impl Fn(&Plan<u64>) -> bool) -> Plan<u64> {
        let (strategy, mut runner) = (plans(0..100_u64, 0..8, faults), TestRunner::deterministic());
        let mut tree = loop {
            let tree = strategy.new_tree(&mut runner).unwrap();
            if fails(&tree.current()) {
                break tree;
            }
        };
        let mut smallest = tree.current();
        let mut goes_on = tree.simplify();
        while goes_on {
            let fails = fails(&tree.current());
            if fails {
                smallest = tree.current();
            }
            goes_on = if fails { tree.simplify() } else { tree.complicate() };
        }
        smallest
    }

    #[test]
    fn irrelevant_parts_of_a_failing_plan_are_removed() {
        let plan = shrunk(Faults::Injected, |plan| plan.operations().any(|operation| *operation >= 10));
        let threads = vec![vec![vec![Step::new(10)]]];
        assert_eq!(plan, Plan { seed: plan.seed, ..Plan::plain(threads) });
    }

    #[test]
    fn relevant_options_of_a_cluster_are_kept() {
        let plan = shrunk(Faults::Injected, |plan| plan.may_lose_locks() && plan.nodes == 2);
        assert!(plan.nodes == 2 && plan.may_lose_locks());
        assert!(plan.operations().count() == 0 && plan.jitter_percent == 0 && plan.crash_permille == 0);
    }

    #[test]
    fn plans_without_faults_have_none() {
        let (strategy, mut runner) = (plans(0..3_u64, 0..4, Faults::None), TestRunner::deterministic());
        for _ in 0..200 {
            assert!(!strategy.new_tree(&mut runner).unwrap().current().may_fail());
        }
    }
}
