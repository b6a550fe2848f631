//! `cargo xtask instructions`: the instructions of each operation, counted by callgrind.
//!
//! The program `instructions` of `benches` is built with one codegen unit (the profile `instructions`) and runs under valgrind. It switches callgrind
//! on around each operation, and has the counts written to a file with the operation's name. These files stay in `target/callgrind`:
//! `callgrind_annotate target/callgrind/chain_4` shows the functions of a chain. Besides instructions (`Ir`) they count locked ones (`Ge`).
//!
//! `--check`, a step of `cargo xtask ci`, compares the counts with the recorded ones, those of the book's table. A count above its value fails: make
//! the operation cheaper, or record the new value in the same commit. A count below fails too, since later changes could lose the difference
//! unnoticed. Counts on `local:` are the same in each run, and [`TOLERANCE`] allows for another C library's `memcpy`. On `shm:` the epoch also depends
//! on the timing of the other process, whose delays only add: seven counts of a retirement were between 483 and 535. The program therefore runs
//! [`RUNS`] times, and the smallest count of each operation is taken, within [`TOLERANCE_SHARED`].
//!
//! Without valgrind `--check` prints that it is skipped; if `FARFIELD_REQUIRE` names `instructions`, as in `.ci/run`, it fails.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use clap::Args;

use crate::figures::INSTRUCTIONS;
use crate::results;
use crate::workspace::skip::skip;
use crate::workspace::{self, create_folder, read, report, target};

/// Options of `cargo xtask instructions`.
#[derive(Args)]
pub(crate) struct Options {
    /// Compare with the recorded values, those of the book's table
    #[arg(long)]
    check: bool,
}

/// The command that records counts.
const RECORD: &str = "cargo xtask results --only instructions --update-tables";
/// The feature, the profile and the program.
const NAME: &str = "instructions";
const LIST: &str = "lazy-list.update";
const NATIVE: &str = "lazy-list.update.native";
const SHARED: &str = ".shm";
/// Runs of the program; the smallest count of each operation is taken.
const RUNS: usize = 3;
/// The part of the recorded value by which a count may differ from it, alone and on `shm:`.
const TOLERANCE: f64 = 0.05;
const TOLERANCE_SHARED: f64 = 0.1;

/// Instructions of an operation, by its name.
type Counts = BTreeMap<String, f64>;

/// Counts and prints, and compares if asked.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    if let Err(why) = valgrind() {
        if options.check {
            skip(NAME, &why);
            return Ok(());
        }
        return Err(why);
    }
    let figures = figures(&count()?)?;
    for (name, value) in &figures {
        println!("{name} {value}");
    }
    if options.check { report(&breaches(&figures, &results::recorded_instructions()?)) } else { Ok(()) }
}

/// Returns an error if valgrind does not run.
fn valgrind() -> Result<(), String> {
    let asked = Command::new("valgrind").arg("--version").stdout(Stdio::null()).status();
    match asked {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("`valgrind --version` failed: {status}")),
        Err(error) => Err(format!("valgrind, which is a package of most systems, does not run: {error}")),
    }
}

/// Builds the program, runs it [`RUNS`] times under callgrind, and takes the smallest counts.
fn count() -> Result<Counts, String> {
    let build = ["cargo", "build", "--quiet", "--package", "farfield-benches", "--bin", NAME];
    workspace::run(&[&build[..], &["--profile", NAME, "--features", NAME]].concat(), &[])?;
    let mut smallest = run_counted()?;
    for _ in 1..RUNS {
        keep_smallest(&mut smallest, run_counted()?);
    }
    Ok(smallest)
}

/// Keeps the smaller of two counts of each operation.
fn keep_smallest(smallest: &mut Counts, counts: Counts) {
    for (name, count) in counts {
        let kept = smallest.entry(name).or_insert(count);
        *kept = kept.min(count);
    }
}

