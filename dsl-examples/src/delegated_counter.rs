//! A contended counter, whose callers each get a number of their own: delegated, under a lock, and by the memory node's FAA.
//!
//! | variant | an operation | round trips without contention |
//! |---|---|---|
//! | [`Variant::Delegated`] | a request to thread 0, which has the counter | 1; requests of a thread's tasks share them |
//! | [`Variant::Lock`] | acquires a far-memory lock and reads the counter with it; stores the next number and releases the lock | 2 |
//! | [`Variant::Faa`] | one FAA | 1 |
//!
//! [`run`] measures a variant, and verifies it: the count at the end is the number of operations, and the numbers from 0 on were each returned once.
//! Each task adds up a hash of its numbers, and the sum must be that of all numbers. So a run of any length, in any number of processes, is verified
//! without keeping its numbers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use farfield::prelude::*;
use farfield::{Error, Remote, StoredTrust};

/// How threads share the counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// It belongs to thread 0, which counts for all.
    Delegated,
    /// It lies in far memory, under a lock.
    Lock,
    /// It is a word of far memory, to which the memory node adds.
    Faa,
}

impl Variant {
    /// All variants, in the order of the module's table.
    pub const ALL: [Self; 3] = [Self::Delegated, Self::Lock, Self::Faa];

    /// Returns the name, as on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Delegated => "delegated",
            Self::Lock => "lock",
            Self::Faa => "faa",
        }
    }
}

/// A run of threads that count.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// How threads share the counter.
    pub variant: Variant,
    /// Compute threads of this process.
    pub threads: usize,
    /// Tasks of each thread; they divide its operations.
    pub tasks: u64,
    /// Operations of each thread.
    pub ops: u64,
    /// True if thread 0 of the cluster makes no operations. In every variant, so that the variants have equally many clients.
    pub has_idle_trustee: bool,
}

/// The outcome of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Operations of all threads.
    pub operations: u64,
    /// From the first operation of this process to its last; the time of the slowest thread if there are several processes.
    pub duration: Duration,
    /// The chains that all threads have posted meanwhile, to memory nodes or to each other, with those of two barriers.
    pub chains: u64,
    /// The counter at the end.
    pub count: u64,
    /// What is wrong with the count or the numbers.
    pub fault: Option<String>,
    /// The latency of each operation. Empty on fabrics whose clock is the processor's.
    pub latencies: Vec<Duration>,
}

impl Outcome {
    /// Returns the operations a second.
    #[allow(clippy::cast_precision_loss)] // a rate
    pub fn rate(&self) -> f64 {
        let seconds = self.duration.as_secs_f64();
        if seconds > 0.0 { self.operations as f64 / seconds } else { 0.0 }
    }
}

/// A counter under a lock.
#[remote]
struct Locked {
    lock: Lock,
    count: Atomic<u64>,
}

/// A counter that needs none.
#[remote]
struct Free {
    count: Atomic<u64>,
}

/// The sums of all threads.
#[remote]
struct Totals {
    operations: Atomic<u64>,
    chains: Atomic<u64>,
    /// The sum of the numbers' hashes.
    hashes: Atomic<u64>,
    /// The time of the slowest thread in nanoseconds.
    slowest: Atomic<u64>,
}

/// A thread's access to the counter.
enum Counting {
    Delegated(Trust<u64>),
    Lock(RemotePtr<Locked>),
    Faa(RemotePtr<Free>),
}

impl Counting {
    /// Makes the counter on thread 0, and attaches the others to it.
    async fn start(variant: Variant, ct: &ComputeThread) -> Result<Self> {
        match variant {
            Variant::Delegated => Ok(Self::Delegated(delegated(ct).await?)),
            Variant::Lock => {
                let made = async || Locked::new_in(ct, Locked::init()).await?.write(ct).await;
                Ok(Self::Lock(ct.root_or_init(&root(variant), made).await?))
            }
            Variant::Faa => {
                let made = async || Free::new_in(ct, Free::init()).await?.write(ct).await;
                Ok(Self::Faa(ct.root_or_init(&root(variant), made).await?))
            }
        }
    }

