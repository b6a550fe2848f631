//! Faults: their effect on the threads and nodes that they hit, and on others.

#![allow(clippy::unchecked_time_subtraction)] // a fabric's clock does not go backwards

use std::time::Duration;

use farfield::error::Error;
use farfield::prelude::*;
use farfield::sim::{Fault, Finding, Simulation};

const EXACT: &str = "sim:rtt=2us,bandwidth=inf,rate=inf,jitter=0%,doorbell=0ns,compute=0,nodes=2";

#[remote]
struct Cell {
    value: Atomic<u64>,
    lock: Lock,
}

async fn cell(ct: &ComputeThread, name: &str, node: u16) -> Result<RemotePtr<Cell>> {
    ct.root_or_init(name, async || Cell::new_in(ct.on_node(node), Cell::init()).await?.write(ct).await).await
}

fn simulation(url: &str) -> (Cluster, Simulation) {
    let cluster = Cluster::connect(url).unwrap();
    let simulation = cluster.simulation().unwrap();
    (cluster, simulation)
}

fn unreachable_node<T: std::fmt::Debug>(result: Result<T>) -> u16 {
    match result {
        Err(Error::NodeUnreachable(unreachable)) => unreachable.node,
        other => panic!("{other:?}"),
    }
}

/// Posts a WRITE on a link that is cut, and waits until its failure is found. If memory is swept, a keeper answers sweeps in the meantime.
async fn lose_a_write(ct: &ComputeThread) -> Result<()> {
    let root = cell(ct, "cell", 0).await?;
    let simulation = ct.cluster().simulation().expect("it is simulated");
    simulation.inject(Fault::cut(ct.index(), 0, Duration::from_micros(100)));
    ct.pin().chain(op::store(root.value(), 7)).post()?;
    ct.sleep(Duration::from_micros(400)).await;
    Ok(())
}

#[test]
fn the_failure_of_a_posted_write_is_the_programs_and_not_its_keepers() {
    for url in [format!("{EXACT},sweep=yes"), EXACT.to_owned()] {
        let (cluster, _) = simulation(&url);
        let found = cluster.run(2, async |ct| {
            lose_a_write(ct).await?;
            let elsewhere = ct.heap_use().await;
            ct.flush().await?;
            Ok(unreachable_node(elsewhere))
        });
        assert_eq!(found.unwrap(), [0, 0], "{url}");
        // A program that ends without another operation.
        assert_eq!(unreachable_node(cluster.run(1, async |ct| lose_a_write(ct).await)), 0, "{url}");
    }
}

// ---- compute nodes ---------------------------------------------------------------------------------------------

#[test]
fn a_thread_dies_at_the_operation_that_the_script_names() {
    for chains in 0..12 {
        let (cluster, simulation) = simulation(EXACT);
        simulation.inject(Fault::crash(1).after_chains(chains));
        let returned = cluster.run_surviving(3, async |ct| {
            let root = cell(ct, "cell", 0).await?;
            for _ in 0..10 {
                root.value().fetch_add(ct, 1).await?;
            }
            Ok(ct.metrics().chains)
        });
        let returned = returned.unwrap();
        assert!(returned[0].is_some() && returned[1].is_none() && returned[2].is_some());
        let trace = simulation.trace(1024);
        let died =
            trace.lines().position(|line| line.contains("compute node dies")).expect("it is in the trace");
        let after = trace.lines().skip(died).filter(|line| line.contains("  1.0  ")).count();
        assert_eq!(after, 1, "only its own death:\n{trace}");
    }
}

#[test]
fn a_run_that_needs_all_threads_names_the_dead_one() {
    let (cluster, simulation) = simulation("sim:");
    simulation.inject(Fault::crash(1));
    match cluster.run(2, async |ct| ct.barrier("all").await) {
        Err(Error::ComputeNodeDied(died)) => assert_eq!(died.thread, 1),
        other => panic!("{other:?}"),
    }
    // The fault is over, and the next run has new threads.
    cluster.run(2, async |ct| ct.barrier("all").await).unwrap();
}

