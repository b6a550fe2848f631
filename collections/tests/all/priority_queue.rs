//! Priority queues on all fabrics: what they return, what they cost, and what clients that end anywhere leave.

use std::collections::BTreeMap;
use std::time::Duration;

use farfield::prelude::*;
use farfield::sim::Fault;
use farfield_collections::{PriorityQueue, PriorityQueueRoot};

use crate::clusters::{EXACT, affordable, everywhere};
use crate::polled::polled;

#[test]
fn it_returns_the_lowest_priorities_first_and_equal_ones_in_the_order_of_their_pushes() {
    everywhere(1, async |ct| {
        let queue = PriorityQueue::attach(PriorityQueue::<u64, u64>::create(ct).await?, ct).await?;
        let mut model = BTreeMap::new();
        for step in 0..affordable(2000, ct) {
            let first = model.first_key_value().map(|((priority, _), item)| (*priority, *item));
            match ct.random_range(0..5) {
                0 | 1 => {
                    let priority = ct.random_range(0..6_u64);
                    queue.push(priority, step * 10, ct).await?;
                    model.insert((priority, step), step * 10);
                }
                2 => assert_eq!(queue.peek(ct).await?, first),
                _ => {
                    assert_eq!(queue.pop_min(ct).await?, first);
                    model.pop_first();
                }
            }
        }
        let len = model.len() as u64;
        assert_eq!((queue.len(ct).await?, queue.check(ct).await?), (len, len));
        assert_eq!(queue.is_empty(ct).await?, model.is_empty());
        queue.destroy(ct).await
    });
}

#[test]
fn each_item_is_popped_once_and_what_is_left_comes_in_order() {
    everywhere(4, async |ct| {
        let root = ct.root_or_init("queue", async || PriorityQueue::<u64, u64>::create(ct).await).await?;
        let queue = PriorityQueue::attach(root, ct).await?;
        let items = affordable(400, ct);
        let me = ct.index() as u64;
        let mut popped = Vec::new();
        for item in 0..items {
            queue.push(item % 7, me << 32 | item, ct).await?;
            if item % 2 == 1 {
                popped.extend(queue.pop_min(ct).await?);
            }
        }
        assert_eq!(popped.len() as u64, items / 2, "there is an item for each");
        ct.barrier("half is popped").await?;
        let mut last = None;
        while let Some((priority, item)) = queue.pop_min(ct).await? {
            assert!(last <= Some(priority), "{priority} behind {last:?}");
            last = Some(priority);
            popped.push((priority, item));
        }
        let sum = popped.iter().map(|(_, item)| item % (1 << 32)).sum::<u64>();
        let total = async || Total::new_in(ct, Total::init()).await?.write(ct).await;
        let total = ct.root_or_init("total", total).await?;
        total.sum().fetch_add(ct, sum).await?;
        total.count().fetch_add(ct, popped.len() as u64).await?;
        ct.barrier("popped").await?;
        if me == 0 {
            assert_eq!(total.count().load(ct).await?, 4 * items);
            assert_eq!(total.sum().load(ct).await?, 4 * (items * (items - 1) / 2));
            assert_eq!((queue.check(ct).await?, queue.pop_min(ct).await?), (0, None));
            ct.delete(total).await?;
            queue.destroy(ct).await?;
        }
        Ok(())
    });
}

#[remote]
struct Total {
    sum: Atomic<u64>,
    count: Atomic<u64>,
}

#[test]
fn operations_take_the_round_trips_of_the_table() {
    let done = Cluster::connect(EXACT).unwrap().run(1, async |ct| {
        let queue = PriorityQueue::attach(PriorityQueue::<u64, u64>::create(ct).await?, ct).await?;
        let rtt = ct.cluster().simulation().expect("it is simulated").rtt().as_nanos();
        let cost = |before: Duration| ct.now().saturating_sub(before).as_nanos() / rtt;
        for item in 0..50 {
            queue.push(item, item, ct).await?;
        }
        let queue = queue.with_cache(0);
        let before = ct.now();
        assert_eq!(queue.peek(ct).await?, Some((0, 0)));
        assert_eq!(cost(before), 2);
        for item in 0..50 {
            let before = ct.now();
            assert_eq!(queue.pop_min(ct).await?, Some((item, item)));
            assert!((3..=4).contains(&cost(before)), "{}", cost(before));
        }
        let before = ct.now();
        assert_eq!(queue.pop_min(ct).await?, None);
        assert_eq!(cost(before), 1);
        queue.destroy(ct).await
    });
    done.unwrap();
}

#[farfield::test]
async fn a_queue_of_other_types_is_refused(ct: &ComputeThread) -> Result<()> {
    let root = PriorityQueue::<u64, u64>::create(ct).await?;
    let other = RemotePtr::<PriorityQueueRoot<u64, u32>>::from_address(root.address());
    let refused = PriorityQueue::attach(other, ct).await.map(drop).unwrap_err().to_string();
    assert!(refused.contains("root") && refused.contains("other types"), "{refused}");
    PriorityQueue::attach(root, ct).await?.destroy(ct).await
}

