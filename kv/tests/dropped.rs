//! Futures of the store that are dropped at each of their awaits: the store works on, and its counts are right.

mod keys;
#[path = "../../collections/tests/all/polled.rs"]
mod polled;

use std::collections::HashMap;

use farfield::prelude::*;
use farfield_kv::{Options, Store};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use keys::key;
use polled::polled;

const KEYS: u64 = 3000;
const BUDGET: usize = 500_000;

/// The values that each key may have. `None` is none.
type Model = HashMap<u64, Vec<Option<Vec<u8>>>>;

async fn check(store: &Store, model: &Model, ct: &ComputeThread) -> Result<()> {
    for name in 0..KEYS {
        let found = store.read(&key(name), ct).await?;
        let is_possible = model.get(&name).map_or(found.is_none(), |possible| possible.contains(&found));
        assert!(is_possible, "key {name}");
    }
    Ok(())
}

#[test]
fn each_future_can_be_dropped_at_each_await() {
    let options = Options::new(BUDGET, 16 << 20);
    // A rebuild that is dropped while it frees its page may lose that.
    let cluster = Cluster::connect("sim:size=32MiB,leaks=ignore").unwrap();
    let run = cluster.run(1, async |ct| {
        let (mut model, mut rng, mut dropped) = (Model::new(), SmallRng::seed_from_u64(1), 0);
        {
            let store = Store::open("store", &options, ct).await?;
            for polls in 1..40 {
                for _ in 0..300 {
                    let name = rng.random_range(0..KEYS);
                    let old = model.remove(&name).unwrap_or_else(|| vec![None]);
                    let value = vec![polls as u8; rng.random_range(0..1000)];
                    let (done, new) = match rng.random_range(0..8) {
                        0 => (polled(polls, store.delete(&key(name), ct)).await?.map(drop), None),
                        1 => {
                            let read = polled(polls, store.read(&key(name), ct)).await?;
                            assert!(read.as_ref().is_none_or(|found| old.contains(found)));
                            dropped += u64::from(read.is_none());
                            model.insert(name, old);
                            continue;
                        }
                        _ => (polled(polls, store.write(&key(name), &value, false, ct)).await?, Some(value)),
                    };
                    dropped += u64::from(done.is_none());
                    let possible = if done.is_some() { vec![new] } else { [old, vec![new]].concat() };
                    model.insert(name, possible);
                }
                dropped += u64::from(polled(polls, store.rebuild(95, ct)).await?.is_none());
            }
            check(&store, &model, ct).await?;
            // Pages are still read, evicted and rebuilt.
            let before = store.stats();
            for name in (0..KEYS).rev() {
                store.write(&key(name), &[1; 500], false, ct).await?;
                model.insert(name, vec![Some(vec![1; 500])]);
            }
            ct.flush().await?;
            check(&store, &model, ct).await?;
            assert!(store.rebuild(100, ct).await? > 0);
            let stats = store.stats();
            assert!(
                stats.record_reads > before.record_reads
                    && stats.evicted_pages > before.evicted_pages
                    && stats.rebuilt_pages > before.rebuilt_pages,
                "{before:?} {stats:?}"
            );
            assert_eq!((stats.records, stats.user_bytes), (KEYS, KEYS * 516));
            assert_eq!(stats.live_bytes, KEYS * 8 * 66);
            assert!(stats.amplification() < 1.25, "{stats:?}");
            assert!(stats.local_bytes <= BUDGET as u64, "{stats:?}");
            // Nothing that was taken of the budget is lost: copies fill it.
            assert!(stats.local_pages * 16 * 1024 > BUDGET as u64 / 2, "{stats:?}");
        }
        let store = Store::open("store", &options, ct).await?;
        check(&store, &model, ct).await?;
        Ok((dropped, store.stats()))
    });
    let (dropped, stats) = run.unwrap().remove(0);
    println!("kv.dropped.futures {dropped}");
    assert!(dropped > 1000, "{dropped} futures were dropped");
    assert_eq!(stats.records, KEYS);
    let metrics = cluster.metrics();
    let lost = metrics.allocated - metrics.freed - stats.pages;
    println!("kv.dropped.lost_pages {lost}");
    assert!(lost < dropped / 50, "{lost} pages of {} are lost", metrics.allocated);
}
