//! What stalls is reported once, with what a person needs; what does not stall is not.
//!
//! Each case runs in a process of its own, this program's again, with a short `FARFIELD_STALL`, and its stderr is read. A case makes something wait
//! until the report has been read, which it is told by the end of its stdin, and then for a while longer, in which a second report would come.
//! So nothing depends on the speed of the machine. In the simulator virtual time decides.

mod held;
#[cfg(target_os = "linux")]
mod shm;

use std::future::poll_fn;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use farfield::Result;
use farfield::prelude::*;

const CASE: &str = "FARFIELD_STALL_CASE";
const CLUSTER: &str = "FARFIELD_STALL_CLUSTER";
/// What a line begins with that a case prints about itself.
const SAYS: &str = "case: ";

/// Far longer than the limit of the cases: several looks of the watcher.
const LONG: Duration = Duration::from_millis(400);

#[remote]
struct Node {
    lock: Lock,
    value: Versioned<u64>,
}

async fn node(ct: &ComputeThread) -> Result<RemotePtr<Node>> {
    ct.root_or_init("node", async || Node::new_in(ct, Node::init(1)).await?.write(ct).await).await
}

/// Runs a test of this program again as a case, on a cluster, and returns the lines that it printed about stalls and about itself. It is told to go on when it
/// has printed all of `expected`, each on a line about a stall.
fn stalls(test: &str, case: &str, cluster: &str, limit: &str, expected: &[&str]) -> Vec<String> {
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args([test, "--exact", "--nocapture", "--test-threads", "1"]);
    again.env(CASE, case).env(CLUSTER, cluster).env("FARFIELD_STALL", limit);
    let mut child = again.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut goes_on = child.stdin.take();
    let (mut lines, mut said) = (Vec::new(), Vec::new());
    if expected.is_empty() {
        goes_on = None;
    }
    for line in BufReader::new(child.stderr.take().unwrap()).lines() {
        let line = line.unwrap();
        if line.starts_with("farfield: stalled: ") || line.starts_with(SAYS) {
            lines.push(line.clone());
        }
        if expected.iter().all(|text| lines.iter().any(|line| line.contains(text))) {
            goes_on = None;
        }
        said.push(line);
    }
    drop(goes_on);
    assert!(child.wait().unwrap().success(), "{case} on {cluster}: {said:#?}");
    lines
}

/// The case that this process is to run, if it was started for one.
fn case() -> Option<(String, Cluster)> {
    let case = std::env::var(CASE).ok()?;
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        GOES_ON.store(true, Ordering::Relaxed);
    });
    Some((case, Cluster::connect(&std::env::var(CLUSTER).unwrap()).unwrap()))
}

/// Whether the report has been read; or will never be, and the test fails.
fn goes_on(began: Instant) -> bool {
    GOES_ON.load(Ordering::Relaxed) || began.elapsed() > Duration::from_secs(60)
}

static GOES_ON: AtomicBool = AtomicBool::new(false);

/// One line, with all of these.
fn assert_told(lines: &[String], what: &[&str]) {
    let told: Vec<_> = lines.iter().filter(|line| what.iter().all(|what| line.contains(what))).collect();
    assert_eq!(told.len(), 1, "{what:?} in {lines:#?}");
}

/// Sleeps until the report has been read, and longer.
async fn a_long_time(ct: &ComputeThread) {
    let began = Instant::now();
    while ct.cluster().simulation().is_none() && !goes_on(began) {
        ct.sleep(Duration::from_millis(5)).await;
    }
    ct.sleep(LONG).await;
}

