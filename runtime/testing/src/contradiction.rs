//! Contradictions: the first result of a history that the model can not explain, and how to show it.
//!
//! Every prefix of a linearizable history is linearizable. So a history that is not has a shortest prefix that is not, found by bisection.
//! It ends with a return: the first result that contradicts the model, in every order of the operations. Two more searches, each repeated
//! until it finds no new answer, list the results that the operation could have returned, and the states before it returned.

use std::fmt;
use std::time::Duration;

use farfield::sim::{Client, Event, Happened};

use crate::history::Call;
use crate::model::{EventOf, Model};
use crate::search::{Answer, Question, Seen, search};
use crate::timeline;

/// Most results and states that are listed.
const MOST_POSSIBILITIES: usize = 4;

/// Step limit of the search for each of them.
const LOOK_LIMIT: u64 = 20_000;

/// A history that a model can not explain: the shortest such prefix of one part.
pub struct Contradiction<M: Model> {
    /// The calls that were invoked before the last return.
    calls: Vec<Call<M>>,
    /// The times of all events of the history.
    times: Vec<Duration>,
    /// Index of the call that returns last.
    last: usize,
    possible: Possibilities<M::Returned>,
    states: Possibilities<M::State>,
}

/// Possible results or states.
struct Possibilities<T> {
    found: Vec<T>,
    /// True if there are no others.
    are_all: bool,
}

impl<M: Model> Contradiction<M> {
    /// Finds the contradiction in the calls of a part that no order explains.
    pub(crate) fn new(calls: &[&Call<M>], events: &[EventOf<M>], limit: u64) -> Self {
        let mut returns: Vec<usize> =
            calls.iter().filter_map(|call| call.returned.as_ref()).map(|(position, _)| *position).collect();
        returns.sort_unstable();
        // Bisect for the first return whose prefix is refuted. The prefix of the last return is.
        let (mut first, mut last) = (0, returns.len().saturating_sub(1));
        while first < last {
            let middle = usize::midpoint(first, last);
            let beginning = before(calls, returns[middle] + 1);
            match search(&by_reference(&beginning), limit, Question::Explained) {
                Answer::No => last = middle,
                Answer::Yes | Answer::Unknown => first = middle + 1,
            }
        }
        let position = returns.get(first).copied().unwrap_or_default();
        let refuted = before(calls, position + 1);
        let last = refuted
            .iter()
            .position(|call| call.returned.as_ref().is_some_and(|(returned, _)| *returned == position));
        let last = last.unwrap_or_default();
        let possible =
            possibilities(|seen| search(&by_reference(&refuted), LOOK_LIMIT, Question::Returns(last, seen)));
        let explained = before(calls, position);
        let states =
            possibilities(|seen| search(&by_reference(&explained), LOOK_LIMIT, Question::EndsIn(seen)));
        let times = events.iter().map(|event| event.at).collect();
        Self { calls: refuted, times, last, possible, states }
    }

    /// The events of the prefix. The last one is the contradicting return.
    pub fn events(&self) -> Vec<EventOf<M>> {
        let mut events: Vec<(usize, EventOf<M>)> = Vec::new();
        for call in &self.calls {
            let mut add = |position: usize, happened| {
                events.push((position, Event { client: call.client, at: self.times[position], happened }));
            };
            add(call.invoked, Happened::Invoked(call.operation.clone()));
            if let Some((position, returned)) = &call.returned {
                add(*position, Happened::Returned(returned.clone()));
            }
        }
        events.sort_by_key(|(position, _)| *position);
        events.into_iter().map(|(_, event)| event).collect()
    }

    /// The client whose result contradicts the model.
    pub fn client(&self) -> Client {
        self.calls[self.last].client
    }

    /// The operation with the contradicting result.
    pub fn operation(&self) -> &M::Operation {
        &self.calls[self.last].operation
    }

    /// Its result.
    pub fn returned(&self) -> Option<&M::Returned> {
        self.calls[self.last].returned.as_ref().map(|(_, returned)| returned)
    }

    /// Results that it could have returned, in orders that explain all other calls; at most four.
    pub fn possible(&self) -> &[M::Returned] {
        &self.possible.found
    }

    /// States of the model just before it returned, in the orders that explain the others; at most four.
    pub fn states(&self) -> &[M::State] {
        &self.states.found
    }
}

/// The calls as known at a position of the history: those invoked before, with the results returned before.
fn before<M: Model>(calls: &[&Call<M>], position: usize) -> Vec<Call<M>> {
    let begun = calls.iter().filter(|call| call.invoked < position);
    let known = begun.map(|call| {
        let returned = call.returned.clone().filter(|(returned, _)| *returned < position);
        Call { returned, ..(*call).clone() }
    });
    known.collect()
}

fn by_reference<M: Model>(calls: &[Call<M>]) -> Vec<&Call<M>> {
    calls.iter().collect()
}

/// Repeats a search until it finds no new possibility.
fn possibilities<T: Clone + PartialEq>(ask: impl Fn(&Seen<T>) -> Answer) -> Possibilities<T> {
    let mut seen = Seen::new();
    loop {
        let answer = ask(&seen);
        let new = seen.now.take().filter(|_| answer == Answer::Yes);
        let Some(new) = new.filter(|_| seen.before.len() < MOST_POSSIBILITIES) else {
            return Possibilities { found: seen.before, are_all: answer == Answer::No };
        };
        seen.before.push(new);
    }
}

impl<T> Possibilities<T> {
    /// Formats the list.
    fn show(&self, show: impl Fn(&T) -> String) -> String {
        let shown: Vec<String> = self.found.iter().map(show).collect();
        let more = if self.are_all { "" } else { " or another" };
        format!("{}{more}", shown.join(" or "))
    }
}

impl<M: Model> fmt::Display for Contradiction<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "no order of these operations explains their results:")?;
        f.write_str(&timeline::draw(&self.calls, &self.times, Some(self.last)))?;
        let Call { client, operation, returned, .. } = &self.calls[self.last];
        let Some((position, returned)) = returned else { return Ok(()) };
        let (operation, returned) = (M::show(operation), M::show_returned(returned));
        let at = timeline::time(self.times[*position]);
        write!(f, "The history up to {} is linearizable", at.trim_start())?;
        if !self.states.found.is_empty() {
            write!(f, "; the state is then {}", self.states.show(|state| format!("{state:?}")))?;
        }
        let with_tasks = self.calls.iter().any(|call| call.client.task > 0);
        write!(f, ".\n`{operation}` of {} then returned {returned}", timeline::name(*client, with_tasks))?;
        match &self.possible {
            Possibilities { found, .. } if found.is_empty() => write!(f, ", which is not possible."),
            possible => write!(f, ", where only {} is possible.", possible.show(M::show_returned)),
        }
    }
}

impl<M: Model> fmt::Debug for Contradiction<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
