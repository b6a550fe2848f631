//! The state of a simulated cluster: threads, nodes, chains in flight.
//!
//! Invariants:
//! - time only goes forward: an event is executed at its own time, after all earlier ones;
//! - a flight is owned by the event queue until it completes and by its ticket afterwards; it is recycled once both have released it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;

use rand::{Rng, RngExt};

use super::connection::Connection;
use super::events::{Event, EventQueue};
use super::faults::{Cut, FaultOrigin, Script};
use super::hosted::HostedMemory;
use super::progress::{ProgressMonitor, TimerPurpose};
use crate::books::Books;
use crate::books::trace::{Actor, Record, field_name};
use crate::config::{Picos, SimConfig};
use crate::meaning::{Meaning, NoMeaning};
use farfield_fabric::chain::{Op, RawChain};
use farfield_fabric::error::{Error, Result};
use farfield_fabric::host::Arena;
use farfield_fabric::prefetch;
use farfield_fabric::stall::WatchedSimulation;
use farfield_words::Address;
use farfield_words::Block;
use farfield_words::WORD_BYTES;
use farfield_words::geometry::Geometry;
use farfield_words::link_target;

/// A simulated cluster.
pub struct World {
    pub(super) config: SimConfig,
    pub(super) geometry: Geometry,
    pub(super) arena: Arc<Arena>,
    pub(super) now: Picos,
    pub(super) events: EventQueue,
    pub(super) flights: Vec<Flight>,
    free_flights: Vec<u32>,
    /// The threads of the current or last run.
    pub(super) threads: Vec<Thread>,
    /// Their compute nodes.
    pub(super) compute_nodes: Vec<ComputeNode>,
    /// The memory nodes, and behind them compute nodes that [host](super::hosted) memory.
    pub(super) memory_nodes: Vec<MemoryNode>,
    pub(super) hosted: HostedMemory,
    pub(super) cuts: Vec<Cut>,
    pub(super) script: Script,
    pub(super) monitor: ProgressMonitor,
    /// If stalls are reported: the watcher's view of this simulation, and the time of the next check of the threads' waits.
    pub stalls: Option<Arc<WatchedSimulation>>,
    pub(super) look_for_stalls_at: Picos,
    /// Stalled chains that have not been reported, if the threads' waits are due for a check.
    pub(super) stalled: Option<Vec<String>>,
    /// Records of objects, names and events.
    pub(crate) books: Books,
    /// Threads that faults have killed, some of whose chains may still be executed.
    pub(super) dying: Vec<u32>,
    /// Threads that faults have killed and whose deaths have not been announced to the run.
    pub(super) died: Vec<u32>,
    /// True if there are so many threads that a thread's data leaves the processor's cache between its turns: then it is prefetched.
    pub(super) fetches_ahead: bool,
    /// The number of threads of the run that have neither ended nor died.
    pub(super) unfinished: usize,
    /// The thread that is being polled, or was polled last.
    pub(super) polled: Option<u32>,
    pub(super) run_state: RunState,
}

/// The state of the current or last run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunState {
    /// No run is under way, and the last one was not abandoned.
    Idle,
    Running,
    /// The run was abandoned, and its futures are being dropped: chains that their destructors post take no effect.
    Abandoning,
    /// The last run was abandoned: later chains take no effect, either.
    Abandoned,
}

impl RunState {
    /// Returns whether a run is under way.
    pub(super) fn is_running(self) -> bool {
        matches!(self, Self::Running | Self::Abandoning)
    }

    /// Returns whether the run was abandoned.
    pub(super) fn is_abandoned(self) -> bool {
        matches!(self, Self::Abandoning | Self::Abandoned)
    }
}

/// The number of threads from which on prefetching pays.
pub(super) const MANY_THREADS: usize = 128;
/// How many places ahead of its turn a flight is prefetched, and its chain: a few hundred nanoseconds.
const FLIGHTS_AHEAD: usize = 8;
const CHAINS_AHEAD: usize = 4;

/// No flight: the end of a [connection](Connection)'s list.
pub(super) const NONE: u32 = u32::MAX;

