//! What a planted bug is, and what must catch it.

/// The structures that are soaked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Structure {
    /// An ordered set whose updates lock two nodes.
    LazyList,
    /// The same, a round trip for each step.
    LazyListNaive,
    /// An ordered set without locks.
    HarrisList,
    /// A set of many lazy lists.
    HashSet,
    /// A stack without locks.
    TreiberStack,
    /// A queue without locks.
    MsQueue,
    /// A value of several words: no example, but a subject for what the examples do not use.
    Register,
}

/// What can find something wrong with a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// No order of the operations explains what they returned.
    Linearizability,
    /// Freed memory was used or freed again, or a pointer led nowhere.
    Memory,
    /// Memory was still allocated when the structure had been destroyed.
    Leak,
    /// All threads waited for each other, or tried the same again without any effect.
    Stuck,
    /// The run took longer than its limit. That says little about the cause, so no planted bug is caught by it.
    OutOfTime,
    /// An operation failed, or found the structure out of order at a quiescent point.
    Error,
}

/// A planted bug, and what must catch it.
#[derive(Clone, Copy, Debug)]
pub struct Planted {
    /// Its name: a structure, or `runtime`, and the mistake.
    pub name: &'static str,
    /// The structure in which it is planted, or that runs on the broken runtime.
    pub structure: Structure,
    /// The mistake.
    pub bug: Bug,
    /// What should hold and does not, in a few words. No other bug of the structure breaks the same.
    pub invariant: &'static str,
    /// How that does harm.
    pub why: &'static str,
    /// The check that must catch it.
    pub caught_by: Check,
    /// Whether it does harm only if threads die.
    pub needs_faults: bool,
}

/// How a bug is planted.
#[derive(Clone, Copy, Debug)]
pub enum Bug {
    /// A passage of the structure's source is replaced.
    Edit {
        /// The passage, which occurs exactly once. Indentation does not count.
        search: &'static str,
        /// Its replacement.
        replacement: &'static str,
    },
    /// Several passages of the source are replaced, one after the other: each with what replaces it.
    Edits(&'static [(&'static str, &'static str)]),
    /// The runtime is broken: options that the cluster's URL gets besides, `plant=…` among them.
    Runtime(&'static str),
}

impl Structure {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::LazyList,
        Self::LazyListNaive,
        Self::HarrisList,
        Self::HashSet,
        Self::TreiberStack,
        Self::MsQueue,
        Self::Register,
    ];

    /// What it is called on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::LazyList => "lazy-list",
            Self::LazyListNaive => "lazy-list-naive",
            Self::HarrisList => "harris-list",
            Self::HashSet => "hash-set",
            Self::TreiberStack => "treiber-stack",
            Self::MsQueue => "ms-queue",
            Self::Register => "register",
        }
    }
}

impl Check {
    /// What it is called in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Linearizability => "linearizability",
            Self::Memory => "memory",
            Self::Leak => "leak",
            Self::Stuck => "stuck",
            Self::OutOfTime => "out-of-time",
            Self::Error => "error",
        }
    }
}

impl Bug {
    /// Whether it is in the runtime, and not in a structure.
    pub fn is_in_runtime(self) -> bool {
        matches!(self, Self::Runtime(_))
    }
}
