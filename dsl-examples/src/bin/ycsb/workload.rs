//! A run: load the records, run the operations, check every record, sum up.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use farfield::Error;
use farfield::prelude::*;
use farfield_examples::program::counted;
use indicatif::{ProgressBar, ProgressStyle};
use rand::SeedableRng;
use rand::rngs::SmallRng;

use crate::args::Args;
use crate::distribution::Chooser;
use crate::inserted::Inserted;
use crate::ledger::{Checked, LIMIT, Ledger, Notes, Terms};
use crate::measures::{Measures, Stripes};
use crate::mix::{Kind, Workload, scan_length};
use crate::packing::Form;
use crate::record::{Value, share_start};
use crate::scans::{Place, Places};
use crate::store::Store;
use crate::totals::{Sums, Totals};

/// Operations of a task between two updates of the progress bar.
const OPS_PER_TICK: u64 = 1024;
/// Records that a task checks at a time.
const CHECKED_TOGETHER: u64 = 64;
/// Tasks of a thread that check records, at least.
const CHECKING_TASKS: u64 = 16;

/// The outcome of a run, of all its processes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    /// The number of tasks of each thread.
    pub(crate) tasks: u64,
    pub(crate) load_time: Duration,
    pub(crate) run_time: Duration,
    pub(crate) sums: Sums,
    pub(crate) measures: Measures,
    /// The first fault that this process has found.
    pub(crate) fault: Option<String>,
    /// The sum of the read-modify-writes that the records count at the end.
    pub(crate) counted: u64,
    pub(crate) simulated: Option<Simulated>,
}

/// Results that only simulated clusters have.
#[derive(Clone, Debug)]
pub(crate) struct Simulated {
    pub(crate) trace_hash: u64,
    pub(crate) rtt: Duration,
}

/// What the threads of a process share.
struct Run<'a> {
    args: &'a Args,
    form: Form,
    progress: &'a ProgressBar,
    inserted: Inserted,
    chooser: Chooser,
    stripes: Stripes,
    ledger: Mutex<Ledger>,
    /// The order of the records, once they are loaded, for a workload with scans.
    places: OnceLock<Places>,
    scanned: AtomicU64,
    faults: Mutex<Faults>,
    has_speaker: AtomicBool,
    /// The next record to check.
    next: AtomicU64,
    counted: AtomicU64,
}

#[derive(Debug, Default)]
struct Faults {
    count: u64,
    first: Option<String>,
}

/// The results of one thread.
struct Share {
    load: [Duration; 2],
    run: [Duration; 2],
    /// The results of all threads, from one thread of each process.
    whole: Option<(Sums, [Duration; 2], Measures)>,
}