/// Runs the program under callgrind, and reads what callgrind has written.
fn run_counted() -> Result<Counts, String> {
    let folder = target().join("callgrind");
    match std::fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(format!("{}: {error}", folder.display()));
        }
        _ => create_folder(&folder)?,
    }
    let files = format!("--callgrind-out-file={}", folder.join("dump").display());
    let program = target().join(NAME).join(NAME).display().to_string();
    let callgrind = ["valgrind", "--quiet", "--tool=callgrind", "--collect-bus=yes", &files];
    let off = ["--instr-atstart=no", "--collect-atstart=no", &program];
    // A stall is a matter of time, and valgrind is slow.
    workspace::run(&[&callgrind[..], &off].concat(), &[("FARFIELD_STALL", "0")])?;
    counts(&folder)
}

/// The counts in a folder of callgrind's files; names each file after its operation.
fn counts(folder: &Path) -> Result<Counts, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    let mut counts = Counts::new();
    // All of them first: a folder that is read while its files are renamed may list a file twice.
    let entries: Vec<_> = std::fs::read_dir(folder).map_err(failed)?.collect();
    for entry in entries {
        let path = entry.map_err(failed)?.path();
        // The last file is written when the program ends.
        let Some((name, instructions)) = dumped(&read(&path)?)? else { continue };
        std::fs::rename(&path, folder.join(&name)).map_err(failed)?;
        if counts.insert(name.clone(), instructions).is_some() {
            return Err(format!("{name} was counted twice"));
        }
    }
    Ok(counts)
}

/// The operation of a file, and the instructions of one execution; none if no request of the program wrote the file.
fn dumped(file: &str) -> Result<Option<(String, f64)>, String> {
    let line = |start: &str| file.lines().find_map(|line| line.strip_prefix(start));
    let Some(request) = line("desc: Trigger: Client Request: ") else { return Ok(None) };
    let malformed = || format!("callgrind's file of `{request}` does not say what was counted");
    let (name, executions) = request.split_once(' ').ok_or_else(malformed)?;
    let executions: u32 = executions.parse().map_err(|_| malformed())?;
    let column = line("events: ").and_then(|events| events.split(' ').position(|event| event == "Ir"));
    let total = column.and_then(|column| line("totals: ")?.split(' ').nth(column)?.parse::<f64>().ok());
    let total = total.filter(|total| *total > 0.0 && executions > 0).ok_or_else(malformed)?;
    Ok(Some((name.to_owned(), total / f64::from(executions))))
}

/// The figures: counts as whole numbers, then the ratios.
fn figures(counts: &Counts) -> Result<Vec<(String, f64)>, String> {
    let of = |name: &str| counts.get(name).copied().ok_or_else(|| format!("{name} was not counted"));
    let mut figures: Vec<(String, f64)> =
        counts.iter().map(|(name, count)| (format!("{INSTRUCTIONS}{name}"), count.round())).collect();
    let mut shared: f64 = 0.0;
    for (name, count) in counts {
        if let Some(alone) = name.strip_suffix(SHARED) {
            shared = shared.max(count / of(alone)?);
        }
    }
    let hundredths = |ratio: f64| (ratio * 100.0).round() / 100.0;
    figures.push((format!("{INSTRUCTIONS}{LIST}.ratio"), hundredths(of(LIST)? / of(NATIVE)?)));
    figures.push((format!("{INSTRUCTIONS}shm.ratio"), hundredths(shared)));
    Ok(figures)
}

