//! The simulator: far memory, a network and compute threads in virtual time, all in one OS thread.
//!
//! A run is a pure function of its program and a seed. Every compute thread is a future; the simulator polls the thread whose completion comes next,
//! or whose own memory was changed.
//! The system's scheduler, the clock and hash maps decide nothing. So a failing run fails again, and two runs of one seed have the same trace, bit
//! for bit.
//!
//! # The model
//!
//! A chain that is posted at `t` to an idle memory node completes at `t + rtt + bytes / bandwidth`:
//!
//! | step | takes | while |
//! |---|---|---|
//! | doorbell | nothing, unless the compute node's NIC is still busy with an earlier one | the NIC is busy for `doorbell`; chains that a thread posts to one memory node in one poll share it |
//! | way there | 2/5 of the rtt, give or take the jitter | |
//! | queue | until the memory node has begun all earlier chains | the node is busy for `1 / rate` with each operation, or for its bytes over the bandwidth if that is longer |
//! | memory | 1/5 of the rtt; the chain's words are accessed one by one, at random moments of that time: operations in program order, and the words of a READ or WRITE in the order of their addresses, or, with `words=any`, from any of them on, and after the last the first | other chains access words in between |
//! | way back | 2/5 of the rtt, give or take the jitter, and the bytes over the bandwidth | |
//! | completion | `completed` for each operation, as soon as the thread is not busy | other completions of the thread wait |
//!
//! Before the doorbell the thread works for `posted` for each operation: see [`computing`]. A pause of a `Backoff` takes [`PAUSE`], and so does a
//! `yield_now`.
//!
//! Words that a thread [hosts](hosted) lie in the memory of its compute node. A chain to them takes the same steps with that compute node in place of
//! the memory node, whose NIC it shares with the doorbells of that node's threads. When a chain has changed a hosted word, the host is polled, as soon
//! as it is not busy. So a WRITE reaches the host after 2/5 of the rtt.
//!
//! Chains of one thread to one memory node are executed in the order of posting, as on a reliable connection. Chains to different nodes, or of
//! different threads, may overtake each other.
//!
//! # Parts
//!
//! | module | contents |
//! |---|---|
//! | [`computing`] | the time of a thread's own work |
//! | [`events`] | the event queue |
//! | [`connection`] | the order of a thread's chains to a memory node |
//! | [`world`] | the state of threads, nodes and chains in flight |
//! | [`network`] | a chain's way from its doorbell to its completion |
//! | [`faults`] | faults, drawn from the seed or scripted |
//! | [`hosted`] | words of far memory that lie in a compute node's own memory |
//! | [`loops`] | the table of retry loops that have waited |
//! | [`progress`] | detection of livelock, starvation and deadlock |
//! | [`report`] | the report of a stuck run: waiting threads, owners of locks |
//! | [`stalls`] | reports of long waits in virtual time |
//! | [`run`] | polls compute threads as their completions arrive |
//! | [`simulation`] | a test's handle to the simulated cluster |
//! | [`watch`] | the heap's reports of allocation and freeing |
//!
//! The engine does not know what words *mean*: [`crate::books`] has objects, and a [`Meaning`](crate::Meaning) has the other words.

mod computing;
mod connection;
mod events;
mod faults;
mod hosted;
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

use crate::config::{self, Picos, Requests, WordOrder};
use crate::plant::Plant;
use crate::work::Work;
use farfield_fabric::chain::RawChain;
use farfield_fabric::error::Result;
use farfield_fabric::{Endpoint, Posted, Ticket};
use farfield_words::Address;
pub use loops::{LoopId, LoopKind};
pub use run::{Body, ThreadFuture, ThreadOutcome, simulate};
pub use simulation::Simulation;
pub use watch::Watch;
pub use world::World;

/// The time of a pause and of a `yield_now`: 40 ns, some 140 cycles of a 3.5 GHz processor, as `PAUSE` takes since Skylake.
pub const PAUSE: Picos = 40_000;

/// The task number of a process's keeper, which runs on its first thread. Progress checks ignore its waits.
pub const KEEPER_TASK: u32 = 999_999;

/// The ticket of an operation of a dead thread: it never completes.
const NEVER: Ticket = Ticket(u64::MAX);

/// A simulated world, shared by its threads' endpoints. All of them run in one OS thread, so the lock is never contended. It exists because a
/// `Cluster` may be sent to another thread.
#[derive(Clone)]
pub struct SharedWorld(Arc<Mutex<World>>);

