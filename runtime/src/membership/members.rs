//! Members: the processes of a cluster, and how one is told from another that has gone.
//!
//! Each process has a *record* in far memory, the pair of its [epoch slot](crate::memory::global). It takes both by a CAS of the
//! record's state from 0 to its *identity*, which no other process of the cluster has or ever had: the memory node counts them.
//! The identities of its compute threads, and with them the tokens of locks, contain it. So whoever finds a token can look
//! whether its owner is still there.
//!
//! # Gone
//!
//! A process is *gone* once nothing that it has posted, or might still post, takes effect any more. That is for its memory node
//! to say, which marks the record: on `shm:` when the kernel has closed the process's connection, which it does after it has
//! taken away its memory. From then on
//! - what it had claimed may be claimed by others: names in the [directory](super::directory), and [locks](crate::Lock);
//! - it can be *evicted*. Whoever does that puts its own identity beside the other's into the state, by CAS, so one process
//!   does it; clears the slot, which the epoch had waited for; and frees the record. If it dies over that, another takes its place
//!   in the same way.
//!
//! Invariant: a slot whose record is free is 0. So a process that takes a record takes over nothing.
//!
//! Nobody who holds anything has no record: it is taken before anything else and given back after everything else. Therefore
//! a token without a record is one of a process that is gone, if the record was looked for *after* the token was found.

use crate::io::operations::*;
use crate::segment::record::{Seen, State, collect};

use crate::error::{self, Error, Result};
use crate::memory::member::{Joining, Member};
use crate::segment::control::{self, EpochPage, Record, SLOT_PAGES, SLOTS_HERE, SLOTS_PER_PAGE};
use crate::segment::decode;
use crate::segment::record::Places;
use crate::session::ComputeThread;
use farfield_fabric::chain::Slot;
use farfield_words::Address;
use farfield_words::ThreadId;

impl ComputeThread {
    // ---- coming and going --------------------------------------------------------------------------------------

    /// Waits until the thread's process has a record and a slot; nothing may be pinned before.
    pub(crate) async fn join_members(&self) -> Result<()> {
        let Some(member) = self.process.member() else { return Ok(()) };
        let mut waiting = None;
        loop {
            match member.begin_joining() {
                Joining::Outside => break,
                Joining::Joined => return Ok(()),
                Joining::UnderWay => {
                    waiting = waiting
                        .or_else(|| self.waits_for(|| "another thread to join the cluster".to_owned()));
                    self.yield_now().await;
                }
            }
        }
        drop(waiting);
        let outcome = self.take_places(member).await;
        member.end_joining(outcome.is_ok());
        outcome
    }

    async fn take_places(&self, member: &Member) -> Result<()> {
        let mut number = member.number;
        let places = loop {
            let places = self.places_at(number).await?;
            if self.compare_exchange_word(places.record, 0, State::of(member.identity)).await? == 0 {
                break places;
            }
            // Somebody's, or one's who is gone and nobody has evicted; there is room behind it.
            number += 1;
        };
        let used = number as u64 + 1;
        let mut found = 0;
        while found < used {
            let seen = self.compare_exchange_word(control::used_epoch_slots(), found, used).await?;
            if seen == found {
                break;
            }
            found = seen;
        }
        let mut chain = self.empty_chain();
        // Everything behind what the memory node writes.
        let pid = if self.cluster().is_private() { 0 } else { std::process::id() };
        let rest = [u64::from(pid) << 32, 0, 0, 0, 0, 0];
        chain.write(Record::sign(places.record), &rest);
        let epoch = chain.read(control::epoch(), 1);
        let mut epoch = decode::epoch(self.submit(chain).await?.word(&epoch))?;
        loop {
            self.write_word(places.slot, epoch).await?;
            let now = self.read_epoch().await?;
            // Where the simulator advances epochs it waits for no announcement, and the thread hears of the epoch when it pins.
            if now == epoch || self.eager.is_some() {
                break;
            }
            epoch = now;
        }
        self.process.collector.observe(epoch);
        member.settle_in(places, epoch);
        if self.cluster().is_private() {
            return Ok(());
        }
        self.wait_for_collector(member.identity).await
    }

