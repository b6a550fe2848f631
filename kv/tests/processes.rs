//! Stores of other processes: what one of them takes of the system's memory, and that two can not have the same store.
//!
//! The other processes run this program in a role. Their memory node is in this process, so their resident memory has no far memory.

#![cfg(target_os = "linux")]

mod keys;

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use farfield::memory_node::{MemoryNode, MemoryNodeOptions, Stopper};
use farfield::prelude::*;
use farfield_kv::{Options, Store};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use keys::key;

const CLUSTER: &str = "FARFIELD_KV_PROCESSES_CLUSTER";

/// A memory node of this process.
struct Node {
    url: String,
    stopper: Stopper,
    serves: Option<JoinHandle<()>>,
}

impl Node {
    fn new(listen: &str, segment_bytes: u64) -> Self {
        let mut options = MemoryNodeOptions::new(listen);
        options.segment_bytes = segment_bytes;
        let node = MemoryNode::listen(&options).unwrap();
        let (url, stopper) = (node.urls()[0].clone(), node.stopper().unwrap());
        let serves = std::thread::spawn(move || node.serve().unwrap());
        Self { url, stopper, serves: Some(serves) }
    }

    /// Starts a process in a role.
    fn start(&self, role: &str) -> Process {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", role, "--ignored", "--nocapture", "--test-threads=1"])
            .env(CLUSTER, &self.url)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Process { child, lines }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stopper.stop();
        self.serves.take().unwrap().join().unwrap();
    }
}

/// A process that is killed when it is dropped.
struct Process {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// Returns what it prints behind a word.
    fn says(&mut self, word: &str) -> String {
        let mut lines = self.lines.by_ref().map(Result::unwrap);
        let said = lines.find_map(|line| line.split_once(word).map(|(_, rest)| rest.trim().to_owned()));
        said.unwrap_or_else(|| panic!("it has ended, and has not said `{word}`"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn url() -> String {
    std::env::var(CLUSTER).unwrap_or_else(|_| panic!("{CLUSTER} is not set"))
}

/// A field of this process's status, in KiB.
fn status_kib(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let value = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse().ok());
    value.unwrap_or_else(|| panic!("{field} is not in {status}"))
}

const BUDGET: usize = 8 << 20;
const RECORDS: u64 = 64 << 10;
const VALUE_BYTES: usize = 1 << 10;

/// Not a test: a process with a store of 64 MiB and a budget of 8 MiB.
#[test]
#[ignore = "the role of a process that is measured"]
fn measured() {
    let run = Cluster::connect(&url()).unwrap().run(1, async |ct| {
        let store = Store::open("store", &Options::new(BUDGET, 96 << 20), ct).await?;
        for number in 0..RECORDS {
            store.write(&key(number), &[number as u8; VALUE_BYTES], false, ct).await?;
        }
        ct.flush().await?;
        let mut rng = SmallRng::seed_from_u64(1);
        for _ in 0..RECORDS / 8 {
            let number = rng.random_range(0..RECORDS);
            let found = store.read(&key(number), ct).await?;
            assert_eq!(found.as_deref(), Some(&[number as u8; VALUE_BYTES][..]));
            let number = rng.random_range(0..RECORDS);
            store.write(&key(number), &[number as u8; VALUE_BYTES], false, ct).await?;
            store.delete(&key(rng.random_range(RECORDS..2 * RECORDS)), ct).await?;
        }
        ct.flush().await?;
        Ok((store.stats(), status_kib("RssAnon")))
    });
    let (stats, anonymous) = run.unwrap()[0];
    assert!(stats.records == RECORDS && stats.evicted_pages > 0 && stats.evicted_records > 0, "{stats:?}");
    assert!(stats.live_bytes >= 64 << 20 && stats.local_bytes <= BUDGET as u64, "{stats:?}");
    println!("most KiB: {}", status_kib("VmHWM"));
    println!("anonymous KiB: {anonymous}");
}

#[test]
fn resident_memory_is_at_most_the_budget_and_32_mib() {
    let node = Node::new("tcp://127.0.0.1:0", 160 << 20);
    let mut process = node.start("measured");
    let most: u64 = process.says("most KiB:").parse().unwrap();
    let anonymous: u64 = process.says("anonymous KiB:").parse().unwrap();
    println!("kv.resident.most_mib {}\nkv.resident.anonymous_mib {}", most / 1024, anonymous / 1024);
    let limit = (BUDGET as u64 >> 10) + (32 << 10);
    assert!(most <= limit, "{most} KiB were resident, and {limit} are allowed");
    assert!(
        anonymous * 1024 >= BUDGET as u64 / 2,
        "{anonymous} KiB: the pages in local memory are not measured"
    );
}

/// Not a test: a process that has a store until it is killed.
#[test]
#[ignore = "the role of a process that has the store"]
fn owner() {
    let run = Cluster::connect(&url()).unwrap().run(1, async |ct| {
        let store = Store::open("store", &Options::new(1 << 20, 8 << 20), ct).await?;
        store.write(&key(1), b"of the owner", false, ct).await?;
        println!("it is ready:");
        loop {
            ct.sleep(Duration::from_millis(10)).await;
        }
        #[allow(unreachable_code)]
        Ok(())
    });
    run.unwrap();
}

#[test]
fn another_process_opens_a_store_only_when_its_owner_has_died() {
    for listen in [format!("shm:kv-processes-{}", std::process::id()), "tcp://127.0.0.1:0".to_owned()] {
        let node = Node::new(&listen, 32 << 20);
        let mut owner = node.start("owner");
        owner.says("it is ready:");
        let cluster = Cluster::connect(&node.url).unwrap();
        let open = |patience: Duration| {
            let opened = cluster.run(1, async |ct| {
                let mut options = Options::new(1 << 20, 8 << 20);
                options.patience = patience;
                let store = Store::open("store", &options, ct).await?;
                store.read(&key(1), ct).await
            });
            opened.map(|mut found| found.remove(0)).map_err(|error| error.to_string())
        };
        let refused = open(Duration::from_millis(300)).unwrap_err();
        assert!(refused.contains("another process has opened it"), "{refused}");
        drop(owner);
        assert_eq!(open(Duration::from_secs(20)).unwrap().as_deref(), Some(&b"of the owner"[..]));
    }
}
