//! The workload: insert the initial keys, run the operations, sum the counts.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use farfield::Error;
use farfield::prelude::*;
use farfield_examples::IntSet;
use indicatif::{ProgressBar, ProgressStyle};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::args::Args;

/// Operations of a task between two updates of the progress bar.
const OPS_PER_TICK: u64 = 1024;

/// The number of each operation's answers, `true` (`_t`) and `false` (`_f`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answers {
    pub(crate) get_t: u64,
    pub(crate) get_f: u64,
    pub(crate) ins_t: u64,
    pub(crate) ins_f: u64,
    pub(crate) rmv_t: u64,
    pub(crate) rmv_f: u64,
}

/// The counts of all threads, in far memory.
#[remote]
struct Metrics {
    prefilled: Atomic<u64>,
    /// The time of the slowest thread in nanoseconds, in runs of several processes.
    slowest: Atomic<u64>,
    answers: [Atomic<u64>; 6],
    traffic: [Atomic<u64>; 9],
    objects: [Atomic<u64>; 4],
}

/// The outcome of a run.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) duration: Duration,
    pub(crate) prefilled: u64,
    pub(crate) answers: Answers,
    /// `reads` to `doorbells` count the traffic of the timed operations, `allocated` to `reclaimed` the objects of the whole
    /// run.
    pub(crate) metrics: farfield::Metrics,
    /// The keys of the set at the end, or the fault that its structure has.
    pub(crate) keys: Result<Vec<u64>, String>,
    /// The number of reachable objects besides one for each key.
    pub(crate) overhead_objects: u64,
    /// Results that only simulated clusters have.
    pub(crate) simulated: Option<Simulated>,
}

/// Results that only simulated clusters have.
#[derive(Clone, Debug)]
pub(crate) struct Simulated {
    pub(crate) trace_hash: u64,
    pub(crate) rtt: Duration,
    pub(crate) latencies: Latencies,
}

/// The latency of each operation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Latencies {
    pub(crate) get: Vec<Duration>,
    pub(crate) insert: Vec<Duration>,
    pub(crate) remove: Vec<Duration>,
}

impl Latencies {
    fn append(&mut self, mut other: Self) {
        self.get.append(&mut other.get);
        self.insert.append(&mut other.insert);
        self.remove.append(&mut other.remove);
    }
}

/// The results of one thread.
struct Share {
    started: Duration,
    ended: Duration,
    latencies: Latencies,
    /// The sums of all threads and the keys, from the first thread of the process that finishes.
    whole: Option<(Sums, Result<Vec<u64>, String>)>,
}

/// The sums of all threads' counts.
struct Sums {
    prefilled: u64,
    slowest: Duration,
    answers: [u64; 6],
    traffic: [u64; 9],
    objects: [u64; 4],
}

/// Runs the workload on a new set.
pub(crate) fn run<S: IntSet>(args: &Args) -> Result<Outcome> {
    let cluster = Cluster::connect(&args.cluster)?.in_group("intset", args.node_id, args.nodes)?;
    if args.nodes > 1 && std::io::stderr().is_terminal() {
        eprintln!("node {} of {}: waiting for the others", args.node_id, args.nodes);
    }
    let (progress, is_summed) = (progress(args), AtomicBool::new(false));
    let shares =
        cluster.run(args.threads as usize, async |ct| thread::<S>(args, &progress, &is_summed, ct).await);
    progress.finish_and_clear();
    let shares = shares?;
    let started = shares.iter().map(|share| share.started).min().unwrap_or_default();
    let ended = shares.iter().map(|share| share.ended).max().unwrap_or_default();
    let (mut whole, mut latencies) = (None, Latencies::default());
    for share in shares {
        latencies.append(share.latencies);
        whole = whole.or(share.whole);
    }
    let (totals, keys) = whole.expect("a thread summed up");
    let [get_t, get_f, ins_t, ins_f, rmv_t, rmv_f] = totals.answers;
    Ok(Outcome {
        duration: if args.nodes > 1 { totals.slowest } else { ended.saturating_sub(started) },
        prefilled: totals.prefilled,
        answers: Answers { get_t, get_f, ins_t, ins_f, rmv_t, rmv_f },
        metrics: unpack(totals.traffic, totals.objects),
        keys,
        // The totals are one more object.
        overhead_objects: S::OVERHEAD_OBJECTS + 1,
        simulated: cluster.simulation().map(|simulation| Simulated {
            trace_hash: simulation.trace_hash(),
            rtt: simulation.rtt(),
            latencies,
        }),
    })
}

