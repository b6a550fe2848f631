//! Two concurrent runs on one cluster: one fills shelves, the other counts the boxes on them.
//!
//! Both use barriers of the same names, and share the cluster's roots and memory. A run that a compute thread starts is refused,
//! because it would block that thread.

use farfield::prelude::*;
use farfield::{Error, Result};

const SHELVES: usize = 6;
const ROUNDS: u64 = 50;

#[remote]
struct Shelf {
    lock: Lock,
    boxes: Atomic<u64>,
    /// Always ten for each box.
    items: Atomic<u64>,
}

#[remote]
struct Store {
    shelves: [Link<Shelf>; SHELVES],
    /// Finished rounds of the fillers.
    rounds: Atomic<u64>,
}

async fn store(ct: &ComputeThread) -> Result<RemotePtr<Store>> {
    let made = ct.root_or_init("store", async || {
        let store = Store::new_in(ct, Store::init()).await?.write(ct).await?;
        let g = ct.pin();
        for index in 0..SHELVES {
            let shelf = Shelf::new_in(ct, Shelf::init()).await?;
            store.shelves().at(index).store(&g, shelf).await?;
        }
        Ok(store)
    });
    made.await
}

/// Each filler adds boxes to its own shelves, in rounds.
fn fill(cluster: &Cluster, threads: usize) -> Result<()> {
    cluster.run(threads, async |ct| {
        let store = store(ct).await?;
        for round in 1..=ROUNDS {
            for index in (ct.index()..SHELVES).step_by(ct.threads()) {
                let g = ct.pin();
                let shelf = store.shelves().at(index).load(&g).await?;
                let lock = shelf.lock().acquire(ct).await?;
                shelf.boxes().fetch_add(ct, 1).await?;
                shelf.items().fetch_add(ct, 10).await?;
                lock.release().await?;
            }
            ct.barrier("round is over").await?; // of the fillers
            if ct.index() == 0 {
                store.rounds().store(ct, round).await?;
            }
            ct.barrier("round is noted").await?;
        }
        Ok(())
    })?;
    Ok(())
}

/// Counts the boxes on all shelves repeatedly while the fillers work. Returns the last count.
fn take_stock(cluster: &Cluster, threads: usize) -> Result<u64> {
    let counts = cluster.run(threads, async |ct| {
        let store = store(ct).await?;
        let mut last = 0;
        for _ in 0..2 * ROUNDS {
            ct.barrier("round is over").await?; // of the counters: a barrier of their own
            let (rounds, mut boxes) = (store.rounds().load(ct).await?, 0);
            for index in 0..SHELVES {
                let g = ct.pin();
                let shelf = store.shelves().at(index).load(&g).await?;
                let lock = shelf.lock().acquire(ct).await?;
                let (seen, items) = (shelf.boxes().load(ct).await?, shelf.items().load(ct).await?);
                lock.release().await?;
                if items != 10 * seen {
                    return Err(Error::other(format!("{items} items in {seen} boxes")));
                }
                boxes += seen;
            }
            if boxes < last || boxes < rounds * SHELVES as u64 {
                return Err(Error::other(format!("{boxes} boxes after {rounds} rounds and {last} boxes")));
            }
            last = boxes;
        }
        Ok(last)
    })?;
    Ok(counts.into_iter().fold(0, u64::max))
}

#[test]
fn concurrent_runs_share_a_store_and_no_barrier() -> Result<()> {
    for url in ["local:size=1MiB", "local:size=1MiB,delay=3", "local:nodes=2,size=1MiB"] {
        let cluster = Cluster::connect(url)?;
        // ANCHOR: both
        let seen = std::thread::scope(|scope| {
            let filling = scope.spawn(|| fill(&cluster, 3));
            let counting = scope.spawn(|| take_stock(&cluster, 2));
            filling.join().expect("no thread panics")?;
            counting.join().expect("no thread panics")
        })?;
        // ANCHOR_END: both
        let last = take_stock(&cluster, 1)?;
        assert!(seen <= last && last == ROUNDS * SHELVES as u64, "{url}: {seen} boxes, then {last}");
    }
    Ok(())
}

#[test]
fn a_run_inside_a_run_is_refused_with_advice() -> Result<()> {
    let cluster = Cluster::connect("local:size=1MiB")?;
    let refused = cluster.run(1, async |ct| Ok(take_stock(ct.cluster(), 1).unwrap_err().to_string()))?;
    assert!(refused[0].contains("start it on a thread of its own"), "{}", refused[0]);
    assert!(!refused[0].contains('\n'));
    Ok(())
}
