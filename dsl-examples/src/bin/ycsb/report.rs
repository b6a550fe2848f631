//! The results, as a table and as JSON.

use std::fmt::Write;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};

use crate::args::Args;
use crate::measures::{Measure, Measures};
use crate::mix::Kind;
use crate::verdict;
use crate::workload::Outcome;

/// Named results, in the order in which they are printed.
pub(crate) struct Report {
    values: Vec<(&'static str, Value)>,
    /// The faults that the verification has found.
    pub(crate) faults: Vec<String>,
    /// A point for each run of the series.
    pub(crate) points: Vec<Point>,
}

/// A run of a series.
#[derive(Clone, Debug)]
pub(crate) struct Point {
    pub(crate) tasks: u64,
    pub(crate) ops_per_sec: f64,
    /// The kinds of operations with their median latency and the 99th percentile, in microseconds.
    pub(crate) latencies: Vec<(Kind, [f64; 2])>,
}

impl Report {
    /// Reports the last run, with a line for each of the series if there are several.
    pub(crate) fn new(args: &Args, outcomes: &[Outcome]) -> Option<Self> {
        let outcome = outcomes.last()?;
        let sums = &outcome.sums;
        let faults: Vec<String> =
            outcomes.iter().flat_map(|outcome| verdict::faults(args, outcome)).collect();
        let points: Vec<Point> = outcomes.iter().map(point).collect();
        let load = count(&outcome.measures, |kind| kind == Kind::Load);
        let mut values = vec![
            ("structure", json!(args.structure.name())),
            ("workload", json!(args.workload.name())),
            ("distribution", json!(args.distribution().name())),
            ("cluster", json!(args.cluster)),
            ("threads", json!(args.threads)),
            ("tasks", json!(args.tasks)),
            ("records", json!(args.records)),
            ("key_size", json!(args.key_size)),
            ("value_size", json!(args.value_size)),
            ("load_us", json!(outcome.load_time.as_micros() as u64)),
            ("load_ops_per_sec", json!(rounded(rate(load, outcome.load_time)))),
            ("op_count", json!(count(&outcome.measures, Kind::is_of_run))),
            ("duration_us", json!(outcome.run_time.as_micros() as u64)),
            ("ops_per_sec", json!(rounded(ops_per_sec(outcome)))),
            ("operations", operations(outcome)),
            ("reads", json!(sums.reads)),
            ("read_bytes", json!(sums.read_bytes)),
            ("writes", json!(sums.writes)),
            ("write_bytes", json!(sums.write_bytes)),
            ("cas", json!(sums.cas)),
            ("cas_failed", json!(sums.cas_failed)),
            ("faa", json!(sums.faa)),
            ("chains", json!(sums.chains)),
            ("doorbells", json!(sums.doorbells)),
            ("directory_hits", json!(sums.directory_hits)),
            ("directory_misses", json!(sums.directory_misses)),
            ("directory_stale", json!(sums.stale)),
            ("slot_hits", json!(sums.slot_hits)),
            ("slot_misses", json!(sums.slot_misses)),
            ("retries", json!(sums.retries)),
            ("overtaken", json!(sums.overtaken)),
            ("growths", json!(sums.growths)),
            ("waits", json!(sums.waits)),
            ("bytes_per_record", json!(per_record(sums.loaded_bytes, args.records))),
            ("allocated", json!(sums.allocated)),
            ("freed", json!(sums.freed)),
            ("retired", json!(sums.retired)),
            ("reclaimed", json!(sums.reclaimed)),
            ("final_size", json!(sums.final_size)),
            ("checked", json!(sums.checked)),
            ("verified", json!(faults.is_empty())),
        ];
        if outcome.measures.get(Kind::Scan).is_some() {
            values.extend([
                ("scan_length", json!(args.longest_scan())),
                ("records_scanned", json!(sums.scanned)),
            ]);
        }
        if args.nodes > 1 {
            values.insert(4, ("nodes", json!(args.nodes)));
        }
        if points.len() > 1 {
            values.push(("series", points.iter().map(Point::json).collect()));
        }
        if let Some(simulated) = &outcome.simulated {
            values.push(("trace_hash", json!(format!("{:016x}", simulated.trace_hash))));
        }
        Some(Self { values, faults, points })
    }

