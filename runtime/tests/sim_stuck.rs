//! Runs without progress: the simulator's findings, their times and their reports; and runs with progress, which it must not end.

#![allow(clippy::unchecked_time_subtraction)] // a fabric's clock does not go backwards

use std::time::Duration;

use farfield::RemotePtr;
use farfield::error::Error;
use farfield::prelude::*;
use farfield::sim::{Fault, Finding, Simulation};
use futures_util::future::try_join;
use futures_util::stream::{FuturesUnordered, StreamExt};

/// A network on which a round trip takes 2 us and everything else no time.
const EXACT: &str = "sim:rtt=2us,bandwidth=inf,rate=inf,jitter=0%,doorbell=0ns,limit=1s,leaks=ignore";

#[remote]
struct Table {
    locks: [Lock; 8],
    words: [Atomic<u64>; 8],
    top: Link<Node>,
}

#[remote]
struct Node {
    value: u64,
    next: Link<Node>,
}

async fn table(ct: &ComputeThread) -> Result<RemotePtr<Table>> {
    ct.root_or_init("table", async || Table::new_in(ct, Table::init()).await?.write(ct).await).await
}

/// Returns the finding of a run on `url`, its time, its report, and the simulation.
#[track_caller]
fn found(
    url: &str,
    threads: usize,
    body: impl AsyncFn(&ComputeThread) -> Result<()> + Sync,
) -> (Finding, Duration, String, Simulation) {
    let cluster = Cluster::connect(url).unwrap();
    let simulation = cluster.simulation().unwrap();
    match cluster.run(threads, body) {
        Err(Error::Simulation(found)) => {
            let report = found.to_string();
            assert_eq!(report.lines().count(), 1, "{report}");
            (found.finding, found.at, report, simulation)
        }
        other => panic!("{url}: {other:?}"),
    }
}

// ---- livelocks -------------------------------------------------------------------------------------------------

/// Thread 0 and thread 1 take their own lock, try the other's, release both and start over.
async fn lock_politely(ct: &ComputeThread, root: RemotePtr<Table>) -> Result<bool> {
    let (mine, other) = (ct.index() % 2, 1 - ct.index() % 2);
    let first = root.locks().at(mine).acquire(ct).await?;
    let second = root.locks().at(other).try_acquire(ct).await?;
    // The condition is never met: no thread stores 1.
    let is_done = second.is_some() && root.words().at(mine).load(ct).await? == 1;
    if let Some(second) = second {
        second.release().await?;
    }
    first.release().await?;
    Ok(is_done)
}

/// Allocates a node and retires it: epochs advance, and blocks are reused.
async fn litter(ct: &ComputeThread) -> Result<()> {
    let g = &ct.pin();
    let node = Node::new_in(g, Node::init(7)).await?.write(g).await?;
    g.sched_reclaim(node.shared(g)).await?;
    Ok(())
}

#[test]
fn endless_locking_and_releasing_is_a_livelock() {
    for url in [EXACT, "sim:limit=1s,seed=3", "sim:limit=1s,seed=4,jitter=90%"] {
        let (finding, at, report, _) = found(url, 2, async |ct| {
            let root = table(ct).await?;
            let mut backoff = ct.backoff();
            while !lock_politely(ct, root).await? {
                backoff.wait().await;
            }
            Ok(())
        });
        assert_eq!(finding, Finding::Livelock, "{report}");
        assert!(at < Duration::from_millis(350), "{report}");
        assert!(report.contains("tried 1") || report.contains("tried 2"), "{report}");
    }
}

#[test]
fn endless_locking_without_a_backoff_is_a_livelock() {
    for url in [EXACT, "sim:limit=1s,seed=3,jitter=50%"] {
        let (finding, at, report, _) = found(url, 2, async |ct| {
            let root = table(ct).await?;
            while !lock_politely(ct, root).await? {}
            Ok(())
        });
        assert_eq!(finding, Finding::Livelock, "{report}");
        assert!(at < Duration::from_millis(500), "{report}");
    }
}

