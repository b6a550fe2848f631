//! A process with a store is killed at any moment, and the next one finds what it had written: every write and deletion that had returned, and of those that had not, each as a whole or not at all.
//!
//! The killed processes run this program in the role of `victim`. They log each operation before it begins and when it has returned, in a file that survives them. Pages are evicted and rebuilt all
//! the time, and the log says how many. Some processes are killed while they open the store, some right after another one, so that a recovery is interrupted.
//!
//! `cargo xtask contest-crash` runs this test with more kills, and reads its figures:
//!
//! | figure | meaning |
//! |---|---|
//! | `contest.crash.kills` | processes that were killed |
//! | `contest.crash.verified` | 1 if the store had after each kill what the logs say, else 0 |
//! | `contest.crash.operations` | writes and deletions that had returned |
//! | `contest.crash.interrupted` | writes and deletions whose process was killed |
//! | `contest.crash.while_opening` | processes that were killed before they had opened the store |
//! | `contest.crash.while_rebuilding` | processes that were killed while a page was being rebuilt by a call of `rebuild` |
//! | `contest.crash.rebuilt_pages` | pages that the killed processes had rebuilt |
//! | `contest.crash.evicted_pages` | pages that the killed processes had evicted |
//! | `contest.crash.torn` | pages of which the last record was not whole |

#![cfg(target_os = "linux")]

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use farfield::memory_node::{MemoryNode, MemoryNodeOptions};
use farfield::prelude::*;
use farfield::{Error, Result};
use farfield_kv::{Options, Stats, Store};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

const CLUSTER: &str = "FARFIELD_KV_KILLED_CLUSTER";
const LOG: &str = "FARFIELD_KV_KILLED_LOG";
const SEED: &str = "FARFIELD_KV_KILLED_SEED";
/// The number of kills, and the seed of the random choices, if they are set.
const KILLS: &str = "FARFIELD_KV_KILLS";
const CHOICES: &str = "FARFIELD_KV_SEED";

const THREADS: usize = 2;
const TASKS: u64 = 4;
const KEYS_PER_TASK: u64 = 400;
const KEYS: u64 = THREADS as u64 * TASKS * KEYS_PER_TASK;

