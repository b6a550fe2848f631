//! `Watch`: reports the allocation, retirement and freeing of objects to the simulator.

use std::cell::Cell;
use std::rc::Rc;

use super::SharedWorld;
use crate::books::allocations::ObjectType;
use farfield_words::Address;

/// A thread heap's access to the simulator's books.
pub struct Watch {
    world: SharedWorld,
    /// The thread's running task.
    task: Rc<Cell<u32>>,
    quarantines: bool,
}

impl Watch {
    /// Makes the access of a heap whose thread runs `task`. `quarantines` is true if freed blocks are not reused while other memory is available.
    pub fn new(world: SharedWorld, task: Rc<Cell<u32>>, quarantines: bool) -> Self {
        Self { world, task, quarantines }
    }

    /// Returns whether freed blocks are not reused while other memory is available.
    #[inline]
    pub fn quarantines(&self) -> bool {
        self.quarantines
    }

    /// Records that a block was allocated.
    pub fn allocated(&self, thread: u32, at: Address, bytes: u64, object_type: ObjectType) {
        let mut world = self.world.lock();
        if world.has_lost_memory(thread) {
            return;
        }
        let actor = world.actor(thread, self.task.get());
        world.books.allocated(at, bytes, object_type, actor);
    }

    /// Records that an object was retired: its memory may be reused from epoch `expires` on.
    pub fn retired(&self, thread: u32, at: Address, expires: u64) {
        let mut world = self.world.lock();
        if world.has_lost_memory(thread) {
            return;
        }
        let actor = world.actor(thread, self.task.get());
        world.books.retired(at, expires, actor);
    }

    /// Records that a block was freed.
    pub fn freed(&self, thread: u32, at: Address) {
        let mut world = self.world.lock();
        if world.has_lost_memory(thread) {
            return;
        }
        let actor = world.actor(thread, self.task.get());
        world.unhost_block(at);
        world.books.freed(at, actor);
    }

    /// Records a found block of a dead process: it belongs to the runtime until it is freed.
    pub fn lost(&self, thread: u32, at: Address, bytes: u64) {
        let mut world = self.world.lock();
        let actor = world.actor(thread, self.task.get());
        world.unhost_block(at);
        world.books.lost(at, bytes, actor);
    }
}
