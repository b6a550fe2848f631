//! `History`: what a concurrent run did to an object, as its clients saw it.
//!
//! A history is all that a checker of linearizability needs: which client invoked what, what it got back, and in which
//! order these events happened. In the simulator the order is that of virtual time, and one OS thread executes all
//! compute threads, so the order in which events are recorded is exact. On other fabrics it is the order in which
//! clients came to the history's lock, which lies between each operation's effect and its caller, so it is sound too.

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
    /// Who it happened to. A client does one operation at a time.
    pub client: Client,
    /// When, by the fabric's clock.
    pub at: Duration,
    /// What.
    pub happened: Happened<O, R>,
}

/// A task of a compute thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Client {
    /// The thread's index in its run.
    pub thread: usize,
    /// The task's index among those of `ComputeThread::tasks`; 0 outside.
    pub task: usize,
}

/// What performs operations and tells the time: a compute thread.
pub trait Clocked {
    /// The task that runs.
    fn client(&self) -> Client;

    /// The time, by the fabric's clock.
    fn now(&self) -> Duration;
}

/// An operation's beginning or end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happened<O, R> {
    /// The client began this operation.
    Invoked(O),
    /// The client's operation returned this. One that failed, or whose thread died, never returns: it may have taken
    /// effect or not.
    Returned(R),
}

impl<O, R> Default for History<O, R> {
    fn default() -> Self {
        Self { events: Mutex::default() }
    }
}

impl<O, R: Clone> History<O, R> {
    /// An empty history.
    pub fn new() -> Self {
        Self::default()
    }

    /// Performs an operation and records when it was invoked and what it returned.
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

    /// All events, in the order in which they happened.
    pub fn into_events(self) -> Vec<Event<O, R>> {
        self.events.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}
