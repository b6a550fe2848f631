//! What the programs `delegated_counter`, `bank`, `pipeline` and `contest` have in common: their command lines' mistakes, their results, and their exit codes.
//!
//! Exit codes: 0 for success, 1 if a verification fails, 2 for bad input and errors. Failures print one line on stderr.

use std::fmt::Write as _;
use std::io::Write as _;
use std::pin::pin;
use std::process::ExitCode;
use std::task::Poll;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{Parser, ValueEnum};
use farfield::ComputeThread;
use farfield::error::Printable;
use serde_json::{Map, Value, json};

/// A verification has found a fault.
const CHECK_FAILED: u8 = 1;
/// Bad input, or an error of the run.
const FAILED: u8 = 2;

/// The format of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A column for each variant
    Table,
    /// One JSON object for each variant, each on a line
    Json,
}

/// Named results of a variant, in the order in which they are printed.
pub struct Report {
    values: Vec<(String, Value)>,
    /// Of all variants.
    figures: Vec<(String, Value)>,
    fault: Option<String>,
}

impl Report {
    /// Makes a report of some results, and of the fault that the verification has found.
    pub fn new(values: Vec<(&'static str, Value)>, fault: Option<String>) -> Self {
        Self::named(values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(), fault)
    }

    /// Like [`new`](Self::new), with names that are made at run time.
    pub fn named(mut values: Vec<(String, Value)>, fault: Option<String>) -> Self {
        values.push(("verified".to_owned(), json!(fault.is_none())));
        Self { values, figures: Vec::new(), fault }
    }

    /// Adds figures that compare variants. In a table each is a line below.
    #[must_use]
    pub fn with_figures(self, figures: Vec<(String, Value)>) -> Self {
        Self { figures, ..self }
    }
}

/// Command lines that do not start a run.
#[derive(Debug)]
pub enum Refused {
    /// A request for help or the version, with the text to print.
    Help(String),
    /// A mistake, as one line that names it.
    Mistake(String),
}

/// Parses a command line.
///
/// # Errors
/// What to print instead of results.
pub fn parse<A: Parser>(
    words: impl IntoIterator<Item = impl Into<std::ffi::OsString> + Clone>,
) -> Result<A, Refused> {
    A::try_parse_from(words).map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Refused::Help(error.to_string()),
        _ => Refused::Mistake(one_line(&error.to_string())),
    })
}

/// Runs a program: its command line, its variants, and the output of their results.
pub fn main<A: Parser>(run: impl FnOnce(A) -> Result<(Format, Vec<Report>), String>) -> ExitCode {
    let args = match parse::<A>(std::env::args_os()) {
        Ok(args) => args,
        Err(Refused::Help(text)) => return print(&text),
        Err(Refused::Mistake(line)) => return fail(&line, FAILED),
    };
    let (format, reports) = match run(args) {
        Ok(done) => done,
        Err(line) => return fail(&line, FAILED),
    };
    let printed = match format {
        Format::Table => print(&table(&reports)),
        Format::Json => print(&reports.iter().map(json).collect::<String>()),
    };
    match reports.into_iter().find_map(|report| report.fault) {
        None => printed,
        Some(fault) => fail(&fault, CHECK_FAILED),
    }
}

fn json(report: &Report) -> String {
    let object: Map<String, Value> = report
        .values
        .iter()
        .chain(&report.figures)
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    format!("{}\n", Value::Object(object))
}

/// A row for each result, and a column for each report.
fn table(reports: &[Report]) -> String {
    let cells: Vec<Vec<String>> =
        reports.iter().map(|report| report.values.iter().map(|(_, value)| shown(value)).collect()).collect();
    let keys: Vec<&str> = reports
        .first()
        .map_or(Vec::new(), |report| report.values.iter().map(|(key, _)| key.as_str()).collect());
    let wide = |texts: &mut dyn Iterator<Item = usize>| texts.max().unwrap_or(0);
    let name = wide(&mut keys.iter().map(|key| key.len()));
    let widths: Vec<usize> = cells.iter().map(|column| wide(&mut column.iter().map(String::len))).collect();
    let mut table = String::new();
    for (row, key) in keys.iter().enumerate() {
        let mut line = format!("{key:name$}");
        for (column, width) in cells.iter().zip(&widths) {
            let _ = write!(line, "  {:>width$}", column.get(row).map_or("", String::as_str));
        }
        let _ = writeln!(table, "{}", line.trim_end());
    }
    for (name, value) in reports.iter().flat_map(|report| &report.figures) {
        let _ = writeln!(table, "{name} {}", shown(value));
    }
    table
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".to_owned(),
        other => other.to_string(),
    }
}

