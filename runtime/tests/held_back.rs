//! A guard that is kept while other threads retire objects: they get an error before memory is full.

use std::time::Duration;

use farfield::prelude::*;
use farfield::{Error, HeldBackBy};

#[remote]
struct Thing {
    words: [u64; 16],
    next: Link<Thing>,
}

const BYTES: u64 = 17 * 8;

/// Makes a thing and retires it.
async fn make_and_retire(ct: &ComputeThread) -> Result<()> {
    let g = &ct.pin();
    let thing = Thing::new_in(g, Thing::init([7; 16])).await?.write(g).await?;
    g.sched_reclaim(thing.shared(g)).await
}

/// Retires things until that fails. Returns the number of retired bytes, the process or thread that holds them back, and the message.
async fn retire_until_refused(ct: &ComputeThread) -> Result<(u64, Option<HeldBackBy>, String)> {
    for _ in 0..100_000 {
        match make_and_retire(ct).await {
            Ok(()) => {}
            Err(error @ Error::ReclamationHeldBack(_)) => {
                let text = error.to_string();
                let Error::ReclamationHeldBack(held) = error else { unreachable!("the pattern has matched") };
                assert!(held.retired_bytes > held.limit_bytes);
                return Ok((held.retired_bytes, held.held_back_by, text));
            }
            Err(other) => return Err(other),
        }
    }
    Err(Error::other("no retirement was refused"))
}

#[test]
fn a_forgotten_guard_of_another_thread_is_named() {
    for url in ["local:size=1MiB,max-retired=16KiB", "local:size=1MiB,max-retired=16KiB,delay=2"] {
        let run = Cluster::connect(url).unwrap().run(2, async |ct| {
            if ct.index() == 1 {
                let forgotten = ct.pin();
                ct.barrier("pinned").await?;
                ct.barrier("told").await?;
                drop(forgotten);
                ct.barrier("dropped").await?;
                return Ok(());
            }
            ct.barrier("pinned").await?;
            let (retired, by, text) = retire_until_refused(ct).await?;
            assert!((16 << 10..(16 << 10) + 20 * BYTES).contains(&retired), "{retired}");
            assert_eq!(by, Some(HeldBackBy::Thread(1)));
            assert!(text.contains("by a guard of thread 1 of this process"), "{text}");
            // The thread can not allocate, and so not retire anything new.
            let retired = ct.metrics().retired;
            assert!(matches!(
                Thing::new_in(ct, Thing::init([0; 16])).await,
                Err(Error::ReclamationHeldBack(_))
            ));
            assert!(make_and_retire(ct).await.is_err());
            assert_eq!(ct.metrics().retired, retired, "the object could not be allocated");
            ct.barrier("told").await?;
            ct.barrier("dropped").await?;
            // Without the guard, threads continue, and all retired objects are freed.
            for _ in 0..1000 {
                make_and_retire(ct).await?;
            }
            while ct.reclamation().await?.retired_objects > 0 {
                ct.try_reclaim().await;
            }
            assert_eq!(
                ct.metrics().retired,
                ct.metrics().reclaimed,
                "also objects for which sched_reclaim has failed"
            );
            Ok(())
        });
        run.unwrap();
    }
}

#[test]
fn a_forgotten_guard_of_the_thread_itself_is_no_deadlock() {
    for url in ["local:size=1MiB,max-retired=16KiB", "sim:size=1MiB,max-retired=16KiB,leaks=ignore"] {
        let run = Cluster::connect(url).unwrap().run(1, async |ct| {
            std::mem::forget(ct.pin());
            let (retired, by, text) = retire_until_refused(ct).await?;
            assert!((16 << 10..(16 << 10) + 20 * BYTES).contains(&retired), "{retired}");
            assert_eq!(by, Some(HeldBackBy::Thread(0)));
            assert!(text.contains("by a guard of this thread itself (0, 0x"), "{text}");
            assert!(text.contains("max-retired=16384") && !text.contains('\n'), "{text}");
            assert!(make_and_retire(ct).await.is_err());
            Ok(())
        });
        run.unwrap_or_else(|error| panic!("{url}: {error}"));
    }
}