async fn thread<S: IntSet>(
    args: &Args,
    progress: &ProgressBar,
    is_summed: &AtomicBool,
    ct: &ComputeThread,
) -> Result<Share> {
    let (set, totals) =
        (format!("{} set", args.structure.name()), format!("{} totals", args.structure.name()));
    if !ct.cluster().is_private() {
        // A run uses a new set: unpublish the roots of an earlier run.
        if ct.index() == 0 {
            for unpublished in
                [ct.unpublish::<S>(&set).await.map(drop), ct.unpublish::<Metrics>(&totals).await.map(drop)]
            {
                unpublished.or_else(|error| {
                    if matches!(error, Error::RootNotFound(_)) { Ok(()) } else { Err(error) }
                })?;
            }
        }
        ct.barrier("alone").await?;
    }
    let root = ct.root_or_init(&set, async || S::create(ct).await).await?;
    let totals =
        ct.root_or_init(&totals, async || Metrics::new_in(ct, Metrics::init()).await?.write(ct).await);
    let totals = totals.await?;
    let set = S::attach(root, ct).await?;

    let prefilled = prefill(args, &set, ct).await?;
    ct.barrier("prefilled").await?;

    let started = ct.now();
    let before = ct.metrics();
    let done =
        ct.tasks(args.tasks as usize, async |task| operate(args, progress, &set, task, ct).await).await?;
    let ended = ct.now();
    let traffic = ct.metrics() - before;
    let (mut answers, mut latencies) = (Vec::with_capacity(done.len()), Latencies::default());
    for (of_task, took) in done {
        answers.push(of_task);
        latencies.append(took);
    }
    ct.barrier("ran").await?;

    // No thread holds a pointer: each has passed the barrier without a guard.
    ct.reclaim_deferred().await?;
    if args.nodes > 1 {
        totals.slowest().fetch_max(ct, ended.saturating_sub(started).as_nanos() as u64).await?;
    }
    add(totals, prefilled, &answers, traffic, ct.metrics(), ct).await?;
    ct.barrier("summed").await?;

    let is_first = !is_summed.swap(true, Ordering::Relaxed);
    let whole = if is_first { Some((sum(totals, ct).await?, keys(&set, ct).await)) } else { None };
    Ok(Share { started, ended, latencies, whole })
}

async fn keys<S: IntSet>(set: &S, ct: &ComputeThread) -> Result<Vec<u64>, String> {
    set.keys(ct).await.map_err(|error| error.to_string())
}

/// Inserts this thread's share of the initial keys, which are spread evenly over the range. Returns how many.
async fn prefill<S: IntSet>(args: &Args, set: &S, ct: &ComputeThread) -> Result<u64> {
    let (keys, total, threads) = (args.keys(), args.prefilled(), ct.threads() as u128);
    let thread = ct.index() as u128;
    let mut inserted = 0;
    // From the last to the first, so that searches in a list are short.
    for index in (thread * total / threads..(thread + 1) * total / threads).rev() {
        let key = args.key_lb + (index * keys / total) as u64;
        inserted += u64::from(set.insert(key, ct).await?);
    }
    Ok(inserted)
}

