//! The time of a map's `get` over RDMA, beside that of READs by a minimal loop on verbs.
//!
//! `map_verbs URL ADDRESS` fills a [`HashMap`], an [`InlineHashMap`] and an [`OrderedMap`] with [`KEYS`] keys of one word, whose values are one word, and measures in
//! [`ROUNDS`] rounds. The program `raw_verbs`, which connects the device at `ADDRESS` to itself, runs before and after the
//! measurements of each map. It prints a line for each measurement, in their order:
//!
//! | line | meaning |
//! |---|---|
//! | `raw JSON` | the output of `raw_verbs` |
//! | `get NAME TASKS MICROSECONDS` | the time of a `get` of the map by so many tasks of one thread: the median of the times in which that many `get`s end, divided by their number |
//!
//! The maps are *warm*: each round uses a new handle, and reads each of its random keys once. The handle of a hash map has read the directory, so no `get` knows the slot
//! of its key. The counters of the handle are checked for this. The handle of the ordered map has used all nodes above the leaves. When the epoch advances, which it does
//! after a thousand chains, the next `get` below each of these nodes posts one chain more. The number of chains is checked: at most 1.1 for each `get`.

#![allow(clippy::cast_precision_loss)] // counts of at most some thousands

use std::cell::RefCell;
use std::fmt::Debug;
use std::process::{Command, ExitCode};
use std::time::Instant;

use farfield::prelude::*;
use farfield::{Error, Result};
use farfield_collections::{Counters, HashMap, InlineHashMap, OrderedMap};

/// The number of keys of a map: they are in more than a hundred tables, or in hundreds of leaves.
const KEYS: u64 = 20_000;
/// The handle of an ordered map reads one in so many keys before it is measured: several below each node above the leaves.
const WARMING: usize = 100;
const ROUNDS: usize = 11;
/// The numbers of tasks, each with the number of `get`s of a round.
const MEASURED: [(usize, usize); 2] = [(1, 600), (16, 1600)];
/// The number of READs of the loop.
const RAW_READS: &str = "500";
/// The number of tasks that fill a map.
const FILLING: usize = 16;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, cluster, address] = arguments.as_slice() else {
        eprintln!("usage: map_verbs URL ADDRESS");
        return ExitCode::from(2);
    };
    match run(cluster, address) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(cluster: &str, address: &str) -> Result<()> {
    let cluster = Cluster::connect(cluster)?;
    cluster.run(1, async |ct| {
        let links = HashMap::<u64, u64>::create(ct).await?;
        let words = InlineHashMap::<u64, u64>::create(ct).await?;
        let map = HashMap::attach(links, ct).await?;
        fill(ct, async |key| map.insert(&key, &value(key), ct).await).await?;
        let map = InlineHashMap::attach(words, ct).await?;
        fill(ct, async |key| map.insert(&key, &value(key), ct).await).await?;
        let tree = OrderedMap::<u64, u64>::create(ct).await?;
        let map = OrderedMap::attach(tree, ct).await?;
        fill(ct, async |key| map.insert(&key, &value(key), ct).await).await?;
        raw(address)?;
        for _ in 0..ROUNDS {
            let map = HashMap::attach(links, ct).await?;
            let get = async |key| map.get(&key, ct).await;
            // The first `get` of a handle reads the directory.
            measure("hash-map", ct, [0], get, || map.counters(), only_hits).await?;
            raw(address)?;
            let map = InlineHashMap::attach(words, ct).await?;
            let get = async |key| map.get(&key, ct).await;
            measure("hash-map-inline", ct, [0], get, || map.counters(), only_hits).await?;
            raw(address)?;
            let map = OrderedMap::attach(tree, ct).await?;
            let get = async |key| map.get(&key, ct).await;
            let some = (1..KEYS).step_by(WARMING);
            measure("ordered-map", ct, some, get, || ct.metrics().chains, few_chains).await?;
            raw(address)?;
        }
        HashMap::attach(links, ct).await?.destroy(ct).await?;
        InlineHashMap::attach(words, ct).await?.destroy(ct).await?;
        OrderedMap::attach(tree, ct).await?.destroy(ct).await
    })?;
    Ok(())
}

