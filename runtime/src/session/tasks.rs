//! The interface of a compute thread to programs: tasks, time, memory, counters.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use farfield_sim::Work;

use super::thread::ComputeThread;
use crate::error::{self, Result};
use crate::io::operations::*;
use crate::io::{Reclamation, Retry, TaskSet};
use crate::memory::usage::HeapUse;
use crate::memory::worker::Worker;

/// Waits between attempts of a retry loop, each time longer, by a random amount. The thread's other tasks run meanwhile: one of them may hold the
/// awaited resource.
///
/// Made by [`ComputeThread::backoff`], for one loop. In reports of stalls (see [`Cluster::connect`](crate::Cluster::connect)) all its waits count as
/// one, unless some time passes between two.
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
    /// Waits for the next attempt.
    pub async fn wait(&mut self) {
        self.0.wait().await;
    }
}

impl ComputeThread {
    /// Runs `count` tasks on this thread, `body(0)` to `body(count - 1)`. Returns their results, in order. While one waits, the others run.
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
    /// The first error, in time. The other tasks are dropped at their current `await`.
    pub async fn tasks<R>(&self, count: usize, body: impl AsyncFn(usize) -> Result<R>) -> Result<Vec<R>> {
        let body = &body;
        TaskSet::new(&**self, (0..count).map(|task| body(task))).await
    }

    /// Yields once to the thread's other tasks, and to other threads. No round trip.
    pub async fn yield_now(&self) {
        self.give_way().await;
    }

    /// Charges the thread for a computation. On `sim:` the thread's clock advances by the cost of the work, and all its tasks post and handle their
    /// next operations so much later. On other fabrics, and with `compute=0`, it has no effect, since real work takes real time.
    ///
    /// The runtime's own work is charged automatically: each posted and completed operation, and hits of [`Cached`](crate::Cached). No round trip,
    /// and no other task runs meanwhile.
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
    /// ct.compute(Work::CachedAccess); // a hit of the program's own cache
    /// # Ok(()) })?;
    /// # Ok::<(), farfield::Error>(())
    /// ```
    pub fn compute(&self, work: impl Into<Work>) {
        if let Some(sim) = self.io.endpoint.virtual_time() {
            sim.compute(work.into());
        }
    }

    /// Waits for `duration` by the fabric's clock. The thread sleeps if its other tasks wait, too. No round trip.
    pub async fn sleep(&self, duration: Duration) {
        self.sleep_for(duration).await;
    }

    /// Does some work of this thread, or cancels it at its current `await` when `deadline` is over, by the fabric's clock. Operations that it has
    /// posted take effect. No round trip.
    ///
    /// ```
    /// use std::time::Duration;
    /// # use farfield::prelude::*;
    /// # Cluster::connect("local:size=64KiB")?.run(1, async |ct| {
    /// let never = async || loop {
    ///     ct.sleep(Duration::from_secs(60)).await;
    /// };
    /// let late = ct.within(Duration::from_millis(1), never()).await;
    /// assert!(matches!(late, Err(farfield::Error::DeadlineExceeded { .. })));
    /// # let _: Result<()> = late;
    /// # Ok(()) })?;
    /// # Ok::<(), farfield::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of the work; [`Error::DeadlineExceeded`](crate::Error::DeadlineExceeded).
    pub async fn within<R>(&self, deadline: Duration, work: impl Future<Output = Result<R>>) -> Result<R> {
        let (mut work, mut sleep) = (pin!(work), pin!(self.sleep_for(deadline)));
        poll_fn(|context| {
            if let Poll::Ready(done) = work.as_mut().poll(context) {
                return Poll::Ready(done);
            }
            let deadline_us = deadline.as_micros();
            let late = || Err(error::DeadlineExceeded { deadline_us, has_begun: true }.into());
            sleep.as_mut().poll(context).map(|()| late())
        })
        .await
    }

    /// Returns a backoff for the attempts of a retry loop.
    pub fn backoff(&self) -> Backoff<'_> {
        Backoff(Retry::new(self.worker()))
    }

    // ---- memory ------------------------------------------------------------------------------------------------

    /// Returns the state of reclamation, with the thread or process that delays it. No round trip if all compute threads are in one process;
    /// otherwise one.
    ///
    /// # Errors
    /// Those of a READ.
    pub async fn reclamation(&self) -> Result<Reclamation> {
        self.worker().reclamation().await
    }

    /// Tries to advance the epoch, and frees objects of this thread whose grace period is over. Returns their number.
    ///
    /// Retiring does so occasionally, without waiting. No round trip if all compute threads are in one process, or another thread of this process is
    /// advancing the epoch; otherwise two, at most.
    pub async fn try_reclaim(&self) -> u64 {
        self.worker().try_reclaim().await
    }

    /// Frees all objects that this thread has retired, at a point that the caller knows to be quiescent: no thread of the cluster uses a pointer that
    /// it loaded before. Returns their number. No round trip.
    ///
    /// Such a point is a barrier that every thread passes without a guard, and without another task at work. A barrier also ends the meaning of each
    /// [`PinnedEpoch`](crate::PinnedEpoch) from before. Threads that synchronize otherwise must not use one: neither themselves nor through a handle that does, as
    /// those of the hash maps do.
    ///
    /// # Errors
    /// [`Error::Pinned`](crate::Error::Pinned) if this thread holds a guard.
    pub async fn reclaim_deferred(&self) -> Result<u64> {
        self.worker().reclaim_deferred().await
    }

    /// Returns the memory use of each memory node. One round trip: a chain to each node, all posted together.
    ///
    /// Threads count their allocations locally, and publish the counts when they end and when they call this. The figures are exact when all other
    /// threads have ended.
    ///
    /// # Errors
    /// Those of a READ.
    pub async fn heap_use(&self) -> Result<Vec<HeapUse>> {
        self.worker().heap_use().await
    }

    /// Waits for all operations that were posted without waiting ([`Chain::post`](crate::Chain::post)). No round trip of its own.
    ///
    /// # Errors
    /// The first error of these operations, unless an operation in between has returned it.
    pub async fn flush(&self) -> Result<()> {
        self.flush_detached().await
    }
}
