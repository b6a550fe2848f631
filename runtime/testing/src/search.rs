//! The search for an order of calls that a model explains.
//!
//! # Operations that never returned
//!
//! An operation whose outcome is unknown, or whose thread died, may have taken effect at any moment since its invocation, or never. The
//! search gives it a return at the very end of the history, and an answer that is always right. So it may stand anywhere after its
//! invocation. Placed last, it comes after everything that could have noticed it, which is the same as never having taken effect.
//! Such operations multiply the orders, so the search places one among the others only
//! - where it changes the state, since elsewhere it is as good as last;
//! - after all equal ones that were invoked before it, since any of them could take its place.
//!
//! For the first it must know when the others are done: a step of its own (`Step::Close`) stands between them and those that are last.
//!
//! # Fates
//!
//! The order of concurrent pushes shows only when the values are popped, which may be much later; a search that finds out
//! there has tried all orders of everything in between. But values are unique, so a history tells what becomes of each,
//! and the search is told in advance:
//! - a value is not put where it would be in the way of one that certainly leaves earlier ([`Model::is_hopeless`]);
//! - an operation with an unknown answer does not take a value that another operation returned;
//! - an operation that never returned, and whose value no operation returned, is left out.
//!
//! That leaves out what could not succeed, or would succeed without it, and makes the difference between microseconds
//! and minutes. A history of many operations that never returned may still tell too little, so a search has a limit.

use std::cell::{Cell, RefCell};
use std::fmt::{self, Debug};
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;

use todc_utils::linearizability::WGLChecker;
use todc_utils::linearizability::history::{Action, History};
use todc_utils::specifications::Specification;

use crate::history::Call;
use crate::model::{Fate, Fates, Model};

/// What becomes of each value.
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
    Fates { known, others }
}

/// What a search is to find out.
pub(crate) enum Question<'a, M: Model> {
    /// Whether there is an order that explains the calls.
    Explained,
    /// Whether there is one in which the call of this number returns something else than what was seen before.
    Returns(usize, &'a Seen<M::Returned>),
    /// Whether there is one that ends in another state than these.
    EndsIn(&'a Seen<M::State>),
}

impl<M: Model> Copy for Question<'_, M> {}

impl<M: Model> Clone for Question<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

/// Answers or states that have been found before, and the last that was found.
pub(crate) struct Seen<T> {
    pub(crate) before: Vec<T>,
    pub(crate) now: RefCell<Option<T>>,
}

impl<T: Clone + PartialEq> Seen<T> {
    pub(crate) fn new() -> Self {
        Self { before: Vec::new(), now: RefCell::new(None) }
    }

    /// Notes one, and returns whether it is new.
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
    // What else was possible is told in full: the search does not skip what would only come out as well.
    let fates = if let Question::Explained = question { fates(calls) } else { Fates::unknown() };
    let Some(history) = history(calls, &fates, question) else { return Answer::Yes };
    STEPS_LEFT.set(limit);
    match WGLChecker::<Sequential<'_, M>>::is_linearizable(history) {
        true => Answer::Yes,
        false if STEPS_LEFT.get() > 0 => Answer::No,
        false => Answer::Unknown,
    }
}

/// The calls as the search takes them, if there are any. There each is a process of its own: what orders two operations
/// of a client is that one returned before the other was invoked.
fn history<'a, M: Model>(
    calls: &[&'a Call<M>],
    fates: &'a Fates,
    question: Question<'a, M>,
) -> Option<History<Step<'a, M>>> {
    let mut actions = Vec::with_capacity(2 * calls.len() + 2);
    // Equal operations that never returned, and how many of each there are. Calls are in the order of their invocations.
    let mut open: Vec<(&M::Operation, usize)> = Vec::new();
    for (process, call) in calls.iter().enumerate() {
        let asked = match question {
            Question::Returns(number, seen) if number == process => Some(seen),
            _ => None,
        };
        let is_lost = call.returned.is_none() && matches!(question, Question::Explained);
        if is_lost && M::puts(&call.operation).is_some_and(|value| !fates.of(value).is_known()) {
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
    // Stable: those that never returned keep their order at the end.
    actions.sort_by_key(|(position, ..)| *position);
    let actions: Vec<_> = actions.into_iter().map(|(_, process, action)| (process, action)).collect();
    (!actions.is_empty()).then(|| History::from_actions(actions))
}

/// A step of the search.
enum Step<'a, M: Model> {
    /// An operation that returned this.
    Call(&'a Call<M>, &'a M::Returned, &'a Fates),
    /// An operation that never returned.
    Open(&'a Call<M>, &'a Fates, Rank),
    /// An operation that may return anything new.
    Ask(&'a Call<M>, &'a Seen<M::Returned>),
    /// No operation: from here on only those that never returned are left.
    Close,
    /// The same, with a look at the state, which must be new.
    Look(&'a Seen<M::State>),
}

/// Where an operation that never returned stands among its equals.
#[derive(Clone, Copy)]
struct Rank {
    /// Which operations are its equals.
    class: usize,
    /// How many of them were invoked before.
    before: usize,
}

/// A state of the search.
struct Reached<M: Model> {
    state: M::State,
    /// How many of each class of operations that never returned have taken effect; of those behind the last, none.
    open: Vec<usize>,
    /// Whether all others are placed.
    is_closed: bool,
}

impl<M: Model> Step<'_, M> {
    /// Takes the step; returns whether it can be taken.
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
                // Another operation takes this value, so not one whose answer is unknown.
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

/// Whether the search may give up after an operation.
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
        // The others follow from what was placed, which the search remembers beside this.
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
    /// Steps that this thread's search may still take. When there are none left every further one is refused, so that the
    /// search soon ends; `todc-utils` has no other way to be told.
    static STEPS_LEFT: Cell<u64> = const { Cell::new(0) };
}

/// A model as the search takes it.
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
