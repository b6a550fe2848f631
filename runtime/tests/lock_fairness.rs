//! The fairness of a contended lock, in the simulator's time.
//!
//! A waiting thread backs off for a random time and tries again, and waiting threads have no order. So fairness is statistical: over many
//! acquisitions each thread has about its share, and a wait is long only by chance.

use std::time::Duration;

use farfield::prelude::*;

#[remote]
struct Shared {
    lock: Lock,
    count: Atomic<u64>,
}

/// The acquisitions of one thread, and its longest wait for one.
type Seen = (u64, Duration);

/// `threads` threads acquire one lock, increment a counter and release the lock, repeatedly for 20 ms.
fn contend(threads: usize) -> Vec<Seen> {
    const FOR: Duration = Duration::from_millis(20);
    let seen = Cluster::connect("sim:seed=7,leaks=ignore").unwrap().run(threads, async |ct| {
        let shared =
            ct.root_or_init("shared", async || Shared::new_in(ct, Shared::init()).await?.write(ct).await);
        let shared = shared.await?;
        ct.barrier("ready").await?;
        let until = ct.now() + FOR;
        let (mut acquired, mut longest) = (0, Duration::ZERO);
        while ct.now() < until {
            let began = ct.now();
            let held = shared.lock().acquire(ct).await?;
            longest = longest.max(ct.now().saturating_sub(began));
            acquired += 1;
            shared.count().fetch_add(ct, 1).await?;
            held.release().await?;
        }
        Ok((acquired, longest))
    });
    seen.unwrap()
}

/// Jain's index of fairness: 1 if all shares are equal, 1 / n if one thread has everything.
#[allow(clippy::cast_precision_loss)]
fn jain(seen: &[Seen]) -> f64 {
    let shares: Vec<f64> = seen.iter().map(|(acquired, _)| *acquired as f64).collect();
    let sum: f64 = shares.iter().sum();
    sum * sum / (shares.len() as f64 * shares.iter().map(|share| share * share).sum::<f64>())
}

#[test]
fn a_contended_lock_is_shared_evenly() {
    for (threads, least) in [(2, 0.999), (8, 0.99), (64, 0.95)] {
        let seen = contend(threads);
        let index = jain(&seen);
        let all: u64 = seen.iter().map(|(acquired, _)| acquired).sum();
        let fewest = seen.iter().map(|(acquired, _)| *acquired).min().unwrap();
        let longest = seen.iter().map(|(_, longest)| longest.as_nanos() / 2000).max().unwrap();
        println!("locks.fairness.threads_{threads} {index:.3}");
        println!("of {all} acquisitions one thread had {fewest}; the longest wait was {longest} round trips");
        assert!(index >= least, "{threads} threads: {index:.3}");
        assert!(
            2 * fewest * threads as u64 > all,
            "{threads} threads: one had it {fewest} times of {all}, less than half of its share"
        );
        assert!(longest <= 64 * threads as u128, "{threads} threads: one waited for {longest} round trips");
    }
}
