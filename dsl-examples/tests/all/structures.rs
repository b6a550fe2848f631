//! The structures from outside: one thread against a model, threads against each other, and the memory in use at the end.

use std::collections::{BTreeSet, VecDeque};

use farfield::prelude::*;
use farfield::{Error, Metrics, Result};
use farfield_examples::{Counter, HarrisList, HashSet, IntSet, LazyList, MsQueue, TreiberStack};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

/// Clusters with different schedules: immediate, interleaved, on several nodes, in virtual time.
const CLUSTERS: &[&str] = &[
    "local:size=8MiB",
    "local:size=8MiB,delay=7",
    "local:nodes=3,segments=2,size=1MiB",
    "local:nodes=2,size=1MiB,delay=3",
    "sim:seed=1,size=8MiB",
    "sim:seed=2,nodes=3,segments=2,size=1MiB,rate=1M,jitter=50%",
];

fn on_each_cluster(threads: usize, body: impl AsyncFn(&ComputeThread) -> Result<()> + Sync) {
    for url in CLUSTERS {
        let cluster = Cluster::connect(url).unwrap();
        cluster.run(threads, &body).unwrap_or_else(|error| panic!("{url}: {error}"));
        assert_eq!(live(cluster.metrics()), 0, "{url}: everything is freed at the end");
    }
}

/// The number of live objects.
fn live(metrics: Metrics) -> u64 {
    metrics.allocated - metrics.freed
}

fn check(holds: bool, what: impl FnOnce() -> String) -> Result<()> {
    if holds { Ok(()) } else { Err(Error::other(what())) }
}

// ---- ordered sets ----------------------------------------------------------------------------------------------

/// `IntSet` has no `destroy`; these tests need it.
trait Destroy: IntSet {
    async fn destroy(self, ct: &ComputeThread) -> Result<()>;
}
impl Destroy for LazyList<u64> {
    async fn destroy(self, ct: &ComputeThread) -> Result<()> {
        self.destroy(ct).await
    }
}
impl Destroy for HarrisList<u64> {
    async fn destroy(self, ct: &ComputeThread) -> Result<()> {
        self.destroy(ct).await
    }
}

impl Destroy for HashSet {
    async fn destroy(self, ct: &ComputeThread) -> Result<()> {
        self.destroy(ct).await
    }
}

async fn follows_a_model<S: Destroy>(ct: &ComputeThread) -> Result<()> {
    let set = S::attach(S::create(ct).await?, ct).await?;
    let mut model = BTreeSet::new();
    let mut rng = SmallRng::seed_from_u64(7);
    // Few keys, so that operations meet; the smallest and the largest of the type among them.
    let keys = [0, 1, 2, 3, 4, 5, u64::MAX - 1, u64::MAX];
    for _ in 0..3000 {
        let key = keys[rng.random_range(0..keys.len())];
        let (did, expected) = match rng.random_range(0..3) {
            0 => (set.insert(key, ct).await?, model.insert(key)),
            1 => (set.remove(key, ct).await?, model.remove(&key)),
            _ => (set.get(key, ct).await?, model.contains(&key)),
        };
        check(did == expected, || format!("key {key}: {did} instead of {expected}"))?;
    }
    assert_eq!(set.keys(ct).await?, model.into_iter().collect::<Vec<_>>());
    ct.reclaim_deferred().await?;
    set.destroy(ct).await
}

#[test]
fn a_lazy_list_is_a_set() {
    on_each_cluster(1, follows_a_model::<LazyList<u64>>);
}

#[test]
fn a_harris_list_is_a_set() {
    on_each_cluster(1, follows_a_model::<HarrisList<u64>>);
}

#[test]
fn a_hash_set_is_a_set() {
    on_each_cluster(1, follows_a_model::<HashSet>);
}

