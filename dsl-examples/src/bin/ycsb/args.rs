//! The command line.

use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Parser, ValueEnum, value_parser};
use farfield::parse_size;

use crate::distribution::Distribution;
use crate::mix::{LONGEST_SCAN, Workload};
use crate::packing::{Form, Packing, WORD_VALUE};
use crate::record::{HEADER_BYTES, KEY_BYTES};

/// Runs a core workload of YCSB on a map over far memory, measures it and verifies the map.
#[derive(Clone, Debug, Parser)]
#[command(name = "ycsb", version)]
pub(crate) struct Args {
    /// The structure to run
    #[arg(long, value_enum, default_value_t = Structure::HashMap)]
    pub(crate) structure: Structure,
    /// The workload
    #[arg(long, value_enum, ignore_case = true, default_value_t = Workload::A)]
    pub(crate) workload: Workload,
    /// The distribution of requests, instead of the workload's own
    #[arg(long, value_enum)]
    pub(crate) distribution: Option<Distribution>,
    /// Records to load before the run
    #[arg(long, default_value_t = 10_000, value_parser = value_parser!(u64).range(1..=1 << 40))]
    pub(crate) records: u64,
    /// Operations of each thread
    #[arg(long, default_value_t = 65_536, value_parser = value_parser!(u64).range(0..=u64::from(u32::MAX)))]
    pub(crate) ops: u64,
    /// Bytes of a value: from 32, the header of the check, to 1MiB, of ordered-map also 8; of the structures of words 8
    #[arg(long, default_value_ifs(WORDS.map(|structure| ("structure", structure, WORD))), default_value = "100", value_parser = value_size)]
    pub(crate) value_size: usize,
    /// Bytes of a key: 8 for words, from 16 on byte strings; of the structures of words 8
    #[arg(long, default_value_ifs(WORDS.map(|structure| ("structure", structure, WORD))), default_value = "16", value_parser = key_size)]
    pub(crate) key_size: usize,
    /// The most records of a scan, 100 unless given: their number is uniform from 1 on
    #[arg(long, value_parser = value_parser!(u64).range(1..=1 << 20))]
    pub(crate) scan_length: Option<u64>,
    /// Compute threads of each process: up to 8192, or 262144 simulated ones
    #[arg(long, default_value_t = 2, value_parser = value_parser!(u64).range(1..))]
    pub(crate) threads: u64,
    /// Tasks of each thread; they divide its operations
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u64).range(1..=1 << 20))]
    pub(crate) tasks: u64,
    /// The cluster's URL
    #[arg(long, default_value = "local:")]
    pub(crate) cluster: String,
    /// The number of processes of the run, each started with its own --node-id
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u16).range(1..))]
    pub(crate) nodes: u16,
    /// The number of this process, from 0 to --nodes less 1
    #[arg(long, default_value_t = 0)]
    pub(crate) node_id: u16,
    /// The seed of the random choices
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// The format of the results
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(crate) format: Format,
    /// Run with 1, 2, 4, … tasks up to --tasks, and draw latency over throughput
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) plot: Option<PathBuf>,
}

/// The structures that can be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Structure {
    /// The hash map of farfield-collections
    HashMap,
    /// Its hash map of words, whose keys and values have 8 bytes
    InlineHashMap,
    /// Its Interlocked Hash Table, whose keys and values have 8 bytes
    Interlocked,
    /// Its ordered map, a tree
    OrderedMap,
    /// Its skip list, whose keys and values have 8 bytes
    SkipList,
}

/// The names of the structures of words.
const INLINE: &str = "inline-hash-map";
const INTERLOCKED: &str = "interlocked";
const SKIP_LIST: &str = "skip-list";
const WORDS: [&str; 3] = [INLINE, INTERLOCKED, SKIP_LIST];
/// The size of their keys and their values.
const WORD: &str = "8";

