//! The state of everything, and what chains do to it.
//!
//! Invariants:
//! - time only goes forward: an event is executed at its own time, after all earlier ones;
//! - a flight is owned by the agenda until it completes and by its ticket afterwards; it is recycled once both have
//!   let go of it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;

use rand::Rng;

use super::config::{Picos, SimConfig};
use super::events::{Agenda, Event};
use super::misfortune::{Befallen, Cut, Script};
use super::stuck::{Patience, Wait};
use crate::error::{self, Error, Result};
use crate::fabric::chain::{Chain, Op};
use crate::fabric::host::{Arena, Geometry};
use crate::layout::WORD_BYTES;
use crate::pointer::Address;
use crate::sim::books::Books;
use crate::sim::trace::{Record, SHOWN_WORDS, What, Who};

/// Everything there is in a simulated cluster.
pub(crate) struct World {
    pub(super) config: SimConfig,
    geometry: Geometry,
    arena: Arc<Arena>,
    pub(super) now: Picos,
    pub(super) agenda: Agenda,
    flights: Vec<Flight>,
    free_flights: Vec<u32>,
    /// The threads of the run that is under way, or of the last.
    pub(super) threads: Vec<Thread>,
    /// Their compute nodes.
    pub(super) computes: Vec<Compute>,
    pub(super) memories: Vec<Memory>,
    pub(super) cuts: Vec<Cut>,
    pub(super) script: Script,
    pub(super) patience: Patience,
    /// What is known about objects and names, and what has happened.
    pub(crate) books: Books,
    /// Threads that faults have killed and the run has not heard of.
    pub(super) died: Vec<u32>,
    /// Threads of the run that have neither ended nor died.
    pub(super) unfinished: usize,
    /// Whether a run is under way.
    pub(super) running: bool,
    /// Whether the run is over for a reason of its own: nothing that is still dropped takes effect.
    pub(super) stopped: bool,
}

/// A compute thread.
#[derive(Default)]
pub(super) struct Thread {
    pub(super) state: ThreadState,
    /// What it last did, to say what it waits for.
    pub(super) last: Option<Record>,
    /// How often it has done the same again, with the same result.
    pub(super) repeats: u32,
    /// How often it has waited in vain.
    pub(super) in_vain: super::stuck::InVain,
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
pub(super) struct Compute {
    /// When its NIC is done with the doorbells so far.
    nic_free_at: Picos,
    /// Its threads do nothing until then.
    pub(super) stalled_until: Picos,
    /// Chains posted in this run.
    pub(super) posted: u64,
}

/// A memory node.
#[derive(Clone, Copy)]
pub(super) struct Memory {
    /// When its NIC can begin another operation.
    free_at: Picos,
    pub(super) dead: bool,
    /// How many times slower than others it is.
    pub(super) slowness: u64,
}

/// A chain on its way, or a timer.
struct Flight {
    chain: Chain,
    thread: u32,
    task: u32,
    posted_at: Picos,
    /// The memory node that it is for.
    node: u16,
    /// The operation, and the word of it, that comes next.
    next_op: u32,
    next_word: u32,
    words_left: u32,
    /// When the answer leaves, if nothing delays the last word.
    answer_at: Picos,
    /// Bytes that it moves.
    bytes: u64,
    result: Result<()>,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The agenda has it.
    Travelling,
    /// The agenda has it, and nobody waits for it.
    Forgotten,
    /// Its ticket has it.
    Arrived,
    /// Nobody has it.
    Free,
}

impl World {
    pub(crate) fn new(
        config: SimConfig,
        geometry: Geometry,
        arena: Arc<Arena>,
        seed: u64,
        books: Books,
    ) -> Self {
        let memory = Memory { free_at: 0, dead: false, slowness: 1 };
        let mut world = Self {
            patience: Patience::new(&config),
            config,
            geometry,
            arena,
            now: 0,
            agenda: Agenda::new(seed),
            flights: Vec::new(),
            free_flights: Vec::new(),
            threads: Vec::new(),
            computes: Vec::new(),
            memories: vec![memory; usize::from(geometry.nodes)],
            cuts: Vec::new(),
            script: Script::default(),
            books,
            died: Vec::new(),
            unfinished: 0,
            running: false,
            stopped: false,
        };
        world.slow_some_down();
        world
    }

    pub(crate) fn config(&self) -> &SimConfig {
        &self.config
    }

    pub(crate) fn now(&self) -> Picos {
        self.now
    }

    pub(super) fn compute_of(&self, thread: u32) -> usize {
        (thread / self.config.threads_per_node) as usize
    }

    /// Whether what a thread does still takes effect.
    fn acts(&self, thread: u32) -> bool {
        let dead = |thread: &Thread| matches!(thread.state, ThreadState::Dead(_));
        !self.stopped && !self.threads.get(thread as usize).is_some_and(dead)
    }

