//! The Interlocked Hash Table: what it returns, how it grows, what its iterators promise, what it costs, and what clients that end anywhere leave.

use std::collections::{BTreeMap, BTreeSet};

use farfield::prelude::*;
use farfield::sim::Fault;
use farfield_collections::{HashMapRoot, InterlockedHashTable, InterlockedHashTableRoot, InterlockedIter};

use crate::clusters::{EXACT, affordable, everywhere};
use crate::polled::polled;

/// The bits of hashes that a table has whose lists become pointer lists early.
const FEW_SLOTS: u64 = 31;

#[test]
fn it_returns_what_a_map_of_the_standard_library_returns() {
    everywhere(1, async |ct| {
        let root = InterlockedHashTable::<u64, u64>::create(ct).await?;
        let table = InterlockedHashTable::attach(root, ct).await?;
        let mut model = BTreeMap::new();
        for step in 0..6000_u64 {
            let key = ct.random_range(0..700_u64);
            match ct.random_range(0..9) {
                0 => assert_eq!(table.get(&key, ct).await?, model.get(&key).copied()),
                1 | 2 => {
                    assert_eq!(table.insert(&key, &step, ct).await?, !model.contains_key(&key));
                    model.entry(key).or_insert(step);
                }
                3 => {
                    table.upsert(&key, &step, ct).await?;
                    model.insert(key, step);
                }
                4 => {
                    assert_eq!(table.update(&key, &step, ct).await?, model.contains_key(&key));
                    model.entry(key).and_modify(|value| *value = step);
                }
                5 => {
                    let expected = ct.random_range(step.saturating_sub(500)..=step);
                    let expected = model.get(&key).copied().filter(|_| ct.random()).unwrap_or(expected);
                    let changed = table.compare_and_update(&key, &expected, &step, ct).await?;
                    assert_eq!(changed, model.get(&key) == Some(&expected));
                    if changed {
                        model.insert(key, step);
                    }
                }
                6 => assert_eq!(table.remove(&key, ct).await?, model.remove(&key).is_some()),
                7 => assert_eq!(table.take(&key, ct).await?, model.remove(&key)),
                _ => {
                    let f = |old: Option<u64>| {
                        if old.is_some_and(|old| old % 3 == 0) { None } else { Some(step) }
                    };
                    assert_eq!(table.modify(&key, f, ct).await?, model.get(&key).copied());
                    match f(model.get(&key).copied()) {
                        Some(new) => drop(model.insert(key, new)),
                        None => drop(model.remove(&key)),
                    }
                }
            }
        }
        assert_eq!(table.len(ct).await?, model.len() as u64);
        assert_eq!(table.check(ct).await?, model.len() as u64);
        let (mut iter, mut all) = (table.iter(ct), BTreeMap::new());
        while let Some((key, value)) = iter.next().await? {
            assert_eq!(all.insert(key, value), None, "a key came twice");
        }
        assert_eq!(all, model);
        table.destroy(ct).await
    });
}

#[test]
fn it_grows_from_empty_to_many_lists() {
    everywhere(1, async |ct| {
        let keys = affordable(20_000, ct);
        let root = InterlockedHashTable::<u64, u64>::create(ct).await?;
        let table = InterlockedHashTable::attach(root, ct).await?;
        let other = InterlockedHashTable::attach(root, ct).await?;
        for key in 0..keys {
            assert!(table.insert(&key, &(key * 3), ct).await?);
            if key % 7 == 0 {
                assert_eq!(other.get(&(key / 2), ct).await?, Some(key / 2 * 3));
            }
        }
        assert_eq!(table.check(ct).await?, keys);
        let fresh = InterlockedHashTable::attach(root, ct).await?;
        for key in 0..keys {
            assert_eq!(fresh.get(&key, ct).await?, Some(key * 3));
            assert_eq!(other.get(&key, ct).await?, Some(key * 3));
        }
        let growths = table.counters().growths;
        assert!(growths >= if keys > 10_000 { 1000 } else { 1 }, "{growths} of {keys} keys");
        for key in 0..keys {
            assert!(fresh.remove(&key, ct).await?);
        }
        assert!(table.is_empty(ct).await?);
        table.destroy(ct).await
    });
}

