//! A cluster over TCP, in real time: what the simulator, whose threads do not poll, can not show.

#![cfg(target_os = "linux")]

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use farfield::Result;
use farfield::memory_node::{MemoryNode, MemoryNodeOptions};
use farfield::prelude::*;

#[remote]
struct Counter {
    value: Atomic<u64>,
}

/// Runs a body on the threads of a cluster with a memory node of its own.
fn run<R: Send>(
    threads: usize,
    parameters: &str,
    body: impl AsyncFn(&ComputeThread) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let mut options = MemoryNodeOptions::new("tcp://127.0.0.1:0?encrypt=no");
    options.segment_bytes = 1 << 20;
    let node = MemoryNode::listen(&options).unwrap();
    let (url, stopper) = (format!("{}{parameters}", node.urls()[0]), node.stopper().unwrap());
    let serving = std::thread::spawn(move || node.serve().unwrap());
    let results = Cluster::connect(&url).unwrap().run(threads, body);
    stopper.stop();
    serving.join().unwrap();
    results
}

/// READs, and the time in which they were posted.
#[derive(Clone, Copy, Default)]
struct Reads {
    count: u64,
    time: Duration,
}

impl Reads {
    fn begin(ct: &ComputeThread) -> impl Fn() -> Self {
        let (before, began) = (ct.metrics().reads, Instant::now());
        move || Self { count: ct.metrics().reads - before, time: began.elapsed() }
    }

    /// Returns whether they are those of looks every 20 ms, each of which takes a READ of a desk, and two of a slot.
    fn are_seldom(self) -> bool {
        let looks = 2 + self.time.as_millis() / 20;
        u128::from(self.count) <= 5 * looks
    }
}

const REQUESTS: u64 = 200;

/// The READs of a client that makes requests, and then those of two threads that have nothing to do for half a second.
fn reads_of_mailboxes(parameters: &str) -> (Reads, Vec<Reads>) {
    let reads = run(2, parameters, async |ct| {
        if ct.index() == 0 {
            ct.publish("value", ct.entrust(0_u64).await?.store(ct).await?).await?;
        }
        ct.barrier("published").await?;
        let value = Trust::<u64>::open(ct.lookup("value").await?, ct).await?;
        let add = |value: &mut u64, by: u64| {
            *value += by;
            *value
        };
        let mut busy = Reads::default();
        if ct.index() == 1 {
            value.apply(ct, 1, add).await?;
            let reads = Reads::begin(ct);
            for request in 0..REQUESTS {
                assert_eq!(value.apply(ct, 1, add).await?, request + 2);
            }
            busy = reads();
        }
        ct.barrier("requested").await?;
        let reads = Reads::begin(ct);
        ct.sleep(Duration::from_millis(500)).await;
        Ok((busy, reads()))
    });
    let reads = reads.unwrap();
    (reads[1].0, reads.into_iter().map(|(_, idle)| idle).collect())
}

/// The memory node forwards what arrives in mailboxes.
#[test]
fn watched_mailboxes_are_read_seldom() {
    let (busy, idle) = reads_of_mailboxes("?direct=no");
    assert!(busy.are_seldom(), "{} READs in {:?} for {REQUESTS} requests", busy.count, busy.time);
    for idle in idle {
        assert!(idle.are_seldom(), "{} READs in {:?} without work", idle.count, idle.time);
    }
}

/// Threads that share a connection read theirs.
#[test]
fn threads_that_share_a_connection_delegate_without_watches() {
    let (busy, _) = reads_of_mailboxes("?lanes=1,direct=no");
    assert!(busy.count >= REQUESTS, "{} READs for {REQUESTS} requests", busy.count);
}

/// Client and trustee connect to each other.
#[test]
fn requests_on_direct_lines_need_no_operation() {
    for parameters in ["", "?encrypt=no", "?lanes=1"] {
        let chains = run(2, parameters, async |ct| {
            if ct.index() == 0 {
                ct.publish("value", ct.entrust(0_u64).await?.store(ct).await?).await?;
            }
            ct.barrier("published").await?;
            let mut chains = 0;
            if ct.index() == 1 {
                let value = Trust::<u64>::open(ct.lookup("value").await?, ct).await?;
                value.apply(ct, 1, |value, by: u64| *value += by).await?;
                let (before, began) = (ct.metrics().chains, Instant::now());
                for _ in 0..REQUESTS {
                    value.apply(ct, 1, |value, by: u64| *value += by).await?;
                }
                // The thread looks from time to time whether the trustee lives.
                let looks = 2 + began.elapsed().as_millis() as u64 / 20;
                chains = (ct.metrics().chains - before).saturating_sub(5 * looks);
            }
            ct.barrier("requested").await?;
            Ok(chains)
        });
        assert_eq!(chains.unwrap(), [0, 0], "{parameters}");
    }
}