    pub(crate) fn who(&self, thread: u32, task: u32) -> Who {
        Who { thread, task, at: self.now }
    }

    // ---- what threads do ---------------------------------------------------------------------------------------

    /// Posts a chain; gives its flight, or none if the thread is dead.
    pub(super) fn post(&mut self, thread: u32, task: u32, chain: Chain) -> Option<u32> {
        if !self.acts(thread) {
            return None;
        }
        let compute = self.compute_of(thread);
        if self.computes.len() <= compute {
            // Outside a run there may be endpoints of any thread: the conformance suite's.
            self.computes.resize_with(compute + 1, Compute::default);
        }
        let node = chain.ops().first().map_or(0, |op| self.geometry.node_of(op.at().segment()));
        // An address in no segment is refused by a node that exists.
        let node = node.min(self.geometry.nodes - 1);
        self.computes[compute].posted += 1;
        if self.config.has_odds() || !self.script.is_empty() {
            let befallen = self.befall(thread, node);
            // A thread that dies by chance while it posts may have rung the doorbell or not.
            if !self.acts(thread) && (befallen == Befallen::ByScript || self.agenda.rng.next_u64() & 1 == 0) {
                return None;
            }
        }
        if let Some(thread) = self.threads.get_mut(thread as usize) {
            thread.in_vain.posts();
        }
        let nic = &mut self.computes[compute].nic_free_at;
        let departs_at = self.now.max(*nic);
        *nic = departs_at + self.config.doorbell;
        let arrives_at = departs_at + self.jittered(self.config.one_way());
        let (words_left, bytes) = size(&chain);
        let flight = self.take_off(Flight {
            chain,
            thread,
            task,
            posted_at: self.now,
            node,
            next_op: 0,
            next_word: 0,
            words_left,
            answer_at: 0,
            bytes,
            result: Ok(()),
            stage: Stage::Travelling,
        });
        self.agenda.push(arrives_at, Event::Arrive(flight));
        Some(flight)
    }

    /// Starts a timer; gives its flight, or none if the thread is dead.
    pub(super) fn sleep(&mut self, thread: u32, task: u32, until: Picos, wait: Wait) -> Option<u32> {
        if !self.acts(thread) {
            return None;
        }
        self.waits_for(thread, wait, until);
        let flight = self.take_off(Flight {
            chain: Chain::default(),
            thread,
            task,
            posted_at: self.now,
            node: 0,
            next_op: 0,
            next_word: 0,
            words_left: 0,
            answer_at: 0,
            bytes: 0,
            result: Ok(()),
            stage: Stage::Travelling,
        });
        self.agenda.push(until.max(self.now), Event::Complete(flight));
        Some(flight)
    }

    fn take_off(&mut self, flight: Flight) -> u32 {
        if let Some(index) = self.free_flights.pop() {
            self.flights[index as usize] = flight;
            return index;
        }
        self.flights.push(flight);
        self.flights.len() as u32 - 1
    }

    pub(super) fn poll(&mut self, index: u32) -> Poll<(Chain, Result<()>)> {
        while !self.running && self.flights[index as usize].stage == Stage::Travelling {
            // Nobody else moves time on outside a run.
            let (at, event) = self.agenda.pop().expect("what travels is on the agenda");
            self.happens(at, event);
        }
        let flight = &mut self.flights[index as usize];
        if flight.stage != Stage::Arrived {
            return Poll::Pending;
        }
        flight.stage = Stage::Free;
        let done = (std::mem::take(&mut flight.chain), std::mem::replace(&mut flight.result, Ok(())));
        self.free_flights.push(index);
        Poll::Ready(done)
    }

    pub(super) fn forget(&mut self, index: u32) {
        let flight = &mut self.flights[index as usize];
        if flight.stage == Stage::Arrived {
            self.land(index);
        } else {
            flight.stage = Stage::Forgotten;
        }
    }

    fn land(&mut self, index: u32) {
        let flight = &mut self.flights[index as usize];
        flight.stage = Stage::Free;
        flight.chain = Chain::default();
        self.free_flights.push(index);
    }

    // ---- what happens by itself --------------------------------------------------------------------------------

    /// An event takes place; gives the thread that is to be polled, if it is one's turn.
    pub(super) fn happens(&mut self, at: Picos, event: Event) -> Option<u32> {
        self.now = at;
        match event {
            Event::Start(thread) => {
                return (self.threads[thread as usize].state == ThreadState::Running).then_some(thread);
            }
            Event::Arrive(flight) => self.arrive(flight),
            Event::Step(flight) => self.access(flight),
            Event::Complete(flight) => return self.complete(flight),
            Event::Fault(index) => self.befall_by_script(index),
        }
        None
    }

