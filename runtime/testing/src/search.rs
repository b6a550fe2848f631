//! The search for an order of calls that a model explains.
//!
//! # Operations that never returned
//!
//! An operation whose outcome is unknown, or whose thread died, may have taken effect at any moment since its invocation, or never. The
//! search adds a return at the end of the history that matches any result. So it may stand anywhere after its invocation. Placed last, it
//! comes after every operation that could observe it, which is equivalent to never having taken effect. Such operations multiply the
//! number of orders, so the search places one before the end only
//! - where it changes the state, since otherwise it can stand at the end;
//! - after all equal ones that were invoked before it, since these are interchangeable.
//!
//! For the first rule the search must know when all other operations are placed: a separate step (`Step::Close`) marks that point.
//!
//! # Fates
//!
//! The order of concurrent pushes becomes visible only when the values are popped, perhaps much later. A search that discovers it there has
//! tried all orders of the operations in between. But values are unique, so the history determines when each is removed, and the search uses
//! this in advance:
//! - a value is not placed where it blocks one that is certainly removed earlier ([`Model::is_hopeless`]);
//! - an operation with an unknown result does not remove a value that another operation returned;
//! - an operation that never returned, and whose value no operation returned, is omitted.
//!
//! These rules prune only orders that can not succeed, or that also succeed without the operation. They reduce minutes to microseconds. A
//! history with many operations that never returned may still determine too little, so a search has a limit.

use std::cell::{Cell, RefCell};
use std::fmt::{self, Debug};
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;

use todc_utils::linearizability::WGLChecker;
use todc_utils::linearizability::history::{Action, History};
use todc_utils::specifications::Specification;

use crate::history::Call;
use crate::model::{Fate, Fates, Model};

/// Computes the fates of all values.
fn fates<M: Model>(calls: &[&Call<M>]) -> Fates {
    let (mut known, mut others) = (Vec::new(), Fate::NEVER);
    for call in calls.iter().filter(|call| M::takes(&call.operation)) {
        match &call.returned {
            Some((latest, returned)) => {
                let fate = Fate { earliest: call.invoked, latest: *latest };
                known.extend(M::taken(returned).map(|value| (value, fate)));
            }
            None => others.earliest = others.earliest.min(call.invoked),
        }
    }
    known.sort_by_key(|(value, _)| *value);
    let others_seen = calls.iter().filter(|call| !M::takes(&call.operation));
    let seen = others_seen.filter_map(|call| M::taken(&call.returned.as_ref()?.1)).collect();
    Fates { known, others, seen }
}

/// The goal of a search.
pub(crate) enum Question<'a, M: Model> {
    /// An order that explains the calls.
    Explained,
    /// An order in which the call of this number returns a result that was not seen before.
    Returns(usize, &'a Seen<M::Returned>),
    /// An order that ends in a state that was not seen before.
    EndsIn(&'a Seen<M::State>),
}

impl<M: Model> Copy for Question<'_, M> {}

impl<M: Model> Clone for Question<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

/// The results or states found before, and the last one found.
pub(crate) struct Seen<T> {
    pub(crate) before: Vec<T>,
    pub(crate) now: RefCell<Option<T>>,
}

impl<T: Clone + PartialEq> Seen<T> {
    pub(crate) fn new() -> Self {
        Self { before: Vec::new(), now: RefCell::new(None) }
    }

    /// Records a value; returns whether it is new.
    fn is_new(&self, found: T) -> bool {
        let new = !self.before.contains(&found);
        if new {
            self.now.replace(Some(found));
        }
        new
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Yes,
    No,
    /// The search has reached its limit.
    Unknown,
}

/// Searches for an order of the calls.
pub(crate) fn search<M: Model>(calls: &[&Call<M>], limit: u64, question: Question<'_, M>) -> Answer {
    // The other questions ask for all possibilities, so their searches do not prune by fates.
    let fates = if let Question::Explained = question { fates(calls) } else { Fates::unknown() };
    let Some(history) = history(calls, &fates, question) else { return Answer::Yes };
    STEPS_LEFT.set(limit);
    match WGLChecker::<Sequential<'_, M>>::is_linearizable(history) {
        true => Answer::Yes,
        false if STEPS_LEFT.get() > 0 => Answer::No,
        false => Answer::Unknown,
    }
}

/// The calls in the form of `todc-utils`; none if there are no calls. Each call is a process of its own: two calls of a client are ordered
/// because one returned before the other was invoked.
fn history<'a, M: Model>(
    calls: &[&'a Call<M>],
    fates: &'a Fates,
    question: Question<'a, M>,
) -> Option<History<Step<'a, M>>> {
    let mut actions = Vec::with_capacity(2 * calls.len() + 2);
    // Classes of equal operations that never returned, with their sizes. Calls are in the order of their invocations.
    let mut open: Vec<(&M::Operation, usize)> = Vec::new();
    for (process, call) in calls.iter().enumerate() {
        let asked = match question {
            Question::Returns(number, seen) if number == process => Some(seen),
            _ => None,
        };
        let is_lost = call.returned.is_none() && matches!(question, Question::Explained);
        let is_unseen = |value| !fates.of(value).is_known() && !fates.seen.contains(&value);
        if is_lost && M::puts(&call.operation).is_some_and(is_unseen) {
            continue;
        }
        let step = match (asked, &call.returned) {
            (Some(seen), _) => Step::Ask(call, seen),
            (None, Some((_, returned))) => Step::Call(call, returned, fates),
            (None, None) => {
                let class = open.iter().position(|(equal, _)| *equal == &call.operation);
                let class = class.unwrap_or_else(|| {
                    open.push((&call.operation, 0));
                    open.len() - 1
                });
                open[class].1 += 1;
                Step::Open(call, fates, Rank { class, before: open[class].1 - 1 })
            }
        };
        let returned_at = call.returned.as_ref().map_or(usize::MAX, |(position, _)| *position);
        actions.push((call.invoked, process, Action::Call(step)));
        actions.push((returned_at, process, Action::Response(step)));
    }
    let closes = match question {
        Question::EndsIn(seen) => Some(Step::Look(seen)),
        _ => (!open.is_empty()).then_some(Step::Close),
    };
    if let Some(step) = closes {
        let known = actions.iter().map(|(position, ..)| *position).filter(|position| *position != usize::MAX);
        let after = known.max().unwrap_or_default();
        actions.push((after, calls.len(), Action::Call(step)));
        actions.push((after, calls.len(), Action::Response(step)));
    }
    // The sort is stable: operations that never returned keep their order at the end.
    actions.sort_by_key(|(position, ..)| *position);
    let actions: Vec<_> = actions.into_iter().map(|(_, process, action)| (process, action)).collect();
    (!actions.is_empty()).then(|| History::from_actions(actions))
}

