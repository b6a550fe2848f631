//! The simulator: far memory, a network and compute threads in virtual time, all in one OS thread.
//!
//! A run is a pure function of its program and a seed. Every compute thread is a future; the simulator polls the one
//! whose completion comes next, and nothing else decides the order of things: not the system's scheduler, not the
//! clock, not a hash map. So a run that fails does so again, and two runs of one seed have the same trace, bit for bit.
//!
//! # The model
//!
//! A chain whose thread has posted it at `t`, to a memory node that is idle, arrives back at `t + rtt + bytes / bandwidth`:
//!
//! | step | takes | while |
//! |---|---|---|
//! | doorbell | nothing, unless the compute node's NIC is still busy with an earlier one | the NIC is busy for `doorbell`; chains that a thread posts to one memory node in one poll share it |
//! | way there | 2/5 of the rtt, give or take the jitter | |
//! | queue | until the memory node has begun all that came before | the node is busy for `1 / rate` with each operation, or for its bytes over the bandwidth if that is longer |
//! | memory | 1/5 of the rtt; the chain's words are accessed one by one, in program order, at random moments of that time | other chains access words in between |
//! | way back | 2/5 of the rtt, give or take the jitter, and the bytes over the bandwidth | |
//! | completion | `completed` for each operation, as soon as the thread is not busy | other completions of the thread wait |
//!
//! Before the doorbell the thread works for `posted` for each operation: see [`computing`]. A pause of a
//! `Backoff` is [`PAUSE`] long, giving way takes as long.
//!
//! Chains of one thread to one memory node are executed in the order in which they were posted, as a reliable connection
//! does; chains to different nodes, or of different threads, overtake each other.
//!
//! # Parts
//!
//! | module | what it does |
//! |---|---|
//! | [`computing`] | what a thread's own work takes |
//! | [`events`] | what happens next |
//! | [`connection`] | the order of a thread's chains to a memory node |
//! | [`world`] | the state of everything |
//! | [`network`] | what becomes of a chain between its doorbell and its completion |
//! | [`faults`] | faults, by the seed and by script |
//! | [`loops`] | retry loops that have waited |
//! | [`progress`] | when to give up |
//! | [`report`] | which thread waits for what then, and which has it |
//! | [`stalls`] | what has waited for long in virtual time |
//! | [`run`] | polls compute threads as their completions arrive |
//! | [`simulation`] | the cluster as a test sees it |
//! | [`watch`] | hears of the lives of objects |
//!
//! What words *mean* is not known here: [`crate::books`] has objects, and asks a [`Meaning`](crate::Meaning) for the rest.

mod computing;
mod connection;
mod events;
mod faults;
mod loops;
mod network;
mod progress;
mod report;
mod run;
mod simulation;
mod stalls;
mod watch;
mod world;

use std::cell::Cell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use crate::config::{self, Picos};
use crate::plant::Plant;
use crate::work::Work;
use farfield_fabric::chain::Chain;
use farfield_fabric::error::Result;
use farfield_fabric::{Endpoint, Posted, Ticket};
use farfield_words::Address;
pub use loops::{LoopId, LoopKind};
pub use run::{Body, ThreadFuture, ThreadOutcome, simulate};
pub use simulation::Simulation;
pub use watch::Watch;
pub use world::World;

/// How long a pause takes, and giving way: 40 ns, some 140 cycles of a 3.5 GHz processor, as `PAUSE` does since Skylake.
pub const PAUSE: Picos = 40_000;

/// The task that a process's keeper is, beside those of its first thread: its waits say nothing of whether the program goes on.
pub const KEEPER_TASK: u32 = 999_999;

/// The ticket of what will never complete, because its thread is dead.
const NEVER: Ticket = Ticket(u64::MAX);

/// A simulated world, shared by its threads' endpoints. All of them run in one OS thread, so the lock is never
/// contended; it is there because a `Cluster` may be sent to another.
#[derive(Clone)]
pub struct SharedWorld(Arc<Mutex<World>>);

impl SharedWorld {
    /// A world to be shared.
    pub fn new(world: World) -> Self {
        Self(Arc::new(Mutex::new(world)))
    }

    /// Access to it.
    pub fn lock(&self) -> MutexGuard<'_, World> {
        // A panic in here is a bug, and is reported as one; what is printed about it then must not panic again.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A simulated thread's access to its world.
pub struct Sim {
    world: SharedWorld,
    thread: u32,
    /// Doorbells that it has rung.
    doorbells: Cell<u64>,
    /// Guards that it holds.
    guards: Cell<u32>,
    /// The planted bug, if there is one.
    plant: Plant,
}

impl Sim {
    /// The access of a thread of the run, by its index.
    pub fn new(world: SharedWorld, thread: u32) -> Self {
        let plant = world.lock().config().plant;
        Self { world, thread, doorbells: Cell::new(0), guards: Cell::new(0), plant }
    }

    /// A ticket that completes at a time.
    pub fn sleep_until(&self, time: Duration, task: u32) -> Ticket {
        let until = config::picos(time);
        self.world
            .lock()
            .sleep(self.thread, task, until, progress::TimerPurpose::Sleep)
            .map_or(NEVER, |flight| Ticket(flight.into()))
    }

