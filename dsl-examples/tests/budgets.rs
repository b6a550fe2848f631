//! Round trips, counted by the simulator: what each operation may cost, uncontended, on one memory node.
//!
//! `h` is the number of nodes that a search visits, sentinels included. Without jitter, and with no limits to bandwidth and
//! rate, an operation's virtual duration is its number of round trips, one after the other.

use farfield::prelude::*;
use farfield_examples::{HarrisList, IntSet, LazyList, MsQueue, TreiberStack};

const EXACT: &str = "sim:jitter=0%,bandwidth=inf,rate=inf,doorbell=0ns,leaks=ignore";

/// Keys that are in a set: 0, 2, 4, …
const KEYS: u64 = 10;

fn exactly(body: impl AsyncFn(&ComputeThread) -> Result<()> + Sync) {
    Cluster::connect(EXACT).unwrap().run(1, body).map(drop).unwrap();
}

/// How many round trips something takes.
async fn round_trips<T>(ct: &ComputeThread, work: impl AsyncFnOnce() -> Result<T>) -> Result<u64> {
    // What an earlier operation posted without waiting is none of this one's business.
    ct.flush().await?;
    let began = ct.now();
    work().await?;
    let took = ct.now().saturating_sub(began).as_nanos();
    let rtt = ct.cluster().simulation().expect("it is simulated").rtt().as_nanos();
    assert!(took.is_multiple_of(rtt), "{took} ns are no whole number of round trips");
    Ok((took / rtt) as u64)
}

/// The nodes that a search visits for key `2 * position` or the one before it: the head, so many keys, and the one that is
/// found or passed.
fn visited(position: u64) -> u64 {
    position + 2
}

/// What the operations of a set take beyond `h`: `[get, insert, remove]`, wherever the key belongs.
fn set_costs<S: IntSet>(expected: [u64; 3]) {
    exactly(async |ct| {
        let set = S::attach(S::create(ct).await?, ct).await?;
        for key in 0..KEYS {
            assert!(set.insert(2 * key, ct).await?);
        }
        for position in 0..KEYS {
            let (there, absent, h) = (2 * position, 2 * position + 1, visited(position));
            let found = round_trips(ct, async || set.get(there, ct).await).await?;
            assert_eq!(found, h + expected[0], "get of a key that is there");
            let missed = round_trips(ct, async || set.get(absent, ct).await).await?;
            assert_eq!(
                missed,
                h + 1 + expected[0],
                "get of a key that is not there, whose successor is read too"
            );
            let inserted = round_trips(ct, async || set.insert(absent, ct).await).await?;
            assert_eq!(inserted, h + 1 + expected[1], "insert");
            let refused = round_trips(ct, async || set.insert(there, ct).await).await?;
            assert_eq!(refused, h, "insert of a key that is there");
            let removed = round_trips(ct, async || set.remove(absent, ct).await).await?;
            assert_eq!(removed, h + 1 + expected[2], "remove");
            let gone = round_trips(ct, async || set.remove(absent, ct).await).await?;
            assert_eq!(gone, h + 1, "remove of a key that is not there");
        }
        Ok(())
    });
}

#[test]
fn a_lazy_list_takes_h_and_h_plus_2() {
    set_costs::<LazyList<u64>>([0, 2, 2]);
}

#[test]
fn a_harris_list_takes_h_and_h_plus_1_and_h_plus_2() {
    set_costs::<HarrisList<u64>>([0, 1, 2]);
}

#[test]
fn a_stack_takes_1_and_2() {
    exactly(async |ct| {
        let stack = TreiberStack::attach(TreiberStack::<u64>::create(ct).await?, ct).await?;
        stack.push(0, ct).await?;
        for value in 1..5 {
            assert_eq!(
                round_trips(ct, async || stack.push(value, ct).await).await?,
                1,
                "push after the first"
            );
        }
        for _ in 0..5 {
            assert_eq!(round_trips(ct, async || stack.pop(ct).await).await?, 2, "pop");
        }
        assert_eq!(round_trips(ct, async || stack.pop(ct).await).await?, 1, "pop of nothing");
        Ok(())
    });
}

#[test]
fn a_queue_takes_2_and_2() {
    exactly(async |ct| {
        let queue = MsQueue::attach(MsQueue::<u64>::create(ct).await?, ct).await?;
        queue.enqueue(0, ct).await?;
        for value in 1..5 {
            assert_eq!(round_trips(ct, async || queue.enqueue(value, ct).await).await?, 2, "enqueue");
        }
        queue.dequeue(ct).await?;
        for _ in 1..5 {
            assert_eq!(
                round_trips(ct, async || queue.dequeue(ct).await).await?,
                2,
                "dequeue after the first"
            );
        }
        assert_eq!(round_trips(ct, async || queue.dequeue(ct).await).await?, 1, "dequeue of nothing");
        Ok(())
    });
}

#[farfield::remote]
struct Cell {
    value: u64,
    next: Link<Cell>,
}

#[test]
fn memory_and_guards_cost_nothing() {
    exactly(async |ct| {
        let mut cells = Vec::new();
        for value in 0..500 {
            cells.push(Cell::new_in(ct, Cell::init(value)).await?.write(ct).await?);
        }
        let cost = round_trips(ct, async || {
            for cell in cells {
                let g = &ct.pin();
                drop(Cell::new_in(g, Cell::init(0)).await?);
                g.sched_reclaim(cell.shared(g)).await?;
            }
            Ok(())
        });
        assert_eq!(cost.await?, 0, "allocation, free, pin, unpin and retirement");
        Ok(())
    });
}