    /// Where slot `number` and its record are; makes their page if there is none.
    async fn places_at(&self, number: usize) -> Result<Places> {
        let Some(behind) = number.checked_sub(SLOTS_HERE) else {
            return Ok(Places::here(number));
        };
        let (page, within) = (behind / SLOTS_PER_PAGE, behind % SLOTS_PER_PAGE);
        if page >= SLOT_PAGES {
            let value = format!("{} processes", number + 1).into();
            let reason = "there are not so many epoch slots";
            return Err(Error::from(error::InvalidArgument { argument: "run", value, reason }));
        }
        let mut at = self.read_word(control::epoch_page(page)).await?;
        // One makes the page, and of those who come with it only some who have waited in vain.
        let (mut backoff, mut patience) = (self.retry().bounded(), if within == 0 { 0 } else { 12 });
        while at == 0 && patience > 0 {
            backoff.wait().await;
            patience -= 1;
            at = self.read_word(control::epoch_page(page)).await?;
        }
        if at == 0 {
            let fresh = self.take_control_page(EpochPage::BYTES).await?;
            at = self.compare_exchange_word(control::epoch_page(page), 0, fresh.address.bits()).await?;
            if at == 0 {
                at = fresh.address.bits();
            } else {
                self.put_control_page(fresh);
            }
        }
        self.slot_page(page, at).map(|page| Places::in_page(page, within))
    }

    /// Where a page of slots is that is there, given the word that says so.
    fn slot_page(&self, index: usize, word: u64) -> Result<Address> {
        let missing = "there is no such page";
        decode::slot_page(&self.heap().grid, index, word)?
            .ok_or_else(|| decode::corrupted(control::epoch_page(index), word, missing))
    }

    /// The thread has nothing more to do: its process leaves if it was the last.
    pub(crate) async fn leave_members(&self) {
        self.finish_step().await;
        self.run.leaves(self.index());
        if self.process.thread_is_gone().is_some() {
            self.leave_for_good().await;
        }
    }

    /// The process leaves, whatever its threads have done.
    pub(crate) async fn leave_for_good(&self) {
        if self.process.sweep_barrier.is_enabled() {
            self.hand_over_vetoes().await;
        }
        self.finish_step().await;
        let Some(member) = self.process.member() else { return };
        if let Some(places) = member.take_back_places() {
            // If its memory node is gone, so are they.
            let _ = self.vacate(places, State::of(member.identity)).await;
        }
    }

    /// Clears a slot and frees its record, whose `state` only this thread may change.
    async fn vacate(&self, places: Places, state: u64) -> Result<()> {
        let mut chain = self.empty_chain();
        chain.write(places.slot, &[0]);
        // Others that look for a place try to take it by CAS.
        chain.replace(places.record, state, 0);
        self.submit(chain).await.map(drop)
    }

    // ---- the others --------------------------------------------------------------------------------------------

    /// The processes of the cluster, this one among them. One round trip, two if there were ever more than 126 at a time.
    pub(crate) async fn members(&self) -> Result<Vec<Seen>> {
        let mut chain = self.empty_chain();
        let used = chain.read(control::used_epoch_slots(), 1);
        let here = chain.read(control::member(0), SLOTS_HERE * Record::WORDS);
        let addresses = chain.read(control::epoch_page(0), SLOT_PAGES);
        let done = self.submit(chain).await?;
        let mut members = Vec::new();
        let last = self.cluster().shared.last_process();
        collect(&mut members, done.words(&here), Places::here, last)?;
        let used = decode::used_slots(done.word(&used))?;
        if used > SLOTS_HERE {
            let pages = done.words(&addresses).iter().enumerate();
            let pages = pages.map(|(index, word)| decode::slot_page(&self.heap().grid, index, *word));
            let pages: Vec<Address> = pages.map_while(Result::transpose).collect::<Result<_>>()?;
            drop(done);
            let mut chain = self.empty_chain();
            let slots: Vec<Slot> = pages
                .iter()
                .map(|page| chain.read(EpochPage::record(*page, 0), SLOTS_PER_PAGE * Record::WORDS))
                .collect();
            let done = self.submit(chain).await?;
            for (page, slot) in pages.into_iter().zip(&slots) {
                collect(&mut members, done.words(slot), |within| Places::in_page(page, within), last)?;
            }
        }
        self.cluster().shared.note_members(&members);
        Ok(members)
    }