impl Run<'_> {
    fn fault(&self, record: u64, what: &str) {
        self.fault_of(format!("record {record} {what}"));
    }

    fn fault_of(&self, what: String) {
        let mut faults = locked(&self.faults);
        faults.count += 1;
        faults.first.get_or_insert(what);
    }

    fn decode(&self, record: u64, bytes: Option<&[u8]>) -> Option<Value> {
        let decoded = match bytes {
            None => Err("is missing".to_owned()),
            Some(bytes) => self.form.decode(record, bytes),
        };
        decoded.map_err(|what| self.fault(record, &what)).ok()
    }

    /// Checks a value that a task has read.
    fn check_read(&self, record: u64, bytes: Option<&[u8]>, notes: &Notes) {
        let Some(value) = self.decode(record, bytes) else { return };
        if value.record != record {
            self.fault(record, &format!("has the value of record {}", value.record));
        } else if let Err(what) = notes.check(value) {
            self.fault(record, &what);
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the workload on new maps, with each number of tasks.
pub(crate) fn run<S: Store>(args: &Args) -> Result<Vec<Outcome>> {
    let cluster = Cluster::connect(&args.cluster)?.in_group("ycsb", args.node_id, args.nodes)?;
    if args.nodes > 1 && std::io::stderr().is_terminal() {
        eprintln!("node {} of {}: waiting for the others", args.node_id, args.nodes);
    }
    let progress = progress(args);
    let mut outcomes = Vec::new();
    for tasks in args.series() {
        outcomes.push(run_once::<S>(&Args { tasks, ..args.clone() }, &progress, &cluster)?);
    }
    progress.finish_and_clear();
    Ok(outcomes)
}

fn run_once<S: Store>(args: &Args, progress: &ProgressBar, cluster: &Cluster) -> Result<Outcome> {
    let expected = args.workload.expected_insertions(args.ops.saturating_mul(args.threads));
    let run = Run {
        args,
        form: args.form().ok_or_else(|| Error::other(args.too_large()))?,
        progress,
        inserted: Inserted::new(args.records, args.node_id, args.nodes),
        chooser: Chooser::new(args.distribution(), args.records, expected),
        stripes: Stripes::new(args.threads),
        ledger: Mutex::default(),
        places: OnceLock::new(),
        scanned: AtomicU64::new(0),
        faults: Mutex::default(),
        has_speaker: AtomicBool::new(false),
        next: AtomicU64::new(0),
        counted: AtomicU64::new(0),
    };
    let shares = cluster.run(args.threads as usize, async |ct| thread::<S>(&run, ct).await)?;
    let span = |times: fn(&Share) -> [Duration; 2]| {
        let started = shares.iter().map(|share| times(share)[0]).min().unwrap_or_default();
        let ended = shares.iter().map(|share| times(share)[1]).max().unwrap_or_default();
        ended.saturating_sub(started)
    };
    let here = [span(|share| share.load), span(|share| share.run)];
    let whole = shares.into_iter().find_map(|share| share.whole);
    let (sums, slowest, measures) = whole.ok_or_else(|| Error::other("no thread has summed up"))?;
    let [load_time, run_time] = if args.nodes > 1 { slowest } else { here };
    Ok(Outcome {
        tasks: args.tasks,
        load_time,
        run_time,
        sums,
        measures,
        fault: locked(&run.faults).first.take(),
        counted: run.counted.into_inner(),
        simulated: cluster
            .simulation()
            .map(|simulation| Simulated { trace_hash: simulation.trace_hash(), rtt: simulation.rtt() }),
    })
}

const MAP: &str = "ycsb map";
const TOTALS: &str = "ycsb totals";

async fn thread<S: Store>(run: &Run<'_>, ct: &ComputeThread) -> Result<Share> {
    let args = run.args;
    let speaks = !run.has_speaker.swap(true, Ordering::Relaxed);
    let mut used = 0;
    if ct.index() == 0 {
        // A run uses a new map: unpublish what an interrupted run has left.
        for unpublished in
            [ct.unpublish::<S::Root>(MAP).await.map(drop), ct.unpublish::<Totals>(TOTALS).await.map(drop)]
        {
            unpublished.or_else(
                |error| {
                    if matches!(error, Error::RootNotFound(_)) { Ok(()) } else { Err(error) }
                },
            )?;
        }
        ct.publish(TOTALS, Totals::create(args, ct).await?).await?;
        used = live_bytes(ct).await?;
        ct.publish(MAP, S::create(ct).await?).await?;
    }
    ct.barrier("created").await?;
    let totals = ct.lookup::<Totals>(TOTALS).await?;
    Totals::check(totals, args, ct).await?;
    let store = S::attach(ct.lookup(MAP).await?, args.key_size, ct).await?;
    ct.barrier("attached").await?;

    let mut sums = Sums::default();
    let load = load(run, &store, ct).await?;
    ct.barrier("loaded").await?;
    if args.workload == Workload::E {
        run.places.get_or_init(|| Places::new((0..args.records).map(place::<S>).collect()));
    }
    // No thread holds a pointer: each has passed the barrier without a guard. Here and below.
    ct.reclaim_deferred().await?;
    let _ = live_bytes(ct).await?; // publishes what this thread has counted
    ct.barrier("measured").await?;
    if ct.index() == 0 {
        sums.loaded_bytes = live_bytes(ct).await?.saturating_sub(used);
    }
    ct.barrier("begun").await?;

    let (began, before) = (ct.now(), (ct.metrics(), store.counters()));
    ct.tasks(args.tasks as usize, async |task| operate(run, &store, task as u64, ct).await).await?;
    let run_times = [began, ct.now()];
    sums.add_traffic(ct.metrics() - before.0);
    sums.add_counters(store.counters(), before.1);
    ct.barrier("ran").await?;

    ct.reclaim_deferred().await?;
    if speaks {
        locked(&run.ledger).sort();
        if args.nodes > 1 {
            Totals::publish(totals, &run.stripes.merged()?, ct).await?;
        }
    }
    ct.barrier("published").await?;

    let measures = match speaks {
        true if args.nodes > 1 => Some(Totals::merged(totals, ct).await?),
        true => Some(run.stripes.merged()?),
        false => None,
    };
    check(run, &store, &mut sums, ct).await?;
    if ct.index() == 0 {
        match store.check(ct).await {
            Ok(size) => sums.final_size = size,
            Err(error) => run.fault_of(format!("the structure is broken: {error}")),
        }
    }
    ct.barrier("checked").await?;

    if ct.index() == 0 {
        ct.unpublish::<S::Root>(MAP).await?;
        store.destroy(ct).await?;
        Totals::free_histograms(totals, ct).await?;
    }
    ct.barrier("destroyed").await?;
    ct.reclaim_deferred().await?;
    sums.add_objects(ct.metrics());
    if speaks {
        sums.inserted = run.inserted.present() - args.records;
        sums.faults = locked(&run.faults).count;
        sums.scanned = run.scanned.load(Ordering::Relaxed);
        if let Some(measure) = run.stripes.merged()?.get(Kind::ReadModifyWrite) {
            sums.modified = measure.latency.len();
        }
    }
    Totals::add(totals, sums, ct).await?;
    if args.nodes > 1 {
        let times = [load, run_times].map(|[from, to]| to.saturating_sub(from));
        Totals::add_times(totals, times, ct).await?;
    }
    ct.barrier("summed").await?;

    let whole = match measures {
        Some(measures) => {
            let (sums, times) = Totals::read_all(totals, ct).await?;
            Some((sums, times, measures))
        }
        None => None,
    };
    ct.barrier("read").await?;
    if ct.index() == 0 {
        ct.delete(ct.unpublish::<Totals>(TOTALS).await?).await?;
    }
    Ok(Share { load, run: run_times, whole })
}

async fn live_bytes(ct: &ComputeThread) -> Result<u64> {
    Ok(ct.heap_use().await?.iter().map(|usage| usage.live_bytes).sum())
}

/// Loads this thread's records. Returns when it began and ended.
async fn load<S: Store>(run: &Run<'_>, store: &S, ct: &ComputeThread) -> Result<[Duration; 2]> {
    let args = run.args;
    let writers = ct.threads() as u64 * args.tasks;
    let began = ct.now();
    let body = async |task: usize| {
        let writer = ct.index() as u64 * args.tasks + task as u64;
        let [start, end] = [writer, writer + 1].map(|writer| share_start(writer, writers, args.records));
        for record in start..end {
            let value = Value { record, writer: writer as u32, sequence: 0, increments: 0 };
            insert(run, store, Kind::Load, value, ct).await?;
            tick(run, record - start, end - start);
        }
        Ok(())
    };
    ct.tasks(args.tasks as usize, body).await?;
    Ok([began, ct.now()])
}

async fn insert<S: Store>(
    run: &Run<'_>,
    store: &S,
    kind: Kind,
    value: Value,
    ct: &ComputeThread,
) -> Result<()> {
    let bytes = run.form.encode(value);
    if !timed(run, kind, store.insert(value.record, &bytes, ct), ct).await? {
        run.fault(value.record, "was present before its insertion");
    }
    Ok(())
}

/// Awaits an operation and records it.
async fn timed<T>(
    run: &Run<'_>,
    kind: Kind,
    operation: impl Future<Output = Result<T>>,
    ct: &ComputeThread,
) -> Result<T> {
    let began = ct.now();
    let (result, round_trips) = counted(operation, ct).await;
    let latency = ct.now().saturating_sub(began);
    let result = result?;
    run.stripes.record(ct.index(), kind, latency, round_trips)?;
    Ok(result)
}

fn place<S: Store>(record: u64) -> Place {
    Place::new(S::order(record), record)
}

/// Runs one task's share of the operations.
async fn operate<S: Store>(run: &Run<'_>, store: &S, task: u64, ct: &ComputeThread) -> Result<()> {
    let args = run.args;
    let writer = ct.index() as u64 * args.tasks + task;
    let mut rng = SmallRng::seed_from_u64(args.seed ^ writer.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut chooser = run.chooser.clone();
    let limit = LIMIT / (args.threads.saturating_mul(args.tasks) as usize).clamp(1, LIMIT);
    let mut notes = Notes::new(writer as u32, limit);
    let ops = args.ops / args.tasks + u64::from(task < args.ops % args.tasks);
    for op in 0..ops {
        match args.workload.choose(&mut rng) {
            Kind::Insert => {
                let (insertion, record) = run.inserted.begin();
                let value = Value { record, writer: writer as u32, sequence: 0, increments: 0 };
                insert(run, store, Kind::Insert, value, ct).await?;
                if let Some(places) = run.places.get() {
                    places.add(place::<S>(record));
                }
                run.inserted.end(insertion);
            }
            kind => {
                let record = run.inserted.record(chooser.choose(run.inserted.present(), &mut rng));
                let length = if kind == Kind::Scan { scan_length(args.longest_scan(), &mut rng) } else { 1 };
                take(run, store, kind, record, length, &mut notes, ct).await?;
            }
        }
        tick(run, op, ops);
    }
    locked(&run.ledger).add(notes);
    Ok(())
}

/// Runs an operation on a record that is present.
async fn take<S: Store>(
    run: &Run<'_>,
    store: &S,
    kind: Kind,
    record: u64,
    length: u64,
    notes: &mut Notes,
    ct: &ComputeThread,
) -> Result<()> {
    let form = run.form;
    match kind {
        Kind::Load | Kind::Insert | Kind::Read => {
            let bytes = timed(run, Kind::Read, store.read(record, ct), ct).await?;
            run.check_read(record, bytes.as_deref(), notes);
        }
        Kind::Scan => {
            let ended = run.places.get().map_or(0, Places::ended);
            let found = timed(run, kind, store.scan(record, length, ct), ct).await?;
            run.scanned.fetch_add(found.len() as u64, Ordering::Relaxed);
            let mut places = Vec::with_capacity(found.len());
            for (of, bytes) in &found {
                let Some(of) = of.filter(|of| run.inserted.may_be_present(*of)) else {
                    run.fault_of(format!(
                        "a scan from record {record} has a key that was not inserted: {of:?}"
                    ));
                    continue;
                };
                run.check_read(of, Some(bytes), notes);
                places.push(place::<S>(of));
            }
            let order = run.places.get().map(|order| order.check(place::<S>(record), length, ended, &places));
            if let Some(Err(what)) = order {
                run.fault_of(what);
            }
        }
        Kind::Update => {
            let bytes = form.encode(notes.next_value(record));
            if timed(run, kind, store.update(record, &bytes, ct), ct).await? {
                notes.wrote(record);
            } else {
                run.fault(record, "is missing");
            }
        }
        Kind::ReadModifyWrite => {
            let new = notes.next_value(record);
            // The old value is checked when the operation has ended.
            let change = |old: &[u8]| {
                let increments = form.decode(record, old).map_or(0, |old| old.increments) + 1;
                form.encode(Value { increments, ..new })
            };
            let old = timed(run, kind, store.modify(record, change, ct), ct).await?;
            run.check_read(record, old.as_deref(), notes);
            if old.is_some() {
                notes.wrote(record);
            }
        }
    }
    Ok(())
}

/// Checks the records that no other thread of this process checks, against the writes of all its tasks.
async fn check<S: Store>(run: &Run<'_>, store: &S, sums: &mut Sums, ct: &ComputeThread) -> Result<()> {
    let args = run.args;
    let terms = Terms {
        writers: ct.threads() as u64 * args.tasks,
        loaded: args.records,
        counts: args.workload == Workload::F,
        is_alone: args.nodes == 1,
    };
    let present = run.inserted.present();
    let body = async |_| {
        let (mut matched, mut forgotten) = (0, 0);
        loop {
            let start = run.next.fetch_add(CHECKED_TOGETHER, Ordering::Relaxed);
            if start >= present {
                return Ok((matched, forgotten));
            }
            for index in start..(start + CHECKED_TOGETHER).min(present) {
                let record = run.inserted.record(index);
                let bytes = store.read(record, ct).await?;
                let Some(value) = run.decode(record, bytes.as_deref()) else { continue };
                run.counted.fetch_add(value.increments, Ordering::Relaxed);
                let checked = locked(&run.ledger).check(record, value, terms);
                match checked {
                    Ok(Checked::Matched) => matched += 1,
                    Ok(Checked::Forgotten) => forgotten += 1,
                    Ok(Checked::Elsewhere) => {}
                    Err(what) => run.fault(record, &what),
                }
            }
        }
    };
    let tasks = args.tasks.max(CHECKING_TASKS).min(present.div_ceil(CHECKED_TOGETHER));
    for (matched, forgotten) in ct.tasks(tasks as usize, body).await? {
        sums.checked += matched;
        sums.unchecked += forgotten;
    }
    Ok(())
}

/// Advances the progress bar after operation `op` of `ops`.
fn tick(run: &Run<'_>, op: u64, ops: u64) {
    let done = op + 1;
    if done.is_multiple_of(OPS_PER_TICK) {
        run.progress.inc(OPS_PER_TICK);
    } else if done == ops {
        run.progress.inc(done % OPS_PER_TICK);
    }
}

/// A progress bar, hidden if stderr is not a terminal.
fn progress(args: &Args) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let of_run = args.ops.saturating_mul(args.threads).saturating_add(args.records / u64::from(args.nodes));
    let bar = ProgressBar::new(of_run.saturating_mul(args.series().len() as u64));
    let style =
        ProgressStyle::with_template("{elapsed} {wide_bar} {human_pos} of {human_len} operations, {per_sec}");
    style.map_or(bar.clone(), |style| bar.with_style(style))
}
