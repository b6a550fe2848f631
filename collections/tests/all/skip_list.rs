//! Skip lists on all fabrics: what they return, what they cost, and what clients that end anywhere leave.

#![allow(clippy::cast_precision_loss)] // counts of some thousands

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;

use farfield::prelude::*;
use farfield::sim::Fault;
use farfield_collections::{SkipList, SkipListRoot, SkipScan};

use crate::clusters::{EXACT, affordable, everywhere};
use crate::polled::polled;

/// Collects the rest of a scan.
async fn rest(mut scan: SkipScan<'_, u64, u64>) -> Result<Vec<(u64, u64)>> {
    let mut pairs = Vec::new();
    while let Some(pair) = scan.next().await? {
        pairs.push(pair);
    }
    Ok(pairs)
}

#[test]
fn it_returns_what_a_map_of_the_standard_library_returns() {
    everywhere(1, async |ct| {
        let root = SkipList::<u64, u64>::create(ct).await?;
        for cache in [0, 2000, 1 << 20] {
            let list = SkipList::attach(root, ct).await?.with_cache(cache);
            let mut model = BTreeMap::new();
            for step in 0..affordable(2000, ct) {
                let key = ct.random_range(0..300_u64);
                match ct.random_range(0..11) {
                    0 => assert_eq!(list.get(&key, ct).await?, model.get(&key).copied()),
                    1 | 2 => {
                        assert_eq!(list.insert(&key, &step, ct).await?, !model.contains_key(&key));
                        model.entry(key).or_insert(step);
                    }
                    3 => {
                        list.upsert(&key, &step, ct).await?;
                        model.insert(key, step);
                    }
                    4 => {
                        assert_eq!(list.update(&key, &step, ct).await?, model.contains_key(&key));
                        model.entry(key).and_modify(|value| *value = step);
                    }
                    5 => {
                        let expected = model.get(&key).copied().filter(|_| ct.random()).unwrap_or(step);
                        let changed = list.compare_and_update(&key, &expected, &step, ct).await?;
                        assert_eq!(changed, model.get(&key) == Some(&expected));
                        if changed {
                            model.insert(key, step);
                        }
                    }
                    6 => assert_eq!(list.remove(&key, ct).await?, model.remove(&key).is_some()),
                    7 => assert_eq!(list.take(&key, ct).await?, model.remove(&key)),
                    8 => {
                        let lowest = model.first_key_value().map(|(key, value)| (*key, *value));
                        let highest = model.last_key_value().map(|(key, value)| (*key, *value));
                        assert_eq!((list.first(ct).await?, list.last(ct).await?), (lowest, highest));
                    }
                    9 => {
                        let to = key + ct.random_range(0..40_u64);
                        let bounds = match ct.random_range(0..3) {
                            0 => (Bound::Included(key), Bound::Included(to)),
                            1 => (Bound::Excluded(key), Bound::Excluded(to + 1)),
                            _ => (Bound::Included(key), Bound::Excluded(to)),
                        };
                        let found = rest(list.range(bounds, ct)?).await?;
                        let expected = model.range(bounds).map(|(key, value)| (*key, *value));
                        assert_eq!(found, expected.collect::<Vec<_>>());
                    }
                    _ => {
                        let f = |old: Option<u64>| {
                            if old.is_some_and(|old| old % 3 == 0) { None } else { Some(step) }
                        };
                        assert_eq!(list.modify(&key, f, ct).await?, model.get(&key).copied());
                        match f(model.get(&key).copied()) {
                            Some(new) => drop(model.insert(key, new)),
                            None => drop(model.remove(&key)),
                        }
                    }
                }
            }
            let len = model.len() as u64;
            assert_eq!((list.len(ct).await?, list.check(ct).await?), (len, len));
            let all: Vec<_> = model.into_iter().collect();
            assert_eq!(rest(list.iter(ct)).await?, all);
            let keys: Vec<&u64> = all.iter().map(|(key, _)| key).collect();
            let values = list.get_many(&keys, ct).await?;
            assert!(values.iter().zip(&all).all(|(found, (_, value))| found == &Some(*value)));
            for (key, _) in all {
                assert!(list.remove(&key, ct).await?);
            }
            assert!(list.is_empty(ct).await? && list.last(ct).await?.is_none());
        }
        SkipList::attach(root, ct).await?.destroy(ct).await
    });
}

#[remote]
struct Total {
    sum: Atomic<u64>,
}

