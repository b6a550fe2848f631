//! A cluster in use: connecting, running threads, and the keeper that does a process's work in the background.
//!
//! | module | what it does |
//! |---|---|
//! | [`connect`] | `Cluster::connect`, `run` |
//! | [`keeper`] | the thread that looks after a process's part |
//! | [`simulated`] | runs of simulated threads |

mod connect;
pub(crate) mod keeper;
#[cfg(all(test, target_os = "linux"))]
pub(crate) mod served;
mod simulated;

pub(crate) use connect::live;
