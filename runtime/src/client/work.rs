//! A call on its way: what it does, and where the answer goes.

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
    /// Begins it on a compute thread. The future ends when the work is done, has panicked, or is not wanted any more; what it
    /// held is dropped before the caller hears of it.
    fn begin(self: Box<Self>, ct: &ComputeThread) -> Task<'_>;

    /// It need not be begun from then on.
    fn expire_at(&mut self, at: Moment);
}

/// The work of a caller that waits for an `R`.
pub(super) struct Answered<F, R> {
    pub(super) work: F,
    pub(super) answer: oneshot::Sender<Result<R>>,
    /// When nobody waits any more.
    pub(super) until: Option<Moment>,
}

impl<F, R> Work for Answered<F, R>
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
            // In a box of its own, so that dropping it can be guarded, too.
            let mut future = Box::pin(async move { work(ct).await });
            let mut is_watched = false;
            let outcome = poll_fn(|context| {
                // The waker is the thread's, and stays the same: it is left once.
                let is_unwanted = if std::mem::replace(&mut is_watched, true) {
                    answer.is_canceled()
                } else {
                    answer.poll_canceled(context).is_ready()
                };
                if is_unwanted {
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
                // Dropping it is the last of what the caller's code may panic in.
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
