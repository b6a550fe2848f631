//! Pages: where records lie in far memory, and what of them is in local memory, too.
//!
//! A page is filled from the front, by one thread, and is in local memory as a whole meanwhile. When it is full, and all WRITEs to it are over, it may be *evicted*: its copy in local memory is dropped.
//! Of a page that was evicted, records are read one by one, and each is kept for itself: hot records lie in pages with cold ones.
//!
//! # The budget
//!
//! What is counted: the index, what is known of each page, what is kept of pages, and the buffers of operations that have the size of a page. Something is dropped before anything is allocated that would
//! exceed the budget. What that is, a CLOCK decides (Corbató, 1968), which goes round the pages: a copy that was not used since the last round, or all records of a page that were not. A record that is
//! read but once is dropped in the first round. The tables of pages have their final size from the beginning.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farfield::prefetch;
use farfield::prelude::*;
use scopeguard::guard;

use crate::error::Fault;
use crate::index::Place;
use crate::lists::Lists;
use crate::record::{self, Cipher, Decoded};
use crate::tally::Tally;

/// The words of a page's records. With what the page and its block need besides, it is 16 KiB.
pub(crate) const PAGE_WORDS: usize = 2045;
/// The bytes of a copy in local memory, or of a buffer for a page.
pub(crate) const COPY_BYTES: usize = PAGE_WORDS * 8 + 16;
/// What is known of a page takes so much local memory, besides what is kept for each number that a page may have.
pub(crate) const PAGE_BYTES: usize = size_of::<Page>() + ARC_BYTES;
/// The counts of an `Arc`.
pub(crate) const ARC_BYTES: usize = 2 * size_of::<usize>();
/// Set in the live words of a page that was removed.
const REMOVED: u32 = 1 << 31;
/// Set in the number of no page which the root may link to a page that has no records yet: the operation that was making that page was dropped.
const DOUBTFUL: u32 = 1 << 31;
/// The most pages.
pub(crate) const MOST_PAGES: u32 = DOUBTFUL - 1;
/// The lists of full pages: by how many of their words are live.
const FILLS: u8 = 64;

/// A page in far memory.
#[remote]
pub struct FarPage {
    /// Pages that were filled later have a greater one.
    pub(crate) sequence: Atomic<u64>,
    pub(crate) words: Tail<Atomic<u64>>,
}

/// The records of a page in local memory.
pub(crate) type Copy = Arc<[AtomicU64]>;

/// What may be done with a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum State {
    /// Records are added. Its copy is not dropped.
    Filling,
    /// All WRITEs to it are over.
    Full,
    /// It is being rebuilt.
    Leaving,
}

/// A page, as this process knows it.
pub(crate) struct Page {
    pub(crate) number: u32,
    pub(crate) far: RemotePtr<FarPage>,
    pub(crate) sequence: u64,
    local: Mutex<Local>,
    /// Words from the front that have records.
    pub(crate) used: AtomicU32,
    /// Words of records that are live; and [`REMOVED`].
    live: AtomicU32,
    /// The thread that fills it, or has filled it.
    pub(crate) writer: usize,
    state: AtomicU8,
    was_touched: AtomicBool,
}

/// What local memory has of a page.
#[derive(Default)]
struct Local {
    copy: Option<Copy>,
    /// Records, if there is no copy.
    kept: Vec<Kept>,
}

/// A record in local memory.
struct Kept {
    first: u16,
    was_touched: bool,
    /// Empty while it is being read.
    words: Box<[u64]>,
}

impl Kept {
    /// The bytes of a record of so many words.
    const fn bytes(words: usize) -> usize {
        size_of::<Self>() + 8 * words
    }
}

