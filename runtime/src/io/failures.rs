//! Failures of what a process does in the background.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::error::Error;

/// How long a failure that lasts is told only once.
const REPEATED: Duration = Duration::from_secs(10);

/// What went wrong with the thread that looks after this process's part in its cluster.
///
/// From [`Cluster::keeper_failures`](crate::Cluster::keeper_failures). That thread goes on after each failure; but what it can not do for long is
/// not done: processes that have died are not evicted, memory is not given back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeeperFailures {
    /// How often it could not do its work. It tries some 25 to 200 times a second.
    pub errors: u64,
    /// How often it has panicked, and was replaced.
    pub panics: u64,
    /// What it said the last time.
    pub last: String,
}

/// The failures of a process, and when the last was told: so that one that lasts is not told with each tick.
#[derive(Debug, Default)]
pub(crate) struct Failures(Mutex<Noted>);

#[derive(Debug, Default)]
struct Noted {
    counted: KeeperFailures,
    told: Option<Duration>,
}

impl Failures {
    fn noted(&self) -> MutexGuard<'_, Noted> {
        // Counters and a text are whole at every moment.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was noted so far.
    pub(crate) fn counted(&self) -> KeeperFailures {
        self.noted().counted.clone()
    }

    /// Background work failed at time `now`; it will be tried again.
    #[cold]
    pub(crate) fn note(&self, now: Duration, error: &Error, what: &'static str) {
        let message = error.to_string();
        let mut noted = self.noted();
        noted.counted.errors += 1;
        let is_known = noted.counted.last == message;
        if !noted.told.is_some_and(|told| is_known && now.saturating_sub(told) < REPEATED) {
            tracing::warn!(error = message, "{what}");
            noted.told = Some(now);
        }
        noted.counted.last = message;
    }

    /// The keeper has ended with an error, after so many panics.
    pub(crate) fn note_end(&self, error: &Error, panics: u64) {
        let mut noted = self.noted();
        noted.counted.panics += panics;
        noted.counted.last = error.to_string();
    }
}
