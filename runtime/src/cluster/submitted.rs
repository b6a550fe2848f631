//! `Submitted`: a posted chain, or a timer, to be waited for.
//!
//! The future holds a ticket and no buffer, so it can be dropped at any moment; what was posted takes effect all the same.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::ComputeThread;
use super::metrics::count;
use crate::error::Result;
use crate::io::Posted;
use farfield_fabric::chain::{Chain, Slot};

/// A posted chain, to be waited for.
pub(crate) struct Submitted<'a> {
    pub(super) ct: &'a ComputeThread,
    pub(super) posted: Option<Posted>,
    /// Whether it is a chain's, not a timer's.
    pub(super) touches_memory: bool,
}

impl<'a> Future for Submitted<'a> {
    type Output = Result<Completed<'a>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let ct = self.ct;
        ct.lineage.stir();
        let (chain, result) = match self.posted.take().expect("not polled after completion") {
            Posted::Done(chain, result) => (chain, result),
            Posted::InFlight(ticket) => match ct.endpoint.poll(ticket) {
                Poll::Ready(done) => done,
                Poll::Pending => {
                    self.posted = Some(Posted::InFlight(ticket));
                    // Only polling finds completions: a combinator that polls nothing but what has been woken must go on.
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
            },
        };
        let owed = if self.touches_memory { ct.take_owed_error() } else { None };
        Poll::Ready(match owed.map_or(result, Err) {
            Ok(()) => {
                count(&ct.counters.cas_failed, chain.failed_exchanges());
                Ok(Completed { ct, chain })
            }
            Err(error) => {
                ct.recycle(chain);
                Err(error)
            }
        })
    }
}

impl Submitted<'_> {
    /// What was posted, for whoever looks after it without waiting.
    pub(crate) fn into_posted(mut self) -> Option<Posted> {
        self.posted.take()
    }
}

impl Drop for Submitted<'_> {
    fn drop(&mut self) {
        match self.posted.take() {
            Some(Posted::InFlight(ticket)) if self.touches_memory => self.ct.leave(ticket),
            Some(Posted::InFlight(ticket)) => self.ct.endpoint.forget(ticket),
            Some(Posted::Done(chain, _)) => self.ct.recycle(chain),
            None => {}
        }
    }
}

/// A completed chain; its buffers go back to the thread when it is dropped.
pub(crate) struct Completed<'a> {
    ct: &'a ComputeThread,
    chain: Chain,
}

impl Completed<'_> {
    /// The chain itself, for whoever keeps its results; to be [recycled](ComputeThread::recycle) then.
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

impl Drop for Completed<'_> {
    fn drop(&mut self) {
        self.ct.recycle(std::mem::take(&mut self.chain));
    }
}
