//! Futures of the map that are dropped at each of their awaits, and operations with a deadline.

use std::time::Duration;

use farfield::Error;
use farfield::prelude::*;
use farfield_collections::HashMap;

use crate::polled::polled;

/// What a key may have afterwards.
async fn has(map: &HashMap<u64, u64>, key: u64, allowed: &[Option<u64>], ct: &ComputeThread) -> Result<()> {
    let found = map.get(&key, ct).await?;
    assert!(allowed.contains(&found), "{key} has {found:?}, not one of {allowed:?}");
    Ok(())
}

#[test]
fn each_future_can_be_dropped_at_each_await() {
    for url in ["local:nodes=2,size=64MiB,delay=1", "sim:nodes=2,size=64MiB"] {
        let cluster = Cluster::connect(url).unwrap();
        let done = cluster.run(1, async |ct| {
            let root = HashMap::<u64, u64>::create(ct).await?;
            let map = HashMap::attach(root, ct).await?;
            let mut key = 0;
            // Small tables, so that some operations are dropped in the middle of a growth.
            for polls in 1..60 {
                for _ in 0..25 {
                    key += 10;
                    map.insert(&(key + 1), &1, ct).await?;
                    let inserted = polled(polls, map.insert(&key, &1, ct)).await?;
                    has(&map, key, if inserted.is_some() { &[Some(1)] } else { &[None, Some(1)] }, ct)
                        .await?;
                    map.upsert(&key, &2, ct).await?;
                    let updated = polled(polls, map.update(&key, &3, ct)).await?;
                    has(&map, key, if updated.is_some() { &[Some(3)] } else { &[Some(2), Some(3)] }, ct)
                        .await?;
                    map.upsert(&key, &4, ct).await?;
                    polled(polls, map.compare_and_update(&key, &4, &5, ct)).await?;
                    has(&map, key, &[Some(4), Some(5)], ct).await?;
                    map.upsert(&key, &6, ct).await?;
                    polled(polls, map.modify(&key, |old| old.map(|old| old + 1), ct)).await?;
                    has(&map, key, &[Some(6), Some(7)], ct).await?;
                    polled(polls, map.get(&key, ct)).await?;
                    polled(polls, map.iter(ct).next()).await?;
                    polled(polls, map.upsert(&(key + 2), &8, ct)).await?;
                    has(&map, key + 2, &[None, Some(8)], ct).await?;
                    polled(polls, map.take(&(key + 2), ct)).await?;
                    has(&map, key + 2, &[None, Some(8)], ct).await?;
                    let removed = polled(polls, map.remove(&key, ct)).await?;
                    let left = if removed.is_some() { None } else { map.get(&key, ct).await? };
                    assert!(left.is_none_or(|left| left == 6 || left == 7));
                }
                polled(polls, map.len(ct)).await?;
                polled(polls, map.recover(ct)).await?;
            }
            map.recover(ct).await?;
            let len = map.check(ct).await?;
            assert!(len >= 59 * 25);
            // What is dropped again and again is done at last.
            polled(usize::MAX, map.upsert(&1, &1, ct)).await?;
            map.destroy(ct).await
        });
        done.unwrap_or_else(|error| panic!("{url}: {error}"));
        let metrics = cluster.metrics();
        assert_eq!(metrics.allocated, metrics.freed, "{url}: objects are lost");
    }
}

#[test]
fn an_operation_has_a_deadline() {
    Cluster::connect("sim:rtt=1ms")
        .unwrap()
        .run(1, async |ct| {
            let map = HashMap::attach(HashMap::<u64, u64>::create(ct).await?, ct).await?;
            let late = ct.within(Duration::from_micros(1500), map.insert(&1, &1, ct)).await;
            assert!(matches!(late, Err(Error::DeadlineExceeded { .. })), "{late:?}");
            assert!(ct.within(Duration::from_millis(50), map.insert(&2, &2, ct)).await?);
            map.destroy(ct).await
        })
        .unwrap();
}
