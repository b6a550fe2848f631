//! The epoch of a cluster of several processes, in far memory, off every operation's path.
//!
//! Segment 0's control block has the *epoch* and a *slot* for each process. A process announces epoch `e` in its slot once
//! it knows of `e` and none of its threads is pinned before it. The epoch goes from `e` to `e + 1`, by CAS, when every used
//! slot has announced `e`. So while any thread is pinned at `m` its process announces `m` at most, and the epoch is `m + 1` at
//! most: the bound from which [`epoch`](crate::epoch) proves that memory is not used again too early. Slots only grow while
//! they are in use, so what was read of others may be old without harm.
//!
//! # A step
//!
//! One thread of a process at a time takes a step; the others return at once.
//! 1. One chain reads the epoch and, behind it, all slots.
//! 2. The process makes the epoch its own. If its threads have caught up, one chain writes its slot and, if all others
//!    have announced this epoch too, advances the epoch by CAS.
//!
//! Steps are posted and not waited for: after every 64 objects that a thread retires, and after every [`CHAINS_PER_STEP`]
//! chains, so that a process which only reads does not hold the others back; waiting counts, too. A process that does nothing at all does: until
//! it does something, leaves, or is evicted.
//!
//! # Coming and going
//!
//! A process that [joins](crate::cluster::members) raises the number of used slots past its own, announces the epoch it has read,
//! and reads the epoch again: if that has moved, it announces the new one, until both agree. From then on whoever scans the slots
//! sees it. One scan that had not seen it may still advance the epoch, once; that is the one step ahead that the bound allows.
//! It leaves by writing 0. The slot of a process that has died is set to 0 once nothing of it can take effect any more.
//!
//! A process that is alone in its cluster needs none of this: its own level is all there is.

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
use farfield_fabric::chain::{Chain, Slot};
use farfield_sim::Plant;
use farfield_words::Address;

/// How many chains a thread posts between steps.
const CHAINS_PER_STEP: u32 = 1024;
/// How many chains a wait counts for, besides one for each round trip that it takes, among few processes.
const CHAINS_PER_WAIT: u64 = 64;
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
    /// Reads the epoch, the counters beside it and the slots in the control block; the addresses of pages; and the known pages.
    Scan { head: Slot, addresses: Option<Slot>, pages: Vec<(Address, Slot)>, kind: StepKind },
    /// Writes the slot and, perhaps, advances the epoch.
    Announce { epoch: u64, exchange: Option<Slot> },
}

impl Worker {
    // ---- steps -------------------------------------------------------------------------------------------------

    /// A chain has been posted: now and then that is the occasion for a step.
    #[inline]
    pub(crate) fn count_towards_step(&self) {
        if self.process.member().is_some() {
            self.step_if_due();
        }
    }

    /// A thread is about to wait for so many round trips, and may as well do something for its process.
    pub(crate) fn count_wait_towards_step(&self, round_trips: u64) {
        if let Some(member) = self.process.member() {
            // Each step reads what all processes have announced, so the more there are, the rarer it must be.
            let processes = member.slots().used.max(FEW_PROCESSES) as u64;
            let chains = (round_trips + CHAINS_PER_WAIT) * FEW_PROCESSES as u64 / processes;
            let chains = u32::try_from(chains).unwrap_or(u32::MAX);
            self.until_step.set(self.until_step.get().saturating_sub(chains));
            self.step_if_due();
        }
    }

    #[cold]
    fn step_if_due(&self) {
        let left = self.until_step.get();
        if left == 0 {
            self.until_step.set(CHAINS_PER_STEP);
            self.begin_step(StepKind::Advance);
        } else {
            self.until_step.set(left - 1);
        }
        self.go_on_with_step();
    }

    /// Advances the epoch as far as can be told at once; a process of several begins a step, without waiting for it. Gives the
    /// epoch as the process knows it.
    pub(crate) fn advance_epoch(&self) -> u64 {
        let is_eager = self.advance_eagerly();
        if self.process.member().is_none() && !is_eager {
            return self.process.collector.try_advance();
        }
        self.begin_step(StepKind::Advance);
        self.known_epoch()
    }

    /// Begins a step, unless another thread of the process takes one.
    fn begin_step(&self, kind: StepKind) {
        let Some(member) = self.process.member() else { return };
        if !member.begin_step() {
            return;
        }
        let Slots { used, pages } = member.slots().clone();
        let mut chain = self.empty_chain();
        // The epoch first: what is read of the slots is then as new.
        let head = chain.read(control::epoch(), EPOCH_COUNTERS + used.min(SLOTS_HERE));
        let addresses = (!pages.is_empty()).then(|| chain.read(control::epoch_page(0), pages.len()));
        let pages = pages.iter().filter(|page| !page.is_null());
        let pages = pages.map(|page| (*page, chain.read(*page, SLOTS_PER_PAGE))).collect();
        self.take_step(chain, Part::Scan { head, addresses, pages, kind });
    }

