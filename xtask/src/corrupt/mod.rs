//! `cargo xtask corrupt`: live far memory is corrupted, word by word; programs and tools end with an error at worst.
//!
//! Two programs work on lists, a stack, a queue, records, locks and large objects of a small cluster in shared memory. A *case* changes one word,
//! from outside: one of the runtime's own, each in turn, or one of the heap (`farfield_soak::corrupt::choice`). Then the programs go on for a
//! little, and every tool of the command `farfield` is run. In one case of four the programs end before the word is changed: then the cluster
//! can be saved, and what was saved is restored elsewhere, and the programs start on what is there. Where memory is swept, a program is killed
//! in one case of 16, and a word of the list that the sweep makes is changed.
//!
//! A case *crashes* if a process ends by a signal, panics, has more than twice the cluster's memory and [`watched::OWN_KIB`], or does not end within
//! 10 s: a tool by itself, a program when it is told to. An error is fine, and so is a wrong answer: a plausible word can not be told from
//! a right one. So is a program that waits, if it ends when it is told to.
//!
//! The word is put back after the case if it is as it was left. A cluster is used for [`CASES_PER_CLUSTER`] cases, or until a program
//! ends or waits. In half of the clusters memory is swept; in a quarter so many records are taken that pages of slots are in use.
//!
//! A case follows from the seed and its number, and from what is in memory when its turn comes. `--case K` runs one alone, in a new cluster.
//!
//! | figure | what it is |
//! |---|---|
//! | `corrupt.cases` | words that were corrupted |
//! | `corrupt.crashes` | cases in which a process failed |

mod cluster;
mod tools;
mod watched;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use clap::Args;

use crate::workspace::{run as command, target};
use cluster::{Cluster, Fares, Manner, Places};
use watched::Failure;

/// How many words to corrupt.
#[derive(Args)]
pub(crate) struct Options {
    /// How many cases to run
    #[arg(long, default_value_t = 20_000)]
    cases: u64,
    /// The first case
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Run only this case
    #[arg(long, value_name = "K", conflicts_with_all = ["cases", "from"])]
    case: Option<u64>,
    /// What the choices start from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only words of a kind whose name begins so
    #[arg(long, value_name = "PREFIX", default_value = "")]
    only: String,
}

impl Options {
    /// What every change has to pass: less than a minute.
    pub(crate) fn short() -> Self {
        Self { cases: 240, from: 0, case: None, seed: 1, only: String::new() }
    }
}

const CASES_PER_CLUSTER: u64 = 32;
/// How long programs go on before tools are run: some thousand operations.
const LITTLE: Duration = Duration::from_millis(10);

/// What was found.
#[derive(Default)]
struct Found {
    cases: u64,
    crashes: u64,
    by_kind: BTreeMap<String, u64>,
    errors: BTreeMap<String, u64>,
    /// Of each kind, how often.
    failures: BTreeMap<String, u64>,
    clusters: u64,
    peak_kib: u64,
    /// Programs that waited until they were told to end.
    waited: u64,
}

pub(crate) fn run(options: &Options) -> Result<(), String> {
    let build = ["cargo", "build", "--release", "--quiet", "-p", "farfield-cli", "-p", "farfield-soak"];
    command(&build, &[])?;
    let logs = target().join("corrupt").join(std::process::id().to_string());
    std::fs::create_dir_all(&logs).map_err(|error| format!("{}: {error}", logs.display()))?;
    let (seed, only) = (options.seed, options.only.clone());
    let places = Places { programs: target().join("release"), logs, seed, only };
    let cases = options.case.map_or(options.from..options.from + options.cases, |case| case..case + 1);
    let began = Instant::now();
    let mut found = Found::default();
    let mut cluster = None;
    let mut errors = Vec::new();
    for case in cases {
        if case.is_multiple_of(CASES_PER_CLUSTER) {
            found.retire(&mut cluster, &places, "the end of a cluster", &mut errors)?;
        }
        let one = found.case(&places, &mut cluster, case, &mut errors);
        one.map_err(|why| format!("case {case}: {why}; see {}", places.logs.display()))?;
        for error in errors.drain(..) {
            *found.errors.entry(error).or_default() += 1;
        }
    }
    found.retire(&mut cluster, &places, "the end", &mut errors)?;
    found.print(began.elapsed());
    if found.crashes == 0 {
        let _ = std::fs::remove_dir_all(&places.logs);
        return Ok(());
    }
    Err(format!("{} of {} cases crashed: see {}", found.crashes, found.cases, places.logs.display()))
}

/// In which way the cluster of a case is made.
fn manner(case: u64) -> Manner {
    let turn = case / CASES_PER_CLUSTER % 4;
    Manner { sweeps: turn.is_multiple_of(2), is_crowded: turn == 3 }
}

