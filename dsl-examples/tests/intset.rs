//! The program `intset` from outside: its output, the input it rejects, and its exit codes.

use std::process::{Command, Output};

use serde_json::Value;

fn intset(words: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_intset")).args(words.split_whitespace()).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn report(words: &str) -> Value {
    let output = intset(&format!("--format json {words}"));
    assert!(output.status.success(), "{words}: {}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "", "no progress bar without a terminal");
    assert_eq!(text(&output.stdout).lines().count(), 1, "one object and nothing else");
    serde_json::from_slice(&output.stdout).unwrap()
}

const KEYS: &[&str] = &[
    "structure",
    "cluster",
    "threads",
    "tasks",
    "num_ops",
    "op_count",
    "duration_us",
    "ops_per_sec",
    "get_t",
    "get_f",
    "ins_t",
    "ins_f",
    "rmv_t",
    "rmv_f",
    "reads",
    "read_bytes",
    "writes",
    "write_bytes",
    "cas",
    "cas_failed",
    "faa",
    "chains",
    "doorbells",
    "allocated",
    "freed",
    "retired",
    "reclaimed",
    "final_size",
    "verified",
];

#[test]
fn every_mix_on_every_structure_is_verified() {
    for structure in ["lazy-list", "lazy-list-naive", "harris-list", "hash-set"] {
        for (threads, tasks) in [(1, 1), (2, 8), (8, 1), (8, 8)] {
            for share in [0, 10, 50] {
                let report = report(&format!(
                    "--structure {structure} --threads {threads} --tasks {tasks} --insert {share} --remove {share} \
                     --num-ops 500 --key-ub 100"
                ));
                assert_eq!(report["verified"], true, "{report}");
                assert_eq!(report["op_count"], threads * 500);
                let answers = ["get_t", "get_f", "ins_t", "ins_f", "rmv_t", "rmv_f"];
                let count: u64 = answers.iter().map(|answer| report[answer].as_u64().unwrap()).sum();
                assert_eq!(report["op_count"], count);
                let updates = report["ins_t"].as_u64().unwrap() + report["rmv_t"].as_u64().unwrap();
                assert_eq!(updates == 0, share == 0, "{report}");
            }
        }
    }
}

#[test]
fn the_report_has_its_keys_in_order() {
    let report = report("--num-ops 10 --key-ub 20");
    let keys: Vec<&str> = report.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, KEYS);
}

#[test]
fn a_simulated_run_can_be_repeated() {
    let words = "--threads 8 --num-ops 200 --key-ub 128 --cluster";
    let run = |url: &str| report(&format!("{words} {url}"));
    let (one, again, other) = (run("sim:seed=1"), run("sim:seed=1"), run("sim:seed=2"));
    assert_eq!(one, again, "everything is the same, the times included");
    assert_ne!(one["trace_hash"], other["trace_hash"]);
    let keys: Vec<&str> = one.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, [KEYS, &["latency_rtts", "trace_hash"]].concat());
    assert_eq!(one["trace_hash"].as_str().unwrap().len(), 16);
}

#[test]
fn round_trips_are_counted_exactly() {
    // One key, which is present: each search reads the head's link and one node.
    let report = report(
        "--threads 1 --num-ops 100 --key-lb 5 --key-ub 5 --prefill 100 --insert 50 --remove 0 \
         --cluster sim:jitter=0%,bandwidth=inf,rate=inf,compute=0",
    );
    for kind in ["get", "insert"] {
        for figure in ["mean", "p50", "p99"] {
            assert_eq!(report["latency_rtts"][kind][figure], 2.0, "{kind} {figure}: {report}");
        }
    }
    assert_eq!(report["latency_rtts"]["remove"], Value::Null);
    let microseconds = report["duration_us"].as_u64().unwrap();
    assert_eq!(microseconds, 400, "a hundred operations of two round trips of 2 us");
    assert_eq!(report["ops_per_sec"], 250_000);
}

#[test]
fn unusual_workloads_are_verified_too() {
    for words in [
        "--num-ops 0 --key-ub 500",
        "--num-ops 0 --key-ub 500 --cluster sim:",
        "--num-ops 300 --key-ub 500 --threads 3 --tasks 4 --cluster sim:nodes=3,size=64KiB,rate=1M",
        "--prefill 0 --num-ops 100",
        "--prefill 100 --key-ub 5 --num-ops 100 --threads 8",
        "--key-lb 7 --key-ub 7 --insert 50 --remove 50 --num-ops 300 --threads 4",
        "--key-lb 18446744073709551614 --key-ub 18446744073709551615 --num-ops 50",
        "--tasks 7 --num-ops 5 --key-ub 500",
        "--cluster local:nodes=3,segments=2,size=64KiB --key-ub 200 --num-ops 100",
        "--cluster local:delay=4 --key-ub 30 --num-ops 100 --tasks 4 --insert 50 --remove 50",
    ] {
        assert_eq!(report(words)["verified"], true, "{words}");
    }
}