/// As [`a_long_time`], without giving way.
fn block_for_long() {
    let began = Instant::now();
    while !goes_on(began) {
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(LONG);
}

#[test]
fn a_lock_that_is_not_released_is_reported_with_its_holder() {
    if let Some((_, cluster)) = case() {
        cluster
            .run(2, async |ct| {
                let lock = node(ct).await?.lock();
                if ct.index() == 0 {
                    let held = lock.acquire(ct).await?;
                    ct.barrier("held").await?;
                    a_long_time(ct).await;
                    held.release().await?;
                } else {
                    ct.barrier("held").await?;
                    ct.tasks(3, async |task| {
                        if task == 2 {
                            drop(lock.acquire(ct).await?);
                        }
                        Ok(())
                    })
                    .await?;
                }
                Ok(())
            })
            .unwrap();
        return;
    }
    for cluster in ["local:size=1MiB", "local:size=1MiB,delay=3", "sim:"] {
        let lines = stalls(
            "a_lock_that_is_not_released_is_reported_with_its_holder",
            "lock",
            cluster,
            "50ms",
            &["the lock at"],
        );
        let held =
            ["thread 1 (", "task 2", "the lock at 0:", "held by thread 0x", "of this process, which runs"];
        assert_told(&lines, &held);
        if cluster == "sim:" {
            assert_told(&lines, &["(Node.lock)"]);
        }
    }
}

#[test]
fn what_threads_of_one_process_wait_for_is_reported() {
    const TEST: &str = "what_threads_of_one_process_wait_for_is_reported";
    if let Some((case, cluster)) = case() {
        let run = cluster.run(2, async |ct| {
            let node = node(ct).await?;
            match (case.as_str(), ct.index()) {
                ("barrier", 0) => a_long_time(ct).await,
                ("own", 0) => {
                    let held = node.lock().acquire(ct).await?;
                    ct.tasks(2, async |task| {
                        if task == 0 {
                            a_long_time(ct).await;
                            return Ok(());
                        }
                        std::mem::drop(node.lock().try_acquire(ct).await?);
                        Ok(())
                    })
                    .await?;
                    held.release().await?;
                }
                ("name", 0) => {
                    ct.root_or_init("slow", async || {
                        ct.barrier("names").await?;
                        a_long_time(ct).await;
                        Node::new_in(ct, Node::init(1)).await?.write(ct).await
                    })
                    .await?;
                }
                ("name", _) => {
                    ct.barrier("names").await?;
                    ct.root_or_init("slow", async || Node::new_in(ct, Node::init(1)).await?.write(ct).await)
                        .await?;
                }
                ("retry", 1) => {
                    let (began, mut backoff) = (ct.now(), ct.backoff());
                    let started = Instant::now();
                    let is_real = ct.cluster().simulation().is_none();
                    // The simulator takes what tries for 100 ms and changes nothing for a livelock.
                    while ct.now().saturating_sub(began) < Duration::from_millis(80)
                        || (is_real && !goes_on(started))
                    {
                        backoff.wait().await;
                    }
                }
                _ => {}
            }
            if case == "barrier" {
                ct.barrier("all are here").await?;
            }
            Ok(())
        });
        run.unwrap();
        return;
    }
    for cluster in ["local:size=1MiB", "local:size=1MiB,delay=3", "sim:"] {
        let told = |case, expected: &str| stalls(TEST, case, cluster, "50ms", &[expected]);
        let lines = told("barrier", "the barrier `all are here`");
        assert_told(&lines, &["thread 1 (", "the barrier `all are here`, which 1 of 2 threads have reached"]);
        assert_told(
            &told("name", "the name `slow`"),
            &["thread 1 (", "the name `slow`, which thread 0x", "which runs makes"],
        );
        let lines = told("retry", "a retry loop");
        assert_told(&lines, &["thread 1 (", "a retry loop"]);
        // A sleep that the program asked for is no stall.
        let asleep = stalls(TEST, "own", cluster, "50ms", &[]);
        assert!(asleep.iter().all(|line| !line.contains("does not know")), "{cluster}: {asleep:#?}");
    }
}

#[test]
fn a_future_of_another_crate_that_nobody_wakes_is_reported() {
    const TEST: &str = "a_future_of_another_crate_that_nobody_wakes_is_reported";
    if let Some((_, cluster)) = case() {
        let is_over = AtomicBool::new(false);
        cluster
            .run(1, async |ct| {
                ct.tasks(2, async |task| {
                    if task == 0 {
                        a_long_time(ct).await;
                        is_over.store(true, Ordering::Relaxed);
                        return Ok(());
                    }
                    // The waker is kept by nobody.
                    poll_fn(
                        |_| if is_over.load(Ordering::Relaxed) { Poll::Ready(()) } else { Poll::Pending },
                    )
                    .await;
                    Ok(())
                })
                .await
            })
            .unwrap();
        return;
    }
    for cluster in ["local:size=1MiB", "local:size=1MiB,delay=3"] {
        let lines = stalls(TEST, "foreign", cluster, "50ms", &["does not know"]);
        assert_told(&lines, &["thread 0 (", "task 1: ", "something that this library does not know"]);
    }
}

#[test]
fn a_task_that_never_gives_way_is_reported_though_its_thread_is_stuck() {
    const TEST: &str = "a_task_that_never_gives_way_is_reported_though_its_thread_is_stuck";
    if let Some((_, cluster)) = case() {
        cluster
            .run(1, async |ct| {
                ct.tasks(3, async |task| {
                    ct.yield_now().await;
                    if task == 1 {
                        block_for_long();
                    }
                    Ok(())
                })
                .await
            })
            .unwrap();
        return;
    }
    for cluster in ["local:size=1MiB", "local:size=1MiB,delay=3"] {
        let lines = stalls(TEST, "busy", cluster, "50ms", &["has not yielded"]);
        assert_told(&lines, &["thread 0 (", "task 1: has not yielded", "the other tasks of the thread ("]);
    }
    let lines = stalls(TEST, "busy", "sim:", "50ms", &["the simulation has stood"]);
    assert_told(&lines, &["the simulation has stood at", "of real time: thread 0 computes"]);
}

#[test]
fn an_operation_in_flight_that_is_not_looked_at_is_reported() {
    const TEST: &str = "an_operation_in_flight_that_is_not_looked_at_is_reported";
    if let Some((_, cluster)) = case() {
        cluster
            .run(1, async |ct| {
                let mut load = Box::pin(ct.tasks(1, async |_| {
                    let node = node(ct).await?;
                    node.value().read(ct).await
                }));
                let mut polls = 0;
                poll_fn(|context| {
                    polls += 1;
                    let polled = load.as_mut().poll(context);
                    if polls == 4 || polled.is_ready() { Poll::Ready(()) } else { Poll::Pending }
                })
                .await;
                a_long_time(ct).await;
                load.await
            })
            .unwrap();
        return;
    }
    let lines = stalls(TEST, "flight", "local:size=1MiB,delay=60", "50ms", &["READ of 128"]);
    assert_told(&lines, &["thread 0 (", "READ of 128 words at 0:", "in flight; its task is not polled"]);
}

#[test]
fn a_link_that_is_cut_is_reported_in_virtual_time() {
    const TEST: &str = "a_link_that_is_cut_is_reported_in_virtual_time";
    if let Some((_, cluster)) = case() {
        let died = farfield::sim::Fault::memory_crash(0).at(Duration::from_millis(1));
        cluster.simulation().unwrap().inject(died);
        let outcome = cluster.run(1, async |ct| {
            let value = node(ct).await?.value();
            loop {
                value.read(ct).await?;
            }
            #[allow(unreachable_code)]
            Ok(())
        });
        assert!(matches!(outcome, Err(farfield::Error::NodeUnreachable(_))), "{outcome:?}");
        return;
    }
    let lines = stalls(TEST, "cut", "sim:timeout=1s", "50ms", &[]);
    assert_told(&lines, &["thread 0, task 0: has waited for", "(Node.value", "in flight to memory node 0"]);
}

#[test]
fn a_call_that_is_not_answered_is_reported() {
    const TEST: &str = "a_call_that_is_not_answered_is_reported";
    if let Some((_, cluster)) = case() {
        let client = cluster.client_with(&{
            let mut options = farfield::ClientOptions::new();
            options.tasks = 1;
            options
        });
        let client = client.unwrap();
        let (slow, next) = (
            client.call(async |ct| {
                a_long_time(ct).await;
                Ok(())
            }),
            client.call(async |_| Ok(())),
        );
        let (mut slow, mut next) = (Box::pin(slow), Box::pin(next));
        let mut context = std::task::Context::from_waker(Waker::noop());
        let mut are_over = (false, false);
        while are_over != (true, true) {
            are_over.0 = are_over.0 || slow.as_mut().poll(&mut context).is_ready();
            are_over.1 = are_over.1 || next.as_mut().poll(&mut context).is_ready();
            std::thread::yield_now();
        }
        return;
    }
    let lines = stalls(TEST, "call", "local:size=1MiB", "50ms", &["has begun it", "has taken it"]);
    assert_told(&lines, &["the answer of a client's call", "a thread of the client has begun it"]);
    assert_told(&lines, &["the answer of a client's call", "no thread of the client has taken it"]);
}

#[test]
fn what_does_not_stall_is_not_reported() {
    const TEST: &str = "what_does_not_stall_is_not_reported";
    if let Some((_, cluster)) = case() {
        let run = cluster.run(2, async |ct| {
            let node = node(ct).await?;
            ct.tasks(4, async |_| {
                for round in 0..50 {
                    let held = node.lock().acquire(ct).await?;
                    node.value().write(ct, round).await?;
                    held.release().await?;
                    node.value().read(ct).await?;
                }
                Ok(())
            })
            .await?;
            ct.barrier("done").await
        });
        run.unwrap();
        return;
    }
    for cluster in ["local:size=1MiB", "local:size=1MiB,delay=3", "sim:"] {
        assert_eq!(stalls(TEST, "sound", cluster, "3600s", &[]), [""; 0], "{cluster}");
    }
    assert_eq!(stalls(TEST, "sound", "local:size=1MiB", "0", &[]), [""; 0]);
}

#[test]
fn a_limit_that_is_none_is_an_error_that_names_the_variable() {
    if std::env::var(CASE).is_ok() {
        let error = Cluster::connect("local:").unwrap_err().to_string();
        assert!(error.starts_with("FARFIELD_STALL is soon: "), "{error}");
        return;
    }
    stalls("a_limit_that_is_none_is_an_error_that_names_the_variable", "wrong", "local:", "soon", &[]);
}

/// What the book shows is what is printed, but for the process's number.
#[test]
fn the_book_shows_a_stall() {
    const TEST: &str = "the_book_shows_a_stall";
    if let Some((_, cluster)) = case() {
        cluster
            .run(2, async |ct| {
                let lock = node(ct).await?.lock();
                let held = if ct.index() == 0 { Some(lock.acquire(ct).await?) } else { None };
                ct.barrier("held").await?;
                if let Some(held) = held {
                    ct.sleep(Duration::from_millis(40)).await;
                    held.release().await?;
                } else {
                    drop(lock.acquire(ct).await?);
                }
                Ok(())
            })
            .unwrap();
        return;
    }
    let lines = stalls(TEST, "book", "sim:", "20ms", &[]);
    let line = lines.iter().find(|line| line.contains("the lock at")).expect("a line about the lock");
    let (before, after) = line.split_once(" of pid ").expect("a process");
    let after = after.trim_start_matches(|c: char| c.is_ascii_digit());
    shown("stall.txt", &format!("{before} of pid 4711{after}\n"));
}

/// Compares what the book shows with what is so.
fn shown(page: &str, text: &str) {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../book/src/simulator").join(page);
    if std::env::var_os("FARFIELD_BLESS").is_some() {
        std::fs::write(&page, text).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&page).unwrap_or_default(), text, "{}", page.display());
}
