//! Planted bugs of structures: each breaks one invariant, and must be detected.
//!
//! A checker's silence is evidence only if it detects known bugs. The check that an entry names must detect its bug within 1,000 seeds.
//! `soak --planted` runs them; `soak --planted --list` prints this table and that of the runtime's bugs.
//!
//! A bug is an edit of the structure's source. The build script applies it; with the feature `mutants` the result, a *mutant*, is compiled, as bodies of functions
//! that a run chooses. A passage that does not occur exactly once fails each build, so no change of a structure can silently disable a bug.
//!
//! No two bugs of a structure break the same invariant: the second would be no further evidence.

mod bug;
mod harris_list;
mod hash_map;
mod hash_set;
mod inline_hash_map;
mod interlocked;
mod kv;
mod lazy_list;
mod lazy_list_naive;
mod ms_queue;
mod ordered_map;
mod priority_queue;
mod ring;
mod skip_list;
mod treiber_stack;

pub use bug::{Planted, Structure};
pub use hash_map::SMALL_TABLES;
pub use inline_hash_map::SMALL_INLINE_TABLES;
pub use interlocked::SMALL_LISTS;
pub use kv::SMALL_PAGES;
pub use ordered_map::SMALL_NODES;
pub use ring::MAPPED;
pub use skip_list::TALL_TOWERS;

/// The planted bugs by structure.
pub const PLANTED: [&[Planted]; 14] = [
    lazy_list::BUGS,
    lazy_list_naive::BUGS,
    harris_list::BUGS,
    hash_set::BUGS,
    hash_map::BUGS,
    inline_hash_map::BUGS,
    interlocked::BUGS,
    treiber_stack::BUGS,
    ms_queue::BUGS,
    ring::BUGS,
    skip_list::BUGS,
    ordered_map::BUGS,
    priority_queue::BUGS,
    kv::BUGS,
];

/// All planted bugs.
pub fn all() -> impl Iterator<Item = &'static Planted> {
    PLANTED.into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::Check;

    #[test]
    fn names_of_bugs_are_unique() {
        let mut names = HashSet::new();
        for bug in all() {
            assert!(names.insert(bug.name), "{}", bug.name);
        }
    }

    #[test]
    fn no_two_bugs_of_a_structure_break_the_same_invariant() {
        let mut broken = HashSet::new();
        for bug in all() {
            assert!(
                !bug.invariant.is_empty() && !bug.why.is_empty(),
                "{} has no invariant or no harm",
                bug.name
            );
            assert!(
                broken.insert((bug.structure.name(), bug.invariant)),
                "{}: another bug breaks the same invariant",
                bug.name
            );
        }
    }

    #[test]
    fn no_bug_is_caught_by_the_time_limit_alone() {
        assert!(all().all(|bug| bug.caught_by != Check::OutOfTime));
    }
}
