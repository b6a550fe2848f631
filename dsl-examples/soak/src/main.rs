//! `soak`: runs the example structures in the simulator, seed by seed, and hunts planted bugs.
//!
//! Exit codes: 0 for success, 1 if a run fails or a planted bug is not detected, 2 for bad input, with one line on stderr. The last lines on
//! stdout are figures, each a name and a number:
//!
//! | figure | meaning |
//! |---|---|
//! | `sim.planted_bugs` | planted bugs that were hunted |
//! | `sim.planted_bugs_found` | planted bugs that the expected check detected |
//! | `sim.planted_bugs_worst_seed` | the largest seed that was needed |
//! | `sim.soak_undecided` | runs whose histories were too hard to check |
//! | `sim.soak_seeds_per_minute` | runs a minute; a run is one seed of one structure |
//! | `sim.thousand_seeds.seconds` | time of 1,000 seeds of each selected structure |

mod args;

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Instant;

use args::{Args, Bugs, Refused, Task};
use farfield_soak::planted::Planted;
use farfield_soak::planted_runtime::PlantedInRuntime;
use farfield_soak::subject::{Bug, Subject};
use farfield_testing::{Faults, in_parallel};

/// A run failed, or a planted bug was not detected.
const FOUND: u8 = 1;
/// Bad input, or stdout is closed.
const FAILED: u8 = 2;

/// Number of operations that a replay prints.
const TRACED: usize = 1000;
/// Number of failing seeds of a structure that are printed.
const PRINTED: usize = 3;

fn main() -> ExitCode {
    let done = match Args::from_command_line() {
        Ok(args) => match &args.task {
            Task::Replay { subject, seed } => replay(subject, *seed, args.faults),
            Task::List(bugs) => list(bugs).map(|()| true),
            Task::Hunt(bugs) => hunt_all(bugs, &args),
            Task::Soak(subjects) => soak_all(subjects, &args),
        },
        Err(Refused::Help(text)) => print(&text).map(|()| true),
        Err(Refused::Mistake(line)) => Err(line),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(FOUND),
        Err(line) => {
            eprintln!("error: {line}");
            ExitCode::from(FAILED)
        }
    }
}

/// Runs one seed and prints its trace; returns whether it succeeds.
fn replay(subject: &Subject, seed: u64, faults: Faults) -> Result<bool, String> {
    let outcome = subject.run_seed(seed, faults);
    let mut text = format!("{} seed {seed}:\n{}", subject.name(), outcome.plan);
    if let Some(simulation) = &outcome.simulation {
        text += &simulation.trace(TRACED);
        let (hash, now) = (simulation.trace_hash(), simulation.now());
        // Writing to a string does not fail.
        let _ = writeln!(text, "{} operations in {now:?}, trace hash {hash:016x}", outcome.operations);
    }
    for undecided in &outcome.undecided {
        let _ = writeln!(text, "{undecided}");
    }
    for found in &outcome.found {
        let _ = writeln!(text, "{found}");
    }
    print(&text)?;
    Ok(outcome.found.is_empty())
}

/// Prints the table of planted bugs.
fn list(bugs: &Bugs) -> Result<(), String> {
    let mut text = String::from("| bug | in | invariant | harm | detected by |\n|---|---|---|---|---|\n");
    for subject in &bugs.subjects {
        let (name, structure) = (subject.name(), subject.structure.name());
        let _ = match subject.bug {
            Bug::None => Ok(()),
            Bug::Mutant(Planted { invariant, why, caught_by, needs_faults, .. }) => {
                let faults = if *needs_faults { ", with faults" } else { "" };
                writeln!(
                    text,
                    "| `{name}` | {structure} | {invariant} | {why} | {}{faults} |",
                    caught_by.name()
                )
            }
            Bug::Runtime(PlantedInRuntime { invariant, why, .. }, check) => {
                let check = check.name();
                writeln!(text, "| `{name}` | the runtime | {invariant} | {why} | {check} in {structure} |")
            }
        };
    }
    for PlantedInRuntime { plant, invariant, why, program, .. } in &bugs.of_runtime {
        let plant = plant.name();
        let _ =
            writeln!(text, "| `{plant}` | the runtime | {invariant} | {why} | the program `{program:?}` |");
    }
    print(&text)
}

