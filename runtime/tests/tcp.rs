//! A cluster over TCP, in real time: what the simulator, whose threads do not poll, can not show.

#![cfg(target_os = "linux")]

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
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
    let mut options = MemoryNodeOptions::new("tcp://127.0.0.1:0");
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
    let (busy, idle) = reads_of_mailboxes("");
    assert!(busy.are_seldom(), "{} READs in {:?} for {REQUESTS} requests", busy.count, busy.time);
    for idle in idle {
        assert!(idle.are_seldom(), "{} READs in {:?} without work", idle.count, idle.time);
    }
}

/// Threads that share a connection read theirs.
#[test]
fn threads_that_share_a_connection_delegate_without_watches() {
    let (busy, _) = reads_of_mailboxes("?lanes=1");
    assert!(busy.count >= REQUESTS, "{} READs for {REQUESTS} requests", busy.count);
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
    let mut options = MemoryNodeOptions::new("tcp://127.0.0.1:0");
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
