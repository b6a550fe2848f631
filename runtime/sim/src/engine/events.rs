//! The event queue.
//!
//! Events are ordered by virtual time and, at equal times, by a draw from the seed.
//!
//! The queue is a binary heap, so an event costs a few comparisons for each doubling of the number of events. Chains that wait at a memory node are
//! therefore not in the heap: the node has a FIFO queue of them, and the heap one [`Event::Serve`] for the first. With ten thousand threads and a
//! busy memory node the heap holds some thirty events.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::config::Picos;

/// An event of the simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// A compute thread of the run begins.
    Start(u32),
    /// A chain reaches its memory node.
    Arrive(u32),
    /// A memory node begins the first chain of its queue.
    Serve(u16),
    /// A chain accesses its next word.
    Step(u32),
    /// A chain's completion, or a timer, reaches its compute thread.
    Complete(u32),
    /// A fault of the script is due.
    Fault(u32),
    /// A compute thread for which completions wait may be free.
    Wake(u32),
    /// A chain has changed a word that a compute thread hosts.
    Changed(u32),
}

/// An event and its key. No two entries have the same `at` and `tie`.
struct Entry {
    at: Picos,
    tie: u64,
    event: Event,
}

impl Entry {
    fn key(&self) -> u128 {
        u128::from(self.at) << 64 | u128::from(self.tie)
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    /// The greatest entry is the next event: the heap has its greatest element on top.
    fn cmp(&self, other: &Self) -> Ordering {
        other.key().cmp(&self.key())
    }
}

/// Pending events, in order.
pub(super) struct EventQueue {
    heap: BinaryHeap<Entry>,
    /// The source of all random choices of a run, including the order of simultaneous events.
    pub(super) rng: SmallRng,
    /// A counter that makes the order total even if the generator repeats a number.
    pushed: u32,
}

impl EventQueue {
    pub(super) fn new(seed: u64) -> Self {
        Self { heap: BinaryHeap::new(), rng: SmallRng::seed_from_u64(seed), pushed: 0 }
    }

    pub(super) fn push(&mut self, at: Picos, event: Event) {
        self.pushed = self.pushed.wrapping_add(1);
        let tie = self.rng.next_u64() << 32 | u64::from(self.pushed);
        self.heap.push(Entry { at, tie, event });
    }

    pub(super) fn pop(&mut self) -> Option<(Picos, Event)> {
        self.heap.pop().map(|Entry { at, event, .. }| (at, event))
    }

    /// Returns the time of the next event.
    pub(super) fn next_at(&self) -> Option<Picos> {
        self.heap.peek().map(|entry| entry.at)
    }

    pub(super) fn clear(&mut self) {
        self.heap.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(seed: u64) -> Vec<Event> {
        let mut events = EventQueue::new(seed);
        for index in 0..8 {
            events.push(7, Event::Start(index));
        }
        events.push(3, Event::Step(9));
        std::iter::from_fn(|| events.pop()).map(|(_, event)| event).collect()
    }

    #[test]
    fn events_are_ordered_by_time_and_then_by_the_seed() {
        assert_eq!(order(1)[0], Event::Step(9));
        assert_eq!(order(1), order(1));
        assert_ne!(order(1), order(2));
    }
}
