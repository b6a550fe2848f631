//! Fabrics: what moves words between a compute thread and far memory.
//!
//! A fabric executes *chains*: lists of READ, WRITE, CAS and FAA on one memory node, in program order, with one
//! completion. It knows addresses and words, and nothing of what they mean.
//!
//! Architecture invariant: fabrics are the only modules that know about mapped memory, queue pairs or virtual time, and
//! the only ones that read the clock or start threads. Everything above asks its [`Endpoint`].
//!
//! # Memory model
//!
//! The same on every fabric:
//! - an 8-byte word is atomic;
//! - single-word operations are sequentially consistent;
//! - a longer READ or WRITE is a sequence of word accesses in address order, and may be torn between words;
//! - inside a chain, operations take effect in program order.
//!
//! | fabric | URL | completes |
//! |---|---|---|
//! | [`host`] | `local:` | at once: no operation ever waits |
//! | [`delayed`] | `local:delay=N` | at a seeded poll up to the `N`th, so that tasks of a thread interleave |

pub(crate) mod chain;
pub(crate) mod delayed;
pub(crate) mod host;

use std::task::Poll;
use std::time::Duration;

use crate::error::Result;
use chain::Chain;
use delayed::Delayed;
use host::Host;

/// A compute thread's access to a fabric. Not shared: each thread has its own.
pub(crate) enum Endpoint {
    Host(Host),
    Delayed(Delayed),
}

/// What posting a chain gives.
pub(crate) enum Posted {
    /// It has been executed.
    Done(Chain, Result<()>),
    /// It is in flight; the endpoint owns it until it is polled to completion or forgotten.
    InFlight(Ticket),
}

/// Names a chain in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket(pub(crate) u64);

impl Endpoint {
    /// The host fabric, if this is it: its operations need no chain, no ticket and no wait.
    #[inline]
    pub(crate) fn immediate(&self) -> Option<&Host> {
        match self {
            Self::Host(host) => Some(host),
            Self::Delayed(_) => None,
        }
    }

    pub(crate) fn post(&self, mut chain: Chain) -> Posted {
        match self {
            Self::Host(host) => {
                let result = host.execute(&mut chain);
                Posted::Done(chain, result)
            }
            Self::Delayed(delayed) => Posted::InFlight(delayed.post(chain)),
        }
    }

    pub(crate) fn poll(&self, ticket: Ticket) -> Poll<(Chain, Result<()>)> {
        match self {
            Self::Host(_) => unreachable!("the host fabric leaves no chain in flight"),
            Self::Delayed(delayed) => delayed.poll(ticket),
        }
    }

    /// Gives up waiting for a chain, which takes effect all the same.
    pub(crate) fn forget(&self, ticket: Ticket) {
        match self {
            Self::Host(_) => unreachable!("the host fabric leaves no chain in flight"),
            Self::Delayed(delayed) => delayed.forget(ticket),
        }
    }

    fn host(&self) -> &Host {
        match self {
            Self::Host(host) => host,
            Self::Delayed(delayed) => delayed.host(),
        }
    }

    /// The time since the cluster was connected.
    pub(crate) fn now(&self) -> Duration {
        self.host().now()
    }

    /// Called when all of a thread's tasks wait: lets others run.
    pub(crate) fn idle(&self) {
        self.host().idle();
    }
}

#[cfg(test)]
mod conformance;
