//! A compute thread's access to far memory behind RDMA devices.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::client::Client;
use super::node;
use crate::chain::Chain;
use crate::error::Result;
use crate::stall::{self, Waits};
use crate::{Endpoint, Posted, Ticket};
use farfield_words::geometry::Geometry;

/// How often a thread that has nothing else to do looks for completions before it looks at its tasks again.
const LOOKS_PER_ROUND: u32 = 32;
/// How many rounds in vain there are before it lets others run.
const ROUNDS_PER_YIELD: u32 = 4;
/// After how many a thread with nothing in flight sleeps, and for how long.
const ROUNDS_PER_SLEEP: u32 = 256;
const SLEEP: Duration = Duration::from_micros(20);

/// One thread's access to far memory.
pub struct Verbs {
    client: Arc<Client>,
    geometry: Geometry,
    lanes: Vec<Arc<node::ThreadLane>>,
    /// Chains of this thread that are not over.
    underway: Cell<usize>,
    doorbells_before: u64,
    idle: Cell<u32>,
    /// The chain that was posted last, until it is looked at: that it is not done needs no look.
    newest: Cell<Option<Ticket>>,
    /// Where stalls are reported: the thread's waits, and the keys of the chains in flight among them.
    stalls: Option<Arc<Waits>>,
    waits: RefCell<HashMap<u64, u64>>,
}

impl Verbs {
    /// That of a thread of a run, by its index; or of one in the background.
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

    /// Which lane a chain is on, and its number there.
    fn locate(ticket: Ticket) -> (usize, usize) {
        ((ticket.0 >> 48) as usize, (ticket.0 & ((1 << 48) - 1)) as usize)
    }

    /// A chain is waited for no longer.
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
    fn post(&self, chain: Chain, task: u32) -> Posted {
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

    fn poll(&self, ticket: Ticket) -> Poll<(Chain, Result<()>)> {
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

    /// Whether anything that this thread has posted is not over.
    fn is_underway(&self) -> bool {
        self.underway.get() > 0
    }

    /// Posts what the thread's tasks have handed over, and looks for completions; lets others run where there are none.
    ///
    /// A device in software does its work on the same processors: a thread that only looks would keep it from them.
    fn idle(&self) {
        let mut completed = false;
        // Those with nothing in flight cost a look.
        let looks = LOOKS_PER_ROUND / self.lanes.len().min(8) as u32;
        for lane in &self.lanes {
            completed |= lane.poll_round(looks);
        }
        let idle = if completed { 0 } else { self.idle.get().saturating_add(1) };
        self.idle.set(idle);
        if idle >= ROUNDS_PER_SLEEP && !self.is_underway() {
            // It waits for other threads, or for a time: nothing of its own will come.
            std::thread::sleep(SLEEP);
        } else if idle >= ROUNDS_PER_YIELD {
            std::thread::yield_now();
        }
    }

    /// Doorbells rung on its lanes since it began: with those of others that share them.
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
    /// What nobody waits for is posted all the same, however much is under way: no thread would look at it again.
    fn drop(&mut self) {
        for lane in &self.lanes {
            lane.post_all();
        }
    }
}
