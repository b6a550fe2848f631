//! The inline hash map: what it returns, how it grows, what it costs, and what clients that end anywhere leave.

use std::collections::BTreeMap;

use farfield::prelude::*;
use farfield::sim::Fault;
use farfield_collections::{HashMapRoot, InlineHashMap, InlineHashMapRoot};

use crate::clusters::{EXACT, affordable, everywhere};
use crate::polled::polled;

#[test]
fn it_returns_what_a_map_of_the_standard_library_returns() {
    everywhere(1, async |ct| {
        let root = InlineHashMap::<u64, u64>::create(ct).await?;
        let map = InlineHashMap::attach(root, ct).await?;
        let mut model = BTreeMap::new();
        for step in 0..6000_u64 {
            let key = ct.random_range(0..700_u64);
            match ct.random_range(0..9) {
                0 => assert_eq!(map.get(&key, ct).await?, model.get(&key).copied()),
                1 | 2 => {
                    assert_eq!(map.insert(&key, &step, ct).await?, !model.contains_key(&key));
                    model.entry(key).or_insert(step);
                }
                3 => {
                    map.upsert(&key, &step, ct).await?;
                    model.insert(key, step);
                }
                4 => {
                    assert_eq!(map.update(&key, &step, ct).await?, model.contains_key(&key));
                    model.entry(key).and_modify(|value| *value = step);
                }
                5 => {
                    let expected = ct.random_range(step.saturating_sub(500)..=step);
                    let expected = model.get(&key).copied().filter(|_| ct.random()).unwrap_or(expected);
                    let changed = map.compare_and_update(&key, &expected, &step, ct).await?;
                    assert_eq!(changed, model.get(&key) == Some(&expected));
                    if changed {
                        model.insert(key, step);
                    }
                }
                6 => assert_eq!(map.remove(&key, ct).await?, model.remove(&key).is_some()),
                7 => assert_eq!(map.take(&key, ct).await?, model.remove(&key)),
                _ => {
                    let f = |old: Option<u64>| {
                        if old.is_some_and(|old| old % 3 == 0) { None } else { Some(step) }
                    };
                    assert_eq!(map.modify(&key, f, ct).await?, model.get(&key).copied());
                    match f(model.get(&key).copied()) {
                        Some(new) => drop(model.insert(key, new)),
                        None => drop(model.remove(&key)),
                    }
                }
            }
        }
        assert_eq!(map.len(ct).await?, model.len() as u64);
        assert_eq!(map.check(ct).await?, model.len() as u64);
        let (mut iter, mut all) = (map.iter(ct), BTreeMap::new());
        while let Some((key, value)) = iter.next().await? {
            assert_eq!(all.insert(key, value), None, "a key came twice");
        }
        assert_eq!(all, model);
        map.destroy(ct).await
    });
}

#[test]
fn it_grows_from_empty_to_many_tables() {
    everywhere(1, async |ct| {
        let keys = affordable(20_000, ct);
        let root = InlineHashMap::<u64, u64>::create(ct).await?;
        let map = InlineHashMap::attach(root, ct).await?;
        let other = InlineHashMap::attach(root, ct).await?;
        for key in 0..keys {
            assert!(map.insert(&key, &(key * 3), ct).await?);
            if key % 7 == 0 {
                assert_eq!(other.get(&(key / 2), ct).await?, Some(key / 2 * 3));
            }
        }
        assert_eq!(map.check(ct).await?, keys);
        let fresh = InlineHashMap::attach(root, ct).await?;
        for key in 0..keys {
            assert_eq!(fresh.get(&key, ct).await?, Some(key * 3));
            assert_eq!(other.get(&key, ct).await?, Some(key * 3));
        }
        assert!(map.counters().growths > keys / 200, "{:?}", map.counters());
        for key in 0..keys {
            assert!(fresh.remove(&key, ct).await?);
        }
        assert!(map.is_empty(ct).await?);
        map.destroy(ct).await
    });
}

