//! Administration of a whole cluster: inspection, checkpoints, and collection of memory that dead processes have lost.
//!
//! | module | contents |
//! |---|---|
//! | [`inspect`] | members, roots and memory use: `farfield status` |
//! | [`dump`] | objects as text, by their description |
//! | [`checkpoint`] | saves a cluster to a file, and restores it |
//! | [`pace`] | makes background work interruptible |
//! | [`collect`] | frees memory that is not reachable from any root, while the cluster has one member |

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
