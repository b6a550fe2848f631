//! `Watch`: tells the simulator what becomes of objects.

use std::cell::Cell;
use std::rc::Rc;

use super::blocks::Kind;
use crate::fabric::sim::Shared;
use farfield_words::Address;

/// A thread heap's line to the simulator's books.
pub(crate) struct Watch {
    pub(crate) world: Shared,
    /// The thread's task that runs.
    pub(crate) task: Rc<Cell<u32>>,
    /// Whether freed blocks are kept out of use as long as there are others.
    pub(crate) quarantines: bool,
}

impl Watch {
    pub(crate) fn allocated(&self, thread: u32, at: Address, bytes: u64, kind: Kind) {
        let mut world = self.world.lock();
        if world.has_lost(thread) {
            return;
        }
        let who = world.who(thread, self.task.get());
        world.books.allocated(at, bytes, kind, who);
    }

    /// The object's memory may be used again from epoch `expires` on.
    pub(crate) fn retired(&self, thread: u32, at: Address, expires: u64) {
        let mut world = self.world.lock();
        if world.has_lost(thread) {
            return;
        }
        let who = world.who(thread, self.task.get());
        world.books.retired(at, expires, who);
    }

    pub(crate) fn freed(&self, thread: u32, at: Address) {
        let mut world = self.world.lock();
        if world.has_lost(thread) {
            return;
        }
        let who = world.who(thread, self.task.get());
        world.books.freed(at, who);
    }

    pub(crate) fn lost(&self, thread: u32, at: Address, bytes: u64) {
        let mut world = self.world.lock();
        let who = world.who(thread, self.task.get());
        world.books.lost(at, bytes, who);
    }
}
