//! Travel: what becomes of a chain between its doorbell and its completion.
//!
//! An operation enters the books with its last word; a chain stops at the first operation that fails.

use std::sync::atomic::Ordering;

use rand::Rng;

use super::config::Picos;
use super::events::Event;
use super::world::{Flight, Progress, Stage, ThreadState, World};
use crate::cluster::control;
use crate::error::{self, Error, Result};
use crate::fabric::chain::Op;
use crate::layout::WORD_BYTES;
use crate::pointer::Address;
use crate::sim::trace::{Record, SHOWN_WORDS, What, Who};

/// After so many repetitions in a row of what a thread does, the trace leaves out what it does for epochs besides.
const REPEATS: u32 = 16;

impl World {
    /// An event takes place; gives the thread that is to be polled, if it is one's turn.
    pub(super) fn happens(&mut self, at: Picos, event: Event) -> Option<u32> {
        self.now = at;
        match event {
            Event::Start(thread) => {
                return (self.threads[thread as usize].state == ThreadState::Running).then_some(thread);
            }
            Event::Arrive(flight) => self.arrive(flight),
            Event::Step(flight) => self.step(flight),
            Event::Complete(flight) => return self.complete(flight),
            Event::Fault(index) => self.befall_by_script(index),
            Event::Wake(thread) => return self.wakes(thread),
        }
        None
    }

    /// A chain reaches its memory node and queues there.
    fn arrive(&mut self, index: u32) {
        if !self.is_its_turn(index) {
            return self.hurry(index);
        }
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

    /// It is time for a chain's next word, unless it was hurried and is done.
    fn step(&mut self, index: u32) {
        // A chain's completion comes after its last step, so the flight is still its own.
        if self.flights[index as usize].progress != Progress::Executed {
            self.access(index);
        }
    }

    /// A chain waits for its turn on its connection. The one before it, if it has begun, does not pause any more: it has
    /// its order to keep and nothing else to wait for, so the two share the memory node's time as in a pipeline.
    fn hurry(&mut self, waiting: u32) {
        if let Some(front) = self.front_of_lane(waiting)
            && self.flights[front as usize].progress == Progress::Begun
        {
            self.access(front);
        }
    }

    /// Accesses word after word until it is some other event's turn, or the chain is done.
    fn access(&mut self, index: u32) {
        self.flights[index as usize].progress = Progress::Begun;
        let hurried = self.is_followed(index);
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
            if hurried {
                continue;
            }
            // Words come in bursts: once on average in a chain there is a pause between two of them, of any part of the
            // time that is left. Evenly spaced accesses of two chains would rarely overtake each other.
            let draw = self.agenda.rng.next_u64();
            let pauses = scaled(left, draw as u32) == 0;
            let rest = flight.answer_at.saturating_sub(self.now);
            let next_at = if pauses { self.now + scaled(rest, (draw >> 32) as u32) } else { self.now };
            if self.agenda.next_at().is_some_and(|other| other <= next_at) {
                return self.agenda.push(next_at, Event::Step(index));
            }
            self.now = next_at;
        }
        self.answer(index);
    }

    /// Sends a chain's completion on its way.
    fn answer(&mut self, index: u32) {
        self.flights[index as usize].progress = Progress::Executed;
        self.end_turn(index);
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
        let first = flight.chain.ops().first();
        let (operation, address) = first.map_or(("wait", Address::NULL), |op| (op.name(), op.at()));
        let error = error::NodeUnreachable { node, timeout_us, operation, address };
        flight.result = Err(Error::from(error));
        flight.words_left = 0;
        let fails_at = self.now.max(flight.posted_at + timeout);
        let what = What::Unreachable { node };
        let at = address;
        let who = Who { thread: flight.thread, task: flight.task, at: self.now };
        self.agenda.push(fails_at, Event::Complete(index));
        self.end_turn(index);
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
        self.reaches_thread(index)
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
    pub(super) fn jittered(&mut self, mean: Picos) -> Picos {
        if self.config.jitter == 0 {
            return mean;
        }
        let spread = scaled(mean, self.config.jitter);
        mean - spread + scaled(2 * spread, self.agenda.rng.next_u32())
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
        let (op_at, mut changed) = (op.at(), false);
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
        if changed && !control::is_of_epochs(op_at) {
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
            if let What::CompareExchange { expected, found, .. } = record.what
                && found != expected
            {
                thread.in_vain.exchange_failed(who.task, found);
            }
            // What the runtime does for epochs now and then says nothing of what the thread does.
            let of_epochs = control::is_of_epochs(op_at);
            repeated = if of_epochs {
                thread.repeats >= REPEATS
            } else {
                thread.last.is_some_and(|last| last.is_repeated_by(&record))
            };
            if repeated {
                thread.repeats += 1;
            } else if !of_epochs {
                (thread.last, thread.repeats) = (Some(record), 0);
            }
        }
        if let Some(since) = self.patience.suspicious_since()
            && let Some(thread) = self.threads.get_mut(who.thread as usize)
        {
            thread.in_vain.does(self.books.fingerprint(op, words, since));
        }
        self.books.executed(record, repeated);
        Ok(())
    }
}

/// The part `share / 2^32` of a number: cheaper than an unbiased draw from a range, and as good for this.
fn scaled(number: u64, share: u32) -> u64 {
    ((u128::from(number) * u128::from(share)) >> 32) as u64
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
