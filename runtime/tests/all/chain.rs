//! Chains from outside: their order, their round trips, and their locks and objects.

use crate::round_trips::{round_trips, takes};
use farfield::prelude::*;
use farfield::{Address, Error, Result};

const EXACT: &str = "sim:rtt=2us,bandwidth=inf,rate=inf,jitter=0%,doorbell=0ns,compute=0,nodes=2";

#[remote]
struct Node {
    key: u64,
    small: u16,
    #[marks(deleted)]
    next: Link<Node>,
    lock: Lock,
    hits: Atomic<u64>,
}

/// A new node on memory node `on`.
async fn node(key: u64, on: u16, ct: &ComputeThread) -> Result<RemotePtr<Node>> {
    Node::new_in(ct.on_node(on), Node::init(key, 9)).await?.write(ct).await
}

/// Runs `body` where operations are ready immediately, where they are not, and where they are counted.
fn everywhere(body: impl AsyncFn(&ComputeThread) -> Result<()> + Sync) {
    for url in ["local:nodes=2,size=1MiB", "local:nodes=2,size=1MiB,delay=7", EXACT] {
        let cluster = Cluster::connect(url).unwrap();
        cluster.run(1, &body).unwrap_or_else(|error| panic!("{url}: {error}"));
        let metrics = cluster.metrics();
        assert_eq!(metrics.allocated, metrics.freed, "{url}");
    }
}

#[test]
fn every_operation_returns_its_result() {
    everywhere(async |ct| {
        let (one, two) = (node(1, 0, ct).await?, node(2, 0, ct).await?);
        let g = &ct.pin();
        let took = round_trips(ct, async || {
            let hits = one.hits();
            let atomics = (
                op::store(hits, 5),
                op::fetch_add(hits, 2),
                op::compare_exchange(hits, 7, 8),
                [op::compare_exchange(hits, 7, 9)],
                Some(op::load(hits)),
            );
            let marked = two.shared(g).as_marked::<NodeMarked>().with_deleted();
            let links = (
                op::store(one.next(), two),
                op::load(one.next()),
                op::compare_exchange_link(one.next(), two, marked),
            );
            let reads = (op::read(one.small()), vec![op::read(one)]);
            let chain = g.chain((op::try_lock(one.lock()), atomics, links, reads));
            let (lock, atomics, (stored, next, marked), (small, whole)) = chain.submit().await?;

            let lock = lock.expect("it was free");
            assert_eq!(atomics, ((), 5, Ok(7), [Err(8)], Some(8)));
            assert_eq!(small, 9);
            assert!(stored == two && next == two && marked.is_ok());
            let [whole] = &whole[..] else { panic!("{} results", whole.len()) };
            assert_eq!((whole.key, whole.hits, whole.lock.owner()), (1, 8, Some(ct.id())));
            assert!(whole.next.is_deleted() && whole.next.without_marks() == two);
            Ok(lock.release().await?)
        });
        takes(took.await?, 2);
        ct.delete(one).await?;
        ct.delete(two).await
    });
}

#[test]
fn a_change_of_memory_node_costs_a_round_trip_and_keeps_the_order() {
    everywhere(async |ct| {
        let (here, there) = (node(1, 0, ct).await?, node(2, 1, ct).await?);
        let took = round_trips(ct, async || {
            let g = &ct.pin();
            let stores = (op::store(here.hits(), 1), op::store(there.hits(), 2));
            let loads = (op::load(there.hits()), op::load(here.hits()));
            let (_, loaded) = g.chain((stores, loads)).submit().await?;
            assert_eq!(loaded, (2, 1));
            Ok(())
        });
        takes(took.await?, 3);
        ct.delete(here).await?;
        ct.delete(there).await
    });
}

