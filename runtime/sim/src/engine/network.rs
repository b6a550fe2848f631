//! The network: a chain's way from its doorbell to its completion.
//!
//! An operation is recorded in the books with its last word; a chain stops at the first operation that fails.

use std::sync::atomic::{AtomicU64, Ordering};

use rand::Rng;

use super::events::Event;
use super::world::{Flight, ServiceState, Stage, ThreadState, World};
use crate::books::trace::{Action, Actor, Record, SHOWN_WORDS};
use crate::config::{Picos, WordOrder};
use farfield_fabric::chain::{Op, Slot};
use farfield_fabric::error::{self, Error, Result};
use farfield_words::Address;
use farfield_words::WORD_BYTES;

/// After this many consecutive repetitions of an operation, the trace also omits the thread's operations on epochs.
const REPEATS: u32 = 16;

impl World {
    /// Handles an event. Returns the thread that is to be polled, if any.
    pub(super) fn handle_event(&mut self, at: Picos, event: Event) -> Option<u32> {
        self.now = at;
        match event {
            Event::Start(thread) => {
                return (self.threads[thread as usize].state == ThreadState::Running).then_some(thread);
            }
            Event::Arrive(flight) => self.arrive(flight),
            Event::Serve(node) => self.serve(node),
            Event::Step(flight) => self.step(flight),
            Event::Complete(flight) => return self.complete(flight),
            Event::Fault(index) => self.apply_scripted_fault(index),
            Event::Wake(thread) => return self.wake_thread(thread),
            Event::Changed(thread) => return self.poll_host(thread),
        }
        None
    }

    /// A chain arrives at its memory node and queues there.
    fn arrive(&mut self, index: u32) {
        if !self.is_its_turn(index) {
            return self.hurry(index);
        }
        let flight = &self.flights[index as usize];
        let node = flight.node;
        let memory = &self.memory_nodes[usize::from(node)];
        if memory.dead {
            return self.fail_unreachable(index);
        }
        if let Some(heals_at) = self.cut_until(flight.thread, flight.node) {
            let retried_at = heals_at + self.config.one_way();
            if retried_at > flight.posted_at + self.config.timeout {
                return self.fail_unreachable(index);
            }
            return self.events.push(retried_at, Event::Arrive(index));
        }
        let (mut busy, mut last) = (0, 0);
        for op in flight.chain.ops() {
            last = self.config.service.max(self.config.transfer((op.words() * WORD_BYTES) as u64));
            busy += last * memory.slowness;
        }
        let begins_at = self.now.max(memory.free_at);
        let answer_at = begins_at + busy - last * memory.slowness + self.config.window() * memory.slowness;
        self.flights[index as usize].answer_at = answer_at;
        self.arrival_delays_doorbells(node, busy);
        let memory = &mut self.memory_nodes[usize::from(node)];
        memory.free_at = begins_at + busy;
        if begins_at > self.now {
            memory.queue.push_back((begins_at, index));
            if memory.queue.len() == 1 {
                self.events.push(begins_at, Event::Serve(node));
            }
        } else {
            self.access(index);
        }
    }

    /// A memory node begins the first chain of its queue.
    fn serve(&mut self, node: u16) {
        let queue = &mut self.memory_nodes[usize::from(node)].queue;
        let Some((_, index)) = queue.pop_front() else { return };
        if let Some((begins_at, _)) = queue.front() {
            self.events.push(*begins_at, Event::Serve(node));
        }
        if self.fetches_ahead {
            self.fetch_ahead(node);
        }
        self.access(index);
    }

    /// Accesses a chain's next words, unless the chain was hurried and is done.
    fn step(&mut self, index: u32) {
        // A chain's completion comes after its last step, so the flight is still its own.
        if self.flights[index as usize].service_state != ServiceState::Executed {
            self.access(index);
        }
    }

    /// A chain waits for its turn on its connection. The first chain of the connection, if it has begun, does not pause any more, so the two
    /// share the memory node's time as in a pipeline.
    fn hurry(&mut self, waiting: u32) {
        if let Some(front) = self.front_of_connection(waiting)
            && self.flights[front as usize].service_state == ServiceState::Begun
        {
            self.access(front);
        }
    }

    /// Accesses word after word until another event is due, or the chain is done.
    fn access(&mut self, index: u32) {
        if self.host_has_died(index) {
            return self.break_off(index);
        }
        self.flights[index as usize].service_state = ServiceState::Begun;
        let hurried = self.is_followed(index);
        loop {
            let remaining_words = self.flights[index as usize].remaining_words;
            if remaining_words == 0 {
                break;
            }
            // Words come in bursts, with pauses of a random part of the remaining time. The number of words that remain at the next pause
            // is uniform between 1 and all but one. Evenly spaced accesses of two chains would rarely overtake each other.
            let pauses = !hurried && remaining_words > 1;
            let draw = if pauses { self.events.rng.next_u64() } else { 0 };
            let remaining =
                if pauses { 1 + scaled(u64::from(remaining_words) - 1, draw as u32) as u32 } else { 0 };
            let accessed = self.access_words(index, (remaining_words - remaining) as usize);
            self.wake_hosts();
            if let Err(error) = accessed {
                let flight = &mut self.flights[index as usize];
                flight.result = Err(error);
                flight.remaining_words = 0;
                break;
            }
            if remaining == 0 {
                break;
            }
            let rest = self.flights[index as usize].answer_at.saturating_sub(self.now);
            let next_at = self.now + scaled(rest, (draw >> 32) as u32);
            if self.events.next_at().is_some_and(|other| other <= next_at) {
                return self.events.push(next_at, Event::Step(index));
            }
            self.now = next_at;
        }
        self.answer(index);
    }

