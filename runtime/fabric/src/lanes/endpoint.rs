//! A compute thread's access to far memory behind a network.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::client::Client;
use super::lane::Lane;
use super::node::{Connector, Network, Route};
use super::pipeline::Target;
use super::sets::{self, Lanes, OwnSet};
use super::wire::Wire;
use crate::chain::{Op, RawChain};
use crate::error::Result;
use crate::stall::{self, Waits};
use crate::{Endpoint, Posted, Ticket};
use farfield_words::Address;
use farfield_words::geometry::Geometry;

/// The rounds without a completion before it yields to other threads.
const ROUNDS_PER_YIELD: u32 = 4;
/// The same for a thread that waits for nothing but watched words: a memory node and another thread come first.
const WATCHING_ROUNDS_PER_YIELD: u32 = 1;
/// The rounds without a completion before it sleeps until one arrives, where the network can wake it, and the longest such sleep: other threads
/// can not wake it.
const ROUNDS_PER_NAP: u32 = 64;
const NAP: Duration = Duration::from_millis(1);
/// The rounds between two looks at watched words, of a thread to which others send something else.
const ROUNDS_PER_WATCH: u32 = 8;
/// The rounds after which a thread without chains in flight sleeps, and the duration of its sleep.
const ROUNDS_PER_SLEEP: u32 = 256;
const SLEEP: Duration = Duration::from_micros(20);

/// One thread's access to far memory.
#[allow(private_bounds)] // each network has an alias with its own
pub struct LaneEndpoint<N: Network> {
    pub(crate) client: Arc<Client<N>>,
    geometry: Geometry,
    /// The way to each segment.
    routes: Arc<[Route]>,
    lanes: Lanes<Connector<N>>,
    nodes: usize,
    /// The polls for completions of a lane in a round. A lane without chains in flight costs one poll.
    looks: u32,
    /// The number of chains of this thread in flight.
    underway: Cell<usize>,
    doorbells_before: u64,
    idle: Cell<u32>,
    /// True if words are watched, and if some have been changed.
    is_watching: Cell<bool>,
    has_changes: Cell<bool>,
    /// The chain that was posted last, until its first poll, which needs no look at the device; or [`Ticket::NONE`].
    newest: Cell<Ticket>,
    /// If stalls are reported: the thread's waits, and the keys of its chains in flight.
    stalls: Option<Arc<Waits>>,
    waits: RefCell<HashMap<u64, u64>>,
}

#[allow(private_bounds)]
impl<N: Network> LaneEndpoint<N> {
    /// Makes the endpoint of a thread of a run, by its index; or of a background thread.
    pub fn new(client: &Arc<Client<N>>, thread: Option<usize>, stalls: Option<Arc<Waits>>) -> Self {
        let lanes = thread.map_or_else(|| client.background_lanes(), |thread| client.lanes_of(thread));
        let lanes = if stalls.is_some() { lanes.watched() } else { lanes };
        Self {
            client: Arc::clone(client),
            geometry: client.geometry(),
            routes: Arc::clone(client.routes()),
            doorbells_before: doorbells(&lanes),
            nodes: lanes.len(),
            looks: (N::Wire::LOOKS / lanes.len().clamp(1, 8) as u32).max(1),
            lanes,
            underway: Cell::new(0),
            idle: Cell::new(0),
            is_watching: Cell::new(false),
            has_changes: Cell::new(false),
            newest: Cell::new(Ticket::NONE),
            stalls,
            waits: RefCell::default(),
        }
    }

    /// Returns the lane of a chain, and its number there.
    fn locate(ticket: Ticket) -> (usize, usize) {
        (usize::from(ticket.0 as u16), (ticket.0 >> 16) as usize)
    }

    /// Enters operations in the thread's waits. Returns the wait's key.
    #[cold]
    fn enter_wait(&self, waits: &Waits, node: u16, task: u32, ops: &[Op]) -> u64 {
        let inquiry = Arc::clone(self.lanes.lane(usize::from(node)).inquiry());
        stall::enter_flight(waits, task, ops, Box::new(move || inquiry.ask()))
    }

