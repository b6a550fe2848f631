//! The command line.

use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Parser, ValueEnum, value_parser};

/// Runs a workload on a set over far memory, measures it and verifies the set.
#[derive(Debug, Parser)]
#[command(name = "intset", version)]
pub(crate) struct Args {
    /// The structure to run
    #[arg(long, value_enum, default_value_t = Structure::LazyList)]
    pub(crate) structure: Structure,
    /// The cluster's URL
    #[arg(long, default_value = "local:")]
    pub(crate) cluster: String,
    /// The number of processes of the run, each started with its own --node-id
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u16).range(1..))]
    pub(crate) nodes: u16,
    /// The number of this process, from 0 to --nodes less 1
    #[arg(long, default_value_t = 0)]
    pub(crate) node_id: u16,
    /// Compute threads of each process: up to 8192, or 262144 simulated ones
    #[arg(long, default_value_t = 2, value_parser = value_parser!(u64).range(1..))]
    pub(crate) threads: u64,
    /// Tasks of each thread; they divide its operations
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u64).range(1..=1 << 20))]
    pub(crate) tasks: u64,
    /// Operations of each thread
    #[arg(long, default_value_t = 65536)]
    pub(crate) num_ops: u64,
    /// Percent of the key range to insert before the run
    #[arg(long, default_value_t = 50, value_parser = value_parser!(u64).range(0..=100))]
    pub(crate) prefill: u64,
    /// Percent of the operations that insert
    #[arg(long, default_value_t = 10, value_parser = value_parser!(u64).range(0..=100))]
    pub(crate) insert: u64,
    /// Percent of the operations that remove; the rest are look-ups
    #[arg(long, default_value_t = 10, value_parser = value_parser!(u64).range(0..=100))]
    pub(crate) remove: u64,
    /// The smallest key
    #[arg(long, default_value_t = 0)]
    pub(crate) key_lb: u64,
    /// The largest key
    #[arg(long, default_value_t = 4096)]
    pub(crate) key_ub: u64,
    /// The seed of the random choices
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// The format of the results
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(crate) format: Format,
    /// Write the results to this file too, as `key: value` lines
    #[arg(long, value_name = "FILE")]
    pub(crate) metrics: Option<PathBuf>,
}

/// The structures that can be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Structure {
    /// A list whose updates lock two nodes
    LazyList,
    /// The same list with a round trip for each step
    LazyListNaive,
    /// A lock-free list
    HarrisList,
    /// Lazy lists on all memory nodes
    HashSet,
}

impl Structure {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::LazyList => "lazy-list",
            Self::LazyListNaive => "lazy-list-naive",
            Self::HarrisList => "harris-list",
            Self::HashSet => "hash-set",
        }
    }
}

/// The format of the results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Aligned columns
    Table,
    /// One JSON object
    Json,
}

/// Command lines that do not start a run.
#[derive(Debug)]
pub(crate) enum Refused {
    /// A request for help or the version, with the text to print.
    Help(String),
    /// A mistake, as one line that names it.
    Mistake(String),
}

impl Args {
    pub(crate) fn from_command_line() -> Result<Self, Refused> {
        Self::parse_and_check(std::env::args_os())
    }

    fn parse_and_check(
        words: impl IntoIterator<Item = impl Into<std::ffi::OsString> + Clone>,
    ) -> Result<Self, Refused> {
        let args = Self::try_parse_from(words).map_err(|error| match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Refused::Help(error.to_string()),
            _ => Refused::Mistake(one_line(&error.to_string())),
        })?;
        if args.insert + args.remove > 100 {
            let (insert, remove) = (args.insert, args.remove);
            return Err(Refused::Mistake(format!(
                "--insert {insert} and --remove {remove} are more than 100 percent together"
            )));
        }
        if args.node_id >= args.nodes {
            let (id, nodes) = (args.node_id, args.nodes);
            return Err(Refused::Mistake(format!(
                "--node-id {id}: with --nodes {nodes} it must be below {nodes}"
            )));
        }
        if args.key_lb > args.key_ub {
            let (lb, ub) = (args.key_lb, args.key_ub);
            return Err(Refused::Mistake(format!("--key-lb {lb} is larger than --key-ub {ub}")));
        }
        Ok(args)
    }

    /// The number of possible keys.
    pub(crate) fn keys(&self) -> u128 {
        u128::from(self.key_ub) - u128::from(self.key_lb) + 1
    }

    /// The number of keys that are inserted before the run.
    pub(crate) fn prefilled(&self) -> u128 {
        self.keys() * u128::from(self.prefill) / 100
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn mistake(words: &str) -> String {
        match Args::parse_and_check(format!("intset {words}").split_whitespace()) {
            Err(Refused::Mistake(line)) => line,
            other => panic!("{words}: {other:?}"),
        }
    }

    #[test]
    fn every_flag_has_a_default() {
        let args = Args::parse_and_check(["intset"]).unwrap();
        assert_eq!((args.keys(), args.prefilled()), (4097, 2048));
    }

    #[test]
    fn each_mistake_is_one_line_that_names_it() {
        for (words, named) in [
            ("--threads 0", "--threads"),
            ("--tasks 0", "--tasks"),
            ("--insert 80 --remove 40", "--insert 80"),
            ("--key-lb 10 --key-ub 5", "--key-lb 10"),
            ("--nodes 3 --node-id 3", "--node-id 3"),
            ("--nodes 0", "--nodes"),
            ("--prefill 101", "--prefill"),
            ("--num-ops many", "many"),
            ("--structure tree", "tree"),
            ("--colour red", "--colour"),
            ("surplus", "surplus"),
            ("--seed", "--seed"),
        ] {
            let line = mistake(words);
            assert!(line.contains(named) && !line.contains('\n'), "{words}: {line}");
        }
    }

    #[test]
    fn the_key_range_can_be_all_of_u64() {
        let args = Args::parse_and_check(["intset", "--key-ub", "18446744073709551615"]).unwrap();
        assert_eq!(args.keys(), 1 << 64);
    }
}
