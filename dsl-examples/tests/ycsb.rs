//! The program `ycsb` from outside: its output, joint runs, the input it rejects, and its exit codes.

use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn command(words: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ycsb"));
    command.args(words.split_whitespace());
    command
}

fn ycsb(words: &str) -> Output {
    command(words).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn parsed(words: &str, output: &Output) -> Value {
    assert!(output.status.success(), "{words}: {}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "", "no progress bar without a terminal");
    assert_eq!(text(&output.stdout).lines().count(), 1, "one object and nothing else");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn report(words: &str) -> Value {
    parsed(words, &ycsb(&format!("--format json {words}")))
}

#[test]
fn every_workload_is_verified() {
    for (workload, kinds, distribution) in [
        ("a", &["load", "read", "update"][..], "zipfian"),
        ("b", &["load", "read", "update"], "zipfian"),
        ("C", &["load", "read"], "zipfian"),
        ("d", &["load", "read", "insert"], "latest"),
        ("f", &["load", "read", "read-modify-write"], "zipfian"),
    ] {
        for words in [
            "--threads 1",
            "--threads 4 --tasks 4",
            "--threads 2 --tasks 3 --cluster sim:nodes=2",
            "--threads 2 --key-size 8 --value-size 32",
            "--threads 2 --tasks 2 --cluster local:nodes=2,delay=4,size=16MiB --key-size 100 --value-size 1001",
        ] {
            let report = report(&format!("--workload {workload} --records 300 --ops 600 {words}"));
            assert_eq!(report["verified"], true, "{report}");
            assert_eq!(report["distribution"], distribution);
            assert_eq!(report["op_count"], report["threads"].as_u64().unwrap() * 600);
            let operations = report["operations"].as_object().unwrap();
            assert_eq!(operations.keys().collect::<Vec<_>>(), kinds, "{report}");
            assert_eq!(operations["load"]["count"], 300);
            let inserted = operations.get("insert").map_or(0, |insert| insert["count"].as_u64().unwrap());
            assert_eq!(report["final_size"], 300 + inserted);
            assert_eq!(report["checked"], report["final_size"], "every value is checked: {report}");
            assert!(report["bytes_per_record"].as_f64().unwrap() > report["value_size"].as_f64().unwrap());
        }
    }
}

#[test]
fn every_workload_on_words_is_verified() {
    for workload in ["a", "b", "c", "d", "f"] {
        for words in ["--threads 4 --tasks 4", "--threads 2 --tasks 3 --cluster sim:nodes=2"] {
            for structure in ["inline-hash-map", "interlocked"] {
                let report = report(&format!(
                    "--structure {structure} --workload {workload} --records 300 --ops 600 {words}"
                ));
                assert_eq!(report["verified"], true, "{report}");
                assert_eq!((&report["key_size"], &report["value_size"]), (&8.into(), &8.into()));
                assert_eq!(report["checked"], report["final_size"], "every value is checked: {report}");
            }
        }
    }
}

/// The ordered structures with each form of keys and values that they take.
const ORDERED: [&str; 5] = [
    "--structure skip-list",
    "--structure ordered-map --key-size 8 --value-size 8",
    "--structure ordered-map --key-size 8",
    "--structure ordered-map --key-size 20 --value-size 8",
    "--structure ordered-map",
];

#[test]
fn every_workload_on_ordered_maps_is_verified() {
    for workload in ["a", "b", "c", "d", "e", "f"] {
        for words in ["--threads 4 --tasks 4", "--threads 2 --tasks 3 --cluster sim:nodes=2"] {
            for structure in ORDERED {
                let report =
                    report(&format!("{structure} --workload {workload} --records 150 --ops 100 {words}"));
                assert_eq!(report["verified"], true, "{report}");
                assert_eq!(report["checked"], report["final_size"], "every value is checked: {report}");
                assert_eq!(report["operations"].get("scan").is_some(), workload == "e", "{report}");
            }
        }
    }
}

#[test]
fn scans_are_measured() {
    for structure in ORDERED {
        for (option, longest, mean) in [("", 100, 45.0..=56.0), ("--scan-length 9", 9, 4.5..=5.5)] {
            // A scan that begins close to the last key is shorter.
            let words = "--workload e --records 3000 --ops 400 --distribution uniform --cluster sim:";
            let report = report(&format!("{structure} {words} {option}"));
            let number = |value: &Value| value.as_f64().unwrap();
            let scan = &report["operations"]["scan"];
            let scans = number(&scan["count"]);
            assert!((730.0..790.0).contains(&scans), "95 % of 800 operations: {report}");
            assert_eq!(report["scan_length"], longest);
            let scanned = number(&report["records_scanned"]) / scans;
            assert!(mean.contains(&scanned), "{scanned} records a scan: {report}");
            let trips = number(&scan["round_trips"]["mean"]);
            assert!((1.0..100.0).contains(&trips), "{report}");
            assert!(number(&scan["latency_rtts"]["p50"]) >= 1.0, "{report}");
        }
    }
}

#[test]
fn a_warm_scan_of_a_leaf_is_one_round_trip() {
    // A thread knows the nodes above the only leaf, whose 20 words it reads in one chain.
    let words = "--structure ordered-map --key-size 8 --value-size 8 --threads 1 --records 20 --ops 100 --workload e \
                 --scan-length 5 --cluster sim:";
    let report = report(words);
    assert_eq!(report["operations"]["scan"]["round_trips"]["p50"], 1, "{report}");
}

#[test]
fn scans_are_drawn() {
    let file = std::env::temp_dir().join(format!("farfield-ycsb-scans-{}.svg", std::process::id()));
    let words = "--structure skip-list --workload e --records 100 --ops 200 --tasks 2 --cluster sim:";
    let report = report(&format!("{words} --plot {}", file.display()));
    let svg = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    assert!(svg.contains("skip-list, workload e") && svg.contains("scan p99") && svg.contains("insert p50"));
    assert_eq!(report["series"].as_array().unwrap().len(), 2);
}

#[test]
fn the_distribution_can_be_chosen() {
    for distribution in ["uniform", "zipfian", "latest"] {
        for workload in ["a", "d"] {
            let words = "--records 100 --ops 500 --threads 2 --tasks 2";
            let report = report(&format!("{words} --workload {workload} --distribution {distribution}"));
            assert_eq!((&report["verified"], &report["distribution"]), (&true.into(), &distribution.into()));
        }
    }
}

#[test]
fn a_simulated_run_can_be_repeated() {
    let run = |url: &str| report(&format!("--threads 4 --tasks 2 --ops 300 --records 200 --cluster {url}"));
    let (one, again, other) = (run("sim:seed=1"), run("sim:seed=1"), run("sim:seed=2"));
    assert_eq!(one, again, "everything is the same, the times included");
    assert_ne!(one["trace_hash"], other["trace_hash"]);
}

#[test]
fn round_trips_are_counted_exactly() {
    // A thread that knows the slot of its only record: a read is one round trip, an update two.
    let words = "--threads 1 --records 1 --ops 500 --workload a \
                 --cluster sim:jitter=0%,bandwidth=inf,rate=inf,compute=0,doorbell=0ns";
    let report = report(words);
    for (kind, round_trips) in [("read", 1), ("update", 2)] {
        let figures = &report["operations"][kind];
        assert_eq!(figures["round_trips"]["p50"], round_trips, "{report}");
        assert_eq!(figures["latency_rtts"]["p50"], f64::from(round_trips), "{report}");
    }
}

#[test]
fn unusual_sizes_are_verified_too() {
    for words in [
        "--ops 0",
        "--ops 0 --cluster sim:",
        "--records 1 --threads 3 --tasks 5 --ops 50",
        "--records 3 --ops 30 --threads 1 --value-size 1MiB",
        "--records 50 --ops 5 --tasks 9",
        "--records 50 --ops 100 --workload d --threads 5 --tasks 3 --distribution uniform",
    ] {
        assert_eq!(report(words)["verified"], true, "{words}");
    }
}

#[test]
fn the_table_has_a_line_for_each_operation() {
    let output = ycsb("--records 100 --ops 100 --workload b");
    assert!(output.status.success());
    let table = text(&output.stdout);
    for line in ["structure ", "verified ", "operations ", "load ", "read ", "update "] {
        assert!(table.lines().any(|found| found.starts_with(line)), "{line}: {table}");
    }
    assert!(table.contains("latency_us.p99.9") && table.contains("round_trips.mean"));
}

#[test]
fn a_series_is_drawn() {
    let file = std::env::temp_dir().join(format!("farfield-ycsb-{}.svg", std::process::id()));
    let report =
        report(&format!("--records 100 --ops 200 --tasks 4 --cluster sim: --plot {}", file.display()));
    let svg = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("read p99") && svg.contains("update p50"));
    let tasks: Vec<&Value> = report["series"].as_array().unwrap().iter().map(|run| &run["tasks"]).collect();
    assert_eq!(tasks, [1, 2, 4]);
    assert_eq!(report["verified"], true);
}

#[test]
fn bad_input_is_one_line_that_names_the_mistake() {
    for (words, named) in [
        ("--records 0", "--records"),
        ("--value-size 31", "a value has at least 32 bytes, the header of the check"),
        ("--value-size 1048577", "'1048577' for '--value-size"),
        ("--value-size 2GiB", "a value has at most 1 MiB"),
        ("--key-size 12", "'12' for '--key-size"),
        ("--workload e", "--workload e: the structure hash-map has no scans"),
        (
            "--structure inline-hash-map --workload e",
            "--workload e: the structure inline-hash-map has no scans",
        ),
        (
            "--structure inline-hash-map --value-size 32",
            "--value-size 32: a value of inline-hash-map has 8 bytes",
        ),
        ("--structure inline-hash-map --key-size 16", "--key-size 16: a key of inline-hash-map has 8 bytes"),
        ("--value-size 8", "--value-size 8: a value of hash-map has at least 32 bytes"),
        ("--structure interlocked --workload e", "--workload e: the structure interlocked has no scans"),
        ("--structure skip-list --key-size 16", "--key-size 16: a key of skip-list has 8 bytes"),
        ("--structure ordered-map --value-size 9", "'9' for '--value-size"),
        ("--structure ordered-map --workload e --scan-length 0", "'0' for '--scan-length"),
        ("--structure ordered-map --scan-length 5", "--scan-length 5: the workload a has no scans"),
        (
            "--structure ordered-map --workload e --records 1099511627776 --cluster local:size=256KiB",
            "out of memory",
        ),
        ("--workload g", "'g' for '--workload"),
        ("--workload ab", "'ab' for '--workload"),
        ("--structure tree", "'tree' for '--structure"),
        ("--distribution normal", "'normal' for '--distribution"),
        ("--threads 0", "--threads"),
        ("--threads 40000", "threads is 40000: a process has at most 8192 compute threads at a time"),
        ("--tasks 0", "--tasks"),
        ("--ops many", "'many' for '--ops"),
        ("--format xml", "'xml' for '--format"),
        ("--nodes 2 --node-id 2", "--node-id 2: with --nodes 2 it must be below 2"),
        ("--nodes 2", "part 0 of 2: the cluster is private to this process"),
        ("--colour red", "--colour"),
        ("--cluster far:away", "unknown fabric `far`"),
        ("--cluster sim:limit=1ms", "not done after 1000.000 us"),
        ("--cluster local:size=64KiB", "out of memory"),
        ("--plot /nowhere/at/all.svg", "--plot /nowhere/at/all.svg"),
        ("--plot /dev/null --ops 0", "the plot: there are no operations to draw"),
    ] {
        let output = ycsb(words);
        let line = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words}: {line}");
        assert!(line.contains(named) && line.starts_with("error: "), "{words}: {line}");
        assert_eq!(line.lines().count(), 1, "{words}: {line}");
        assert_eq!(text(&output.stdout), "", "{words}");
    }
}

#[test]
fn help_is_not_an_error() {
    let output = ycsb("--help");
    assert!(output.status.success() && text(&output.stdout).contains("--value-size"));
}

#[cfg(target_os = "linux")]
mod processes {
    use super::*;
    use farfield::memory_node::{MemoryNode, MemoryNodeOptions, Stopper};

    /// Calls a closure with the URLs of a memory node, by `shm:` and by `tcp:`.
    fn with_node(name: &str, body: impl FnOnce(&[String])) {
        let mut options = MemoryNodeOptions::new(&format!("shm:ycsb-{name}-{}", std::process::id()));
        options.listen.push("tcp://127.0.0.1:0".to_owned());
        (options.nodes, options.segment_bytes) = (2, 16 << 20);
        let node = MemoryNode::listen(&options).unwrap();
        let (urls, stopper) = (node.urls().to_vec(), node.stopper().unwrap());
        std::thread::scope(|scope| {
            scope.spawn(|| node.serve().unwrap());
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| body(&urls)));
            Stopper::stop(&stopper);
            outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        });
    }

    /// Runs a program for each command line at the same time.
    fn together(words: &[String]) -> Vec<Output> {
        let started = words.iter().map(|words| {
            let mut command = command(words);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        });
        let started: Vec<_> = started.collect();
        started.into_iter().map(|child| child.wait_with_output().unwrap()).collect()
    }

    #[test]
    fn the_figures_of_a_joint_run_are_those_of_all_processes() {
        with_node("joint", |urls| {
            for workload in ["a", "d", "f", "e --structure ordered-map", "e --structure skip-list"] {
                let words = [0, 1, 2].map(|part| {
                    let url = &urls[part % urls.len()];
                    format!(
                        "--format json --workload {workload} --records 300 --ops 400 --threads 2 --tasks 3 --nodes 3 \
                         --node-id {part} --cluster {url}"
                    )
                });
                let outputs = together(&words);
                let reports: Vec<Value> =
                    words.iter().zip(&outputs).map(|(words, output)| parsed(words, output)).collect();
                for report in &reports {
                    assert_eq!(report["verified"], true, "{report}");
                    assert_eq!((&report["op_count"], &report["nodes"]), (&2400.into(), &3.into()));
                    assert_eq!(report["operations"]["load"]["count"], 300);
                    assert_eq!(report["checked"], report["final_size"]);
                    for same in ["operations", "ops_per_sec", "chains", "slot_hits", "bytes_per_record"] {
                        assert_eq!(report[same], reports[0][same], "{same}");
                    }
                }
            }
        });
    }

    #[test]
    fn processes_with_different_arguments_are_refused() {
        with_node("terms", |urls| {
            let words = [0, 1].map(|part| {
                let (records, url) = (100 + part, &urls[0]);
                format!("--records {records} --ops 10 --nodes 2 --node-id {part} --cluster {url}")
            });
            let outputs = together(&words);
            let said: String = outputs.iter().map(|output| text(&output.stderr)).collect();
            assert!(outputs.iter().all(|output| output.status.code() == Some(2)), "{said}");
            assert!(said.contains("has a different --structure, --workload"), "{said}");
        });
    }

    #[test]
    fn a_run_leaves_its_memory_to_the_next() {
        with_node("again", |urls| {
            // 12 MB each, of 32 MiB.
            for url in urls.iter().cycle().take(4) {
                let report = report(&format!(
                    "--workload c --records 190 --value-size 64KiB --ops 20 --cluster {url}"
                ));
                assert_eq!(report["verified"], true);
            }
        });
    }
}
