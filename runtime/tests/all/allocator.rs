//! The allocator: freed memory serves other threads, other processes, and objects of other sizes.

use farfield::prelude::*;
use farfield::{Error, Remote};

#[remote]
struct Node {
    key: u64,
    rest: [u64; 7],
}

#[remote]
struct Wide {
    words: [u64; 16],
}

#[remote]
struct Long {
    id: u64,
    words: Tail<u64>,
}

/// Allocates objects until memory is full, and returns their addresses.
async fn fill<T: Remote>(
    ct: &ComputeThread,
    new: impl AsyncFn() -> Result<Owned<T>>,
) -> Result<Vec<RemotePtr<T>>> {
    let mut objects = Vec::new();
    loop {
        match new().await {
            Ok(object) => objects.push(object.write(ct).await?),
            Err(Error::OutOfMemory { .. }) => return Ok(objects),
            Err(error) => return Err(error),
        }
    }
}

async fn fill_with_nodes(ct: &ComputeThread) -> Result<Vec<RemotePtr<Node>>> {
    fill(ct, async || Node::new_in(ct, Node::init(1, [0; 7])).await).await
}

async fn free_all<T: Remote>(ct: &ComputeThread, objects: Vec<RemotePtr<T>>) -> Result<()> {
    for object in objects {
        ct.delete(object).await?;
    }
    Ok(())
}

#[test]
fn blocks_cached_by_waiting_threads_serve_others() {
    for url in ["local:size=256KiB", "local:size=256KiB,delay=4", "local:size=128KiB,nodes=2,segments=2"] {
        let cluster = Cluster::connect(url).unwrap();
        cluster
            .run(3, async |ct| {
                for turn in 0..3 {
                    if ct.index() == turn {
                        let nodes = fill_with_nodes(ct).await?;
                        let bytes: u64 = ct.heap_use().await?.iter().map(|usage| usage.size_bytes).sum();
                        let filled = nodes.len() as u64 * 64;
                        let left = bytes - filled;
                        assert!(left < 8 * 64, "{left} bytes of {bytes} are unused in turn {turn}, {url}");
                        free_all(ct, nodes).await?;
                    }
                    ct.barrier("filled and freed").await?;
                }
                Ok(())
            })
            .unwrap();
    }
}

#[test]
fn memory_freed_by_one_process_serves_another() {
    // Each thread is a process of its own. They share only the pool.
    let cluster = Cluster::connect("sim:size=64KiB,threads-per-node=1").unwrap();
    let filled = cluster.run(3, async |ct| {
        let mut filled = (0, 0);
        for turn in 0..3 {
            if ct.index() == turn {
                let nodes = fill_with_nodes(ct).await?;
                filled = (nodes.len(), ct.heap_use().await?[0].size_bytes as usize / 64);
                free_all(ct, nodes).await?;
            }
            ct.barrier("filled and freed").await?;
        }
        Ok(filled)
    });
    let filled = filled.unwrap();
    // A waiting process returns its cached blocks, at most 16, when it sees the request with its next step.
    assert_eq!(filled[0].0, filled[0].1, "the whole heap");
    assert!(filled.iter().all(|(count, all)| count + 2 * 16 >= *all), "{filled:?}");
}

#[test]
fn freed_memory_serves_objects_of_another_size() {
    for url in ["local:size=256KiB", "local:size=8MiB", "local:size=64KiB", "sim:size=64KiB"] {
        let cluster = Cluster::connect(url).unwrap();
        cluster
            .run(1, async |ct| {
                for _ in 0..3 {
                    let nodes = fill_with_nodes(ct).await?;
                    let count = nodes.len();
                    free_all(ct, nodes).await?;
                    let wide = fill(ct, async || Wide::new_in(ct, Wide::init([0; 16])).await).await?;
                    // A chunk of 1 KiB has 7 and not 8 blocks of 128 bytes, since they begin at multiples of 128.
                    let lost = if url.contains("size=64KiB") { count / 16 } else { 0 };
                    assert_eq!(wide.len(), count / 2 - lost, "after {count}, {url}");
                    free_all(ct, wide).await?;
                }
                Ok(())
            })
            .unwrap();
    }
}

