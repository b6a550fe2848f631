//! The epoch of a cluster of several processes, in far memory, off every operation's path.
//!
//! Segment 0's control block has the *epoch* and a *slot* for each process. A process announces epoch `e` in its slot once it has read `e` and
//! none of its threads is pinned in an earlier epoch. The epoch advances from `e` to `e + 1`, by CAS, when every used slot has announced `e`.
//! So while any thread is pinned at `m`, its process announces at most `m`, and the epoch is at most `m + 1`. From this bound
//! [`epoch`](crate::epoch) proves that memory is not reused too early. The value of a slot in use only grows, so a stale read of it is
//! conservative.
//!
//! # A step
//!
//! One thread of a process at a time takes a step; meanwhile the others return without one.
//! 1. One chain reads the epoch and, behind it, all slots.
//! 2. The process adopts the epoch. If its threads have caught up, one chain writes its slot and, if all other slots
//!    have announced this epoch too, advances the epoch by CAS.
//!
//! A step that *follows* reads no slots, and does not advance the epoch. With `n` processes a scan of the slots takes the home node as long as some `n / 16`
//! small operations, so if each process scanned in each of its steps, 1,024 processes would take a sixth of what that node can do. In a cluster of more than
//! [`FEW_PROCESSES`] a process scans in one of `n / FEW_PROCESSES` steps, and follows in the others: together they scan as often as a few would.
//!
//! Steps are posted and not waited for: after every 64 objects that a thread retires, at a page of the pool that it takes while 16 are retired, and
//! after every [`CHAINS_PER_STEP`] chains, so that a process that only reads does not hold back the others. Waits count as chains, too. An idle process holds back the epoch until
//! it posts a chain or waits, leaves, or is evicted.
//!
//! # Joining and leaving
//!
//! A process that joins (see `membership/members`) raises the number of used slots past its own, announces the epoch that it has read, and
//! reads the epoch again. If it has advanced, the process announces the new one, until both agree. From then on every scan of the slots
//! includes it. One scan that began before may still advance the epoch once; the bound above allows that one step.
//! A process leaves by writing 0. The evictor of a dead process writes 0 into its slot, once no operation of it can take effect any more.
//!
//! A process that is alone in its cluster has only its own level of the epochs, and takes no steps.

use std::future::poll_fn;
use std::task::Poll;

use super::member::{Member, Slots};
use super::worker::Worker;
use crate::error::Result;
use crate::io::Posted;
use crate::io::operations::*;
use crate::segment::control::{self, EPOCH_COUNTERS, EpochPage, SLOTS_HERE, SLOTS_PER_PAGE};
use crate::segment::decode;
use farfield_fabric::Ticket;
use farfield_fabric::chain::{RawChain, Slot};
use farfield_sim::Plant;
use farfield_words::Address;

/// The number of chains that a thread posts between steps.
const CHAINS_PER_STEP: u32 = 1024;
/// The number of chains that a wait counts for, besides one for each of its round trips, in a cluster of up to [`FEW_PROCESSES`].
const CHAINS_PER_WAIT: u64 = 64;
/// So many processes scan the slots in each step.
const FEW_PROCESSES: usize = 16;

/// A part of a step that is in flight.
pub(crate) struct Step {
    ticket: Ticket,
    part: Part,
}

/// The aim of a step.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StepKind {
    /// To announce the epoch, and to advance it if all have announced it.
    Advance,
    /// To announce the epoch.
    Follow,
}

enum Part {
    /// Reads the epoch, the counters beside it and, unless it follows, the slots in the control block; the addresses of pages; and the known pages.
    Scan {
        /// The epoch, by a READ in front of that of the slots, if the words of one have no order.
        apart: Option<Slot>,
        head: Slot,
        addresses: Option<Slot>,
        pages: Vec<(Address, Slot)>,
        kind: StepKind,
    },
    /// Writes the slot and, perhaps, advances the epoch.
    Announce { epoch: u64, exchange: Option<Slot> },
}

