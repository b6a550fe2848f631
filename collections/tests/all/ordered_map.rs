//! The ordered map: what it returns, how it grows and shrinks, what its scans promise, what it costs, and what clients that end anywhere leave.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::Bound;

use farfield::prelude::*;
use farfield::sim::Fault;
use farfield_collections::{Key, OrderedMap, OrderedMapRoot, Value};

use crate::clusters::{EXACT, affordable, everywhere};
use crate::polled::polled;

/// A type of keys or values for which tests make some from numbers.
trait Made: Key + Value + Clone + Ord + Debug {
    fn made(number: u64) -> Self;
}

impl Made for u64 {
    fn made(number: u64) -> Self {
        number
    }
}

impl Made for i32 {
    fn made(number: u64) -> Self {
        number as i32 - 300
    }
}

/// Strings of which some are prefixes of others, many begin alike, and few are long.
impl Made for String {
    fn made(number: u64) -> Self {
        let begin =
            ["", "a", "user-of-the-system-", "user-of-the-system-with-a-long-name-"][number as usize % 4];
        let end = if number.is_multiple_of(50) { "x".repeat(100) } else { String::new() };
        format!("{begin}{}{end}", number / 4)
    }
}

impl Made for Vec<u8> {
    fn made(number: u64) -> Self {
        // Ends with zeros, too.
        let mut bytes = number.to_be_bytes()[6..].to_vec();
        bytes.resize(bytes.len() + number as usize % 3, 0);
        bytes
    }
}

async fn is_equal_to_the_standard_librarys<K, V>(ct: &ComputeThread) -> Result<()>
where
    K: Made,
    V: Made + std::borrow::Borrow<V::Borrowed>,
{
    let root = OrderedMap::<K, V>::create(ct).await?;
    let map = OrderedMap::attach(root, ct).await?;
    let mut model = BTreeMap::<K, V>::new();
    for step in 0..affordable(2500, ct) {
        let key = K::made(ct.random_range(0..700_u64));
        let borrowed = key.as_borrowed();
        let value = V::made(step);
        match ct.random_range(0..10) {
            0 => assert_eq!(map.get(borrowed, ct).await?, model.get(&key).cloned()),
            1 | 2 => {
                let is_new = map.insert(borrowed, value.as_borrowed(), ct).await?;
                assert_eq!(is_new, !model.contains_key(&key), "{key:?}");
                model.entry(key).or_insert(value);
            }
            3 => {
                map.upsert(borrowed, value.as_borrowed(), ct).await?;
                model.insert(key, value);
            }
            4 => {
                assert_eq!(map.update(borrowed, value.as_borrowed(), ct).await?, model.contains_key(&key));
                model.entry(key).and_modify(|old| *old = value);
            }
            5 => {
                let expected = V::made(ct.random_range(step.saturating_sub(500)..=step));
                let expected = model.get(&key).cloned().filter(|_| ct.random()).unwrap_or(expected);
                let changed =
                    map.compare_and_update(borrowed, expected.as_borrowed(), value.as_borrowed(), ct).await?;
                assert_eq!(changed, model.get(&key) == Some(&expected));
                if changed {
                    model.insert(key, value);
                }
            }
            6 => assert_eq!(map.remove(borrowed, ct).await?, model.remove(&key).is_some()),
            7 => assert_eq!(map.take(borrowed, ct).await?, model.remove(&key)),
            8 => {
                let f = |old: Option<V>| old.is_none().then(|| value.clone());
                assert_eq!(map.modify(borrowed, f, ct).await?, model.get(&key).cloned());
                match f(model.get(&key).cloned()) {
                    Some(new) => drop(model.insert(key, new)),
                    None => drop(model.remove(&key)),
                }
            }
            _ => {
                let other = K::made(ct.random_range(0..700_u64));
                let (low, high) = if key < other { (key, other) } else { (other, key) };
                let bound = |key| match ct.random_range(0..3) {
                    0 => Bound::Included(key),
                    1 => Bound::Excluded(key),
                    _ => Bound::Unbounded,
                };
                let range = (bound(low), bound(high));
                if let (Bound::Excluded(low), Bound::Excluded(high)) = &range
                    && low == high
                {
                    continue;
                }
                let wanted = model.range(range.clone()).map(|(key, value)| (key.clone(), value.clone()));
                let (mut scan, mut found) = (map.range(range.clone(), ct)?, vec![]);
                while let Some(pair) = scan.next().await? {
                    found.push(pair);
                }
                assert_eq!(found, wanted.collect::<Vec<_>>());
                let mut scan = map.range_back(range, ct)?.in_pages_of(100);
                while let Some(pair) = scan.next().await? {
                    assert_eq!(Some(pair), found.pop());
                }
                assert_eq!(found, []);
            }
        }
    }
    let pair = |pair: Option<(&K, &V)>| pair.map(|(key, value)| (key.clone(), value.clone()));
    assert_eq!(map.first(ct).await?, pair(model.first_key_value()));
    assert_eq!(map.last(ct).await?, pair(model.last_key_value()));
    assert_eq!(map.len(ct).await?, model.len() as u64);
    assert_eq!(map.check(ct).await?, model.len() as u64);
    map.destroy(ct).await
}

