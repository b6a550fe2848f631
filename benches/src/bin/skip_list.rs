//! The skip list of `farfield-collections` on one thread of `local:`, against `crossbeam-skiplist`.
//!
//! | figure | one operation | of `crossbeam-skiplist` |
//! |---|---|---|
//! | `native.skip-list.insert` | inserts a key; a list grows from empty to a million records | `insert` |
//! | `native.skip-list.get` | gets the value of a key | `get` |
//!
//! Held equal: keys and values, `u64`s, in a random order; a guard for each operation; the thread, the process, the build. Both lists exist at the same time, and a round makes
//! each anew. The gets of a round are divided into parts, of which the lists take turns, each beginning every second one: so what else the machine does hits both. A figure is the median of the
//! rounds' ratios. Medians of the times are on the standard error.
//!
//! Both lists visit as many towers on average, one for each of 2 log₂ n steps or so, and wait for the memory of most in the lower levels: so the ratio can not be far from 1, whatever the code is.

#![allow(clippy::cast_precision_loss)] // counts of at most some millions

use std::hint::black_box;
use std::process::ExitCode;
use std::time::Instant;

use crossbeam_skiplist::SkipMap;
use farfield::prelude::*;
use farfield_benches::rounds::median;
use farfield_collections::SkipList;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

const RECORDS: u64 = 1_000_000;
const ROUNDS: u64 = 7;
/// The parts of a round's gets.
const PARTS: usize = 40;
const CLUSTER: &str = "local:size=512MiB";

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

/// Returns the times of an insertion and of a get, of both lists.
async fn round(number: u64, ct: &ComputeThread) -> farfield::Result<[[f64; 2]; 2]> {
    let mut rng = SmallRng::seed_from_u64(number);
    let mut inserted: Vec<u64> = (0..RECORDS).collect();
    inserted.shuffle(&mut rng);
    let read: Vec<u64> = (0..RECORDS).map(|_| rng.random_range(0..RECORDS)).collect();
    let ours = SkipList::<u64, u64>::attach(SkipList::create(ct).await?, ct).await?;
    let theirs = SkipMap::<u64, u64>::new();
    let inserts = [
        time!(&inserted, |key| assert!(ours.insert(key, key, ct).await?)),
        time!(&inserted, |key| drop(theirs.insert(*key, *key))),
    ];
    let mut gets = [0.0; 2];
    for (part, keys) in read.chunks(read.len() / PARTS).enumerate() {
        for turn in 0..2 {
            if (part + turn) % 2 == 0 {
                gets[0] += time!(keys, |key| assert!(black_box(ours.get(key, ct).await?) == Some(*key)));
            } else {
                gets[1] += time!(keys, |key| {
                    assert!(black_box(theirs.get(key).map(|entry| *entry.value())) == Some(*key));
                });
            }
        }
    }
    // The process ends with the cluster: the list is not freed.
    Ok([inserts, gets.map(|sum| sum / PARTS as f64)])
}

fn measure() -> farfield::Result<()> {
    let mut times: [[Vec<f64>; 2]; 2] = Default::default();
    for number in 0..ROUNDS {
        let all = Cluster::connect(CLUSTER)?.run(1, async |ct| round(number, ct).await)?;
        for (times, round) in times.iter_mut().zip(&all[0]) {
            times.iter_mut().zip(round).for_each(|(times, time)| times.push(*time));
        }
    }
    for (operation, [ours, theirs]) in ["insert", "get"].iter().zip(&times) {
        let ratios = ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect();
        println!("native.skip-list.{operation}.ratio {:.3}", median(ratios));
        let medians = [ours, theirs].map(|times| median(times.clone()).round());
        eprintln!("{operation}: ns of Farfield and crossbeam-skiplist: {medians:?}");
    }
    Ok(())
}

fn main() -> ExitCode {
    match measure() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}
