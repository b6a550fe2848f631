//! Identities of compute threads.
//!
//! Each compute thread has an identity: 24 bits of its process's number, and 24 bits of a number in the process.
//!
//! - *No two processes of a cluster ever have the same number.* The first memory node counts them, and refuses the 16,777,216th. A first
//!   memory node that is started anew begins another cluster; on `rdma:` the others have to be started anew with it. Restoring a
//!   checkpoint frees the locks and the names that threads of the old cluster had.
//! - *No two threads that live have the same identity.* A process knows its own threads. It gives each number once, and begins again
//!   after 16,777,215 threads, with those numbers whose threads have ended.
//!
//! So a word that names a thread of a dead process names no living thread. One that names an ended thread of a living process may name
//! a later thread of it, but threads leave no such words: a guard that is dropped, also by a panic, releases its lock, and a claim
//! gives its name back. What a program leaks with `mem::forget` may seem to be held again by a later thread, for as long as that lives.
//!
//! On `local:` and `sim:` there is one process, its numbers have 48 bits, and none is given twice.

use std::collections::HashSet;
use std::num::NonZeroU64;
use std::sync::{Mutex, MutexGuard, PoisonError};

use farfield_words::ThreadId;

use crate::error::{self, Error, Result};

/// Bits of a thread's number in its process, where the process's number stands above.
pub(crate) const LOCAL_BITS: u32 = 24;
/// The highest number of a thread, there and where a cluster has only one process.
pub(crate) const LAST_OF_SEVERAL: u64 = (1 << LOCAL_BITS) - 1;
const LAST_OF_ONE: u64 = (1 << 48) - 1;

/// The identities of a process.
#[derive(Debug)]
pub(crate) struct Identities(Mutex<Sequence>);

/// Which identities its threads have, and which come next.
#[derive(Debug)]
struct Sequence {
    /// The process's number, in its place.
    process: u64,
    /// Numbers in the process go from 1 to this.
    last: u64,
    next: u64,
    live: HashSet<ThreadId>,
}

impl Sequence {
    /// Those of the process with this number, or of the only process.
    fn new(process: Option<u32>) -> Self {
        let last = if process.is_some() { LAST_OF_SEVERAL } else { LAST_OF_ONE };
        let process = u64::from(process.unwrap_or(0)) << LOCAL_BITS;
        Self { process, last, next: 1, live: HashSet::new() }
    }

    /// Gives identities to `count` threads, one after the other, and returns the first; `None` if there are not so many in a row that
    /// no living thread has.
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
    /// Those of the process with this number, or of the only process.
    pub(crate) fn new(process: Option<u32>) -> Self {
        Self(Mutex::new(Sequence::new(process)))
    }

    fn sequence(&self) -> MutexGuard<'_, Sequence> {
        // A set of numbers is whole at every moment.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives identities to so many threads, one after the other, until they [end](Self::end); returns the first.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the process has no such number of identities in a row that are not in use.
    pub(crate) fn begin(&self, threads: u64) -> Result<NonZeroU64> {
        self.sequence().begin(threads).ok_or_else(|| {
            let reason =
                "beside those that run they are more than 16777215, or leave no such row of identities";
            Error::from(error::InvalidArgument {
                argument: "threads",
                value: threads.to_string().into(),
                reason,
            })
        })
    }

    /// The thread has ended.
    pub(crate) fn end(&self, thread: ThreadId) {
        self.sequence().live.remove(&thread);
    }

    /// True if a thread of this process runs under this identity.
    pub(crate) fn has(&self, thread: ThreadId) -> bool {
        self.sequence().live.contains(&thread)
    }

    /// True if the process has at most one compute thread.
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
