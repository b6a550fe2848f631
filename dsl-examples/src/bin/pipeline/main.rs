//! `pipeline`: passes numbered items through a row of queues over far memory, measures them, and verifies what each queue has returned.
//!
//! | queue | structure | a queue that is full |
//! |---|---|---|
//! | `ring` | the ring of `farfield-collections`, of `--capacity` items | refuses: the producer backs off |
//! | `ms-queue` | the Michael-Scott queue, [`farfield_examples::MsQueue`] | has no bound |
//! | `priority-queue` | the priority queue of `farfield-collections` | has no bound |
//!
//! With `--stages n` there are `n` queues. The tasks of all threads take turns in `n + 1` roles: *producers* push into the first queue, *movers* `k` pop from
//! queue `k - 1` and push into queue `k`, *consumers* pop from the last one. A task that finds a queue empty or full waits by the runtime's backoff, which
//! lets the thread's other tasks run. A queue is *closed* when all that push into it are done; a task that then finds it empty is done, too.
//!
//! Afterwards (see `check`) each queue must have returned exactly the items that were pushed into it, each once, in the order that it promises, and be
//! empty and valid. The report has
//!
//! | key | meaning |
//! |---|---|
//! | `items_per_sec` | items that have passed the last queue, by the time from the first push to the last pop |
//! | `push_chains`, `pop_chains` | chains that a push or a pop posts, those that fail not included: each is a round trip, unless the operation does not wait for it |
//! | `push_waits`, `pop_waits` | attempts that found the queue full, or empty |
//! | `latency_us_p50`, `latency_us_p99` | the time of an item from its first push to its last pop, by the fabric's clock, which is virtual on `sim:` |
//! | `latency_rtts_…` | on `sim:` the same in round trips |
//! | `depth_mean`, `depth_max` | of each queue, the items in it as its clients see it, from the end of an item's push to the end of its pop: pops that are under way count |
//!
//! Each task reads the clock twice for each item that passes it, and keeps what it has passed: 24 bytes an item.
//!
//! Exit codes: 0 for success, 1 if the verification fails, 2 for bad input and errors. Failures print one line on stderr.

mod check;
mod depth;
mod flow;
mod queue;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum, value_parser};
use farfield::prelude::*;
use farfield_collections::{PriorityQueue, Ring};
use farfield_examples::MsQueue;
use farfield_examples::program::{Format, Report, latency_rtts, main as program};
use serde_json::{Value, json};

use flow::{Outcome, Roles};

/// Passes numbered items through a row of queues over far memory, measures them and verifies the queues.
#[derive(Debug, Parser)]
#[command(name = "pipeline", version)]
struct Args {
    /// The structure of the queues
    #[arg(long, value_enum, default_value_t = Kind::Ring)]
    queue: Kind,
    /// The cluster's URL
    #[arg(long, default_value = "local:")]
    cluster: String,
    /// Compute threads
    #[arg(long, default_value_t = 2, value_parser = value_parser!(u64).range(1..))]
    threads: u64,
    /// Tasks of each thread; a pipeline has at least one more than queues
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u64).range(1..=1 << 20))]
    tasks: u64,
    /// Items, which the producers divide among them
    #[arg(long, default_value_t = 10_000, value_parser = value_parser!(u64).range(..=1 << 26))]
    items: u64,
    /// Queues in a row
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u64).range(1..=1024))]
    stages: u64,
    /// Items that a ring has room for [default: 64]
    #[arg(long, value_parser = value_parser!(u64).range(1..=1 << 20))]
    capacity: Option<u64>,
    /// The format of the results
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// The same as --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

/// The queues that can be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// The ring of farfield-collections
    Ring,
    /// The Michael-Scott queue of the examples
    MsQueue,
    /// The priority queue of farfield-collections
    PriorityQueue,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Ring => "ring",
            Self::MsQueue => "ms-queue",
            Self::PriorityQueue => "priority-queue",
        }
    }
}

const DEFAULT_CAPACITY: u64 = 64;

