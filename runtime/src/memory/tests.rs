//! Workers alone: threads with a heap and a part in epochs, and no cluster, run or members.

use std::cell::Cell;
use std::future::Future;
use std::num::NonZeroU64;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use farfield_fabric::host::{Arena, Host};
use farfield_fabric::stall::DescribeWait;
use farfield_fabric::{Contents, Departure};
use farfield_words::{Address, Block, Geometry, ThreadId};

use super::candidates::Candidates;
use super::heap::ThreadHeap;
use super::placement::{Placement, Policy};
use super::process::Process;
use super::registry::Registry;
use super::worker::{Orphans, RunHooks, Worker, WorkerParts};
use crate::epoch::Collector;
use crate::error::{Error, Result};
use crate::io::operations::*;
use crate::io::{Endpoint, Failures, Identities, IoParts, Metrics, Purpose, block_on};
use crate::segment::control;
use crate::segment::grid::Grid;

/// The words of a fresh cluster.
struct Fresh;

impl Contents for Fresh {
    fn layout_version(&self) -> u64 {
        control::LAYOUT_VERSION
    }
    fn initial_words(&self, is_first: bool) -> Vec<(u64, u64)> {
        control::initial_words(is_first, 0).collect()
    }
    fn mark_departed<'a>(&self, _: u32, _: Departure, _: &dyn Fn(Address) -> Option<&'a AtomicU64>) {}
}

/// A run without other processes.
struct NoRun;

impl RunHooks for NoRun {
    fn veto_departed(&self, _: &Grid, _: &Candidates) {}
    fn describes(&self, _: Purpose<'_>) -> DescribeWait {
        Box::new(|_| String::new())
    }
}

const BYTES: u64 = 64;

/// The workers of one process, over two segments of 64 KiB.
fn workers<const N: usize>() -> [Worker; N] {
    let geometry = Geometry::new(1, 2, 64 << 10).unwrap();
    let arena = Arc::new(Arena::new(geometry).unwrap());
    arena.format(&Fresh, true).unwrap();
    let process =
        Arc::new(Process::solo(crate::epoch::primitive::Arc::new(Collector::new()), N, geometry.segments()));
    let (registry, identities) = (Arc::new(Registry::new(false)), Arc::new(Identities::new(None)));
    std::array::from_fn(|index| {
        let heap = ThreadHeap::new(
            Arc::clone(&registry),
            Arc::clone(&process),
            geometry,
            Policy::default(),
            (index, 0),
            None,
        );
        let id = ThreadId::new(NonZeroU64::new(1 + index as u64).unwrap());
        let io = IoParts {
            endpoint: Endpoint::Host(Host::new(Arc::clone(&arena))),
            epoch: Collector::register(&process.collector, index),
            identities: Arc::clone(&identities),
            sleepers: Arc::clone(&process.sleepers),
            stalls: None,
            task: Rc::new(Cell::new(0)),
            id,
            geometry,
            seed: index as u64,
            contenders: N,
        };
        let parts = WorkerParts {
            heap,
            process: Arc::clone(&process),
            max_retired: 1 << 20,
            eager: None,
            orphans: Arc::new(Orphans::default()),
            failures: Arc::new(Failures::default()),
            is_shared: false,
            index_here: index,
            run_hooks: Box::new(NoRun),
        };
        Worker::new(io, parts)
    })
}

async fn allocate(worker: &Worker) -> Result<Block> {
    let target = worker.heap().choose_target(worker, Placement::Default);
    if let Some(block) = worker.heap().allocate_from_lists(target, BYTES, 8) {
        return Ok(block);
    }
    worker.heap().allocate(worker, target, BYTES, 8).await
}

fn operations(worker: &Worker) -> Metrics {
    worker.io.counters.snapshot(0, 0, 0)
}

