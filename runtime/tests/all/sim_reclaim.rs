//! Eager reclamation in the simulator: it finds uses of objects after their grace period, and no correct program.

use std::time::Duration;

use farfield::error::Error;
use farfield::prelude::*;
use farfield::sim::{Fault, Finding};
use farfield::{Address, RemotePtr};

/// A Treiber stack, with a planted mistake or without.
#[remote]
struct Stack {
    top: Link<Item>,
}

#[remote]
struct Item {
    value: u64,
    next: Link<Item>,
}

/// The mistake of `pop`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pop {
    Right,
    /// It keeps a plain pointer while it sleeps without a guard, and uses it under the next guard.
    KeepsPointer,
    /// It retires the node under one guard and unlinks it under the next.
    RetiresUnderAnEarlierGuard,
    /// It retires the node before it unlinks it, under one guard.
    RetiresBeforehand,
}

async fn some_time(ct: &ComputeThread) {
    let nanoseconds = ct.random_range(0..6000);
    ct.sleep(Duration::from_nanos(nanoseconds)).await;
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

async fn pop(stack: RemotePtr<Stack>, how: Pop, ct: &ComputeThread) -> Result<Option<u64>> {
    loop {
        let kept = {
            let g = &ct.pin();
            stack.top().load(g).await?.as_ptr()
        };
        if kept.is_null() {
            return Ok(None);
        }
        if how == Pop::KeepsPointer {
            some_time(ct).await;
        }
        let g = &ct.pin();
        let top = if how == Pop::KeepsPointer { kept.shared(g) } else { stack.top().load(g).await? };
        if top.is_null() {
            return Ok(None);
        }
        let seen = top.read(g).await?;
        if stack.top().compare_exchange(g, top, seen.next).await?.is_ok() {
            g.sched_reclaim(top).await?;
            return Ok(Some(seen.value));
        }
    }
}

/// One thread replaces the item of a register that others read. The item is retired before it is unlinked, or after.
async fn replace(stack: RemotePtr<Stack>, how: Pop, ct: &ComputeThread) -> Result<()> {
    let fresh = Item::new_in(ct, Item::init(7)).await?;
    let mut g = ct.pin();
    let old = stack.top().load(&g).await?;
    match how {
        Pop::RetiresBeforehand => {
            g.sched_reclaim(old).await?;
            some_time(&g).await;
            stack.top().store(&g, fresh).await?;
        }
        Pop::RetiresUnderAnEarlierGuard => {
            g.sched_reclaim(old).await?;
            g.repin();
            some_time(&g).await;
            stack.top().store(&g, fresh).await?;
        }
        _ => {
            stack.top().store(&g, fresh).await?;
            g.sched_reclaim(old).await?;
        }
    }
    Ok(())
}

async fn stack(ct: &ComputeThread) -> Result<RemotePtr<Stack>> {
    ct.root_or_init("stack", async || {
        let stack = Stack::new_in(ct, Stack::init()).await?.write(ct).await?;
        let g = &ct.pin();
        stack.top().store(g, Item::new_in(ct, Item::init(0)).await?).await?;
        Ok(stack)
    })
    .await
}

async fn use_stack(ct: &ComputeThread, how: Pop) -> Result<()> {
    let stack = stack(ct).await?;
    for turn in 0..6 {
        if ct.random() {
            push(stack, turn, ct).await?;
        } else {
            pop(stack, how, ct).await?;
        }
    }
    Ok(())
}

/// Thread 0 replaces, the others read.
async fn use_register(ct: &ComputeThread, how: Pop) -> Result<()> {
    let stack = stack(ct).await?;
    for _ in 0..4 {
        some_time(ct).await;
        if ct.index() == 0 {
            replace(stack, how, ct).await?;
        } else {
            let g = &ct.pin();
            let item = stack.top().load(g).await?;
            some_time(ct).await;
            item.value().read(g).await?;
        }
    }
    Ok(())
}

async fn misuse(ct: &ComputeThread, how: Pop) -> Result<()> {
    match how {
        Pop::Right | Pop::KeepsPointer => use_stack(ct, how).await,
        _ => use_register(ct, how).await,
    }
}

/// Returns the first seed under which a use of freed memory is found, and the message. Any other finding fails the test.
fn first_found(options: &str, seeds: std::ops::Range<u64>, how: Pop) -> Option<(u64, String)> {
    seeds.into_iter().find_map(|seed| {
        let cluster = Cluster::connect(&format!("sim:seed={seed},limit=1s{options}")).unwrap();
        match cluster.run_surviving(3, async |ct| misuse(ct, how).await) {
            Ok(_) => None,
            Err(Error::Simulation(found)) if found.finding == Finding::UseAfterFree => {
                Some((seed, found.to_string()))
            }
            Err(error) => panic!("seed {seed}{options}: {error}"),
        }
    })
}

/// Each mistake is found under default options. With lazy reclamation and one thread per process, none of these seeds finds it.
#[test]
fn uses_after_the_grace_period_are_found_within_few_seeds() {
    for how in [Pop::KeepsPointer, Pop::RetiresUnderAnEarlierGuard] {
        for layout in ["", ",threads-per-node=2", ",threads-per-node=3"] {
            let (seed, said) = first_found(layout, 0..1000, how).unwrap_or_else(|| panic!("{how:?}{layout}"));
            println!("{how:?}{layout}: {said}");
            assert!(seed < 5, "{how:?}{layout}: only under seed {seed}");
            assert!(said.contains("retired by thread") && said.contains("free since"), "{said}");
        }
        let lazy = ",reclaim=lazy,threads-per-node=1";
        let seeds = 0..if cfg!(debug_assertions) { 100 } else { 1000 };
        assert_eq!(first_found(lazy, seeds, how), None, "{how:?}: lazy reclamation finds the mistake, too");
    }
}

/// The tag protects an object that is retired before it is unlinked, under the same guard, unless its thread dies in between.
#[test]
fn retiring_before_unlinking_under_one_guard_is_safe_until_the_thread_dies() {
    let seeds = 0..if cfg!(debug_assertions) { 200 } else { 2000 };
    for layout in ["", ",threads-per-node=2", ",threads-per-node=3"] {
        assert_eq!(first_found(layout, seeds.clone(), Pop::RetiresBeforehand), None, "{layout}");
    }
    assert!(first_found(",crash=1%,leaks=ignore", 0..20, Pop::RetiresBeforehand).is_some());
}

async fn until(ct: &ComputeThread, began: Duration, microseconds: u64) {
    ct.sleep((began + Duration::from_micros(microseconds)).saturating_sub(ct.now())).await;
}

/// The tag is that of the thread's oldest guard. If another task drops that guard in between, the object is not protected. In the
/// documented order, it is.
#[test]
fn retiring_before_unlinking_is_found_where_another_task_has_the_older_guard() {
    for (unlinks_first, expected) in [(true, None), (false, Some(Finding::UseAfterFree))] {
        for seed in 0..20 {
            let cluster = Cluster::connect(&format!("sim:seed={seed},leaks=ignore")).unwrap();
            let run = cluster.run(2, async |ct| {
                let stack = stack(ct).await?;
                ct.barrier("there").await?;
                let began = ct.now();
                if ct.index() == 1 {
                    until(ct, began, 60).await;
                    let g = &ct.pin();
                    let item = stack.top().load(g).await?;
                    until(ct, began, 120).await;
                    return item.value().read(g).await.map(drop);
                }
                let task = async |task| {
                    // The older guard. The epoch advances once under it, because another object is retired.
                    if task == 0 {
                        let g = &ct.pin();
                        let other = Item::new_in(ct, Item::init(9)).await?.write(ct).await?;
                        g.sched_reclaim(other.shared(g)).await?;
                        until(ct, began, 40).await;
                    } else {
                        until(ct, began, 20).await;
                        let g = &ct.pin();
                        let old = stack.top().load(g).await?;
                        if !unlinks_first {
                            g.sched_reclaim(old).await?;
                        }
                        until(ct, began, 80).await;
                        stack.top().store(g, Shared::NULL).await?;
                        if unlinks_first {
                            g.sched_reclaim(old).await?;
                        }
                    }
                    Ok(())
                };
                ct.tasks(2, task).await.map(drop)
            });
            let found = match run {
                Ok(_) => None,
                Err(Error::Simulation(found)) => Some(found.finding),
                Err(error) => panic!("seed {seed}: {error}"),
            };
            assert_eq!(found, expected, "seed {seed}, unlinks first: {unlinks_first}");
        }
    }
}

#[test]
fn correct_programs_are_not_reported() {
    let seeds = 0..if cfg!(debug_assertions) { 100 } else { 4000 };
    for layout in ["", ",threads-per-node=2", ",threads-per-node=3"] {
        for options in
            ["", ",reuse=at-once", ",reuse=never", ",stall=20%,jitter=90%", ",crash=2%,cut=0.5%,leaks=ignore"]
        {
            let all = format!("{layout}{options}");
            if options.contains("cut") {
                assert_no_finding_with_faults(&all, seeds.clone());
            } else {
                assert_eq!(first_found(&all, seeds.clone(), Pop::Right), None, "{all}");
            }
        }
    }
}

/// Checks that no seed has a finding, with faults that make operations fail.
fn assert_no_finding_with_faults(options: &str, seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let cluster = Cluster::connect(&format!("sim:seed={seed},limit=1s{options}")).unwrap();
        match cluster.run_surviving(3, async |ct| misuse(ct, Pop::Right).await) {
            Ok(_) | Err(Error::NodeUnreachable(_)) => {}
            Err(error) => panic!("seed {seed}{options}: {error}"),
        }
    }
}

