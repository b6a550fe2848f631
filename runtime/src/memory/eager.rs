//! Eager reclamation: the simulator frees retired memory at the earliest moment that any fabric allows.
//!
//! A use of an object after its grace period is detected only if the period ends. On real fabrics epochs advance by
//! [steps](super::global) of processes, which are rare: in a run of some hundred operations there is hardly one. So the simulator, which
//! sees every slot, advances the epoch itself. Whenever a slot changes, an object is retired, a thread ends or a process is evicted, the
//! epoch advances as long as
//! - no thread is pinned in an earlier epoch, and
//! - an object in limbo has not expired.
//!
//! An object *expires* when the epoch reaches its tag plus [`GRACE_EPOCHS`]: the simulator's books count it as freed, and report each access
//! to it. Its thread frees it when it next pins, allocates or waits. Then the thread reuses the block, or never does (the option `reuse`).
//!
//! # Why no correct program is reported
//!
//! 1. The schedule is that of [`epoch`](crate::epoch) for one process that has all threads, whose scans take no time: the epoch
//!    advances from `e` to `e + 1` only while every slot that is not idle shows `e`. So a slot that shows `m` bounds the epoch by `m + 1`,
//!    and the argument of that module holds without change. It needs no clock and no message, so failed links have no influence.
//! 2. A thread that is not pinned reads the epoch before it pins, so it pins in the current one. So it is safe to advance although the process
//!    of such a thread has not announced an epoch.
//! 3. A process that reads an epoch in a step has read before whether chunks were coalesced. Here every process forgets the uses of
//!    chunks before the first epoch after a coalescing, and reads whether memory was requested.
//! 4. Steps also take place, and their CAS may advance the epoch in far memory. Then this module adopts that epoch before it decides anything.
//!    The words of slots in far memory may be out of date, which only delays steps; [`Eager::announce`] updates them before a status is read.
//! 5. The slots of an evicted process are idle from then on, like its word in far memory.
//!
//! The schedule is also optimal: no schedule of steps frees an object earlier. A process that has caught up could announce the epoch
//! immediately, and a CAS could follow immediately; both are legal, and pinned threads delay every schedule equally.
//!
//! # Costs
//!
//! No operation and no virtual time. Slots show the epoch or the one before it, so two counters, one for each parity of the epoch, count
//! the threads that are behind. Pinning and leaving are a few loads and stores. An advance takes constant time, independent of the number of
//! processes, and one lookup in the books for each object that expires. After three advances all objects that were in limbo have expired.
//! The list of processes is traversed only after chunks were coalesced or memory was requested.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use super::process::Process;
use super::worker::Worker;
use crate::epoch::{GRACE_EPOCHS, Pin};
use crate::segment::control;
use farfield_sim::{self as sim, Plant, Reclaim};
use farfield_words::Address;
use farfield_words::Block;

/// The condition for advancing the epoch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Advance {
    /// As long as an object in limbo has not expired.
    ForLimbo,
    /// Once, and then as long as an object in limbo has not expired.
    Once,
}

/// Advances the epoch of one run. One thread of the system polls all threads of the run, so relaxed loads and stores suffice.
pub(crate) struct Eager {
    world: sim::SharedWorld,
    processes: Vec<std::sync::Arc<Process>>,
    /// The epoch when this module last advanced or read it.
    epoch: AtomicU64,
    /// The numbers of slots that show an even and an odd epoch.
    shown: [AtomicU64; 2],
    /// The number of retired blocks that have not expired.
    waiting: AtomicU64,
    /// Those blocks, by the epoch in which they expire, modulo 4: there are at most three such epochs at a time.
    limbo: Mutex<[Vec<Address>; 4]>,
    /// The counters beside the epoch when processes last observed them.
    requests: AtomicU64,
    coalesced: AtomicU64,
    /// The number of epochs by which objects expire too early: a planted bug.
    early: u64,
}

impl Eager {
    /// Eager reclamation for a run with these processes, if its cluster is simulated with the option for it.
    pub(crate) fn new(
        world: Option<&sim::SharedWorld>,
        processes: &[std::sync::Arc<Process>],
    ) -> Option<Self> {
        let world = world?;
        let locked = world.lock();
        if locked.config().reclaim != Reclaim::Eager {
            return None;
        }
        let far = processes[0].member().is_some();
        let epoch = if far { locked.peek(control::epoch()) } else { processes[0].collector.epoch() };
        Some(Self {
            world: world.clone(),
            processes: processes.to_vec(),
            epoch: AtomicU64::new(epoch),
            shown: Default::default(),
            waiting: AtomicU64::new(0),
            limbo: Mutex::default(),
            requests: AtomicU64::new(locked.peek(control::requests_for_memory())),
            coalesced: AtomicU64::new(locked.peek(control::coalesced_chunks())),
            early: u64::from(locked.config().plant == Plant::EarlyReclamation),
        })
    }

