//! Starting a run's compute threads as threads of this process.

use std::panic::resume_unwind;
use std::thread;

use crate::error::{self, Error, Result};

/// Runs `body(0)` to `body(threads - 1)`, each on a thread of its own, and collects what they return, in order.
///
/// # Errors
/// [`Error::System`] if the system starts no more threads. `missing` is told which first, so that those that had
/// started do not wait for the others; then they are waited for.
///
/// # Panics
/// With the panic of the first thread, by index, that panicked.
pub(crate) fn run_threads<R: Send>(
    threads: usize,
    body: impl Fn(usize) -> R + Sync,
    missing: impl FnOnce(std::ops::Range<usize>),
) -> Result<Vec<R>> {
    thread::scope(|scope| {
        let body = &body;
        let mut handles = Vec::with_capacity(threads);
        let mut refused = None;
        for index in 0..threads {
            let builder = thread::Builder::new().name(format!("compute-{index}"));
            match builder.spawn_scoped(scope, move || body(index)) {
                Ok(handle) => handles.push(handle),
                Err(cause) => {
                    missing(index..threads);
                    refused = Some(Error::from(error::System { action: "start a compute thread", cause }));
                    break;
                }
            }
        }
        let results: Vec<_> = handles.into_iter().map(thread::ScopedJoinHandle::join).collect();
        let values =
            results.into_iter().map(|result| result.unwrap_or_else(|panic| resume_unwind(panic))).collect();
        refused.map_or(Ok(values), Err)
    })
}
