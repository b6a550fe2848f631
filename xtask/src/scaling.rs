//! `cargo xtask scaling`: how a structure scales, in the simulator.
//!
//! Runs `intset` for each number of compute threads and memory nodes, two at a time, and writes what it reports as a table
//! (CSV) and as a plot (SVG) into the book. Times are virtual: a run's figures depend on its program and its seed and on
//! nothing else, so the files change only when Farfield does.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use clap::Args;
use serde_json::Value;

use crate::workspace::{output, root, run as command};

/// What to sweep.
#[derive(Args)]
pub(crate) struct Options {
    /// The structure
    #[arg(long, default_value = "hash-set")]
    structure: String,
    /// Up to so many compute threads, from 1 in powers of two
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=1 << 16))]
    max_threads: u32,
    /// Up to so many memory nodes, from 1 in powers of two
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1 << 12))]
    max_nodes: u32,
    /// Operations of each thread
    #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u32).range(1..))]
    ops: u32,
    /// Where the files go, if not into the book
    #[arg(long)]
    to: Option<PathBuf>,
}

/// What one run reported.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Point {
    pub(crate) threads: u32,
    pub(crate) nodes: u32,
    ops: u64,
    duration_us: u64,
    /// Operations a second of virtual time.
    pub(crate) ops_per_sec: u64,
    /// Of a `get`, in round trips.
    p50_rtts: f64,
    pub(crate) p99_rtts: f64,
    trace_hash: String,
}

const HEADER: &str = "threads,nodes,ops,duration_us,ops_per_sec,get_p50_rtts,get_p99_rtts,trace_hash";

/// Sweeps, and writes the files.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    command(&["cargo", "build", "--release", "--quiet", "--bin", "intset"], &[])?;
    let folder = options.to.clone().unwrap_or_else(|| root().join("book/src/results"));
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let points = sweep(options)?;
    let file = |extension: &str| folder.join(format!("scaling-{}.{extension}", options.structure));
    let csv = file("csv");
    std::fs::write(&csv, table(&points)).map_err(|error| format!("{}: {error}", csv.display()))?;
    draw(options, &csv, &file("svg"))
}

/// The powers of two up to a number.
fn powers(most: u32) -> Vec<u32> {
    (0..32).map(|shift| 1 << shift).take_while(|power| *power <= most).collect()
}