/// A compute thread.
#[derive(Default)]
pub(super) struct Thread {
    pub(super) state: ThreadState,
    /// Its last operation, for reports.
    pub(super) last: Option<Record>,
    /// How often it has repeated its last operation with the same result.
    pub(super) repeats: u32,
    /// Its counts for the detection of livelock and starvation.
    pub(super) progress: super::progress::ThreadProgress,
    /// If it holds guards: since when, and the epoch in which it pinned the first.
    pub(super) pinned: Option<(Picos, u64)>,
    /// The barriers at which its futures wait, and since when.
    pub(super) barriers: Vec<(Box<str>, Picos)>,
    /// Its connections to memory nodes: the first one that it used, and the others.
    pub(super) first_connection: Option<Connection>,
    pub(super) other_connections: Vec<Connection>,
    /// The end of its current work.
    pub(super) busy_until: Picos,
    /// Completions that have arrived meanwhile, in order.
    pub(super) completions: VecDeque<u32>,
    /// True if words that it hosts have changed since its last poll: then an [`Event::Changed`] is in the event queue.
    pub(super) has_changes: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ThreadState {
    #[default]
    Running,
    Ended,
    /// Its compute node died at this time.
    Dead(Picos),
}

/// A compute node.
#[derive(Clone, Copy, Default)]
pub(super) struct ComputeNode {
    /// The time at which its NIC has handled all doorbells so far.
    pub(super) nic_free_at: Picos,
    /// The end of its current stall.
    pub(super) stalled_until: Picos,
    /// The number of chains posted in this run.
    pub(super) posted: u64,
}

/// A memory node, or a compute node that hosts memory.
#[derive(Clone)]
pub(super) struct MemoryNode {
    /// The time at which its NIC can begin another operation.
    pub(super) free_at: Picos,
    /// Arrived chains and the times at which they begin, in order. If the queue is not empty, the event queue has an [`Event::Serve`] for the
    /// first.
    pub(super) queue: VecDeque<(Picos, u32)>,
    pub(super) dead: bool,
    /// The factor by which it is slower than others.
    pub(super) slowness: u64,
}

impl Default for MemoryNode {
    fn default() -> Self {
        Self { free_at: 0, queue: VecDeque::new(), dead: false, slowness: 1 }
    }
}

/// A chain on its way, or a timer.
pub(super) struct Flight {
    pub(super) chain: RawChain,
    pub(super) thread: u32,
    pub(super) task: u32,
    pub(super) posted_at: Picos,
    /// The next posted chain on the same connection, if any; neither has been executed.
    pub(super) next: u32,
    /// Its memory node.
    pub(super) node: u16,
    /// True if it has arrived at its memory node and waits for an earlier chain of its thread.
    pub(super) awaits_turn: bool,
    /// True if no future waits for it, although its thread has its ticket.
    pub(super) in_background: bool,
    /// The next operation, the word with which it begins, and how many words it has accessed.
    pub(super) next_op: u32,
    pub(super) first_word: u32,
    pub(super) accessed_words: u32,
    pub(super) remaining_words: u32,
    pub(super) service_state: ServiceState,
    /// The time at which the answer leaves if the last word is not delayed.
    pub(super) answer_at: Picos,
    /// The bytes that it moves.
    pub(super) bytes: u64,
    pub(super) result: Result<()>,
    pub(super) stage: Stage,
    /// True if it has been reported as stalled.
    pub(super) is_reported: bool,
}

/// A memory node's progress with a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServiceState {
    /// The chain has not arrived, or waits in the queue.
    NotBegun,
    Begun,
    Executed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The event queue owns the flight.
    Scheduled,
    /// The event queue owns the flight, and no ticket refers to it.
    Forgotten,
    /// The ticket owns the flight.
    Completed,
    /// The flight is free to be reused.
    Free,
}

