//! Detached chains: posted, and no future waits for them.
//!
//! A chain is *detached* if its future is dropped, or if it is posted without one. It takes effect all the same. Until it has,
//! the memory that it touches must not be used again; so it stays in the oldest epoch that a guard of its thread is in,
//! as a guard would. A callback is stored with it and gets its outcome, whichever operation of the thread finds the completion. Only asynchronous
//! fabrics need it: on the others chains are done when they are posted.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use super::compensation::{Compensating, Exchange};
use super::metrics::count;
use super::posting::{Operations, Thread};
use super::submit::Submitted;
use crate::epoch;
use crate::error::{Error, Result};
use farfield_fabric::chain::Chain;
use farfield_fabric::{Posted, Ticket};
use farfield_sim::Plant;
use farfield_words::Address;

/// How many detached chains are polled whenever another chain is posted.
const MOST_POLLED: usize = 8;

/// Locks that a detached chain releases.
pub(crate) trait Releases<T: Thread> {
    /// The chain has released them.
    fn locks_are_released(&self, thread: &T);

    /// The chain has not released them, as far as is known.
    fn release_locks(&self, thread: &T);
}

/// A chain in flight that no future waits for.
pub(crate) struct Detached<T: Thread> {
    pub(super) ticket: Ticket,
    /// Keeps the memory that it touches from being used again.
    pub(super) pin: epoch::Pin,
    /// Whether the thread is to hear of its error.
    due: bool,
    /// What is to be done once it is known how it went.
    then: Option<Then<T>>,
    /// What is to be done if it failed; of that nothing is allocated.
    otherwise: Otherwise<T>,
}

/// What becomes of words that a failed chain was to change.
pub(crate) enum Otherwise<T: Thread> {
    Nothing,
    /// The chain, or an exchange, was to change this word.
    Exchange(Exchange),
    /// The chain was to release locks.
    Releases(Rc<dyn Releases<T>>),
}

impl<T: Thread> Detached<T> {
    /// Whether it may change a word by an exchange, or make up for not having done so.
    pub(super) fn is_exchange_of(&self, at: Address) -> bool {
        matches!(&self.otherwise, Otherwise::Exchange(exchange) if exchange.at == at)
    }
}

/// Is given a completed chain, or nothing if it failed.
type Then<T> = Box<dyn FnOnce(&T, Option<&Chain>)>;

/// A chain in flight with a callback, whether it is waited for or detached.
struct SubmittedThen<'a, T: Thread, R, F: FnOnce(&T, &Chain) -> R + 'static, G: FnOnce(&T, R) + 'static> {
    submitted: Submitted<'a, T>,
    /// The callback, and what becomes of its result if no future takes it.
    then: Option<(F, G)>,
}

impl<T: Thread, R, F: FnOnce(&T, &Chain) -> R, G: FnOnce(&T, R)> Unpin for SubmittedThen<'_, T, R, F, G> {}

