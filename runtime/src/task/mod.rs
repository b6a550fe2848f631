//! Tasks: how one compute thread does several things at once.
//!
//! A compute thread is its own executor. It polls its tasks in turn; one that waits for far memory, for a lock or for
//! another thread gives way to the next. Where all of them wait, the thread lets the system run others, and polls again:
//! on a network the answer is microseconds away, which no sleeping thread would be woken in. Where none of them waits for far
//! memory, or for what can only be polled, the thread [sleeps](idle).
//!
//! Tasks are scoped: they borrow from the code that starts them and are over when it goes on. Futures of the runtime also
//! work inside the combinators of other crates (`try_join`, `FuturesUnordered`, …): what waits wakes its waker at once, so
//! whoever polls only what was woken polls it again.

mod backoff;
mod idle;
pub(crate) mod lineage;
mod set;

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;

pub use backoff::Backoff;
use idle::Timer;
pub(crate) use idle::{Idle, Sleepers};
use set::TaskSet;

use crate::cluster::ComputeThread;
use crate::error::Result;
use farfield_sim::Work;

/// Polls `future` to completion on this thread.
pub(crate) fn block_on<F: Future>(ct: &ComputeThread, future: F) -> F::Output {
    let mut future = pin!(future);
    let mut context = Context::from_waker(ct.idle_state().waker());
    loop {
        let seen = ct.poll_begins();
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        ct.poll_ends(seen);
        ct.wait_for_wake();
    }
}

/// Is not ready at its first poll.
async fn pend_once(ct: &ComputeThread) {
    let mut yielded = false;
    let once = |context: &mut Context<'_>| {
        ct.lineage.stir();
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    };
    poll_fn(once).await;
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
        TaskSet::new(self, (0..count).map(|task| body(task))).await
    }

    /// Gives way to the thread's other tasks, and to other threads, once.
    pub async fn yield_now(&self) {
        self.hear_requests();
        match self.timer(|sim, task| sim.yield_now(task)) {
            Some(timer) => drop(timer.await),
            None => pend_once(self).await,
        }
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
        if let Some(sim) = self.endpoint.virtual_time() {
            sim.compute(work.into());
        }
    }

    /// Waits for `duration` by the fabric's clock. The thread sleeps if it has nothing else to do.
    pub async fn sleep(&self, duration: Duration) {
        let until = self.endpoint.now().saturating_add(duration);
        if let Some(timer) = self.timer(|sim, task| sim.sleep_until(until, task)) {
            return drop(timer.await);
        }
        Timer::new(self, until).await;
    }

    /// What to wait with between attempts of a retry loop.
    pub fn backoff(&self) -> Backoff<'_> {
        Backoff::new(self)
    }
}
