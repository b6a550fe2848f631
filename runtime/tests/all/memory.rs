//! Objects: publication, cancellation, retirement, and refused requests.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use farfield::prelude::*;
use farfield::{Address, Error, HeldBackBy, PointerFault, Policy, Result};

#[remote]
struct Node {
    key: u64,
    next: Link<Node>,
    stamped: StampedLink<Node>,
    lock: Lock,
    span: Versioned<[u64; 3]>,
}

fn init(key: u64) -> NodeInit {
    Node::init(key, [0; 3])
}

async fn node(key: u64, ct: &ComputeThread) -> Result<RemotePtr<Node>> {
    Node::new_in(ct, init(key)).await?.write(ct).await
}

/// Polls a future `polls` times and drops it. Returns whether it was ready by then.
fn drop_after<F: Future>(polls: u32, future: F) -> bool {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    (0..polls).any(|_| matches!(future.as_mut().poll(&mut context), Poll::Ready(_)))
}

#[farfield::test]
async fn publishing_takes_one_chain_on_one_node(ct: &ComputeThread) -> Result<()> {
    let head = node(0, ct).await?;
    let g = &ct.pin();
    let before = ct.metrics();
    let first = head.next().store(g, Node::new_in(ct.near(head), init(1)).await?).await?;
    let stored = ct.metrics() - before;
    assert_eq!((stored.chains, stored.writes), (1, 2), "the image and the link");
    let second = Node::new_in(ct.near(head), init(2).next(first)).await?;
    let before = ct.metrics();
    let second = head.next().compare_exchange(g, first, second).await?.unwrap();
    let exchanged = ct.metrics() - before;
    assert_eq!((exchanged.chains, exchanged.writes, exchanged.cas), (1, 1, 1));
    assert_eq!(second.read(g).await?.key, 2);
    assert_eq!(second.next().load(g).await?, first);
    Ok(())
}

#[farfield::test(cluster = "local:nodes=2")]
async fn publishing_across_nodes_writes_the_object_first(ct: &ComputeThread) -> Result<()> {
    let head = Node::new_in(ct.on_node(0), init(0)).await?.write(ct).await?;
    let g = &ct.pin();
    let owned = Node::new_in(ct.on_node(1), init(1)).await?;
    assert_ne!(owned.as_ptr().address().segment(), head.address().segment());
    let before = ct.metrics();
    let first = head.next().store(g, owned).await?;
    assert_eq!((ct.metrics() - before).chains, 2);
    assert_eq!(first.read(g).await?.key, 1);
    Ok(())
}

#[farfield::test]
async fn a_refused_object_comes_back_editable(ct: &ComputeThread) -> Result<()> {
    let (head, other) = (node(0, ct).await?, node(9, ct).await?);
    let g = &ct.pin();
    head.next().store(g, other).await?;
    let owned = Node::new_in(ct, init(1)).await?;
    let refused = head.next().compare_exchange(g, RemotePtr::<Node>::NULL, owned).await?.unwrap_err();
    assert_eq!(refused.current, other);
    let mut owned = refused.new;
    owned.set(|node| node.key(), 2);
    owned.set(|node| node.next(), refused.current);
    let placed = head.next().compare_exchange(g, refused.current, owned).await?.unwrap();
    let seen = placed.read(g).await?;
    assert_eq!((seen.key, seen.next), (2, other.shared(g)));
    Ok(())
}

#[farfield::test]
async fn a_stamp_distinguishes_a_pointer_that_was_stored_again(ct: &ComputeThread) -> Result<()> {
    let (head, a, b) = (node(0, ct).await?, node(1, ct).await?, node(2, ct).await?);
    let g = &ct.pin();
    let link = head.stamped();
    let first = link.store(g, a).await?;
    link.store(g, b).await?;
    let back = link.store(g, a).await?;
    assert_eq!((first.shared(), first.stamp()), (back.shared(), back.stamp() - 2));
    let refused = link.compare_exchange(g, first, b).await?.unwrap_err();
    assert_eq!(refused.current, back);
    assert_eq!(link.swap(g, b).await?, back);
    assert_eq!(link.swap(g, a).await?.shared(), b);
    let back = link.load(g).await?;
    let plain = head.next();
    plain.store(g, a).await?;
    assert_eq!(plain.swap(g, b).await?, a);
    assert_eq!(plain.load(g).await?, b);
    // Exactly 65,536 stores later the word is the same again: the documented limit.
    let mut current = back;
    for _ in 0..1 << 16 {
        current = link.compare_exchange(g, current, a).await?.unwrap();
    }
    assert_eq!(current, back);
    Ok(())
}