    fn epoch(&self) -> u64 {
        self.epoch.load(Relaxed)
    }

    /// Returns whether the epoch is in far memory.
    fn is_far(&self) -> bool {
        self.processes[0].member().is_some()
    }

    /// The number of slots that show `epoch`, which is the current one, the one before or the one after.
    fn showing(&self, epoch: u64) -> &AtomicU64 {
        &self.shown[(epoch & 1) as usize]
    }

    fn add(count: &AtomicU64, change: i64) {
        count.store(count.load(Relaxed).wrapping_add_signed(change), Relaxed);
    }

    /// Counts the change of a slot from `left` to `entered`; `None` stands for idle.
    #[inline]
    fn moved(&self, left: Option<u64>, entered: Option<u64>) {
        left.inspect(|left| Self::add(self.showing(*left), -1));
        entered.inspect(|entered| Self::add(self.showing(*entered), 1));
    }

    fn expires(&self, tag: u64) -> u64 {
        tag + GRACE_EPOCHS - self.early
    }

    fn retired(&self, tag: u64, block: Block) {
        let expires = self.expires(tag);
        let mut limbo = self.limbo.lock().unwrap_or_else(PoisonError::into_inner);
        limbo[(expires & 3) as usize].push(block.address);
        Self::add(&self.waiting, 1);
    }

    /// Advances the epoch as far as the rules allow and objects in limbo need.
    #[inline]
    fn advance(&self) {
        // Slots show the epoch or the one before it, which has the parity of the one after it.
        if self.waiting.load(Relaxed) > 0 && self.showing(self.epoch() + 1).load(Relaxed) == 0 {
            self.advance_now(Advance::ForLimbo);
        }
    }

    /// Advances the epoch as far as the rules allow.
    #[cold]
    fn advance_now(&self, mut advance: Advance) {
        let mut world = self.world.lock();
        let mut limbo = self.limbo.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_far() {
            // Steps may have advanced the epoch.
            for epoch in self.epoch() + 1..=world.peek(control::epoch()) {
                self.expire(&mut world, &mut limbo, epoch);
            }
            self.pass_on_counters(&world);
        }
        while self.showing(self.epoch() + 1).load(Relaxed) == 0
            && (advance == Advance::Once || self.waiting.load(Relaxed) > 0)
        {
            let epoch = self.epoch() + 1;
            if self.is_far() {
                world.poke(control::epoch(), epoch);
            }
            self.expire(&mut world, &mut limbo, epoch);
            advance = Advance::ForLimbo;
        }
    }

    /// Sets the epoch, and marks the blocks that expire in it.
    fn expire(&self, world: &mut sim::World, limbo: &mut [Vec<Address>; 4], epoch: u64) {
        self.epoch.store(epoch, Relaxed);
        let expired = &mut limbo[(epoch & 3) as usize];
        Self::add(&self.waiting, -(expired.len() as u64).cast_signed());
        world.expired(expired.drain(..), epoch);
    }

    /// Lets processes observe the counters that they would read beside the epoch.
    fn pass_on_counters(&self, world: &sim::World) {
        let requests = world.peek(control::requests_for_memory());
        let coalesced = world.peek(control::coalesced_chunks());
        let is_requested = self.requests.swap(requests, Relaxed) != requests;
        if self.coalesced.swap(coalesced, Relaxed) != coalesced || is_requested {
            self.processes.iter().for_each(|process| process.observe_counters(requests, coalesced));
        }
    }

    /// Makes the slots of a process idle. Its threads have died, and no operation of it takes effect any more.
    pub(crate) fn evicted(&self, process: &Process) {
        process.is_abandoned.store(true, Relaxed);
        for shown in process.collector.abandon() {
            self.moved(Some(shown), None);
        }
        self.advance();
    }

    /// Like [`evicted`](Self::evicted), for the process with this identity, if it belongs to this run.
    pub(crate) fn evicted_by_identity(&self, identity: u32) {
        let is_it = |process: &&std::sync::Arc<Process>| process.identity() == Some(identity);
        if let Some(process) = self.processes.iter().find(is_it) {
            self.evicted(process);
        }
    }

