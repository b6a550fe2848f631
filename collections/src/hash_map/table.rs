//! Operations on slots. Keys are hashes here, and entries are bytes.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use farfield::op::{Replacement, Staged};
use farfield::prelude::*;

use super::cache::{Hot, HotSlots};
use super::counters::Counting;
use super::directory::{Directory, Found, Known, not_a_map};
#[allow(clippy::wildcard_imports)] // what the map consists of
use super::layout::*;

/// A handle's view of a map.
pub(super) struct Tables {
    pub(super) seed: [u64; 2],
    pub(super) mask: u64,
    pub(super) directories: Vec<Directory>,
    pub(super) hot: HotSlots,
    pub(super) counting: Counting,
    /// True if round trips cost nothing, so that there is nothing to save by remembering slots.
    pub(super) is_immediate: bool,
}

/// A key's slot, in a table that was the directory's when the slot was read.
pub(super) struct Seen<'g> {
    pub(super) index: u64,
    pub(super) known: Known,
    pub(super) slot: Slot<'g>,
}

#[derive(Clone, Copy)]
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

/// The result of an operation where each completes at once, unless it fails.
#[inline(always)]
#[allow(clippy::inline_always)] // what it polls is to be inlined
fn now<R>(operation: impl Future<Output = Result<R>>) -> Option<R> {
    match pin!(operation).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result.ok(),
        Poll::Pending => None,
    }
}

pub(super) fn equal_hashes() -> farfield::Error {
    farfield::Error::other(
        "another key of the map has an equal hash of 64 bits: only one of the two can be in it",
    )
}

impl<'g> Seen<'g> {
    /// Returns what the slot of a key links to, if the key is in the map.
    #[inline]
    fn present(&self, hash: Hash) -> Option<(EntryPlace<'g>, EntryLink<'g>)> {
        match self.slot {
            Slot::Claimed(slot, link) if !link.is_null() && link.tag().check() == hash.check => {
                Some((slot, link))
            }
            _ => None,
        }
    }
}

// ANCHOR: slot
impl Window {
    /// Finds the slot of a key in the window that begins at a bucket.
    #[inline]
    fn slot<'g>(seen: &WindowSnapshot<'g>, buckets: [Place<'g, Bucket>; 2], hash: Hash) -> Slot<'g> {
        for (bucket, seen) in buckets.into_iter().zip([&seen.home, &seen.next]) {
            for (slot, seen) in seen.slots.iter().enumerate() {
                let slot = bucket.slots().at(slot);
                match seen.ident {
                    ident if ident == hash.ident => return Slot::Claimed(slot.link(), seen.link),
                    VACANT => return Slot::Vacant(slot.ident(), slot.link()),
                    FROZEN => return Slot::None,
                    _ => {}
                }
            }
        }
        Slot::None
    }
}
// ANCHOR_END: slot

// ANCHOR: is_current
impl<'g> WindowSnapshot<'g> {
    /// Returns whether the window itself shows that its table was the directory's when it was read: each slot of a table is frozen before the table is
    /// replaced. `slot` is what was found in it.
    #[inline]
    fn is_current(&self, slot: &Slot<'g>) -> bool {
        let is_mutable = |seen: &KeySlotSnapshot<'_>| seen.ident > FROZEN && !seen.link.tag().frozen();
        match slot {
            Slot::Claimed(_, link) => !link.tag().frozen(),
            Slot::Vacant(..) => true,
            // The key has never had a slot in this table, so it was absent when any of the window was read.
            Slot::None => [&self.home, &self.next].iter().any(|bucket| bucket.slots.iter().any(is_mutable)),
        }
    }
}
// ANCHOR_END: is_current

impl Tables {
    pub(super) fn hash(&self, key: &[u8]) -> Hash {
        Hash::of(self.seed, self.mask, key)
    }

    #[inline]
    pub(super) fn directory(&self, hash: Hash) -> &Directory {
        &self.directories[hash.shard(self.directories.len())]
    }

