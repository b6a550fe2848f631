//! A cluster in use: connecting, running threads, and the keeper, which works for a process in the background.
//!
//! | module | contents |
//! |---|---|
//! | [`connect`] | `Cluster::connect`, `run` |
//! | [`keeper`] | the background thread of a process: heartbeat, epochs, evictions, sweeping |
//! | [`simulated`] | runs of simulated threads, and their keepers |

mod connect;
pub(crate) mod keeper;
#[cfg(all(test, target_os = "linux"))]
pub(crate) mod served;
mod simulated;

pub(crate) use connect::live;
