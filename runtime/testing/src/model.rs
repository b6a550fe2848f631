//! Models: what a structure does when one thread uses it.

use std::fmt::Debug;
use std::hash::Hash;

use farfield::sim::{Client, Event};

/// A structure as one thread sees it: its sequential specification.
///
/// Three types and [`step`](Self::step) make a model. All other methods have defaults; they make the search faster, or reports shorter.
///
/// ```
/// use std::collections::BTreeMap;
/// use farfield_testing::Model;
///
/// struct Map;
///
/// #[derive(Clone, Debug, PartialEq)]
/// enum Operation {
///     Insert(u64, u64),
///     Scan,
/// }
///
/// #[derive(Clone, Debug, PartialEq)]
/// enum Returned {
///     Replaced(Option<u64>),
///     Pairs(Vec<(u64, u64)>),
/// }
///
/// impl Model for Map {
///     type Operation = Operation;
///     type Returned = Returned;
///     type State = BTreeMap<u64, u64>;
///
///     fn step(state: &mut Self::State, operation: &Operation) -> Returned {
///         match *operation {
///             Operation::Insert(key, value) => Returned::Replaced(state.insert(key, value)),
///             Operation::Scan => Returned::Pairs(state.clone().into_iter().collect()),
///         }
///     }
/// }
/// ```
pub trait Model: Sized {
    /// What can be asked of it, with its arguments.
    type Operation: Clone + Debug + PartialEq + Send + Sync;
    /// What it answers: values, ranges, and the errors that are answers (see [`Meaning`](crate::Meaning)).
    type Returned: Clone + Debug + PartialEq + Send + Sync;
    /// What it holds. The search remembers the states that it has seen, so they should be small.
    type State: Clone + Debug + Default + Eq + Hash;

    /// Performs an operation and returns the answer. Every operation is possible in every state.
    fn step(state: &mut Self::State, operation: &Self::Operation) -> Self::Returned;

    /// The state before the first operation.
    fn initial() -> Self::State {
        Self::State::default()
    }

    /// Performs an operation that returned `returned`, and returns whether it may have. To be written by a model that allows several
    /// answers in one state; the answer must then decide the state that follows. For an operation that never returned the search uses
    /// [`step`](Self::step): a model whose operations may have different *effects* in one state is sound only where all operations return.
    fn accepts(state: &mut Self::State, operation: &Self::Operation, returned: &Self::Returned) -> bool {
        Self::step(state, operation) == *returned
    }

    /// The part of the structure that an operation is about. Linearizability is local: if operations on different parts do not
    /// notice each other (the keys of a set), each part's history is searched by itself, with a state of its own. A structure with an
    /// operation on several parts at once (a scan) is one part, which is the default.
    fn part(operation: &Self::Operation) -> u64 {
        let _ = operation;
        0
    }

    /// The value that an operation puts in, if others can take it out. No two operations of a history put in the same value.
    fn puts(operation: &Self::Operation) -> Option<u64> {
        let _ = operation;
        None
    }

    /// Whether an operation takes such a value out, whichever there is.
    fn takes(operation: &Self::Operation) -> bool {
        let _ = operation;
        false
    }

    /// The value that an operation with this answer took out.
    fn taken(returned: &Self::Returned) -> Option<u64> {
        let _ = returned;
        None
    }

    /// Whether the search may give up on a state, since of two values in it one is in the way of the other, which is
    /// [certainly taken out earlier](Fate::is_before). Asked after each operation that puts a value in.
    fn is_hopeless(state: &Self::State, fates: &Fates) -> bool {
        let _ = (state, fates);
        false
    }

    /// An operation in reports.
    fn show(operation: &Self::Operation) -> String {
        format!("{operation:?}")
    }

    /// An answer in reports.
    fn show_returned(returned: &Self::Returned) -> String {
        format!("{returned:?}")
    }
}

/// An event of a model's history.
pub type EventOf<M> = Event<<M as Model>::Operation, <M as Model>::Returned>;

/// The client that looks at the structure when all others have ended.
pub const AT_THE_END: Client = Client { thread: usize::MAX, task: 0 };

/// When a value is taken out again: between two positions of the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fate {
    pub(crate) earliest: usize,
    pub(crate) latest: usize,
}

impl Fate {
    /// It is never taken out.
    pub(crate) const NEVER: Self = Self { earliest: usize::MAX, latest: usize::MAX };

    /// Whether an operation that returned took it out.
    pub(crate) fn is_known(self) -> bool {
        self.latest != usize::MAX
    }

    /// Whether it is certainly taken out before another.
    pub fn is_before(self, other: Self) -> bool {
        self.latest < other.earliest
    }
}

/// What becomes of each value of a history.
#[derive(Clone, Debug)]
pub struct Fates {
    /// By value, in order.
    pub(crate) known: Vec<(u64, Fate)>,
    /// Of the values that no operation returned.
    pub(crate) others: Fate,
}

impl Fates {
    /// Nothing is known.
    pub(crate) fn unknown() -> Self {
        Self { known: Vec::new(), others: Fate { earliest: 0, latest: usize::MAX } }
    }

    /// What becomes of a value.
    pub fn of(&self, value: u64) -> Fate {
        let found = self.known.binary_search_by_key(&value, |(value, _)| *value);
        found.map_or(self.others, |index| self.known[index].1)
    }
}
