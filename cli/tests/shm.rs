//! The command on a cluster in shared memory.

#![cfg(target_os = "linux")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Output, Stdio};

const FARFIELD: &str = env!("CARGO_BIN_EXE_farfield");

fn farfield(arguments: &[&str]) -> Output {
    Command::new(FARFIELD).args(arguments).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// `farfield memnode`, until it is dropped.
struct Node(Child, String);

impl Node {
    fn start(name: &str) -> Self {
        Self::try_start(name).expect("the memory node begins to serve")
    }

    fn try_start(name: &str) -> Option<Self> {
        let url = format!("shm:cli-{name}-{}", std::process::id());
        let start = ["memnode", "--cluster", &url, "--segment-size", "1MiB"];
        let mut child = Command::new(FARFIELD).args(start).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        if line.is_empty() {
            child.wait().unwrap();
            return None;
        }
        assert!(line.contains(&url), "{line}");
        Some(Self(child, url))
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
    assert!(String::from_utf8_lossy(&text.stdout).contains("this one"), "{}", stderr(&text));
    assert!(farfield(&["roots", &node.1]).status.success());
    let ping = farfield(&["ping", &node.1, "--count", "10"]);
    assert!(ping.status.success(), "{}", stderr(&ping));
}

#[test]
fn each_mistake_is_an_error_of_one_line() {
    let node = Node::start("mistakes");
    for (arguments, message) in [
        (&["memnode", "--cluster", &node.1][..], "a memory node serves a cluster of this name already"),
        (&["memnode", "--cluster", "local:"], "a memory node hosts `shm:NAME`"),
        (&["dump", &node.1, "moon"], "no root is named `moon`"),
        (&["dump", &node.1, "mo\n\u{1b}[2Jon"], "no root is named `mo\\n\\u{1b}[2Jon`"),
        (&["memnode", "--cluster", "far\n\u{1b}[31m"], "--cluster far\\n\\u{1b}[31m: a memory node hosts"),
        (&["evict", &node.1, "12345"], "no process of this number"),
        (&["restore", &node.1, "/nowhere/at/all"], "No such file"),
        (&["checkpoint", "local:", "/tmp/x"], "for clusters that several processes can share"),
        (&["status", "shm:not-served"], "no memory node serves it"),
    ] {
        let output = farfield(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(
            stderr(&output).contains(message) && stderr(&output).lines().count() == 1,
            "{}",
            stderr(&output)
        );
    }
}

#[test]
fn the_name_of_a_killed_memory_node_is_free_when_no_process_uses_its_memory() {
    let mut killed = Node::start("killed");
    let cluster = farfield::Cluster::connect(&killed.1).unwrap();
    killed.0.kill().unwrap();
    killed.0.wait().unwrap();
    let refused = farfield(&["memnode", "--cluster", &killed.1, "--segment-size", "1MiB"]);
    assert_eq!(refused.status.code(), Some(2));
    let message = "its memory node has ended, but processes still use its memory";
    assert!(stderr(&refused).contains(message), "{}", stderr(&refused));
    std::mem::forget(killed); // it has ended already
    drop(cluster);
    // A process that another test has just forked has the file open, too, until it executes its program.
    assert!((0..1000).any(|_| Node::try_start("killed").is_some()), "the name is free again");
}

/// Requests a page.
fn get(address: &str, page: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {page} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// A memory node that serves metrics, and their address.
fn start_with_metrics(name: &str) -> (Node, String) {
    let url = format!("shm:cli-{name}-{}", std::process::id());
    let start = ["memnode", "--cluster", &url, "--segment-size", "1MiB", "--metrics", "127.0.0.1:0"];
    let mut child = Command::new(FARFIELD).args(start).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = lines.nth(1).unwrap().unwrap();
    let address = line.strip_prefix("metrics on http://").unwrap().strip_suffix("/metrics").unwrap();
    (Node(child, url), address.to_owned())
}

#[test]
fn metrics_are_served_as_text_and_as_json() {
    let (node, address) = start_with_metrics("metrics");
    assert!(farfield(&["status", &node.1]).status.success());
    let text = get(&address, "/metrics");
    assert!(
        text.contains("farfield_joined_total 1\n") && text.contains("# TYPE farfield_epoch counter"),
        "{text}"
    );
    assert!(text.contains("farfield_heap_bytes{node=\"0\",use=\"live\"} 0\n"), "{text}");
    let json = get(&address, "/metrics.json");
    let json: serde_json::Value = serde_json::from_str(json.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    assert_eq!((&json["joined"], &json["evictions"]), (&serde_json::json!(1), &serde_json::json!(0)));
    assert!(get(&address, "/").starts_with("HTTP/1.1 404"));
}

#[test]
fn silent_clients_do_not_keep_others_from_metrics() {
    let (_node, address) = start_with_metrics("silent");
    let mut silent: Vec<_> = (0..63).map(|_| TcpStream::connect(&address).unwrap()).collect();
    for stream in silent.iter_mut().take(20) {
        stream.write_all(b"GET /metrics HTT").unwrap();
    }
    assert!(get(&address, "/metrics").contains("farfield_epoch"), "another client is served");
    let mut last = silent.pop().unwrap();
    assert!(last.read_to_end(&mut Vec::new()).is_ok(), "connections of silent clients are closed");
}

#[test]
fn an_endless_request_for_metrics_is_cut_off() {
    let (node, address) = start_with_metrics("endless");
    let mut stream = TcpStream::connect(&address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\n").unwrap();
    let line = format!("{}: {}\r\n", "x".repeat(100), "y".repeat(900));
    let sent = (0..65_536).take_while(|_| stream.write_all(line.as_bytes()).is_ok()).count();
    // The system buffers some megabytes for the connection.
    assert!(sent < 65_536, "64 MiB of headers were accepted");
    assert!(get(&address, "/metrics").contains("farfield_epoch"));
    let status = std::fs::read_to_string(format!("/proc/{}/status", node.0.id())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak: u64 = peak.trim().trim_end_matches("kB").trim().parse().unwrap();
    assert!(peak < 32 << 10, "{peak} KiB");
}

/// Processor time of a process's first thread, in the system's ticks, and the number of its sleeps.
fn ticks_and_sleeps(pid: u32) -> (u64, u64) {
    let read = |file: &str| std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/{file}")).unwrap();
    let (stat, status) = (read("stat"), read("status"));
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    let ticks = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    let sleeps = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    (ticks, sleeps.unwrap().trim().parse().unwrap())
}

#[test]
fn a_memory_node_without_descriptors_waits_for_some() {
    let url = format!("shm:cli-descriptors-{}", std::process::id());
    let start = format!("ulimit -n 24; exec {FARFIELD} memnode --cluster {url} --segment-size 1MiB");
    let mut child = Command::new("sh").args(["-c", &start]).stdout(Stdio::piped()).spawn().unwrap();
    let line = BufReader::new(child.stdout.take().unwrap()).lines().next().unwrap().unwrap();
    assert!(line.starts_with("memory node on shm:"), "{line}");
    let node = Node(child, url);
    let name = node.1.strip_prefix("shm:").unwrap();
    let me = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").unwrap());
    let socket = format!("/dev/shm/farfield-{me}/{name}/socket");
    let connect = || std::os::unix::net::UnixStream::connect(&socket).unwrap();
    let silent: Vec<_> = (0..40).map(|_| connect()).collect();
    let folder = format!("/proc/{}/fd", node.0.id());
    while std::fs::read_dir(&folder).unwrap().count() < 24 {
        std::thread::yield_now();
    }
    // The first thread accepts connections. Each of its pauses is a sleep. A thread that spins uses ticks and never sleeps.
    let before = ticks_and_sleeps(node.0.id());
    loop {
        let (ticks, sleeps) = ticks_and_sleeps(node.0.id());
        let used = ticks - before.0;
        assert!(used < 20, "{used} ticks while no connection could be accepted");
        if sleeps - before.1 >= 5 {
            break;
        }
        std::thread::yield_now();
    }
    drop(silent);
    let status = farfield(&["status", &node.1]);
    assert!(status.status.success(), "{}", stderr(&status));
}

#[test]
fn completion_scripts_contain_the_subcommands() {
    for shell in ["bash", "zsh", "fish"] {
        let output = farfield(&["completions", shell]);
        assert!(String::from_utf8_lossy(&output.stdout).contains("checkpoint"), "{shell}");
    }
}
