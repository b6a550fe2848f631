//! The figures: ratios of measurements next to each other in the same boot.
//!
//! The measuring test prints a line `@ KIND …` for each measurement; see `scripts/measure.sh`.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::report::Report;
use super::suite::MEASURE;

/// Columns of perftest's tables: the median of a latency, and million messages a second.
const LATENCY_COLUMN: usize = 4;
const RATE_COLUMN: usize = 4;

/// The measurements so far.
#[derive(Default)]
struct Measured {
    /// Medians of the minimal loop, in microseconds: READ, WRITE, CAS, FAA.
    raw: Vec<[f64; 4]>,
    /// The mean of the loop's READs.
    raw_reads: Vec<f64>,
    /// For each ping: the loop's medians before it, and the ping's medians.
    pings: Vec<([f64; 4], [f64; 4])>,
    /// READs a second.
    rates: Vec<f64>,
    /// Figures of perftest.
    perftest_rates: Vec<f64>,
    perftest_reads: Vec<f64>,
    perftest_atomics: Vec<f64>,
    /// For each operation: name, verbs, microseconds, and the number of the loop's measurements before it.
    sets: Vec<(String, f64, f64, usize)>,
}

const OPERATIONS: [&str; 4] = ["read", "write", "cas", "faa"];

/// Computes the figures from the tests' output.
pub(super) fn figures(reports: &[Report]) -> Result<Map<String, Value>, String> {
    let mut figures = Map::new();
    let passed = reports.iter().filter(|report| report.passed()).count();
    figures.insert("rdma.tests_passed".to_owned(), Value::from(passed));
    if let Some(report) = reports.iter().find(|report| report.name == MEASURE && report.passed()) {
        let measured = measured(&report.printed)?;
        for (name, value) in of(&measured)? {
            figures.insert(name, Value::from((value * 1000.0).round() / 1000.0));
        }
    }
    Ok(figures)
}

fn measured(printed: &str) -> Result<Measured, String> {
    let mut measured = Measured::default();
    for line in printed.lines() {
        let Some((kind, rest)) = line.strip_prefix("@ ").and_then(|line| line.split_once(' ')) else {
            continue;
        };
        measured
            .add(kind, rest)
            .ok_or_else(|| format!("{MEASURE} printed a line that can not be parsed: {line}"))?;
    }
    Ok(measured)
}

impl Measured {
    fn add(&mut self, kind: &str, rest: &str) -> Option<()> {
        match kind {
            "raw" => {
                let medians: Value = serde_json::from_str(rest).ok()?;
                self.raw_reads.push(medians["read_mean"].as_f64()?);
                self.raw.push(all(OPERATIONS.map(|name| medians[name].as_f64()))?);
            }
            "ping" => {
                let ping: Value = serde_json::from_str(rest).ok()?;
                let node = &ping["nodes"][0];
                let medians = all(OPERATIONS.map(|name| node[name]["p50_us"].as_f64()))?;
                self.pings.push((*self.raw.last()?, medians));
                self.rates.push(ping["reads_per_s"].as_f64()?);
            }
            "bandwidth" => self.perftest_rates.push(column(rest, RATE_COLUMN)? * 1e6),
            "read_lat" => self.perftest_reads.push(column(rest, LATENCY_COLUMN)?),
            "atomic_lat" => self.perftest_atomics.push(column(rest, LATENCY_COLUMN)?),
            "set" => {
                let mut words = rest.splitn(4, ' ');
                let [mix, threads, tasks] = [words.next()?, words.next()?, words.next()?];
                let report: Value = serde_json::from_str(words.next()?).ok()?;
                let count = |name: &str| report[name].as_f64();
                let ops = count("op_count")?;
                let verbs = count("reads")? + count("writes")? + count("cas")? + count("faa")?;
                let threads = if threads == "1" { String::new() } else { format!("threads{threads}.") };
                let name = format!("lazy-list.{mix}.{threads}tasks{tasks}");
                self.sets.push((name, verbs / ops, count("duration_us")? / ops, self.raw.len()));
            }
            _ => return None,
        }
        Some(())
    }
}

