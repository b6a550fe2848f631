//! `Stack` and `Queue`: values are put in at one end, and taken out at the same or at the other.

use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;

use farfield_testing::{Fate, Fates, Model};

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
    fn take(values: &mut VecDeque<u64>) -> Option<u64>;
    /// Whether the value that is there leaves too early, or the one that was put in behind it.
    fn is_in_the_way(there: Fate, new: Fate) -> bool;
}

/// Values that are put in and taken out in this order.
#[derive(Debug)]
pub struct Values<D>(PhantomData<D>);

/// A stack: what came last leaves first.
pub type Stack = Values<LastFirst>;

/// A queue: what came first leaves first.
pub type Queue = Values<FirstFirst>;

/// The order of a stack.
#[derive(Debug)]
pub struct LastFirst;

/// The order of a queue.
#[derive(Debug)]
pub struct FirstFirst;

impl Discipline for LastFirst {
    const NAMES: [&'static str; 2] = ["push", "pop"];

    fn take(values: &mut VecDeque<u64>) -> Option<u64> {
        values.pop_back()
    }

    fn is_in_the_way(there: Fate, new: Fate) -> bool {
        there.is_before(new)
    }
}

impl Discipline for FirstFirst {
    const NAMES: [&'static str; 2] = ["enqueue", "dequeue"];

    fn take(values: &mut VecDeque<u64>) -> Option<u64> {
        values.pop_front()
    }

    fn is_in_the_way(there: Fate, new: Fate) -> bool {
        new.is_before(there)
    }
}

impl<D: Discipline> Model for Values<D> {
    type Operation = Exchange;
    type Returned = Reply;
    type State = VecDeque<u64>;

    fn step(values: &mut VecDeque<u64>, operation: &Exchange) -> Reply {
        match operation {
            Exchange::Put(value) => {
                values.push_back(*value);
                Reply::Done
            }
            Exchange::Take => Reply::of(D::take(values)),
        }
    }

    fn puts(operation: &Exchange) -> Option<u64> {
        match operation {
            Exchange::Put(value) => Some(*value),
            Exchange::Take => None,
        }
    }

    fn takes(operation: &Exchange) -> bool {
        *operation == Exchange::Take
    }

    fn taken(returned: &Reply) -> Option<u64> {
        match returned {
            Reply::Value(value) => Some(*value),
            Reply::Done | Reply::Empty => None,
        }
    }

    fn is_hopeless(values: &VecDeque<u64>, fates: &Fates) -> bool {
        let mut there = values.iter();
        let Some(new) = there.next_back().map(|new| fates.of(*new)) else { return false };
        there.any(|value| D::is_in_the_way(fates.of(*value), new))
    }

    fn show(operation: &Exchange) -> String {
        let [put, take] = D::NAMES;
        match operation {
            Exchange::Put(value) => format!("{put}({value})"),
            Exchange::Take => format!("{take}()"),
        }
    }

    fn show_returned(returned: &Reply) -> String {
        returned.to_string()
    }
}
