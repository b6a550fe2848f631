//! Futures that are dropped at one of their awaits.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use farfield::Result;

/// Polls a future at most so often, and drops it. Returns its result, if it was done.
pub(crate) async fn polled<R>(most: usize, work: impl Future<Output = Result<R>>) -> Result<Option<R>> {
    let (mut work, mut polls) = (pin!(work), 0);
    poll_fn(|context| {
        polls += 1;
        match work.as_mut().poll(context) {
            Poll::Ready(done) => Poll::Ready(done.map(Some)),
            Poll::Pending if polls == most => Poll::Ready(Ok(None)),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}
