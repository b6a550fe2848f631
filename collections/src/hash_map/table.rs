//! Operations on slots. Keys are hashes here, and entries are bytes.

use farfield::op::Written;
use farfield::prelude::*;

use super::cache::{Hot, HotSlots};
use super::counters::Counting;
use super::directory::{Directory, Known, not_a_map};
#[allow(clippy::wildcard_imports)] // what the map consists of
use super::layout::*;

/// A handle's view of a map.
pub(super) struct Tables {
    pub(super) seed: [u64; 2],
    pub(super) mask: u64,
    pub(super) directories: Vec<Directory>,
    pub(super) hot: HotSlots,
    pub(super) counting: Counting,
}

/// A key's window, in a table that was the directory's when the window was read.
pub(super) struct Seen<'g> {
    pub(super) index: u64,
    pub(super) known: Known,
    pub(super) table: Shared<'g, Table>,
    home: u64,
    window: WindowSnapshot<'g>,
}

/// A key's slot.
pub(super) enum Slot<'g> {
    /// The key has claimed it, and is in the map if the link is not null.
    Claimed(EntryPlace<'g>, EntryLink<'g>),
    /// The first slot of the window that no key has claimed.
    Vacant(Place<'g, Atomic<u64>>, EntryPlace<'g>),
    /// The key has none, and can claim none: the table is full, or frozen.
    None,
}

/// The link of a slot, as it is remembered.
type Remembered = (EntryWord, RemotePtr<Blob>, EntryTag);

/// An entry that is written, and that no link holds. Dropped, it is freed.
pub(super) struct Unlinked(Option<Written<Blob>>);

impl Drop for Unlinked {
    fn drop(&mut self) {
        drop(self.0.take().map(Written::take));
    }
}

/// How an entry is put into a slot.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Put {
    /// If the key is not there.
    Insert,
    /// If the key is there.
    Update,
    Upsert,
}

/// What becomes of a key.
pub(super) enum Decision {
    Keep,
    Remove,
    /// It has this entry.
    Store(Vec<u8>),
}

pub(super) fn equal_hashes() -> farfield::Error {
    farfield::Error::other(
        "another key of the map has an equal hash, of 70 bits: one of the two can be in it",
    )
}

impl<'g> Seen<'g> {
    /// Finds the slot of a key in its window.
    #[inline]
    pub(super) fn slot(&self, hash: Hash) -> Slot<'g> {
        let buckets = self.table.buckets();
        let (near, far) = (buckets.at(self.home), buckets.at(self.home + 1));
        for (bucket, seen) in [(near, &self.window.home), (far, &self.window.next)] {
            for slot in 0..SLOTS {
                match seen.idents[slot] {
                    ident if ident == hash.ident => {
                        return Slot::Claimed(bucket.links().at(slot), seen.links[slot]);
                    }
                    VACANT => return Slot::Vacant(bucket.idents().at(slot), bucket.links().at(slot)),
                    FROZEN => return Slot::None,
                    _ => {}
                }
            }
        }
        Slot::None
    }

    /// Returns what the slot of a key links to, if the key is in the map.
    #[inline]
    fn present(&self, hash: Hash) -> Option<(EntryPlace<'g>, EntryLink<'g>)> {
        match self.slot(hash) {
            Slot::Claimed(slot, link) if !link.is_null() && link.tag().check() == hash.check => {
                Some((slot, link))
            }
            _ => None,
        }
    }
}

impl Tables {
    pub(super) fn hash(&self, key: &[u8]) -> Hash {
        Hash::of(self.seed, self.mask, key)
    }

    #[inline]
    pub(super) fn directory(&self, hash: Hash) -> &Directory {
        &self.directories[hash.shard(self.directories.len())]
    }