#[test]
fn an_object_is_published_with_its_link() {
    everywhere(async |ct| {
        let root = node(1, 0, ct).await?;
        let g = &ct.pin();
        let new = Node::new_in(ct.near(root), Node::init(2, 0)).await?;
        let took = round_trips(ct, async || {
            let lock = root.lock().acquire(ct).await?;
            let at = new.as_ptr();
            let chain = g.chain((op::store(root.next(), new), op::read(at), op::release(lock)));
            let (stored, seen, ()) = chain.submit().await?;
            assert!(stored == at && seen.key == 2);
            assert!(!root.read(g).await?.lock.is_held());
            Ok(())
        });
        takes(took.await?, 3);
        ct.delete(root.next().load(g).await?).await?;
        ct.delete(root).await
    });
}

#[test]
fn a_dropped_chain_releases_its_locks_and_frees_its_objects() {
    everywhere(async |ct| {
        let root = node(1, 0, ct).await?;
        let g = &ct.pin();
        let new = Node::new_in(ct.near(root), Node::init(2, 0)).await?;
        let lock = root.lock().acquire(ct).await?;
        drop(g.chain((op::store(root.next(), new), op::release(lock))));
        // The guard posted the release. The object was freed, or the check at the end of this test would find it.
        let lock = root.lock().acquire(ct).await?;
        assert!(root.next().load(g).await?.is_null());
        lock.release().await?;
        ct.delete(root).await
    });
}

#[test]
fn a_lock_whose_result_is_not_read_is_released() {
    everywhere(async |ct| {
        let (one, two) = (node(1, 0, ct).await?, node(2, 0, ct).await?);
        let g = &ct.pin();
        let (_, lock) = g.chain((op::try_lock(one.lock()), op::try_lock(two.lock()))).submit().await?;
        drop(lock);
        g.chain(op::try_lock(two.lock())).post()?;
        one.lock().acquire(ct).await?.release().await?;
        two.lock().acquire(ct).await?.release().await?;
        ct.delete(one).await?;
        ct.delete(two).await
    });
}

#[test]
fn a_failed_chain_stops_where_it_fails() {
    everywhere(async |ct| {
        let root = node(1, 0, ct).await?;
        let g = &ct.pin();
        let nothing = RemotePtr::<Node>::from_address(Address::new(0, 1 << 40));
        let chain = (op::store(root.hits(), 3), op::load(nothing.hits()), op::store(root.hits(), 4));
        assert!(matches!(g.chain(chain).submit().await, Err(Error::InvalidPointer(_))));
        assert_eq!(root.hits().load(ct).await?, 3);
        ct.delete(root).await
    });
}

#[test]
fn an_empty_chain_costs_nothing() {
    everywhere(async |ct| {
        let g = &ct.pin();
        let nothing = (None::<[(); 2]>, Vec::<()>::new());
        takes(round_trips(ct, async || g.chain(()).submit().await).await?, 0);
        takes(round_trips(ct, async || g.chain(nothing).submit().await).await?, 0);
        assert_eq!(ct.metrics().chains, 0);
        Ok(())
    });
}

#[test]
fn locks_are_taken_together_or_not_at_all() {
    everywhere(async |ct| {
        let (one, two) = (node(1, 0, ct).await?, node(2, 0, ct).await?);
        let g = &ct.pin();
        let both = [(one.lock(), one.shared(g)), (two.lock(), two.shared(g))];
        let took = round_trips(ct, async || {
            let [(first, one), (second, two)] = g.lock_and_read(both).await?;
            assert_eq!((one.key, two.key), (1, 2));
            assert!(one.lock.owner() == Some(ct.id()) && two.lock.owner() == Some(ct.id()));
            g.chain((op::release(first), op::release(second))).submit().await
        });
        takes(took.await?, 2);
        ct.delete(one).await?;
        ct.delete(two).await
    });
}

