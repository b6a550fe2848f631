//! `delegated_counter`: threads count together, with a counter that is delegated to one of them, with one under a far-memory lock, and with one to
//! which the memory node adds. Each variant is measured, and verified: see [`farfield_examples::delegated_counter`].
//!
//! On a simulated cluster (`--cluster sim:…`) the times are virtual, and the report has the latency of an operation in round trips.

use std::process::ExitCode;

use clap::{Parser, ValueEnum, value_parser};
use farfield::prelude::*;
use farfield_examples::delegated_counter::{Variant, Workload, run};
use farfield_examples::program::{Format, Report, latency_rtts, main as program};
use serde_json::json;

/// Counts with many threads, on a delegated counter, one under a lock and one of the memory node.
#[derive(Debug, Parser)]
#[command(name = "delegated_counter", version)]
struct Args {
    /// How the threads share the counter
    #[arg(long, value_enum, default_value_t = Chosen::All)]
    variant: Chosen,
    /// The cluster's URL
    #[arg(long, default_value = "local:")]
    cluster: String,
    /// The number of processes of the run, each started with its own --node-id
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u16).range(1..))]
    nodes: u16,
    /// The number of this process, from 0 to --nodes less 1
    #[arg(long, default_value_t = 0)]
    node_id: u16,
    /// Compute threads of each process; thread 0 of the first is the trustee
    #[arg(long, default_value_t = 2, value_parser = value_parser!(u64).range(1..))]
    threads: u64,
    /// Tasks of each thread; they divide its operations
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u64).range(1..=1 << 20))]
    tasks: u64,
    /// Operations of each thread
    #[arg(long, default_value_t = 10_000, value_parser = value_parser!(u64).range(..=1 << 32))]
    ops: u64,
    /// Thread 0 makes no operations of its own
    #[arg(long)]
    idle_trustee: bool,
    /// The format of the results
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

/// The variants to run.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Chosen {
    /// The counter belongs to thread 0
    Delegated,
    /// The counter lies in far memory, under a lock
    Lock,
    /// The memory node adds to the counter
    Faa,
    /// One after the other
    All,
}

fn main() -> ExitCode {
    program(|args: Args| {
        if args.node_id >= args.nodes {
            let (id, nodes) = (args.node_id, args.nodes);
            return Err(format!("--node-id {id}: with --nodes {nodes} it must be below {nodes}"));
        }
        if args.idle_trustee && args.threads == 1 && args.nodes == 1 {
            return Err("--idle-trustee: with --threads 1 no thread is left to count".to_owned());
        }
        let variants = match args.variant {
            Chosen::Delegated => &[Variant::Delegated][..],
            Chosen::Lock => &[Variant::Lock],
            Chosen::Faa => &[Variant::Faa],
            Chosen::All => &Variant::ALL,
        };
        let reports: Result<_> = variants.iter().map(|variant| measure(&args, *variant)).collect();
        Ok((args.format, reports.map_err(|error| error.to_string())?))
    })
}

fn measure(args: &Args, variant: Variant) -> Result<Report> {
    let group = format!("count {}", variant.name());
    let cluster = Cluster::connect(&args.cluster)?.in_group(&group, args.node_id, args.nodes)?;
    let workload = Workload {
        variant,
        threads: args.threads as usize,
        tasks: args.tasks,
        ops: args.ops,
        has_idle_trustee: args.idle_trustee,
    };
    let mut outcome = run(&cluster, workload)?;
    #[allow(clippy::cast_precision_loss)] // a ratio, rounded
    let chains = match outcome.operations {
        0 => 0.0,
        operations => (outcome.chains as f64 / operations as f64 * 1000.0).round() / 1000.0,
    };
    let mut values = vec![
        ("variant", json!(variant.name())),
        ("cluster", json!(args.cluster)),
        ("threads", json!(args.threads)),
        ("tasks", json!(args.tasks)),
        ("operations", json!(outcome.operations)),
        ("duration_us", json!(outcome.duration.as_micros() as u64)),
        #[allow(clippy::cast_sign_loss)] // a rate, rounded
        ("ops_per_sec", json!(outcome.rate().round() as u64)),
        ("chains_per_op", json!(chains)),
    ];
    let rtt = cluster.simulation().map(|simulation| simulation.rtt());
    values.extend(latency_rtts(&mut outcome.latencies, rtt));
    values.push(("count", json!(outcome.count)));
    if args.nodes > 1 {
        values.insert(2, ("nodes", json!(args.nodes)));
    }
    Ok(Report::new(values, outcome.fault))
}
