//! `cargo xtask corrupt`: corrupts live far memory, word by word. Programs and tools may at worst end with an error.
//!
//! Two programs operate on lists, a stack, a queue, records, locks and large objects of a small cluster in shared memory. A *case* changes one
//! word from outside: one of the runtime's own words, each in turn, or a word of the heap (`farfield_soak::corrupt::cases`). Then the programs
//! continue for a moment, and every tool of the command `farfield` runs. In one case of four the programs end before the word is changed.
//! Then the cluster can be saved, the checkpoint is restored elsewhere, and the programs start again on the corrupted memory. In clusters with
//! sweeping, a program is killed in one case of 16, and a word of the sweep's list of candidates is changed.
//!
//! A case *crashes* if a process ends by a signal, panics, uses more than twice the cluster's memory and [`watched::OWN_KIB`], or does not end
//! within 10 s: a tool by itself, a program after the command to end. Errors and wrong answers are no crashes: a plausible word can not be
//! distinguished from a correct one. Neither is a program that waits, if it ends on command.
//!
//! After the case the word is restored if it still has the corrupted value. A cluster is used for [`CASES_PER_CLUSTER`] cases, or until a
//! program ends or waits. Half of the clusters sweep memory. In a quarter all records of the control block are occupied, so that pages of
//! slots are in use.
//!
//! A case depends on the seed, its number, and the contents of memory at that moment. `--case K` runs one case in a new cluster.
//!
//! | figure | meaning |
//! |---|---|
//! | `corrupt.cases` | words that were corrupted |
//! | `corrupt.crashes` | cases in which a process failed |

mod cluster;
mod tools;
mod watched;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use clap::Args;

use crate::workspace::{PROGRAMS, create_folder, run as command, target, write};
use cluster::{Cluster, Paths, ProgramState, Records, Setup};
use watched::Failure;

/// The cases to run.
#[derive(Args)]
pub(crate) struct Options {
    /// Number of cases to run
    #[arg(long, default_value_t = 20_000)]
    cases: u64,
    /// First case
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Run only this case
    #[arg(long, value_name = "K", conflicts_with_all = ["cases", "from"])]
    case: Option<u64>,
    /// Seed of the random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Corrupt only words of the kinds that begin with PREFIX
    #[arg(long, value_name = "PREFIX", default_value = "")]
    only: String,
}

impl Options {
    /// The run that every change must pass: less than a minute.
    pub(crate) fn short() -> Self {
        Self { cases: 240, from: 0, case: None, seed: 1, only: String::new() }
    }
}

const CASES_PER_CLUSTER: u64 = 32;
/// How long programs continue before tools run: some thousand operations.
const WORK: Duration = Duration::from_millis(10);

/// The results.
#[derive(Default)]
struct Found {
    cases: u64,
    crashes: u64,
    by_kind: BTreeMap<String, u64>,
    errors: BTreeMap<String, u64>,
    /// Number of failures by kind.
    failures: BTreeMap<String, u64>,
    /// The first failure of each kind: its case and standard error.
    reports: Vec<String>,
    clusters: u64,
    peak_kib: u64,
    /// Number of programs that waited until the command to end.
    waited: u64,
}

pub(crate) fn run(options: &Options) -> Result<(), String> {
    command(&[&["cargo", "build", "--release", "--quiet"], &PROGRAMS[..]].concat(), &[])?;
    let logs = target().join("corrupt").join(std::process::id().to_string());
    create_folder(&logs)?;
    let (seed, only) = (options.seed, options.only.clone());
    let paths = Paths { programs: target().join("release"), logs, seed, only };
    let cases = options.case.map_or(options.from..options.from + options.cases, |case| case..case + 1);
    let began = Instant::now();
    let mut found = Found::default();
    let mut cluster = None;
    let mut errors = Vec::new();
    for case in cases {
        if case.is_multiple_of(CASES_PER_CLUSTER) {
            found.retire(&mut cluster, &paths, "the end of a cluster", &mut errors)?;
        }
        let one = found.case(&paths, &mut cluster, case, &mut errors);
        one.map_err(|why| format!("case {case}: {why}; see {}", paths.logs.display()))?;
        for error in errors.drain(..) {
            *found.errors.entry(error).or_default() += 1;
        }
    }
    found.retire(&mut cluster, &paths, "the end", &mut errors)?;
    found.print(began.elapsed());
    if found.crashes == 0 {
        let _ = std::fs::remove_dir_all(&paths.logs);
        return Ok(());
    }
    Err(format!("{} of {} cases crashed: see {}", found.crashes, found.cases, paths.logs.display()))
}

/// The setup of a case's cluster.
fn setup(case: u64) -> Setup {
    let turn = case / CASES_PER_CLUSTER % 4;
    let records = if turn == 3 { Records::Occupied } else { Records::Free };
    Setup { sweeps: turn.is_multiple_of(2), records }
}