    #[cold]
    fn keep_wait(&self, ticket: Ticket, wait: u64) {
        self.waits.borrow_mut().insert(ticket.0, wait);
    }

    /// Removes a chain from the thread's waits.
    #[inline]
    fn is_over(&self, ticket: Ticket) {
        if let Some(waits) = &self.stalls {
            self.leave_wait(waits, ticket);
        }
    }

    #[cold]
    fn leave_wait(&self, waits: &Waits, ticket: Ticket) {
        if let Some(wait) = self.waits.borrow_mut().remove(&ticket.0) {
            waits.leave(wait);
        }
    }

    /// Returns the ticket of a chain that has this number on the lane to its memory node.
    #[inline]
    fn was_queued(&self, node: u16, number: usize) -> Ticket {
        self.underway.set(self.underway.get() + 1);
        Ticket((number as u64) << 16 | u64::from(node))
    }

    /// A chain that was taken back is over.
    #[inline]
    fn was_taken(&self, ticket: Ticket) {
        self.is_over(ticket);
        self.underway.set(self.underway.get() - 1);
        self.idle.set(0);
    }

    /// Posts a single operation of at most [`SINGLE_WORDS`](crate::chain::SINGLE_WORDS) words, with the words that it writes. It is a chain of one, but it is
    /// never moved, and [`poll_single`](Self::poll_single) polls it. It is not done before the thread has polled all its tasks.
    ///
    /// The operation is a function, which returns the same one whenever it is called: the compiler knows its kind then.
    ///
    /// # Errors
    /// Those of its address.
    #[allow(clippy::inline_always)] // or operations are
    #[inline(always)]
    pub fn post_single(
        &self,
        op: impl Fn() -> Op + Copy,
        written: &[u64],
        task: impl Fn() -> u32,
    ) -> Result<Ticket> {
        let at = op().at();
        let Some((node, target)) = self.find(at, op().words()) else {
            return Err(self.geometry.invalid(at).into());
        };
        let number = match &self.lanes {
            Lanes::Own(set) | Lanes::Watched(set) => {
                set.borrow_mut()[usize::from(node)].push_single(op, written, target)
            }
            Lanes::Shared(_) => self.push_on_shared(node, op, written, target),
        };
        let ticket = self.was_queued(node, number);
        if let Some(waits) = &self.stalls {
            self.keep_wait(ticket, self.enter_wait(waits, node, task(), &[op()]));
        }
        Ok(ticket)
    }

    /// As [`post_single`](Self::post_single), in the usual case: the address is valid, the lane is the thread's own, connected and has credits, and stalls
    /// are not reported. In any other case returns `None` and has no effect.
    ///
    /// It calls no function that returns, and neither does [`try_poll_single`](Self::try_poll_single). So the compiler need not save registers for their
    /// callers, which saves a tenth of an operation's instructions.
    #[allow(clippy::inline_always)] // as above
    #[inline(always)]
    pub fn try_post_single(&self, op: impl Fn() -> Op + Copy, written: &[u64]) -> Option<Ticket> {
        let Lanes::Own(set) = &self.lanes else { return None };
        let (node, target) = self.find(op().at(), op().words())?;
        let mut set = set.try_borrow_mut().ok()?;
        let number = set.get_mut(usize::from(node))?.try_push_single(op, written, target)?;
        Some(self.was_queued(node, number))
    }

    /// Returns the memory node of valid words, and their address there.
    #[allow(clippy::inline_always)] // as its callers
    #[inline(always)]
    fn find(&self, at: Address, words: usize) -> Option<(u16, Target)> {
        let Route { node, key, base } = self.routes.get(usize::from(at.segment()))?;
        let target = Target { address: base.wrapping_add(at.offset()), key: *key };
        self.geometry.is_inside_segment(at, words).then_some((*node, target))
    }

