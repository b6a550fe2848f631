//! Agreement of threads: roots, barriers, and the end of a run.

use std::sync::atomic::{AtomicUsize, Ordering};

use farfield::prelude::*;
use farfield::{Error, Result};

#[remote]
struct Number {
    value: u64,
    hits: Atomic<u64>,
}

#[remote]
struct Other {
    value: u32,
}

async fn number(value: u64, ct: &ComputeThread) -> Result<RemotePtr<Number>> {
    Number::new_in(ct, Number::init(value)).await?.write(ct).await
}

#[test]
fn one_thread_makes_a_root_and_the_others_find_it() {
    for url in ["local:", "local:delay=6", "local:nodes=3"] {
        let made = AtomicUsize::new(0);
        let roots = Cluster::connect(url).unwrap().run(8, async |ct| {
            let root = ct.root_or_init("number", async || {
                made.fetch_add(1, Ordering::SeqCst);
                number(5, ct).await
            });
            let root = root.await?;
            root.hits().fetch_add(ct, 1).await?;
            ct.barrier("hit").await?;
            assert_eq!(root.hits().load(ct).await?, 8);
            Ok(root.address())
        });
        let roots = roots.unwrap();
        assert_eq!(made.load(Ordering::SeqCst), 1, "{url}");
        assert!(roots.iter().all(|root| *root == roots[0]), "{url}");
    }
}

#[farfield::test]
async fn roots_are_published_found_and_taken_back(ct: &ComputeThread) -> Result<()> {
    let (a, b) = (number(1, ct).await?, number(2, ct).await?);
    assert!(matches!(ct.lookup::<Number>("a").await, Err(Error::RootNotFound { .. })));
    ct.publish("a", a).await?;
    ct.publish("b", b).await?;
    assert!(matches!(ct.publish("a", b).await, Err(Error::RootExists { .. })));
    assert_eq!((ct.lookup("a").await?, ct.lookup("b").await?), (a, b));
    assert_eq!(ct.unpublish("a").await?, a);
    assert!(matches!(ct.unpublish::<Number>("a").await, Err(Error::RootNotFound { .. })));
    ct.publish("a", b).await?;
    assert_eq!(ct.lookup("a").await?, b);
    Ok(())
}

#[farfield::test]
async fn a_root_of_another_layout_is_refused_with_both_names(ct: &ComputeThread) -> Result<()> {
    ct.publish("number", number(1, ct).await?).await?;
    for error in [
        ct.lookup::<Other>("number").await.unwrap_err(),
        ct.unpublish::<Other>("number").await.unwrap_err(),
        ct.root_or_init("number", async || -> Result<RemotePtr<Other>> { unreachable!() }).await.unwrap_err(),
    ] {
        let said = error.to_string();
        assert!(matches!(error, Error::LayoutMismatch { .. }), "{said}");
        assert!(said.contains("Number") && said.contains("Other") && !said.contains('\n'), "{said}");
    }
    Ok(())
}

#[farfield::test]
async fn names_have_bounds(ct: &ComputeThread) -> Result<()> {
    let root = number(1, ct).await?;
    assert!(matches!(ct.publish("", root).await, Err(Error::InvalidName { .. })));
    assert!(matches!(ct.publish(&"n".repeat(48), root).await, Err(Error::InvalidName { .. })));
    ct.publish(&"n".repeat(47), root).await?;
    ct.barrier("barrier").await?;
    assert!(matches!(ct.barrier(&"n".repeat(48)).await, Err(Error::InvalidName { .. })));
    assert!(matches!(ct.lookup::<Number>("barrier").await, Err(Error::RootNotFound { .. })));
    for entry in 1..128 {
        ct.publish(&format!("entry {entry}"), root).await?;
    }
    let full = ct.publish("one more", root).await.unwrap_err();
    assert!(matches!(&full, Error::DirectoryFull(full) if full.capacity == 128), "{full}");
    Ok(())
}

#[test]
fn when_making_a_root_fails_the_next_thread_tries() {
    let tries = AtomicUsize::new(0);
    let outcomes = Cluster::connect("local:delay=3").unwrap().run(4, async |ct| {
        let root = ct.root_or_init("number", async || {
            if tries.fetch_add(1, Ordering::SeqCst) < 2 {
                return Err(Error::other("not yet"));
            }
            number(1, ct).await
        });
        Ok(root.await.is_ok())
    });
    let made = outcomes.unwrap().into_iter().filter(|made| *made).count();
    assert_eq!((made, tries.load(Ordering::SeqCst)), (2, 3));
}

#[test]
fn a_root_whose_creation_was_dropped_can_be_created_again() {
    // The future is dropped after its first step.
    let cluster = Cluster::connect("local:").unwrap();
    cluster
        .run(1, async |ct| {
            let stuck = ct.root_or_init("number", async || {
                loop {
                    ct.yield_now().await;
                }
            });
            let gives_up = async {
                ct.yield_now().await;
                ct.yield_now().await;
            };
            first_of::<RemotePtr<Number>>(stuck, gives_up).await;
            let root = ct.root_or_init("number", async || number(7, ct).await).await?;
            assert_eq!(root.value().read(&ct.pin()).await?, 7);
            Ok(())
        })
        .unwrap();
}

