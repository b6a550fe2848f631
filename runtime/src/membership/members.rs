//! Members: the processes of a cluster, how they join and leave, and how dead ones are evicted.
//!
//! Each process has a *record* in far memory, and an [epoch slot](crate::memory::global) with the same number. It takes both by a CAS of the
//! record's state from 0 to its *identity*, which no other process of the cluster has or ever had: the memory node assigns identities in
//! sequence. The identities of its compute threads, and with them the tokens of locks, contain it. So a thread that finds a token can check
//! whether the token's owner is alive.
//!
//! # Gone
//!
//! A process is *gone* once no operation that it has posted, or might still post, takes effect any more. Its memory node detects that
//! and marks the record: on `shm:` when the kernel has closed the process's connection, which it does after it has
//! unmapped the process's memory. From then on
//! - other threads may take over its claims: names in the [directory](crate::directory), and [locks](crate::Lock);
//! - it can be *evicted*. The evictor adds its own identity to the record's state, by CAS, so there is one evictor. Then it clears the slot,
//!   which may have held back the epoch, and frees the record. If the evictor dies meanwhile, another process replaces it in the same way.
//!   If an operation of a live evictor fails, its thread [finishes the eviction](Unfinished) the next time.
//!
//! Invariant: a slot whose record is free is 0. So a process that takes a record inherits no announcement.
//!
//! A process takes its record before it acquires anything, and releases it last. Therefore a token without a record belongs to a process that
//! is gone, if the search for the record began *after* the token was found.

use crate::io::operations::*;
use crate::segment::record::{RecordState, SeenMember, collect};

use crate::error::{self, Error, Result};
use crate::memory::member::{Joining, Member};
use crate::segment::control::{self, EpochPage, Record, SLOT_PAGES, SLOTS_HERE, SLOTS_PER_PAGE};
use crate::segment::decode;
use crate::segment::record::Places;
use crate::session::ComputeThread;
use farfield_fabric::chain::{RawChain, Slot};
use farfield_words::Address;
use farfield_words::ThreadId;

impl ComputeThread {
    // ---- joining and leaving -----------------------------------------------------------------------------------

