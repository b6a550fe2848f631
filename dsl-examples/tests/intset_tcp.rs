//! The program `intset` over TCP: every structure on two memory nodes.

#![cfg(target_os = "linux")]

use std::process::Command;
use std::thread;

use farfield::tcp::{MemoryNode, MemoryNodeOptions};

#[test]
fn every_structure_is_verified_on_two_memory_nodes() {
    let nodes = [(); 2].map(|()| {
        let listen = "127.0.0.1:0".parse().unwrap();
        let mut options = MemoryNodeOptions::new(listen, 1, 8 << 20);
        options.serves_plain = true;
        MemoryNode::listen(&options).unwrap()
    });
    let [first, second] = nodes.each_ref().map(MemoryNode::port);
    let stoppers = nodes.each_ref().map(|node| node.stopper().unwrap());
    thread::scope(|scope| {
        for node in nodes {
            scope.spawn(|| node.serve().unwrap());
        }
        for structure in ["lazy-list", "lazy-list-naive", "harris-list", "hash-set"] {
            for (threads, tasks, encrypt) in
                [("1", "1", "yes"), ("1", "8", "no"), ("2", "1", "no"), ("2", "8", "yes")]
            {
                let url = format!("tcp://127.0.0.1:{first},127.0.0.1:{second}?encrypt={encrypt}");
                let run = Command::new(env!("CARGO_BIN_EXE_intset"))
                    .args(["--cluster", &url, "--structure", structure, "--format", "json"])
                    .args(["--threads", threads, "--tasks", tasks])
                    .args(["--num-ops", "200", "--key-ub", "64"])
                    .output()
                    .unwrap();
                let said = String::from_utf8_lossy(&run.stderr);
                assert!(run.status.success(), "{structure}, {threads} threads, {tasks} tasks: {said}");
                let report: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
                assert_eq!(report["verified"], true, "{structure}: {report}");
            }
        }
        for stopper in &stoppers {
            stopper.stop();
        }
    });
}
