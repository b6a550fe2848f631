//! The tools of the command `farfield`, on a cluster whose memory is corrupt.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use super::cluster::{Cluster, MemoryNode, Paths};
use super::watched::{Failure, PATIENCE};

/// The roots that the programs make.
const ROOTS: [&str; 6] = ["control", "lazy list", "Harris list", "stack", "queue", "extras"];

/// The failures and errors of tools.
#[derive(Default)]
pub(super) struct Outcome {
    pub(super) failures: Vec<Failure>,
    pub(super) errors: Vec<String>,
    pub(super) peak_kib: u64,
}

/// Runs commands in parallel, each with its role.
fn run(paths: &Paths, commands: &[(&'static str, Vec<&str>)], outcome: &mut Outcome) -> Result<(), String> {
    let mut running = Vec::new();
    for (number, (role, arguments)) in commands.iter().enumerate() {
        let log = format!("tool-{number}");
        let mut watched = paths.watched(role, &log, &paths.farfield(), arguments)?;
        let out = watched.process.0.stdout.take();
        // Its output is read, so that it does not block.
        let reader =
            std::thread::spawn(move || out.map(|mut out| std::io::copy(&mut out, &mut std::io::sink())));
        running.push((role, watched, reader));
    }
    for (role, mut watched, reader) in running {
        outcome.failures.extend(watched.end());
        outcome.errors.extend(watched.error().map(|error| format!("{role}: {error}")));
        outcome.peak_kib = outcome.peak_kib.max(watched.peak_kib());
        drop(watched);
        let _ = reader.join();
    }
    Ok(())
}

/// Runs the tools for a cluster in use. The case's number selects the root to dump and the depth.
pub(super) fn beside_programs(paths: &Paths, cluster: &Cluster, case: u64) -> Result<Outcome, String> {
    let mut outcome = Outcome::default();
    let url = cluster.url();
    let root = ROOTS[case as usize % ROOTS.len()];
    let depth = if case.is_multiple_of(3) { "1000" } else { "3" };
    let file = paths.logs.join("refused").display().to_string();
    let commands = [
        ("status", vec!["status", url, "--format", if case.is_multiple_of(2) { "json" } else { "text" }]),
        ("roots", vec!["roots", url]),
        ("dump", vec!["dump", url, root, "--depth", depth]),
        ("ping", vec!["ping", url, "--count", "20"]),
        ("evict", vec!["evict", url, "1"]),
        ("checkpoint", vec!["checkpoint", url, &file]),
        ("collect", vec!["collect", "--cluster", url]),
    ];
    run(paths, &commands, &mut outcome)?;
    outcome.failures.extend(metrics(&cluster.node, case));
    Ok(outcome)
}

/// Runs the tools for a cluster without programs; restores its checkpoint in another cluster.
pub(super) fn without_programs(paths: &Paths, cluster: &Cluster, case: u64) -> Result<Outcome, String> {
    let mut outcome = Outcome::default();
    let url = cluster.url();
    let file = paths.logs.join("checkpoint");
    let _ = std::fs::remove_file(&file);
    let path = file.display().to_string();
    let root = ROOTS[case as usize / 4 % ROOTS.len()];
    run(paths, &[("status", vec!["status", url])], &mut outcome)?;
    run(paths, &[("checkpoint", vec!["checkpoint", url, &path])], &mut outcome)?;
    run(
        paths,
        &[("dump", vec!["dump", url, root, "--depth", "1000"]), ("roots", vec!["roots", url])],
        &mut outcome,
    )?;
    run(paths, &[("collect", vec!["collect", "--cluster", url])], &mut outcome)?;
    outcome.failures.extend(metrics(&cluster.node, case));
    if file.exists() {
        let node = MemoryNode::start(paths, "restored", case.is_multiple_of(8))?;
        run(paths, &[("restore", vec!["restore", &node.url, &path])], &mut outcome)?;
        run(
            paths,
            &[("status", vec!["status", &node.url]), ("dump", vec!["dump", &node.url, root])],
            &mut outcome,
        )?;
        outcome.failures.extend(node.end()?);
    }
    Ok(outcome)
}

/// Requests a memory node's metrics, which it must serve whatever its memory contains.
fn metrics(node: &MemoryNode, case: u64) -> Option<Failure> {
    let path = if case.is_multiple_of(2) { "/metrics" } else { "/metrics.json" };
    let began = Instant::now();
    let asked = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(&node.metrics)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: farfield\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    let failure = |stderr: String| Some(Failure { kind: "metrics: no answer".to_owned(), stderr });
    match asked() {
        Ok(answer) if answer.starts_with("HTTP/1.1 200") && began.elapsed() < PATIENCE => None,
        Ok(answer) => failure(answer),
        Err(error) => failure(error.to_string()),
    }
}
