//! The records of a process: those that were loaded, and those that its tasks insert during the run.
//!
//! Operations take only records whose insertion has ended. As in YCSB's `AcknowledgedCounterGenerator`, these are the numbers below the first insertion
//! that has not ended. Processes of a joint run insert different numbers, and take the loaded records and their own.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// The numbers of records.
#[derive(Debug)]
pub(crate) struct Inserted {
    loaded: u64,
    processes: u64,
    process: u64,
    begun: AtomicU64,
    /// All insertions before this one have ended.
    ended: AtomicU64,
    /// Insertions from `ended` on that have ended.
    out_of_order: Mutex<BinaryHeap<Reverse<u64>>>,
}

/// An insertion that has begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Insertion(u64);

impl Inserted {
    pub(crate) fn new(loaded: u64, process: u16, processes: u16) -> Self {
        Self {
            loaded,
            processes: processes.into(),
            process: process.into(),
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            out_of_order: Mutex::default(),
        }
    }

    /// Returns the next insertion and the number of its record.
    pub(crate) fn begin(&self) -> (Insertion, u64) {
        let insertion = self.begun.fetch_add(1, Ordering::Relaxed);
        (Insertion(insertion), self.record(self.loaded + insertion))
    }

    /// The record of an insertion may be taken by operations.
    pub(crate) fn end(&self, insertion: Insertion) {
        let mut out_of_order = self.out_of_order.lock().unwrap_or_else(PoisonError::into_inner);
        out_of_order.push(Reverse(insertion.0));
        let mut ended = self.ended.load(Ordering::Relaxed);
        while out_of_order.peek() == Some(&Reverse(ended)) {
            out_of_order.pop();
            ended += 1;
        }
        self.ended.store(ended, Ordering::Release);
    }

    /// The number of records that operations of this process may take.
    pub(crate) fn present(&self) -> u64 {
        self.loaded + self.ended.load(Ordering::Acquire)
    }

    /// Returns whether a record may be in the map: it was loaded, this process has begun to insert it, or it is another process's.
    pub(crate) fn may_be_present(&self, record: u64) -> bool {
        let Some(number) = record.checked_sub(self.loaded) else { return true };
        number % self.processes != self.process
            || number / self.processes < self.begun.load(Ordering::Relaxed)
    }

    /// Returns the number of the `index`-th of these records.
    pub(crate) fn record(&self, index: u64) -> u64 {
        match index.checked_sub(self.loaded) {
            None => index,
            Some(insertion) => self.loaded + insertion * self.processes + self.process,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_present_when_all_earlier_insertions_have_ended() {
        let inserted = Inserted::new(10, 0, 1);
        let [first, second, third] = [(); 3].map(|()| inserted.begin());
        assert_eq!([first.1, second.1, third.1], [10, 11, 12]);
        assert_eq!(inserted.present(), 10);
        inserted.end(third.0);
        inserted.end(second.0);
        assert_eq!(inserted.present(), 10, "the first insertion has not ended");
        inserted.end(first.0);
        assert_eq!(inserted.present(), 13);
    }

    #[test]
    fn processes_insert_different_records() {
        let processes = [0, 1, 2].map(|process| Inserted::new(10, process, 3));
        let mut records: Vec<u64> =
            processes.iter().flat_map(|process| [process.begin().1, process.begin().1]).collect();
        records.sort_unstable();
        assert_eq!(records, (10..16).collect::<Vec<u64>>());
        let present = |record: u64| processes.each_ref().map(|process| process.may_be_present(record));
        assert_eq!([present(9), present(15), present(16)], [[true; 3], [true; 3], [false, true, true]]);
        assert_eq!(present(17), [true, false, true]);
        assert_eq!(processes[2].record(9), 9);
        assert_eq!(processes[2].record(11), 15);
    }
}
