//! Operations do not allocate on the heap once a thread has warmed up.
//!
//! A counting allocator counts. Each structure first does some thousand operations, so that the buffers that a thread keeps have
//! their final sizes. Then each operation is polled under the counter, on the embedded fabric, where one poll completes it.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use allocation_counter::measure;
use farfield::prelude::*;
use farfield_examples::{Counter, HarrisList, HashSet, IntSet, LazyList, MsQueue, TreiberStack};

/// Operations before the count begins, and counted operations.
const WARM_UP: u64 = 10_000;
const COUNTED: u64 = 2_000;

/// The number of allocations of a future that is ready at its first poll.
fn allocations<T>(work: impl Future<Output = Result<T>>) -> u64 {
    let mut work = pin!(work);
    let mut outcome = None;
    let counted = measure(|| outcome = Some(work.as_mut().poll(&mut Context::from_waker(Waker::noop()))));
    match outcome {
        Some(Poll::Ready(result)) => drop(result.unwrap()),
        _ => panic!("an operation of the embedded fabric waits"),
    }
    counted.count_total
}

/// The number of allocations in the counted operations of `body`, on one thread of a cluster.
fn made(url: &str, body: impl AsyncFn(&ComputeThread) -> Result<u64> + Sync) -> u64 {
    Cluster::connect(url).unwrap().run(1, body).unwrap()[0]
}

/// Looks up, inserts and removes keys of a small range, in an order with a long period.
async fn counted_set<S: IntSet>(ct: &ComputeThread) -> Result<u64> {
    let set = S::attach(S::create(ct).await?, ct).await?;
    let mut made = 0;
    for turn in 0..WARM_UP + COUNTED {
        let key = turn.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58;
        let operation = async {
            match turn % 3 {
                0 => set.insert(key, ct).await,
                1 => set.remove(key, ct).await,
                _ => set.get(key, ct).await,
            }
        };
        let allocated = allocations(operation);
        made += if turn < WARM_UP { 0 } else { allocated };
    }
    Ok(made)
}

#[test]
fn the_counter_counts() {
    assert_eq!(allocations(async { Ok(Box::new(1)) }), 1);
}

async fn counted_stack(ct: &ComputeThread) -> Result<u64> {
    let stack = TreiberStack::attach(TreiberStack::<u64>::create(ct).await?, ct).await?;
    let mut made = 0;
    for turn in 0..WARM_UP + COUNTED {
        let operation = async {
            if turn % 4 < 2 { stack.push(turn, ct).await.map(|()| None) } else { stack.pop(ct).await }
        };
        let allocated = allocations(operation);
        made += if turn < WARM_UP { 0 } else { allocated };
    }
    Ok(made)
}

async fn counted_queue(ct: &ComputeThread) -> Result<u64> {
    let queue = MsQueue::attach(MsQueue::<u64>::create(ct).await?, ct).await?;
    let mut made = 0;
    for turn in 0..WARM_UP + COUNTED {
        let operation = async {
            if turn % 4 < 2 { queue.enqueue(turn, ct).await.map(|()| None) } else { queue.dequeue(ct).await }
        };
        let allocated = allocations(operation);
        made += if turn < WARM_UP { 0 } else { allocated };
    }
    Ok(made)
}

async fn counted_counter(ct: &ComputeThread) -> Result<u64> {
    let counter = Counter::attach(Counter::create(ct).await?, ct).await?;
    let mut made = 0;
    for turn in 0..WARM_UP + COUNTED {
        let allocated = allocations(counter.add(turn, ct));
        made += if turn < WARM_UP { 0 } else { allocated };
    }
    Ok(made)
}

#[test]
fn no_operation_allocates() {
    let counts = [
        ("lazy-list", made("local:", counted_set::<LazyList<u64>>)),
        ("harris-list", made("local:", counted_set::<HarrisList<u64>>)),
        ("hash-set", made("local:nodes=3", counted_set::<HashSet>)),
        ("treiber-stack", made("local:", counted_stack)),
        ("ms-queue", made("local:", counted_queue)),
        ("counter", made("local:", counted_counter)),
    ];
    let all: u64 = counts.iter().map(|(_, made)| made).sum();
    #[allow(clippy::cast_precision_loss)]
    let per_operation = all as f64 / (COUNTED * counts.len() as u64) as f64;
    println!("abstraction.heap_allocations_per_op {per_operation}");
    for (structure, made) in counts {
        assert_eq!(made, 0, "{structure}: {made} allocations in {COUNTED} operations");
    }
}
