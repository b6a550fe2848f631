//! Linearizability: whether a history can be explained by a model.
//!
//! A history is *linearizable* (Herlihy and Wing, "Linearizability: A Correctness Condition for Concurrent Objects",
//! TOPLAS 1990) if each operation can be given a moment between its invocation and its return such that a [`Model`],
//! performing the operations at these moments, returns what they returned. The search for such moments is Wing and
//! Gong's ("Testing and Verifying Concurrent Objects", 1993) with Lowe's memoisation (2017), as `todc-utils` has it.
//!
//! # Operations that never returned
//!
//! An operation that failed, or whose thread died, may have taken effect at any moment since its invocation, or never. It
//! is given a return at the very end of the history, with an unknown result that is always valid, and an effect. The
//! search may then place it anywhere after its invocation. Placed last, it comes after everything that could have noticed
//! it, which is the same as never having taken effect.
//!
//! # Parts
//!
//! Linearizability is local: a history of several independent objects is linearizable if that of each is. The keys of a
//! set are such objects, so the history of each is checked by itself, which keeps the search small.
//!
//! # Fates
//!
//! The order of concurrent pushes shows only when the values are popped, which may be much later; a search that finds out
//! there has tried all orders of everything in between. But values are unique, so a history tells what becomes of each,
//! and the search is told in advance:
//! - a value is not put where it would be in the way of one that certainly leaves earlier;
//! - an operation with an unknown result does not take a value that another operation returned;
//! - an operation that never returned, and whose value nobody returned, is left out.
//!
//! That leaves out what could not succeed, or would succeed without it, and makes the difference between microseconds
//! and minutes. A history of many operations that never returned may still tell too little, so a search has a limit
//! ([`Verdict::Undecided`]).

use std::cell::Cell;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::fmt::{self, Debug, Write};
use std::marker::PhantomData;

use farfield::sim::{Client, Event, Happened};
use todc_utils::linearizability::WGLChecker;
use todc_utils::linearizability::history::{Action, History};
use todc_utils::specifications::Specification;

use super::{EventOf, Fate, Model, Step};

/// How many steps a search may take: well under a second, and under 100 MiB.
const SEARCH_LIMIT: u64 = 200_000;

/// What a search has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The model can do the same.
    Explained,
    /// It can not. The events of the part that it can not explain, a line each.
    Refuted(String),
    /// The search has reached its limit.
    Undecided,
}

/// Whether a history can be explained by the model `M`.
pub fn check<M: Model>(events: &[EventOf<M>]) -> Verdict {
    let mut verdict = Verdict::Explained;
    let calls = calls::<M>(events);
    let mut parts: BTreeMap<u64, Vec<&Call<M>>> = BTreeMap::new();
    for call in &calls {
        parts.entry(M::part(call.operation)).or_default().push(call);
    }
    for calls in parts.values() {
        STEPS_LEFT.set(SEARCH_LIMIT);
        let explained = history(calls).is_none_or(WGLChecker::<Sequential<M>>::is_linearizable);
        if !explained && STEPS_LEFT.get() > 0 {
            return Verdict::Refuted(render::<M>(calls, events));
        }
        if !explained {
            verdict = Verdict::Undecided;
        }
    }
    verdict
}

/// An operation, and where its events are in the history.
struct Call<M: Model> {
    operation: M::Operation,
    invoked: usize,
    returned: Option<(usize, M::Returned)>,
}

/// Pairs each invocation with its return, if it has one.
fn calls<M: Model>(events: &[EventOf<M>]) -> Vec<Call<M>> {
    let mut calls: Vec<Call<M>> = Vec::new();
    let mut open: HashMap<Client, usize> = HashMap::new();
    for (position, event) in events.iter().enumerate() {
        match event.happened {
            // A client whose last operation failed may go on; that operation stays open.
            Happened::Invoked(operation) => {
                open.insert(event.client, calls.len());
                calls.push(Call { operation, invoked: position, returned: None });
            }
            Happened::Returned(returned) => {
                let Entry::Occupied(call) = open.entry(event.client) else {
                    unreachable!("a client returns from what it invoked");
                };
                calls[call.remove()].returned = Some((position, returned));
            }
        }
    }
    calls
}

/// What becomes of each value, and of those that no operation returned.
fn fates<M: Model>(calls: &[&Call<M>]) -> (HashMap<u64, Fate>, Fate) {
    let (mut fates, mut others) = (HashMap::new(), Fate::NEVER);
    for call in calls.iter().filter(|call| M::takes(call.operation)) {
        match call.returned {
            Some((latest, returned)) => {
                let fate = Fate { earliest: call.invoked, latest };
                fates.extend(M::taken(returned).map(|value| (value, fate)));
            }
            None => others.earliest = others.earliest.min(call.invoked),
        }
    }
    (fates, others)
}

