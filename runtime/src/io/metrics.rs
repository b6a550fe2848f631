//! Metrics: exact counts of a thread's operations on far memory.

use crate::error::HeldBackBy;
use std::cell::Cell;
use std::ops::{Add, AddAssign, Sub};

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

/// A thread's counters. Each operation changes one or two; the number of chains follows from the others.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) reads: Cell<u64>,
    pub(crate) read_bytes: Cell<u64>,
    pub(crate) writes: Cell<u64>,
    pub(crate) write_bytes: Cell<u64>,
    pub(crate) cas: Cell<u64>,
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
        let ops = self.reads.get() + self.writes.get() + self.cas.get() + self.faa.get();
        Metrics {
            reads: self.reads.get(),
            read_bytes: self.read_bytes.get(),
            writes: self.writes.get(),
            write_bytes: self.write_bytes.get(),
            cas: self.cas.get(),
            cas_failed: self.cas_failed.get(),
            faa: self.faa.get(),
            chains: ops - self.chained.get(),
            doorbells,
            allocated,
            freed,
            retired: self.retired.get(),
            reclaimed: self.reclaimed.get(),
        }
    }
}
