//! Obstacles in other processes of a cluster, and waits of keepers.

use std::process::Child;

use farfield::memory_node::{MemoryNode, MemoryNodeOptions};

use super::held::{finish_writing, make_and_retire, stop_in_the_middle, until_it_fails, use_value};
use super::*;

/// The line of a process when it holds the thing that another waits for.
const HOLDS: &str = "holds it";

/// Starts a test of this program as a case that waits for the end of its stdin.
fn start(test: &str, case: &str, url: &str, limit: &str) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args([test, "--exact", "--nocapture", "--test-threads", "1"]);
    child.env(CASE, case).env(CLUSTER, url).env("FARFIELD_STALL", limit);
    child.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

/// As [`start`], and waits until the case has printed [`HOLDS`].
fn start_holder(test: &str, case: &str, url: &str, limit: &str) -> Child {
    let mut holder = start(test, case, url, limit);
    let mut said = BufReader::new(holder.stderr.as_mut().unwrap()).lines();
    assert!(said.any(|line| line.unwrap().contains(HOLDS)), "{case} has ended");
    holder
}

fn end(mut child: Child) {
    child.stdin = None;
    assert!(child.wait().unwrap().success());
}

/// Runs `body` with the URL of a memory node of this process.
fn with_memory(name: &str, change: impl FnOnce(&mut MemoryNodeOptions), body: impl FnOnce(&str)) {
    let mut options = MemoryNodeOptions::new(&format!("shm:stalls-{name}-{}", std::process::id()));
    options.segment_bytes = 1 << 20;
    change(&mut options);
    let memory = MemoryNode::listen(&options).unwrap();
    let stopper = memory.stopper().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| memory.serve());
        let outcome =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| body(&options.listen[0].clone())));
        stopper.stop();
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

/// Holds a lock, a value or a guard until this process's stdin ends.
async fn hold(case: &str, at: RemotePtr<Node>, ct: &ComputeThread) -> Result<()> {
    let print_and_wait = async || {
        eprintln!("{HOLDS}");
        a_long_time(ct).await;
    };
    match case {
        "holds a lock" => {
            let held = at.lock().acquire(ct).await?;
            print_and_wait().await;
            held.release().await?;
        }
        "holds a value" => {
            stop_in_the_middle(at, ct).await?;
            print_and_wait().await;
            finish_writing(at, ct).await?;
        }
        _ => {
            let _guard = ct.pin();
            print_and_wait().await;
        }
    }
    Ok(())
}

