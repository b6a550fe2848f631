//! The agenda: what happens next.
//!
//! Events are taken by virtual time and, among those of the same time, in an order drawn from the seed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::config::Picos;

/// What can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    /// A compute thread of the run begins.
    Start(u32),
    /// A chain reaches its memory node.
    Arrive(u32),
    /// A chain accesses its next word.
    Step(u32),
    /// A chain's completion, or a timer, reaches its compute thread.
    Complete(u32),
    /// A fault of the script is due.
    Fault(u32),
    /// A compute thread for which completions wait may be free.
    Wake(u32),
}

/// Events in the order in which they will happen.
pub(super) struct Agenda {
    events: BinaryHeap<Reverse<(Picos, u64, Event)>>,
    /// Orders what happens at the same time, and decides everything else that is left to chance.
    pub(super) rng: SmallRng,
    /// Tells events apart, so that the order is total whatever the generator gives.
    pushed: u32,
}

impl Agenda {
    pub(super) fn new(seed: u64) -> Self {
        Self { events: BinaryHeap::new(), rng: SmallRng::seed_from_u64(seed), pushed: 0 }
    }

    pub(super) fn push(&mut self, at: Picos, event: Event) {
        self.pushed = self.pushed.wrapping_add(1);
        let tie = self.rng.next_u64() << 32 | u64::from(self.pushed);
        self.events.push(Reverse((at, tie, event)));
    }

    pub(super) fn pop(&mut self) -> Option<(Picos, Event)> {
        self.events.pop().map(|Reverse((at, _, event))| (at, event))
    }

    /// When the next event is due.
    pub(super) fn next_at(&self) -> Option<Picos> {
        self.events.peek().map(|Reverse((at, ..))| *at)
    }

    pub(super) fn clear(&mut self) {
        self.events.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(seed: u64) -> Vec<Event> {
        let mut agenda = Agenda::new(seed);
        for index in 0..8 {
            agenda.push(7, Event::Start(index));
        }
        agenda.push(3, Event::Step(9));
        std::iter::from_fn(|| agenda.pop()).map(|(_, event)| event).collect()
    }

    #[test]
    fn time_comes_first_then_the_seed() {
        assert_eq!(order(1)[0], Event::Step(9));
        assert_eq!(order(1), order(1));
        assert_ne!(order(1), order(2));
    }
}
