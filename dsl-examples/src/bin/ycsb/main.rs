//! `ycsb`: runs a core workload of YCSB on a map over far memory, measures it and verifies the map.
//!
//! The workloads are those of Cooper et al., "Benchmarking Cloud Serving Systems with YCSB" (`SoCC` 2010), with the generators of its implementation:
//!
//! | workload | operations | requests |
//! |---|---|---|
//! | a | 50 % reads, 50 % updates | zipfian |
//! | b | 95 % reads, 5 % updates | zipfian |
//! | c | reads | zipfian |
//! | d | 95 % reads, 5 % insertions | latest |
//! | e | 95 % scans of 1 to 100 records (`--scan-length`), 5 % insertions | zipfian |
//! | f | 50 % reads, 50 % read-modify-writes | zipfian |
//!
//! All threads load their share of the records, then run operations. The report has the throughput of both phases, and for each kind of operation
//! its latencies and its round trips, which are the chains that it posts. Histograms have three significant digits. In a run of several processes
//! (`--nodes`), they are merged through far memory, and each process prints the same figures.
//!
//! Every value names its record, its writer and the writer's write, so a torn or misplaced value is found where it is read. Afterwards the value of every
//! record must be its writer's last write of it (see `ledger`), read-modify-writes must be counted by the records, the structure must be valid and as large
//! as the insertions make it, and every object must be freed with it. A value that is a word, as those of `inline-hash-map`, `interlocked` and `skip-list`, names its record by
//! a hash (see `packing`).
//!
//! Workload e needs an order: `ordered-map` or `skip-list`. Their keys are in the order of a hash of the record, as YCSB's are by default. A scan must have its keys in order, each once,
//! and each record that was in the map throughout, with its value (see `scans`).
//!
//! On a simulated cluster (`--cluster sim:…`) the times are virtual, and the report has the latencies in round trips and the hash of the trace.
//!
//! Exit codes: 0 for success, 1 if the verification fails, 2 for bad input and errors. Failures print one line on stderr.

mod args;
mod distribution;
mod inserted;
mod ledger;
mod measures;
mod mix;
mod ordered;
mod packing;
#[cfg(test)]
mod planted;
mod plot;
mod record;
mod report;
mod scans;
mod store;
mod totals;
mod verdict;
mod workload;

use std::io::Write;
use std::process::ExitCode;

use farfield::error::Printable;
use farfield_collections::{InlineHashMap, InterlockedHashTable, SkipList};

use args::{Args, Format, Structure, WORD_KEY};
use ordered::{Hashes, Ordered};
use packing::WORD_VALUE;
use report::Report;
use store::{Hashed, Strings, Words};

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
            eprintln!("error: {}", Printable(fault));
            ExitCode::from(CHECK_FAILED)
        }
    }
}

fn run(args: &Args) -> Result<Report, String> {
    // Opened before the run, so that a file that cannot be written is an error immediately.
    let plot = args.plot.as_ref().map(|path| {
        let name = path.display().to_string();
        let file = std::fs::File::create(path).map_err(|error| format!("--plot {name}: {error}"))?;
        Ok::<_, String>((name, file))
    });
    let plot = plot.transpose()?;
    let outcomes = match (args.structure, args.key_size, args.value_size) {
        (Structure::HashMap, WORD_KEY, _) => workload::run::<Hashed<Words>>(args),
        (Structure::HashMap, ..) => workload::run::<Hashed<Strings>>(args),
        (Structure::InlineHashMap, ..) => workload::run::<InlineHashMap<u64, u64>>(args),
        (Structure::Interlocked, ..) => workload::run::<InterlockedHashTable<u64, u64>>(args),
        (Structure::OrderedMap, WORD_KEY, WORD_VALUE) => workload::run::<Ordered<Hashes, u64>>(args),
        (Structure::OrderedMap, WORD_KEY, _) => workload::run::<Ordered<Hashes, Vec<u8>>>(args),
        (Structure::OrderedMap, _, WORD_VALUE) => workload::run::<Ordered<Strings, u64>>(args),
        (Structure::OrderedMap, ..) => workload::run::<Ordered<Strings, Vec<u8>>>(args),
        (Structure::SkipList, ..) => workload::run::<SkipList<u64, u64>>(args),
    };
    let outcomes = outcomes.map_err(|error| error.to_string())?;
    let report = Report::new(args, &outcomes).ok_or("nothing was run")?;
    if let Some((name, mut file)) = plot {
        let title = format!(
            "{}, workload {}, threads: {}, tasks: at the points",
            args.structure.name(),
            args.workload.name(),
            args.threads * u64::from(args.nodes)
        );
        let svg = plot::drawn(&title, &report.points)?;
        file.write_all(svg.as_bytes()).map_err(|error| format!("--plot {name}: {error}"))?;
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
