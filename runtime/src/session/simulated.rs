//! The library's side of the simulator: the meaning of words, the objects of threads, the eviction of processes.

use std::cell::Cell;
use std::rc::Rc;

use farfield_sim::{self as sim, Meaning, Watch};
use farfield_words::{Address, ThreadId};

use super::Shared;
use crate::segment::grid::Grid;
use crate::segment::{control, entry, record};

impl Shared {
    /// Returns whether simulated threads do not reuse freed blocks while others are free.
    pub(crate) fn quarantines(&self) -> bool {
        self.world().is_some_and(|world| world.lock().config().reuse(self.config.seed) == sim::Reuse::Never)
    }

    /// Returns the channel through which a thread's heap reports objects to the simulator. `task` is the running task.
    pub(crate) fn watch(&self, task: &Rc<Cell<u32>>) -> Option<Watch> {
        let quarantines = self.quarantines();
        self.world().map(|world| Watch::new(world.clone(), Rc::clone(task), quarantines))
    }

    /// Evicts a dead simulated process, none of whose operations is in flight. Returns false if keepers have to evict it.
    pub(crate) fn evict_simulated(&self, identity: u32) -> bool {
        let Some(world) = self.world() else { return false };
        let world = world.lock();
        if world.config().has_keepers() {
            record::mark_simulated(identity, |at| world.peek(at), |at, word| world.poke(at, word));
            return false;
        }
        if let Some(places) = record::find(identity, |at| world.peek(at)) {
            world.poke(places.slot, 0);
            world.poke(places.record, 0);
        }
        true
    }
}

/// Names and kinds of the words of a cluster's memory.
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