#[test]
fn threads_insert_update_and_remove_while_it_grows() {
    everywhere(4, async |ct| {
        let keys = affordable(3000, ct);
        let root = ct.root_or_init("map", async || InlineHashMap::<u64, u64>::create(ct).await).await?;
        let map = InlineHashMap::attach(root, ct).await?;
        let (me, threads) = (ct.index() as u64, ct.threads() as u64);
        // Each key is inserted by one of them.
        let mut inserted = 0_u64;
        for key in 0..keys {
            inserted += u64::from(map.insert(&(key * 7 % keys), &me, ct).await?);
        }
        let total = ct
            .root_or_init("total", async || Total::new_in(ct, Total::init()).await?.write(ct).await)
            .await?;
        total.sum().fetch_add(ct, inserted).await?;
        ct.barrier("inserted").await?;
        assert_eq!(total.sum().load(ct).await?, keys);
        assert_eq!(map.len(ct).await?, keys);
        // Increments are not lost.
        for key in 0..50 {
            map.modify(&key, |old| old.map(|old| old + 100), ct).await?;
        }
        ct.barrier("incremented").await?;
        for key in 0..50 {
            assert_eq!(map.get(&key, ct).await?.map(|value| value / 100), Some(threads));
        }
        ct.barrier("seen").await?;
        // The last update of a key is that of some thread.
        for round in 0..20 {
            assert!(map.update(&7, &(me * 1000 + round), ct).await?);
        }
        ct.barrier("updated").await?;
        assert_eq!(map.get(&7, ct).await?.map(|value| value % 1000), Some(19));
        ct.barrier("seen too").await?;
        let mut removed = 0;
        for key in 0..keys {
            removed += u64::from(map.remove(&key, ct).await?);
        }
        total.sum().fetch_sub(ct, removed).await?;
        ct.barrier("removed").await?;
        if me == 0 {
            assert_eq!(total.sum().load(ct).await?, 0);
            assert_eq!(map.check(ct).await?, 0);
            ct.delete(total).await?;
            return map.destroy(ct).await;
        }
        Ok(())
    });
}

#[remote]
struct Total {
    sum: Atomic<u64>,
}

#[farfield::test]
async fn a_map_of_other_types_is_refused(ct: &ComputeThread) -> Result<()> {
    let root = InlineHashMap::<u64, u64>::create(ct).await?;
    ct.publish("map", root).await?;
    let found = ct.lookup::<InlineHashMapRoot<u64, u32>>("map").await;
    let other = match found {
        Ok(root) => InlineHashMap::attach(root, ct).await.map(drop),
        Err(error) => Err(error),
    };
    let refused = other.unwrap_err().to_string();
    assert!(refused.contains("map"), "{refused}");
    let refused = ct.lookup::<HashMapRoot<u64, u64>>("map").await.unwrap_err().to_string();
    assert!(refused.contains("map"), "{refused}");
    let refused = InlineHashMap::<u64, u32>::attach(RemotePtr::from_address(root.address()), ct).await;
    let refused = refused.map(drop).unwrap_err().to_string();
    assert!(refused.contains("other types"), "{refused}");
    InlineHashMap::attach(root, ct).await?.destroy(ct).await
}

