//! The results, as a table, as lines and as JSON.

use std::fmt::Write;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::args::Args;
use crate::check;
use crate::workload::{Latencies, Outcome};

/// Named results, in the order in which they are printed.
pub(crate) struct Report {
    values: Vec<(&'static str, Value)>,
    /// The faults that the verification has found.
    pub(crate) faults: Vec<String>,
}

impl Report {
    pub(crate) fn new(args: &Args, outcome: Outcome) -> Self {
        let faults = check::faults(&outcome);
        let (answers, metrics) = (outcome.answers, outcome.metrics);
        let gets = answers.get_t + answers.get_f;
        let op_count = gets + answers.ins_t + answers.ins_f + answers.rmv_t + answers.rmv_f;
        let duration_us = outcome.duration.as_micros() as u64;
        let seconds = outcome.duration.as_secs_f64();
        #[allow(clippy::cast_precision_loss, clippy::cast_sign_loss)] // a rate, rounded
        let ops_per_sec = if seconds > 0.0 { (op_count as f64 / seconds).round() as u64 } else { 0 };
        let mut values = vec![
            ("structure", json!(args.structure.name())),
            ("cluster", json!(args.cluster)),
            ("threads", json!(args.threads)),
            ("tasks", json!(args.tasks)),
            ("num_ops", json!(args.num_ops)),
            ("op_count", json!(op_count)),
            ("duration_us", json!(duration_us)),
            ("ops_per_sec", json!(ops_per_sec)),
            ("get_t", json!(answers.get_t)),
            ("get_f", json!(answers.get_f)),
            ("ins_t", json!(answers.ins_t)),
            ("ins_f", json!(answers.ins_f)),
            ("rmv_t", json!(answers.rmv_t)),
            ("rmv_f", json!(answers.rmv_f)),
            ("reads", json!(metrics.reads)),
            ("read_bytes", json!(metrics.read_bytes)),
            ("writes", json!(metrics.writes)),
            ("write_bytes", json!(metrics.write_bytes)),
            ("cas", json!(metrics.cas)),
            ("cas_failed", json!(metrics.cas_failed)),
            ("faa", json!(metrics.faa)),
            ("chains", json!(metrics.chains)),
            ("doorbells", json!(metrics.doorbells)),
            ("allocated", json!(metrics.allocated)),
            ("freed", json!(metrics.freed)),
            ("retired", json!(metrics.retired)),
            ("reclaimed", json!(metrics.reclaimed)),
            ("final_size", json!(outcome.keys.map_or(0, |keys| keys.len()))),
            ("verified", json!(faults.is_empty())),
        ];
        if args.nodes > 1 {
            values.insert(2, ("nodes", json!(args.nodes)));
        }
        if let Some(simulated) = outcome.simulated {
            values.push(("latency_rtts", latency_rtts(simulated.latencies, simulated.rtt)));
            values.push(("trace_hash", json!(format!("{:016x}", simulated.trace_hash))));
        }
        Self { values, faults }
    }

    /// One JSON object on a line.
    pub(crate) fn json(&self) -> String {
        let object: Map<String, Value> =
            self.values.iter().map(|(key, value)| ((*key).into(), value.clone())).collect();
        format!("{}\n", Value::Object(object))
    }

    /// `key: value` lines.
    pub(crate) fn lines(&self) -> String {
        self.rows().fold(String::new(), |mut text, (key, value)| {
            let _ = writeln!(text, "{key}: {value}");
            text
        })
    }

    /// Aligned columns.
    pub(crate) fn table(&self) -> String {
        let width = self.rows().map(|(key, _)| key.len()).max().unwrap_or(0);
        self.rows().fold(String::new(), |mut text, (key, value)| {
            let _ = writeln!(text, "{key:width$}  {value}");
            text
        })
    }

    /// Keys and values. A value in a nested object has its path as its key: `latency_rtts.get.p99`.
    fn rows(&self) -> impl Iterator<Item = (String, String)> {
        self.values.iter().flat_map(|(key, value)| leaves((*key).to_owned(), value))
    }
}

fn leaves(key: String, value: &Value) -> Vec<(String, String)> {
    match value {
        Value::Object(object) => {
            object.iter().flat_map(|(name, value)| leaves(format!("{key}.{name}"), value)).collect()
        }
        Value::String(text) => vec![(key, text.clone())],
        other => vec![(key, other.to_string())],
    }
}

/// The latencies of operations in round trips. Null for a kind without operations.
fn latency_rtts(latencies: Latencies, rtt: Duration) -> Value {
    let Latencies { get, insert, remove } = latencies;
    let [get, insert, remove] = [get, insert, remove].map(|took| summary(took, rtt));
    json!({ "get": get, "insert": insert, "remove": remove })
}

fn summary(mut took: Vec<Duration>, rtt: Duration) -> Value {
    took.sort_unstable();
    let Some(last) = took.len().checked_sub(1) else { return Value::Null };
    let rtts = |duration: Duration| (duration.as_secs_f64() / rtt.as_secs_f64() * 1000.0).round() / 1000.0;
    #[allow(clippy::cast_possible_truncation)] // a run has fewer than 2^32 operations
    let mean = took.iter().sum::<Duration>() / took.len() as u32;
    // The smallest value that `percent` of the values do not exceed.
    let percentile =
        |percent: usize| rtts(took[(took.len() * percent).div_ceil(100).saturating_sub(1).min(last)]);
    json!({ "mean": rtts(mean), "p50": percentile(50), "p99": percentile(99) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_counts_round_trips() {
        let took = (1..=200).map(|rtts| Duration::from_micros(2 * rtts)).collect();
        let expected = json!({ "mean": 100.5, "p50": 100.0, "p99": 198.0 });
        assert_eq!(summary(took, Duration::from_micros(2)), expected);
        assert_eq!(summary(vec![Duration::from_micros(3)], Duration::from_micros(2))["p99"], json!(1.5));
        assert_eq!(summary(Vec::new(), Duration::from_micros(2)), Value::Null);
    }
}
