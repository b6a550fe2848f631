//! Numbers that every operation changes: each thread adds to a part of its own, in a cache line of its own, since a line that two processors write costs each of them as much as a READ of local memory.
//! A reader adds the parts up.
//!
//! A part has one writer, so it adds without an atomic addition, which waits for all loads before it. A thread that ends leaves its part to another one. The last part is that of all threads for which there is
//! none; they do add atomically.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use scopeguard::guard;

/// The number of parts.
const PARTS: usize = 8;
/// The part that threads share.
const SHARED: usize = PARTS - 1;

/// The parts that have a thread, a bit each.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// A thread's right to be the only writer of a part.
struct Claim(usize);

impl Claim {
    fn new() -> Self {
        let next = |taken: usize| (taken.trailing_ones() < SHARED as u32).then(|| taken | (taken + 1));
        // It acquires what the thread before has written there.
        let taken = TAKEN.fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
        Self(taken.map_or(SHARED, |taken| taken.trailing_ones() as usize))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.0 != SHARED {
            TAKEN.fetch_and(!(1 << self.0), Ordering::AcqRel);
        }
    }
}

thread_local! {
    static CLAIM: Claim = Claim::new();
}

/// A thread's part of the numbers. One alone may have wrapped below 0: a thread subtracts what another one has added.
#[derive(Default)]
#[repr(align(128))] // two lines: processors fetch them in pairs
pub(crate) struct Part {
    /// Records to which the index leads.
    pub(crate) records: AtomicU64,
    /// The bytes of keys and values of the records to which the index leads.
    pub(crate) user_bytes: AtomicU64,
    /// The words of live records.
    pub(crate) live_words: AtomicU64,
    /// The words that have become live or dead since the thread has looked whether a page must be rebuilt.
    pub(crate) changed_words: AtomicU64,
    /// Records that were found in local memory.
    pub(crate) hits: AtomicU64,
    /// Records that were read from far memory.
    pub(crate) reads: AtomicU64,
    /// READs of records that are under way.
    pub(crate) pending_reads: AtomicU64,
    /// Operations that wait for another one's READ.
    pub(crate) waiting_reads: AtomicU64,
    /// Operations that wait for a page to which records are added.
    pub(crate) waiting_writes: AtomicU64,
    /// Evictions that have not ended.
    pub(crate) evictions: AtomicU64,
    /// The bytes of copies and records in local memory.
    pub(crate) kept_bytes: AtomicU64,
}

/// A number of a part.
type Number = fn(&Part) -> &AtomicU64;

/// The parts of all threads.
#[derive(Default)]
pub(crate) struct Tally {
    parts: [Part; PARTS],
}

impl Tally {
    /// Adds to a number.
    #[inline]
    pub(crate) fn add(&self, number: impl Fn(&Part) -> &AtomicU64, by: u64) {
        let index = CLAIM.with(|claim| claim.0);
        let number = number(&self.parts[index]);
        if index == SHARED {
            number.fetch_add(by, Ordering::Relaxed);
        } else {
            number.store(number.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
        }
    }

    /// Subtracts from a number.
    #[inline]
    pub(crate) fn subtract(&self, number: impl Fn(&Part) -> &AtomicU64, by: u64) {
        self.add(number, by.wrapping_neg());
    }

    /// Counts something in a number until the result is dropped.
    #[inline]
    pub(crate) fn counted(&self, number: Number) -> impl Drop + '_ {
        self.add(number, 1);
        guard((), move |()| self.subtract(number, 1))
    }

    /// Returns this thread's part of a number.
    pub(crate) fn mine(&self, number: Number) -> u64 {
        number(&self.parts[CLAIM.with(|claim| claim.0)]).load(Ordering::Relaxed)
    }

    /// Returns the sum of a number's parts. While other threads change them, it may be one that the number never was, but not below 0.
    pub(crate) fn sum(&self, of: Number) -> u64 {
        let add = |sum: u64, part| sum.wrapping_add(of(part).load(Ordering::Relaxed));
        self.parts.iter().fold(0, add).cast_signed().max(0).cast_unsigned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_number_is_lost_whichever_threads_add() {
        let tally = Tally::default();
        for _ in 0..3 {
            std::thread::scope(|scope| {
                for _ in 0..PARTS + 3 {
                    scope.spawn(|| {
                        for _ in 0..10_000 {
                            tally.add(|part| &part.hits, 2);
                            tally.subtract(|part| &part.reads, 1);
                            drop(tally.counted(|part| &part.evictions));
                        }
                        tally.add(|part| &part.reads, 10_001);
                    });
                }
            });
        }
        let threads = 3 * (PARTS + 3) as u64;
        assert_eq!(tally.sum(|part| &part.hits), 20_000 * threads);
        assert_eq!(tally.sum(|part| &part.reads), threads);
        assert_eq!(tally.sum(|part| &part.evictions), 0);
    }
}