    // ANCHOR: look
    /// Reads a key's window, and writes an entry in the same chain.
    #[inline]
    pub(super) async fn look<'g>(
        &self,
        hash: Hash,
        mut entry: Option<Owned<Blob>>,
        g: &'g Guard<'_>,
    ) -> Result<(Option<Staged<Blob>>, Seen<'g>)> {
        let directory = self.directory(hash);
        let mut staged = None;
        if self.is_immediate {
            if let Some(entry) = entry.take() {
                staged = Some(g.chain(op::stage(entry)).submit().await?);
            }
            if let Some(seen) = self.look_now(hash, g) {
                return Ok((staged, seen));
            }
        }
        loop {
            let Found { index, known, is_protected } = match directory.find(hash.ident, g) {
                Some(found) => {
                    self.counting.count(|counters| counters.directory_hits += 1);
                    found
                }
                None => directory.load_path(hash.ident, &self.counting, g).await?,
            };
            let home = home(hash.ident, known.scale());
            let window = RemotePtr::<Window>::from_address(known.table.buckets().at(home).address());
            if is_protected {
                let chain = g.chain((entry.take().map(op::stage), op::read(window)));
                let (written, window) = chain.submit().await?;
                staged = written.or(staged);
                let protected = known.table.shared(g).buckets();
                let slot = Window::slot(&window, [protected.at(home), protected.at(home + 1)], hash);
                if window.is_current(&slot) {
                    return Ok((staged, Seen { index, known, slot }));
                }
            }
            let Some(place) = directory.entry(index) else { return Err(not_a_map(directory)) };
            let chain = g.chain((entry.take().map(op::stage), op::load(place), op::peek(window)));
            let (written, link, window) = chain.submit().await?;
            staged = written.or(staged);
            if known.is(link) {
                let buckets = link.shared().buckets();
                let slot = Window::slot(&window?, [buckets.at(home), buckets.at(home + 1)], hash);
                if !is_protected {
                    directory.learn(index, link, g);
                }
                return Ok((staged, Seen { index, known, slot }));
            }
            directory.meets_outdated(index, link, &self.counting, g).await?;
        }
    }
    // ANCHOR_END: look

    /// Reads a key's slot where a round trip costs nothing: the directory's entry, and then slots, a line at a time. `None` if that fails, or the directory is
    /// to be read: then [`look`](Self::look) does it.
    #[inline]
    fn look_now<'g>(&self, hash: Hash, g: &'g Guard<'_>) -> Option<Seen<'g>> {
        let directory = self.directory(hash);
        let mut index = directory.longest(hash.ident);
        let known = loop {
            let link = now(directory.entry(index)?.load(g))?;
            if !link.is_null() {
                break Known::of(link);
            }
            index ^= 1 << index.checked_ilog2()?;
        };
        if hash.ident & mask(known.depth()) != index {
            return None;
        }
        let (buckets, home) = (known.table.shared(g).buckets(), home(hash.ident, known.scale()));
        for number in (0..WINDOW).step_by(LINE) {
            let slots = buckets.at(home + (number / SLOTS) as u64).slots();
            let line = now(RemotePtr::<Line>::from_address(slots.at(number % SLOTS).address()).read(g))?;
            let found = line.slots.iter().position(|slot| slot.ident == hash.ident || slot.ident <= FROZEN);
            if let Some(found) = found {
                let (slot, seen) = (slots.at(number % SLOTS + found), &line.slots[found]);
                let slot = match seen.ident {
                    VACANT => Slot::Vacant(slot.ident(), slot.link()),
                    FROZEN => Slot::None,
                    _ => Slot::Claimed(slot.link(), seen.link),
                };
                return Some(Seen { index, known, slot });
            }
        }
        Some(Seen { index, known, slot: Slot::None })
    }

    /// Reads the entry of a key where a round trip costs nothing. `None` if [`get`](Self::get) must do it.
    #[inline]
    pub(super) fn get_now<R>(
        &self,
        hash: Hash,
        decode: impl Fn(&[u8]) -> Option<R>,
        g: &Guard<'_>,
    ) -> Option<Result<Option<R>>> {
        if !self.is_immediate {
            return None;
        }
        let seen = self.look_now(hash, g)?;
        match seen.present(hash) {
            Some((_, link)) => now(link.shared().read_bytes_with(class(link).ok()?, g, decode)).map(Ok),
            None => Some(Ok(None)),
        }
    }