/// A step of the search.
enum Step<'a, M: Model> {
    /// An operation with this result.
    Call(&'a Call<M>, &'a M::Returned, &'a Fates),
    /// An operation that never returned.
    Open(&'a Call<M>, &'a Fates, Rank),
    /// An operation that may return any new result.
    Ask(&'a Call<M>, &'a Seen<M::Returned>),
    /// No operation: only operations that never returned come after it.
    Close,
    /// As `Close`; in addition the state must be new.
    Look(&'a Seen<M::State>),
}

/// The rank of an operation that never returned in its class.
#[derive(Clone, Copy)]
struct Rank {
    /// Index of the class of equal operations.
    class: usize,
    /// Number of operations of the class that were invoked before.
    before: usize,
}

/// A state of the search.
struct Reached<M: Model> {
    state: M::State,
    /// For each class of operations that never returned: how many have taken effect. Missing entries are 0.
    open: Vec<usize>,
    /// True if all operations that returned are placed.
    is_closed: bool,
}

impl<M: Model> Step<'_, M> {
    /// Applies the step; returns whether the model allows it.
    fn take(&self, reached: &mut Reached<M>) -> bool {
        let state = &mut reached.state;
        match self {
            Self::Call(call, returned, fates) => {
                M::accepts(state, &call.operation, returned) && !is_hopeless(call, state, fates)
            }
            Self::Open(..) if reached.is_closed => true,
            Self::Open(call, fates, Rank { class, before }) => {
                let taken_before = reached.open.get(*class).copied().unwrap_or_default();
                if taken_before != *before {
                    return false;
                }
                let unchanged = state.clone();
                let returned = M::step(state, &call.operation);
                reached.open.resize(reached.open.len().max(class + 1), 0);
                reached.open[*class] += 1;
                // A value that another operation returned can not be removed by an operation with an unknown result.
                let takes_known = M::taken(&returned).is_some_and(|value| fates.of(value).is_known());
                !takes_known && *state != unchanged && !is_hopeless(call, state, fates)
            }
            Self::Ask(call, seen) => seen.is_new(M::step(state, &call.operation)),
            Self::Close => {
                reached.is_closed = true;
                true
            }
            Self::Look(seen) => {
                reached.is_closed = true;
                seen.is_new(state.clone())
            }
        }
    }
}

/// Returns whether the search may prune the state after an operation.
fn is_hopeless<M: Model>(call: &Call<M>, state: &M::State, fates: &Fates) -> bool {
    M::puts(&call.operation).is_some() && M::is_hopeless(state, fates)
}

impl<M: Model> Clone for Reached<M> {
    fn clone(&self) -> Self {
        Self { state: self.state.clone(), open: self.open.clone(), is_closed: self.is_closed }
    }
}

impl<M: Model> PartialEq for Reached<M> {
    fn eq(&self, other: &Self) -> bool {
        self.state == other.state && self.open == other.open && self.is_closed == other.is_closed
    }
}

impl<M: Model> Eq for Reached<M> {}

impl<M: Model> Hash for Reached<M> {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        // The other fields follow from the set of placed operations, which the search hashes, too.
        self.state.hash(hasher);
    }
}

impl<M: Model> Debug for Reached<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.state.fmt(f)
    }
}

impl<M: Model> Copy for Step<'_, M> {}

impl<M: Model> Clone for Step<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Model> Debug for Step<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call(call, ..) | Self::Open(call, ..) | Self::Ask(call, _) => {
                f.write_str(&M::show(&call.operation))
            }
            Self::Close => f.write_str("close"),
            Self::Look(_) => f.write_str("look"),
        }
    }
}

thread_local! {
    /// Remaining steps of this thread's search. At 0 every step is refused, so the search ends soon; `todc-utils` has no other way to stop
    /// it.
    static STEPS_LEFT: Cell<u64> = const { Cell::new(0) };
}

/// A model in the form of `todc-utils`.
struct Sequential<'a, M>(PhantomData<&'a M>);

impl<'a, M: Model> Specification for Sequential<'a, M> {
    type State = Reached<M>;
    type Operation = Step<'a, M>;

    fn init() -> Reached<M> {
        Reached { state: M::initial(), open: Vec::new(), is_closed: false }
    }

    fn apply(step: &Step<'a, M>, reached: &Reached<M>) -> (bool, Reached<M>) {
        let left = STEPS_LEFT.get();
        STEPS_LEFT.set(left.saturating_sub(1));
        let mut after = reached.clone();
        if left > 0 && step.take(&mut after) { (true, after) } else { (false, reached.clone()) }
    }
}