impl Worker {
    // ---- steps -------------------------------------------------------------------------------------------------

    /// Counts a posted chain, and takes a step if it is due.
    #[inline]
    pub(crate) fn count_towards_step(&self) {
        if self.process.member().is_some() {
            let remaining = self.until_step.get();
            if remaining == 0 || self.takes_step.get() {
                self.step_if_due();
            } else {
                self.until_step.set(remaining - 1);
            }
        }
    }

    /// Returns whether no step is due, and none is being taken.
    #[inline]
    pub(crate) fn is_before_step(&self) -> bool {
        self.until_step.get() > 0 && !self.takes_step.get()
    }

    /// Counts a wait, and takes a step if it is due.
    pub(crate) fn count_wait_towards_step(&self, round_trips: u64) {
        if let Some(member) = self.process.member() {
            // A step reads the slots of all processes, so it is rarer in a large cluster.
            let processes = member.slots().used.max(FEW_PROCESSES) as u64;
            let chains = (round_trips + CHAINS_PER_WAIT) * FEW_PROCESSES as u64 / processes;
            let chains = u32::try_from(chains).unwrap_or(u32::MAX);
            self.until_step.set(self.until_step.get().saturating_sub(chains));
            self.step_if_due();
        }
    }

    #[cold]
    fn step_if_due(&self) {
        let remaining = self.until_step.get();
        if remaining > 0 {
            self.until_step.set(remaining - 1);
            if !self.takes_step.get() {
                return;
            }
        } else {
            self.until_step.set(CHAINS_PER_STEP);
            self.begin_step(self.next_kind());
        }
        self.continue_step();
    }

    /// The kind of a step for which no thread waits.
    fn next_kind(&self) -> StepKind {
        let Some(member) = self.process.member() else { return StepKind::Advance };
        let step = self.steps.get();
        self.steps.set(step.wrapping_add(1));
        // The processes scan in different steps.
        let steps_per_scan = member.slots().used.div_euclid(FEW_PROCESSES).max(1);
        let scans = (step as usize).wrapping_add(member.number).is_multiple_of(steps_per_scan);
        if scans { StepKind::Advance } else { StepKind::Follow }
    }

    /// Advances the epoch if that takes no round trip; a member begins a step, without waiting for it. Returns the epoch that the process
    /// knows.
    pub(crate) fn advance_epoch(&self) -> u64 {
        let is_eager = self.advance_eagerly();
        if self.process.member().is_none() && !is_eager {
            return self.process.collector.try_advance();
        }
        self.begin_step(self.next_kind());
        self.known_epoch()
    }

    /// Begins a step, unless another thread of the process takes one.
    fn begin_step(&self, kind: StepKind) {
        let Some(member) = self.process.member() else { return };
        if !member.begin_step() {
            return;
        }
        let Slots { used, pages } = match kind {
            StepKind::Advance => member.slots().clone(),
            StepKind::Follow => Slots::default(),
        };
        let mut chain = self.empty_chain();
        // The epoch first, so the slots are read after it: by a READ of its own, where the words of one have no order.
        // Eager reclamation waits for no slot.
        let is_apart =
            kind == StepKind::Advance && self.eager.is_none() && !self.io.endpoint.has_ordered_words();
        let apart = is_apart.then(|| chain.read(control::epoch(), 1));
        let head = chain.read(control::epoch(), EPOCH_COUNTERS + used.min(SLOTS_HERE));
        let addresses = (!pages.is_empty()).then(|| chain.read(control::epoch_page(0), pages.len()));
        let pages = pages.iter().filter(|page| !page.is_null());
        let pages = pages.map(|page| (*page, chain.read(*page, SLOTS_PER_PAGE))).collect();
        self.post_part(chain, Part::Scan { apart, head, addresses, pages, kind });
    }

