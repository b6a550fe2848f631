//! `Watch`: tells the simulator what becomes of objects.

use super::blocks::Kind;
use crate::fabric::sim::Shared;
use crate::pointer::Address;

/// A thread heap's line to the simulator's books.
#[derive(Clone)]
pub(crate) struct Watch(pub(crate) Shared);

impl Watch {
    pub(crate) fn allocated(&self, thread: u32, at: Address, bytes: u64, kind: Kind) {
        let mut world = self.0.lock();
        let who = world.who(thread, 0);
        world.books.allocated(at, bytes, kind, who);
    }

    pub(crate) fn retired(&self, thread: u32, at: Address) {
        let mut world = self.0.lock();
        let who = world.who(thread, 0);
        world.books.retired(at, who);
    }

    pub(crate) fn freed(&self, thread: u32, at: Address) {
        let mut world = self.0.lock();
        let who = world.who(thread, 0);
        world.books.freed(at, who);
    }
}
