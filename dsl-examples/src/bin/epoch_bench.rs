//! Measures the cost of deferred deletion in the simulator as the number of compute nodes grows.
//!
//! After the microbenchmark of Dewan and Jenkins, "Paving the way for Distributed Non-Blocking Algorithms and Data
//! Structures in the Partitioned Global Address Space model" (2020), listing 5 and figures 4 to 7. Each node has a memory node
//! and a compute node with some threads. Each thread owns objects, some of them on its own node and some on others. In an
//! iteration it pins, reads an object, retires it, unpins and, in some of the modes, tries to reclaim.
//!
//! The READ is an addition to the original: the simulator charges time for operations, not for pins and retirements, so without it an
//! iteration would take no time. A simulated READ of a node's own memory takes as long as one of another node's. So the place of the
//! objects changes only the memory nodes' load.
//!
//! Prints a table as CSV, and for each mode the growth of an operation's time from one node to the largest number.

use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use farfield::prelude::*;

/// Measures the cost of deferred deletion in the simulator as the number of compute nodes grows
#[derive(Parser)]
#[command(version)]
struct Args {
    /// The largest number of nodes; the others are the smaller powers of two
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1024))]
    max_nodes: u16,
    /// Compute threads of each node
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    threads: u32,
    /// Iterations of each thread
    #[arg(long, default_value_t = 2048, value_parser = clap::value_parser!(u32).range(1..))]
    iterations: u32,
    /// The seed of the simulation
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Runs only this mode
    #[arg(long, value_enum)]
    mode: Option<Mode>,
}

/// When a thread calls `try_reclaim`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// Never; threads only pin and read
    ReadOnly,
    /// Never; retiring reclaims by itself now and then
    Never,
    /// After every 1,024 iterations
    Sparse,
    /// After every iteration
    Dense,
}

impl Mode {
    const ALL: [Self; 4] = [Self::ReadOnly, Self::Never, Self::Sparse, Self::Dense];

    fn name(self) -> &'static str {
        match self {
            Self::ReadOnly => "read-only",
            Self::Never => "never",
            Self::Sparse => "sparse",
            Self::Dense => "dense",
        }
    }

    fn tries_after(self, iteration: u32) -> bool {
        match self {
            Self::ReadOnly | Self::Never => false,
            Self::Sparse => iteration % 1024 == 1023,
            Self::Dense => true,
        }
    }
}

#[remote]
struct Object {
    value: u64,
}

/// One run.
struct Point {
    mode: Mode,
    remote_percent: u32,
    nodes: u16,
    /// Virtual time of an iteration, averaged over the threads.
    ns_per_op: f64,
    /// Objects retired, and those of them that were freed before the threads ended.
    retired: u64,
    freed: u64,
    trace_hash: u64,
}

fn measure(args: &Args, mode: Mode, remote_percent: u32, nodes: u16) -> Result<Point> {
    let Args { threads, iterations, seed, .. } = *args;
    let url = format!("sim:seed={seed},nodes={nodes},threads-per-node={threads},size=16MiB,leaks=ignore");
    let cluster = Cluster::connect(&url)?;
    let each = cluster.run(usize::from(nodes) * threads as usize, async |ct| {
        let home = (ct.index() / threads as usize) as u16;
        let mut objects = Vec::new();
        for number in 0..iterations {
            let is_remote = ct.random_range(0..100) < remote_percent;
            let elsewhere = if is_remote && nodes > 1 { ct.random_range(1..nodes) } else { 0 };
            let site = ct.on_node((home + elsewhere) % nodes);
            objects.push(Object::new_in(site, Object::init(u64::from(number))).await?.write(ct).await?);
        }
        ct.barrier("allocated").await?;
        let (before, began) = (ct.metrics(), ct.now());
        for (iteration, object) in (0..).zip(objects) {
            let g = ct.pin();
            object.read(&g).await?;
            if mode != Mode::ReadOnly {
                g.sched_reclaim(object.shared(&g)).await?;
            }
            drop(g);
            if mode.tries_after(iteration) {
                ct.try_reclaim().await;
            }
        }
        let took = ct.now().saturating_sub(began);
        let metrics = ct.metrics() - before;
        ct.barrier("done").await?;
        Ok((took.as_secs_f64() * 1e9 / f64::from(iterations), metrics.retired, metrics.reclaimed))
    })?;
    #[allow(clippy::cast_precision_loss)]
    let ns_per_op = each.iter().map(|(ns, ..)| ns).sum::<f64>() / each.len() as f64;
    Ok(Point {
        mode,
        remote_percent,
        nodes,
        ns_per_op,
        retired: each.iter().map(|(_, retired, _)| retired).sum(),
        freed: each.iter().map(|(.., freed)| freed).sum(),
        trace_hash: cluster.simulation().map_or(0, |simulation| simulation.trace_hash()),
    })
}

fn run(args: &Args) -> Result<()> {
    println!("mode,remote_percent,nodes,ns_per_op,retired,freed_while_running,trace_hash");
    let mut growths = Vec::new();
    for mode in Mode::ALL.into_iter().filter(|mode| args.mode.is_none_or(|wanted| wanted == *mode)) {
        let mut worst: f64 = 0.0;
        for remote_percent in [0, 50, 100] {
            let mut first = None;
            let sizes = (0..16).map(|shift| 1_u16 << shift).take_while(|nodes| *nodes <= args.max_nodes);
            for nodes in sizes {
                let point = measure(args, mode, remote_percent, nodes)?;
                let Point { mode, remote_percent, nodes, ns_per_op, retired, freed, trace_hash } = point;
                let mode = mode.name();
                println!(
                    "{mode},{remote_percent},{nodes},{ns_per_op:.1},{retired},{freed},{trace_hash:016x}"
                );
                worst = worst.max(ns_per_op / *first.get_or_insert(ns_per_op));
            }
        }
        growths.push((mode, worst));
    }
    for (mode, growth) in growths {
        println!("epoch_bench.{}.growth {growth:.3}", mode.name());
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
