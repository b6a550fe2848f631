//! The functions that `#[farfield::main]` and `#[farfield::test]` call.

use std::any::Any;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::ExitCode;
use std::time::Duration;

use crate::error::{Error, Printable, Result};
use crate::session::{Cluster, ComputeThread};
use farfield_fabric::stall;

/// The environment variable that replaces the program's cluster URL.
const CLUSTER_VARIABLE: &str = "FARFIELD_CLUSTER";
/// The environment variable with the only seed that simulated tests run under.
const SEED_VARIABLE: &str = "FARFIELD_SEED";
/// The environment variable with the number of trace lines printed for a failing run.
const TRACE_VARIABLE: &str = "FARFIELD_TRACE";
const DEFAULT_TRACE_LINES: usize = 40;

/// The time after which a wait of a test is reported, unless `FARFIELD_STALL` sets another.
const TEST_STALLS: Duration = Duration::from_secs(5);

/// The exit code of a program that has failed with an error.
const FAILURE: u8 = 2;

/// Runs a program's `async fn main`. Prints an error as one line.
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

/// Runs a test in the simulator, once for each seed. Faults of the URL may kill threads; the others must succeed. Unless the URL sets
/// `threads-per-node`, the seed decides it: processes of one, two, three or all threads.
///
/// # Panics
/// At the first seed under which the test fails, with its error or its panic. Before, it prints the beginning and the end of the trace, the events of
/// the objects that a run without end waits for, the whole URL, and the command that replays the seed.
pub fn run_sim_test<E: Display + 'static>(
    name: &str,
    url: &str,
    threads: usize,
    seeds: impl IntoIterator<Item = u64>,
    body: impl AsyncFn(&ComputeThread) -> Result<(), E> + Sync,
) {
    stall::set_default_limit(TEST_STALLS);
    // The test harness names a test by its path inside the crate.
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

/// Returns the number of threads of a simulated process: one, two, three or all, equally often, by the seed alone. Layouts expose different bugs: a
/// guard delays reclamation by threads of its own process without a message, and blocks that one thread frees are reused by another.
fn layout(seed: u64, threads: usize) -> usize {
    // Multiples of the golden ratio: neighbouring seeds differ.
    let draw = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60 & 3;
    [1, 2, 3, threads][draw as usize].min(threads)
}

/// Parses a number from the environment, if the variable is set.
fn number(variable: &str) -> Option<u64> {
    let value = std::env::var(variable).ok()?;
    let number = value.parse();
    Some(number.unwrap_or_else(|_| panic!("{variable}={} is not a number", Printable(&value))))
}

/// Converts an error of any type to [`Error`]. An [`Error`] is unchanged, since `run` tells its variants apart.
fn own_error<E: Display + 'static>(error: E) -> Error {
    let mut error = Some(error);
    let own = (&mut error as &mut dyn Any).downcast_mut::<Option<Error>>().and_then(Option::take);
    own.unwrap_or_else(|| Error::other(error.map(|error| error.to_string()).unwrap_or_default()))
}
