//! Futures of operations that mostly complete when they are first polled.
//!
//! On an immediate fabric an operation is executed by its first poll. An `async fn` for such an operation keeps its arguments in a state machine whose
//! poll is rarely inlined, which costs more than the operation. [`at_first_poll`] keeps the first poll apart: a closure, inlined into the caller, which
//! completes the operation or makes the future that does.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

pin_project! {
    #[project = Projected]
    #[must_use = "futures do nothing unless polled"]
    enum AtFirstPoll<F, S> {
        // `None` once it has been called.
        First { first: Option<F> },
        Slow { #[pin] slow: S },
    }
}

/// Returns a future whose first poll calls `first`. If that returns no output, but another future, completes with that future's output.
#[inline(always)]
#[allow(clippy::inline_always)] // or the arguments are moved through memory
pub(crate) fn at_first_poll<R, S: Future<Output = R>>(
    first: impl FnOnce() -> Result<R, S>,
) -> impl Future<Output = R> {
    AtFirstPoll::First { first: Some(first) }
}

impl<R, S: Future<Output = R>, F: FnOnce() -> Result<R, S>> Future for AtFirstPoll<F, S> {
    type Output = R;

    #[inline(always)]
    #[allow(clippy::inline_always)] // as above
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<R> {
        if let Projected::First { first } = self.as_mut().project() {
            let first = first.take().expect("not polled after completion");
            match first() {
                Ok(output) => return Poll::Ready(output),
                Err(slow) => self.set(Self::Slow { slow }),
            }
        }
        poll_slow(self, context)
    }
}

#[cold]
fn poll_slow<R, S: Future<Output = R>, F>(
    future: Pin<&mut AtFirstPoll<F, S>>,
    context: &mut Context<'_>,
) -> Poll<R> {
    match future.project() {
        Projected::Slow { slow } => slow.poll(context),
        Projected::First { .. } => unreachable!("its first poll is over"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_poll_completes_it_or_makes_the_future_that_does() {
        use std::future::{Ready, ready};
        let mut context = Context::from_waker(std::task::Waker::noop());
        let mut poll =
            |first: Result<u8, Ready<u8>>| Box::pin(at_first_poll(|| first)).as_mut().poll(&mut context);
        assert_eq!(poll(Ok(1)), Poll::Ready(1));
        assert_eq!(poll(Err(ready(2))), Poll::Ready(2));
    }
}
