//! Linearizability: whether a model explains a history.
//!
//! A history is *linearizable* (Herlihy and Wing, "Linearizability: A Correctness Condition for Concurrent Objects", TOPLAS 1990) if
//! each operation can be given a moment between its invocation and its return such that a [`Model`], performing the operations at these
//! moments, returns what they returned. The search for such moments is Wing and Gong's ("Testing and Verifying Concurrent Objects",
//! 1993) with Lowe's memoisation (2017), as `todc-utils` has it.
//!
//! # Parts
//!
//! A history of several independent objects is linearizable if that of each is ([`Model::part`]).
//!
//! # Limits
//!
//! A history of many operations that never returned may have too many orders, so a search has a limit ([`Verdict::Undecided`]). `search` has
//! what makes most searches short.

use std::collections::BTreeMap;
use std::fmt::{self, Debug};

use crate::contradiction::Contradiction;
use crate::history::{Call, calls};
use crate::model::{EventOf, Model};
use crate::search::{Answer, Question, search};

/// How many steps a search takes by default before it gives up: well under a second, and under 100 MiB for small states.
pub const SEARCH_LIMIT: u64 = 200_000;

/// What a search has found.
pub enum Verdict<M: Model> {
    /// The model can do the same.
    Explained,
    /// It can not; and why.
    Refuted(Contradiction<M>),
    /// The search has reached its limit on these parts, and has refuted none.
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

/// A part of a history that is too hard to be checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Undecided {
    /// The part, as [`Model::part`] numbers it.
    pub part: u64,
    /// How many operations its history has.
    pub operations: usize,
    /// How many steps the search took.
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
/// Events are in the order in which they happened; [`farfield::sim::History`] records them so, on every fabric. A return
/// that no invocation precedes is ignored.
pub fn check<M: Model>(events: &[EventOf<M>]) -> Verdict<M> {
    check_within(events, SEARCH_LIMIT)
}

/// The same in at most `limit` steps for each part.
pub fn check_within<M: Model>(events: &[EventOf<M>], limit: u64) -> Verdict<M> {
    let calls = calls::<M>(events);
    let mut parts: BTreeMap<u64, Vec<&Call<M>>> = BTreeMap::new();
    for call in &calls {
        parts.entry(M::part(&call.operation)).or_default().push(call);
    }
    let mut undecided = Vec::new();
    for (part, calls) in parts {
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
