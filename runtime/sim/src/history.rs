//! `History`: the operations on an object in a concurrent run, as its clients observed them.
//!
//! A history is the input of a linearizability checker: the invocations and returns of each client, in order. In the simulator one OS thread executes
//! all compute threads, so the recorded order is exactly that of virtual time. On other fabrics clients are ordered by the history's lock. A client
//! takes it before its operation can take effect and after the operation has returned, so that order is sound, too.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// A recorded sequence of invocations (`O`) and returns (`R`).
#[derive(Debug)]
pub struct History<O, R> {
    events: Mutex<Vec<Event<O, R>>>,
}

/// One event of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event<O, R> {
    /// The client. It executes one operation at a time.
    pub client: Client,
    /// The time, by the fabric's clock.
    pub at: Duration,
    /// The beginning or end of an operation.
    pub happened: Happened<O, R>,
}

/// A task of a compute thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Client {
    /// The thread's index in its run.
    pub thread: usize,
    /// The task's index among those of `ComputeThread::tasks`; 0 outside of tasks.
    pub task: usize,
}

/// A compute thread, as a history needs it: a client with a clock.
pub trait Clocked {
    /// Returns the running task.
    fn client(&self) -> Client;

    /// Returns the time, by the fabric's clock.
    fn now(&self) -> Duration;
}

/// An operation's beginning or end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happened<O, R> {
    /// The client began this operation.
    Invoked(O),
    /// The client's operation returned this value. An operation that failed, or whose thread died, never returns: it may have taken effect or
    /// not.
    Returned(R),
}

impl<O, R> Default for History<O, R> {
    fn default() -> Self {
        Self { events: Mutex::default() }
    }
}

impl<O, R: Clone> History<O, R> {
    /// Makes an empty history.
    pub fn new() -> Self {
        Self::default()
    }

    /// Performs an operation, and records its invocation and its return.
    ///
    /// # Errors
    /// Those of the operation.
    pub async fn record<E>(
        &self,
        ct: &impl Clocked,
        operation: O,
        perform: impl AsyncFnOnce() -> Result<R, E>,
    ) -> Result<R, E> {
        let client = ct.client();
        self.push(Event { client, at: ct.now(), happened: Happened::Invoked(operation) });
        let returned = perform().await?;
        self.push(Event { client, at: ct.now(), happened: Happened::Returned(returned.clone()) });
        Ok(returned)
    }

    fn push(&self, event: Event<O, R>) {
        // Each push leaves the vector whole.
        self.events.lock().unwrap_or_else(PoisonError::into_inner).push(event);
    }

    /// Returns all events, in order.
    pub fn into_events(self) -> Vec<Event<O, R>> {
        self.events.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}
