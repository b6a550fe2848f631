//! The programs `delegated_counter` and `bank` from outside: what they verify, the input they reject, and their exit codes.

use std::process::{Command, Output, Stdio};

use serde_json::Value;

const COUNTER: &str = env!("CARGO_BIN_EXE_delegated_counter");
const BANK: &str = env!("CARGO_BIN_EXE_bank");

fn run(program: &str, words: &str) -> Output {
    Command::new(program).args(words.split_whitespace()).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn parsed(output: &Output, words: &str) -> Vec<Value> {
    assert!(output.status.success(), "{words}: {}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "");
    text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The reports of all variants, verified.
fn reports(program: &str, words: &str) -> Vec<Value> {
    let reports = parsed(&run(program, &format!("--format json {words}")), words);
    for report in &reports {
        assert_eq!(report["verified"], true, "{words}: {report}");
    }
    reports
}

#[test]
fn the_count_is_right_in_every_variant() {
    for cluster in ["local:", "local:delay=3", "sim:", "sim:jitter=50%,threads-per-node=2"] {
        for words in ["--threads 1 --tasks 3", "--threads 3", "--threads 4 --tasks 4 --idle-trustee"] {
            let words = format!("--cluster {cluster} --ops 101 {words}");
            let reports = reports(COUNTER, &words);
            let variants: Vec<_> = reports.iter().map(|report| report["variant"].as_str().unwrap()).collect();
            assert_eq!(variants, ["delegated", "lock", "faa"]);
            for report in &reports {
                let clients = if words.contains("idle") { 3 } else { report["threads"].as_u64().unwrap() };
                assert_eq!(report["count"], clients * 101, "{report}");
                assert_eq!(report["operations"], report["count"]);
            }
        }
    }
}

#[test]
fn a_run_may_have_no_operations() {
    assert_eq!(reports(COUNTER, "--ops 0 --cluster sim:").len(), 3);
    assert_eq!(reports(BANK, "--ops 0 --cluster sim:").len(), 2);
}

#[test]
fn money_is_neither_made_nor_lost() {
    for cluster in ["local:", "local:delay=3", "sim:", "sim:jitter=50%,threads-per-node=2"] {
        for words in [
            "--threads 1 --shards 1 --accounts 2",
            "--threads 2 --tasks 3 --money 10 --amount 20",
            "--threads 4 --tasks 4 --shards 3 --accounts 7",
        ] {
            let words = format!("--cluster {cluster} --ops 100 {words}");
            let reports = reports(BANK, &words);
            let variants: Vec<_> = reports.iter().map(|report| report["variant"].as_str().unwrap()).collect();
            assert_eq!(variants, ["delegated", "client"]);
            for report in &reports {
                assert!(report["refused"].as_u64() > Some(0), "{report}");
                // One of two accounts that has room for all money is never full.
                assert!(report["returned"].as_u64() > Some(0) || report["accounts"] == 2, "{report}");
            }
        }
    }
}

#[test]
fn a_simulated_run_can_be_repeated() {
    for (program, words) in [(COUNTER, "--threads 5 --tasks 2"), (BANK, "--threads 3 --tasks 2")] {
        let of = |seed: u64| reports(program, &format!("{words} --ops 200 --cluster sim:seed={seed}"));
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
    }
}

#[test]
fn one_variant_can_be_run_alone_and_shown_as_a_table() {
    for (program, variant) in [(COUNTER, "delegated"), (COUNTER, "faa"), (BANK, "client")] {
        let output = run(program, &format!("--variant {variant} --ops 10"));
        assert!(output.status.success());
        let lines: Vec<Vec<&str>> =
            text(&output.stdout).lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["variant", variant]);
        assert_eq!(lines.last().unwrap()[..], ["verified", "true"]);
    }
}

#[test]
fn bad_input_is_one_line_that_names_the_mistake() {
    for (program, words, named) in [
        (COUNTER, "--threads 0", "--threads"),
        (COUNTER, "--threads 8193 --ops 1", "threads is 8193: a process has at most 8192"),
        (COUNTER, "--tasks 0", "--tasks"),
        (COUNTER, "--tasks 1048577", "--tasks"),
        (COUNTER, "--ops many", "--ops"),
        (COUNTER, "--ops 9999999999999", "--ops"),
        (COUNTER, "--variant spin", "spin"),
        (COUNTER, "--format xml", "xml"),
        (COUNTER, "--colour red", "--colour"),
        (COUNTER, "--nodes 2 --node-id 2", "--node-id 2: with --nodes 2 it must be below 2"),
        (COUNTER, "--nodes 2", "the cluster is private to this process"),
        (COUNTER, "--threads 1 --idle-trustee", "--idle-trustee: with --threads 1 no thread is left"),
        (COUNTER, "--cluster nowhere", "nowhere"),
        (COUNTER, "--cluster sim:limit=1ms --ops 5000", "not done after 1000.000 us"),
        (BANK, "--threads 0", "--threads"),
        (BANK, "--shards 0", "--shards"),
        (BANK, "--threads 2 --shards 3", "--shards 3: there are 2 threads"),
        (BANK, "--threads 8 --shards 8 --accounts 7", "--shards 8: there are 7 accounts"),
        (BANK, "--accounts 1", "--accounts"),
        (BANK, "--amount 0", "--amount"),
        (BANK, "--money=-1", "--money"),
        (BANK, "--variant both", "both"),
        (BANK, "--node-id 1", "--node-id 1: with --nodes 1 it must be below 1"),
        (BANK, "--cluster far:away", "unknown fabric `far`"),
    ] {
        let output = run(program, words);
        let line = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words}: {line}");
        assert!(line.contains(named) && line.starts_with("error: "), "{words}: {line}");
        assert_eq!(line.lines().count(), 1, "{words}: {line}");
        assert_eq!(text(&output.stdout), "", "{words}");
    }
    assert!(run(COUNTER, "--help").status.success() && run(BANK, "--help").status.success());
}

/// Three processes share a memory node's memory, and requests go from each to the first.
#[cfg(target_os = "linux")]
#[test]
fn several_processes_count_and_transfer_together() {
    use farfield::memory_node::{MemoryNode, MemoryNodeOptions};

    let url = format!("shm:delegation-{}", std::process::id());
    let node = MemoryNode::listen(&MemoryNodeOptions::new(&url)).unwrap();
    let stopper = node.stopper().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| node.serve());
        // Twice: the second run finds what the first has left.
        for (program, words) in [
            (COUNTER, "--threads 1 --tasks 4 --ops 300"),
            (BANK, "--threads 1 --tasks 2 --ops 300 --shards 3"),
        ]
        .repeat(2)
        {
            let start = |id: u16| {
                let words = format!("--format json --cluster {url} --nodes 3 --node-id {id} {words}");
                let mut command = Command::new(program);
                command.args(words.split_whitespace()).stdout(Stdio::piped()).stderr(Stdio::piped());
                command.spawn().unwrap()
            };
            let children = [0, 1, 2].map(start);
            for child in children {
                for report in parsed(&child.wait_with_output().unwrap(), words) {
                    assert_eq!(report["verified"], true, "{report}");
                    assert_eq!(report["nodes"], 3);
                    let operations = report["operations"].as_u64().or(report["transfers"].as_u64());
                    assert_eq!(operations, Some(900), "{report}");
                }
            }
        }
        stopper.stop();
    });
}
