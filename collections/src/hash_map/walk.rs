//! Walks over all tables of a map: iteration, counting, checking, recovery, destruction.

use std::collections::HashSet;
use std::collections::VecDeque;

use farfield::prelude::*;
use farfield::{Bytes, Error};

use super::directory::{Cursor, Known};
#[allow(clippy::wildcard_imports)] // what the map consists of
use super::layout::*;
use super::table::Tables;
use crate::entry::{not_an_entry, split_entry};

impl Tables {
    /// Returns the next table, with its shard and its index, and moves the cursor behind it. `None` at the end.
    pub(super) async fn next_table<'g>(
        &self,
        cursor: &mut Cursor,
        g: &'g Guard<'_>,
    ) -> Result<Option<(usize, u64, Known, Shared<'g, Table>)>> {
        cursor.next(&self.directories, &self.counting, g).await
    }
}

/// The keys of a map and their values: see [`HashMap::iter`](super::HashMap::iter).
pub struct Iter<'a, K: Bytes, V: Bytes> {
    tables: &'a Tables,
    ct: &'a ComputeThread,
    cursor: Cursor,
    ready: VecDeque<(K, V)>,
}

impl<'a, K: Bytes, V: Bytes> Iter<'a, K, V> {
    pub(super) fn new(tables: &'a Tables, ct: &'a ComputeThread) -> Self {
        Self { tables, ct, cursor: Cursor::default(), ready: VecDeque::new() }
    }

    /// Returns the next key and its value. Three round trips for each table of at most 248 keys. If the future is dropped, no key is lost.
    ///
    /// # Errors
    /// Those of a READ.
    pub async fn next(&mut self) -> Result<Option<(K, V)>> {
        while self.ready.is_empty() {
            let g = &self.ct.pin();
            let mut cursor = self.cursor;
            let Some((_, _, known, table)) = self.tables.next_table(&mut cursor, g).await? else {
                return Ok(None);
            };
            let read = table.buckets().read(g, 0..buckets(known.scale())).await?;
            let links = links(&read);
            let mut reads = Vec::new();
            for link in links {
                reads.push(op::read_bytes_with(link.shared(), class(link)?, |bytes| {
                    let (key, value) = split_entry::<K>(bytes)?;
                    Some((K::from_bytes(key)?, V::from_bytes(value)?))
                }));
            }
            let entries = g.chain(reads).submit().await?;
            let entries: Option<VecDeque<_>> = entries.into_iter().collect();
            self.ready = entries.ok_or_else(not_an_entry)?;
            self.cursor = cursor;
        }
        Ok(self.ready.pop_front())
    }
}

impl Tables {
    /// Counts the keys.
    pub(super) async fn len(&self, ct: &ComputeThread) -> Result<u64> {
        let (mut cursor, mut len) = (Cursor::default(), 0);
        loop {
            let g = &ct.pin();
            let Some((_, _, known, table)) = self.next_table(&mut cursor, g).await? else {
                return Ok(len);
            };
            let read = table.buckets().read(g, 0..buckets(known.scale())).await?;
            len += links(&read).count() as u64;
        }
    }

