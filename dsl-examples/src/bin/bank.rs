//! `bank`: transfers between accounts that belong to several threads, by delegated code and by the client. Each variant is measured, and verified: see
//! [`farfield_examples::bank`].
//!
//! On a simulated cluster (`--cluster sim:…`) the times are virtual, and the report has the latency of a transfer in round trips, as its client sees it.

use std::process::ExitCode;

use clap::{Parser, ValueEnum, value_parser};
use farfield::prelude::*;
use farfield_examples::bank::{Variant, Workload, run};
use farfield_examples::program::{Format, Report, latency_rtts, main as program};
use serde_json::json;

/// Makes transfers between accounts that are entrusted to several threads.
#[derive(Debug, Parser)]
#[command(name = "bank", version)]
struct Args {
    /// How a transfer goes from one trustee to another
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
    /// Compute threads of each process
    #[arg(long, default_value_t = 2, value_parser = value_parser!(u64).range(1..))]
    threads: u64,
    /// Tasks of each thread; they divide its transfers
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u64).range(1..=1 << 20))]
    tasks: u64,
    /// Transfers of each thread
    #[arg(long, default_value_t = 10_000, value_parser = value_parser!(u64).range(..=1 << 32))]
    ops: u64,
    /// Threads that have a shard of the accounts, at most all
    #[arg(long, default_value_t = 2, value_parser = value_parser!(u64).range(1..))]
    shards: u64,
    /// Accounts, at least two and one for each shard
    #[arg(long, default_value_t = 64, value_parser = value_parser!(u64).range(2..=1 << 24))]
    accounts: u64,
    /// The money of each account at first; its limit is twice as much
    #[arg(long, default_value_t = 1000, value_parser = value_parser!(i64).range(0..=1 << 32))]
    money: i64,
    /// The largest amount of a transfer
    #[arg(long, default_value_t = 1000, value_parser = value_parser!(i64).range(1..=1 << 32))]
    amount: i64,
    /// The format of the results
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

/// The variants to run.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Chosen {
    /// The first account's trustee requests the deposit
    Delegated,
    /// The client requests it
    Client,
    /// One after the other
    All,
}

fn main() -> ExitCode {
    program(|args: Args| {
        if args.node_id >= args.nodes {
            let (id, nodes) = (args.node_id, args.nodes);
            return Err(format!("--node-id {id}: with --nodes {nodes} it must be below {nodes}"));
        }
        let threads = args.threads.saturating_mul(args.nodes.into());
        if args.shards > threads {
            return Err(format!(
                "--shards {}: there are {threads} threads, and each shard needs one",
                args.shards
            ));
        }
        if args.shards > args.accounts {
            return Err(format!("--shards {}: there are {} accounts", args.shards, args.accounts));
        }
        let variants = match args.variant {
            Chosen::Delegated => &[Variant::Delegated][..],
            Chosen::Client => &[Variant::Client],
            Chosen::All => &Variant::ALL,
        };
        let reports: Result<_> = variants.iter().map(|variant| measure(&args, *variant)).collect();
        Ok((args.format, reports.map_err(|error| error.to_string())?))
    })
}

fn measure(args: &Args, variant: Variant) -> Result<Report> {
    let group = format!("bank {}", variant.name());
    let cluster = Cluster::connect(&args.cluster)?.in_group(&group, args.node_id, args.nodes)?;
    let workload = Workload {
        variant,
        threads: args.threads as usize,
        tasks: args.tasks,
        ops: args.ops,
        shards: args.shards as usize,
        accounts: args.accounts,
        money: args.money,
        amount: args.amount,
    };
    let mut outcome = run(&cluster, workload)?;
    let mut values = vec![
        ("variant", json!(variant.name())),
        ("cluster", json!(args.cluster)),
        ("threads", json!(args.threads)),
        ("tasks", json!(args.tasks)),
        ("shards", json!(args.shards)),
        ("accounts", json!(args.accounts)),
        ("transfers", json!(outcome.transfers)),
        ("refused", json!(outcome.refused)),
        ("returned", json!(outcome.returned)),
        ("duration_us", json!(outcome.duration.as_micros() as u64)),
        #[allow(clippy::cast_sign_loss)] // a rate, rounded
        ("ops_per_sec", json!(outcome.rate().round() as u64)),
    ];
    let rtt = cluster.simulation().map(|simulation| simulation.rtt());
    values.extend(latency_rtts(&mut outcome.latencies, rtt));
    values.push(("sum", json!(outcome.sum)));
    if args.nodes > 1 {
        values.insert(2, ("nodes", json!(args.nodes)));
    }
    Ok(Report::new(values, outcome.fault))
}
