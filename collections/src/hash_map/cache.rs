//! What a handle remembers of keys.

use std::cell::RefCell;

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
