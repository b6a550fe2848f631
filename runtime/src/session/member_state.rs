//! How this process stands with its cluster, and what it knows of others.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::Shared;
use crate::error::{self, Error, Result};
use crate::io::{LAST_OF_SEVERAL, LOCAL_BITS};
use farfield_words::ThreadId;

/// Whether the memory node that lets processes in is gone, whether this process was evicted.
#[derive(Default)]
pub(crate) struct MemberState {
    is_lost: AtomicBool,
    is_evicted: AtomicBool,
}

impl Shared {
    /// Looks whether the memory node is there that lets processes in, and knows which are gone.
    pub(crate) fn look_for_memory_node(&self) {
        if !self.member_state.is_lost.load(Ordering::Relaxed) && self.backing.is_lost() {
            tracing::warn!(
                "the memory node has ended: what another process held that has gone is never given back"
            );
            self.member_state.is_lost.store(true, Ordering::Relaxed);
        }
    }

    /// The process has found that it was evicted.
    pub(crate) fn note_eviction(&self) {
        self.member_state.is_evicted.store(true, Ordering::Relaxed);
    }

    /// # Errors
    /// [`Error::CannotConnect`] if that memory node has gone: whoever waits for another process could wait for ever;
    /// [`Error::Evicted`].
    pub(crate) fn check_memory_node(&self) -> Result<()> {
        if self.member_state.is_evicted.load(Ordering::Relaxed) {
            return Err(Error::from(error::Evicted { process: self.backing.identity().unwrap_or_default() }));
        }
        if self.member_state.is_lost.load(Ordering::Relaxed) {
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
    pub(crate) fn lease(&self) -> Duration {
        self.backing.lease().unwrap_or_default()
    }

    /// The highest number that a process can have. A simulated one has that of its first thread.
    pub(crate) fn last_process(&self) -> u32 {
        if self.has_strangers() { LAST_OF_SEVERAL as u32 } else { u32::MAX - 1 }
    }

    /// Whether a process that is silent can be shut out while it lives.
    pub(crate) fn shuts_out(&self) -> bool {
        self.backing.shuts_out()
    }

    /// The thread has ended.
    pub(crate) fn end_identity(&self, thread: ThreadId) {
        self.identities.end(thread);
    }

    /// The process that a thread is in, where that can be another than this one.
    pub(crate) fn process_of(&self, thread: ThreadId) -> Option<u32> {
        self.has_strangers().then_some((thread.number().get() >> LOCAL_BITS) as u32)
    }

    /// Whether a thread of this process is running.
    pub(crate) fn runs_here(&self, thread: ThreadId) -> bool {
        self.identities.has(thread)
    }
}
