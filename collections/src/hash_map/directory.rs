//! The directory: which table has a key, as far as it is known. The same for tables of links and for tables of values.

use std::cell::{Cell, RefCell};
use std::fmt;

use farfield::prelude::*;
use farfield::{PinnedEpoch, Remote};

use super::counters::Counting;
#[allow(clippy::wildcard_imports)] // what the map consists of
use super::layout::*;

/// A table to which a directory links.
pub(super) trait Split: Remote {
    /// Returns the link to the table with the other half of the keys, if a split made both.
    fn sibling(table: Shared<'_, Self>) -> Place<'_, TaggedLink<Self, TableTag>>;
}

impl Split for Table {
    fn sibling(table: Shared<'_, Self>) -> Place<'_, TaggedLink<Self, TableTag>> {
        table.sibling()
    }
}

/// A table, as an entry of the directory showed it.
pub(super) struct Known<T = Table> {
    pub(super) table: RemotePtr<T>,
    tag: TableTag,
}

impl<T> Clone for Known<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Known<T> {}

impl<T> PartialEq for Known<T> {
    fn eq(&self, other: &Self) -> bool {
        (self.table, self.tag) == (other.table, other.tag)
    }
}

impl<T> fmt::Debug for Known<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Known").field("table", &self.table).field("tag", &self.tag).finish()
    }
}

impl<T: Remote> Known<T> {
    pub(super) fn of(link: TableLink<'_, T>) -> Self {
        Self { table: link.shared().as_ptr(), tag: link.tag().with_growing(false) }
    }

    pub(super) fn depth(self) -> u32 {
        u32::from(self.tag.depth())
    }

    pub(super) fn scale(self) -> u8 {
        self.tag.scale()
    }

    /// Returns the word of the directory's entry.
    pub(super) fn word(self, growing: bool) -> Result<TableWord<T>> {
        TableWord::new(self.table, self.tag.with_growing(growing))
    }

    /// Returns whether the entry shows the table still.
    pub(super) fn is(self, link: TableLink<'_, T>) -> bool {
        self == Self::of(link)
    }
}

/// A remembered table, and the epoch of the guard under which its entry showed it last.
struct Remembered<T> {
    known: Known<T>,
    epoch: PinnedEpoch,
}

/// The remembered table of a key.
pub(super) struct Found<T = Table> {
    pub(super) index: u64,
    pub(super) known: Known<T>,
    /// True if the guard protects the table, because its entry has shown it in the guard's epoch. Else its memory may have been freed.
    pub(super) is_protected: bool,
}

/// The directory of a shard, as far as it is known. An entry may be outdated, which a client finds out by reading it in the same chain; or from the
/// table itself, if the guard protects that.
pub(super) struct Directory<T: Remote = Table> {
    pub(super) shard: RemotePtr<Shard<T>>,
    levels: RefCell<Vec<RemotePtr<Level<T>>>>,
    tables: RefCell<Vec<Option<Remembered<T>>>>,
    /// The most tables to remember.
    bound: usize,
    /// Entries that were met since the directory was read as a whole, and were outdated or unknown.
    outdated: Cell<u32>,
}

/// So many such entries make a handle read the directory as a whole again: others may be outdated, too.
const MOST_OUTDATED: u32 = 4;

impl<T: Split> Directory<T> {
    /// The bytes of a remembered table.
    pub(super) const TABLE_BYTES: usize = size_of::<Option<Remembered<T>>>();