    /// Whether a thread is at work, or may be. No round trip if it is one of this process; otherwise as
    /// [`members`](Self::members).
    pub(crate) async fn is_live(&self, thread: ThreadId) -> Result<bool> {
        let shared = &self.cluster().shared;
        match shared.process_of(thread) {
            Some(identity) if self.process.member().is_none_or(|member| member.identity != identity) => {
                let members = self.members().await?;
                Ok(members.iter().any(|member| member.identity == identity && !member.is_gone()))
            }
            _ => Ok(shared.runs_here(thread)),
        }
    }

    /// Evicts a process that is there no more.
    ///
    /// The keepers do so by themselves, within milliseconds. What is alive can not be evicted where processes share memory: nothing
    /// but its end keeps it from writing.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if there is no such process, or it is alive.
    pub async fn evict(&self, process: u32) -> Result<()> {
        let invalid = |reason| {
            let value = process.to_string().into();
            Err(Error::from(error::InvalidArgument { argument: "process", value, reason }))
        };
        if !self.members().await?.iter().any(|member| member.identity == process) {
            return invalid("there is no process of this number");
        }
        match self.cluster().shared.is_process_gone(process) {
            Some(true) => self.evict_gone(|_| false).await.map(drop),
            Some(false) => invalid("it is alive: end it, and it is evicted"),
            None => invalid("its memory node does not say whether it is alive"),
        }
    }

    /// Evicts the processes that are gone; gives how many. `silent` is told of each that is not, and gives whether it has been silent
    /// for longer than its lease; such a one is shut out first, where that can be.
    pub(crate) async fn evict_gone(&self, mut silent: impl FnMut(&Seen) -> bool) -> Result<usize> {
        let shared = &self.cluster().shared;
        let Some(me) = self.process.member().map(|member| member.identity) else { return Ok(0) };
        let mut members = self.members().await?;
        let mut has_asked = false;
        for member in members.iter().filter(|member| member.identity != me && !member.is_gone()) {
            let is_silent = silent(member);
            if member.is_hinted() || (is_silent && shared.shuts_out()) {
                tracing::info!(process = member.identity, "asking for a silent process to be shut out");
                has_asked |= shared.is_process_gone(member.identity) == Some(true);
            }
        }
        if has_asked {
            members = self.members().await?;
        }
        let is_here =
            |identity| members.iter().any(|member| member.identity == identity && !member.is_gone());
        let mut evicted = 0;
        for gone in members.iter().filter(|member| member.is_gone()) {
            let state = gone.words.state;
            if State::from_word(state).evicted_by.is_some_and(is_here) {
                continue;
            }
            let claim = State { identity: Some(gone.identity), evicted_by: Some(me) }.to_word();
            if self.compare_exchange_word(gone.places.record, state, claim).await? != state {
                continue;
            }
            // Before this process can die over it: another evictor finds no record once it is free.
            self.run.evicted(gone.identity);
            self.fetch_add_word(control::evictions(), 1).await?;
            self.fetch_add_word(control::debts(), 1).await?;
            self.fetch_add_word(control::left_bytes(), gone.words.holds).await?;
            self.vacate(gone.places, claim).await?;
            tracing::info!(process = gone.identity, "evicted a process that has ended without leaving");
            evicted += 1;
        }
        Ok(evicted)
    }
}

#[cfg(test)]
mod tests;
