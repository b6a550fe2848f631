//! A session: this process's connection to a cluster, its runs, and the compute threads of a run.
//!
//! | module | contents |
//! |---|---|
//! | [`state`] | [`Cluster`], and the state that all threads of a process share |
//! | [`url`] | cluster URLs and their options |
//! | [`backing`] | the location of far memory, and the endpoints of threads |
//! | [`contents`] | the words that memory nodes write |
//! | [`member_state`] | whether this process is connected or evicted |
//! | [`run`], [`runs`] | the threads of one run; the active runs |
//! | [`group`] | a run of several processes |
//! | [`thread`] | [`ComputeThread`] |
//! | [`tasks`], [`random`] | the interface to programs: tasks, time, memory, random numbers |
//! | [`simulated`] | names of words, objects and processes for the simulator |
//! | [`stalls`] | descriptions of waits, for reports of stalls |

pub(crate) mod backing;
pub(crate) mod contents;
pub(crate) mod group;
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