    /// Schedules a chain's completion.
    fn answer(&mut self, index: u32) {
        self.flights[index as usize].service_state = ServiceState::Executed;
        self.end_turn(index);
        let Flight { answer_at, bytes, .. } = self.flights[index as usize];
        let leaves_at = answer_at.max(self.now);
        let back = self.jittered(self.config.one_way());
        self.events.push(leaves_at + back + self.config.transfer(bytes), Event::Complete(index));
    }

    /// Fails a chain that a dead host has begun or not. A step that is scheduled for it finds it executed.
    #[cold]
    fn break_off(&mut self, index: u32) {
        let flight = &mut self.flights[index as usize];
        flight.service_state = ServiceState::Executed;
        let last_step_at = flight.answer_at.max(self.now);
        self.fail_after(index, last_step_at + 1);
    }

    /// Schedules the failure of an unanswered chain, at its timeout.
    fn fail_unreachable(&mut self, index: u32) {
        self.fail_after(index, self.now);
    }

    /// Schedules the failure of an unanswered chain: at its timeout, but not before `earliest`.
    fn fail_after(&mut self, index: u32, earliest: Picos) {
        let timeout = self.config.timeout;
        let flight = &mut self.flights[index as usize];
        let (node, timeout_us) = (flight.node, timeout / 1_000_000);
        let first = flight.chain.ops().first();
        let (operation, address) = first.map_or(("wait", Address::NULL), |op| (op.name(), op.at()));
        let error = error::NodeUnreachable { node, timeout_us, operation, address };
        flight.result = Err(Error::from(error));
        flight.remaining_words = 0;
        let fails_at = earliest.max(flight.posted_at + timeout);
        let action = Action::Unreachable { node };
        let at = address;
        let actor = Actor { thread: flight.thread, task: flight.task, at: self.now };
        self.events.push(fails_at, Event::Complete(index));
        self.end_turn(index);
        self.books.trace.record(Record { actor, action, at, object: None });
    }

    /// Delivers a completion or a timer to its thread. Returns the thread if it is to be polled.
    fn complete(&mut self, index: u32) -> Option<u32> {
        let Flight { thread, stage, .. } = self.flights[index as usize];
        if stage == Stage::Forgotten {
            self.free_flight(index);
            return None;
        }
        if !self.run_state.is_running() {
            self.flights[index as usize].stage = Stage::Completed;
            return None;
        }
        if let Some(heals_at) = self.answer_is_lost(index) {
            // The requester's NIC retransmits, and the memory node resends its answer.
            let deadline = self.flights[index as usize].posted_at + self.config.timeout;
            if heals_at > deadline {
                self.fail_unreachable(index);
            } else {
                self.events.push(heals_at + self.config.one_way(), Event::Complete(index));
            }
            return None;
        }
        let stalled_until = self.compute_nodes[self.compute_node_of(thread)].stalled_until;
        if stalled_until > self.now {
            self.events.push(stalled_until, Event::Complete(index));
            return None;
        }
        self.deliver(index)
    }

    /// Returns when the link of an arriving answer heals, if it is cut. Timers and failures need no link.
    fn answer_is_lost(&self, index: u32) -> Option<Picos> {
        if self.cuts.is_empty() {
            return None;
        }
        let flight = &self.flights[index as usize];
        let answered = flight.result.is_ok() && !flight.chain.ops().is_empty();
        if answered { self.cut_until(flight.thread, flight.node) } else { None }
    }

    /// Returns a random time around `mean`, within the jitter.
    pub(super) fn jittered(&mut self, mean: Picos) -> Picos {
        if self.config.jitter == 0 {
            return mean;
        }
        let spread = scaled(mean, self.config.jitter);
        mean - spread + scaled(2 * spread, self.events.rng.next_u32())
    }

    // ---- memory ------------------------------------------------------------------------------------------------

