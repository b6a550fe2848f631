//! A stall is reported once, with the thread, the wait and the obstacle; a wait that is no stall is not reported.
//!
//! Each case is this program in a process of its own, with a short `FARFIELD_STALL`. The test reads its stderr, and closes its stdin once it has
//! read the report. The case waits until then and for a while longer, in which a second report would come. So the speed of the machine does not
//! matter. In the simulator, virtual time decides.

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
/// The beginning of a line that a case prints about itself.
const SAYS: &str = "case: ";

/// Far longer than the limit of the cases: the watcher looks several times.
const LONG: Duration = Duration::from_millis(400);

#[remote]
struct Node {
    lock: Lock,
    value: Versioned<u64>,
}

async fn node(ct: &ComputeThread) -> Result<RemotePtr<Node>> {
    ct.root_or_init("node", async || Node::new_in(ct, Node::init(1)).await?.write(ct).await).await
}

/// Runs a test of this program as a case, on a cluster, and returns the lines that it printed about stalls and about itself. Closes its stdin when it
/// has printed all of `expected`, each on a line about a stall.
fn stalls(test: &str, case: &str, cluster: &str, limit: &str, expected: &[&str]) -> Vec<String> {
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args([test, "--exact", "--nocapture", "--test-threads", "1"]);
    again.env(CASE, case).env(CLUSTER, cluster).env("FARFIELD_STALL", limit);
    let mut child = again.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take();
    let (mut lines, mut said) = (Vec::new(), Vec::new());
    if expected.is_empty() {
        stdin = None;
    }
    for line in BufReader::new(child.stderr.take().unwrap()).lines() {
        let line = line.unwrap();
        if line.starts_with("farfield: stalled: ") || line.starts_with(SAYS) {
            lines.push(line.clone());
        }
        if expected.iter().all(|text| lines.iter().any(|line| line.contains(text))) {
            stdin = None;
        }
        said.push(line);
    }
    drop(stdin);
    assert!(child.wait().unwrap().success(), "{case} on {cluster}: {said:#?}");
    lines
}

/// Returns the case that this process runs, if it was started for one.
fn case() -> Option<(String, Cluster)> {
    let case = std::env::var(CASE).ok()?;
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        IS_REPORT_READ.store(true, Ordering::Relaxed);
    });
    Some((case, Cluster::connect(&std::env::var(CLUSTER).unwrap()).unwrap()))
}

/// Returns whether the report has been read, or has not come within a minute.
fn is_report_read(began: Instant) -> bool {
    IS_REPORT_READ.load(Ordering::Relaxed) || began.elapsed() > Duration::from_secs(60)
}

static IS_REPORT_READ: AtomicBool = AtomicBool::new(false);

/// Checks that exactly one line has all of these parts.
fn assert_reported_once(lines: &[String], what: &[&str]) {
    let told: Vec<_> = lines.iter().filter(|line| what.iter().all(|what| line.contains(what))).collect();
    assert_eq!(told.len(), 1, "{what:?} in {lines:#?}");
}

/// Sleeps until the report has been read, and longer.
async fn a_long_time(ct: &ComputeThread) {
    let began = Instant::now();
    while ct.cluster().simulation().is_none() && !is_report_read(began) {
        ct.sleep(Duration::from_millis(5)).await;
    }
    ct.sleep(LONG).await;
}

/// As [`a_long_time`], without yielding.
fn block_for_long() {
    let began = Instant::now();
    while !is_report_read(began) {
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
        assert_reported_once(&lines, &held);
        if cluster == "sim:" {
            assert_reported_once(&lines, &["(Node.lock)"]);
        }
    }
}

