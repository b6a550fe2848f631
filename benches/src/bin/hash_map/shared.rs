//! Processes that share a map on `shm:`, against LMDB and Redis.
//!
//! | figure | one operation | against |
//! |---|---|---|
//! | `shm.hash-map.get.ratio_to_lmdb` | a process gets a value | a read transaction that gets it |
//! | `shm.hash-map.put.ratio_to_lmdb` | a process puts a value (`upsert`) | a write transaction that puts it; LMDB syncs nothing (`MDB_NOSYNC`) |
//! | `shm.hash-map.put.ratio_to_lmdb_map` | the same | the same, of LMDB that writes through its memory map (`MDB_WRITEMAP`) |
//! | `shm.hash-map.put_2.ratio_to_…` | the same, while a second process does so | the same, likewise |
//! | `shm.hash-map.get.ratio_to_redis` | a process gets a value, one after the other | a `GET` on a Unix socket, of 32 connections with 16 pipelined each |
//!
//! Held equal: a million records with keys of 16 bytes and values of 128, of which each operation accesses a random one; a value that is got is copied to
//! a `Vec`; the machine, whose memory has everything. A third process is the memory node, and the client of Redis. Without `redis-server` that figure is
//! skipped.

#[path = "../../../../runtime/tests/skip/mod.rs"]
mod skip;

use std::hint::black_box;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use farfield::memory_node::{MemoryNode, MemoryNodeOptions};
use farfield::prelude::*;
use farfield::{Error, Result};
use farfield_benches::rounds::{median, ratio};
use farfield_collections::HashMap;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::lmdb::{Lmdb, Writing};
use crate::records::{RECORDS, is_value, key, value};
use crate::redis::Redis;

const ROUNDS: usize = 15;
const TIME: Duration = Duration::from_millis(300);
/// Operations between two looks at the clock.
const UNTIMED: u32 = 32;
const SEGMENT_BYTES: u64 = 1 << 30;
const WORKERS: usize = 2;
/// A folder of this system is in memory: LMDB's file is not written back to a disk meanwhile.
const IN_MEMORY: &str = "/dev/shm";

const SIDES: [&str; 3] = ["farfield", "lmdb", "lmdb_map"];
/// The operations: their names in figures and in commands, and the number of processes.
const OPERATIONS: [(&str, &str, usize); 3] = [("get", "get", 1), ("put", "put", 1), ("put_2", "put", 2)];

type Map = HashMap<Vec<u8>, Vec<u8>>;

/// Measures and prints.
pub(crate) fn measure() -> Result<()> {
    let name = format!("bench-{}", std::process::id());
    let mut options = MemoryNodeOptions::new(&format!("shm:{name}"));
    options.segment_bytes = SEGMENT_BYTES;
    let node = MemoryNode::listen(&options)?;
    let stopper = node.stopper()?;
    let parent = if Path::new(IN_MEMORY).is_dir() { IN_MEMORY.into() } else { std::env::temp_dir() };
    let folder = tempfile::tempdir_in(parent).map_err(Error::other)?;
    std::thread::scope(|scope| {
        scope.spawn(|| node.serve());
        let measured = compare(&format!("shm:{name}"), folder.path());
        stopper.stop();
        measured
    })
}

fn compare(url: &str, folder: &Path) -> Result<()> {
    let mut redis = Redis::start(folder);
    let mut workers = Vec::new();
    // The first fills all sides.
    while workers.len() < WORKERS {
        workers.push(Worker::start(url, folder)?);
    }
    let mut times = [const { [const { Vec::new() }; SIDES.len()] }; OPERATIONS.len()];
    let mut redis_get = Vec::new();
    for _ in 0..ROUNDS {
        for ((_, operation, processes), times) in OPERATIONS.iter().zip(&mut times) {
            for (side, times) in SIDES.iter().zip(times) {
                times.push(together(&mut workers[..*processes], &format!("{operation} {side}"))?);
            }
        }
        if let Ok(redis) = &mut redis {
            redis_get.push(redis.get(TIME)?);
        }
    }
    for ((name, ..), times) in OPERATIONS.iter().zip(&times) {
        let medians = times.each_ref().map(|times| median(times.clone()).round());
        eprintln!("{name}: ns of {SIDES:?}: {medians:?}");
        for (side, of_side) in SIDES.iter().zip(times).skip(1) {
            println!("shm.hash-map.{name}.ratio_to_{side} {:.3}", ratio(&times[0], of_side));
        }
    }
    match redis {
        Ok(_) => {
            eprintln!("get: ns of Redis: {}", median(redis_get.clone()).round());
            println!("shm.hash-map.get.ratio_to_redis {:.3}", ratio(&times[0][0], &redis_get));
        }
        Err(why) => skip::skip("redis", &why.to_string()),
    }
    Ok(())
}