#[test]
fn adjacent_free_chunks_serve_one_large_object() {
    for url in ["local:size=4MiB", "local:size=4MiB,delay=4", "sim:size=4MiB"] {
        let cluster = Cluster::connect(url).unwrap();
        cluster
            .run(1, async |ct| {
                for round in 0..4_u64 {
                    let long =
                        async |words: usize| Long::new_in(ct, Long::init(round, vec![round; words])).await;
                    let many = fill(ct, async || long(12_000).await).await?;
                    assert_eq!(many.len(), 42, "of 255 chunks, 6 for each object");
                    free_all(ct, many).await?;
                    let one = long(515_000).await?.write(ct).await?;
                    let full = long(12_000).await.map(drop).unwrap_err();
                    assert!(matches!(full, Error::OutOfMemory { .. }), "{full}");
                    ct.delete(one).await?;
                    let small = fill_with_nodes(ct).await?;
                    let bytes = ct.heap_use().await?[0].size_bytes;
                    assert_eq!(small.len() as u64, bytes / 64, "the whole heap");
                    free_all(ct, small).await?;
                }
                Ok(())
            })
            .unwrap();
    }
}

#[test]
fn free_chunks_of_a_large_segment_are_found_by_short_reads() {
    for url in ["local:size=64MiB", "local:size=64MiB,delay=4,nodes=2", "sim:size=64MiB"] {
        let run = Cluster::connect(url).unwrap().run(1, async |ct| {
            let of_one_chunk = async || Long::new_in(ct, Long::init(7, vec![7; 1200])).await;
            let mut objects = fill(ct, of_one_chunk).await?;
            assert!(objects.len() > 4000, "{}, {url}", objects.len());
            // Each eighth is freed, then all that are left in a part at the end, then the last one.
            for round in 0..3 {
                let all = objects.len();
                let (freed, kept) = std::mem::take(&mut objects).into_iter().enumerate().partition(
                    |(index, _): &(usize, _)| match round {
                        0 => index % 8 == 0,
                        1 => *index > all - 200,
                        _ => *index + 1 == all,
                    },
                );
                let (freed, kept): (Vec<_>, Vec<_>) = (freed, kept);
                let count = freed.len() as u64;
                objects = kept.into_iter().map(|(_, object)| object).collect();
                free_all(ct, freed.into_iter().map(|(_, object)| object).collect()).await?;
                let before = ct.metrics().read_bytes;
                for _ in 0..count {
                    objects.push(of_one_chunk().await?.write(ct).await?);
                }
                let mean = (ct.metrics().read_bytes - before) / count;
                let most = if count == 1 { 40_000 } else { 5000 };
                assert!(mean < most, "{mean} bytes for each of {count}, {url}");
                let full = of_one_chunk().await.map(drop).unwrap_err();
                assert!(matches!(full, Error::OutOfMemory { .. }), "{full}");
            }
            free_all(ct, objects).await
        });
        run.unwrap();
    }
}

#[test]
fn a_tail_is_freed_without_a_round_trip() {
    let cluster = Cluster::connect("sim:threads-per-node=1").unwrap();
    cluster
        .run(2, async |ct| {
            let table =
                ct.root_or_init("table", async || Table::new_in(ct, Table::init()).await?.write(ct).await);
            let table = table.await?;
            if ct.index() == 0 {
                let g = &ct.pin();
                for (at, words) in [3, 4, 3, 10_000, 10_000].into_iter().enumerate() {
                    let long = Long::new_in(ct, Long::init(at as u64, vec![9; words])).await?;
                    table.objects().at(at).store(g, long).await?;
                }
            }
            ct.barrier("made").await?;
            if ct.index() == 1 {
                let g = &ct.pin();
                let mut reads = Vec::new();
                for at in 0..5 {
                    let long = table.objects().at(at).load(g).await?;
                    let before = ct.metrics();
                    g.sched_reclaim(long).await?;
                    reads.push((ct.metrics() - before).chains);
                }
                // The process reads each chunk's record once, and that of a large object every time.
                assert_eq!(reads, [1, 1, 0, 1, 1]);
            }
            ct.barrier("retired").await
        })
        .unwrap();
}

