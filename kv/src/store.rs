//! The store: what compute threads do.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use crossbeam_utils::CachePadded;
use farfield::prelude::*;
use farfield::{Error, RemotePtr};
use ring::aead::NONCE_LEN;
use scopeguard::{ScopeGuard, defer, guard};
use smallvec::SmallVec;

use crate::error::{Fault, invalid};
use crate::index::{Entries, Index};
use crate::options::{Options, Stats};
use crate::pages::{COPY_BYTES, FarPage, Looked, PAGE_WORDS, Page, Pages, State, lock};
use crate::record::{self, Cipher, Decoded, Head, KEY_BYTES, Key, MOST_VALUE_BYTES, Place};

/// The version of the layout in far memory.
pub(crate) const FORMAT: u64 = 0x6b76_0001;

/// So often an operation looks whether the WRITE of another thread has arrived in far memory, at most: more often than for as long as one can take.
const MOST_LOOKS: u32 = 1000;

/// So often an operation tries to end the grace period of a page that was removed, at most.
const MOST_LOOKS_FOR_NUMBERS: u32 = 16;

/// So many words become live or dead before a thread looks whether a page must be rebuilt.
const WORDS_PER_LOOK: u64 = PAGE_WORDS as u64 / 8;

/// A thread that rebuilds a page because there are too many looks at so many of a list.
const PAGES_LOOKED_AT: usize = 32;

/// A rebuild looks so many records up in the index at the same time.
const MOVED_TOGETHER: usize = 32;

/// What opening a page takes of the budget: its copy, and two buffers that are freed again.
const OPENING_BYTES: usize = 3 * COPY_BYTES;
/// What rebuilding a page takes of the budget: two buffers of its words while they are read, or its copy and one.
const REBUILDING_BYTES: usize = 2 * COPY_BYTES;

/// Returns what changes need of the budget: each lane has a page, and one page is rebuilt, for which a lane opens another one.
const fn working_bytes(threads: usize) -> usize {
    2 * threads * COPY_BYTES + REBUILDING_BYTES + OPENING_BYTES
}

/// The counts of an `Arc`.
const ARC_BYTES: usize = 2 * size_of::<usize>();

/// Returns the bytes of local memory that a store always takes.
fn fixed_bytes(name: &str, threads: usize, most_pages: u32) -> usize {
    let of_arc = ARC_BYTES.next_multiple_of(align_of::<Store>()) + size_of::<Store>();
    let own = of_arc + name.len() + threads * size_of::<[Lane; 2]>();
    own + Index::new().bytes() + Pages::bytes(most_pages)
}

/// Returns the least budget of a store.
pub(crate) fn least_bytes(name: &str, threads: usize, most_pages: u32) -> usize {
    fixed_bytes(name, threads, most_pages) + working_bytes(threads)
}

/// The root of a store.
#[remote]
pub struct StoreRoot {
    pub(crate) format: u64,
    /// Of no other store.
    pub(crate) identity: [u64; 2],
    /// Held by the process that has the store.
    pub(crate) owner: Lock,
    /// How often the store was opened: a part of each nonce.
    pub(crate) openings: Atomic<u64>,
    /// The identity of the key, and 2^32. 0 if the store has none.
    pub(crate) key: Atomic<u64>,
    pub(crate) pages: Tail<Link<FarPage>>,
}

/// The page to which a thread adds records.
struct Filling {
    page: u32,
    copy: crate::pages::Copy,
}

/// Where a thread adds records: new ones, or those of pages that it rebuilds.
#[derive(Default)]
#[repr(align(128))] // two lines: processors fetch them in pairs
pub(crate) struct Lane {
    filling: Mutex<Option<Filling>>,
    /// The page that was filled before, if its WRITEs may not be over. Changed only by the task that opens a page.
    unsettled: Mutex<Option<u32>>,
    /// True while a task opens a page for it.
    is_opening: AtomicBool,
    is_of_rebuilds: bool,
    room: Mutex<Room>,
}

/// What rebuilds have taken of the budget for the pages that their lane opens: each enough for one page. Since they have it from the beginning, they never wait for each other.
#[derive(Default)]
struct Room {
    rebuilds: usize,
    bytes: usize,
}

impl Lane {
    fn new(is_of_rebuilds: bool) -> Self {
        Self { is_of_rebuilds, ..Self::default() }
    }

    /// A rebuild that adds records begins. It has taken [`OPENING_BYTES`].
    fn adds_room(&self) {
        let mut room = lock(&self.room);
        room.rebuilds += 1;
        room.bytes += OPENING_BYTES;
    }

    /// It ends. Returns the bytes to give back, which other rebuilds do not need.
    fn gives_room(&self) -> usize {
        let mut room = lock(&self.room);
        room.rebuilds -= 1;
        let kept = room.bytes.min(room.rebuilds * OPENING_BYTES);
        std::mem::replace(&mut room.bytes, kept) - kept
    }
}

/// Counts an operation, until the result is dropped.
fn counted(count: &AtomicUsize) -> ScopeGuard<&AtomicUsize, fn(&AtomicUsize)> {
    fn end(count: &AtomicUsize) {
        count.fetch_sub(1, Ordering::AcqRel);
    }
    count.fetch_add(1, Ordering::AcqRel);
    guard(count, end)
}

/// A store, for all compute threads of its process.
pub struct Store {
    pub(crate) name: Box<str>,
    pub(crate) root: RemotePtr<StoreRoot>,
    pub(crate) index: Index,
    pub(crate) pages: Pages,
    pub(crate) cipher: Option<Cipher>,
    pub(crate) openings: u32,
    nonces: CachePadded<AtomicU64>,
    secret: [u128; 3],
    /// For each thread one for new records, and one for those of pages that are rebuilt.
    lanes: Box<[[Lane; 2]]>,
    pub(crate) sequence: AtomicU64,
    /// The most that pages may take, in percent of the live records.
    most_percent: u64,
    /// The bytes of the budget that new keys leave for pages: what changes need, and what the index may need more when the store is opened again.
    left_bytes: usize,
    /// Pages that are being rebuilt because pages have too many dead words.
    rebuilding: AtomicU64,
    /// How many pages there were too many when a thread has looked last.
    excess: AtomicU64,
    /// The operations after which more local memory may be free: they open a page, so that the one before becomes full, or rebuild one.
    making_room: AtomicUsize,
    /// True once a WRITE has failed.
    has_failed: AtomicBool,
    is_closed: AtomicBool,
}

