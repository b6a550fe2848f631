//! Models: what a structure does when nobody interferes.
//!
//! | module | what it is |
//! |---|---|
//! | [`set`] | a set of keys |
//! | [`exchange`] | a stack and a queue of values |
//! | [`register`] | a value that is read and replaced |
//! | [`linearizability`] | whether a history can be explained by a model |

pub mod exchange;
pub mod linearizability;
pub mod register;
pub mod set;

use std::fmt::{Debug, Display};
use std::hash::Hash;

use farfield::sim::Event;

/// A structure as one thread sees it. Every operation is possible in every state.
pub trait Model: Sized {
    /// What can be asked of it.
    type Operation: Copy + Debug + Send;
    /// What it answers.
    type Returned: Copy + Debug + Display + PartialEq + Send;
    /// What it holds; nothing by default.
    type State: Clone + Debug + Default + Eq + Hash;

    /// What an operation is called, with its argument.
    fn show(operation: Self::Operation) -> String;
    /// The part of the structure that an operation is about: operations on different parts do not notice each other.
    fn part(operation: Self::Operation) -> u64;
    /// The value that an operation puts in, if others can take it out. Nobody puts it in twice.
    fn puts(operation: Self::Operation) -> Option<u64>;
    /// Whether an operation takes such a value out, whichever there is.
    fn takes(operation: Self::Operation) -> bool;
    /// The value that was taken out by an operation that returned this.
    fn taken(returned: Self::Returned) -> Option<u64>;
    /// Takes a step; gives whether it can be taken in this state.
    fn step(step: &Step<Self>, state: &mut Self::State) -> bool;
}

/// An event of a model's history.
pub type EventOf<M> = Event<<M as Model>::Operation, <M as Model>::Returned>;

/// An operation, and what else is known of it from the history.
pub struct Step<M: Model> {
    /// The operation.
    pub operation: M::Operation,
    /// What it returned, if it did.
    pub returned: Option<M::Returned>,
    /// What becomes of the value that it puts in, if it puts one in.
    pub fate: Fate,
}

impl<M: Model> Step<M> {
    /// Whether it may have returned this.
    pub fn agrees(&self, returned: M::Returned) -> bool {
        self.returned.is_none_or(|known| known == returned)
    }
}

/// When a value is taken out again: between two positions of the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fate {
    earliest: usize,
    latest: usize,
}

impl Fate {
    /// It is never taken out.
    const NEVER: Self = Self { earliest: usize::MAX, latest: usize::MAX };

    /// Whether an operation that returned took it out.
    fn is_known(self) -> bool {
        self.latest != usize::MAX
    }

    /// Whether it is certainly taken out before another.
    fn is_before(self, other: Self) -> bool {
        self.latest < other.earliest
    }
}