#[test]
fn an_obstacle_in_another_process_is_reported_with_that_process() {
    const TEST: &str = "shm::an_obstacle_in_another_process_is_reported_with_that_process";
    if let Some((case, cluster)) = case() {
        let began = Instant::now();
        loop {
            let run = cluster.run(1, async |ct| {
                let at = node(ct).await?;
                match case.as_str() {
                    "waits for a lock" => drop(at.lock().acquire(ct).await?),
                    "waits for a value" => use_value(at, ct).await?,
                    "waits for memory" => {
                        let error = until_it_fails(ct, began).await;
                        assert!(matches!(error, None | Some(farfield::Error::OutOfMemory(_))), "{error:?}");
                    }
                    "waits for the epoch" => {
                        let error = until_it_fails(ct, began).await;
                        assert!(
                            matches!(error, None | Some(farfield::Error::ReclamationHeldBack(_))),
                            "{error:?}"
                        );
                    }
                    case => hold(case, at, ct).await?,
                }
                Ok(())
            });
            run.unwrap();
            // Waits for memory and for the epoch end by themselves, and are repeated until the report has been read.
            if !matches!(case.as_str(), "waits for memory" | "waits for the epoch") || is_report_read(began) {
                return;
            }
        }
    }
    for (holds, waits, options, limit, expected) in [
        ("holds a lock", "waits for a lock", "", "50ms", ["the lock at 0:", ", held by thread 0x"]),
        ("holds a value", "waits for a value", "", "50ms", [" to be written, held by thread 0x", "task 0: "]),
        ("holds a value", "waits for a value", "", "50ms", ["the write lock of the value at 0:", "task 1: "]),
        (
            "holds a guard",
            "waits for memory",
            "?max-retired=1GiB",
            "1ms",
            ["free memory; the epoch is ", ", is behind"],
        ),
        (
            "holds a guard",
            "waits for the epoch",
            "?max-retired=16KiB",
            "1ms",
            ["the epoch is ", ", is behind"],
        ),
    ] {
        with_memory(
            "holds",
            |_| (),
            |url| {
                let holder = start_holder(TEST, holds, url, "0");
                let pid = holder.id();
                let url = format!("{url}{options}");
                let mut waits = start(TEST, waits, &url, limit);
                let alive = format!("(pid {pid}), which is alive");
                let told = |line: &&String| {
                    ["thread 0 (", "task ", &alive].iter().chain(&expected).all(|what| line.contains(what))
                };
                let (mut holder, mut lines) = (Some(holder), Vec::new());
                for line in BufReader::new(waits.stderr.take().unwrap()).lines() {
                    lines.push(line.unwrap());
                    if lines.last().iter().any(told) {
                        waits.stdin = None;
                        holder.take().into_iter().for_each(end);
                    }
                }
                assert!(waits.wait().unwrap().success(), "{lines:#?}");
                assert!(lines.iter().any(|line| told(&line)), "{expected:?} in {lines:#?}");
            },
        );
    }
}

/// Large objects, which make a checkpoint take a while.
#[remote]
struct Large {
    words: Tail<u64>,
}

