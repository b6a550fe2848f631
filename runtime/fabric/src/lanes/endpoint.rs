//! A compute thread's access to far memory behind a network.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::client::Client;
use super::lane::Lane;
use super::node::{Connector, Network};
use super::pipeline::SINGLE_WORDS;
use super::sets::Lanes;
use super::wire::Wire;
use crate::chain::{Op, RawChain};
use crate::error::Result;
use crate::stall::{self, Waits};
use crate::{Endpoint, Posted, Ticket};
use farfield_words::geometry::Geometry;

/// The rounds without a completion before it yields to other threads.
const ROUNDS_PER_YIELD: u32 = 4;
/// The rounds without a completion before it sleeps until one arrives, where the network can wake it, and the longest such sleep: other threads
/// can not wake it.
const ROUNDS_PER_NAP: u32 = 64;
const NAP: Duration = Duration::from_millis(1);
/// The rounds after which a thread without chains in flight sleeps, and the duration of its sleep.
const ROUNDS_PER_SLEEP: u32 = 256;
const SLEEP: Duration = Duration::from_micros(20);

/// The ticket of no chain.
const NO_CHAIN: Ticket = Ticket(u64::MAX);

/// One thread's access to far memory.
#[allow(private_bounds)] // each network has an alias with its own
pub struct LaneEndpoint<N: Network> {
    client: Arc<Client<N>>,
    geometry: Geometry,
    lanes: Lanes<Connector<N>>,
    nodes: usize,
    /// The polls for completions of a lane in a round. A lane without chains in flight costs one poll.
    looks: u32,
    /// The number of chains of this thread in flight.
    underway: Cell<usize>,
    doorbells_before: u64,
    idle: Cell<u32>,
    /// The chain that was posted last, until its first poll, which needs no look at the device; or [`NO_CHAIN`].
    newest: Cell<Ticket>,
    /// If stalls are reported: the thread's waits, and the keys of its chains in flight.
    stalls: Option<Arc<Waits>>,
    waits: RefCell<HashMap<u64, u64>>,
}

#[allow(private_bounds)]
impl<N: Network> LaneEndpoint<N> {
    /// The most words of a single operation.
    pub const SINGLE_WORDS: usize = SINGLE_WORDS;

    /// Makes the endpoint of a thread of a run, by its index; or of a background thread.
    pub fn new(client: &Arc<Client<N>>, thread: Option<usize>, stalls: Option<Arc<Waits>>) -> Self {
        let lanes = thread.map_or_else(|| client.background_lanes(), |thread| client.lanes_of(thread));
        Self {
            client: Arc::clone(client),
            geometry: client.geometry(),
            doorbells_before: doorbells(&lanes),
            nodes: lanes.len(),
            looks: (N::Wire::LOOKS / lanes.len().clamp(1, 8) as u32).max(1),
            lanes,
            underway: Cell::new(0),
            idle: Cell::new(0),
            newest: Cell::new(NO_CHAIN),
            stalls,
            waits: RefCell::default(),
        }
    }

    /// Returns the lane of a chain, and its number there.
    fn locate(ticket: Ticket) -> (usize, usize) {
        ((ticket.0 >> 48) as usize, (ticket.0 & ((1 << 48) - 1)) as usize)
    }

    /// Enters operations that are about to be queued in the thread's waits. Returns the wait's key.
    #[cold]
    fn enter_wait(&self, waits: &Waits, node: u16, task: u32, ops: &[Op]) -> u64 {
        let inquiry = Arc::clone(self.lanes.lane(usize::from(node)).inquiry());
        stall::enter_flight(waits, task, ops, Box::new(move || inquiry.ask()))
    }

    /// Removes a chain from the thread's waits.
    #[inline]
    fn is_over(&self, ticket: Ticket) {
        if let Some(waits) = &self.stalls {
            self.leave_wait(waits, ticket);
        }
    }

    #[cold]
    fn keep_wait(&self, ticket: Ticket, wait: u64) {
        self.waits.borrow_mut().insert(ticket.0, wait);
    }

    #[cold]
    fn leave_wait(&self, waits: &Waits, ticket: Ticket) {
        if let Some(wait) = self.waits.borrow_mut().remove(&ticket.0) {
            waits.leave(wait);
        }
    }

    /// Returns the ticket of a chain that has this number on the lane to its memory node. Enters it in the thread's waits.
    #[allow(clippy::inline_always)] // it is short
    #[inline(always)]
    fn was_queued(&self, node: u16, number: usize, wait: Option<u64>) -> Ticket {
        self.underway.set(self.underway.get() + 1);
        let ticket = Ticket(u64::from(node) << 48 | number as u64);
        if let Some(wait) = wait {
            self.keep_wait(ticket, wait);
        }
        ticket
    }

