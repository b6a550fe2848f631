//! `Submitted`: a posted chain, or a timer, to be waited for.
//!
//! The future holds a ticket and no buffer, so it can be dropped at any moment; what was posted takes effect all the same.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::detached::Detaching;
use super::metrics::count;
use super::posting::{Operations, Thread};
use crate::error::{Error, Result};
use farfield_fabric::Posted;
use farfield_fabric::chain::{Chain, Slot};

/// A posted chain, to be waited for.
pub(crate) struct Submitted<'a, T: Thread> {
    pub(super) ct: &'a T,
    pub(super) posted: Option<Posted>,
    /// Whether it is a chain's, not a timer's.
    pub(super) touches_memory: bool,
}

impl<'a, T: Thread> Future for Submitted<'a, T> {
    type Output = Result<Completed<'a, T>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let ct = self.ct;
        ct.io().task_stack.makes_step();
        let (chain, result) = match self.posted.take().expect("not polled after completion") {
            Posted::Done(chain, result) => (chain, result),
            Posted::InFlight(ticket) => match ct.io().endpoint.poll(ticket) {
                Poll::Ready(done) => done,
                Poll::Pending => {
                    self.posted = Some(Posted::InFlight(ticket));
                    // Only polling finds completions: a combinator that polls nothing but what has been woken must go on.
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
            },
        };
        let due = if self.touches_memory { ct.take_deferred_error() } else { None };
        Poll::Ready(match due.map_or(result.map_err(Error::from), Err) {
            Ok(()) => {
                count(&ct.io().counters.cas_failed, chain.failed_exchanges());
                Ok(Completed { ct, chain })
            }
            Err(error) => {
                ct.recycle(chain);
                Err(error)
            }
        })
    }
}

impl<T: Thread> Submitted<'_, T> {
    /// What was posted, for whoever looks after it without waiting.
    pub(crate) fn into_posted(mut self) -> Option<Posted> {
        self.posted.take()
    }
}

impl<T: Thread> Drop for Submitted<'_, T> {
    fn drop(&mut self) {
        match self.posted.take() {
            Some(Posted::InFlight(ticket)) if self.touches_memory => self.ct.detach(ticket),
            Some(Posted::InFlight(ticket)) => self.ct.io().endpoint.forget(ticket),
            Some(Posted::Done(chain, _)) => self.ct.recycle(chain),
            None => {}
        }
    }
}

/// A completed chain; its buffers go back to the thread when it is dropped.
pub(crate) struct Completed<'a, T: Thread> {
    ct: &'a T,
    chain: Chain,
}

impl<T: Thread> Completed<'_, T> {
    /// The chain itself, for whoever keeps its results; to be recycled then.
    pub(crate) fn into_chain(mut self) -> Chain {
        std::mem::take(&mut self.chain)
    }

    pub(crate) fn words(&self, slot: &Slot) -> &[u64] {
        self.chain.words(slot)
    }

    pub(crate) fn word(&self, slot: &Slot) -> u64 {
        self.chain.word(slot)
    }
}

impl<T: Thread> Drop for Completed<'_, T> {
    fn drop(&mut self) {
        self.ct.recycle(std::mem::take(&mut self.chain));
    }
}