/// While a process is stopped during a checkpoint, no other process can join.
#[test]
fn a_keeper_that_may_not_join_yet_is_reported_with_the_process_that_delays_it() {
    const TEST: &str = "shm::a_keeper_that_may_not_join_yet_is_reported_with_the_process_that_delays_it";
    let file = |url: &str| std::env::temp_dir().join(format!("farfield-{}", url.trim_start_matches("shm:")));
    if std::env::var(CASE).is_ok_and(|case| case == "joins") {
        // Connecting waits for as long as the checkpoint lasts.
        drop(Cluster::connect(&std::env::var(CLUSTER).unwrap()).unwrap());
        return;
    }
    if let Some((_, cluster)) = case() {
        let filled = cluster.run(1, async |ct| {
            // An object of a MiB each: enough to stop the checkpoint, few enough to end it within the patience of the process that joins.
            for _ in 0..40 {
                Large::new_in(ct, Large::init(vec![1; 1 << 17])).await?.write(ct).await?;
            }
            Ok(())
        });
        filled.unwrap();
        let file = file(cluster.url());
        cluster.checkpoint(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        return;
    }
    with_memory(
        "keeper",
        |options| options.segment_bytes = 64 << 20,
        |url| {
            let partial = file(url).with_added_extension("partial");
            let mut holder = start(TEST, "checkpoints", url, "0");
            // The partial file exists while it is written. From then on, no other process can join.
            while std::fs::metadata(&partial).is_err() {
                assert!(holder.try_wait().unwrap().is_none(), "it has ended");
            }
            signal(&holder, "STOP");
            assert!(std::fs::metadata(&partial).is_ok(), "the checkpoint took no time");
            let pid = holder.id();
            let mut joins = start(TEST, "joins", url, "50ms");
            let (mut is_stopped, mut lines) = (true, Vec::new());
            let keeper =
                ["the background thread (0x", "task 0: ", "a collection, checkpoint or sweep of process "];
            let of_main = ["the keeper to join the cluster, which blocks the thread `"];
            let is_told = |lines: &[String], what: &[&str]| {
                lines.iter().any(|line| what.iter().all(|what| line.contains(what)))
            };
            for line in BufReader::new(joins.stderr.take().unwrap()).lines() {
                lines.push(line.unwrap());
                if is_told(&lines, &keeper) && is_told(&lines, &of_main) && std::mem::take(&mut is_stopped) {
                    signal(&holder, "CONT");
                }
            }
            assert!(joins.wait().unwrap().success(), "{lines:#?}");
            end(holder);
            let holder = format!("(pid {pid}), which is alive");
            assert_reported_once(&lines, &[keeper[0], keeper[1], keeper[2], &holder]);
            assert_reported_once(&lines, &of_main);
        },
    );
}

/// Before a process leaves, its keeper waits for a while until its garbage is freed. A guard of another process delays that.
#[test]
fn a_keeper_that_waits_for_the_epoch_before_it_leaves_is_reported() {
    const TEST: &str = "shm::a_keeper_that_waits_for_the_epoch_before_it_leaves_is_reported";
    if let Ok(case) = std::env::var(CASE)
        && case == "leaves"
    {
        let url = std::env::var(CLUSTER).unwrap();
        std::thread::spawn(|| {
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            IS_REPORT_READ.store(true, Ordering::Relaxed);
        });
        let began = Instant::now();
        while !is_report_read(began) {
            let cluster = Cluster::connect(&url).unwrap();
            cluster.run(1, make_and_retire).unwrap();
        }
        return;
    }
    if let Some((case, cluster)) = case() {
        cluster.run(1, async |ct| hold(&case, node(ct).await?, ct).await).unwrap();
        return;
    }
    with_memory(
        "leaves",
        |_| (),
        |url| {
            let holder = start_holder(TEST, "holds a guard", url, "0");
            let behind = format!("(pid {}), which is alive, is behind", holder.id());
            let lines =
                stalls(TEST, "leaves", url, "20ms", &["the background thread", "the thread `keeper` to end"]);
            end(holder);
            let keeper: Vec<_> = lines.iter().filter(|line| line.contains("the background thread")).collect();
            assert!(!keeper.is_empty(), "{lines:#?}");
            assert!(
                keeper.iter().all(|line| line.contains("the epoch is ") && line.contains(&behind)),
                "{keeper:#?}"
            );
            let of_main =
                |line: &String| line.contains("the thread `keeper` to end, which blocks the thread `");
            assert!(lines.iter().any(of_main), "{lines:#?}");
        },
    );
}

/// A process is killed, and a process in the role `survivor` sweeps its memory while another one is stopped. Returns the report of the sweep, and the
/// number of the stopped process.
fn reported_of_a_sweep(test: &str, survivor: &str) -> (String, u32) {
    let (mut told, mut of_other) = (None, 0);
    with_memory(
        "answers",
        |options| options.sweep = true,
        |url| {
            let mut survivor = start_holder(test, survivor, url, "50ms");
            let stopped = start_holder(test, "sleeps", url, "0");
            of_other = stopped.id();
            signal(&stopped, "STOP");
            let mut victim = start_holder(test, "holds a lock", url, "0");
            victim.kill().unwrap();
            victim.wait().unwrap();
            let lines = BufReader::new(survivor.stderr.take().unwrap()).lines();
            told = lines.map(Result::unwrap).find(|line| line.contains("its sweep of dead members' memory"));
            signal(&stopped, "CONT");
            end(stopped);
            end(survivor);
        },
    );
    (told.expect("a line about the sweep"), of_other)
}

fn signal(process: &Child, signal: &str) {
    let sent = Command::new("kill").args([&format!("-{signal}"), &process.id().to_string()]).status();
    assert!(sent.unwrap().success());
}

/// A sweep continues once all members have answered and no guard is older than it.
#[test]
fn a_waiting_sweep_is_reported_with_its_obstacle() {
    const TEST: &str = "shm::a_waiting_sweep_is_reported_with_its_obstacle";
    if let Some((case, cluster)) = case() {
        let run = cluster.run(1, async |ct| {
            let at = node(ct).await?;
            match case.as_str() {
                "computes" => {
                    eprintln!("{HOLDS}");
                    block_for_long();
                    Ok(())
                }
                "sleeps" => {
                    eprintln!("{HOLDS}");
                    a_long_time(ct).await;
                    Ok(())
                }
                case => hold(case, at, ct).await,
            }
        });
        run.unwrap();
        return;
    }
    let keeper = ["the background thread (0x", "its sweep of dead members' memory; "];
    let (line, other) = reported_of_a_sweep(TEST, "sleeps");
    assert_reported_once(
        &[line],
        &[keeper[0], keeper[1], &format!("(pid {other}), which is alive, has not answered")],
    );
    let (line, _) = reported_of_a_sweep(TEST, "computes");
    assert_reported_once(&[line], &[keeper[0], keeper[1], "1 idle threads of this process"]);
}

#[test]
fn a_sweep_that_waits_for_a_guard_is_reported_with_the_guards_thread() {
    const TEST: &str = "shm::a_sweep_that_waits_for_a_guard_is_reported_with_the_guards_thread";
    if let Some((case, cluster)) = case() {
        cluster.run(1, async |ct| hold(&case, node(ct).await?, ct).await).unwrap();
        return;
    }
    let sweeps = |options: &mut MemoryNodeOptions| options.sweep = true;
    with_memory("sweeps", sweeps, |url| {
        let mut holder = start_holder(TEST, "holds a guard", url, "50ms");
        let mut victim = start_holder(TEST, "holds a lock", url, "0");
        victim.kill().unwrap();
        victim.wait().unwrap();
        let line = BufReader::new(holder.stderr.take().unwrap()).lines().map(|line| line.unwrap());
        let line = line.into_iter().find(|line| line.contains("its sweep of dead members' memory"));
        end(holder);
        let told = [
            "the background thread (0x",
            "memory; the epoch is ",
            "thread 0 of this process is behind, with a guard",
        ];
        assert_reported_once(&[line.expect("a line about the sweep")], &told);
    });
}

#[test]
fn a_memory_node_that_does_not_answer_and_parts_that_do_not_come_are_reported() {
    const TEST: &str = "shm::a_memory_node_that_does_not_answer_and_parts_that_do_not_come_are_reported";
    if let Ok(case) = std::env::var(CASE) {
        let url = std::env::var(CLUSTER).unwrap();
        if case == "silent" {
            assert!(Cluster::connect(&url).unwrap_err().to_string().contains("does not answer"));
            return;
        }
        let part = u16::from(case == "part 1");
        let cluster = Cluster::connect(&url).unwrap().in_group("both", part, 2).unwrap();
        cluster.run(1, async |_| Ok(())).unwrap();
        return;
    }
    let mut options = MemoryNodeOptions::new(&format!("shm:silent-{}", std::process::id()));
    options.segment_bytes = 1 << 20;
    let memory = MemoryNode::listen(&options).unwrap();
    let (url, stopper) = (options.listen[0].clone(), memory.stopper().unwrap());
    let lines = stalls(TEST, "silent", &url, "50ms", &[]);
    assert_reported_once(
        &lines,
        &["the memory node of `shm:silent-", "to let this process in, which blocks the thread"],
    );
    std::thread::scope(|scope| {
        scope.spawn(|| memory.serve());
        let mut first = Command::new(std::env::current_exe().unwrap());
        first.args([TEST, "--exact", "--nocapture", "--test-threads", "1"]);
        first.env(CASE, "part 0").env(CLUSTER, &url).env("FARFIELD_STALL", "50ms");
        let mut first = first.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(first.stderr.take().unwrap()).lines();
        let line = said.find(|line| line.as_ref().unwrap().contains("parts of the group"));
        let line = line.expect("a line").unwrap();
        assert_reported_once(&[line], &["all 2 parts of the group `both`, of which this is part 0"]);
        assert_eq!(stalls(TEST, "part 1", &url, "3600s", &[]), [""; 0]);
        assert!(first.wait().unwrap().success());
        stopper.stop();
    });
}
