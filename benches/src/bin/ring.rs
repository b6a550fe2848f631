//! The ring of `farfield-collections` on one thread of `local:`, against the `ArrayQueue` of `crossbeam-queue`.
//!
//! `native.ring.ratio` is the time of a `try_push` and a `try_pop`, over that of a `push` and a `pop`.
//!
//! Held equal: items, `u64`s; room for 1,024 of them; the thread, the process, the build. Items are pushed and popped 512 at a time, so that neither queue is full or empty. The queues take turns
//! with parts of a round, each beginning every second one: so what else the machine does hits both. The figure is the median of the rounds' ratios. Medians of the times are on the standard error.
//!
//! An item of an `ArrayQueue` is in its slot, and nothing has to be freed. Ours is an object of its own, which is allocated and retired, since items may have any length.

#![allow(clippy::cast_precision_loss)] // counts of at most some millions

use std::process::ExitCode;
use std::time::Instant;

use crossbeam_queue::ArrayQueue;
use farfield::prelude::*;
use farfield_benches::rounds::median;
use farfield_collections::Ring;

const ROUNDS: usize = 21;
/// The parts of a round.
const PARTS: usize = 20;
/// What a part does, so many times: it pushes items, and pops them.
const REPEATS: u64 = 100;
const ITEMS: u64 = 512;
const CAPACITY: u64 = 1024;

/// Returns the nanoseconds of an item.
fn per_item(started: Instant) -> f64 {
    started.elapsed().as_secs_f64() * 1e9 / (REPEATS * ITEMS) as f64
}

async fn ours(ring: &Ring<u64>, ct: &ComputeThread) -> farfield::Result<f64> {
    let started = Instant::now();
    for _ in 0..REPEATS {
        for item in 0..ITEMS {
            assert!(ring.try_push(&item, ct).await?);
        }
        for item in 0..ITEMS {
            assert!(ring.try_pop(ct).await? == Some(item));
        }
    }
    Ok(per_item(started))
}

fn theirs(queue: &ArrayQueue<u64>) -> f64 {
    let started = Instant::now();
    for _ in 0..REPEATS {
        for item in 0..ITEMS {
            assert!(queue.push(item).is_ok());
        }
        for item in 0..ITEMS {
            assert!(queue.pop() == Some(item));
        }
    }
    per_item(started)
}

/// Returns the times of both queues, for each round.
async fn rounds(ct: &ComputeThread) -> farfield::Result<Vec<[f64; 2]>> {
    let ring = Ring::attach(Ring::<u64>::create(CAPACITY, ct).await?, ct).await?;
    let queue = ArrayQueue::new(CAPACITY as usize);
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let mut sums = [0.0; 2];
        for part in 0..PARTS {
            for turn in 0..2 {
                if (part + turn) % 2 == 0 {
                    sums[0] += ours(&ring, ct).await?;
                } else {
                    sums[1] += theirs(&queue);
                }
            }
        }
        times.push(sums.map(|sum| sum / PARTS as f64));
    }
    ring.destroy(ct).await?;
    Ok(times)
}

fn measure() -> farfield::Result<()> {
    let all = Cluster::connect("local:")?.run(1, async |ct| rounds(ct).await)?;
    println!("native.ring.ratio {:.3}", median(all[0].iter().map(|[ours, theirs]| ours / theirs).collect()));
    let medians = [0, 1].map(|which| median(all[0].iter().map(|times| times[which]).collect()).round());
    eprintln!("ns of Farfield and crossbeam-queue: {medians:?}");
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
