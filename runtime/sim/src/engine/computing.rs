//! Computing: what a thread's own work costs in virtual time.
//!
//! A compute thread is one processor. Its work costs the times of the option `compute`: something for each operation that it posts and
//! for each that completes, for each use of a cached copy, for each request that it serves, and what the program
//! says (`ComputeThread::compute`) besides. All tasks of the thread share the processor, so their work is done one after the other.
//!
//! Each thread has a clock of its own, which is at or ahead of the world's: it says until when the thread is *busy* with what its last
//! poll gave it to do. A poll itself happens at one moment of the world, and whatever the thread does in it moves its clock.
//! - What it posts leaves by its clock.
//! - A completion or a timer that arrives while it is busy waits in the thread's completion queue, in the order of arrival. Once the thread is
//!   free it takes one, pays for it, and is polled; then it is busy with what followed from that.
//!
//! Invariant: while completions wait, one [`Event::Wake`] of the thread is on the agenda. Nothing is drawn from the seed for computing
//! alone but the place of that event, so with `compute=0`, where no thread is ever busy, a run is what it would be without all this.
//!
//! The engine pays an addition for each chain, and an event for each completion that finds its thread busy.

use super::events::Event;
use super::world::{Stage, ThreadState, World};
use crate::config::Picos;

impl World {
    /// A thread's clock: when it can do something next.
    pub fn clock(&self, thread: u32) -> Picos {
        let busy_until = self.threads.get(thread as usize).map_or(0, |thread| thread.busy_until);
        self.now.max(busy_until)
    }

    /// A thread works for so long; gives when it is done.
    pub fn spend(&mut self, thread: u32, cost: Picos) -> Picos {
        let done_at = self.clock(thread).saturating_add(cost);
        if cost > 0
            && let Some(thread) = self.threads.get_mut(thread as usize)
        {
            thread.busy_until = done_at;
        }
        done_at
    }

    /// A completion or a timer has reached its thread; gives the thread if it is to be polled.
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

    /// A thread takes a completion, which it has to handle.
    fn take_completion(&mut self, index: u32) -> Option<u32> {
        let flight = &mut self.flights[index as usize];
        flight.stage = Stage::Completed;
        let (thread, operations) = (flight.thread, flight.chain.ops().len());
        let cost = self.config.compute.of_completing(operations);
        self.spend(thread, cost);
        (self.threads[thread as usize].state == ThreadState::Running).then_some(thread)
    }

    /// A thread for which completions wait may be free; gives it if it is to be polled.
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

    /// At the end of a run: its last thread to be busy ends it.
    pub(super) fn finish_work(&mut self) {
        let busy_until = self.threads.iter().map(|thread| thread.busy_until).max();
        self.now = self.now.max(busy_until.unwrap_or(0));
    }
}