/// Runs one task's share of the operations.
async fn operate<S: IntSet>(
    args: &Args,
    progress: &ProgressBar,
    set: &S,
    task: usize,
    ct: &ComputeThread,
) -> Result<(Answers, Latencies)> {
    let stream = (ct.index() as u64) << 32 | task as u64;
    let mut rng = SmallRng::seed_from_u64(args.seed ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let task = task as u64;
    let ops = args.num_ops / args.tasks + u64::from(task < args.num_ops % args.tasks);
    // On real clusters reading the clock would add to the time that is measured.
    let timed = ct.cluster().simulation().is_some();
    let (mut answers, mut latencies) = (Answers::default(), Latencies::default());
    for op in 1..=ops {
        let key = rng.random_range(args.key_lb..=args.key_ub);
        let action = rng.random_range(0..100);
        let began = if timed { ct.now() } else { Duration::ZERO };
        let (counter, took) = if action < args.insert {
            let inserted = set.insert(key, ct).await?;
            (if inserted { &mut answers.ins_t } else { &mut answers.ins_f }, &mut latencies.insert)
        } else if action < args.insert + args.remove {
            let removed = set.remove(key, ct).await?;
            (if removed { &mut answers.rmv_t } else { &mut answers.rmv_f }, &mut latencies.remove)
        } else {
            let found = set.get(key, ct).await?;
            (if found { &mut answers.get_t } else { &mut answers.get_f }, &mut latencies.get)
        };
        *counter += 1;
        if timed {
            took.push(ct.now().saturating_sub(began));
        }
        if op.is_multiple_of(OPS_PER_TICK) {
            progress.inc(OPS_PER_TICK);
        }
    }
    Ok((answers, latencies))
}

/// Adds this thread's counts to the totals.
async fn add(
    totals: RemotePtr<Metrics>,
    prefilled: u64,
    tasks: &[Answers],
    traffic: farfield::Metrics,
    objects: farfield::Metrics,
    ct: &ComputeThread,
) -> Result<()> {
    totals.prefilled().fetch_add(ct, prefilled).await?;
    for answers in tasks {
        let Answers { get_t, get_f, ins_t, ins_f, rmv_t, rmv_f } = *answers;
        for (index, count) in [get_t, get_f, ins_t, ins_f, rmv_t, rmv_f].into_iter().enumerate() {
            totals.answers().at(index).fetch_add(ct, count).await?;
        }
    }
    for (index, count) in pack_traffic(traffic).into_iter().enumerate() {
        totals.traffic().at(index).fetch_add(ct, count).await?;
    }
    for (index, count) in pack_objects(objects).into_iter().enumerate() {
        totals.objects().at(index).fetch_add(ct, count).await?;
    }
    Ok(())
}

async fn sum(totals: RemotePtr<Metrics>, ct: &ComputeThread) -> Result<Sums> {
    let g = &ct.pin();
    let MetricsSnapshot { prefilled, slowest, answers, traffic, objects, .. } = totals.read(g).await?;
    Ok(Sums { prefilled, slowest: Duration::from_nanos(slowest), answers, traffic, objects })
}

fn pack_traffic(metrics: farfield::Metrics) -> [u64; 9] {
    let farfield::Metrics {
        reads,
        read_bytes,
        writes,
        write_bytes,
        cas,
        cas_failed,
        faa,
        chains,
        doorbells,
        ..
    } = metrics;
    [reads, read_bytes, writes, write_bytes, cas, cas_failed, faa, chains, doorbells]
}

fn pack_objects(metrics: farfield::Metrics) -> [u64; 4] {
    let farfield::Metrics { allocated, freed, retired, reclaimed, .. } = metrics;
    [allocated, freed, retired, reclaimed]
}

fn unpack(traffic: [u64; 9], objects: [u64; 4]) -> farfield::Metrics {
    let mut metrics = farfield::Metrics::default();
    [metrics.reads, metrics.read_bytes, metrics.writes, metrics.write_bytes] =
        [traffic[0], traffic[1], traffic[2], traffic[3]];
    [metrics.cas, metrics.cas_failed, metrics.faa, metrics.chains, metrics.doorbells] =
        [traffic[4], traffic[5], traffic[6], traffic[7], traffic[8]];
    [metrics.allocated, metrics.freed, metrics.retired, metrics.reclaimed] = objects;
    metrics
}

/// A progress bar, hidden if stderr is not a terminal.
fn progress(args: &Args) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(args.num_ops.saturating_mul(args.threads));
    let style =
        ProgressStyle::with_template("{elapsed} {wide_bar} {human_pos} of {human_len} operations, {per_sec}");
    style.map_or(bar.clone(), |style| bar.with_style(style))
}