    /// Takes back a chain by `take`, if it is done, and ends its wait.
    #[allow(clippy::inline_always)] // or results are copied through memory
    #[inline(always)]
    fn poll_by<R>(&self, ticket: Ticket, take: impl FnOnce(&mut Lane<Connector<N>>, usize) -> R) -> Poll<R> {
        let (lane, number) = Self::locate(ticket);
        let mut lane = self.lanes.lane(lane);
        let lane: &mut Lane<Connector<N>> = &mut lane;
        if !lane.is_done(number) {
            return Poll::Pending;
        }
        self.is_over(ticket);
        self.underway.set(self.underway.get() - 1);
        self.idle.set(0);
        Poll::Ready(take(lane, number))
    }

    /// Posts a single operation of at most [`SINGLE_WORDS`](Self::SINGLE_WORDS) words, with the words that it writes. It is a chain of one, but it is
    /// never moved, and [`poll_single`](Self::poll_single) polls it. It is not done before the thread has polled all its tasks.
    ///
    /// # Errors
    /// Those of its address.
    #[allow(clippy::inline_always)] // or operations are
    #[inline(always)]
    pub fn post_single(&self, op: Op, written: &[u64], task: u32) -> Result<Ticket> {
        self.geometry.check(op.at(), op.words())?;
        let node = self.geometry.node_of(op.at().segment());
        let wait =
            self.stalls.as_ref().map(|waits| self.enter_wait(waits, node, task, std::slice::from_ref(&op)));
        let number = self.lanes.lane(usize::from(node)).push_single(op, written);
        Ok(self.was_queued(node, number, wait))
    }

    /// Polls a single operation. If it is done, returns what `result` makes of it and of the buffer at whose beginning its result is.
    #[allow(clippy::inline_always)] // as above
    #[inline(always)]
    pub fn poll_single<R>(
        &self,
        ticket: Ticket,
        result: impl FnOnce(&Op, &[u64; SINGLE_WORDS]) -> R,
    ) -> Poll<Result<R>> {
        self.poll_by(ticket, |lane, number| lane.take_single(number, result))
    }
}

fn doorbells<N: Network>(lanes: &Lanes<Connector<N>>) -> u64 {
    (0..lanes.len()).map(|node| lanes.lane(node).doorbells()).sum()
}

impl<N: Network> Endpoint for LaneEndpoint<N> {
    #[inline]
    fn post(&self, chain: RawChain, task: u32) -> Posted {
        for op in chain.ops() {
            if let Err(error) = self.geometry.check(op.at(), op.words()) {
                return Posted::Done(chain, Err(error.into()));
            }
        }
        let Some(op) = chain.ops().first() else { return Posted::Done(chain, Ok(())) };
        let node = self.geometry.node_of(op.at().segment());
        let wait = self.stalls.as_ref().map(|waits| self.enter_wait(waits, node, task, chain.ops()));
        let number = self.lanes.lane(usize::from(node)).push(chain);
        let ticket = self.was_queued(node, number, wait);
        self.newest.set(ticket);
        Posted::InFlight(ticket)
    }

    #[inline]
    fn poll(&self, ticket: Ticket) -> Poll<(RawChain, Result<()>)> {
        if self.newest.replace(NO_CHAIN) == ticket {
            return Poll::Pending;
        }
        self.poll_by(ticket, Lane::take)
    }

    fn forget(&self, ticket: Ticket) {
        let (lane, number) = Self::locate(ticket);
        self.is_over(ticket);
        self.underway.set(self.underway.get() - 1);
        self.lanes.lane(lane).forget(number);
    }

    fn detach(&self, ticket: Ticket) {
        let (lane, number) = Self::locate(ticket);
        self.lanes.lane(lane).detach(number);
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
        for node in 0..self.nodes {
            completed |= self.lanes.lane(node).poll_round(self.looks);
        }
        let idle = if completed { 0 } else { self.idle.get().saturating_add(1) };
        self.idle.set(idle);
        if idle >= ROUNDS_PER_SLEEP && !self.is_underway() {
            // The thread waits for other threads, or for a time: no completion of its own will arrive.
            std::thread::sleep(SLEEP);
        } else if idle >= ROUNDS_PER_YIELD && !(idle >= ROUNDS_PER_NAP && self.lanes.nap(NAP)) {
            std::thread::yield_now();
        }
    }

    /// Returns the doorbells rung on its lanes since it was made, including those of other threads that share them.
    fn doorbells(&self) -> u64 {
        doorbells(&self.lanes) - self.doorbells_before
    }

    fn round_trip(&self) -> Option<u64> {
        Some(self.client.round_trip())
    }

    fn now(&self) -> Duration {
        self.client.connected().elapsed()
    }
}

impl<N: Network> Drop for LaneEndpoint<N> {
    /// Posts all queued chains, even detached ones: no thread would poll them again. Returns the thread's own lanes.
    fn drop(&mut self) {
        for node in 0..self.nodes {
            self.lanes.lane(node).post_all();
        }
        if let Lanes::Own(set) = &mut self.lanes {
            self.client.give_back(set.take());
        }
    }
}
