//! Eager reclamation: the simulator frees retired memory at the first moment at which any fabric may.
//!
//! A bug that uses an object after its grace period shows only if the period ends. On real fabrics epochs advance by
//! [steps](super::global) of processes, now and then, and in a run of some hundred operations hardly at all. So the simulator, which
//! sees every slot, advances the epoch itself: whenever a slot moves on, an object is retired, a thread ends or a process is evicted,
//! the epoch goes up for as long as
//! - no thread is pinned before it, and
//! - an object is in limbo that this brings nearer to its end.
//!
//! An object whose tag plus [`GRACE_EPOCHS`] is reached *expires*: the simulator's books count it as freed, and report each access to it.
//! Its thread frees it when it next pins, allocates or waits, and hands the block out again, or never does (the option `reuse`).
//!
//! # Why no correct program is reported
//!
//! 1. The schedule is that of [`epoch`](crate::epoch) for one process that has all threads, whose scans take no time: the epoch
//!    goes from `e` to `e + 1` only while every slot that is not idle shows `e`. So a slot that shows `m` bounds the epoch by `m + 1`,
//!    and the argument of that module holds as it stands. It needs no clock and no message, so links that are cut do not matter.
//! 2. A thread that is not pinned learns of the epoch before it pins, so it pins in the current one. That the process
//!    of such a thread has not announced an epoch therefore holds nothing back.
//! 3. A process that learns of an epoch by a step has read, before, whether chunks were recut. Here every process forgets what it knew of
//!    chunks before the first epoch after that; and hears whether memory was asked for.
//! 4. Steps take place all the same, and their CAS may advance the epoch in far memory: then this module follows, before anything else
//!    is decided. The words of slots in far memory may be out of date, which only holds steps back; [`Eager::announce`]
//!    makes them true before they are shown to a person.
//! 5. The slots of a process that is evicted are idle from then on, as its word in far memory is.
//!
//! It is also the limit: no schedule of steps frees an object earlier. A process that has caught up could announce that at once, and
//! a CAS could come at once; both are legal, and no epoch can advance sooner than all pinned threads allow.
//!
//! # Costs
//!
//! No operation and no virtual time. Slots show the epoch or the one before it, so two counters, by the epoch's lowest bit, say
//! how many threads are behind: pinning and leaving are a few loads and stores. An advance takes constant time, however many
//! processes there are, and each object that expires a look at the books; after three advances nothing is in limbo that was before.
//! Lists of processes are gone through only after chunks were recut or memory was asked for.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use super::process::Process;
use super::worker::Worker;
use crate::epoch::{GRACE_EPOCHS, Pin};
use crate::segment::control;
use farfield_sim::{self as sim, Plant, Reclaim};
use farfield_words::Address;
use farfield_words::Block;

/// The need to advance the epoch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Advance {
    /// As long as an object in limbo needs it.
    ForLimbo,
    /// Once, and then as long as an object in limbo needs it.
    Once,
}

/// Advances the epoch of one run. All its threads are polled by one thread of the system, so relaxed loads and stores do.
pub(crate) struct Eager {
    world: sim::SharedWorld,
    processes: Vec<std::sync::Arc<Process>>,
    /// The epoch, if no step has advanced it since.
    epoch: AtomicU64,
    /// How many slots show an even epoch, and how many an odd one.
    shown: [AtomicU64; 2],
    /// How many retired blocks have not expired.
    waiting: AtomicU64,
    /// Those blocks, by the epoch in which they expire, of which there are three at a time.
    limbo: Mutex<[Vec<Address>; 4]>,
    /// What the counters beside the epoch were when processes last heard of them.
    requests: AtomicU64,
    recut: AtomicU64,
    /// How many epochs too early objects expire: a planted bug.
    early: u64,
}

