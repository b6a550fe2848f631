//! The command line.

use std::ops::Range;
use std::thread;

use clap::Parser;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;

use farfield_soak::mutants;
use farfield_soak::planted::Structure;
use farfield_soak::planted_runtime::{PLANTED_IN_RUNTIME, PlantedInRuntime};
use farfield_soak::subject::{Bug, Subject};
use farfield_testing::Faults;

/// The largest range of seeds: each takes a few words of memory.
const MOST_SEEDS: u64 = 100_000_000;

/// Soak the example structures in the simulator, and hunt planted bugs.
#[derive(Parser)]
#[command(name = "soak", version)]
struct Flags {
    /// Seeds to run, the last excluded
    #[arg(long, value_name = "FROM..TO", default_value = "0..1000", value_parser = seeds)]
    seeds: Range<u64>,
    /// Structure to soak; by default all
    #[arg(long, value_parser = structure())]
    structure: Option<Structure>,
    /// Run seeds until each planted bug of the structure is detected; by default those of all structures and of the runtime
    #[arg(long, conflicts_with_all = ["seed", "faults", "bug"])]
    planted: bool,
    /// With --planted: print the table of planted bugs instead
    #[arg(long, requires = "planted")]
    list: bool,
    /// Soak the structure with this planted bug
    #[arg(long, value_name = "NAME", conflicts_with = "structure", value_parser = bug(), hide_possible_values = true)]
    bug: Option<Subject>,
    /// Let compute nodes die and links be cut
    #[arg(long)]
    faults: bool,
    /// Seeds to run in parallel (default: the number of processors)
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=4096))]
    jobs: Option<u64>,
    /// Number of runs that may have undecided histories: the search for a linearization has reached its limit
    #[arg(long, value_name = "RUNS", default_value_t = 0)]
    most_undecided: u64,
    /// Run this seed of the structure and print its trace
    #[arg(long, value_name = "SEED", conflicts_with = "seeds")]
    seed: Option<u64>,
}

/// The checked command line.
pub(crate) struct Args {
    pub(crate) task: Task,
    pub(crate) seeds: Range<u64>,
    pub(crate) faults: Faults,
    pub(crate) jobs: usize,
    pub(crate) most_undecided: usize,
}

pub(crate) enum Task {
    /// Print the trace of one seed.
    Replay { subject: Subject, seed: u64 },
    /// Detect these bugs.
    Hunt(Bugs),
    /// Print a table of these bugs.
    List(Bugs),
    /// Run seeds of these.
    Soak(Vec<Subject>),
}

/// Planted bugs.
pub(crate) struct Bugs {
    pub(crate) subjects: Vec<Subject>,
    /// Bugs of the runtime that only programs detect.
    pub(crate) of_runtime: Vec<&'static PlantedInRuntime>,
}

/// Why the command line is not executed.
#[derive(Debug)]
pub(crate) enum Refused {
    /// The text of the help or the version.
    Help(String),
    /// A one-line error.
    Mistake(String),
}

impl Args {
    pub(crate) fn from_command_line() -> Result<Self, Refused> {
        Self::parse_and_check(std::env::args_os())
    }

    fn parse_and_check(
        words: impl IntoIterator<Item = impl Into<std::ffi::OsString> + Clone>,
    ) -> Result<Self, Refused> {
        let flags = Flags::try_parse_from(words).map_err(|error| match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Refused::Help(error.to_string()),
            _ => Refused::Mistake(one_line(&error.to_string())),
        })?;
        let task = task(&flags)?;
        let jobs = match flags.jobs {
            Some(jobs) => jobs as usize,
            None => thread::available_parallelism().map_or(1, usize::from),
        };
        let faults = if flags.faults { Faults::Injected } else { Faults::None };
        Ok(Self { task, seeds: flags.seeds, faults, jobs, most_undecided: flags.most_undecided as usize })
    }
}

fn task(flags: &Flags) -> Result<Task, Refused> {
    // The bugs of a structure include those that are planted in its copies with small tables.
    let is_selected = |structure: Structure| {
        flags.structure.is_none_or(|only| only == structure || only == structure.original())
    };
    if flags.planted && !cfg!(feature = "mutants") {
        return Err(Refused::Mistake("--planted needs a build with --features mutants".to_owned()));
    }
    if flags.planted {
        let subjects = mutants::planted().filter(|subject| is_selected(subject.structure)).collect();
        let is_all = flags.structure.is_none();
        let of_runtime = PLANTED_IN_RUNTIME.iter().filter(|bug| is_all && bug.structure.is_none()).collect();
        let bugs = Bugs { subjects, of_runtime };
        return Ok(if flags.list { Task::List(bugs) } else { Task::Hunt(bugs) });
    }
    let subject = flags.bug.or(flags.structure.map(Subject::real));
    match (flags.seed, subject) {
        (Some(seed), Some(subject)) => Ok(Task::Replay { subject, seed }),
        (Some(seed), None) => Err(Refused::Mistake(format!("--seed {seed} needs --structure or --bug"))),
        (None, Some(subject)) => Ok(Task::Soak(vec![subject])),
        (None, None) => Ok(Task::Soak(Structure::ALL.map(Subject::real).to_vec())),
    }
}

fn structure() -> impl TypedValueParser<Value = Structure> {
    let known = PossibleValuesParser::new(Structure::ALL.map(Structure::name));
    known.try_map(|name| Structure::ALL.into_iter().find(|one| one.name() == name).ok_or("unknown"))
}