#[test]
fn words_are_as_in_a_map_of_the_standard_library() {
    everywhere(1, async |ct| is_equal_to_the_standard_librarys::<u64, u64>(ct).await);
    everywhere(1, async |ct| is_equal_to_the_standard_librarys::<i32, u64>(ct).await);
}

#[test]
fn byte_strings_are_as_in_a_map_of_the_standard_library() {
    everywhere(1, async |ct| is_equal_to_the_standard_librarys::<String, u64>(ct).await);
    everywhere(1, async |ct| is_equal_to_the_standard_librarys::<u64, String>(ct).await);
    everywhere(1, async |ct| is_equal_to_the_standard_librarys::<Vec<u8>, Vec<u8>>(ct).await);
}

#[test]
fn it_grows_from_empty_and_shrinks_again() {
    everywhere(1, async |ct| {
        let keys = affordable(8000, ct);
        let root = OrderedMap::<u64, u64>::create(ct).await?;
        let map = OrderedMap::attach(root, ct).await?;
        let other = OrderedMap::attach(root, ct).await?;
        // Not in order.
        let key = |number: u64| number * 7919 % keys;
        for number in 0..keys {
            assert!(map.insert(&key(number), &number, ct).await?);
        }
        assert_eq!((map.check(ct).await?, map.len(ct).await?), (keys, keys));
        for number in 0..keys {
            assert_eq!(other.get(&key(number), ct).await?, Some(number));
        }
        let (mut scan, mut next) = (other.iter(ct), 0);
        while let Some((key, _)) = scan.next().await? {
            assert_eq!(key, next);
            next += 1;
        }
        assert_eq!(next, keys);
        for number in 0..keys {
            assert!(other.remove(&key(number), ct).await?);
        }
        assert_eq!((map.check(ct).await?, map.first(ct).await?), (0, None));
        map.destroy(ct).await
    });
}

#[remote]
struct Total {
    sum: Atomic<u64>,
}

#[test]
fn threads_insert_update_and_remove_while_it_grows_and_shrinks() {
    everywhere(4, async |ct| {
        let keys = affordable(3000, ct);
        let root = ct.root_or_init("map", async || OrderedMap::<u64, u64>::create(ct).await).await?;
        let map = OrderedMap::attach(root, ct).await?;
        let (me, threads) = (ct.index() as u64, ct.threads() as u64);
        let create = async || Total::new_in(ct, Total::init()).await?.write(ct).await;
        let total = ct.root_or_init("total", create).await?;
        // Each key is inserted by one of them.
        let mut inserted = 0_u64;
        for key in 0..keys {
            inserted += u64::from(map.insert(&(key * 7 % keys), &me, ct).await?);
        }
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
            map.recover(ct).await?;
            assert_eq!(map.check(ct).await?, 0);
            ct.delete(total).await?;
            return map.destroy(ct).await;
        }
        Ok(())
    });
}