/// What [`Page::find`] has found.
pub(crate) enum Looked {
    Found(Result<Decoded, Fault>),
    /// Another task is reading it.
    BeingRead,
    /// It is only in far memory.
    Far,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The protected values are consistent at any time.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Page {
    pub(crate) fn new(
        number: u32,
        far: RemotePtr<FarPage>,
        sequence: u64,
        state: State,
        writer: usize,
    ) -> Self {
        Self {
            number,
            far,
            sequence,
            local: Mutex::default(),
            used: AtomicU32::new(0),
            live: AtomicU32::new(0),
            writer,
            state: AtomicU8::new(state as u8),
            was_touched: AtomicBool::new(false),
        }
    }

    /// Returns the words of records that are live.
    pub(crate) fn live(&self) -> u32 {
        self.live.load(Ordering::Relaxed) & !REMOVED
    }

    pub(crate) fn is(&self, state: State) -> bool {
        self.state.load(Ordering::Acquire) == state as u8
    }

    /// Changes the state. Returns `false` if it is another one than `from`.
    fn turn(&self, from: State, to: State) -> bool {
        self.state.compare_exchange(from as u8, to as u8, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Returns its copy in local memory.
    pub(crate) fn copy(&self) -> Option<Copy> {
        lock(&self.local).copy.clone()
    }

    fn is_removed(&self) -> bool {
        self.live.load(Ordering::Acquire) & REMOVED != 0
    }

    /// Asks the processor for a record, if it is in local memory. Returns whether it is.
    pub(crate) fn prefetch(&self, place: Place) -> bool {
        let local = lock(&self.local);
        if let Some(copy) = &local.copy {
            if let Some(words) = copy.get(usize::from(place.first)..usize::from(place.first + place.words)) {
                prefetch(words);
            }
            return true;
        }
        let kept = local.kept.iter().find(|kept| kept.first == place.first);
        kept.inspect(|kept| prefetch(&*kept.words)).is_some()
    }

    /// Looks for a record in local memory, and decodes it.
    pub(crate) fn find(&self, place: Place, is_value_wanted: bool, cipher: Option<&Cipher>) -> Looked {
        let mut local = lock(&self.local);
        if let Some(copy) = &local.copy {
            if !self.was_touched.load(Ordering::Relaxed) {
                self.was_touched.store(true, Ordering::Relaxed);
            }
            // A place that the index has is within its page.
            let words = copy.get(usize::from(place.first)..usize::from(place.first + place.words));
            return Looked::Found(record::decode(words.unwrap_or_default(), is_value_wanted, cipher));
        }
        match local.kept.iter_mut().find(|kept| kept.first == place.first) {
            Some(kept) if kept.words.is_empty() => Looked::BeingRead,
            Some(kept) => {
                kept.was_touched = true;
                Looked::Found(record::decode(&*kept.words, is_value_wanted, cipher))
            }
            None => Looked::Far,
        }
    }
}

/// Numbers of this process's work.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) evicted_pages: AtomicU64,
    pub(crate) evicted_records: AtomicU64,
    pub(crate) rebuilt: AtomicU64,
    pub(crate) torn: AtomicU64,
}

/// All pages.
pub(crate) struct Pages {
    table: Box<[Mutex<Option<Arc<Page>>>]>,
    /// The numbers of no page; and [`DOUBTFUL`].
    free: Mutex<Vec<u32>>,
    /// The pages of which something is kept, in the order in which they are looked at. It is locked before what is kept.
    clock: Mutex<Lists>,
    /// The full pages, by how many of their words are live.
    full: Mutex<Lists>,
    budget: usize,
    /// More bytes than these are dropped at a time, if there are: then threads seldom wait for each other's evictions.
    dropped_together: usize,
    /// The bytes of local memory that are counted.
    used: AtomicUsize,
    pub(crate) count: AtomicUsize,
    pub(crate) counts: Counts,
    pub(crate) tally: Tally,
}

/// A record that is being read. It is not any more when this is dropped.
pub(crate) struct Reading<'a> {
    pages: &'a Pages,
    page: &'a Page,
    first: u16,
    words: u16,
}

impl Reading<'_> {
    /// Keeps the record.
    pub(crate) fn keep(self, words: Vec<u64>) {
        if words.len() != usize::from(self.words) {
            return;
        }
        let mut local = lock(&self.page.local);
        if self.page.is_removed() {
            return;
        }
        // If it has another record, the page is in the clock's list, or the task that has kept that record is about to put it there: it is taken out of the list only with all of its records.
        let is_listed = local.kept.iter().any(|kept| !kept.words.is_empty());
        let Some(kept) = local.kept.iter_mut().find(|kept| kept.first == self.first) else { return };
        kept.words = words.into_boxed_slice();
        drop(local);
        if !is_listed {
            let mut clock = lock(&self.pages.clock);
            if clock.list_of(self.page.number).is_none() {
                clock.push(0, self.page.number);
            }
        }
        // It is not being read any more.
        std::mem::forget(self);
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        let mut local = lock(&self.page.local);
        let is_over = |kept: &Kept| kept.first == self.first && kept.words.is_empty();
        if let Some(index) = local.kept.iter().position(is_over) {
            local.kept.swap_remove(index);
            local.kept.shrink_to_fit();
            self.pages.give_kept(Kept::bytes(self.words.into()));
        }
    }
}

