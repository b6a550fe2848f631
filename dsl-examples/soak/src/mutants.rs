//! Mutants: the structures with planted bugs, made by the build script from [`planted`](crate::planted). The mutants of a structure are one module, whose
//! functions choose among their bodies by `active`. Without the feature `mutants` there are none, but the book's; then a build takes half of the time.

// Edits may leave items unused, and mutants need not pass lints.
#![allow(unused, unreachable_pub, clippy::all, clippy::pedantic)]

use std::cell::Cell;

use crate::planted::PLANTED;
use crate::planted_runtime::PLANTED_IN_RUNTIME;
use crate::subject::Subject;

thread_local! {
    /// The number of the planted bug that the thread's run has, or 0.
    static ACTIVE: Cell<usize> = const { Cell::new(0) };
}

/// Plants a bug in this thread, by its number in [`PLANTED`], from 1 on; 0 plants none. Each thread of a run calls this first.
pub(crate) fn activate(number: usize) {
    ACTIVE.set(number);
}

/// The number of the bug that is planted in this thread, or 0.
fn active() -> usize {
    ACTIVE.get()
}

/// All planted bugs that the soak of a structure must detect: the mutants, and structures on a runtime with a planted bug.
pub fn planted() -> impl Iterator<Item = Subject> {
    MUTANTS.iter().copied().chain(PLANTED_IN_RUNTIME.iter().filter_map(Subject::on_broken_runtime))
}

include!(concat!(env!("OUT_DIR"), "/structures.rs"));
