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
//! - inside a chain, operations take effect in program order;
//! - chains of one thread to one memory node take effect in the order in which they were posted. So what undoes an
//!   operation can not overtake it.
//!
//! | fabric | URL | completes |
//! |---|---|---|
//! | [`host`] | `local:` | at once: no operation ever waits |
//! | [`delayed`] | `local:delay=N` | at a seeded poll up to the `N`th, so that tasks of a thread interleave |
//! | [`sim`] | `sim:` | in virtual time, a round trip later |

pub(crate) mod chain;
pub(crate) mod delayed;
pub(crate) mod host;
pub(crate) mod sim;

use std::task::Poll;
use std::time::Duration;

use crate::error::Result;
use chain::Chain;
use delayed::Delayed;
use host::Host;
use sim::Sim;

/// A compute thread's access to a fabric. Not shared: each thread has its own.
pub(crate) enum Endpoint {
    Host(Host),
    Delayed(Delayed),
    Sim(Sim),
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
            Self::Delayed(_) | Self::Sim(_) => None,
        }
    }

    /// Posts a chain on behalf of a task of the thread.
    pub(crate) fn post(&self, mut chain: Chain, task: u32) -> Posted {
        match self {
            Self::Host(host) => {
                let result = host.execute(&mut chain);
                Posted::Done(chain, result)
            }
            Self::Delayed(delayed) => Posted::InFlight(delayed.post(chain)),
            Self::Sim(sim) => Posted::InFlight(sim.post(chain, task)),
        }
    }

    pub(crate) fn poll(&self, ticket: Ticket) -> Poll<(Chain, Result<()>)> {
        match self {
            Self::Host(_) => unreachable!("the host fabric leaves no chain in flight"),
            Self::Delayed(delayed) => delayed.poll(ticket),
            Self::Sim(sim) => sim.poll(ticket),
        }
    }

    /// Gives up waiting for a chain, which takes effect all the same.
    pub(crate) fn forget(&self, ticket: Ticket) {
        match self {
            Self::Host(_) => unreachable!("the host fabric leaves no chain in flight"),
            Self::Delayed(delayed) => delayed.forget(ticket),
            Self::Sim(sim) => sim.forget(ticket),
        }
    }

    /// Doorbells rung: each announces all that was posted to one memory node at one time. None where there is no NIC.
    pub(crate) fn doorbells(&self) -> u64 {
        self.virtual_time().map_or(0, Sim::doorbells)
    }

    /// The time since the cluster was connected.
    pub(crate) fn now(&self) -> Duration {
        match self {
            Self::Host(host) => host.now(),
            Self::Delayed(delayed) => delayed.host().now(),
            Self::Sim(sim) => sim.now(),
        }
    }

    /// Called when all of a thread's tasks wait: lets others run.
    pub(crate) fn idle(&self) {
        match self {
            Self::Host(host) => host.idle(),
            Self::Delayed(delayed) => delayed.host().idle(),
            Self::Sim(_) => unreachable!("the simulator polls a thread when something has arrived"),
        }
    }

    /// The simulator, where waiting is a timer's business and not polling's.
    pub(crate) fn virtual_time(&self) -> Option<&Sim> {
        match self {
            Self::Host(_) | Self::Delayed(_) => None,
            Self::Sim(sim) => Some(sim),
        }
    }
}

#[cfg(test)]
mod conformance;
