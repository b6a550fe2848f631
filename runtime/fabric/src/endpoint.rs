//! Endpoints: a compute thread's access to a fabric.

use std::task::Poll;
use std::time::Duration;

use crate::chain::RawChain;
use crate::error::Result;

/// The result of posting a chain.
pub enum Posted {
    /// The chain has been executed.
    Done(RawChain, Result<()>),
    /// The chain is in flight; the endpoint owns it until it is polled to completion or forgotten.
    InFlight(Ticket),
}

/// Names a chain in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(pub u64);

impl Ticket {
    /// The ticket of no chain.
    pub const NONE: Self = Self(u64::MAX);
}

/// A compute thread's access to a fabric. Each thread has its own.
///
/// The methods with a default are for asynchronous fabrics, on which chains stay in flight while their thread runs.
pub trait Endpoint {
    /// Posts a chain on behalf of a task of the thread.
    fn post(&self, chain: RawChain, task: u32) -> Posted;

    /// Polls a chain in flight. A ticket is invalid once its chain has been returned.
    fn poll(&self, ticket: Ticket) -> Poll<(RawChain, Result<()>)>;

    /// Abandons a chain, which still takes effect. Its ticket becomes invalid.
    fn forget(&self, ticket: Ticket);

    /// Returns whether chains stay in flight while their thread runs, so that a chain without a future must be polled.
    #[inline]
    fn is_asynchronous(&self) -> bool {
        true
    }

    /// Detaches a chain: no future waits for it, but it is polled to completion, and later chains must not take effect before it. Needs no action
    /// on fabrics where all chains keep their order.
    fn detach(&self, ticket: Ticket) {
        self.in_background(ticket);
    }

    /// Marks a chain that no future waits for, although its thread polls it occasionally. For simulators, which report the waits of threads.
    fn in_background(&self, _: Ticket) {}

    /// Returns whether a chain that the thread has posted may still take effect.
    fn is_underway(&self) -> bool;

    /// Returns the number of doorbells rung: each announces all chains that were posted to one memory node at one time. 0 without a NIC.
    fn doorbells(&self) -> u64 {
        0
    }

    /// Returns the time since the cluster was connected.
    fn now(&self) -> Duration;

    /// Returns the duration of a round trip in nanoseconds, measured when the process connected; at least 1. `None` on fabrics without a real
    /// network.
    fn round_trip(&self) -> Option<u64> {
        None
    }

    /// Called when all tasks of a thread wait. Lets other threads run.
    fn idle(&self);
}