#[test]
fn threads_insert_update_and_remove_while_it_grows() {
    everywhere(4, async |ct| {
        let keys = affordable(3000, ct);
        let root =
            ct.root_or_init("table", async || InterlockedHashTable::<u64, u64>::create(ct).await).await?;
        let table = InterlockedHashTable::attach(root, ct).await?;
        let (me, threads) = (ct.index() as u64, ct.threads() as u64);
        // Each key is inserted by one of them.
        let mut inserted = 0_u64;
        for key in 0..keys {
            inserted += u64::from(table.insert(&(key * 7 % keys), &me, ct).await?);
        }
        let total = ct
            .root_or_init("total", async || Total::new_in(ct, Total::init()).await?.write(ct).await)
            .await?;
        total.sum().fetch_add(ct, inserted).await?;
        ct.barrier("inserted").await?;
        assert_eq!(total.sum().load(ct).await?, keys);
        assert_eq!(table.len(ct).await?, keys);
        // Increments are not lost.
        for key in 0..50 {
            table.modify(&key, |old| old.map(|old| old + 100), ct).await?;
        }
        ct.barrier("incremented").await?;
        for key in 0..50 {
            assert_eq!(table.get(&key, ct).await?.map(|value| value / 100), Some(threads));
        }
        ct.barrier("seen").await?;
        // The last update of a key is that of some thread.
        for round in 0..20 {
            assert!(table.update(&7, &(me * 1000 + round), ct).await?);
        }
        ct.barrier("updated").await?;
        assert_eq!(table.get(&7, ct).await?.map(|value| value % 1000), Some(19));
        ct.barrier("seen too").await?;
        let mut removed = 0;
        for key in 0..keys {
            removed += u64::from(table.remove(&key, ct).await?);
        }
        total.sum().fetch_sub(ct, removed).await?;
        ct.barrier("removed").await?;
        if me == 0 {
            assert_eq!(total.sum().load(ct).await?, 0);
            assert_eq!(table.check(ct).await?, 0);
            ct.delete(total).await?;
            return table.destroy(ct).await;
        }
        Ok(())
    });
}

#[remote]
struct Total {
    sum: Atomic<u64>,
}

#[farfield::test]
async fn a_table_of_other_types_is_refused(ct: &ComputeThread) -> Result<()> {
    let root = InterlockedHashTable::<u64, u64>::create(ct).await?;
    ct.publish("table", root).await?;
    let found = ct.lookup::<InterlockedHashTableRoot<u64, u32>>("table").await;
    let other = match found {
        Ok(root) => InterlockedHashTable::attach(root, ct).await.map(drop),
        Err(error) => Err(error),
    };
    let refused = other.unwrap_err().to_string();
    assert!(refused.contains("table"), "{refused}");
    let refused = ct.lookup::<HashMapRoot<u64, u64>>("table").await.unwrap_err().to_string();
    assert!(refused.contains("table"), "{refused}");
    let refused = InterlockedHashTable::<u64, u32>::attach(RemotePtr::from_address(root.address()), ct).await;
    let refused = refused.map(drop).unwrap_err().to_string();
    assert!(refused.contains("other types"), "{refused}");
    InterlockedHashTable::attach(root, ct).await?.destroy(ct).await
}

#[test]
fn a_cluster_whose_addresses_can_not_be_compressed_is_refused() {
    let cluster = Cluster::connect("local:segments=2049,size=64KiB").unwrap();
    let refused = cluster
        .run(1, async |ct| InterlockedHashTable::<u64, u64>::create(ct).await)
        .unwrap_err()
        .to_string();
    assert!(refused.contains("tagged or stamped link"), "{refused}");
}

/// Returns the number of round trips of some work, or `None` where time is real.
async fn round_trips<T>(ct: &ComputeThread, work: impl AsyncFnOnce() -> Result<T>) -> Result<Option<u128>> {
    let before = ct.now();
    work().await?;
    let rtt = ct.cluster().simulation().map(|simulation| simulation.rtt());
    Ok(rtt.map(|rtt| ct.now().saturating_sub(before).as_nanos() / rtt.as_nanos()))
}