fn options() -> Options {
    Options::new(800_000, 8 << 20).with_key([9; 32])
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

/// What a process logs.
#[derive(Clone, Copy)]
enum Entry {
    Begun {
        key: u64,
        operation: u64,
    },
    Returned {
        key: u64,
        operation: u64,
    },
    /// Pages that the process has evicted and rebuilt until now.
    Counts {
        evicted: u64,
        rebuilt: u64,
    },
    RebuildBegun,
    RebuildReturned,
}
const ENTRY_BYTES: usize = 17;

impl Entry {
    fn to_bytes(self) -> [u8; ENTRY_BYTES] {
        let (kind, words) = match self {
            Self::Begun { key, operation } => (0, [key, operation]),
            Self::Returned { key, operation } => (1, [key, operation]),
            Self::Counts { evicted, rebuilt } => (2, [evicted, rebuilt]),
            Self::RebuildBegun => (3, [0; 2]),
            Self::RebuildReturned => (4, [0; 2]),
        };
        let mut bytes = [kind; ENTRY_BYTES];
        bytes[1..].copy_from_slice(&words.map(u64::to_le_bytes).concat());
        bytes
    }

    fn of_bytes(bytes: &[u8]) -> Self {
        let [first, second] =
            [1, 9].map(|at| u64::from_le_bytes(*bytes[at..].first_chunk().expect("an entry")));
        match bytes[0] {
            0 => Self::Begun { key: first, operation: second },
            1 => Self::Returned { key: first, operation: second },
            2 => Self::Counts { evicted: first, rebuilt: second },
            3 => Self::RebuildBegun,
            4 => Self::RebuildReturned,
            kind => panic!("an entry of kind {kind}"),
        }
    }
}

fn log(file: &File, entry: Entry) -> Result<()> {
    let mut file = file;
    file.write_all(&entry.to_bytes()).map_err(Error::other)
}

/// A process that is killed while it starts may not have made its log.
fn read_log(path: &Path) -> Vec<Entry> {
    let mut bytes = Vec::new();
    match File::open(path) {
        Ok(mut file) => drop(file.read_to_end(&mut bytes).unwrap()),
        Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound, "{error}"),
    }
    bytes.chunks_exact(ENTRY_BYTES).map(Entry::of_bytes).collect()
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
            let mut rng = SmallRng::seed_from_u64(seed ^ task);
            loop {
                let name = task * KEYS_PER_TASK + rng.random_range(0..KEYS_PER_TASK);
                let operation = match rng.random_range(0..4) {
                    0 => 0,
                    _ => rng.random_range(1..1 << 40),
                };
                log(&file, Entry::Begun { key: name, operation })?;
                if operation == 0 {
                    store.delete(&key(name), ct).await?;
                } else {
                    store.write(&key(name), &value(name, operation), operation % 2 == 0, ct).await?;
                }
                log(&file, Entry::Returned { key: name, operation })?;
                if rng.random_range(0..64) == 0 {
                    drop(store.read(&key(rng.random_range(0..KEYS)), ct).await?);
                    let Stats { evicted_pages: evicted, rebuilt_pages: rebuilt, .. } = store.stats();
                    log(&file, Entry::Counts { evicted, rebuilt })?;
                    ct.yield_now().await;
                }
                if task == 0 && rng.random_range(0..128) == 0 {
                    log(&file, Entry::RebuildBegun)?;
                    store.rebuild(95, ct).await?;
                    log(&file, Entry::RebuildReturned)?;
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

/// When a process is killed.
#[derive(Clone, Copy)]
enum Kill {
    /// So long after it was started.
    AfterStart(Duration),
    /// So long after it has opened the store.
    AfterOpening(Duration),
}

/// Kills a process that operates on the store, or one that opens it. Returns how long it took to open it, if it was not killed before.
fn kill_one(url: &str, log: &Path, seed: u64, kill: Kill) -> Option<Duration> {
    let started = Instant::now();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "victim", "--ignored", "--nocapture", "--test-threads=1"])
        .env(CLUSTER, url)
        .env(LOG, log)
        .env(SEED, seed.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
    let (after, took) = match kill {
        Kill::AfterStart(after) => (after, None),
        Kill::AfterOpening(after) => {
            assert!(said.any(|line| line.unwrap().contains("it is ready")), "it has ended");
            (after, Some(started.elapsed()))
        }
    };
    std::thread::sleep(after);
    assert!(child.try_wait().unwrap().is_none(), "it has ended by itself");
    child.kill().unwrap();
    child.wait().unwrap();
    took
}

/// What the logs of the killed processes say.
#[derive(Default)]
struct Logged {
    /// The operations of which one has written the value of a key. None if there was none.
    possible: HashMap<u64, Vec<u64>>,
    operations: u64,
    interrupted: u64,
    evicted: u64,
    rebuilt: u64,
    /// Processes that were killed while they rebuilt a page.
    while_rebuilding: u64,
}

impl Logged {
    fn add(&mut self, entries: &[Entry]) {
        let (mut pending, mut counts, mut rebuilds) = (HashMap::new(), (0, 0), false);
        for entry in entries {
            match *entry {
                Entry::Begun { key, operation } => drop(pending.insert(key, operation)),
                Entry::Returned { key, operation } => {
                    pending.remove(&key);
                    self.possible.insert(key, vec![operation]);
                    self.operations += 1;
                }
                Entry::Counts { evicted, rebuilt } => {
                    counts = (evicted.max(counts.0), rebuilt.max(counts.1));
                }
                Entry::RebuildBegun => rebuilds = true,
                Entry::RebuildReturned => rebuilds = false,
            }
        }
        assert!(pending.len() as u64 <= THREADS as u64 * TASKS);
        self.interrupted += pending.len() as u64;
        for (key, operation) in pending {
            self.possible.entry(key).or_insert_with(|| vec![0]).push(operation);
        }
        (self.evicted, self.rebuilt) = (self.evicted + counts.0, self.rebuilt + counts.1);
        self.while_rebuilding += u64::from(rebuilds);
    }

    /// Compares the values of all keys with what the logs say. Returns the faults.
    fn compare(&mut self, found: &[Option<Vec<u8>>]) -> Vec<String> {
        let mut faults = Vec::new();
        for (name, found) in (0..).zip(found) {
            let possible = self.possible.entry(name).or_insert_with(|| vec![0]);
            let expected = |operation: u64| (operation != 0).then(|| value(name, operation));
            let written = possible.iter().find(|operation| *found == expected(**operation));
            if let Some(operation) = written {
                *possible = vec![*operation];
            } else {
                let bytes = found.as_ref().map(Vec::len);
                faults.push(format!("key {name} has {bytes:?} bytes of none of {possible:?}"));
            }
        }
        faults
    }
}

/// Opens the store, and returns the values of all keys, and the pages with a record that was not whole.
fn read_all(url: &str) -> Result<(Vec<Option<Vec<u8>>>, u64)> {
    let found = Cluster::connect(url)?.run(1, async |ct| {
        let store = Store::open("store", &options(), ct).await?;
        let mut found = Vec::new();
        for name in 0..KEYS {
            found.push(store.read(&key(name), ct).await?);
        }
        let records = found.iter().flatten().count() as u64;
        if store.stats().records != records {
            let counted = store.stats().records;
            return Err(Error::other(format!("{records} of {counted} records are those of keys")));
        }
        store.rebuild(60, ct).await?;
        Ok((found, store.stats().torn_records))
    });
    Ok(found?.remove(0))
}

#[test]
fn what_a_killed_process_has_written_is_found_again() {
    let variable = |name, default| std::env::var(name).map_or(default, |set| set.parse::<u64>().unwrap());
    let (kills, mut rng) = (variable(KILLS, 12), SmallRng::seed_from_u64(variable(CHOICES, 1)));
    let mut of_node = MemoryNodeOptions::new(&format!("shm:kv-killed-{}", std::process::id()));
    (of_node.segment_bytes, of_node.lease) = (32 << 20, Duration::from_millis(500));
    let node = MemoryNode::listen(&of_node).unwrap();
    let (url, stopper) = (node.urls()[0].clone(), node.stopper().unwrap());
    let serves = std::thread::spawn(move || node.serve().unwrap());
    let folder = std::env::temp_dir().join(format!("farfield-kv-killed-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let (mut logged, mut torn, mut opening, mut killed) = (Logged::default(), 0, 0, 0);
    // How long it takes to open the store.
    let mut takes = Duration::ZERO;
    let mut faults = Vec::new();
    // On a slow machine, a process does little until it is killed.
    let goes_on = |killed, logged: &Logged| {
        let has_seen_all = logged.rebuilt >= kills && logged.evicted >= kills;
        killed < kills || !has_seen_all && killed < 8 * kills
    };
    while goes_on(killed, &logged) && faults.is_empty() {
        let log = folder.join(killed.to_string());
        // Of eight processes, one is killed while it opens the store after another was killed.
        let kill = if killed % 8 == 7 {
            Kill::AfterStart(takes.mul_f64(rng.random_range(0.0..1.0)))
        } else {
            Kill::AfterOpening(Duration::from_micros(rng.random_range(0..150_000)))
        };
        takes = kill_one(&url, &log, rng.random(), kill).unwrap_or(takes);
        killed += 1;
        let entries = read_log(&log);
        opening += u64::from(entries.is_empty());
        logged.add(&entries);
        if killed % 8 == 7 && goes_on(killed, &logged) {
            continue;
        }
        match read_all(&url) {
            Ok((found, of_torn)) => {
                torn += of_torn;
                faults.extend(logged.compare(&found));
            }
            Err(error) => faults.push(error.to_string()),
        }
    }
    stopper.stop();
    serves.join().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    for (name, value) in [
        ("kills", killed),
        ("verified", faults.is_empty().into()),
        ("operations", logged.operations),
        ("interrupted", logged.interrupted),
        ("while_opening", opening),
        ("while_rebuilding", logged.while_rebuilding),
        ("rebuilt_pages", logged.rebuilt),
        ("evicted_pages", logged.evicted),
        ("torn", torn),
    ] {
        println!("contest.crash.{name} {value}");
    }
    assert!(faults.is_empty(), "after {killed} kills, {} faults: {}", faults.len(), faults[0]);
    assert!(
        logged.rebuilt >= kills && logged.evicted >= kills,
        "the processes have rebuilt and evicted pages"
    );
}
