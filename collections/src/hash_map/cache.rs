//! What a handle remembers: the directory, and the slots of some keys.

use std::cell::{Cell, RefCell};

use farfield::prelude::*;

#[allow(clippy::wildcard_imports)] // what the map consists of
use super::layout::*;

/// A table, as an entry of the directory showed it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Known {
    pub(super) table: RemotePtr<Table>,
    tag: TableTag,
}

impl Known {
    pub(super) fn of(link: TableLink<'_>) -> Self {
        Self { table: link.shared().as_ptr(), tag: link.tag().with_growing(false) }
    }

    pub(super) fn depth(self) -> u32 {
        u32::from(self.tag.depth())
    }

    pub(super) fn scale(self) -> u8 {
        self.tag.scale()
    }

    /// Returns the word of the directory's entry.
    pub(super) fn word(self, growing: bool) -> Result<TableWord> {
        TableWord::new(self.table, self.tag.with_growing(growing))
    }

    /// Returns whether the entry shows the table still.
    pub(super) fn is(self, link: TableLink<'_>) -> bool {
        self == Self::of(link)
    }
}

/// The directory of a shard, as far as it is known. An entry may be outdated, which whoever uses it finds out by reading it in the same chain.
pub(super) struct Directory {
    pub(super) shard: RemotePtr<Shard>,
    levels: RefCell<Vec<RemotePtr<Level>>>,
    tables: RefCell<Vec<Option<Known>>>,
    /// The most tables to remember.
    bound: usize,
}

impl Directory {
    pub(super) fn new(shard: RemotePtr<Shard>, bound: usize) -> Self {
        Self { shard, levels: RefCell::default(), tables: RefCell::default(), bound }
    }

    /// Sets the most tables to remember.
    pub(super) fn set_bound(&mut self, bound: usize) {
        self.bound = bound;
        self.tables.get_mut().truncate(bound);
    }

    /// Returns the number of bits of the indices whose entries can be accessed.
    pub(super) fn bits(&self) -> u32 {
        BASE_BITS + self.levels.borrow().len() as u32
    }

    /// Reads which levels there are. One READ.
    pub(super) async fn load_levels(&self, g: &Guard<'_>) -> Result<()> {
        let levels =
            g.chain((0..LEVELS).map(|level| op::load(self.shard.levels().at(level))).collect::<Vec<_>>());
        let levels = levels.submit().await?;
        *self.levels.borrow_mut() =
            levels.into_iter().take_while(|level| !level.is_null()).map(|level| level.as_ptr()).collect();
        Ok(())
    }

    /// Returns the place of an entry, if its level is known.
    pub(super) fn entry(&self, index: u64) -> Option<DirectoryPlace> {
        if index < BASE as u64 {
            return Some(self.shard.base().at(index as usize));
        }
        let level = index.ilog2() - BASE_BITS;
        let entries = self.levels.borrow().get(level as usize)?.entries();
        Some(entries.at(index - ((BASE as u64) << level)))
    }

    /// Returns the entries that may be a key's, the deepest first, as far as their levels are known.
    pub(super) fn path(&self, ident: u64) -> Vec<(u64, DirectoryPlace)> {
        let mut path = Vec::new();
        let mut index = ident & mask(self.bits());
        loop {
            path.extend(self.entry(index).map(|entry| (index, entry)));
            if index == 0 {
                return path;
            }
            index ^= 1 << index.ilog2();
        }
    }

    /// Returns the longest index of a key whose table may be known.
    #[inline]
    pub(super) fn longest(&self, ident: u64) -> u64 {
        let last = self.tables.borrow().len().saturating_sub(1);
        ident & mask(last.checked_ilog2().map_or(0, |bits| bits + 1))
    }

    /// Returns the table of a key as it was last seen, with its index.
    #[inline]
    pub(super) fn find(&self, ident: u64) -> Option<(u64, Known)> {
        let mut index = self.longest(ident);
        let tables = self.tables.borrow();
        loop {
            if let Some(known) = tables.get(index as usize).copied().flatten() {
                return (ident & mask(known.depth()) == index).then_some((index, known));
            }
            index ^= 1 << index.checked_ilog2()?;
        }
    }

    /// Remembers a table.
    pub(super) fn learn(&self, index: u64, link: TableLink<'_>) {
        let index = index as usize;
        if index >= self.bound || link.is_null() {
            return;
        }
        let mut tables = self.tables.borrow_mut();
        if index >= tables.len() {
            tables.resize(index + 1, None);
        }
        tables[index] = Some(Known::of(link));
    }

    /// Forgets a table.
    pub(super) fn forget(&self, index: u64) {
        if let Some(known) = self.tables.borrow_mut().get_mut(index as usize) {
            *known = None;
        }
    }
}

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