impl Pages {
    /// Numbers for so many pages.
    pub(crate) fn new(most: u32, budget: usize) -> Self {
        Self {
            table: (0..most).map(|_| Mutex::default()).collect(),
            free: Mutex::new((0..most).rev().collect()),
            clock: Mutex::new(Lists::new(1, most)),
            full: Mutex::new(Lists::new(FILLS, most)),
            budget,
            dropped_together: (budget / 4096).min(4096),
            used: AtomicUsize::new(0),
            count: AtomicUsize::new(0),
            counts: Counts::default(),
            tally: Tally::default(),
        }
    }

    /// The bytes of numbers for so many pages.
    pub(crate) fn bytes(most: u32) -> usize {
        let of_number = size_of::<Mutex<Option<Arc<Page>>>>() + size_of::<u32>();
        most as usize * of_number + Lists::bytes(1, most) + Lists::bytes(FILLS, most)
    }

    /// The most pages.
    pub(crate) fn most(&self) -> u64 {
        self.table.len() as u64
    }

    pub(crate) fn get(&self, number: u32) -> Option<Arc<Page>> {
        lock(self.table.get(number as usize)?).clone()
    }

    /// Returns whether a page is that of its number, and not removed.
    pub(crate) fn has(&self, page: &Page) -> bool {
        let place = self.table.get(page.number as usize);
        place.is_some_and(|place| lock(place).as_ref().is_some_and(|other| Arc::as_ptr(other) == page))
    }

    fn set(&self, number: u32, page: Option<Arc<Page>>) -> Option<Arc<Page>> {
        std::mem::replace(&mut *lock(self.table.get(number as usize)?), page)
    }

    /// Takes the number of no page, if more than `left` are free. Also returns whether the root may link it to a page that has no records yet.
    pub(crate) fn take_number(&self, left: usize) -> Option<(u32, bool)> {
        let mut free = lock(&self.free);
        let number = if free.len() > left { free.pop()? } else { return None };
        Some((number & !DOUBTFUL, number & DOUBTFUL != 0))
    }

    /// Gives the number back of a page that was not made to the end.
    pub(crate) fn give_doubtful(&self, number: u32) {
        self.give_number(number | DOUBTFUL);
    }

    /// Gives it back.
    pub(crate) fn give_number(&self, number: u32) {
        lock(&self.free).push(number);
    }

    /// Takes the numbers of pages that were there before.
    pub(crate) fn take_numbers(&self, taken: impl Fn(u32) -> bool) {
        lock(&self.free).retain(|number| !taken(*number));
    }

