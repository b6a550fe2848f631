//! The figures: ratios of measurements next to each other in the same boot, and counts of instructions.
//!
//! The measuring tests print a line `@ KIND …` for each measurement; see `scripts/measure.sh`, `scripts/maps.sh` and
//! `scripts/instructions.sh`.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::report::Report;
use super::suite::{INSTRUCTIONS, MAPS, MEASURE};

/// Columns of perftest's tables: the median of a latency, and million messages a second.
const LATENCY_COLUMN: usize = 4;
const RATE_COLUMN: usize = 4;

/// The measurements so far.
#[derive(Default)]
struct Measured {
    /// Medians of the minimal loop, in microseconds: READ, WRITE, CAS, FAA.
    raw: Vec<[f64; 4]>,
    /// Medians of the loop's READs of a leaf: of one alone, and of one of 16.
    leaves: Vec<[f64; 2]>,
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
    /// For each measurement of a map: name, microseconds of a `get`, and the number of the loop's measurements before it.
    gets: Vec<(String, f64, usize)>,
}

/// The parts of the names of counts of instructions: of awaited verbs, and of those of 16 tasks.
const IN_FLIGHT: [&str; 2] = ["", "tasks16."];
/// The part of its recorded value by which a count of instructions may grow.
const TOLERANCE: f64 = 0.05;

const OPERATIONS: [&str; 4] = ["read", "write", "cas", "faa"];

/// Computes the figures from the tests' output. A count of instructions that exceeds its value in `recorded` is an error.
pub(super) fn figures(reports: &[Report], recorded: &[(&str, f64)]) -> Result<Map<String, Value>, String> {
    let mut figures = Map::new();
    let passed = reports.iter().filter(|report| report.passed()).count();
    figures.insert("rdma.tests_passed".to_owned(), Value::from(passed));
    let measured_by = |test: &str| {
        let report = reports.iter().find(|report| report.name == test && report.passed());
        report.map(|report| measured(&report.printed)).transpose()
    };
    let mut measured = Vec::new();
    if let Some(times) = measured_by(MEASURE)? {
        measured.extend(of(&times)?);
    }
    if let Some(times) = measured_by(MAPS)? {
        measured.extend(of_maps(&times)?);
    }
    for (name, value) in measured {
        figures.insert(name, Value::from((value * 1000.0).round() / 1000.0));
    }
    if let Some(report) = reports.iter().find(|report| report.name == INSTRUCTIONS && report.passed()) {
        for (name, value) in instructions(&report.printed)? {
            let recorded = recorded.iter().find(|(recorded, _)| *recorded == name).map(|(_, value)| *value);
            let most = recorded.ok_or_else(|| format!("{name}: no recorded value"))?;
            if value > most * (1.0 + TOLERANCE) {
                return Err(format!(
                    "{name}: {value} instructions, and {most} are recorded: make the verb cheaper, or record the new value in the same commit"
                ));
            }
            figures.insert(name, Value::from(value));
        }
    }
    Ok(figures)
}

/// Instructions of each verb beyond those of the minimal loop, with their names.
fn instructions(printed: &str) -> Result<Vec<(String, f64)>, String> {
    let counts = |kind: &str| {
        let line =
            printed.lines().find_map(|line| line.strip_prefix("@ ")?.strip_prefix(kind)?.strip_prefix(' '));
        let numbers: Option<Vec<f64>> = line?.split(' ').map(|number| number.parse().ok()).collect();
        let (verbs, totals) = numbers?.split_first().map(|(verbs, totals)| (*verbs, totals.to_vec()))?;
        let is_whole = totals.len() == IN_FLIGHT.len() * OPERATIONS.len() && verbs > 0.0;
        is_whole.then(|| totals.into_iter().map(|total| total / verbs).collect::<Vec<f64>>())
    };
    let (Some(ours), Some(raw)) = (counts("instructions"), counts("raw_instructions")) else {
        return Err(format!("{INSTRUCTIONS} has not printed all counts"));
    };
    let names = IN_FLIGHT
        .iter()
        .flat_map(|tasks| OPERATIONS.map(|verb| format!("rdma.{verb}.{tasks}instructions_over_raw")));
    let over = ours.iter().zip(raw).map(|(ours, raw)| (ours - raw).round());
    Ok(names.zip(over).collect())
}