#[test]
fn advancing_epochs_and_reused_blocks_are_no_progress() {
    for (url, backs_off) in [("sim:limit=1s", true), ("sim:limit=1s", false), (EXACT, false)] {
        let (finding, at, report, simulation) = found(url, 2, async |ct| {
            let root = table(ct).await?;
            let mut backoff = ct.backoff();
            while !lock_politely(ct, root).await? {
                litter(ct).await?;
                if backs_off {
                    backoff.wait().await;
                }
            }
            Ok(())
        });
        assert_eq!(finding, Finding::Livelock, "{url} {backs_off} {report}");
        assert!(at < Duration::from_millis(450), "{report}");
        assert!(simulation.trace(1000).contains("epoch"), "{}", simulation.trace(1000));
    }
}

#[test]
fn a_bare_loop_that_waits_forever_is_a_livelock() {
    let (finding, at, report, _) = found("sim:limit=1s", 3, async |ct| {
        let root = table(ct).await?;
        while root.words().at(3).compare_exchange(ct, 1, 2).await?.is_err() {}
        Ok(())
    });
    assert_eq!(finding, Finding::Livelock, "{report}");
    assert!(at < Duration::from_millis(500), "{report}");
}

#[test]
fn a_new_backoff_for_each_wait_counts_as_backing_off() {
    let (finding, at, report, _) = found("sim:", 2, async |ct| {
        let root = table(ct).await?;
        while root.words().at(3).load(ct).await? == 0 {
            ct.backoff().wait().await;
        }
        Ok(())
    });
    assert_eq!(finding, Finding::Livelock, "{report}");
    assert!(at < Duration::from_millis(25), "{report}");
}

/// Two kinds of loop, and a thread that waits forever.
#[test]
fn threads_may_be_stuck_in_different_ways() {
    let (finding, _, report, _) = found("sim:limit=1s", 4, async |ct| {
        let root = table(ct).await?;
        match ct.index() {
            0 => while root.words().at(0).load(ct).await? == 0 {},
            1 => drop(ct.barrier("never").await),
            2 => {
                let mut backoff = ct.backoff();
                while !lock_politely(ct, root).await? {
                    backoff.wait().await;
                }
            }
            _ => std::future::pending::<()>().await,
        }
        Ok(())
    });
    assert_eq!(finding, Finding::Livelock, "{report}");
}

/// A thread makes no progress if each of its futures is in a loop.
#[test]
fn tasks_that_are_all_in_loops_are_stuck() {
    let (finding, _, report, _) = found("sim:limit=1s", 2, async |ct| {
        let root = table(ct).await?;
        ct.tasks(3, async |_| {
            let mut backoff = ct.backoff();
            while root.words().at(0).fetch_add(ct, 1).await? < u64::MAX / 2 {
                backoff.wait().await;
            }
            Ok(())
        })
        .await
        .map(drop)
    });
    assert_eq!(finding, Finding::Livelock, "{report}");
}

// ---- starvation ------------------------------------------------------------------------------------------------

#[test]
fn a_task_that_starves_among_busy_ones_is_named() {
    let (finding, at, report, _) = found("sim:limit=2s", 3, async |ct| {
        let root = table(ct).await?;
        let word = root.words().at(0);
        if ct.index() > 0 {
            loop {
                word.fetch_add(ct, 1).await?;
            }
        }
        let mut backoff = ct.backoff();
        loop {
            let seen = word.load(ct).await?;
            // The task is slow, so its exchange always fails.
            for _ in 0..5 {
                root.words().at(1).load(ct).await?;
            }
            if word.compare_exchange(ct, seen, seen + 1).await?.is_ok() {
                return Ok(());
            }
            backoff.wait().await;
        }
    });
    assert_eq!(finding, Finding::Starved, "{report}");
    assert!(at < Duration::from_millis(550), "{report}");
    assert!(report.contains("task 0 of thread 0 has failed"), "{report}");
}

// ---- runs with progress ----------------------------------------------------------------------------------------

fn honest(url: &str, threads: usize, body: impl AsyncFn(&ComputeThread) -> Result<()> + Sync) {
    let run = Cluster::connect(url).unwrap().run_surviving(threads, body);
    if let Err(error) = run {
        panic!("{url}: {error}");
    }
}