    /// Waits until the thread's process has a record and a slot. A thread must not pin before.
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
            if self
                .compare_exchange_word(places.record, 0, RecordState::Taken(member.identity).to_word())
                .await?
                == 0
            {
                break places;
            }
            // The record of another process, perhaps of a dead one that is not evicted yet. The next one may be free.
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
        // The words behind `gone`, which the memory node writes.
        let pid = if self.cluster().is_private() { 0 } else { std::process::id() };
        let rest = [u64::from(pid) << 32, 0, 0, 0, 0, 0];
        chain.write(Record::heartbeat(places.record), &rest);
        let epoch = chain.read(control::epoch(), 1);
        let mut epoch = decode::epoch(self.submit(chain).await?.word(epoch))?;
        loop {
            self.write_word(places.slot, epoch).await?;
            let now = self.read_epoch().await?;
            // Eager reclamation waits for no announcement, and the thread reads the epoch when it pins.
            if now == epoch || self.eager.is_some() {
                break;
            }
            epoch = now;
        }
        self.process.collector.observe(epoch);
        member.set_places(places, epoch);
        if self.cluster().is_private() {
            return Ok(());
        }
        self.wait_for_collector(member.identity).await
    }

    /// The addresses of slot `number` and its record. Allocates their page if there is none.
    async fn places_at(&self, number: usize) -> Result<Places> {
        let Some(behind) = number.checked_sub(SLOTS_HERE) else {
            return Ok(Places::here(number));
        };
        let (page, within) = (behind / SLOTS_PER_PAGE, behind % SLOTS_PER_PAGE);
        if page >= SLOT_PAGES {
            let value = format!("{} processes", number + 1).into();
            let reason = "the cluster has fewer epoch slots";
            return Err(Error::from(error::InvalidArgument { argument: "run", value, reason }));
        }
        let mut at = self.read_word(control::epoch_page(page)).await?;
        // The process with the first slot of a page allocates it. The others wait for the page, and allocate one themselves after a timeout.
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

    /// The address of a page of slots that exists, from its word.
    fn slot_page(&self, index: usize, word: u64) -> Result<Address> {
        let missing = "the page does not exist";
        decode::slot_page(&self.heap().grid, index, word)?
            .ok_or_else(|| decode::corrupted(control::epoch_page(index), word, missing))
    }

    /// Uncounts a thread that ends. Its process leaves if it was the last thread.
    pub(crate) async fn leave_members(&self) {
        self.finish_step().await;
        self.run.thread_leaves(self.index());
        if self.process.end_thread().is_some() {
            self.leave_for_good().await;
        }
    }

    /// Makes the process leave, even if threads of it have not ended.
    pub(crate) async fn leave_for_good(&self) {
        if self.process.sweep_barrier.is_enabled() {
            self.hand_over_vetoes().await;
        }
        self.finish_step().await;
        let Some(member) = self.process.member() else { return };
        if let Some(places) = member.clear_places() {
            // An error means that the memory node has ended.
            let _ = self.vacate(places, RecordState::Taken(member.identity), member.has_group()).await;
        }
    }

    /// [Vacates](vacate) a slot and its record. One round trip.
    async fn vacate(&self, places: Places, state: RecordState, has_group: bool) -> Result<()> {
        let mut chain = self.empty_chain();
        vacate(&mut chain, places, state, has_group);
        self.submit(chain).await.map(drop)
    }

    // ---- other members -----------------------------------------------------------------------------------------

    /// The processes of the cluster, including this one. One round trip; two if there were ever more than 126 at a time.
    pub(crate) async fn members(&self) -> Result<Vec<SeenMember>> {
        let mut chain = self.empty_chain();
        let used = chain.read(control::used_epoch_slots(), 1);
        let here = chain.read(control::member(0), SLOTS_HERE * Record::WORDS);
        let addresses = chain.read(control::epoch_page(0), SLOT_PAGES);
        let done = self.submit(chain).await?;
        let mut members = Vec::new();
        let last = self.cluster().shared.last_process();
        collect(&mut members, done.words(here), Places::here, last)?;
        let used = decode::used_slots(done.word(used))?;
        if used > SLOTS_HERE {
            let pages = done.words(addresses).iter().enumerate();
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
                collect(&mut members, done.words(*slot), |within| Places::in_page(page, within), last)?;
            }
        }
        self.cluster().shared.note_members(&members);
        Ok(members)
    }

    /// Returns whether a thread is alive, or may be. No round trip for a thread of this process; otherwise those of
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

    /// Evicts a process that has ended.
    ///
    /// Keepers evict ended processes within milliseconds, without this call. Over shared memory a live process can not be evicted: it could
    /// still write.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the process is no member, or is alive; those of access to far memory. After such an error the process may be half
    /// evicted: this thread finishes it when it calls this again, and another process when this one has ended.
    pub async fn evict(&self, process: u32) -> Result<()> {
        let invalid = |reason| {
            let value = process.to_string().into();
            Err(Error::from(error::InvalidArgument { argument: "process", value, reason }))
        };
        if !self.members().await?.iter().any(|member| member.identity == process) {
            return invalid("there is no process of this number");
        }
        match self.cluster().shared.is_process_gone(process) {
            Some(true) => {
                // The keeper is another task of this thread, and evicts, too.
                while Unfinished::take(self).is_none() {
                    self.yield_now().await;
                }
                self.evict_gone(|_| false).await.map(drop)
            }
            Some(false) => invalid("it is alive: end it, and it is evicted"),
            None => invalid("its memory node does not know whether it is alive"),
        }
    }

    /// Evicts the processes that are gone, and returns their number. `silent` returns whether a live process has been silent
    /// for longer than its lease. Such a process is disconnected first, on fabrics that can do so. Two round trips for each evicted process.
    /// None while another task of the thread evicts.
    pub(crate) async fn evict_gone(&self, mut silent: impl FnMut(&SeenMember) -> bool) -> Result<usize> {
        let shared = &self.cluster().shared;
        let Some(me) = self.process.member().map(|member| member.identity) else { return Ok(0) };
        let Some(mut unfinished) = Unfinished::take(self) else { return Ok(0) };
        let mut members = self.members().await?;
        let mut has_asked = false;
        for member in members.iter().filter(|member| member.identity != me && !member.is_gone()) {
            let is_silent = silent(member);
            if member.is_hinted() || (is_silent && shared.disconnects_silent()) {
                // One that maps the memory is not disconnected, and is asked about as long as it is silent.
                let is_gone = shared.is_process_gone(member.identity) == Some(true);
                if is_gone {
                    tracing::info!(process = member.identity, "a silent process was disconnected");
                }
                has_asked |= is_gone;
            }
        }
        if has_asked {
            members = self.members().await?;
        }
        let is_here =
            |identity| members.iter().any(|member| member.identity == identity && !member.is_gone());
        let mut evicted = 0;
        for gone in members.iter().filter(|member| member.is_gone()) {
            let claim = RecordState::Evicting { process: gone.identity, evictor: me };
            if gone.state != claim || !unfinished.has(gone.identity) {
                if gone.state.evictor().is_some_and(is_here) {
                    continue;
                }
                // Before the CAS, whose outcome may stay unknown.
                unfinished.processes.push(gone.identity);
                let state = gone.words.state;
                if self.compare_exchange_word(gone.places.record, state, claim.to_word()).await? != state {
                    unfinished.remove(gone.identity);
                    continue;
                }
            }
            // Before the record is free: if this process dies afterwards, another evictor would not find it.
            self.run.process_evicted(gone.identity);
            let mut chain = self.empty_chain();
            chain.fetch_add(control::evictions(), 1);
            chain.fetch_add(control::unclean_exits(), 1);
            chain.fetch_add(control::left_bytes(), gone.words.held_bytes);
            vacate(&mut chain, gone.places, claim, gone.words.group != 0);
            self.submit(chain).await?;
            unfinished.remove(gone.identity);
            tracing::info!(process = gone.identity, "evicted a process that has ended without leaving");
            evicted += 1;
        }
        // The remaining ones are evicted, by a chain whose response was lost, or by another process.
        unfinished.processes.clear();
        Ok(evicted)
    }
}