/// Tasks of several threads take the same locks in different orders: no task waits forever, and no update is lost.
#[farfield::test(sim, seeds = 0..50, threads = 3)]
async fn locks_in_any_order_exclude(ct: &ComputeThread) -> Result<()> {
    let one = ct.root_or_init("one", async || node(1, 0, ct).await).await?;
    let two = ct.root_or_init("two", async || node(2, 0, ct).await).await?;
    ct.tasks(2, async |task| {
        for _ in 0..5 {
            let g = &ct.pin();
            let mut both = [(one.lock(), one.shared(g)), (two.lock(), two.shared(g))];
            if task == 1 {
                both.reverse();
            }
            let [(first, seen), (second, _)] = g.lock_and_read(both).await?;
            // Not atomic: only the locks keep others from adding in between.
            let add = op::store(both[0].1.hits(), seen.hits + 1);
            g.chain((add, op::release(first), op::release(second))).submit().await?;
        }
        Ok(())
    })
    .await?;
    ct.barrier("done").await?;
    let total = one.hits().load(ct).await? + two.hits().load(ct).await?;
    assert_eq!(total, 3 * 2 * 5);
    Ok(())
}

// ---- posting without waiting -----------------------------------------------------------------------------------

#[test]
fn a_posted_chain_takes_effect_before_later_operations() {
    everywhere(async |ct| {
        let root = node(1, 0, ct).await?;
        let lock = root.lock().acquire(ct).await?;
        let took = round_trips(ct, async || {
            let g = &ct.pin();
            g.chain((op::store(root.hits(), 5), op::release(lock))).post()
        });
        takes(took.await?, 0);
        let took = round_trips(ct, async || {
            assert_eq!(root.hits().load(ct).await?, 5);
            assert!(!root.lock().state(ct).await?.is_held());
            ct.flush().await
        });
        takes(took.await?, 2);
        ct.delete(root).await
    });
}

#[test]
fn post_refuses_a_chain_over_several_memory_nodes() {
    everywhere(async |ct| {
        let (here, there) = (node(1, 0, ct).await?, node(2, 1, ct).await?);
        let g = &ct.pin();
        match g.chain((op::store(here.hits(), 1), op::store(there.hits(), 2))).post() {
            Err(Error::InvalidArgument(argument)) => assert!(argument.to_string().contains("2 memory nodes")),
            other => panic!("{other:?}"),
        }
        assert_eq!((here.hits().load(ct).await?, there.hits().load(ct).await?), (0, 0));
        ct.delete(here).await?;
        ct.delete(there).await
    });
}

#[test]
fn the_next_operation_returns_the_error_of_a_posted_chain() {
    let wrong = || RemotePtr::<Node>::from_address(Address::new(0, 1 << 40)).hits();
    let cluster = Cluster::connect(EXACT).unwrap();
    let run = cluster.run(1, async |ct| {
        let post = || {
            let g = &ct.pin();
            g.chain(op::store(wrong(), 1)).post()
        };
        post()?;
        assert!(matches!(ct.flush().await, Err(Error::InvalidPointer(_))));
        ct.flush().await?;
        post()?;
        ct.sleep(std::time::Duration::from_micros(10)).await;
        assert!(
            matches!(ct.lookup::<Node>("x").await, Err(Error::InvalidPointer(_))),
            "the next operation returns it"
        );
        assert!(matches!(ct.lookup::<Node>("x").await, Err(Error::RootNotFound(_))), "and only the next");
        Ok(())
    });
    run.unwrap();
    // Where operations complete immediately, `post` returns the error.
    let cluster = Cluster::connect("local:size=1MiB").unwrap();
    let run = cluster.run(1, async |ct| {
        let g = &ct.pin();
        g.chain(op::store(wrong(), 1)).post()
    });
    assert!(matches!(run, Err(Error::InvalidPointer(_))));
}

#[test]
fn a_failed_chain_releases_its_locks() {
    everywhere(async |ct| {
        let root = node(1, 0, ct).await?;
        let lock = root.lock().acquire(ct).await?;
        let g = &ct.pin();
        let nothing = RemotePtr::<Node>::from_address(Address::new(0, 1 << 40));
        assert!(g.chain((op::store(nothing.hits(), 1), op::release(lock))).submit().await.is_err());
        root.lock().acquire(ct).await?.release().await?;
        ct.delete(root).await
    });
}