impl Found {
    /// Runs a case, in the cluster of the one before if that is whole.
    fn case(
        &mut self,
        places: &Places,
        standing: &mut Option<Cluster>,
        case: u64,
        errors: &mut Vec<String>,
    ) -> Result<(), String> {
        let mut cluster = match standing.take() {
            Some(cluster) => cluster,
            None => self.start(places, case)?,
        };
        let is_alone = case % 4 == 3;
        let mut failures = Vec::new();
        if is_alone {
            let (failed, ended) = cluster.end_programs();
            self.note(places, "before a case", failed);
            errors.extend(ended);
        }
        let is_of_list = manner(case).sweeps && case % 16 == 5;
        if is_of_list {
            cluster.kill_one();
        }
        let what = if is_of_list { "list" } else { "case" };
        let word = cluster.tell_hand(&format!("{what} {case}"))?;
        let Some((kind, _)) = word.split_once('|') else {
            cluster.start_programs(places)?;
            *standing = Some(cluster);
            return Ok(());
        };
        self.cases += 1;
        *self.by_kind.entry(kind.to_owned()).or_default() += 1;
        let outcome = if is_alone {
            let outcome = tools::alone(places, &cluster, case)?;
            cluster.start_programs(places)?;
            std::thread::sleep(LITTLE);
            outcome
        } else {
            std::thread::sleep(LITTLE);
            tools::beside_programs(places, &cluster, case)?
        };
        failures.extend(outcome.failures);
        errors.extend(outcome.errors);
        self.peak_kib = self.peak_kib.max(outcome.peak_kib);
        let mut is_whole = true;
        for program in &mut cluster.programs {
            let (fares, failure) = program.fares();
            failures.extend(failure);
            is_whole &= matches!(fares, Fares::Well);
            self.waited += u64::from(matches!(fares, Fares::Still));
            self.peak_kib = self.peak_kib.max(program.watched.peak_kib());
        }
        let (has_ended, failure) = cluster.node.watched.has_ended();
        failures.extend(failure);
        if has_ended {
            is_whole = false;
            failures.push(Failure {
                kind: "memory node: it has ended".to_owned(),
                said: cluster.node.watched.said(),
            });
        }
        self.peak_kib = self.peak_kib.max(cluster.node.watched.peak_kib());
        is_whole &= failures.is_empty();
        if is_whole {
            cluster.tell_hand("mend")?;
            cluster.start_programs(places)?;
            *standing = Some(cluster);
        } else {
            let (failed, ended) = cluster.end()?;
            failures.extend(failed);
            errors.extend(ended.into_iter().map(|error| format!("program: {error}")));
        }
        let sweeps = manner(case).sweeps;
        let what = format!(
            "case {case} (seed {}, {}): {word}",
            places.seed,
            if sweeps { "swept" } else { "not swept" }
        );
        self.note(places, &what, failures);
        Ok(())
    }

    fn start(&mut self, places: &Places, case: u64) -> Result<Cluster, String> {
        self.clusters += 1;
        let mut cluster = Cluster::start(places, self.clusters.to_string(), manner(case))?;
        cluster.start_programs(places)?;
        for program in &mut cluster.programs {
            if !program.begins() {
                return Err(format!("a program does not work in a new cluster: {}", program.watched.said()));
            }
        }
        // Some work, so that memory is in use.
        std::thread::sleep(2 * LITTLE);
        Ok(cluster)
    }

    /// Ends a cluster, if there is one.
    fn retire(
        &mut self,
        standing: &mut Option<Cluster>,
        places: &Places,
        when: &str,
        errors: &mut Vec<String>,
    ) -> Result<(), String> {
        if let Some(cluster) = standing.take() {
            let (failures, ended) = cluster.end()?;
            errors.extend(ended.into_iter().map(|error| format!("program: {error}")));
            self.note(places, when, failures);
        }
        Ok(())
    }

    /// Counts and prints what a case's processes did that they must not do; what the first of each kind said is kept.
    fn note(&mut self, places: &Places, what: &str, failures: Vec<Failure>) {
        self.crashes += u64::from(!failures.is_empty());
        let mut kinds = BTreeSet::new();
        for failure in failures.into_iter().filter(|failure| kinds.insert(failure.kind.clone())) {
            println!("{what}: {}", failure.kind);
            let seen = self.failures.entry(failure.kind).or_default();
            *seen += 1;
            if *seen == 1 {
                let file = places.logs.join(format!("failure-{}", self.failures.len()));
                match std::fs::write(&file, format!("{what}\n{}", failure.said)) {
                    Ok(()) => println!("  what it said: {}", file.display()),
                    Err(error) => println!("  {}: {error}", file.display()),
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
        let (clusters, seconds) = (self.clusters, took.as_secs_f64());
        println!(
            "{clusters} clusters, {seconds:.0} s; {} programs waited until they were told to end; at most {} KiB",
            self.waited, self.peak_kib
        );
        println!("corrupt.cases {}\ncorrupt.crashes {}", self.cases, self.crashes);
    }
}