fn bug() -> impl TypedValueParser<Value = Subject> {
    let known = PossibleValuesParser::new(mutants::planted().map(|subject| subject.name()));
    known.try_map(|name| mutants::planted().find(|subject| subject.name() == name).ok_or("unknown"))
}

/// A range such as `0..1000`.
fn seeds(text: &str) -> Result<Range<u64>, String> {
    let range = text.split_once("..").and_then(|(from, to)| Some(from.parse().ok()?..to.parse().ok()?));
    match range {
        Some(range) if range.is_empty() => Err("the range is empty".to_owned()),
        Some(range) if range.end - range.start > MOST_SEEDS => Err(format!("at most {MOST_SEEDS} at a time")),
        Some(range) => Ok(range),
        None => Err("write a range like 0..1000".to_owned()),
    }
}

/// The command that prints the trace of a seed.
pub(crate) fn replay_command(subject: &Subject, seed: u64, faults: Faults) -> String {
    let (features, what) = match subject.bug {
        Bug::None => ("", "structure"),
        Bug::Mutant(_) => (" --features mutants", "bug"),
        Bug::Runtime(..) => ("", "bug"),
    };
    let faults = if faults == Faults::Injected { " --faults" } else { "" };
    format!(
        "cargo run --release -p farfield-soak{features} -- --{what} {} --seed {seed}{faults}",
        subject.name()
    )
}

/// Joins the lines of a message, without the advice at its end.
fn one_line(message: &str) -> String {
    let lines = message
        .lines()
        .map(str::trim)
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"));
    let said: Vec<&str> = lines.filter(|line| !line.is_empty() && !line.starts_with("tip:")).collect();
    said.join(" ").trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str) -> Result<Args, Refused> {
        Args::parse_and_check(format!("soak {words}").split_whitespace())
    }

    fn mistake(words: &str) -> String {
        match parse(words) {
            Err(Refused::Mistake(line)) => line,
            _ => panic!("{words} is accepted"),
        }
    }

    #[test]
    fn by_default_all_structures_are_soaked() {
        let args = parse("").unwrap_or_else(|refused| panic!("{refused:?}"));
        assert!(matches!(args.task, Task::Soak(subjects) if subjects.len() == Structure::ALL.len()));
        assert_eq!((args.seeds, args.faults), (0..1000, Faults::None));
    }

    #[cfg(feature = "mutants")]
    #[test]
    fn the_bugs_of_one_structure_can_be_hunted() {
        let Ok(Args { task: Task::Hunt(bugs), .. }) = parse("--planted --structure ms-queue") else {
            panic!("a hunt was asked for");
        };
        assert!(!bugs.subjects.is_empty() && bugs.of_runtime.is_empty());
        assert!(bugs.subjects.iter().all(|bug| bug.structure == Structure::MsQueue));
    }

    #[cfg(feature = "mutants")]
    #[test]
    fn the_bugs_of_a_structure_include_those_of_its_copies_with_small_tables() {
        for structure in ["hash-map", "inline-hash-map", "interlocked"] {
            let hunted = |words: &str| match parse(&format!("--planted --structure {structure}{words}")) {
                Ok(Args { task: Task::Hunt(bugs), .. }) => bugs.subjects.len(),
                _ => panic!("a hunt was asked for"),
            };
            assert!(hunted("-small") > 0 && hunted("") >= hunted("-small"), "{structure}");
        }
    }

    #[cfg(feature = "mutants")]
    #[test]
    fn the_table_of_bugs_can_be_printed() {
        let Ok(Args { task: Task::List(bugs), .. }) = parse("--planted --list") else {
            panic!("a list was asked for");
        };
        assert_eq!((bugs.subjects.len(), bugs.of_runtime.len()), (165, 31));
        assert!(mistake("--list").contains("--planted"));
    }

    #[cfg(not(feature = "mutants"))]
    #[test]
    fn planted_bugs_are_not_hunted_without_their_mutants() {
        assert!(mistake("--planted").contains("--features mutants"));
    }

    #[test]
    fn a_replay_command_is_accepted() {
        let planted_in_runtime = mutants::planted().last().unwrap();
        let mutant = mutants::planted().next().unwrap();
        for subject in [Subject::real(Structure::HarrisList), mutant, planted_in_runtime] {
            let command = replay_command(&subject, 17, Faults::Injected);
            let Ok(args) = parse(command.split_once(" -- ").unwrap().1) else { panic!("{command}") };
            assert_eq!(args.faults, Faults::Injected);
            assert!(
                matches!(args.task, Task::Replay { subject: replayed, seed: 17 } if replayed.name() == subject.name())
            );
        }
    }

    #[test]
    fn each_mistake_is_a_one_line_error_that_names_it() {
        for (words, named) in [
            ("--seeds 5..5", "empty"),
            ("--seeds 9..2", "9..2"),
            ("--seeds 7", "7"),
            ("--seeds a..b", "a..b"),
            ("--seeds 0..18446744073709551615", "at most"),
            ("--seed -1", "-1"),
            ("--seed 3", "--seed 3"),
            ("--seed 3 --seeds 0..9 --structure ms-queue", "--seeds"),
            ("--seed 3 --planted", "--planted"),
            ("--structure tree", "treiber-stack"),
            ("--bug bear", "bear"),
            ("--jobs 0", "--jobs"),
            ("--colour red", "--colour"),
            ("surplus", "surplus"),
        ] {
            let line = mistake(words);
            assert!(line.contains(named) && !line.contains('\n'), "{words}: {line}");
        }
    }
}