/// The connections between clients and a trustee are lost at any moment, at either end.
#[test]
fn direct_lines_that_are_lost_lose_and_repeat_no_request() {
    const CLIENTS: usize = 3;
    const TASKS: u64 = 6;
    for parameters in ["", "?encrypt=no"] {
        let over = AtomicU64::new(0);
        let cuts = run(1 + CLIENTS, parameters, async |ct| {
            if ct.index() == 0 {
                ct.publish("values", ct.entrust(Vec::<u64>::new()).await?.store(ct).await?).await?;
            }
            ct.barrier("published").await?;
            let values = Trust::<Vec<u64>>::open(ct.lookup("values").await?, ct).await?;
            let mut cuts = 0;
            if ct.index() == 0 {
                while over.load(Ordering::Relaxed) < CLIENTS as u64 {
                    ct.cut_direct_lines();
                    cuts += 1;
                    ct.sleep(Duration::from_millis(3)).await;
                }
            } else {
                let (ready, client) = (AtomicU64::new(0), ct.index() as u64);
                let requests = ct.tasks(TASKS as usize, async |task| {
                    for number in 0..REQUESTS {
                        let name = (client << 32) + ((task as u64) << 16) + number;
                        // Each is there once, behind the task's last one.
                        let position = values.apply(ct, name, |values, name: u64| {
                            values.push(name);
                            values
                                .iter()
                                .rev()
                                .skip(1)
                                .take_while(|other| **other >> 16 != name >> 16)
                                .count() as u64
                        });
                        position.await?;
                        if number % 40 == 39 && task == 0 {
                            ct.cut_direct_lines();
                        }
                    }
                    ready.fetch_add(1, Ordering::Relaxed);
                    Ok(())
                });
                requests.await?;
                assert_eq!(ready.load(Ordering::Relaxed), TASKS);
                over.fetch_add(1, Ordering::Relaxed);
            }
            ct.barrier("requested").await?;
            if ct.index() == 0 {
                values
                    .apply(ct, (), |values, ()| {
                        let mut next = BTreeMap::new();
                        for name in &*values {
                            let next: &mut u64 = next.entry(name >> 16).or_default();
                            assert_eq!(name & 0xffff, *next, "a request is lost, repeated, or out of order");
                            *next += 1;
                        }
                        assert_eq!(next.len() as u64, CLIENTS as u64 * TASKS);
                        assert!(next.values().all(|count| *count == REQUESTS));
                    })
                    .await?;
            }
            Ok(cuts)
        });
        assert!(cuts.unwrap()[0] > 10, "{parameters}: the test is over too early");
    }
}

/// One of them does not connect, or can not be connected to.
#[test]
fn threads_that_can_not_connect_to_each_other_use_mailboxes() {
    let mut options = MemoryNodeOptions::new("tcp://127.0.0.1:0?encrypt=no");
    options.segment_bytes = 1 << 20;
    let node = MemoryNode::listen(&options).unwrap();
    let (url, stopper) = (node.urls()[0].clone(), node.stopper().unwrap());
    let serving = std::thread::spawn(move || node.serve().unwrap());
    for [trustee, client] in [["?direct=no", ""], ["", "?direct=no"], ["", "?encrypt=no"]] {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let trustee = scope.spawn(|| {
                Cluster::connect(&format!("{url}{trustee}")).unwrap().run(1, async |ct| {
                    ct.publish("value", ct.entrust(0_u64).await?.store(ct).await?).await?;
                    while !is_over.load(Ordering::Relaxed) {
                        ct.sleep(Duration::from_millis(1)).await;
                    }
                    drop(Trust::<u64>::take(ct.unpublish("value").await?, ct).await?);
                    Ok(())
                })
            });
            let client = Cluster::connect(&format!("{url}{client}")).unwrap();
            let counts = client.run(1, async |ct| {
                let value = loop {
                    match ct.lookup("value").await {
                        Ok(value) => break Trust::<u64>::open(value, ct).await?,
                        Err(_) => ct.sleep(Duration::from_millis(1)).await,
                    }
                };
                for _ in 0..9 {
                    value.apply(ct, 1, |value, by: u64| *value += by).await?;
                }
                value.apply(ct, (), |value, ()| *value).await
            });
            is_over.store(true, Ordering::Relaxed);
            assert_eq!(counts.unwrap(), [9]);
            trustee.join().unwrap().unwrap();
        });
    }
    stopper.stop();
    serving.join().unwrap();
}

