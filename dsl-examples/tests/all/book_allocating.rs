//! The programs of the book's chapter "Allocating and accessing memory".

use std::cell::Cell;

// ANCHOR: point
use farfield::prelude::*;

/// A place on a map, with a count of its visitors.
#[remote]
struct Landmark {
    east: i32,
    north: i32,
    visits: Atomic<u64>,
}
// ANCHOR_END: point

// ANCHOR: new
#[farfield::test]
async fn new_and_attach(ct: &ComputeThread) -> Result<()> {
    // Allocated, and initialised in local memory: no other thread can see it yet.
    let owned: Owned<Landmark> = Landmark::new_in(ct, Landmark::init(3, 4)).await?;

    // One WRITE of the whole object to far memory.
    let this: RemotePtr<Landmark> = owned.write(ct).await?;

    // One READ of the frozen fields. From now on they cost nothing.
    let landmark = Landmark::attach(this, ct).await?;
    assert_eq!((landmark.east(), landmark.north()), (3, 4));

    // Other fields are read and changed in far memory: one round trip each.
    landmark.visits().fetch_add(ct, 1).await?;
    assert_eq!(landmark.visits().load(ct).await?, 1);
    Ok(())
}
// ANCHOR_END: new

// ANCHOR: snapshot
#[farfield::test]
async fn one_read_for_all_fields(ct: &ComputeThread) -> Result<()> {
    let this = Landmark::new_in(ct, Landmark::init(3, 4)).await?.write(ct).await?;
    let before = ct.metrics();

    let g = &ct.pin();
    let seen = this.read(g).await?;
    assert_eq!((seen.east, seen.north, seen.visits), (3, 4, 0));
    assert_eq!((ct.metrics() - before).reads, 1);

    // Some fields, by one READ of the span that covers them.
    let (north, visits) = fetch!(g, this.{north, visits}).await?;
    assert_eq!((north, visits), (4, 0));
    assert_eq!((ct.metrics() - before).reads, 2);
    Ok(())
}
// ANCHOR_END: snapshot

// ANCHOR: roots
#[farfield::test(threads = 4, cluster = "local:nodes=2")]
async fn found_by_name(ct: &ComputeThread) -> Result<()> {
    // One thread creates it; the others wait, and find it.
    let root = ct.root_or_init("lighthouse", async || {
        Landmark::new_in(ct.on_node(1), Landmark::init(7, 7)).await?.write(ct).await
    });
    let lighthouse = Landmark::attach(root.await?, ct).await?;

    lighthouse.visits().fetch_add(ct, 1).await?;
    ct.barrier("all were there").await?;
    assert_eq!(lighthouse.visits().load(ct).await?, 4);
    Ok(())
}
// ANCHOR_END: roots

// ANCHOR: tasks
#[farfield::test(cluster = "local:delay=3")]
async fn four_visitors_on_one_thread(ct: &ComputeThread) -> Result<()> {
    let this = Landmark::new_in(ct, Landmark::init(3, 4)).await?.write(ct).await?;
    let travelling = Cell::new(0);
    let most = Cell::new(0);

    let earlier = ct.tasks(4, async |task| {
        travelling.set(travelling.get() + 1);
        most.set(most.get().max(travelling.get()));
        let earlier = this.visits().fetch_add(ct, 1).await?;
        travelling.set(travelling.get() - 1);
        assert!(task < 4);
        Ok(earlier)
    });
    let mut earlier = earlier.await?;

    // Each found a different number of visits, although all were in flight together.
    earlier.sort_unstable();
    assert_eq!(earlier, [0, 1, 2, 3]);
    assert_eq!(most.get(), 4);
    Ok(())
}
// ANCHOR_END: tasks

// ANCHOR: free
#[farfield::test]
async fn every_object_is_freed_once(ct: &ComputeThread) -> Result<()> {
    // Never published: dropping it frees it, and costs nothing.
    let unused = Landmark::new_in(ct, Landmark::init(0, 0)).await?;
    drop(unused);

    // Published, but no other thread has a pointer: deleted immediately.
    let private = Landmark::new_in(ct, Landmark::init(1, 1)).await?.write(ct).await?;
    ct.delete(private).await?;

    // Unlinked from a structure that others read: retired, and freed when no guard can reach it.
    let shared = Landmark::new_in(ct, Landmark::init(2, 2)).await?.write(ct).await?;
    let g = &ct.pin();
    g.sched_reclaim(shared.shared(g)).await?;

    let metrics = ct.metrics();
    assert_eq!((metrics.allocated, metrics.freed, metrics.retired), (3, 2, 1));
    Ok(())
}
// ANCHOR_END: free

// ANCHOR: heap
#[farfield::test]
async fn the_heap_is_accounted_for(ct: &ComputeThread) -> Result<()> {
    let landmark = Landmark::new_in(ct, Landmark::init(3, 4)).await?.write(ct).await?;
    let used = ct.heap_use().await?[0];
    // A landmark has 16 bytes. The other blocks of its chunk are free.
    assert_eq!((used.live_bytes, used.live_bytes + used.cached_bytes), (16, 16 * 1024));

    ct.delete(landmark).await?;
    assert_eq!(ct.heap_use().await?[0].live_bytes, 0);
    Ok(())
}
// ANCHOR_END: heap

// ANCHOR: errors
#[farfield::test(cluster = "local:size=64KiB")]
async fn mistakes_are_errors(ct: &ComputeThread) -> Result<()> {
    let g = &ct.pin();
    let nowhere = RemotePtr::<Landmark>::NULL;
    let error = nowhere.read(g).await.unwrap_err();
    assert_eq!(error.to_string(), "invalid pointer null: it is null");

    // A heap of 64 KiB has room for some thousand landmarks.
    let full = loop {
        match Landmark::new_in(ct, Landmark::init(0, 0)).await {
            Ok(owned) => drop(owned.write(ct).await?),
            Err(error) => break error,
        }
    };
    assert_eq!(full.to_string(), "out of memory: no room for 16 bytes; tried segment 0");
    Ok(())
}
// ANCHOR_END: errors
