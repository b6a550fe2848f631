//! `Watch`: tells the simulator what becomes of objects.

use std::cell::Cell;
use std::rc::Rc;

use super::SharedWorld;
use crate::books::allocations::ObjectType;
use farfield_words::Address;

/// A thread heap's line to the simulator's books.
pub struct Watch {
    world: SharedWorld,
    /// The thread's task that runs.
    task: Rc<Cell<u32>>,
    quarantines: bool,
}

impl Watch {
    /// The line of a heap whose thread runs `task`. `quarantines` if freed blocks are kept out of use as long as there are others.
    pub fn new(world: SharedWorld, task: Rc<Cell<u32>>, quarantines: bool) -> Self {
        Self { world, task, quarantines }
    }

    /// True if freed blocks are kept out of use as long as there are others.
    #[inline]
    pub fn quarantines(&self) -> bool {
        self.quarantines
    }

    /// A block begins its life.
    pub fn allocated(&self, thread: u32, at: Address, bytes: u64, object_type: ObjectType) {
        let mut world = self.world.lock();
        if world.has_lost_memory(thread) {
            return;
        }
        let actor = world.actor(thread, self.task.get());
        world.books.allocated(at, bytes, object_type, actor);
    }

    /// The object's memory may be used again from epoch `expires` on.
    pub fn retired(&self, thread: u32, at: Address, expires: u64) {
        let mut world = self.world.lock();
        if world.has_lost_memory(thread) {
            return;
        }
        let actor = world.actor(thread, self.task.get());
        world.books.retired(at, expires, actor);
    }

    /// A block ends its life.
    pub fn freed(&self, thread: u32, at: Address) {
        let mut world = self.world.lock();
        if world.has_lost_memory(thread) {
            return;
        }
        let actor = world.actor(thread, self.task.get());
        world.books.freed(at, actor);
    }

    /// A block of a dead process was found: it is the runtime's until it is freed.
    pub fn lost(&self, thread: u32, at: Address, bytes: u64) {
        let mut world = self.world.lock();
        let actor = world.actor(thread, self.task.get());
        world.books.lost(at, bytes, actor);
    }
}
