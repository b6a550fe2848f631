//! Chains that nobody waits for.
//!
//! A chain is *left* if its future is dropped, or if it is posted without one. It takes effect all the same. Until it has,
//! the memory that it touches must not be used again; so it stays in the oldest epoch that a guard of its thread is in,
//! as a guard would. Only fabrics on which time passes leave chains in flight: on the others they are done at once.

use std::task::Poll;

use super::ComputeThread;
use super::metrics::count;
use crate::error::{Error, Result};
use crate::fabric::chain::Chain;
use crate::fabric::{Posted, Ticket};
use crate::memory::epoch::Pin;

/// A chain in flight that nobody waits for.
pub(super) struct Left {
    pub(super) ticket: Ticket,
    /// Keeps the memory that it touches from being used again.
    pub(super) pin: Pin,
    /// Whether the thread is to hear of its error.
    owed: bool,
}

impl ComputeThread {
    /// Gives up waiting for a chain, which takes effect all the same. Until it has, what the guards of this thread
    /// protect stays protected: the chain may be about to write there.
    pub(super) fn leave(&self, ticket: Ticket) {
        if self.endpoint.virtual_time().is_some() {
            self.left.borrow_mut().push(Left { ticket, pin: self.epoch.pin_oldest(), owed: false });
        } else {
            self.endpoint.forget(ticket);
        }
    }

    /// Posts a chain that nobody waits for. An error that is known at once is returned; a later one is owed to the thread.
    pub(crate) fn post(&self, chain: Chain) -> Result<()> {
        let mut submitted = self.submit(chain);
        match submitted.posted.take() {
            Some(Posted::InFlight(ticket)) if self.endpoint.virtual_time().is_some() => {
                self.left.borrow_mut().push(Left { ticket, pin: self.epoch.pin_oldest(), owed: true });
                Ok(())
            }
            Some(Posted::InFlight(ticket)) => loop {
                // Completes at one of the next polls; what is posted afterwards must not overtake it.
                if let Poll::Ready((chain, result)) = self.endpoint.poll(ticket) {
                    self.recycle(chain);
                    return result;
                }
            },
            Some(Posted::Done(chain, result)) => {
                self.recycle(chain);
                result
            }
            None => Ok(()),
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
        self.look_after_left();
        while !self.left.borrow().is_empty() {
            self.yield_now().await;
            self.look_after_left();
        }
    }

    /// Lets go of what chains protected that are done by now.
    #[inline]
    pub(crate) fn look_after_left(&self) {
        self.left.borrow_mut().retain(|left| match self.endpoint.poll(left.ticket) {
            Poll::Pending => true,
            Poll::Ready((chain, result)) => {
                self.epoch.unpin(left.pin);
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
    }
}
