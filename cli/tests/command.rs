//! The command on simulated clusters, and its error messages. `cargo xtask rdma-test` tests it on RDMA devices.

use std::process::{Command, Output};

fn farfield(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_farfield")).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn ping_prints_percentiles_of_four_operations_for_each_memory_node() {
    let output = farfield(&["ping", "sim:nodes=2,jitter=0%", "--count", "20"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let printed = text(&output.stdout);
    for name in ["memory node 0", "memory node 1"] {
        assert!(printed.contains(name), "{printed}");
    }
    let rows: Vec<&str> =
        printed.lines().filter(|line| line.starts_with("  ") && !line.contains("p50")).collect();
    let names: Vec<&str> = rows.iter().filter_map(|row| row.split_whitespace().next()).collect();
    assert_eq!(names, ["read", "write", "cas", "faa"].repeat(2));
    for row in rows {
        let times: Vec<f64> = row.split_whitespace().skip(1).map(|time| time.parse().unwrap()).collect();
        assert!(times.is_sorted() && times.len() == 5 && times[0] >= 2.0, "a round trip is 2 us: {row}");
    }
}

#[test]
fn ping_prints_json_and_rates() {
    let output = farfield(&["ping", "sim:", "--count", "20", "--rate", "16", "--format", "json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let slowest = report["nodes"][0]["faa"]["p99_us"].as_f64().unwrap();
    assert!((2.0..2.5).contains(&slowest), "a round trip is 2 us: {slowest}");
    // 16 at a time, 2 us each.
    let rate = report["reads_per_s"].as_f64().unwrap();
    assert!((7e6..=8e6).contains(&rate), "{rate}");
}

#[test]
fn mistakes_are_one_line_and_exit_code_2() {
    for (arguments, message) in [
        (&["ping", "moon:"][..], "unknown fabric `moon`"),
        (&["ping", "local:size=3"], "size=3: a segment has"),
        (
            &["ping", "rdma://"],
            if cfg!(feature = "verbs") { "not HOST:PORT" } else { "needs one with `--features verbs`" },
        ),
    ] {
        let output = farfield(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).contains(message), "{}", text(&output.stderr));
        assert_eq!(text(&output.stderr).lines().count(), 1);
    }
}

#[cfg(not(feature = "verbs"))]
#[test]
fn an_error_without_rdma_names_the_missing_feature() {
    for arguments in [&["memnode", "--listen", "rdma://10.0.0.1:7000"][..], &["devices"]] {
        let output = farfield(arguments);
        assert_eq!(output.status.code(), Some(2));
        let message = text(&output.stderr);
        assert!(
            message.starts_with("error: this build has no RDMA: ")
                && message.ends_with("`--features verbs`\n"),
            "{message}"
        );
    }
}

#[test]
fn a_reader_that_ends_early_is_no_error_and_a_full_disk_is_one() {
    let (reader, closed) = std::io::pipe().unwrap();
    drop(reader);
    let ping = |output: std::process::Stdio| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_farfield"));
        command.args(["ping", "local:", "--count", "10"]).stdout(output).output().unwrap()
    };
    let output = ping(closed.into());
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
    if let Ok(full) = std::fs::File::options().write(true).open("/dev/full") {
        let output = ping(full.into());
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).starts_with("error: can not write to the standard output: "));
    }
}
