//! Numbers that every operation changes: each thread adds to a part of its own, in a cache line of its own, since a line that two processors write costs each of them as much as a READ of local memory.
//! A reader adds the parts up.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use scopeguard::guard;

/// More threads than that share parts.
const PARTS: usize = 8;

/// A thread's part of the numbers. One alone may have wrapped below 0: a thread subtracts what another one has added.
#[derive(Default)]
#[repr(align(128))] // two lines: processors fetch them in pairs
pub(crate) struct Part {
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
}

/// Counts something in a number until the result is dropped.
pub(crate) fn counted(number: &AtomicU64) -> impl Drop + '_ {
    number.fetch_add(1, Ordering::Relaxed);
    guard(number, |number| {
        number.fetch_sub(1, Ordering::Relaxed);
    })
}

/// The parts of all threads.
#[derive(Default)]
pub(crate) struct Tally {
    parts: [Part; PARTS],
}

thread_local! {
    static PART: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed) % PARTS
    };
}

impl Tally {
    /// Returns the part of this thread.
    pub(crate) fn part(&self) -> &Part {
        &self.parts[PART.with(|part| *part)]
    }

    /// Returns the sum of a number's parts. While other threads change them, it may be one that the number never was, but not below 0.
    pub(crate) fn sum(&self, of: impl Fn(&Part) -> &AtomicU64) -> u64 {
        let add = |sum: u64, part| sum.wrapping_add(of(part).load(Ordering::Relaxed));
        self.parts.iter().fold(0, add).cast_signed().max(0).cast_unsigned()
    }
}
