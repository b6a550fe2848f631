//! Identities of compute threads.
//!
//! Each compute thread has an identity of 48 bits: the number of its process (24 bits) and its own number in the process (24 bits).
//!
//! - *No two processes of a cluster ever have the same number.* The first memory node counts processes, and refuses the 16,777,216th. A restart of
//!   the first memory node begins another cluster; on `rdma:` the other nodes have to be restarted with it. Restoring a checkpoint frees the locks
//!   and names that threads of the old cluster held.
//! - *No two live threads have the same identity.* A process knows its own threads. It issues each number once; after 16,777,215 threads it reuses
//!   the numbers of ended threads.
//!
//! So a word that names a thread of a dead process names no live thread. A word that names an ended thread of a live process could name a later
//! thread, but threads leave no such words: dropping a guard, even by a panic, releases its lock, and a dropped claim frees its name. A lock whose
//! guard a program leaks with `mem::forget` may appear to be held by a later thread, while that thread lives.
//!
//! On `local:` and `sim:` there is one process. Its threads' numbers have 48 bits and are never reused.

use std::collections::HashSet;
use std::num::NonZeroU64;
use std::sync::{Mutex, MutexGuard, PoisonError};

use farfield_words::ThreadId;

use crate::error::{self, Error, Result};

/// The bits of a thread's number in its process, if a cluster has several processes.
pub(crate) const LOCAL_BITS: u32 = 24;
/// The highest number of a thread, in a cluster of several processes and of one.
pub(crate) const LAST_OF_SEVERAL: u64 = (1 << LOCAL_BITS) - 1;
const LAST_OF_ONE: u64 = (1 << 48) - 1;

/// The identities of a process.
#[derive(Debug)]
pub(crate) struct Identities(Mutex<Sequence>);

/// The identities in use, and the next one.
#[derive(Debug)]
struct Sequence {
    /// The process's number, shifted to its position.
    process: u64,
    /// The highest number of a thread; the lowest is 1.
    last: u64,
    next: u64,
    live: HashSet<ThreadId>,
}

impl Sequence {
    /// Makes the sequence of the process with this number, or of the only process.
    fn new(process: Option<u32>) -> Self {
        let last = if process.is_some() { LAST_OF_SEVERAL } else { LAST_OF_ONE };
        let process = u64::from(process.unwrap_or(0)) << LOCAL_BITS;
        Self { process, last, next: 1, live: HashSet::new() }
    }

    /// Issues `count` consecutive identities and returns the first; `None` if no such row is free.
    fn begin(&mut self, count: u64) -> Option<NonZeroU64> {
        let (mut local, mut has_begun_again) = (self.next, false);
        loop {
            if count > self.last || local > self.last - count + 1 {
                if has_begun_again || count > self.last {
                    return None;
                }
                (local, has_begun_again) = (1, true);
            }
            let first = NonZeroU64::new(self.process | local)?;
            let range = (0..count).map(|index| ThreadId::new(first.saturating_add(index)));
            if let Some(taken) = range.clone().rfind(|id| self.live.contains(id)) {
                local = (taken.number().get() - self.process) + 1;
                continue;
            }
            self.next = local + count;
            self.live.extend(range);
            return Some(first);
        }
    }
}

impl Identities {
    /// Makes the identities of the process with this number, or of the only process.
    pub(crate) fn new(process: Option<u32>) -> Self {
        Self(Mutex::new(Sequence::new(process)))
    }

    fn sequence(&self) -> MutexGuard<'_, Sequence> {
        // No panic leaves the sequence inconsistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Issues consecutive identities to this many threads, until they [end](Self::end). Returns the first.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the process has no free row of this many identities.
    pub(crate) fn begin(&self, threads: u64) -> Result<NonZeroU64> {
        self.sequence().begin(threads).ok_or_else(|| {
            let reason =
                "with the running threads they exceed 16777215, or no row of so many identities is free";
            Error::from(error::InvalidArgument {
                argument: "threads",
                value: threads.to_string().into(),
                reason,
            })
        })
    }

    /// The thread has ended: its identity is free.
    pub(crate) fn end(&self, thread: ThreadId) {
        self.sequence().live.remove(&thread);
    }

    /// Returns whether a thread of this process has this identity.
    pub(crate) fn has(&self, thread: ThreadId) -> bool {
        self.sequence().live.contains(&thread)
    }

    /// Returns whether the process has at most one compute thread.
    pub(crate) fn has_at_most_one(&self) -> bool {
        self.sequence().live.len() <= 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_process_7() -> Sequence {
        Sequence::new(Some(7))
    }

    fn local(first: Option<NonZeroU64>) -> Option<u64> {
        first.map(|first| {
            assert_eq!(first.get() >> LOCAL_BITS, 7, "{first:#x} is another process's");
            first.get() & LAST_OF_SEVERAL
        })
    }

    fn end(identities: &mut Sequence, locals: std::ops::RangeInclusive<u64>) {
        for local in locals {
            assert!(
                identities.live.remove(&ThreadId::new(NonZeroU64::new(7 << LOCAL_BITS | local).unwrap()))
            );
        }
    }

    #[test]
    fn identities_begin_again_beside_those_that_live() {
        let mut identities = of_process_7();
        assert_eq!(local(identities.begin(4)), Some(1));
        assert_eq!(local(identities.begin(2)), Some(5));
        end(&mut identities, 1..=4);
        identities.next = LAST_OF_SEVERAL - 2;
        assert_eq!(local(identities.begin(3)), Some(LAST_OF_SEVERAL - 2), "the last numbers are used");
        assert_eq!(local(identities.begin(3)), Some(1), "they begin again");
        assert_eq!(local(identities.begin(3)), Some(7), "5 and 6 still live");
        end(&mut identities, 1..=3);
        assert_eq!(local(identities.begin(1)), Some(10), "numbers come round as late as they can");
    }

    #[test]
    fn no_identity_is_given_while_its_thread_lives() {
        let mut identities = of_process_7();
        assert_eq!(local(identities.begin(LAST_OF_SEVERAL + 1)), None, "there are not so many");
        identities.next = LAST_OF_SEVERAL;
        assert_eq!(local(identities.begin(1)), Some(LAST_OF_SEVERAL));
        identities.last = 3;
        (identities.next, identities.live) = (1, HashSet::new());
        assert_eq!(local(identities.begin(3)), Some(1));
        assert_eq!(local(identities.begin(1)), None, "all three live");
        end(&mut identities, 2..=2);
        assert_eq!(local(identities.begin(2)), None, "no two in a row");
        assert_eq!(local(identities.begin(1)), Some(2));
    }
}