#[farfield::test]
async fn invalid_pointers_are_refused_with_their_fault(ct: &ComputeThread) -> Result<()> {
    let g = &ct.pin();
    let at = |segment, offset| RemotePtr::<Node>::from_address(Address::new(segment, offset));
    let size = 256 << 20;
    let past = PointerFault::PastSegment { size_bytes: size };
    for (ptr, expected) in [
        (RemotePtr::NULL, PointerFault::Null),
        (at(0, 65), PointerFault::Misaligned { align: 8 }),
        (at(0, size - 8), past),
        (at(0, size), past),
        (at(1, 64), PointerFault::NoSegment { segments: 1 }),
    ] {
        let Err(Error::InvalidPointer(found)) = ptr.read(g).await else { panic!("{ptr:?} was read") };
        assert_eq!((found.address, found.fault), (ptr.address(), expected));
    }
    assert!(at(0, 65).key().read(g).await.is_err() && at(0, 65).next().load(g).await.is_err());
    assert!(Node::attach(RemotePtr::NULL, ct).await.is_err());
    assert!(ct.delete(RemotePtr::<Node>::NULL).await.is_err());
    assert!(ct.delete(at(0, 128)).await.is_err(), "the control block can not be deleted");
    assert!(g.sched_reclaim(Shared::<Node>::NULL).await.is_err());
    // Addresses that are not a multiple of the alignment, for an object of fixed size and one with a tail.
    let misaligned = |error: Error, align| match error {
        Error::InvalidPointer(found) => assert_eq!(found.fault, PointerFault::Misaligned { align }),
        other => panic!("{other}"),
    };
    let odd = Address::new(0, (1 << 20) + 1);
    misaligned(ct.delete(RemotePtr::<Node>::from_address(odd)).await.unwrap_err(), 8);
    misaligned(ct.delete(RemotePtr::<Words>::from_address(odd)).await.unwrap_err(), 8);
    Ok(())
}

#[remote]
struct Words {
    words: Tail<u64>,
}

#[farfield::test]
async fn a_guard_protects_objects_that_it_has_loaded(ct: &ComputeThread) -> Result<()> {
    let head = node(0, ct).await?;
    let g = &ct.pin();
    let first = head.next().store(g, Node::new_in(ct, init(1)).await?).await?;
    {
        let other = &ct.pin();
        head.next().store(other, RemotePtr::NULL).await?;
        other.sched_reclaim(first).await?;
    }
    for _ in 0..10 {
        assert_eq!(ct.try_reclaim().await, 0);
    }
    assert_eq!(first.read(g).await?.key, 1);
    let refused = ct.reclaim_deferred().await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "reclaim_deferred needs a quiescent thread, but it holds 1 guards: drop them first"
    );
    Ok(())
}

#[farfield::test]
async fn a_guard_protects_objects_that_an_earlier_one_of_its_epoch_has_loaded(
    ct: &ComputeThread,
) -> Result<()> {
    let head = node(0, ct).await?;
    let first = head.next().store(&ct.pin(), Node::new_in(ct, init(1)).await?).await?.as_ptr();
    ct.try_reclaim().await;
    let found = ct.pin().epoch();
    {
        let g = &ct.pin();
        assert_eq!(head.next().load(g).await?.as_ptr(), first);
        head.next().store(g, RemotePtr::NULL).await?;
        g.sched_reclaim(first.shared(g)).await?;
    }
    let mut later = ct.pin();
    assert_eq!(later.epoch(), found);
    for _ in 0..10 {
        assert_eq!(ct.try_reclaim().await, 0);
    }
    assert_eq!(first.read(&later).await?.key, 1);
    later.repin();
    assert_ne!(later.epoch(), found);
    drop(later);
    let freed = ct.try_reclaim().await + ct.try_reclaim().await + ct.try_reclaim().await;
    assert_eq!(freed, 1);
    Ok(())
}