/// Returns the value of a key.
fn value(key: u64) -> u64 {
    key * 3
}

/// Inserts all keys.
async fn fill(ct: &ComputeThread, insert: impl AsyncFn(u64) -> Result<bool>) -> Result<()> {
    ct.tasks(FILLING, async |task| {
        for key in (task as u64..KEYS).step_by(FILLING) {
            insert(key).await?;
        }
        Ok(())
    })
    .await?;
    Ok(())
}

/// Runs the loop on verbs, and prints its measurement.
fn raw(address: &str) -> Result<()> {
    let run = Command::new("raw_verbs").args([address, RAW_READS]).output();
    let run = run.map_err(|error| Error::other(format!("raw_verbs: {error}")))?;
    if !run.status.success() {
        return Err(Error::other(format!("raw_verbs: {}", String::from_utf8_lossy(&run.stderr))));
    }
    println!("raw {}", String::from_utf8_lossy(&run.stdout).trim());
    Ok(())
}

/// Returns whether each of so many `get`s of a hash map found what it needs in the handle's directory.
fn only_hits(mut before: Counters, after: Counters, gets: usize) -> bool {
    before.directory_hits += gets as u64;
    before == after
}

/// Returns whether so many `get`s of an ordered map posted at most a tenth more chains.
fn few_chains(before: u64, after: u64, gets: usize) -> bool {
    after - before <= (gets + gets / 10) as u64
}

/// Measures `get`s by a new handle that has read the keys `first`, and prints their times. `is_warm` judges what `counts` returned before and after so many `get`s.
async fn measure<C: Copy + Debug>(
    name: &str,
    ct: &ComputeThread,
    first: impl IntoIterator<Item = u64>,
    get: impl AsyncFn(u64) -> Result<Option<u64>>,
    counts: impl Fn() -> C,
    is_warm: impl Fn(C, C, usize) -> bool,
) -> Result<()> {
    let get = async |key: u64| match get(key).await? {
        Some(found) if found == value(key) => Ok(()),
        found => Err(Error::other(format!("{name}: the key {key} has the value {found:?}"))),
    };
    for key in first {
        get(key).await?;
    }
    // Key 0 is read by a hash map's handle before.
    let mut keys: Vec<u64> = (1..KEYS).collect();
    let measured: usize = MEASURED.iter().map(|(_, gets)| gets).sum();
    for index in 0..measured {
        let other = ct.random_range(index..keys.len());
        keys.swap(index, other);
    }
    let mut rest = &keys[..measured];
    let before = counts();
    for (tasks, gets) in MEASURED {
        let (keys, others) = rest.split_at(gets);
        rest = others;
        let ends = RefCell::new(vec![Instant::now()]);
        let get = async |key: &u64| {
            get(*key).await?;
            ends.borrow_mut().push(Instant::now());
            Ok::<_, Error>(())
        };
        if tasks == 1 {
            for key in keys {
                get(key).await?;
            }
        } else {
            ct.tasks(tasks, async |task| {
                for key in keys.iter().skip(task).step_by(tasks) {
                    get(key).await?;
                }
                Ok(())
            })
            .await?;
        }
        let ends = ends.into_inner();
        let rounds = ends.windows(tasks + 1).step_by(tasks);
        let mut times: Vec<_> = rounds.map(|round| round[tasks].duration_since(round[0])).collect();
        times.sort_unstable();
        println!("get {name} {tasks} {}", times[times.len() / 2].as_secs_f64() * 1e6 / tasks as f64);
    }
    let after = counts();
    if !is_warm(before, after, measured) {
        let reason = format!("{name}: the map was not warm in {measured} gets: {before:?}, then {after:?}");
        return Err(Error::other(reason));
    }
    Ok(())
}
