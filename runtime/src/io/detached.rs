//! Detached chains: posted chains without a future.
//!
//! A chain is *detached* if its future is dropped, or if it is posted without one. It takes effect even then. Until it has, the memory that it
//! accesses must not be reused, so a detached chain pins the oldest epoch that a guard of its thread is in. A callback is stored with the chain and
//! receives its outcome, whichever operation of the thread finds the completion. Only asynchronous fabrics need this: on the others, a chain has
//! completed when `post` returns, or completes within a few polls.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use super::compensation::{Compensating, Exchange};
use super::deferred::Deferring as _;
use super::metrics::count;
use super::posting::{Operations, Thread};
use super::submit::Submitted;
use crate::epoch;
use crate::error::Result;
use farfield_fabric::chain::RawChain;
use farfield_fabric::{Posted, Ticket};
use farfield_sim::Plant;
use farfield_words::Address;

/// The number of detached chains that are polled whenever another chain is posted.
const MOST_POLLED: usize = 8;

/// Locks that a detached chain releases.
pub(crate) trait Releases<T: Thread> {
    /// The chain has released them.
    fn locks_are_released(&self, thread: &T);

    /// The chain has failed: the locks may be held still, and are to be released.
    fn release_locks(&self, thread: &T);
}

/// A detached chain in flight.
pub(crate) struct Detached<T: Thread> {
    pub(super) ticket: Ticket,
    /// Protects the memory that the chain accesses from reuse.
    pub(super) pin: epoch::Pin,
    /// True if the thread's next operation returns the chain's error.
    reports_error: bool,
    /// The callback that receives the outcome.
    then: Option<Then<T>>,
    /// The reaction to a failure. Unlike a callback it needs no allocation.
    otherwise: Otherwise<T>,
}

/// The reaction to the failure of a detached chain.
pub(crate) enum Otherwise<T: Thread> {
    Nothing,
    /// Posts this exchange, again and again until it takes effect.
    Exchange(Exchange),
    /// Releases the locks that the chain was to release.
    Releases(Rc<dyn Releases<T>>),
}

impl<T: Thread> Detached<T> {
    /// Returns whether it is an exchange of this word, or compensates for one.
    pub(super) fn is_exchange_of(&self, at: Address) -> bool {
        matches!(&self.otherwise, Otherwise::Exchange(exchange) if exchange.at == at)
    }
}

/// A callback. Its argument is the completed chain, or `None` if the chain failed.
type Then<T> = Box<dyn FnOnce(&T, Option<&RawChain>)>;

/// The future of a chain with a callback. The callback runs even if the future is dropped.
struct SubmittedThen<'a, T: Thread, R, F: FnOnce(&T, &RawChain) -> R + 'static, G: FnOnce(&T, R) + 'static> {
    submitted: Submitted<'a, T>,
    /// The callback, and the function that receives its result if the future was dropped.
    then: Option<(F, G)>,
}

impl<T: Thread, R, F: FnOnce(&T, &RawChain) -> R, G: FnOnce(&T, R)> Unpin for SubmittedThen<'_, T, R, F, G> {}

impl<T: Thread, R, F: FnOnce(&T, &RawChain) -> R, G: FnOnce(&T, R)> Future for SubmittedThen<'_, T, R, F, G> {
    type Output = Result<R>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<R>> {
        let ct = self.submitted.ct;
        // Its result may own a resource, which an error of another chain would lose.
        let done = ready!(ct.as_service(|| Pin::new(&mut self.submitted).poll(context)));
        let then = self.then.take();
        Poll::Ready(done.map(|done| {
            let (then, _) = then.expect("not polled after completion");
            let chain = done.into_chain();
            let value = then(ct, &chain);
            ct.recycle(chain);
            value
        }))
    }
}

impl<T: Thread, R, F: FnOnce(&T, &RawChain) -> R, G: FnOnce(&T, R)> Drop for SubmittedThen<'_, T, R, F, G> {
    fn drop(&mut self) {
        let (Some((then, unwanted)), Some(posted)) = (self.then.take(), self.submitted.posted.take()) else {
            return;
        };
        self.submitted.ct.detach_then(posted, move |ct, chain| {
            if let Some(chain) = chain {
                unwanted(ct, then(ct, chain));
            }
        });
    }
}