impl<T: Thread, R, F: FnOnce(&T, &Chain) -> R, G: FnOnce(&T, R)> Future for SubmittedThen<'_, T, R, F, G> {
    type Output = Result<R>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<R>> {
        let Poll::Ready(done) = Pin::new(&mut self.submitted).poll(context) else { return Poll::Pending };
        let ct = self.submitted.ct;
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

impl<T: Thread, R, F: FnOnce(&T, &Chain) -> R, G: FnOnce(&T, R)> Drop for SubmittedThen<'_, T, R, F, G> {
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

/// Detached chains of a thread.
pub(crate) trait Detaching: Operations {
    /// Gives up waiting for a chain, which takes effect all the same. Until it has, what the guards of this thread
    /// protect stays protected: the chain may be about to write there.
    fn detach(&self, ticket: Ticket) {
        self.detach_or(ticket, Otherwise::Nothing);
    }

    /// As [`detach`](Self::detach), where something is to be done if the chain fails.
    fn detach_or(&self, ticket: Ticket, otherwise: Otherwise<Self>) {
        if self.io().endpoint.is_asynchronous() {
            self.keep_detached(ticket, false, None, otherwise);
        } else {
            // Such a fabric has no memory nodes that could fail to answer.
            self.io().endpoint.forget(ticket);
            if let Otherwise::Exchange(exchange) = otherwise {
                exchange.is_over(self);
            }
        }
    }

    /// Keeps a chain in flight among those that are left.
    fn keep_detached(&self, ticket: Ticket, due: bool, then: Option<Then<Self>>, otherwise: Otherwise<Self>) {
        self.io().endpoint.detach(ticket);
        let is_guarded = !self.has(Plant::UnguardedChain);
        let pin = if is_guarded { self.protects() } else { self.io().epoch.pin_nothing() };
        self.io().detached.borrow_mut().push(Detached { ticket, pin, due, then, otherwise });
    }

    /// Posts a chain that nobody waits for. An error that is known at once is returned; a later one is due to the thread.
    /// Returns whether it is known how the chain went; if not, `results` has the locks that it releases.
    fn post(&self, chain: Chain, results: Rc<dyn Releases<Self>>) -> Result<bool> {
        let mut submitted = self.submit(chain);
        match submitted.posted.take() {
            Some(Posted::InFlight(ticket)) if self.io().endpoint.is_asynchronous() => {
                self.keep_detached(ticket, true, None, Otherwise::Releases(results));
                Ok(false)
            }
            Some(Posted::InFlight(ticket)) => loop {
                // Completes at one of the next polls; what is posted afterwards must not overtake it.
                if let Poll::Ready((chain, result)) = self.io().endpoint.poll(ticket) {
                    self.recycle(chain);
                    return Ok(result.map(|()| true)?);
                }
            },
            Some(Posted::Done(chain, result)) => {
                self.recycle(chain);
                Ok(result.map(|()| true)?)
            }
            None => Ok(true),
        }
    }

    /// Posts a chain that nobody waits for, and does something with its outcome, whenever that is there.
    fn submit_detached(&self, chain: Chain, then: impl FnOnce(&Self, Option<&Chain>) + 'static) {
        if let Some(posted) = self.submit(chain).into_posted() {
            self.detach_then(posted, then);
        }
    }

    /// Posts a chain and waits for what follows from it. Dropped before, it takes effect all the same, and what
    /// follows is done when its completion is found.
    async fn submit_and<R>(
        &self,
        chain: Chain,
        then: impl FnOnce(&Self, &Chain) -> R + 'static,
    ) -> Result<R> {
        self.submit_or(chain, then, |_, _| ()).await
    }

    /// As [`submit_and`](Self::submit_and), where what follows is something to be had, and nobody may be there to have it.
    async fn submit_or<R>(
        &self,
        chain: Chain,
        then: impl FnOnce(&Self, &Chain) -> R + 'static,
        unwanted: impl FnOnce(&Self, R) + 'static,
    ) -> Result<R> {
        SubmittedThen { submitted: self.submit(chain), then: Some((then, unwanted)) }.await
    }

    fn detach_then(&self, posted: Posted, then: impl FnOnce(&Self, Option<&Chain>) + 'static) {
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

    /// An error of an operation that was posted without waiting, if there is one.
    fn take_deferred_error(&self) -> Option<Error> {
        self.io().deferred_error.take()
    }

    /// The thread ends: gives up all detached chains, which take effect all the same.
    fn forget_detached(&self) {
        for Detached { ticket, pin, .. } in self.io().detached.take() {
            self.unprotects(pin);
            self.io().endpoint.forget(ticket);
        }
    }

    /// Waits until all detached chains are done, and returns the first error that is due.
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

    /// Lets go of what chains protected that are done by now, of the oldest few: most are done in the order in which they were
    /// posted.
    #[inline]
    fn poll_detached(&self) {
        self.post_due_exchanges();
        if self.io().detached.borrow().is_empty() {
            return;
        }
        self.poll_some_detached(MOST_POLLED);
    }

    fn poll_one_detached(&self, left: &Detached<Self>, to_poll: &mut usize) -> Poll<(Chain, Result<()>)> {
        if *to_poll == 0 {
            return Poll::Pending;
        }
        *to_poll -= 1;
        self.poll_posted(left.ticket)
    }

    /// As [`poll_detached`](Self::poll_detached), for the oldest `most`.
    fn poll_some_detached(&self, most: usize) {
        // Nothing may be done with an outcome while the list is being gone through.
        let (mut settled, mut failed) = (Vec::new(), Vec::new());
        let mut to_poll = most;
        self.io().detached.borrow_mut().retain_mut(|left| match self.poll_one_detached(left, &mut to_poll) {
            Poll::Pending => true,
            Poll::Ready((chain, result)) => {
                if let Some(then) = left.then.take() {
                    settled.push((then, left.pin, chain, result.is_ok()));
                    return false;
                }
                let otherwise = std::mem::replace(&mut left.otherwise, Otherwise::Nothing);
                match otherwise {
                    Otherwise::Nothing => self.unprotects(left.pin),
                    Otherwise::Exchange(exchange) => self.settle_exchange(exchange, &result, left.pin),
                    Otherwise::Releases(results) if result.is_ok() => {
                        results.locks_are_released(self);
                        self.unprotects(left.pin);
                    }
                    Otherwise::Releases(results) => failed.push((results, left.pin)),
                }
                match result {
                    Ok(()) => count(&self.io().counters.cas_failed, chain.failed_exchanges()),
                    Err(error) if left.due => {
                        let first = self.io().deferred_error.take().unwrap_or(error);
                        self.io().deferred_error.set(Some(first));
                    }
                    Err(_) => {}
                }
                self.recycle(chain);
                false
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