#[test]
fn threads_insert_update_and_remove_and_no_key_is_lost() {
    everywhere(4, async |ct| {
        let keys = affordable(1000, ct);
        let root = ct.root_or_init("list", async || SkipList::<u64, u64>::create(ct).await).await?;
        let list = SkipList::attach(root, ct).await?;
        let (me, threads) = (ct.index() as u64, ct.threads() as u64);
        // Each key is inserted by one of them.
        let mut inserted = 0_u64;
        for key in 0..keys {
            inserted += u64::from(list.insert(&(key * 7 % keys), &me, ct).await?);
        }
        let total = async || Total::new_in(ct, Total::init()).await?.write(ct).await;
        let total = ct.root_or_init("total", total).await?;
        total.sum().fetch_add(ct, inserted).await?;
        ct.barrier("inserted").await?;
        assert_eq!(total.sum().load(ct).await?, keys);
        assert_eq!(list.len(ct).await?, keys);
        // Increments are not lost, while others scan.
        for key in 0..50 {
            list.modify(&key, |old| old.map(|old| old + 100), ct).await?;
            let found = rest(list.range(key.., ct)?).await?;
            assert!(found.iter().map(|(key, _)| *key).eq(key..keys), "{found:?}");
        }
        ct.barrier("incremented").await?;
        for key in 0..50 {
            assert_eq!(list.get(&key, ct).await?.map(|value| value / 100), Some(threads));
        }
        ct.barrier("seen").await?;
        let mut removed = 0;
        for key in 0..keys {
            removed += u64::from(list.remove(&key, ct).await?);
        }
        total.sum().fetch_sub(ct, removed).await?;
        ct.barrier("removed").await?;
        if me == 0 {
            assert_eq!((total.sum().load(ct).await?, list.check(ct).await?), (0, 0));
            ct.delete(total).await?;
            return list.destroy(ct).await;
        }
        Ok(())
    });
}

/// The round trips of the operations, on average.
#[test]
fn operations_take_the_round_trips_of_the_table() {
    const KEYS: u64 = 5000;
    const TIMES: u64 = 100;
    let done = Cluster::connect(EXACT).unwrap().run(1, async |ct| {
        let root = SkipList::<u64, u64>::create(ct).await?;
        let filler = SkipList::attach(root, ct).await?;
        for key in 0..KEYS {
            filler.insert(&(key * 2), &key, ct).await?;
        }
        let rtt = ct.cluster().simulation().expect("it is simulated").rtt();
        let cost = |before: Duration| ct.now().saturating_sub(before).div_duration_f64(rtt);
        let mut rows = Vec::new();
        for state in ["cold", "warm"] {
            let warm = SkipList::attach(root, ct).await?;
            for key in 0..KEYS {
                warm.get(&(key * 2), ct).await?;
            }
            let mut costs = [0.0; 5];
            for time in 0..TIMES {
                let cold = SkipList::attach(root, ct).await?.with_cache(1 << 20);
                let list = if state == "warm" { &warm } else { &cold };
                // Even ones are there.
                let key = 2 * (time * 37 % KEYS);
                let before = ct.now();
                assert!(list.get(&key, ct).await?.is_some());
                costs[0] += cost(before);
                let cold = SkipList::attach(root, ct).await?;
                let list = if state == "warm" { &warm } else { &cold };
                let before = ct.now();
                assert!(list.insert(&(key + 1), &0, ct).await?);
                costs[1] += cost(before);
                let cold = SkipList::attach(root, ct).await?;
                let list = if state == "warm" { &warm } else { &cold };
                let before = ct.now();
                assert!(list.update(&key, &0, ct).await?);
                costs[2] += cost(before);
                let cold = SkipList::attach(root, ct).await?;
                let list = if state == "warm" { &warm } else { &cold };
                let before = ct.now();
                assert!(list.remove(&(key + 1), ct).await?);
                costs[3] += cost(before);
            }
            let cold = SkipList::attach(root, ct).await?;
            let list = if state == "warm" { &warm } else { &cold };
            let before = ct.now();
            assert_eq!(rest(list.iter(ct)).await?.len() as u64, KEYS);
            costs[4] = cost(before) / (KEYS / TIMES) as f64;
            rows.push((state, costs.map(|cost| cost / TIMES as f64)));
        }
        for (state, costs) in &rows {
            for (operation, cost) in ["get", "insert", "update", "remove", "scan"].iter().zip(costs) {
                println!("rtts.skip-list.{operation}.{state} {cost:.2}");
            }
        }
        let [(_, cold), (_, warm)] = &rows[..] else { unreachable!() };
        // An operation that changes something takes one round trip more, and another for the levels above the bottom, which one tower in four has.
        for costs in [cold, warm] {
            for (operation, most) in [(1, 1.8), (2, 1.8), (3, 1.8)] {
                let more = costs[operation] - costs[0];
                assert!((0.8..most).contains(&more), "{operation}: {more} in {costs:?}");
            }
            assert!(costs[4] < 1.2, "{costs:?}");
        }
        assert!(warm[0] < 1.3 && warm[4] < 0.2 && cold[0] < 35.0, "{cold:?}, {warm:?}");
        filler.destroy(ct).await
    });
    done.unwrap();
}