/// Each simulated thread is a process of its own.
#[test]
fn a_process_that_keeps_a_guard_is_named() {
    let run = Cluster::connect("sim:size=1MiB,max-retired=16KiB,leaks=ignore").unwrap().run(3, async |ct| {
        if ct.index() == 1 {
            let forgotten = ct.pin();
            ct.barrier("pinned").await?;
            ct.barrier("told").await?;
            drop(forgotten);
            return Ok(());
        }
        ct.barrier("pinned").await?;
        if ct.index() == 0 {
            let (_, by, text) = retire_until_refused(ct).await?;
            assert!(matches!(by, Some(HeldBackBy::Process(_))), "{by:?}");
            assert!(text.contains("by process 2, which keeps a guard"), "{text}");
        }
        ct.barrier("told").await?;
        // The process leaves with its last thread, some round trips later.
        for attempts in 0.. {
            match make_and_retire(ct).await {
                Err(Error::ReclamationHeldBack(_)) if attempts < 100 => {
                    ct.sleep(Duration::from_micros(10)).await;
                }
                other => {
                    other?;
                    break;
                }
            }
        }
        for _ in 0..300 {
            make_and_retire(ct).await?;
        }
        Ok(())
    });
    run.unwrap();
}

/// Even with a small limit: other threads drop their guards soon.
#[test]
fn a_burst_of_retirements_under_short_guards_is_not_refused() {
    for url in [
        "local:size=1MiB,max-retired=0",
        "local:size=1MiB,max-retired=1KiB",
        "local:size=1MiB,max-retired=1KiB,delay=3",
        "sim:size=1MiB,max-retired=1KiB,jitter=50%",
    ] {
        let run = Cluster::connect(url).unwrap().run(3, async |ct| {
            ct.tasks(2, async |_| {
                for _ in 0..if url.starts_with("sim") { 100 } else { 2000 } {
                    make_and_retire(ct).await?;
                }
                Ok(())
            })
            .await
            .map(drop)
        });
        run.unwrap_or_else(|error| panic!("{url}: {error}"));
    }
}

/// A retirement waits for a guard for some time before it fails.
#[test]
fn a_guard_that_is_dropped_in_time_is_waited_for() {
    let run = Cluster::connect("sim:size=1MiB,max-retired=4KiB").unwrap().run(2, async |ct| {
        for _ in 0..5 {
            if ct.index() == 1 {
                let g = ct.pin();
                ct.sleep(Duration::from_micros(300)).await;
                drop(g);
                ct.try_reclaim().await;
            } else {
                for _ in 0..100 {
                    make_and_retire(ct).await?;
                }
            }
        }
        Ok(())
    });
    run.unwrap();
}

/// The default is half of the memory, so a forgotten guard is reported before memory is full.
#[test]
fn there_is_a_limit_by_default() {
    let run = Cluster::connect("local:nodes=2,size=256KiB").unwrap().run(1, async |ct| {
        std::mem::forget(ct.pin());
        retire_until_refused(ct).await
    });
    let (retired, ..) = run.unwrap()[0];
    assert!((256 << 10..(256 << 10) + 20 * BYTES).contains(&retired), "{retired}");
}

/// An attempt to reclaim READs the epoch. While a guard of another process makes all attempts fail, a retirement mostly costs none.
#[test]
fn a_thread_with_many_retired_objects_rarely_tries_to_reclaim_them() {
    let run = Cluster::connect("sim:size=64MiB").unwrap().run(2, async |ct| {
        if ct.index() == 1 {
            let kept = ct.pin();
            ct.barrier("pinned").await?;
            ct.barrier("retired").await?;
            drop(kept);
            return Ok(());
        }
        ct.barrier("pinned").await?;
        for _ in 0..5000 {
            make_and_retire(ct).await?;
        }
        let before = ct.metrics();
        for _ in 0..640 {
            make_and_retire(ct).await?;
        }
        let reads = ct.metrics().reads - before.reads;
        assert!(ct.reclamation().await?.retired_objects > 5000);
        assert!((10..100).contains(&reads), "{reads} READs for 640 retirements");
        ct.barrier("retired").await
    });
    run.unwrap();
}