#[farfield::test]
async fn epochs_from_before_a_barrier_or_another_thread_are_no_longer_those_of_guards(
    ct: &ComputeThread,
) -> Result<()> {
    let found = ct.pin().epoch();
    assert_eq!(ct.pin().epoch(), found);
    ct.barrier("here").await?;
    let behind = ct.pin().epoch();
    assert_ne!(behind, found);
    ct.reclaim_deferred().await?;
    assert!(![found, behind].contains(&ct.pin().epoch()));
    Ok(())
}

#[test]
fn epochs_of_two_runs_differ_even_if_no_epoch_has_passed() {
    let cluster = Cluster::connect("local:").unwrap();
    let epoch = || cluster.run(2, async |ct| Ok(ct.pin().epoch())).unwrap();
    let epochs = [epoch(), epoch()].concat();
    for (index, epoch) in epochs.iter().enumerate() {
        assert!(!epochs[..index].contains(epoch), "{epochs:?}");
    }
}

#[farfield::test]
async fn retired_objects_are_freed_without_a_further_call(ct: &ComputeThread) -> Result<()> {
    for key in 0..1000 {
        let g = &ct.pin();
        let object = node(key, ct).await?;
        g.sched_reclaim(object.shared(g)).await?;
    }
    let metrics = ct.metrics();
    // One advance for each 64 objects, 15 in all: objects that were retired before the last two advances are free.
    assert_eq!(metrics.reclaimed, 13 * 64, "{metrics:?}");
    assert_eq!(ct.reclaim_deferred().await?, 1000 - metrics.reclaimed);
    assert_eq!(ct.metrics().allocated, ct.metrics().freed);
    Ok(())
}

#[farfield::test]
async fn repinning_lets_the_epoch_pass(ct: &ComputeThread) -> Result<()> {
    let object = node(1, ct).await?;
    let mut g = ct.pin();
    g.sched_reclaim(object.shared(&g)).await?;
    let mut freed = 0;
    for _ in 0..4 {
        freed += ct.try_reclaim().await;
        g.repin();
    }
    assert_eq!(freed, 1);
    Ok(())
}

#[test]
fn blocks_freed_by_one_thread_serve_another() {
    let cluster = Cluster::connect("local:size=64KiB").unwrap();
    for _ in 0..5 {
        // Each run fills most of the heap and frees it, with new threads.
        cluster
            .run(2, async |ct| {
                let mut nodes = Vec::new();
                for key in 0..250 {
                    nodes.push(node(key, ct).await?);
                }
                for object in nodes {
                    ct.delete(object).await?;
                }
                Ok(())
            })
            .unwrap();
    }
    let metrics = cluster.metrics();
    assert_eq!((metrics.allocated, metrics.freed), (2500, 2500));
}

#[test]
fn no_two_live_objects_overlap() {
    #[remote]
    struct Small {
        a: u64,
    }
    #[remote(align = 64)]
    struct Aligned {
        a: [u64; 9],
    }
    #[remote]
    struct Long {
        bytes: Tail<u8>,
    }
    let cluster = Cluster::connect("local:nodes=2,segments=2,size=256KiB").unwrap();
    let ranges = cluster.run(4, async |ct| {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for round in 0..400_u64 {
            let kind = ct.random_range(0..3);
            let (address, bytes) = match kind {
                0 => (Small::new_in(ct, Small::init(round)).await?.write(ct).await?.address(), 8),
                1 => (Aligned::new_in(ct, Aligned::init([round; 9])).await?.write(ct).await?.address(), 128),
                _ => {
                    let length = ct.random_range(0..1500);
                    let long = Long::new_in(ct, Long::init(vec![7; length])).await?.write(ct).await?;
                    if length % 2 == 0 {
                        ct.delete(long).await?;
                        continue;
                    }
                    (long.address(), 8 + length as u64)
                }
            };
            ranges.push((address.bits(), address.bits() + bytes));
        }
        Ok(ranges)
    });
    let mut ranges: Vec<_> = ranges.unwrap().into_iter().flatten().collect();
    ranges.sort_unstable();
    // Four times 400 objects, of which one in six is deleted immediately.
    assert!(ranges.len() > 1300, "{}", ranges.len());
    for pair in ranges.windows(2) {
        assert!(pair[0].1 <= pair[1].0, "{pair:x?}");
    }
}