#[test]
fn what_a_list_can_not_do_is_refused() {
    everywhere(1, async |ct| {
        let root = SkipList::<u64, u64>::create(ct).await?;
        let list = SkipList::attach(root, ct).await?;
        let (from, to) = (9, 3);
        for bounds in [
            (Bound::Included(from), Bound::Included(to)),
            (Bound::Excluded(from), Bound::Included(to)),
            (Bound::Excluded(from), Bound::Excluded(from)),
        ] {
            let refused = list.range(bounds, ct).map(drop).unwrap_err().to_string();
            assert!(refused.contains("cluded(9)") && !refused.contains('\n'), "{refused}");
        }
        assert!(rest(list.range(9..9, ct)?).await?.is_empty());
        let other = RemotePtr::<SkipListRoot<u64, u32>>::from_address(root.address());
        let refused = SkipList::attach(other, ct).await.map(drop).unwrap_err().to_string();
        assert!(refused.contains("root") && refused.contains("other types"), "{refused}");
        list.destroy(ct).await
    });
    let cluster = Cluster::connect("local:segments=2049,size=64KiB").unwrap();
    let refused = cluster.run(1, async |ct| SkipList::<u64, u64>::create(ct).await).unwrap_err().to_string();
    assert!(refused.contains("tagged or stamped link"), "{refused}");
}

#[test]
fn each_future_can_be_dropped_at_each_await() {
    for url in ["local:nodes=2,size=64MiB,delay=1", "sim:nodes=2,size=64MiB"] {
        let cluster = Cluster::connect(url).unwrap();
        let run = cluster.run(1, async |ct| {
            let list = SkipList::attach(SkipList::<u64, u64>::create(ct).await?, ct).await?;
            let has = async |key: u64, allowed: &[Option<u64>]| {
                let found = list.get(&key, ct).await?;
                assert!(allowed.contains(&found), "{key} has {found:?}, not one of {allowed:?}");
                Ok::<_, farfield::Error>(())
            };
            let mut key = 0;
            for polls in 1..40 {
                for _ in 0..30 {
                    key += 10;
                    list.insert(&(key + 1), &1, ct).await?;
                    let inserted = polled(polls, list.insert(&key, &1, ct)).await?;
                    has(key, if inserted.is_some() { &[Some(1)] } else { &[None, Some(1)] }).await?;
                    list.upsert(&key, &2, ct).await?;
                    let updated = polled(polls, list.update(&key, &3, ct)).await?;
                    has(key, if updated.is_some() { &[Some(3)] } else { &[Some(2), Some(3)] }).await?;
                    list.upsert(&key, &4, ct).await?;
                    polled(polls, list.compare_and_update(&key, &4, &5, ct)).await?;
                    has(key, &[Some(4), Some(5)]).await?;
                    list.upsert(&key, &6, ct).await?;
                    polled(polls, list.modify(&key, |old| old.map(|old| old + 1), ct)).await?;
                    has(key, &[Some(6), Some(7)]).await?;
                    polled(polls, list.get(&key, ct)).await?;
                    let mut scan = list.range(key.., ct)?;
                    let first = match polled(polls, scan.next()).await? {
                        None => scan.next().await?,
                        Some(first) => first,
                    };
                    assert_eq!(first.map(|(found, _)| found), Some(key), "no key is lost");
                    polled(polls, list.upsert(&(key + 2), &8, ct)).await?;
                    has(key + 2, &[None, Some(8)]).await?;
                    polled(polls, list.take(&(key + 2), ct)).await?;
                    has(key + 2, &[None, Some(8)]).await?;
                    let removed = polled(polls, list.remove(&key, ct)).await?;
                    has(key, if removed.is_some() { &[None][..] } else { &[None, Some(6), Some(7)] }).await?;
                }
                polled(polls, list.len(ct)).await?;
                polled(polls, list.recover(ct)).await?;
            }
            list.recover(ct).await?;
            for old in (10..=key).step_by(10) {
                assert_eq!(list.get(&(old + 1), ct).await?, Some(1), "{old}");
            }
            assert!(list.check(ct).await? >= 39 * 30);
            let (live, retired) = (ct.metrics().allocated - ct.metrics().freed, ct.metrics().retired);
            list.destroy(ct).await?;
            Ok((live, retired))
        });
        let run = run.unwrap_or_else(|error| panic!("{url}: {error}"));
        assert!(run[0].1 > 39 * 30, "{url}: dead towers are retired: {run:?}");
        let metrics = cluster.metrics();
        assert_eq!(metrics.allocated, metrics.freed, "{url}: objects are lost");
    }
}