/// Hunts planted bugs; returns whether all are detected.
fn hunt_all(Bugs { subjects, of_runtime }: &Bugs, args: &Args) -> Result<bool, String> {
    let seeds = &args.seeds;
    let in_structures = in_parallel(args.jobs, subjects.len(), |index| {
        let first = subjects[index].hunt(seeds.clone());
        (subjects[index].name(), first.map(|(seed, found)| (seed, found.by.name())))
    });
    let in_runtime = in_parallel(args.jobs, of_runtime.len(), |index| {
        let first = seeds.clone().find(|seed| of_runtime[index].find(*seed).is_some());
        (of_runtime[index].plant.name(), first.map(|seed| (seed, "its program")))
    });
    let (mut text, mut found, mut worst) = (String::new(), 0, 0);
    for (name, first) in in_structures.into_iter().chain(in_runtime) {
        let _ = match first {
            Some((seed, by)) => {
                (found, worst) = (found + 1, worst.max(seed));
                writeln!(text, "{name} detected at seed {seed} by {by}")
            }
            None => writeln!(text, "{name} not detected by seeds {}..{}", seeds.start, seeds.end),
        };
    }
    let hunted = subjects.len() + of_runtime.len();
    let _ = writeln!(text, "sim.planted_bugs {hunted}\nsim.planted_bugs_found {found}");
    let _ = writeln!(text, "sim.planted_bugs_worst_seed {worst}");
    print(&text)?;
    Ok(found == hunted)
}

/// Soaks structures; returns whether all runs succeed.
fn soak_all(subjects: &[Subject], args: &Args) -> Result<bool, String> {
    let (seeds, mut sound, mut undecided) = ((args.seeds.end - args.seeds.start) as u32, true, 0);
    let started = Instant::now();
    for subject in subjects {
        let began = Instant::now();
        let soaked = subject.soak(args.seeds.clone(), args.faults, args.jobs);
        let (name, seconds) = (subject.name(), began.elapsed().as_secs_f64());
        let (operations, failures, hard) = (soaked.operations, soaked.failing.len(), soaked.undecided.len());
        print(&format!(
            "{name}: {seeds} seeds, {operations} operations, {failures} failing, {hard} undecided, {seconds:.2} s\n"
        ))?;
        for (seed, found) in soaked.failing.iter().take(PRINTED) {
            let mut text = String::new();
            for found in found {
                let _ = writeln!(text, "{name} seed {seed}: {found}");
            }
            let _ = writeln!(text, "replay: {}", args::replay_command(subject, *seed, args.faults));
            print(&text)?;
        }
        for seed in soaked.undecided.iter().take(PRINTED) {
            let replay = args::replay_command(subject, *seed, args.faults);
            print(&format!("{name} seed {seed}: undecided\nreplay: {replay}\n"))?;
        }
        if let Some(smallest) = &soaked.smallest {
            print(&format!("{name} {smallest}"))?;
        }
        sound &= failures == 0;
        undecided += hard;
    }
    let each = started.elapsed().as_secs_f64() / f64::from(seeds);
    let per_minute = 60.0 / each * f64::from(subjects.len() as u32);
    print(&format!(
        "sim.soak_undecided {undecided}\nsim.soak_seeds_per_minute {per_minute:.0}\nsim.thousand_seeds.seconds {:.2}\n",
        each * 1000.0
    ))?;
    Ok(sound && undecided <= args.most_undecided)
}

fn print(text: &str) -> Result<(), String> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| format!("cannot print: {error}"))
}