impl World {
    /// Makes a world whose words are in `arena`. Without a `meaning` no access is checked: for memory without allocations.
    pub fn new(
        config: SimConfig,
        geometry: Geometry,
        arena: Arc<Arena>,
        seed: u64,
        meaning: Option<Box<dyn Meaning>>,
    ) -> Self {
        let mut books = Books::new(seed, meaning.is_some(), meaning.unwrap_or_else(|| Box::new(NoMeaning)));
        books.memory_nodes = geometry.nodes();
        let mut world = Self {
            stalls: None,
            look_for_stalls_at: Picos::MAX,
            stalled: None,
            monitor: ProgressMonitor::new(&config),
            config,
            geometry,
            arena,
            now: 0,
            events: EventQueue::new(seed),
            flights: Vec::new(),
            free_flights: Vec::new(),
            threads: Vec::new(),
            compute_nodes: Vec::new(),
            memory_nodes: vec![MemoryNode::default(); usize::from(geometry.nodes())],
            hosted: HostedMemory::default(),
            cuts: Vec::new(),
            script: Script::default(),
            books,
            dying: Vec::new(),
            died: Vec::new(),
            fetches_ahead: false,
            unfinished: 0,
            polled: None,
            run_state: RunState::Idle,
        };
        world.slow_random_nodes();
        world
    }

    /// Adds threads without a run, so that the endpoint of each has connections.
    pub fn admit(&mut self, threads: usize) {
        self.threads.resize_with(threads, Thread::default);
    }

    /// Returns the options.
    pub fn config(&self) -> &SimConfig {
        &self.config
    }

    /// Returns the time, by the clock of the thread that is being polled, if any.
    pub fn now(&self) -> Picos {
        self.polled.map_or(self.now, |thread| self.clock(thread))
    }

    pub(super) fn compute_node_of(&self, thread: u32) -> usize {
        (thread / self.config.threads_per_node) as usize
    }

    /// Returns whether a thread is dead and its memory is lost with it, as with a real process.
    pub fn has_lost_memory(&self, thread: u32) -> bool {
        self.config.has_keepers() && self.is_dead(thread)
    }

    /// Returns whether a thread's actions still take effect.
    pub(super) fn takes_effect(&self, thread: u32) -> bool {
        !self.run_state.is_abandoned() && !self.is_dead(thread)
    }

    pub(super) fn is_dead(&self, thread: u32) -> bool {
        let dead = |thread: &Thread| matches!(thread.state, ThreadState::Dead(_));
        self.threads.get(thread as usize).is_some_and(dead)
    }

    pub(crate) fn actor(&self, thread: u32, task: u32) -> Actor {
        Actor { thread, task, at: self.now }
    }

    // ---- actions of threads ---------------------------------------------------------------------------------------

    /// Posts a chain. Returns its flight and whether it took a doorbell of its own; `None` if the thread is dead.
    pub(super) fn post(&mut self, thread: u32, task: u32, chain: RawChain) -> Option<(u32, bool)> {
        if !self.takes_effect(thread) {
            return None;
        }
        let compute = self.compute_node_of(thread);
        self.admit_compute_node(compute);
        let (host, refused) = match self.hosting_node(thread, &chain) {
            Ok(host) => (host, None),
            Err(finding) => (None, Some(finding)),
        };
        let node = chain.ops().first().map_or(0, |op| self.geometry.node_of(op.at().segment()));
        // An existing node refuses an address outside all segments.
        let node = host.unwrap_or(node.min(self.geometry.nodes() - 1));
        self.compute_nodes[compute].posted += 1;
        if self.config.has_odds() || !self.script.is_empty() {
            let origin = self.apply_faults_of_post(thread, node);
            // A thread that dies by chance while it posts may have rung the doorbell or not.
            if !self.takes_effect(thread)
                && (origin == FaultOrigin::Scripted || self.events.rng.next_u64() & 1 == 0)
            {
                return None;
            }
        }
        self.count_post(thread);
        let posted_at = self.spend(thread, self.config.compute.of_posting(chain.ops().len()));
        let (departs_at, rings) = self.ring(thread, compute, node, posted_at);
        let arrives_at = departs_at + self.jittered(self.config.one_way());
        let (mut remaining_words, bytes) = size(&chain);
        if refused.is_some() {
            remaining_words = 0;
        }
        let flight = self.add_flight(Flight {
            chain,
            thread,
            task,
            posted_at,
            next: NONE,
            node,
            awaits_turn: false,
            in_background: false,
            next_op: 0,
            first_word: 0,
            accessed_words: 0,
            remaining_words,
            service_state: ServiceState::NotBegun,
            answer_at: 0,
            bytes,
            result: refused.map_or(Ok(()), Err),
            stage: Stage::Scheduled,
            is_reported: false,
        });
        if !self.takes_effect(thread) {
            // The thread died meanwhile: any prefix of the chain may have left.
            let words = self.events.rng.random_range(0..=remaining_words);
            self.truncate_chain(flight, words);
        }
        self.events.push(arrives_at, Event::Arrive(flight));
        if let Some(thread) = self.threads.get_mut(thread as usize) {
            let connection = thread.connection(node);
            match connection.front {
                NONE => connection.front = flight,
                _ => self.flights[connection.back as usize].next = flight,
            }
            connection.back = flight;
        }
        Some((flight, rings))
    }