    /// A chain reaches its memory node and queues there.
    fn arrive(&mut self, index: u32) {
        let flight = &self.flights[index as usize];
        let memory = self.memories[usize::from(flight.node)];
        if memory.dead {
            return self.is_unreachable(index);
        }
        if let Some(heals_at) = self.cut_until(flight.thread, flight.node) {
            let retried_at = heals_at + self.config.one_way();
            if retried_at > flight.posted_at + self.config.timeout {
                return self.is_unreachable(index);
            }
            return self.agenda.push(retried_at, Event::Arrive(index));
        }
        let (mut busy, mut last) = (0, 0);
        for op in flight.chain.ops() {
            last = self.config.service.max(self.config.transfer((op.words() * WORD_BYTES) as u64));
            busy += last * memory.slowness;
        }
        let begins_at = self.now.max(memory.free_at);
        self.memories[usize::from(flight.node)].free_at = begins_at + busy;
        let answer_at = begins_at + busy - last * memory.slowness + self.config.window() * memory.slowness;
        self.flights[index as usize].answer_at = answer_at;
        if begins_at > self.now {
            self.agenda.push(begins_at, Event::Step(index));
        } else {
            self.access(index);
        }
    }

    /// Accesses word after word until it is some other event's turn, or the chain is done.
    fn access(&mut self, index: u32) {
        while self.flights[index as usize].words_left > 0 {
            if let Err(error) = self.access_word(index) {
                let flight = &mut self.flights[index as usize];
                flight.result = Err(error);
                flight.words_left = 0;
                break;
            }
            let flight = &self.flights[index as usize];
            let left = u64::from(flight.words_left);
            if left == 0 {
                break;
            }
            // Words come in bursts: once on average in a chain there is a pause between two of them, of any part of the
            // time that is left. Evenly spaced accesses of two chains would rarely overtake each other.
            let draw = self.agenda.rng.next_u64();
            let pauses = (draw & 0xffff_ffff) * left >> 32 == 0;
            let rest = flight.answer_at.saturating_sub(self.now);
            let next_at = if pauses { self.now + ((rest >> 8) * (draw >> 40) >> 16) } else { self.now };
            if self.agenda.next_at().is_some_and(|other| other <= next_at) {
                return self.agenda.push(next_at, Event::Step(index));
            }
            self.now = next_at;
        }
        self.answer(index);
    }

    /// Sends a chain's completion on its way.
    fn answer(&mut self, index: u32) {
        let Flight { answer_at, bytes, .. } = self.flights[index as usize];
        let leaves_at = answer_at.max(self.now);
        let back = self.jittered(self.config.one_way());
        self.agenda.push(leaves_at + back + self.config.transfer(bytes), Event::Complete(index));
    }

    /// A chain that gets no answer fails at its timeout.
    fn is_unreachable(&mut self, index: u32) {
        let timeout = self.config.timeout;
        let flight = &mut self.flights[index as usize];
        let (node, timeout_us) = (flight.node, timeout / 1_000_000);
        flight.result = Err(Error::from(error::NodeUnreachable { node, timeout_us }));
        flight.words_left = 0;
        let fails_at = self.now.max(flight.posted_at + timeout);
        let what = What::Unreachable { node };
        let at = flight.chain.ops().first().map_or(Address::NULL, Op::at);
        let who = Who { thread: flight.thread, task: flight.task, at: self.now };
        self.agenda.push(fails_at, Event::Complete(index));
        self.books.trace.record(Record { who, what, at, object: None });
    }

    /// A completion or a timer reaches its thread, which is to be polled if it can.
    fn complete(&mut self, index: u32) -> Option<u32> {
        let Flight { thread, stage, .. } = self.flights[index as usize];
        if stage == Stage::Forgotten {
            self.land(index);
            return None;
        }
        if !self.running {
            self.flights[index as usize].stage = Stage::Arrived;
            return None;
        }
        if let Some(heals_at) = self.answer_is_lost(index) {
            // The requester asks again, and the memory node remembers its answer.
            let deadline = self.flights[index as usize].posted_at + self.config.timeout;
            if heals_at > deadline {
                self.is_unreachable(index);
            } else {
                self.agenda.push(heals_at + self.config.one_way(), Event::Complete(index));
            }
            return None;
        }
        let stalled_until = self.computes[self.compute_of(thread)].stalled_until;
        if stalled_until > self.now {
            self.agenda.push(stalled_until, Event::Complete(index));
            return None;
        }
        self.flights[index as usize].stage = Stage::Arrived;
        (self.threads[thread as usize].state == ThreadState::Running).then_some(thread)
    }

