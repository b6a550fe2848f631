//! A compute thread's access to far memory behind RDMA devices.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::client::Client;
use super::node;
use crate::chain::RawChain;
use crate::error::Result;
use crate::stall::{self, Waits};
use crate::{Endpoint, Posted, Ticket};
use farfield_words::geometry::Geometry;

/// The polls for completions of an idle thread before it polls its tasks again.
const LOOKS_PER_ROUND: u32 = 32;
/// The rounds without a completion before it yields to other threads.
const ROUNDS_PER_YIELD: u32 = 4;
/// The rounds after which a thread without chains in flight sleeps, and the duration of its sleep.
const ROUNDS_PER_SLEEP: u32 = 256;
const SLEEP: Duration = Duration::from_micros(20);

/// One thread's access to far memory.
pub struct Verbs {
    client: Arc<Client>,
    geometry: Geometry,
    lanes: Vec<Arc<node::ThreadLane>>,
    /// The number of chains of this thread in flight.
    underway: Cell<usize>,
    doorbells_before: u64,
    idle: Cell<u32>,
    /// The chain that was posted last, until its first poll, which needs no look at the device.
    newest: Cell<Option<Ticket>>,
    /// If stalls are reported: the thread's waits, and the keys of its chains in flight.
    stalls: Option<Arc<Waits>>,
    waits: RefCell<HashMap<u64, u64>>,
}

impl Verbs {
    /// Makes the endpoint of a thread of a run, by its index; or of a background thread.
    pub fn new(client: &Arc<Client>, thread: Option<usize>, stalls: Option<Arc<Waits>>) -> Self {
        let lanes = thread.map_or_else(|| client.background_lanes(), |thread| client.lanes_of(thread));
        Self {
            client: Arc::clone(client),
            geometry: client.geometry(),
            doorbells_before: lanes.iter().map(|lane| lane.doorbells()).sum(),
            lanes,
            underway: Cell::new(0),
            idle: Cell::new(0),
            newest: Cell::new(None),
            stalls,
            waits: RefCell::default(),
        }
    }

    /// Returns the lane of a chain, and its number there.
    fn locate(ticket: Ticket) -> (usize, usize) {
        ((ticket.0 >> 48) as usize, (ticket.0 & ((1 << 48) - 1)) as usize)
    }

    /// Removes a chain from the thread's waits.
    #[inline]
    fn is_over(&self, ticket: Ticket) {
        if let Some(waits) = &self.stalls
            && let Some(wait) = self.waits.borrow_mut().remove(&ticket.0)
        {
            waits.leave(wait);
        }
    }
}

impl Endpoint for Verbs {
    fn post(&self, chain: RawChain, task: u32) -> Posted {
        for op in chain.ops() {
            if let Err(error) = self.geometry.check(op.at(), op.words()) {
                return Posted::Done(chain, Err(error.into()));
            }
        }
        let Some(op) = chain.ops().first() else { return Posted::Done(chain, Ok(())) };
        let node = self.geometry.node_of(op.at().segment());
        let lane = &self.lanes[usize::from(node)];
        let wait = self.stalls.as_ref().map(|waits| {
            let lane = Arc::clone(lane);
            stall::enter_flight(waits, task, &chain, Box::new(move || lane.describe()))
        });
        let number = lane.push(chain);
        self.underway.set(self.underway.get() + 1);
        let ticket = Ticket(u64::from(node) << 48 | number as u64);
        if let Some(wait) = wait {
            self.waits.borrow_mut().insert(ticket.0, wait);
        }
        self.newest.set(Some(ticket));
        Posted::InFlight(ticket)
    }

    fn poll(&self, ticket: Ticket) -> Poll<(RawChain, Result<()>)> {
        if self.newest.take() == Some(ticket) {
            return Poll::Pending;
        }
        let (lane, number) = Self::locate(ticket);
        match self.lanes[lane].poll(number) {
            Some(done) => {
                self.is_over(ticket);
                self.underway.set(self.underway.get() - 1);
                self.idle.set(0);
                Poll::Ready(done)
            }
            None => Poll::Pending,
        }
    }

    fn forget(&self, ticket: Ticket) {
        let (lane, number) = Self::locate(ticket);
        self.is_over(ticket);
        self.underway.set(self.underway.get() - 1);
        self.lanes[lane].forget(number);
    }

    fn detach(&self, ticket: Ticket) {
        let (lane, number) = Self::locate(ticket);
        self.lanes[lane].detach(number);
    }

    /// Returns whether this thread has chains in flight.
    fn is_underway(&self) -> bool {
        self.underway.get() > 0
    }

    /// Posts the queued chains of the thread's tasks, and polls for completions; yields to other threads if there are none.
    ///
    /// A software device runs on the same processors: a thread that only polls would keep it from running.
    fn idle(&self) {
        let mut completed = false;
        // A lane without chains in flight costs one poll.
        let looks = LOOKS_PER_ROUND / self.lanes.len().min(8) as u32;
        for lane in &self.lanes {
            completed |= lane.poll_round(looks);
        }
        let idle = if completed { 0 } else { self.idle.get().saturating_add(1) };
        self.idle.set(idle);
        if idle >= ROUNDS_PER_SLEEP && !self.is_underway() {
            // The thread waits for other threads, or for a time: no completion of its own will arrive.
            std::thread::sleep(SLEEP);
        } else if idle >= ROUNDS_PER_YIELD {
            std::thread::yield_now();
        }
    }

    /// Returns the doorbells rung on its lanes since it was made, including those of other threads that share them.
    fn doorbells(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.doorbells()).sum::<u64>() - self.doorbells_before
    }

    fn round_trip(&self) -> Option<u64> {
        Some(self.client.round_trip())
    }

    fn now(&self) -> Duration {
        self.client.connected().elapsed()
    }
}

impl Drop for Verbs {
    /// Posts all queued chains, even detached ones: no thread would poll them again.
    fn drop(&mut self) {
        for lane in &self.lanes {
            lane.post_all();
        }
    }
}
