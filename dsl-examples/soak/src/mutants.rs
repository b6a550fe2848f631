//! Mutants: copies of the structures with a planted bug each, made by the build script from [`planted`](crate::planted). Without the
//! feature `mutants` there are none; nor for lints, documentation and the tests of modules, which need none and would take minutes more.

// Edits may leave items unused, and mutants need not pass lints.
#![allow(unused, unreachable_pub, clippy::all, clippy::pedantic)]

use crate::planted::PLANTED;
use crate::planted_runtime::PLANTED_IN_RUNTIME;
use crate::subject::Subject;

/// All planted bugs that the soak of a structure must detect: the mutants, and structures on a runtime with a planted bug.
pub fn planted() -> impl Iterator<Item = Subject> {
    MUTANTS.iter().copied().chain(PLANTED_IN_RUNTIME.iter().filter_map(Subject::on_broken_runtime))
}

include!(concat!(env!("OUT_DIR"), "/sound.rs"));
#[cfg(not(any(clippy, doc, test)))]
include!(concat!(env!("OUT_DIR"), "/mutants.rs"));

/// None.
#[cfg(any(clippy, doc, test))]
pub static MUTANTS: &[Subject] = &[];