/// A release in flight keeps its object from being freed.
#[test]
fn a_posted_release_protects_its_object() {
    let cluster = Cluster::connect("sim:timeout=1ms").unwrap();
    let run = cluster.run(2, async |ct| {
        let root = ct.root_or_init("root", async || node(1, 0, ct).await).await?;
        if ct.index() == 0 {
            let g = &ct.pin();
            let lock = root.lock().acquire(g).await?;
            let cut = farfield::sim::Fault::cut(0, 0, std::time::Duration::from_micros(100));
            ct.cluster().simulation().expect("simulated").inject(cut);
            return g.chain(op::release(lock)).post();
        }
        ct.sleep(std::time::Duration::from_micros(30)).await;
        let root = ct.unpublish::<Node>("root").await?;
        {
            let g = &ct.pin();
            g.sched_reclaim(root.shared(g)).await?;
        }
        // Only the WRITE in flight is pinned. Without its pin this would be a use after free.
        for _ in 0..5 {
            assert_eq!(ct.try_reclaim().await, 0);
        }
        Ok(())
    });
    run.unwrap();
    let metrics = cluster.metrics();
    assert_eq!(metrics.allocated, metrics.freed);
}

#[test]
fn a_hint_is_no_access() {
    everywhere(async |ct| {
        let (freed, nothing) =
            (node(1, 0, ct).await?, RemotePtr::<Node>::from_address(Address::new(9, 1 << 40)));
        ct.delete(freed).await?;
        let root = node(2, 1, ct).await?;
        let g = &ct.pin();
        let hints = || [op::prefetch(freed), op::prefetch(nothing), op::prefetch(root)];
        takes(round_trips(ct, async || g.chain(hints()).submit().await).await?, 0);
        let took = round_trips(ct, async || {
            let (_, key, many) = g
                .chain((hints(), op::read(root.key()), vec![op::read(root), op::read(root)]))
                .submit()
                .await?;
            assert_eq!((key, many.len()), (2, 2));
            Ok(())
        });
        takes(took.await?, 1);
        ct.delete(root).await
    });
}

#[test]
fn only_a_peek_may_read_freed_memory() {
    let looks = async |ct: &ComputeThread, peeks: bool| {
        let root = node(1, 0, ct).await?;
        ct.delete(root).await?;
        let g = &ct.pin();
        let seen = if peeks {
            g.chain(op::peek(root)).submit().await??
        } else {
            g.chain(op::read(root)).submit().await?
        };
        assert_eq!(seen.key, 1, "the memory has not been reused");
        Ok(())
    };
    Cluster::connect(EXACT).unwrap().run(1, async |ct| looks(ct, true).await).unwrap();
    let read = Cluster::connect(EXACT).unwrap().run(1, async |ct| looks(ct, false).await);
    assert!(matches!(read, Err(Error::Simulation(_))), "{read:?}");
    // A peek is refused where no object ever was.
    let wild = Cluster::connect(EXACT).unwrap().run(1, async |ct| {
        let g = &ct.pin();
        let nothing = RemotePtr::<Node>::from_address(Address::new(0, 1 << 20));
        g.chain(op::peek(nothing)).submit().await.map(drop)
    });
    assert!(matches!(wild, Err(Error::Simulation(_))), "{wild:?}");
}

#[test]
fn a_peek_may_run_past_the_end_of_an_object_that_has_reused_its_memory() {
    let looks = async |ct: &ComputeThread, peeks: bool| {
        // The guess overlaps two nodes that are side by side.
        let (root, next) = (node(1, 0, ct).await?, node(2, 0, ct).await?);
        assert_eq!(next.address(), root.address().add(40));
        let guess = RemotePtr::<Node>::from_address(root.address().add(8));
        let g = &ct.pin();
        if peeks {
            g.chain(op::peek(guess)).submit().await.map(drop)?;
        } else {
            g.chain(op::read(guess)).submit().await.map(drop)?;
        }
        ct.delete(next).await?;
        ct.delete(root).await
    };
    Cluster::connect(EXACT).unwrap().run(1, async |ct| looks(ct, true).await).unwrap();
    let read = Cluster::connect(EXACT).unwrap().run(1, async |ct| looks(ct, false).await);
    assert!(matches!(read, Err(Error::Simulation(_))), "{read:?}");
}

