//! A process with a store is killed at any moment, and the next one finds what it had written: every write and deletion that had returned, and of those that had not, each as a whole or not at all.
//!
//! The killed processes run this program in the role of `victim`. They log each operation before it begins and when it has returned, in a file that survives them. Pages are evicted and rebuilt all
//! the time.

#![cfg(target_os = "linux")]

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use farfield::memory_node::{MemoryNode, MemoryNodeOptions};
use farfield::prelude::*;
use farfield::{Error, Result};
use farfield_kv::{Options, Store};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

const CLUSTER: &str = "FARFIELD_KV_KILLED_CLUSTER";
const LOG: &str = "FARFIELD_KV_KILLED_LOG";
const SEED: &str = "FARFIELD_KV_KILLED_SEED";
/// The number of kills, if it is set.
const KILLS: &str = "FARFIELD_KV_KILLS";

const THREADS: usize = 2;
const TASKS: u64 = 4;
const KEYS_PER_TASK: u64 = 400;
const KEYS: u64 = THREADS as u64 * TASKS * KEYS_PER_TASK;

fn options() -> Options {
    let mut options = Options::default().with_key([9; 32]);
    (options.local_bytes, options.far_bytes) = (800_000, 8 << 20);
    options
}

fn key(number: u64) -> [u8; 16] {
    [number.to_le_bytes(), (!number).to_le_bytes()].concat().try_into().unwrap()
}

/// The value that an operation writes. Operation 0 deletes.
fn value(key: u64, operation: u64) -> Vec<u8> {
    let length = 16 + (operation * 37 % 500) as usize;
    let mut value = vec![(key ^ operation) as u8; length];
    value[..8].copy_from_slice(&operation.to_le_bytes());
    value
}

/// What a log has of an operation: whether it has returned, its key, and its number.
type Entry = (bool, u64, u64);
const ENTRY_BYTES: usize = 17;

fn log(file: &File, (has_returned, key, operation): Entry) -> Result<()> {
    let mut bytes = [0; ENTRY_BYTES];
    bytes[0] = has_returned.into();
    bytes[1..9].copy_from_slice(&key.to_le_bytes());
    bytes[9..].copy_from_slice(&operation.to_le_bytes());
    let mut file = file;
    file.write_all(&bytes).map_err(Error::other)
}

fn read_log(path: &Path) -> Vec<Entry> {
    let mut bytes = Vec::new();
    File::open(path).unwrap().read_to_end(&mut bytes).unwrap();
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
    bytes
        .chunks_exact(ENTRY_BYTES)
        .map(|entry| (entry[0] == 1, word(&entry[1..9]), word(&entry[9..])))
        .collect()
}

/// Not a test: what the killed processes do.
#[test]
#[ignore = "the role of a killed process"]
fn victim() {
    let variable = |name| std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set"));
    let (url, seed) = (variable(CLUSTER), variable(SEED).parse::<u64>().unwrap());
    let file = OpenOptions::new().create_new(true).append(true).open(variable(LOG)).unwrap();
    let store = OnceLock::<Arc<Store>>::new();
    let run = Cluster::connect(&url).unwrap().run(THREADS, async |ct| {
        let mut owner = None;
        if ct.index() == 0 {
            let opened = Store::open("store", &options(), ct).await?;
            assert!(store.set(opened.share()).is_ok());
            owner = Some(opened);
            println!("it is ready");
        }
        ct.barrier("opened").await?;
        let store: &Store = store.get().unwrap();
        ct.tasks(TASKS as usize, async |task| {
            let task = ct.index() as u64 * TASKS + task as u64;
            let mut rng = SmallRng::seed_from_u64(seed + task);
            loop {
                let name = task * KEYS_PER_TASK + rng.random_range(0..KEYS_PER_TASK);
                let operation = match rng.random_range(0..4) {
                    0 => 0,
                    _ => rng.random_range(1..1 << 40),
                };
                log(&file, (false, name, operation))?;
                if operation == 0 {
                    store.delete(&key(name), ct).await?;
                } else {
                    store.write(&key(name), &value(name, operation), operation % 2 == 0, ct).await?;
                }
                log(&file, (true, name, operation))?;
                if rng.random_range(0..64) == 0 {
                    drop(store.read(&key(rng.random_range(0..KEYS)), ct).await?);
                    ct.yield_now().await;
                }
            }
            #[allow(unreachable_code)]
            Ok(())
        })
        .await?;
        drop(owner);
        Ok(())
    });
    run.unwrap();
}