/// Runs every point, the largest first, so that none is left for the end.
fn sweep(options: &Options) -> Result<Vec<Point>, String> {
    let nodes = powers(options.max_nodes);
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

fn measure(options: &Options, threads: u32, nodes: u32) -> Result<Point, String> {
    let url = format!("sim:seed=1,nodes={nodes}");
    let each = options.ops.to_string();
    let printed = output(&[
        "target/release/intset",
        "--structure",
        &options.structure,
        "--cluster",
        &url,
        "--threads",
        &threads.to_string(),
        "--num-ops",
        &each,
        "--key-ub",
        "1023",
        "--format",
        "json",
    ])?;
    point(threads, nodes, &printed).ok_or_else(|| format!("`intset` on {url} printed {printed}"))
}

/// What a report says; nothing if it is not verified, or not a simulated run's.
fn point(threads: u32, nodes: u32, printed: &str) -> Option<Point> {
    let report: Value = serde_json::from_str(printed).ok()?;
    report["verified"].as_bool().filter(|verified| *verified)?;
    Some(Point {
        threads,
        nodes,
        ops: report["op_count"].as_u64()?,
        duration_us: report["duration_us"].as_u64()?,
        ops_per_sec: report["ops_per_sec"].as_u64()?,
        p50_rtts: report["latency_rtts"]["get"]["p50"].as_f64()?,
        p99_rtts: report["latency_rtts"]["get"]["p99"].as_f64()?,
        trace_hash: report["trace_hash"].as_str()?.to_owned(),
    })
}

/// The points as CSV.
fn table(points: &[Point]) -> String {
    let mut csv = format!("{HEADER}\n");
    for point in points {
        let Point { threads, nodes, ops, duration_us, ops_per_sec, p50_rtts, p99_rtts, trace_hash } = point;
        let _ = writeln!(
            csv,
            "{threads},{nodes},{ops},{duration_us},{ops_per_sec},{p50_rtts},{p99_rtts},{trace_hash}"
        );
    }
    csv
}

/// The points of a CSV.
#[cfg_attr(not(any(feature = "plot", test)), allow(dead_code))] // only the plot reads it
pub(crate) fn points(csv: &str) -> Result<Vec<Point>, String> {
    let mut lines = csv.lines();
    if lines.next() != Some(HEADER) {
        return Err(format!("its first line is not `{HEADER}`"));
    }
    lines.map(|line| row(line).ok_or_else(|| format!("`{line}` is no row of it"))).collect()
}

fn row(line: &str) -> Option<Point> {
    let mut cells = line.split(',');
    let mut next = || cells.next();
    let point = Point {
        threads: next()?.parse().ok()?,
        nodes: next()?.parse().ok()?,
        ops: next()?.parse().ok()?,
        duration_us: next()?.parse().ok()?,
        ops_per_sec: next()?.parse().ok()?,
        p50_rtts: next()?.parse().ok()?,
        p99_rtts: next()?.parse().ok()?,
        trace_hash: next()?.to_owned(),
    };
    next().is_none().then_some(point)
}

#[cfg(feature = "plot")]
fn draw(options: &Options, csv: &Path, svg: &Path) -> Result<(), String> {
    crate::plot::run(&crate::plot::Options {
        title: options.structure.clone(),
        csv: csv.to_owned(),
        svg: svg.to_owned(),
    })
}

/// Without the plotting crate this task runs itself again with it, for the plot alone.
#[cfg(not(feature = "plot"))]
fn draw(options: &Options, csv: &Path, svg: &Path) -> Result<(), String> {
    let (csv, svg) = (csv.to_string_lossy(), svg.to_string_lossy());
    let cargo = ["cargo", "run", "--quiet", "--package", "xtask", "--features", "plot", "--"];
    command(&[&cargo[..], &["plot", &options.structure, &csv, &svg]].concat(), &[])
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn made_up() -> Vec<Point> {
        let mut points = Vec::new();
        for nodes in powers(4) {
            for threads in powers(8) {
                points.push(Point {
                    threads,
                    nodes,
                    ops: 1000,
                    duration_us: u64::from(1_000_000 / threads),
                    ops_per_sec: u64::from(1000 * threads.min(2 * nodes)),
                    p50_rtts: 2.0,
                    p99_rtts: 2.5 + f64::from(threads) / f64::from(nodes),
                    trace_hash: format!("{:016x}", threads * nodes),
                });
            }
        }
        points
    }

    #[test]
    fn a_table_can_be_read_again() {
        assert_eq!(points(&table(&made_up())), Ok(made_up()));
        assert!(points("threads,nodes\n1,2\n").unwrap_err().contains("first line"));
        assert!(points(&format!("{HEADER}\n1,2,3\n")).unwrap_err().contains("`1,2,3`"));
        assert!(points(&format!("{HEADER}\n1,2,3,4,5,6,7,8,9\n")).is_err());
    }

    #[test]
    fn a_report_becomes_a_point() {
        let report = r#"{"op_count":8,"duration_us":4,"ops_per_sec":2000000,"verified":true,
            "latency_rtts":{"get":{"mean":1.5,"p50":1.0,"p99":2.0},"insert":null},"trace_hash":"ab"}"#;
        let point = |report: &str| super::point(2, 4, report);
        let expected = point(report).unwrap();
        assert_eq!((expected.threads, expected.nodes, expected.p99_rtts), (2, 4, 2.0));
        assert_eq!(point(&report.replace("true", "false")), None, "what is not verified is no result");
        assert_eq!(point("{}"), None);
    }

    #[test]
    fn the_powers_of_two_include_the_last() {
        assert_eq!(powers(1), [1]);
        assert_eq!(powers(8), [1, 2, 4, 8]);
        assert_eq!(powers(9), [1, 2, 4, 8]);
    }
}