/// A key that will be accessed soon: a hint, which changes nothing but time. Its steps ask the processor for memory of which the next one knows by what it has asked for; so between them, and before the
/// access, other work is done, for example the same steps for other keys.
///
/// ```
/// # use farfield::prelude::*;
/// # use farfield_kv::Store;
/// # async fn sizes(keys: &[[u8; 16]], store: &Store, ct: &ComputeThread) -> farfield::Result<usize> {
/// // While one key is read, the next one's record comes to the processor's cache, and the index's entry of the one after that.
/// let mut hints: Vec<_> = keys.iter().take(2).map(|key| store.hint(key)).collect();
/// let mut bytes = 0;
/// for (number, key) in keys.iter().enumerate() {
///     if let Some(next) = hints.get_mut(number + 1) {
///         next.look_up();
///         next.fetch(true, ct);
///     }
///     hints.extend(keys.get(number + 2).map(|key| store.hint(key)));
///     bytes += store.read(key, ct).await?.map_or(0, |value| value.len());
/// }
/// # Ok(bytes)
/// # }
/// ```
pub struct Hint<'s> {
    store: &'s Store,
    hash: u64,
    place: Option<Place>,
}

impl Hint<'_> {
    /// Looks the key up in the index, and asks the processor for what is known of its record's page. No round trip.
    pub fn look_up(&mut self) {
        self.place = self.store.index.lock(self.hash).guess(self.hash);
        if let Some(place) = self.place {
            farfield::prefetch(&self.store.pages[place.page]);
        }
    }

    /// Asks the processor for the record that [`look_up`](Self::look_up) has found, if that is in memory of this process: for all of it if the value is wanted, and else for the key, with which a write or a
    /// deletion compares its own. No round trip.
    pub fn fetch(&self, is_value_wanted: bool, ct: &ComputeThread) {
        let Some(place) = self.place else { return };
        let page = &self.store.pages[place.page];
        if page.prefetch(place) {
            return;
        }
        if let Some(word) = page.far().words().at(place.first.into()).immediate(ct) {
            word.prefetch(place.words_read(is_value_wanted).into());
        }
    }
}

impl std::fmt::Debug for Hint<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hint").finish_non_exhaustive()
    }
}

/// A record in a page.
#[derive(Clone, Copy)]
pub(crate) struct Record {
    pub(crate) place: Place,
    pub(crate) head: Head,
}

/// The burial of a record, which waits until the one that replaces it is in far memory. It is posted when this is dropped, also if the operation is.
struct Burial<'a, 'g> {
    store: &'a Store,
    record: Record,
    g: &'a Guard<'g>,
}

impl Drop for Burial<'_, '_> {
    fn drop(&mut self) {
        // The next operation of the thread returns the error of a WRITE that fails.
        let _ = self.store.note(self.store.post_burial(&self.record, self.g));
    }
}

/// What a key was found to have.
pub(crate) struct Found {
    pub(crate) record: Record,
    /// Empty if it was not wanted.
    value: Vec<u8>,
}

/// The records to which the index leads for a hash: one at most, in most cases.
pub(crate) type Candidates = SmallVec<[Place; 1]>;

/// What [`Store::find`] has found.
pub(crate) enum Lookup {
    /// The record of the key.
    Present(Found),
    /// The key has none. These have other keys.
    Absent(Candidates),
}

/// What became of a record that was to be added.
pub(crate) enum Added {
    /// The index leads to it, and the record that it replaces is buried.
    Done,
    /// The index leads to it. The record that it replaces is in another segment: it must not be buried before the new one is in far memory.
    Unburied,
    /// The index has changed, and the record was not added.
    Changed,
    /// The page has no room.
    Full,
}

impl Store {
    pub(crate) fn new(
        name: &str,
        (root, identity): (RemotePtr<StoreRoot>, [u64; 2]),
        options: &Options,
        openings: u32,
        threads: usize,
        ct: &ComputeThread,
    ) -> Result<Self> {
        let most_pages = options.most_pages();
        let store = Self {
            name: name.into(),
            root,
            index: Index::new(),
            pages: Pages::new(most_pages, options.local_bytes),
            cipher: options.cipher(identity)?,
            openings,
            nonces: CachePadded::default(),
            secret: std::array::from_fn(|_| {
                u128::from(ct.random::<u64>()) << 64 | u128::from(ct.random::<u64>())
            }),
            lanes: (0..threads).map(|_| [false, true].map(Lane::new)).collect(),
            sequence: AtomicU64::new(0),
            most_percent: 100 + u64::from(options.rebuild_percent),
            left_bytes: working_bytes(threads).max(options.local_bytes / 32),
            rebuilding: AtomicU64::new(0),
            excess: AtomicU64::new(0),
            making_room: AtomicUsize::new(0),
            has_failed: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
        };
        store.pages.take(fixed_bytes(name, threads, most_pages));
        Ok(store)
    }

    /// Returns the value of a key. No round trip if its record is in local memory, else one.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a key that has not 16 bytes; those of a READ; one that says so if the record can not be decrypted.
    pub async fn read(&self, key: &[u8], ct: &ComputeThread) -> Result<Option<Vec<u8>>> {
        let key = self.check(key, &[])?;
        let g = &ct.pin();
        Ok(match self.note(self.find(&key, self.hash(&key), true, g).await)? {
            Lookup::Present(found) => Some(found.value),
            Lookup::Absent(_) => None,
        })
    }