#[test]
fn a_barrier_does_not_wait_for_dead_threads() {
    let (cluster, simulation) = simulation("sim:");
    simulation.inject(Fault::crash(0).at(Duration::from_micros(3)));
    match cluster.run_surviving(2, async |ct| ct.barrier("all").await) {
        Err(Error::BarrierBroken(broken)) => assert_eq!(broken.threads, 2),
        other => panic!("{other:?}"),
    }
}

/// The lock of a dead thread passes to the waiting threads. Each one's guard needs recovery until one calls `recovered`.
#[test]
fn the_lock_of_a_dead_thread_is_taken_over() {
    for seed in 0..50 {
        let (cluster, simulation) = simulation(&format!("sim:seed={seed}"));
        let told = cluster.run_surviving(4, async |ct| {
            let root = cell(ct, "cell", 0).await?;
            if ct.index() == 2 {
                let held = root.lock().acquire(ct).await?;
                assert!(!held.needs_recovery());
                root.value().store(ct, 1).await?;
                ct.cluster().simulation().expect("simulated").inject(Fault::crash(2));
                root.value().load(ct).await?;
                unreachable!("it is dead");
            }
            while root.value().load(ct).await? == 0 {
                ct.backoff().wait().await;
            }
            let mut lock = root.lock().acquire(ct).await?;
            let owner = root.lock().state(ct).await?;
            assert_eq!(owner.owner(), Some(ct.id()));
            let told = lock.needs_recovery();
            if told && root.value().fetch_add(ct, 1).await? == 2 {
                // The second owner recovers the data.
                lock.recovered();
                drop(lock);
            } else {
                lock.release().await?;
            }
            Ok(told)
        });
        let told = told.unwrap();
        assert_eq!(told.iter().flatten().filter(|told| **told).count(), 2, "seed {seed}");
        assert!(simulation.trace(1000).contains("compute node dies"));
    }
}

/// Also if it is one of several locks that are taken together.
#[test]
fn several_locks_are_taken_together_though_a_dead_thread_holds_one() {
    let (cluster, _) = simulation("sim:");
    let ended = cluster.run_surviving(3, async |ct| {
        let cells = [cell(ct, "one", 0).await?, cell(ct, "other", 0).await?];
        if ct.index() == 2 {
            let _held = cells[1].lock().acquire(ct).await?;
            cells[0].value().store(ct, 1).await?;
            ct.cluster().simulation().expect("simulated").inject(Fault::crash(2));
            cells[0].value().load(ct).await?;
            unreachable!("it is dead");
        }
        while cells[0].value().load(ct).await? == 0 {
            ct.backoff().wait().await;
        }
        let g = &ct.pin();
        let both = cells.map(|cell| (cell.lock(), cell.shared(g)));
        let [(one, _), (other, _)] = g.lock_and_read(both).await?;
        assert!(!one.needs_recovery() && other.needs_recovery());
        g.chain((op::release(other), op::release(one))).submit().await?;
        let state = cells[1].lock().state(ct).await?;
        assert!(state.is_abandoned() || state.is_held());
        Ok(())
    });
    assert_eq!(ended.unwrap().iter().flatten().count(), 2);
}

/// The thread dies at any point between the claim and the root: another one creates the root, and all find the same.
#[test]
fn a_name_claimed_by_a_dead_thread_passes_to_the_next_claimant() {
    let mut made_before_the_death = 0;
    for time in 0..120 {
        let (cluster, simulation) = simulation(&format!("sim:seed={time},jitter=50%,leaks=ignore"));
        // Thread 1 comes first.
        simulation.inject(Fault::crash(1).at(Duration::from_nanos(1000 + 250 * time)));
        let ended = cluster.run_surviving(3, async |ct| {
            if ct.index() != 1 {
                ct.sleep(Duration::from_micros(10)).await;
            }
            let make = async || {
                let maker = Cell::init().value(ct.index() as u64);
                Cell::new_in(ct, maker).await?.write(ct).await
            };
            let root = ct.root_or_init("root", make).await?;
            let maker = root.value().load(ct).await?;
            Ok((root.address(), maker))
        });
        let ended: Vec<_> =
            ended.unwrap_or_else(|error| panic!("{time}: {error}")).into_iter().flatten().collect();
        assert!(ended.len() == 2 && ended[0] == ended[1], "{time}: {ended:?}");
        made_before_the_death += u32::from(ended[0].1 == 1);
    }
    assert!(
        (10..110).contains(&made_before_the_death),
        "threads died before and after they created the root: {made_before_the_death} of 120"
    );
}