#[test]
fn waits_of_threads_of_one_process_are_reported() {
    const TEST: &str = "waits_of_threads_of_one_process_are_reported";
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
                    // The simulator reports a loop that fails for 100 ms as a livelock.
                    while ct.now().saturating_sub(began) < Duration::from_millis(80)
                        || (is_real && !is_report_read(started))
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
        assert_reported_once(
            &lines,
            &["thread 1 (", "the barrier `all are here`, which 1 of 2 threads have reached"],
        );
        assert_reported_once(
            &told("name", "the name `slow`"),
            &["thread 1 (", "the name `slow`, which thread 0x", "which runs makes"],
        );
        let lines = told("retry", "a retry loop");
        assert_reported_once(&lines, &["thread 1 (", "a retry loop"]);
        // A sleep that the program asks for is no stall.
        let asleep = stalls(TEST, "own", cluster, "50ms", &[]);
        assert!(asleep.iter().all(|line| !line.contains("does not know")), "{cluster}: {asleep:#?}");
    }
}

#[test]
fn a_future_of_another_crate_that_is_never_woken_is_reported() {
    const TEST: &str = "a_future_of_another_crate_that_is_never_woken_is_reported";
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
                    // No one stores the waker.
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
        assert_reported_once(
            &lines,
            &["thread 0 (", "task 1: ", "something that this library does not know"],
        );
    }
}

#[test]
fn a_task_that_never_yields_is_reported_though_its_thread_is_stuck() {
    const TEST: &str = "a_task_that_never_yields_is_reported_though_its_thread_is_stuck";
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
        assert_reported_once(
            &lines,
            &["thread 0 (", "task 1: has not yielded", "the other tasks of the thread ("],
        );
    }
    let lines = stalls(TEST, "busy", "sim:", "50ms", &["the simulation has stood"]);
    assert_reported_once(&lines, &["the simulation has stood at", "of real time: thread 0 computes"]);
}

#[test]
fn an_operation_in_flight_that_is_not_polled_is_reported() {
    const TEST: &str = "an_operation_in_flight_that_is_not_polled_is_reported";
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
    assert_reported_once(
        &lines,
        &["thread 0 (", "READ of 128 words at 0:", "in flight; its task is not polled"],
    );
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
    assert_reported_once(
        &lines,
        &["thread 0, task 0: has waited for", "(Node.value", "in flight to memory node 0"],
    );
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
    assert_reported_once(&lines, &["the answer of a client's call", "a thread of the client has begun it"]);
    assert_reported_once(&lines, &["the answer of a client's call", "no thread of the client has taken it"]);
}

#[test]
fn progress_is_not_reported() {
    const TEST: &str = "progress_is_not_reported";
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
fn an_invalid_limit_is_an_error_that_names_the_variable() {
    if std::env::var(CASE).is_ok() {
        let error = Cluster::connect("local:").unwrap_err().to_string();
        assert!(error.starts_with("FARFIELD_STALL is soon: "), "{error}");
        return;
    }
    stalls("an_invalid_limit_is_an_error_that_names_the_variable", "wrong", "local:", "soon", &[]);
}

/// The book shows the printed report, with another process number.
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

/// Compares a page of the book with `text`, or writes it.
fn shown(page: &str, text: &str) {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../book/src/simulator").join(page);
    if std::env::var_os("FARFIELD_BLESS").is_some() {
        std::fs::write(&page, text).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&page).unwrap_or_default(), text, "{}", page.display());
}

#[test]
fn delegated_code_that_does_not_return_is_reported_with_its_name_and_its_client() {
    if let Some((_, cluster)) = case() {
        cluster
            .run(2, async |ct| {
                if ct.index() == 0 {
                    let stored = ct.entrust(0_u64).await?.store(ct).await?;
                    ct.publish("counter", stored).await?;
                    ct.barrier("published").await?;
                } else {
                    ct.barrier("published").await?;
                    let counter: Trust<u64> = Trust::open(ct.lookup("counter").await?, ct).await?;
                    counter.apply(ct, (), |_, ()| block_for_long()).await?;
                }
                ct.barrier("done").await
            })
            .unwrap();
        return;
    }
    let expected = ["delegated code to return: `fn(", "the answer of the trustee"];
    let lines = stalls(
        "delegated_code_that_does_not_return_is_reported_with_its_name_and_its_client",
        "delegated",
        "local:size=1MiB",
        "50ms",
        &expected,
    );
    for what in expected {
        assert_reported_once(&lines, &[what]);
    }
    assert_reported_once(&lines, &["delegated code", "requested by thread", "stalls/main.rs"]);
}
