//! Membership: the processes of a cluster, and which of them have gone.
//!
//! | module | what it does |
//! |---|---|
//! | [`members`] | joining, leaving, evicting |
//! | [`group`] | several processes that run together |
//! | [`held_back`] | what a thread does that has retired too much: who holds reclamation back |

mod group;
mod held_back;
mod members;

pub(crate) use group::in_the_way;
