//! Compensating: words that must not stay as they are if an operation fails.
//!
//! A thread that holds a lock, claims a name or is about to write a value has left a word of its own in far memory, which keeps
//! others out. Where the operation that ends this fails because its memory node did not answer, nobody knows
//! whether it took effect. So there is an [`Exchange`] for each such word: a CAS from the word to what it is to become instead.
//! The word is the thread's own and, until the exchange is over, is not put there again; so a CAS that comes late, or twice, does no
//! harm. For a [token](super::tokens) that means that it is outstanding as long.
//!
//! An exchange is posted behind the operation that it makes up for, and is not waited for. If it fails, too, the thread keeps it
//! and posts it again with one of its next operations, at first after [`SHORTEST`], at last every [`LONGEST`]. A thread that
//! ends before has an identity that is gone, and others take from it what it held.
//!
//! Invariant: the object that a word is in is protected as long as an exchange of it may come, by the guard under which the word was
//! reached or by a pin in the same epoch. So a memory node that does not answer holds reclamation back, as a thread with a guard does
//! that waits for the node.
//!
//! Costs: nothing where operations succeed.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::detached::{Detaching, Otherwise};
use super::posting::{Operations, Thread};
use super::submit::{Completed, Submitted};
use crate::epoch;
use crate::error::{Error, Result};
use farfield_fabric::Posted;
use farfield_fabric::chain::Chain;
use farfield_sim::Plant;
use farfield_words::Address;
use farfield_words::Block;

/// When an exchange that has failed is posted again, at the earliest and at the latest.
const SHORTEST: Duration = Duration::from_micros(100);
const LONGEST: Duration = Duration::from_millis(100);

/// A word of this thread's, and what it is to become.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exchange {
    pub(crate) at: Address,
    pub(crate) own: u64,
    pub(crate) new: u64,
    /// Whether the word is a [token](super::tokens), which is outstanding until the exchange is over.
    is_of_token: bool,
    /// After what time it is posted again if it fails.
    after: Duration,
}

/// An exchange that has failed, and when it is to be posted again.
pub(super) struct DueExchange {
    exchange: Exchange,
    due: Duration,
    /// Keeps the memory that it touches from being used again.
    pin: epoch::Pin,
}

impl Exchange {
    /// From a token.
    pub(crate) fn new(at: Address, own: u64, new: u64) -> Self {
        Self { at, own, new, is_of_token: true, after: SHORTEST }
    }

    /// From a word that is no token. The thread must not put it there again while it may_still_exchange the exchange.
    pub(crate) fn of_word(at: Address, own: u64, new: u64) -> Self {
        Self { is_of_token: false, ..Self::new(at, own, new) }
    }

    /// It has taken effect, or there is nothing to make up for.
    pub(crate) fn is_over<T: Thread>(self, ct: &T) {
        if self.is_of_token {
            ct.settle_token(self.own);
        }
    }
}

/// A posted chain, to be waited for, with what makes up for its failure.
pub(crate) struct Compensated<'a, T: Thread> {
    submitted: Submitted<'a, T>,
    /// Until it is known whether the chain has failed.
    exchange: Option<Exchange>,
}

impl<'a, T: Thread> Future for Compensated<'a, T> {
    type Output = Result<Completed<'a, T>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let polled = Pin::new(&mut self.submitted).poll(context);
        if let Poll::Ready(done) = &polled
            && let Some(exchange) = self.exchange.take()
        {
            let ct = self.submitted.ct;
            if done.is_err() { ct.compensate(exchange) } else { exchange.is_over(ct) }
        }
        polled
    }
}

impl<T: Thread> Drop for Compensated<'_, T> {
    fn drop(&mut self) {
        if let (Some(exchange), Some(posted)) = (self.exchange.take(), self.submitted.posted.take()) {
            self.submitted.ct.detach_exchange(posted, exchange);
        }
    }
}

