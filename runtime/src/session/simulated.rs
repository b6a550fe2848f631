//! What the simulator is told of a process.

use std::cell::Cell;
use std::rc::Rc;

use farfield_sim::{self as sim, Watch};

use super::Shared;
use crate::segment::record;

impl Shared {
    /// Whether simulated threads keep freed blocks out of use as long as there are others.
    pub(crate) fn quarantines(&self) -> bool {
        self.world().is_some_and(|world| world.lock().config().reuse(self.config.seed) == sim::Reuse::Never)
    }

    /// What a thread's heap tells the simulator through; `task` is the task that runs.
    pub(crate) fn watch(&self, task: &Rc<Cell<u32>>) -> Option<Watch> {
        let quarantines = self.quarantines();
        self.world().map(|world| Watch::new(world.clone(), Rc::clone(task), quarantines))
    }

    /// Evicts a simulated process that is gone: nothing that it has posted is still to come. Returns whether it is evicted; else
    /// survivors have to.
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
