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

/// Is not ready at its first poll.
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

/// Giving way and sleeping.
pub(crate) trait Tasks: Operations {
    /// Gives way to the thread's other tasks, and to other threads, once.
    async fn give_way(&self) {
        self.serves_requests();
        match self.timer(|sim, task| sim.yield_now(task)) {
            Some(timer) => drop(timer.await),
            None => pend_once(self).await,
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