    /// Polls a single operation. If it is done, copies the first of its words, `into.len()` of them: what it has read.
    #[allow(clippy::inline_always)] // as above
    #[inline(always)]
    pub fn poll_single(&self, ticket: Ticket, into: &mut [u64]) -> Poll<Result<()>> {
        let (lane, number) = Self::locate(ticket);
        let polled = match &self.lanes {
            Lanes::Own(set) | Lanes::Watched(set) => set.borrow_mut()[lane].poll_single(number, into),
            Lanes::Shared(_) => self.poll_on_shared(lane, number, into),
        };
        if polled.is_ready() {
            self.was_taken(ticket);
        }
        polled
    }

    /// As [`poll_single`](Self::poll_single), in the usual case: the operation is done, and neither it nor the lane has failed. In any other case returns
    /// `None` and has no effect.
    #[allow(clippy::inline_always)] // as above
    #[inline(always)]
    pub fn try_poll_single(&self, ticket: Ticket, into: &mut [u64]) -> Option<()> {
        let Lanes::Own(set) = &self.lanes else { return None };
        let (lane, number) = Self::locate(ticket);
        set.try_borrow_mut().ok()?.get_mut(lane)?.try_poll_single(number, into)?;
        self.underway.set(self.underway.get() - 1);
        self.idle.set(0);
        Some(())
    }

    // ---- watched words -----------------------------------------------------------------------------------------

    /// Watches words, under a number: what operations of other threads change there is [forwarded](Self::take_changes), from the next operation on this
    /// memory node on. Replaces a watch that begins at the same word. Returns `false` if the network can not, the lane is not connected, or threads share it.
    ///
    /// If a connection is lost, its watches are: so read the words, and watch them again, from time to time.
    pub fn watch(&self, at: Address, words: usize, number: u64) -> bool {
        let Some((set, node, target)) = self.of_own_lane(at, words) else { return false };
        let watches = set.borrow_mut()[usize::from(node)].watch(target, words, number);
        if watches {
            self.is_watching.set(true);
        }
        watches
    }

    /// Watches the words that begin here no more, from the next operation on this memory node on.
    pub fn unwatch(&self, at: Address) {
        if let Some((set, node, target)) = self.of_own_lane(at, 1) {
            set.borrow_mut()[usize::from(node)].unwatch(target);
        }
    }

    #[allow(clippy::type_complexity)] // lanes, the number of one, and an address there
    fn of_own_lane(
        &self,
        at: Address,
        words: usize,
    ) -> Option<(&RefCell<OwnSet<Connector<N>>>, u16, Target)> {
        let (Lanes::Own(set) | Lanes::Watched(set)) = &self.lanes else { return None };
        let (node, target) = self.find(at, words)?;
        N::Wire::WATCHES.then_some((set, node, target))
    }

    /// Returns whether words are watched.
    pub fn is_watching(&self) -> bool {
        self.is_watching.get()
    }

    /// Returns whether words that are watched have been changed.
    #[inline]
    pub fn has_changes(&self) -> bool {
        self.has_changes.get()
    }

    /// Passes the changes of watched words on: the number of the watch, the address, and the words. An old number may be that of a watch before.
    pub fn take_changes(&self, mut each: impl FnMut(u64, Address, &[u64])) {
        self.has_changes.set(false);
        if let Lanes::Own(set) | Lanes::Watched(set) = &self.lanes {
            for lane in &mut *set.borrow_mut() {
                lane.take_changes(&mut each);
            }
        }
    }

    /// As [`idle`](Endpoint::idle), for a thread to which others send something else, too: `look` looks for it, and `other` becomes readable when it arrives.
    pub(crate) fn idle_beside(&self, look: impl FnOnce() -> bool, other: Option<BorrowedFd<'_>>) {
        // What is watched changes rarely then: only the others are looked at in most rounds.
        let mut has_found = self.poll_lanes() | look();
        if self.is_watching.get() && self.idle.get().is_multiple_of(ROUNDS_PER_WATCH) {
            has_found |= self.poll_watches();
        }
        self.rest(has_found, other);
    }

    /// A round of each lane. Returns whether a chain is done.
    #[allow(clippy::inline_always)] // it is what an awaited operation costs
    #[inline(always)]
    fn poll_lanes(&self) -> bool {
        let mut completed = false;
        match &self.lanes {
            Lanes::Own(set) | Lanes::Watched(set) => {
                for lane in &mut *set.borrow_mut() {
                    completed |= lane.poll_round(self.looks);
                }
            }
            Lanes::Shared(_) => completed = self.poll_shared_round(),
        }
        completed
    }