/// Threads and tasks update few keys. Successful insertions and removals of a key must alternate, so their numbers differ by 1 if
/// the key is in the set at the end, and by 0 otherwise.
async fn updates_alternate<S: Destroy>(ct: &ComputeThread) -> Result<()> {
    const KEYS: usize = 6;
    let root = ct.root_or_init("set", async || S::create(ct).await).await?;
    let tallies =
        ct.root_or_init("tallies", async || Tallies::new_in(ct, Tallies::init()).await?.write(ct).await);
    let tallies = tallies.await?;
    let set = S::attach(root, ct).await?;
    ct.barrier("ready").await?;
    ct.tasks(4, async |task| {
        let mut rng = SmallRng::seed_from_u64((ct.index() * 4 + task) as u64);
        for _ in 0..400 {
            let key = rng.random_range(0..KEYS);
            match rng.random_range(0..3) {
                0 if set.insert(key as u64, ct).await? => {
                    tallies.inserted().at(key).fetch_add(ct, 1).await?;
                }
                1 if set.remove(key as u64, ct).await? => {
                    tallies.removed().at(key).fetch_add(ct, 1).await?;
                }
                _ => {
                    set.get(key as u64, ct).await?;
                }
            }
        }
        Ok(())
    })
    .await?;
    ct.barrier("done").await?;
    ct.reclaim_deferred().await?;
    ct.barrier("reclaimed").await?;
    if ct.index() == 0 {
        let there = set.keys(ct).await?;
        let seen = tallies.read(&ct.pin()).await.map(|seen| (seen.inserted, seen.removed))?;
        for key in 0..KEYS {
            let (inserted, removed) = (seen.0[key], seen.1[key]);
            let present = u64::from(there.contains(&(key as u64)));
            check(inserted == removed + present, || {
                format!("key {key}: {inserted} in, {removed} out, {present} left")
            })?;
            check(inserted > 0, || format!("key {key} was never inserted"))?;
        }
        ct.delete(tallies).await?;
        set.destroy(ct).await?;
    }
    Ok(())
}

#[remote]
struct Tallies {
    inserted: [Atomic<u64>; 6],
    removed: [Atomic<u64>; 6],
}

#[test]
fn updates_of_a_lazy_list_alternate() {
    on_each_cluster(4, updates_alternate::<LazyList<u64>>);
}

#[test]
fn updates_of_a_hash_set_alternate() {
    on_each_cluster(4, updates_alternate::<HashSet>);
}

#[test]
fn updates_of_a_harris_list_alternate() {
    on_each_cluster(4, updates_alternate::<HarrisList<u64>>);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Word)]
struct Depth(i16);

#[farfield::test]
async fn keys_of_any_word_can_be_in_a_set(ct: &ComputeThread) -> Result<()> {
    let lazy = LazyList::attach(LazyList::create(ct).await?, ct).await?;
    let harris = HarrisList::attach(HarrisList::create(ct).await?, ct).await?;
    for depth in [5, i16::MIN, -1, 0, i16::MAX] {
        assert!(lazy.insert(Depth(depth), ct).await? && harris.insert(i64::from(depth), ct).await?);
        assert!(!lazy.insert(Depth(depth), ct).await? && !harris.insert(i64::from(depth), ct).await?);
    }
    assert_eq!(lazy.iter(ct).await?, [i16::MIN, -1, 0, 5, i16::MAX].map(Depth));
    assert_eq!(harris.iter(ct).await?, [i16::MIN, -1, 0, 5, i16::MAX].map(i64::from));
    assert!(lazy.remove(Depth(i16::MIN), ct).await? && !lazy.get(Depth(i16::MIN), ct).await?);
    assert!(harris.remove(i64::from(i16::MAX), ct).await? && !harris.get(i64::from(i16::MAX), ct).await?);
    Ok(())
}

#[farfield::test]
async fn a_look_up_reads_each_node_once(ct: &ComputeThread) -> Result<()> {
    let set = LazyList::attach(LazyList::create(ct).await?, ct).await?;
    for key in 0..10_u64 {
        set.insert(key, ct).await?;
    }
    let before = ct.metrics();
    assert!(set.get(9, ct).await?);
    let asked = ct.metrics() - before;
    assert_eq!((asked.reads, asked.chains), (11, 11), "ten nodes and the head's link");
    assert_eq!((asked.writes, asked.cas, asked.faa), (0, 0, 0));
    Ok(())
}

// ---- stack and queue -------------------------------------------------------------------------------------------

#[test]
fn a_stack_returns_values_in_reverse() {
    on_each_cluster(1, async |ct| {
        let stack = TreiberStack::attach(TreiberStack::create(ct).await?, ct).await?;
        let mut model = Vec::new();
        let mut rng = SmallRng::seed_from_u64(3);
        for value in 0..1000_u32 {
            if rng.random_range(0..5) < 3 {
                stack.push(value, ct).await?;
                model.push(value);
            } else {
                assert_eq!(stack.pop(ct).await?, model.pop());
            }
        }
        ct.reclaim_deferred().await?;
        stack.destroy(ct).await
    });
}

