//! What a program does with a compute thread: tasks and time, memory, counters.

use std::time::Duration;

use farfield_sim::Work;

use super::thread::ComputeThread;
use crate::error::Result;
use crate::io::operations::*;
use crate::io::{Reclamation, Retry, TaskSet};
use crate::memory::usage::HeapUse;
use crate::memory::worker::Worker;

/// Waits a little longer each time, by a random amount, and always gives way to the thread's other tasks: whoever holds
/// what one waits for may be one of them.
///
/// Made by [`ComputeThread::backoff`], for one loop: where stalls are reported (see [`Cluster::connect`](crate::Cluster::connect)), all of its waits
/// count as one wait, unless some time passes between two.
///
/// ```
/// # use farfield::prelude::*;
/// async fn increment_slowly(counter: Place<'_, Atomic<u64>>, ct: &ComputeThread) -> farfield::Result<()> {
///     let mut backoff = ct.backoff();
///     loop {
///         let seen = counter.load(ct).await?;
///         if counter.compare_exchange(ct, seen, seen + 1).await?.is_ok() {
///             return Ok(());
///         }
///         backoff.wait().await;
///     }
/// }
/// ```
pub struct Backoff<'a>(Retry<'a, Worker>);

impl Backoff<'_> {
    /// Waits.
    pub async fn wait(&mut self) {
        self.0.wait().await;
    }
}

impl ComputeThread {
    /// Runs `count` tasks on this thread, `body(0)` to `body(count - 1)`, and gives what they return, in order. While
    /// one waits, the others go on.
    ///
    /// ```
    /// # farfield::Cluster::connect("local:size=64KiB")?.run(1, async |ct| {
    /// let squares = ct.tasks(3, async |task| Ok(task * task)).await?;
    /// assert_eq!(squares, [0, 1, 4]);
    /// # Ok(()) })?;
    /// # Ok::<(), farfield::Error>(())
    /// ```
    ///
    /// # Errors
    /// The first error, in time; the other tasks are dropped where they wait.
    pub async fn tasks<R>(&self, count: usize, body: impl AsyncFn(usize) -> Result<R>) -> Result<Vec<R>> {
        let body = &body;
        TaskSet::new(&**self, (0..count).map(|task| body(task))).await
    }

    /// Gives way to the thread's other tasks, and to other threads, once.
    pub async fn yield_now(&self) {
        self.give_way().await;
    }

    /// Says that the thread computes: on `sim:` its clock moves on by what the work costs, and what it posts or handles next it posts or
    /// handles so much later, in all of its tasks. Elsewhere, and with `compute=0`, nothing happens: real work takes its own time.
    ///
    /// What the runtime does itself is charged without this: each operation that is posted and completes, and hits of
    /// [`Cached`](crate::Cached). No round trip, and no other task runs meanwhile.
    ///
    /// ```
    /// use std::time::Duration;
    /// # use farfield::prelude::*;
    /// use farfield::sim::Work;
    ///
    /// # Cluster::connect("sim:")?.run(1, async |ct| {
    /// let began = ct.now();
    /// ct.compute(Duration::from_nanos(500)); // a hash, a comparison of long keys, …
    /// assert_eq!(ct.now() - began, Duration::from_nanos(500));
    /// ct.compute(Work::CachedAccess); // a look into a cache of the program's own
    /// # Ok(()) })?;
    /// # Ok::<(), farfield::Error>(())
    /// ```
    pub fn compute(&self, work: impl Into<Work>) {
        if let Some(sim) = self.io.endpoint.virtual_time() {
            sim.compute(work.into());
        }
    }

    /// Waits for `duration` by the fabric's clock. The thread sleeps if it has nothing else to do.
    pub async fn sleep(&self, duration: Duration) {
        self.sleep_for(duration).await;
    }

    /// What to wait with between attempts of a retry loop.
    pub fn backoff(&self) -> Backoff<'_> {
        Backoff(Retry::new(self.worker()))
    }

    // ---- memory ------------------------------------------------------------------------------------------------

    /// How reclamation stands, and who holds it back. No round trip if all compute threads are in one process; otherwise one.
    ///
    /// # Errors
    /// Those of a READ.
    pub async fn reclamation(&self) -> Result<Reclamation> {
        self.worker().reclamation().await
    }

    /// Tries to advance the epoch and frees what this thread retired long enough ago; gives how many objects.
    ///
    /// Retiring does it by itself now and then, without waiting. No round trip if all compute threads are in one process,
    /// or if another thread of this process is at it; otherwise two, at most.
    pub async fn try_reclaim(&self) -> u64 {
        self.worker().try_reclaim().await
    }

    /// Frees everything that this thread has retired, at a point that the caller knows to be quiescent: no thread of
    /// the cluster holds a pointer that it loaded before. Gives how many objects. No round trip.
    ///
    /// A barrier that every thread passes without a guard is such a point.
    ///
    /// # Errors
    /// [`Error::Pinned`] if this thread holds a guard.
    pub async fn reclaim_deferred(&self) -> Result<u64> {
        self.worker().reclaim_deferred().await
    }

    /// How much memory is used on each memory node. One round trip: a chain for each of them, all posted at once.
    ///
    /// Threads count what they allocate and free for themselves, and tell when they end, and when this is called on them: the figures
    /// are exact when all others have ended.
    ///
    /// # Errors
    /// Those of a READ.
    pub async fn heap_use(&self) -> Result<Vec<HeapUse>> {
        self.worker().heap_use().await
    }

    /// Waits until everything is done that was posted without waiting ([`Chain::post`](crate::Chain::post)). No
    /// round trip of its own.
    ///
    /// # Errors
    /// The first error of what was posted, unless an operation in between has returned it.
    pub async fn flush(&self) -> Result<()> {
        self.flush_detached().await
    }
}