#[test]
fn each_future_can_be_dropped_at_each_await() {
    for url in ["local:nodes=2,size=64MiB,delay=1", "sim:nodes=2,size=64MiB"] {
        let cluster = Cluster::connect(url).unwrap();
        let run = cluster.run(1, async |ct| {
            let root = InterlockedHashTable::<u64, u64>::create_masked(FEW_SLOTS, ct).await?;
            let table = InterlockedHashTable::attach(root, ct).await?;
            let has = async |key: u64, allowed: &[Option<u64>]| {
                let found = table.get(&key, ct).await?;
                assert!(allowed.contains(&found), "{key} has {found:?}, not one of {allowed:?}");
                Ok::<_, farfield::Error>(())
            };
            let mut key = 0;
            for polls in 1..60 {
                for _ in 0..25 {
                    key += 10;
                    table.insert(&(key + 1), &1, ct).await?;
                    let inserted = polled(polls, table.insert(&key, &1, ct)).await?;
                    has(key, if inserted.is_some() { &[Some(1)] } else { &[None, Some(1)] }).await?;
                    table.upsert(&key, &2, ct).await?;
                    let updated = polled(polls, table.update(&key, &3, ct)).await?;
                    has(key, if updated.is_some() { &[Some(3)] } else { &[Some(2), Some(3)] }).await?;
                    table.upsert(&key, &4, ct).await?;
                    polled(polls, table.compare_and_update(&key, &4, &5, ct)).await?;
                    has(key, &[Some(4), Some(5)]).await?;
                    table.upsert(&key, &6, ct).await?;
                    polled(polls, table.modify(&key, |old| old.map(|old| old + 1), ct)).await?;
                    has(key, &[Some(6), Some(7)]).await?;
                    polled(polls, table.get(&key, ct)).await?;
                    polled(polls, table.iter(ct).next()).await?;
                    polled(polls, table.upsert(&(key + 2), &8, ct)).await?;
                    has(key + 2, &[None, Some(8)]).await?;
                    polled(polls, table.take(&(key + 2), ct)).await?;
                    has(key + 2, &[None, Some(8)]).await?;
                    let removed = polled(polls, table.remove(&key, ct)).await?;
                    let left = if removed.is_some() { &[None][..] } else { &[None, Some(6), Some(7)] };
                    has(key, left).await?;
                }
                polled(polls, table.len(ct)).await?;
                polled(polls, table.recover(ct)).await?;
            }
            assert!(table.counters().growths >= 8, "{:?}", table.counters());
            table.recover(ct).await?;
            for old in (10..=key).step_by(10) {
                assert_eq!(table.get(&(old + 1), ct).await?, Some(1), "{old}");
            }
            assert!(table.check(ct).await? >= 59 * 25);
            table.destroy(ct).await
        });
        run.unwrap_or_else(|error| panic!("{url}: {error}"));
        let metrics = cluster.metrics();
        assert_eq!(metrics.allocated, metrics.freed, "{url}: objects are lost");
    }
}

#[test]
fn an_insertion_that_is_dropped_anywhere_in_a_growth_loses_nothing() {
    // Inserts keys up to one whose insertion is dropped after some polls. Returns the keys whose insertions replaced lists, and whether it was done.
    let inserted = |last: u64, polls: usize| {
        let cluster = Cluster::connect("sim:size=4MiB").unwrap();
        let run = cluster.run(1, async |ct| {
            let table = InterlockedHashTable::attach(
                InterlockedHashTable::<u64, u64>::create_masked(7, ct).await?,
                ct,
            )
            .await?;
            let mut growing = Vec::new();
            for key in 0..last {
                assert!(table.insert(&key, &key, ct).await?);
                if table.counters().growths > growing.len() as u64 {
                    growing.push(key);
                }
            }
            let done = polled(polls, table.insert(&last, &last, ct)).await?.is_some();
            let found = table.get(&last, ct).await?;
            assert!(found == Some(last) || found.is_none() && !done);
            assert_eq!(table.check(ct).await?, last + u64::from(found.is_some()));
            table.upsert(&last, &0, ct).await?;
            for key in 0..last {
                assert_eq!(table.get(&key, ct).await?, Some(key));
            }
            table.destroy(ct).await?;
            Ok((growing, done))
        });
        let run = run.unwrap_or_else(|error| panic!("key {last}, {polls} polls: {error}")).swap_remove(0);
        let metrics = cluster.metrics();
        assert_eq!(metrics.allocated, metrics.freed, "key {last}, {polls} polls: objects are lost");
        run
    };
    let (growing, _) = inserted(100, usize::MAX);
    for key in [growing[0], growing[3]] {
        let polls = (1..1000).find(|polls| inserted(key, *polls).1);
        assert!(polls.is_some_and(|polls| polls > 5), "{polls:?}");
    }
}