    /// Adds a page. Its number was taken, and [`PAGE_BYTES`].
    pub(crate) fn add(&self, page: Arc<Page>) {
        self.count.fetch_add(1, Ordering::Relaxed);
        if page.is(State::Full) {
            self.list(&page);
        }
        self.set(page.number, Some(page));
    }

    /// Removes a page to which the index does not lead any more. Its number is not given back.
    pub(crate) fn remove(&self, page: &Page) {
        self.set(page.number, None);
        lock(&self.clock).remove(page.number);
        lock(&self.full).remove(page.number);
        // Records that are being buried still count as live; they will not be counted as dead. Nothing is kept of the page from now on.
        let live = page.live.fetch_or(REMOVED, Ordering::AcqRel);
        let mut local = lock(&page.local);
        if local.copy.take().is_some() {
            self.give_kept(COPY_BYTES);
        }
        let bytes = Self::drop_kept(&mut local, |_| true).1;
        drop(local);
        self.give_kept(bytes);
        self.tally.subtract(|part| &part.live_words, live.into());
        self.count.fetch_sub(1, Ordering::Relaxed);
        self.give(PAGE_BYTES);
    }

    // ---- full pages -----------------------------------------------------------------------------------------------

    fn fill(page: &Page) -> u8 {
        (u64::from(page.live()) * u64::from(FILLS) / (PAGE_WORDS as u64 + 1)).min(u64::from(FILLS) - 1) as u8
    }

    fn list(&self, page: &Page) {
        lock(&self.full).push(Self::fill(page), page.number);
    }

    /// No record is added to a page any more, and all WRITEs to it are over.
    pub(crate) fn has_filled(&self, page: &Page) {
        if page.turn(State::Filling, State::Full) {
            self.list(page);
        }
    }

    /// Returns one of the full pages with the fewest live words, and `true` if these are less than so many. The page is leaving then.
    pub(crate) fn take_emptiest(&self, below: u64) -> Option<Arc<Page>> {
        let mut full = lock(&self.full);
        for fill in 0..FILLS {
            let Some(page) = full.pages(fill).find_map(|number| self.get(number)) else { continue };
            if u64::from(page.live()) >= below || !page.turn(State::Full, State::Leaving) {
                return None;
            }
            full.remove(page.number);
            return Some(page);
        }
        None
    }

    /// A page could not be rebuilt.
    pub(crate) fn stays(&self, page: &Page) {
        if page.turn(State::Leaving, State::Full) {
            self.list(page);
        }
    }

    /// Counts words of a page as live.
    pub(crate) fn count_live(&self, page: &Page, words: u16) {
        page.live.fetch_add(words.into(), Ordering::AcqRel);
        self.tally.add(|part| &part.live_words, words.into());
        self.tally.add(|part| &part.changed_words, words.into());
    }

    /// Counts words of a page as dead that were live.
    pub(crate) fn count_dead(&self, page: &Page, words: u16) {
        let before = Self::fill(page);
        if page.live.fetch_sub(words.into(), Ordering::AcqRel) & REMOVED == 0 {
            self.tally.subtract(|part| &part.live_words, words.into());
            self.tally.add(|part| &part.changed_words, words.into());
        }
        if Self::fill(page) != before && page.is(State::Full) {
            let mut full = lock(&self.full);
            // Under the lock, in which a page begins to leave; and its number is not another page's as long as it is in a list.
            if page.is(State::Full) && full.list_of(page.number).is_some() {
                full.push(Self::fill(page), page.number);
            }
        }
    }

    // ---- local memory ---------------------------------------------------------------------------------------------

    /// Takes bytes of the budget. Returns `false` if nothing can be dropped that makes room for them now.
    pub(crate) fn take(&self, bytes: usize) -> bool {
        loop {
            let used = self.used.load(Ordering::Relaxed);
            if used + bytes <= self.budget {
                let taken =
                    self.used.compare_exchange(used, used + bytes, Ordering::Relaxed, Ordering::Relaxed);
                if taken.is_ok() {
                    return true;
                }
            } else if !self.evict() {
                return false;
            }
        }
    }