    /// Sets the value of a key; encrypted, if asked to. It is in far memory when this returns, as soon as the posted WRITEs are over: see the crate's documentation. No round trip for a new key, or
    /// if the old record is in local memory; else one. One record in a hundred or so opens a page, for three.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a key that has not 16 bytes, or a value of more than 8 KiB; [`Error::OutOfMemory`] if far memory is full; one that says so if the budget is
    /// exhausted, or if it is to be encrypted and the store has no key. The key has its old value then.
    pub async fn write(
        &self,
        key: &[u8],
        value: &[u8],
        is_encrypted: bool,
        ct: &ComputeThread,
    ) -> Result<()> {
        self.note(self.put(key, value, is_encrypted, false, ct).await).map(drop)
    }

    /// Changes the value of a key that is in the store. Returns whether it is.
    ///
    /// # Errors
    /// Those of [`write`](Self::write).
    pub async fn update(
        &self,
        key: &[u8],
        value: &[u8],
        is_encrypted: bool,
        ct: &ComputeThread,
    ) -> Result<bool> {
        self.note(self.put(key, value, is_encrypted, true, ct).await)
    }

    /// Deletes a key. Returns whether it was in the store. No round trip if its record is in local memory, else one.
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
    pub async fn delete(&self, key: &[u8], ct: &ComputeThread) -> Result<bool> {
        let key = self.check(key, &[])?;
        let deleted = self.remove(&key, ct).await;
        self.note(deleted)
    }

    async fn remove(&self, key: &Key, ct: &ComputeThread) -> Result<bool> {
        let hash = self.hash(key);
        {
            let g = &ct.pin();
            loop {
                let Lookup::Present(found) = self.find(key, hash, false, g).await? else { return Ok(false) };
                self.wait_for(&found.record, g).await?;
                let mut entries = self.index.lock(hash);
                if let Some(slot) = entries.slot(hash, found.record.place) {
                    entries.remove(slot);
                    self.pages.tally.subtract(|part| &part.records, 1);
                    self.count_user(None, Some(found.record.head));
                    self.bury(&found.record, g)?;
                    break;
                }
            }
        }
        self.tidy(ct).await;
        Ok(true)
    }