#[test]
fn without_memory_an_insertion_fails_and_the_table_stays_usable() {
    for url in ["local:size=512KiB", "local:size=512KiB,delay=3"] {
        let cluster = Cluster::connect(url).unwrap();
        let run = cluster.run(1, async |ct| {
            let root = InterlockedHashTable::<u64, u64>::create(ct).await?;
            let table = InterlockedHashTable::attach(root, ct).await?;
            let mut keys = 0;
            let error = loop {
                match table.insert(&keys, &keys, ct).await {
                    Ok(inserted) => assert!(inserted),
                    Err(error) => break error,
                }
                keys += 1;
                assert!(keys < 100_000, "the memory never ends");
            };
            assert!(matches!(error, farfield::Error::OutOfMemory { .. }), "{error}");
            assert!(keys > 1000 && table.counters().growths > 0, "{keys}, {:?}", table.counters());
            assert_eq!(table.check(ct).await?, keys);
            for key in 0..keys {
                assert!(table.update(&key, &(key + 1), ct).await?);
                assert_eq!(table.get(&key, ct).await?, Some(key + 1));
            }
            assert!(table.remove(&0, ct).await?);
            assert!(table.insert(&0, &0, ct).await?);
            table.destroy(ct).await
        });
        run.unwrap_or_else(|error| panic!("{url}: {error}"));
    }
}

#[test]
fn a_value_is_never_that_of_another_key() {
    const KEYS: u64 = 8;
    // All keys have one list, and removed ones leave their slots to others. Only system threads are interrupted for long in the middle of a chain.
    let simulated = (0..20).map(|seed| (format!("sim:seed={seed},nodes=1,size=16MiB"), 150));
    for (url, rounds) in simulated.chain([("local:size=16MiB".into(), 50_000)]) {
        let cluster = Cluster::connect(&url).unwrap();
        let run = cluster.run(4, async |ct| {
            let create = async || InterlockedHashTable::<u64, u64>::create_masked(0, ct).await;
            let table = InterlockedHashTable::attach(ct.root_or_init("table", create).await?, ct).await?;
            for round in 0..rounds {
                let key = ct.random_range(0..KEYS);
                let value = round * KEYS + key;
                match ct.random_range(0..8) {
                    0 | 1 if ct.index() < 2 => drop(table.insert(&key, &value, ct).await?),
                    2 | 3 if ct.index() < 2 => drop(table.remove(&key, ct).await?),
                    4 if ct.index() < 2 => drop(table.update(&key, &value, ct).await?),
                    5 => {
                        let mut iter = table.iter(ct);
                        while let Some((key, value)) = iter.next().await? {
                            assert_eq!(value % KEYS, key);
                        }
                    }
                    _ => {
                        let found = table.get(&key, ct).await?;
                        assert!(found.is_none_or(|value| value % KEYS == key), "{key}: {found:?}");
                    }
                }
            }
            ct.barrier("done").await?;
            let retries = table.counters().retries;
            if ct.index() == 0 {
                table.check(ct).await?;
                table.destroy(ct).await?;
            }
            Ok(retries)
        });
        let retries = run.unwrap_or_else(|error| panic!("{url}: {error}"));
        let retries: u64 = retries.iter().sum();
        assert!(retries > 0 || !url.starts_with("sim"), "{url}: no READ met a change");
    }
}