#[test]
fn each_future_can_be_dropped_at_each_await() {
    for url in ["local:nodes=2,size=16MiB,delay=1", "sim:nodes=2,size=16MiB"] {
        let cluster = Cluster::connect(url).unwrap();
        let run = cluster.run(1, async |ct| {
            let queue = PriorityQueue::attach(PriorityQueue::<u64, u64>::create(ct).await?, ct).await?;
            for polls in 1..16 {
                for item in 0..12 {
                    queue.push(5, item, ct).await?;
                    let len = queue.len(ct).await?;
                    let pushed = polled(polls, queue.push(4, item, ct)).await?;
                    let more = queue.len(ct).await? - len;
                    assert!(more == 1 || more == 0 && pushed.is_none());
                    polled(polls, queue.peek(ct)).await?;
                    let popped = polled(polls, queue.pop_min(ct)).await?;
                    let left = queue.len(ct).await?;
                    assert!(left == len + more - 1 || left == len + more && popped.is_none());
                }
                polled(polls, queue.recover(ct)).await?;
            }
            queue.recover(ct).await?;
            let len = queue.check(ct).await?;
            for _ in 0..len {
                assert!(queue.pop_min(ct).await?.is_some());
            }
            assert_eq!(queue.pop_min(ct).await?, None);
            queue.destroy(ct).await
        });
        run.unwrap_or_else(|error| panic!("{url}: {error}"));
        let metrics = cluster.metrics();
        assert_eq!(metrics.allocated, metrics.freed, "{url}: objects are lost");
    }
}

#[test]
fn without_memory_a_push_fails_and_the_queue_stays_usable() {
    let cluster = Cluster::connect("local:size=64KiB,delay=3").unwrap();
    let run = cluster.run(1, async |ct| {
        let queue = PriorityQueue::attach(PriorityQueue::<u64, u64>::create(ct).await?, ct).await?;
        let mut items = 0;
        let error = loop {
            match queue.push(items % 3, items, ct).await {
                Ok(()) => items += 1,
                Err(error) => break error,
            }
            assert!(items < 100_000, "the memory never ends");
        };
        assert!(matches!(error, farfield::Error::OutOfMemory { .. }), "{error}");
        assert_eq!(queue.check(ct).await?, items);
        let mut last = (0, 0);
        for _ in 0..items {
            let first = queue.pop_min(ct).await?.expect("it has so many");
            assert!(last <= first);
            last = first;
        }
        queue.destroy(ct).await
    });
    run.unwrap();
}

#[test]
fn a_client_that_dies_anywhere_leaves_a_queue_that_others_use() {
    const ITEMS: u64 = 60;
    let mut losses = Vec::new();
    for chains in (0..500).step_by(23) {
        // A tower that it had not linked yet is left to a sweep.
        let cluster = Cluster::connect("sim:nodes=2,size=16MiB,leaks=ignore").unwrap();
        cluster.simulation().unwrap().inject(Fault::crash(1).after_chains(chains));
        let run = cluster.run_surviving(3, async |ct| {
            let root = ct.root_or_init("queue", async || PriorityQueue::<u64, u64>::create(ct).await).await?;
            let queue = PriorityQueue::attach(root, ct).await?;
            let mut popped = 0;
            for item in 0..ITEMS {
                queue.push(item % 5, item, ct).await?;
                if item % 3 == 2 {
                    popped += u64::from(queue.pop_min(ct).await?.is_some());
                }
            }
            Ok(popped)
        });
        let run = run.unwrap_or_else(|error| panic!("after {chains} chains: {error}"));
        let popped: u64 = [0, 2].into_iter().filter_map(|thread| run[thread]).sum();
        assert_eq!(popped, 2 * ITEMS / 3);
        let left = cluster.run(1, async |ct| {
            let root = ct.lookup::<PriorityQueueRoot<u64, u64>>("queue").await?;
            let queue = PriorityQueue::attach(root, ct).await?;
            queue.recover(ct).await?;
            let left = queue.check(ct).await?;
            let mut before = None;
            for _ in 0..left {
                let popped = queue.pop_min(ct).await?.map(|(priority, _)| priority);
                assert!(popped.is_some() && before <= popped);
                before = popped;
            }
            assert_eq!(queue.pop_min(ct).await?, None);
            queue.destroy(ct).await?;
            Ok(left)
        });
        let left = left.unwrap_or_else(|error| panic!("after {chains} chains: {error}"))[0];
        // The items of the others are there, or the dead client has popped them.
        assert!(left + popped + ITEMS / 3 >= 2 * ITEMS && left + popped <= 3 * ITEMS);
        losses.push(3 * ITEMS - left - popped);
    }
    assert!(losses.iter().any(|items| *items > ITEMS / 2), "it dies early, too: {losses:?}");
}
