//! The command on a cluster in shared memory, as its users call it.

#![cfg(target_os = "linux")]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};

const FARFIELD: &str = env!("CARGO_BIN_EXE_farfield");

fn farfield(arguments: &[&str]) -> Output {
    Command::new(FARFIELD).args(arguments).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// `farfield memnode`, until it is dropped.
struct Node(Child, String);

impl Node {
    fn start(name: &str) -> Self {
        let url = format!("shm:cli-{name}-{}", std::process::id());
        let start = ["memnode", "--cluster", &url, "--segment-size", "1MiB"];
        let mut child = Command::new(FARFIELD).args(start).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains(&url), "{line}");
        Self(child, url)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let ended = Command::new("kill").arg(self.0.id().to_string()).status();
        assert!(ended.unwrap().success() && self.0.wait().unwrap().success());
    }
}

#[test]
fn status_lists_processes_memory_and_roots() {
    let node = Node::start("status");
    let output = farfield(&["status", &node.1, "--format", "json"]);
    let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(status["members"][0]["this"], true);
    assert_eq!(status["nodes"][0]["live_bytes"], 0);
    assert_eq!(status["roots"], serde_json::json!([]));
    let text = farfield(&["status", &node.1]);
    assert!(String::from_utf8_lossy(&text.stdout).contains("this one"), "{}", said(&text));
    assert!(farfield(&["roots", &node.1]).status.success());
    let ping = farfield(&["ping", &node.1, "--count", "10"]);
    assert!(ping.status.success(), "{}", said(&ping));
}

#[test]
fn what_can_not_be_is_one_line() {
    let node = Node::start("mistakes");
    for (arguments, says) in [
        (&["memnode", "--cluster", &node.1][..], "serves a cluster of this name already"),
        (&["memnode", "--cluster", "local:"], "a memory node hosts `shm:NAME`"),
        (&["dump", &node.1, "moon"], "no root is named `moon`"),
        (&["evict", &node.1, "12345"], "no process of this number"),
        (&["restore", &node.1, "/nowhere/at/all"], "No such file"),
        (&["checkpoint", "local:", "/tmp/x"], "for clusters in shared memory"),
        (&["status", "shm:nobody-serves-this"], "no memory node serves it"),
    ] {
        let output = farfield(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(said(&output).contains(says) && said(&output).lines().count() == 1, "{}", said(&output));
    }
}

#[test]
fn shells_are_told_what_there_is() {
    for shell in ["bash", "zsh", "fish"] {
        let output = farfield(&["completions", shell]);
        assert!(String::from_utf8_lossy(&output.stdout).contains("checkpoint"), "{shell}");
    }
}