#[test]
fn a_client_that_dies_anywhere_leaves_a_table_that_others_use() {
    const KEYS: u64 = 400;
    let mut prefixes = Vec::new();
    for chains in (0..400).step_by(23) {
        // Tables that it had not linked yet are left to a sweep.
        let cluster = Cluster::connect("sim:nodes=2,size=64MiB,leaks=ignore").unwrap();
        let simulation = cluster.simulation().unwrap();
        simulation.inject(Fault::crash(1).after_chains(chains));
        let run = cluster.run_surviving(3, async |ct| {
            let root = ct
                .root_or_init("table", async || {
                    InterlockedHashTable::<u64, u64>::create_masked(FEW_SLOTS, ct).await
                })
                .await?;
            let table = InterlockedHashTable::attach(root, ct).await?;
            let me = ct.index() as u64;
            for key in 0..KEYS {
                assert!(table.insert(&(key * 3 + me), &me, ct).await?);
                if key % 3 == 2 {
                    assert!(table.update(&((key - 2) * 3 + me), &(me + 10), ct).await?);
                    assert!(table.remove(&((key - 1) * 3 + me), ct).await?);
                }
            }
            Ok(())
        });
        let run = run.unwrap_or_else(|error| panic!("after {chains} chains: {error}"));
        assert!(run[0].is_some() && run[1].is_none() && run[2].is_some());
        let prefix = cluster.run(1, async |ct| {
            let table = InterlockedHashTable::attach(
                ct.lookup::<InterlockedHashTableRoot<u64, u64>>("table").await?,
                ct,
            )
            .await?;
            table.recover(ct).await?;
            let len = table.check(ct).await?;
            // What a finished insertion has put there, it is.
            for me in [0, 2] {
                for key in 0..KEYS {
                    let expected = match key % 3 {
                        0 if key + 2 < KEYS => Some(me + 10),
                        1 if key + 1 < KEYS => None,
                        _ => Some(me),
                    };
                    assert_eq!(table.get(&(key * 3 + me), ct).await?, expected);
                }
            }
            let mut prefix = 0;
            while table.contains(&(prefix * 9 + 1), ct).await? {
                prefix += 1;
            }
            for key in 3 * prefix..KEYS {
                assert_eq!(table.get(&(key * 3 + 1), ct).await?, None);
            }
            assert_eq!(table.len(ct).await?, len);
            table.destroy(ct).await?;
            Ok(prefix)
        });
        prefixes.extend(prefix.unwrap_or_else(|error| panic!("after {chains} chains: {error}")));
    }
    assert!(prefixes.iter().any(|prefix| *prefix > 20) && prefixes.contains(&0), "{prefixes:?}");
}

#[test]
fn more_keys_of_equal_hashes_than_a_list_holds_are_an_error_and_the_table_stays_usable() {
    everywhere(1, async |ct| {
        let root = InterlockedHashTable::<u64, u64>::create_masked(0, ct).await?;
        let table = InterlockedHashTable::attach(root, ct).await?;
        for key in 0..8 {
            assert!(table.insert(&key, &key, ct).await?);
        }
        for _ in 0..2 {
            let refused = table.insert(&8, &0, ct).await.unwrap_err().to_string();
            assert!(refused.contains("more than 8 keys"), "{refused}");
            assert_eq!(table.get(&8, ct).await?, None);
        }
        assert!(table.remove(&3, ct).await?);
        assert!(table.insert(&8, &8, ct).await?);
        assert!(!table.insert(&8, &0, ct).await?);
        assert_eq!((table.get(&7, ct).await?, table.get(&3, ct).await?), (Some(7), None));
        assert_eq!(table.check(ct).await?, 8);
        table.destroy(ct).await
    });
}

/// Returns all keys of an iteration, each of which must come once.
async fn keys(mut iter: InterlockedIter<'_, u64, u64>) -> Result<BTreeSet<u64>> {
    let mut keys = BTreeSet::new();
    while let Some((key, _)) = iter.next().await? {
        assert!(keys.insert(key), "{key} came twice");
    }
    Ok(keys)
}

