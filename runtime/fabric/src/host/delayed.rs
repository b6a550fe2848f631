//! The host's memory behind a delay: each chain completes at a seeded poll after it was posted.
//!
//! `local:delay=N` makes programs wait as on a network: the tasks of a thread interleave, futures are dropped with operations in flight, and
//! completions arrive out of order. It is for tests of code that otherwise finds every operation ready immediately, not for measurements.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::Host;
use crate::chain::RawChain;
use crate::error::Result;
use crate::stall::{self, Waits};
use crate::{Endpoint, Posted, Ticket};

/// One thread's delayed access to the host's memory.
pub struct Delayed {
    host: Host,
    max_polls: u32,
    rng: RefCell<SmallRng>,
    next_ticket: Cell<u64>,
    in_flight: RefCell<Vec<InFlight>>,
    stalls: Option<Arc<Waits>>,
}

struct InFlight {
    ticket: Ticket,
    remaining_polls: u32,
    chain: RawChain,
    /// The key of its entry in the thread's waits.
    wait: u64,
}

impl Delayed {
    /// Makes an endpoint whose chains complete at a poll that is drawn from the seed, at the `max_polls`th at the latest.
    pub fn new(host: Host, max_polls: u32, seed: u64, stalls: Option<Arc<Waits>>) -> Self {
        Self {
            host,
            max_polls,
            rng: RefCell::new(SmallRng::seed_from_u64(seed)),
            next_ticket: Cell::new(0),
            in_flight: RefCell::default(),
            stalls,
        }
    }

    /// Returns the memory, without the delay.
    pub fn host(&self) -> &Host {
        &self.host
    }

    fn take(&self, flight: InFlight) -> RawChain {
        if let Some(waits) = &self.stalls {
            waits.leave(flight.wait);
        }
        flight.chain
    }
}

impl Endpoint for Delayed {
    fn post(&self, chain: RawChain, task: u32) -> Posted {
        let ticket = Ticket(self.next_ticket.replace(self.next_ticket.get() + 1));
        let remaining_polls = self.rng.borrow_mut().random_range(1..=self.max_polls);
        let wait = self.stalls.as_ref().map_or(0, |waits| {
            let why =
                || "its task is not polled: a combinator has dropped it, or its thread is busy".to_owned();
            stall::enter_flight(waits, task, chain.ops(), Box::new(why))
        });
        self.in_flight.borrow_mut().push(InFlight { ticket, remaining_polls, chain, wait });
        Posted::InFlight(ticket)
    }

    fn poll(&self, ticket: Ticket) -> Poll<(RawChain, Result<()>)> {
        let mut in_flight = self.in_flight.borrow_mut();
        let position = position(&in_flight, ticket);
        if in_flight[position].remaining_polls > 0 {
            in_flight[position].remaining_polls -= 1;
            return Poll::Pending;
        }
        let mut chain = self.take(in_flight.swap_remove(position));
        let result = self.host.execute(&mut chain);
        Poll::Ready((chain, result.map(drop)))
    }

    /// The operations were posted, so they take effect now.
    fn forget(&self, ticket: Ticket) {
        let mut in_flight = self.in_flight.borrow_mut();
        let position = position(&in_flight, ticket);
        let mut chain = self.take(in_flight.swap_remove(position));
        // No future waits for the result, so an error is dropped.
        drop(self.host.execute(&mut chain));
    }

    fn is_asynchronous(&self) -> bool {
        false
    }

    fn is_underway(&self) -> bool {
        false
    }

    fn now(&self) -> Duration {
        self.host.now()
    }

    fn idle(&self) {
        self.host.idle();
    }
}

fn position(in_flight: &[InFlight], ticket: Ticket) -> usize {
    in_flight
        .iter()
        .position(|entry| entry.ticket == ticket)
        .expect("a ticket is polled until its chain completes")
}