/// The mean, the median and the 99th percentile of latencies in round trips. Null if there are none.
pub fn latency_rtts(latencies: &mut [Duration], rtt: Option<Duration>) -> [(&'static str, Value); 3] {
    latencies.sort_unstable();
    let rounded = |rtts: f64| json!((rtts * 1000.0).round() / 1000.0);
    let (Some(rtt), Some(last)) = (rtt, latencies.len().checked_sub(1)) else {
        return ["latency_rtts_mean", "latency_rtts_p50", "latency_rtts_p99"].map(|name| (name, Value::Null));
    };
    let rtts = |duration: Duration| duration.as_secs_f64() / rtt.as_secs_f64();
    // The smallest value that `percent` of the values do not exceed.
    let percentile = |percent: usize| {
        rounded(rtts(latencies[((last + 1) * percent).div_ceil(100).saturating_sub(1).min(last)]))
    };
    #[allow(clippy::cast_precision_loss)] // a mean, rounded
    let mean = latencies.iter().map(|took| rtts(*took)).sum::<f64>() / latencies.len() as f64;
    [
        ("latency_rtts_mean", rounded(mean)),
        ("latency_rtts_p50", percentile(50)),
        ("latency_rtts_p99", percentile(99)),
    ]
}

/// Awaits an operation. Returns its result and the number of chains that it has posted, not those of the thread's other tasks.
pub async fn counted<T>(operation: impl Future<Output = T>, ct: &ComputeThread) -> (T, u64) {
    let (mut operation, mut chains) = (pin!(operation), 0);
    let result = std::future::poll_fn(|context| {
        let before = ct.metrics().chains;
        let polled = operation.as_mut().poll(context);
        chains += ct.metrics().chains - before;
        match polled {
            Poll::Ready(result) => Poll::Ready(result),
            Poll::Pending => Poll::Pending,
        }
    })
    .await;
    (result, chains)
}

/// A message of several lines as one line, without the advice at its end.
fn one_line(message: &str) -> String {
    let lines = message
        .lines()
        .map(str::trim)
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"));
    let message: Vec<&str> = lines.filter(|line| !line.is_empty() && !line.starts_with("tip:")).collect();
    message.join(" ").trim_start_matches("error: ").to_owned()
}

fn print(text: &str) -> ExitCode {
    // A closed pipe is not a failure of the run, but the exit code must show that the results were not printed.
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(FAILED),
    }
}

fn fail(line: &str, code: u8) -> ExitCode {
    eprintln!("error: {}", Printable(line));
    ExitCode::from(code)
}

#[cfg(test)]
mod tests {
    use farfield::prelude::*;

    use super::*;

    #[test]
    fn a_table_has_a_column_for_each_report() {
        let report =
            |count: u64| Report::new(vec![("variant", json!("faa")), ("operations", json!(count))], None);
        let expected = "variant      faa   faa\noperations     5  1000\nverified    true  true\n";
        assert_eq!(table(&[report(5), report(1000)]), expected);
        let compared = report(1000).with_figures(vec![("counter.ratio".to_owned(), json!(0.25))]);
        assert_eq!(table(&[report(5), compared]), format!("{expected}counter.ratio 0.25\n"));
    }

    #[test]
    fn latencies_are_counted_in_round_trips() {
        let mut took: Vec<Duration> = (1..=200).map(|rtts| Duration::from_micros(2 * rtts)).collect();
        let values = latency_rtts(&mut took, Some(Duration::from_micros(2))).map(|(_, value)| value);
        assert_eq!(values, [json!(100.5), json!(100.0), json!(198.0)]);
        assert_eq!(
            latency_rtts(&mut [], Some(Duration::from_micros(2))).map(|(_, value)| value),
            [(); 3].map(|()| Value::Null)
        );
    }

    #[test]
    fn only_an_operations_own_chains_are_counted() {
        #[remote]
        struct Counter {
            value: Atomic<u64>,
        }
        for url in ["local:size=1MiB", "local:size=1MiB,delay=3", "sim:"] {
            let cluster = Cluster::connect(url).unwrap();
            let body = async |ct: &ComputeThread| {
                let counter = Counter::new_in(ct, Counter::init()).await?.write(ct).await?;
                let chains = ct.tasks(4, async |task| {
                    let operation = async {
                        for _ in 0..task {
                            counter.value().fetch_add(ct, 1).await?;
                        }
                        Result::Ok(())
                    };
                    let (result, chains) = counted(operation, ct).await;
                    result.map(|()| chains)
                });
                assert_eq!(chains.await?, [0, 1, 2, 3], "{url}");
                ct.delete(counter).await
            };
            cluster.run(1, body).unwrap();
        }
    }
}