#[test]
fn a_wait_for_a_lock_that_is_never_released_is_reported() {
    let (cluster, simulation) = simulation("sim:");
    let run = cluster.run_surviving(3, async |ct| {
        let root = cell(ct, "cell", 0).await?;
        if ct.index() == 2 {
            std::mem::forget(root.lock().acquire(ct).await?);
            root.value().store(ct, 1).await?;
            while root.value().load(ct).await? == 1 {
                ct.backoff().wait().await;
            }
        }
        while root.value().load(ct).await? == 0 {
            ct.backoff().wait().await;
        }
        Ok(root.lock().acquire(ct).await?.release().await?)
    });
    let Err(Error::Simulation(found)) = run else { panic!("{run:?}") };
    assert_eq!(found.finding, Finding::Livelock);
    let report = found.to_string();
    assert!(report.contains("Cell.lock free -> held by thread 0 failed: it is held by thread 2"), "{report}");
    let trace = simulation.trace(1000);
    let lines = trace.lines().count();
    assert!(lines < 60, "repetitions are omitted: {lines}");
}

#[test]
fn a_pinned_thread_that_dies_is_evicted_and_reclamation_continues() {
    let (cluster, _) = simulation("sim:size=1MiB");
    let freed = cluster.run_surviving(2, async |ct| {
        let root = cell(ct, "cell", 0).await?;
        if ct.index() == 1 {
            let g = ct.pin();
            ct.cluster().simulation().expect("simulated").inject(Fault::crash(1));
            root.value().load(&g).await?;
        }
        while ct.now() < Duration::from_micros(100) {
            ct.sleep(Duration::from_micros(10)).await;
        }
        for _ in 0..500 {
            let g = &ct.pin();
            let object = Cell::new_in(g, Cell::init()).await?.write(g).await?;
            g.sched_reclaim(object.shared(g)).await?;
        }
        Ok(ct.metrics().freed)
    });
    let [Some(freed), None] = freed.unwrap()[..] else { panic!("thread 1 has died") };
    assert!(freed >= 490, "all objects but the last few: {freed}");
    let metrics = cluster.metrics();
    assert_eq!(metrics.reclaimed, 500, "the others at the end of the run");
}

#[test]
fn a_stalled_thread_comes_back() {
    let (cluster, simulation) = simulation(EXACT);
    let run = cluster.run(2, async |ct| {
        let root = cell(ct, "cell", 0).await?;
        let before = ct.now();
        if ct.index() == 0 {
            ct.cluster().simulation().expect("simulated").inject(Fault::stall(0, Duration::from_micros(50)));
        }
        root.value().fetch_add(ct, 1).await?;
        Ok((ct.now() - before).as_micros())
    });
    assert_eq!(run.unwrap(), [50, 2]);
    assert!(simulation.trace(100).contains("compute node stalls until"));
}

#[test]
fn threads_of_one_compute_node_die_together() {
    let (cluster, simulation) = simulation("sim:threads-per-node=2");
    simulation.inject(Fault::crash(1));
    let returned = cluster.run_surviving(6, async |ct| Ok(ct.index())).unwrap();
    assert_eq!(returned, [Some(0), Some(1), None, None, Some(4), Some(5)]);
}

// ---- memory nodes and links ------------------------------------------------------------------------------------