    /// Writes into far memory the epochs that processes could announce. Takes time in proportion to the number of threads.
    fn announce(&self) {
        let world = self.world.lock();
        let epoch = self.epoch();
        for process in &self.processes {
            let announced = if process.collector.has_caught_up(epoch) { epoch } else { epoch - 1 };
            let slot = process.member().and_then(|member| member.announce(announced));
            if let Some(slot) = slot {
                world.poke(slot, announced);
            }
        }
    }
}

impl Worker {
    /// Enters the current epoch.
    #[inline]
    pub(crate) fn enter_epoch(&self) -> Pin {
        match &self.eager {
            Some(eager) => self.enter_watched(eager, crate::epoch::Participant::pin),
            None => self.io.epoch.pin(),
        }
    }

    /// Enters the oldest epoch of this thread's guards, or the current one if there is no guard.
    #[inline]
    pub(crate) fn enter_oldest_epoch(&self) -> Pin {
        match &self.eager {
            Some(eager) => self.enter_watched(eager, crate::epoch::Participant::pin_oldest),
            None => self.io.epoch.pin_oldest(),
        }
    }

    #[cold]
    fn enter_watched(&self, eager: &Eager, enter: impl FnOnce(&crate::epoch::Participant) -> Pin) -> Pin {
        let before = self.io.epoch.oldest();
        self.process.collector.observe(eager.epoch());
        let pin = enter(&self.io.epoch);
        if before.is_none() && !self.process.is_abandoned.load(Relaxed) {
            eager.moved(None, self.io.epoch.oldest());
        }
        pin
    }

    /// Leaves the epoch that `pin` entered.
    #[inline]
    pub(crate) fn leave_epoch(&self, pin: Pin) {
        match &self.eager {
            Some(eager) => self.leave_watched(eager, pin),
            None => drop(self.io.epoch.unpin(pin)),
        }
    }

    #[cold]
    fn leave_watched(&self, eager: &Eager, pin: Pin) {
        let before = self.io.epoch.oldest();
        if self.io.epoch.unpin(pin) && !self.process.is_abandoned.load(Relaxed) {
            eager.moved(before, self.io.epoch.oldest());
            eager.advance();
        }
    }

    /// Makes the slot of a thread that ends idle, even if a guard was forgotten.
    pub(crate) fn leave_epochs(&self) {
        if let Some(eager) = &self.eager
            && let Some(left) = self.io.epoch.oldest()
            && !self.process.is_abandoned.load(Relaxed)
        {
            eager.moved(Some(left), None);
            eager.advance();
        }
    }

    /// The epoch in which a block with this tag expires, or 0 if only steps advance the epoch.
    #[inline]
    pub(crate) fn expires(&self, tag: u64) -> u64 {
        self.eager.as_ref().map_or(0, |eager| eager.expires(tag))
    }

    /// Advances the epoch for a block that is in limbo with this tag.
    #[inline]
    pub(crate) fn advance_for_retired(&self, tag: u64, block: Block) {
        if let Some(eager) = &self.eager {
            eager.retired(tag, block);
            eager.advance();
        }
    }

    /// The epoch as the process knows it.
    pub(crate) fn known_epoch(&self) -> u64 {
        if let Some(eager) = &self.eager {
            self.process.collector.observe(eager.epoch());
        }
        self.process.collector.epoch()
    }

    /// Advances the epoch once, and then as far as objects in limbo need, if the cluster reclaims eagerly. Returns whether it does.
    pub(crate) fn advance_eagerly(&self) -> bool {
        self.eager.as_ref().inspect(|eager| eager.advance_now(Advance::Once)).is_some()
    }

    /// Updates the slots in far memory, if the cluster reclaims eagerly.
    pub(crate) fn announce_all(&self) {
        self.eager.as_ref().inspect(|eager| eager.announce());
    }

    /// Frees expired blocks, if the cluster reclaims eagerly.
    #[inline]
    pub(crate) fn free_eagerly(&self) {
        if let Some(eager) = &self.eager {
            self.free_watched(eager);
        }
    }

    #[cold]
    fn free_watched(&self, eager: &Eager) {
        if self.freed_at.get() == eager.epoch() {
            return;
        }
        let epoch = self.known_epoch();
        self.freed_at.set(epoch);
        if self.limbo.borrow().has_expired(epoch) {
            self.free_expired(epoch);
        }
    }
}