    /// Whether the link is cut on which an answer arrives; gives when it heals. Timers and failures need no link.
    fn answer_is_lost(&self, index: u32) -> Option<Picos> {
        if self.cuts.is_empty() {
            return None;
        }
        let flight = &self.flights[index as usize];
        let answered = flight.result.is_ok() && !flight.chain.ops().is_empty();
        if answered { self.cut_until(flight.thread, flight.node) } else { None }
    }

    /// A time that differs by up to the jitter.
    fn jittered(&mut self, mean: Picos) -> Picos {
        if self.config.jitter == 0 {
            return mean;
        }
        let spread = mean * self.config.jitter >> 16;
        // The generator's upper half, scaled: cheaper than an unbiased range, and as good for this.
        let draw = self.agenda.rng.next_u64() >> 32;
        mean - spread + (2 * spread * draw >> 32)
    }

    // ---- memory ------------------------------------------------------------------------------------------------

    /// Executes a chain's next word access. The operation is entered into the books with its last word.
    fn access_word(&mut self, index: u32) -> Result<()> {
        let flight = &mut self.flights[index as usize];
        let (ops, words) = flight.chain.parts();
        let op = &ops[flight.next_op as usize];
        let word = flight.next_word as usize;
        let who = Who { thread: flight.thread, task: flight.task, at: self.now };
        let count = op.words();
        if word == 0 {
            // The whole range, so that an operation with an invalid address changes nothing.
            self.arena.words(op.at(), count)?;
            self.books.check(op, who)?;
        } else {
            self.books.check_again(op, word, who)?;
        }
        let cell = self.arena.word(op.at().add((word * WORD_BYTES) as u64))?;
        let mut changed = false;
        match op {
            Op::Read { slot, .. } => words[slot.start + word] = cell.load(Ordering::Relaxed),
            Op::Write { slot, .. } => {
                let new = words[slot.start + word];
                changed = cell.swap(new, Ordering::Relaxed) != new;
            }
            Op::CompareExchange { expected, new, slot, .. } => {
                let found = cell.load(Ordering::Relaxed);
                words[*slot] = found;
                if found == *expected {
                    cell.store(*new, Ordering::Relaxed);
                    changed = found != *new;
                }
            }
            Op::FetchAdd { addend, slot, .. } => {
                words[*slot] = cell.load(Ordering::Relaxed);
                cell.store(words[*slot].wrapping_add(*addend), Ordering::Relaxed);
                changed = *addend != 0;
            }
        }
        if changed {
            self.patience.memory_changed();
        }
        flight.words_left -= 1;
        if word + 1 < count {
            flight.next_word += 1;
            return Ok(());
        }
        (flight.next_op, flight.next_word) = (flight.next_op + 1, 0);
        let record = Record { who, what: what(op, words), at: op.at(), object: self.books.object(op.at()) };
        let mut repeated = false;
        if let Some(thread) = self.threads.get_mut(who.thread as usize) {
            repeated = thread.last.is_some_and(|last| last.is_repeated_by(&record));
            if repeated {
                thread.repeats += 1;
            } else {
                (thread.last, thread.repeats) = (Some(record), 0);
            }
        }
        self.books.trace.operation(record, repeated);
        Ok(())
    }

    /// Notes objects that `roots` do not lead to.
    pub(crate) fn look_for_leaks(&mut self, roots: Vec<u64>) {
        let arena = &self.arena;
        let word = |at| arena.word(at).map_or(0, |word| word.load(Ordering::Relaxed));
        self.books.look_for_leaks(roots, self.now, word);
    }

    /// The word at `at`, outside of time.
    pub(crate) fn peek(&self, at: Address) -> u64 {
        self.arena.word(at).map_or(0, |word| word.load(Ordering::Relaxed))
    }
}

/// How many words and bytes a chain moves.
fn size(chain: &Chain) -> (u32, u64) {
    let words: usize = chain.ops().iter().map(Op::words).sum();
    (words as u32, (words * WORD_BYTES) as u64)
}

/// What an executed operation did.
fn what(op: &Op, words: &[u64]) -> What {
    let shown = |slot: &std::ops::Range<usize>| {
        let mut shown = [0; SHOWN_WORDS];
        let count = slot.len().min(SHOWN_WORDS);
        shown[..count].copy_from_slice(&words[slot.start..slot.start + count]);
        shown
    };
    match op {
        Op::Read { slot, .. } => What::Read { words: slot.len() as u32, seen: shown(slot) },
        Op::Write { slot, .. } => What::Write { words: slot.len() as u32, written: shown(slot) },
        Op::CompareExchange { expected, new, slot, .. } => {
            What::CompareExchange { expected: *expected, new: *new, found: words[*slot] }
        }
        Op::FetchAdd { addend, slot, .. } => What::FetchAdd { addend: *addend, found: words[*slot] },
    }
}
