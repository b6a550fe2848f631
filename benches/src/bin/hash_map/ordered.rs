//! The ordered map of one thread with a map of its own process: `local:` against `scc::TreeIndex`.
//!
//! | figure | one operation | of `scc::TreeIndex` |
//! |---|---|---|
//! | `native.ordered-map.insert` | inserts a key; a map grows from empty to a million records | `insert_sync` |
//! | `native.ordered-map.get` | gets the value of a key | `peek_with` |
//! | `native.ordered-map.scan100` | scans 100 pairs from a key on | `range` |
//!
//! Held equal: keys and values, `u64`s, in a random order, each operation on another key; a guard for each operation; the thread, the process, the build.

use std::hint::black_box;
use std::time::Instant;

use farfield::Result;
use farfield::prelude::*;
use farfield_benches::rounds::{median, ratio};
use farfield_collections::OrderedMap;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

use crate::records::RECORDS;

const ROUNDS: u64 = 11;
/// The far memory of the map in every state.
const CLUSTER: &str = "local:size=512MiB";
const SCANS: usize = 20_000;
const SCANNED: usize = 100;

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

/// Measures and prints.
pub(crate) fn measure() -> Result<()> {
    let mut times: [[Vec<f64>; 2]; 3] = Default::default();
    for number in 0..ROUNDS {
        let all = Cluster::connect(CLUSTER)?.run(1, async |ct| round(number, ct).await)?;
        for (times, round) in times.iter_mut().zip(&all[0]) {
            times.iter_mut().zip(round).for_each(|(times, time)| times.push(*time));
        }
    }
    for (operation, times) in ["insert", "get", "scan100"].iter().zip(&times) {
        println!("native.ordered-map.{operation}.ratio {:.3}", ratio(&times[0], &times[1]));
        let medians = times.each_ref().map(|times| median(times.clone()).round());
        eprintln!("{operation}: ns of Farfield and scc::TreeIndex: {medians:?}");
    }
    Ok(())
}

/// Grows a map of each side, reads it and scans it, each operation of both sides in turn.
async fn round(number: u64, ct: &ComputeThread) -> Result<[[f64; 2]; 3]> {
    let mut rng = SmallRng::seed_from_u64(number);
    let mut inserted: Vec<u64> = (0..RECORDS).collect();
    inserted.shuffle(&mut rng);
    let read: Vec<u64> = (0..RECORDS).map(|_| rng.random_range(0..RECORDS)).collect();
    let ours = OrderedMap::<u64, u64>::attach(OrderedMap::create(ct).await?, ct).await?;
    let scc = scc::TreeIndex::<u64, u64>::new();
    let inserts = [
        time!(&inserted, |key| assert!(ours.insert(key, key, ct).await?)),
        time!(&inserted, |key| assert!(scc.insert_sync(*key, *key).is_ok())),
    ];
    let gets = [
        time!(&read, |key| assert!(black_box(ours.get(key, ct).await?) == Some(*key))),
        time!(&read, |key| assert!(black_box(scc.peek_with(key, |_, value| *value)) == Some(*key))),
    ];
    let from: Vec<u64> = read.iter().map(|key| key % (RECORDS - SCANNED as u64)).take(SCANS).collect();
    let scans = [
        time!(&from, |key| {
            let (mut scan, mut sum) = (ours.range(*key.., ct)?.in_pages_of(SCANNED), 0);
            for _ in 0..SCANNED {
                sum += scan.next().await?.map_or(0, |(_, value)| value);
            }
            black_box(sum);
        }),
        time!(&from, |key| {
            let guard = scc::Guard::new();
            black_box(scc.range(*key.., &guard).take(SCANNED).map(|(_, value)| *value).sum::<u64>());
        }),
    ];
    // The process ends with the cluster: the map is not freed.
    Ok([inserts, gets, scans])
}