    /// Gives them back.
    pub(crate) fn give(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn give_kept(&self, bytes: usize) {
        self.tally.subtract(|part| &part.kept_bytes, bytes as u64);
        self.give(bytes);
    }

    /// Those of copies and records.
    fn kept_bytes(&self) -> usize {
        self.tally.sum(|part| &part.kept_bytes) as usize
    }

    /// The bytes of local memory that are counted.
    pub(crate) fn used_bytes(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// The pages of which something is in local memory.
    pub(crate) fn local_pages(&self) -> usize {
        lock(&self.clock).len()
    }

    /// Takes bytes that are never given back. Returns `false` if less than `left` bytes of the budget would be left for copies, records and buffers.
    pub(crate) fn take_for_good(&self, bytes: usize, left: usize) -> bool {
        let lasting = self.used.load(Ordering::Relaxed).saturating_sub(self.kept_bytes());
        lasting + bytes + left <= self.budget && self.take(bytes)
    }

    /// Puts the copy of a page into local memory, for which the bytes were taken.
    pub(crate) fn keep(&self, page: &Page, copy: Copy) {
        self.tally.add(|part| &part.kept_bytes, COPY_BYTES as u64);
        lock(&page.local).copy = Some(copy);
        lock(&self.clock).push(0, page.number);
    }

    /// The caller begins to read a record. `None` if there is no room to keep it, or if another task reads it.
    pub(crate) fn reads<'a>(&'a self, page: &'a Page, first: u16, words: u16) -> Option<Reading<'a>> {
        let bytes = Kept::bytes(words.into());
        if !self.take(bytes) {
            return None;
        }
        let mut local = lock(&page.local);
        if page.is_removed() || local.copy.is_some() || local.kept.iter().any(|kept| kept.first == first) {
            drop(local);
            self.give(bytes);
            return None;
        }
        self.tally.add(|part| &part.kept_bytes, bytes as u64);
        local.kept.reserve_exact(1);
        local.kept.push(Kept { first, was_touched: false, words: Box::default() });
        Some(Reading { pages: self, page, first, words })
    }

    /// Marks a record in local memory as dead.
    pub(crate) fn bury(&self, page: &Page, first: u16, dead: u64) {
        let mut local = lock(&page.local);
        if let Some(copy) = &local.copy {
            copy[usize::from(first)].store(dead, Ordering::Relaxed);
        }
        let bytes = Self::drop_kept(&mut local, |kept| kept.first == first && !kept.words.is_empty()).1;
        drop(local);
        if bytes > 0 {
            self.give_kept(bytes);
        }
    }

    /// Drops records. Returns how many, and their bytes, which are still counted.
    fn drop_kept(local: &mut Local, mut is_dropped: impl FnMut(&mut Kept) -> bool) -> (usize, usize) {
        let (mut dropped, mut bytes) = (0, 0);
        local.kept.retain_mut(|kept| {
            // One that is being read is dropped by its reader.
            let stays = kept.words.is_empty() || !is_dropped(kept);
            if !stays {
                dropped += 1;
                bytes += Kept::bytes(kept.words.len());
            }
            stays
        });
        if dropped > 0 {
            local.kept.shrink_to_fit();
        }
        (dropped, bytes)
    }

    /// Drops something from local memory. Returns `false` if there is nothing that can be dropped.
    fn evict(&self) -> bool {
        let _evicting = self.tally.counted(|part| &part.evictions);
        let mut freed = guard(0, |bytes| self.give_kept(bytes));
        let mut clock = lock(&self.clock);
        // In the second round nothing is touched, but by others meanwhile.
        for _ in 0..=2 * clock.len() {
            let Some(number) = clock.pop(0) else { break };
            let Some(page) = self.get(number) else { continue };
            let mut local = lock(&page.local);
            if local.copy.is_some() {
                // The WRITEs to a page that is being filled are not over: what is read then may be older than the copy.
                if !page.is(State::Full) || page.was_touched.swap(false, Ordering::Relaxed) {
                    clock.push(0, number);
                    continue;
                }
                local.copy = None;
                *freed += COPY_BYTES;
                self.counts.evicted_pages.fetch_add(1, Ordering::Relaxed);
                tracing::trace!(page = number, "a page was evicted");
            } else {
                let (dropped, bytes) =
                    Self::drop_kept(&mut local, |kept| !std::mem::take(&mut kept.was_touched));
                if !local.kept.is_empty() {
                    clock.push(0, number);
                }
                *freed += bytes;
                self.counts.evicted_records.fetch_add(dropped as u64, Ordering::Relaxed);
            }
            if *freed > self.dropped_together {
                break;
            }
        }
        drop(clock);
        *freed > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy() -> Copy {
        (0..PAGE_WORDS).map(|_| AtomicU64::new(0)).collect()
    }

    fn added(pages: &Pages, number: u32) -> Arc<Page> {
        let page = Arc::new(Page::new(number, RemotePtr::NULL, u64::from(number), State::Full, 0));
        assert!(pages.take(PAGE_BYTES));
        pages.add(Arc::clone(&page));
        page
    }

    fn place(page: &Page, first: u16) -> Place {
        Place { page: page.number, first, words: 3 }
    }

    fn is_here(page: &Page, first: u16) -> bool {
        matches!(page.find(place(page, first), true, None), Looked::Found(_))
    }

    #[test]
    fn a_record_that_was_read_while_its_page_was_removed_is_dropped() {
        let pages = Pages::new(4, 1 << 20);
        for is_kept_before in [true, false] {
            let page = added(&pages, 0);
            let reading = pages.reads(&page, 5, 3).unwrap();
            assert!(pages.reads(&page, 5, 3).is_none(), "it is being read");
            assert!(matches!(page.find(place(&page, 5), true, None), Looked::BeingRead));
            if is_kept_before {
                reading.keep(vec![1, 2, 3]);
                assert!(is_here(&page, 5));
                assert_eq!((pages.local_pages(), pages.used_bytes()), (1, Kept::bytes(3) + PAGE_BYTES));
                pages.remove(&page);
            } else {
                pages.remove(&page);
                reading.keep(vec![1, 2, 3]);
            }
            assert_eq!((pages.local_pages(), pages.used_bytes()), (0, 0));
            assert!(!is_here(&page, 5) && pages.reads(&page, 5, 3).is_none());
        }
    }

    #[test]
    fn a_page_is_not_another_one_of_its_number() {
        let pages = Pages::new(4, 1 << 20);
        let before = added(&pages, 0);
        assert!(pages.has(&before));
        pages.remove(&before);
        assert!(!pages.has(&before));
        let after = added(&pages, 0);
        assert!(pages.has(&after) && !pages.has(&before));
    }

    #[test]
    fn a_read_that_is_dropped_or_buried_leaves_nothing() {
        let pages = Pages::new(4, 1 << 20);
        let page = added(&pages, 0);
        drop(pages.reads(&page, 5, 3).unwrap());
        assert_eq!(pages.used_bytes(), PAGE_BYTES);
        pages.reads(&page, 5, 3).unwrap().keep(vec![1, 2, 3]);
        pages.reads(&page, 8, 4).unwrap().keep(vec![1, 2, 3, 4]);
        pages.bury(&page, 5, 0);
        assert!(!is_here(&page, 5) && is_here(&page, 8));
        assert_eq!(pages.used_bytes(), PAGE_BYTES + Kept::bytes(4));
    }

    #[test]
    fn copies_and_records_are_dropped_in_turn_until_there_is_room() {
        let records = 2 * Kept::bytes(3);
        let pages = Pages::new(4, 4 * PAGE_BYTES + 2 * COPY_BYTES + records);
        let all: Vec<_> = (0..4).map(|number| added(&pages, number)).collect();
        for page in &all[..2] {
            assert!(pages.take(COPY_BYTES));
            pages.keep(page, copy());
        }
        pages.reads(&all[2], 5, 3).unwrap().keep(vec![1, 2, 3]);
        pages.reads(&all[2], 8, 3).unwrap().keep(vec![4, 5, 6]);
        // The first one was used, and so was one of the records.
        assert!(is_here(&all[0], 0) && is_here(&all[2], 8));
        assert!(pages.take(COPY_BYTES));
        assert!(all[0].copy().is_some() && all[1].copy().is_none());
        assert!(pages.take(Kept::bytes(3)));
        assert!(!is_here(&all[2], 5) && is_here(&all[2], 8));
        // One that is being filled stays.
        assert!(all[0].turn(State::Full, State::Filling));
        assert!(pages.take(Kept::bytes(3)), "instead of the other record");
        assert!(!pages.take(1));
        assert_eq!((pages.local_pages(), pages.kept_bytes()), (1, COPY_BYTES));
    }

    #[test]
    fn an_eviction_that_waits_for_another_one_is_counted() {
        let pages = Pages::new(1, PAGE_BYTES);
        let evictions = || pages.tally.sum(|part| &part.evictions);
        std::thread::scope(|scope| {
            let clock = lock(&pages.clock);
            let waits = scope.spawn(|| pages.take(PAGE_BYTES + 1));
            while evictions() == 0 {
                std::thread::yield_now();
            }
            assert_eq!(evictions(), 1);
            drop(clock);
            assert!(!waits.join().unwrap(), "there is nothing to evict");
        });
        assert_eq!(evictions(), 0);
    }

    #[test]
    fn the_emptiest_page_is_found() {
        let pages = Pages::new(10, 1 << 20);
        let all: Vec<_> = (0..10).map(|number| added(&pages, number)).collect();
        for (page, words) in all.iter().zip((1000..2000).step_by(100)) {
            pages.count_live(page, words);
            pages.has_filled(page);
        }
        // They were listed before they had live words.
        for page in &all {
            pages.count_dead(page, 40);
        }
        assert!(pages.take_emptiest(900).is_none());
        assert_eq!(pages.take_emptiest(1100).unwrap().number, 0);
        let emptiest = pages.take_emptiest(1100).unwrap();
        assert_eq!(emptiest.number, 1);
        pages.count_dead(&all[9], 1800);
        assert_eq!(pages.take_emptiest(1100).unwrap().number, 9);
        pages.remove(&all[9]);
        pages.stays(&emptiest);
        assert_eq!(pages.take_emptiest(1100).unwrap().number, 1);
        assert!(pages.take_emptiest(1100).is_none());
    }

    #[test]
    fn bytes_are_taken_for_good_only_if_enough_is_left() {
        let pages = Pages::new(4, 4 * COPY_BYTES);
        let page = added(&pages, 0);
        assert!(pages.take(COPY_BYTES));
        pages.keep(&page, copy());
        assert!(!pages.take_for_good(2 * COPY_BYTES, 2 * COPY_BYTES));
        assert!(pages.take_for_good(2 * COPY_BYTES, COPY_BYTES), "a copy can be dropped");
        assert!(!pages.take_for_good(COPY_BYTES, COPY_BYTES));
    }

    #[test]
    fn the_last_numbers_are_left() {
        let pages = Pages::new(3, 0);
        assert!(pages.take_number(1).is_some() && pages.take_number(1).is_some());
        assert_eq!((pages.take_number(1), pages.take_number(0)), (None, Some((2, false))));
        pages.give_doubtful(1);
        assert_eq!((pages.take_number(1), pages.take_number(0)), (None, Some((1, true))));
    }
}