#[test]
fn a_long_operation_that_others_wait_for_is_not_reported() {
    for tasks in [1, 3] {
        honest("sim:leaks=ignore", 4, async |ct| {
            let root = table(ct).await?;
            ct.tasks(tasks, async |task| {
                let held = if ct.index() == 0 && task == 0 {
                    Some(root.locks().at(0).acquire(ct).await?)
                } else {
                    None
                };
                if held.is_some() {
                    for number in 0..40_000 {
                        root.words().at(number % 8).load(ct).await?;
                    }
                }
                drop(held);
                Ok(root.locks().at(0).acquire(ct).await?.release().await?)
            })
            .await
            .map(drop)
        });
    }
}

#[test]
fn a_wait_that_a_sleeping_thread_will_end_is_not_reported() {
    for joined in [false, true] {
        honest("sim:leaks=ignore", 3, async |ct| {
            let root = table(ct).await?;
            if ct.index() == 0 {
                let sleeps = async {
                    ct.sleep(Duration::from_millis(400)).await;
                    root.words().at(0).store(ct, 1).await
                };
                if joined {
                    // One future of the thread loops while the other sleeps.
                    let rounds = async {
                        while root.words().at(0).load(ct).await? == 0 {
                            ct.backoff().wait().await;
                        }
                        Ok(())
                    };
                    return try_join(sleeps, rounds).await.map(drop);
                }
                return sleeps.await;
            }
            let mut backoff = ct.backoff();
            while root.words().at(0).load(ct).await? == 0 {
                backoff.wait().await;
            }
            Ok(())
        });
    }
}

#[test]
fn a_wait_for_a_point_in_time_is_not_reported() {
    honest("sim:leaks=ignore", 2, async |ct| {
        let root = table(ct).await?;
        let mut backoff = ct.backoff();
        while ct.now() < Duration::from_secs(2) {
            root.words().at(0).load(ct).await?;
            backoff.wait().await;
        }
        Ok(())
    });
}

#[test]
fn waits_for_a_stalled_node_and_for_a_scheduled_fault_are_not_reported() {
    let cluster = Cluster::connect("sim:leaks=ignore").unwrap();
    let simulation = cluster.simulation().unwrap();
    simulation.inject(Fault::stall(0, Duration::from_millis(100)).at(Duration::from_millis(5)));
    simulation.inject(Fault::crash(1).at(Duration::from_millis(200)));
    let run = cluster.run_surviving(4, async |ct| {
        let root = table(ct).await?;
        let lock = root.locks().at(ct.index() % 2);
        if ct.index() < 2 {
            let held = lock.acquire(ct).await?;
            ct.sleep(Duration::from_millis(10)).await;
            if ct.index() == 1 {
                // The thread dies in an endless loop, while it holds its lock.
                let mut backoff = ct.backoff();
                while root.words().at(7).load(ct).await? == 0 {
                    backoff.wait().await;
                }
            }
            return Ok(held.release().await?);
        }
        ct.sleep(Duration::from_millis(1)).await;
        Ok(lock.acquire(ct).await?.release().await?)
    });
    let ran = run.unwrap();
    assert_eq!(ran.iter().flatten().count(), 3);
    assert!(simulation.now() > Duration::from_millis(200));
}

#[test]
fn waits_for_a_link_that_heals_are_not_reported() {
    let cluster = Cluster::connect("sim:leaks=ignore,timeout=10s").unwrap();
    let simulation = cluster.simulation().unwrap();
    simulation.inject(Fault::cut(0, 0, Duration::from_millis(200)).at(Duration::from_millis(5)));
    cluster
        .run(3, async |ct| {
            let root = table(ct).await?;
            if ct.index() == 0 {
                let held = root.locks().at(0).acquire(ct).await?;
                ct.sleep(Duration::from_millis(10)).await;
                return Ok(held.release().await?);
            }
            ct.sleep(Duration::from_millis(1)).await;
            Ok(root.locks().at(0).acquire(ct).await?.release().await?)
        })
        .unwrap();
    assert!(simulation.now() > Duration::from_millis(200));
}

