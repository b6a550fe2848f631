//! What is done to a cluster as a whole: looking at it, saving it, taking back what dead processes have left.
//!
//! | module | what it does |
//! |---|---|
//! | [`inspect`] | members, roots, memory: `farfield status` |
//! | [`dump`] | what objects look like |
//! | [`checkpoint`] | all of a cluster in a file, and back |
//! | [`pace`] | lets background work be interrupted |
//! | [`collect`] | takes back memory that no root leads to, while one process is alone |

#[cfg(target_os = "linux")]
pub(crate) mod checkpoint;
pub(crate) mod collect;
mod dump;
mod inspect;
mod pace;
#[cfg(all(test, target_os = "linux"))]
mod tests;

pub use dump::{Dumped, DumpedValue};
pub use inspect::{MemberStatus, RootStatus, Status};
pub(crate) use pace::Pace;