/// The calls as the search takes them, if there are any. There each is a process of its own: what orders two operations
/// of a client is that one returned before the other was invoked.
fn history<M: Model>(calls: &[&Call<M>]) -> Option<History<Step<M>>> {
    let mut actions = Vec::new();
    let (fates, others) = fates(calls);
    for (process, call) in calls.iter().enumerate() {
        let value = M::puts(call.operation);
        let fate = value.and_then(|value| fates.get(&value).copied());
        if value.is_some() && fate.is_none() && call.returned.is_none() {
            continue;
        }
        let (fate, returned) = (fate.unwrap_or(others), call.returned.map(|(_, returned)| returned));
        let step = Step { operation: call.operation, returned, fate };
        let returned_at = call.returned.map_or(usize::MAX, |(position, _)| position);
        actions.push((call.invoked, process, Action::Call(step.clone())));
        actions.push((returned_at, process, Action::Response(step)));
    }
    // Stable: those that never returned keep their order at the end.
    actions.sort_by_key(|(position, ..)| *position);
    let actions: Vec<_> = actions.into_iter().map(|(_, process, action)| (process, action)).collect();
    (!actions.is_empty()).then(|| History::from_actions(actions))
}

/// The events of these calls, a line each.
fn render<M: Model>(calls: &[&Call<M>], events: &[EventOf<M>]) -> String {
    let mut lines = BTreeMap::new();
    for call in calls {
        let never = if call.returned.is_none() { "  (never returns)" } else { "" };
        lines.insert(call.invoked, format!("{}{never}", M::show(call.operation)));
        if let Some((position, returned)) = call.returned {
            lines.insert(position, format!("{} -> {returned}", M::show(call.operation)));
        }
    }
    let mut text = String::from("no order of these operations explains what they returned:");
    for (position, line) in lines {
        let Event { client: Client { thread, task }, at, .. } = &events[position];
        let (us, ns) = (at.as_micros(), at.subsec_nanos() % 1000);
        // Writing to a string does not fail.
        let _ = write!(text, "\n{us:>8}.{ns:03} us  thread {thread} task {task}  {line}");
    }
    text
}

impl<M: Model> Clone for Step<M> {
    fn clone(&self) -> Self {
        Self { operation: self.operation, returned: self.returned, fate: self.fate }
    }
}

impl<M: Model> Debug for Step<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} -> {:?}", M::show(self.operation), self.returned)
    }
}

thread_local! {
    /// Steps that this thread's search may still take. When there are none left every further one is refused, so that the
    /// search soon ends; the checker has no other way to be told.
    static STEPS_LEFT: Cell<u64> = const { Cell::new(0) };
}

/// A model as the search takes it.
struct Sequential<M>(PhantomData<M>);

impl<M: Model> Specification for Sequential<M> {
    type State = M::State;
    type Operation = Step<M>;

    fn init() -> M::State {
        M::State::default()
    }