/// Dozens of futures of each thread, polled by a foreign combinator, contend for a few locks.
#[test]
fn futures_of_one_task_that_contend_for_locks_make_progress() {
    for seed in 0..20 {
        honest(&format!("sim:seed={seed},leaks=ignore"), 3, async |ct| {
            let root = table(ct).await?;
            let mut futures: FuturesUnordered<_> = (0..40)
                .map(|number| async move {
                    for round in 0..5 {
                        let held = root.locks().at((number + round) % 3).acquire(ct).await?;
                        root.words().at(number % 3).fetch_add(ct, 1).await?;
                        held.release().await?;
                    }
                    Ok::<_, Error>(())
                })
                .collect();
            while let Some(done) = futures.next().await {
                done?;
            }
            Ok(())
        });
    }
}

#[test]
fn ten_thousand_threads_that_contend_for_one_lock_make_progress() {
    const THREADS: usize = 10_000;
    let cluster = Cluster::connect("sim:size=64MiB,leaks=ignore").unwrap();
    let run = cluster.run(THREADS, async |ct| {
        let root = table(ct).await?;
        ct.barrier("all are here").await?;
        let before = ct.metrics().cas_failed;
        let held = root.locks().at(0).acquire(ct).await?;
        let word = root.words().at(0);
        word.store(ct, word.load(ct).await? + 1).await?;
        held.release().await?;
        Ok(ct.metrics().cas_failed - before)
    });
    let failed: u64 = run.unwrap_or_else(|error| panic!("{error}")).iter().sum();
    let count = cluster.run(1, async |ct| table(ct).await?.words().at(0).load(ct).await);
    assert_eq!(count.unwrap(), [THREADS as u64]);
    assert!(failed > 20 * THREADS as u64, "{failed} attempts failed: they did not contend");
}

/// The same few operations are repeated, but each loop ends.
#[test]
fn short_loops_that_end_are_progress() {
    honest("sim:limit=1s,leaks=ignore", 4, async |ct| {
        let root = table(ct).await?;
        for _ in 0..4_000 {
            root.locks().at(0).acquire(ct).await?.release().await?;
        }
        Ok(())
    });
    honest("sim:leaks=ignore", 2, async |ct| {
        let root = table(ct).await?;
        for _ in 0..150_000 {
            root.words().at(0).load(ct).await?;
        }
        ct.barrier("met").await
    });
}

// ---- reports ---------------------------------------------------------------------------------------------------

#[test]
fn a_lock_whose_owner_hangs_is_reported_with_its_owner_and_the_number_of_waiting_tasks() {
    let hang = async |ct: &ComputeThread, forever: bool| {
        let root = table(ct).await?;
        let g = &ct.pin();
        if ct.index() == 2 {
            ct.sleep(Duration::from_micros(20)).await;
        }
        let held = root.locks().at(5).acquire(g).await?;
        if forever {
            std::future::pending::<()>().await;
        }
        ct.barrier("never").await?;
        Ok(held.release().await?)
    };
    let (finding, _, report, simulation) = found("sim:limit=1s", 3, async |ct| hang(ct, true).await);
    assert_eq!(finding, Finding::Livelock, "{report}");
    let owner = report.split("Table.locks+40 by thread ").nth(1).expect(&report);
    let owner = owner.chars().next().unwrap();
    assert!(report.contains(&format!("Table.locks+40 by thread {owner}, task 0 since ")), "{report}");
    assert!(report.contains(" (2 wait for it)"), "{report}");
    assert!(report.contains("to get 0:0x6c28 Table.locks+40"), "{report}");
    assert!(report.contains("with a guard since "), "{report}");
    assert!(report.contains("for nothing that the runtime knows of"), "{report}");
    assert_eq!(simulation.waiting(), "", "the run is over");

    let (finding, _, report, _) = found("sim:limit=1s", 3, async |ct| hang(ct, false).await);
    assert_eq!(finding, Finding::Livelock, "{report}");
    assert!(report.contains("barriers: `never` since "), "{report}");
    assert!(report.contains("1 arrived, threads ") || report.contains("0 arrived, threads "), "{report}");

    // The reports of a deadlock and of a run out of time say the same.
    let (finding, _, report, _) = found("sim:", 1, async |ct| {
        let root = table(ct).await?;
        let _held = root.locks().at(5).acquire(ct).await?;
        std::future::pending().await
    });
    assert_eq!(finding, Finding::Deadlock, "{report}");
    assert!(report.contains("held: 0:0x6c28 Table.locks+40 by thread 0, task 0 since "), "{report}");
    let (finding, _, report, _) = found("sim:limit=1ms", 3, async |ct| {
        let root = table(ct).await?;
        if ct.index() == 1 {
            loop {
                root.words().at(0).fetch_add(ct, 1).await?;
            }
        }
        let _held = root.locks().at(5).acquire(ct).await?;
        std::future::pending().await
    });
    assert_eq!(finding, Finding::OutOfTime, "{report}");
    assert!(report.contains("held: 0:0x6c28 Table.locks+40 by thread "), "{report}");
    let (first, second) = (report.find(" tried ").unwrap(), report.find("thread 1 waits").unwrap());
    assert!(first < second, "the task without progress comes first: {report}");
}