impl Eager {
    /// That of a run with these processes, if its cluster is a simulated one that reclaims eagerly.
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
            recut: AtomicU64::new(locked.peek(control::recut_chunks())),
            early: u64::from(locked.config().plant == Plant::EarlyReclamation),
        })
    }

    fn epoch(&self) -> u64 {
        self.epoch.load(Relaxed)
    }

    /// Whether the epoch is in far memory.
    fn is_far(&self) -> bool {
        self.processes[0].member().is_some()
    }

    /// How many slots show `epoch`, which is the current one, the one before or the one after.
    fn showing(&self, epoch: u64) -> &AtomicU64 {
        &self.shown[(epoch & 1) as usize]
    }

    fn add(count: &AtomicU64, change: i64) {
        count.store(count.load(Relaxed).wrapping_add_signed(change), Relaxed);
    }

    /// A slot that showed `left`, or was idle, shows `entered`, or is idle.
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

    /// Advances the epoch as far as the rules allow and something in limbo needs.
    #[inline]
    fn advance(&self) {
        // Slots show the epoch or the one before it, whose lowest bit is that of the one after it.
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
            // What steps have done.
            for epoch in self.epoch() + 1..=world.peek(control::epoch()) {
                self.expire(&mut world, &mut limbo, epoch);
            }
            self.hear(&world);
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

    /// The epoch is `epoch`.
    fn expire(&self, world: &mut sim::World, limbo: &mut [Vec<Address>; 4], epoch: u64) {
        self.epoch.store(epoch, Relaxed);
        let expired = &mut limbo[(epoch & 3) as usize];
        Self::add(&self.waiting, -(expired.len() as u64).cast_signed());
        world.expired(expired.drain(..), epoch);
    }

    /// Processes hear what they would read beside the epoch.
    fn hear(&self, world: &sim::World) {
        let requests = world.peek(control::requests_for_memory());
        let recut = world.peek(control::recut_chunks());
        let asks = self.requests.swap(requests, Relaxed) != requests;
        if self.recut.swap(recut, Relaxed) != recut || asks {
            self.processes.iter().for_each(|process| process.hear_counters(requests, recut));
        }
    }

    /// A process's threads have died, and nothing of it takes effect any more.
    pub(crate) fn evicted(&self, process: &Process) {
        process.is_abandoned.store(true, Relaxed);
        for shown in process.collector.abandon() {
            self.moved(Some(shown), None);
        }
        self.advance();
    }

    /// The same, of the process that has an identity, if it is of this run.
    pub(crate) fn evicted_identity(&self, identity: u32) {
        let is_it = |process: &&std::sync::Arc<Process>| process.is_gone() == Some(identity);
        if let Some(process) = self.processes.iter().find(is_it) {
            self.evicted(process);
        }
    }

    /// Writes into far memory what processes could announce. Takes as long as there are threads.
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

    /// Stays in the oldest epoch that a guard of this thread is in, or enters the current one if there is none.
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

    /// The thread ends; a guard that was forgotten ends with it.
    pub(crate) fn leave_epochs(&self) {
        if let Some(eager) = &self.eager
            && let Some(left) = self.io.epoch.oldest()
            && !self.process.is_abandoned.load(Relaxed)
        {
            eager.moved(Some(left), None);
            eager.advance();
        }
    }

    /// The epoch in which a block with this tag expires, or 0 where the simulator leaves that to steps.
    #[inline]
    pub(crate) fn expires(&self, tag: u64) -> u64 {
        self.eager.as_ref().map_or(0, |eager| eager.expires(tag))
    }

    /// A block is in limbo, with this tag: a reason to advance the epoch.
    #[inline]
    pub(crate) fn advance_for(&self, tag: u64, block: Block) {
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

    /// Advances the epoch once, or as far as something in limbo needs, if the simulator does that; returns whether it does.
    pub(crate) fn advance_eagerly(&self) -> bool {
        self.eager.as_ref().inspect(|eager| eager.advance_now(Advance::Once)).is_some()
    }

    /// Makes the words of slots true that are to be read for a person.
    pub(crate) fn announce_eagerly(&self) {
        self.eager.as_ref().inspect(|eager| eager.announce());
    }

    /// Frees what has expired, where the simulator advances epochs.
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