    /// Adds compute nodes up to this one: outside a run, the conformance suite makes endpoints of any thread.
    pub(super) fn admit_compute_node(&mut self, compute: usize) {
        if self.compute_nodes.len() <= compute {
            self.compute_nodes.resize_with(compute + 1, ComputeNode::default);
        }
    }

    /// Starts a timer. Returns its flight, or `None` if the thread is dead.
    pub(super) fn sleep(&mut self, thread: u32, task: u32, until: Picos, wait: TimerPurpose) -> Option<u32> {
        if !self.takes_effect(thread) {
            return None;
        }
        if task != super::KEEPER_TASK {
            self.count_wait(thread, wait);
        }
        let flight = self.add_flight(Flight {
            chain: RawChain::default(),
            thread,
            task,
            posted_at: self.now,
            next: NONE,
            node: 0,
            awaits_turn: false,
            in_background: false,
            next_op: 0,
            first_word: 0,
            accessed_words: 0,
            remaining_words: 0,
            service_state: ServiceState::NotBegun,
            answer_at: 0,
            bytes: 0,
            result: Ok(()),
            stage: Stage::Scheduled,
            is_reported: false,
        });
        self.events.push(until.max(self.now), Event::Complete(flight));
        Some(flight)
    }

    /// Records that a thread has pinned its first guard in an epoch, or has dropped its last.
    #[inline]
    pub(super) fn pins(&mut self, thread: u32, epoch: Option<u64>) {
        let now = self.now;
        if let Some(thread) = self.threads.get_mut(thread as usize) {
            thread.pinned = epoch.map(|epoch| (now, epoch));
        }
    }

    /// Records that a future of a thread waits at a barrier.
    pub(super) fn enters_barrier(&mut self, thread: u32, barrier: &str) {
        let now = self.now;
        if let Some(thread) = self.threads.get_mut(thread as usize) {
            thread.barriers.push((barrier.into(), now));
        }
    }

    pub(super) fn leaves_barrier(&mut self, thread: u32, barrier: &str) {
        if let Some(thread) = self.threads.get_mut(thread as usize)
            && let Some(index) = thread.barriers.iter().position(|(name, _)| **name == *barrier)
        {
            thread.barriers.swap_remove(index);
        }
    }

    /// Prefetches the data of chains that are some places behind in a memory node's queue: first the flight, later its chain and thread.
    #[inline]
    pub(super) fn fetch_ahead(&self, node: u16) {
        let queue = &self.memory_nodes[usize::from(node)].queue;
        if let Some((_, index)) = queue.get(FLIGHTS_AHEAD) {
            prefetch(&self.flights[*index as usize]);
        }
        if let Some((_, index)) = queue.get(CHAINS_AHEAD) {
            let flight = &self.flights[*index as usize];
            flight.chain.prefetch();
            if let Some(thread) = self.threads.get(flight.thread as usize) {
                prefetch(thread);
            }
        }
    }

