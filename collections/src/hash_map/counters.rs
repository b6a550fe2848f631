//! What a handle counts.

use std::cell::Cell;

/// What a handle has counted.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Operations whose key's table was remembered.
    pub directory_hits: u64,
    /// Operations that read the directory.
    pub directory_misses: u64,
    /// Remembered tables that had been replaced.
    pub stale: u64,
    /// Operations that used a remembered slot.
    pub slot_hits: u64,
    /// Remembered slots that had changed.
    pub slot_misses: u64,
    /// CASes of a slot that found another value, and were repeated.
    pub retries: u64,
    /// Updates that another overtook, and were done by that.
    pub overtaken: u64,
    /// Tables that were replaced by a larger one, or by two.
    pub growths: u64,
    /// Waits for another client that replaces a table.
    pub waits: u64,
}

/// Counters that a shared handle can count up.
#[derive(Default)]
pub(crate) struct Counting(Cell<Counters>);

impl Counting {
    #[inline]
    pub(crate) fn count(&self, add: impl FnOnce(&mut Counters)) {
        let mut counters = self.0.get();
        add(&mut counters);
        self.0.set(counters);
    }

    pub(crate) fn get(&self) -> Counters {
        self.0.get()
    }
}
