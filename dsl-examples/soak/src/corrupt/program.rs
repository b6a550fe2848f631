//! A member that works on all structures while its far memory is corrupted.
//!
//! It heeds its standard input, not far memory, which may say anything: for each `?` it prints how many operations it has done, and at
//! the input's end it stops: what it waits for is dropped. So it ends whenever an operation gives way to others now and then, as
//! all waits do; an operation that neither ends nor waits is a fault of the runtime, and is what the test calls a hang.

use std::future::poll_fn;
use std::io::{BufRead, Write};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;

use farfield::prelude::*;
use farfield::{Cluster, ComputeThread};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::stage::{Operation, Structures, Which};

/// What only these programs have: a lock of its own, and an object of a size that changes.
#[remote]
struct Cellar {
    lock: Lock,
    guarded: Atomic<u64>,
    cask: Link<Cask>,
}

/// An object with chunks of its own, or nearly so.
#[remote]
struct Cask {
    words: Tail<u64>,
}

/// How many compute threads there are.
const THREADS: usize = 2;
/// Up to so many words a cask has.
const MOST_WORDS: usize = 2500;
/// How many keys are used of each set: lists are short, so that much is done.
const KEYS: u64 = 64;

/// What the program is told, and what it tells.
#[derive(Default)]
struct Progress {
    is_over: AtomicBool,
    operations: AtomicU64,
}

/// Works until standard input ends.
///
/// # Errors
/// Those of the cluster and of the structures: far memory may be corrupt.
pub fn run(url: &str, seed: u64) -> Result<()> {
    let progress = Arc::new(Progress::default());
    let told = Arc::clone(&progress);
    std::thread::spawn(move || {
        for _ in std::io::stdin().lock().lines().map_while(std::io::Result::ok) {
            let mut out = std::io::stdout().lock();
            let _ = writeln!(out, "{}", told.operations.load(Ordering::Relaxed));
            let _ = out.flush();
        }
        told.is_over.store(true, Ordering::Relaxed);
    });
    Cluster::connect(url)?.run(THREADS, async |ct| {
        let mut work = pin!(work(ct, seed, &progress));
        // Between two polls nothing is half done: what is dropped here undoes itself.
        poll_fn(|context| {
            if progress.is_over.load(Ordering::Relaxed) {
                return Poll::Ready(Ok(()));
            }
            let done = work.as_mut().poll(context);
            // The other thread ends with this one.
            progress.is_over.fetch_or(done.is_ready(), Ordering::Relaxed);
            done
        })
        .await
    })?;
    Ok(())
}

async fn work(ct: &ComputeThread, seed: u64, progress: &Progress) -> Result<()> {
    let all = Structures::attach(ct).await?;
    let cellar = async || Cellar::new_in(ct, Cellar::init()).await?.write(ct).await;
    let cellar = ct.root_or_init("cellar", cellar).await?;
    let mut rng = SmallRng::seed_from_u64(seed + ct.index() as u64);
    loop {
        // The structures' operations on shared memory wait for nothing, as a rule.
        ct.yield_now().await;
        let value = rng.random_range(1..1 << 40);
        match rng.random_range(0..7_usize) {
            5 => lock(cellar, value, ct).await?,
            6 if value % 16 == 0 => refill(cellar, rng.random_range(1..=MOST_WORDS), ct).await?,
            which => {
                let which = Which::ALL[which % Which::ALL.len()];
                let with_key = which == Which::Records || Which::SETS.contains(&which);
                let operation = match rng.random_range(0..4) {
                    0 if with_key => Operation::Get,
                    1 | 2 if which != Which::Records => Operation::Remove,
                    _ => Operation::Insert,
                };
                all.perform(which, operation, value % which.keys().min(KEYS), value, ct).await?;
            }
        }
        progress.operations.fetch_add(1, Ordering::Relaxed);
    }
}

/// Changes something under a lock.
async fn lock(cellar: RemotePtr<Cellar>, value: u64, ct: &ComputeThread) -> Result<()> {
    let mut guard = cellar.lock().acquire(ct).await?;
    guard.recovered();
    cellar.guarded().store(ct, value).await?;
    guard.release().await?;
    Ok(())
}

/// Replaces the cask by one of another size.
async fn refill(cellar: RemotePtr<Cellar>, words: usize, ct: &ComputeThread) -> Result<()> {
    let g = &ct.pin();
    let cask = Cask::new_in(ct, Cask::init(vec![7; words])).await?;
    let old = cellar.cask().swap(g, cask).await?;
    if old.is_null() { Ok(()) } else { g.sched_reclaim(old).await }
}
