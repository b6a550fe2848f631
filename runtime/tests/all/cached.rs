//! `Cached`: the round trips that it saves, the handles that it keeps, and the simulator's report of a handle to a freed object.

use farfield::error::Error;
use farfield::prelude::*;
use farfield::sim::Finding;
use farfield::{Cached, RemotePtr};

#[remote]
struct Bucket {
    number: u64,
    hits: Atomic<u64>,
}

async fn buckets(count: u64, ct: &ComputeThread) -> Result<Vec<RemotePtr<Bucket>>> {
    let mut buckets = Vec::new();
    for number in 0..count {
        buckets.push(Bucket::new_in(ct, Bucket::init(number)).await?.write(ct).await?);
    }
    Ok(buckets)
}

#[farfield::test(cluster = "local:size=64KiB")]
async fn a_hit_costs_no_round_trip_and_the_bound_holds(ct: &ComputeThread) -> Result<()> {
    let buckets = buckets(5, ct).await?;
    let cache = Cached::<Bucket, 3>::default();
    let read = async |index: usize| {
        let before = ct.metrics().reads;
        let handle = cache.get(buckets[index], ct).await?;
        assert_eq!(handle.number(), index as u64);
        Ok::<u64, Error>(ct.metrics().reads - before)
    };
    for index in [0, 1, 2] {
        assert_eq!(read(index).await?, 1);
    }
    for index in [2, 1, 0] {
        assert_eq!(read(index).await?, 0);
    }
    assert_eq!(read(3).await?, 1);
    assert_eq!(cache.len(), 3, "full");
    assert_eq!(read(0).await?, 0, "it was used most recently");
    assert_eq!(read(2).await?, 1, "it was used least recently");
    assert_eq!((cache.hits(), cache.misses(), cache.evictions()), (4, 5, 2));
    cache.forget(buckets[0]);
    assert_eq!(read(0).await?, 1);
    cache.clear();
    assert!(cache.is_empty());
    assert!(cache.get(RemotePtr::NULL, ct).await.is_err());
    assert!(cache.is_empty(), "a failed attachment is not cached");
    Ok(())
}

#[farfield::test(cluster = "local:size=64KiB,delay=8")]
async fn tasks_that_miss_together_get_handles_to_one_object(ct: &ComputeThread) -> Result<()> {
    let bucket = buckets(1, ct).await?[0];
    let cache = Cached::<Bucket, 2>::default();
    ct.tasks(8, async |_| cache.get(bucket, ct).await?.hits().fetch_add(ct, 1).await).await?;
    assert_eq!(cache.get(bucket, ct).await?.hits().load(ct).await?, 8);
    assert_eq!((cache.len(), cache.evictions(), cache.hits() + cache.misses()), (1, 0, 9));
    Ok(())
}

#[test]
fn the_simulator_reports_a_cached_handle_to_a_freed_object() {
    let outcome = Cluster::connect("sim:").unwrap().run(1, async |ct| {
        let bucket = buckets(1, ct).await?[0];
        let cache = Cached::<Bucket, 2>::default();
        cache.get(bucket, ct).await?;
        ct.delete(bucket).await?;
        cache.get(bucket, ct).await.map(drop)
    });
    match outcome {
        Err(Error::Simulation(found)) => {
            assert_eq!(found.finding, Finding::UseAfterFree);
            assert!(found.to_string().contains("cached READ of 16 bytes"), "{found}");
        }
        other => panic!("{other:?}"),
    }
}
