//! Chains that nobody waits for.
//!
//! A chain is *left* if its future is dropped, or if it is posted without one. It takes effect all the same. Until it has,
//! the memory that it touches must not be used again; so it stays in the oldest epoch that a guard of its thread is in,
//! as a guard would. What is to be done with its outcome, whoever finds it, is left with it. Only fabrics on which time passes
//! leave chains in flight: on the others they are done at once.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use super::ComputeThread;
use super::amends::Exchange;
use super::metrics::count;
use super::submitted::Submitted;
use crate::epoch;
use crate::error::{Error, Result};
use crate::io::Posted;
use crate::place::Results;
use farfield_fabric::Ticket;
use farfield_fabric::chain::Chain;
use farfield_sim::Plant;
use farfield_words::Address;

/// How many chains that nobody waits for are looked at whenever another is posted.
const MOST_LOOKED_AT: usize = 8;

/// A chain in flight that nobody waits for.
pub(super) struct Left {
    pub(super) ticket: Ticket,
    /// Keeps the memory that it touches from being used again.
    pub(super) pin: epoch::Pin,
    /// Whether the thread is to hear of its error.
    owed: bool,
    /// What is to be done once it is known how it went.
    then: Option<Then>,
    /// What is to be done if it failed; of that nothing is allocated.
    otherwise: Otherwise,
}

/// What becomes of words that a failed chain was to change.
pub(super) enum Otherwise {
    Nothing,
    /// The chain, or an exchange, was to change this word.
    Exchange(Exchange),
    /// The chain was to release locks.
    Releases(Rc<Results>),
}

impl Left {
    /// Whether it may change a word by an exchange, or make up for not having done so.
    pub(super) fn is_exchange_of(&self, at: Address) -> bool {
        matches!(&self.otherwise, Otherwise::Exchange(exchange) if exchange.at == at)
    }
}

/// Is given a completed chain, or nothing if it failed.
type Then = Box<dyn FnOnce(&ComputeThread, Option<&Chain>)>;

/// A chain in flight whose outcome something follows from, whether it is waited for or left.
struct Settling<
    'a,
    R,
    F: FnOnce(&ComputeThread, &Chain) -> R + 'static,
    G: FnOnce(&ComputeThread, R) + 'static,
> {
    submitted: Submitted<'a>,
    /// What follows, and what becomes of that if nobody waits.
    then: Option<(F, G)>,
}

impl<R, F: FnOnce(&ComputeThread, &Chain) -> R, G: FnOnce(&ComputeThread, R)> Unpin
    for Settling<'_, R, F, G>
{
}

impl<R, F: FnOnce(&ComputeThread, &Chain) -> R, G: FnOnce(&ComputeThread, R)> Future
    for Settling<'_, R, F, G>
{
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

impl<R, F: FnOnce(&ComputeThread, &Chain) -> R, G: FnOnce(&ComputeThread, R)> Drop for Settling<'_, R, F, G> {
    fn drop(&mut self) {
        let (Some((then, unwanted)), Some(posted)) = (self.then.take(), self.submitted.posted.take()) else {
            return;
        };
        self.submitted.ct.look_at(posted, move |ct, chain| {
            if let Some(chain) = chain {
                unwanted(ct, then(ct, chain));
            }
        });
    }
}

impl ComputeThread {
    /// Gives up waiting for a chain, which takes effect all the same. Until it has, what the guards of this thread
    /// protect stays protected: the chain may be about to write there.
    pub(super) fn leave(&self, ticket: Ticket) {
        self.leave_otherwise(ticket, Otherwise::Nothing);
    }

    /// As [`leave`](Self::leave), where something is to be done if the chain fails.
    pub(super) fn leave_otherwise(&self, ticket: Ticket, otherwise: Otherwise) {
        if self.endpoint.is_asynchronous() {
            self.keep(ticket, false, None, otherwise);
        } else {
            // Such a fabric has no memory nodes that could fail to answer.
            self.endpoint.forget(ticket);
            if let Otherwise::Exchange(exchange) = otherwise {
                exchange.is_over(self);
            }
        }
    }

    /// Keeps a chain in flight among those that are left.
    fn keep(&self, ticket: Ticket, owed: bool, then: Option<Then>, otherwise: Otherwise) {
        self.endpoint.detach(ticket);
        let is_guarded = !self.has(Plant::UnguardedChain);
        let pin = if is_guarded { self.enter_oldest_epoch() } else { self.epoch.pin_nothing() };
        self.left.borrow_mut().push(Left { ticket, pin, owed, then, otherwise });
    }

    /// Posts a chain that nobody waits for. An error that is known at once is returned; a later one is owed to the thread.
    /// Returns whether it is known how the chain went; if not, `results` has the locks that it releases.
    pub(crate) fn post(&self, chain: Chain, results: &Rc<Results>) -> Result<bool> {
        let mut submitted = self.submit(chain);
        match submitted.posted.take() {
            Some(Posted::InFlight(ticket)) if self.endpoint.is_asynchronous() => {
                self.keep(ticket, true, None, Otherwise::Releases(Rc::clone(results)));
                Ok(false)
            }
            Some(Posted::InFlight(ticket)) => loop {
                // Completes at one of the next polls; what is posted afterwards must not overtake it.
                if let Poll::Ready((chain, result)) = self.endpoint.poll(ticket) {
                    self.recycle(chain);
                    return result.map(|()| true);
                }
            },
            Some(Posted::Done(chain, result)) => {
                self.recycle(chain);
                result.map(|()| true)
            }
            None => Ok(true),
        }
    }

