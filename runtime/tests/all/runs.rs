//! Several runs on one cluster at the same time: their own barriers, their shared memory, and refused runs.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex};

use farfield::prelude::*;
use farfield::{Error, Result};

#[remote]
struct Small {
    words: [u64; 2],
}

#[remote]
struct Row {
    words: Tail<u64>,
}

/// A run whose threads pass barriers of the same names repeatedly. Returns how often a thread crossed one too early.
fn pass_barriers(cluster: &Cluster, threads: usize, rounds: usize) -> Result<usize> {
    let (arrived, early) = (AtomicUsize::new(0), AtomicUsize::new(0));
    cluster.run(threads, async |ct| {
        for round in 1..=rounds {
            arrived.fetch_add(1, Ordering::SeqCst);
            ct.barrier("all have arrived").await?;
            if arrived.load(Ordering::SeqCst) < round * threads {
                early.fetch_add(1, Ordering::SeqCst);
            }
            ct.barrier("all have looked").await?;
        }
        Ok(())
    })?;
    Ok(early.into_inner())
}

#[test]
fn concurrent_runs_have_separate_barriers() {
    for url in ["local:", "local:delay=3"] {
        let cluster = Cluster::connect(url).unwrap();
        for repetition in 0..200 {
            let run = |threads, rounds| {
                let passed = pass_barriers(&cluster, threads, rounds);
                let early = passed.unwrap_or_else(|error| panic!("{url}, {repetition}: {error}"));
                assert_eq!(early, 0, "{url}, {repetition}: barriers were crossed too early");
            };
            std::thread::scope(|scope| {
                scope.spawn(|| run(2, 8));
                scope.spawn(|| run(3, 5));
            });
        }
    }
}

#[test]
fn a_root_and_a_barrier_may_have_the_same_name() {
    for url in ["local:", "sim:leaks=ignore"] {
        let cluster = Cluster::connect(url).unwrap();
        cluster
            .run(2, async |ct| {
                ct.barrier("name").await?;
                let root = ct.root_or_init("name", async || {
                    Small::new_in(ct, Small::init([1, 2])).await?.write(ct).await
                });
                let root = root.await?;
                ct.barrier("name").await?;
                assert_eq!(ct.lookup::<Small>("name").await?, root);
                ct.barrier("name").await
            })
            .unwrap_or_else(|error| panic!("{url}: {error}"));
    }
}

#[test]
fn a_run_may_use_any_number_of_barriers() {
    Cluster::connect("local:size=64KiB")
        .unwrap()
        .run(2, async |ct| {
            for round in 0..500 {
                ct.barrier(&format!("round {round}")).await?;
            }
            let error = ct.barrier("").await.unwrap_err();
            assert!(matches!(error, Error::InvalidName { .. }), "{error}");
            Ok(())
        })
        .unwrap();
}

#[test]
fn a_run_inside_a_run_is_refused() {
    for url in ["local:", "local:delay=3", "sim:"] {
        let (cluster, other) = (Cluster::connect(url).unwrap(), Cluster::connect(url).unwrap());
        for _ in 0..50 {
            let ran = cluster.run(2, async |ct| {
                ct.barrier("outside").await?;
                let error = ct.cluster().run(2, async |ct| ct.barrier("inside").await).unwrap_err();
                assert!(matches!(error, Error::InvalidArgument { .. }), "{url}: {error}");
                assert!(error.to_string().contains("inside"), "{url}: {error}");
                // A run on another cluster is independent of this one.
                other.run(1, async |ct| ct.barrier("inside").await).or_else(|error| match url {
                    // One thread of the system polls both threads of this run.
                    "sim:" => Err(error),
                    _ => Ok(vec![()]),
                })?;
                ct.barrier("outside").await
            });
            ran.unwrap_or_else(|error| panic!("{url}: {error}"));
        }
        cluster.run(2, async |ct| ct.barrier("outside").await).unwrap();
    }
}

/// A thread of one run reuses memory that another run has freed, in blocks of another size. The threads of the first run learn that size.
#[test]
fn concurrent_runs_share_memory_and_the_sizes_of_blocks() {
    let cluster = Cluster::connect("local:size=1MiB").unwrap();
    let (is_freed, larger) = (AtomicBool::new(false), Mutex::<Option<Vec<RemotePtr<Row>>>>::new(None));
    let row =
        async |ct: &ComputeThread, words| Row::new_in(ct, Row::init(vec![7; words])).await?.write(ct).await;
    std::thread::scope(|scope| {
        let first = scope.spawn(|| {
            cluster.run(1, async |ct| {
                let mut small = Vec::new();
                for _ in 0..25_000 {
                    small.push(row(ct, 3).await?);
                }
                for row in small {
                    ct.delete(row).await?;
                }
                is_freed.store(true, Ordering::SeqCst);
                let rows = loop {
                    if let Some(rows) = larger.lock().unwrap().take() {
                        break rows;
                    }
                    ct.yield_now().await;
                    drop(ct.pin());
                };
                for row in rows {
                    ct.delete(row).await?;
                }
                Ok(())
            })
        });
        let second = scope.spawn(|| {
            let taken = cluster.run(1, async |ct| {
                while !is_freed.load(Ordering::SeqCst) {
                    ct.yield_now().await;
                }
                let mut larger = Vec::new();
                for _ in 0..6_000 {
                    larger.push(row(ct, 15).await?);
                }
                Ok(larger)
            });
            let rows = taken.as_ref().map_or_else(|_| Vec::new(), |rows| rows[0].clone());
            *larger.lock().unwrap() = Some(rows);
            taken
        });
        second.join().unwrap().unwrap();
        first.join().unwrap().unwrap();
    });
    let usage = cluster.run(1, async |ct| ct.heap_use().await).unwrap();
    assert_eq!(usage[0][0].live_bytes, 0, "objects were freed in blocks of another size than they had");
}

/// At the end of a run garbage is freed only if no other run is under way: another thread may hold a pointer to it.
#[test]
fn the_end_of_one_run_frees_nothing_that_another_may_see() {
    let cluster = Cluster::connect("local:size=1MiB").unwrap();
    let (is_seen, is_retired) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            cluster.run(1, async |ct| {
                let root = ct
                    .root_or_init("row", async || Row::new_in(ct, Row::init(vec![7])).await?.write(ct).await);
                let root = root.await?;
                let guard = ct.pin();
                is_seen.wait();
                is_retired.wait();
                assert!(cluster.clear().is_err(), "a run is under way");
                assert_eq!(root.words().read(&guard, 0..1).await?, [7]);
                assert_eq!(ct.metrics().freed, 0);
                Ok(())
            })
        });
        is_seen.wait();
        let retired = cluster.run(1, async |ct| {
            let root = ct.unpublish::<Row>("row").await?;
            let guard = ct.pin();
            guard.sched_reclaim(root.shared(&guard)).await
        });
        assert_eq!(cluster.metrics().freed, 0, "another run is under way");
        is_retired.wait();
        retired.unwrap();
        reader.join().unwrap().unwrap();
    });
    assert_eq!(cluster.metrics().freed, 1);
}
