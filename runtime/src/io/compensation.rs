//! Compensation of failed operations.
//!
//! A thread that holds a lock, claims a name or writes a value has a word of its own in far memory, which keeps other threads out. If the operation
//! that replaces this word fails because its memory node did not answer, its outcome is unknown. So the thread posts an [`Exchange`]: a CAS
//! from its own word to the word that frees the lock, name or value. The thread does not write its own word there again before the exchange is
//! settled. So the CAS is harmless if it arrives late or twice. (A [token](super::tokens) stays outstanding that long.)
//!
//! An exchange is detached. If it fails as well, the thread posts it again with one of its next operations: first after [`SHORTEST`], finally every
//! [`LONGEST`]. If the thread ends before, its identity ends, and other threads take over what it held.
//!
//! Invariant: until an exchange is settled, a pin protects the object that contains its word: the pin of the guard under which the word was reached,
//! or a later pin in the same epoch. So a memory node that does not answer holds reclamation back, as does a guard of a thread that waits for it.
//!
//! Cost: none as long as operations succeed.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::detached::{Detaching, Otherwise};
use super::posting::{Operations, Thread};
use super::submit::{Completed, Submitted};
use crate::epoch;
use crate::error::Result;
use farfield_fabric::Posted;
use farfield_fabric::chain::RawChain;
use farfield_sim::Plant;
use farfield_words::Address;
use farfield_words::Block;

/// The delay after which a failed exchange is posted again: the first, and the longest.
const SHORTEST: Duration = Duration::from_micros(100);
const LONGEST: Duration = Duration::from_millis(100);

/// A CAS from a word of this thread to the word that replaces it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exchange {
    pub(crate) at: Address,
    pub(crate) own: u64,
    pub(crate) new: u64,
    /// True if the thread's word is a [token](super::tokens), which is outstanding until the exchange is settled.
    is_of_token: bool,
    /// The delay after which it is posted again if it fails.
    after: Duration,
}

/// A failed exchange, and the time at which it is posted again.
pub(super) struct DueExchange {
    exchange: Exchange,
    due: Duration,
    /// Protects the memory of its word from reuse.
    pin: epoch::Pin,
}

impl Exchange {
    /// Makes an exchange of a token.
    pub(crate) fn new(at: Address, own: u64, new: u64) -> Self {
        Self { at, own, new, is_of_token: true, after: SHORTEST }
    }

    /// Makes an exchange of another word. The thread must not write `own` there again before the exchange is settled.
    pub(crate) fn of_word(at: Address, own: u64, new: u64) -> Self {
        Self { is_of_token: false, ..Self::new(at, own, new) }
    }

    /// It has taken effect, or is not needed.
    pub(crate) fn settle<T: Thread>(self, ct: &T) {
        if self.is_of_token {
            ct.settle_token(self.own);
        }
    }
}

/// The future of a posted chain, with the exchange that compensates for its failure.
pub(crate) struct Compensated<'a, T: Thread> {
    submitted: Submitted<'a, T>,
    /// `None` once the outcome of the chain is known.
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
            if done.is_err() { ct.compensate(exchange) } else { exchange.settle(ct) }
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

/// Compensation of failed operations by exchanges.
pub(crate) trait Compensating: Detaching {
    /// Posts a chain. If it fails, even after its future was dropped, posts the exchange.
    fn submit_compensated(&self, chain: RawChain, exchange: Exchange) -> Compensated<'_, Self> {
        Compensated { submitted: self.submit(chain), exchange: Some(exchange) }
    }

    /// [Replaces](RawChain::replace) the thread's own word, without waiting. Takes effect after the thread's completed operations; if it fails, the
    /// exchange is posted.
    #[inline]
    fn post_word(&self, exchange: Exchange) {
        if let Some(host) = self.io().endpoint.immediate() {
            self.replace_here(host, exchange.at, exchange.own, exchange.new);
            return exchange.settle(self);
        }
        let mut chain = self.empty_chain();
        chain.replace(exchange.at, exchange.own, exchange.new);
        drop(self.submit_compensated(chain, exchange));
    }

    /// Posts an exchange and detaches it; it is posted again if it fails.
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
            Posted::Done(chain, Ok(())) => {
                self.recycle(chain);
                exchange.settle(self);
            }
            Posted::Done(chain, failed) => {
                self.recycle(chain);
                self.settle_exchange(exchange, &failed, self.protects());
            }
        }
    }

    /// Settles an exchange after its own outcome, or that of the operation that it compensates for. After a failure it is posted again later.
    /// `pin` protects its word.
    fn settle_exchange(&self, exchange: Exchange, result: &farfield_fabric::Result<()>, pin: epoch::Pin) {
        let may_help = result.as_ref().err().is_some_and(farfield_fabric::Error::is_of_unknown_outcome);
        if self.io().gives_up_compensations.get() || !may_help || self.has(Plant::SingleAmend) {
            self.unprotects(pin);
            return exchange.settle(self);
        }
        let due = self.io().endpoint.now() + exchange.after;
        let after = (2 * exchange.after).min(LONGEST);
        self.io().due.borrow_mut().push(DueExchange { exchange: Exchange { after, ..exchange }, due, pin });
        self.io().has_backlog.set(true);
    }

    /// Drops the exchanges of words of an object that is freed: no other thread can reach it.
    #[inline]
    fn forget_compensations(&self, block: Block) {
        if !self.io().due.borrow().is_empty() {
            self.forget_due(block);
        }
    }

    #[cold]
    fn forget_due(&self, block: Block) {
        let begin = block.address.bits();
        let is_within =
            |due: &mut DueExchange| (begin..begin + block.bytes).contains(&due.exchange.at.bits());
        for due in self.io().due.borrow_mut().extract_if(.., is_within) {
            self.unprotects(due.pin);
            due.exchange.settle(self);
        }
    }

    /// Posts every failed exchange once more, and waits for the outcomes: other threads may depend on this thread's earlier operations.
    async fn compensate_now(&self) {
        if !self.io().due.borrow().is_empty() {
            self.io().due.borrow_mut().iter_mut().for_each(|due| due.due = Duration::ZERO);
            self.post_due_now();
            self.wait_for_detached().await;
        }
    }

    /// Drops all exchanges, because the thread ends: other threads take over what it holds.
    fn give_up_compensations(&self) {
        self.io().gives_up_compensations.set(true);
        for due in self.io().due.take() {
            self.unprotects(due.pin);
        }
    }

    /// Returns whether an exchange of this word is in flight or due.
    fn may_still_exchange(&self, at: Address) -> bool {
        let is_owed = self.io().due.borrow().iter().any(|due| due.exchange.at == at);
        is_owed || self.io().detached.borrow().iter().any(|detached| detached.is_exchange_of(at))
    }

    /// Posts the exchanges that are due.
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
