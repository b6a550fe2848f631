//! What `#[farfield::main]` and `#[farfield::test]` call.

use std::any::Any;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::ExitCode;
use std::time::Duration;

use crate::error::{Error, Printable, Result};
use crate::session::{Cluster, ComputeThread};
use farfield_fabric::stall;

/// The variable that names another cluster than the program's own.
const CLUSTER_VARIABLE: &str = "FARFIELD_CLUSTER";
/// The variable that names the one seed to run simulated tests under.
const SEED_VARIABLE: &str = "FARFIELD_SEED";
/// The variable that says how many lines of a failing run's trace are printed.
const TRACE_VARIABLE: &str = "FARFIELD_TRACE";
const DEFAULT_TRACE_LINES: usize = 40;

/// After what time a wait of a test is reported, unless `FARFIELD_STALL` says otherwise.
const TEST_STALLS: Duration = Duration::from_secs(5);

/// The exit code of a program that could not do what it was asked.
const FAILURE: u8 = 2;

/// Runs a program's `async fn main`; reports an error as one line.
pub fn run_main(
    url: &str,
    threads: usize,
    body: impl AsyncFn(&ComputeThread) -> Result<()> + Sync,
) -> ExitCode {
    let url = std::env::var(CLUSTER_VARIABLE).unwrap_or_else(|_| url.to_owned());
    match Cluster::connect(&url).and_then(|cluster| cluster.run(threads, body)) {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", Printable(error));
            ExitCode::from(FAILURE)
        }
    }
}

/// Runs a test.
///
/// # Panics
/// If it fails, with its error.
pub fn run_test<E: Display + 'static>(
    url: &str,
    threads: usize,
    body: impl AsyncFn(&ComputeThread) -> Result<(), E> + Sync,
) {
    stall::set_default_limit(TEST_STALLS);
    let body = async |ct: &ComputeThread| body(ct).await.map_err(own_error);
    if let Err(error) = Cluster::connect(url).and_then(|cluster| cluster.run(threads, body)) {
        panic!("{error}");
    }
}

/// Runs a test in the simulator, once for each seed. Threads may be killed by faults that the URL asks for; the others
/// must succeed. Unless the URL says `threads-per-node`, seeds differ in it: a process of one thread, of two, of three or of all.
///
/// # Panics
/// At the first seed under which it fails, with its error or its panic, having printed the beginning and the end of the trace, and
/// what concerns objects that a run which does not end waits for, the whole URL and the command that runs this seed again.
pub fn run_sim_test<E: Display + 'static>(
    name: &str,
    url: &str,
    threads: usize,
    seeds: impl IntoIterator<Item = u64>,
    body: impl AsyncFn(&ComputeThread) -> Result<(), E> + Sync,
) {
    stall::set_default_limit(TEST_STALLS);
    // The test harness knows a test by its path inside the crate.
    let name = name.split_once("::").map_or(name, |(_, path)| path);
    let replayed = number(SEED_VARIABLE);
    let seeds: Vec<u64> = replayed.map_or_else(|| seeds.into_iter().collect(), |seed| vec![seed]);
    assert!(!seeds.is_empty(), "{name} has no seeds to run under");
    for seed in seeds {
        let separator = if url.ends_with(':') { "" } else { "," };
        let layout = match layout(seed, threads) {
            each if each > 1 && url.starts_with("sim:") && !url.contains("threads-per-node=") => {
                format!(",threads-per-node={each}")
            }
            _ => String::new(),
        };
        let url = format!("{url}{separator}seed={seed}{layout}");
        let cluster = Cluster::connect(&url).unwrap_or_else(|error| panic!("{error}"));
        let Some(simulation) = cluster.simulation() else {
            panic!("cluster URL `{}`: a test with `sim` needs a simulated cluster, `sim:`", Printable(url));
        };
        let body = async |ct: &ComputeThread| body(ct).await.map_err(own_error);
        let outcome = catch_unwind(AssertUnwindSafe(|| cluster.run_surviving(threads, body)));
        if matches!(outcome, Ok(Ok(_))) {
            continue;
        }
        let lines = number(TRACE_VARIABLE).map_or(DEFAULT_TRACE_LINES, |lines| lines as usize);
        eprintln!(
            "what happened under seed {seed} ({TRACE_VARIABLE}=n shows n lines):\n{}\n\
             on cluster {url}\n\
             to replay it: {SEED_VARIABLE}={seed} cargo test {name}",
            simulation.trace(lines)
        );
        match outcome {
            Ok(Ok(_)) => unreachable!("it failed"),
            Ok(Err(error @ Error::Simulation(_))) => panic!("{error}"),
            Ok(Err(error)) => panic!("seed {seed}: {error}"),
            Err(panic) => resume_unwind(panic),
        }
    }
}

/// How many threads a simulated process has: one, two, three or all, as often each, by the seed alone. What goes wrong with
/// one layout may not with another: a guard holds back what threads of its own process retire without a message, and blocks
/// that one thread frees are another's.
fn layout(seed: u64, threads: usize) -> usize {
    // Multiples of the golden ratio, so that neighbouring seeds differ.
    let draw = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60 & 3;
    [1, 2, 3, threads][draw as usize].min(threads)
}

/// A number from the environment, if there is one.
fn number(variable: &str) -> Option<u64> {
    let value = std::env::var(variable).ok()?;
    let number = value.parse();
    Some(number.unwrap_or_else(|_| panic!("{variable}={} is not a number", Printable(&value))))
}

/// An error of any type as one of ours; one of ours as it is, since `run` tells them apart.
fn own_error<E: Display + 'static>(error: E) -> Error {
    let mut error = Some(error);
    let own = (&mut error as &mut dyn Any).downcast_mut::<Option<Error>>().and_then(Option::take);
    own.unwrap_or_else(|| Error::other(error.map(|error| error.to_string()).unwrap_or_default()))
}