/// Returns the nanoseconds of an operation of each of some processes that work at the same time: the number of processes over the sum of their rates.
fn together(workers: &mut [Worker], command: &str) -> Result<f64> {
    workers.iter_mut().try_for_each(|worker| worker.begin(command))?;
    let rates = workers.iter_mut().map(|worker| Ok(1.0 / worker.time()?)).collect::<Result<Vec<_>>>()?;
    Ok(rates.len() as f64 / rates.iter().sum::<f64>())
}

/// A process of this program that measures what it is told, and is killed when it is dropped.
struct Worker(Child, BufReader<ChildStdout>);

impl Worker {
    /// Starts a process, and waits until it is ready.
    fn start(url: &str, folder: &Path) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe().map_err(Error::other)?);
        command.args(["worker", url]).arg(folder).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(Error::other)?;
        let output = child.stdout.take().ok_or_else(|| Error::other("it has no output"))?;
        let mut worker = Self(child, BufReader::new(output));
        worker.line().map(|_| worker)
    }

    fn begin(&mut self, command: &str) -> Result<()> {
        let input = self.0.stdin.as_mut().ok_or_else(|| Error::other("it has no input"))?;
        writeln!(input, "{command}").map_err(Error::other)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.1.read_line(&mut line).map_err(Error::other)?;
        if line.is_empty() { Err(Error::other("a worker failed")) } else { Ok(line.trim().to_owned()) }
    }

    fn time(&mut self) -> Result<f64> {
        let line = self.line()?;
        line.parse().map_err(|_| Error::other(format!("a worker printed `{line}`")))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The nanoseconds of an operation on a random record, executed during [`TIME`].
macro_rules! time {
    ($rng:expr, |$record:pat_param| $operation:expr) => {{
        let (mut count, began) = (0_u32, Instant::now());
        loop {
            for _ in 0..UNTIMED {
                let $record = $rng.random_range(0..RECORDS);
                $operation;
            }
            count += UNTIMED;
            let took = began.elapsed();
            if took >= TIME {
                break took.as_secs_f64() * 1e9 / f64::from(count);
            }
        }
    }};
}

/// Reads commands, and prints the times of their operations, until its parent ends.
pub(crate) fn work(url: &str, folder: &str) -> Result<()> {
    let open = |name: &str, writing| {
        let folder = Path::new(folder).join(name);
        std::fs::create_dir_all(&folder).map_err(Error::other)?;
        Lmdb::open(&folder, writing)
    };
    let (lmdb, lmdb_map) = (open("lmdb", Writing::Calls)?, open("lmdb_map", Writing::Map)?);
    Cluster::connect(url)?.run(1, async |ct| {
        let root = ct.root_or_init("map", async || {
            lmdb.fill()?;
            lmdb_map.fill()?;
            let root = Map::create(ct).await?;
            let map = Map::attach(root, ct).await?;
            for record in 0..RECORDS {
                assert!(map.insert(&key(record), &value(record, 0), ct).await?);
            }
            Ok(root)
        });
        let map = Map::attach(root.await?, ct).await?;
        let mut rng = SmallRng::seed_from_u64(std::process::id().into());
        println!("ready");
        for (line, version) in std::io::stdin().lines().zip((0..=u8::MAX).cycle()) {
            let got = |got: Option<Vec<u8>>, record| {
                assert!(black_box(got).is_some_and(|bytes| is_value(&bytes, record)));
            };
            let time = match line.map_err(Error::other)?.as_str() {
                "get farfield" => time!(rng, |record| got(map.get(&key(record), ct).await?, record)),
                "get lmdb" => time!(rng, |record| got(lmdb.get(&key(record))?, record)),
                "get lmdb_map" => time!(rng, |record| got(lmdb_map.get(&key(record))?, record)),
                "put farfield" => {
                    time!(rng, |record| map.upsert(&key(record), &value(record, version), ct).await?)
                }
                "put lmdb" => time!(rng, |record| lmdb.put(&key(record), &value(record, version))?),
                "put lmdb_map" => time!(rng, |record| lmdb_map.put(&key(record), &value(record, version))?),
                other => return Err(Error::other(format!("`{other}` is no command"))),
            };
            println!("{time}");
        }
        Ok(())
    })?;
    Ok(())
}
