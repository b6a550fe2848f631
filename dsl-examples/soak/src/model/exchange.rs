//! `Stack` and `Queue`: values are put in at one end, and taken out at the same or at the other.

use std::collections::VecDeque;
use std::fmt;

use super::{Fate, Model, Step};

/// What can be asked of a stack or a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exchange {
    /// Puts a value in: `push`, `enqueue`.
    Put(u64),
    /// Takes a value out, if there is one: `pop`, `dequeue`.
    Take,
}

/// What a stack or a queue answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A value was put in.
    Done,
    /// This value was taken out.
    Value(u64),
    /// There was nothing to take out.
    Empty,
}

impl Reply {
    /// The answer to a [`Take`](Exchange::Take).
    pub fn of(taken: Option<u64>) -> Self {
        taken.map_or(Self::Empty, Self::Value)
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => f.write_str("done"),
            Self::Value(value) => write!(f, "{value}"),
            Self::Empty => f.write_str("empty"),
        }
    }
}

/// Which value is taken out first.
pub trait Discipline {
    /// What [`Put`](Exchange::Put) and [`Take`](Exchange::Take) are called.
    const NAMES: [&'static str; 2];

    /// Takes out the value whose turn it is. New values are put in at the back.
    fn take(values: &mut VecDeque<(u64, Fate)>) -> Option<(u64, Fate)>;
    /// Whether the value that is there leaves too early, or the one to be put in behind it.
    fn is_in_the_way(there: Fate, new: Fate) -> bool;
}

/// A stack: what came last leaves first.
#[derive(Debug)]
pub struct Stack;

impl Discipline for Stack {
    const NAMES: [&'static str; 2] = ["push", "pop"];

    fn take(values: &mut VecDeque<(u64, Fate)>) -> Option<(u64, Fate)> {
        values.pop_back()
    }

    fn is_in_the_way(there: Fate, new: Fate) -> bool {
        there.is_before(new)
    }
}

/// A queue: what came first leaves first.
#[derive(Debug)]
pub struct Queue;

impl Discipline for Queue {
    const NAMES: [&'static str; 2] = ["enqueue", "dequeue"];

    fn take(values: &mut VecDeque<(u64, Fate)>) -> Option<(u64, Fate)> {
        values.pop_front()
    }

    fn is_in_the_way(there: Fate, new: Fate) -> bool {
        new.is_before(there)
    }
}

impl<D: Discipline> Model for D {
    type Operation = Exchange;
    type Returned = Reply;
    /// The values and what becomes of them.
    type State = VecDeque<(u64, Fate)>;

    fn show(operation: Exchange) -> String {
        let [put, take] = D::NAMES;
        match operation {
            Exchange::Put(value) => format!("{put}({value})"),
            Exchange::Take => format!("{take}()"),
        }
    }

    fn part(_: Exchange) -> u64 {
        0
    }

    fn puts(operation: Exchange) -> Option<u64> {
        match operation {
            Exchange::Put(value) => Some(value),
            Exchange::Take => None,
        }
    }

    fn takes(operation: Exchange) -> bool {
        operation == Exchange::Take
    }

    fn taken(returned: Reply) -> Option<u64> {
        match returned {
            Reply::Value(value) => Some(value),
            Reply::Done | Reply::Empty => None,
        }
    }

    fn step(step: &Step<Self>, values: &mut Self::State) -> bool {
        match step.operation {
            Exchange::Put(value) => {
                let fits = !values.iter().any(|(_, there)| D::is_in_the_way(*there, step.fate));
                values.push_back((value, step.fate));
                fits && step.agrees(Reply::Done)
            }
            Exchange::Take => match D::take(values) {
                // Another operation takes this one, so not one whose result nobody knows.
                Some((_, fate)) if fate.is_known() && step.returned.is_none() => false,
                taken => step.agrees(Reply::of(taken.map(|(value, _)| value))),
            },
        }
    }
}
