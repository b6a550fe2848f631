//! The command on a cluster over TCP: two memory nodes on loopback.

#![cfg(target_os = "linux")]

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const FARFIELD: &str = env!("CARGO_BIN_EXE_farfield");

fn farfield(arguments: &[&str]) -> Output {
    Command::new(FARFIELD).args(arguments).env_remove("FARFIELD_SECRET_FILE").output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// `farfield memnode`, until it is dropped, and its address.
struct Node(Child, String);

impl Node {
    fn start(options: &[&str]) -> Self {
        let start = ["memnode", "--segment-size", "1MiB", "--lease", "500"];
        let mut child =
            Command::new(FARFIELD).args(start).args(options).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.split_once("tcp://").and_then(|(_, rest)| rest.split_once(": "));
        let address = address.unwrap_or_else(|| panic!("no address in {line:?}")).0.to_owned();
        Self(child, address)
    }

    fn signal(&self, signal: &str) {
        assert!(Command::new("kill").args([signal, &self.0.id().to_string()]).status().unwrap().success());
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.signal("-CONT");
        self.signal("-TERM");
        assert!(self.0.wait().unwrap().success());
    }
}

fn secret(name: &str) -> PathBuf {
    let file = std::env::temp_dir().join(format!("farfield-tcp-{name}-{}", std::process::id()));
    std::fs::write(&file, name).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    file
}

#[test]
fn two_memory_nodes_are_a_cluster() {
    let nodes = [(); 2].map(|()| Node::start(&["--listen", "tcp://127.0.0.1:0"]));
    let url = format!("tcp://{},{}", nodes[0].1, nodes[1].1);
    let ping = farfield(&["ping", &url, "--count", "10"]);
    assert!(ping.status.success(), "{}", stderr(&ping));
    let output = farfield(&["status", &url, "--format", "json"]);
    let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(status["members"][0]["this"], true);
    assert_eq!(status["nodes"].as_array().unwrap().len(), 2);
}

#[test]
fn each_mistake_is_an_error_of_one_line() {
    let (right, wrong) = (secret("right"), secret("wrong"));
    let [right, wrong] = [&right, &wrong].map(|file| file.to_str().unwrap());
    let node = Node::start(&["--listen", "tcp://127.0.0.1:0", "--secret-file", right]);
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let at = |option: &str| format!("tcp://{}{option}", node.1);
    for (arguments, message) in [
        (&["memnode", "--listen", &at("")][..], "another program listens there already"),
        (&["memnode", "--listen", "tcp://0.0.0.0:0"], "without a secret only this machine is served"),
        (&["memnode", "--listen", "tcp://10.99.98.97:0", "--secret-file", right], "no network interface"),
        (&["memnode", "--listen", "127.0.0.1:0"], "listens on shm:NAME, tcp://ADDR:PORT or rdma://ADDR:PORT"),
        (&["memnode", "--listen", "tcp://localhost"], "not an address and a port"),
        (&["memnode", "--listen", "udp://127.0.0.1:0"], "listens on `shm`, `tcp` or `rdma`"),
        (&["memnode", "--listen", "tcp://127.0.0.1:0?encrypt=maybe"], "`encrypt`, `yes` or `no`"),
        (
            &["memnode", "--listen", "tcp://127.0.0.1:0", "--listen", "rdma://127.0.0.1:0"],
            "not atomic with those of processors",
        ),
        (
            &["memnode", "--cluster", "shm:mixed", "--listen", "rdma://127.0.0.1:0"],
            "not atomic with those of processors",
        ),
        (
            &["memnode", "--listen", "tcp://127.0.0.1:0", "--nodes", "2"],
            "memory nodes is 2: only the segments",
        ),
        (&["ping", &at(&format!("?secret-file={wrong}"))], "does not know the cluster's secret"),
        (&["ping", &at("")], "does not know the cluster's secret"),
        (&["ping", &at(&format!("?secret-file={right},encrypt=no"))], "serves encrypted connections only"),
        (&["ping", &at("?encrypt=maybe")], "encrypt=maybe is neither `yes` nor `no`"),
        (&["ping", &at("?speed=9")], "unknown option `speed`"),
        (&["ping", "tcp://nowhere.invalid:7000"], "nowhere.invalid:7000"),
        (&["ping", &format!("tcp://{nobody}")], "no memory node listens there"),
        (&["ping", "tcp://127.0.0.1"], "is not HOST:PORT"),
        (&["ping", "tcp:127.0.0.1:7"], "write tcp://HOST:PORT,HOST:PORT"),
    ] {
        let output = farfield(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let said = stderr(&output);
        assert!(said.contains(message) && said.lines().count() == 1, "{arguments:?}: {said}");
    }
    let served = farfield(&["ping", &at(&format!("?secret-file={right}")), "--count", "10"]);
    assert!(served.status.success(), "{}", stderr(&served));
    for file in [right, wrong] {
        std::fs::remove_file(file).unwrap();
    }
}

/// It accepts connections still: the kernel does.
#[test]
fn a_frozen_memory_node_is_an_error_within_the_timeout() {
    let node = Node::start(&["--listen", "tcp://127.0.0.1:0"]);
    node.signal("-STOP");
    let began = Instant::now();
    let output = farfield(&["ping", &format!("tcp://{}?timeout=500ms", node.1)]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("does not answer"), "{}", stderr(&output));
    assert!(began.elapsed() < Duration::from_secs(5));
}

/// Processes of its own machine map the memory, and others come over TCP: they see the same cluster.
#[test]
fn a_memory_node_of_shared_memory_listens_on_tcp() {
    let name = format!("shm:two-ways-{}", std::process::id());
    let node = Node::start(&["--cluster", &name, "--nodes", "2", "--listen", "tcp://127.0.0.1:0"]);
    let mapped = farfield::Cluster::connect(&name).unwrap();
    let remote = farfield::Cluster::connect(&format!("tcp://{}", node.1)).unwrap();
    for url in [&name, &format!("tcp://{}", node.1)] {
        let output = farfield(&["status", url, "--format", "json"]);
        let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(status["members"].as_array().unwrap().len(), 3, "this one, and the two here: {status}");
        assert_eq!(status["nodes"].as_array().unwrap().len(), 2, "{status}");
    }
    drop((mapped, remote));
}