#[test]
fn an_iteration_begins_at_any_slot_and_has_each_key_once() {
    everywhere(1, async |ct| {
        for mask in [u64::MAX, FEW_SLOTS] {
            let root = InterlockedHashTable::<u64, u64>::create_masked(mask, ct).await?;
            let table = InterlockedHashTable::attach(root, ct).await?;
            for key in 0..1000 {
                table.insert(&key, &key, ct).await?;
            }
            let mut first = BTreeSet::new();
            for slot in [0, 1, 2, 511, 1023, 1024, u64::MAX] {
                let mut iter = table.iter_from(slot, ct);
                first.extend(iter.next().await?);
                assert_eq!(keys(table.iter_from(slot, ct)).await?, (0..1000).collect());
            }
            assert!(first.len() > 1, "all begin with {first:?}");
            table.destroy(ct).await?;
        }
        Ok(())
    });
}

#[test]
fn the_threads_of_a_run_together_iterate_over_each_key_once() {
    for threads in [1, 3, 4] {
        everywhere(threads, async |ct| {
            let create = async || InterlockedHashTable::<u64, u64>::create_masked(127, ct).await;
            let table = InterlockedHashTable::attach(ct.root_or_init("table", create).await?, ct).await?;
            let total = async || Total::new_in(ct, Total::init()).await?.write(ct).await;
            let total = ct.root_or_init("total", total).await?;
            let mine = (0..1500).filter(|key| key % ct.threads() as u64 == ct.index() as u64);
            for key in mine {
                table.insert(&key, &key, ct).await?;
            }
            ct.barrier("inserted").await?;
            // If no key comes twice to anybody, number and sum tell that each comes.
            let share = keys(table.share(ct)).await?;
            total.sum().fetch_add(ct, share.iter().map(|key| (1 << 32) + key).sum()).await?;
            ct.barrier("iterated").await?;
            assert_eq!(total.sum().load(ct).await?, (1500 << 32) + 1500 * 1499 / 2);
            assert!(share.len() < 1500 || ct.threads() == 1);
            ct.barrier("seen").await?;
            if ct.index() == 0 {
                ct.delete(total).await?;
                table.destroy(ct).await?;
            }
            Ok(())
        });
    }
}

#[test]
fn keys_that_stay_come_once_and_others_at_most_once_while_lists_become_pointer_lists() {
    const STAY: u64 = 400;
    let iterated = |url: &str| {
        let run = Cluster::connect(url).unwrap().run(4, async |ct| {
            let create = async || InterlockedHashTable::<u64, u64>::create_masked(63, ct).await;
            let table = InterlockedHashTable::attach(ct.root_or_init("table", create).await?, ct).await?;
            if ct.index() == 0 {
                for key in 0..STAY {
                    table.insert(&key, &key, ct).await?;
                }
            }
            ct.barrier("begun").await?;
            let before = table.counters();
            for round in 0..if ct.index() < 2 { 600 } else { 12 } {
                if ct.index() < 2 {
                    let key = STAY + ct.random_range(0..STAY);
                    if ct.random() {
                        table.insert(&key, &round, ct).await?
                    } else {
                        table.remove(&key, ct).await?
                    };
                    continue;
                }
                let found = keys(table.iter(ct)).await?;
                assert!((0..STAY).all(|key| found.contains(&key)), "round {round}");
            }
            ct.barrier("iterated").await?;
            if ct.index() == 0 {
                table.check(ct).await?;
            }
            ct.barrier("checked").await?;
            let counters = table.counters();
            if ct.index() == 0 {
                table.destroy(ct).await?;
            }
            Ok((counters.growths - before.growths, counters.retries))
        });
        run.unwrap_or_else(|error| panic!("{url}: {error}"))
    };
    let mut growths = 0;
    for seed in 0..12 {
        growths +=
            iterated(&format!("sim:seed={seed},nodes=2,size=64MiB")).iter().map(|of| of.0).sum::<u64>();
    }
    assert!(growths > 100, "{growths} lists became pointer lists meanwhile");
    iterated("local:nodes=2,size=64MiB");
}

