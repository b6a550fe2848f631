//! `Submitted`: the future of a posted chain or of a simulator's timer.
//!
//! The future holds a ticket and no buffer, so it can be dropped at any moment. A posted chain takes effect even then.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::deferred::Deferring as _;
use super::detached::Detaching;
use super::metrics::count;
use super::posting::{Operations, Thread};
use crate::error::{Error, Result};
use farfield_fabric::Posted;
use farfield_fabric::chain::{RawChain, Slot};

/// A function that receives the outcome of an abandoned chain.
pub(crate) type Settle<T> = Box<dyn FnOnce(&T, Option<&RawChain>)>;

/// The future of a posted chain, or of a timer.
pub(crate) struct Submitted<'a, T: Thread> {
    pub(super) ct: &'a T,
    pub(super) posted: Option<Posted>,
    /// True for a chain, false for a timer.
    pub(super) touches_memory: bool,
}

impl<'a, T: Thread> Future for Submitted<'a, T> {
    type Output = Result<Completed<'a, T>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let (ct, touches_memory) = (self.ct, self.touches_memory);
        let polled = poll_posted(ct, &mut self.posted, touches_memory, context);
        polled.map(|chain| Ok(Completed { ct, chain: chain? }))
    }
}

/// Polls a posted chain, or a timer. A chain reports the deferred error of a detached one.
fn poll_posted<T: Thread>(
    ct: &T,
    posted: &mut Option<Posted>,
    touches_memory: bool,
    context: &mut Context<'_>,
) -> Poll<Result<RawChain>> {
    ct.io().task_stack.makes_step();
    let (chain, result) = match posted.take().expect("not polled after completion") {
        Posted::Done(chain, result) => (chain, result),
        Posted::InFlight(ticket) => match ct.io().endpoint.poll(ticket) {
            Poll::Ready(done) => done,
            Poll::Pending => {
                *posted = Some(Posted::InFlight(ticket));
                // Only polling finds completions: an executor that polls only woken tasks must poll again.
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
        },
    };
    let due = if touches_memory { ct.take_deferred_error() } else { None };
    Poll::Ready(match due.map_or(result.map_err(Error::from), Err) {
        Ok(()) => {
            count(&ct.io().counters.cas_failed, chain.failed_exchanges());
            Ok(chain)
        }
        Err(error) => {
            ct.recycle(chain);
            Err(error)
        }
    })
}

impl<T: Thread> Submitted<'_, T> {
    /// Returns whether the chain is in flight, as far as is known.
    #[inline]
    pub(crate) fn is_posted(&self) -> bool {
        self.posted.is_some()
    }

    /// Detaches the chain. The functions that `add` adds receive its outcome.
    #[cold]
    pub(crate) fn abandon(&mut self, add: impl FnOnce(&mut Vec<Settle<T>>)) {
        let Some(posted) = self.posted.take() else { return };
        let mut settle = Vec::new();
        add(&mut settle);
        self.ct.detach_then(posted, move |ct, chain| {
            for settle in settle {
                settle(ct, chain);
            }
        });
    }

    /// Returns the posted chain, for a caller that polls it itself.
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

/// A completed chain. Its buffers go back to the thread when it is dropped.
pub(crate) struct Completed<'a, T: Thread> {
    ct: &'a T,
    chain: RawChain,
}

impl<T: Thread> Completed<'_, T> {
    /// Returns the chain, for a caller that keeps its results and recycles it afterwards.
    pub(crate) fn into_chain(mut self) -> RawChain {
        std::mem::take(&mut self.chain)
    }

    /// Returns the buffer that the slots of its operations index.
    pub(crate) fn buffer(&self) -> &[u64] {
        self.chain.buffer()
    }

    pub(crate) fn words(&self, slot: Slot) -> &[u64] {
        self.chain.words(slot)
    }

    pub(crate) fn word(&self, slot: Slot) -> u64 {
        self.chain.word(slot)
    }
}

impl<T: Thread> Drop for Completed<'_, T> {
    fn drop(&mut self) {
        self.ct.recycle(std::mem::take(&mut self.chain));
    }
}
