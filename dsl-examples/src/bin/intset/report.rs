//! The results, for people and for programs.

use std::fmt::Write;

use serde_json::{Map, Value, json};

use crate::args::Args;
use crate::check;
use crate::workload::Outcome;

/// Named results, in the order in which they are printed.
pub(crate) struct Report {
    values: Vec<(&'static str, Value)>,
    /// What the check found.
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
        let values = vec![
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
            ("allocated", json!(metrics.allocated)),
            ("freed", json!(metrics.freed)),
            ("retired", json!(metrics.retired)),
            ("reclaimed", json!(metrics.reclaimed)),
            ("final_size", json!(outcome.keys.map_or(0, |keys| keys.len()))),
            ("verified", json!(faults.is_empty())),
        ];
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
        let width = self.values.iter().map(|(key, _)| key.len()).max().unwrap_or(0);
        self.rows().fold(String::new(), |mut text, (key, value)| {
            let _ = writeln!(text, "{key:width$}  {value}");
            text
        })
    }

    fn rows(&self) -> impl Iterator<Item = (&'static str, String)> {
        self.values.iter().map(|(key, value)| {
            let text = match value {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            (*key, text)
        })
    }
}
