//! What a handle remembers of keys, and what it counts.

use std::cell::{Cell, RefCell};

use farfield::prelude::*;

use super::directory::Known;
#[allow(clippy::wildcard_imports)] // what the map consists of
use super::layout::*;

/// The slot of a key, and what it linked to when it was last seen.
#[derive(Clone, Copy)]
pub(super) struct Hot {
    pub(super) ident: u64,
    /// The entry of the directory, and the table that it showed.
    pub(super) entry: DirectoryPlace,
    pub(super) table: Known,
    pub(super) slot: EntryPlace<'static>,
    pub(super) word: EntryWord,
    pub(super) blob: RemotePtr<Blob>,
    pub(super) tag: EntryTag,
}

/// Slots of keys that were used lately: each key has one place.
pub(super) struct HotSlots(RefCell<Vec<Option<Hot>>>);

impl HotSlots {
    /// Makes a cache of about so many bytes.
    pub(super) fn new(bytes: usize) -> Self {
        let slots = (bytes / size_of::<Option<Hot>>()).checked_ilog2().map_or(0, |bits| 1 << bits);
        Self(RefCell::new(vec![None; slots]))
    }

    #[inline]
    pub(super) fn get(&self, ident: u64) -> Option<Hot> {
        let slots = self.0.borrow();
        let index = ident as usize & slots.len().checked_sub(1)?;
        slots[index].filter(|hot| hot.ident == ident)
    }

    #[inline]
    pub(super) fn put(&self, hot: Hot) {
        let mut slots = self.0.borrow_mut();
        let Some(last) = slots.len().checked_sub(1) else { return };
        slots[hot.ident as usize & last] = Some(hot);
    }

    pub(super) fn forget(&self, ident: u64) {
        let mut slots = self.0.borrow_mut();
        let Some(last) = slots.len().checked_sub(1) else { return };
        let slot = &mut slots[ident as usize & last];
        if slot.is_some_and(|hot| hot.ident == ident) {
            *slot = None;
        }
    }
}

/// What a handle has counted.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Operations whose key's table was remembered.
    pub directory_hits: u64,
    /// Operations that read the directory.
    pub directory_misses: u64,
    /// Remembered tables that had been replaced.
    pub stale: u64,
    /// Operations that used a remembered slot.
    pub slot_hits: u64,
    /// Remembered slots that had changed.
    pub slot_misses: u64,
    /// CASes of a slot that found another value, and were repeated.
    pub retries: u64,
    /// Updates that another overtook, and were done by that.
    pub overtaken: u64,
    /// Tables that were replaced by a larger one, or by two.
    pub growths: u64,
    /// Waits for another client that replaces a table.
    pub waits: u64,
}

/// Counters that a shared handle can count up.
#[derive(Default)]
pub(super) struct Counting(Cell<Counters>);

impl Counting {
    #[inline]
    pub(super) fn count(&self, add: impl FnOnce(&mut Counters)) {
        let mut counters = self.0.get();
        add(&mut counters);
        self.0.set(counters);
    }

    pub(super) fn get(&self) -> Counters {
        self.0.get()
    }
}