    /// Reads a key's window, and writes an entry in the same chain.
    #[inline]
    pub(super) async fn look<'g>(
        &self,
        hash: Hash,
        mut entry: Option<Owned<Blob>>,
        g: &'g Guard<'_>,
    ) -> Result<(Option<Unlinked>, Seen<'g>)> {
        let directory = self.directory(hash);
        let mut unlinked = None;
        loop {
            let (index, known) = match directory.find(hash.ident) {
                Some(found) => {
                    self.counting.count(|counters| counters.directory_hits += 1);
                    found
                }
                None => directory.load_path(hash.ident, &self.counting, g).await?,
            };
            let Some(place) = directory.entry(index) else { return Err(not_a_map(directory)) };
            let home = home(hash.ident, known.scale());
            let window = RemotePtr::from_address(known.table.buckets().at(home).address());
            let chain = g.chain((entry.take().map(op::write), op::load(place), op::peek::<Window>(window)));
            let (written, link, window) = chain.submit().await?;
            unlinked = written.map(|written| Unlinked(Some(written))).or(unlinked);
            if known.is(link) {
                let table = link.shared();
                return Ok((unlinked, Seen { index, known, table, home, window: window? }));
            }
            self.counting.count(|counters| counters.stale += 1);
            directory.learn(index, link);
        }
    }

    /// Reads the entry of a key, if the key is in the map. `decode` returns `None` for the entry of another key.
    #[inline]
    pub(super) async fn get<R>(
        &self,
        hash: Hash,
        decode: impl Fn(&[u8]) -> Option<R>,
        g: &Guard<'_>,
    ) -> Result<Option<R>> {
        if let Some(hot) = self.hot.get(hash.ident) {
            if let Some(class) = SizeClass::from_number(hot.tag.class()) {
                let slot = RemotePtr::<SlotWord>::from_address(hot.slot.address());
                let entry = op::peek_bytes_with(hot.blob, class, &decode);
                let (table, slot, entry) =
                    g.chain((op::load(hot.entry), op::peek(slot), entry)).submit().await?;
                if hot.table.is(table)
                    && EntryWord::from(slot?.link) == hot.word
                    && let Some(value) = entry?
                {
                    self.counting.count(|counters| counters.slot_hits += 1);
                    return Ok(Some(value));
                }
            }
            self.counting.count(|counters| counters.slot_misses += 1);
            self.hot.forget(hash.ident);
        }
        let (_, seen) = self.look(hash, None, g).await?;
        let Some((slot, link)) = seen.present(hash) else { return Ok(None) };
        let value = link.shared().read_bytes_with(class(link)?, g, &decode).await?;
        if value.is_some() {
            self.remember(hash, &seen, slot, (link.into(), link.shared().as_ptr(), link.tag()));
        }
        Ok(value)
    }

    /// Remembers the slot of a key.
    #[inline]
    fn remember(&self, hash: Hash, seen: &Seen<'_>, slot: EntryPlace<'_>, (word, blob, tag): Remembered) {
        if let Some(entry) = self.directory(hash).entry(seen.index)
            && !tag.frozen()
        {
            let slot = Place::from_address(slot.address());
            self.hot.put(Hot { ident: hash.ident, entry, table: seen.known, slot, word, blob, tag });
        }
    }

    /// Puts an entry of a class into the slot of its key. Returns whether it did. `is_key` tells whether another entry has the key.
    pub(super) async fn put(
        &self,
        hash: Hash,
        entry: Owned<Blob>,
        how: Put,
        is_key: impl Fn(&[u8]) -> bool,
        g: &Guard<'_>,
    ) -> Result<bool> {
        let class_of_entry = Blob::class(&entry).number();
        let (mut unlinked, mut seen) = self.look(hash, Some(entry), g).await?;
        let Some(unlinked) = &mut unlinked else { return Err(equal_hashes()) };
        let mut backoff = g.backoff();
        loop {
            let claimed = match seen.slot(hash) {
                Slot::Claimed(slot, link) => Some((slot, link)),
                _ if how == Put::Update => return Ok(false),
                Slot::Vacant(ident, slot) => match ident.compare_exchange(g, VACANT, hash.ident).await? {
                    Ok(_) => Some((slot, EntryLink::NULL)),
                    Err(found) if found == hash.ident => Some((slot, EntryLink::NULL)),
                    Err(FROZEN) => None,
                    Err(_) => {
                        self.counting.count(|counters| counters.retries += 1);
                        (_, seen) = self.look(hash, None, g).await?;
                        continue;
                    }
                },
                Slot::None => None,
            };
            if let Some((slot, mut link)) = claimed {
                loop {
                    if link.is_null() {
                        if how == Put::Update {
                            return Ok(false);
                        }
                    } else if link.tag().check() != hash.check {
                        return if how == Put::Update { Ok(false) } else { Err(equal_hashes()) };
                    } else if how == Put::Insert {
                        let is_there = link.shared().read_bytes_with(class(link)?, g, &is_key).await?;
                        return if is_there { Ok(false) } else { Err(equal_hashes()) };
                    }
                    if link.tag().frozen() {
                        break;
                    }
                    let is_blind = how != Put::Insert && !link.is_null();
                    let tag = EntryTag::new(class_of_entry, hash.check, is_blind, false);
                    match self.exchange(slot, link, unlinked, tag, g).await? {
                        Ok(word) => {
                            self.remember(hash, &seen, slot, word);
                            if !link.is_null() {
                                g.sched_reclaim(link.shared()).await?;
                            }
                            return Ok(true);
                        }
                        // Another blind update came after `link` was read. This one takes effect immediately before it: nobody sees the value.
                        Err(current)
                            if how != Put::Insert
                                && current.tag().blind()
                                && current.shared() != link.shared() =>
                        {
                            self.counting.count(|counters| counters.overtaken += 1);
                            return Ok(true);
                        }
                        Err(current) => {
                            self.counting.count(|counters| counters.retries += 1);
                            link = current;
                        }
                    }
                }
            }
            self.grow(hash, &seen, &mut backoff, g).await?;
            (_, seen) = self.look(hash, None, g).await?;
        }
    }

    /// Makes a slot link to an entry instead of `expected`. Returns the slot's new link, or the link that it found.
    async fn exchange<'g>(
        &self,
        slot: EntryPlace<'g>,
        expected: EntryLink<'_>,
        entry: &mut Unlinked,
        tag: EntryTag,
        g: &'g Guard<'_>,
    ) -> Result<Result<Remembered, EntryLink<'g>>> {
        // Once the CAS is posted, a link may hold it.
        let Some(written) = entry.0.take() else { return Err(equal_hashes()) };
        let new = EntryWord::new(written.as_ptr(), tag)?;
        let exchange = op::compare_exchange_link(slot, EntryWord::from(expected), new);
        match g.chain(exchange).submit().await? {
            Ok(_) => Ok(Ok((new, written.as_ptr(), tag))),
            Err(refused) => {
                entry.0 = Some(written);
                Ok(Err(refused.current))
            }
        }
    }

    /// Removes a key. Returns what `read` makes of its entry, if the key was in the map.
    pub(super) async fn remove<R>(
        &self,
        hash: Hash,
        read: Option<impl Fn(&[u8]) -> R>,
        g: &Guard<'_>,
    ) -> Result<Option<Option<R>>> {
        let mut backoff = g.backoff();
        loop {
            let (_, seen) = self.look(hash, None, g).await?;
            let Some((slot, mut link)) = seen.present(hash) else { return Ok(None) };
            while !link.tag().frozen() {
                let class = class(link)?;
                let entry = read.as_ref().map(|read| op::read_bytes_with(link.shared(), class, read));
                let exchange = op::compare_exchange_link(slot, EntryWord::from(link), EntryWord::default());
                let (exchanged, entry) = g.chain((exchange, entry)).submit().await?;
                match exchanged {
                    Ok(_) => {
                        self.hot.forget(hash.ident);
                        g.sched_reclaim(link.shared()).await?;
                        return Ok(Some(entry));
                    }
                    Err(refused) if refused.current.is_null() => return Ok(None),
                    Err(refused) => {
                        self.counting.count(|counters| counters.retries += 1);
                        link = refused.current;
                    }
                }
            }
            self.grow(hash, &seen, &mut backoff, g).await?;
        }
    }

    /// Reads the entry of a key, and makes of the key what `decide` decides, unless the entry has changed meanwhile: then it decides again. `decide`
    /// returns `None` for the entry of another key.
    pub(super) async fn modify(
        &self,
        hash: Hash,
        mut decide: impl FnMut(Option<&[u8]>) -> Option<Decision>,
        g: &Guard<'_>,
    ) -> Result<()> {
        let mut backoff = g.backoff();
        let (_, mut seen) = self.look(hash, None, g).await?;
        loop {
            let found = match seen.slot(hash) {
                Slot::Claimed(_, link) if !link.is_null() => {
                    let read = link.shared().read_bytes_with(class(link)?, g, |bytes| decide(Some(bytes)));
                    read.await?
                }
                _ => decide(None),
            };
            let entry = match found {
                None => return Err(equal_hashes()),
                Some(Decision::Keep) => return Ok(()),
                Some(Decision::Remove) => None,
                Some(Decision::Store(bytes)) => Some(Blob::new_in(g.near(seen.table), bytes).await?),
            };
            let claimed = match seen.slot(hash) {
                Slot::Claimed(slot, link) => Some((slot, link)),
                _ if entry.is_none() => return Ok(()),
                Slot::Vacant(ident, slot) => match ident.compare_exchange(g, VACANT, hash.ident).await? {
                    Err(found) if found != hash.ident => None,
                    _ => Some((slot, EntryLink::NULL)),
                },
                Slot::None => None,
            };
            let mut is_changed = false;
            if let Some((slot, link)) = claimed
                && !link.tag().frozen()
            {
                let is_exchanged = match entry {
                    Some(entry) => {
                        let tag = EntryTag::new(Blob::class(&entry).number(), hash.check, false, false);
                        slot.compare_exchange(g, link, entry, tag).await?.is_ok()
                    }
                    None if link.is_null() => return Ok(()),
                    None => {
                        let exchange =
                            op::compare_exchange_link(slot, EntryWord::from(link), EntryWord::default());
                        g.chain(exchange).submit().await?.is_ok()
                    }
                };
                if is_exchanged {
                    self.hot.forget(hash.ident);
                    if !link.is_null() {
                        g.sched_reclaim(link.shared()).await?;
                    }
                    return Ok(());
                }
                is_changed = true;
            }
            self.counting.count(|counters| counters.retries += 1);
            if is_changed {
                backoff.wait().await;
            } else if !matches!(seen.slot(hash), Slot::Vacant(..)) {
                self.grow(hash, &seen, &mut backoff, g).await?;
            }
            (_, seen) = self.look(hash, None, g).await?;
        }
    }
}