impl Structure {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::HashMap => "hash-map",
            Self::InlineHashMap => INLINE,
            Self::Interlocked => INTERLOCKED,
            Self::OrderedMap => "ordered-map",
            Self::SkipList => SKIP_LIST,
        }
    }

    fn has_scans(self) -> bool {
        match self {
            Self::HashMap | Self::InlineHashMap | Self::Interlocked => false,
            Self::OrderedMap | Self::SkipList => true,
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

/// The most bytes of a value.
const MOST_VALUE_BYTES: u64 = 1 << 20;
/// The most bytes of a key.
const MOST_KEY_BYTES: usize = 1024;
/// The bytes of a key that is a word.
pub(crate) const WORD_KEY: usize = size_of::<u64>();

fn value_size(value: &str) -> Result<usize, String> {
    let bytes = parse_size(value)?;
    if bytes < HEADER_BYTES as u64 && bytes != WORD_VALUE as u64 {
        return Err(format!("a value has at least {HEADER_BYTES} bytes, the header of the check"));
    }
    if bytes > MOST_VALUE_BYTES {
        return Err("a value has at most 1 MiB".to_owned());
    }
    Ok(bytes as usize)
}

fn key_size(value: &str) -> Result<usize, String> {
    match value.parse() {
        Ok(bytes @ (WORD_KEY | KEY_BYTES..=MOST_KEY_BYTES)) => Ok(bytes),
        _ => Err(format!("a key has {WORD_KEY} bytes, or {KEY_BYTES} to {MOST_KEY_BYTES}")),
    }
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
        if args.workload == Workload::E && !args.structure.has_scans() {
            let structure = args.structure.name();
            return Err(Refused::Mistake(format!("--workload e: the structure {structure} has no scans")));
        }
        if let Some(length) = args.scan_length.filter(|_| args.workload != Workload::E) {
            let workload = args.workload.name();
            return Err(Refused::Mistake(format!(
                "--scan-length {length}: the workload {workload} has no scans"
            )));
        }
        if let Some(mistake) = args.wrong_size() {
            return Err(Refused::Mistake(mistake));
        }
        if args.node_id >= args.nodes {
            let (id, nodes) = (args.node_id, args.nodes);
            return Err(Refused::Mistake(format!(
                "--node-id {id}: with --nodes {nodes} it must be below {nodes}"
            )));
        }
        if args.writers() > u64::from(u32::MAX) {
            let (threads, tasks, most) = (args.threads, args.tasks, u32::MAX);
            return Err(Refused::Mistake(format!(
                "--threads {threads} and --tasks {tasks}: a run has at most {most} tasks"
            )));
        }
        if args.series().into_iter().any(|tasks| Self { tasks, ..args.clone() }.form().is_none()) {
            return Err(Refused::Mistake(args.too_large()));
        }
        Ok(args)
    }

    /// Returns what is wrong with the sizes of keys and values for the structure.
    fn wrong_size(&self) -> Option<String> {
        let (key, value, name) = (self.key_size, self.value_size, self.structure.name());
        match self.structure {
            Structure::HashMap if value < HEADER_BYTES => Some(format!(
                "--value-size {value}: a value of hash-map has at least {HEADER_BYTES} bytes, the header of the check"
            )),
            Structure::InlineHashMap | Structure::Interlocked | Structure::SkipList
                if value != WORD_VALUE =>
            {
                Some(format!("--value-size {value}: a value of {name} has {WORD_VALUE} bytes"))
            }
            Structure::InlineHashMap | Structure::Interlocked | Structure::SkipList if key != WORD_KEY => {
                Some(format!("--key-size {key}: a key of {name} has {WORD_KEY} bytes"))
            }
            _ => None,
        }
    }

    /// Returns how values are encoded; `None` if a word is too small for the run.
    pub(crate) fn form(&self) -> Option<Form> {
        if self.value_size != WORD_VALUE {
            return Some(Form::Bytes(self.value_size));
        }
        let all = self.ops.saturating_mul(self.threads).saturating_mul(self.nodes.into());
        let counted = if self.workload == Workload::F { all } else { 0 };
        Packing::new(self.writers(), self.ops.div_ceil(self.tasks), counted).map(Form::Word)
    }

    /// The mistake of a run whose values do not fit in words.
    pub(crate) fn too_large(&self) -> String {
        let (ops, threads, tasks) = (self.ops, self.threads, self.tasks);
        format!(
            "--ops {ops}, --threads {threads} and --tasks {tasks}: a value of {WORD_VALUE} bytes can not name so many writes"
        )
    }

    /// The arguments of a test.
    #[cfg(test)]
    pub(crate) fn of(words: &str) -> Self {
        Self::parse_from(std::iter::once("ycsb").chain(words.split_whitespace()))
    }

    /// The number of tasks of all processes.
    fn writers(&self) -> u64 {
        self.threads.saturating_mul(self.tasks).saturating_mul(self.nodes.into())
    }

    pub(crate) fn distribution(&self) -> Distribution {
        self.distribution.unwrap_or(self.workload.distribution())
    }

    pub(crate) fn longest_scan(&self) -> u64 {
        self.scan_length.unwrap_or(LONGEST_SCAN)
    }

    /// The numbers of tasks of the runs.
    pub(crate) fn series(&self) -> Vec<u64> {
        let smaller = std::iter::successors(Some(1), |tasks| Some(tasks * 2));
        let smaller = smaller.take_while(|tasks| self.plot.is_some() && *tasks < self.tasks);
        smaller.chain([self.tasks]).collect()
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

    fn parsed(words: &str) -> Result<Args, Refused> {
        Args::parse_and_check(format!("ycsb {words}").split_whitespace())
    }

    #[test]
    fn every_flag_has_a_default() {
        let args = parsed("").unwrap();
        assert_eq!((args.workload, args.distribution()), (Workload::A, Distribution::Zipfian));
        assert_eq!((args.key_size, args.value_size, args.series()), (16, 100, vec![1]));
    }

    #[test]
    fn the_sizes_of_words_need_not_be_given() {
        for structure in WORDS {
            let args = parsed(&format!("--structure {structure}")).unwrap();
            assert_eq!((args.key_size, args.value_size), (8, 8));
            assert!(matches!(args.form(), Some(Form::Word(_))));
            assert!(parsed(&format!("--structure {structure} --value-size 8 --key-size 8")).is_ok());
        }
    }

    #[test]
    fn an_ordered_map_has_words_or_byte_strings() {
        let words = parsed("--structure ordered-map --workload e --key-size 8 --value-size 8").unwrap();
        assert!(matches!(words.form(), Some(Form::Word(_))));
        for words in ["", "--key-size 8", "--key-size 16 --value-size 8", "--value-size 32"] {
            assert!(parsed(&format!("--structure ordered-map {words}")).is_ok(), "{words}");
        }
        assert_eq!(words.longest_scan(), 100);
        let args = parsed("--structure skip-list --workload e --scan-length 7").unwrap();
        assert_eq!(args.longest_scan(), 7);
    }

    #[test]
    fn a_workload_has_its_distribution_unless_another_is_given() {
        assert_eq!(parsed("--workload D").unwrap().distribution(), Distribution::Latest);
        let uniform = parsed("--workload d --distribution uniform").unwrap();
        assert_eq!(uniform.distribution(), Distribution::Uniform);
    }

    #[test]
    fn a_plot_is_of_runs_with_more_and_more_tasks() {
        assert_eq!(parsed("--plot x.svg --tasks 12").unwrap().series(), [1, 2, 4, 8, 12]);
        assert_eq!(parsed("--plot x.svg --tasks 8").unwrap().series(), [1, 2, 4, 8]);
        assert_eq!(parsed("--tasks 8").unwrap().series(), [8]);
    }

    #[test]
    fn each_mistake_is_one_line_that_names_it() {
        for (words, named) in [
            ("--threads 0", "--threads"),
            ("--tasks 0", "--tasks"),
            ("--records 0", "--records"),
            ("--records many", "many"),
            ("--value-size 31", "'31' for '--value-size"),
            ("--value-size 1048577", "at most 1 MiB"),
            ("--value-size 2MiB", "at most 1 MiB"),
            ("--value-size large", "large"),
            ("--key-size 9", "'9' for '--key-size"),
            ("--key-size 1025", "1025"),
            ("--value-size 8", "--value-size 8"),
            ("--workload e", "--workload e"),
            ("--structure inline-hash-map --workload e", "inline-hash-map has no scans"),
            ("--structure inline-hash-map --value-size 100", "--value-size 100"),
            ("--structure inline-hash-map --key-size 16", "--key-size 16"),
            ("--structure interlocked --workload e", "interlocked has no scans"),
            ("--structure interlocked --value-size 100", "a value of interlocked"),
            ("--structure skip-list --value-size 100", "a value of skip-list"),
            ("--structure skip-list --key-size 16", "a key of skip-list"),
            ("--structure ordered-map --workload e --scan-length 0", "'0' for '--scan-length"),
            ("--structure ordered-map --scan-length 9", "--scan-length 9: the workload a has no scans"),
            ("--structure interlocked --key-size 16", "a key of interlocked"),
            ("--structure inline-hash-map --workload f --ops 4294967295", "--ops 4294967295"),
            ("--workload g", "'g' for '--workload"),
            ("--structure tree", "'tree' for '--structure"),
            ("--distribution normal", "normal"),
            ("--nodes 3 --node-id 3", "--node-id 3"),
            ("--nodes 0", "--nodes"),
            ("--ops 4294967296", "--ops"),
            ("--threads 262144 --tasks 1048576", "--tasks 1048576"),
            ("--colour red", "--colour"),
            ("surplus", "surplus"),
            ("--seed", "--seed"),
        ] {
            match parsed(words) {
                Err(Refused::Mistake(line)) => {
                    assert!(line.contains(named) && !line.contains('\n'), "{words}: {line}");
                }
                other => panic!("{words}: {other:?}"),
            }
        }
    }

    #[test]
    fn sizes_can_have_units() {
        assert_eq!(parsed("--value-size 1MiB").unwrap().value_size, 1 << 20);
        assert_eq!(parsed("--value-size 4KiB --key-size 8").unwrap().value_size, 4096);
    }
}
