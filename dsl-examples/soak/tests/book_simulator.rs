//! The programs of the book's chapter "Testing with the simulator", and the output that it shows.
//!
//! `FARFIELD_BLESS=1 cargo test -p farfield-soak --test book_simulator` regenerates the output.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use farfield::prelude::*;
use farfield::sim::{Fault, Finding, Happened, History};
use farfield::{Error, RemotePtr, Result};
use farfield_examples::HarrisList;

// ANCHOR: broken
use farfield_soak::mutants::lazy_list_does_not_validate::LazyList;
// ANCHOR_END: broken

// ANCHOR: test
/// Insertions and removals of each of two keys.
#[remote]
struct Tallies {
    inserted: [Atomic<u64>; 2],
    removed: [Atomic<u64>; 2],
}

/// Insertions and removals of a key that succeed take turns. So at the end there was one insertion more if the key is in
/// the set, and as many as removals if it is not.
async fn take_turns(ct: &ComputeThread) -> Result<()> {
    let root = ct.root_or_init("set", async || LazyList::<u64>::create(ct).await);
    let set = LazyList::attach(root.await?, ct).await?;
    let tallies =
        ct.root_or_init("tallies", async || Tallies::new_in(ct, Tallies::init()).await?.write(ct).await);
    let tallies = tallies.await?;

    for _ in 0..3 {
        let key = ct.random_range(0..2);
        let inserts: bool = ct.random();
        if inserts && set.insert(key, ct).await? {
            tallies.inserted().at(key as usize).fetch_add(ct, 1).await?;
        } else if !inserts && set.remove(key, ct).await? {
            tallies.removed().at(key as usize).fetch_add(ct, 1).await?;
        }
    }

    ct.barrier("done").await?;
    let keys = set.iter(ct).await?;
    for key in 0..2 {
        let inserted = tallies.inserted().at(key).load(ct).await?;
        let removed = tallies.removed().at(key).load(ct).await?;
        let there = keys.contains(&(key as u64));
        assert_eq!(inserted, removed + u64::from(there), "key {key}");
    }
    Ok(())
}
// ANCHOR_END: test

#[should_panic(expected = "key 0")]
// ANCHOR: seeds
#[farfield::test(sim, seeds = 0..1000, threads = 2)]
async fn updates_take_turns(ct: &ComputeThread) -> Result<()> {
    take_turns(ct).await
}
// ANCHOR_END: seeds

/// Compares the book's quotes with the actual output.
fn shown(page: &str, text: &str) {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../book/src/simulator").join(page);
    if std::env::var_os("FARFIELD_BLESS").is_some() {
        std::fs::create_dir_all(page.parent().unwrap()).unwrap();
        std::fs::write(&page, text).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&page).unwrap_or_default(), text, "{}", page.display());
}

/// The output of the failing test.
fn failure() -> Vec<String> {
    let mut test = Command::new(std::env::current_exe().unwrap());
    test.args(["updates_take_turns", "--exact", "--nocapture"]);
    test.env("RUST_BACKTRACE", "0").env("FARFIELD_TRACE", "200");
    let output = test.output().unwrap();
    String::from_utf8(output.stderr).unwrap().lines().map(str::to_owned).collect()
}

fn line(lines: &[String], start: &str) -> usize {
    lines.iter().position(|line| line.starts_with(start)).expect(start)
}

/// The output without the trace.
#[test]
fn the_book_shows_how_the_test_fails() {
    let lines = failure();
    let (failed, trace) = (line(&lines, "assertion"), line(&lines, "what happened under seed"));
    let (url, replay) = (line(&lines, "on cluster"), line(&lines, "to replay it"));
    let quoted =
        [&lines[failed..failed + 3], &lines[trace..=trace], &["...".to_owned()], &lines[url..=replay]];
    shown("assertion.txt", &format!("{}\n", quoted.concat().join("\n")));
}