impl Args {
    /// Returns how the tasks divide the work, if there are enough of them.
    fn roles(&self) -> Result<Roles, String> {
        let Self { threads, tasks, stages, .. } = *self;
        let workers = threads.saturating_mul(tasks);
        if workers <= stages {
            let needed = stages + 1;
            return Err(format!(
                "--threads {threads} and --tasks {tasks}: a pipeline of --stages {stages} takes {needed} tasks"
            ));
        }
        Ok(Roles { workers, tasks, stages, items: self.items })
    }
}

fn main() -> ExitCode {
    program(|args: Args| {
        let roles = args.roles()?;
        if args.queue != Kind::Ring
            && let Some(capacity) = args.capacity
        {
            return Err(format!("--capacity {capacity}: the queue {} has no bound", args.queue.name()));
        }
        let format = if args.json { Format::Json } else { args.format };
        Ok((format, vec![measure(&args, roles)?]))
    })
}

fn measure(args: &Args, roles: Roles) -> Result<Report, String> {
    let cluster = Cluster::connect(&args.cluster).map_err(|error| error.to_string())?;
    let capacity = args.capacity.unwrap_or(DEFAULT_CAPACITY);
    let outcome = match args.queue {
        Kind::Ring => flow::run::<Ring<u64>>(&cluster, args.threads, roles, capacity),
        Kind::MsQueue => flow::run::<MsQueue<u64>>(&cluster, args.threads, roles, capacity),
        Kind::PriorityQueue => flow::run::<PriorityQueue<u64, u64>>(&cluster, args.threads, roles, capacity),
    }?;
    Ok(report(args, roles, capacity, &cluster, outcome))
}

fn report(args: &Args, roles: Roles, capacity: u64, cluster: &Cluster, mut outcome: Outcome) -> Report {
    let capacity = if args.queue == Kind::Ring { json!(capacity) } else { Value::Null };
    let rtts = latency_rtts(&mut outcome.latencies, cluster.simulation().map(|sim| sim.rtt()));
    let (passed, tally) = (outcome.latencies.len() as u64, outcome.tally);
    let seconds = outcome.duration.as_secs_f64();
    #[allow(clippy::cast_precision_loss, clippy::cast_sign_loss)] // a rate, rounded
    let rate = if seconds > 0.0 { (passed as f64 / seconds).round() as u64 } else { 0 };
    let mut values = vec![
        ("queue", json!(args.queue.name())),
        ("cluster", json!(args.cluster)),
        ("threads", json!(args.threads)),
        ("tasks", json!(args.tasks)),
        ("stages", json!(args.stages)),
        ("producers", json!(roles.count(0))),
        ("consumers", json!(roles.count(args.stages))),
        ("capacity", capacity),
        ("items", json!(passed)),
        ("duration_us", json!(outcome.duration.as_micros() as u64)),
        ("items_per_sec", json!(rate)),
        ("push_chains", ratio(tally.push_chains, tally.pushes)),
        ("pop_chains", ratio(tally.pop_chains, tally.pops)),
        ("push_waits", json!(tally.push_waits)),
        ("pop_waits", json!(tally.pop_waits)),
        ("latency_us_p50", percentile(&outcome.latencies, 50)),
        ("latency_us_p99", percentile(&outcome.latencies, 99)),
    ];
    values.extend(rtts);
    values.push(("depth_mean", outcome.depths.iter().map(|depth| json!(rounded(depth.mean))).collect()));
    values.push(("depth_max", outcome.depths.iter().map(|depth| json!(depth.max)).collect()));
    Report::new(values, outcome.fault)
}

fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

#[allow(clippy::cast_precision_loss)] // a ratio, rounded
fn ratio(sum: u64, count: u64) -> Value {
    if count == 0 { Value::Null } else { json!(rounded(sum as f64 / count as f64)) }
}

/// The smallest of the sorted latencies that `percent` of them do not exceed, in microseconds. Null if there are none.
fn percentile(sorted: &[Duration], percent: usize) -> Value {
    let index = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(index).map_or(Value::Null, |latency| json!(rounded(latency.as_secs_f64() * 1e6)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_nearest_rank() {
        let sorted: Vec<_> = (1..=200).map(Duration::from_micros).collect();
        assert_eq!([50, 99].map(|percent| percentile(&sorted, percent)), [json!(100.0), json!(198.0)]);
        assert_eq!(percentile(&sorted[..1], 99), json!(1.0));
        assert_eq!(percentile(&[], 50), Value::Null);
    }
}
