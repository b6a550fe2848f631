//! Metrics: exact counts of a thread's operations on far memory.

use crate::error::HeldBackBy;
use std::cell::Cell;
use std::ops::{Add, AddAssign, Sub};

use farfield_words::WORD_BYTES;

/// Exact counts of operations on far memory, by kind. Sums and differences are taken field by field.
///
/// [`ComputeThread::metrics`](crate::ComputeThread::metrics) returns the counts of one thread, [`Cluster::metrics`](crate::Cluster::metrics) those of
/// all threads that have ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metrics {
    /// READs posted.
    pub reads: u64,
    /// Bytes that READs requested.
    pub read_bytes: u64,
    /// WRITEs posted.
    pub writes: u64,
    /// Bytes that WRITEs carried.
    pub write_bytes: u64,
    /// CAS operations posted.
    pub cas: u64,
    /// CAS operations that failed: they found another value than expected.
    pub cas_failed: u64,
    /// FAA operations posted.
    pub faa: u64,
    /// Chains posted, each of which is one wait. A single operation is a chain of one.
    pub chains: u64,
    /// Doorbells rung for chains. Chains that a thread posts to one memory node at one time share a doorbell. 0 on `local:`, where there is no NIC.
    pub doorbells: u64,
    /// Objects allocated.
    pub allocated: u64,
    /// Objects freed: deleted, dropped before publication, or reclaimed.
    pub freed: u64,
    /// Objects retired.
    pub retired: u64,
    /// Retired objects that have been freed.
    pub reclaimed: u64,
}

/// The state of reclamation: [`ComputeThread::reclamation`](crate::ComputeThread::reclamation).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reclamation {
    /// The epoch. Objects retired in `e` are freed in `e + 3` at the latest.
    pub epoch: u64,
    /// A thread or process that is still in an older epoch, so that the epoch can advance at most once more. `None` if there is none.
    pub held_back_by: Option<HeldBackBy>,
    /// Objects that this thread has retired and not freed yet.
    pub retired_objects: u64,
    /// Bytes of these objects.
    pub retired_bytes: u64,
}

macro_rules! field_by_field {
    ($($field:ident)*) => {
        impl AddAssign for Metrics {
            fn add_assign(&mut self, other: Self) {
                $(self.$field += other.$field;)*
            }
        }
        impl Sub for Metrics {
            type Output = Self;
            /// Returns the counts since `earlier`.
            fn sub(self, earlier: Self) -> Self {
                Self { $($field: self.$field - earlier.$field),* }
            }
        }
    };
}
field_by_field!(reads read_bytes writes write_bytes cas cas_failed faa chains doorbells allocated freed retired reclaimed);

impl Add for Metrics {
    type Output = Self;
    fn add(mut self, other: Self) -> Self {
        self += other;
        self
    }
}

/// The number of operations of one kind, and the sum of their amounts (words that they moved, or exchanges that failed).
///
/// [`add`](Self::add) is one addition of a constant to one word, since it is on the path of every READ. A processor adds to a word of memory once a
/// cycle. Two adjacent counters would take 11 cycles: the compiler merges their additions into one of a vector, whose load waits for the store of the
/// operation before. So `recent` holds both counts: operations in the upper 12 bits, amounts in the lower 20. They are moved to the totals when the
/// totals are read, and when the highest bit is set, which is after 2048 operations.
///
/// Invariant: `recent` counts at most 2048 operations, each with an amount below 512. So neither part overflows.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    recent: Cell<u32>,
    operations: Cell<u64>,
    amount: Cell<u64>,
}

/// Bits of `recent` for amounts.
const AMOUNT_BITS: u32 = 20;
/// The amounts of one operation that are counted in `recent` are smaller.
const AMOUNT_END: usize = 512;

impl Tally {
    /// Counts an operation.
    #[inline]
    pub(crate) fn add(&self, amount: usize) {
        let small = if amount < AMOUNT_END { amount as u32 } else { 0 };
        if amount >= AMOUNT_END {
            count(&self.amount, amount as u64);
        }
        let recent = self.recent.get() + (1 << AMOUNT_BITS | small);
        self.recent.set(recent);
        if recent.cast_signed() < 0 {
            settle(self);
        }
    }

