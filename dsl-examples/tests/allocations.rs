//! Allocations on the heap: none, once a thread has warmed up.
//!
//! Counted by an allocator that counts. Each structure does some thousand operations first, so that what a thread keeps
//! for its next operation has its size; then each operation is polled under the count. On the embedded fabric, where one
//! poll is all that an operation takes.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use allocation_counter::measure;
use farfield::prelude::*;
use farfield_examples::{Counter, HarrisList, HashSet, IntSet, LazyList, MsQueue, TreiberStack};

/// Operations before the count begins, and operations that are counted.
const WARM_UP: u64 = 2_000;
const COUNTED: u64 = 2_000;

/// How many allocations a future makes that is ready at its first poll.
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

/// Does `operation` with 0, 1, 2, … until it has been counted often enough; says how many allocations it made in all.
fn report(what: &str, url: &str, body: impl AsyncFn(&ComputeThread) -> Result<u64> + Sync) {
    let made = Cluster::connect(url).unwrap().run(1, body).unwrap()[0];
    #[allow(clippy::cast_precision_loss)]
    let per_operation = made as f64 / COUNTED as f64;
    println!("heap_allocations_per_op.{what} {per_operation}");
    assert_eq!(made, 0, "{what}: {made} allocations in {COUNTED} operations");
}

/// Gets, inserts and removes keys of a small range, in an order that does not repeat soon.
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

#[test]
fn a_lazy_list_allocates_nothing() {
    report("lazy_list", "local:", counted_set::<LazyList<u64>>);
}

#[test]
fn a_harris_list_allocates_nothing() {
    report("harris_list", "local:", counted_set::<HarrisList<u64>>);
}

#[test]
fn a_hash_set_allocates_nothing() {
    report("hash_set", "local:nodes=3", counted_set::<HashSet>);
}

#[test]
fn a_stack_allocates_nothing() {
    report("treiber_stack", "local:", async |ct| {
        let stack = TreiberStack::attach(TreiberStack::<u64>::create(ct).await?, ct).await?;
        let mut made = 0;
        for turn in 0..WARM_UP + COUNTED {
            let allocated = allocations(async {
                stack.push(turn, ct).await?;
                stack.push(turn, ct).await?;
                stack.pop(ct).await?;
                stack.pop(ct).await
            });
            made += if turn < WARM_UP { 0 } else { allocated };
        }
        Ok(made)
    });
}

#[test]
fn a_queue_allocates_nothing() {
    report("ms_queue", "local:", async |ct| {
        let queue = MsQueue::attach(MsQueue::<u64>::create(ct).await?, ct).await?;
        let mut made = 0;
        for turn in 0..WARM_UP + COUNTED {
            let allocated = allocations(async {
                queue.enqueue(turn, ct).await?;
                queue.enqueue(turn, ct).await?;
                queue.dequeue(ct).await?;
                queue.dequeue(ct).await
            });
            made += if turn < WARM_UP { 0 } else { allocated };
        }
        Ok(made)
    });
}

#[test]
fn a_counter_allocates_nothing() {
    report("counter", "local:", async |ct| {
        let counter = Counter::attach(Counter::create(ct).await?, ct).await?;
        let mut made = 0;
        for turn in 0..WARM_UP + COUNTED {
            let allocated = allocations(async { counter.add(turn, ct).await });
            made += if turn < WARM_UP { 0 } else { allocated };
        }
        Ok(made)
    });
}
