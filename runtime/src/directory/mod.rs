//! The directory: what threads agree on by name.
//!
//! | module | what it does |
//! |---|---|
//! | [`roots`] | named roots: `publish`, `lookup`, `root_or_init` |
//! | [`barrier`] | all threads of a run wait for each other |

mod barrier;
mod roots;

pub(crate) use roots::RootSeen;
