//! Models of a stack, a queue, and a bounded queue.

use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;

use farfield_testing::{Fate, Fates, Model};

/// Operations of a stack or a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exchange {
    /// Inserts a value: `push`, `enqueue`, `try_push`.
    Put(u64),
    /// Removes a value, if there is one: `pop`, `dequeue`, `try_pop`.
    Take,
}

/// Results of a stack or a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The value was inserted.
    Done,
    /// This value was removed.
    Value(u64),
    /// The structure was empty.
    Empty,
    /// It was full.
    Full,
}

impl Reply {
    /// The result of a [`Take`](Exchange::Take).
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
            Self::Full => f.write_str("full"),
        }
    }
}

/// The order of removal.
pub trait Discipline {
    /// The names of [`Put`](Exchange::Put) and [`Take`](Exchange::Take).
    const NAMES: [&'static str; 2];
    /// The most values.
    const MOST: usize = usize::MAX;

    /// Removes the next value. New values are inserted at the back.
    fn take(values: &mut VecDeque<u64>) -> Option<u64>;
    /// Returns whether the two fates contradict the order, if the second value was inserted after the first.
    fn is_contradicted(earlier: Fate, later: Fate) -> bool;
}

/// Values with an order of removal.
#[derive(Debug)]
pub struct Values<D>(PhantomData<D>);

/// A stack: last in, first out.
pub type Stack = Values<LastFirst>;

/// A queue: first in, first out.
pub type Queue = Values<FirstFirst>;

/// A bounded queue.
pub type Bounded = Values<FewFirst>;

/// The order of a stack.
#[derive(Debug)]
pub struct LastFirst;

/// The order of a queue.
#[derive(Debug)]
pub struct FirstFirst;

/// The order of a bounded queue.
#[derive(Debug)]
pub struct FewFirst;

impl Discipline for LastFirst {
    const NAMES: [&'static str; 2] = ["push", "pop"];

    fn take(values: &mut VecDeque<u64>) -> Option<u64> {
        values.pop_back()
    }

    fn is_contradicted(earlier: Fate, later: Fate) -> bool {
        earlier.is_before(later)
    }
}

impl Discipline for FirstFirst {
    const NAMES: [&'static str; 2] = ["enqueue", "dequeue"];

    fn take(values: &mut VecDeque<u64>) -> Option<u64> {
        values.pop_front()
    }

    fn is_contradicted(earlier: Fate, later: Fate) -> bool {
        later.is_before(earlier)
    }
}

impl Discipline for FewFirst {
    const NAMES: [&'static str; 2] = ["try_push", "try_pop"];
    const MOST: usize = 2;

    fn take(values: &mut VecDeque<u64>) -> Option<u64> {
        values.pop_front()
    }

    fn is_contradicted(earlier: Fate, later: Fate) -> bool {
        later.is_before(earlier)
    }
}

impl<D: Discipline> Model for Values<D> {
    type Operation = Exchange;
    type Returned = Reply;
    type State = VecDeque<u64>;

    fn step(values: &mut VecDeque<u64>, operation: &Exchange) -> Reply {
        match operation {
            Exchange::Put(_) if values.len() >= D::MOST => Reply::Full,
            Exchange::Put(value) => {
                values.push_back(*value);
                Reply::Done
            }
            Exchange::Take => Reply::of(D::take(values)),
        }
    }

    fn puts(operation: &Exchange) -> Option<u64> {
        match operation {
            // A value that nobody returns is not seen in an unbounded queue. In a bounded one it leaves no room for another.
            Exchange::Put(value) if D::MOST == usize::MAX => Some(*value),
            Exchange::Put(_) | Exchange::Take => None,
        }
    }

    fn takes(operation: &Exchange) -> bool {
        *operation == Exchange::Take
    }

    fn taken(returned: &Reply) -> Option<u64> {
        match returned {
            Reply::Value(value) => Some(*value),
            Reply::Done | Reply::Empty | Reply::Full => None,
        }
    }

    fn is_hopeless(values: &VecDeque<u64>, fates: &Fates) -> bool {
        let mut earlier = values.iter();
        let Some(last) = earlier.next_back().map(|last| fates.of(*last)) else { return false };
        earlier.any(|value| D::is_contradicted(fates.of(*value), last))
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
