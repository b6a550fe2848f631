//! Linearizability: decides whether a model explains a history.
//!
//! A history is *linearizable* (Herlihy and Wing, "Linearizability: A Correctness Condition for Concurrent Objects", TOPLAS 1990) if each
//! operation can be assigned a moment between its invocation and its return such that a [`Model`], performing the operations in this order,
//! returns the recorded results. The search is Wing and Gong's ("Testing and Verifying Concurrent Objects", 1993) with Lowe's memoisation
//! (2017), as implemented in `todc-utils`.
//!
//! # Parts
//!
//! A history of several independent objects is linearizable if that of each is ([`Model::part`]). An operation that is not atomic is
//! replaced by operations on the parts ([`Model::components`]).
//!
//! # Limits
//!
//! A history with many operations that never returned may have too many orders, so a search has a limit ([`Verdict::Undecided`]). The
//! module `search` describes how most searches stay short.

use std::fmt::{self, Debug};

use crate::contradiction::Contradiction;
use crate::history::{Call, by_part, calls};
use crate::model::{EventOf, Model};
use crate::search::{Answer, Question, search};

/// Default limit of a search's steps: well under a second, and under 100 MiB for small states.
pub const SEARCH_LIMIT: u64 = 200_000;

/// The result of a check.
pub enum Verdict<M: Model> {
    /// The model explains the history.
    Explained,
    /// The model can not explain the history, for this reason.
    Refuted(Contradiction<M>),
    /// The search has reached its limit on these parts, and has refuted no part.
    Undecided(Vec<Undecided>),
}

impl<M: Model> Debug for Verdict<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Explained => f.write_str("explained"),
            Self::Refuted(contradiction) => write!(f, "{contradiction}"),
            Self::Undecided(parts) => f.debug_list().entries(parts).finish(),
        }
    }
}

/// A part of a history for which the search has reached its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Undecided {
    /// The part, as [`Model::part`] numbers it.
    pub part: u64,
    /// Number of operations in its history.
    pub operations: usize,
    /// Number of steps that the search took.
    pub steps: u64,
}

impl fmt::Display for Undecided {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { part, operations, steps } = self;
        write!(f, "part {part}, {operations} operations: undecided after {steps} steps of the search")
    }
}

/// Checks a history against the model `M`, in at most [`SEARCH_LIMIT`] steps for each part.
///
/// Events are in the order in which they happened; [`farfield::sim::History`] records them so, on every fabric. A return without an
/// invocation is ignored.
pub fn check<M: Model>(events: &[EventOf<M>]) -> Verdict<M> {
    check_within(events, SEARCH_LIMIT)
}

/// As [`check`], with at most `limit` steps for each part.
pub fn check_within<M: Model>(events: &[EventOf<M>], limit: u64) -> Verdict<M> {
    let mut undecided = Vec::new();
    for (part, calls) in by_part(&calls::<M>(events)) {
        let calls: Vec<&Call<M>> = calls.iter().collect();
        match search(&calls, limit, Question::Explained) {
            Answer::Yes => {}
            Answer::No => return Verdict::Refuted(Contradiction::new(&calls, events, limit)),
            Answer::Unknown => undecided.push(Undecided { part, operations: calls.len(), steps: limit }),
        }
    }
    if undecided.is_empty() { Verdict::Explained } else { Verdict::Undecided(undecided) }
}

#[cfg(test)]
mod tests;
