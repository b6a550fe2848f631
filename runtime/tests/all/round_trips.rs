//! The number of round trips of some work, in a simulator whose clock counts nothing else.

#![allow(clippy::unchecked_time_subtraction)] // a fabric's clock does not go backwards

use farfield::prelude::*;

/// Returns the number of round trips that `work` takes, or `None` where time is real.
pub(crate) async fn round_trips<T>(
    ct: &ComputeThread,
    work: impl AsyncFnOnce() -> Result<T>,
) -> Result<Option<u128>> {
    let before = ct.now();
    work().await?;
    let rtt = ct.cluster().simulation().map(|simulation| simulation.rtt());
    Ok(rtt.map(|rtt| (ct.now() - before).as_nanos() / rtt.as_nanos()))
}

/// Checks a number of round trips, where they are counted.
#[track_caller]
pub(crate) fn takes(found: Option<u128>, expected: u128) {
    assert!(found.is_none_or(|found| found == expected), "{found:?} round trips instead of {expected}");
}