#[remote]
struct Table {
    objects: [Link<Long>; 16],
}

#[farfield::test]
async fn heap_use_counts_live_and_cached_bytes(ct: &ComputeThread) -> Result<()> {
    let [before] = ct.heap_use().await?[..] else { panic!("one node") };
    assert_eq!((before.live_bytes, before.cached_bytes), (0, 0));
    let node = Node::new_in(ct, Node::init(1, [0; 7])).await?;
    let long = Long::new_in(ct, Long::init(1, vec![0; 3])).await?;
    let [after] = ct.heap_use().await?[..] else { panic!("one node") };
    assert_eq!(after.live_bytes, 64 + 40);
    assert_eq!(after.cached_bytes + after.live_bytes, 2 * 16 * 1024, "two chunks");
    drop((node, long));
    let [freed] = ct.heap_use().await?[..] else { panic!("one node") };
    assert_eq!((freed.live_bytes, freed.cached_bytes), (0, 2 * 16 * 1024));
    Ok(())
}

#[farfield::test(cluster = "local:size=256KiB")]
async fn deleting_an_address_without_an_object_is_refused(ct: &ComputeThread) -> Result<()> {
    #[remote(align = 4096)]
    struct Aligned {
        word: u64,
    }
    let long = Long::new_in(ct, Long::init(1, vec![0; 20])).await?.write(ct).await?;
    let large = Long::new_in(ct, Long::init(1, vec![0; 2000])).await?.write(ct).await?;
    let at = |address| RemotePtr::<Long>::from_address(address);
    let inside =
        [long.address().add(8), large.address().add(8), large.address().add(8192), large.address().add(4096)];
    for address in inside {
        let refused = ct.delete(at(address)).await.unwrap_err().to_string();
        assert!(refused.contains("no object begins there"), "{refused}");
    }
    // A node's address among blocks of another size.
    let foreign = RemotePtr::<Node>::from_address(long.address());
    assert!(ct.delete(foreign).await.is_err());
    ct.delete(long).await?;
    ct.delete(large).await?;
    assert!(ct.delete(long).await.is_err() && ct.delete(large).await.is_err(), "twice");
    let aligned = Aligned::new_in(ct, Aligned::init(1)).await?;
    assert!(aligned.as_ptr().address().offset().is_multiple_of(4096));
    Ok(())
}

#[farfield::test(cluster = "local:size=32KiB")]
async fn an_alignment_over_that_of_a_chunk_is_refused(ct: &ComputeThread) -> Result<()> {
    #[remote(align = 2048)]
    struct Aligned {
        word: u64,
    }
    let refused = Aligned::new_in(ct, Aligned::init(1)).await.map(drop).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "cannot allocate 2048 bytes: its alignment is over 4096 bytes, or over that of a chunk"
    );
    Ok(())
}

/// Several processes replace objects of all sizes in a table, in memory that is short. The simulator checks that no two objects
/// overlap, that none is used after it is freed, and that none is lost.
async fn churn(ct: &ComputeThread, turns: u64) -> Result<()> {
    let table =
        ct.root_or_init("table", async || Table::new_in(ct, Table::init()).await?.write(ct).await).await?;
    ct.barrier("there").await?;
    for turn in 0..turns {
        let g = &ct.pin();
        let at = ct.random_range(0..16);
        let is_large = ct.random_range(0..10) == 0;
        let words = ct.random_range(if is_large { 100..800 } else { 0..40 });
        let id = turn << 16 | words as u64;
        let place = table.objects().at(at);
        let old = match Long::new_in(ct, Long::init(id, vec![id; words])).await {
            Ok(long) => place.swap(g, long).await?,
            Err(Error::OutOfMemory { .. }) => place.swap(g, Shared::NULL).await?,
            Err(error) => return Err(error),
        };
        if !old.is_null() {
            let seen = old.id().read(g).await?;
            let length = old.words().len(g).await?;
            assert_eq!(seen & 0xffff, length as u64);
            if length > 0 {
                let last = old.words().at(length - 1);
                assert_eq!(last.read(g).await?, seen);
            }
            g.sched_reclaim(old).await?;
        }
    }
    Ok(())
}

