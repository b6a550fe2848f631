//! The state of this process in its cluster, and its knowledge of other processes.

use std::time::Duration;

use super::Shared;
use crate::error::{self, Error, Result};
use crate::io::{LAST_OF_SEVERAL, LOCAL_BITS};
use farfield_words::ThreadId;

/// The state of this process in its cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum MemberState {
    #[default]
    Connected,
    /// The memory node that admits processes has ended.
    MemoryNodeEnded,
    /// Another process has evicted this one.
    Evicted,
}

impl Shared {
    /// Checks the connection to the memory node that admits processes and knows which are gone.
    pub(crate) fn look_for_memory_node(&self) {
        if self.member_state.load() == MemberState::Connected
            && self.backing.is_lost()
            && self
                .member_state
                .compare_exchange(MemberState::Connected, MemberState::MemoryNodeEnded)
                .is_ok()
        {
            tracing::warn!(
                "the memory node has ended: the memory and locks of processes that have gone stay taken"
            );
        }
    }

    /// The process has found that it was evicted.
    pub(crate) fn note_eviction(&self) {
        self.member_state.store(MemberState::Evicted);
    }

    /// # Errors
    /// [`Error::CannotConnect`] if that memory node has ended: a wait for another process might never end;
    /// [`Error::Evicted`].
    pub(crate) fn check_memory_node(&self) -> Result<()> {
        match self.member_state.load() {
            MemberState::Connected => Ok(()),
            MemberState::MemoryNodeEnded => {
                let (address, reason) = (self.url.clone(), "its memory node has ended".into());
                Err(Error::from(error::CannotConnect { address, reason }))
            }
            MemberState::Evicted => {
                let process = self.backing.identity().unwrap_or_default();
                Err(Error::from(error::Evicted { process }))
            }
        }
    }

    /// Returns whether a process has gone, if its memory node says so.
    pub(crate) fn is_process_gone(&self, identity: u32) -> Option<bool> {
        self.backing.is_gone(identity)
    }

    /// The longest time between two heartbeats of a live process.
    pub(crate) fn lease(&self) -> Duration {
        self.backing.lease().unwrap_or_default()
    }

    /// The highest number that a process can have. A simulated process has the number of its first thread.
    pub(crate) fn last_process(&self) -> u32 {
        if self.has_strangers() { LAST_OF_SEVERAL as u32 } else { u32::MAX - 1 }
    }

    /// Returns whether a silent process can be shut out while it lives.
    pub(crate) fn shuts_out(&self) -> bool {
        self.backing.shuts_out()
    }

    /// The thread has ended.
    pub(crate) fn end_identity(&self, thread: ThreadId) {
        self.identities.end(thread);
    }

    /// The process of a thread, if the cluster may have others than this one.
    pub(crate) fn process_of(&self, thread: ThreadId) -> Option<u32> {
        self.has_strangers().then_some((thread.number().get() >> LOCAL_BITS) as u32)
    }

    /// Returns whether a thread of this process is running.
    pub(crate) fn runs_here(&self, thread: ThreadId) -> bool {
        self.identities.has(thread)
    }
}
