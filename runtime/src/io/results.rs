//! Places for what the operations of a chain bring.
//!
//! A place for results is shared, by reference count, between the chain and every pending result. The thread keeps all that
//! it ever made; one that no chain and no result refers to is used again, so there is no allocation once the thread has warmed up.

use std::cell::{Cell, Ref, RefCell};
use std::rc::Rc;

use farfield_fabric::chain::{Chain, Slot};
use farfield_words::{Address, Block};

use super::acquisition::Acquisition;
use super::compensation::Exchange;
use super::detached::Releases;
use super::posting::{Operations, Thread};
use crate::error::{self, Error, Result};

/// Where a result will be.
pub(crate) struct Found {
    pub(crate) part: usize,
    pub(crate) slot: Slot,
    pub(crate) at: Address,
}

/// Where a chain's results are kept.
#[derive(Default)]
pub(crate) struct Results {
    /// Operations on one memory node each; after they are done with what they brought.
    pub(crate) parts: RefCell<Vec<Chain>>,
    /// How many of them are posted, and how many are done.
    pub(crate) posted: Cell<usize>,
    pub(crate) done: Cell<usize>,
    /// Locks that nobody looks for any more, of parts that were not posted: for each its part, and what gives it back.
    pub(crate) abandoned: RefCell<Vec<(usize, Exchange)>>,
    /// The locks that its operations release: their guards' again if it is dropped before it is done.
    pub(crate) releases: RefCell<Vec<Acquisition>>,
    /// Whether the chain is in flight and nobody waits: its locks are looked after with its completion.
    pub(crate) is_detached: Cell<bool>,
    /// A lock that it takes twice.
    pub(crate) taken_twice: Cell<Option<Address>>,
    /// The blocks of objects that it publishes: free again if it is dropped before it is submitted.
    pub(crate) publishes: RefCell<Vec<Block>>,
}

/// All of a thread's places for results. One that nobody else refers to is free.
#[derive(Default)]
pub(crate) struct ResultsPool {
    all: RefCell<Vec<Rc<Results>>>,
    /// Where to look first.
    next: Cell<usize>,
}

impl ResultsPool {
    /// A free one.
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
                    exchange.is_over(ct);
                }
                // A chain leaves no release and no block behind.
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
    /// Part `index` of `count` is posted, or about to be.
    pub(crate) fn are_posted<T: Thread>(&self, ct: &T, index: usize, count: usize) {
        // From the first part on its objects may be visible: a link in it may hold one that a later part writes.
        self.publishes.borrow_mut().clear();
        self.posted.set(index + 1);
        if index + 1 == count {
            self.releases.borrow_mut().iter_mut().for_each(|parts| parts.may_be_released(ct));
        }
    }

    /// The words of a result.
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
    /// The locks that the chain releases are released. (Otherwise their guards do it.)
    fn locks_are_released(&self, ct: &T) {
        for parts in self.releases.borrow_mut().drain(..) {
            parts.settle(ct);
        }
    }

    /// The chain has not released its locks, as far as is known.
    fn release_locks(&self, ct: &T) {
        loop {
            let Some(parts) = self.releases.borrow_mut().pop() else { return };
            parts.end(ct);
        }
    }
}
