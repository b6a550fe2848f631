//! Endpoints: a compute thread's access to a fabric.

use std::task::Poll;
use std::time::Duration;

use crate::chain::Chain;
use crate::error::Result;

/// What posting a chain gives.
pub enum Posted {
    /// It has been executed.
    Done(Chain, Result<()>),
    /// It is in flight; the endpoint owns it until it is polled to completion or forgotten.
    InFlight(Ticket),
}

/// Names a chain in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(pub u64);

/// A compute thread's access to a fabric. Each thread has its own.
///
/// The methods that have a default are for fabrics on which chains stay in flight while their thread goes on.
pub trait Endpoint {
    /// Posts a chain on behalf of a task of the thread.
    fn post(&self, chain: Chain, task: u32) -> Posted;

    /// Looks whether a chain in flight has completed; its ticket is over then.
    fn poll(&self, ticket: Ticket) -> Poll<(Chain, Result<()>)>;

    /// Gives up waiting for a chain, which takes effect all the same. Its ticket is over.
    fn forget(&self, ticket: Ticket);

    /// True if chains stay in flight while their thread goes on, so that a chain without a future must be polled.
    #[inline]
    fn is_asynchronous(&self) -> bool {
        true
    }

    /// No future waits for a chain any more; but it is polled to completion, and nothing that is posted from now on may take effect
    /// before it. Needs no action where all chains keep their order.
    fn detach(&self, ticket: Ticket) {
        self.in_background(ticket);
    }

    /// No future waits for a chain, though its thread polls it now and then. For simulators, which report what threads wait for.
    fn in_background(&self, _: Ticket) {}

    /// True if a chain that the thread has posted may still take effect.
    fn is_underway(&self) -> bool;

    /// Doorbells rung: each announces all chains that were posted to one memory node at one time. None where there is no NIC.
    fn doorbells(&self) -> u64 {
        0
    }

    /// The time since the cluster was connected.
    fn now(&self) -> Duration;

    /// The duration of a round trip where it is a real one, in nanoseconds, measured when the process connected; at least one.
    fn round_trip(&self) -> Option<u64> {
        None
    }

    /// Called when all of a thread's tasks wait: lets other threads run.
    fn idle(&self);
}