/// Returns the addresses that a thread gets when it repeatedly allocates an object of one size and frees it.
fn addresses(options: &str) -> Vec<Address> {
    let cluster = Cluster::connect(&format!("sim:{options}")).unwrap();
    let run = cluster.run(1, async |ct| {
        let mut addresses = Vec::new();
        for value in 0..20 {
            let item = Item::new_in(ct, Item::init(value)).await?.write(ct).await?;
            addresses.push(item.address());
            let g = &ct.pin();
            g.sched_reclaim(item.shared(g)).await?;
        }
        Ok(addresses)
    });
    run.unwrap().remove(0)
}

fn distinct(addresses: &[Address]) -> usize {
    addresses.iter().collect::<std::collections::HashSet<_>>().len()
}

#[test]
fn freed_blocks_are_reused_immediately_or_never() {
    assert_eq!(distinct(&addresses("reuse=at-once")), 1, "the block that was freed last is reused first");
    assert_eq!(distinct(&addresses("reuse=never")), 20);
    assert_eq!(distinct(&addresses("reclaim=lazy")), 20, "no object is freed so soon");
    let at_once = |seed: &u64| distinct(&addresses(&format!("seed={seed}"))) == 1;
    let drawn = (0..40).filter(at_once).count();
    assert!((10..30).contains(&drawn), "{drawn} of 40 seeds reuse blocks");
}