    /// A ticket that completes after a pause: to give way.
    pub fn yield_now(&self, task: u32) -> Ticket {
        let mut world = self.world.lock();
        let until = world.clock(self.thread) + PAUSE;
        world
            .sleep(self.thread, task, until, progress::TimerPurpose::Yield)
            .map_or(NEVER, |flight| Ticket(flight.into()))
    }

    /// A ticket that completes after some pauses: before the next attempt of a retry loop, which is in the table from the first time
    /// on until it [ends](Self::loop_ends).
    pub fn retry(&self, pauses: u32, task: u32, purpose: LoopKind, entry: &mut Option<LoopId>) -> Ticket {
        let mut world = self.world.lock();
        let until = world.clock(self.thread) + PAUSE * u64::from(pauses.max(1));
        let Some(flight) = world.sleep(self.thread, task, until, progress::TimerPurpose::Retry) else {
            return NEVER;
        };
        world.loop_waits((self.thread, task), entry, purpose, until);
        Ticket(flight.into())
    }

    /// A retry loop is over, or was given up.
    pub fn loop_ends(&self, entry: LoopId) {
        self.world.lock().loop_ends(self.thread, entry);
    }

    /// The thread pins a guard, in an epoch.
    #[inline]
    pub fn pins(&self, epoch: impl FnOnce() -> u64) {
        let guards = self.guards.get();
        self.guards.set(guards + 1);
        if guards == 0 {
            self.world.lock().pins(self.thread, Some(epoch()));
        }
    }

    /// It drops one.
    #[inline]
    pub fn unpins(&self) {
        let guards = self.guards.get().saturating_sub(1);
        self.guards.set(guards);
        if guards == 0 {
            self.world.lock().pins(self.thread, None);
        }
    }

    /// A future of the thread waits at a barrier.
    pub fn enters_barrier(&self, barrier: &str) {
        self.world.lock().enters_barrier(self.thread, barrier);
    }

    /// It no longer does.
    pub fn leaves_barrier(&self, barrier: &str) {
        self.world.lock().leaves_barrier(self.thread, barrier);
    }

    /// The program asks for the time.
    pub fn reads_clock(&self) {
        self.world.lock().reads_clock(self.thread);
    }

    /// Whether the object is alive that somebody uses a cached copy of.
    pub fn check_cached(&self, at: Address, words: usize, task: u32) -> Result<()> {
        let mut world = self.world.lock();
        let cost = world.config().compute.of(Work::CachedAccess);
        world.spend(self.thread, cost);
        let actor = world.actor(self.thread, task);
        world.books.check_cached(at, words, actor)
    }

    /// The thread works.
    pub fn compute(&self, work: Work) {
        let mut world = self.world.lock();
        let cost = world.config().compute.of(work);
        world.spend(self.thread, cost);
    }

    /// Whether a bug is planted.
    pub fn has(&self, plant: Plant) -> bool {
        self.plant == plant
    }

    /// Whether what the thread has is lost with it.
    pub fn has_lost_memory(&self) -> bool {
        self.world.lock().has_lost_memory(self.thread)
    }

    /// About how many pauses a time is.
    pub fn pauses_in(time: Duration) -> u32 {
        (config::picos(time) / PAUSE).min(1 << 20) as u32
    }

    /// How long a round trip takes where nothing is in the way: the option `rtt`.
    pub fn rtt(&self) -> Duration {
        config::duration(self.world.lock().config().rtt)
    }

    /// About how many pauses a round trip takes.
    pub fn pauses_per_rtt(&self) -> u32 {
        (self.world.lock().config().rtt / PAUSE).clamp(1, 1 << 20) as u32
    }
}

impl Endpoint for Sim {
    fn post(&self, chain: Chain, task: u32) -> Posted {
        let Some((flight, rings)) = self.world.lock().post(self.thread, task, chain) else {
            return Posted::InFlight(NEVER);
        };
        self.doorbells.set(self.doorbells.get() + u64::from(rings));
        Posted::InFlight(Ticket(flight.into()))
    }

    fn poll(&self, ticket: Ticket) -> Poll<(Chain, Result<()>)> {
        if ticket == NEVER { Poll::Pending } else { self.world.lock().poll(ticket.0 as u32) }
    }

    fn forget(&self, ticket: Ticket) {
        if ticket != NEVER {
            self.world.lock().forget(ticket.0 as u32);
        }
    }

    /// No future waits for it, though its thread looks for its completion now and then.
    fn in_background(&self, ticket: Ticket) {
        if ticket != NEVER {
            self.world.lock().in_background(ticket.0 as u32);
        }
    }

    /// Whether something that the thread has posted has not been executed.
    fn is_underway(&self) -> bool {
        self.world.lock().is_underway(self.thread)
    }

    fn doorbells(&self) -> u64 {
        self.doorbells.get()
    }

    fn now(&self) -> Duration {
        config::duration(self.world.lock().clock(self.thread))
    }

    fn idle(&self) {
        unreachable!("the simulator polls a thread when something has arrived")
    }
}
