//! `intset`: runs a workload on a set over far memory, measures it and verifies the set.
//!
//! Every thread inserts its share of the initial keys, then runs operations drawn from a mix. The counts of all threads are
//! summed in far memory. Afterwards the number of keys must match the counts, the keys must ascend, and every allocated object
//! must be freed or reachable.
//!
//! On a simulated cluster (`--cluster sim:…`) the times are virtual, and the report has the latency of each kind of
//! operation in round trips and the hash of the trace.
//!
//! Exit codes: 0 for success, 1 if the verification fails, 2 for bad input and errors. Failures print one line on stderr.

mod args;
mod check;
mod report;
mod workload;

use std::io::Write;
use std::process::ExitCode;

use farfield::error::Printable;
use farfield_examples::{HarrisList, HashSet, LazyList, LazyListNaive};

use args::{Args, Format, Structure};
use report::Report;

/// The verification has found a fault.
const CHECK_FAILED: u8 = 1;
/// Bad input, or an error of the run.
const FAILED: u8 = 2;

fn main() -> ExitCode {
    let args = match Args::from_command_line() {
        Ok(args) => args,
        Err(args::Refused::Help(text)) => return print(&text),
        Err(args::Refused::Mistake(line)) => return fail(&line),
    };
    let report = match run(&args) {
        Ok(report) => report,
        Err(line) => return fail(&line),
    };
    let text = match args.format {
        Format::Table => report.table(),
        Format::Json => report.json(),
    };
    let printed = print(&text);
    match report.faults.first() {
        None => printed,
        Some(fault) => {
            eprintln!("error: {fault}");
            ExitCode::from(CHECK_FAILED)
        }
    }
}

fn run(args: &Args) -> Result<Report, String> {
    // Opened before the run, so that a file that cannot be written is an error immediately.
    let metrics = args.metrics.as_ref().map(|path| {
        let name = path.display().to_string();
        let file = std::fs::File::create(path).map_err(|error| format!("--metrics {name}: {error}"))?;
        Ok::<_, String>((name, file))
    });
    let metrics = metrics.transpose()?;
    let outcome = match args.structure {
        Structure::LazyList => workload::run::<LazyList<u64>>(args),
        Structure::LazyListNaive => workload::run::<LazyListNaive<u64>>(args),
        Structure::HarrisList => workload::run::<HarrisList<u64>>(args),
        Structure::HashSet => workload::run::<HashSet>(args),
    };
    let report = Report::new(args, outcome.map_err(|error| error.to_string())?);
    if let Some((name, mut file)) = metrics {
        file.write_all(report.lines().as_bytes()).map_err(|error| format!("--metrics {name}: {error}"))?;
    }
    Ok(report)
}

fn print(text: &str) -> ExitCode {
    // A closed pipe is not a failure of the run, but the exit code must show that the results were not printed.
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(FAILED),
    }
}

fn fail(line: &str) -> ExitCode {
    eprintln!("error: {}", Printable(line));
    ExitCode::from(FAILED)
}
