//! Buffers for the results of a chain's operations.
//!
//! A buffer is shared, by reference count, between the chain and every pending result. The thread keeps all buffers that it has made, and reuses
//! one that no chain and no result refers to. So a thread that has warmed up allocates nothing.

use std::cell::{Cell, Ref, RefCell};
use std::rc::Rc;

use farfield_fabric::chain::{RawChain, Slot};
use farfield_words::{Address, Block};

use super::acquisition::Acquisition;
use super::compensation::Exchange;
use super::detached::Releases;
use super::posting::{Operations, Thread};
use crate::error::{self, Error, Result};

/// The position of a pending result.
pub(crate) struct Found {
    pub(crate) part: usize,
    pub(crate) slot: Slot,
    pub(crate) at: Address,
}

/// The results of a chain.
#[derive(Default)]
pub(crate) struct Results {
    /// Its parts, each for one memory node; completed parts hold their results.
    pub(crate) parts: RefCell<Vec<RawChain>>,
    /// The number of posted parts, and of completed ones.
    pub(crate) posted: Cell<usize>,
    pub(crate) done: Cell<usize>,
    /// Lock attempts of parts that are not posted yet and whose guards were dropped: the part, and the exchange that releases the lock.
    pub(crate) abandoned: RefCell<Vec<(usize, Exchange)>>,
    /// The locks that its operations release. If the chain is dropped before it completes, each is released by an exchange of its own.
    pub(crate) releases: RefCell<Vec<Acquisition>>,
    /// True if the chain is in flight and detached: its completion settles its locks.
    pub(crate) is_detached: Cell<bool>,
    /// A lock that it takes twice.
    pub(crate) taken_twice: Cell<Option<Address>>,
    /// The blocks of objects that it publishes. They are freed if the chain is dropped before it is submitted.
    pub(crate) publishes: RefCell<Vec<Block>>,
}

/// All result buffers of a thread. A buffer is free if only the pool refers to it.
#[derive(Default)]
pub(crate) struct ResultsPool {
    all: RefCell<Vec<Rc<Results>>>,
    /// The index at which the search for a free buffer begins.
    next: Cell<usize>,
}

impl ResultsPool {
    /// Returns a free buffer.
    pub(crate) fn take<T: Thread>(&self, ct: &T) -> Rc<Results> {
        let mut all = self.all.borrow_mut();
        let start = self.next.get();
        for offset in 0..all.len() {
            let index = (start + offset) % all.len();
            if Rc::strong_count(&all[index]) == 1 {
                self.next.set(index + 1);
                let results = Rc::clone(&all[index]);
                for part in results.parts.borrow_mut().drain(..) {
                    ct.recycle(part);
                }
                results.posted.set(0);
                results.done.set(0);
                results.is_detached.set(false);
                results.taken_twice.set(None);
                for (_, exchange) in results.abandoned.borrow_mut().drain(..) {
                    exchange.settle(ct);
                }
                // A chain settles its releases and blocks before its buffer is free.
                debug_assert!(results.releases.borrow().is_empty() && results.publishes.borrow().is_empty());
                return results;
            }
        }
        let results = Rc::new(Results::default());
        all.push(Rc::clone(&results));
        results
    }
}

impl Results {
    /// Called before part `index` of `count` is posted.
    pub(crate) fn are_posted<T: Thread>(&self, ct: &T, index: usize, count: usize) {
        // From the first part on, the objects may be reachable: a link in it may point to an object of a later part.
        self.publishes.borrow_mut().clear();
        self.posted.set(index + 1);
        if index + 1 == count {
            self.releases.borrow_mut().iter_mut().for_each(|parts| parts.may_be_released(ct));
        }
    }

    /// Returns the words of a result.
    pub(crate) fn words(&self, found: &Found) -> Result<Ref<'_, [u64]>> {
        if self.done.get() <= found.part {
            return Err(Error::from(error::InvalidArgument {
                argument: "pending result",
                value: format!("of an operation at {}", found.at).into(),
                reason: "its chain has not been submitted, or has failed",
            }));
        }
        Ok(Ref::map(self.parts.borrow(), |parts| parts[found.part].words(&found.slot)))
    }
}

impl<T: Thread> Releases<T> for Results {
    /// The chain has released its locks. (Otherwise their guards release them.)
    fn locks_are_released(&self, ct: &T) {
        for parts in self.releases.borrow_mut().drain(..) {
            parts.settle(ct);
        }
    }

    /// The chain has failed: its locks may be held still. Releases them by exchanges.
    fn release_locks(&self, ct: &T) {
        loop {
            let Some(parts) = self.releases.borrow_mut().pop() else { return };
            parts.end(ct);
        }
    }
}
