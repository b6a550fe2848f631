//! The work of a call, and the channel of its answer.

use std::any::Any;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::Poll;

use futures_channel::oneshot;

use crate::error::{self, Error, Result};
use crate::session::ComputeThread;
use farfield_fabric::host::{Moment, first_line};

/// A call that has begun.
pub(super) type Task<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// A call that no thread has begun.
pub(super) trait Work: Send {
    /// Begins the call on a compute thread. The future completes when the work has completed or panicked, or its caller has cancelled. The captures
    /// of the work are dropped before the caller is notified.
    fn begin(self: Box<Self>, ct: &ComputeThread) -> Task<'_>;

    /// Sets a deadline after which the work is not begun.
    fn expire_at(&mut self, at: Moment);
}

/// The work of a call whose answer is an `R`.
pub(super) struct CallWork<F, R> {
    pub(super) work: F,
    pub(super) answer: oneshot::Sender<Result<R>>,
    /// The call's deadline.
    pub(super) until: Option<Moment>,
}

impl<F, R> Work for CallWork<F, R>
where
    F: AsyncFnOnce(&ComputeThread) -> Result<R> + Send + 'static,
    R: Send + 'static,
{
    fn begin(self: Box<Self>, ct: &ComputeThread) -> Task<'_> {
        Box::pin(async move {
            let Self { work, mut answer, until } = *self;
            if answer.is_canceled() || until.is_some_and(Moment::has_come) {
                return;
            }
            // In a box of its own, so that a panic of its drop can be caught, too.
            let mut future = Box::pin(async move { work(ct).await });
            let mut is_watched = false;
            let outcome = poll_fn(|context| {
                // The waker is the thread's and does not change, so it is registered once.
                let is_cancelled = if std::mem::replace(&mut is_watched, true) {
                    answer.is_canceled()
                } else {
                    answer.poll_canceled(context).is_ready()
                };
                if is_cancelled {
                    return Poll::Ready(None);
                }
                match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
                    Ok(Poll::Pending) => Poll::Pending,
                    Ok(Poll::Ready(outcome)) => Poll::Ready(Some(outcome)),
                    Err(panic) => Poll::Ready(Some(Err(panicked(panic)))),
                }
            });
            let outcome = outcome.await;
            let dropped = catch_unwind(AssertUnwindSafe(|| drop(future)));
            let outcome = match (outcome, dropped) {
                (Some(Ok(_)), Err(panic)) => Some(Err(panicked(panic))),
                (outcome, _) => outcome,
            };
            if let Some(outcome) = outcome
                && let Err(unwanted) = answer.send(outcome)
            {
                // This is the last drop of the caller's values that may panic.
                let _ = catch_unwind(AssertUnwindSafe(|| drop(unwanted)));
            }
        })
    }

    fn expire_at(&mut self, at: Moment) {
        self.until = Some(at);
    }
}

fn panicked(panic: Box<dyn Any + Send>) -> Error {
    let message = first_line(panic).into();
    Error::from(error::CallPanicked { message })
}