/// In memory for a few objects, quarantined blocks are reused before an allocation fails.
#[test]
fn quarantined_blocks_are_reused_when_memory_is_short() {
    for threads in [1, 3] {
        let cluster = Cluster::connect("sim:size=40KiB,reuse=never,threads-per-node=2").unwrap();
        let run = cluster.run(threads, async |ct| {
            for _ in 0..600 {
                let long = Long::new_in(ct, Long::init([0; 16])).await?.write(ct).await?;
                let g = &ct.pin();
                g.sched_reclaim(long.shared(g)).await?;
            }
            Ok(())
        });
        run.unwrap_or_else(|error| panic!("{threads} threads: {error}"));
    }
}

#[remote]
struct Long {
    words: [u64; 16],
}

#[test]
fn a_seed_determines_the_trace_under_each_policy_of_reuse() {
    let hash = |url: &str| {
        let cluster = Cluster::connect(url).unwrap();
        cluster.run(3, async |ct| use_stack(ct, Pop::Right).await).unwrap();
        cluster.simulation().unwrap().trace_hash()
    };
    for options in ["", ",reuse=at-once", ",reuse=never", ",threads-per-node=2", ",reclaim=lazy"] {
        for seed in 0..20 {
            let url = format!("sim:seed={seed}{options}");
            assert_eq!(hash(&url), hash(&url), "{url}");
        }
    }
}