#[test]
fn operations_take_the_round_trips_of_the_table() {
    let done = Cluster::connect(EXACT).unwrap().run(1, async |ct| {
        let root = InterlockedHashTable::<u64, u64>::create(ct).await?;
        let filler = InterlockedHashTable::attach(root, ct).await?;
        // All lists of the root become pointer lists, and some below.
        for key in 0..20_000_u64 {
            filler.insert(&key, &key, ct).await?;
        }
        let fresh = async || InterlockedHashTable::attach(root, ct).await;
        let trips = async |work: Work<'_>| {
            Ok::<_, farfield::Error>(round_trips(ct, async || work.await).await?.expect("it is simulated"))
        };
        // Keys of which D is 2, which have lists.
        let mut keys = Vec::new();
        for key in 0..100 {
            let table = fresh().await?;
            if trips(Box::pin(async { table.get(&key, ct).await.map(drop) })).await? == 3 {
                keys.push(key);
            }
        }
        assert!(keys.len() > 90, "{} of 100", keys.len());
        let mut absent = Vec::new();
        for key in 1_000_000.. {
            let table = fresh().await?;
            if trips(Box::pin(async { table.get(&key, ct).await.map(drop) })).await? == 3 {
                absent.push(key);
            }
            if absent.len() == 3 {
                break;
            }
        }
        let (mut keys, mut absent) = (keys.into_iter(), absent.into_iter());
        let mut rows = Vec::new();
        for state in ["cold", "warm", "warm without element lists"] {
            let mut found = Vec::new();
            for operation in ["get", "insert", "update", "remove"] {
                let key = if operation == "insert" { absent.next() } else { keys.next() }.unwrap();
                let mut table = fresh().await?;
                if state == "warm" {
                    table.get(&key, ct).await?;
                } else if state != "cold" {
                    // Of one place each: the pointer list's, which the element list's does not replace.
                    table = table.with_cache(32);
                    table.get(&key, ct).await?;
                }
                let table = &table;
                let took = trips(match operation {
                    "get" => Box::pin(async {
                        table.get(&key, ct).await.map(|value| assert_eq!(value, Some(key)))
                    }),
                    "insert" => {
                        Box::pin(async { table.insert(&key, &1, ct).await.map(|inserted| assert!(inserted)) })
                    }
                    "update" => {
                        Box::pin(async { table.update(&key, &1, ct).await.map(|updated| assert!(updated)) })
                    }
                    _ => Box::pin(async { table.remove(&key, ct).await.map(|removed| assert!(removed)) }),
                });
                found.push(took.await?);
            }
            rows.push(found);
        }
        assert_eq!(rows, [[3, 4, 4, 4], [1, 2, 2, 2], [2, 3, 3, 3]]);
        // All lists are the root's.
        let small = InterlockedHashTable::<u64, u64>::create(ct).await?;
        let filler_of_small = InterlockedHashTable::attach(small, ct).await?;
        for key in 0..1000 {
            filler_of_small.insert(&key, &key, ct).await?;
        }
        assert_eq!(filler_of_small.counters().growths, 0);
        let table = InterlockedHashTable::attach(small, ct).await?;
        let mut scans = Vec::new();
        for _ in 0..2 {
            scans.push(
                trips(Box::pin(async { keys_of(&table, ct).await.map(|keys| assert_eq!(keys, 1000)) }))
                    .await?,
            );
        }
        assert_eq!(scans, [2, 2]);
        for (number, state) in ["cold", "warm"].into_iter().enumerate() {
            for (operation, trips) in ["get", "insert", "update", "remove"].iter().zip(&rows[number]) {
                println!("rtts.interlocked.{operation}.{state} {trips}");
            }
            println!("rtts.interlocked.scan.{state} {}", scans[number]);
        }
        filler.destroy(ct).await?;
        filler_of_small.destroy(ct).await
    });
    done.unwrap();
}

/// An operation whose round trips are counted.
type Work<'a> = std::pin::Pin<Box<dyn Future<Output = Result<()>> + 'a>>;

/// Returns the number of keys of an iteration.
async fn keys_of(table: &InterlockedHashTable<u64, u64>, ct: &ComputeThread) -> Result<usize> {
    keys(table.iter(ct)).await.map(|keys| keys.len())
}