#[farfield::test(cluster = "local:size=64KiB")]
async fn an_allocation_larger_than_a_segment_is_refused_immediately(ct: &ComputeThread) -> Result<()> {
    #[remote]
    struct Long {
        words: Tail<u64>,
    }
    let larger = Long::new_in(ct, Long::init(vec![0; 9000])).await.unwrap_err();
    assert!(matches!(larger, Error::InvalidAllocation { .. }), "{larger}");
    let full = Long::new_in(ct, Long::init(vec![0; 7000])).await.unwrap_err();
    assert_eq!(full.to_string(), "out of memory: no room for 56008 bytes; tried segment 0");
    let empty = Long::new_in(ct, Long::init(vec![])).await?.write(ct).await?;
    assert_eq!(empty.words().len(ct).await?, 0);
    ct.delete(empty).await
}

#[farfield::test(cluster = "local:delay=8")]
async fn dropped_futures_leave_no_lock_held_and_no_value_torn(ct: &ComputeThread) -> Result<()> {
    let ptr = node(0, ct).await?;
    for polls in 0..40 {
        // The future is dropped before its chain is posted, in flight, or completed: the lock is free afterwards.
        drop_after(polls, async { Ok::<(), Error>(ptr.lock().acquire(ct).await?.release().await?) });
        assert!(!ptr.lock().state(ct).await?.is_held(), "after {polls} polls");
        drop_after(polls, ptr.span().write(ct, [u64::from(polls); 3]));
        let [a, b, c] = ptr.span().read(ct).await?;
        assert!(a == b && b == c, "after {polls} polls");
    }
    // A task that drops its acquisition does not release the lock of another task.
    let gave_up = std::cell::Cell::new(false);
    let tasks = ct.tasks(2, async |task| {
        if task == 0 {
            let held = ptr.lock().acquire(ct).await?;
            while !gave_up.get() {
                ct.yield_now().await;
            }
            return Ok(held.release().await?);
        }
        for polls in 1..40 {
            assert!(!drop_after(polls, ptr.lock().acquire(ct)));
            assert!(ptr.lock().state(ct).await?.is_held(), "after {polls} polls");
        }
        gave_up.set(true);
        Ok(())
    });
    tasks.await.map(drop)
}

#[farfield::test(cluster = "local:delay=8")]
async fn dropped_publications_never_free_what_is_linked(ct: &ComputeThread) -> Result<()> {
    let head = node(0, ct).await?;
    for polls in 0..40 {
        let g = &ct.pin();
        let owned = Node::new_in(ct, init(7)).await?;
        let freed = ct.metrics().freed;
        drop_after(polls, head.next().store(g, owned));
        let linked = head.next().load(g).await?;
        if linked.is_null() {
            assert_eq!(ct.metrics().freed, freed + 1, "after {polls} polls: never posted, so freed");
        } else {
            assert_eq!(ct.metrics().freed, freed, "after {polls} polls: linked, so not freed");
            assert_eq!(linked.read(g).await?.key, 7);
        }
        head.next().store(g, RemotePtr::NULL).await?;
    }
    Ok(())
}

#[test]
fn versioned_values_are_never_torn() {
    for url in ["local:", "local:delay=3"] {
        let cluster = Cluster::connect(url).unwrap();
        cluster
            .run(4, async |ct| {
                let ptr = ct.root_or_init("node", async || node(0, ct).await).await?;
                ct.tasks(2, async |task| {
                    for round in 0..300_u64 {
                        if task == 0 && ct.index() < 2 {
                            ptr.span().write(ct, [round * 2 + ct.index() as u64; 3]).await?;
                        } else {
                            let [a, b, c] = ptr.span().read(ct).await?;
                            if a != b || b != c {
                                return Err(Error::other(format!("torn: {a} {b} {c}")));
                            }
                        }
                    }
                    Ok(())
                })
                .await
                .map(drop)
            })
            .unwrap();
    }
}

#[test]
fn a_lock_excludes_threads_and_tasks() {
    for url in ["local:", "local:delay=3"] {
        let cluster = Cluster::connect(url).unwrap();
        cluster
            .run(3, async |ct| {
                let ptr = ct.root_or_init("node", async || node(0, ct).await).await?;
                let count = Place::<Atomic<u64>>::from_address(ptr.next().address());
                ct.tasks(3, async |_| {
                    for _ in 0..100 {
                        // Read and write apart: without the lock, updates would be lost.
                        let held = ptr.lock().acquire(ct).await?;
                        let seen = count.load(ct).await?;
                        ct.yield_now().await;
                        count.store(ct, seen + 1).await?;
                        held.release().await?;
                    }
                    Ok(())
                })
                .await?;
                ct.barrier("counted").await?;
                assert_eq!(count.load(ct).await?, 900);
                Ok(())
            })
            .unwrap();
    }
}