#[test]
fn a_cluster_whose_addresses_can_not_be_compressed_is_refused() {
    let cluster = Cluster::connect("local:segments=2049,size=64KiB").unwrap();
    let refused =
        cluster.run(1, async |ct| InlineHashMap::<u64, u64>::create(ct).await).unwrap_err().to_string();
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
fn operations_take_the_round_trips_of_the_table() {
    Cluster::connect(EXACT)
        .unwrap()
        .run(1, async |ct| {
            let root = InlineHashMap::<u64, u64>::create(ct).await?;
            let filler = InlineHashMap::attach(root, ct).await?;
            for key in 0..5000_u64 {
                filler.insert(&key, &key, ct).await?;
            }
            let mut absent = 1_000_000..;
            let mut absent = || absent.next().unwrap_or_default();
            let mut rows = Vec::new();
            let mut key = 100_u64;
            for state in ["cold", "warm", "hot"] {
                let mut found = Vec::new();
                for operation in ["get", "insert", "update", "remove"] {
                    key += 17;
                    let new = absent();
                    let map = InlineHashMap::attach(root, ct).await?;
                    if state != "cold" {
                        // All paths of the directory.
                        for key in 0..5000_u64 {
                            map.contains(&key, ct).await?;
                        }
                    }
                    if state == "hot" {
                        map.get(&key, ct).await?;
                    }
                    let took = round_trips(ct, async || match operation {
                        "get" => map.get(&key, ct).await.map(|value| assert_eq!(value, Some(key))),
                        "insert" => map.insert(&new, &1, ct).await.map(|inserted| assert!(inserted)),
                        "update" => map.update(&key, &1, ct).await.map(|updated| assert!(updated)),
                        _ => map.remove(&key, ct).await.map(|removed| assert!(removed)),
                    });
                    found.extend(took.await?);
                }
                rows.push((state, found));
            }
            for (state, trips) in &rows {
                for (operation, trips) in ["get", "insert", "update", "remove"].iter().zip(trips) {
                    println!("rtts.hash-map-inline.{operation}.{state} {trips}");
                }
            }
            assert_eq!(
                rows,
                [("cold", vec![2, 3, 3, 3]), ("warm", vec![1, 2, 2, 2]), ("hot", vec![1, 2, 2, 2])]
            );
            filler.destroy(ct).await
        })
        .unwrap();
}

#[test]
fn each_future_can_be_dropped_at_each_await() {
    for url in ["local:nodes=2,size=64MiB,delay=1", "sim:nodes=2,size=64MiB"] {
        let cluster = Cluster::connect(url).unwrap();
        let run = cluster.run(1, async |ct| {
            let root = InlineHashMap::<u64, u64>::create(ct).await?;
            let map = InlineHashMap::attach(root, ct).await?;
            let has = async |key: u64, allowed: &[Option<u64>]| {
                let found = map.get(&key, ct).await?;
                assert!(allowed.contains(&found), "{key} has {found:?}, not one of {allowed:?}");
                Ok::<_, farfield::Error>(())
            };
            let mut key = 0;
            let mut dropped_growths = 0;
            for polls in 1..60 {
                for _ in 0..25 {
                    key += 10;
                    let growths = map.counters().growths;
                    map.insert(&(key + 1), &1, ct).await?;
                    let inserted = polled(polls, map.insert(&key, &1, ct)).await?;
                    has(key, if inserted.is_some() { &[Some(1)] } else { &[None, Some(1)] }).await?;
                    map.upsert(&key, &2, ct).await?;
                    dropped_growths += u64::from(inserted.is_none() && map.counters().growths > growths);
                    let updated = polled(polls, map.update(&key, &3, ct)).await?;
                    has(key, if updated.is_some() { &[Some(3)] } else { &[Some(2), Some(3)] }).await?;
                    map.upsert(&key, &4, ct).await?;
                    polled(polls, map.compare_and_update(&key, &4, &5, ct)).await?;
                    has(key, &[Some(4), Some(5)]).await?;
                    map.upsert(&key, &6, ct).await?;
                    polled(polls, map.modify(&key, |old| old.map(|old| old + 1), ct)).await?;
                    has(key, &[Some(6), Some(7)]).await?;
                    polled(polls, map.get(&key, ct)).await?;
                    polled(polls, map.iter(ct).next()).await?;
                    polled(polls, map.upsert(&(key + 2), &8, ct)).await?;
                    has(key + 2, &[None, Some(8)]).await?;
                    polled(polls, map.take(&(key + 2), ct)).await?;
                    has(key + 2, &[None, Some(8)]).await?;
                    let removed = polled(polls, map.remove(&key, ct)).await?;
                    let left = if removed.is_some() { &[None][..] } else { &[None, Some(6), Some(7)] };
                    has(key, left).await?;
                }
                polled(polls, map.len(ct)).await?;
                polled(polls, map.recover(ct)).await?;
            }
            assert!(dropped_growths > 0, "no insertion was dropped while it replaced a table");
            map.recover(ct).await?;
            for old in (10..=key).step_by(10) {
                assert_eq!(map.get(&(old + 1), ct).await?, Some(1), "{old}");
            }
            assert!(map.check(ct).await? >= 59 * 25);
            map.destroy(ct).await
        });
        run.unwrap_or_else(|error| panic!("{url}: {error}"));
        let metrics = cluster.metrics();
        assert_eq!(metrics.allocated, metrics.freed, "{url}: objects are lost");
    }
}

#[test]
fn an_insertion_that_is_dropped_anywhere_in_a_growth_loses_nothing() {
    // Inserts keys up to one whose insertion is dropped after some polls. Returns the keys whose insertions replaced tables, and whether it was done.
    let inserted = |last: u64, polls: usize| {
        let cluster = Cluster::connect("sim:size=16MiB").unwrap();
        let run = cluster.run(1, async |ct| {
            let map = InlineHashMap::attach(InlineHashMap::<u64, u64>::create(ct).await?, ct).await?;
            let mut growing = Vec::new();
            for key in 0..last {
                assert!(map.insert(&key, &key, ct).await?);
                if map.counters().growths > growing.len() as u64 {
                    growing.push(key);
                }
            }
            let done = polled(polls, map.insert(&last, &last, ct)).await?.is_some();
            let found = map.get(&last, ct).await?;
            assert!(found == Some(last) || found.is_none() && !done);
            assert_eq!(map.check(ct).await?, last + u64::from(found.is_some()));
            map.upsert(&last, &0, ct).await?;
            for key in 0..last {
                assert_eq!(map.get(&key, ct).await?, Some(key));
            }
            map.destroy(ct).await?;
            Ok((growing, done))
        });
        let run = run.unwrap_or_else(|error| panic!("key {last}, {polls} polls: {error}")).swap_remove(0);
        let metrics = cluster.metrics();
        assert_eq!(metrics.allocated, metrics.freed, "key {last}, {polls} polls: objects are lost");
        run
    };
    let (growing, _) = inserted(500, usize::MAX);
    // One bucket is replaced by three; a table of 15 by two.
    for key in [growing[0], growing[3]] {
        let polls = (1..1000).find(|polls| inserted(key, *polls).1);
        assert!(polls.is_some_and(|polls| polls > 8), "{polls:?}");
    }
}

#[test]
fn a_bucket_of_equal_hashes_is_an_error_and_the_map_stays_usable() {
    // Nothing of the hashes, what chooses the bucket, what chooses the table.
    for (mask, fits) in [(0, 15), (u64::from(u32::MAX) << 24, 300), ((1 << 24) - 1, 300)] {
        everywhere(1, async |ct| {
            let root = InlineHashMap::<u64, u64>::create_masked(mask, ct).await?;
            let map = InlineHashMap::attach(root, ct).await?;
            for key in 0..fits {
                assert!(map.insert(&key, &key, ct).await?);
            }
            if mask == 0 {
                let refused = map.insert(&fits, &0, ct).await.unwrap_err().to_string();
                assert!(refused.contains("more than 15 keys"), "{refused}");
                assert_eq!(map.get(&fits, ct).await?, None);
                assert!(map.remove(&3, ct).await?);
                assert!(map.insert(&fits, &fits, ct).await?);
                assert!(!map.insert(&fits, &0, ct).await?);
            }
            assert_eq!(map.get(&7, ct).await?, Some(7));
            assert_eq!(map.check(ct).await?, fits);
            map.destroy(ct).await
        });
    }
}

#[test]
fn without_memory_an_insertion_fails_and_the_map_stays_usable() {
    for url in ["local:size=256KiB", "local:size=256KiB,delay=3"] {
        let cluster = Cluster::connect(url).unwrap();
        let run = cluster.run(1, async |ct| {
            let root = InlineHashMap::<u64, u64>::create(ct).await?;
            let map = InlineHashMap::attach(root, ct).await?;
            let mut keys = 0;
            let error = loop {
                match map.insert(&keys, &keys, ct).await {
                    Ok(inserted) => assert!(inserted),
                    Err(error) => break error,
                }
                keys += 1;
                assert!(keys < 100_000, "the memory never ends");
            };
            assert!(matches!(error, farfield::Error::OutOfMemory { .. }), "{error}");
            assert!(keys > 1000, "{keys}");
            assert_eq!(map.check(ct).await?, keys);
            for key in 0..keys {
                assert!(map.update(&key, &(key + 1), ct).await?);
                assert_eq!(map.get(&key, ct).await?, Some(key + 1));
            }
            assert!(map.remove(&0, ct).await?);
            assert!(map.insert(&0, &0, ct).await?);
            map.destroy(ct).await
        });
        run.unwrap_or_else(|error| panic!("{url}: {error}"));
    }
}

#[test]
fn a_value_is_never_that_of_another_key() {
    const KEYS: u64 = 14;
    // All keys have one bucket, and removed ones leave their slots to others. Only system threads are interrupted for long in the middle of a chain.
    let simulated = (0..20).map(|seed| (format!("sim:seed={seed},nodes=1,size=16MiB"), 150));
    for (url, rounds) in simulated.chain([("local:size=16MiB".into(), 50_000)]) {
        let cluster = Cluster::connect(&url).unwrap();
        let run = cluster.run(4, async |ct| {
            let create = async || InlineHashMap::<u64, u64>::create_masked(0, ct).await;
            let map = InlineHashMap::attach(ct.root_or_init("map", create).await?, ct).await?;
            for round in 0..rounds {
                let key = ct.random_range(0..KEYS);
                let value = round * KEYS + key;
                match ct.random_range(0..8) {
                    0 | 1 if ct.index() < 2 => drop(map.insert(&key, &value, ct).await?),
                    2 | 3 if ct.index() < 2 => drop(map.remove(&key, ct).await?),
                    4 if ct.index() < 2 => drop(map.update(&key, &value, ct).await?),
                    5 => {
                        let mut iter = map.iter(ct);
                        while let Some((key, value)) = iter.next().await? {
                            assert_eq!(value % KEYS, key);
                        }
                    }
                    _ => {
                        let found = map.get(&key, ct).await?;
                        assert!(found.is_none_or(|value| value % KEYS == key), "{key}: {found:?}");
                    }
                }
            }
            ct.barrier("done").await?;
            let retries = map.counters().retries;
            if ct.index() == 0 {
                map.check(ct).await?;
                map.destroy(ct).await?;
            }
            Ok(retries)
        });
        let retries = run.unwrap_or_else(|error| panic!("{url}: {error}"));
        let retries: u64 = retries.iter().sum();
        assert!(retries > 0 || !url.starts_with("sim"), "{url}: no READ met a change");
    }
}

#[test]
fn a_client_that_dies_anywhere_leaves_a_map_that_others_use() {
    const KEYS: u64 = 400;
    let mut prefixes = Vec::new();
    for chains in (0..400).step_by(23) {
        // Tables that it had not linked yet are left to a sweep.
        let cluster = Cluster::connect("sim:nodes=2,size=64MiB,leaks=ignore").unwrap();
        let simulation = cluster.simulation().unwrap();
        simulation.inject(Fault::crash(1).after_chains(chains));
        let run = cluster.run_surviving(3, async |ct| {
            let root = ct.root_or_init("map", async || InlineHashMap::<u64, u64>::create(ct).await).await?;
            let map = InlineHashMap::attach(root, ct).await?;
            let me = ct.index() as u64;
            for key in 0..KEYS {
                assert!(map.insert(&(key * 3 + me), &me, ct).await?);
                if key % 3 == 2 {
                    assert!(map.update(&((key - 2) * 3 + me), &(me + 10), ct).await?);
                    assert!(map.remove(&((key - 1) * 3 + me), ct).await?);
                }
            }
            Ok(())
        });
        let run = run.unwrap_or_else(|error| panic!("after {chains} chains: {error}"));
        assert!(run[0].is_some() && run[1].is_none() && run[2].is_some());
        let prefix = cluster.run(1, async |ct| {
            let map =
                InlineHashMap::attach(ct.lookup::<InlineHashMapRoot<u64, u64>>("map").await?, ct).await?;
            map.recover(ct).await?;
            let len = map.check(ct).await?;
            // What a finished insertion has put there, it is.
            for me in [0, 2] {
                for key in 0..KEYS {
                    let expected = match key % 3 {
                        0 if key + 2 < KEYS => Some(me + 10),
                        1 if key + 1 < KEYS => None,
                        _ => Some(me),
                    };
                    assert_eq!(map.get(&(key * 3 + me), ct).await?, expected);
                }
            }
            let mut prefix = 0;
            while map.contains(&(prefix * 9 + 1), ct).await? {
                prefix += 1;
            }
            for key in 3 * prefix..KEYS {
                assert_eq!(map.get(&(key * 3 + 1), ct).await?, None);
            }
            assert_eq!(map.len(ct).await?, len);
            map.destroy(ct).await?;
            Ok(prefix)
        });
        prefixes.extend(prefix.unwrap_or_else(|error| panic!("after {chains} chains: {error}")));
    }
    assert!(prefixes.iter().any(|prefix| *prefix > 20) && prefixes.contains(&0), "{prefixes:?}");
}

/// Returns the number of READs of some work.
async fn reads<T>(ct: &ComputeThread, work: impl AsyncFnOnce() -> Result<T>) -> Result<u64> {
    let before = ct.metrics();
    work().await?;
    Ok((ct.metrics() - before).reads)
}

#[test]
fn the_first_get_of_a_table_in_an_epoch_reads_the_directory_and_the_others_do_not() {
    let done = Cluster::connect(EXACT).unwrap().run(1, async |ct| {
        let map = InlineHashMap::attach(InlineHashMap::<u64, u64>::create(ct).await?, ct).await?;
        for key in 0..5 {
            assert!(map.insert(&key, &key, ct).await?);
        }
        let get = async |key: u64| reads(ct, async || map.get(&key, ct).await).await;
        // One table of each node has all keys.
        for key in 0..5 {
            map.get(&key, ct).await?;
        }
        for key in (0..5).chain([1_000_000]) {
            assert_eq!(get(key).await?, 1, "of the bucket");
        }
        for is_barrier in [false, true] {
            if is_barrier {
                ct.barrier("an epoch may not be that of before").await?;
            } else {
                ct.try_reclaim().await;
            }
            assert_eq!((get(0).await?, get(0).await?), (4, 1));
        }
        // Those of both nodes.
        for key in 0..5 {
            map.get(&key, ct).await?;
        }
        // Each change leaves a bucket with its checksum.
        assert!(map.update(&0, &7, ct).await? && map.remove(&1, ct).await?);
        assert!(map.insert(&1, &8, ct).await? && map.insert(&9, &9, ct).await?);
        for key in [0, 1, 2, 9] {
            assert_eq!(get(key).await?, 1);
        }
        assert_eq!((map.get(&0, ct).await?, map.get(&1, ct).await?), (Some(7), Some(8)));
        map.destroy(ct).await
    });
    done.unwrap();
}