impl SharedWorld {
    /// Shares a world.
    pub fn new(world: World) -> Self {
        Self(Arc::new(Mutex::new(world)))
    }

    /// Locks the world.
    pub fn lock(&self) -> MutexGuard<'_, World> {
        // A panic under the lock is a bug, and is reported as one; printing the report must not panic again.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A simulated thread's access to its world.
pub struct Sim {
    world: SharedWorld,
    thread: u32,
    /// The number of doorbells that the thread has rung.
    doorbells: Cell<u64>,
    /// The number of guards that the thread holds.
    guards: Cell<u32>,
    /// The planted bug.
    plant: Plant,
    has_mailboxes: bool,
    words: WordOrder,
}

impl Sim {
    /// Makes the endpoint of a thread of the run, by its index.
    pub fn new(world: SharedWorld, thread: u32) -> Self {
        let (plant, has_mailboxes, words) = {
            let world = world.lock();
            let config = world.config();
            (config.plant, config.requests == Requests::InMailboxes, config.words)
        };
        Self { world, thread, doorbells: Cell::new(0), guards: Cell::new(0), plant, has_mailboxes, words }
    }

    /// Returns a ticket that completes at a time.
    pub fn sleep_until(&self, time: Duration, task: u32) -> Ticket {
        let until = config::picos(time);
        self.world
            .lock()
            .sleep(self.thread, task, until, progress::TimerPurpose::Sleep)
            .map_or(NEVER, |flight| Ticket(flight.into()))
    }

    /// Returns a ticket that completes after a pause, so that other tasks run.
    pub fn yield_now(&self, task: u32) -> Ticket {
        let mut world = self.world.lock();
        let until = world.clock(self.thread) + PAUSE;
        world
            .sleep(self.thread, task, until, progress::TimerPurpose::Yield)
            .map_or(NEVER, |flight| Ticket(flight.into()))
    }

    /// Returns a ticket that completes after some pauses, before the next attempt of a retry loop. The first call enters the loop in the table,
    /// where it stays until it [ends](Self::loop_ends).
    pub fn retry(&self, pauses: u32, task: u32, purpose: LoopKind, entry: &mut Option<LoopId>) -> Ticket {
        let mut world = self.world.lock();
        let until = world.clock(self.thread) + PAUSE * u64::from(pauses.max(1));
        let Some(flight) = world.sleep(self.thread, task, until, progress::TimerPurpose::Retry) else {
            return NEVER;
        };
        world.loop_waits((self.thread, task), entry, purpose, until);
        Ticket(flight.into())
    }

    /// Removes a retry loop that has ended or was abandoned.
    pub fn loop_ends(&self, entry: LoopId) {
        self.world.lock().loop_ends(self.thread, entry);
    }

    /// Records that the thread pins a guard in an epoch.
    #[inline]
    pub fn pins(&self, epoch: impl FnOnce() -> u64) {
        let guards = self.guards.get();
        self.guards.set(guards + 1);
        if guards == 0 {
            self.world.lock().pins(self.thread, Some(epoch()));
        }
    }

    /// Records that the thread drops a guard.
    #[inline]
    pub fn unpins(&self) {
        let guards = self.guards.get().saturating_sub(1);
        self.guards.set(guards);
        if guards == 0 {
            self.world.lock().pins(self.thread, None);
        }
    }

    /// Records that a future of the thread waits at a barrier.
    pub fn enters_barrier(&self, barrier: &str) {
        self.world.lock().enters_barrier(self.thread, barrier);
    }

    /// Records that the future has left the barrier.
    pub fn leaves_barrier(&self, barrier: &str) {
        self.world.lock().leaves_barrier(self.thread, barrier);
    }

    /// Records that the program reads the clock: it may be waiting for a time.
    pub fn reads_clock(&self) {
        self.world.lock().reads_clock(self.thread);
    }

    /// Checks that the cached object is still allocated, and accounts for the cost of a cached access.
    pub fn check_cached(&self, at: Address, words: usize, task: u32) -> Result<()> {
        let mut world = self.world.lock();
        let cost = world.config().compute.of(Work::CachedAccess);
        world.spend(self.thread, cost);
        let actor = world.actor(self.thread, task);
        world.books.check_cached(at, words, actor)
    }

    /// Accounts for work of the thread.
    pub fn compute(&self, work: Work) {
        let mut world = self.world.lock();
        let cost = world.config().compute.of(work);
        world.spend(self.thread, cost);
    }

