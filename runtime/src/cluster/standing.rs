//! How this process stands with its cluster, and what it knows of others.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::backing::THREADS_PER_PROCESS_BITS;
use super::thread::ThreadId;
use super::{Shared, lock};
use crate::error::{self, Error, Result};

/// The part of a thread's identity that its process gives.
const LOCAL_MASK: u64 = (1 << THREADS_PER_PROCESS_BITS) - 1;

/// The identities that so many threads get when `next` is the next to be given.
fn ids(next: u64, threads: u64) -> std::ops::Range<u64> {
    let (process, local) = (next & !LOCAL_MASK, next & LOCAL_MASK);
    let first = process | if local + threads > LOCAL_MASK { 1 } else { local };
    first..first + threads
}

impl Shared {
    /// Looks whether the memory node is there that lets processes in, and knows which are gone.
    pub(super) fn look_for_memory_node(&self) {
        if !self.is_lost.load(Ordering::Relaxed) && self.backing.is_lost() {
            tracing::warn!(
                "the memory node has ended: what another process held that has gone is never given back"
            );
            self.is_lost.store(true, Ordering::Relaxed);
        }
    }

    /// The process has found that it was evicted.
    pub(super) fn note_eviction(&self) {
        self.is_evicted.store(true, Ordering::Relaxed);
    }

    /// # Errors
    /// [`Error::CannotConnect`] if that memory node has gone: whoever waits for another process could wait for ever;
    /// [`Error::Evicted`].
    pub(crate) fn check_memory_node(&self) -> Result<()> {
        if self.is_evicted.load(Ordering::Relaxed) {
            return Err(Error::from(error::Evicted { process: self.backing.identity().unwrap_or_default() }));
        }
        if self.is_lost.load(Ordering::Relaxed) {
            let (address, reason) = (self.url.clone(), "its memory node has ended".into());
            return Err(Error::from(error::CannotConnect { address, reason }));
        }
        Ok(())
    }

    /// Whether a process has gone; nothing where its memory node does not say.
    pub(crate) fn is_process_gone(&self, identity: u32) -> Option<bool> {
        self.backing.is_gone(identity)
    }

    /// How long a process may go without a sign of life.
    pub(super) fn lease(&self) -> Duration {
        self.backing.lease().unwrap_or_default()
    }

    /// Whether a process that is silent can be shut out while it lives.
    pub(crate) fn shuts_out(&self) -> bool {
        self.backing.shuts_out()
    }

    /// Identities for so many threads, one after the other; gives the first.
    ///
    /// Where a process's number stands above them they begin again when they would run into it: by then those that had them before
    /// have long ended.
    pub(super) fn take_thread_ids(&self, threads: u64) -> u64 {
        if !self.has_strangers() {
            return self.next_thread.fetch_add(threads, Ordering::Relaxed);
        }
        let order = Ordering::Relaxed;
        let taken = self.next_thread.fetch_update(order, order, |next| Some(ids(next, threads).end));
        ids(taken.unwrap_or_else(|next| next), threads).start
    }

    /// The process that a thread is in, where that can be another than this one.
    pub(crate) fn process_of(&self, thread: ThreadId) -> Option<u32> {
        self.has_strangers().then_some((thread.0.get() >> THREADS_PER_PROCESS_BITS) as u32)
    }

    /// Whether a thread of this process is running.
    pub(crate) fn runs_here(&self, thread: ThreadId) -> bool {
        lock(&self.live).contains(&thread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_stay_with_their_process() {
        let process = 7 << THREADS_PER_PROCESS_BITS;
        assert_eq!(ids(process + 1, 4), process + 1..process + 5);
        let last = process | LOCAL_MASK;
        assert_eq!(ids(last - 4, 4), last - 4..last);
        assert_eq!(ids(last, 4), process + 1..process + 5, "they begin again");
        assert_eq!(ids(last - 3, 4), process + 1..process + 5);
    }
}