/// The trustee accepts a connection that its client has given up: it computes for longer than the client waits.
#[test]
fn a_trustee_that_accepts_a_connection_too_late_serves() {
    let over = AtomicBool::new(false);
    let counts = run(2, "", async |ct| {
        if ct.index() == 0 {
            ct.publish("value", ct.entrust(0_u64).await?.store(ct).await?).await?;
        }
        ct.barrier("published").await?;
        let mut count = 0;
        if ct.index() == 0 {
            while !over.load(Ordering::Relaxed) {
                ct.sleep(Duration::from_millis(1)).await;
                std::thread::sleep(Duration::from_millis(300));
            }
        } else {
            let requests = async {
                let value = Trust::<u64>::open(ct.lookup("value").await?, ct).await?;
                for _ in 0..2 {
                    value.apply(ct, 1, |value, by: u64| *value += by).await?;
                }
                value.apply(ct, (), |value, ()| *value).await
            };
            let counted = ct.within(Duration::from_secs(20), requests).await;
            over.store(true, Ordering::Relaxed);
            count = counted?;
        }
        Ok(count)
    });
    assert_eq!(counts.unwrap(), [0, 2]);
}

/// A client that maps the memory and one over TCP use the same mailboxes.
#[test]
fn a_trustee_that_is_reached_in_another_way_serves() {
    let mut options = MemoryNodeOptions::new(&format!("shm:both-ways-{}", std::process::id()));
    options.listen.push("tcp://127.0.0.1:0".into());
    options.segment_bytes = 1 << 20;
    let node = MemoryNode::listen(&options).unwrap();
    let (urls, stopper) = (node.urls().to_vec(), node.stopper().unwrap());
    let serving = std::thread::spawn(move || node.serve().unwrap());
    for [trustee, client] in [[0, 1], [1, 0]] {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let trustee = scope.spawn(|| {
                Cluster::connect(&urls[trustee]).unwrap().run(1, async |ct| {
                    ct.publish("value", ct.entrust(0_u64).await?.store(ct).await?).await?;
                    while !is_over.load(Ordering::Relaxed) {
                        ct.sleep(Duration::from_millis(1)).await;
                    }
                    drop(Trust::<u64>::take(ct.unpublish("value").await?, ct).await?);
                    Ok(())
                })
            });
            let served = Cluster::connect(&urls[client]).unwrap().run(1, async |ct| {
                let stored = loop {
                    match ct.lookup("value").await {
                        Ok(stored) => break stored,
                        Err(_) => ct.sleep(Duration::from_millis(1)).await,
                    }
                };
                let mut served = Vec::new();
                for _ in 0..2 {
                    let opened = ct.within(Duration::from_secs(10), Trust::<u64>::open(stored, ct)).await?;
                    served.push(
                        opened
                            .apply(ct, 1, |value: &mut u64, addend: u64| {
                                *value += addend;
                                *value
                            })
                            .await?,
                    );
                }
                Ok(served)
            });
            // Else the trustee would wait for ever.
            is_over.store(true, Ordering::Relaxed);
            trustee.join().unwrap().unwrap();
            assert_eq!(served.unwrap()[0], [1, 2]);
        });
    }
    stopper.stop();
    serving.join().unwrap();
}

/// The chain of a dropped future protects memory until the thread takes its completion.
#[test]
fn a_thread_that_only_yields_does_not_keep_the_epoch_from_advancing() {
    let mut options = MemoryNodeOptions::new("tcp://127.0.0.1:0?encrypt=no");
    options.segment_bytes = 1 << 20;
    let node = MemoryNode::listen(&options).unwrap();
    let (url, stopper) = (node.urls()[0].clone(), node.stopper().unwrap());
    let serving = std::thread::spawn(move || node.serve().unwrap());
    let has_advanced = AtomicBool::new(false);
    let cluster = Cluster::connect(&url).unwrap();
    let advanced: Result<Vec<u64>> = cluster.run(2, async |ct| {
        let new = async || Counter::new_in(ct, Counter::init()).await?.write(ct).await;
        let counter = ct.root_or_init("counter", new).await?;
        ct.barrier("begun").await?;
        if ct.index() == 0 {
            let guard = ct.pin();
            {
                let mut abandoned = pin!(counter.value().fetch_add(ct, 1));
                let polled = abandoned.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                assert!(polled.is_pending(), "a round trip takes time");
            }
            drop(guard);
            while !has_advanced.load(Ordering::Relaxed) {
                ct.yield_now().await;
            }
            return Ok(3);
        }
        let (began, first) = (Instant::now(), ct.reclamation().await?.epoch);
        let mut now = first;
        while now < first + 3 && began.elapsed() < Duration::from_secs(10) {
            ct.sleep(Duration::from_millis(1)).await;
            ct.pin();
            ct.try_reclaim().await;
            now = ct.reclamation().await?.epoch;
        }
        has_advanced.store(true, Ordering::Relaxed);
        Ok(now - first)
    });
    assert_eq!(advanced.unwrap(), [3, 3]);
    drop(cluster);
    stopper.stop();
    serving.join().unwrap();
}
