//! Administration of a whole cluster: inspection, checkpoints, and collection of memory that dead processes have lost.
//!
//! | module | contents |
//! |---|---|
//! | [`inspect`] | members, roots and memory use: `farfield status` |
//! | [`dump`] | objects as text, by their description |
//! | [`checkpoint`] | saves a cluster to a file, and restores it |
//! | [`pace`] | makes background work interruptible |
//! | [`sole_member`] | excludes other processes while one works alone |
//! | [`collect`] | frees memory that is not reachable from any root, while the cluster has one member |
//! | [`description`] | descriptions of types in far memory |

#[cfg(target_os = "linux")]
pub(crate) mod checkpoint;
pub(crate) mod collect;
mod description;
mod dump;
mod inspect;
mod pace;
mod sole_member;
#[cfg(all(test, target_os = "linux"))]
mod tests;

pub use dump::{Dumped, DumpedTarget, DumpedValue};
pub use inspect::{MemberStatus, RootStatus, Status};
pub(crate) use pace::Pace;