/// Operations on a thread's detached chains.
pub(crate) trait Detaching: Operations {
    /// Detaches a chain. Until it has taken effect, memory that this thread's guards protect stays protected: the chain may write there.
    fn detach(&self, ticket: Ticket) {
        self.detach_or(ticket, Otherwise::Nothing);
    }

    /// Like [`detach`](Self::detach), with a reaction to a failure.
    fn detach_or(&self, ticket: Ticket, otherwise: Otherwise<Self>) {
        if self.io().endpoint.is_asynchronous() {
            self.keep_detached(ticket, false, None, otherwise);
        } else {
            // Such a fabric has no memory node that could fail.
            self.io().endpoint.forget(ticket);
            if let Otherwise::Exchange(exchange) = otherwise {
                exchange.settle(self);
            }
        }
    }

    /// Adds a chain to the detached ones.
    fn keep_detached(
        &self,
        ticket: Ticket,
        reports_error: bool,
        then: Option<Then<Self>>,
        otherwise: Otherwise<Self>,
    ) {
        self.io().endpoint.detach(ticket);
        let is_guarded = !self.has(Plant::UnguardedChain);
        let pin = if is_guarded { self.protects() } else { self.io().epoch.pin_nothing() };
        self.io().detached.borrow_mut().push(Detached { ticket, pin, reports_error, then, otherwise });
        self.io().has_backlog.set(true);
    }

    /// Posts a chain and detaches it. Returns an error that is known immediately; the thread's next operation returns a later one. `releases` settles
    /// the locks that the chain releases, or releases them if it fails.
    fn post(&self, chain: RawChain, releases: Rc<dyn Releases<Self>>) -> Result<()> {
        let mut submitted = self.submit(chain);
        let (chain, result) = match submitted.posted.take() {
            Some(Posted::InFlight(ticket)) if self.io().endpoint.is_asynchronous() => {
                self.keep_detached(ticket, true, None, Otherwise::Releases(releases));
                return Ok(());
            }
            Some(Posted::InFlight(ticket)) => loop {
                // Completes within a few polls. Chains that are posted later must not overtake it.
                if let Poll::Ready(done) = self.io().endpoint.poll(ticket) {
                    break done;
                }
            },
            Some(Posted::Done(chain, result)) => (chain, result),
            None => return Ok(()),
        };
        self.recycle(chain);
        if result.is_ok() {
            releases.locks_are_released(self);
        } else {
            releases.release_locks(self);
        }
        Ok(result?)
    }

    /// Posts a chain and detaches it; `then` receives its outcome.
    fn submit_detached(&self, chain: RawChain, then: impl FnOnce(&Self, Option<&RawChain>) + 'static) {
        if let Some(posted) = self.submit(chain).into_posted() {
            self.detach_then(posted, then);
        }
    }

    /// Posts a chain; the future completes with the result of `then`. If it is dropped, `then` is called when the chain's completion is found.
    async fn submit_and<R>(
        &self,
        chain: RawChain,
        then: impl FnOnce(&Self, &RawChain) -> R + 'static,
    ) -> Result<R> {
        self.submit_or(chain, then, |_, _| ()).await
    }

    /// Like [`submit_and`](Self::submit_and), where the result of `then` owns a resource: if the future was dropped, `unwanted` receives it.
    async fn submit_or<R>(
        &self,
        chain: RawChain,
        then: impl FnOnce(&Self, &RawChain) -> R + 'static,
        unwanted: impl FnOnce(&Self, R) + 'static,
    ) -> Result<R> {
        SubmittedThen { submitted: self.submit(chain), then: Some((then, unwanted)) }.await
    }