/// Exchanges that a thread makes up for failed operations by.
pub(crate) trait Compensating: Detaching {
    /// Posts a chain. If it fails, also after the future has been dropped, compensation are made.
    fn submit_compensated(&self, chain: Chain, exchange: Exchange) -> Compensated<'_, Self> {
        Compensated { submitted: self.submit(chain), exchange: Some(exchange) }
    }

    /// [Replaces](Chain::replace) the word that an exchange is of, which is its own, without waiting. It takes effect after what this
    /// thread has completed; if it fails, compensation are made.
    fn post_word(&self, exchange: Exchange) {
        let mut chain = self.empty_chain();
        chain.replace(exchange.at, exchange.own, exchange.new);
        drop(self.submit_compensated(chain, exchange));
    }

    /// Posts an exchange that nobody waits for, and posts it again if it fails.
    fn compensate(&self, exchange: Exchange) {
        let mut chain = self.empty_chain();
        chain.compare_exchange(exchange.at, exchange.own, exchange.new);
        if let Some(posted) = self.submit(chain).into_posted() {
            self.detach_exchange(posted, exchange);
        }
    }

    fn detach_exchange(&self, posted: Posted, exchange: Exchange) {
        match posted {
            Posted::InFlight(ticket) => self.detach_or(ticket, Otherwise::Exchange(exchange)),
            Posted::Done(chain, result) => {
                self.recycle(chain);
                self.settle_exchange(exchange, &result.map_err(Error::from), self.protects());
            }
        }
    }

    /// An exchange, or what it was to make up for, has succeeded or failed. In the latter case the exchange is posted again later.
    /// `pin` protects the word.
    fn settle_exchange(&self, exchange: Exchange, result: &Result<()>, pin: epoch::Pin) {
        let may_help = result.as_ref().err().is_some_and(Error::is_of_unknown_outcome);
        if self.io().gives_up_compensations.get() || !may_help || self.has(Plant::SingleAmend) {
            self.unprotects(pin);
            return exchange.is_over(self);
        }
        let due = self.io().endpoint.now() + exchange.after;
        let after = (2 * exchange.after).min(LONGEST);
        self.io().due.borrow_mut().push(DueExchange { exchange: Exchange { after, ..exchange }, due, pin });
    }

    /// An object is freed that no other thread can reach: nothing is due to it.
    #[inline]
    fn forget_compensations(&self, block: Block) {
        if self.io().due.borrow().is_empty() {
            return;
        }
        let begin = block.address.bits();
        let is_within =
            |due: &mut DueExchange| (begin..begin + block.bytes).contains(&due.exchange.at.bits());
        for due in self.io().due.borrow_mut().extract_if(.., is_within) {
            self.unprotects(due.pin);
            due.exchange.is_over(self);
        }
    }

    /// Tries once more to do what is due, and waits for the outcome: other threads may take for done what this one did before.
    async fn compensate_now(&self) {
        if !self.io().due.borrow().is_empty() {
            self.io().due.borrow_mut().iter_mut().for_each(|due| due.due = Duration::ZERO);
            self.post_due_now();
            self.wait_for_detached().await;
        }
    }

    /// Makes no compensation any more: the thread ends, and others take from it what it holds.
    fn give_up_compensations(&self) {
        self.io().gives_up_compensations.set(true);
        for due in self.io().due.take() {
            self.unprotects(due.pin);
        }
    }

    /// Whether a word may still be changed by an exchange of this thread's that is yet to come.
    fn may_still_exchange(&self, at: Address) -> bool {
        let is_owed = self.io().due.borrow().iter().any(|due| due.exchange.at == at);
        is_owed || self.io().detached.borrow().iter().any(|detached| detached.is_exchange_of(at))
    }

    /// Posts what is due again, if it is time.
    #[inline]
    fn post_due_exchanges(&self) {
        if !self.io().due.borrow().is_empty() {
            self.post_due_now();
        }
    }

    #[cold]
    fn post_due_now(&self) {
        let now = self.io().endpoint.now();
        loop {
            let mut due = self.io().due.borrow_mut();
            let Some(index) = due.iter().position(|due| due.due <= now) else { return };
            let DueExchange { exchange, pin, .. } = due.swap_remove(index);
            drop(due);
            self.compensate(exchange);
            self.unprotects(pin);
        }
    }
}

impl<T: Thread> Compensating for T {}