    /// Returns whether another operation with an amount below [`AMOUNT_END`] only changes `recent`.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.recent.get() < (1 << 31) - (1 << AMOUNT_BITS)
    }

    /// Counts an operation for which there [is room](Self::has_room).
    #[inline]
    pub(crate) fn add_recent(&self, amount: usize) {
        debug_assert!(self.has_room() && amount < AMOUNT_END);
        self.recent.set(self.recent.get().wrapping_add(1 << AMOUNT_BITS | amount as u32));
    }

    /// Counts several operations with this amount together.
    #[inline]
    pub(crate) fn add_all(&self, operations: u32, amount: u32) {
        count(&self.operations, u64::from(operations));
        count(&self.amount, u64::from(amount));
    }

    /// Returns the number of operations and the sum of their amounts.
    fn totals(&self) -> (u64, u64) {
        settle(self);
        (self.operations.get(), self.amount.get())
    }
}

/// Adds `recent` to the totals.
///
/// A function of C never unwinds. So the caller, a READ in a loop, need not keep for this call what it would drop if the call panicked.
#[cold]
#[inline(never)]
extern "C" fn settle(tally: &Tally) {
    let recent = u64::from(tally.recent.take());
    count(&tally.operations, recent >> AMOUNT_BITS);
    count(&tally.amount, recent & ((1 << AMOUNT_BITS) - 1));
}

/// A thread's counters. Each operation changes one; the number of chains follows from the others.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// READs and their words.
    pub(crate) reads: Tally,
    /// WRITEs and their words.
    pub(crate) writes: Tally,
    /// CAS operations that were executed when they were posted, and how many of them failed.
    pub(crate) exchanges: Tally,
    /// CAS operations of chains.
    pub(crate) cas: Cell<u64>,
    /// How many of them failed.
    pub(crate) cas_failed: Cell<u64>,
    pub(crate) faa: Cell<u64>,
    /// Operations that are not the first of their chain.
    pub(crate) chained: Cell<u64>,
    pub(crate) retired: Cell<u64>,
    pub(crate) reclaimed: Cell<u64>,
}

/// Adds to a counter.
#[inline]
pub(crate) fn count(counter: &Cell<u64>, by: u64) {
    counter.set(counter.get().wrapping_add(by));
}

impl Counters {
    pub(crate) fn snapshot(&self, doorbells: u64, allocated: u64, freed: u64) -> Metrics {
        let (reads, words_read) = self.reads.totals();
        let (writes, words_written) = self.writes.totals();
        let (exchanges, exchanges_failed) = self.exchanges.totals();
        let (cas, faa) = (self.cas.get() + exchanges, self.faa.get());
        Metrics {
            reads,
            read_bytes: words_read * WORD_BYTES as u64,
            writes,
            write_bytes: words_written * WORD_BYTES as u64,
            cas,
            cas_failed: self.cas_failed.get() + exchanges_failed,
            faa,
            chains: reads + writes + cas + faa - self.chained.get(),
            doorbells,
            allocated,
            freed,
            retired: self.retired.get(),
            reclaimed: self.reclaimed.get(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tally_is_exact_at_the_limits_of_its_word() {
        let tally = Tally::default();
        let largest = AMOUNT_END - 1;
        for _ in 0..2047 {
            tally.add(largest);
        }
        assert_eq!(tally.operations.get(), 0);
        tally.add(largest);
        assert_eq!((tally.operations.get(), tally.recent.get()), (2048, 0), "the highest bit was set");
        tally.add(largest);
        tally.add(largest + 1);
        tally.add(usize::MAX >> 8);
        tally.add(0);
        let amount = (2049 * largest + AMOUNT_END + (usize::MAX >> 8)) as u64;
        assert_eq!(tally.totals(), (2052, amount));
        assert_eq!(tally.totals(), (2052, amount), "reading changes nothing");
    }
}