#[test]
fn a_name_is_free_again_whenever_the_future_that_claims_it_is_dropped() {
    for seed in 0..20 {
        let cluster = Cluster::connect(&format!("local:size=1MiB,delay=3,seed={seed}")).unwrap();
        let tried = cluster.run(1, async |ct| {
            for polls in 0..40 {
                let name = &format!("number {polls}");
                let mut claims = Box::pin(ct.root_or_init(name, async || number(5, ct).await));
                let mut left = polls;
                std::future::poll_fn(|context| {
                    if left == 0 || claims.as_mut().poll(context).is_ready() {
                        return std::task::Poll::Ready(());
                    }
                    left -= 1;
                    context.waker().wake_by_ref();
                    std::task::Poll::Pending
                })
                .await;
                drop(claims);
                let made = ct.root_or_init(name, async || number(7, ct).await).await?;
                let value = made.value().read(&ct.pin()).await?;
                assert!(value == 5 || value == 7, "{value}");
            }
            Ok(())
        });
        tried.unwrap();
    }
}

/// Polls both until the second is ready.
async fn first_of<T>(one: impl Future<Output = Result<T>>, other: impl Future<Output = ()>) {
    let (mut one, mut other) = (std::pin::pin!(one), std::pin::pin!(other));
    std::future::poll_fn(|context| {
        assert!(one.as_mut().poll(context).is_pending());
        other.as_mut().poll(context)
    })
    .await;
}

#[test]
fn a_barrier_waits_for_every_thread_every_time() {
    for url in ["local:", "local:delay=4"] {
        let cluster = Cluster::connect(url).unwrap();
        for threads in [1, 4, 3] {
            let arrived = AtomicUsize::new(0);
            let passes = cluster.run(threads, async |ct| {
                for round in 1..=20 {
                    arrived.fetch_add(1, Ordering::SeqCst);
                    ct.barrier("round").await?;
                    if arrived.load(Ordering::SeqCst) < round * threads {
                        return Err(Error::other(format!("passed round {round} early")));
                    }
                    ct.barrier("next").await?;
                }
                Ok(())
            });
            passes.unwrap_or_else(|error| panic!("{url}: {error}"));
        }
    }
}

#[test]
fn a_barrier_that_a_thread_never_reaches_is_broken() {
    let cluster = Cluster::connect("local:").unwrap();
    let error = cluster
        .run(3, async |ct| {
            if ct.index() == 1 {
                return Err(Error::other("thread 1 has had enough"));
            }
            ct.barrier("done").await
        })
        .unwrap_err();
    assert_eq!(error.to_string(), "thread 1 has had enough", "the cause, not its consequence");
    let broken = cluster.run(2, async |ct| if ct.index() == 0 { Ok(()) } else { ct.barrier("done").await });
    assert!(matches!(broken, Err(Error::BarrierBroken { .. })));
    // The next run starts over.
    cluster.run(3, async |ct| ct.barrier("done").await).unwrap();
}

#[test]
fn a_panic_reaches_the_caller_and_blocks_no_thread() {
    let cluster = Cluster::connect("local:").unwrap();
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ = cluster.run(3, async |ct| {
            assert!(ct.index() != 2, "thread 2 panics");
            ct.barrier("done").await
        });
    }));
    let message = panic.unwrap_err();
    assert!(message.downcast_ref::<&str>().is_some_and(|said| said.contains("thread 2 panics")));
    cluster.run(2, async |ct| ct.barrier("done").await).unwrap();
}

#[test]
fn a_run_without_threads_is_refused() {
    let error = Cluster::connect("local:").unwrap().run(0, async |_| Ok(())).unwrap_err();
    assert_eq!(error.to_string(), "threads is 0: a run needs at least one thread");
}

#[test]
fn a_run_of_more_threads_than_a_process_can_have_is_refused() {
    for (url, threads) in [
        ("local:", 40_000),
        ("local:delay=2", usize::MAX),
        ("sim:", 65_537),
        ("sim:", usize::MAX),
        ("sim:threads-per-node=100", 262_145),
    ] {
        let cluster = Cluster::connect(url).unwrap();
        for error in [
            cluster.run(threads, async |_| Ok(())).map(drop).unwrap_err(),
            cluster.run_surviving(threads, async |_| Ok(())).map(drop).unwrap_err(),
        ] {
            let error = error.to_string();
            assert!(
                error.starts_with(&format!("threads is {threads}")) && error.contains(": a "),
                "{url}: {error}"
            );
        }
        assert_eq!(
            cluster.run(2, async |ct| Ok(ct.index())).unwrap(),
            [0, 1],
            "a run after the refused ones succeeds"
        );
    }
}

#[test]
fn threads_have_identities_and_random_numbers_of_their_own() {
    let cluster = Cluster::connect("local:seed=3").unwrap();
    let first = cluster.run(4, async |ct| Ok((ct.id(), ct.random::<u64>()))).unwrap();
    let second = cluster.run(4, async |ct| Ok((ct.id(), ct.random::<u64>()))).unwrap();
    let mut ids: Vec<_> = first.iter().chain(&second).map(|(id, _)| *id).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 8);
    let again = Cluster::connect("local:seed=3").unwrap().run(4, async |ct| Ok(ct.random::<u64>())).unwrap();
    assert_eq!(first.iter().map(|(_, number)| *number).collect::<Vec<_>>(), again, "by seed and identity");
}

#[farfield::test]
async fn sleeping_takes_as_long_as_asked(ct: &ComputeThread) -> Result<()> {
    let (before, nap) = (ct.now(), std::time::Duration::from_millis(2));
    ct.sleep(nap).await;
    assert!(ct.now() >= before + nap);
    Ok(())
}