    /// Posts a part of a step.
    fn take_step(&self, chain: Chain, part: Part) {
        let Some(member) = self.process.member() else { return };
        let (mut chain, mut part) = (chain, part);
        loop {
            match self.submit(chain).into_posted() {
                Some(Posted::InFlight(ticket)) => {
                    self.io.endpoint.in_background(ticket);
                    *self.step.borrow_mut() = Some(Step { ticket, part });
                    return;
                }
                // In shared memory everything is done at once.
                Some(Posted::Done(done, result)) => {
                    let next = self.next_of_step(member, part, &done, result.map_err(Into::into));
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

    /// Looks whether what the step waits for is there, and goes on with it; gives whether it is still under way.
    pub(crate) fn go_on_with_step(&self) -> bool {
        let Some(member) = self.process.member() else { return false };
        loop {
            let Some(ticket) = self.step.borrow().as_ref().map(|step| step.ticket) else { return false };
            let Poll::Ready((chain, result)) = self.poll_posted(ticket) else { return true };
            let part = self.step.take().map(|step| step.part);
            let next =
                part.and_then(|part| self.next_of_step(member, part, &chain, result.map_err(Into::into)));
            self.recycle(chain);
            match next {
                Some((chain, part)) => self.take_step(chain, part),
                None => self.end_step(),
            }
        }
    }

    /// What comes after a part of a step. One that failed ends it, and so does a word that makes no sense, which is noted.
    fn next_of_step(
        &self,
        member: &Member,
        part: Part,
        done: &Chain,
        result: Result<()>,
    ) -> Option<(Chain, Part)> {
        let next = result.ok().map(|()| self.go_on_after(member, part, done))?;
        next.unwrap_or_else(|error| {
            self.failures.note(self.time(), &error, "could not go along with the epoch");
            None
        })
    }

    fn go_on_after(&self, member: &Member, part: Part, done: &Chain) -> Result<Option<(Chain, Part)>> {
        let collector = &self.process.collector;
        match part {
            Part::Scan { head, addresses, pages, kind } => {
                let [epoch, used, requests, recut, here @ ..] = done.words(&head) else { return Ok(None) };
                let (epoch, used) = (decode::epoch(*epoch)?, decode::used_slots(*used)?);
                // Before the epoch is announced: see `compaction`.
                self.process.hear_counters(*requests, *recut);
                let words = addresses.map_or(&[][..], |addresses| done.words(&addresses));
                let mut there = Slots { used, pages: Vec::new() };
                for (index, word) in words.iter().enumerate() {
                    let page = decode::slot_page(&self.heap().grid, index, *word)?;
                    there.pages.push(page.unwrap_or(Address::NULL));
                }
                let needed = there.used.saturating_sub(SLOTS_HERE).div_ceil(SLOTS_PER_PAGE);
                there.pages.resize(needed, Address::NULL);
                if *member.slots() != there {
                    // There are slots that this scan has not seen; the next one will.
                    *member.slots() = there;
                    return Ok(None);
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
                    (0..).map(move |within| EpochPage::slot(page, within)).zip(done.words(words))
                });
                let here = (0..).map(control::epoch_slot).zip(here);
                // Its own slot is known better than it was read: what is about to be written, or was and not heard of.
                let is_behind =
                    |(at, announced): (Address, &u64)| at != slot && (1..epoch).contains(announced);
                let behind = here.chain(pages).find(|place| is_behind(*place)).map(|(at, _)| at);
                member.set_behind(behind);
                let exchange = (kind == StepKind::Advance
                    && (behind.is_none() || self.has(Plant::LonelyEpoch)))
                .then(|| chain.compare_exchange(control::epoch(), epoch, epoch + 1));
                if chain.ops().is_empty() {
                    self.recycle(chain);
                    return Ok(None);
                }
                Ok(Some((chain, Part::Announce { epoch, exchange })))
            }
            Part::Announce { epoch, exchange } => {
                member.set_announced(epoch);
                if exchange.is_some_and(|exchange| done.word(&exchange) == epoch) {
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
        self.announce_eagerly();
        let Slots { used, pages } = member.slots().clone();
        let mut chain = self.empty_chain();
        let head = chain.read(control::epoch(), EPOCH_COUNTERS + used.clamp(1, SLOTS_HERE));
        let there = pages.iter().take_while(|page| !page.is_null());
        let pages: Vec<Slot> = there.map(|page| chain.read(*page, SLOTS_PER_PAGE)).collect();
        let done = self.submit(chain).await?;
        let [epoch, _, _, _, here @ ..] = done.words(&head) else { return Ok((0, None)) };
        let epoch = decode::epoch(*epoch)?;
        let slots = here.iter().chain(pages.iter().flat_map(|page| done.words(page)));
        let behind = (0..).zip(slots).filter(|(_, announced)| (1..epoch).contains(*announced));
        let furthest = behind.min_by_key(|(_, announced)| **announced).map(|(number, _)| number);
        Ok((epoch, furthest))
    }

    /// The cluster's epoch, as it stands in far memory. One READ.
    pub(crate) async fn read_epoch(&self) -> Result<u64> {
        decode::epoch(self.read_word(control::epoch()).await?)
    }

    /// Takes a step and waits for it. At once if another thread of the process is at it.
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

    /// Goes along with the epoch, without advancing it.
    pub(crate) async fn follow_epoch(&self) {
        self.begin_step(StepKind::Follow);
        self.finish_step().await;
    }

    /// Waits for the step that this thread takes, if it does.
    pub(crate) async fn finish_step(&self) {
        poll_fn(|context| {
            self.io.task_stack.makes_step();
            if self.go_on_with_step() {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            Poll::Ready(())
        })
        .await;
    }

    /// Gives up a step: the thread is gone, and somebody else is to take the next.
    pub(crate) fn abandon_step(&self) {
        if let Some(step) = self.step.take() {
            self.forget_posted(step.ticket);
            self.end_step();
        }
    }
}
