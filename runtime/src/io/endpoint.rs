//! A compute thread's endpoint: an enum of the fabrics, so that the host fabric's operations are inlined.

use std::task::Poll;
use std::time::Duration;

use farfield_fabric::chain::RawChain;
use farfield_fabric::host::{Delayed, Host};
#[cfg(feature = "_verbs")]
use farfield_fabric::verbs::Verbs;
use farfield_fabric::{Endpoint as _, Posted, Ticket};
use farfield_sim::Sim;

/// A compute thread's access to its cluster's fabric. Not shared: each thread has its own.
pub(crate) enum Endpoint {
    Host(Host),
    Delayed(Delayed),
    Sim(Sim),
    #[cfg(feature = "_verbs")]
    Verbs(Verbs),
}

/// Calls the fabric's own method.
macro_rules! of_fabric {
    ($self:ident, $endpoint:ident => $call:expr) => {
        match $self {
            Self::Host($endpoint) => $call,
            Self::Delayed($endpoint) => $call,
            Self::Sim($endpoint) => $call,
            #[cfg(feature = "_verbs")]
            Self::Verbs($endpoint) => $call,
        }
    };
}

impl Endpoint {
    /// Returns the host fabric, if this is it. Its operations need no chain, no ticket and no wait.
    #[inline]
    pub(crate) fn immediate(&self) -> Option<&Host> {
        match self {
            Self::Host(host) => Some(host),
            _ => None,
        }
    }

    /// Returns the simulator, if this is it. There, waits are timers.
    #[inline]
    pub(crate) fn virtual_time(&self) -> Option<&Sim> {
        match self {
            Self::Sim(sim) => Some(sim),
            _ => None,
        }
    }

    #[inline]
    pub(crate) fn post(&self, chain: RawChain, task: u32) -> Posted {
        of_fabric!(self, endpoint => endpoint.post(chain, task))
    }

    pub(crate) fn poll(&self, ticket: Ticket) -> Poll<(RawChain, farfield_fabric::Result<()>)> {
        of_fabric!(self, endpoint => endpoint.poll(ticket))
    }

    pub(crate) fn forget(&self, ticket: Ticket) {
        of_fabric!(self, endpoint => endpoint.forget(ticket));
    }

    #[inline]
    pub(crate) fn is_asynchronous(&self) -> bool {
        of_fabric!(self, endpoint => endpoint.is_asynchronous())
    }

    pub(crate) fn detach(&self, ticket: Ticket) {
        of_fabric!(self, endpoint => endpoint.detach(ticket));
    }

    pub(crate) fn in_background(&self, ticket: Ticket) {
        of_fabric!(self, endpoint => endpoint.in_background(ticket));
    }

    pub(crate) fn is_underway(&self) -> bool {
        of_fabric!(self, endpoint => endpoint.is_underway())
    }

    pub(crate) fn doorbells(&self) -> u64 {
        of_fabric!(self, endpoint => endpoint.doorbells())
    }

    pub(crate) fn now(&self) -> Duration {
        of_fabric!(self, endpoint => endpoint.now())
    }

    pub(crate) fn round_trip(&self) -> Option<u64> {
        of_fabric!(self, endpoint => endpoint.round_trip())
    }

    pub(crate) fn idle(&self) {
        of_fabric!(self, endpoint => endpoint.idle());
    }
}