#[test]
fn a_dead_memory_node_is_unreachable_within_the_timeout() {
    let (cluster, _) = simulation("sim:nodes=2,timeout=30us,leaks=ignore");
    let run = cluster.run(1, async |ct| {
        let (here, there) = (cell(ct, "here", 0).await?, cell(ct, "there", 1).await?);
        ct.cluster().simulation().expect("simulated").inject(Fault::memory_crash(1));
        let before = ct.now();
        assert_eq!(unreachable_node(there.value().load(ct).await), 1);
        assert_eq!((ct.now() - before).as_micros(), 30);
        here.value().load(ct).await
    });
    assert_eq!(run.unwrap(), [0], "the other memory node is reachable");
}

#[test]
fn a_cut_link_delays_or_fails_what_crosses_it() {
    let (cluster, _) = simulation(&format!("{EXACT},timeout=100us"));
    let run = cluster.run(1, async |ct| {
        let simulation = ct.cluster().simulation().expect("simulated");
        let root = cell(ct, "cell", 1).await?;
        let add = async || root.value().fetch_add(ct, 1).await;
        simulation.inject(Fault::cut(0, 1, Duration::from_micros(40)));
        let before = ct.now();
        add().await?;
        assert!((40..45).contains(&(ct.now() - before).as_micros()), "it heals in time");
        simulation.inject(Fault::cut(0, 1, Duration::from_micros(200)));
        let before = ct.now();
        assert_eq!(unreachable_node(add().await), 1);
        assert_eq!((ct.now() - before).as_micros(), 100);
        ct.sleep(Duration::from_micros(150)).await;
        // The link is cut after the operation has been executed, and before its answer arrives.
        simulation
            .inject(Fault::cut(0, 1, Duration::from_micros(200)).at(ct.now() + Duration::from_micros(1)));
        assert_eq!(unreachable_node(add().await), 1);
        ct.sleep(Duration::from_micros(150)).await;
        root.value().load(ct).await
    });
    assert_eq!(run.unwrap(), [2], "the first and the last took effect");
}

#[test]
fn a_slow_memory_node_is_slow() {
    let (cluster, simulation) = simulation(EXACT);
    simulation.inject(Fault::slow(1, 10));
    let run = cluster.run(1, async |ct| {
        let mut took = Vec::new();
        for (name, node) in [("here", 0), ("there", 1)] {
            let root = cell(ct, name, node).await?;
            let before = ct.now();
            root.value().load(ct).await?;
            took.push((ct.now() - before).as_nanos());
        }
        Ok(took)
    });
    assert_eq!(
        run.unwrap(),
        [vec![2000, 2000 + 9 * 400]],
        "its share of the round trip takes ten times as long"
    );
}

// ---- faults by chance ------------------------------------------------------------------------------------------

/// Every kind of fault, often: each run ends, with results or known errors. A lock that could not be released is released once its
/// memory node can be reached, and the lock of a dead thread is taken over.
#[test]
fn faults_by_chance_end_in_results_and_known_errors() {
    let mut dead = 0;
    let mut unreachable = 0;
    for seed in 0..300 {
        let url =
            format!("sim:seed={seed},nodes=2,crash=1%,stall=1%,cut=1%,memory-crash=0.1%,slow=10%,limit=1s");
        let (cluster, simulation) = simulation(&url);
        let run = cluster.run_surviving(4, async |ct| {
            let roots = [cell(ct, "here", 0).await?, cell(ct, "there", 1).await?];
            for round in 0..10 {
                let root = roots[round % 2];
                let lock = root.lock().acquire(ct).await?;
                root.value().fetch_add(ct, 1).await?;
                lock.release().await?;
            }
            Ok(())
        });
        match run {
            Ok(returned) => dead += returned.iter().filter(|returned| returned.is_none()).count(),
            Err(Error::NodeUnreachable(_)) => unreachable += 1,
            Err(error) => panic!("seed {seed}: {error}\n{}", simulation.trace(40)),
        }
    }
    assert!(dead > 200 && unreachable > 150, "{dead} threads died, {unreachable} runs lost a node");
}
