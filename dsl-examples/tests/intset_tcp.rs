//! The program `intset` over TCP: every structure on two memory nodes, and beside processes that map the memory.

#![cfg(target_os = "linux")]

use std::process::Command;
use std::thread;

use farfield::memory_node::{MemoryNode, MemoryNodeOptions, Stopper};

#[test]
fn every_structure_is_verified_on_two_memory_nodes() {
    let nodes = [(); 2].map(|()| {
        let mut options = MemoryNodeOptions::new("tcp://127.0.0.1:0?encrypt=no");
        options.segment_bytes = 8 << 20;
        MemoryNode::listen(&options).unwrap()
    });
    let [first, second] = nodes.each_ref().map(|node| node.urls()[0].clone());
    let addresses = format!("{first},{}", second.trim_start_matches("tcp://"));
    serving(nodes, || {
        for structure in STRUCTURES {
            for (threads, tasks, encrypt) in
                [("1", "1", "yes"), ("1", "8", "no"), ("2", "1", "no"), ("2", "8", "yes")]
            {
                is_verified(&format!("{addresses}?encrypt={encrypt}"), structure, threads, tasks, &[]);
            }
        }
    });
}

/// One memory node whose memory counts as that of two. Two processes of a run, each by its own way, use one set.
#[test]
fn every_structure_is_verified_where_some_processes_map_the_memory() {
    let mut options = MemoryNodeOptions::new(&format!("shm:two-ways-{}", std::process::id()));
    options.listen.push("tcp://127.0.0.1:0".to_owned());
    (options.nodes, options.segment_bytes) = (2, 8 << 20);
    let node = MemoryNode::listen(&options).unwrap();
    let urls = node.urls().to_vec();
    serving([node], || {
        for structure in STRUCTURES {
            thread::scope(|scope| {
                for (url, process) in urls.iter().zip(["0", "1"]) {
                    scope.spawn(move || {
                        is_verified(url, structure, "2", "8", &["--nodes", "2", "--node-id", process]);
                    });
                }
            });
        }
    });
}

const STRUCTURES: [&str; 4] = ["lazy-list", "lazy-list-naive", "harris-list", "hash-set"];

/// Calls a closure while memory nodes serve.
fn serving<const N: usize>(nodes: [MemoryNode; N], body: impl FnOnce()) {
    let stoppers = nodes.each_ref().map(|node| node.stopper().unwrap());
    thread::scope(|scope| {
        for node in nodes {
            scope.spawn(|| node.serve().unwrap());
        }
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        stoppers.iter().for_each(Stopper::stop);
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

fn is_verified(url: &str, structure: &str, threads: &str, tasks: &str, others: &[&str]) {
    let run = Command::new(env!("CARGO_BIN_EXE_intset"))
        .args(["--cluster", url, "--structure", structure, "--format", "json"])
        .args(["--threads", threads, "--tasks", tasks])
        .args(["--num-ops", "200", "--key-ub", "64"])
        .args(others)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{structure}, {threads} threads, {tasks} tasks: {said}");
    let report: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
    assert_eq!(report["verified"], true, "{structure}: {report}");
}