    /// After a round: lets other threads run, or sleeps until something may have arrived, also by `other`, if there was nothing for a while.
    #[allow(clippy::inline_always)] // likewise
    #[inline(always)]
    fn rest(&self, has_found: bool, other: Option<BorrowedFd<'_>>) {
        let idle = if has_found { 0 } else { self.idle.get().saturating_add(1) };
        self.idle.set(idle);
        if idle >= ROUNDS_PER_SLEEP && !self.is_underway() && !self.is_watching.get() {
            // The thread waits for other threads, or for a time: no completion of its own will arrive.
            match other {
                Some(other) => sets::wait_for(other, NAP),
                None => std::thread::sleep(SLEEP),
            }
        } else if idle >= self.rounds_per_yield() && !(idle >= ROUNDS_PER_NAP && self.lanes.nap(NAP, other)) {
            std::thread::yield_now();
        }
    }

    #[inline]
    fn rounds_per_yield(&self) -> u32 {
        let waits_for_others = N::Wire::WATCHES && self.is_watching.get() && !self.is_underway();
        if waits_for_others { WATCHING_ROUNDS_PER_YIELD } else { ROUNDS_PER_YIELD }
    }

    /// Looks for changes of watched words. Returns whether there are some.
    #[cold]
    fn poll_watches(&self) -> bool {
        let (Lanes::Own(set) | Lanes::Watched(set)) = &self.lanes else { return false };
        let (mut is_watching, mut has_changes) = (false, false);
        for lane in &mut *set.borrow_mut() {
            has_changes |= lane.poll_watches();
            is_watching |= lane.is_watching();
        }
        self.is_watching.set(is_watching);
        self.has_changes.set(has_changes);
        has_changes
    }

    // Copies for shared lanes, so that the guard of an own lane is not kept in memory.
    #[cold]
    #[inline(never)]
    fn poll_shared_round(&self) -> bool {
        (0..self.nodes).fold(false, |done, node| self.lanes.lane(node).poll_round(self.looks) | done)
    }

    #[cold]
    #[inline(never)]
    fn push_on_shared(&self, node: u16, op: impl Fn() -> Op, written: &[u64], target: Target) -> usize {
        self.lanes.lane(usize::from(node)).push_single(op, written, target)
    }

    #[cold]
    #[inline(never)]
    fn poll_on_shared(&self, lane: usize, number: usize, into: &mut [u64]) -> Poll<Result<()>> {
        self.lanes.lane(lane).poll_single(number, into)
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
        // Not by the geometry: one memory node may count as several.
        let node = self.routes[usize::from(op.at().segment())].node;
        let wait = self.stalls.as_ref().map(|waits| self.enter_wait(waits, node, task, chain.ops()));
        let number = self.lanes.lane(usize::from(node)).push(chain);
        let ticket = self.was_queued(node, number);
        if let Some(wait) = wait {
            self.keep_wait(ticket, wait);
        }
        self.newest.set(ticket);
        Posted::InFlight(ticket)
    }

    #[inline]
    fn poll(&self, ticket: Ticket) -> Poll<(RawChain, Result<()>)> {
        if self.newest.replace(Ticket::NONE) == ticket {
            return Poll::Pending;
        }
        let (lane, number) = Self::locate(ticket);
        let mut lane = self.lanes.lane(lane);
        if !lane.is_done(number) {
            return Poll::Pending;
        }
        self.was_taken(ticket);
        Poll::Ready(lane.take(number))
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
        let mut has_found = self.poll_lanes();
        if N::Wire::WATCHES && self.is_watching.get() {
            has_found |= self.poll_watches();
        }
        self.rest(has_found, None);
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
        if let Lanes::Own(set) | Lanes::Watched(set) = &mut self.lanes {
            set.borrow_mut().iter_mut().for_each(Lane::unwatch_all);
            self.client.give_back(set.take());
        }
    }
}
