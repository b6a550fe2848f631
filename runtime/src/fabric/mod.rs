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
//! - a longer READ or WRITE is a sequence of word accesses, and may be torn between words; they are in address order, but
//!   for real devices, which promise none;
//! - inside a chain, operations take effect in program order;
//! - a chain that its thread has completed, posted without waiting, or given up takes effect before what the thread posts
//!   to the same memory node afterwards. So what undoes an operation can not overtake it.
//!
//! | fabric | URL | completes |
//! |---|---|---|
//! | [`host`] | `local:` | at once: no operation ever waits |
//! | [`shm`] | `shm:NAME` | likewise: the memory is mapped by several processes |
//! | [`delayed`] | `local:delay=N` | at a seeded poll up to the `N`th, so that tasks of a thread interleave |
//! | [`sim`] | `sim:` | in virtual time, a round trip later |
//! | `verbs` | `rdma://` | when the device says so; in a build with the feature `verbs` |

pub(crate) mod chain;
pub(crate) mod delayed;
pub(crate) mod files;
#[cfg(any(target_os = "linux", feature = "_verbs"))]
#[cfg_attr(not(feature = "_verbs"), allow(dead_code))] // lanes are RDMA's
pub(crate) mod handshake;
pub(crate) mod host;
pub(crate) mod park;
#[cfg(any(target_os = "linux", feature = "_verbs"))]
mod question;
#[cfg(any(target_os = "linux", feature = "_verbs"))]
pub(crate) mod secret;
#[cfg(target_os = "linux")]
pub(crate) mod shm;
pub(crate) mod sim;
pub(crate) mod stall;
#[cfg(feature = "_verbs")]
pub(crate) mod verbs;

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
    #[cfg(feature = "_verbs")]
    Verbs(verbs::Verbs),
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
            _ => None,
        }
    }

    /// Posts a chain on behalf of a task of the thread.
    pub(crate) fn post(&self, mut chain: Chain, task: u32) -> Posted {
        match self {
            Self::Host(host) => {
                let result = host.execute(&mut chain);
                Posted::Done(chain, result)
            }
            Self::Delayed(delayed) => Posted::InFlight(delayed.post(chain, task)),
            Self::Sim(sim) => Posted::InFlight(sim.post(chain, task)),
            #[cfg(feature = "_verbs")]
            Self::Verbs(verbs) => verbs.post(chain, task),
        }
    }

    pub(crate) fn poll(&self, ticket: Ticket) -> Poll<(Chain, Result<()>)> {
        match self {
            Self::Host(_) => unreachable!("the host fabric leaves no chain in flight"),
            Self::Delayed(delayed) => delayed.poll(ticket),
            Self::Sim(sim) => sim.poll(ticket),
            #[cfg(feature = "_verbs")]
            Self::Verbs(verbs) => verbs.poll(ticket),
        }
    }

    /// Gives up waiting for a chain, which takes effect all the same.
    pub(crate) fn forget(&self, ticket: Ticket) {
        match self {
            Self::Host(_) => unreachable!("the host fabric leaves no chain in flight"),
            Self::Delayed(delayed) => delayed.forget(ticket),
            Self::Sim(sim) => sim.forget(ticket),
            #[cfg(feature = "_verbs")]
            Self::Verbs(verbs) => verbs.forget(ticket),
        }
    }

    /// Whether chains stay in flight while their thread goes on, so that one which nobody waits for is to be looked after.
    #[inline]
    pub(crate) fn takes_time(&self) -> bool {
        !matches!(self, Self::Host(_) | Self::Delayed(_))
    }

    /// Nobody waits for a chain any more; but it is polled to completion, and nothing that is posted from now on may take effect
    /// before it.
    pub(crate) fn leave(&self, ticket: Ticket) {
        match self {
            #[cfg(feature = "_verbs")]
            Self::Verbs(verbs) => verbs.leave(ticket),
            // The others keep the order of all chains.
            _ => self.in_background(ticket),
        }
    }

    /// No future waits for a chain, though its thread looks for its completion now and then: the simulator asks what threads wait for.
    pub(crate) fn in_background(&self, ticket: Ticket) {
        if let Self::Sim(sim) = self {
            sim.in_background(ticket);
        }
    }

    /// Whether anything that the thread has posted is still to take effect.
    pub(crate) fn is_underway(&self) -> bool {
        match self {
            Self::Host(_) | Self::Delayed(_) => false,
            Self::Sim(sim) => sim.is_underway(),
            #[cfg(feature = "_verbs")]
            Self::Verbs(verbs) => verbs.is_underway(),
        }
    }

    /// Doorbells rung: each announces all that was posted to one memory node at one time. None where there is no NIC.
    pub(crate) fn doorbells(&self) -> u64 {
        match self {
            Self::Host(_) | Self::Delayed(_) => 0,
            Self::Sim(sim) => sim.doorbells(),
            #[cfg(feature = "_verbs")]
            Self::Verbs(verbs) => verbs.doorbells(),
        }
    }

    /// The time since the cluster was connected.
    pub(crate) fn now(&self) -> Duration {
        match self {
            Self::Host(host) => host.now(),
            Self::Delayed(delayed) => delayed.host().now(),
            Self::Sim(sim) => sim.now(),
            #[cfg(feature = "_verbs")]
            Self::Verbs(verbs) => verbs.now(),
        }
    }

    /// About how long a round trip takes where it is a real one, in nanoseconds; at least one.
    pub(crate) fn round_trip(&self) -> Option<u64> {
        match self {
            #[cfg(feature = "_verbs")]
            Self::Verbs(verbs) => Some(verbs.round_trip()),
            _ => None,
        }
    }

    /// Called when all of a thread's tasks wait: lets others run.
    pub(crate) fn idle(&self) {
        match self {
            Self::Host(host) => host.idle(),
            Self::Delayed(delayed) => delayed.host().idle(),
            Self::Sim(_) => unreachable!("the simulator polls a thread when something has arrived"),
            #[cfg(feature = "_verbs")]
            Self::Verbs(verbs) => verbs.idle(),
        }
    }

    /// The simulator, where waiting is a timer's business and not polling's.
    pub(crate) fn virtual_time(&self) -> Option<&Sim> {
        match self {
            Self::Sim(sim) => Some(sim),
            _ => None,
        }
    }
}

#[cfg(test)]
mod conformance;
