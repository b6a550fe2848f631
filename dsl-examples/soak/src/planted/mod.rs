//! The planted bugs: each breaks one invariant of a structure or of the runtime, and must be found.
//!
//! A checker that finds nothing proves something only if it finds what is there. So each bug below must be caught within
//! 1,000 seeds by the check that its entry names. `soak --planted` hunts them; `soak --planted --list` prints this table.
//!
//! Most bugs are edits of a structure's source, the one that users read: the build script replaces a passage or a few and
//! compiles the result. A passage that it does not find exactly once fails the build, so a change of a structure can not
//! quietly disarm a bug. Bugs of the runtime are options of the cluster's URL, and their structures are unchanged.
//!
//! Two bugs of one structure never break the same invariant, else one of them proves nothing that the other does not.

mod harris_list;
mod hash_set;
mod lazy_list;
mod lazy_list_naive;
mod ms_queue;
mod runtime;
mod treiber_stack;

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

/// The planted bugs by structure, and those of the runtime.
pub const PLANTED: [&[Planted]; 7] = [
    lazy_list::BUGS,
    lazy_list_naive::BUGS,
    harris_list::BUGS,
    hash_set::BUGS,
    treiber_stack::BUGS,
    ms_queue::BUGS,
    runtime::BUGS,
];

/// All planted bugs.
pub fn all() -> impl Iterator<Item = &'static Planted> {
    PLANTED.into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_two_bugs_have_one_name() {
        let mut names = HashSet::new();
        for bug in all() {
            assert!(names.insert(bug.name), "{}", bug.name);
        }
    }

    #[test]
    fn each_bug_breaks_an_invariant_of_its_own() {
        let mut broken = HashSet::new();
        for bug in all() {
            assert!(!bug.invariant.is_empty() && !bug.why.is_empty(), "{} says too little", bug.name);
            let of = if bug.bug.is_in_runtime() { "the runtime" } else { bug.structure.name() };
            assert!(broken.insert((of, bug.invariant)), "{}: another bug breaks this, too", bug.name);
        }
    }

    #[test]
    fn no_bug_is_caught_by_the_end_of_time_alone() {
        assert!(all().all(|bug| bug.caught_by != Check::OutOfTime));
    }
}