/// Objects under a guard are not freed while other threads retire and reclaim.
#[test]
fn a_guard_protects_objects_reachable_under_it() {
    for layout in [1, 2] {
        let cluster = Cluster::connect(&format!("sim:threads-per-node={layout}")).unwrap();
        let run = cluster.run(2, async |ct| {
            let stack = stack(ct).await?;
            ct.barrier("there").await?;
            if ct.index() == 1 {
                let g = &ct.pin();
                let item = stack.top().load(g).await?;
                ct.barrier("seen").await?;
                ct.sleep(Duration::from_micros(500)).await;
                item.value().read(g).await?;
                let stands = ct.reclamation().await?;
                return Ok(stands.epoch);
            }
            ct.barrier("seen").await?;
            for _ in 0..20 {
                replace(stack, Pop::Right, ct).await?;
                ct.try_reclaim().await;
            }
            ct.sleep(Duration::from_millis(1)).await;
            Ok(ct.reclamation().await?.epoch)
        });
        let epochs = run.unwrap();
        assert!(
            epochs[0] >= epochs[1] + 2,
            "{layout}: {epochs:?}: all grace periods end after the guard is dropped"
        );
    }
}

/// The guard of a dead thread holds nothing back once the thread is evicted.
#[test]
fn a_dead_threads_guard_holds_nothing_back() {
    for layout in [1, 2] {
        let cluster = Cluster::connect(&format!("sim:threads-per-node={layout},leaks=ignore")).unwrap();
        let simulation = cluster.simulation().unwrap();
        let run = cluster.run_surviving(4, async |ct| {
            let stack = stack(ct).await?;
            ct.barrier("there").await?;
            if ct.index() == 3 {
                let _g = ct.pin();
                simulation.inject(Fault::crash(ct.index() / layout));
                return std::future::pending().await;
            }
            if ct.index() > 0 {
                return Ok(true);
            }
            ct.sleep(Duration::from_micros(50)).await;
            let before = ct.reclamation().await?.epoch;
            for _ in 0..4 {
                replace(stack, Pop::Right, ct).await?;
            }
            Ok(ct.reclamation().await?.epoch >= before + 4)
        });
        assert_eq!(run.unwrap()[0], Some(true), "{layout}");
    }
}

#[test]
fn a_planted_early_reclamation_is_found_within_twenty_seeds() {
    let found = (0..20).find_map(|seed| {
        let cluster = Cluster::connect(&format!("sim:seed={seed},plant=early-reclamation")).unwrap();
        cluster.run(3, async |ct| use_register(ct, Pop::Right).await).err()
    });
    let error = found.expect("a use of memory that was freed too early").to_string();
    assert!(error.starts_with("use after free") || error.contains("use after free"), "{error}");
}

/// The slots of all processes are read by some steps only, or their READs would take the time of the node that has them. The epoch advances all the same.
#[test]
fn processes_of_a_large_cluster_reclaim_and_seldom_read_all_slots() {
    const PROCESSES: u64 = 48;
    const ROUNDS: u64 = 12_288;
    let url = "sim:seed=1,reclaim=lazy,threads-per-node=1,rtt=2us,compute=0";
    let all = Cluster::connect(url)
        .unwrap()
        .run(PROCESSES as usize, async |ct| {
            let item = Item::new_in(ct, Item::init(7)).await?.write(ct).await?;
            ct.barrier("begin").await?;
            let before = ct.metrics();
            for _ in 0..ROUNDS {
                let g = &ct.pin();
                item.value().read(g).await?;
                if ct.index() == 0 {
                    let old = Item::new_in(ct, Item::init(8)).await?.write(ct).await?;
                    g.sched_reclaim(old.shared(g)).await?;
                }
            }
            let spent = ct.metrics() - before;
            ct.barrier("end").await?;
            ct.delete(item).await?;
            Ok((spent.read_bytes - spent.reads.min(ROUNDS) * 8, spent.retired, spent.reclaimed))
        })
        .unwrap();
    let (_, retired, reclaimed) = all[0];
    assert_eq!(retired, ROUNDS);
    assert!(reclaimed > ROUNDS / 2, "{reclaimed} of {retired} are freed while others read");
    // Each thread takes a step for 1,024 chains: twelve, of which every third reads all slots.
    let bytes: u64 = all[1..].iter().map(|(bytes, ..)| bytes).sum();
    let scans = bytes / (PROCESSES * 8);
    assert!((PROCESSES * 3..PROCESSES * 6).contains(&scans), "as many bytes as {scans} scans have");
}
