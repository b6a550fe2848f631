//! The directory: names that all threads of a cluster share.
//!
//! | module | contents |
//! |---|---|
//! | [`roots`] | named roots: `publish`, `lookup`, `root_or_init` |
//! | [`barrier`] | all threads of a run wait for each other |

mod barrier;
mod roots;

pub(crate) use roots::RootSeen;