#[test]
fn a_scan_has_each_key_that_stays_once_and_in_order() {
    everywhere(3, async |ct| {
        let keys = affordable(1500, ct);
        let root = ct.root_or_init("map", async || OrderedMap::<u64, String>::create(ct).await).await?;
        let map = OrderedMap::attach(root, ct).await?;
        let mine = |key: u64| key % ct.threads() as u64 == ct.index() as u64;
        for key in (0..keys).filter(|key| mine(*key)) {
            map.insert(&(2 * key), &key.to_string(), ct).await?;
        }
        ct.barrier("inserted").await?;
        // The keys between them come and go.
        if ct.index() == 0 {
            for key in 0..keys {
                map.insert(&(2 * key + 1), "", ct).await?;
            }
            for key in 0..keys {
                map.remove(&(2 * key + 1), ct).await?;
            }
        } else {
            for round in 0..6 {
                let up = round % 2 == 0;
                let mut scan = if up { map.range(.., ct)? } else { map.range_back(.., ct)? };
                let mut found = vec![];
                while let Some((key, value)) = scan.next().await? {
                    assert_eq!(value, if key % 2 == 0 { (key / 2).to_string() } else { String::new() });
                    found.push(key);
                }
                if !up {
                    found.reverse();
                }
                assert!(found.is_sorted_by(|left, right| left < right), "{found:?}");
                assert_eq!(found.iter().filter(|key| *key % 2 == 0).count() as u64, keys);
            }
        }
        ct.barrier("done").await?;
        if ct.index() == 0 {
            map.recover(ct).await?;
            assert_eq!(map.check(ct).await?, keys);
            map.destroy(ct).await?;
        }
        Ok(())
    });
}

#[farfield::test]
async fn a_map_of_other_types_and_reversed_bounds_are_refused(ct: &ComputeThread) -> Result<()> {
    let root = OrderedMap::<u64, u64>::create(ct).await?;
    ct.publish("map", root).await?;
    let other = ct.lookup::<OrderedMapRoot<u64, u32>>("map").await?;
    let refused = OrderedMap::attach(other, ct).await.map(drop).unwrap_err().to_string();
    assert!(refused.contains("other types"), "{refused}");
    let refused = OrderedMap::<u64, String>::attach(RemotePtr::from_address(root.address()), ct).await;
    let refused = refused.map(drop).unwrap_err().to_string();
    assert!(refused.contains("other types"), "{refused}");
    let map = OrderedMap::attach(root, ct).await?;
    let (two, one) = (2, 1);
    let refused = map.range(two..one, ct).map(drop).unwrap_err().to_string();
    assert!(refused.contains("Included(2) to Excluded(1)") && refused.contains("ends before"), "{refused}");
    assert_eq!(map.range(two..two, ct)?.next().await?, None);
    map.destroy(ct).await?;

    let map = OrderedMap::attach(OrderedMap::<Vec<u8>, Vec<u8>>::create(ct).await?, ct).await?;
    let refused = map.insert(&vec![0; 65_001], &[], ct).await.unwrap_err().to_string();
    assert!(refused.contains("65001 bytes"), "{refused}");
    let refused = map.upsert(&[1], &vec![0; (1 << 20) + 1], ct).await.unwrap_err().to_string();
    assert!(refused.contains("1048577 bytes"), "{refused}");
    let long = vec![7; 65_000];
    assert!(map.insert(&long, &vec![1; 1 << 20], ct).await?);
    assert_eq!(map.get(&long, ct).await?.map(|value| value.len()), Some(1 << 20));
    assert_eq!(map.check(ct).await?, 1);
    map.destroy(ct).await
}

