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
    /// Checks the connection to the memory node that admits processes and detects their ends.
    pub(crate) fn look_for_memory_node(&self) {
        if self.member_state.load() == MemberState::Connected
            && self.backing.is_lost()
            && self
                .member_state
                .compare_exchange(MemberState::Connected, MemberState::MemoryNodeEnded)
                .is_ok()
        {
            tracing::warn!(
                "the memory node has ended: memory and locks of dead processes are no longer released"
            );
        }
    }

    /// Records that this process was evicted.
    pub(crate) fn note_eviction(&self) {
        self.member_state.store(MemberState::Evicted);
    }

    /// Checks that waits for other processes can end.
    ///
    /// # Errors
    /// [`Error::CannotConnect`] if the memory node that detects the ends of processes has ended; [`Error::Evicted`].
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

    /// Returns whether a process has ended; `None` if its memory node is unreachable.
    pub(crate) fn is_process_gone(&self, identity: u32) -> Option<bool> {
        self.backing.is_gone(identity)
    }

    /// Returns the longest time between two heartbeats of a live process.
    pub(crate) fn lease(&self) -> Duration {
        self.backing.lease().unwrap_or_default()
    }

    /// Returns the highest possible identity of a process. A simulated process has the number of its first thread.
    pub(crate) fn last_process(&self) -> u32 {
        if self.is_shared() { LAST_OF_SEVERAL as u32 } else { u32::MAX - 1 }
    }

    /// Returns whether a live process with an expired lease can be disconnected.
    pub(crate) fn disconnects_silent(&self) -> bool {
        self.backing.disconnects_silent()
    }

    /// Returns whether far memory is on memory nodes that are accessed by a network.
    pub(crate) fn is_remote(&self) -> bool {
        self.backing.is_remote()
    }

    /// Frees the identity of an ended thread.
    pub(crate) fn end_identity(&self, thread: ThreadId) {
        self.identities.end(thread);
    }

    /// Returns the process of a thread, if the cluster is shared.
    pub(crate) fn process_of(&self, thread: ThreadId) -> Option<u32> {
        self.is_shared().then_some((thread.number().get() >> LOCAL_BITS) as u32)
    }

    /// Returns whether a thread of this process is running.
    pub(crate) fn runs_here(&self, thread: ThreadId) -> bool {
        self.identities.has(thread)
    }
}