/// Each of 4 threads allocates 512 objects of 1 KiB, by the cluster's policy or by that of each call, on three memory nodes of two segments.
/// Returns the segments of each thread's objects.
fn segments(url: &str, policy: Option<Policy>) -> Vec<Vec<u16>> {
    let cluster = Cluster::connect(&format!("{url},nodes=3,segments=2,size=4MiB")).unwrap();
    let segments = cluster.run(4, async |ct| {
        let mut segments = Vec::new();
        for _ in 0..512 {
            let site = policy.map_or(ct.into(), |policy| ct.placed(policy));
            let page = Page::new_in(site, Page::init([0; 128])).await?.write(ct).await?;
            segments.push(page.address().segment());
        }
        // The memory of a thread that ends serves the others, on whatever node it is.
        ct.barrier("all have their memory").await?;
        Ok(segments)
    });
    segments.unwrap()
}

#[remote]
struct Page {
    words: [u64; 128],
}

#[test]
fn policies_place_objects() {
    let by = |name: &str, policy| {
        let by_cluster = segments(&format!("local:placement={name}"), None);
        let by_call = segments("local:", Some(policy));
        if policy != Policy::Random {
            assert_eq!(by_cluster, by_call, "{name}");
        }
        by_cluster
    };
    let nodes = |segments: &[u16]| segments.iter().map(|segment| segment / 2).collect::<Vec<u16>>();
    for (thread, segments) in by("global-rr", Policy::GlobalRoundRobin).iter().enumerate() {
        let expected: Vec<u16> = (0..512).map(|turn| ((thread + turn) % 3) as u16).collect();
        assert_eq!(nodes(segments), expected);
    }
    for (thread, segments) in by("global-mod", Policy::GlobalModulo).iter().enumerate() {
        assert_eq!(nodes(segments), vec![(thread % 3) as u16; 512]);
    }
    for (thread, segments) in by("local-mod", Policy::LocalModulo).iter().enumerate() {
        assert_eq!(*segments, vec![(thread % 2) as u16; 512], "all are in process 0");
    }
    for segments in by("local-rr", Policy::LocalRoundRobin) {
        assert_eq!(nodes(&segments), vec![0; 512]);
        let changes = segments.windows(2).filter(|pair| pair[0] != pair[1]).count();
        assert_eq!(changes, 512 / 16 - 1, "a chunk of 16 KiB holds 16 pages: {segments:?}");
    }
    for segments in by("rand", Policy::Random) {
        let mut seen = nodes(&segments);
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen, [0, 1, 2]);
    }
}

#[test]
fn a_policy_without_that_name_is_refused() {
    let refused = Cluster::connect("local:placement=moon").unwrap_err().to_string();
    assert!(refused.contains("placement=moon") && refused.contains("`local-mod`"), "{refused}");
}

#[test]
fn reclamation_names_the_thread_that_holds_it_back() {
    Cluster::connect("local:")
        .unwrap()
        .run(3, async |ct| {
            let held = (ct.index() == 1).then(|| ct.pin());
            ct.barrier("pinned").await?;
            if ct.index() == 0 {
                for key in 0..10 {
                    let g = &ct.pin();
                    let object = node(key, ct).await?;
                    g.sched_reclaim(object.shared(g)).await?;
                }
                for _ in 0..5 {
                    ct.try_reclaim().await;
                }
                let stands = ct.reclamation().await?;
                assert_eq!(stands.held_back_by, Some(HeldBackBy::Thread(1)), "{stands:?}");
                assert_eq!(stands.retired_objects, 10);
                assert_eq!(stands.retired_bytes, 10 * 72, "a node has nine words");
            }
            ct.barrier("seen").await?;
            drop(held);
            ct.barrier("unpinned").await?;
            if ct.index() == 0 {
                for _ in 0..5 {
                    ct.try_reclaim().await;
                }
                let stands = ct.reclamation().await?;
                assert_eq!((stands.held_back_by, stands.retired_objects, stands.retired_bytes), (None, 0, 0));
            }
            ct.barrier("done").await
        })
        .unwrap();
}