#[test]
fn the_same_seed_draws_the_same_operations() {
    let answers = |seed: u64| {
        let report = report(&format!("--threads 1 --num-ops 2000 --key-ub 64 --seed {seed}"));
        ["get_t", "ins_t", "rmv_t", "reads", "final_size"].map(|key| report[key].as_u64().unwrap())
    };
    assert_eq!(answers(5), answers(5));
    assert_ne!(answers(5), answers(6));
}

#[test]
fn results_can_be_written_to_a_file() {
    let file = std::env::temp_dir().join(format!("farfield-intset-{}.txt", std::process::id()));
    let output = intset(&format!("--num-ops 10 --key-ub 20 --metrics {}", file.display()));
    assert!(output.status.success());
    let lines = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    let keys: Vec<&str> = lines.lines().map(|line| line.split(": ").next().unwrap()).collect();
    assert_eq!(keys, KEYS);
    assert!(lines.contains("verified: true\n") && lines.contains("structure: lazy-list\n"));
    assert_eq!(text(&output.stdout).lines().count(), KEYS.len(), "the table too");
}

#[test]
fn bad_input_is_one_line_that_names_the_mistake() {
    for (words, named) in [
        ("--threads 0", "--threads"),
        ("--threads 40000", "threads is 40000: a process has at most 8192 compute threads at a time"),
        ("--threads 8193 --cluster local:delay=3", "threads is 8193: a process has at most 8192"),
        (
            "--threads 100000 --num-ops 1 --cluster sim:",
            "threads is 100000 on 100000 compute nodes: a cluster has epoch slots for 16510 compute nodes; raise the option \
             `threads-per-node`",
        ),
        ("--threads 262145 --cluster sim:", "threads is 262145: a simulated run has at most 262144 threads"),
        ("--threads 18446744073709551615", "threads is 18446744073709551615: a process has at most"),
        ("--threads 18446744073709551615 --cluster sim:", "a simulated run has at most 262144 threads"),
        ("--threads 18446744073709551616", "--threads"),
        ("--tasks 0", "--tasks"),
        ("--insert 80 --remove 40", "--insert 80 and --remove 40"),
        ("--key-lb 10 --key-ub 5", "--key-lb 10"),
        ("--prefill 101", "--prefill"),
        ("--num-ops many", "--num-ops"),
        ("--structure tree", "tree"),
        ("--format xml", "xml"),
        ("--colour red", "--colour"),
        ("--cluster far:away", "unknown fabric `far`"),
        ("--cluster nowhere", "nowhere"),
        ("--cluster local:colour=red", "unknown option `colour`"),
        ("--cluster local:nodes=0", "nodes=0"),
        ("--cluster local:size=0", "size=0"),
        ("--cluster local:size=4KiB", "size=4096"),
        ("--cluster local:size=16EiB", "16EiB"),
        ("--cluster sim:colour=red", "unknown option `colour`"),
        ("--cluster sim:rate=0", "rate=0"),
        ("--cluster sim:rtt=-2us", "rtt=-2us"),
        ("--cluster sim:rtt=9000s", "rtt=9000s is too long"),
        ("--cluster sim:nodes=65536", "nodes=65536"),
        ("--cluster sim:nodes=40000,segments=2", "nodes=40000,segments=2: a cluster has 1 to 65536 segments"),
        ("--cluster sim:limit=1ms --num-ops 100", "not done after 1000.000 us"),
        ("--cluster sim:memory-crash=100%", "memory node 0 did not answer within 100 us"),
        ("--metrics /nowhere/at/all", "--metrics /nowhere/at/all"),
        ("--cluster local:size=64KiB", "out of memory: no room for 24 bytes; tried segment 0"),
        ("--cluster local:size=64KiB,segments=2 --key-ub 40000", "tried segments 0, 1"),
    ] {
        let output = intset(words);
        let line = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words}: {line}");
        assert!(line.contains(named) && line.starts_with("error: "), "{words}: {line}");
        assert_eq!(line.lines().count(), 1, "{words}: {line}");
        assert_eq!(text(&output.stdout), "", "{words}");
    }
}

#[test]
fn help_is_not_an_error() {
    let output = intset("--help");
    assert!(output.status.success() && text(&output.stdout).contains("--prefill"));
}

#[test]
fn hello_says_hello() {
    let output = Command::new(env!("CARGO_BIN_EXE_hello")).output().unwrap();
    assert!(output.status.success());
    assert_eq!(text(&output.stdout), "4 threads say hello, far memory\n");
    let elsewhere =
        Command::new(env!("CARGO_BIN_EXE_hello")).env("FARFIELD_CLUSTER", "moon:").output().unwrap();
    assert_eq!(elsewhere.status.code(), Some(2));
    let said = "error: cluster URL `moon:`: unknown fabric `moon`; this build has `local`";
    assert!(text(&elsewhere.stderr).starts_with(said));
    assert_eq!(text(&elsewhere.stderr).lines().count(), 1);
}
