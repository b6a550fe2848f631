//! Measures insertions into an Interlocked Hash Table in the simulator as the number of compute nodes grows.
//!
//! The setting is that of Dewan and Jenkins, "Paving the way for Distributed Non-Blocking Algorithms and Data Structures in the Partitioned Global Address Space model"
//! (2020), who have ported this table. Each node has a memory node and a compute node with some threads. Each thread inserts keys of its own into one
//! table that is empty at first, then looks them up with a new handle, and then iterates over its share of all keys. The work of a thread is the same on any number of nodes.
//!
//! Afterwards the table must be valid, and have all keys. Prints a table as CSV, and for each phase how flat an operation's time is: the longest over the shortest.

use std::process::ExitCode;

use clap::Parser;
use farfield::prelude::*;
use farfield_collections::{InterlockedHashTable, InterlockedHashTableRoot};

/// Measures insertions into an Interlocked Hash Table in the simulator as the number of compute nodes grows
#[derive(Parser)]
#[command(version)]
struct Args {
    /// The largest number of nodes; the others are the smaller powers of two
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1024))]
    max_nodes: u16,
    /// Compute threads of each node
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    threads: u32,
    /// Keys of each thread
    #[arg(long, default_value_t = 2048, value_parser = clap::value_parser!(u32).range(1..))]
    keys: u32,
    /// The seed of the simulation
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// The phases of a run, in order.
const PHASES: [&str; 3] = ["insert", "get", "share"];

/// One run.
struct Point {
    /// Virtual time of an operation in each phase, averaged over the threads.
    ns_per_op: [f64; PHASES.len()],
    /// Chains of an insertion, averaged: its round trips, and those that it posts without waiting.
    chains: f64,
    /// Element lists that became pointer lists.
    pointer_lists: u64,
    /// Insertions that waited for a lock.
    waits: u64,
    trace_hash: u64,
}

fn measure(args: &Args, nodes: u16) -> Result<Point> {
    let Args { threads, keys, seed, .. } = *args;
    let url = format!("sim:seed={seed},nodes={nodes},threads-per-node={threads},size=64MiB");
    let cluster = Cluster::connect(&url)?;
    let (threads, keys) = (u64::from(nodes) * u64::from(threads), u64::from(keys));
    let each = cluster.run(threads as usize, async |ct| {
        let root =
            ct.root_or_init("table", async || InterlockedHashTable::<u64, u64>::create(ct).await).await?;
        let mine = (0..keys).map(|key| key * threads + ct.index() as u64);
        let table = InterlockedHashTable::attach(root, ct).await?;
        ct.barrier("attached").await?;
        let (before, began) = (ct.metrics(), ct.now());
        for key in mine.clone() {
            if !table.insert(&key, &!key, ct).await? {
                return Err(farfield::Error::other(format!("the key {key} was there")));
            }
        }
        let inserted = ct.now().saturating_sub(began);
        let counters = table.counters();
        let chains = (ct.metrics() - before).chains;
        ct.barrier("inserted").await?;
        let table = InterlockedHashTable::attach(root, ct).await?;
        let began = ct.now();
        for key in mine {
            if table.get(&key, ct).await? != Some(!key) {
                return Err(farfield::Error::other(format!("the key {key} has another value")));
            }
        }
        let found = ct.now().saturating_sub(began);
        ct.barrier("found").await?;
        let (mut iter, mut shared, began) = (table.share(ct), 0, ct.now());
        while iter.next().await?.is_some() {
            shared += 1;
        }
        let iterated = ct.now().saturating_sub(began);
        ct.barrier("iterated").await?;
        let counts = [shared, chains, counters.growths, counters.waits];
        if ct.index() == 0 {
            let found = table.check(ct).await?;
            if found != keys * threads {
                return Err(farfield::Error::other(format!("the table has {found} keys")));
            }
            ct.unpublish::<InterlockedHashTableRoot<u64, u64>>("table").await?;
            table.destroy(ct).await?;
        }
        Ok(([inserted, found, iterated], counts))
    })?;
    let [shared, chains, pointer_lists, waits] =
        std::array::from_fn(|count| each.iter().map(|(_, counts)| counts[count]).sum::<u64>());
    if shared != keys * threads {
        return Err(farfield::Error::other(format!("{shared} keys are in the shares")));
    }
    #[allow(clippy::cast_precision_loss)]
    let per_key = |sum: f64| sum / (keys * threads) as f64;
    let ns = |phase: usize| each.iter().map(|(took, _)| took[phase].as_secs_f64() * 1e9).sum();
    Ok(Point {
        ns_per_op: std::array::from_fn(|phase| per_key(ns(phase))),
        #[allow(clippy::cast_precision_loss)]
        chains: per_key(chains as f64),
        pointer_lists,
        waits,
        trace_hash: cluster.simulation().map_or(0, |simulation| simulation.trace_hash()),
    })
}

fn run(args: &Args) -> Result<()> {
    println!("nodes,insert_ns,get_ns,share_ns,insert_chains,pointer_lists,waits,trace_hash");
    let (mut least, mut most) = ([f64::MAX; PHASES.len()], [0.0_f64; PHASES.len()]);
    for nodes in (0..16).map(|shift| 1_u16 << shift).take_while(|nodes| *nodes <= args.max_nodes) {
        let Point { ns_per_op, chains, pointer_lists, waits, trace_hash } = measure(args, nodes)?;
        let [insert, get, share] = ns_per_op;
        println!(
            "{nodes},{insert:.1},{get:.1},{share:.1},{chains:.3},{pointer_lists},{waits},{trace_hash:016x}"
        );
        least = std::array::from_fn(|phase| least[phase].min(ns_per_op[phase]));
        most = std::array::from_fn(|phase| most[phase].max(ns_per_op[phase]));
    }
    for (phase, name) in PHASES.iter().enumerate() {
        println!("sim.interlocked.{name}.flat {:.3}", most[phase] / least[phase]);
    }
    Ok(())
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
