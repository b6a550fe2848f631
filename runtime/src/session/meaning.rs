//! What the simulator is told of the library's own words.

use farfield_sim::Meaning;
use farfield_words::{Address, ThreadId};

use crate::segment::control;
use crate::segment::entry;
use crate::segment::grid::Grid;

/// The meaning of the words of a cluster's memory.
pub(crate) struct ClusterMeaning(pub(crate) Grid);

impl Meaning for ClusterMeaning {
    fn is_heap(&self, at: Address) -> bool {
        self.0.chunk_of(at).is_some()
    }

    fn name(&self, at: Address) -> String {
        match self.0.chunk_of_word(at) {
            Some(chunk) => format!("chunk[{chunk}]"),
            None => control::describe(at),
        }
    }

    fn is_bookkeeping(&self, at: Address) -> bool {
        control::is_bookkeeping(at) || self.0.chunk_of_word(at).is_some()
    }

    fn is_of_epochs(&self, at: Address) -> bool {
        control::is_of_epochs(at)
    }

    fn is_claim(&self, at: Address, word: u64) -> bool {
        control::is_claimed(at, word)
    }

    fn claims(&self, load: &dyn Fn(Address) -> u64) -> Vec<(Address, String, ThreadId)> {
        entry::claims(load)
    }
}