    /// Posts a chain that nobody waits for, and does something with its outcome, whenever that is there.
    pub(crate) fn submit_and_look(&self, chain: Chain, then: impl FnOnce(&Self, Option<&Chain>) + 'static) {
        if let Some(posted) = self.submit(chain).into_posted() {
            self.look_at(posted, then);
        }
    }

    /// Posts a chain and waits for what follows from it. Dropped before, it takes effect all the same, and what
    /// follows is done when its completion is found.
    pub(crate) async fn submit_and<R>(
        &self,
        chain: Chain,
        then: impl FnOnce(&Self, &Chain) -> R + 'static,
    ) -> Result<R> {
        self.submit_or(chain, then, |_, _| ()).await
    }

    /// As [`submit_and`](Self::submit_and), where what follows is something to be had, and nobody may be there to have it.
    pub(crate) async fn submit_or<R>(
        &self,
        chain: Chain,
        then: impl FnOnce(&Self, &Chain) -> R + 'static,
        unwanted: impl FnOnce(&Self, R) + 'static,
    ) -> Result<R> {
        Settling { submitted: self.submit(chain), then: Some((then, unwanted)) }.await
    }

    fn look_at(&self, posted: Posted, then: impl FnOnce(&Self, Option<&Chain>) + 'static) {
        match posted {
            Posted::InFlight(ticket) if self.endpoint.is_asynchronous() => {
                self.keep(ticket, false, Some(Box::new(then)), Otherwise::Nothing);
            }
            Posted::InFlight(ticket) => loop {
                if let Poll::Ready((chain, result)) = self.endpoint.poll(ticket) {
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
    pub(super) fn take_owed_error(&self) -> Option<Error> {
        self.owed_error.take()
    }

    /// Waits until everything is done that was posted without waiting ([`Chain::post`](crate::Chain::post)). No
    /// round trip of its own.
    ///
    /// # Errors
    /// The first error of what was posted, unless an operation in between has returned it.
    pub async fn flush(&self) -> Result<()> {
        self.wait_for_left().await;
        self.take_owed_error().map_or(Ok(()), Err)
    }

    pub(crate) async fn wait_for_left(&self) {
        std::future::poll_fn(|context| {
            self.lineage.stir();
            self.look_after_some_left(usize::MAX);
            if self.left.borrow().is_empty() {
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
    pub(crate) fn look_after_left(&self) {
        self.look_after_owed();
        if self.left.borrow().is_empty() {
            return;
        }
        self.look_after_some_left(MOST_LOOKED_AT);
    }

    fn poll_left(&self, left: &Left, to_look_at: &mut usize) -> Poll<(Chain, Result<()>)> {
        if *to_look_at == 0 {
            return Poll::Pending;
        }
        *to_look_at -= 1;
        self.endpoint.poll(left.ticket)
    }

    /// As [`look_after_left`](Self::look_after_left), for the oldest `most`.
    fn look_after_some_left(&self, most: usize) {
        // Nothing may be done with an outcome while the list is being gone through.
        let (mut settled, mut failed) = (Vec::new(), Vec::new());
        let mut to_look_at = most;
        self.left.borrow_mut().retain_mut(|left| match self.poll_left(left, &mut to_look_at) {
            Poll::Pending => true,
            Poll::Ready((chain, result)) => {
                if let Some(then) = left.then.take() {
                    settled.push((then, left.pin, chain, result.is_ok()));
                    return false;
                }
                let otherwise = std::mem::replace(&mut left.otherwise, Otherwise::Nothing);
                match otherwise {
                    Otherwise::Nothing => self.leave_epoch(left.pin),
                    Otherwise::Exchange(exchange) => self.settle_exchange(exchange, &result, left.pin),
                    Otherwise::Releases(results) if result.is_ok() => {
                        results.are_released(self);
                        self.leave_epoch(left.pin);
                    }
                    Otherwise::Releases(results) => failed.push((results, left.pin)),
                }
                match result {
                    Ok(()) => count(&self.counters.cas_failed, chain.failed_exchanges()),
                    Err(error) if left.owed => {
                        let first = self.owed_error.take().unwrap_or(error);
                        self.owed_error.set(Some(first));
                    }
                    Err(_) => {}
                }
                self.recycle(chain);
                false
            }
        });
        for (then, pin, chain, is_ok) in settled {
            then(self, is_ok.then_some(&chain));
            self.leave_epoch(pin);
            self.recycle(chain);
        }
        for (results, pin) in failed {
            results.give_back_locks(self);
            self.leave_epoch(pin);
        }
    }
}