    fn detach_then(&self, posted: Posted, then: impl FnOnce(&Self, Option<&RawChain>) + 'static) {
        match posted {
            Posted::InFlight(ticket) if self.io().endpoint.is_asynchronous() => {
                self.keep_detached(ticket, false, Some(Box::new(then)), Otherwise::Nothing);
            }
            Posted::InFlight(ticket) => loop {
                if let Poll::Ready((chain, result)) = self.io().endpoint.poll(ticket) {
                    then(self, result.is_ok().then_some(&chain));
                    return self.recycle(chain);
                }
            },
            Posted::Done(chain, result) => {
                then(self, result.is_ok().then_some(&chain));
                self.recycle(chain);
            }
        }
    }

    /// Stops polling all detached chains, because the thread ends. They take effect even so.
    fn forget_detached(&self) {
        for Detached { ticket, pin, .. } in self.io().detached.take() {
            self.unprotects(pin);
            self.io().endpoint.forget(ticket);
        }
    }

    /// Waits until all detached chains have completed. Returns the first error that no operation has returned yet.
    async fn flush_detached(&self) -> Result<()> {
        self.wait_for_detached().await;
        self.take_deferred_error().map_or(Ok(()), Err)
    }

    async fn wait_for_detached(&self) {
        std::future::poll_fn(|context| {
            self.io().task_stack.makes_step();
            self.poll_some_detached(usize::MAX);
            if self.io().detached.borrow().is_empty() {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }

    /// Polls the oldest detached chains, and unpins those that have completed. Most complete in the order in which they were posted.
    #[inline]
    fn poll_detached(&self) {
        if self.io().has_backlog.get() {
            self.poll_backlog();
        }
    }

    #[inline(never)]
    fn poll_backlog(&self) {
        self.post_due_exchanges();
        if !self.io().detached.borrow().is_empty() {
            self.poll_some_detached(MOST_POLLED);
        }
        let io = self.io();
        if io.detached.borrow().is_empty() && io.due.borrow().is_empty() && io.deferred_errors.is_empty() {
            io.has_backlog.set(false);
        }
    }

    fn poll_one_detached(
        &self,
        detached: &Detached<Self>,
        to_poll: &mut usize,
    ) -> Poll<(RawChain, farfield_fabric::Result<()>)> {
        if *to_poll == 0 {
            return Poll::Pending;
        }
        *to_poll -= 1;
        self.poll_posted(detached.ticket)
    }

    /// Like [`poll_detached`](Self::poll_detached), for the oldest `most`.
    fn poll_some_detached(&self, most: usize) {
        // Callbacks may detach further chains, so they run after the iteration.
        let (mut settled, mut failed) = (Vec::new(), Vec::new());
        let mut to_poll = most;
        self.io().detached.borrow_mut().retain_mut(|detached| {
            match self.poll_one_detached(detached, &mut to_poll) {
                Poll::Pending => true,
                Poll::Ready((chain, result)) => {
                    if let Some(then) = detached.then.take() {
                        settled.push((then, detached.pin, chain, result.is_ok()));
                        return false;
                    }
                    let otherwise = std::mem::replace(&mut detached.otherwise, Otherwise::Nothing);
                    match otherwise {
                        Otherwise::Nothing => self.unprotects(detached.pin),
                        Otherwise::Exchange(exchange) => {
                            self.settle_exchange(exchange, &result, detached.pin);
                        }
                        Otherwise::Releases(results) if result.is_ok() => {
                            results.locks_are_released(self);
                            self.unprotects(detached.pin);
                        }
                        Otherwise::Releases(results) => failed.push((results, detached.pin)),
                    }
                    match result {
                        Ok(()) => count(&self.io().counters.cas_failed, chain.failed_exchanges()),
                        Err(error) if detached.reports_error => {
                            self.defer_error(error.into());
                        }
                        Err(_) => {}
                    }
                    self.recycle(chain);
                    false
                }
            }
        });
        for (then, pin, chain, is_ok) in settled {
            then(self, is_ok.then_some(&chain));
            self.unprotects(pin);
            self.recycle(chain);
        }
        for (results, pin) in failed {
            results.release_locks(self);
            self.unprotects(pin);
        }
    }
}

impl<T: Thread> Detaching for T {}