/// Clears a slot and frees its record, whose `state` only the chain's thread may change.
///
/// The next process takes the record before it writes the record's words. Until then others see what the last process has left there. So a record
/// that names a group is cleared of it.
fn vacate(chain: &mut RawChain, places: Places, state: RecordState, has_group: bool) {
    chain.write(places.slot, &[0]);
    if has_group {
        chain.write(Record::group(places.record), &[0; 3]);
    }
    // A CAS, since joining processes try to take the record by CAS.
    chain.replace(places.record, state.to_word(), 0);
}

/// The processes whose eviction a thread has begun and not finished: an operation has failed, or a future was dropped. One task of the thread has
/// the list at a time, and evicts.
///
/// A failed chain may have taken effect. If the record were vacated again then, the slot of the next process that has it would be cleared. So a task
/// takes the list before it reads the records: the thread's operations take effect in order, so a record in this process's claim that is read then
/// has not been vacated, and will not be by any other chain.
struct Unfinished<'a> {
    ct: &'a ComputeThread,
    processes: Vec<u32>,
}

impl<'a> Unfinished<'a> {
    /// `None` if another task of the thread evicts.
    fn take(ct: &'a ComputeThread) -> Option<Self> {
        ct.unfinished_evictions.take().map(|processes| Self { ct, processes })
    }

    fn has(&self, process: u32) -> bool {
        self.processes.contains(&process)
    }

    fn remove(&mut self, process: u32) {
        self.processes.retain(|other| *other != process);
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        self.ct.unfinished_evictions.set(Some(std::mem::take(&mut self.processes)));
    }
}

#[cfg(test)]
mod tests;