#[farfield::test]
async fn keys_with_a_prefix_are_found(ct: &ComputeThread) -> Result<()> {
    let map = OrderedMap::attach(OrderedMap::<Vec<u8>, u64>::create(ct).await?, ct).await?;
    let keys: [&[u8]; 7] = [&[], &[1], &[1, 255], &[1, 255, 255], &[1, 255, 255, 3], &[2], &[255, 255]];
    for (key, number) in keys.iter().zip(0..) {
        map.insert(key, &number, ct).await?;
    }
    let with = async |prefix: &[u8]| {
        let (mut scan, mut found) = (map.prefix(prefix, ct), vec![]);
        while let Some((_, number)) = scan.next().await? {
            found.push(number);
        }
        Ok::<_, farfield::Error>(found)
    };
    assert_eq!(with(&[]).await?, [0, 1, 2, 3, 4, 5, 6]);
    assert_eq!(with(&[1]).await?, [1, 2, 3, 4]);
    assert_eq!(with(&[1, 255, 255]).await?, [3, 4]);
    assert_eq!(with(&[255]).await?, [6]);
    assert_eq!(with(&[3]).await?, [0_u64; 0]);
    map.destroy(ct).await
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
            let root = OrderedMap::<u64, u64>::create(ct).await?;
            let filler = OrderedMap::attach(root, ct).await?;
            // Three levels, and leaves that are not full.
            for key in 0..5000_u64 {
                filler.insert(&(key * 7919 % 5000 * 10), &key, ct).await?;
            }
            let mut rows = Vec::new();
            let mut key = 100;
            for state in ["cold", "warm"] {
                let mut found = Vec::new();
                for operation in ["get", "insert", "update", "remove", "scan"] {
                    key += 1170;
                    // With room in the leaf.
                    filler.remove(&key, ct).await?;
                    filler.upsert(&key, &1, ct).await?;
                    let map = OrderedMap::attach(root, ct).await?;
                    if state == "warm" {
                        for key in 0..5000 {
                            map.contains(&(key * 10), ct).await?;
                        }
                    }
                    let took = round_trips(ct, async || match operation {
                        "get" => map.get(&key, ct).await.map(|value| assert_eq!(value, Some(1))),
                        "insert" => map.insert(&(key + 1), &1, ct).await.map(|inserted| assert!(inserted)),
                        "update" => map.update(&key, &2, ct).await.map(|updated| assert!(updated)),
                        "remove" => map.remove(&key, ct).await.map(|removed| assert!(removed)),
                        // The leaves of one parent that have 100 keys or more.
                        _ => {
                            let mut scan = map.range(key.., ct)?.in_pages_of(100);
                            for _ in 0..40 {
                                scan.next().await?;
                            }
                            Ok(())
                        }
                    });
                    found.extend(took.await?);
                }
                rows.push((state, found));
            }
            for (state, trips) in &rows {
                for (operation, trips) in ["get", "insert", "update", "remove", "scan"].iter().zip(trips) {
                    println!("rtts.ordered-map.{operation}.{state} {trips}");
                }
            }
            // The highest of three nodes is known as soon as the handle is attached.
            assert_eq!(rows, [("cold", vec![2, 3, 3, 3, 2]), ("warm", vec![1, 2, 2, 2, 1])]);
            filler.destroy(ct).await
        })
        .unwrap();
}

/// A leaf is read again only if a key or a value is what slots have that are not written yet.
#[test]
fn a_leaf_is_read_by_one_read() {
    const UNWRITTEN: u64 = 0x6c8e_5cf5_70a2_4b31;
    Cluster::connect(EXACT)
        .unwrap()
        .run(1, async |ct| {
            let map = OrderedMap::attach(OrderedMap::<u64, u64>::create(ct).await?, ct).await?;
            let reads = async |key: u64, expected| {
                map.contains(&key, ct).await?;
                let before = ct.metrics().reads;
                assert_eq!(map.get(&key, ct).await?, expected);
                Ok::<_, farfield::Error>(ct.metrics().reads - before)
            };
            for key in 0..20 {
                map.insert(&key, &(key * 10), ct).await?;
            }
            assert_eq!((reads(7, Some(70)).await?, reads(100, None).await?), (1, 1));
            map.insert(&100, &UNWRITTEN, ct).await?;
            assert_eq!(reads(100, Some(UNWRITTEN)).await?, 3);
            map.remove(&100, ct).await?;
            map.insert(&UNWRITTEN, &1, ct).await?;
            assert_eq!(reads(UNWRITTEN, Some(1)).await?, 3);
            let mut scan = map.range(15.., ct)?;
            let mut found = Vec::new();
            while let Some(pair) = scan.next().await? {
                found.push(pair.0);
            }
            assert_eq!(found, [15, 16, 17, 18, 19, UNWRITTEN]);
            map.destroy(ct).await
        })
        .unwrap();
}

