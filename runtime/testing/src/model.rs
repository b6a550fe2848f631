//! Sequential models of structures, and the fates of values.

use std::fmt::Debug;
use std::hash::Hash;

use farfield::sim::{Client, Event};

/// The sequential specification of a structure.
///
/// Three types and [`step`](Self::step) make a model. All other methods have defaults; they speed up the search or shorten reports.
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
    /// An operation with its arguments.
    type Operation: Clone + Debug + PartialEq + Send + Sync;
    /// A result: values, ranges, and errors that are results (see [`Meaning`](crate::Meaning)).
    type Returned: Clone + Debug + PartialEq + Send + Sync;
    /// The contents. The search remembers visited states, so they should be small.
    type State: Clone + Debug + Default + Eq + Hash;

    /// Performs an operation and returns its result. Every operation is possible in every state.
    fn step(state: &mut Self::State, operation: &Self::Operation) -> Self::Returned;

    /// The initial state.
    fn initial() -> Self::State {
        Self::State::default()
    }

    /// Performs an operation that returned `returned`; returns whether the model allows this result. Override it if several results are
    /// possible in one state; the result must then determine the next state. For an operation that never returned the search uses
    /// [`step`](Self::step). So a model in which an operation may have different *effects* in one state is sound only if all operations
    /// return.
    fn accepts(state: &mut Self::State, operation: &Self::Operation, returned: &Self::Returned) -> bool {
        Self::step(state, operation) == *returned
    }

    /// The part of the structure that an operation accesses. Linearizability is local: if operations on different parts are independent
    /// (the keys of a set), each part's history is searched separately, with a state of its own. By default the structure is one part. A
    /// structure with an atomic operation on several parts (a snapshot) must be one part; one that is not atomic has
    /// [`components`](Self::components).
    fn part(operation: &Self::Operation) -> u64 {
        let _ = operation;
        0
    }

    /// The operations that an operation consists of, if it is not atomic: a batch, or an iteration during which others change the structure.
    /// Each component is on one part and takes effect by itself, at any moment between the invocation and the return of the whole; without
    /// a result it may also never do so. `None`, the default, is an atomic operation.
    ///
    /// `returned` is `None` if the operation never returned. `parts` are those of all atomic operations and of the components for which
    /// `parts` is not needed, in order: an iteration answers for each of them, present or not.
    fn components(
        operation: &Self::Operation,
        returned: Option<&Self::Returned>,
        parts: &[u64],
    ) -> Option<Components<Self>> {
        let _ = (operation, returned, parts);
        None
    }

    /// The value that an operation inserts, if other operations can remove it. No two operations of a history insert the same value. `None` if a value can be
    /// noticed that nobody removes, for example because a queue is full: an insertion without an answer is left out of the search if no operation returns its value.
    fn puts(operation: &Self::Operation) -> Option<u64> {
        let _ = operation;
        None
    }

    /// Returns whether an operation removes some such value.
    fn takes(operation: &Self::Operation) -> bool {
        let _ = operation;
        false
    }

    /// The value that an operation with this result removed, or returned if it is one that removes none.
    fn taken(returned: &Self::Returned) -> Option<u64> {
        let _ = returned;
        None
    }

    /// Returns whether the search may prune a state: one value blocks another that is [certainly removed earlier](Fate::is_before). Called
    /// after each operation that inserts a value.
    fn is_hopeless(state: &Self::State, fates: &Fates) -> bool {
        let _ = (state, fates);
        false
    }

    /// Formats an operation for reports.
    fn show(operation: &Self::Operation) -> String {
        format!("{operation:?}")
    }

    /// Formats a result for reports.
    fn show_returned(returned: &Self::Returned) -> String {
        format!("{returned:?}")
    }
}

/// Operations with their results, if known.
pub type Components<M> = Vec<(<M as Model>::Operation, Option<<M as Model>::Returned>)>;

/// An event of a model's history.
pub type EventOf<M> = Event<<M as Model>::Operation, <M as Model>::Returned>;

/// The client of the final operations, which run when all threads have ended.
pub const AT_THE_END: Client = Client { thread: usize::MAX, task: 0 };

/// The time at which a value is removed: between two positions of the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fate {
    pub(crate) earliest: usize,
    pub(crate) latest: usize,
}

impl Fate {
    /// The value is never removed.
    pub(crate) const NEVER: Self = Self { earliest: usize::MAX, latest: usize::MAX };

    /// Returns whether an operation that returned removed it.
    pub(crate) fn is_known(self) -> bool {
        self.latest != usize::MAX
    }

    /// Returns whether it is certainly removed before another.
    pub fn is_before(self, other: Self) -> bool {
        self.latest < other.earliest
    }
}

/// The fates of a history's values.
#[derive(Clone, Debug)]
pub struct Fates {
    /// Sorted by value.
    pub(crate) known: Vec<(u64, Fate)>,
    /// Fate of the values that no operation returned.
    pub(crate) others: Fate,
    /// Values that an operation returned without removing them.
    pub(crate) seen: Vec<u64>,
}

impl Fates {
    /// No information on any value.
    pub(crate) fn unknown() -> Self {
        Self { known: Vec::new(), others: Fate { earliest: 0, latest: usize::MAX }, seen: Vec::new() }
    }

    /// The fate of a value.
    pub fn of(&self, value: u64) -> Fate {
        let found = self.known.binary_search_by_key(&value, |(value, _)| *value);
        found.map_or(self.others, |index| self.known[index].1)
    }
}
