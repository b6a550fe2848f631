//! Budgets of round trips: the cost of each operation without contention on one memory node, counted by the simulator.
//!
//! `h` is the number of nodes that a search visits, sentinels included. Without jitter, and with no limits to bandwidth and
//! rate, an operation's virtual duration is its number of round trips, one after the other. With `--nocapture` each test prints
//! its measurements as `rtts.<structure>.<operation>.excess`: the round trips less `h`.

use farfield::prelude::*;
use farfield_examples::{HarrisList, IntSet, LazyList, MsQueue, TreiberStack};

const EXACT: &str = "sim:jitter=0%,bandwidth=inf,rate=inf,doorbell=0ns,compute=0,leaks=ignore";

/// The number of keys in a set: 0, 2, 4, …
const KEYS: u64 = 10;

fn exactly(body: impl AsyncFn(&ComputeThread) -> Result<()> + Sync) {
    Cluster::connect(EXACT).unwrap().run(1, body).map(drop).unwrap();
}

/// The number of round trips of `work`.
async fn round_trips<T>(ct: &ComputeThread, work: impl AsyncFnOnce() -> Result<T>) -> Result<u64> {
    // Operations posted earlier without waiting must not count.
    ct.flush().await?;
    let began = ct.now();
    work().await?;
    let took = ct.now().saturating_sub(began).as_nanos();
    let rtt = ct.cluster().simulation().expect("it is simulated").rtt().as_nanos();
    assert!(took.is_multiple_of(rtt), "{took} ns are not a whole number of round trips");
    Ok((took / rtt) as u64)
}

/// The number of nodes that a search for key `2 * position` or the key before it visits: the head, `position` keys, and the node
/// that is found or passed.
fn visited(position: u64) -> u64 {
    position + 2
}

/// The most round trips of an operation beyond the number of nodes it visited.
struct Excess {
    name: String,
    most: u64,
    budget: u64,
}

impl Excess {
    fn new(structure: &str, operation: &str, budget: u64) -> Self {
        Self { name: format!("rtts.{structure}.{operation}.excess"), most: 0, budget }
    }

    /// Records an operation that took `trips` round trips for `h` nodes.
    fn took(&mut self, trips: u64, h: u64) {
        assert!(trips >= h, "{}: {trips} round trips for {h} nodes", self.name);
        self.most = self.most.max(trips - h);
    }
}

impl Drop for Excess {
    /// Prints the excess and compares it with the budget.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            println!("{} {}", self.name, self.most);
            assert_eq!(self.most, self.budget, "{}", self.name);
        }
    }
}

/// Tests the excess of `[get, insert, remove]` for every position of the key.
fn set_costs<S: IntSet>(structure: &str, budget: [u64; 3]) {
    exactly(async |ct| {
        let set = S::attach(S::create(ct).await?, ct).await?;
        for key in 0..KEYS {
            assert!(set.insert(2 * key, ct).await?);
        }
        let operations = ["get", "insert", "remove"];
        let mut excess = [0, 1, 2].map(|index| Excess::new(structure, operations[index], budget[index]));
        for position in 0..KEYS {
            // A search for an absent key reads its successor too.
            let (there, absent, h) = (2 * position, 2 * position + 1, visited(position));
            excess[0].took(round_trips(ct, async || set.get(there, ct).await).await?, h);
            excess[0].took(round_trips(ct, async || set.get(absent, ct).await).await?, h + 1);
            excess[1].took(round_trips(ct, async || set.insert(absent, ct).await).await?, h + 1);
            let refused = round_trips(ct, async || set.insert(there, ct).await).await?;
            assert_eq!(refused, h, "insert of a present key");
            excess[2].took(round_trips(ct, async || set.remove(absent, ct).await).await?, h + 1);
            let gone = round_trips(ct, async || set.remove(absent, ct).await).await?;
            assert_eq!(gone, h + 1, "remove of an absent key");
        }
        Ok(())
    });
}

#[test]
fn a_lazy_list_takes_h_and_h_plus_2() {
    set_costs::<LazyList<u64>>("lazy-list", [0, 2, 2]);
}

#[test]
fn a_harris_list_takes_h_and_h_plus_1_and_h_plus_2() {
    set_costs::<HarrisList<u64>>("harris-list", [0, 1, 2]);
}

#[test]
fn a_stack_takes_1_and_2() {
    exactly(async |ct| {
        let stack = TreiberStack::attach(TreiberStack::<u64>::create(ct).await?, ct).await?;
        let mut push = Excess::new("treiber-stack", "push", 1);
        let mut pop = Excess::new("treiber-stack", "pop", 2);
        stack.push(0, ct).await?;
        for value in 1..5 {
            push.took(round_trips(ct, async || stack.push(value, ct).await).await?, 0);
        }
        for _ in 0..5 {
            pop.took(round_trips(ct, async || stack.pop(ct).await).await?, 0);
        }
        assert_eq!(round_trips(ct, async || stack.pop(ct).await).await?, 1, "pop of an empty stack");
        Ok(())
    });
}

#[test]
fn a_queue_takes_2_and_2() {
    exactly(async |ct| {
        let queue = MsQueue::attach(MsQueue::<u64>::create(ct).await?, ct).await?;
        let mut enqueue = Excess::new("ms-queue", "enqueue", 2);
        let mut dequeue = Excess::new("ms-queue", "dequeue", 2);
        queue.enqueue(0, ct).await?;
        for value in 1..5 {
            enqueue.took(round_trips(ct, async || queue.enqueue(value, ct).await).await?, 0);
        }
        queue.dequeue(ct).await?;
        for _ in 1..5 {
            dequeue.took(round_trips(ct, async || queue.dequeue(ct).await).await?, 0);
        }
        assert_eq!(round_trips(ct, async || queue.dequeue(ct).await).await?, 1, "dequeue of an empty queue");
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