#[test]
fn a_claimed_name_that_is_never_published_is_reported() {
    let (finding, _, report, _) = found("sim:", 2, async |ct| {
        if ct.index() == 0 {
            ct.root_or_init::<Table>("table", async || std::future::pending().await).await?;
        }
        ct.sleep(Duration::from_micros(50)).await;
        table(ct).await.map(drop)
    });
    assert_eq!(finding, Finding::Livelock, "{report}");
    assert!(report.contains("claimed names: `table` by thread 0 since "), "{report}");
}

/// The owner took its lock 20,000 operations before the end; the trace shows that, too.
#[test]
fn the_trace_shows_the_beginning_the_cause_and_the_end() {
    let run = async |ct: &ComputeThread| {
        let root = table(ct).await?;
        if ct.index() == 0 {
            let held = root.locks().at(5).acquire(ct).await?;
            ct.sleep(Duration::from_micros(100)).await;
            // Many operations on other objects.
            let own = Table::new_in(ct, Table::init()).await?.write(ct).await?;
            for number in 0..20_000 {
                own.words().at(number % 8).store(ct, number as u64 + 1).await?;
            }
            let _held = held;
            return std::future::pending().await;
        }
        ct.sleep(Duration::from_micros(50)).await;
        Ok(root.locks().at(5).acquire(ct).await?.release().await?)
    };
    let (finding, _, report, simulation) = found("sim:", 2, run);
    assert_eq!(finding, Finding::Livelock, "{report}");
    for most in [40, 100, 1000] {
        let trace = simulation.trace(most);
        let lines: Vec<&str> = trace.lines().collect();
        assert_eq!(lines.len(), most, "{trace}");
        let first: f64 = lines[0].split_whitespace().next().unwrap().parse().unwrap();
        assert!(first < 2.0, "within the first round trip: {trace}");
        let position = |part: &str| lines.iter().position(|line| line.contains(part));
        let gap = position("operations left out").expect(&trace);
        assert!(lines[gap].contains(','), "the number has separators of thousands: {}", lines[gap]);
        let taken = position("Table.locks+40 0 -> ").expect(&trace);
        assert!(lines[taken].contains("0.0  CAS    0:0x6c28"), "{trace}");
        assert!(taken < lines.len() - most / 4, "{trace}");
        let times = lines.iter().filter_map(|line| line.split_whitespace().next()?.parse::<f64>().ok());
        assert!(times.is_sorted(), "{trace}");
        let last: f64 = lines.last().unwrap().split_whitespace().next().unwrap().parse().unwrap();
        assert!(last > 40_000.0, "{trace}");
    }
}

#[test]
fn a_foreign_future_is_distinguished_from_one_of_the_library() {
    let (finding, _, report, _) = found("sim:", 2, async |ct| {
        table(ct).await?;
        // The sender is alive, and never sends.
        let (_sender, receiver) = futures_channel::oneshot::channel::<()>();
        receiver.await.map_err(Error::other)
    });
    assert_eq!(finding, Finding::Deadlock, "{report}");
    assert!(report.contains("for nothing that the runtime knows of"), "{report}");
    assert!(report.contains("usually a channel or tokio's timers"), "{report}");
    let (finding, _, report, _) = found("sim:", 2, async |ct| {
        let root = table(ct).await?;
        std::mem::forget(root.locks().at(0).acquire(ct).await?);
        ct.barrier("never").await
    });
    assert_eq!(finding, Finding::Livelock, "{report}");
    assert!(!report.contains("for nothing that the runtime knows of"), "{report}");
}

