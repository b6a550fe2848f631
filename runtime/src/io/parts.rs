//! Parts: the chains of several operations, one for each change of memory node.
//!
//! Only a connection to one memory node keeps program order, so operations on several nodes are posted as several chains, one after the other. A
//! thread keeps the buffers of parts, so that a warm thread allocates nothing.

use std::cell::RefCell;
use std::rc::Rc;

use farfield_fabric::chain::{Op, RawChain, Slot};
use farfield_words::Address;

use super::acquisition::Acquisition;
use super::detached::Releases;
use super::posting::{Operations, Thread};

/// A thread's buffers for chains of several operations.
#[derive(Default)]
pub(crate) struct ChainBuffers {
    parts: RefCell<Vec<Vec<RawChain>>>,
    /// The lists of locks that detached chains release. A list is free if only the pool refers to it.
    releases: RefCell<Vec<Rc<ReleasedLocks>>>,
}

/// The parts of a chain: recorded, or completed.
pub(crate) struct Parts<'a, T: Thread> {
    ct: &'a T,
    buffers: &'a ChainBuffers,
    pub(crate) chains: Vec<RawChain>,
}

impl ChainBuffers {
    /// Returns the parts of a chain, without operations.
    pub(crate) fn parts<'a, T: Thread>(&'a self, ct: &'a T) -> Parts<'a, T> {
        let chains = self.parts.borrow_mut().pop().unwrap_or_default();
        Parts { ct, buffers: self, chains }
    }

    /// Returns an empty list of locks.
    pub(crate) fn releases(&self) -> Rc<ReleasedLocks> {
        let mut all = self.releases.borrow_mut();
        if let Some(free) = all.iter().find(|list| Rc::strong_count(list) == 1) {
            return Rc::clone(free);
        }
        let list = Rc::new(ReleasedLocks::default());
        all.push(Rc::clone(&list));
        list
    }
}

impl<T: Thread> Parts<'_, T> {
    /// Adds an operation at `at` to the last part, or to a new part if the memory node changes.
    pub(crate) fn add(&mut self, at: Address, add: impl FnOnce(&mut RawChain)) {
        let node = |chain: &RawChain| chain.ops().first().map(|first| self.ct.node_of(first.at()));
        if self.chains.last().and_then(node) != Some(self.ct.node_of(at)) {
            self.chains.push(self.ct.empty_chain());
        }
        add(self.chains.last_mut().expect("just added"));
    }

    /// Returns the results of the completed parts, in the order of the operations.
    pub(crate) fn results(&self) -> CompletedOperations<'_> {
        CompletedOperations { chains: &self.chains, next: 0 }
    }
}

impl<T: Thread> Drop for Parts<'_, T> {
    fn drop(&mut self) {
        let mut chains = std::mem::take(&mut self.chains);
        chains.drain(..).for_each(|chain| self.ct.recycle(chain));
        self.buffers.parts.borrow_mut().push(chains);
    }
}

/// The results of completed operations.
pub(crate) struct CompletedOperations<'a> {
    chains: &'a [RawChain],
    next: usize,
}

impl<'a> CompletedOperations<'a> {
    /// Returns the words of the next operation's result.
    pub(crate) fn next(&mut self) -> &'a [u64] {
        while self.chains[0].ops().len() == self.next {
            (self.chains, self.next) = (&self.chains[1..], 0);
        }
        let chain = &self.chains[0];
        let slot = match &chain.ops()[self.next] {
            Op::Read { slot, .. } | Op::Write { slot, .. } => *slot,
            Op::CompareExchange { slot, .. } | Op::FetchAdd { slot, .. } => Slot::of_word(*slot),
        };
        self.next += 1;
        chain.words(slot)
    }
}

/// The locks that a detached chain releases.
#[derive(Default)]
pub(crate) struct ReleasedLocks(RefCell<Vec<Acquisition>>);

impl ReleasedLocks {
    /// Adds a lock.
    pub(crate) fn add(&self, lock: Acquisition) {
        self.0.borrow_mut().push(lock);
    }
}

impl<T: Thread> Releases<T> for ReleasedLocks {
    /// The chain has released its locks.
    fn locks_are_released(&self, ct: &T) {
        self.0.borrow_mut().drain(..).for_each(|lock| lock.settle(ct));
    }

    /// The chain has failed: its locks may be held still. Releases them by exchanges.
    fn release_locks(&self, ct: &T) {
        loop {
            let Some(lock) = self.0.borrow_mut().pop() else { return };
            lock.end(ct);
        }
    }
}
