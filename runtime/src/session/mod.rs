//! A session: this process's connection to a cluster, its runs, and the compute threads of a run.
//!
//! | module | what it has |
//! |---|---|
//! | [`state`] | [`Cluster`], and what all threads of a process share |
//! | [`url`] | what `local:nodes=2` means |
//! | [`backing`] | where far memory is, and how threads get at it |
//! | [`contents`], [`meaning`] | what memory nodes and the simulator are told of words |
//! | [`member_state`] | how this process stands with its cluster |
//! | [`run`], [`runs`] | the threads of one run; the runs under way |
//! | [`group`] | a run of several processes |
//! | [`thread`] | [`ComputeThread`] |
//! | [`tasks`], [`random`] | what a program does with one: tasks, time, memory, random numbers |
//! | [`simulated`] | what the simulator is told of a process |
//! | [`stalls`] | what a thread waits for, in words |

pub(crate) mod backing;
pub(crate) mod contents;
pub(crate) mod group;
mod meaning;
pub(crate) mod member_state;
mod random;
pub(crate) mod run;
pub(crate) mod runs;
mod simulated;
pub(crate) mod stalls;
mod state;
mod tasks;
mod thread;
pub(crate) mod url;

pub use random::Random;
pub use state::Cluster;
pub(crate) use state::{Shared, lock};
pub use tasks::Backoff;
pub use thread::ComputeThread;
