//! The table of `cargo xtask scaling`: a row for each number of threads and of memory nodes.

use std::fmt::Write;

/// The results of a run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Point {
    pub(crate) threads: u32,
    pub(crate) nodes: u32,
    pub(crate) ops: u64,
    pub(crate) duration_us: u64,
    /// Operations a second of virtual time.
    pub(crate) ops_per_sec: u64,
    /// Median latency of a `get`, in round trips.
    pub(crate) p50_rtts: f64,
    pub(crate) p99_rtts: f64,
    pub(crate) trace_hash: String,
}

const HEADER: &str = "threads,nodes,ops,duration_us,ops_per_sec,get_p50_rtts,get_p99_rtts,trace_hash";

/// The points as CSV.
pub(crate) fn table(points: &[Point]) -> String {
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
    super::csv::rows(csv, HEADER, row)
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

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn made_up() -> Vec<Point> {
        let mut points = Vec::new();
        for nodes in [1, 2, 4] {
            for threads in [1, 2, 4, 8] {
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
}