fn measured(printed: &str) -> Result<Measured, String> {
    let mut measured = Measured::default();
    for line in printed.lines() {
        let Some((kind, rest)) = line.strip_prefix("@ ").and_then(|line| line.split_once(' ')) else {
            continue;
        };
        measured
            .add(kind, rest)
            .ok_or_else(|| format!("a measuring test printed a line that can not be parsed: {line}"))?;
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
                let leaves = ["leaf", "leaf_of_16"].map(|name| medians[name].as_f64());
                self.leaves.push([leaves[0]?, leaves[1]?]);
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
            "get" => {
                let mut words = rest.split(' ');
                let [map, tasks, us] = [words.next()?, words.next()?, words.next()?];
                let tasks = if tasks == "1" { String::new() } else { format!("tasks{tasks}.") };
                let us = us.parse().ok().filter(|us: &f64| us.is_finite() && *us > 0.0)?;
                self.gets.push((format!("{map}.get.{tasks}"), us, self.raw.len()));
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
        let (of_verbs, of_reads) = sets.entry(name).or_default();
        of_verbs.push(*verbs);
        of_reads.push(reads_in(*us, &measured.raw_reads, *before).ok_or_else(missing)?);
    }
    for (name, (verbs, reads)) in sets {
        figures.push((format!("rdma.{name}.verbs_per_op"), median(verbs).ok_or_else(missing)?));
        figures.push((format!("rdma.{name}.raw_reads_per_op"), median(reads).ok_or_else(missing)?));
    }
    Ok(figures)
}

/// The times of `get`s of maps, in READs. Both are medians.
fn of_maps(measured: &Measured) -> Result<Vec<(String, f64)>, String> {
    let missing = || format!("{MAPS} has not printed all measurements");
    let reads: Vec<f64> = measured.raw.iter().map(|[read, ..]| *read).collect();
    let mut maps: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (name, us, before) in &measured.gets {
        maps.entry(name).or_default().push(reads_in(*us, &reads, *before).ok_or_else(missing)?);
    }
    if maps.is_empty() {
        return Err(missing());
    }
    for (index, name) in ["ordered-map.get.least_", "ordered-map.get.tasks16.least_"].into_iter().enumerate()
    {
        let leaves = measured.leaves.iter().map(|leaves| leaves[index]);
        maps.insert(name, leaves.zip(&reads).map(|(leaf, read)| leaf / read).collect());
    }
    let figure = |(name, reads)| Some((format!("rdma.{name}raw_reads_per_op"), median(reads)?));
    Ok(maps.into_iter().filter_map(figure).collect())
}

/// Returns how many READs the loop does in a time: `reads` are the times of one, of which `before` were measured before that time, and the next
/// after it.
fn reads_in(us: f64, reads: &[f64], before: usize) -> Option<f64> {
    let around = reads.get(before.checked_sub(1)?..=before)?;
    Some(2.0 * us / around.iter().sum::<f64>())
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
    use super::super::report::Outcome;
    use super::*;

    const PRINTED: &str = r#"something else
@ raw {"read_mean": 42.0, "read": 40.0, "write": 20.0, "cas": 25.0, "faa": 25.0, "leaf": 50.0, "leaf_of_16": 40.0}
@ ping {"nodes": [{"read": {"p50_us": 44.0}, "write": {"p50_us": 24.0}, "cas": {"p50_us": 30.0}, "faa": {"p50_us": 25.0}}], "reads_per_s": 50000.0}
@ bandwidth  64         20000            2.99               1.67   		   0.025000
@ read_lat  8       1000          40.1           900.2        55.0     	       60.2        	10.1   		100.2    		900.2
@ atomic_lat  8       1000          30.1           900.2        50.0     	       60.2        	10.1   		100.2    		900.2
@ raw {"read_mean": 60.0, "read": 60.0, "write": 20.0, "cas": 25.0, "faa": 25.0, "leaf": 50.0, "leaf_of_16": 40.0}
@ set 10/10 1 16 {"op_count": 100, "reads": 5000, "writes": 100, "cas": 100, "faa": 0, "duration_us": 150000}
@ raw {"read_mean": 60.0, "read": 60.0, "write": 20.0, "cas": 25.0, "faa": 25.0, "leaf": 50.0, "leaf_of_16": 40.0}
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
    fn gets_of_maps_are_counted_in_reads_of_the_loop_around_them() {
        let raw = |us: u32| {
            let others = "\"read_mean\": 9, \"write\": 9, \"cas\": 9, \"faa\": 9";
            format!("@ raw {{{others}, \"read\": {us}, \"leaf\": 60, \"leaf_of_16\": 30}}\n")
        };
        let gets = "@ get hash-map 1 60\n@ get hash-map 16 24\n";
        let more = format!("@ get hash-map-inline 1 50\n{}@ get ordered-map 16 30\n{}", raw(60), raw(40));
        let printed = format!("{}{gets}{}{more}", raw(20), raw(40));
        let report = |printed: &str| Report {
            outcome: Outcome::Passed,
            printed: printed.to_owned(),
            ..Report::aborted(MAPS, "")
        };
        let found = figures(&[report(&printed)], &[]).unwrap();
        assert_eq!(found["rdma.hash-map.get.raw_reads_per_op"], 2.0);
        assert_eq!(found["rdma.hash-map.get.tasks16.raw_reads_per_op"], 0.8);
        assert_eq!(found["rdma.hash-map-inline.get.raw_reads_per_op"], 1.0);
        assert_eq!(found["rdma.ordered-map.get.tasks16.raw_reads_per_op"], 0.6);
        assert_eq!(found["rdma.ordered-map.get.least_raw_reads_per_op"], 1.5);
        assert_eq!(found["rdma.ordered-map.get.tasks16.least_raw_reads_per_op"], 0.75);
        for (printed, expected) in [
            (raw(20), "not printed all"),
            (format!("{}{gets}", raw(20)), "not printed all"),
            (printed.replace("1 50", "1 0"), "can not be parsed"),
            (printed.replace("1 50", "1"), "can not be parsed"),
        ] {
            let error = figures(&[report(&printed)], &[]).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn instructions_are_counted_beyond_those_of_the_loop() {
        let printed = "@ raw_instructions 10 100 100 100 100 50 50 50 50\n@ instructions 10 5100 4100 3100 2100 1050 1050 1050 1054\n";
        let counts = instructions(printed).unwrap();
        let counts: Vec<(&str, f64)> = counts.iter().map(|(name, over)| (name.as_str(), *over)).collect();
        assert_eq!(counts[0], ("rdma.read.instructions_over_raw", 500.0));
        assert_eq!(counts[7], ("rdma.faa.tasks16.instructions_over_raw", 100.0));
        assert!(instructions(&printed.replace(" 1054", "")).is_err(), "a count is missing");
        assert!(instructions(&printed.replace("@ raw_", "@ ")).is_err());
    }

    #[test]
    fn more_instructions_than_are_recorded_are_an_error() {
        let names: Vec<String> = IN_FLIGHT
            .iter()
            .flat_map(|tasks| OPERATIONS.map(|verb| format!("rdma.{verb}.{tasks}instructions_over_raw")))
            .collect();
        let recorded: Vec<(&str, f64)> = names.iter().map(|name| (name.as_str(), 100.0)).collect();
        let of = |count: u32| {
            let printed =
                format!("@ raw_instructions 1 9 9 9 9 9 9 9 9\n@ instructions 1 9 9 9 9 9 9 9 {count}\n");
            let report = Report { outcome: Outcome::Passed, printed, ..Report::aborted(INSTRUCTIONS, "") };
            figures(&[report], &recorded)
        };
        assert_eq!(of(114).unwrap()["rdma.faa.tasks16.instructions_over_raw"], 105.0);
        let error = of(115).unwrap_err();
        assert!(error.contains("rdma.faa.tasks16.instructions_over_raw"), "{error}");
    }

    #[test]
    fn missing_or_malformed_measurements_are_errors() {
        assert!(of(&measured("").unwrap()).is_err());
        let error = measured(&PRINTED.replace("0.025000", "nan")).err().unwrap();
        assert!(error.contains("@ bandwidth"), "{error}");
        assert!(measured("@ new 1").is_err());
    }
}