/// Checks that a report names a thread that waits for a foreign future, and says what that usually is.
fn assert_reported_as_foreign(report: &str, thread: usize) {
    let waits = format!(": thread {thread} waits after ");
    for part in [
        waits.as_str(),
        "for nothing that the runtime knows of",
        "the runtime does not know what such a thread waits for",
        "usually a channel or tokio's timers",
    ] {
        assert!(report.contains(part), "{part}: {report}");
    }
}

#[test]
fn a_wait_for_tokio_is_reported_as_foreign() {
    let (finding, _, report, _) = found("sim:", 2, async |ct| {
        table(ct).await?;
        if ct.index() == 1 {
            tokio::sync::Notify::new().notified().await;
        }
        Ok(())
    });
    assert_eq!(finding, Finding::Deadlock, "{report}");
    assert_reported_as_foreign(&report, 1);
    let (finding, _, report, _) = found("sim:", 1, async |ct| {
        table(ct).await?;
        // The sender is alive, and never sends.
        let (_sender, receiver) = tokio::sync::oneshot::channel::<()>();
        receiver.await.map_err(Error::other)
    });
    assert_eq!(finding, Finding::Deadlock, "{report}");
    assert_reported_as_foreign(&report, 0);
}

/// A task waits for a tokio mutex that another task of its thread never releases.
#[test]
fn a_wait_for_a_tokio_mutex_held_by_another_task_is_reported_as_foreign() {
    let (finding, _, report, _) = found("sim:", 1, async |ct| {
        table(ct).await?;
        let mutex = tokio::sync::Mutex::new(());
        ct.tasks(2, async |task| {
            let _held = mutex.lock().await;
            if task == 0 {
                tokio::sync::Notify::new().notified().await;
            }
            Ok(())
        })
        .await
        .map(drop)
    });
    assert_eq!(finding, Finding::Deadlock, "{report}");
    assert_reported_as_foreign(&report, 0);
}

/// Tasks of one thread are polled together: when one releases the mutex, the other takes it. Another thread is not polled, since the simulator
/// ignores wakers.
#[test]
fn a_tokio_mutex_works_between_tasks_of_one_thread_only() {
    let mutex = tokio::sync::Mutex::new(());
    let take = async |ct: &ComputeThread, is_first: bool| {
        table(ct).await?;
        if !is_first {
            ct.sleep(Duration::from_micros(20)).await;
        }
        let _held = mutex.lock().await;
        if is_first {
            ct.sleep(Duration::from_micros(100)).await;
        }
        Ok(())
    };
    honest("sim:leaks=ignore", 1, async |ct| {
        ct.tasks(2, async |task| take(ct, task == 0).await).await.map(drop)
    });
    let (finding, _, report, _) = found("sim:", 2, async |ct| take(ct, ct.index() == 0).await);
    assert_eq!(finding, Finding::Deadlock, "{report}");
    assert_reported_as_foreign(&report, 1);
}

#[test]
fn a_leak_report_says_that_the_owner_died() {
    let cluster = Cluster::connect("sim:").unwrap();
    cluster
        .run_surviving(2, async |ct| {
            table(ct).await?;
            if ct.index() == 1 {
                let _node = Node::new_in(ct, Node::init(7)).await?.write(ct).await?;
                ct.cluster().simulation().expect("simulated").inject(Fault::crash(1));
            }
            ct.sleep(Duration::from_micros(50)).await;
            Ok(())
        })
        .unwrap();
    let Err(error) = cluster.run(1, async |ct| table(ct).await.map(drop)) else { panic!("it leaks") };
    let report = error.to_string();
    assert!(
        report.contains("allocated by thread 1 at ") && report.contains("whose compute node died at "),
        "{report}"
    );
    assert!(report.contains("`leaks=ignore`"), "{report}");
}
