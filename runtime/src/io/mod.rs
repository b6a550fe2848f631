//! A thread's I/O: what a compute thread asks of its fabric, and how it waits.
//!
//! | module | what it has |
//! |---|---|
//! | [`posting`] | [`Io`], single operations and chains; [`Thread`], what the layers above do around them |
//! | [`endpoint`] | the fabric: an enum of those that there are |
//! | [`submit`] | a posted chain, to be waited for |
//! | [`detached`] | chains that no future waits for, and their callbacks |
//! | [`compensation`] | words that must not stay as they are if an operation fails |
//! | [`results`] | places for what the operations of a chain bring |
//! | [`acquisition`] | where a lock is, and how this thread holds it |
//! | [`tokens`], [`identities`] | the words by which locks name their owners |
//! | [`tasks`], [`set`], [`idle`] | polling several futures, giving way, sleeping |
//! | [`task_stack`] | which task runs, and which holds a lock |
//! | [`retry`] | waiting between attempts |
//! | [`waits`] | what a thread waits for, for reports |
//! | [`metrics`] | counters |

mod acquisition;
mod compensation;
mod detached;
mod endpoint;
mod failures;
mod identities;
mod idle;
mod metrics;
mod posting;
mod results;
mod retry;
mod set;
mod submit;
mod task_stack;
mod tasks;
mod tokens;
mod waits;

#[cfg(test)]
mod tests;

pub(crate) use acquisition::{ABANDONED, Acquisition, Hold, right_of_dead_writer};
pub(crate) use compensation::Exchange;
pub(crate) use detached::Releases;
pub(crate) use endpoint::Endpoint;
pub(crate) use failures::Failures;
pub use failures::KeeperFailures;
pub(crate) use farfield_fabric::Posted;
pub(crate) use identities::{Identities, LAST_OF_SEVERAL, LOCAL_BITS};
pub(crate) use idle::Sleepers;
pub(crate) use metrics::count;
pub use metrics::{Metrics, Reclamation};
pub(crate) use posting::{Io, IoParts, Thread};
pub(crate) use results::{Found, Results, ResultsPool};
pub(crate) use retry::Retry;
pub(crate) use set::TaskSet;
pub(crate) use submit::{Completed, Submitted};
pub(crate) use task_stack::{OwnLock, TaskState, wait_for_locks};
pub(crate) use tasks::block_on;
pub(crate) use tokens::failed_write;
pub(crate) use waits::Purpose;

/// The operations of a thread, for `use crate::io::operations::*`.
pub(crate) mod operations {
    pub(crate) use super::compensation::Compensating as _;
    pub(crate) use super::detached::Detaching as _;
    pub(crate) use super::posting::{Operations as _, Thread as _};
    pub(crate) use super::task_stack::Polling as _;
    pub(crate) use super::tasks::Tasks as _;
    pub(crate) use super::waits::Waits as _;
}