/// The figures that differ from their recorded values, and those that only one side has.
fn breaches(figures: &[(String, f64)], recorded: &[(&str, f64)]) -> Vec<String> {
    let mut breaches = Vec::new();
    for (name, value) in figures {
        let Some((_, before)) = recorded.iter().find(|(recorded, _)| recorded == name) else {
            breaches.push(format!("{name} has no recorded value"));
            continue;
        };
        let tolerance = before * if name.contains(SHARED) { TOLERANCE_SHARED } else { TOLERANCE };
        if *value > before + tolerance {
            breaches.push(format!("{name} has grown from {before} to {value}"));
        } else if *value < before - tolerance {
            breaches.push(format!("{name} has shrunk from {before} to {value}: record it by `{RECORD}`"));
        }
    }
    let is_counted = |name: &str| figures.iter().any(|(counted, _)| counted == name);
    let lost = recorded.iter().filter(|(name, _)| !is_counted(name));
    breaches.extend(lost.map(|(name, _)| format!("{name} is recorded, but was not counted")));
    breaches
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(counts: &[(&str, f64)]) -> Vec<(String, f64)> {
        counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
    }

    #[test]
    fn a_slower_operation_is_found() {
        let recorded = [("instructions.load", 100.0), ("instructions.load.shm", 100.0)];
        let found = |alone, shared| {
            breaches(&counted(&[("instructions.load", alone), ("instructions.load.shm", shared)]), &recorded)
        };
        assert_eq!(found(100.0, 100.0), [""; 0]);
        assert_eq!(found(105.0, 110.0), [""; 0], "within the tolerance");
        assert_eq!(found(95.0, 90.0), [""; 0], "within the tolerance");
        assert_eq!(found(106.0, 105.0), ["instructions.load has grown from 100 to 106"]);
        assert_eq!(found(105.0, 111.0), ["instructions.load.shm has grown from 100 to 111"]);
        assert_eq!(found(200.0, 200.0).len(), 2);
    }

    #[test]
    fn a_saving_must_be_recorded() {
        let found = breaches(&counted(&[("instructions.load", 94.0)]), &[("instructions.load", 100.0)]);
        assert!(
            found.len() == 1 && found[0].contains("from 100 to 94: record it by `cargo xtask"),
            "{found:?}"
        );
    }

    #[test]
    fn an_operation_without_a_count_or_a_value_is_found() {
        let found = breaches(&counted(&[("instructions.load", 1.0)]), &[("instructions.pin", 1.0)]);
        assert_eq!(
            found,
            ["instructions.load has no recorded value", "instructions.pin is recorded, but was not counted"]
        );
    }

    #[test]
    fn the_smallest_count_of_the_runs_is_taken() {
        let counts = |counts: &[(&str, f64)]| counted(counts).into_iter().collect::<Counts>();
        let mut smallest = counts(&[("load", 31.0), ("retire.shm", 535.0)]);
        keep_smallest(&mut smallest, counts(&[("load", 32.0), ("retire.shm", 483.0)]));
        assert_eq!(smallest, counts(&[("load", 31.0), ("retire.shm", 483.0)]));
    }

    fn file(request: &str, totals: &str) -> String {
        format!(
            "# callgrind format\npart: 1\ndesc: Trigger: {request}\nevents: Ge Ir\nfn=(1) f\n3 4\ntotals: {totals}\n"
        )
    }

    #[test]
    fn instructions_are_those_of_one_execution() {
        let dumped = |request: &str, totals: &str| dumped(&file(request, totals));
        assert_eq!(dumped("Client Request: load 10", "7 770"), Ok(Some(("load".to_owned(), 77.0))));
        assert_eq!(dumped("Program termination", "7 770"), Ok(None));
        for (request, totals) in [
            ("load", "7 770"),
            ("load 0", "7 770"),
            ("load ten", "7 770"),
            ("load 10", "7"),
            ("load 10", "7 0"),
        ] {
            let error = dumped(&format!("Client Request: {request}"), totals).unwrap_err();
            assert!(error.contains("load") && error.contains("does not say"), "{error}");
        }
    }

    #[test]
    fn ratios_are_made_of_counts() {
        let counts = [
            ("lazy-list.update", 1000.4),
            ("lazy-list.update.native", 500.0),
            ("lazy-list.update.shm", 1100.0),
            ("load", 10.0),
            ("load.shm", 12.0),
        ];
        let mut counts: Counts = counted(&counts).into_iter().collect();
        let figures_of = figures(&counts).unwrap();
        let value =
            |name: &str| figures_of.iter().find(|(figure, _)| figure == name).map(|(_, value)| *value);
        assert_eq!(value("instructions.lazy-list.update"), Some(1000.0));
        assert_eq!(value("instructions.lazy-list.update.ratio"), Some(2.0));
        assert_eq!(value("instructions.shm.ratio"), Some(1.2), "the largest");
        counts.remove("load");
        assert_eq!(figures(&counts), Err("load was not counted".to_owned()));
    }
}