    /// Returns the next number.
    async fn next(&self, ct: &ComputeThread) -> Result<u64> {
        match self {
            // ANCHOR: next
            Self::Delegated(counter) => {
                let next = counter.apply(ct, 1, |count, by: u64| {
                    let number = *count;
                    *count += by;
                    number
                });
                next.await
            }
            // ANCHOR_END: next
            Self::Lock(counter) => {
                let g = &ct.pin();
                let [(lock, seen)] = g.lock_and_read([(counter.lock(), counter.shared(g))]).await?;
                let next = op::store(counter.count(), seen.count + 1);
                g.chain((next, op::release(lock))).submit().await?;
                Ok(seen.count)
            }
            Self::Faa(counter) => counter.count().fetch_add(ct, 1).await,
        }
    }

    /// Returns the count.
    async fn count(&self, ct: &ComputeThread) -> Result<u64> {
        match self {
            Self::Delegated(counter) => counter.apply(ct, (), |count, ()| *count).await,
            Self::Lock(counter) => counter.count().load(ct).await,
            Self::Faa(counter) => counter.count().load(ct).await,
        }
    }
}

// ANCHOR: delegated
/// Entrusts a counter to thread 0, and returns a handle of it on each thread.
async fn delegated(ct: &ComputeThread) -> Result<Trust<u64>> {
    let name = root(Variant::Delegated);
    if ct.index() == 0 {
        let stored = ct.entrust(0_u64).await?.store(ct).await?;
        ct.publish(&name, stored).await?;
    }
    ct.barrier("published").await?;
    let counter = Trust::open(ct.lookup(&name).await?, ct).await?;
    ct.barrier("opened").await?;
    if ct.index() == 0 {
        // Each thread has a handle of its own now.
        drop(Trust::<u64>::take(ct.unpublish(&name).await?, ct).await?);
    }
    Ok(counter)
}
// ANCHOR_END: delegated

fn root(variant: Variant) -> String {
    format!("{} counter", variant.name())
}

/// Removes a root that an earlier run has left.
async fn forget<T: Remote>(name: &str, ct: &ComputeThread) -> Result<()> {
    match ct.unpublish::<T>(name).await {
        Ok(_) | Err(Error::RootNotFound(_)) => Ok(()),
        Err(error) => Err(error),
    }
}

/// The results of one thread.
struct Share {
    started: Duration,
    ended: Duration,
    latencies: Vec<Duration>,
    /// The sums of all threads and the count, from one thread of the process.
    whole: Option<(TotalsSnapshot, u64)>,
}

/// Runs a variant on a cluster, which has no other work meanwhile.
///
/// # Errors
/// Those of its operations.
pub fn run(cluster: &Cluster, workload: Workload) -> Result<Outcome> {
    let is_summed = AtomicBool::new(false);
    let shares = cluster.run(workload.threads, async |ct| thread(workload, &is_summed, ct).await)?;
    let started = shares.iter().map(|share| share.started).min().unwrap_or_default();
    let ended = shares.iter().map(|share| share.ended).max().unwrap_or_default();
    let (mut whole, mut latencies) = (None, Vec::new());
    for mut share in shares {
        latencies.append(&mut share.latencies);
        whole = whole.or(share.whole);
    }
    let (totals, count) = whole.ok_or_else(|| Error::other("no thread summed up"))?;
    let expected = (0..totals.operations).fold(0, |sum: u64, number| sum.wrapping_add(hash(number)));
    let fault = if count != totals.operations {
        Some(format!("the counter is at {count} after {} operations", totals.operations))
    } else if totals.hashes != expected {
        Some("a number was returned twice, or not at all".to_owned())
    } else {
        None
    };
    let duration = ended.saturating_sub(started);
    Ok(Outcome {
        operations: totals.operations,
        duration: if cluster.is_private() { duration } else { Duration::from_nanos(totals.slowest) },
        chains: totals.chains,
        count,
        fault,
        latencies,
    })
}