    // ANCHOR: get
    /// Reads the entry of a key, if the key is in the map. `decode` returns `None` for the entry of another key.
    #[inline]
    pub(super) async fn get<R>(
        &self,
        hash: Hash,
        decode: impl Fn(&[u8]) -> Option<R>,
        g: &Guard<'_>,
    ) -> Result<Option<R>> {
        // A slot of a table that is known to be replaced is no guess.
        let hot = self.hot.get(hash.ident);
        let directory = self.directory(hash);
        let found = hot.and_then(|_| directory.find(hash.ident, g));
        let is_known = |hot: &Hot| found.as_ref().is_none_or(|found| found.known == hot.table);
        if let Some(hot) = hot.filter(is_known) {
            if let Some(class) = SizeClass::from_number(hot.tag.class()) {
                let slot = RemotePtr::<SlotWord>::from_address(hot.slot.address());
                let entry = op::peek_bytes_with(hot.blob, class, &decode);
                let (is_current, slot, entry) = if found.as_ref().is_some_and(|found| found.is_protected) {
                    // The remembered link is not frozen: if the slot has it still, the table is current.
                    let (slot, entry) = g.chain((op::read(slot), entry)).submit().await?;
                    (true, slot, entry)
                } else {
                    let chain = g.chain((op::load(hot.entry), op::peek(slot), entry));
                    let (table, slot, entry) = chain.submit().await?;
                    let is_current = hot.table.is(table);
                    if let Some(found) = found.filter(|_| is_current) {
                        directory.learn(found.index, table, g);
                    }
                    (is_current, slot?, entry)
                };
                if is_current
                    && EntryWord::from(slot.link) == hot.word
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
    // ANCHOR_END: get

    /// Remembers the slot of a key.
    #[inline]
    fn remember(&self, hash: Hash, seen: &Seen<'_>, slot: EntryPlace<'_>, (word, blob, tag): Remembered) {
        if self.is_immediate {
            return;
        }
        if let Some(entry) = self.directory(hash).entry(seen.index)
            && !tag.frozen()
        {
            let slot = Place::from_address(slot.address());
            self.hot.put(Hot { ident: hash.ident, entry, table: seen.known, slot, word, blob, tag });
        }
    }

    // ANCHOR: put
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
        let (mut staged, mut seen) = self.look(hash, Some(entry), g).await?;
        let mut backoff = g.backoff();
        loop {
            let claimed = match seen.slot {
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
                    let Some(entry) = staged else { return Ok(false) };
                    let (blob, new) = (entry.as_ptr(), entry.tagged(tag)?);
                    let word = new.word();
                    match g.chain(op::replace(slot, link, bytes(link)?, new)).submit().await? {
                        Ok(replaced) => {
                            self.remember(hash, &seen, slot, (word, blob, tag));
                            replaced.retire(g).await?;
                            return Ok(true);
                        }
                        // Another blind update came after `link` was read. This one takes effect immediately before it: nobody sees the value.
                        Err(refused)
                            if how != Put::Insert
                                && refused.current.tag().blind()
                                && refused.current.shared() != link.shared() =>
                        {
                            self.counting.count(|counters| counters.overtaken += 1);
                            return Ok(true);
                        }
                        Err(refused) => {
                            self.counting.count(|counters| counters.retries += 1);
                            link = refused.current;
                            staged = refused.new.into_staged();
                        }
                    }
                }
            }
            self.grow(hash, &seen, &mut backoff, g).await?;
            (_, seen) = self.look(hash, None, g).await?;
        }
    }
    // ANCHOR_END: put

    // ANCHOR: remove
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
                let exchange = op::replace(slot, link, bytes(link)?, Replacement::NULL);
                let (exchanged, entry) = g.chain((exchange, entry)).submit().await?;
                match exchanged {
                    Ok(replaced) => {
                        self.hot.forget(hash.ident);
                        replaced.retire(g).await?;
                        return Ok(Some(entry));
                    }
                    Err(refused)
                        if refused.current.is_null() || refused.current.tag().check() != hash.check =>
                    {
                        return Ok(None);
                    }
                    Err(refused) => {
                        self.counting.count(|counters| counters.retries += 1);
                        link = refused.current;
                    }
                }
            }
            self.grow(hash, &seen, &mut backoff, g).await?;
        }
    }
    // ANCHOR_END: remove

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
            let found = match seen.slot {
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
                Some(Decision::Store(bytes)) => Some(Blob::new_in(g.near(seen.known.table), bytes).await?),
            };
            let claimed = match seen.slot {
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
                let new = match entry {
                    None if link.is_null() => return Ok(()),
                    None => Replacement::NULL,
                    Some(entry) => {
                        let tag = EntryTag::new(Blob::class(&entry).number(), hash.check, false, false);
                        Replacement::of(entry, tag)?
                    }
                };
                if let Ok(replaced) = g.chain(op::replace(slot, link, bytes(link)?, new)).submit().await? {
                    self.hot.forget(hash.ident);
                    return replaced.retire(g).await;
                }
                is_changed = true;
            }
            self.counting.count(|counters| counters.retries += 1);
            if is_changed {
                backoff.wait().await;
            } else if !matches!(seen.slot, Slot::Vacant(..)) {
                self.grow(hash, &seen, &mut backoff, g).await?;
            }
            (_, seen) = self.look(hash, None, g).await?;
        }
    }
}

/// Returns the bytes of the block of an entry, less those of its length; 0 for none.
fn bytes(link: EntryLink<'_>) -> Result<u64> {
    if link.is_null() { Ok(0) } else { class(link).map(|class| class.capacity() as u64) }
}