    /// Checks the invariants of a map that nobody changes. Returns the number of keys.
    pub(super) async fn check<K: Bytes, V: Bytes>(&self, ct: &ComputeThread) -> Result<u64> {
        let (mut cursor, mut len) = (Cursor::default(), 0);
        loop {
            let g = &ct.pin();
            let Some((shard, index, known, table)) = self.next_table(&mut cursor, g).await? else {
                return Ok(len);
            };
            let directory = &self.directories[shard];
            let fault =
                |what: String| Error::other(format!("{table:?}, table {index} of shard {shard}: {what}"));
            let Some(entry) = directory.entry(index) else { return Err(fault("it has no entry".into())) };
            if entry.load(g).await?.tag().growing() {
                return Err(fault("it is being replaced".into()));
            }
            if index >> known.depth() != 0 {
                return Err(fault(format!("it has depth {}", known.depth())));
            }
            let read = table.buckets().read(g, 0..buckets(known.scale())).await?;
            let slots: Vec<_> =
                read.iter().flat_map(|bucket| &bucket.slots).map(|slot| (slot.ident, slot.link)).collect();
            let mut idents = HashSet::new();
            for (slot, &(ident, link)) in slots.iter().enumerate() {
                let fault = |what: &str| Err(fault(format!("slot {slot} of {ident:#x} {what}: {link:?}")));
                if ident == FROZEN || link.tag().frozen() {
                    return fault("is frozen");
                }
                if ident == VACANT {
                    if !link.is_null() {
                        return fault("is vacant, and has a link");
                    }
                    continue;
                }
                if !idents.insert(ident) {
                    return fault("is a second one");
                }
                let home = home(ident, known.scale()) as usize * SLOTS;
                if ident & mask(known.depth()) != index || !(home..home + WINDOW).contains(&slot) {
                    return fault("is outside of its window");
                }
                if slots[home..slot].iter().any(|(ident, _)| *ident == VACANT) {
                    return fault("is behind a vacant one");
                }
                if link.is_null() {
                    continue;
                }
                len += 1;
                let class = class(link)?;
                let seen = link.shared().read_bytes_with(class, g, |bytes| {
                    let (key, value) = split_entry::<K>(bytes)?;
                    K::from_bytes(key)?;
                    V::from_bytes(value)?;
                    Some((self.hash(key), SizeClass::of(bytes.len())))
                });
                match seen.await? {
                    None => return fault("has no key and value"),
                    Some((hash, _)) if hash != (Hash { ident, check: link.tag().check() }) => {
                        return fault("has another key");
                    }
                    Some((_, of_bytes)) if of_bytes != Some(class) => return fault("has another size"),
                    Some(_) => {}
                }
            }
        }
    }

    /// Finishes the replacement of tables that dead clients have left.
    pub(super) async fn recover(&self, ct: &ComputeThread) -> Result<()> {
        let mut cursor = Cursor::default();
        loop {
            let g = &ct.pin();
            let before = cursor;
            let Some((shard, index, known, table)) = self.next_table(&mut cursor, g).await? else {
                return Ok(());
            };
            let directory = &self.directories[shard];
            let Some(entry) = directory.entry(index) else { continue };
            let is_growing = entry.load(g).await?.tag().growing();
            let read = table.buckets().read(g, 0..buckets(known.scale())).await?;
            let is_frozen = |bucket: &BucketSnapshot<'_>| {
                bucket.slots.iter().any(|slot| slot.ident == FROZEN || slot.link.tag().frozen())
            };
            if is_growing || read.iter().any(is_frozen) {
                // A key that is there needs no further slot.
                let mut idents = read.iter().flat_map(|bucket| &bucket.slots).map(|slot| slot.ident);
                let pending = idents.find(|ident| *ident > FROZEN);
                let pending = pending.unwrap_or(before.reversed.reverse_bits() | index | (FROZEN + 1));
                self.replace(directory, index, known, pending, &mut ct.backoff(), g).await?;
                cursor = before;
            }
        }
    }

    /// Frees everything but the root.
    pub(super) async fn destroy(&self, ct: &ComputeThread) -> Result<()> {
        let mut cursor = Cursor::default();
        let mut tables = Vec::new();
        loop {
            let g = &ct.pin();
            let Some((_, _, known, table)) = self.next_table(&mut cursor, g).await? else { break };
            let read = table.buckets().read(g, 0..buckets(known.scale())).await?;
            for link in links(&read) {
                ct.delete(link.shared()).await?;
            }
            tables.push(known.table);
        }
        for table in tables {
            ct.delete(table).await?;
        }
        for directory in &self.directories {
            directory.delete_levels(ct).await?;
            ct.delete(directory.shard).await?;
        }
        Ok(())
    }
}

/// Returns the links of the keys in some buckets that are in the map.
fn links<'a, 'g>(read: &'a [BucketSnapshot<'g>]) -> impl Iterator<Item = EntryLink<'g>> + use<'a, 'g> {
    read.iter().flat_map(|bucket| &bucket.slots).map(|slot| slot.link).filter(|link| !link.is_null())
}
