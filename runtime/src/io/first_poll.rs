//! Futures of operations that mostly complete when they are first polled.
//!
//! On an immediate fabric an operation is executed by its first poll. An `async fn` for such an operation keeps its arguments in a state machine whose
//! poll is rarely inlined, which costs more than the operation. [`at_first_poll`] keeps the first poll apart: a function that completes the operation
//! or returns the arguments of the `async fn` that does. It is a function rather than a closure where it should be inlined at every use, since only
//! functions can be marked so.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

/// The first poll of an operation: a closure, or a struct of its arguments, whose method can be inlined at every use, unlike a closure.
pub(crate) trait FirstPoll {
    type Output;
    /// The arguments of the rest.
    type Rest;
    /// Completes the operation, or returns what is needed for the rest of it.
    fn poll_first(self) -> Result<Self::Output, Self::Rest>;
}

impl<R, B, F: FnOnce() -> Result<R, B>> FirstPoll for F {
    type Output = R;
    type Rest = B;

    #[inline(always)]
    #[allow(clippy::inline_always)] // as below
    fn poll_first(self) -> Result<R, B> {
        self()
    }
}

pin_project! {
    #[project = Projected]
    #[must_use = "futures do nothing unless polled"]
    enum AtFirstPoll<F, G, S> {
        // `None` once it has been called.
        First { first: Option<(F, G)> },
        Slow { #[pin] slow: S },
    }
}

/// Returns a future that polls `first`. If that returns no output, but arguments for `rest`, the future completes with the output of `rest`.
#[inline(always)]
#[allow(clippy::inline_always)] // or the arguments are moved through memory
pub(crate) fn at_first_poll<F: FirstPoll, S: Future<Output = F::Output>>(
    first: F,
    rest: impl FnOnce(F::Rest) -> S,
) -> impl Future<Output = F::Output> {
    AtFirstPoll::First { first: Some((first, rest)) }
}

impl<F: FirstPoll, G, S> Future for AtFirstPoll<F, G, S>
where
    G: FnOnce(F::Rest) -> S,
    S: Future<Output = F::Output>,
{
    type Output = F::Output;

    #[inline(always)]
    #[allow(clippy::inline_always)] // as above
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        if let Projected::First { first } = self.as_mut().project() {
            let (first, rest) = first.take().expect("not polled after completion");
            match first.poll_first() {
                Ok(output) => return Poll::Ready(output),
                Err(arguments) => self.set(Self::Slow { slow: rest(arguments) }),
            }
        }
        poll_slow(self, context)
    }
}

#[cold]
fn poll_slow<F, G, S: Future>(
    future: Pin<&mut AtFirstPoll<F, G, S>>,
    context: &mut Context<'_>,
) -> Poll<S::Output> {
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
        use std::future::ready;
        let mut context = Context::from_waker(std::task::Waker::noop());
        let mut poll =
            |first: Result<u8, u8>| Box::pin(at_first_poll(|| first, ready)).as_mut().poll(&mut context);
        assert_eq!(poll(Ok(1)), Poll::Ready(1));
        assert_eq!(poll(Err(2)), Poll::Ready(2));
    }
}
