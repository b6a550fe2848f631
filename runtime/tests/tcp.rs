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
