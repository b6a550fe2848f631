//! The program `contest` from outside: its results on all engines, the input it rejects, and its exit codes.

use std::process::{Command, Output};

#[cfg(target_os = "linux")]
use farfield::memory_node::{MemoryNode, MemoryNodeOptions};
use serde_json::Value;

#[path = "../../runtime/tests/skip/mod.rs"]
mod skip;

const PHASES: [&str; 4] = ["write", "delete", "rewrite", "hot"];

fn contest(words: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_contest")).args(words.split_whitespace()).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Returns the reports, one for each engine.
fn reports(words: &str) -> Vec<Value> {
    let output = contest(&format!("--json --scale 0.0001 {words}"));
    assert!(output.status.success(), "{words}: {}", text(&output.stderr));
    let reports: Vec<Value> =
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for report in &reports {
        assert_eq!(report["verified"], true, "{report}");
        for phase in PHASES {
            let of = |key: &str| report[format!("{phase}.{key}")].as_f64();
            let [p50, p99, longest] =
                ["p50", "p99", "max"].map(|key| of(&format!("latency_us_{key}")).unwrap());
            assert!(p50 <= p99 && p99 <= longest && of("seconds").unwrap() > 0.0, "{report}");
            assert!(of("amplification").unwrap() > 1.0, "{report}");
        }
    }
    reports
}

#[test]
fn the_engine_passes_the_contest_within_its_budget() {
    for words in
        ["", "--encrypt --threads 3 --tasks 5", "--cluster sim:", "--cluster local:nodes=2,size=32MiB"]
    {
        let report = &reports(words)[0];
        assert_eq!(report["engine"], "far");
        let [budget, peak] = ["local_memory", "local_memory_peak"].map(|key| report[key].as_u64().unwrap());
        assert!(0 < peak && peak <= budget, "{report}");
        let name = if words.contains("encrypt") { "contest.encrypted" } else { "contest" };
        assert_eq!(report[format!("{name}.budget.over_bytes")], 0, "{report}");
        // With so few records, the pages that are being filled count for much.
        let amplification = report[format!("{name}.amplification.write")].as_f64().unwrap();
        assert!(amplification < if words.contains("encrypt") { 1.7 } else { 1.4 }, "{report}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn runs_on_one_cluster_follow_each_other() {
    let url = format!("shm:contest-{}", std::process::id());
    let mut options = MemoryNodeOptions::new(&url);
    options.segment_bytes = 32 << 20;
    let node = MemoryNode::listen(&options).unwrap();
    let stopper = node.stopper().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| node.serve());
        for words in ["--rounds 2", "--encrypt"] {
            reports(&format!("--cluster {url} {words}"));
        }
        stopper.stop();
    });
}

#[test]
fn servers_pass_the_same_contest() {
    for (engine, program) in [("redis", "redis-server"), ("memcached", "memcached")] {
        let output = contest(&format!("--scale 0.00002 --engine {engine}"));
        if text(&output.stderr).starts_with(&format!("error: {program}: ")) {
            skip::skip(engine, text(&output.stderr).trim());
            continue;
        }
        let reports = reports(&format!("--engine far,{engine} --rounds 2"));
        assert_eq!(
            [0, 1].map(|index| &reports[index]["engine"]).map(Value::as_str),
            [Some(engine), Some("far")]
        );
        for phase in PHASES {
            let ratio = reports[1][format!("contest.{phase}.ratio_to_{engine}")].as_f64().unwrap();
            assert!(ratio > 0.0, "{}", reports[1]);
            assert_eq!(reports[0][format!("{phase}.live_bytes")], reports[1][format!("{phase}.live_bytes")]);
        }
    }
}

#[test]
fn a_phase_alone_is_reported_and_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let plot = folder.path().join("contest.svg");
    let output = contest(&format!("--phase delete --scale 0.0001 --plot {}", plot.display()));
    let table = text(&output.stdout);
    assert!(output.status.success() && table.contains("delete.seconds") && !table.contains("write.seconds"));
    assert!(std::fs::read_to_string(plot).unwrap().starts_with("<svg"));
}

#[test]
fn each_mistake_is_an_error_of_one_line() {
    for (words, names) in [
        ("--engine leveldb", "leveldb"),
        ("--scale 0", "'0'"),
        ("--scale 2", "'2'"),
        ("--threads 0", "'0'"),
        ("--local-memory much", "much"),
        ("--scale 0.0001 --local-memory 64KiB", "local_bytes: 65536 is too little"),
        ("--cluster nowhere:", "nowhere"),
        ("--scale 0.0001 --cluster local:size=1MiB", "out of memory"),
        ("--plot /no/such/folder.svg", "/no/such/folder.svg"),
    ] {
        let output = contest(words);
        let (line, lines) = (text(&output.stderr), text(&output.stderr).lines().count());
        assert_eq!((output.status.code(), lines), (Some(2), 1), "{words}: {line}");
        assert!(line.starts_with("error: ") && line.contains(names), "{words}: {line}");
    }
}
