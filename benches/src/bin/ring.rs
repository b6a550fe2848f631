//! The ring of `farfield-collections` on one thread of `local:`, against the `ArrayQueue` of `crossbeam-queue`.
//!
//! `native.ring.ratio` is the time of a `try_push` and a `try_pop`, over that of a `push` and a `pop`; `native.ring.short.ratio` the same of items below 2^32, for which a push takes one CAS less.
//!
//! Held equal: items, `u64`s; room for 1,024 of them; the thread, the process, the build. Items are pushed and popped 512 at a time, so that neither queue is full or empty. The queues take turns
//! with parts of a round, each beginning every second one: so what else the machine does hits both. The figure is the median of the rounds' ratios. Medians of the times are on the standard error.
//!
//! Items of both queues are in their slots. A producer of an `ArrayQueue` takes a slot before it fills it; if it stops in between, consumers wait. Ours do not: that takes a CAS more for an item that
//! is longer than half a word.

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

/// The items of a benchmark, by their numbers.
#[derive(Clone, Copy)]
enum Items {
    /// They need all 64 bits.
    Long,
    /// They are below 2^32.
    Short,
}

impl Items {
    #[inline]
    fn item(self, number: u64) -> u64 {
        match self {
            Self::Long => number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1 << 63,
            Self::Short => number,
        }
    }
}

async fn ours(items: Items, ring: &Ring<u64>, ct: &ComputeThread) -> farfield::Result<f64> {
    let started = Instant::now();
    for _ in 0..REPEATS {
        for number in 0..ITEMS {
            assert!(ring.try_push(&items.item(number), ct).await?);
        }
        for number in 0..ITEMS {
            assert!(ring.try_pop(ct).await? == Some(items.item(number)));
        }
    }
    Ok(per_item(started))
}

fn theirs(items: Items, queue: &ArrayQueue<u64>) -> f64 {
    let started = Instant::now();
    for _ in 0..REPEATS {
        for number in 0..ITEMS {
            assert!(queue.push(items.item(number)).is_ok());
        }
        for number in 0..ITEMS {
            assert!(queue.pop() == Some(items.item(number)));
        }
    }
    per_item(started)
}

/// Returns the times of both queues, for each round.
async fn rounds(items: Items, ct: &ComputeThread) -> farfield::Result<Vec<[f64; 2]>> {
    let ring = Ring::attach(Ring::<u64>::create(CAPACITY, ct).await?, ct).await?;
    let queue = ArrayQueue::new(CAPACITY as usize);
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let mut sums = [0.0; 2];
        for part in 0..PARTS {
            for turn in 0..2 {
                if (part + turn) % 2 == 0 {
                    sums[0] += ours(items, &ring, ct).await?;
                } else {
                    sums[1] += theirs(items, &queue);
                }
            }
        }
        times.push(sums.map(|sum| sum / PARTS as f64));
    }
    ring.destroy(ct).await?;
    Ok(times)
}

fn measure() -> farfield::Result<()> {
    for (name, items) in [("ratio", Items::Long), ("short.ratio", Items::Short)] {
        let all = Cluster::connect("local:")?.run(1, async |ct| rounds(items, ct).await)?;
        let ratios = all[0].iter().map(|[ours, theirs]| ours / theirs).collect();
        println!("native.ring.{name} {:.3}", median(ratios));
        let medians = [0, 1].map(|which| median(all[0].iter().map(|times| times[which]).collect()));
        eprintln!("ns of Farfield and crossbeam-queue: {medians:.1?}");
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
