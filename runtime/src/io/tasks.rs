//! Tasks: concurrent futures of one compute thread.
//!
//! A compute thread is its own executor and polls its tasks in turn. If all tasks wait, the thread yields to the system's other threads and polls
//! again: a completion arrives within microseconds, which is less than waking a sleeping thread takes. If no task waits for far memory or for
//! another event that only polling finds, the thread [sleeps](super::idle).
//!
//! Tasks are scoped: they borrow from the code that starts them, which waits until they have ended. Futures of the runtime also work inside the
//! combinators of other crates (`try_join`, `FuturesUnordered`, …): a pending future wakes its waker in the same poll, so executors that poll only
//! woken tasks will poll it again.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::idle::{Sleeping, Timer};
use super::posting::{Operations, Thread};
use super::task_stack::Polling;

/// Polls `future` to completion on this thread.
pub(crate) fn block_on<T: Thread, F: Future>(ct: &T, future: F) -> F::Output {
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

/// Is pending at its first poll and ready at its second.
pub(super) async fn pend_once<T: Thread>(ct: &T) {
    let mut yielded = false;
    let once = |context: &mut Context<'_>| {
        ct.io().task_stack.makes_step();
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    };
    poll_fn(once).await;
}

/// Yielding and sleeping.
pub(crate) trait Tasks: Sleeping {
    /// Yields once to the thread's other tasks and to other threads.
    async fn give_way(&self) {
        self.serves_requests();
        if let Some(timer) = self.timer(|sim, task| sim.yield_now(task)) {
            drop(timer.await);
        } else {
            // A thread that only yields would keep the epoch from advancing for ever.
            self.is_underway();
            pend_once(self).await;
        }
    }

    /// Waits for `duration` by the fabric's clock.
    async fn sleep_for(&self, duration: Duration) {
        let until = self.io().endpoint.now().saturating_add(duration);
        if let Some(timer) = self.timer(|sim, task| sim.sleep_until(until, task)) {
            return drop(timer.await);
        }
        Timer::new(self, until).await;
    }
}

impl<T: Thread> Tasks for T {}