    fn apply(step: &Step<M>, state: &M::State) -> (bool, M::State) {
        let left = STEPS_LEFT.get();
        STEPS_LEFT.set(left.saturating_sub(1));
        let mut after = state.clone();
        if left > 0 && M::step(step, &mut after) { (true, after) } else { (false, state.clone()) }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rand::rngs::SmallRng;
    use rand::{RngExt, SeedableRng};

    use super::super::exchange::{Exchange, Queue, Reply, Stack};
    use super::super::set::{Set, SetOperation};
    use super::*;

    type HappenedTo<M> = (usize, Happened<<M as Model>::Operation, <M as Model>::Returned>);

    /// A history from `(client, what happened)`.
    fn events<M: Model>(happened: Vec<HappenedTo<M>>) -> Vec<EventOf<M>> {
        let event = |(position, (thread, happened))| Event {
            client: Client { thread, task: 0 },
            at: Duration::from_micros(position),
            happened,
        };
        (0..).zip(happened).map(event).collect()
    }

    use Exchange::{Put, Take};
    use Happened::{Invoked, Returned};
    use SetOperation::{Get, Insert, Remove};

    fn check_set(happened: Vec<(usize, Happened<SetOperation, bool>)>) -> Verdict {
        check::<Set>(&events::<Set>(happened))
    }

    #[test]
    fn nothing_is_explained() {
        assert_eq!(check_set(vec![]), Verdict::Explained);
    }

    #[test]
    fn a_get_may_take_effect_before_an_insert_that_overlaps_it() {
        let overlapping =
            vec![(0, Invoked(Insert(1))), (1, Invoked(Get(1))), (0, Returned(true)), (1, Returned(false))];
        assert_eq!(check_set(overlapping), Verdict::Explained);
    }

    #[test]
    fn a_get_sees_an_insert_that_returned_before() {
        let after =
            vec![(0, Invoked(Insert(1))), (0, Returned(true)), (1, Invoked(Get(1))), (1, Returned(false))];
        assert!(matches!(check_set(after), Verdict::Refuted(_)));
    }

    #[test]
    fn a_key_is_removed_once() {
        let mut twice = vec![(0, Invoked(Insert(1))), (0, Returned(true))];
        twice.extend([(0, Invoked(Remove(1))), (1, Invoked(Remove(1)))]);
        twice.extend([(0, Returned(true)), (1, Returned(true))]);
        assert!(matches!(check_set(twice), Verdict::Refuted(_)));
    }

    #[test]
    fn the_offending_key_is_shown_a_line_an_event() {
        let mut wrong = vec![(0, Invoked(Insert(7))), (0, Returned(true))];
        wrong.extend([(2, Invoked(Remove(8)))]);
        wrong.extend([
            (1, Invoked(Get(8))),
            (1, Returned(false)),
            (1, Invoked(Insert(8))),
            (1, Returned(false)),
        ]);
        let Verdict::Refuted(shown) = check_set(wrong) else { panic!("it is wrong") };
        assert_eq!(
            shown,
            "no order of these operations explains what they returned:\
             \n       2.000 us  thread 2 task 0  remove(8)  (never returns)\
             \n       3.000 us  thread 1 task 0  get(8)\
             \n       4.000 us  thread 1 task 0  get(8) -> false\
             \n       5.000 us  thread 1 task 0  insert(8)\
             \n       6.000 us  thread 1 task 0  insert(8) -> false"
        );
    }

    #[test]
    fn what_never_returned_may_have_taken_effect_or_not() {
        for seen in [true, false] {
            let pending = vec![(0, Invoked(Insert(1))), (1, Invoked(Get(1))), (1, Returned(seen))];
            assert_eq!(check_set(pending), Verdict::Explained, "{seen}");
        }
    }

    #[test]
    fn what_never_returned_does_not_take_effect_before_it_was_invoked() {
        let early = vec![(1, Invoked(Get(1))), (1, Returned(true)), (0, Invoked(Insert(1)))];
        assert!(matches!(check_set(early), Verdict::Refuted(_)));
    }

    #[test]
    fn what_never_returned_takes_effect_once() {
        let mut flickering = vec![(0, Invoked(Insert(1)))];
        for seen in [false, true, false] {
            flickering.extend([(1, Invoked(Get(1))), (1, Returned(seen))]);
        }
        assert!(matches!(check_set(flickering), Verdict::Refuted(_)));
    }

    #[test]
    fn a_client_may_go_on_after_an_error() {
        let mut failed = vec![(0, Invoked(Insert(1))), (0, Invoked(Get(1))), (0, Returned(false))];
        failed.extend([(0, Invoked(Get(1))), (0, Returned(true))]);
        assert_eq!(check_set(failed), Verdict::Explained);
    }

    fn sequential<O: Copy, R: Copy>(performed: &[(O, R)]) -> Vec<(usize, Happened<O, R>)> {
        performed
            .iter()
            .flat_map(|(operation, reply)| [(0, Invoked(*operation)), (0, Returned(*reply))])
            .collect()
    }

    #[test]
    fn a_stack_gives_back_in_reverse() {
        let put = [(Put(1), Reply::Done), (Put(2), Reply::Done)];
        let [reverse, order] = [[2, 1], [1, 2]].map(|taken| {
            let taken = taken.map(|value| (Take, Reply::Value(value)));
            let performed: Vec<_> = put.into_iter().chain(taken).chain([(Take, Reply::Empty)]).collect();
            check::<Stack>(&events::<Stack>(sequential(&performed)))
        });
        assert!(reverse == Verdict::Explained && matches!(order, Verdict::Refuted(_)));
    }

    #[test]
    fn a_queue_gives_back_in_order() {
        let put = [(Put(1), Reply::Done), (Put(2), Reply::Done)];
        let [reverse, order] = [[2, 1], [1, 2]].map(|taken| {
            let taken = taken.map(|value| (Take, Reply::Value(value)));
            let performed: Vec<_> = put.into_iter().chain(taken).chain([(Take, Reply::Empty)]).collect();
            check::<Queue>(&events::<Queue>(sequential(&performed)))
        });
        assert!(order == Verdict::Explained && matches!(reverse, Verdict::Refuted(_)));
    }

    #[test]
    fn concurrent_pushes_may_be_popped_in_either_order() {
        for taken in [[1, 2], [2, 1]] {
            let mut both = vec![(0, Invoked(Put(1))), (1, Invoked(Put(2)))];
            both.extend([(1, Returned(Reply::Done)), (0, Returned(Reply::Done))]);
            for value in taken {
                both.extend([(0, Invoked(Take)), (0, Returned(Reply::Value(value)))]);
            }
            assert_eq!(check::<Stack>(&events::<Stack>(both)), Verdict::Explained);
        }
    }

    #[test]
    fn a_value_is_not_lost() {
        let lost = [(Put(1), Reply::Done), (Take, Reply::Empty)];
        assert!(matches!(check::<Queue>(&events::<Queue>(sequential(&lost))), Verdict::Refuted(_)));
        let lost = [(Put(1), Reply::Done), (Take, Reply::Empty)];
        assert!(matches!(check::<Stack>(&events::<Stack>(sequential(&lost))), Verdict::Refuted(_)));
    }

    /// A history that nothing performed: clients invoke what they like and are told what comes to mind.
    fn made_up<M: Model<Operation = Exchange, Returned = Reply>>(rng: &mut SmallRng) -> Vec<EventOf<M>> {
        let (mut happened, mut open, mut values) = (Vec::new(), [None; 3], 0);
        for _ in 0..rng.random_range(6..16) {
            let client = rng.random_range(0..open.len());
            let event = match open[client].take() {
                None => {
                    let operation = if rng.random_range(0..2) == 0 { Put(values) } else { Take };
                    values += u64::from(operation != Take);
                    open[client] = Some(operation);
                    Invoked(operation)
                }
                // It fails, and the client goes on.
                Some(_) if rng.random_range(0..8) == 0 => continue,
                Some(Put(_)) => Returned(Reply::Done),
                Some(Take) => {
                    let drawn = rng.random_range(0..=values);
                    Returned(Reply::of((drawn < values).then_some(drawn)))
                }
            };
            happened.push((client, event));
        }
        events::<M>(happened)
    }

    /// The search without knowing what becomes of values.
    fn is_explained_naively<M: Model>(events: &[EventOf<M>]) -> bool {
        let mut actions = Vec::new();
        for (process, call) in calls::<M>(events).into_iter().enumerate() {
            let (position, returned) = call.returned.unzip();
            let fate = Fate { earliest: 0, latest: usize::MAX };
            let step = Step { operation: call.operation, returned, fate };
            actions.push((call.invoked, process, Action::Call(step.clone())));
            actions.push((position.unwrap_or(usize::MAX), process, Action::Response(step)));
        }
        actions.sort_by_key(|(position, ..)| *position);
        let actions: Vec<_> = actions.into_iter().map(|(_, process, action)| (process, action)).collect();
        STEPS_LEFT.set(u64::MAX);
        actions.is_empty() || WGLChecker::<Sequential<M>>::is_linearizable(History::from_actions(actions))
    }

    fn fates_change_nothing<M: Model<Operation = Exchange, Returned = Reply>>() {
        let mut explained = 0;
        for seed in 0..4000 {
            let events = made_up::<M>(&mut SmallRng::seed_from_u64(seed));
            let verdict = check::<M>(&events);
            assert_eq!(
                verdict == Verdict::Explained,
                is_explained_naively::<M>(&events),
                "{seed}: {verdict:?}"
            );
            explained += i32::from(verdict == Verdict::Explained);
        }
        assert!((400..3600).contains(&explained), "{explained} of 4000 are explained");
    }

    #[test]
    fn fates_change_nothing_of_what_is_found_about_stacks() {
        fates_change_nothing::<Stack>();
    }

    #[test]
    fn fates_change_nothing_of_what_is_found_about_queues() {
        fates_change_nothing::<Queue>();
    }

    #[test]
    fn a_search_has_a_limit() {
        // Nine values in any order, none of which helps: the queue is not empty.
        let each = |happened: fn(u64) -> Happened<Exchange, Reply>| {
            (0..9).map(move |value| (value as usize, happened(value)))
        };
        let mut hard: Vec<_> =
            each(|value| Invoked(Put(value))).chain(each(|_| Returned(Reply::Done))).collect();
        hard.extend([(0, Invoked(Take)), (0, Returned(Reply::Empty))]);
        hard.extend(each(|_| Invoked(Take)).chain(each(|value| Returned(Reply::Value(value)))));
        assert_eq!(check::<Queue>(&events::<Queue>(hard)), Verdict::Undecided);
    }
}