    /// One JSON object on a line.
    pub(crate) fn json(&self) -> String {
        let object: Map<String, Value> =
            self.values.iter().map(|(key, value)| ((*key).into(), value.clone())).collect();
        format!("{}\n", Value::Object(object))
    }

    /// Aligned columns: a line for each result, then a table of the operations, and one of the series.
    pub(crate) fn table(&self) -> String {
        let scalars = || self.values.iter().filter(|(_, value)| !value.is_object() && !value.is_array());
        let width = scalars().map(|(key, _)| key.len()).max().unwrap_or(0);
        let mut text = scalars().fold(String::new(), |mut text, (key, value)| {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let _ = writeln!(text, "{key:width$}  {value}");
            text
        });
        for (key, value) in &self.values {
            let rows: Vec<(String, Vec<(String, String)>)> = match value {
                Value::Object(kinds) => {
                    kinds.iter().map(|(kind, figures)| (kind.clone(), leaves("", figures))).collect()
                }
                Value::Array(runs) => runs.iter().map(|run| (String::new(), leaves("", run))).collect(),
                _ => continue,
            };
            text.push('\n');
            text.push_str(&columns(key, &rows));
        }
        text
    }
}

/// A table whose columns are the figures of its rows.
fn columns(title: &str, rows: &[(String, Vec<(String, String)>)]) -> String {
    let names = rows.first().map(|(_, figures)| figures.iter().map(|(name, _)| name.as_str()));
    let head: Vec<&str> = std::iter::once(title).chain(names.into_iter().flatten()).collect();
    let mut lines = vec![head.iter().map(|name| (*name).to_owned()).collect::<Vec<String>>()];
    lines.extend(rows.iter().map(|(name, figures)| {
        std::iter::once(name.clone()).chain(figures.iter().map(|(_, figure)| figure.clone())).collect()
    }));
    let width = |column: usize| {
        lines.iter().filter_map(|line| line.get(column)).map(String::len).max().unwrap_or_default()
    };
    lines.iter().fold(String::new(), |mut text, line| {
        let _ = write!(text, "{:width$}", line[0], width = width(0));
        for (column, figure) in line.iter().enumerate().skip(1) {
            let _ = write!(text, "  {figure:>width$}", width = width(column));
        }
        text.push('\n');
        text
    })
}

/// The figures of a nested object, with their paths: `latency_us.p99`.
fn leaves(path: &str, value: &Value) -> Vec<(String, String)> {
    match value {
        Value::Object(object) => object
            .iter()
            .flat_map(|(name, value)| {
                leaves(&if path.is_empty() { name.clone() } else { format!("{path}.{name}") }, value)
            })
            .collect(),
        other => vec![(path.to_owned(), other.to_string())],
    }
}

impl Point {
    fn json(&self) -> Value {
        let mut object = Map::new();
        object.insert("tasks".into(), json!(self.tasks));
        object.insert("ops_per_sec".into(), json!(rounded(self.ops_per_sec)));
        for (kind, [median, p99]) in &self.latencies {
            object.insert(kind.name().into(), json!({ "p50_us": median, "p99_us": p99 }));
        }
        Value::Object(object)
    }
}

fn point(outcome: &Outcome) -> Point {
    let latencies = Kind::ALL.into_iter().filter(|kind| kind.is_of_run()).filter_map(|kind| {
        let latency = &outcome.measures.get(kind)?.latency;
        Some((kind, [0.5, 0.99].map(|quantile| microseconds(latency.value_at_quantile(quantile)))))
    });
    Point { tasks: outcome.tasks, ops_per_sec: ops_per_sec(outcome), latencies: latencies.collect() }
}

/// The figures of each kind of operation that was executed.
fn operations(outcome: &Outcome) -> Value {
    let kinds = Kind::ALL.into_iter().filter_map(|kind| {
        let Measure { latency, round_trips } = outcome.measures.get(kind)?;
        let mut figures = json!({
            "count": latency.len(),
            "latency_us": {
                "mean": thousandths(latency.mean() / 1e3),
                "p50": microseconds(latency.value_at_quantile(0.5)),
                "p95": microseconds(latency.value_at_quantile(0.95)),
                "p99": microseconds(latency.value_at_quantile(0.99)),
                "p99.9": microseconds(latency.value_at_quantile(0.999)),
                "max": microseconds(latency.max()),
            },
            "round_trips": {
                "mean": thousandths(round_trips.mean()),
                "p50": round_trips.value_at_quantile(0.5),
                "p99": round_trips.value_at_quantile(0.99),
                "max": round_trips.max(),
            },
        });
        if let Some(simulated) = &outcome.simulated {
            figures["latency_rtts"] = in_round_trips(latency, simulated.rtt);
        }
        Some((kind.name().to_owned(), figures))
    });
    Value::Object(kinds.collect())
}

/// The latency in the simulator's round trips.
fn in_round_trips(latency: &Histogram<u64>, rtt: Duration) -> Value {
    // A histogram's value is the highest of those that it counts together: the round trips are rounded to three digits, as it is.
    let rtts = |ns: f64| (ns / rtt.as_secs_f64() / 1e7).round() / 100.0;
    #[allow(clippy::cast_precision_loss)] // rounded anyway
    let quantile = |quantile: f64| rtts(latency.value_at_quantile(quantile) as f64);
    json!({ "mean": rtts(latency.mean()), "p50": quantile(0.5), "p99": quantile(0.99) })
}

/// The number of operations of some kinds.
fn count(measures: &Measures, of: impl Fn(Kind) -> bool) -> u64 {
    let kinds = Kind::ALL.into_iter().filter(|kind| of(*kind));
    kinds.filter_map(|kind| measures.get(kind)).map(|measure| measure.latency.len()).sum()
}

fn ops_per_sec(outcome: &Outcome) -> f64 {
    rate(count(&outcome.measures, Kind::is_of_run), outcome.run_time)
}

#[allow(clippy::cast_precision_loss)] // a rate
fn rate(count: u64, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { count as f64 / time.as_secs_f64() }
}

#[allow(clippy::cast_sign_loss)] // a rate
fn rounded(rate: f64) -> u64 {
    rate.round() as u64
}

#[allow(clippy::cast_precision_loss)] // rounded to tenths
fn per_record(bytes: u64, records: u64) -> f64 {
    (bytes as f64 / records as f64 * 10.0).round() / 10.0
}

#[allow(clippy::cast_precision_loss)] // of three significant digits
fn microseconds(ns: u64) -> f64 {
    ns as f64 / 1e3
}

fn thousandths(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_aligned() {
        let figures = json!({ "count": 12345, "latency_us": { "p50": 1.5 } });
        let rows = [("read".to_owned(), leaves("", &figures)), ("update".to_owned(), leaves("", &figures))];
        let expected = "\
            operations  count  latency_us.p50\n\
            read        12345             1.5\n\
            update      12345             1.5\n";
        assert_eq!(columns("operations", &rows), expected);
    }

    #[test]
    fn latencies_in_round_trips_are_rounded() {
        let mut latency = Histogram::new(3).unwrap();
        (0..100).for_each(|_| latency.record(6000).unwrap());
        let expected = json!({ "mean": 3.0, "p50": 3.0, "p99": 3.0 });
        assert_eq!(in_round_trips(&latency, Duration::from_micros(2)), expected);
    }
}