/// Kills a process that operates on the store. Returns what its log says.
fn kill_one(url: &str, log: &PathBuf, seed: u64, after: Duration) -> Vec<Entry> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "victim", "--ignored", "--nocapture", "--test-threads=1"])
        .env(CLUSTER, url)
        .env(LOG, log)
        .env(SEED, seed.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(said.any(|line| line.unwrap().contains("it is ready")), "it has ended");
    std::thread::sleep(after);
    assert!(child.try_wait().unwrap().is_none(), "it has ended by itself");
    child.kill().unwrap();
    child.wait().unwrap();
    read_log(log)
}

#[test]
fn what_a_killed_process_has_written_is_found_again() {
    let kills: u64 = std::env::var(KILLS).map_or(12, |kills| kills.parse().unwrap());
    let mut of_node = MemoryNodeOptions::new(&format!("shm:kv-killed-{}", std::process::id()));
    (of_node.segment_bytes, of_node.lease) = (32 << 20, Duration::from_millis(500));
    let node = MemoryNode::listen(&of_node).unwrap();
    let (url, stopper) = (node.urls()[0].clone(), node.stopper().unwrap());
    let serves = std::thread::spawn(move || node.serve().unwrap());
    let folder = std::env::temp_dir().join(format!("farfield-kv-killed-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let mut rng = SmallRng::seed_from_u64(1);
    // The operation that has written the value of each key.
    let mut written = HashMap::<u64, u64>::new();
    let (mut operations, mut interrupted, mut torn, mut rebuilt) = (0, 0, 0, 0);
    for number in 0..kills {
        let log = folder.join(number.to_string());
        let after = Duration::from_millis(rng.random_range(0..150));
        let mut pending = HashMap::new();
        for (has_returned, key, operation) in kill_one(&url, &log, number * 1000, after) {
            operations += 1;
            if has_returned {
                pending.remove(&key);
                written.insert(key, operation);
            } else {
                pending.insert(key, operation);
            }
        }
        interrupted += pending.len();
        assert!(pending.len() as u64 <= THREADS as u64 * TASKS);
        let found = Cluster::connect(&url).unwrap().run(1, async |ct| {
            let store = Store::open("store", &options(), ct).await?;
            let mut found = Vec::new();
            for name in 0..KEYS {
                found.push(store.read(&key(name), ct).await?);
            }
            assert_eq!(store.stats().records, found.iter().flatten().count() as u64);
            let rebuilt = store.rebuild(60, ct).await?;
            Ok((found, store.stats().torn_records, rebuilt))
        });
        let (found, of_torn, of_rebuilt) = found.unwrap().remove(0);
        (torn, rebuilt) = (torn + of_torn, rebuilt + of_rebuilt);
        for (name, found) in (0..).zip(found) {
            let expected = |operation: u64| (operation != 0).then(|| value(name, operation));
            let old = written.get(&name).copied().unwrap_or(0);
            if let Some(new) = pending.get(&name).filter(|new| found == expected(**new)) {
                written.insert(name, *new);
            } else {
                assert!(
                    found == expected(old),
                    "kill {number}: key {name} has not the value of operation {old}, nor {:?}",
                    pending.get(&name)
                );
            }
        }
    }
    stopper.stop();
    serves.join().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    println!(
        "kv.crash.kills {kills}\nkv.crash.operations {}\nkv.crash.interrupted {interrupted}",
        operations / 2
    );
    println!("kv.crash.torn {torn}\nkv.crash.rebuilt {rebuilt}\nkv.crash.verified 1");
}
