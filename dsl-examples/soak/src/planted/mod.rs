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

mod bug;
mod harris_list;
mod hash_set;
mod lazy_list;
mod lazy_list_naive;
mod ms_queue;
mod runtime;
mod treiber_stack;

pub use bug::{Bug, Check, Planted, Structure};

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