#[test]
fn an_insertion_that_splits_a_leaf_takes_three_round_trips_more() {
    Cluster::connect(EXACT)
        .unwrap()
        .run(1, async |ct| {
            let map = OrderedMap::attach(OrderedMap::<u64, u64>::create(ct).await?, ct).await?;
            let mut took = vec![];
            for key in 0..300 {
                took.extend(round_trips(ct, async || map.insert(&key, &key, ct).await).await?);
            }
            let splits = took.iter().filter(|took| **took > 3).count();
            assert!((3..15).contains(&splits), "{splits}: {took:?}");
            // The operation after a split is in another epoch, and finds out that the parent is current.
            assert!(took.iter().all(|took| [2, 3, 5].contains(took)), "{took:?}");
            println!("rtts.ordered-map.split {}", took.iter().max().unwrap());
            // In the same epoch, the handle knows what it has made of the parent.
            let _g = ct.pin();
            let mut took = vec![];
            for key in 300..600 {
                took.extend(round_trips(ct, async || map.insert(&key, &key, ct).await).await?);
            }
            let splits = took.iter().filter(|took| **took == 5).count();
            assert!((3..15).contains(&splits), "{splits}: {took:?}");
            // The first ones may see the epoch advance once more.
            assert!(took[10..].iter().all(|took| [2, 5].contains(took)), "{took:?}");
            map.destroy(ct).await
        })
        .unwrap();
}

async fn futures_are_dropped<V>(ct: &ComputeThread) -> Result<()>
where
    V: Made + std::borrow::Borrow<V::Borrowed>,
{
    let value = V::made;
    let map = OrderedMap::attach(OrderedMap::<u64, V>::create(ct).await?, ct).await?;
    let has = async |key: u64, allowed: &[Option<u64>]| {
        let found = map.get(&key, ct).await?;
        let allowed: Vec<Option<V>> = allowed.iter().map(|allowed| allowed.map(value)).collect();
        assert!(allowed.contains(&found), "{key} has {found:?}, not one of {allowed:?}");
        Ok::<_, farfield::Error>(())
    };
    let mut key = 0;
    for polls in 1..60 {
        for _ in 0..25 {
            key += 10;
            map.insert(&(key + 1), value(1).as_borrowed(), ct).await?;
            let inserted = polled(polls, map.insert(&key, value(1).as_borrowed(), ct)).await?;
            has(key, if inserted.is_some() { &[Some(1)] } else { &[None, Some(1)] }).await?;
            map.upsert(&key, value(2).as_borrowed(), ct).await?;
            let updated = polled(polls, map.update(&key, value(3).as_borrowed(), ct)).await?;
            has(key, if updated.is_some() { &[Some(3)] } else { &[Some(2), Some(3)] }).await?;
            map.upsert(&key, value(4).as_borrowed(), ct).await?;
            let (old, new) = (value(4), value(5));
            polled(polls, map.compare_and_update(&key, old.as_borrowed(), new.as_borrowed(), ct)).await?;
            has(key, &[Some(4), Some(5)]).await?;
            polled(polls, map.modify(&key, |old| old.map(|_| value(6)), ct)).await?;
            has(key, &[Some(4), Some(5), Some(6)]).await?;
            polled(polls, map.get(&key, ct)).await?;
            polled(polls, map.range_back(..key, ct)?.next()).await?;
            polled(polls, map.upsert(&(key + 2), value(8).as_borrowed(), ct)).await?;
            has(key + 2, &[None, Some(8)]).await?;
            polled(polls, map.take(&(key + 2), ct)).await?;
            has(key + 2, &[None, Some(8)]).await?;
            let removed = polled(polls, map.remove(&key, ct)).await?;
            has(key, if removed.is_some() { &[None] } else { &[None, Some(4), Some(5), Some(6)] }).await?;
        }
        polled(polls, map.len(ct)).await?;
        polled(polls, map.recover(ct)).await?;
    }
    map.recover(ct).await?;
    for old in (10..=key).step_by(10) {
        has(old + 1, &[Some(1)]).await?;
    }
    assert!(map.check(ct).await? >= 59 * 25);
    for old in (10..=key).step_by(10) {
        polled(old as usize % 30, map.remove(&(old + 1), ct)).await?;
    }
    map.recover(ct).await?;
    map.check(ct).await?;
    map.destroy(ct).await
}