#[test]
fn a_queue_returns_values_in_order() {
    on_each_cluster(1, async |ct| {
        let queue = MsQueue::attach(MsQueue::create(ct).await?, ct).await?;
        let mut model = VecDeque::new();
        let mut rng = SmallRng::seed_from_u64(4);
        for value in 0..1000_u32 {
            if rng.random_range(0..5) < 3 {
                queue.enqueue(value, ct).await?;
                model.push_back(value);
            } else {
                assert_eq!(queue.dequeue(ct).await?, model.pop_front());
            }
        }
        ct.reclaim_deferred().await?;
        queue.destroy(ct).await
    });
}

/// A value that names its producer, so that consumers can check the order.
fn stamped(producer: usize, number: u64) -> u64 {
    (producer as u64) << 32 | number
}

const EACH: u64 = 300;

#[test]
fn a_stack_loses_and_duplicates_no_value() {
    on_each_cluster(4, async |ct| {
        let root = ct.root_or_init("stack", async || TreiberStack::<u64>::create(ct).await).await?;
        let sum = ct.root_or_init("sum", async || Counter::create(ct).await).await?;
        let (stack, sum) = (TreiberStack::attach(root, ct).await?, Counter::attach(sum, ct).await?);
        ct.tasks(2, async |task| {
            for number in 0..EACH {
                if task == 0 {
                    stack.push(stamped(ct.index(), number), ct).await?;
                } else if let Some(value) = stack.pop(ct).await? {
                    sum.add(value, ct).await?;
                }
            }
            Ok(())
        })
        .await?;
        ct.barrier("done").await?;
        ct.reclaim_deferred().await?;
        if ct.index() == 0 {
            while let Some(value) = stack.pop(ct).await? {
                sum.add(value, ct).await?;
            }
            let expected: u64 =
                (0..4).flat_map(|thread| (0..EACH).map(move |number| stamped(thread, number))).sum();
            let found = sum.get(ct).await?;
            check(found == expected, || format!("{found:#x} instead of {expected:#x}"))?;
            ct.reclaim_deferred().await?;
            ct.delete(sum.this()).await?;
            stack.destroy(ct).await?;
        }
        Ok(())
    });
}

#[test]
fn a_queue_keeps_the_order_of_each_producer() {
    on_each_cluster(4, async |ct| {
        let root = ct.root_or_init("queue", async || MsQueue::<u64>::create(ct).await).await?;
        let taken = ct.root_or_init("taken", async || Counter::create(ct).await).await?;
        let (queue, taken) = (MsQueue::attach(root, ct).await?, Counter::attach(taken, ct).await?);
        ct.tasks(2, async |task| {
            if task == 0 {
                for number in 1..=EACH {
                    queue.enqueue(stamped(ct.index(), number), ct).await?;
                }
                return Ok(());
            }
            let mut last = [0; 4];
            while taken.get(ct).await? < 4 * EACH {
                let Some(value) = queue.dequeue(ct).await? else {
                    ct.yield_now().await;
                    continue;
                };
                taken.add(1, ct).await?;
                let (producer, number) = ((value >> 32) as usize, value & 0xffff_ffff);
                check(number > last[producer], || {
                    format!("{number} of {producer} after {}", last[producer])
                })?;
                last[producer] = number;
            }
            Ok(())
        })
        .await?;
        ct.barrier("done").await?;
        ct.reclaim_deferred().await?;
        if ct.index() == 0 {
            assert_eq!(queue.dequeue(ct).await?, None);
            ct.delete(taken.this()).await?;
            queue.destroy(ct).await?;
        }
        Ok(())
    });
}

// ---- memory ----------------------------------------------------------------------------------------------------

#[test]
fn memory_is_reused() {
    // Half a mebibyte of heap has room for some 20,000 nodes; several times as many are inserted. (A thread that is preempted while it
    // is pinned delays the reclamation of objects that the other retires meanwhile; there is room for that.)
    let cluster = Cluster::connect("local:size=512KiB").unwrap();
    let done = cluster.run(2, async |ct| {
        let root = ct.root_or_init("set", async || LazyList::<u64>::create(ct).await).await?;
        let set = LazyList::attach(root, ct).await?;
        let mut rng = SmallRng::seed_from_u64(ct.index() as u64);
        for _ in 0..150_000 {
            let key = rng.random_range(0..64);
            if rng.random_range(0..2) == 0 {
                set.insert(key, ct).await?
            } else {
                set.remove(key, ct).await?
            };
        }
        Ok(())
    });
    done.unwrap();
    let metrics = cluster.metrics();
    assert!(metrics.allocated > 70_000 && metrics.retired == metrics.reclaimed, "{metrics:?}");
}