    pub(super) fn new(shard: RemotePtr<Shard<T>>, bound: usize) -> Self {
        Self {
            shard,
            levels: RefCell::default(),
            tables: RefCell::default(),
            bound,
            outdated: Cell::default(),
        }
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

    /// Frees the levels of a map that nobody uses any more.
    pub(super) async fn delete_levels(&self, ct: &ComputeThread) -> Result<()> {
        let g = &ct.pin();
        for level in 0..LEVELS {
            let level = self.shard.levels().at(level).load(g).await?;
            if level.is_null() {
                break;
            }
            ct.delete(level).await?;
        }
        Ok(())
    }

    /// Returns the place of an entry, if its level is known.
    pub(super) fn entry(&self, index: u64) -> Option<DirectoryPlace<T>> {
        if index < BASE as u64 {
            return Some(self.shard.base().at(index as usize));
        }
        let level = index.ilog2() - BASE_BITS;
        let entries = self.levels.borrow().get(level as usize)?.entries();
        Some(entries.at(index - ((BASE as u64) << level)))
    }

    /// Returns the entries that may be a key's, the deepest first, as far as their levels are known.
    pub(super) fn path(&self, ident: u64) -> Vec<(u64, DirectoryPlace<T>)> {
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

    // ANCHOR: find
    /// Returns the table of a key as it was last seen.
    #[inline]
    pub(super) fn find(&self, ident: u64, g: &Guard<'_>) -> Option<Found<T>> {
        let mut index = self.longest(ident);
        let tables = self.tables.borrow();
        loop {
            if let Some(Some(Remembered { known, epoch })) = tables.get(index as usize) {
                let (known, is_protected) = (*known, *epoch == g.epoch());
                return (ident & mask(known.depth()) == index).then_some(Found {
                    index,
                    known,
                    is_protected,
                });
            }
            index ^= 1 << index.checked_ilog2()?;
        }
    }
    // ANCHOR_END: find

    /// An entry was outdated, and links to another table now.
    pub(super) async fn meets_outdated(
        &self,
        index: u64,
        link: TableLink<'_, T>,
        counting: &Counting,
        g: &Guard<'_>,
    ) -> Result<()> {
        counting.count(|counters| counters.stale += 1);
        self.learn(index, link, g);
        self.outdated.set(self.outdated.get() + 1);
        if self.outdated.get() > MOST_OUTDATED && self.can_load_whole() {
            self.load_whole(g).await?;
        }
        Ok(())
    }

    /// Remembers the table that an entry showed under a guard.
    #[inline]
    pub(super) fn learn(&self, index: u64, link: TableLink<'_, T>, g: &Guard<'_>) {
        let index = index as usize;
        if index >= self.bound || link.is_null() {
            return;
        }
        let mut tables = self.tables.borrow_mut();
        if index >= tables.len() {
            tables.resize_with(index + 1, || None);
        }
        tables[index] = Some(Remembered { known: Known::of(link), epoch: g.epoch() });
    }

    /// Forgets a table.
    pub(super) fn forget(&self, index: u64) {
        if let Some(known) = self.tables.borrow_mut().get_mut(index as usize) {
            *known = None;
        }
    }

    /// Returns whether the directory is small enough to be read, and remembered, as a whole.
    fn can_load_whole(&self) -> bool {
        self.bits() <= WHOLE_BITS && 1 << self.bits() <= self.bound
    }

    /// Reads all entries. One round trip.
    async fn load_whole(&self, g: &Guard<'_>) -> Result<()> {
        self.outdated.set(0);
        let blocks = (0..1 << (self.bits() - BASE_BITS)).filter_map(|block| self.entry(block * BASE as u64));
        let reads = blocks.map(|first| op::read(RemotePtr::<Entries<T>>::from_address(first.address())));
        let blocks = g.chain(reads.collect::<Vec<_>>()).submit().await?;
        for (index, link) in blocks.into_iter().flat_map(|block| block.entries).enumerate() {
            self.learn(index as u64, link, g);
        }
        Ok(())
    }

    /// Reads the entries of the directory that may be a key's. Returns its table, which the guard protects. One round trip, unless a split is to
    /// be finished, or the directory has grown.
    #[cold]
    pub(super) async fn load_path(&self, ident: u64, counting: &Counting, g: &Guard<'_>) -> Result<Found<T>> {
        counting.count(|counters| counters.directory_misses += 1);
        let mut backoff = g.backoff();
        self.outdated.set(self.outdated.get() + 1);
        let is_unknown = self.tables.borrow().is_empty() || self.outdated.get() > MOST_OUTDATED;
        if is_unknown && self.can_load_whole() {
            self.load_whole(g).await?;
            if let Some(found) = self.find(ident, g) {
                return Ok(found);
            }
        }
        loop {
            let path = self.path(ident);
            let links: Vec<_> = path.iter().map(|&(_, entry)| op::load(entry)).collect();
            let links = g.chain(links).submit().await?;
            for (&(index, _), link) in path.iter().zip(&links) {
                self.learn(index, *link, g);
            }
            let mut tables = path.iter().zip(links).filter(|(_, link)| !link.is_null());
            let Some((&(index, _), link)) = tables.next() else { return Err(not_a_map(self)) };
            let known = Known::of(link);
            let other = (ident & mask(known.depth())) ^ index;
            if other == 0 {
                return Ok(Found { index, known, is_protected: true });
            }
            // The key's table is that of a longer index, which differs in this bit.
            let bit = other.trailing_zeros();
            if bit >= self.bits() {
                self.load_levels(g).await?;
            } else if bit + 1 == known.depth() {
                self.finish_split(index, known.depth(), link.shared(), g).await?;
                continue;
            }
            backoff.wait().await;
        }
    }

    /// Makes the second table of a split reachable by its own entry of the directory.
    pub(super) async fn finish_split(
        &self,
        index: u64,
        depth: u32,
        table: Shared<'_, T>,
        g: &Guard<'_>,
    ) -> Result<()> {
        let Some(bit) = depth.checked_sub(1) else { return Ok(()) };
        let sibling = T::sibling(table).load(g).await?;
        if sibling.is_null() {
            return Ok(());
        }
        let entry = self.entry_for(index | 1 << bit, g).await?;
        let set = op::compare_exchange_link(entry, TableWord::NULL, TableWord::from(sibling));
        // Else the first table would keep the second, and all of its entries, from being collected if the client that replaces the second dies.
        let _ = g.chain((set, op::store(T::sibling(table), TableWord::NULL))).submit().await?;
        Ok(())
    }

    /// Returns the place of an entry of the directory, whose level is made if need be.
    pub(super) async fn entry_for(&self, index: u64, g: &Guard<'_>) -> Result<DirectoryPlace<T>> {
        loop {
            if let Some(entry) = self.entry(index) {
                return Ok(entry);
            }
            self.load_levels(g).await?;
            if self.entry(index).is_none() {
                let level = self.bits() - BASE_BITS;
                let entries = vec![TableWord::NULL; BASE << level];
                let new = Level::new_in(g.near(self.shard), Level::init(entries)).await?;
                let _ =
                    self.shard.levels().at(level as usize).compare_exchange(g, RemotePtr::NULL, new).await?;
            }
        }
    }
}

/// A position between two tables in the order of reversed hashes. In this order the halves of a split are where the table was, one after the
/// other: a walk visits each hash once, whatever is split meanwhile.
#[derive(Clone, Copy, Default)]
pub(super) struct Cursor {
    shard: usize,
    pub(super) reversed: u64,
}

impl Cursor {
    /// Returns the next table, with its shard and its index, and moves the cursor behind it. `None` at the end.
    pub(super) async fn next<'g, T: Split>(
        &mut self,
        directories: &[Directory<T>],
        counting: &Counting,
        g: &'g Guard<'_>,
    ) -> Result<Option<(usize, u64, Known<T>, Shared<'g, T>)>> {
        let shard = self.shard;
        let Some(directory) = directories.get(shard) else { return Ok(None) };
        // The directory is read anew, so that the guard protects the table.
        let Found { index, known, .. } =
            directory.load_path(self.reversed.reverse_bits(), counting, g).await?;
        let step = 1_u64.checked_shl(u64::BITS - known.depth()).unwrap_or(0);
        match self.reversed.checked_add(step) {
            Some(next) if step > 0 => self.reversed = next,
            _ => *self = Self { shard: shard + 1, reversed: 0 },
        }
        Ok(Some((shard, index, known, known.table.shared(g))))
    }
}

#[cold]
pub(super) fn not_a_map<T: Remote>(directory: &Directory<T>) -> farfield::Error {
    farfield::Error::other(format!(
        "the map at {:?} is destroyed or corrupted: its directory has no table",
        directory.shard
    ))
}