#[test]
fn reclamation_names_the_process_that_holds_it_back() {
    Cluster::connect("sim:")
        .unwrap()
        .run(3, async |ct| {
            let held = (ct.index() == 2).then(|| ct.pin());
            ct.barrier("pinned").await?;
            if ct.index() == 0 {
                let g = &ct.pin();
                let object = node(0, ct).await?;
                g.sched_reclaim(object.shared(g)).await?;
            }
            if ct.index() < 2 {
                for _ in 0..8 {
                    ct.try_reclaim().await;
                }
                assert_eq!(ct.reclamation().await?.held_back_by, Some(HeldBackBy::Process(2)));
            }
            ct.barrier("seen").await?;
            drop(held);
            for _ in 0..8 {
                ct.try_reclaim().await;
                ct.sleep(std::time::Duration::from_micros(10)).await;
            }
            ct.barrier("unpinned").await?;
            if ct.index() == 0 {
                ct.try_reclaim().await;
                assert_eq!(ct.reclamation().await?.retired_objects, 0);
            }
            Ok(())
        })
        .unwrap();
}

#[test]
fn a_thread_with_much_garbage_advances_the_epoch_early() {
    // A thread requests an advance every 64 retirements. In a heap this small, it does so for each.
    let cluster = Cluster::connect("local:size=64KiB").unwrap();
    cluster
        .run(1, async |ct| {
            for key in 0..100 {
                let g = ct.pin();
                let object = Page::new_in(ct, Page::init([key; 128])).await?.write(ct).await?;
                g.sched_reclaim(object.shared(&g)).await?;
                g.unpin();
                let stands = ct.reclamation().await?;
                assert!(stands.retired_bytes <= 64 * 1024 / 16 + 4 * 1024, "{stands:?}");
            }
            assert!(ct.cluster().clear().is_err(), "a run is under way");
            Ok(())
        })
        .unwrap();
    assert_eq!(cluster.clear().unwrap(), 0, "the run has freed its garbage");
}

/// More objects than a thread keeps go to the pool and come back, on pages that are retired each time.
#[farfield::test]
async fn a_thread_that_retires_no_objects_reuses_the_pages_of_the_pool(ct: &ComputeThread) -> Result<()> {
    for _ in 0..100 {
        let mut nodes = Vec::new();
        for key in 0..1000 {
            nodes.push(node(key, ct).await?);
        }
        for node in nodes {
            ct.delete(node).await?;
        }
    }
    let reclamation = ct.reclamation().await?;
    assert!((1..100 << 10).contains(&reclamation.retired_bytes), "{reclamation:?}");
    Ok(())
}

#[farfield::test]
async fn an_address_without_an_object_is_neither_freed_nor_retired(ct: &ComputeThread) -> Result<()> {
    let (first, second, third) = (node(1, ct).await?, node(2, ct).await?, node(3, ct).await?);
    let fault = |result: Result<()>| match result {
        Err(Error::InvalidPointer(found)) => found.fault,
        other => panic!("{other:?}"),
    };
    ct.delete(first).await?;
    assert_eq!(fault(ct.delete(first).await), PointerFault::NoObject, "refused in the same call");
    let g = &ct.pin();
    g.sched_reclaim(second.shared(g)).await?;
    assert_eq!(
        fault(g.sched_reclaim(second.shared(g)).await),
        PointerFault::Retired,
        "refused in the same call"
    );
    if cfg!(debug_assertions) {
        g.sched_reclaim(third.shared(g)).await?;
        assert_eq!(fault(g.sched_reclaim(second.shared(g)).await), PointerFault::Retired);
        assert_eq!(fault(ct.delete(second).await), PointerFault::Retired);
        let inside = RemotePtr::<Node>::from_address(third.address().add(8));
        assert_eq!(fault(ct.delete(inside).await), PointerFault::NoObject);
        let nowhere = RemotePtr::<Node>::from_address(Address::new(0, 1 << 20));
        assert_eq!(fault(ct.delete(nowhere).await), PointerFault::NoObject);
        assert_eq!(fault(g.sched_reclaim(nowhere.shared(g)).await), PointerFault::NoObject);
    }
    Ok(())
}
