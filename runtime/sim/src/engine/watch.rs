//! `Watch`: tells the simulator what becomes of objects.

use std::cell::Cell;
use std::rc::Rc;

use super::Shared;
use crate::books::blocks::Kind;
use farfield_words::Address;

/// A thread heap's line to the simulator's books.
pub struct Watch {
    world: Shared,
    /// The thread's task that runs.
    task: Rc<Cell<u32>>,
    quarantines: bool,
}

impl Watch {
    /// The line of a heap whose thread runs `task`. `quarantines` if freed blocks are kept out of use as long as there are others.
    pub fn new(world: Shared, task: Rc<Cell<u32>>, quarantines: bool) -> Self {
        Self { world, task, quarantines }
    }

    /// True if freed blocks are kept out of use as long as there are others.
    #[inline]
    pub fn quarantines(&self) -> bool {
        self.quarantines
    }

    /// A block begins its life.
    pub fn allocated(&self, thread: u32, at: Address, bytes: u64, kind: Kind) {
        let mut world = self.world.lock();
        if world.has_lost(thread) {
            return;
        }
        let who = world.who(thread, self.task.get());
        world.books.allocated(at, bytes, kind, who);
    }

    /// The object's memory may be used again from epoch `expires` on.
    pub fn retired(&self, thread: u32, at: Address, expires: u64) {
        let mut world = self.world.lock();
        if world.has_lost(thread) {
            return;
        }
        let who = world.who(thread, self.task.get());
        world.books.retired(at, expires, who);
    }

    /// A block ends its life.
    pub fn freed(&self, thread: u32, at: Address) {
        let mut world = self.world.lock();
        if world.has_lost(thread) {
            return;
        }
        let who = world.who(thread, self.task.get());
        world.books.freed(at, who);
    }

    /// A block of a dead process was found: it is the runtime's until it is freed.
    pub fn lost(&self, thread: u32, at: Address, bytes: u64) {
        let mut world = self.world.lock();
        let who = world.who(thread, self.task.get());
        world.books.lost(at, bytes, who);
    }
}
