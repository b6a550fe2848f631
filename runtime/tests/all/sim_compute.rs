//! The model of computing: the virtual time of a thread's own work.

#![allow(clippy::unchecked_time_subtraction)] // a fabric's clock does not go backwards
#![allow(clippy::cast_precision_loss)] // far below 2^52

use std::time::Duration;

use farfield::prelude::*;
use farfield::sim::Work;
use farfield::{Cached, RemotePtr};

/// A network without jitter, and the costs of computing.
const NETWORK: &str = "sim:rtt=2us,bandwidth=inf,rate=inf,jitter=0%,doorbell=0ns,leaks=ignore";
const COSTS: &str = "compute=posted:100ns+completed:30ns+cached:7ns+served:50ns";

#[remote]
struct Counter {
    number: u64,
    value: Atomic<u64>,
}

async fn counter(ct: &ComputeThread) -> Result<RemotePtr<Counter>> {
    Counter::new_in(ct, Counter::init(7)).await?.write(ct).await
}

/// Returns the virtual time that `body` takes on one thread, in nanoseconds.
fn took(compute: &str, body: impl AsyncFn(&ComputeThread, RemotePtr<Counter>) -> Result<()> + Sync) -> u128 {
    let cluster = Cluster::connect(&format!("{NETWORK},{compute}")).unwrap();
    let took = cluster.run(1, async |ct| {
        let counter = counter(ct).await?;
        let began = ct.now();
        body(ct, counter).await?;
        Ok((ct.now() - began).as_nanos())
    });
    took.unwrap()[0]
}

#[test]
fn an_operation_costs_its_posting_its_round_trip_and_its_completion() {
    let ten = async |ct: &ComputeThread, counter: RemotePtr<Counter>| {
        for _ in 0..10 {
            counter.value().load(ct).await?;
        }
        Ok(())
    };
    assert_eq!(took(COSTS, ten), 10 * (100 + 2000 + 30));
    assert_eq!(took("compute=0", ten), 10 * 2000);
    assert_eq!(took("compute=posted:100ns+completed:0ns", ten), 10 * (100 + 2000));
}

#[test]
fn each_operation_of_a_chain_costs() {
    let chain = async |ct: &ComputeThread, counter: RemotePtr<Counter>| {
        let g = &ct.pin();
        let value = counter.value();
        let chain = g.chain((op::store(value, 1), op::fetch_add(value, 2), op::load(value)));
        assert_eq!(chain.submit().await?, ((), 1, 3));
        Ok(())
    };
    assert_eq!(took(COSTS, chain), 3 * 100 + 2000 + 3 * 30);
}

/// Two tasks share a thread: the second posts when the first has posted, and handles its completion when the first has handled its own.
#[test]
fn the_work_of_two_tasks_of_a_thread_is_serialised() {
    let two = async |ct: &ComputeThread, counter: RemotePtr<Counter>| {
        let began = ct.now();
        let ended = ct.tasks(2, async |_| {
            counter.value().load(ct).await?;
            Ok((ct.now() - began).as_nanos())
        });
        assert_eq!(
            ended.await?,
            [2130, 2230],
            "the second arrives 100 ns after the first, when that has been handled"
        );
        let began = ct.now();
        let ended = ct.tasks(2, async |task| {
            counter.value().load(ct).await?;
            if task == 0 {
                ct.compute(Duration::from_nanos(500));
            }
            Ok((ct.now() - began).as_nanos())
        });
        assert_eq!(ended.await?, [2630, 2660], "it waits until the first has computed");
        Ok(())
    };
    took(COSTS, two);
}

#[test]
fn two_threads_compute_at_the_same_time() {
    let cluster = Cluster::connect(&format!("{NETWORK},{COSTS}")).unwrap();
    let took = cluster.run(2, async |ct| {
        let counter = counter(ct).await?;
        ct.barrier("begin").await?;
        let began = ct.now();
        for _ in 0..5 {
            counter.value().fetch_add(ct, 1).await?;
            ct.compute(Duration::from_nanos(70));
        }
        Ok((ct.now() - began).as_nanos())
    });
    assert_eq!(took.unwrap(), [5 * 2200, 5 * 2200]);
}

#[test]
fn a_hit_of_a_cache_costs_and_a_miss_costs_a_round_trip() {
    let cached = async |ct: &ComputeThread, counter: RemotePtr<Counter>| {
        let cache = Cached::<Counter, 4>::default();
        let (mut began, mut took) = (ct.now(), Vec::new());
        for _ in 0..3 {
            assert_eq!(cache.get(counter, ct).await?.number(), 7);
            took.push((ct.now() - began).as_nanos());
            began = ct.now();
        }
        assert_eq!(took, [2130, 7, 7]);
        Ok(())
    };
    took(COSTS, cached);
}

#[test]
fn a_program_declares_its_other_work() {
    let works = async |ct: &ComputeThread, _: RemotePtr<Counter>| {
        ct.compute(Work::RequestServed);
        ct.compute(Work::CachedAccess);
        ct.compute(Work::Time(Duration::from_micros(3)));
        Ok(())
    };
    assert_eq!(took(COSTS, works), 50 + 7 + 3000);
    assert_eq!(took("compute=0", works), 0, "exact counts stay exact");
    // Work after the last operation is part of the run.
    let cluster = Cluster::connect(NETWORK).unwrap();
    cluster
        .run(1, async |ct| {
            ct.compute(Duration::from_millis(5));
            Ok(())
        })
        .unwrap();
    assert_eq!(cluster.simulation().unwrap().now(), Duration::from_millis(5));
}

/// Operations per microsecond by one thread with `tasks` tasks.
fn speed(tasks: usize, compute: &str) -> f64 {
    const OPERATIONS: usize = 320;
    let took = took(compute, async |ct, counter| {
        let work = async |_| {
            for _ in 0..OPERATIONS / tasks {
                counter.value().load(ct).await?;
            }
            Ok(())
        };
        ct.tasks(tasks, work).await.map(drop)
    });
    OPERATIONS as f64 * 1000.0 / took as f64
}

/// A thread needs 130 ns for an operation, so 16 tasks keep it busy and more tasks do not help. Where computing is free, they always help.
#[test]
fn tasks_speed_a_thread_up_until_it_computes_all_the_time() {
    let speed_up = |tasks, compute| speed(tasks, compute) / speed(1, compute);
    assert!((3.98..=4.0).contains(&speed_up(4, COSTS)), "{}", speed_up(4, COSTS));
    let limit = 2130.0 / 130.0;
    for tasks in [32, 64, 160] {
        let speed_up = speed_up(tasks, COSTS);
        assert!((0.97 * limit..=limit).contains(&speed_up), "{tasks} tasks: {speed_up}");
    }
    assert!((speed_up(160, "compute=0") - 160.0).abs() < 0.01, "{}", speed_up(160, "compute=0"));
}

#[test]
fn a_seed_determines_the_run_also_with_computing() {
    let run = |seed: u64| {
        let cluster = Cluster::connect(&format!("sim:seed={seed},stall=3%,leaks=ignore")).unwrap();
        cluster
            .run(3, async |ct| {
                let root = ct.root_or_init("counter", async || counter(ct).await).await?;
                let add = async |_| {
                    for _ in 0..20 {
                        root.value().fetch_add(ct, 1).await?;
                        let nanoseconds = ct.random_range(0..300);
                        ct.compute(Duration::from_nanos(nanoseconds));
                    }
                    Ok(())
                };
                ct.tasks(4, add).await.map(drop)
            })
            .unwrap();
        let simulation = cluster.simulation().unwrap();
        (simulation.trace_hash(), simulation.now())
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}