#[test]
fn no_block_is_lost_or_allocated_twice() {
    for seed in 0..if cfg!(debug_assertions) { 30 } else { 2000 } {
        let nodes = 1 + seed % 2;
        let url = format!(
            "sim:seed={seed},nodes={nodes},size=56KiB,max-retired=1MiB,threads-per-node={}",
            1 + seed % 3
        );
        let cluster = Cluster::connect(&url).unwrap();
        cluster.run(4, async |ct| churn(ct, 60).await).unwrap_or_else(|error| panic!("{url}: {error}"));
        assert_all_memory_is_reusable(&cluster, &url);
    }
}

#[test]
fn no_block_is_allocated_twice_when_processes_die() {
    let mut died = 0;
    let seeds = if cfg!(debug_assertions) { 60 } else { 4000 };
    for seed in 0..seeds {
        let faults = "crash=0.2%,stall=0.5%,cut=0.2%,leaks=ignore";
        let url =
            format!("sim:seed={seed},size=56KiB,max-retired=1MiB,threads-per-node={},{faults}", 1 + seed % 2);
        let cluster = Cluster::connect(&url).unwrap();
        let ended = cluster.run_surviving(4, async |ct| match churn(ct, 40).await {
            // The outcome of an operation that a cut interrupts is unknown.
            Err(Error::NodeUnreachable { .. } | Error::BarrierBroken { .. }) => Ok(()),
            result => result,
        });
        match ended {
            Ok(ended) => died += ended.iter().filter(|ended| ended.is_none()).count(),
            // The run failed before or after the thread's own work.
            Err(Error::NodeUnreachable { .. }) => {}
            Err(error) => panic!("{url}: {error}"),
        }
    }
    assert!(died > seeds, "{died}");
}

#[test]
fn threads_lose_no_block() {
    for url in [
        "local:size=128KiB,max-retired=1MiB",
        "local:size=128KiB,max-retired=1MiB,nodes=2",
        "local:size=128KiB,max-retired=1MiB,delay=16",
        "local:size=4MiB",
    ] {
        let cluster = Cluster::connect(url).unwrap();
        for _ in 0..3 {
            cluster.run(4, async |ct| ct.tasks(3, async |_| churn_some(ct).await).await.map(drop)).unwrap();
        }
        assert_all_memory_is_reusable(&cluster, url);
    }
}

async fn churn_some(ct: &ComputeThread) -> Result<()> {
    // Full memory is waited for, again and again.
    if ct.task() == 0 { churn(ct, 50).await } else { Ok(()) }
}

/// Frees the table's objects, and allocates an object as large as a whole segment.
fn assert_all_memory_is_reusable(cluster: &Cluster, url: &str) {
    let whole = cluster.run(1, async |ct| {
        let g = &ct.pin();
        let table = ct.lookup::<Table>("table").await?;
        for at in 0..16 {
            let old = table.objects().at(at).swap(g, Shared::NULL).await?;
            if !old.is_null() {
                g.sched_reclaim(old).await?;
            }
        }
        ct.try_reclaim().await;
        Ok(())
    });
    whole.unwrap_or_else(|error| panic!("{url}: {error}"));
    let result = cluster.run(1, async |ct| {
        let usage = ct.heap_use().await?;
        let live: u64 = usage.iter().map(|usage| usage.live_bytes).sum();
        assert_eq!(live, 128, "the table, {url}: {usage:?}");
        let chunk = (usage[0].size_bytes / 32).next_power_of_two().clamp(1024, 16 * 1024);
        // All but two chunks: the table's, and one of its creation.
        let words = (usage[0].size_bytes - 2 * chunk) / 8 - 16;
        let node = (usage.len() - 1) as u16;
        for node in [0, node] {
            let long = Long::new_in(ct.on_node(node), Long::init(0, vec![0; words as usize])).await?;
            drop(long);
        }
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{url}: {error}"));
}