    /// Executes a chain's next `count` word accesses. An operation is recorded in the books with its last word.
    ///
    /// With `words=any`, a READ or WRITE of several words begins with any of them, and goes on with the first after the last.
    fn access_words(&mut self, index: u32, mut count: usize) -> Result<()> {
        while count > 0 {
            let flight = &mut self.flights[index as usize];
            let (ops, words) = flight.chain.parts();
            let op = &ops[flight.next_op as usize];
            let actor = Actor { thread: flight.thread, task: flight.task, at: self.now };
            if flight.accessed_words == 0 {
                // The whole range, so that an operation with an invalid address changes nothing.
                self.arena.words(op.at(), op.words())?;
                self.books.check(op, actor)?;
                let has_order = self.config.words == WordOrder::Ascending || op.words() == 1;
                flight.first_word =
                    if has_order { 0 } else { first_word(op.words() as u64, self.events.rng.next_u64()) };
            }
            let word = (flight.first_word + flight.accessed_words) as usize % op.words();
            let burst = count.min(op.words() - flight.accessed_words as usize).min(op.words() - word);
            if flight.accessed_words > 0 {
                self.books.check_again(op, word..word + burst, actor)?;
            }
            let cells = self.arena.words(op.at().add((word * WORD_BYTES) as u64), burst)?;
            let (op_at, changed) = (op.at(), access(op, word, words, cells));
            if changed && !self.books.is_of_epochs(op_at) {
                self.monitor.memory_changed();
            }
            if changed {
                self.hosted.changed(op_at.add((word * WORD_BYTES) as u64), burst);
            }
            count -= burst;
            flight.remaining_words -= burst as u32;
            flight.accessed_words += burst as u32;
            if (flight.accessed_words as usize) < op.words() {
                continue;
            }
            (flight.next_op, flight.accessed_words) = (flight.next_op + 1, 0);
            let record =
                Record { actor, action: action_of(op, words), at: op_at, object: self.books.object(op_at) };
            let mut repeated = false;
            if let Some(thread) = self.threads.get_mut(actor.thread as usize) {
                if let Action::CompareExchange { expected, found, .. } = record.action
                    && found != expected
                {
                    thread.progress.exchange_failed(actor.task, found);
                }
                // The runtime's occasional operations on epochs are not part of the program's loop.
                let of_epochs = self.books.is_of_epochs(op_at);
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
            if let Some(since) = self.monitor.suspicious_since()
                && let Some(thread) = self.threads.get_mut(actor.thread as usize)
            {
                thread.progress.add_fingerprint(self.books.fingerprint(op, words, since));
            }
            self.books.executed(record, repeated);
        }
        Ok(())
    }
}

/// Returns the word with which a READ or WRITE of several words begins: the first one in half of all cases.
fn first_word(words: u64, draw: u64) -> u32 {
    if draw >> 63 == 0 { 0 } else { scaled(words, draw as u32) as u32 }
}

/// Accesses `cells`, the words of an operation from number `word` on. Returns whether a word changed.
///
/// One OS thread accesses a simulated cluster's memory at a time, under the world's lock.
fn access(op: &Op, word: usize, words: &mut [u64], cells: &[AtomicU64]) -> bool {
    let mut changed = false;
    match op {
        Op::Read { slot, .. } => {
            for (seen, cell) in words[slot.start() + word..].iter_mut().zip(cells) {
                *seen = cell.load(Ordering::Relaxed);
            }
        }
        Op::Write { slot, replaces: true, .. } => {
            if cells[0].load(Ordering::Relaxed) == words[slot.start() - 1] {
                changed = words[slot.start() - 1] != words[slot.start()];
                cells[0].store(words[slot.start()], Ordering::Relaxed);
            }
        }
        Op::Write { slot, replaces: false, .. } => {
            for (new, cell) in words[slot.start() + word..].iter().zip(cells) {
                changed |= cell.load(Ordering::Relaxed) != *new;
                cell.store(*new, Ordering::Relaxed);
            }
        }
        Op::CompareExchange { expected, new, slot, .. } => {
            let found = cells[0].load(Ordering::Relaxed);
            words[*slot as usize] = found;
            if found == *expected {
                cells[0].store(*new, Ordering::Relaxed);
                changed = found != *new;
            }
        }
        Op::FetchAdd { addend, slot, .. } => {
            words[*slot as usize] = cells[0].load(Ordering::Relaxed);
            cells[0].store(words[*slot as usize].wrapping_add(*addend), Ordering::Relaxed);
            changed = *addend != 0;
        }
    }
    changed
}

/// Returns the part `share / 2^32` of a number: cheaper than an unbiased draw from a range, and sufficient here.
fn scaled(number: u64, share: u32) -> u64 {
    ((u128::from(number) * u128::from(share)) >> 32) as u64
}

/// Returns the record of an executed operation.
fn action_of(op: &Op, words: &[u64]) -> Action {
    let shown = |slot: Slot| {
        let mut shown = [0; SHOWN_WORDS];
        let count = slot.words().min(SHOWN_WORDS);
        shown[..count].copy_from_slice(&words[slot.start()..slot.start() + count]);
        shown
    };
    match op {
        Op::Read { slot, .. } => Action::Read { words: slot.words() as u32, seen: shown(*slot) },
        Op::Write { slot, .. } => Action::Write { words: slot.words() as u32, written: shown(*slot) },
        Op::CompareExchange { expected, new, slot, .. } => {
            Action::CompareExchange { expected: *expected, new: *new, found: words[*slot as usize] }
        }
        Op::FetchAdd { addend, slot, .. } => {
            Action::FetchAdd { addend: *addend, found: words[*slot as usize] }
        }
    }
}
