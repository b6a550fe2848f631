//! The words that memory nodes write: initial control blocks, and the marks of departed clients.

use std::sync::atomic::AtomicU64;

use farfield_fabric::{Contents, Departure};
use farfield_words::Address;

use crate::segment::control;
use crate::segment::record;

/// The contents of a cluster's memory.
pub(crate) struct ClusterContents {
    /// True if the memory of dead processes is swept.
    pub(crate) sweeps: bool,
}

impl Contents for ClusterContents {
    fn layout_version(&self) -> u64 {
        control::LAYOUT_VERSION
    }

    fn initial_words(&self, is_first: bool) -> Vec<(u64, u64)> {
        control::initial_words(is_first, if self.sweeps { control::SWEEPS } else { 0 }).collect()
    }

    fn mark_departed<'a>(
        &self,
        process: u32,
        departure: Departure,
        word: &dyn Fn(Address) -> Option<&'a AtomicU64>,
    ) {
        record::mark(process, departure, word);
    }
}
