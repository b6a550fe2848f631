//! The program `pipeline` from outside: its output on every fabric without a network, the input it rejects, and its exit codes.

use std::process::{Command, Output};

use serde_json::Value;

const QUEUES: [&str; 3] = ["ring", "ms-queue", "priority-queue"];

fn pipeline(words: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pipeline")).args(words.split_whitespace()).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn report(words: &str) -> Value {
    let output = pipeline(&format!("--json {words}"));
    assert!(output.status.success(), "{words}: {}", text(&output.stderr));
    assert_eq!(text(&output.stdout).lines().count(), 1, "one object and nothing else");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Runs a pipeline, and checks what its report must have in any run.
fn passes(queue: &str, words: &str) -> Value {
    let report = report(&format!("--queue {queue} {words}"));
    assert_eq!((&report["verified"], &report["queue"]), (&true.into(), &queue.into()), "{report}");
    let stages = report["stages"].as_u64().unwrap();
    for depth in ["depth_mean", "depth_max"] {
        assert_eq!(report[depth].as_array().unwrap().len() as u64, stages, "{report}");
    }
    let [p50, p99] = ["latency_us_p50", "latency_us_p99"].map(|key| report[key].as_f64().unwrap());
    assert!(p50 > 0.0 && p50 <= p99, "{report}");
    report
}

/// Ways to divide the work: several producers, movers and consumers, of several threads or of one.
const WAYS: [&str; 4] = [
    "--threads 2",
    "--threads 4 --tasks 3",
    "--threads 1 --tasks 6 --stages 3",
    "--threads 3 --tasks 4 --stages 2",
];

#[test]
fn each_item_passes_each_queue_once_on_local_memory() {
    for queue in QUEUES {
        for way in WAYS {
            let report = passes(queue, &format!("{way} --items 1501"));
            assert_eq!(report["items"], 1501, "{report}");
            assert!(report["latency_rtts_p50"].is_null(), "there is no round trip to count: {report}");
        }
        passes(queue, "--cluster local:nodes=2,delay=4,size=16MiB --threads 2 --tasks 3 --items 600");
    }
}

#[test]
fn a_simulated_pipeline_is_measured_in_round_trips() {
    for queue in QUEUES {
        for way in WAYS {
            let words = format!("--cluster sim:nodes=2,seed=7 {way} --items 400");
            let first = passes(queue, &words);
            assert_eq!(first["items"], 400);
            // A push and a pop take a round trip each, at least; an item passes each queue by one of each.
            let trips = 2.0 * first["stages"].as_f64().unwrap();
            assert!(first["latency_rtts_p50"].as_f64().unwrap() >= trips, "{first}");
            for chains in ["push_chains", "pop_chains"] {
                assert!(first[chains].as_f64().unwrap() >= 1.0, "{first}");
            }
            assert_eq!(passes(queue, &words), first, "a run is a function of its seed");
        }
    }
}

#[test]
fn a_full_ring_makes_its_producers_wait() {
    for cluster in ["local:", "sim:"] {
        let report = passes("ring", &format!("--cluster {cluster} --capacity 1 --tasks 4 --items 500"));
        assert_eq!(report["capacity"], 1);
        assert!(report["push_waits"].as_u64().unwrap() > 0, "{report}");
        // An item is there until its pop has returned: each of the four consumers may have one.
        assert!((1..=1 + 4).contains(&report["depth_max"][0].as_u64().unwrap()), "{report}");
    }
    assert!(passes("ms-queue", "--items 100")["capacity"].is_null());
}

#[test]
fn a_pipeline_of_no_items_ends() {
    for queue in QUEUES {
        let report = report(&format!("--queue {queue} --items 0 --stages 2 --tasks 2"));
        assert_eq!((&report["verified"], &report["items"]), (&true.into(), &0.into()), "{report}");
    }
}

#[cfg(target_os = "linux")]
mod processes {
    use farfield::memory_node::{MemoryNode, MemoryNodeOptions};

    use super::*;

    #[test]
    fn each_item_passes_each_queue_once_on_shared_memory() {
        let url = format!("shm:pipeline-{}", std::process::id());
        let mut options = MemoryNodeOptions::new(&url);
        options.segment_bytes = 64 << 20;
        let node = MemoryNode::listen(&options).unwrap();
        let stopper = node.stopper().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| node.serve());
            // In one after the other, so that each finds what the others have left: nothing.
            for queue in QUEUES {
                for way in WAYS {
                    passes(queue, &format!("--cluster {url} {way} --items 1000"));
                }
            }
            stopper.stop();
        });
    }
}

#[test]
fn a_table_has_a_line_for_each_result() {
    let output = pipeline("--items 100");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let table = text(&output.stdout);
    for line in ["queue ", "items_per_sec ", "push_chains ", "latency_us_p99 ", "depth_mean ", "verified "] {
        assert!(table.lines().any(|found| found.starts_with(line)), "{line}: {table}");
    }
}

#[test]
fn bad_input_is_one_line_that_names_the_mistake() {
    for (words, named) in [
        ("--queue stack", "'stack' for '--queue"),
        ("--threads 0", "--threads"),
        ("--tasks 0", "--tasks"),
        ("--stages 0", "--stages"),
        ("--items many", "'many' for '--items"),
        ("--capacity 0", "--capacity"),
        ("--capacity 1048577", "'1048577' for '--capacity"),
        ("--queue ms-queue --capacity 5", "--capacity 5: the queue ms-queue has no bound"),
        ("--threads 1", "--threads 1 and --tasks 1: a pipeline of --stages 1 takes 2 tasks"),
        ("--stages 4 --tasks 2", "--threads 2 and --tasks 2: a pipeline of --stages 4 takes 5 tasks"),
        ("--threads 40000", "threads is 40000: a process has at most 8192 compute threads at a time"),
        ("--format xml", "'xml' for '--format"),
        ("--format table --json", "--json"),
        ("--colour red", "--colour"),
        ("--cluster far:away", "unknown fabric `far`"),
        ("--cluster local:size=64KiB --queue ms-queue --items 100000 --tasks 7", "out of memory"),
        ("--cluster sim:limit=1ms", "not done after 1000.000 us"),
    ] {
        let output = pipeline(words);
        assert_eq!(output.status.code(), Some(2), "{words}: {}", text(&output.stderr));
        assert_eq!(text(&output.stdout), "", "{words}");
        let line = text(&output.stderr);
        assert!(line.starts_with("error: ") && line.lines().count() == 1, "{words}: {line}");
        assert!(line.contains(named), "{words}: {line}");
    }
}
