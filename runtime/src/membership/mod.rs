//! Membership: the processes of a cluster, and the eviction of dead ones.
//!
//! | module | contents |
//! |---|---|
//! | [`members`] | joining, leaving, evicting |
//! | [`group`] | several processes that run together |
//! | [`held_back`] | the limit of retired memory, and the holder of reclamation that a failure names |

mod group;
mod held_back;
mod members;

pub(crate) use group::in_the_way;