/// Allocates until memory is exhausted.
fn exhaust(worker: &Worker) -> Vec<Block> {
    let mut blocks = Vec::new();
    loop {
        match block_on(worker, allocate(worker)) {
            Ok(block) => blocks.push(block),
            Err(Error::OutOfMemory(error)) => {
                assert_eq!((error.size_bytes, &error.segments[..]), (BYTES, &[0, 1][..]));
                return blocks;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_freed_block_is_allocated_again_without_a_round_trip() {
    let [worker] = workers();
    block_on(&worker, async {
        let block = allocate(&worker).await.unwrap();
        worker.delete_block(block).transpose().unwrap();
        let before = operations(&worker);
        for _ in 0..100 {
            let again = allocate(&worker).await.unwrap();
            assert_eq!((again.address, again.bytes), (block.address, BYTES));
            worker.delete_block(again).transpose().unwrap();
        }
        assert_eq!(operations(&worker), before);
    });
}

#[test]
fn all_memory_can_be_allocated_freed_and_allocated_again() {
    let [worker] = workers();
    let blocks = exhaust(&worker);
    let distinct: std::collections::HashSet<_> = blocks.iter().map(|block| block.address.bits()).collect();
    assert_eq!(distinct.len(), blocks.len(), "no block is allocated twice");
    assert!(blocks.len() as u64 * BYTES > 80 << 10, "of 128 KiB, without the control blocks");
    for block in &blocks {
        worker.delete_block(*block).transpose().unwrap();
        block_on(&worker, worker.flush_surplus()).unwrap();
    }
    // Pages of the pool are blocks, too: those that are retired when memory is exhausted again are missing.
    let missing = blocks.len() - exhaust(&worker).len();
    assert!(missing <= 4, "{missing} blocks are missing");
}

#[test]
fn a_retired_block_is_freed_after_the_guards_of_other_threads() {
    let [retires, reads] = workers();
    let block = block_on(&retires, allocate(&retires)).unwrap();
    let guard = reads.pinned();
    {
        let _guard = retires.pinned();
        retires.retire(block).transpose().unwrap();
    }
    for _ in 0..10 {
        assert_eq!(block_on(&retires, retires.try_reclaim()), 0, "a reader may still use the block");
    }
    drop(guard);
    let freed: u64 = (0..3).map(|_| block_on(&retires, retires.try_reclaim())).sum();
    assert_eq!(freed, 1);
    assert!(!retires.has_garbage());
    assert_eq!(block_on(&retires, allocate(&retires)).unwrap().address, block.address);
}

#[test]
fn a_thread_with_a_guard_can_not_declare_a_quiescent_point() {
    let [worker] = workers();
    let block = block_on(&worker, allocate(&worker)).unwrap();
    let guard = worker.pinned();
    worker.retire(block).transpose().unwrap();
    assert!(matches!(block_on(&worker, worker.reclaim_deferred()), Err(Error::Pinned(_))));
    drop(guard);
    assert_eq!(block_on(&worker, worker.reclaim_deferred()).unwrap(), 1);
}

#[test]
fn a_thread_that_finds_no_memory_gets_the_free_blocks_of_others() {
    let [needs, keeps] = workers();
    let blocks = exhaust(&keeps);
    for block in blocks.iter().take(8) {
        keeps.delete_block(*block).transpose().unwrap();
    }
    let mut allocation = Box::pin(allocate(&needs));
    let mut polls = 0;
    let block = block_on(
        &needs,
        std::future::poll_fn(|context| {
            let polled = allocation.as_mut().poll(context);
            if polled.is_pending() {
                polls += 1;
                assert!(polls < 1000, "the request is served");
                keeps.serves_requests();
                assert!(Box::pin(keeps.flush_surplus()).as_mut().poll(context).is_ready(), "the host fabric");
            }
            polled
        }),
    );
    assert!(polls > 0, "the first attempt finds nothing");
    assert!(blocks.iter().take(8).any(|freed| freed.address == block.as_ref().unwrap().address));
}
