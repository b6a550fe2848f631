//! A member that operates on all structures while its far memory is corrupted.
//!
//! Its standard input controls it, not far memory. For each line it prints the number of completed operations. When the input ends it drops
//! its futures and stops. So it ends if every operation yields repeatedly, as all waits do. An operation that neither ends nor yields is a
//! bug of the runtime, which the test reports as a hang.

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

use crate::structures::{Structures, Target};

/// Objects that only these programs use: a lock, and an object whose size varies.
#[remote]
struct Extras {
    lock: Lock,
    guarded: Atomic<u64>,
    buffer: Link<Buffer>,
}

/// An object that fills whole chunks, or nearly.
#[remote]
struct Buffer {
    words: Tail<u64>,
}

/// Number of compute threads.
const THREADS: usize = 2;
/// Most words of a buffer.
const MOST_WORDS: usize = 2500;
/// Number of keys in use of each set: short lists allow many operations.
const KEYS: u64 = 64;

/// State that is shared with the thread that reads the standard input.
#[derive(Default)]
struct Progress {
    is_over: AtomicBool,
    operations: AtomicU64,
}

/// Operates until the standard input ends.
///
/// # Errors
/// Those of the cluster and of the structures: far memory may be corrupt.
pub fn run(url: &str, seed: u64) -> Result<()> {
    let progress = Arc::new(Progress::default());
    let shared = Arc::clone(&progress);
    std::thread::spawn(move || {
        for _ in std::io::stdin().lock().lines().map_while(std::io::Result::ok) {
            let mut out = std::io::stdout().lock();
            let _ = writeln!(out, "{}", shared.operations.load(Ordering::Relaxed));
            let _ = out.flush();
        }
        shared.is_over.store(true, Ordering::Relaxed);
    });
    Cluster::connect(url)?.run(THREADS, async |ct| {
        let mut work = pin!(work(ct, seed, &progress));
        // Futures are dropped between two polls, and undo their effects.
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
    let extras = async || Extras::new_in(ct, Extras::init()).await?.write(ct).await;
    let extras = ct.root_or_init("extras", extras).await?;
    let mut rng = SmallRng::seed_from_u64(seed + ct.index() as u64);
    loop {
        // Operations on shared memory mostly do not wait.
        ct.yield_now().await;
        let value = rng.random_range(1..1 << 40);
        match Target::STRUCTURES.get(rng.random_range(0..Target::STRUCTURES.len() + 2)) {
            Some(target) => {
                let operations = target.operations();
                let operation = operations[rng.random_range(0..operations.len())];
                all.perform(*target, operation, value % target.keys().min(KEYS), value, ct).await?;
            }
            None if value % 16 == 0 => replace_buffer(extras, rng.random_range(1..=MOST_WORDS), ct).await?,
            None => lock(extras, value, ct).await?,
        }
        progress.operations.fetch_add(1, Ordering::Relaxed);
    }
}

/// Changes a word under a lock.
async fn lock(extras: RemotePtr<Extras>, value: u64, ct: &ComputeThread) -> Result<()> {
    let mut guard = extras.lock().acquire(ct).await?;
    guard.recovered();
    extras.guarded().store(ct, value).await?;
    guard.release().await?;
    Ok(())
}

/// Replaces the buffer by one of another size.
async fn replace_buffer(extras: RemotePtr<Extras>, words: usize, ct: &ComputeThread) -> Result<()> {
    let g = &ct.pin();
    let buffer = Buffer::new_in(ct, Buffer::init(vec![7; words])).await?;
    let old = extras.buffer().swap(g, buffer).await?;
    if old.is_null() { Ok(()) } else { g.sched_reclaim(old).await }
}
