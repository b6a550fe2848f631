//! Failures of a process's background thread, the keeper.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::error::Error;

/// The time during which a repeated failure is logged once.
const REPEATED: Duration = Duration::from_secs(10);

/// Failures of the keeper, the background thread that maintains this process's membership in its cluster.
///
/// [`Cluster::keeper_failures`](crate::Cluster::keeper_failures) returns them. The keeper continues after each failure. But as long as it fails, dead
/// processes are not evicted, and free memory is not returned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeeperFailures {
    /// The number of errors. The keeper runs 25 to 200 times a second.
    pub errors: u64,
    /// The number of panics. The keeper is restarted after each.
    pub panics: u64,
    /// The message of the last failure.
    pub last: String,
}

/// The failures of a process, and the time at which the last was logged, so that a repeated failure is not logged with each tick.
#[derive(Debug, Default)]
pub(crate) struct Failures(Mutex<Noted>);

#[derive(Debug, Default)]
struct Noted {
    counted: KeeperFailures,
    logged: Option<Duration>,
}

impl Failures {
    fn noted(&self) -> MutexGuard<'_, Noted> {
        // No panic leaves the counters inconsistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the failures so far.
    pub(crate) fn counted(&self) -> KeeperFailures {
        self.noted().counted.clone()
    }

    /// Background work failed at time `now`, and will be retried.
    #[cold]
    pub(crate) fn note(&self, now: Duration, error: &Error, what: &'static str) {
        let message = error.to_string();
        let mut noted = self.noted();
        noted.counted.errors += 1;
        let is_known = noted.counted.last == message;
        if !noted.logged.is_some_and(|logged| is_known && now.saturating_sub(logged) < REPEATED) {
            tracing::warn!(error = message, "{what}");
            noted.logged = Some(now);
        }
        noted.counted.last = message;
    }

    /// The keeper has ended with an error, after this many panics.
    pub(crate) fn note_end(&self, error: &Error, panics: u64) {
        let mut noted = self.noted();
        noted.counted.panics += panics;
        noted.counted.last = error.to_string();
    }
}