async fn thread(workload: Workload, is_summed: &AtomicBool, ct: &ComputeThread) -> Result<Share> {
    let totals = format!("{} totals", root(workload.variant));
    if !ct.cluster().is_private() {
        if ct.index() == 0 {
            let name = root(workload.variant);
            match workload.variant {
                Variant::Delegated => forget::<StoredTrust<u64>>(&name, ct).await?,
                Variant::Lock => forget::<Locked>(&name, ct).await?,
                Variant::Faa => forget::<Free>(&name, ct).await?,
            }
            forget::<Totals>(&totals, ct).await?;
        }
        ct.barrier("alone").await?;
    }
    let totals =
        ct.root_or_init(&totals, async || Totals::new_in(ct, Totals::init()).await?.write(ct).await).await?;
    let counting = Counting::start(workload.variant, ct).await?;
    let is_client = !(workload.has_idle_trustee && ct.index() == 0);
    if is_client {
        // A thread's first request makes its pair with the trustee.
        counting.count(ct).await?;
    }
    // Before the barrier: the trustee may leave it late, because it serves those who have left it.
    let before = ct.metrics();
    ct.barrier("ready").await?;

    let started = ct.now();
    let tasks = if is_client { workload.tasks } else { 0 };
    let done =
        ct.tasks(tasks as usize, async |task| count(workload, &counting, task as u64, ct).await).await?;
    let ended = ct.now();
    ct.barrier("counted").await?;
    let chains = (ct.metrics() - before).chains;

    let took = ended.saturating_sub(started);
    let (mut operations, mut hashes, mut latencies) = (0, 0_u64, Vec::new());
    for mut tally in done {
        operations += tally.operations;
        hashes = hashes.wrapping_add(tally.hashes);
        latencies.append(&mut tally.latencies);
    }
    if is_client {
        totals.operations().fetch_add(ct, operations).await?;
        totals.hashes().fetch_add(ct, hashes).await?;
        totals.slowest().fetch_max(ct, took.as_nanos() as u64).await?;
    }
    totals.chains().fetch_add(ct, chains).await?;
    ct.barrier("summed").await?;
    let whole = if is_summed.swap(true, Ordering::Relaxed) {
        None
    } else {
        Some((totals.read(&ct.pin()).await?, counting.count(ct).await?))
    };
    ct.barrier("read").await?;
    // Thread 0 has no operations of its own if it is idle: its times are of no interest.
    let (started, ended) = if is_client { (started, ended) } else { (Duration::MAX, Duration::ZERO) };
    Ok(Share { started, ended, latencies, whole })
}

/// The results of one task.
struct Tally {
    operations: u64,
    hashes: u64,
    latencies: Vec<Duration>,
}

async fn count(workload: Workload, counting: &Counting, task: u64, ct: &ComputeThread) -> Result<Tally> {
    let operations = workload.ops / workload.tasks + u64::from(task < workload.ops % workload.tasks);
    // On real clusters reading the clock would add to the time that is measured.
    let is_timed = ct.cluster().simulation().is_some();
    let (mut hashes, mut latencies) = (0_u64, Vec::new());
    for _ in 0..operations {
        let began = if is_timed { ct.now() } else { Duration::ZERO };
        hashes = hashes.wrapping_add(hash(counting.next(ct).await?));
        if is_timed {
            latencies.push(ct.now().saturating_sub(began));
        }
    }
    Ok(Tally { operations, hashes, latencies })
}

/// A hash of a number: the finalizer of `SplitMix64` (Steele, Lea and Flood, 2014).
fn hash(number: u64) -> u64 {
    let mut hash = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ hash >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ hash >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ hash >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_is_returned_twice_changes_the_sum() {
        let sum = |numbers: &[u64]| numbers.iter().fold(0_u64, |sum, n| sum.wrapping_add(hash(*n)));
        assert_eq!(sum(&[2, 0, 1, 3]), sum(&[0, 1, 2, 3]));
        for wrong in [[0, 1, 1, 3], [0, 0, 3, 3], [0, 1, 2, 4], [1, 1, 2, 2]] {
            assert_ne!(sum(&wrong), sum(&[0, 1, 2, 3]), "{wrong:?}");
        }
    }
}
