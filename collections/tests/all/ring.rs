//! Rings on all fabrics: what they return, what they cost, and what is refused.

use std::collections::VecDeque;
use std::time::Duration;

use farfield::prelude::*;
use farfield_collections::{Ring, RingRoot};

use crate::clusters::{EXACT, affordable, everywhere};

#[test]
fn it_returns_what_a_queue_of_the_standard_library_returns() {
    everywhere(1, async |ct| {
        for capacity in [1, 2, 5, 64] {
            let ring = Ring::attach(Ring::<Vec<u8>>::create(capacity, ct).await?, ct).await?;
            let mut model = VecDeque::new();
            for step in 0..affordable(3000, ct) {
                // Mostly empty for a while, then mostly full.
                if ct.random_chance(if step / 200 % 2 == 0 { 0.4 } else { 0.6 }) {
                    let item: Vec<u8> =
                        (0..ct.random_range(0..200_u64)).map(|byte| (byte + step) as u8).collect();
                    let has_room = (model.len() as u64) < capacity;
                    assert_eq!(ring.try_push(&item, ct).await?, has_room);
                    if has_room {
                        model.push_back(item);
                    }
                } else {
                    assert_eq!(ring.try_pop(ct).await?, model.pop_front());
                }
            }
            assert_eq!(
                (ring.len(ct).await?, ring.check(ct).await?),
                (model.len() as u64, model.len() as u64)
            );
            assert_eq!((ring.capacity(), ring.is_empty(ct).await?), (capacity, model.is_empty()));
            ring.destroy(ct).await?;
        }
        Ok(())
    });
}

#[test]
fn producers_and_consumers_pass_each_item_once_and_in_order() {
    everywhere(4, async |ct| {
        let root = ct.root_or_init("ring", async || Ring::<u64>::create(7, ct).await).await?;
        let ring = Ring::attach(root, ct).await?;
        let items = affordable(1000, ct);
        let me = ct.index() as u64;
        if me < 2 {
            for item in 0..items {
                ring.push(&(me << 32 | item), ct).await?;
            }
        } else {
            let mut last = [None; 2];
            for _ in 0..items {
                let item = ring.pop(ct).await?;
                let last = &mut last[(item >> 32) as usize];
                assert!(*last < Some(item), "{item:#x} behind {last:?}");
                *last = Some(item);
            }
        }
        ct.barrier("passed").await?;
        if me == 0 {
            assert_eq!((ring.check(ct).await?, ring.len(ct).await?), (0, 0));
            ct.unpublish::<RingRoot<u64>>("ring").await?;
            ring.destroy(ct).await?;
        }
        Ok(())
    });
}

/// More threads than processors, and few slots: a thread is stopped in the middle of a chain while the others pass through the ring many times.
#[test]
fn a_consumer_that_is_stopped_between_two_reads_skips_no_item() {
    const ITEMS: u64 = 8000;
    for capacity in [1, 2, 16] {
        let popped = Cluster::connect("local:size=16MiB").unwrap().run(8, async |ct| {
            let root = ct.root_or_init("ring", async || Ring::<u64>::create(capacity, ct).await).await?;
            let ring = Ring::attach(root, ct).await?;
            let (mut backoff, mut popped) = (ct.backoff(), Vec::new());
            if ct.index() < 4 {
                let items = (ct.index() as u64..ITEMS).step_by(4);
                let pushes = async {
                    for item in items {
                        ring.push(&(item << 32 | item), ct).await?;
                    }
                    Ok(())
                };
                ct.within(Duration::from_secs(60), pushes).await?;
                return Ok(popped);
            }
            let pops = async {
                while popped.len() as u64 * 4 < ITEMS {
                    match ring.try_pop(ct).await? {
                        Some(item) => {
                            assert_eq!(item >> 32, item & u64::from(u32::MAX), "of two items");
                            popped.push(item >> 32);
                        }
                        None => backoff.wait().await,
                    }
                }
                Ok(())
            };
            ct.within(Duration::from_secs(60), pops).await?;
            Ok(popped)
        });
        let mut all: Vec<u64> = popped.unwrap().into_iter().flatten().collect();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..ITEMS), "capacity {capacity}: each item comes once");
    }
}

