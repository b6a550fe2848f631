//! Pages: where records lie in far memory, and which of them are in local memory, too.
//!
//! A page is filled from the front, by one thread, and is in local memory meanwhile. When it is full, and all WRITEs to it are over, it may be *evicted*: its copy in local memory is dropped. It is
//! read again when its records are asked for a second time; at first only the record is read.
//!
//! # The budget
//!
//! What is counted: the index, what is known of each page, and the copies of pages. A copy is dropped before something is allocated that would exceed the budget. Which one, the CLOCK
//! decides: the first in turn that was not used since the last turn.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use farfield::prelude::*;

/// The words of a page's records. With what the page and its block need besides, it is 16 KiB.
pub(crate) const PAGE_WORDS: usize = 2045;
/// The bytes of a copy in local memory.
pub(crate) const COPY_BYTES: usize = PAGE_WORDS * 8 + 16;
/// What is known of a page takes so much local memory.
pub(crate) const PAGE_BYTES: usize =
    size_of::<Page>() + 16 + size_of::<Option<Arc<Page>>>() + 2 * size_of::<u32>();
/// Set in the live words of a page that was removed.
const REMOVED: u32 = 1 << 31;
/// A page is read once its records were asked for so many times in vain.
const WORTH_READING: u8 = 2;

/// A page in far memory.
#[remote]
pub struct FarPage {
    /// Pages that were made later have a greater one.
    pub(crate) sequence: u64,
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
    pub(crate) far: RemotePtr<FarPage>,
    pub(crate) sequence: u64,
    copy: Mutex<Option<Copy>>,
    /// Words from the front that have records.
    pub(crate) used: AtomicU32,
    /// Words of records that are live; and [`REMOVED`].
    live: AtomicU32,
    /// The thread that fills it, or has filled it.
    pub(crate) writer: usize,
    state: AtomicU8,
    was_touched: AtomicBool,
    misses: AtomicU8,
    is_being_read: AtomicBool,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The protected values are consistent at any time.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Page {
    pub(crate) fn new(far: RemotePtr<FarPage>, sequence: u64, state: State, writer: usize) -> Self {
        Self {
            far,
            sequence,
            copy: Mutex::new(None),
            used: AtomicU32::new(0),
            live: AtomicU32::new(0),
            writer,
            state: AtomicU8::new(state as u8),
            was_touched: AtomicBool::new(false),
            misses: AtomicU8::new(0),
            is_being_read: AtomicBool::new(false),
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
    pub(crate) fn turn(&self, from: State, to: State) -> bool {
        self.state.compare_exchange(from as u8, to as u8, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Returns its copy in local memory.
    pub(crate) fn copy(&self) -> Option<Copy> {
        let copy = lock(&self.copy).clone();
        if copy.is_some() {
            self.was_touched.store(true, Ordering::Relaxed);
        }
        copy
    }

    /// A record was asked for in vain. Returns whether the page is to be read, by the caller.
    pub(crate) fn is_worth_reading(&self) -> bool {
        let misses = self.misses.load(Ordering::Relaxed).saturating_add(1);
        self.misses.store(misses, Ordering::Relaxed);
        misses >= WORTH_READING && !self.is_being_read.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn is_being_read(&self) -> bool {
        self.is_being_read.load(Ordering::Acquire)
    }
}

/// A page that the caller reads, or can not, until this is dropped.
pub(crate) struct Reading<'a>(pub(crate) &'a Page);

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.0.misses.store(0, Ordering::Relaxed);
        self.0.is_being_read.store(false, Ordering::Release);
    }
}

/// Numbers of this process's work.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) hits: AtomicU64,
    pub(crate) record_reads: AtomicU64,
    pub(crate) page_reads: AtomicU64,
    pub(crate) evicted: AtomicU64,
    pub(crate) rebuilt: AtomicU64,
    pub(crate) torn: AtomicU64,
}

/// All pages.
pub(crate) struct Pages {
    table: RwLock<Vec<Option<Arc<Page>>>>,
    /// The numbers of no page.
    free: Mutex<Vec<u32>>,
    /// The pages with a copy, in the order in which they are looked at.
    clock: Mutex<VecDeque<u32>>,
    budget: usize,
    /// The bytes of local memory that are counted.
    used: AtomicUsize,
    pub(crate) count: AtomicUsize,
    pub(crate) live_words: AtomicU64,
    pub(crate) counts: Counts,
}

impl Pages {
    /// Numbers for so many pages.
    pub(crate) fn new(most: u32, budget: usize) -> Self {
        Self {
            table: RwLock::new((0..most).map(|_| None).collect()),
            free: Mutex::new((0..most).rev().collect()),
            clock: Mutex::default(),
            budget,
            used: AtomicUsize::new(0),
            count: AtomicUsize::new(0),
            live_words: AtomicU64::new(0),
            counts: Counts::default(),
        }
    }

    /// The most pages.
    pub(crate) fn most(&self) -> u64 {
        self.table.read().unwrap_or_else(PoisonError::into_inner).len() as u64
    }

    pub(crate) fn get(&self, number: u32) -> Option<Arc<Page>> {
        self.table.read().unwrap_or_else(PoisonError::into_inner).get(number as usize)?.clone()
    }

    fn set(&self, number: u32, page: Option<Arc<Page>>) -> Option<Arc<Page>> {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        table.get_mut(number as usize).and_then(|place| std::mem::replace(place, page))
    }

    /// Takes the number of no page.
    pub(crate) fn take_number(&self) -> Option<u32> {
        lock(&self.free).pop()
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
    pub(crate) fn add(&self, number: u32, page: Arc<Page>) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.set(number, Some(page));
    }

    /// Removes a page to which the index does not lead any more. Its number is not given back.
    pub(crate) fn remove(&self, number: u32) {
        let Some(page) = self.set(number, None) else { return };
        if lock(&page.copy).take().is_some() {
            self.give(COPY_BYTES);
        }
        // Records that are being buried still count as live; they will not be counted as dead.
        let live = page.live.fetch_or(REMOVED, Ordering::AcqRel);
        self.live_words.fetch_sub(live.into(), Ordering::Relaxed);
        self.count.fetch_sub(1, Ordering::Relaxed);
        self.give(PAGE_BYTES);
    }

    /// Counts words of a page as live.
    pub(crate) fn count_live(&self, page: &Page, words: u16) {
        page.live.fetch_add(words.into(), Ordering::AcqRel);
        self.live_words.fetch_add(words.into(), Ordering::Relaxed);
    }

    /// Counts words of a page as dead that were live.
    pub(crate) fn count_dead(&self, page: &Page, words: u16) {
        if page.live.fetch_sub(words.into(), Ordering::AcqRel) & REMOVED == 0 {
            self.live_words.fetch_sub(words.into(), Ordering::Relaxed);
        }
    }

    /// Returns the full page with the fewest live words.
    pub(crate) fn emptiest(&self) -> Option<(u32, Arc<Page>)> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let pages =
            table.iter().enumerate().filter_map(|(number, page)| Some((number as u32, page.as_ref()?)));
        let full = pages.filter(|(_, page)| page.is(State::Full));
        let (number, page) = full.min_by_key(|(_, page)| page.live())?;
        Some((number, Arc::clone(page)))
    }

    // ---- local memory ---------------------------------------------------------------------------------------------

    /// Takes bytes of the budget. Returns `false` if no copy can be dropped that makes room for them now.
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

    /// The bytes of local memory that are counted.
    pub(crate) fn used_bytes(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// The copies in local memory.
    pub(crate) fn copies(&self) -> usize {
        lock(&self.clock).len()
    }

    /// Puts the copy of a page into local memory, for which the bytes were taken.
    pub(crate) fn keep(&self, number: u32, page: &Page, copy: Copy) {
        if lock(&page.copy).replace(copy).is_some() {
            self.give(COPY_BYTES);
        } else {
            lock(&self.clock).push_back(number);
        }
    }

    /// Drops a copy. Returns `false` if there is none that can be dropped.
    fn evict(&self) -> bool {
        let mut clock = lock(&self.clock);
        for _ in 0..=2 * clock.len() {
            let Some(number) = clock.pop_front() else { return false };
            let Some(page) = self.get(number) else { continue };
            // The WRITEs to a page that is being filled are not over: what is read then may be older than the copy.
            if !page.is(State::Full) || page.was_touched.swap(false, Ordering::Relaxed) {
                clock.push_back(number);
                continue;
            }
            if lock(&page.copy).take().is_some() {
                self.give(COPY_BYTES);
                self.counts.evicted.fetch_add(1, Ordering::Relaxed);
                return true;
            }
        }
        false
    }
}
