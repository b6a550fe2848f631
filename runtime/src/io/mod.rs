//! A thread's I/O: posting operations to the fabric, finding their completions, and waiting.
//!
//! | module | contents |
//! |---|---|
//! | [`posting`] | [`Io`], single operations and chains; [`Thread`], the hooks of the layers above |
//! | [`endpoint`] | the fabric: an enum, so that the host fabric is inlined |
//! | [`word`] | the future of a single operation |
//! | [`single`] | the state of a single operation in flight |
//! | [`submit`] | the future of a posted chain |
//! | [`detached`] | chains without a future, and their callbacks |
//! | [`deferred`] | their errors, which the program's next operation returns, and a service's does not |
//! | [`compensation`] | exchanges that undo a thread's own words after a failed operation |
//! | [`first_poll`] | futures of operations that mostly complete when they are first polled |
//! | [`acquisition`] | the address and state of a lock that this thread takes or holds |
//! | [`tokens`], [`identities`] | the words by which locks name their owners |
//! | [`parts`] | buffers for chains of several operations |
//! | [`tasks`], [`set`], [`idle`] | polling several futures, yielding, sleeping |
//! | [`task_stack`] | the running task, the tasks that wait for it, and the holders of locks |
//! | [`retry`] | backoff between attempts |
//! | [`waits`] | the reason of each wait, for stall reports |
//! | [`metrics`], [`failures`] | counters; failures of the background thread |

mod acquisition;
mod compensation;
mod deferred;
mod detached;
mod endpoint;
mod failures;
mod first_poll;
mod identities;
mod idle;
mod metrics;
mod parts;
mod posting;
mod retry;
mod set;
mod single;
mod submit;
mod task_stack;
mod tasks;
mod tokens;
mod waits;
mod word;

#[cfg(test)]
mod tests;

pub(crate) use acquisition::{ABANDONED, Acquisition, Hold, write_lock_of_dead_writer};
pub(crate) use compensation::Exchange;
pub(crate) use endpoint::Endpoint;
pub(crate) use failures::Failures;
pub use failures::KeeperFailures;
pub(crate) use farfield_fabric::Posted;
pub(crate) use first_poll::{FirstPoll, at_first_poll};
pub(crate) use identities::{Identities, LAST_OF_SEVERAL, LOCAL_BITS};
pub(crate) use idle::Sleepers;
pub(crate) use metrics::count;
pub use metrics::{Metrics, Reclamation};
pub(crate) use parts::{ChainBuffers, CompletedOperations, Parts, ReleasedLocks};
pub(crate) use posting::{Io, IoParts, Thread};
pub(crate) use retry::Retry;
pub(crate) use set::TaskSet;
pub(crate) use single::{ReadWords, Single, poll_single};
pub(crate) use submit::{Completed, Submitted};
pub(crate) use task_stack::{OwnLock, TaskState, wait_for_locks};
pub(crate) use tasks::block_on;
pub(crate) use tokens::failed_write;
pub(crate) use waits::Purpose;

/// The traits with a thread's operations, for `use crate::io::operations::*`.
pub(crate) mod operations {
    pub(crate) use super::compensation::Compensating as _;
    pub(crate) use super::deferred::Deferring as _;
    pub(crate) use super::detached::{Detaching as _, Releases as _};
    pub(crate) use super::posting::{Operations as _, Thread as _};
    pub(crate) use super::task_stack::Polling as _;
    pub(crate) use super::tasks::Tasks as _;
    pub(crate) use super::waits::Waits as _;
}