    /// Tells the store that a key will be accessed soon, and asks the processor for where it is in the index. A program that knows its next requests before one has ended, as a server does that has received
    /// several, saves most of the time that the processor waits for memory: see [`Hint`]. No round trip.
    pub fn hint(&self, key: &[u8]) -> Hint<'_> {
        // A key of another length is in no segment: any one will do.
        let hash = key.try_into().map_or(0, |key| self.hash(key));
        self.index.prefetch(hash);
        Hint { store: self, hash, place: None }
    }

    /// Returns the values of several keys. The round trips of the slowest.
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
    pub async fn get_many(&self, keys: &[&[u8]], ct: &ComputeThread) -> Result<Vec<Option<Vec<u8>>>> {
        let mut hints: SmallVec<[Hint<'_>; 16]> = keys.iter().map(|key| self.hint(key)).collect();
        for hint in &mut hints {
            hint.look_up();
        }
        for hint in &hints {
            hint.fetch(true, ct);
        }
        ct.tasks(keys.len(), async |task| self.read(keys[task], ct).await).await
    }

    /// Returns what the store has, and what it has done.
    pub fn stats(&self) -> Stats {
        let (counts, tally) = (&self.pages.counts, &self.pages.tally);
        let live_bytes = tally.sum(|part| &part.live_words).saturating_mul(8);
        let far_bytes = (self.pages.count.load(Ordering::Relaxed) * COPY_BYTES) as u64;
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Stats {
            records: tally.sum(|part| &part.records),
            user_bytes: tally.sum(|part| &part.user_bytes),
            live_bytes,
            dead_bytes: far_bytes.saturating_sub(live_bytes),
            pages: self.pages.count.load(Ordering::Relaxed) as u64,
            far_bytes,
            local_bytes: self.pages.used_bytes() as u64,
            local_pages: self.pages.local_pages() as u64,
            hits: tally.sum(|part| &part.hits),
            record_reads: tally.sum(|part| &part.reads),
            evicted_pages: of(&counts.evicted_pages),
            evicted_records: of(&counts.evicted_records),
            rebuilt_pages: of(&counts.rebuilt),
            rebuilding_pages: of(&self.rebuilding),
            excess_pages: self.count_excess(),
            unwritten_pages: self.count_unwritten(),
            evictions: tally.sum(|part| &part.evictions),
            pending_reads: tally.sum(|part| &part.pending_reads),
            waiting_reads: tally.sum(|part| &part.waiting_reads),
            waiting_writes: tally.sum(|part| &part.waiting_writes),
            torn_records: of(&counts.torn),
        }
    }

    fn count_unwritten(&self) -> u64 {
        self.lanes.iter().flatten().filter(|lane| lock(&lane.unsettled).is_some()).count() as u64
    }

    // ---- keys ---------------------------------------------------------------------------------------------------------

    fn check(&self, key: &[u8], value: &[u8]) -> Result<Key> {
        self.check_usable()?;
        if self.is_closed.load(Ordering::Relaxed) {
            return Err(Error::other("the store is closed"));
        }
        if value.len() > MOST_VALUE_BYTES {
            return Err(invalid("value", format!("{} bytes", value.len()), "a value has at most 8192 bytes"));
        }
        key.try_into().map_err(|_| invalid("key", format!("{} bytes", key.len()), "a key has 16 bytes"))
    }

    fn check_usable(&self) -> Result<()> {
        if self.has_failed.load(Ordering::Relaxed) {
            return Err(Error::other("a WRITE of the store has failed: open the store again"));
        }
        Ok(())
    }

    /// Hashes a key by a secret of this process, so that no user can choose keys of equal hashes.
    ///
    /// Two keys have equal hashes with a probability of `2^-64`, also if an attacker has chosen them: the store tells nobody the secret or a hash. The reason is that the upper half of the sum is strongly universal (Lemire and Kaser, "Strongly
    /// universal string hashing is fast", 2014). The sums of keys that are consecutive numbers are at equal distances, which would fill all segments of the index at the same time: so their bits are mixed.
    #[inline]
    pub(crate) fn hash(&self, key: &Key) -> u64 {
        let [first, second, third] = self.secret;
        let all = u128::from_le_bytes(*key);
        let [low, high] = [all as u64, (all >> 64) as u64].map(u128::from);
        let sum = third.wrapping_add(first.wrapping_mul(low)).wrapping_add(second.wrapping_mul(high));
        // The finaliser of MurmurHash3, by which no two words become the same.
        let mut hash = (sum >> 64) as u64;
        hash = (hash ^ hash >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
        hash = (hash ^ hash >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        hash ^ hash >> 33
    }

    /// Looks for the record of a key. It takes effect when it asks the index. The records' pages may be removed afterwards, but the guard protects them, and keeps their numbers from being given to others.
    pub(crate) async fn find(
        &self,
        key: &Key,
        hash: u64,
        is_value_wanted: bool,
        g: &Guard<'_>,
    ) -> Result<Lookup> {
        let candidates: Candidates = self.index.lock(hash).find(hash).collect();
        self.find_in(candidates, key, hash, is_value_wanted, g).await
    }

    /// Looks for the record of a key among those to which the index leads for its hash.
    async fn find_in(
        &self,
        candidates: Candidates,
        key: &Key,
        hash: u64,
        is_value_wanted: bool,
        g: &Guard<'_>,
    ) -> Result<Lookup> {
        for place in &candidates {
            let Decoded { head, key: found, value } = self.look(*place, is_value_wanted, g).await?;
            if found == *key {
                return Ok(Lookup::Present(Found { record: Record { place: *place, head }, value }));
            }
            // The index has 32 bits of the hash.
            if self.hash(&found) as u32 != hash as u32 {
                return Err(Fault::Misplaced.into());
            }
        }
        Ok(Lookup::Absent(candidates))
    }

    /// Decodes a record, wherever it is.
    async fn look(&self, place: Place, is_value_wanted: bool, g: &Guard<'_>) -> Result<Decoded> {
        let page = &self.pages[place.page];
        let cipher = self.cipher.as_ref();
        let mut backoff = g.backoff();
        loop {
            match page.find(place, is_value_wanted, cipher) {
                Looked::Found(found) => {
                    self.pages.tally.add(|part| &part.hits, 1);
                    return Ok(found?);
                }
                Looked::BeingRead => {
                    let _waiting = self.pages.tally.counted(|part| &part.waiting_reads);
                    backoff.wait().await;
                }
                Looked::Far => break,
            }
        }
        // One that is only changed is not read again.
        let reading = if is_value_wanted { self.pages.reads(page, place.first, place.words) } else { None };
        self.pages.tally.add(|part| &part.reads, 1);
        let first = u64::from(place.first);
        let range = first..first + u64::from(place.words_read(is_value_wanted));
        let pending = self.pages.tally.counted(|part| &part.pending_reads);
        let words = g.chain(op::load_range(page.far().words(), range)).submit().await?;
        drop(pending);
        let found = place.decode(&words[..], is_value_wanted, cipher)?;
        if found.head.is_encrypted() != place.is_encrypted {
            return Err(Fault::Tampered.into());
        }
        if let Some(reading) = reading {
            reading.keep(words);
        }
        Ok(found)
    }

    // ---- changes ------------------------------------------------------------------------------------------------------

    async fn put(
        &self,
        key: &[u8],
        value: &[u8],
        is_encrypted: bool,
        only_present: bool,
        ct: &ComputeThread,
    ) -> Result<bool> {
        let key = self.check(key, value)?;
        let hash = self.hash(&key);
        // It is looked up when the record is made.
        self.index.prefetch(hash);
        let cipher = if is_encrypted {
            let nonce = self.nonce();
            Some((self.cipher.as_ref().ok_or(Fault::NoKey)?, nonce))
        } else {
            None
        };
        let words = record::encode(&key, value, cipher)?;
        let lane = &self.lanes[ct.index()][0];
        let is_put = loop {
            let linked = self.link(&key, hash, &words, lane, only_present, &ct.pin()).await?;
            match linked {
                Some(is_put) => break is_put,
                // Without a guard: it may wait for all guards.
                None => self.make_room(lane, ct).await?,
            }
        };
        if is_put {
            self.tidy(ct).await;
        }
        Ok(is_put)
    }

    /// Adds a record, and makes it that of its key. Returns `false` if the key has none and must have one, and `None` if the page has no room.
    async fn link(
        &self,
        key: &Key,
        hash: u64,
        record: &[u64],
        lane: &Lane,
        only_present: bool,
        g: &Guard<'_>,
    ) -> Result<Option<bool>> {
        loop {
            let append = || self.append(lane, record, g);
            let looked = {
                let entries = self.index.lock(hash);
                let candidates: Candidates = entries.find(hash).collect();
                if candidates.is_empty() && !only_present {
                    Err(self.insert_into(entries, hash, self.left_bytes, append)?)
                } else {
                    Ok(candidates)
                }
            };
            let (added, old) = match looked {
                Err(added) => (added, None),
                Ok(candidates) => match self.find_in(candidates, key, hash, false, g).await? {
                    Lookup::Present(Found { record: old, .. }) => {
                        self.wait_for(&old, g).await?;
                        (self.replace(lane, hash, &old, record, g)?, Some(old))
                    }
                    Lookup::Absent(_) if only_present => return Ok(Some(false)),
                    Lookup::Absent(candidates) => {
                        (self.insert(hash, &candidates, self.left_bytes, append)?, None)
                    }
                },
            };
            match (added, old) {
                (Added::Unburied, Some(record)) => {
                    let _burial = Burial { store: self, record, g };
                    self.settle(g).await?;
                    return Ok(Some(true));
                }
                (Added::Done | Added::Unburied, _) => return Ok(Some(true)),
                (Added::Changed, _) => {}
                (Added::Full, _) => return Ok(None),
            }
        }
    }

    /// Adds a record in place of another one.
    ///
    /// The segment of the index is locked meanwhile, so operations on a key change far memory in the order in which they change the index. At any time, one record of a key is live that an operation has written
    /// which has returned, and one that is just being written.
    fn replace(&self, lane: &Lane, hash: u64, old: &Record, record: &[u64], g: &Guard<'_>) -> Result<Added> {
        let mut entries = self.index.lock(hash);
        let Some(slot) = entries.slot(hash, old.place) else { return Ok(Added::Changed) };
        let Some(new) = self.append(lane, record, g)? else { return Ok(Added::Full) };
        entries.replace(slot, new.place);
        self.count_user(Some(new.head), Some(old.head));
        self.forget(old);
        if !g.is_immediate() && self.segment_of(&new) != self.segment_of(old) {
            return Ok(Added::Unburied);
        }
        self.post_burial(old, g)?;
        Ok(Added::Done)
    }

    /// Returns the segment of far memory that has a record.
    fn segment_of(&self, record: &Record) -> u16 {
        self.pages[record.place.page].far().address().segment()
    }

    /// Adds a record to the index, which `append` adds to a page, if that leaves so many bytes of the budget. The index must still have these candidates for the hash.
    pub(crate) fn insert(
        &self,
        hash: u64,
        candidates: &Candidates,
        left: usize,
        append: impl FnOnce() -> Result<Option<Record>>,
    ) -> Result<Added> {
        let entries = self.index.lock(hash);
        if entries.find(hash).eq(candidates.iter().copied()) {
            self.insert_into(entries, hash, left, append)
        } else {
            Ok(Added::Changed)
        }
    }

    /// Adds a record to a segment of the index.
    fn insert_into(
        &self,
        mut entries: MutexGuard<'_, Entries>,
        hash: u64,
        left: usize,
        append: impl FnOnce() -> Result<Option<Record>>,
    ) -> Result<Added> {
        if entries.is_full() {
            self.index.divide(entries, |bytes| self.pages.take_for_good(bytes, left))?;
            return Ok(Added::Changed);
        }
        let Some(new) = append()? else { return Ok(Added::Full) };
        entries.insert(hash, new.place);
        self.pages.tally.add(|part| &part.records, 1);
        self.count_user(Some(new.head), None);
        Ok(Added::Done)
    }

    /// Counts the bytes of a record to which the index leads now, and of the one to which it has led before.
    pub(crate) fn count_user(&self, new: Option<Head>, old: Option<Head>) {
        let [new, old] = [new, old].map(|head| head.map_or(0, Head::user_bytes));
        self.pages.tally.add(|part| &part.user_bytes, new.wrapping_sub(old));
    }

    /// The most pages.
    pub(crate) fn most_pages(&self) -> u64 {
        self.pages.most()
    }

    /// Returns a nonce that no record has.
    fn nonce(&self) -> [u8; NONCE_LEN] {
        let mut nonce = [0; NONCE_LEN];
        nonce[..4].copy_from_slice(&self.openings.to_le_bytes());
        nonce[4..].copy_from_slice(&self.nonces.fetch_add(1, Ordering::Relaxed).to_le_bytes());
        nonce
    }

    /// Adds a record to the page of a lane. `None` if it has no room. No round trip.
    fn append(&self, lane: &Lane, record: &[u64], g: &Guard<'_>) -> Result<Option<Record>> {
        let head = Head::of_word(record[0]).ok_or(Fault::NotARecord)?;
        let mut filling = lock(&lane.filling);
        let Some(Filling { page, copy }) = &*filling else { return Ok(None) };
        let page = &self.pages[*page];
        let first = page.used();
        let Some(to) = copy.get(first..first + record.len()) else { return Ok(None) };
        to.iter().zip(record).for_each(|(to, word)| to.store(*word, Ordering::Relaxed));
        page.set_used(first + record.len());
        let place = Place::of(page.number, first, head);
        let posted = g.chain(op::store_range(page.far().words(), first as u64, record)).post();
        if let Err(error) = posted {
            // Behind a gap no record would be found again.
            *filling = None;
            return Err(error);
        }
        self.pages.count_live(page, place.words);
        Ok(Some(Record { place, head }))
    }

    /// Opens a page for a lane, or waits for the task that does.
    async fn make_room(&self, lane: &Lane, ct: &ComputeThread) -> Result<()> {
        if lane.is_opening.swap(true, Ordering::AcqRel) {
            let _waiting = self.pages.tally.counted(|part| &part.waiting_writes);
            let mut backoff = ct.backoff();
            while lane.is_opening.load(Ordering::Acquire) {
                backoff.wait().await;
            }
            return Ok(());
        }
        defer! { lane.is_opening.store(false, Ordering::Release) }
        self.open_page(lane, ct).await
    }

    /// Waits until a record is in far memory that another thread has added to a page which that thread still fills: its burial must not overtake it. One round trip in this case, on fabrics that are not
    /// immediate.
    async fn wait_for(&self, record: &Record, g: &Guard<'_>) -> Result<()> {
        let page = &self.pages[record.place.page];
        if g.is_immediate() || page.writer() == g.index() || !page.is(State::Filling) {
            return Ok(());
        }
        let head = page.far().words().at(record.place.first.into());
        let mut backoff = g.backoff();
        for _ in 0..MOST_LOOKS {
            if g.chain(op::load(head)).submit().await? != 0 {
                return Ok(());
            }
            backoff.wait().await;
        }
        Err(self.failed("a record has not arrived in far memory"))
    }

    /// Opens a page for a lane. The one before is full: once all WRITEs to it are over, it may be evicted.
    async fn open_page(&self, lane: &Lane, ct: &ComputeThread) -> Result<()> {
        // An operation that was dropped may not have waited.
        self.settle_lane(lane, ct).await?;
        self.take_room(lane, ct).await?;
        let mut taken = guard(OPENING_BYTES, |bytes| {
            if lane.is_of_rebuilds {
                lock(&lane.room).bytes += bytes;
            } else {
                self.pages.give(bytes);
            }
        });
        let _making_room = counted(&self.making_room);
        let page = self.new_page(lane, ct).await?;
        *taken -= COPY_BYTES;
        drop(taken);
        let copy: crate::pages::Copy = (0..PAGE_WORDS).map(|_| AtomicU64::new(0)).collect();
        self.pages.keep(page, Arc::clone(&copy));
        let before = lock(&lane.filling).replace(Filling { page: page.number, copy });
        *lock(&lane.unsettled) = before.map(|before| before.page);
        self.settle_lane(lane, ct).await
    }

    /// Takes [`OPENING_BYTES`]: for a rebuild, those of its lane. A write waits for those who make room.
    async fn take_room(&self, lane: &Lane, ct: &ComputeThread) -> Result<()> {
        let exhausted =
            || Error::other("the budget of local memory is exhausted: there is no room for a page");
        if lane.is_of_rebuilds {
            let mut room = lock(&lane.room);
            room.bytes = room.bytes.checked_sub(OPENING_BYTES).ok_or_else(exhausted)?;
            return Ok(());
        }
        let (mut backoff, mut looks, mut waiting) = (ct.backoff(), 0, None);
        while !self.pages.take(OPENING_BYTES) {
            waiting.get_or_insert_with(|| self.pages.tally.counted(|part| &part.waiting_writes));
            looks += 1;
            if looks > MOST_LOOKS || self.making_room.load(Ordering::Acquire) == 0 {
                return Err(exhausted());
            }
            backoff.wait().await;
        }
        Ok(())
    }

    /// Waits for the WRITEs to the page that a lane has filled before, which is full then.
    async fn settle_lane(&self, lane: &Lane, ct: &ComputeThread) -> Result<()> {
        if lock(&lane.unsettled).is_some() {
            self.settle(ct).await?;
            let settled = lock(&lane.unsettled).take();
            if let Some(page) = settled {
                self.pages.has_filled(&self.pages[page]);
            }
        }
        Ok(())
    }

    /// Takes a number for a page. The last ones are for rebuilding others. If the other numbers are those of pages that were removed, it waits for the operations that may use these, but not in a rebuild, which
    /// has a guard itself.
    async fn take_number(&self, lane: &Lane, ct: &ComputeThread) -> Result<(u32, bool)> {
        let left = if lane.is_of_rebuilds { 0 } else { self.lanes.len() };
        let looks = if lane.is_of_rebuilds { 1 } else { MOST_LOOKS_FOR_NUMBERS };
        let mut taken = None;
        self.look_for_numbers(looks, ct, || {
            taken = self.pages.take_number(left, ct);
            taken.is_some()
        })
        .await;
        let full = "the store's part of far memory is full: `far_bytes` allows no more pages";
        taken.ok_or_else(|| Error::other(full))
    }

    /// Waits until something is true, as long as more numbers can come from pages that were removed, and for so many looks at most.
    async fn look_for_numbers(&self, looks: u32, ct: &ComputeThread, mut is_true: impl FnMut() -> bool) {
        let mut backoff = ct.backoff();
        for look in 1.. {
            if is_true() || look > looks || !self.pages.has_retired_numbers() {
                return;
            }
            ct.try_reclaim().await;
            if look > 1 {
                backoff.wait().await;
            }
        }
    }

    /// Makes a page in far memory, to which the root links. Two round trips.
    async fn new_page(&self, lane: &Lane, ct: &ComputeThread) -> Result<&Page> {
        let (number, is_doubtful) = self.take_number(lane, ct).await?;
        let g = &ct.pin();
        let number = guard(number, |number| self.pages.give_doubtful(number));
        let link = self.root.pages().at((*number).into());
        let sequence = self.sequence.fetch_add(1, Ordering::Relaxed);
        let linked = if is_doubtful { Some(link.load(g).await?) } else { None };
        let far = if let Some(linked) = linked.filter(|linked| !linked.is_null()) {
            let far = linked.as_ptr();
            g.chain(op::store(far.sequence(), sequence)).submit().await?;
            far
        } else {
            let new = FarPage::new_in(ct, FarPage::init(vec![0; PAGE_WORDS]).sequence(sequence)).await?;
            let far = new.as_ptr();
            link.store(g, new).await?;
            far
        };
        Ok(self.pages.add(ScopeGuard::into_inner(number), (far, sequence), State::Filling, ct.index()))
    }

    pub(crate) fn is_usable(&self) -> bool {
        !self.has_failed.load(Ordering::Relaxed) && !self.is_closed.load(Ordering::Relaxed)
    }

    /// Refuses all operations from now on.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }

    /// Waits for this thread's WRITEs: those of all operations that it has performed. No round trip of its own.
    ///
    /// On fabrics other than `local:` and `shm:`, an operation is durable when all threads have done so that performed operations on the key up to then.
    ///
    /// # Errors
    /// Those of a WRITE; one that says so if an earlier one has failed.
    pub async fn flush(&self, ct: &ComputeThread) -> Result<()> {
        self.settle(ct).await?;
        self.check_usable()
    }

    /// Waits for this thread's WRITEs.
    pub(crate) async fn settle(&self, ct: &ComputeThread) -> Result<()> {
        self.note(ct.flush().await)
    }

    /// Remembers an error by which a WRITE may have failed: the next operation of a thread returns the error of one that was posted.
    fn note<R>(&self, done: Result<R>) -> Result<R> {
        if let Err(Error::NodeUnreachable(_)) = &done {
            self.has_failed.store(true, Ordering::Relaxed);
        }
        done
    }

    fn failed(&self, why: &'static str) -> Error {
        self.has_failed.store(true, Ordering::Relaxed);
        Error::other(format!("{why}: open the store again"))
    }

    /// Marks a record as dead, to which the index does not lead any more. Posted: after the WRITE of the record that replaces it, if both are in one segment.
    ///
    /// Its page may have been rebuilt since, and its number may be another page's: the guard protects it.
    pub(crate) fn bury(&self, record: &Record, g: &Guard<'_>) -> Result<()> {
        self.forget(record);
        self.post_burial(record, g)
    }

    /// Marks a record as dead in local memory.
    fn forget(&self, Record { place, head }: &Record) {
        let page = &self.pages[place.page];
        self.pages.count_dead(page, place.words);
        self.pages.bury(page, place.first, head.dead_word());
    }

    /// Marks a record as dead in far memory.
    fn post_burial(&self, Record { place, head }: &Record, g: &Guard<'_>) -> Result<()> {
        let far = self.pages[place.page].far();
        g.chain(op::store(far.words().at(place.first.into()), head.dead_word())).post()
    }

    // ---- rebuilding ---------------------------------------------------------------------------------------------------

    /// Rebuilds a page, if pages have too many dead words. As many tasks do that at a time as there are pages too many, so that those who make words dead do not outrun them.
    ///
    /// The caller's operation has taken effect, whatever becomes of this: an error of a WRITE is noted, and the lack of room is noticed by those who need it.
    async fn tidy(&self, ct: &ComputeThread) {
        let excess = self.look_for_excess();
        if excess > 0 {
            // In a box: most operations have nothing to do here, and theirs is the smaller future.
            Box::pin(self.rebuild_one_of(excess, ct)).await;
        }
    }

    async fn rebuild_one_of(&self, excess: u64, ct: &ComputeThread) {
        let one_more = |tasks| (tasks < excess).then_some(tasks + 1);
        if self.rebuilding.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_err() {
            return;
        }
        defer! { self.rebuilding.fetch_sub(1, Ordering::Relaxed); }
        let rebuilt = self.rebuild_emptiest(100 * 100 / self.most_percent, PAGES_LOOKED_AT, ct).await;
        if let Err(error) = self.note(rebuilt) {
            tracing::debug!(%error, "a page was not rebuilt");
        }
    }

    /// Returns how many pages there are too many. As long as there are none, a thread counts only each time when so many words have become live or dead as a part of a page has.
    fn look_for_excess(&self) -> u64 {
        let changed = self.pages.tally.mine(|part| &part.changed_words);
        let known = self.excess.load(Ordering::Relaxed);
        if known == 0 && changed < WORDS_PER_LOOK {
            return 0;
        }
        self.pages.tally.subtract(|part| &part.changed_words, changed);
        let excess = self.count_excess();
        if excess != known {
            self.excess.store(excess, Ordering::Relaxed);
        }
        excess
    }

    /// Returns how many pages there are too many. Pages that are being filled are not full of dead records.
    fn count_excess(&self) -> u64 {
        let lanes = 2 * self.lanes.len();
        let pages = self.pages.count.load(Ordering::Relaxed).saturating_sub(lanes) as u64;
        let live = self.pages.tally.sum(|part| &part.live_words);
        pages.saturating_sub(live.saturating_mul(self.most_percent) / (100 * PAGE_WORDS as u64))
    }

    /// Rebuilds all pages of which less than `percent` of the words are live, and returns how many there were. Readers and writers go on.
    ///
    /// # Errors
    /// Those of [`write`](Self::write).
    pub async fn rebuild(&self, percent: u64, ct: &ComputeThread) -> Result<u64> {
        let mut rebuilt = 0;
        let most = self.pages.count.load(Ordering::Relaxed) as u64;
        while rebuilt < most && self.note(self.rebuild_emptiest(percent, usize::MAX, ct).await)? {
            rebuilt += 1;
        }
        Ok(rebuilt)
    }

    /// Rebuilds a page with few live words, less than `percent`, if one is found by so many looks.
    async fn rebuild_emptiest(&self, percent: u64, looks: usize, ct: &ComputeThread) -> Result<bool> {
        let below = (PAGE_WORDS as u64 * percent).div_ceil(100);
        // Before it has a guard.
        self.look_for_numbers(MOST_LOOKS_FOR_NUMBERS, ct, || self.pages.has_number(ct)).await;
        let Some(page) = self.pages.take_emptiest(below, looks) else { return Ok(false) };
        let leaving = guard(page, |page| self.pages.stays(page));
        let copy = page.copy();
        let buffers = if copy.is_some() { REBUILDING_BYTES - COPY_BYTES } else { REBUILDING_BYTES };
        if !self.pages.take(buffers + OPENING_BYTES) {
            return Ok(false);
        }
        let lane = &self.lanes[ct.index()][1];
        lane.adds_room();
        defer! { self.pages.give(buffers + lane.gives_room()) }
        let _making_room = counted(&self.making_room);
        let g = &ct.pin();
        self.empty_page(page, copy, ct, g).await?;
        ScopeGuard::into_inner(leaving);
        let far = page.far();
        self.pages.remove(page, g);
        self.pages.counts.rebuilt.fetch_add(1, Ordering::Relaxed);
        tracing::debug!(page = page.number, "a page was rebuilt");
        g.sched_reclaim(far.shared(g)).await?;
        Ok(true)
    }

    /// Moves the live records of a page to another one, until the root need not link to it. The bytes of the buffers were taken.
    ///
    /// A record is copied, and then the index leads to the copy, unless it does not lead to the record any more. The root links to the page until all of its records are dead in far memory: then the records that
    /// have replaced them are there.
    async fn empty_page(
        &self,
        page: &Page,
        copy: Option<crate::pages::Copy>,
        ct: &ComputeThread,
        g: &Guard<'_>,
    ) -> Result<()> {
        // Behind them may be a record that is not whole.
        let used = page.used();
        let words: Vec<u64> = match copy {
            Some(copy) => copy[..used].iter().map(|word| word.load(Ordering::Relaxed)).collect(),
            None => g.chain(op::load_range(page.far().words(), 0..used as u64)).submit().await?,
        };
        let mut burials = Vec::new();
        let moved = self.move_records(page, &words, &mut burials, ct, g).await;
        self.settle(ct).await?;
        drop(burials);
        moved?;
        self.wait_for_burials(page, ct, g).await?;
        self.root.pages().at(page.number.into()).store(g, RemotePtr::<FarPage>::NULL).await.map(drop)
    }

    /// Adds the live ones of a page's words to another page.
    async fn move_records<'a, 'g>(
        &'a self,
        page: &Page,
        words: &[u64],
        burials: &mut Vec<Burial<'a, 'g>>,
        ct: &ComputeThread,
        g: &'a Guard<'g>,
    ) -> Result<()> {
        let lane = &self.lanes[ct.index()][1];
        let mut live = records(words).filter_map(|(first, words)| {
            let head = Head::of_word(words[0]).filter(|head| head.is_live())?;
            Some((first, words, head))
        });
        let mut moving = Vec::with_capacity(MOVED_TOGETHER);
        loop {
            for (first, words, head) in live.by_ref().take(MOVED_TOGETHER) {
                let key = record::decode(words, false, self.cipher.as_ref())?.key;
                let hash = self.hash(&key);
                self.index.prefetch(hash);
                moving.push((first, words, head, hash));
            }
            if moving.is_empty() {
                return Ok(());
            }
            for (first, words, head, hash) in moving.drain(..) {
                let place = Place::of(page.number, first, head);
                let record = Record { place, head };
                loop {
                    match self.replace(lane, hash, &record, words, g)? {
                        Added::Full => self.make_room(lane, ct).await?,
                        Added::Unburied => break burials.push(Burial { store: self, record, g }),
                        Added::Done | Added::Changed => break,
                    }
                }
            }
        }
    }

    /// Waits until all records of a page are dead in far memory, to none of which the index leads. One round trip, on fabrics that are not immediate.
    async fn wait_for_burials(&self, page: &Page, ct: &ComputeThread, g: &Guard<'_>) -> Result<()> {
        if g.is_immediate() {
            return Ok(());
        }
        self.settle(ct).await?;
        let used = page.used() as u64;
        let mut backoff = g.backoff();
        for _ in 0..MOST_LOOKS {
            let words = g.chain(op::load_range(page.far().words(), 0..used)).submit().await?;
            let is_live = |words: &[u64]| Head::of_word(words[0]).is_some_and(Head::is_live);
            if !records(&words).any(|(_, words)| is_live(words)) {
                return Ok(());
            }
            backoff.wait().await;
        }
        Err(self.failed("a record has not died in far memory"))
    }
}

/// Returns the records of a page, and where each begins: up to the first word that is no head.
pub(crate) fn records(words: &[u64]) -> impl Iterator<Item = (usize, &[u64])> {
    let mut first = 0;
    std::iter::from_fn(move || {
        let head = Head::of_word(*words.get(first)?)?;
        let record = words.get(first..first + head.words())?;
        first += head.words();
        Some((first - head.words(), record))
    })
}

const _: () = assert!(KEY_BYTES == 16 && PAGE_WORDS > 1 + (KEY_BYTES + MOST_VALUE_BYTES + 44) / 8);

#[cfg(test)]
mod tests {
    use super::*;

    /// A rebuild fails in the middle: far memory is full. The records that it has moved are dead in their old page, so the page can be rebuilt later.
    #[test]
    fn a_rebuild_that_fails_buries_what_it_has_moved() {
        let run = Cluster::connect("sim:nodes=2,size=2MiB").unwrap().run(1, async |ct| {
            let options = Options::new(1 << 20, 2 << 20);
            let store = Store::open("store", &options, ct).await?;
            let key = |number: u64| u128::from(number).to_le_bytes();
            let live_in = async |number: u32| {
                let (page, g) = (&store.pages[number], &ct.pin());
                let words =
                    g.chain(op::load_range(page.far().words(), 0..page.used() as u64)).submit().await?;
                let is_live = |words: &[u64]| Head::of_word(words[0]).is_some_and(Head::is_live);
                Ok::<_, Error>(records(&words).filter(|(_, words)| is_live(words)).count())
            };
            // Three pages, of each of which two records of three are live.
            for number in 0..420 {
                store.write(&key(number), &[1; 100], false, ct).await?;
            }
            for number in (0..420).step_by(3) {
                assert!(store.delete(&key(number), ct).await?);
            }
            store.flush(ct).await?;
            let full: Vec<u32> = (0..3).filter(|number| store.pages[*number].is(State::Full)).collect();
            assert!(full.len() >= 2 && store.lanes[0][1].filling.lock().unwrap().is_none());
            assert!(store.rebuild_emptiest(100, 1, ct).await?, "its records have room in a new page");
            // No further page can be made.
            let mut taken = Vec::new();
            while let Ok((number, _)) = store.take_number(&store.lanes[0][1], ct).await {
                taken.push(number);
            }
            let left = full.into_iter().find(|number| store.pages[*number].is(State::Full)).unwrap();
            let before = live_in(left).await?;
            let error = store.rebuild_emptiest(100, 1, ct).await.unwrap_err();
            assert!(error.to_string().contains("far memory is full"), "{error}");
            store.flush(ct).await?;
            let after = live_in(left).await?;
            let words: usize = store.pages[left].live() as usize;
            let of_record = record::words_of(100, false);
            assert!(0 < after && after < before && words == after * of_record, "{before}, {after}, {words}");
            for number in taken {
                store.pages.give_doubtful(number);
            }
            assert!(store.rebuild_emptiest(100, 1, ct).await?);
            for number in 0..420 {
                let is_there = store.read(&key(number), ct).await?.is_some();
                assert_eq!(is_there, number % 3 != 0, "{number}");
            }
            Ok(())
        });
        run.unwrap();
    }
}
