//! `soak`: runs the example structures under the simulator, seed after seed, and hunts planted bugs.
//!
//! Exit codes: 0 if all is well, 1 if something was found or a planted bug was not, 2 for bad input, with one line on
//! stderr. The last lines on stdout are figures, a name and a number each:
//!
//! | figure | what |
//! |---|---|
//! | `sim.planted_bugs` | planted bugs that were hunted |
//! | `sim.planted_bugs_found` | those that were caught by what must catch them |
//! | `sim.planted_bugs_worst_seed` | the seed at which the last of these was caught |
//! | `sim.soak_undecided` | runs of which a history was too hard to be checked |
//! | `sim.soak_seeds_per_minute` | runs a minute; each is one seed on one structure |
//! | `sim.thousand_seeds.seconds` | what 1,000 seeds take, on each of the structures asked for |

mod args;

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Instant;

use args::{Args, Bugs, Refused, Task};
use farfield_soak::planted::{Bug, Planted};
use farfield_soak::planted_runtime::PlantedInRuntime;
use farfield_soak::soak::Caught;
use farfield_soak::subject::Subject;
use farfield_testing::{Checker, Faults, in_parallel};

/// Something was found, or a planted bug was not.
const FOUND: u8 = 1;
/// Bad input, or nobody to tell.
const FAILED: u8 = 2;

/// How many operations a replay shows.
const TRACED: usize = 1000;
/// How many failing seeds of a structure are told in full.
const TOLD: usize = 3;

fn main() -> ExitCode {
    let done = match Args::from_command_line() {
        Ok(args) => match &args.task {
            Task::Replay { subject, seed } => replay(subject, *seed, args.faults),
            Task::List(bugs) => list(bugs).map(|()| true),
            Task::Hunt(bugs) => hunt_all(bugs, &args),
            Task::Soak(subjects) => soak_all(subjects, &args),
        },
        Err(Refused::Help(text)) => say(&text).map(|()| true),
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

/// Runs one seed and shows what happened; gives whether nothing is wrong.
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
    for caught in &outcome.caught {
        let _ = writeln!(text, "{caught}");
    }
    say(&text)?;
    Ok(outcome.caught.is_empty())
}

/// Prints the planted bugs, a row of a table each.
fn list(bugs: &Bugs) -> Result<(), String> {
    let mut text =
        String::from("| bug | in | breaks | why that does harm | caught by |\n|---|---|---|---|---|\n");
    for bug in bugs.subjects.iter().filter_map(|subject| subject.planted) {
        let Planted { name, structure, bug, invariant, why, caught_by, needs_faults } = bug;
        let place = match bug {
            Bug::Edit { .. } | Bug::Edits(_) => structure.name().to_owned(),
            Bug::Runtime(options) => format!("the runtime, `{options}`, seen by {}", structure.name()),
        };
        let faults = if *needs_faults { ", with faults" } else { "" };
        let caught_by = caught_by.name();
        let _ = writeln!(text, "| `{name}` | {place} | {invariant} | {why} | {caught_by}{faults} |");
    }
    for bug in &bugs.of_runtime {
        let PlantedInRuntime { plant, invariant, why, program } = bug;
        let place = format!("the runtime, `plant={plant}`, seen by the program `{program:?}`");
        let _ = writeln!(text, "| `{plant}` | {place} | {invariant} | {why} | any but out-of-time |");
    }
    say(&text)
}

/// Hunts planted bugs; gives whether all are caught.
fn hunt_all(Bugs { subjects, of_runtime }: &Bugs, args: &Args) -> Result<bool, String> {
    let seeds = &args.seeds;
    let in_structures = in_parallel(args.jobs, subjects.len(), |index| {
        let first = subjects[index].hunt(seeds.clone());
        (subjects[index].name(), first.map(|(seed, Caught { by, .. })| (seed, by.name())))
    });
    let in_runtime = in_parallel(args.jobs, of_runtime.len(), |index| {
        let first = seeds.clone().find(|seed| of_runtime[index].find(*seed).is_some());
        (of_runtime[index].plant, first.map(|seed| (seed, "its program")))
    });
    let (mut text, mut found, mut worst) = (String::new(), 0, 0);
    for (name, first) in in_structures.into_iter().chain(in_runtime) {
        let _ = match first {
            Some((seed, by)) => {
                (found, worst) = (found + 1, worst.max(seed));
                writeln!(text, "{name} caught at seed {seed} by {by}")
            }
            None => writeln!(text, "{name} missed by seeds {}..{}", seeds.start, seeds.end),
        };
    }
    let hunted = subjects.len() + of_runtime.len();
    let _ = writeln!(text, "sim.planted_bugs {hunted}\nsim.planted_bugs_found {found}");
    let _ = writeln!(text, "sim.planted_bugs_worst_seed {worst}");
    say(&text)?;
    Ok(found == hunted)
}

/// Soaks structures; gives whether nothing is wrong.
fn soak_all(subjects: &[Subject], args: &Args) -> Result<bool, String> {
    let (seeds, mut sound, mut undecided) = ((args.seeds.end - args.seeds.start) as u32, true, 0);
    let checker = Checker::new().seeds(args.seeds.clone()).faults(args.faults).jobs(args.jobs).all_seeds();
    let started = Instant::now();
    for subject in subjects {
        let began = Instant::now();
        let soaked = subject.soak(&checker);
        let (name, seconds) = (subject.name(), began.elapsed().as_secs_f64());
        let (operations, failures, hard) = (soaked.operations, soaked.failing.len(), soaked.undecided.len());
        say(&format!(
            "{name}: {seeds} seeds, {operations} operations, {failures} failing, {hard} undecided, {seconds:.2} s\n"
        ))?;
        for (seed, found) in soaked.failing.iter().take(TOLD) {
            let mut text = String::new();
            for found in found {
                let _ = writeln!(text, "{name} seed {seed}: {found}");
            }
            let _ = writeln!(text, "replay: {}", args::replay_command(subject, *seed, args.faults));
            say(&text)?;
        }
        for seed in soaked.undecided.iter().take(TOLD) {
            let replay = args::replay_command(subject, *seed, args.faults);
            say(&format!("{name} seed {seed}: undecided\nreplay: {replay}\n"))?;
        }
        if let Some(smallest) = &soaked.smallest {
            say(&format!("{name} {smallest}"))?;
        }
        sound &= failures == 0;
        undecided += hard;
    }
    let each = started.elapsed().as_secs_f64() / f64::from(seeds);
    let per_minute = 60.0 / each * f64::from(subjects.len() as u32);
    say(&format!(
        "sim.soak_undecided {undecided}\nsim.soak_seeds_per_minute {per_minute:.0}\nsim.thousand_seeds.seconds {:.2}\n",
        each * 1000.0
    ))?;
    Ok(sound && undecided <= args.most_undecided)
}

fn say(text: &str) -> Result<(), String> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| format!("cannot print: {error}"))
}
