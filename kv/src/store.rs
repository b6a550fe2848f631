//! The store: what compute threads do.

use std::cell::Cell;
use std::hash::Hasher;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use farfield::prelude::*;
use farfield::{Error, RemotePtr};
use ring::aead::NONCE_LEN;
use siphasher::sip::SipHasher13;

use crate::dropped::OnDrop;
use crate::error::{Fault, invalid};
use crate::index::{Index, Place};
use crate::options::{Options, Stats};
use crate::pages::{ARC_BYTES, COPY_BYTES, FarPage, PAGE_BYTES, PAGE_WORDS, Page, Pages, State, lock};
use crate::record::{self, Cipher, Head, KEY_BYTES, Key, MOST_VALUE_BYTES};

/// The version of the layout in far memory.
pub(crate) const FORMAT: u64 = 0x6b76_0001;

/// What opening a page takes of the budget: the page and its copy, and two buffers that are freed again.
const OPENING_BYTES: usize = PAGE_BYTES + 3 * COPY_BYTES;
/// What rebuilding a page takes of the budget: two buffers of its words, while they are read.
const REBUILDING_BYTES: usize = 2 * COPY_BYTES;

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
    number: u32,
    page: Arc<Page>,
    copy: crate::pages::Copy,
}

/// Where a thread adds records: new ones, or those of pages that it rebuilds.
#[derive(Default)]
pub(crate) struct Lane {
    filling: Mutex<Option<Filling>>,
    /// The page that was filled before, if its WRITEs may not be over. Changed only by the task that opens a page.
    unsettled: Mutex<Option<Arc<Page>>>,
    /// True while a task opens a page for it.
    is_opening: AtomicBool,
}

/// A store, for all compute threads of its process.
pub struct Store {
    pub(crate) name: Box<str>,
    pub(crate) root: RemotePtr<StoreRoot>,
    pub(crate) index: Index,
    pub(crate) pages: Pages,
    pub(crate) cipher: Option<Cipher>,
    pub(crate) openings: u32,
    nonces: AtomicU64,
    secret: (u64, u64),
    /// For each thread one for new records, and one for those of pages that are rebuilt.
    lanes: Box<[[Lane; 2]]>,
    pub(crate) sequence: AtomicU64,
    /// The most that pages may take, in percent of the live records.
    most_percent: u64,
    /// The bytes of keys and values of the records to which the index leads. For a moment it may have wrapped below 0: one thread subtracts what another one is about to add.
    user_bytes: AtomicU64,
    /// The bytes of the budget that new keys leave for pages: what changes need, and what the index may need more when the store is opened again.
    left_bytes: usize,
    rebuilding: AtomicBool,
    /// True once a WRITE has failed.
    has_failed: AtomicBool,
    is_closed: AtomicBool,
}

/// A record that was added to a page. It is buried unless the index leads to it.
pub(crate) struct Added<'a> {
    store: &'a Store,
    g: &'a Guard<'a>,
    page: Arc<Page>,
    head: Head,
    pub(crate) place: Place,
    pub(crate) is_linked: Cell<bool>,
}

impl Drop for Added<'_> {
    fn drop(&mut self) {
        if !self.is_linked.get() {
            // A WRITE that fails is noticed by the next wait for all of them.
            let _ = self.store.bury(&self.page, self.place, self.head, self.g);
        }
        self.page.pending.fetch_sub(1, Ordering::Release);
    }
}

