//! Overlap in virtual time: chains that are awaited together, and operations of several tasks.

use farfield::prelude::*;
use farfield_examples::{HarrisList, IntSet, LazyList};
use futures_util::StreamExt;
use futures_util::future::{try_join, try_join_all};
use futures_util::stream::FuturesUnordered;

const EXACT: &str = "sim:nodes=2,jitter=0%,bandwidth=inf,rate=inf,doorbell=0ns,compute=0,leaks=ignore";

#[remote]
struct Cell {
    value: Atomic<u64>,
}

/// A cell on each of the two memory nodes.
async fn two_cells(ct: &ComputeThread) -> Result<[RemotePtr<Cell>; 2]> {
    let first = Cell::new_in(ct.on_node(0), Cell::init().value(1)).await?.write(ct).await?;
    let second = Cell::new_in(ct.on_node(1), Cell::init().value(2)).await?.write(ct).await?;
    Ok([first, second])
}

/// The number of round trips of `work`, on one thread.
fn round_trips(
    url: &str,
    work: impl AsyncFn(&ComputeThread, [RemotePtr<Cell>; 2]) -> Result<()> + Sync,
) -> u128 {
    let took = Cluster::connect(url).unwrap().run(1, async |ct| {
        let cells = two_cells(ct).await?;
        let began = ct.now();
        work(ct, cells).await?;
        let took = ct.now().saturating_sub(began).as_nanos();
        let rtt = ct.cluster().simulation().expect("it is simulated").rtt().as_nanos();
        assert!(took.is_multiple_of(rtt), "{took} ns are not a whole number of round trips");
        Ok(took / rtt)
    });
    took.unwrap()[0]
}

#[test]
fn a_chain_over_two_nodes_waits_between_them() {
    let took = round_trips(EXACT, async |ct, [first, second]| {
        let g = &ct.pin();
        let both = g.chain((op::load(first.value()), op::load(second.value()))).submit().await?;
        assert_eq!(both, (1, 2));
        Ok(())
    });
    assert_eq!(took, 2);
}

#[test]
fn two_chains_awaited_together_overlap() {
    let took = round_trips(EXACT, async |ct, [first, second]| {
        let g = &ct.pin();
        let (one, two) = (g.chain(op::load(first.value())), g.chain(op::load(second.value())));
        assert_eq!(try_join(one.submit(), two.submit()).await?, (1, 2));
        Ok(())
    });
    assert_eq!(took, 1);
}

#[test]
fn combinators_that_poll_only_woken_futures_work() {
    for url in [EXACT, "local:nodes=2", "local:nodes=2,delay=4"] {
        let run = Cluster::connect(url).unwrap().run(1, async |ct| {
            let [first, second] = two_cells(ct).await?;
            // With more than 30 futures `try_join_all` polls only those that were woken.
            let sums = try_join_all((0..64).map(|_| first.value().fetch_add(ct, 1))).await?;
            assert_eq!(sums.len(), 64);
            let mut unordered: FuturesUnordered<_> =
                (0..64).map(|_| async { second.value().fetch_add(ct, 1).await }).collect();
            while let Some(old) = unordered.next().await {
                old?;
            }
            ct.yield_now().await;
            let g = &ct.pin();
            assert_eq!((first.value().load(g).await?, second.value().load(g).await?), (65, 66));
            Ok(())
        });
        run.unwrap();
    }
}

#[test]
fn chains_ready_at_one_time_share_a_doorbell() {
    const TASKS: u64 = 16;
    const TURNS: u64 = 10;
    let counted = |jitter: &str| {
        let url = format!("sim:nodes=2,jitter={jitter},leaks=ignore");
        let metrics = Cluster::connect(&url).unwrap().run(1, async |ct| {
            let cells = two_cells(ct).await?;
            let before = ct.metrics();
            let turns = async |task: usize| {
                for _ in 0..TURNS {
                    cells[task % 2].value().fetch_add(ct, 1).await?;
                }
                Ok(())
            };
            ct.tasks(TASKS as usize, turns).await?;
            Ok(ct.metrics() - before)
        });
        let metrics = metrics.unwrap().remove(0);
        assert_eq!(metrics.chains, TASKS * TURNS);
        metrics.doorbells
    };
    // At least one for each memory node and turn. The queue at a memory node's NIC soon takes the tasks out of step.
    let together = counted("0%");
    assert!((2 * TURNS..TASKS * TURNS).contains(&together), "{together} doorbells");
    let exact = Cluster::connect(EXACT).unwrap().run(1, async |ct| {
        let cells = two_cells(ct).await?;
        let before = ct.metrics();
        ct.tasks(TASKS as usize, async |task: usize| {
            for _ in 0..TURNS {
                cells[task % 2].value().fetch_add(ct, 1).await?;
            }
            Ok(())
        })
        .await?;
        Ok((ct.metrics() - before).doorbells)
    });
    assert_eq!(exact.unwrap(), [2 * TURNS]);
}

/// The virtual microseconds of the operations of `tasks` tasks of one thread, on a list of about 128 of 256 keys.
fn microseconds<S: IntSet>(tasks: u64) -> f64 {
    const OPERATIONS: u64 = 9600;
    let took = Cluster::connect("sim:rtt=2us,leaks=ignore").unwrap().run(1, async |ct| {
        let set = S::attach(S::create(ct).await?, ct).await?;
        for key in (0..256).step_by(2) {
            set.insert(key, ct).await?;
        }
        let began = ct.now();
        ct.tasks(tasks as usize, async |task: usize| {
            for turn in 0..OPERATIONS / tasks {
                let draw = (turn * tasks + task as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let key = draw >> 56;
                match draw % 10 {
                    0 => set.insert(key, ct).await?,
                    1 => set.remove(key, ct).await?,
                    _ => set.get(key, ct).await?,
                };
            }
            Ok(())
        })
        .await?;
        Ok(ct.now().saturating_sub(began).as_secs_f64() * 1e6)
    });
    took.unwrap()[0]
}

fn sixteen_tasks_do_fifteen_times_as_much<S: IntSet>(structure: &str) {
    let speedup = microseconds::<S>(1) / microseconds::<S>(16);
    println!("pipelining.{structure}.speedup {speedup:.2}");
    assert!(speedup >= 15.0, "16 tasks do {speedup:.2} times as much as 1");
}

#[test]
fn a_lazy_list_is_pipelined() {
    sixteen_tasks_do_fifteen_times_as_much::<LazyList<u64>>("lazy-list");
}

#[test]
fn a_harris_list_is_pipelined() {
    sixteen_tasks_do_fifteen_times_as_much::<HarrisList<u64>>("harris-list");
}
