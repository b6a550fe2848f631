//! The hash map: what it returns, how it grows, and what it costs.

use std::collections::BTreeMap;

use farfield::prelude::*;
use farfield_collections::HashMap;

use crate::clusters::{EXACT, affordable, everywhere};

#[test]
fn it_returns_what_a_map_of_the_standard_library_returns() {
    everywhere(1, async |ct| {
        let root = HashMap::<u64, u64>::create(ct).await?;
        let map = HashMap::attach(root, ct).await?;
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
        let root = HashMap::<u64, u64>::create(ct).await?;
        let map = HashMap::attach(root, ct).await?;
        let other = HashMap::attach(root, ct).await?;
        for key in 0..keys {
            assert!(map.insert(&key, &(key * 3), ct).await?);
            if key % 7 == 0 {
                assert_eq!(other.get(&(key / 2), ct).await?, Some(key / 2 * 3));
            }
        }
        assert_eq!(map.check(ct).await?, keys);
        let fresh = HashMap::attach(root, ct).await?;
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
fn keys_and_values_have_any_length() {
    everywhere(1, async |ct| {
        let root = HashMap::<Vec<u8>, Vec<u8>>::create(ct).await?;
        let map = HashMap::attach(root, ct).await?;
        let bytes = |length: usize| (0..length).map(|index| (index * 7 + length) as u8).collect::<Vec<_>>();
        for length in [0, 1, 7, 8, 100, 500, 501, 5000, 65_000] {
            let (key, value) = (bytes(length), bytes(1 + 1_048_575 / 65_000 * length));
            assert!(map.insert(&key, &value, ct).await?);
            assert!(!map.insert(&key, b"", ct).await?);
            assert_eq!(map.get(&key, ct).await?.as_ref(), Some(&value));
            assert!(map.update(&key, &key, ct).await?);
            assert_eq!(map.get(&key, ct).await?, Some(key));
        }
        let longest = bytes(1 << 20);
        map.upsert(&bytes(65_000), &longest, ct).await?;
        assert!(map.get(&bytes(65_000), ct).await? == Some(longest));
        assert_eq!(map.check(ct).await?, 9);
        let refused = map.upsert(b"key", &bytes((1 << 20) + 1), ct).await.unwrap_err().to_string();
        assert!(refused.contains("1048577 bytes") && refused.contains("1 MiB"), "{refused}");
        let refused = map.upsert(&bytes(65_001), b"", ct).await.unwrap_err().to_string();
        assert!(refused.contains("key") && refused.contains("65001 bytes"), "{refused}");
        map.destroy(ct).await
    });
}

#[test]
fn threads_insert_update_and_remove_while_it_grows() {
    everywhere(4, async |ct| {
        let keys = affordable(3000, ct);
        let root = ct.root_or_init("map", async || HashMap::<u64, u64>::create(ct).await).await?;
        let map = HashMap::attach(root, ct).await?;
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
    let root = HashMap::<u64, u64>::create(ct).await?;
    ct.publish("map", root).await?;
    let found = ct.lookup::<farfield_collections::HashMapRoot<u64, String>>("map").await;
    let other = match found {
        Ok(root) => HashMap::attach(root, ct).await.map(drop),
        Err(error) => Err(error),
    };
    let refused = other.unwrap_err().to_string();
    assert!(refused.contains("map"), "{refused}");
    HashMap::attach(root, ct).await?.destroy(ct).await
}

#[test]
fn a_cluster_whose_addresses_can_not_be_compressed_is_refused() {
    let cluster = Cluster::connect("local:segments=2049,size=64KiB").unwrap();
    let refused = cluster.run(1, async |ct| HashMap::<u64, u64>::create(ct).await).unwrap_err().to_string();
    assert!(refused.contains("tagged or stamped link"), "{refused}");
}

#[test]
fn an_iteration_has_each_key_that_stays_once_while_tables_are_replaced() {
    const STAY: u64 = 800;
    everywhere(3, async |ct| {
        let root = ct.root_or_init("map", async || HashMap::<u64, u64>::create(ct).await).await?;
        let map = HashMap::attach(root, ct).await?;
        let (me, threads) = (ct.index() as u64, ct.threads() as u64);
        for key in (0..STAY).filter(|key| key % threads == me) {
            map.insert(&key, &key, ct).await?;
        }
        ct.barrier("inserted").await?;
        let inserted = affordable(5000, ct);
        if me > 0 {
            for key in 0..inserted {
                map.insert(&(STAY + key * threads + me), &0, ct).await?;
            }
        } else {
            for _ in 0..5 {
                let (mut iter, mut seen) = (map.iter(ct), BTreeMap::new());
                while let Some((key, value)) = iter.next().await? {
                    assert_eq!(seen.insert(key, value), None, "{key} came twice");
                }
                assert_eq!(seen.range(..STAY).count() as u64, STAY);
                assert!(map.len(ct).await? >= STAY);
            }
        }
        ct.barrier("iterated").await?;
        if me == 0 {
            assert_eq!(map.check(ct).await?, STAY + inserted * (threads - 1));
            return map.destroy(ct).await;
        }
        Ok(())
    });
}

#[test]
fn the_map_stays_right_and_usable_when_memory_is_exhausted() {
    let cluster = Cluster::connect("local:size=256KiB").unwrap();
    let done = cluster.run(1, async |ct| {
        let map = HashMap::attach(HashMap::<u64, Vec<u8>>::create(ct).await?, ct).await?;
        let mut failed = Vec::new();
        let mut inserted = 0;
        // Values of several sizes, so that sometimes an entry finds no memory, and sometimes a table.
        for length in [400, 40, 8] {
            for _ in 0..4000 {
                match map.insert(&inserted, &vec![7; length], ct).await {
                    Ok(is_new) => {
                        assert!(is_new);
                        inserted += 1;
                    }
                    Err(error) => {
                        failed.push(error.to_string());
                        break;
                    }
                }
            }
        }
        assert_eq!(failed.len(), 3, "memory is exhausted");
        assert!(failed.iter().all(|error| error.starts_with("out of memory")), "{failed:?}");
        assert_eq!(map.check(ct).await?, inserted);
        for key in 0..inserted {
            assert!(map.get(&key, ct).await?.is_some());
        }
        assert!(map.remove(&0, ct).await?);
        for key in 1..inserted {
            assert!(map.remove(&key, ct).await?);
            ct.try_reclaim().await;
        }
        for key in 0..200 {
            assert!(map.insert(&key, &[1], ct).await?);
        }
        assert_eq!(map.check(ct).await?, 200);
        map.destroy(ct).await
    });
    done.unwrap();
    let metrics = cluster.metrics();
    assert_eq!(metrics.allocated, metrics.freed);
}

#[farfield::test]
async fn keys_with_equal_hashes_end_in_an_error_that_says_so(ct: &ComputeThread) -> Result<()> {
    // Eight bits of a hash, none of which chooses a table or a bucket.
    let root = HashMap::<u64, u64>::create_masked(0xff << 56, ct).await?;
    let map = HashMap::attach(root, ct).await?;
    let (mut inserted, mut refused) = (Vec::new(), [0, 0]);
    for key in 0..300 {
        match map.insert(&key, &key, ct).await {
            Ok(is_new) => {
                assert!(is_new);
                inserted.push(key);
            }
            Err(error) if error.to_string().contains("another key of the map has an equal hash") => {
                refused[0] += 1;
            }
            Err(error) if error.to_string().contains("too many keys of the map have equal hashes") => {
                refused[1] += 1;
            }
            Err(error) => return Err(error),
        }
    }
    assert_eq!(inserted.len(), 16, "a window has so many slots");
    assert!(refused.iter().all(|count| *count > 0), "{refused:?}");
    for key in 0..300 {
        let expected = inserted.contains(&key).then_some(key);
        assert_eq!(map.get(&key, ct).await?, expected);
    }
    assert!(map.remove(&inserted[3], ct).await?);
    assert_eq!(map.check(ct).await?, 15);
    map.destroy(ct).await
}

#[test]
fn several_operations_take_the_round_trips_of_one() {
    let done = Cluster::connect(EXACT).unwrap().run(1, async |ct| {
        let map = HashMap::attach(HashMap::<u64, u64>::create(ct).await?, ct).await?;
        let numbers: Vec<u64> = (0..40).collect();
        let pairs: Vec<_> = numbers.iter().map(|key| (key, key)).collect();
        let keys: Vec<_> = numbers.iter().collect();
        assert!(map.insert_many(&pairs, ct).await?.iter().all(|inserted| *inserted));
        // The directory is known.
        map.get_many(&keys, ct).await?;
        map.upsert_many(&pairs, ct).await?;
        let took = round_trips(ct, async || {
            let values = map.get_many(&keys, ct).await?;
            assert!(values.into_iter().eq(numbers.iter().copied().map(Some)));
            Ok(())
        });
        assert_eq!(took.await?, Some(1));
        let took = round_trips(ct, async || map.update_many(&pairs, ct).await);
        assert_eq!(took.await?, Some(2));
        let took = round_trips(ct, async || {
            assert!(map.remove_many(&keys, ct).await?.iter().all(|removed| *removed));
            Ok(())
        });
        assert_eq!(took.await?, Some(2));
        map.destroy(ct).await
    });
    done.unwrap();
}

#[test]
fn a_handle_without_a_cache_finds_all_keys() {
    everywhere(1, async |ct| {
        let root = HashMap::<u64, u64>::create(ct).await?;
        let map = HashMap::attach(root, ct).await?.with_cache(0);
        for key in 0..600 {
            assert!(map.insert(&key, &key, ct).await?);
        }
        for key in 0..600 {
            assert_eq!(map.get(&key, ct).await?, Some(key));
        }
        assert_eq!(map.check(ct).await?, 600);
        map.destroy(ct).await
    });
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
            let root = HashMap::<u64, u64>::create(ct).await?;
            let filler = HashMap::attach(root, ct).await?;
            for key in 0..5000_u64 {
                filler.insert(&key, &key, ct).await?;
            }
            // Removed keys have slots, too: these were never there.
            let mut absent = 1_000_000..;
            let mut absent = || absent.next().unwrap_or_default();
            let mut rows = Vec::new();
            let mut key = 100_u64;
            for state in ["cold", "warm", "hot"] {
                let mut found = Vec::new();
                for operation in ["get", "insert", "update", "remove"] {
                    key += 17;
                    let new = absent();
                    let map = HashMap::attach(root, ct).await?;
                    if state != "cold" {
                        // All paths of the directory.
                        for key in 0..5000_u64 {
                            map.contains(&key, ct).await?;
                        }
                    }
                    let map = if state == "warm" { map.with_cache(1 << 20) } else { map };
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
                    println!("rtts.hash-map.{operation}.{state} {trips}");
                }
            }
            assert_eq!(
                rows,
                [("cold", vec![3, 4, 3, 3]), ("warm", vec![2, 3, 2, 2]), ("hot", vec![1, 3, 2, 2])]
            );
            filler.destroy(ct).await
        })
        .unwrap();
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
        let map = HashMap::attach(HashMap::<u64, u64>::create(ct).await?, ct).await?;
        for key in 0..5 {
            assert!(map.insert(&key, &key, ct).await?);
        }
        let get = async |key: u64| reads(ct, async || map.get(&key, ct).await).await;
        // One table of each node has all keys.
        for key in 0..5 {
            map.get(&key, ct).await?;
        }
        for key in 0..5 {
            assert_eq!(get(key).await?, 2, "of the slot, and of the entry");
        }
        // The slots are forgotten.
        let map = map.with_cache(1 << 20);
        let get = async |key: u64| reads(ct, async || map.get(&key, ct).await).await;
        assert_eq!((get(0).await?, get(0).await?), (2, 2), "of the window or the slot, and of the entry");
        assert_eq!(get(1_000_000).await?, 1, "of the window");
        for is_barrier in [false, true] {
            if is_barrier {
                ct.barrier("an epoch may not be that of before").await?;
            } else {
                ct.try_reclaim().await;
            }
            assert_eq!((get(0).await?, get(0).await?), (3, 2));
        }
        let updated = reads(ct, async || map.update(&0, &1, ct).await).await?;
        assert_eq!(updated, 1, "of the window");
        map.destroy(ct).await
    });
    done.unwrap();
}
