//! The table of retry loops: an entry for each `Backoff` that has waited.
//!
//! Every retry loop awaits a `Backoff` (an architecture invariant), which lives as long as the loop. So a `Backoff` that has waited often is one
//! operation without progress. It enters the table with its first wait and leaves it when it is dropped; a loop that never waits costs nothing.
//!
//! # Nested loops
//!
//! An attempt may contain loops: a loop that takes a lock ends repeatedly inside an outer loop that never ends. Only *outermost* loops are evidence
//! about progress. The table does not know which future a loop belongs to, but it knows the order of waits: an outer loop does not wait while a loop
//! inside its attempt runs. So a loop is nested in an older loop of its thread if the older one has not waited since the first wait of the younger,
//! and was not waiting then. Loops of different tasks, or of futures that are polled together, wait in turns, so they are not nested by this rule. If
//! two of them are mistaken for nested ones, too few loops are counted: the error makes a livelock harder to report, never easier.

use crate::books::trace::Record;
use crate::config::Picos;
use farfield_words::Address;

/// The purpose of a retry loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LoopKind {
    /// Attempts of the program or the runtime to change memory.
    #[default]
    Attempt,
    /// Waiting for ownership of the word at this address: a lock, or another word that names its owner.
    Ownership(Address),
    /// Waiting for other threads to arrive.
    Rendezvous,
    /// Attempts that are bounded in number or in time.
    Bounded,
}

/// The index of a loop in the table, valid until the loop ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoopId(u32);

/// A retry loop that has waited.
#[derive(Clone, Copy, Debug)]
pub(super) struct Loop {
    pub(super) thread: u32,
    pub(super) task: u32,
    pub(super) purpose: LoopKind,
    /// The numbers of its first and last waits, by the table's count of waits.
    pub(super) born: u64,
    last_wait: u64,
    /// The beginning of its first wait, and the end of its last.
    pub(super) since: Picos,
    waits_until: Picos,
    /// The number of its waits, and that number when the current suspicion began.
    pub(super) tries: u64,
    pub(super) tries_before: u64,
    /// The thread's last operation before its last wait.
    pub(super) last: Option<Record>,
    /// At its beginning, how often others had [interfered](super::progress::ThreadProgress) with its task, and how many chains threads had posted
    /// outside of loops.
    pub(super) interfered_before: u64,
    pub(super) useful_before: u64,
}

impl Loop {
    /// Returns whether the loop is unbounded: only what it waits for ends it.
    pub(super) fn is_endless(&self) -> bool {
        self.purpose != LoopKind::Bounded
    }

    /// Returns the word whose ownership it waits for.
    pub(super) fn awaited(&self) -> Option<Address> {
        if let LoopKind::Ownership(at) = self.purpose { Some(at) } else { None }
    }

    /// Returns whether it is inside an attempt of an older loop of the same thread.
    fn is_nested_in(&self, other: &Self) -> bool {
        other.born < self.born && other.last_wait < self.born && other.waits_until <= self.since
    }
}

/// The loops of all threads.
#[derive(Default)]
pub(super) struct Loops {
    table: Vec<Option<Loop>>,
    free: Vec<u32>,
    /// The number of waits of all loops.
    pub(super) waits: u64,
}

impl Loops {
    /// Removes the loops of an earlier run, when a run begins.
    pub(super) fn clear(&mut self) {
        self.table.clear();
        self.free.clear();
    }

    /// Enters a loop, with its first wait.
    pub(super) fn begins(
        &mut self,
        (thread, task): (u32, u32),
        purpose: LoopKind,
        now: Picos,
        (interfered_before, useful_before): (u64, u64),
    ) -> LoopId {
        let begun = Loop {
            thread,
            task,
            purpose,
            born: self.waits + 1,
            last_wait: 0,
            since: now,
            waits_until: now,
            tries: 0,
            tries_before: 0,
            last: None,
            interfered_before,
            useful_before,
        };
        if let Some(index) = self.free.pop() {
            self.table[index as usize] = Some(begun);
            return LoopId(index);
        }
        self.table.push(Some(begun));
        LoopId(self.table.len() as u32 - 1)
    }

    /// Records a wait of a loop, after another failed attempt.
    pub(super) fn waits(
        &mut self,
        id: LoopId,
        purpose: LoopKind,
        until: Picos,
        last: Option<Record>,
    ) -> Option<Loop> {
        self.waits += 1;
        let waits = self.waits;
        let waiting = self.table.get_mut(id.0 as usize)?.as_mut()?;
        waiting.tries += 1;
        (waiting.last_wait, waiting.waits_until, waiting.last, waiting.purpose) =
            (waits, until, last, purpose);
        Some(*waiting)
    }

    /// Removes a loop that has ended or was abandoned.
    pub(super) fn ends(&mut self, id: LoopId) {
        if self.table.get_mut(id.0 as usize).and_then(Option::take).is_some() {
            self.free.push(id.0);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Loop> {
        self.table.iter().flatten()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Loop> {
        self.table.iter_mut().flatten()
    }

    /// Returns the outermost loops of each thread.
    pub(super) fn outermost(&self, threads: usize) -> Vec<Vec<Loop>> {
        let mut by_thread: Vec<Vec<Loop>> = vec![Vec::new(); threads];
        for each in self.iter() {
            if let Some(of_thread) = by_thread.get_mut(each.thread as usize) {
                of_thread.push(*each);
            }
        }
        for of_thread in &mut by_thread {
            if of_thread.len() > 1 {
                let all = of_thread.clone();
                of_thread.retain(|each| !all.iter().any(|other| each.is_nested_in(other)));
            }
        }
        by_thread
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(loops: &mut Loops, now: Picos) -> LoopId {
        let id = loops.begins((0, 0), LoopKind::Attempt, now, (0, 0));
        loops.waits(id, LoopKind::Attempt, now + 1, None);
        id
    }

    fn outermost(loops: &Loops) -> Vec<u64> {
        loops.outermost(1)[0].iter().map(|each| each.born).collect()
    }

    #[test]
    fn a_loop_inside_an_attempt_is_not_outermost() {
        let mut loops = Loops::default();
        let outer = begin(&mut loops, 10);
        let inner = begin(&mut loops, 20);
        loops.waits(inner, LoopKind::Attempt, 30, None);
        assert_eq!(outermost(&loops), [1]);
        loops.ends(inner);
        loops.waits(outer, LoopKind::Attempt, 40, None);
        let again = begin(&mut loops, 50);
        assert_eq!(outermost(&loops), [1], "the inner loop ended and began again");
        loops.ends(outer);
        loops.ends(again);
        assert!(outermost(&loops).is_empty());
    }

    #[test]
    fn loops_that_wait_in_turns_are_each_outermost() {
        let mut loops = Loops::default();
        let one = begin(&mut loops, 10);
        let other = begin(&mut loops, 20);
        loops.waits(one, LoopKind::Attempt, 30, None);
        assert_eq!(outermost(&loops), [1, 2]);
        loops.ends(one);
        loops.waits(other, LoopKind::Attempt, 40, None);
        assert_eq!(outermost(&loops), [2]);
    }

    #[test]
    fn a_loop_that_waits_when_another_begins_does_not_belong_to_it() {
        let mut loops = Loops::default();
        let one = begin(&mut loops, 10);
        loops.waits(one, LoopKind::Attempt, 100, None);
        begin(&mut loops, 50);
        assert_eq!(outermost(&loops), [1, 3]);
    }
}