#[test]
fn operations_take_the_round_trips_of_the_table() {
    let done = Cluster::connect(EXACT).unwrap().run(1, async |ct| {
        let root = Ring::<u64>::create(3, ct).await?;
        let ring = Ring::attach(root, ct).await?;
        let (early, late) = (Ring::attach(root, ct).await?, Ring::attach(root, ct).await?);
        let rtt = ct.cluster().simulation().expect("it is simulated").rtt().as_nanos();
        let cost = |before: Duration| ct.now().saturating_sub(before).as_nanos() / rtt;
        // So that the thread has memory for an item.
        assert!(ring.try_push(&9, ct).await? && ring.try_pop(ct).await? == Some(9));
        let mut costs = Vec::new();
        for item in 0..4 {
            let before = ct.now();
            assert_eq!(ring.try_push(&item, ct).await?, item < 3);
            costs.push(cost(before));
        }
        assert_eq!(costs, [1, 1, 1, 1], "pushes, the last one of a full ring");
        let push_warm = costs[0];
        costs.clear();
        for item in 0..4 {
            let before = ct.now();
            assert_eq!(ring.try_pop(ct).await?, Some(item).filter(|item| *item < 3));
            costs.push(cost(before));
        }
        assert_eq!(costs, [2, 2, 2, 1], "pops, the last one of an empty ring");
        let pop_warm = costs[0];
        // Handles that know an old ticket only.
        let before = ct.now();
        assert_eq!(early.try_pop(ct).await?, None);
        assert_eq!(cost(before), 2, "of an empty ring");
        let before = ct.now();
        assert!(late.try_push(&7, ct).await?);
        let push = cost(before);
        let before = ct.now();
        assert_eq!(late.try_pop(ct).await?, Some(7));
        let pop = cost(before);
        println!("rtts.ring.push.cold {push}\nrtts.ring.push.warm {push_warm}");
        println!("rtts.ring.pop.cold {pop}\nrtts.ring.pop.warm {pop_warm}");
        assert_eq!((push, pop), (2, 2));
        ring.destroy(ct).await
    });
    done.unwrap();
}

#[test]
fn words_of_all_sizes_pass_through_a_ring() {
    everywhere(1, async |ct| {
        let ring = Ring::attach(Ring::<i64>::create(3, ct).await?, ct).await?;
        let items = [0, 1, -1, i64::MAX, i64::MIN, 1 << 31, (1 << 32) - 1, 1 << 32];
        for round in 0..20 {
            for item in items {
                assert!(ring.try_push(&(item ^ round), ct).await?);
                assert_eq!((ring.len(ct).await?, ring.check(ct).await?), (1, 1));
                assert_eq!(ring.try_pop(ct).await?, Some(item ^ round));
            }
        }
        // They are freed with the ring.
        for item in &items[1..4] {
            assert!(ring.try_push(item, ct).await?);
        }
        assert!(!ring.try_push(&0, ct).await?);
        ring.destroy(ct).await
    });
}

#[test]
fn what_a_ring_can_not_do_is_refused() {
    everywhere(1, async |ct| {
        let said = Ring::<u64>::create(0, ct).await.unwrap_err().to_string();
        assert!(said.contains("capacity") && !said.contains('\n'), "{said}");
        let root = Ring::<Vec<u8>>::create(2, ct).await?;
        let other = RemotePtr::from_address(root.address());
        let said = Ring::<u64>::attach(other, ct).await.unwrap_err().to_string();
        assert!(said.contains("root") && said.contains("another type"), "{said}");
        let ring = Ring::attach(root, ct).await?;
        let said = ring.try_push(&vec![0; (1 << 20) + 1], ct).await.unwrap_err().to_string();
        assert!(said.contains("item is 1048577 bytes"), "{said}");
        assert!(ring.try_push(&vec![1; 1 << 20], ct).await?);
        assert_eq!(ring.try_pop(ct).await?, Some(vec![1; 1 << 20]));
        ring.destroy(ct).await
    });
}
