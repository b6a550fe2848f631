//! What `#[farfield::main]` and `#[farfield::test]` call.

use std::fmt::Display;
use std::process::ExitCode;

use crate::cluster::{Cluster, ComputeThread};
use crate::error::Result;

/// The variable that names another cluster than the program's own.
const CLUSTER_VARIABLE: &str = "FARFIELD_CLUSTER";

/// The exit code of a program that could not do what it was asked.
const FAILURE: u8 = 2;

fn run(url: &str, threads: usize, body: impl AsyncFn(&ComputeThread) -> Result<()> + Sync) -> Result<()> {
    Cluster::connect(url)?.run(threads, body).map(drop)
}

/// Runs a program's `async fn main`; reports an error as one line.
pub fn run_main(
    url: &str,
    threads: usize,
    body: impl AsyncFn(&ComputeThread) -> Result<()> + Sync,
) -> ExitCode {
    let url = std::env::var(CLUSTER_VARIABLE).unwrap_or_else(|_| url.to_owned());
    match run(&url, threads, body) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(FAILURE)
        }
    }
}

/// Runs a test.
///
/// # Panics
/// If it fails, with its error.
pub fn run_test<E: Display>(
    url: &str,
    threads: usize,
    body: impl AsyncFn(&ComputeThread) -> Result<(), E> + Sync,
) {
    let body =
        async |ct: &ComputeThread| body(ct).await.map_err(|error| crate::Error::other(error.to_string()));
    if let Err(error) = run(url, threads, body) {
        panic!("{error}");
    }
}