    /// Hosts words: from now on they lie in the memory of the thread's compute node, and chains to them go there. The words keep their values. The
    /// thread is polled when a chain has changed one. See the module `hosted` for the model.
    ///
    /// Ends with [`unhost`](Self::unhost), when the thread ends, and when the block of the words is freed. If the compute node dies, chains to the
    /// words fail with [`NodeUnreachable`](farfield_fabric::Error::NodeUnreachable), whose node is the number of memory nodes plus that of the compute
    /// node; [`Fault::cut`](crate::Fault::cut) and [`Fault::slow`](crate::Fault::slow) take the same number. Another thread may then host them.
    ///
    /// # Panics
    /// In debug builds, if another thread that has not died hosts some of the words.
    pub fn host(&self, at: Address, words: usize) {
        self.world.lock().host(self.thread, at, words);
    }

    /// Ends the hosting of the words that [`host`](Self::host) declared at `at`: a memory node has them again, with their values. Any thread may do
    /// it, for instance after the death of the host. Does nothing if no hosted words begin there.
    pub fn unhost(&self, at: Address) {
        self.world.lock().unhost(self.thread, at);
    }

    /// Loads a word of the thread's own memory: takes [`Work::CachedAccess`], and no round trip. It returns the last word that was written.
    ///
    /// # Panics
    /// In debug builds, if no thread of the compute node hosts the word.
    pub fn load_here(&self, at: Address) -> u64 {
        self.world.lock().load_here(self.thread, at)
    }

    /// Loads words of the thread's own memory, as [`load_here`](Self::load_here) loads one: takes [`Work::CachedAccess`] for each line of 64 bytes.
    pub fn copy_here(&self, at: Address, into: &mut [u64]) {
        self.world.lock().copy_here(self.thread, at, into);
    }

    /// Stores a word of the thread's own memory, as [`load_here`](Self::load_here) loads it. The trace shows a WRITE of task 0.
    ///
    /// # Panics
    /// In debug builds, if no thread of the compute node hosts the word.
    pub fn store_here(&self, at: Address, word: u64) {
        self.world.lock().store_here(self.thread, at, word);
    }

    /// Returns whether this bug is planted.
    pub fn has(&self, plant: Plant) -> bool {
        self.plant == plant
    }

    /// Returns whether threads delegate through memory nodes: they host no memory then.
    pub fn has_mailboxes(&self) -> bool {
        self.has_mailboxes
    }

    /// Returns whether the words of a READ or WRITE are accessed in the order of their addresses.
    pub fn has_ordered_words(&self) -> bool {
        self.words == WordOrder::Ascending
    }

    /// Returns whether the thread is dead: it may die in the middle of a poll, and nothing that it does afterwards has an effect.
    pub fn is_dead(&self) -> bool {
        self.world.lock().is_dead(self.thread)
    }

    /// Returns whether the thread is dead and its memory is lost with it.
    pub fn has_lost_memory(&self) -> bool {
        self.world.lock().has_lost_memory(self.thread)
    }

    /// Returns about how many pauses a duration takes.
    pub fn pauses_in(time: Duration) -> u32 {
        (config::picos(time) / PAUSE).min(1 << 20) as u32
    }

    /// Returns the time of a round trip on an idle network: the option `rtt`.
    pub fn rtt(&self) -> Duration {
        config::duration(self.world.lock().config().rtt)
    }

    /// Returns about how many pauses a round trip takes.
    pub fn pauses_per_rtt(&self) -> u32 {
        (self.world.lock().config().rtt / PAUSE).clamp(1, 1 << 20) as u32
    }
}

impl Endpoint for Sim {
    fn post(&self, chain: RawChain, task: u32) -> Posted {
        let Some((flight, rings)) = self.world.lock().post(self.thread, task, chain) else {
            return Posted::InFlight(NEVER);
        };
        self.doorbells.set(self.doorbells.get() + u64::from(rings));
        Posted::InFlight(Ticket(flight.into()))
    }

    fn poll(&self, ticket: Ticket) -> Poll<(RawChain, Result<()>)> {
        if ticket == NEVER { Poll::Pending } else { self.world.lock().poll(ticket.0 as u32) }
    }

    fn forget(&self, ticket: Ticket) {
        if ticket != NEVER {
            self.world.lock().forget(ticket.0 as u32);
        }
    }

    /// Marks a chain that no future waits for, although its thread polls it occasionally.
    fn in_background(&self, ticket: Ticket) {
        if ticket != NEVER {
            self.world.lock().in_background(ticket.0 as u32);
        }
    }

    /// Returns whether a chain that the thread has posted has not been executed.
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
        unreachable!("the simulator polls a thread only when something has arrived for it")
    }
}
