//! `farfield ping`: times of single operations, and rates of concurrent READs.

use std::time::Duration;

use clap::Args;
use farfield::prelude::*;
use farfield::{Error, Result};
use serde_json::json;

use crate::format::Format;

/// Options of `farfield ping`.
#[derive(Args)]
pub(crate) struct Options {
    /// URL of the cluster, such as rdma://host:port,host:port
    cluster: String,
    /// Number of operations of each kind on each memory node
    #[arg(long, default_value_t = 1000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,
    /// Also measure the rate of READs of 64 bytes by this number of tasks
    #[arg(long, value_name = "TASKS", value_parser = clap::value_parser!(u16).range(1..))]
    rate: Option<u16>,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// The object of the timed operations.
#[remote]
struct Target {
    word: Atomic<u64>,
}

/// The object of the READs of a rate: 64 bytes.
#[remote]
struct Line {
    words: [u64; 8],
}

/// Number of READs of each task when a rate is measured.
const READS_PER_TASK: u32 = 2000;

/// The operations, in the order in which they are printed.
const OPERATIONS: [&str; 4] = ["read", "write", "cas", "faa"];

pub(crate) fn run(options: &Options) -> Result<()> {
    let cluster = Cluster::connect(&options.cluster)?;
    let mut times = cluster.run(1, async |ct| {
        let mut nodes = Vec::new();
        for node in 0..ct.nodes() {
            nodes.push(ping(ct, node, options.count).await?);
        }
        let rate = match options.rate {
            Some(tasks) => Some(rate(ct, tasks).await?),
            None => None,
        };
        Ok((nodes, rate))
    })?;
    let (nodes, rate) = times.pop().ok_or_else(|| Error::other("the thread returned no result"))?;
    match options.format {
        Format::Text => {
            for (node, times) in nodes.iter().enumerate() {
                print_line!("memory node {node}: microseconds");
                print_line!("        {:>9} {:>9} {:>9} {:>9} {:>9}", "min", "p50", "p90", "p99", "max");
                for (name, times) in OPERATIONS.iter().zip(times) {
                    let [min, p50, p90, p99, max] = percentiles(times);
                    print_line!("  {name:<5} {min:>9.2} {p50:>9.2} {p90:>9.2} {p99:>9.2} {max:>9.2}");
                }
            }
            if let (Some(tasks), Some(rate)) = (options.rate, rate) {
                print_line!("{tasks} tasks: {rate:.0} READs of 64 bytes a second");
            }
        }
        Format::Json => {
            let node = |times: &[Vec<Duration>; 4]| {
                let operation = |(name, times): (&&str, &Vec<Duration>)| {
                    let [min, p50, p90, p99, max] = percentiles(times);
                    let figures =
                        json!({"min_us": min, "p50_us": p50, "p90_us": p90, "p99_us": p99, "max_us": max});
                    ((*name).to_owned(), figures)
                };
                OPERATIONS.iter().zip(times).map(operation).collect::<serde_json::Map<_, _>>()
            };
            print_line!(
                "{}",
                json!({ "nodes": nodes.iter().map(node).collect::<Vec<_>>(), "reads_per_s": rate })
            );
        }
    }
    Ok(())
}

/// Measures the READs of 64 bytes a second by tasks of one thread, all on the first memory node.
async fn rate(ct: &ComputeThread, tasks: u16) -> Result<f64> {
    let line = Line::new_in(ct.on_node(0), Line::init([0; 8])).await?.write(ct).await?;
    let began = ct.now();
    ct.tasks(usize::from(tasks), async |_| {
        let guard = ct.pin();
        for _ in 0..READS_PER_TASK {
            line.read(&guard).await?;
        }
        Ok(())
    })
    .await?;
    let took = ct.now().saturating_sub(began);
    ct.delete(line).await?;
    Ok(f64::from(READS_PER_TASK) * f64::from(tasks) / took.as_secs_f64())
}

/// Measures the time of each operation on a memory node, by kind.
async fn ping(ct: &ComputeThread, node: usize, count: u32) -> Result<[Vec<Duration>; 4]> {
    let target = Target::new_in(ct.on_node(node as u16), Target::init()).await?.write(ct).await?;
    let word = target.word();
    let mut times: [Vec<Duration>; 4] = std::array::from_fn(|_| Vec::with_capacity(count as usize));
    // Kinds take turns, so that other load on the machine affects all equally.
    for round in 0..u64::from(count) {
        for (kind, times) in times.iter_mut().enumerate() {
            let began = ct.now();
            match kind {
                0 => drop(word.load(ct).await?),
                1 => word.store(ct, round).await?,
                2 => drop(word.compare_exchange(ct, round, round + 1).await?),
                _ => drop(word.fetch_add(ct, 1).await?),
            }
            times.push(ct.now().saturating_sub(began));
        }
    }
    ct.delete(target).await?;
    Ok(times)
}

/// The minimum, the median, the 90th and 99th percentile, and the maximum, in microseconds.
fn percentiles(times: &[Duration]) -> [f64; 5] {
    let mut times = times.to_vec();
    times.sort_unstable();
    [0, 50, 90, 99, 100].map(|percent| times[(times.len() - 1) * percent / 100].as_secs_f64() * 1e6)
}
