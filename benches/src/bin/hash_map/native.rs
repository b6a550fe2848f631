//! One thread with a map of its own process: `local:` against `papaya`, `dashmap` and `scc`.
//!
//! | figure | one operation | of `papaya`, `dashmap`, `scc` |
//! |---|---|---|
//! | `native.hash-map.insert` | inserts a key; a map grows from empty to a million records | `try_insert`, `insert`, `insert_sync` |
//! | `native.hash-map.get` | gets the value of a key | `get`, `get`, `read_sync` |
//! | `native.hash-map.update` | gives a key another value | `update`, `get_mut`, `update_sync` |
//!
//! Held equal: keys and values, `u64`s, in a random order, each operation on another key; the hash function's family, SipHash-1-3; a guard for each
//! operation; the thread, the process, the build. All four maps exist at the same time, and a round makes each anew.

use std::hint::black_box;
use std::time::Instant;

use farfield::Result;
use farfield::prelude::*;
use farfield_benches::rounds::{median, ratio};
use farfield_collections::HashMap;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

use crate::records::RECORDS;

const ROUNDS: u64 = 11;
/// The far memory of the map in every state.
const CLUSTER: &str = "local:size=512MiB";
const PEERS: [&str; 3] = ["papaya", "dashmap", "scc"];
const SIDES: usize = 1 + PEERS.len();

/// The keys of a round.
struct Keys {
    inserted: Vec<u64>,
    read: Vec<u64>,
    updated: Vec<u64>,
}

impl Keys {
    fn of(round: u64) -> Self {
        let mut rng = SmallRng::seed_from_u64(round);
        let mut inserted: Vec<u64> = (0..RECORDS).collect();
        inserted.shuffle(&mut rng);
        let mut uniform = || (0..RECORDS).map(|_| rng.random_range(0..RECORDS)).collect();
        Self { inserted, read: uniform(), updated: uniform() }
    }
}

/// The nanoseconds of an operation, executed for each of some keys.
macro_rules! time {
    ($keys:expr, |$key:pat_param| $operation:expr) => {{
        let keys: &[u64] = $keys;
        let started = Instant::now();
        for $key in keys {
            $operation;
        }
        started.elapsed().as_secs_f64() * 1e9 / keys.len() as f64
    }};
}

/// The times of an operation in all rounds, of Farfield and of its peers.
type Times = [Vec<f64>; SIDES];

/// Measures and prints.
pub(crate) fn measure() -> Result<()> {
    let mut times: [Times; 3] = Default::default();
    for number in 0..ROUNDS {
        let all = Cluster::connect(CLUSTER)?.run(1, async |ct| round(&Keys::of(number), ct).await)?;
        for (times, round) in times.iter_mut().zip(&all[0]) {
            times.iter_mut().zip(round).for_each(|(times, time)| times.push(*time));
        }
    }
    for (operation, times) in ["insert", "get", "update"].iter().zip(&times) {
        let [ours, peers @ ..] = times;
        for (peer, times) in PEERS.iter().zip(peers) {
            let of = if *peer == "papaya" { String::new() } else { format!("_to_{peer}") };
            println!("native.hash-map.{operation}.ratio{of} {:.3}", ratio(ours, times));
        }
        let medians = times.each_ref().map(|times| median(times.clone()).round());
        eprintln!("{operation}: ns of Farfield and {PEERS:?}: {medians:?}");
    }
    Ok(())
}

/// Grows a map of each side, reads it and updates it, each operation of all sides in turn.
async fn round(keys: &Keys, ct: &ComputeThread) -> Result<[[f64; SIDES]; 3]> {
    let ours = HashMap::<u64, u64>::attach(HashMap::create(ct).await?, ct).await?;
    let papaya = papaya::HashMap::<u64, u64>::new();
    let dashmap = dashmap::DashMap::<u64, u64>::new();
    let scc = scc::HashMap::<u64, u64>::new();
    let inserts = [
        time!(&keys.inserted, |key| assert!(ours.insert(key, key, ct).await?)),
        time!(&keys.inserted, |key| assert!(papaya.pin().try_insert(*key, *key).is_ok())),
        time!(&keys.inserted, |key| assert!(dashmap.insert(*key, *key).is_none())),
        time!(&keys.inserted, |key| assert!(scc.insert_sync(*key, *key).is_ok())),
    ];
    let gets = [
        time!(&keys.read, |key| assert!(black_box(ours.get(key, ct).await?) == Some(*key))),
        time!(&keys.read, |key| assert!(black_box(papaya.pin().get(key).copied()) == Some(*key))),
        time!(&keys.read, |key| assert!(black_box(dashmap.get(key).map(|value| *value)) == Some(*key))),
        time!(&keys.read, |key| assert!(black_box(scc.read_sync(key, |_, value| *value)) == Some(*key))),
    ];
    let updates = [
        time!(&keys.updated, |key| assert!(ours.update(key, &!key, ct).await?)),
        time!(&keys.updated, |key| assert!(papaya.pin().update(*key, |_| !key).is_some())),
        time!(&keys.updated, |key| assert!(dashmap.get_mut(key).map(|mut value| *value = !key).is_some())),
        time!(&keys.updated, |key| assert!(scc.update_sync(key, |_, value| *value = !key).is_some())),
    ];
    // The process ends with the cluster: the map is not freed.
    Ok([inserts, gets, updates])
}