    /// Posts a part of a step.
    fn post_part(&self, chain: RawChain, part: Part) {
        let Some(member) = self.process.member() else { return };
        let (mut chain, mut part) = (chain, part);
        loop {
            match self.submit(chain).into_posted() {
                Some(Posted::InFlight(ticket)) => {
                    self.io.endpoint.in_background(ticket);
                    *self.step.borrow_mut() = Some(Step { ticket, part });
                    self.takes_step.set(true);
                    return;
                }
                // In shared memory the chain is done when it is posted.
                Some(Posted::Done(done, result)) => {
                    let next = self.next_part(member, part, &done, result.map_err(Into::into));
                    self.recycle(done);
                    match next {
                        Some(next) => (chain, part) = next,
                        None => return self.end_step(),
                    }
                }
                None => return self.end_step(),
            }
        }
    }

    fn end_step(&self) {
        if let Some(member) = self.process.member() {
            member.end_step();
        }
    }

    /// Continues the step if its chain has completed. Returns whether the step is still in progress.
    pub(crate) fn continue_step(&self) -> bool {
        let Some(member) = self.process.member() else { return false };
        loop {
            let Some(ticket) = self.step.borrow().as_ref().map(|step| step.ticket) else { return false };
            let Poll::Ready((chain, result)) = self.poll_posted(ticket) else { return true };
            let part = self.step.take().map(|step| step.part);
            self.takes_step.set(false);
            let next = part.and_then(|part| self.next_part(member, part, &chain, result.map_err(Into::into)));
            self.recycle(chain);
            match next {
                Some((chain, part)) => self.post_part(chain, part),
                None => self.end_step(),
            }
        }
    }

    /// The next part of a step. An error ends the step; it is recorded.
    fn next_part(
        &self,
        member: &Member,
        part: Part,
        done: &RawChain,
        result: Result<()>,
    ) -> Option<(RawChain, Part)> {
        let next = result.ok().map(|()| self.continue_after(member, part, done))?;
        next.unwrap_or_else(|error| {
            self.failures.note(self.time(), &error, "could not follow the epoch");
            None
        })
    }

    fn continue_after(
        &self,
        member: &Member,
        part: Part,
        done: &RawChain,
    ) -> Result<Option<(RawChain, Part)>> {
        let collector = &self.process.collector;
        match part {
            Part::Scan { apart, head, addresses, pages, kind } => {
                let [epoch, used, requests, coalesced, here @ ..] = done.words(head) else {
                    return Ok(None);
                };
                let (epoch, used) = (
                    decode::epoch(apart.map_or(*epoch, |apart| done.word(apart)))?,
                    decode::used_slots(*used)?,
                );
                // Before the epoch is announced: see `compaction`.
                self.process.observe_counters(*requests, *coalesced);
                let needed = used.saturating_sub(SLOTS_HERE).div_ceil(SLOTS_PER_PAGE);
                if kind == StepKind::Follow {
                    // The next scan includes them. No scan of this process is in flight: it takes one step at a time.
                    let mut slots = member.slots();
                    slots.used = used;
                    slots.pages.resize(needed, Address::NULL);
                } else {
                    let words = addresses.map_or(&[][..], |addresses| done.words(addresses));
                    let mut seen = Slots { used, pages: Vec::new() };
                    for (index, word) in words.iter().enumerate() {
                        let page = decode::slot_page(&self.heap().grid, index, *word)?;
                        seen.pages.push(page.unwrap_or(Address::NULL));
                    }
                    seen.pages.resize(needed, Address::NULL);
                    if *member.slots() != seen {
                        // This scan has missed slots; the next one includes them.
                        *member.slots() = seen;
                        return Ok(None);
                    }
                }
                collector.observe(epoch);
                let slot = member.slot();
                if slot.is_null() || !collector.has_caught_up(epoch) {
                    return Ok(None);
                }
                let mut chain = self.empty_chain();
                if member.announced() < epoch {
                    chain.write(slot, &[epoch]);
                }
                let pages = pages.iter().flat_map(|(page, words)| {
                    let page = *page;
                    (0..).map(move |within| EpochPage::slot(page, within)).zip(done.words(*words))
                });
                let here = (0..).map(control::epoch_slot).zip(here);
                // Not its own slot: a WRITE of it is in this chain, or may be in flight.
                let is_behind =
                    |(at, announced): (Address, &u64)| at != slot && (1..epoch).contains(announced);
                let mut exchange = None;
                if kind == StepKind::Advance {
                    let behind = here.chain(pages).find(|place| is_behind(*place)).map(|(at, _)| at);
                    member.set_behind(behind);
                    exchange = (behind.is_none() || self.has(Plant::LonelyEpoch))
                        .then(|| chain.compare_exchange(control::epoch(), epoch, epoch + 1));
                }
                if chain.ops().is_empty() {
                    self.recycle(chain);
                    return Ok(None);
                }
                Ok(Some((chain, Part::Announce { epoch, exchange })))
            }
            Part::Announce { epoch, exchange } => {
                member.set_announced(epoch);
                if exchange.is_some_and(|exchange| done.word(exchange) == epoch) {
                    collector.observe(epoch + 1);
                    tracing::trace!(epoch = epoch + 1, "advanced the epoch");
                }
                Ok(None)
            }
        }
    }