#[test]
fn without_memory_an_insertion_fails_and_the_list_stays_usable() {
    for url in ["local:size=128KiB", "local:size=128KiB,delay=3", "local:size=64KiB,nodes=3,delay=3"] {
        let cluster = Cluster::connect(url).unwrap();
        let run = cluster.run(1, async |ct| {
            let list = SkipList::attach(SkipList::<u64, u64>::create(ct).await?, ct).await?;
            let mut keys = 0;
            let error = loop {
                match list.insert(&keys, &keys, ct).await {
                    Ok(inserted) => assert!(inserted),
                    Err(error) => break error,
                }
                keys += 1;
                assert!(keys < 100_000, "the memory never ends");
            };
            assert!(matches!(error, farfield::Error::OutOfMemory { .. }), "{error}");
            assert!(keys > 200, "{keys}");
            assert_eq!(list.check(ct).await?, keys);
            // An update needs memory too: the old value stays.
            let mut refused = 0;
            for key in 0..keys {
                if refused == 1 {
                    break;
                }
                let updated = list.update(&key, &(key + 1), ct).await;
                refused += u64::from(updated.is_err());
                let value = if updated.is_ok() { key + 1 } else { key };
                assert_eq!(list.get(&key, ct).await?, Some(value));
            }
            assert!(refused > 0);
            assert_eq!(list.check(ct).await?, keys);
            for key in 0..keys {
                assert!(list.remove(&key, ct).await?);
            }
            for _ in 0..10 {
                ct.try_reclaim().await;
            }
            assert!(list.insert(&0, &0, ct).await?);
            list.destroy(ct).await
        });
        run.unwrap_or_else(|error| panic!("{url}: {error}"));
    }
}

#[test]
fn a_client_that_dies_anywhere_leaves_a_list_that_others_use() {
    const KEYS: u64 = 100;
    let mut prefixes = Vec::new();
    for chains in (0..900).step_by(37) {
        // Towers that it had not linked yet are left to a sweep.
        let cluster = Cluster::connect("sim:nodes=2,size=64MiB,leaks=ignore").unwrap();
        let simulation = cluster.simulation().unwrap();
        simulation.inject(Fault::crash(1).after_chains(chains));
        let run = cluster.run_surviving(3, async |ct| {
            let root = ct.root_or_init("list", async || SkipList::<u64, u64>::create(ct).await).await?;
            let list = SkipList::attach(root, ct).await?;
            let me = ct.index() as u64;
            for key in 0..KEYS {
                assert!(list.insert(&(key * 3 + me), &me, ct).await?);
                if key % 3 == 2 {
                    assert!(list.update(&((key - 2) * 3 + me), &(me + 10), ct).await?);
                    assert!(list.remove(&((key - 1) * 3 + me), ct).await?);
                }
            }
            Ok(())
        });
        let run = run.unwrap_or_else(|error| panic!("after {chains} chains: {error}"));
        assert!(run[0].is_some() && run[2].is_some());
        let prefix = cluster.run(1, async |ct| {
            let list = SkipList::attach(ct.lookup::<SkipListRoot<u64, u64>>("list").await?, ct).await?;
            list.recover(ct).await?;
            let len = list.check(ct).await?;
            for me in [0, 2] {
                for key in 0..KEYS {
                    let expected = match key % 3 {
                        0 if key + 2 < KEYS => Some(me + 10),
                        1 if key + 1 < KEYS => None,
                        _ => Some(me),
                    };
                    assert_eq!(list.get(&(key * 3 + me), ct).await?, expected);
                }
            }
            let mut prefix = 0;
            while list.contains(&(prefix * 9 + 1), ct).await? {
                prefix += 1;
            }
            for key in 3 * prefix..KEYS {
                assert_eq!(list.get(&(key * 3 + 1), ct).await?, None);
            }
            assert_eq!(list.len(ct).await?, len);
            // What is dead is out: whatever is inserted and removed now leaves nothing.
            let towers = |ct: &ComputeThread| ct.metrics().allocated.wrapping_sub(ct.metrics().retired);
            let before = towers(ct);
            for key in 0..KEYS * 3 {
                list.upsert(&(key + 10_000), &key, ct).await?;
            }
            for key in 0..KEYS * 3 {
                assert!(list.remove(&(key + 10_000), ct).await?);
            }
            list.recover(ct).await?;
            ct.flush().await?;
            assert_eq!(towers(ct), before);
            list.destroy(ct).await?;
            Ok(prefix)
        });
        prefixes.extend(prefix.unwrap_or_else(|error| panic!("after {chains} chains: {error}")));
    }
    assert!(prefixes.iter().any(|prefix| *prefix > 20) && prefixes.contains(&0), "{prefixes:?}");
}
