//! `History`: what a concurrent run did to an object, as its clients saw it.
//!
//! A history is all that a checker of linearizability needs: which client invoked what, what it got back, and in which
//! order these events happened. In the simulator the order is that of virtual time, and one OS thread executes all
//! compute threads, so the order in which events are recorded is exact. On other fabrics it is the order in which
//! clients came to the history's lock, which lies between each operation's effect and its caller, so it is sound too.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::cluster::ComputeThread;
use crate::error::Result;

/// A recorded sequence of invocations (`O`) and returns (`R`).
///
/// ```
/// use farfield::prelude::*;
/// use farfield::sim::{Happened, History};
///
/// #[remote]
/// struct Register {
///     value: Atomic<u64>,
/// }
///
/// # fn main() -> farfield::Result<()> {
/// let history = History::new();
/// Cluster::connect("sim:seed=1")?.run(2, async |ct| {
///     let root = ct.root_or_init("register", async || {
///         Register::new_in(ct, Register::init()).await?.write(ct).await
///     }).await?;
///     history.record(ct, "add", async || root.value().fetch_add(ct, 1).await).await?;
///     Ok(())
/// })?;
/// let returned = history.into_events().into_iter().filter_map(|event| match event.happened {
///     Happened::Returned(earlier) => Some(earlier),
///     Happened::Invoked(_) => None,
/// });
/// assert!(returned.eq([0, 1]));
/// # Ok(())
/// # }
/// ```
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
    /// The task's index among those of [`ComputeThread::tasks`]; 0 outside.
    pub task: usize,
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
    pub async fn record(
        &self,
        ct: &ComputeThread,
        operation: O,
        perform: impl AsyncFnOnce() -> Result<R>,
    ) -> Result<R> {
        let client = Client { thread: ct.index(), task: ct.task() };
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
