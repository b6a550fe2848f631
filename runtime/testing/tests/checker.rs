//! The checker on a correct structure, and on structures with one mistake each.

use farfield::prelude::*;
use farfield::{Error, Result};
use farfield_testing::{
    Check, Checker, Faults, Meaning, Model, Plan, Random, Scripted, Step, Tested, run, shrink,
};

/// A number in far memory.
#[remote]
struct Tally {
    value: Atomic<u64>,
}

impl Tally {
    async fn open(ct: &ComputeThread) -> Result<Self> {
        let root = ct.root_or_init("tally", async || Self::new_in(ct, Self::init()).await?.write(ct).await);
        Self::attach(root.await?, ct).await
    }
}

/// Operations on a number that must not exceed 3.
#[derive(Clone, Debug, PartialEq)]
enum Ask {
    Add,
    Get,
}

/// The previous number, or the reason for a refusal.
type Reply = std::result::Result<u64, &'static str>;

const MOST: u64 = 3;

/// Declares a structure with its own way to add.
macro_rules! tested {
    ($(#[$doc:meta])* $name:ident, |$tally:ident, $ct:ident| $add:expr $(, { $($more:item)* })?) => {
        $(#[$doc])*
        #[derive(Debug)]
        struct $name;

        impl Model for $name {
            type Operation = Ask;
            type Returned = Reply;
            type State = u64;

            fn step(value: &mut u64, ask: &Ask) -> Reply {
                match ask {
                    Ask::Get => Ok(*value),
                    Ask::Add if *value == MOST => Err("enough"),
                    Ask::Add => {
                        *value += 1;
                        Ok(*value - 1)
                    }
                }
            }
        }

        impl Tested for $name {
            type Model = Self;
            type Structure = Tally;

            async fn open(ct: &ComputeThread) -> Result<Tally> {
                Tally::open(ct).await
            }

            async fn perform($tally: &Tally, ask: &Ask, $ct: &ComputeThread) -> Result<Reply> {
                match ask {
                    Ask::Get => $tally.value().load($ct).await.map(Ok),
                    Ask::Add => $add,
                }
            }

            fn operation(random: &mut Random) -> Ask {
                random.one_of(&[Ask::Add, Ask::Get])
            }

            fn simpler(ask: &Ask) -> Vec<Ask> {
                if *ask == Ask::Add { vec![Ask::Get] } else { vec![] }
            }

            $($($more)*)?
        }
    };
}

async fn add(tally: &Tally, ct: &ComputeThread) -> Result<Reply> {
    let changed = tally.value().fetch_update(ct, |value| (value < MOST).then_some(value + 1)).await?;
    changed.map(Ok).map_err(|_| Error::other("enough"))
}

/// The model's error is a result.
fn enough(error: &Error) -> Meaning<Reply> {
    match error {
        Error::Other(_) => Meaning::Answer(Err("enough")),
        other => Meaning::by_default(other),
    }
}

tested! {
    /// Correct.
    Right, |tally, ct| add(tally, ct).await,
    { fn meaning(_: &Ask, error: &Error) -> Meaning<Reply> { enough(error) } }
}

tested! {
    /// Reads, and then writes.
    Torn, |tally, ct| {
        let value = tally.value().load(ct).await?;
        if value == MOST {
            return Err(Error::other("enough"));
        }
        tally.value().store(ct, value + 1).await.map(|()| Ok(value))
    },
    { fn meaning(_: &Ask, error: &Error) -> Meaning<Reply> { enough(error) } }
}

tested! {
    /// Retries although the first attempt may have taken effect.
    Repeated, |tally, ct| {
        loop {
            match add(tally, ct).await {
                Err(Error::NodeUnreachable(_)) => {}
                done => return done,
            }
        }
    },
    { fn meaning(_: &Ask, error: &Error) -> Meaning<Reply> { enough(error) } }
}

tested! {
    /// Its error is not declared as a result.
    Unexpected, |tally, ct| add(tally, ct).await
}

tested! {
    /// Declares a result to be an unknown outcome.
    Unknown, |tally, ct| add(tally, ct).await,
    { fn meaning(_: &Ask, _: &Error) -> Meaning<Reply> { Meaning::Unknown } }
}

tested! {
    /// Leaks an object.
    Leaking, |tally, ct| {
        Tally::new_in(ct, Tally::init()).await?.write(ct).await?;
        add(tally, ct).await
    },
    { fn meaning(_: &Ask, error: &Error) -> Meaning<Reply> { enough(error) } }
}

tested! {
    /// Panics at the limit.
    Panicking, |tally, ct| {
        let added = add(tally, ct).await;
        assert!(added.is_ok(), "no more than {MOST}");
        added
    }
}

tested! {
    /// Uses an object that it has freed.
    Dangling, |tally, ct| {
        let freed = Tally::new_in(ct, Tally::init()).await?.write(ct).await?;
        ct.delete(freed).await?;
        freed.read(&ct.pin()).await?;
        add(tally, ct).await
    },
    { fn meaning(_: &Ask, error: &Error) -> Meaning<Reply> { enough(error) } }
}

tested! {
    /// Waits forever.
    Waiting, |tally, ct| {
        if ct.index() == 1 {
            std::future::pending::<()>().await;
        }
        add(tally, ct).await
    },
    { fn meaning(_: &Ask, error: &Error) -> Meaning<Reply> { enough(error) } }
}

fn quick() -> Checker {
    Checker::new().seeds(0..200)
}

#[test]
fn a_correct_structure_passes_and_errors_are_results() {
    let summary = quick().run::<Right>();
    assert!(summary.is_sound(), "{summary}");
    assert_eq!(summary.seeds, 200);
    let shown = summary.to_string();
    assert!(shown.ends_with(" 0 failing, 0 undecided\n"), "undecided histories are always shown: {shown}");
    // Runs reach the limit, so errors have been among the results.
    let enough = |seed| {
        let outcome = run::<Right>(&Right::plan(seed, Faults::None));
        outcome.history.iter().any(|event| event.happened == farfield::sim::Happened::Returned(Err("enough")))
    };
    assert!((0..20).all(enough));
    quick().assert_sound::<Right>();
}

#[test]
fn operations_that_never_returned_are_no_failure() {
    let summary = Checker::new().seeds(0..500).faults(Faults::Injected).run::<Right>();
    assert!(summary.is_sound(), "{summary}");
    // Some operations have no result.
    let open = |seed| {
        let outcome = run::<Right>(&Right::plan(seed, Faults::Injected));
        let is_invoked = |happened: &_| matches!(happened, farfield::sim::Happened::Invoked(_));
        let invoked = outcome.history.iter().filter(|event| is_invoked(&event.happened)).count();
        2 * invoked > outcome.history.len()
    };
    let open = (0..100).filter(|seed| open(*seed)).count();
    assert!(open > 30, "{open} of 100 runs");
}

#[test]
fn a_lost_update_shrinks_to_two_operations() {
    let summary = quick().run::<Torn>();
    let shrunk = summary.shrunk.as_ref().expect("it is found");
    assert_eq!(shrunk.found.by, Check::Linearizability);
    assert!(shrunk.is_smallest && shrunk.runs <= farfield_testing::MOST_RUNS);
    // Two concurrent additions return the same number.
    assert_eq!(shrunk.plan.operations().collect::<Vec<_>>(), [&Ask::Add, &Ask::Add], "{summary}");
    assert_eq!(shrunk.plan.threads.len(), 2, "{summary}");
    // The shrunk plan reproduces the failure.
    assert_eq!(run::<Torn>(&shrunk.plan).found, std::slice::from_ref(&shrunk.found));
    let shown = summary.to_string();
    for part in
        ["┌ Add", "└ Ok(0)  <--", "is linearizable", "where only Ok(1)", "to replay it: FARFIELD_SEED="]
    {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(shown.contains("a_lost_update_shrinks_to_two_operations"), "the test is named: {shown}");
}

#[test]
#[should_panic(expected = "1 failing, 0 undecided")]
fn a_test_fails_with_the_summary() {
    quick().assert_sound::<Torn>();
}

#[test]
fn the_report_does_not_depend_on_the_number_of_jobs() {
    let report = |jobs| quick().jobs(jobs).run::<Torn>().to_string();
    let first = report(1);
    assert_eq!(first, report(1));
    assert_eq!(first, report(3));
}

#[test]
fn an_operation_that_takes_effect_twice_is_found_when_links_are_cut() {
    assert!(quick().run::<Repeated>().is_sound());
    let checker = Checker::new().faults(Faults::Injected);
    let summary = checker.run::<Repeated>();
    let shrunk = summary.shrunk.as_ref().expect("it is found");
    assert_eq!(shrunk.found.by, Check::Linearizability, "{summary}");
    assert_eq!(shrunk.plan.operations().count(), 1, "{summary}");
    assert!(matches!(shrunk.plan.script[..], [Scripted::Cut { .. }]), "{summary}");
    assert_eq!((shrunk.plan.crash_permille, shrunk.plan.cut_permille), (0, 0));
}

#[test]
fn each_kind_of_mistake_is_found_by_its_check() {
    fn found<T: Tested>(operations: usize) -> Check {
        let summary = quick().run::<T>();
        let shrunk = summary.shrunk.as_ref().unwrap_or_else(|| panic!("{summary}"));
        assert!(shrunk.is_smallest, "{summary}");
        assert_eq!(shrunk.plan.operations().count(), operations, "{summary}");
        shrunk.found.by
    }
    assert_eq!(found::<Leaking>(1), Check::Leak);
    assert_eq!(found::<Dangling>(1), Check::Memory);
    assert_eq!(found::<Waiting>(1), Check::Stuck);
    assert_eq!(found::<Panicking>(4), Check::Error);
    assert_eq!(found::<Unexpected>(4), Check::Error, "by default an error is a failure");
    assert_eq!(found::<Unknown>(4), Check::Error, "without faults every outcome is known");
}

#[test]
fn undecided_histories_are_counted_and_shown() {
    let summary = quick().search_limit(3).run::<Right>();
    assert_eq!((summary.failing.len(), summary.undecided.len()), (0, 200));
    assert!(!summary.is_sound(), "by default it is a failure");
    let shown = summary.to_string();
    assert!(shown.contains(" 0 failing, 200 undecided\nseed 0, part 0, "), "{shown}");
    let allowed = quick().search_limit(3).most_undecided(200).run::<Right>();
    assert!(allowed.is_sound() && allowed.to_string().contains("200 undecided"));
    assert!(!quick().search_limit(3).most_undecided(199).run::<Right>().is_sound());
}

#[test]
fn a_plan_can_be_written_by_hand() {
    let add = || vec![Step::new(Ask::Add)];
    let mut plan = Plan::plain(vec![vec![add(), add()]]);
    assert_eq!(run::<Right>(&plan).found, []);
    let outcome = run::<Torn>(&plan);
    assert_eq!(outcome.found.len(), 1, "both tasks load before they store");
    assert_eq!(outcome.operations(), 2);
    let shrunk = shrink::<Torn>(&plan, Check::Linearizability, 100).expect("it fails");
    assert_eq!(shrunk.plan.operations().count(), 2);
    // Thread 0 dies before it writes; its operation stays pending.
    plan.script = vec![Scripted::Crash { compute: 0, after_chains: 6 }];
    assert_eq!(run::<Right>(&plan).found, []);
}

#[test]
fn a_plan_with_an_invalid_url_is_an_error() {
    let outcome = run::<Right>(&Plan { options: "colour=red".to_owned(), ..Plan::plain(vec![]) });
    assert_eq!(outcome.found[0].by, Check::Error);
    assert!(outcome.found[0].message.contains("colour"), "{:?}", outcome.found);
}

#[test]
fn all_seeds_can_be_run() {
    let summary = Checker::new().seeds(0..50).all_seeds().shrinking_runs(0).run::<Torn>();
    assert_eq!(summary.seeds, 50);
    assert!(summary.failing.len() > 35 && summary.shrunk.is_none(), "{summary}");
    let plan = Torn::plan(summary.failing[0].0, Faults::None);
    assert!(
        summary.smallest().is_some_and(|shown| shown.contains(&plan.to_string())),
        "not shrunk: {summary}"
    );
}