/// What a key was found to have.
pub(crate) struct Found {
    pub(crate) page: Arc<Page>,
    pub(crate) place: Place,
    pub(crate) head: Head,
    pub(crate) value: Vec<u8>,
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
        // Each lane has a page, and one page is rebuilt, for which a lane opens another one.
        let working = 2 * threads * (COPY_BYTES + PAGE_BYTES) + REBUILDING_BYTES + OPENING_BYTES;
        let store = Self {
            name: name.into(),
            root,
            index: Index::new(),
            pages: Pages::new(most_pages, options.local_bytes),
            cipher: options.cipher(identity)?,
            openings,
            nonces: AtomicU64::new(0),
            secret: (ct.random(), ct.random()),
            lanes: (0..threads).map(|_| Default::default()).collect(),
            sequence: AtomicU64::new(0),
            most_percent: 100 + u64::from(options.rebuild_percent),
            user_bytes: AtomicU64::new(0),
            left_bytes: working.max(options.local_bytes / 32),
            rebuilding: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
        };
        // What is always there.
        let own = size_of::<Self>() + store.name.len() + ARC_BYTES + size_of_val(&*store.lanes);
        let fixed = own + store.index.bytes() + store.pages.table_bytes();
        // The list of copies has four bytes for each that the budget has room for.
        let least = fixed - store.pages.clock_bytes() + working;
        let least = least + (least / COPY_BYTES + 1) * size_of::<u32>();
        if options.local_bytes < least || !store.pages.take(fixed) {
            let value = options.local_bytes.to_string();
            return Err(Error::other(format!(
                "local_bytes: {value} is too little: {least} bytes are needed at least"
            )));
        }
        Ok(store)
    }

    /// Returns the value of a key. No round trip if its page is in local memory, else one.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a key that has not 16 bytes; those of a READ; one that says so if the record can not be decrypted.
    pub async fn read(&self, key: &[u8], ct: &ComputeThread) -> Result<Option<Vec<u8>>> {
        let key = self.check(key, &[])?;
        let g = &ct.pin();
        let (found, _) = self.find(&key, self.hash(&key), g).await?;
        Ok(found.map(|found| found.value))
    }

    /// Sets the value of a key; encrypted, if asked to. It is in far memory when this returns, as soon as the posted WRITEs are over: see the crate's documentation. No round trip for a new key, or
    /// if the old record's page is in local memory; else one. One record in a hundred or so opens a page, for two.
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
        self.put(key, value, is_encrypted, false, ct).await.map(drop)
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
        self.put(key, value, is_encrypted, true, ct).await
    }

    /// Deletes a key. Returns whether it was in the store. No round trip if its page is in local memory, else one.
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
    pub async fn delete(&self, key: &[u8], ct: &ComputeThread) -> Result<bool> {
        let key = self.check(key, &[])?;
        let hash = self.hash(&key);
        {
            let g = &ct.pin();
            loop {
                let (Some(found), _) = self.find(&key, hash, g).await? else { return Ok(false) };
                if self.index.shard(hash).remove(hash, found.place) {
                    self.count_user(None, Some(found.head));
                    self.bury(&found.page, found.place, found.head, g)?;
                    break;
                }
            }
        }
        self.tidy(ct).await;
        Ok(true)
    }

    /// Returns the values of several keys. The round trips of the slowest.
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
    pub async fn get_many(&self, keys: &[&[u8]], ct: &ComputeThread) -> Result<Vec<Option<Vec<u8>>>> {
        ct.tasks(keys.len(), async |task| self.read(keys[task], ct).await).await
    }

    /// Returns what the store has, and what it has done.
    pub fn stats(&self) -> Stats {
        let counts = &self.pages.counts;
        let live_bytes = 8 * self.pages.live_words.load(Ordering::Relaxed);
        let far_bytes = (self.pages.count.load(Ordering::Relaxed) * COPY_BYTES) as u64;
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Stats {
            records: self.index.records() as u64,
            user_bytes: of(&self.user_bytes).cast_signed().max(0).cast_unsigned(),
            live_bytes,
            dead_bytes: far_bytes.saturating_sub(live_bytes),
            pages: self.pages.count.load(Ordering::Relaxed) as u64,
            far_bytes,
            local_bytes: self.pages.used_bytes() as u64,
            local_pages: self.pages.copies() as u64,
            hits: of(&counts.hits),
            record_reads: of(&counts.record_reads),
            page_reads: of(&counts.page_reads),
            evicted_pages: of(&counts.evicted),
            rebuilt_pages: of(&counts.rebuilt),
            torn_records: of(&counts.torn),
        }
    }

    // ---- keys ---------------------------------------------------------------------------------------------------------

    fn check(&self, key: &[u8], value: &[u8]) -> Result<Key> {
        if self.has_failed.load(Ordering::Relaxed) {
            return Err(Error::other("a WRITE of the store has failed: open it again"));
        }
        if self.is_closed.load(Ordering::Relaxed) {
            return Err(Error::other("the store is closed"));
        }
        if value.len() > MOST_VALUE_BYTES {
            return Err(invalid("value", format!("{} bytes", value.len()), "a value has at most 8192 bytes"));
        }
        key.try_into().map_err(|_| invalid("key", format!("{} bytes", key.len()), "a key has 16 bytes"))
    }

    /// Hashes a key by a secret of this process, so that no user can choose keys of equal hashes.
    pub(crate) fn hash(&self, key: &Key) -> u64 {
        let mut hasher = SipHasher13::new_with_keys(self.secret.0, self.secret.1);
        hasher.write(key);
        hasher.finish()
    }

    /// Looks for the record of a key. Also returns the places that the index has for its hash.
    ///
    /// A place that the index has when it is asked is that of a record that was current then, and the guard protects it. If its page is rebuilt meanwhile, and its number is another page's, what
    /// is read is of another key, mostly; then the index has another place by now.
    pub(crate) async fn find(
        &self,
        key: &Key,
        hash: u64,
        g: &Guard<'_>,
    ) -> Result<(Option<Found>, Vec<Place>)> {
        let mut backoff = g.backoff();
        loop {
            let places: Vec<Place> = self.index.shard(hash).find(hash).collect();
            let mut fault = None;
            for place in &places {
                let Some((page, words)) = self.words(*place, g).await? else { continue };
                match record::decode(&words, self.cipher.as_ref()) {
                    Ok((found, value)) if found == *key => {
                        let head = Head::of_word(words[0]).ok_or(Fault::NotARecord)?;
                        return Ok((Some(Found { page, place: *place, head, value }), places));
                    }
                    Ok(_) => {}
                    Err(why) => fault = Some(why),
                }
            }
            if self.index.shard(hash).find(hash).eq(places.iter().copied()) {
                return fault.map_or(Ok((None, places)), |fault| Err(fault.into()));
            }
            backoff.wait().await;
        }
    }

    /// Returns the words of a record, and its page. `None` if that is not there any more.
    async fn words(&self, place: Place, g: &Guard<'_>) -> Result<Option<(Arc<Page>, Vec<u64>)>> {
        let (first, end) = (usize::from(place.first), usize::from(place.first + place.words));
        let mut backoff = g.backoff();
        loop {
            let Some(page) = self.pages.get(place.page) else { return Ok(None) };
            let of = |copy: &crate::pages::Copy| {
                let words = copy.get(first..end)?;
                Some(words.iter().map(|word| word.load(Ordering::Relaxed)).collect())
            };
            if let Some(copy) = page.copy() {
                self.pages.counts.hits.fetch_add(1, Ordering::Relaxed);
                return Ok(of(&copy).map(|words| (page, words)));
            }
            if page.is_being_read() {
                backoff.wait().await;
                continue;
            }
            if page.is_worth_reading() {
                if let Some(copy) = self.read_page(place.page, &page, g).await? {
                    return Ok(of(&copy).map(|words| (page, words)));
                }
                continue;
            }
            self.pages.counts.record_reads.fetch_add(1, Ordering::Relaxed);
            let range = u64::from(place.first)..u64::from(place.first) + u64::from(place.words);
            let words = g.chain(op::load_range(page.far.words(), range)).submit().await?;
            return Ok(Some((page, words)));
        }
    }

    /// Reads a page into local memory. `None` if there is no room for it now.
    async fn read_page(&self, number: u32, page: &Page, g: &Guard<'_>) -> Result<Option<crate::pages::Copy>> {
        // What is read is copied.
        let _ended = OnDrop(|| page.was_read());
        if !self.pages.take(2 * COPY_BYTES) {
            return Ok(None);
        }
        let taken = Cell::new(2 * COPY_BYTES);
        let _given = OnDrop(|| self.pages.give(taken.get()));
        let words = g.chain(op::load_range(page.far.words(), 0..PAGE_WORDS as u64)).submit().await?;
        let copy: crate::pages::Copy = words.into_iter().map(AtomicU64::new).collect();
        self.pages.counts.page_reads.fetch_add(1, Ordering::Relaxed);
        self.pages.keep(number, page, Arc::clone(&copy));
        taken.set(COPY_BYTES);
        Ok(Some(copy))
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
        let cipher = if is_encrypted {
            let nonce = self.nonce();
            Some((self.cipher.as_ref().ok_or(Fault::NoKey)?, nonce))
        } else {
            None
        };
        let words = record::encode(&key, value, cipher)?;
        let is_put = {
            let g = &ct.pin();
            if only_present && self.find(&key, hash, g).await?.0.is_none() {
                return Ok(false);
            }
            let new = self.append(0, &words, ct, g).await?;
            let is_put = self.link(&key, hash, &new, only_present, g).await?;
            if is_put {
                new.is_linked.set(true);
            }
            is_put
        };
        self.tidy(ct).await;
        Ok(is_put)
    }

    /// Makes a record that of its key. Returns `false` if the key has none and must have one.
    async fn link(
        &self,
        key: &Key,
        hash: u64,
        new: &Added<'_>,
        only_present: bool,
        g: &Guard<'_>,
    ) -> Result<bool> {
        loop {
            let (found, places) = self.find(key, hash, g).await?;
            if let Some(found) = found {
                if self.index.shard(hash).replace(hash, found.place, new.place) {
                    self.count_user(Some(new.head), Some(found.head));
                    self.bury(&found.page, found.place, found.head, g)?;
                    return Ok(true);
                }
                continue;
            }
            if only_present {
                return Ok(false);
            }
            if self.insert(hash, &places, new.place, self.left_bytes)? {
                self.count_user(Some(new.head), None);
                return Ok(true);
            }
        }
    }

    /// Adds a record to the index, if that leaves so many bytes of the budget. Returns `false` if it has not the places any more that it had for the hash.
    pub(crate) fn insert(&self, hash: u64, places: &[Place], new: Place, left: usize) -> Result<bool> {
        let growth = self.index.shard(hash).growth(hash);
        if growth > 0 && !self.pages.take_for_good(growth, left) {
            return Err(Error::other(
                "the budget of local memory is exhausted: the index has no room for another record",
            ));
        }
        let mut shard = self.index.shard(hash);
        if !shard.find(hash).eq(places.iter().copied()) || shard.growth(hash) != growth {
            drop(shard);
            self.pages.give(growth);
            return Ok(false);
        }
        let before = shard.bytes();
        let is_inserted = shard.insert(hash, new);
        let unused = growth - (shard.bytes() - before).min(growth);
        drop(shard);
        self.pages.give(unused);
        if !is_inserted {
            return Err(Error::other("too many keys have nearly the same hash"));
        }
        Ok(true)
    }

    /// Counts the bytes of a record to which the index leads now, and of the one to which it has led before.
    pub(crate) fn count_user(&self, new: Option<Head>, old: Option<Head>) {
        let [new, old] = [new, old].map(|head| head.map_or(0, Head::user_bytes));
        self.user_bytes.fetch_add(new.wrapping_sub(old), Ordering::Relaxed);
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

    /// Adds a record to a page of this thread: lane 0 is for new ones. No round trip, unless it opens a page.
    pub(crate) async fn append<'a>(
        &'a self,
        number: usize,
        record: &[u64],
        ct: &ComputeThread,
        g: &'a Guard<'a>,
    ) -> Result<Added<'a>> {
        let mut backoff = g.backoff();
        loop {
            let lane = &self.lanes[ct.index()][number];
            if let Some(added) = self.append_to(lane, record, g)? {
                return Ok(added);
            }
            if lane.is_opening.swap(true, Ordering::AcqRel) {
                backoff.wait().await;
                continue;
            }
            // The last pages are for rebuilding others.
            let left = if number == 0 { self.lanes.len() } else { 0 };
            let _opened = OnDrop(|| lane.is_opening.store(false, Ordering::Release));
            self.open_page(lane, left, ct, g).await?;
        }
    }

    /// Adds a record to the page of a lane, if it has room.
    fn append_to<'a>(&'a self, lane: &Lane, record: &[u64], g: &'a Guard<'a>) -> Result<Option<Added<'a>>> {
        let head = Head::of_word(record[0]).ok_or(Fault::NotARecord)?;
        let mut filling = lock(&lane.filling);
        let Some(Filling { number, page, copy }) = &*filling else { return Ok(None) };
        let first = page.used.load(Ordering::Relaxed) as usize;
        let Some(to) = copy.get(first..first + record.len()) else { return Ok(None) };
        to.iter().zip(record).for_each(|(to, word)| to.store(*word, Ordering::Relaxed));
        page.used.store((first + record.len()) as u32, Ordering::Release);
        let place = Place { page: *number, first: first as u16, words: record.len() as u16 };
        self.pages.count_live(page, place.words);
        page.pending.fetch_add(1, Ordering::AcqRel);
        let page = Arc::clone(page);
        let added = Added { store: self, g, page, head, place, is_linked: Cell::new(false) };
        let posted = g.chain(op::store_range(added.page.far.words(), first as u64, record)).post();
        if let Err(error) = posted {
            // Behind a gap no record would be found again.
            *filling = None;
            return Err(error);
        }
        Ok(Some(added))
    }

    /// Opens a page for a lane. The one before is full: once all WRITEs to it are over, it may be evicted.
    async fn open_page(&self, lane: &Lane, left: usize, ct: &ComputeThread, g: &Guard<'_>) -> Result<()> {
        // An operation that was dropped may not have waited.
        self.settle_lane(lane, ct).await?;
        let mut backoff = g.backoff();
        let mut patience = 1000;
        while !self.pages.take(OPENING_BYTES) {
            patience -= 1;
            if patience == 0 {
                return Err(Error::other(
                    "the budget of local memory is exhausted: there is no room for a page",
                ));
            }
            backoff.wait().await;
        }
        let taken = Cell::new(OPENING_BYTES);
        let given = OnDrop(|| self.pages.give(taken.get()));
        let (number, page) = self.new_page(left, ct, g).await?;
        taken.set(OPENING_BYTES - PAGE_BYTES - COPY_BYTES);
        drop(given);
        let copy: crate::pages::Copy = (0..PAGE_WORDS).map(|_| AtomicU64::new(0)).collect();
        self.pages.add(number, Arc::clone(&page));
        self.pages.keep(number, &page, Arc::clone(&copy));
        let before = lock(&lane.filling).replace(Filling { number, page, copy });
        *lock(&lane.unsettled) = before.map(|before| before.page);
        self.settle_lane(lane, ct).await
    }

    /// Waits for the WRITEs to the page that a lane has filled before, which is full then.
    async fn settle_lane(&self, lane: &Lane, ct: &ComputeThread) -> Result<()> {
        if lock(&lane.unsettled).is_some() {
            self.settle(ct).await?;
            if let Some(page) = lock(&lane.unsettled).take() {
                page.turn(State::Filling, State::Full);
            }
        }
        Ok(())
    }

    /// Makes a page in far memory, to which the root links, if more than `left` pages are allowed. Two round trips.
    async fn new_page(&self, left: usize, ct: &ComputeThread, g: &Guard<'_>) -> Result<(u32, Arc<Page>)> {
        let Some((number, is_doubtful)) = self.pages.take_number(left) else {
            return Err(Error::other(
                "the store's part of far memory is full: `far_bytes` allows no more pages",
            ));
        };
        let is_made = Cell::new(false);
        let _given = OnDrop(|| {
            if !is_made.get() {
                self.pages.give_doubtful(number);
            }
        });
        let link = self.root.pages().at(number.into());
        let sequence = self.sequence.fetch_add(1, Ordering::Relaxed);
        let left = if is_doubtful { Some(link.load(g).await?) } else { None };
        let far = if let Some(left) = left.filter(|left| !left.is_null()) {
            let far = left.as_ptr();
            g.chain(op::store(far.sequence(), sequence)).submit().await?;
            far
        } else {
            let new = FarPage::new_in(ct, FarPage::init(vec![0; PAGE_WORDS]).sequence(sequence)).await?;
            let far = new.as_ptr();
            link.store(g, new).await?;
            far
        };
        is_made.set(true);
        Ok((number, Arc::new(Page::new(far, sequence, State::Filling))))
    }

    pub(crate) fn is_usable(&self) -> bool {
        !self.has_failed.load(Ordering::Relaxed) && !self.is_closed.load(Ordering::Relaxed)
    }

    /// Refuses all operations from now on.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }

    /// Waits for this thread's WRITEs.
    pub(crate) async fn settle(&self, ct: &ComputeThread) -> Result<()> {
        let settled = ct.flush().await;
        if settled.is_err() {
            self.has_failed.store(true, Ordering::Relaxed);
        }
        settled
    }

    /// Marks a record as dead, to which the index does not lead any more. Posted: after the WRITE of the record that replaces it, if both are on one memory node.
    ///
    /// Its page may have been rebuilt since, and its number may be another page's: the guard protects it.
    pub(crate) fn bury(&self, page: &Page, place: Place, head: Head, g: &Guard<'_>) -> Result<()> {
        self.pages.count_dead(page, place.words);
        if let Some(copy) = page.copy() {
            copy[usize::from(place.first)].store(head.dead_word(), Ordering::Relaxed);
        }
        g.chain(op::store(page.far.words().at(place.first.into()), head.dead_word())).post()
    }

    // ---- rebuilding ---------------------------------------------------------------------------------------------------

    /// Rebuilds a page, if pages have too many dead words. One task does that at a time.
    async fn tidy(&self, ct: &ComputeThread) {
        let wasted = || {
            // Pages that are being filled are not full of dead records.
            let lanes = 2 * self.lanes.len();
            let pages = self.pages.count.load(Ordering::Relaxed).saturating_sub(lanes) * PAGE_WORDS;
            let live = self.pages.live_words.load(Ordering::Relaxed);
            pages as u64 * 100 > live * self.most_percent
        };
        if !wasted() || self.rebuilding.swap(true, Ordering::AcqRel) {
            return;
        }
        let _ended = OnDrop(|| self.rebuilding.store(false, Ordering::Release));
        let rebuilt = self.rebuild_emptiest(100 * 100 / self.most_percent, ct).await;
        // The caller has made its change. A rebuild that has failed is tried again after the next one: far memory may be full.
        if let Err(error) = rebuilt {
            tracing::debug!(%error, "a page was not rebuilt");
        }
    }

    /// Rebuilds all pages of which less than `percent` of the words are live, and returns how many there were. Readers and writers go on.
    ///
    /// # Errors
    /// Those of [`write`](Self::write).
    pub async fn rebuild(&self, percent: u64, ct: &ComputeThread) -> Result<u64> {
        let mut rebuilt = 0;
        let most = self.pages.count.load(Ordering::Relaxed) as u64;
        while rebuilt < most && self.rebuild_emptiest(percent, ct).await? {
            rebuilt += 1;
        }
        Ok(rebuilt)
    }

    /// Rebuilds the page with the fewest live words, if they are less than `percent`.
    async fn rebuild_emptiest(&self, percent: u64, ct: &ComputeThread) -> Result<bool> {
        let Some((number, page)) = self.pages.emptiest() else { return Ok(false) };
        let live = u64::from(page.live());
        if live * 100 >= PAGE_WORDS as u64 * percent || !self.pages.take(REBUILDING_BYTES) {
            return Ok(false);
        }
        let _given = OnDrop(|| self.pages.give(REBUILDING_BYTES));
        if !page.turn(State::Full, State::Leaving) {
            return Ok(false);
        }
        let is_rebuilt = Cell::new(false);
        let _ended = OnDrop(|| {
            // One that was rebuilt must not be rebuilt again by a task that has found it before: its number is another page's.
            if !is_rebuilt.get() {
                page.turn(State::Leaving, State::Full);
            }
        });
        self.rebuild_page(number, &page, &is_rebuilt, ct).await.map(|()| true)
    }

    /// Moves the live records of a page to another one, and frees it. The bytes of its buffers were taken.
    ///
    /// A record is copied, and then the index leads to the copy, unless it does not lead to the record any more. Then the record is dead in far memory, too: so whatever becomes of the copy, the
    /// record is not found again. The page is freed once all that is over.
    async fn rebuild_page(
        &self,
        number: u32,
        page: &Arc<Page>,
        is_rebuilt: &Cell<bool>,
        ct: &ComputeThread,
    ) -> Result<()> {
        let g = &ct.pin();
        // Behind its records may be one that is not whole.
        let used = page.used.load(Ordering::Acquire);
        let words: Vec<u64> = match page.copy() {
            Some(copy) => copy[..used as usize].iter().map(|word| word.load(Ordering::Relaxed)).collect(),
            None => g.chain(op::load_range(page.far.words(), 0..used.into())).submit().await?,
        };
        for (first, words) in records(&words) {
            let Some(head) = Head::of_word(words[0]).filter(|head| head.is_live()) else { continue };
            let (key, _) = record::decode(words, self.cipher.as_ref())?;
            let hash = self.hash(&key);
            let place = Place { page: number, first: first as u16, words: words.len() as u16 };
            if !self.index.shard(hash).find(hash).any(|found| found == place) {
                continue;
            }
            let new = self.append(1, words, ct, g).await?;
            if self.index.shard(hash).replace(hash, place, new.place) {
                new.is_linked.set(true);
                self.bury(page, place, head, g)?;
            }
        }
        self.settle(ct).await?;
        self.root.pages().at(number.into()).store(g, RemotePtr::<FarPage>::NULL).await?;
        self.pages.remove(number);
        is_rebuilt.set(true);
        self.pages.counts.rebuilt.fetch_add(1, Ordering::Relaxed);
        tracing::debug!(page = number, "a page was rebuilt");
        let _given = OnDrop(|| self.pages.give_number(number));
        g.sched_reclaim(page.far.shared(g)).await
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