/// The first seed that fails, and the part of its trace that the book shows.
#[test]
fn the_book_shows_what_the_test_prints() {
    let lines = failure();
    let (head, end) = (line(&lines, "what happened under seed"), line(&lines, "on cluster"));
    let head_of = lines[head].split(" (").next().unwrap();
    let trace = lines[head + 1..end].join("\n");
    let first_search = trace.lines().position(|line| line.contains("Node.next = ")).unwrap();
    // Up to the write by which one insertion undoes the other: the second to a link that a search has read.
    let writes = trace.lines().enumerate().skip(first_search);
    let mut writes = writes.filter(|(_, line)| line.contains("Node.next := ")).map(|(number, _)| number);
    let last = writes.nth(1).expect("two links are written");
    let excerpt: Vec<&str> = trace.lines().take(last + 1).skip(first_search).collect();
    shown("trace.txt", &format!("{head_of}:\n{}\n", excerpt.join("\n")));

    // The page quotes only lines of the trace.
    let page =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../book/src/simulator.md"));
    let page = page.unwrap();
    let section =
        page.split("## Reading the trace").nth(1).and_then(|rest| rest.split("\n## ").next()).unwrap();
    let quoted: Vec<&str> =
        section.split('`').skip(1).step_by(2).filter(|code| code.contains("0:0x")).collect();
    assert!(quoted.len() >= 4, "{quoted:?}");
    for code in quoted {
        assert!(
            excerpt.iter().any(|line| line.contains(code)),
            "the page quotes `{code}`, which is not in the trace"
        );
    }
}

// ANCHOR: fixed
#[farfield::test(sim, seeds = 0..1000, threads = 3)]
async fn a_removed_key_is_absent(ct: &ComputeThread) -> Result<()> {
    use farfield_examples::LazyList;

    let root = ct.root_or_init("set", async || LazyList::<u64>::create(ct).await);
    let set = LazyList::attach(root.await?, ct).await?;
    for _ in 0..3 {
        let key = ct.random_range(0..2);
        set.insert(key, ct).await?;
        set.remove(key, ct).await?;
    }
    ct.barrier("done").await?;
    // Each inserted key was removed afterwards, by the same thread or by another.
    assert!(set.iter(ct).await?.is_empty());
    Ok(())
}
// ANCHOR_END: fixed

// ANCHOR: memory
#[test]
fn a_pointer_that_outlives_its_object_is_found() {
    let cluster = Cluster::connect("sim:seed=1").unwrap();
    let run = cluster.run(1, async |ct| {
        let tallies = Tallies::new_in(ct, Tallies::init()).await?.write(ct).await?;
        ct.delete(tallies).await?;
        tallies.read(&ct.pin()).await.map(drop)
    });
    let Err(Error::Simulation(found)) = run else { panic!("the simulator has no finding") };
    assert_eq!(found.finding, Finding::UseAfterFree);
    shown("use_after_free.txt", &format!("error: {found}\n"));
}
// ANCHOR_END: memory

// ANCHOR: kept
#[remote]
struct Stack {
    top: Link<Item>,
}

#[remote]
struct Item {
    value: u64,
    next: Link<Item>,
}

async fn push(stack: RemotePtr<Stack>, value: u64, ct: &ComputeThread) -> Result<()> {
    let g = &ct.pin();
    let mut top = stack.top().load(g).await?;
    let mut item = Item::new_in(ct, Item::init(value).next(top)).await?;
    while let Err(changed) = stack.top().compare_exchange(g, top, item).await? {
        (top, item) = (changed.current, changed.new);
        item.set(|item| item.next(), top);
    }
    Ok(())
}