    /// The epoch, and the process that is furthest behind it. One round trip, none if this process is alone.
    pub(crate) async fn read_announcements(&self) -> Result<(u64, Option<usize>)> {
        let Some(member) = self.process.member() else { return Ok((self.known_epoch(), None)) };
        self.announce_all();
        let Slots { used, pages } = member.slots().clone();
        let mut chain = self.empty_chain();
        let head = chain.read(control::epoch(), EPOCH_COUNTERS + used.clamp(1, SLOTS_HERE));
        let there = pages.iter().take_while(|page| !page.is_null());
        let pages: Vec<Slot> = there.map(|page| chain.read(*page, SLOTS_PER_PAGE)).collect();
        let done = self.submit(chain).await?;
        let [epoch, _, _, _, here @ ..] = done.words(head) else { return Ok((0, None)) };
        let epoch = decode::epoch(*epoch)?;
        let slots = here.iter().chain(pages.iter().flat_map(|page| done.words(*page)));
        let behind = (0..).zip(slots).filter(|(_, announced)| (1..epoch).contains(*announced));
        let furthest = behind.min_by_key(|(_, announced)| **announced).map(|(number, _)| number);
        Ok((epoch, furthest))
    }

    /// The cluster's epoch in far memory. One READ.
    pub(crate) async fn read_epoch(&self) -> Result<u64> {
        decode::epoch(self.read_word(control::epoch()).await?)
    }

    /// Takes a step and waits for it. Returns immediately if another thread of the process takes one.
    pub(crate) async fn step(&self) {
        let is_eager = self.advance_eagerly();
        if self.process.member().is_none() {
            if !is_eager {
                self.process.collector.try_advance();
            }
            return;
        }
        self.begin_step(StepKind::Advance);
        self.finish_step().await;
    }

    /// Announces the epoch, without advancing it.
    pub(crate) async fn follow_epoch(&self) {
        self.begin_step(StepKind::Follow);
        self.finish_step().await;
    }

    /// Waits for this thread's step, if it takes one.
    pub(crate) async fn finish_step(&self) {
        poll_fn(|context| {
            self.io.task_stack.makes_step();
            if self.continue_step() {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            Poll::Ready(())
        })
        .await;
    }

    /// Abandons the step of a thread that has ended, so that another thread can take the next one.
    pub(crate) fn abandon_step(&self) {
        if let Some(step) = self.step.take() {
            self.takes_step.set(false);
            self.forget_posted(step.ticket);
            self.end_step();
        }
    }
}