    fn add_flight(&mut self, flight: Flight) -> u32 {
        if let Some(index) = self.free_flights.pop() {
            self.flights[index as usize] = flight;
            return index;
        }
        self.flights.push(flight);
        self.flights.len() as u32 - 1
    }

    pub(super) fn poll(&mut self, index: u32) -> Poll<(RawChain, Result<()>)> {
        while !self.run_state.is_running() && self.flights[index as usize].stage == Stage::Scheduled {
            // Outside a run, only this poll advances time.
            let (at, event) = self.events.pop().expect("a scheduled flight has an event");
            self.handle_event(at, event);
        }
        let flight = &mut self.flights[index as usize];
        if flight.stage != Stage::Completed {
            return Poll::Pending;
        }
        flight.stage = Stage::Free;
        let done = (std::mem::take(&mut flight.chain), std::mem::replace(&mut flight.result, Ok(())));
        self.free_flights.push(index);
        Poll::Ready(done)
    }

    pub(super) fn in_background(&mut self, index: u32) {
        self.flights[index as usize].in_background = true;
    }

    pub(super) fn forget(&mut self, index: u32) {
        let flight = &mut self.flights[index as usize];
        if flight.stage == Stage::Completed {
            self.free_flight(index);
        } else {
            flight.stage = Stage::Forgotten;
        }
    }

    pub(super) fn free_flight(&mut self, index: u32) {
        let flight = &mut self.flights[index as usize];
        flight.stage = Stage::Free;
        flight.chain = RawChain::default();
        self.free_flights.push(index);
    }

    /// Returns the first finding.
    pub fn finding(&self) -> Option<Error> {
        self.books.finding()
    }

    /// Returns whether any thread's compute node has died.
    pub fn has_deaths(&self) -> bool {
        self.books.has_deaths()
    }

    /// Returns the field that contains an address: `Node.next`; `None` outside objects.
    pub fn field_at(&self, at: Address) -> Option<String> {
        let (object_type, start) = self.books.object(at)?;
        Some(field_name(object_type, at.bits().saturating_sub(start.bits())))
    }

    /// Reports objects that are not reachable from `roots`.
    pub fn look_for_leaks(&mut self, roots: Vec<u64>) {
        let arena = &self.arena;
        let word = |at| arena.word(at).map_or(0, |word| word.load(Ordering::Relaxed));
        self.books.look_for_leaks(roots, self.now, word);
    }

    /// Reports blocks that are lost although memory was swept after the last death.
    pub fn lost(&mut self, blocks: &[Block]) {
        let Some(first) = blocks.first() else { return };
        let within = first.address..first.address.add(first.bytes);
        let points = |at: &Address| within.contains(&link_target(self.peek(*at)));
        // The first word of a segment is not addressable.
        let segments = (0..=u16::MAX).map(|segment| Address::new(segment, WORD_BYTES as u64));
        let words = segments.take_while(|at| self.arena.word(*at).is_ok()).flat_map(|segment| {
            let words = (0..).map(move |word| segment.add(word * WORD_BYTES as u64));
            words.take_while(|at| self.arena.word(*at).is_ok())
        });
        let pointing: Vec<Address> = words.filter(points).collect();
        self.books.report_lost_blocks(blocks, &pointing, self.now);
    }

    /// Records that the epoch is `epoch`: objects at these addresses whose grace period ends with it count as freed.
    pub fn expired(&mut self, objects: impl Iterator<Item = Address>, epoch: u64) {
        for at in objects {
            self.books.allocations.expired(at, epoch, self.now);
        }
    }

    /// Stores a word without advancing time.
    pub fn poke(&self, at: Address, to: u64) {
        if let Ok(word) = self.arena.word(at) {
            word.store(to, Ordering::SeqCst);
        }
    }

    /// Loads a word without advancing time.
    pub fn peek(&self, at: Address) -> u64 {
        self.arena.word(at).map_or(0, |word| word.load(Ordering::Relaxed))
    }
}

/// Returns how many words and bytes a chain moves.
fn size(chain: &RawChain) -> (u32, u64) {
    let words: usize = chain.ops().iter().map(Op::words).sum();
    (words as u32, (words * WORD_BYTES) as u64)
}