impl Found {
    /// Runs a case, in the cluster of the previous case if that is intact.
    fn case(
        &mut self,
        paths: &Paths,
        current: &mut Option<Cluster>,
        case: u64,
        errors: &mut Vec<String>,
    ) -> Result<(), String> {
        let mut cluster = match current.take() {
            Some(cluster) => cluster,
            None => self.start(paths, case)?,
        };
        let is_unused = case % 4 == 3;
        let mut failures = Vec::new();
        if is_unused {
            let (failed, ended) = cluster.end_programs();
            self.note(paths, "before a case", failed);
            errors.extend(ended);
        }
        let is_of_list = setup(case).sweeps && case % 16 == 5;
        if is_of_list {
            cluster.kill_one();
        }
        let command = if is_of_list { "list" } else { "case" };
        let word = cluster.inject(&format!("{command} {case}"))?;
        let Some((kind, _)) = word.split_once('|') else {
            cluster.start_programs(paths)?;
            *current = Some(cluster);
            return Ok(());
        };
        self.cases += 1;
        *self.by_kind.entry(kind.to_owned()).or_default() += 1;
        let outcome = if is_unused {
            let outcome = tools::without_programs(paths, &cluster, case)?;
            cluster.start_programs(paths)?;
            std::thread::sleep(WORK);
            outcome
        } else {
            std::thread::sleep(WORK);
            tools::beside_programs(paths, &cluster, case)?
        };
        failures.extend(outcome.failures);
        errors.extend(outcome.errors);
        self.peak_kib = self.peak_kib.max(outcome.peak_kib);
        let mut is_intact = true;
        for program in &mut cluster.programs {
            let (state, failure) = program.state();
            failures.extend(failure);
            is_intact &= state == ProgramState::Working;
            self.waited += u64::from(state == ProgramState::Waiting);
            self.peak_kib = self.peak_kib.max(program.watched.peak_kib());
        }
        let (has_ended, failure) = cluster.node.watched.has_ended();
        failures.extend(failure);
        if has_ended {
            is_intact = false;
            failures.push(Failure {
                kind: "memory node: has ended".to_owned(),
                stderr: cluster.node.watched.stderr(),
            });
        }
        self.peak_kib = self.peak_kib.max(cluster.node.watched.peak_kib());
        is_intact &= failures.is_empty();
        if is_intact {
            cluster.inject("restore")?;
            cluster.start_programs(paths)?;
            *current = Some(cluster);
        } else {
            let (failed, ended) = cluster.end()?;
            failures.extend(failed);
            errors.extend(ended.into_iter().map(|error| format!("program: {error}")));
        }
        let sweeps = setup(case).sweeps;
        let what = format!(
            "case {case} (seed {}, {}): {word}",
            paths.seed,
            if sweeps { "swept" } else { "not swept" }
        );
        self.note(paths, &what, failures);
        Ok(())
    }

    fn start(&mut self, paths: &Paths, case: u64) -> Result<Cluster, String> {
        self.clusters += 1;
        let mut cluster = Cluster::start(paths, self.clusters.to_string(), setup(case))?;
        cluster.start_programs(paths)?;
        for program in &mut cluster.programs {
            if !program.works() {
                return Err(format!(
                    "a program performs no operation in a new cluster: {}",
                    program.watched.stderr()
                ));
            }
        }
        // Work for a moment, so that memory is in use.
        std::thread::sleep(2 * WORK);
        Ok(cluster)
    }

    /// Ends a cluster, if there is one.
    fn retire(
        &mut self,
        current: &mut Option<Cluster>,
        paths: &Paths,
        when: &str,
        errors: &mut Vec<String>,
    ) -> Result<(), String> {
        if let Some(cluster) = current.take() {
            let (failures, ended) = cluster.end()?;
            errors.extend(ended.into_iter().map(|error| format!("program: {error}")));
            self.note(paths, when, failures);
        }
        Ok(())
    }

    /// Counts and prints a case's failures; keeps the standard error of the first of each kind.
    fn note(&mut self, paths: &Paths, what: &str, failures: Vec<Failure>) {
        self.crashes += u64::from(!failures.is_empty());
        let mut kinds = BTreeSet::new();
        for failure in failures.into_iter().filter(|failure| kinds.insert(failure.kind.clone())) {
            println!("{what}: {}", failure.kind);
            let seen = self.failures.entry(failure.kind).or_default();
            *seen += 1;
            if *seen == 1 {
                let file = paths.logs.join(format!("failure-{}", self.failures.len()));
                let report = format!("{what}\n{}", failure.stderr);
                let written = write(&file, &report);
                self.reports.push(report);
                match written {
                    Ok(()) => println!("  stderr: {}", file.display()),
                    Err(error) => println!("  {error}"),
                }
            }
        }
    }

    fn print(&self, took: Duration) {
        let table = |title: &str, counts: &BTreeMap<String, u64>| {
            println!("{title}:");
            for (kind, count) in counts {
                println!("{count:>8}  {kind}");
            }
        };
        table("cases by kind of word", &self.by_kind);
        table("errors", &self.errors);
        table("failures", &self.failures);
        self.reports.iter().for_each(|report| println!("{report}"));
        let (clusters, seconds) = (self.clusters, took.as_secs_f64());
        println!(
            "{clusters} clusters, {seconds:.0} s; {} programs waited until the command to end; peak {} KiB",
            self.waited, self.peak_kib
        );
        println!("corrupt.cases {}\ncorrupt.crashes {}", self.cases, self.crashes);
    }
}