async fn pop(stack: RemotePtr<Stack>, ct: &ComputeThread) -> Result<Option<u64>> {
    let top = {
        let g = &ct.pin();
        stack.top().load(g).await?.as_ptr()
    }; // The guard ends here, and with it the protection of its pointers.
    ct.sleep(Duration::from_micros(3)).await;
    let g = &ct.pin();
    if top.is_null() {
        return Ok(None);
    }
    let top = top.shared(g);
    let item = top.read(g).await?;
    if stack.top().compare_exchange(g, top, item.next).await?.is_err() {
        return Ok(None);
    }
    g.sched_reclaim(top).await?;
    Ok(Some(item.value))
}
// ANCHOR_END: kept

#[test]
fn a_pointer_that_is_kept_past_its_guard_is_found() {
    let run = |seed: u64, options: &str| {
        let cluster = Cluster::connect(&format!("sim:seed={seed}{options}")).unwrap();
        cluster.run(3, async |ct| {
            let stack =
                ct.root_or_init("stack", async || Stack::new_in(ct, Stack::init()).await?.write(ct).await);
            let stack = stack.await?;
            for value in 0..6 {
                if ct.random() {
                    push(stack, value, ct).await?;
                } else {
                    pop(stack, ct).await?;
                }
            }
            Ok(())
        })
    };
    let found = (0..20).find_map(|seed| run(seed, "").err()).expect("one of 20 seeds shows it");
    shown("kept_pointer.txt", &format!("error: {found}\n"));
    assert!((0..100).all(|seed| run(seed, ",reclaim=lazy").is_ok()), "lazy reclamation hides the bug");
}

// ANCHOR: crash
#[test]
fn a_thread_that_dies_in_a_harris_list_blocks_no_other() {
    for chains in 0..40 {
        let cluster = Cluster::connect("sim:seed=1").unwrap();
        // Thread 1 dies after its chain number `chains`.
        cluster.simulation().unwrap().inject(Fault::crash(1).after_chains(chains));
        let run = cluster.run_surviving(3, async |ct| {
            let root = ct.root_or_init("set", async || HarrisList::<u64>::create(ct).await);
            let set = HarrisList::attach(root.await?, ct).await?;
            for key in 0..4 {
                set.insert(key, ct).await?;
                set.remove(key, ct).await?;
            }
            set.get(0, ct).await
        });
        let returned = run.unwrap_or_else(|error| panic!("after {chains} chains: {error}"));
        assert!(returned[0].is_some() && returned[2].is_some());
    }
}
// ANCHOR_END: crash

// ANCHOR: rtts
#[farfield::test(sim, cluster = "sim:jitter=0%,bandwidth=inf,rate=inf,compute=0,leaks=ignore", seeds = 0..1)]
async fn a_lookup_takes_one_round_trip_for_each_node(ct: &ComputeThread) -> Result<()> {
    let set = LazyList::attach(LazyList::<u64>::create(ct).await?, ct).await?;
    for key in 0..10 {
        set.insert(key, ct).await?;
    }
    let began = ct.now();
    set.get(9, ct).await?;
    let rtt = ct.cluster().simulation().unwrap().rtt();
    assert_eq!(ct.now(), began + 11 * rtt, "ten nodes and the head's link");
    Ok(())
}
// ANCHOR_END: rtts

// ANCHOR: history
#[test]
fn a_history_records_invocations_and_returns() {
    let history = History::new();
    let cluster = Cluster::connect("sim:seed=3").unwrap();
    let run = cluster.run(2, async |ct| {
        let root = ct.root_or_init("set", async || HarrisList::<u64>::create(ct).await);
        let set = &HarrisList::attach(root.await?, ct).await?;
        history.record(ct, "insert 7", async || set.insert(7, ct).await).await
    });
    // One of two threads that insert the same key succeeds.
    assert_eq!(run.unwrap().into_iter().filter(|inserted| *inserted).count(), 1);

    let events = history.into_events();
    assert_eq!(events.len(), 4, "two invocations and two returns");
    assert!(events.iter().is_sorted_by_key(|event| event.at), "in the order in which they happened");
    assert!(matches!(events[0].happened, Happened::Invoked("insert 7")));
}
// ANCHOR_END: history
