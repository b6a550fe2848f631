//! Computing: the time of a thread's own work.
//!
//! A compute thread is one processor. Its work takes the times of the option `compute`: for each operation that it posts, for each that completes,
//! for each use of a cached copy, for each request that it serves, and the time that the program declares (`ComputeThread::compute`). All tasks of
//! the thread share the processor, so their work is done one after the other.
//!
//! Each thread has a clock of its own, at or ahead of the world's: the thread is *busy* until then with the work of its last poll. A poll happens at
//! one moment of the world, and each action in it advances the thread's clock.
//! - A chain leaves at the time of the thread's clock.
//! - A completion or a timer that arrives while the thread is busy waits in its completion queue, in order of arrival. Once the thread is free it
//!   takes one, accounts for its cost, and is polled.
//!
//! Invariant: while completions wait, one [`Event::Wake`] of the thread is in the event queue. Computing draws only that event's order from the seed.
//! So with `compute=0`, where no thread is ever busy, a run is the same as without this module.
//!
//! Costs: an addition for each chain, and an event for each completion that finds its thread busy.

use super::events::Event;
use super::world::{Stage, ThreadState, World};
use crate::config::Picos;

impl World {
    /// Returns a thread's clock: the time of its next action.
    pub fn clock(&self, thread: u32) -> Picos {
        let busy_until = self.threads.get(thread as usize).map_or(0, |thread| thread.busy_until);
        self.now.max(busy_until)
    }

    /// Accounts for work of a thread. Returns when the work is done.
    pub fn spend(&mut self, thread: u32, cost: Picos) -> Picos {
        let done_at = self.clock(thread).saturating_add(cost);
        if cost > 0
            && let Some(thread) = self.threads.get_mut(thread as usize)
        {
            thread.busy_until = done_at;
        }
        done_at
    }

    /// Delivers a completion or a timer. Returns the thread if it is to be polled.
    pub(super) fn deliver(&mut self, index: u32) -> Option<u32> {
        let number = self.flights[index as usize].thread;
        let thread = &mut self.threads[number as usize];
        if thread.busy_until > self.now || !thread.completions.is_empty() {
            let is_first = thread.completions.is_empty();
            thread.completions.push_back(index);
            if is_first {
                let at = thread.busy_until.max(self.now);
                self.events.push(at, Event::Wake(number));
            }
            return None;
        }
        self.take_completion(index)
    }

    /// Hands a completion to its thread, which is busy with it. Returns the thread if it is to be polled.
    fn take_completion(&mut self, index: u32) -> Option<u32> {
        let flight = &mut self.flights[index as usize];
        flight.stage = Stage::Completed;
        let (thread, operations) = (flight.thread, flight.chain.ops().len());
        let cost = self.config.compute.of_completing(operations);
        self.spend(thread, cost);
        (self.threads[thread as usize].state == ThreadState::Running).then_some(thread)
    }

    /// Hands a waiting completion to a thread that may be free now. Returns the thread if it is to be polled.
    pub(super) fn wake_thread(&mut self, number: u32) -> Option<u32> {
        let stalled_until = self.compute_nodes[self.compute_node_of(number)].stalled_until;
        let thread = &mut self.threads[number as usize];
        let free_at = thread.busy_until.max(stalled_until);
        if free_at > self.now && thread.state == ThreadState::Running {
            self.events.push(free_at, Event::Wake(number));
            return None;
        }
        let mut next = None;
        while let Some(index) = self.threads[number as usize].completions.pop_front() {
            if self.flights[index as usize].stage == Stage::Forgotten {
                self.free_flight(index);
            } else {
                next = self.take_completion(index);
                break;
            }
        }
        let thread = &self.threads[number as usize];
        if !thread.completions.is_empty() {
            let at = thread.busy_until.max(self.now);
            self.events.push(at, Event::Wake(number));
        }
        next
    }

    /// Advances time to the end of the last thread's work, when a run ends.
    pub(super) fn finish_work(&mut self) {
        let busy_until = self.threads.iter().map(|thread| thread.busy_until).max();
        self.now = self.now.max(busy_until.unwrap_or(0));
    }
}
