//! The checks of a run, and their findings. The build script of the soak compiles this file, too, so it uses only `std`.

use std::fmt;

/// The check that detected a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Check {
    /// No order of the operations explains their results.
    Linearizability,
    /// Freed memory was used or freed again, or a pointer was invalid.
    Memory,
    /// Memory was still allocated after the structure was destroyed.
    Leak,
    /// Deadlock or livelock: all threads waited for each other, or retried without effect.
    Stuck,
    /// The run exceeded its time limit, for an unknown cause.
    OutOfTime,
    /// An operation failed or panicked, or the structure's invariants did not hold when no operation ran.
    Error,
}

impl Check {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Linearizability => "linearizability",
            Self::Memory => "memory",
            Self::Leak => "leak",
            Self::Stuck => "stuck",
            Self::OutOfTime => "out-of-time",
            Self::Error => "error",
        }
    }
}

/// A failure that was detected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The check that detected it.
    pub by: Check,
    /// The description; several lines for a history.
    pub message: String,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.by.name(), self.message)
    }
}
