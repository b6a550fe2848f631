//! `cargo xtask scaling`: the scaling of a structure, in the simulator.
//!
//! Runs `intset`, or for the hash map `ycsb`, for each number of compute threads and memory nodes, several runs in parallel, and writes the results as a table (CSV) and
//! a plot (SVG) into the book. Times are virtual, and a run's figures depend only on its program and seed. So the files change only if
//! Farfield changes.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use clap::Args;
use serde_json::Value;

use crate::tables::scaling::{Point, table};
use crate::tables::{draw, folder};
use crate::workspace::{output, run as command, write};

/// Options of `cargo xtask scaling`.
#[derive(Args)]
pub(crate) struct Options {
    /// Structure to measure: one of `intset`'s, or `hash-map-a` or `hash-map-c` with the workload of `ycsb`
    #[arg(long, default_value = "hash-set")]
    structure: String,
    /// Largest number of compute threads; it grows from 1 in powers of two
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=1 << 16))]
    max_threads: u32,
    /// Largest number of memory nodes; it grows from 1 in powers of two
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1 << 12))]
    max_nodes: u32,
    /// Smallest number of memory nodes
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1 << 12))]
    min_nodes: u32,
    /// Operations of each thread
    #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u32).range(1..))]
    ops: u32,
    /// Folder of the files; by default that of the book
    #[arg(long)]
    to: Option<PathBuf>,
}

/// Measures all points, and writes the files.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    command(&["cargo", "build", "--release", "--quiet", "--bin", program(&options.structure)], &[])?;
    let folder = folder(options.to.as_deref())?;
    let points = sweep(options)?;
    let file = |extension: &str| folder.join(format!("scaling-{}.{extension}", options.structure));
    let csv = file("csv");
    write(&csv, table(&points))?;
    draw(&options.structure, &csv, &file("svg"))
}

/// The powers of two up to a number.
fn powers(most: u32) -> Vec<u32> {
    (0..32).map(|shift| 1 << shift).take_while(|power| *power <= most).collect()
}

/// Measures all points, the largest first, so that the last ones are short.
fn sweep(options: &Options) -> Result<Vec<Point>, String> {
    let nodes: Vec<u32> =
        powers(options.max_nodes).into_iter().filter(|nodes| *nodes >= options.min_nodes).collect();
    let mut wanted: Vec<(u32, u32)> = powers(options.max_threads)
        .into_iter()
        .flat_map(|threads| nodes.iter().map(move |nodes| (threads, *nodes)))
        .collect();
    wanted.reverse();
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some((threads, nodes)) = wanted.get(next.fetch_add(1, Ordering::Relaxed)) {
            let point = measure(options, *threads, *nodes);
            done.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(point);
        }
    };
    std::thread::scope(|scope| {
        let jobs = std::thread::available_parallelism().map_or(1, usize::from);
        for _ in 0..jobs {
            scope.spawn(work);
        }
    });
    let points = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut points = points.into_iter().collect::<Result<Vec<Point>, String>>()?;
    points.sort_by_key(|point| (point.nodes, point.threads));
    Ok(points)
}

/// The program that runs a structure.
fn program(structure: &str) -> &'static str {
    if structure.starts_with(MAP) { "ycsb" } else { "intset" }
}

/// What the names of the hash map begin with. The workload follows.
const MAP: &str = "hash-map-";
/// The records of a map.
const RECORDS: u32 = 100_000;

fn measure(options: &Options, threads: u32, nodes: u32) -> Result<Point, String> {
    let url = format!("sim:seed=1,nodes={nodes}");
    let Options { structure, ops, .. } = options;
    let command = match structure.strip_prefix(MAP) {
        None => format!(
            "target/release/intset --structure {structure} --cluster {url} --threads {threads} --num-ops {ops} --key-ub 1023 --format json"
        ),
        Some(workload) => {
            // C is measured where all nodes have the same load, the others where some keys are hot.
            let uniform = if workload == "c" { " --distribution uniform" } else { "" };
            format!(
                "target/release/ycsb --workload {workload}{uniform} --cluster {url},size=64MiB --threads {threads} --ops {ops} --records {RECORDS} --format json"
            )
        }
    };
    let printed = output(&command.split_whitespace().collect::<Vec<_>>())?;
    point(threads, nodes, &printed).ok_or_else(|| format!("`{command}` printed {printed}"))
}

/// The point of a report; none if it is not verified, or not from a simulated run.
fn point(threads: u32, nodes: u32, printed: &str) -> Option<Point> {
    let report: Value = serde_json::from_str(printed).ok()?;
    report["verified"].as_bool().filter(|verified| *verified)?;
    // `ycsb` calls it a read.
    let gets = [&report["latency_rtts"]["get"], &report["operations"]["read"]["latency_rtts"]];
    let gets = gets.into_iter().find(|gets| gets.is_object())?;
    Some(Point {
        threads,
        nodes,
        ops: report["op_count"].as_u64()?,
        duration_us: report["duration_us"].as_u64()?,
        ops_per_sec: report["ops_per_sec"].as_u64()?,
        p50_rtts: gets["p50"].as_f64()?,
        p99_rtts: gets["p99"].as_f64()?,
        trace_hash: report["trace_hash"].as_str()?.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_becomes_a_point() {
        let report = r#"{"op_count":8,"duration_us":4,"ops_per_sec":2000000,"verified":true,
            "latency_rtts":{"get":{"mean":1.5,"p50":1.0,"p99":2.0},"insert":null},"trace_hash":"ab"}"#;
        let point = |report: &str| super::point(2, 4, report);
        let expected = point(report).unwrap();
        assert_eq!((expected.threads, expected.nodes, expected.p99_rtts), (2, 4, 2.0));
        assert_eq!(point(&report.replace("true", "false")), None, "a run that is not verified has no point");
        assert_eq!(point("{}"), None);
    }

    #[test]
    fn the_powers_of_two_include_the_last() {
        assert_eq!(powers(1), [1]);
        assert_eq!(powers(8), [1, 2, 4, 8]);
        assert_eq!(powers(9), [1, 2, 4, 8]);
    }
}