fn of(measured: &Measured) -> Result<Vec<(String, f64)>, String> {
    let missing = || format!("{MEASURE} has not printed all measurements");
    let mut figures = Vec::new();
    for (index, name) in OPERATIONS.iter().enumerate() {
        let ratios = measured.pings.iter().map(|(raw, ping)| ping[index] / raw[index]).collect();
        figures.push((format!("rdma.{name}.ratio_to_raw"), median(ratios).ok_or_else(missing)?));
    }
    let to_perftest = |index: usize, perftest: &[f64]| {
        median(
            measured.pings.iter().zip(perftest).map(|((_, ping), perftest)| ping[index] / perftest).collect(),
        )
    };
    let read = to_perftest(0, &measured.perftest_reads).ok_or_else(missing)?;
    let faa = to_perftest(3, &measured.perftest_atomics).ok_or_else(missing)?;
    figures.push(("rdma.read.ratio_to_perftest".to_owned(), read));
    figures.push(("rdma.faa.ratio_to_perftest".to_owned(), faa));
    let rates = measured.rates.iter().zip(&measured.perftest_rates).map(|(ours, theirs)| ours / theirs);
    let rate = median(rates.collect()).ok_or_else(missing)?;
    figures.push(("rdma.message_rate.ratio_to_perftest".to_owned(), rate));
    let mut sets: BTreeMap<&str, (Vec<f64>, Vec<f64>)> = BTreeMap::new();
    for (name, verbs, us, before) in &measured.sets {
        // The loop ran before and after it.
        let around = measured.raw_reads.get(before.wrapping_sub(1)..=*before).ok_or_else(missing)?;
        let (of_verbs, of_reads) = sets.entry(name).or_default();
        of_verbs.push(*verbs);
        of_reads.push(2.0 * us / around.iter().sum::<f64>());
    }
    for (name, (verbs, reads)) in sets {
        figures.push((format!("rdma.{name}.verbs_per_op"), median(verbs).ok_or_else(missing)?));
        figures.push((format!("rdma.{name}.raw_reads_per_op"), median(reads).ok_or_else(missing)?));
    }
    Ok(figures)
}

/// A number in a column of a table's row.
fn column(row: &str, column: usize) -> Option<f64> {
    row.split_whitespace()
        .nth(column)?
        .parse()
        .ok()
        .filter(|number: &f64| number.is_finite() && *number > 0.0)
}

fn all(values: [Option<f64>; 4]) -> Option<[f64; 4]> {
    let [Some(a), Some(b), Some(c), Some(d)] = values else { return None };
    Some([a, b, c, d])
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = r#"something else
@ raw {"read_mean": 42.0, "read": 40.0, "write": 20.0, "cas": 25.0, "faa": 25.0}
@ ping {"nodes": [{"read": {"p50_us": 44.0}, "write": {"p50_us": 24.0}, "cas": {"p50_us": 30.0}, "faa": {"p50_us": 25.0}}], "reads_per_s": 50000.0}
@ bandwidth  64         20000            2.99               1.67   		   0.025000
@ read_lat  8       1000          40.1           900.2        55.0     	       60.2        	10.1   		100.2    		900.2
@ atomic_lat  8       1000          30.1           900.2        50.0     	       60.2        	10.1   		100.2    		900.2
@ raw {"read_mean": 60.0, "read": 60.0, "write": 20.0, "cas": 25.0, "faa": 25.0}
@ set 10/10 1 16 {"op_count": 100, "reads": 5000, "writes": 100, "cas": 100, "faa": 0, "duration_us": 150000}
@ raw {"read_mean": 60.0, "read": 60.0, "write": 20.0, "cas": 25.0, "faa": 25.0}
"#;

    #[test]
    fn figures_are_ratios_of_adjacent_measurements() {
        let figures: Map<String, Value> = of(&measured(PRINTED).unwrap())
            .unwrap()
            .into_iter()
            .map(|(name, value)| (name, value.into()))
            .collect();
        assert_eq!(figures["rdma.read.ratio_to_raw"], 1.1);
        assert_eq!(figures["rdma.read.ratio_to_perftest"], 0.8);
        assert_eq!(figures["rdma.message_rate.ratio_to_perftest"], 2.0);
        assert_eq!(figures["rdma.lazy-list.10/10.tasks16.verbs_per_op"], 52.0);
        assert_eq!(figures["rdma.lazy-list.10/10.tasks16.raw_reads_per_op"], 25.0);
    }

    #[test]
    fn missing_or_malformed_measurements_are_errors() {
        assert!(of(&measured("").unwrap()).is_err());
        let error = measured(&PRINTED.replace("0.025000", "nan")).err().unwrap();
        assert!(error.contains("@ bandwidth"), "{error}");
        assert!(measured("@ new 1").is_err());
    }
}