#[test]
fn each_future_can_be_dropped_at_each_await() {
    for url in ["local:nodes=2,size=64MiB,delay=1", "sim:nodes=2,size=64MiB"] {
        let cluster = Cluster::connect(url).unwrap();
        let done = cluster.run(1, async |ct| {
            futures_are_dropped::<u64>(ct).await?;
            futures_are_dropped::<String>(ct).await
        });
        done.unwrap_or_else(|error| panic!("{url}: {error}"));
        let metrics = cluster.metrics();
        assert_eq!(metrics.allocated, metrics.freed, "{url}: objects are lost");
    }
}

#[test]
fn without_memory_an_insertion_fails_and_the_map_stays_usable() {
    for url in ["local:size=128KiB", "local:size=128KiB,delay=3"] {
        let cluster = Cluster::connect(url).unwrap();
        let run = cluster.run(1, async |ct| {
            let map = OrderedMap::attach(OrderedMap::<u64, u64>::create(ct).await?, ct).await?;
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
                assert_eq!(map.get(&key, ct).await?, Some(key));
            }
            for key in 0..keys {
                assert!(map.remove(&key, ct).await?);
            }
            assert!(map.insert(&0, &0, ct).await?);
            assert_eq!(map.check(ct).await?, 1);
            map.destroy(ct).await
        });
        run.unwrap_or_else(|error| panic!("{url}: {error}"));
    }
}

#[test]
fn a_client_that_dies_anywhere_leaves_a_map_that_others_use() {
    const KEYS: u64 = 400;
    let mut prefixes = Vec::new();
    for chains in (0..500).step_by(23) {
        // Nodes that it had not linked yet are left to a sweep.
        let cluster = Cluster::connect("sim:nodes=2,size=64MiB,leaks=ignore").unwrap();
        cluster.simulation().unwrap().inject(Fault::crash(1).after_chains(chains));
        let run = cluster.run_surviving(3, async |ct| {
            let root = ct.root_or_init("map", async || OrderedMap::<u64, String>::create(ct).await).await?;
            let map = OrderedMap::attach(root, ct).await?;
            let me = ct.index() as u64;
            for key in 0..KEYS {
                assert!(map.insert(&(key * 3 + me), &me.to_string(), ct).await?);
                if key % 3 == 2 {
                    assert!(map.update(&((key - 2) * 3 + me), &(me + 10).to_string(), ct).await?);
                    assert!(map.remove(&((key - 1) * 3 + me), ct).await?);
                }
            }
            Ok(())
        });
        let run = run.unwrap_or_else(|error| panic!("after {chains} chains: {error}"));
        assert!(run[0].is_some() && run[1].is_none() && run[2].is_some());
        let prefix = cluster.run(1, async |ct| {
            let map = OrderedMap::attach(ct.lookup::<OrderedMapRoot<u64, String>>("map").await?, ct).await?;
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
                    let expected = expected.map(|expected| expected.to_string());
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
    assert!(prefixes.iter().any(|prefix| *prefix > 8) && prefixes.contains(&0), "{prefixes:?}");
}