/// Two new nodes that point to each other, on one memory node or two, linked by one CAS.
#[test]
fn new_objects_that_point_to_each_other_are_written_by_one_chain() {
    everywhere(async |ct| {
        let list = node(0, 0, ct).await?;
        let g = &ct.pin();
        for expected in [Shared::NULL, list.shared(g)] {
            let mut first = Node::new_in(ct.on_node(0), Node::init(1, 9)).await?;
            let mut second = Node::new_in(ct.on_node(1), Node::init(2, 9)).await?;
            first.set(|node| node.next(), second.as_ptr());
            second.set(|node| node.next(), first.as_ptr());
            let before = (first.as_ptr(), second.as_ptr());

            let link = op::compare_exchange_link(list.next(), expected, first.as_ptr());
            let chain = g.chain((op::write(first), op::write(second), link));
            let (first, second, linked) = chain.submit().await?;
            if linked.is_ok() {
                let found = list.next().load(g).await?;
                let next = found.next().load(g).await?;
                assert_eq!((found.key().read(g).await?, next.key().read(g).await?), (1, 2));
                assert_eq!(next.next().load(g).await?, found);
            } else {
                // No link holds them: they are unpublished again, can be edited, and are freed when they are dropped.
                let (mut first, second) = (first.take(), second.take());
                assert_eq!((first.as_ptr(), second.as_ptr()), before);
                first.set(|node| node.key(), 3);
                let first = first.write(ct).await?;
                assert_eq!(first.key().read(g).await?, 3);
                ct.delete(first).await?;
            }
        }
        // A dropped chain frees the objects that it was to write.
        let dropped = Node::new_in(ct.on_node(0), Node::init(4, 9)).await?;
        let at = dropped.as_ptr();
        drop(g.chain(op::write(dropped)));
        let again = Node::new_in(ct.on_node(0), Node::init(5, 9)).await?;
        assert_eq!(again.as_ptr(), at, "the block is free again, and was freed once");
        let first = list.next().load(g).await?.as_ptr();
        let second = first.next().load(g).await?.as_ptr();
        for node in [list, first, second] {
            ct.delete(node).await?;
        }
        Ok(())
    });
}

/// The simulator reports a program that takes back an object that a link holds.
#[test]
fn taking_back_a_linked_object_is_found_as_a_use_after_free() {
    let run = Cluster::connect("sim:seed=1").unwrap().run(1, async |ct| {
        let list = node(0, 0, ct).await?;
        let g = &ct.pin();
        let first = Node::new_in(ct, Node::init(1, 9)).await?;
        let link = op::compare_exchange_link(list.next(), Shared::NULL, first.as_ptr());
        let (first, linked) = g.chain((op::write(first), link)).submit().await?;
        assert!(linked.is_ok());
        drop(first.take());
        list.next().load(g).await?.key().read(g).await
    });
    let message = run.unwrap_err().to_string();
    assert!(message.contains("freed"), "{message}");
}

#[remote]
struct Flags {
    flags: Tail<Atomic<bool>>,
}

/// A few words are read without a buffer, many with one.
#[farfield::test]
async fn a_range_is_read_unless_a_word_is_no_value(ct: &ComputeThread) -> Result<()> {
    let flags = Flags::new_in(ct, Flags::init(vec![true; 100])).await?.write(ct).await?;
    let g = &ct.pin();
    for length in [0, 1, 64, 65, 100] {
        let read = g.chain(op::load_range(flags.flags(), 0..length)).submit().await?;
        assert_eq!(read, vec![true; length as usize]);
    }
    let last = flags.flags().at(63).address();
    Place::<Atomic<u64>>::from_address(last).store(ct, 7).await?;
    for length in [64, 100] {
        let read = g.chain(op::load_range(flags.flags(), 0..length)).submit().await;
        let Err(Error::InvalidValue(found)) = read else { panic!("{read:?}") };
        assert!(found.to_string().contains(&last.to_string()), "{found}");
    }
    assert_eq!(g.chain(op::load_range(flags.flags(), 64..100)).submit().await?.len(), 36);
    Ok(())
}
