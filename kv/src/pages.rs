//! Pages: where records lie in far memory, and what of them is in local memory, too.
//!
//! A page is filled from the front, by one thread, and is in local memory as a whole meanwhile. When it is full, and all WRITEs to it are over, it may be *evicted*: its copy in local memory is dropped.
//! Of a page that was evicted, records are read one by one, and each is kept for itself: hot records lie in pages with cold ones.
//!
//! # The budget
//!
//! What is counted: the index, what is known of each page that there may be, what is kept of pages, and the buffers of operations that have the size of a page. Something is dropped before anything is allocated that would
//! exceed the budget. What that is, a CLOCK decides (Corbató, 1968), which goes round the pages: a copy that was not used since the last round, or all records of a page that were not. A record that is
//! read but once is dropped in the first round. The tables of pages have their final size from the beginning.
//!
//! # Numbers
//!
//! The index has the number of a record's page, and the table has the page itself, in a cache line: so an operation finds it without a lock and without counting references to it. A page that was rebuilt is removed, and its
//! number is given to another page when the [grace period](Guard::grace_period) is over that begins then: so while an operation holds a guard, a number that it has found in the index stands for the same page, as the page's
//! far memory is not freed either.

use std::collections::VecDeque;
use std::ops::Index;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crossbeam_utils::CachePadded;
use farfield::prelude::*;
use farfield::{Address, GracePeriod, prefetch};
use scopeguard::guard;

use crate::error::Fault;
use crate::lists::Lists;
use crate::record::{Cipher, Decoded, Place};
use crate::tally::Tally;

/// The words of a page's records. With what the page and its block need besides, it is 16 KiB.
pub(crate) const PAGE_WORDS: usize = 2045;
/// The bytes of a copy in local memory, or of a buffer for a page.
pub(crate) const COPY_BYTES: usize = PAGE_WORDS * 8 + 16;
/// Set in the live words of a page that was removed.
const REMOVED: u32 = 1 << 31;
/// Set in the number of no page which the root may link to a page that has no records yet: the operation that was making that page was dropped.
const DOUBTFUL: u32 = 1 << 31;
/// The most pages.
pub(crate) const MOST_PAGES: u32 = DOUBTFUL - 1;
/// The lists of full pages, by how many sixteenths of their words are live: of more than thirteen, pages are seldom rebuilt, and all in one list. More lists would find an emptier page, by a few records, and move
/// pages between them at more deaths of records.
const FILLS: u8 = 14;

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
    /// There is no page of this number. All that is known of the last one stays as it was until there is another one.
    Vacant,
    /// Records are added. Its copy is not dropped.
    Filling,
    /// All WRITEs to it are over.
    Full,
    /// It is being rebuilt.
    Leaving,
}

/// A page, as this process knows it.
#[repr(align(64))]
pub(crate) struct Page {
    pub(crate) number: u32,
    /// Words of records that are live; and [`REMOVED`].
    live: AtomicU32,
    /// Its address in far memory.
    far: AtomicU64,
    sequence: AtomicU64,
    local: Mutex<Local>,
    /// Words from the front that have records.
    used: AtomicU16,
    /// The thread that fills it, or has filled it.
    writer: AtomicU32,
    state: AtomicU8,
    was_touched: AtomicBool,
}

const _: () = assert!(size_of::<Page>() == 64 && PAGE_WORDS <= u16::MAX as usize);

/// What local memory has of a page.
enum Local {
    All(Copy),
    /// Some records, or none.
    Some(Vec<Kept>),
}

impl Local {
    const NOTHING: Self = Self::Some(Vec::new());

    fn copy(&self) -> Option<&Copy> {
        if let Self::All(copy) = self { Some(copy) } else { None }
    }

    fn kept(&self) -> &[Kept] {
        if let Self::Some(kept) = self { kept } else { &[] }
    }
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
    fn vacant(number: u32) -> Self {
        Self {
            number,
            live: AtomicU32::new(REMOVED),
            far: AtomicU64::new(0),
            sequence: AtomicU64::new(0),
            local: Mutex::new(Local::NOTHING),
            used: AtomicU16::new(0),
            writer: AtomicU32::new(0),
            state: AtomicU8::new(State::Vacant as u8),
            was_touched: AtomicBool::new(false),
        }
    }

    /// Returns where it is in far memory.
    pub(crate) fn far(&self) -> RemotePtr<FarPage> {
        RemotePtr::from_address(Address::from_bits(self.far.load(Ordering::Relaxed)))
    }

    /// Returns its sequence number: pages that were filled later have a greater one.
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence.load(Ordering::Relaxed)
    }

    /// Returns the thread that fills it, or has filled it.
    pub(crate) fn writer(&self) -> usize {
        self.writer.load(Ordering::Relaxed) as usize
    }

    /// Returns the words from the front that have records.
    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Acquire).into()
    }

    /// Sets them, when the records are in its copy.
    pub(crate) fn set_used(&self, words: usize) {
        self.used.store(words as u16, Ordering::Release);
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
        lock(&self.local).copy().cloned()
    }

    fn is_removed(&self) -> bool {
        self.live.load(Ordering::Acquire) & REMOVED != 0
    }

    /// Asks the processor for a record, if it is in local memory. Returns whether it is.
    pub(crate) fn prefetch(&self, place: Place) -> bool {
        let local = lock(&self.local);
        match &*local {
            Local::All(copy) => {
                let words = copy.get(usize::from(place.first)..usize::from(place.first + place.words));
                words.inspect(|words| prefetch(*words)).is_some()
            }
            Local::Some(kept) => {
                let kept = kept.iter().find(|kept| kept.first == place.first);
                kept.inspect(|kept| prefetch(&*kept.words)).is_some()
            }
        }
    }

    /// Looks for a record in local memory, and decodes it.
    pub(crate) fn find(&self, place: Place, is_value_wanted: bool, cipher: Option<&Cipher>) -> Looked {
        let mut local = lock(&self.local);
        let kept = match &mut *local {
            Local::All(copy) => {
                if !self.was_touched.load(Ordering::Relaxed) {
                    self.was_touched.store(true, Ordering::Relaxed);
                }
                // A place that the index has is within its page.
                let words = copy.get(usize::from(place.first)..usize::from(place.first + place.words));
                return Looked::Found(place.decode(words.unwrap_or_default(), is_value_wanted, cipher));
            }
            Local::Some(kept) => kept,
        };
        match kept.iter_mut().find(|kept| kept.first == place.first) {
            Some(kept) if kept.words.is_empty() => Looked::BeingRead,
            Some(kept) => {
                kept.was_touched = true;
                Looked::Found(place.decode(&*kept.words, is_value_wanted, cipher))
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

/// The numbers of no page.
struct Numbers {
    /// Those that may be given to a page; and [`DOUBTFUL`].
    free: Vec<u32>,
    /// Those of pages that were removed, in the order in which they were.
    retired: VecDeque<(GracePeriod, u32)>,
}

impl Numbers {
    /// Returns the numbers that can be taken: if these are no more than so many, with those whose grace periods are over.
    fn more_than(&mut self, left: usize, ct: &ComputeThread) -> &mut Vec<u32> {
        let Self { free, retired } = self;
        if free.len() <= left {
            let is_over = |retired: &(GracePeriod, u32)| ct.is_over(retired.0);
            while retired.front().is_some_and(is_over) {
                free.extend(retired.pop_front().map(|(_, number)| number));
            }
        }
        free
    }
}

/// All pages. What threads often write is in cache lines of its own.
pub(crate) struct Pages {
    table: Box<[Page]>,
    numbers: CachePadded<Mutex<Numbers>>,
    /// The pages of which something is kept, in the order in which they are looked at. It is locked before what is kept.
    clock: CachePadded<Mutex<Lists>>,
    /// The full pages, by how many of their words are live.
    full: CachePadded<Mutex<Lists>>,
    budget: usize,
    /// More bytes than these are dropped at a time, if there are: then threads seldom wait for each other's evictions.
    dropped_together: usize,
    /// The bytes of local memory that are counted.
    used: CachePadded<AtomicUsize>,
    pub(crate) count: CachePadded<AtomicUsize>,
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
        let is_listed = local.kept().iter().any(|kept| !kept.words.is_empty());
        let Local::Some(all) = &mut *local else { return };
        let Some(kept) = all.iter_mut().find(|kept| kept.first == self.first) else { return };
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
        let Local::Some(all) = &mut *local else { return };
        if let Some(index) = all.iter().position(is_over) {
            all.swap_remove(index);
            all.shrink_to_fit();
            self.pages.give_kept(Kept::bytes(self.words.into()));
        }
    }
}

impl Pages {
    /// Numbers for so many pages.
    pub(crate) fn new(most: u32, budget: usize) -> Self {
        Self {
            table: (0..most).map(Page::vacant).collect(),
            numbers: CachePadded::new(Mutex::new(Numbers {
                free: (0..most).rev().collect(),
                retired: VecDeque::with_capacity(most as usize),
            })),
            clock: CachePadded::new(Mutex::new(Lists::new(1, most))),
            full: CachePadded::new(Mutex::new(Lists::new(FILLS, most))),
            budget,
            dropped_together: (budget / 4096).min(4096),
            used: CachePadded::default(),
            count: CachePadded::default(),
            counts: Counts::default(),
            tally: Tally::default(),
        }
    }

    /// The bytes of numbers for so many pages.
    pub(crate) fn bytes(most: u32) -> usize {
        let of_number = size_of::<Page>() + size_of::<u32>() + size_of::<(GracePeriod, u32)>();
        most as usize * of_number + Lists::bytes(1, most) + Lists::bytes(FILLS, most)
    }

    /// The most pages.
    pub(crate) fn most(&self) -> u64 {
        self.table.len() as u64
    }

    /// Takes the number of no page, if more than `left` are free. Also returns whether the root may link it to a page that has no records yet.
    pub(crate) fn take_number(&self, left: usize, ct: &ComputeThread) -> Option<(u32, bool)> {
        let mut numbers = lock(&self.numbers);
        let free = numbers.more_than(left, ct);
        let number = if free.len() > left { free.pop()? } else { return None };
        Some((number & !DOUBTFUL, number & DOUBTFUL != 0))
    }

    /// Returns whether a number can be taken.
    pub(crate) fn has_number(&self, ct: &ComputeThread) -> bool {
        !lock(&self.numbers).more_than(0, ct).is_empty()
    }

    /// Returns whether there are numbers that can be taken later.
    pub(crate) fn has_retired_numbers(&self) -> bool {
        !lock(&self.numbers).retired.is_empty()
    }

    /// Gives the number back of a page that was not made to the end.
    pub(crate) fn give_doubtful(&self, number: u32) {
        lock(&self.numbers).free.push(number | DOUBTFUL);
    }

    /// Takes the numbers of pages that were there before.
    pub(crate) fn take_numbers(&self, taken: impl Fn(u32) -> bool) {
        lock(&self.numbers).free.retain(|number| !taken(*number));
    }

    /// Adds a page, whose number was taken.
    pub(crate) fn add(
        &self,
        number: u32,
        (far, sequence): (RemotePtr<FarPage>, u64),
        state: State,
        writer: usize,
    ) -> &Page {
        self.count.fetch_add(1, Ordering::Relaxed);
        let page = &self[number];
        page.far.store(far.address().bits(), Ordering::Relaxed);
        page.sequence.store(sequence, Ordering::Relaxed);
        page.used.store(0, Ordering::Relaxed);
        page.writer.store(writer as u32, Ordering::Relaxed);
        page.was_touched.store(false, Ordering::Relaxed);
        page.live.store(0, Ordering::Relaxed);
        page.state.store(state as u8, Ordering::Release);
        if state == State::Full {
            self.list(page);
        }
        page
    }

    /// Removes a page to which the index does not lead any more. Its number is given back when no operation can have found it there.
    pub(crate) fn remove(&self, page: &Page, g: &Guard<'_>) {
        // Records that are being buried still count as live; they will not be counted as dead. Nothing is kept of the page from now on.
        let live = page.live.fetch_or(REMOVED, Ordering::AcqRel);
        page.state.store(State::Vacant as u8, Ordering::Release);
        lock(&self.clock).remove(page.number);
        lock(&self.full).remove(page.number);
        let mut local = lock(&page.local);
        if local.copy().is_some() {
            *local = Local::NOTHING;
            self.give_kept(COPY_BYTES);
        }
        let bytes = Self::drop_kept(&mut local, |_| true).1;
        drop(local);
        self.give_kept(bytes);
        self.tally.subtract(|part| &part.live_words, live.into());
        self.count.fetch_sub(1, Ordering::Relaxed);
        let mut numbers = lock(&self.numbers);
        numbers.retired.push_back((g.grace_period(), page.number));
    }

    // ---- full pages -----------------------------------------------------------------------------------------------

    fn fill(page: &Page) -> u8 {
        Self::fill_of(page.live().into())
    }

    fn fill_of(live: u64) -> u8 {
        (live * 16 / (PAGE_WORDS as u64 + 1)).min(u64::from(FILLS) - 1) as u8
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

    /// Returns a full page of less live words than so many, one of those with the fewest. It is leaving then. Of the pages of a list, at most `looks` are looked at.
    pub(crate) fn take_emptiest(&self, below: u64, looks: usize) -> Option<&Page> {
        let mut full = lock(&self.full);
        let fills = 0..=Self::fill_of(below.saturating_sub(1));
        let is_emptier = |page: &&Page| u64::from(page.live()) < below;
        let mut lists = fills.map(|fill| full.pages(fill).take(looks).map(|number| &self[number]));
        let page = lists.find_map(|mut pages| pages.find(is_emptier))?;
        if !page.turn(State::Full, State::Leaving) {
            return None;
        }
        full.remove(page.number);
        Some(page)
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
        if Self::fill(page) != before {
            self.list_again(page);
        }
    }

    /// Moves a full page to the list of its live words, after these have changed.
    pub(crate) fn list_again(&self, page: &Page) {
        if page.is(State::Full) {
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
        *lock(&page.local) = Local::All(copy);
        lock(&self.clock).push(0, page.number);
    }

    /// The caller begins to read a record. `None` if there is no room to keep it, or if another task reads it.
    pub(crate) fn reads<'a>(&'a self, page: &'a Page, first: u16, words: u16) -> Option<Reading<'a>> {
        let bytes = Kept::bytes(words.into());
        if !self.take(bytes) {
            return None;
        }
        let mut local = lock(&page.local);
        match &mut *local {
            Local::Some(kept) if !page.is_removed() && kept.iter().all(|kept| kept.first != first) => {
                self.tally.add(|part| &part.kept_bytes, bytes as u64);
                kept.reserve_exact(1);
                kept.push(Kept { first, was_touched: false, words: Box::default() });
            }
            _ => {
                drop(local);
                self.give(bytes);
                return None;
            }
        }
        Some(Reading { pages: self, page, first, words })
    }

    /// Marks a record in local memory as dead.
    pub(crate) fn bury(&self, page: &Page, first: u16, dead: u64) {
        let mut local = lock(&page.local);
        if let Some(copy) = local.copy() {
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
        let Local::Some(all) = local else { return (0, 0) };
        all.retain_mut(|kept| {
            // One that is being read is dropped by its reader.
            let stays = kept.words.is_empty() || !is_dropped(kept);
            if !stays {
                dropped += 1;
                bytes += Kept::bytes(kept.words.len());
            }
            stays
        });
        if dropped > 0 {
            all.shrink_to_fit();
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
            let page = &self[number];
            let mut local = lock(&page.local);
            if local.copy().is_some() {
                // The WRITEs to a page that is being filled are not over: what is read then may be older than the copy.
                if !page.is(State::Full) || page.was_touched.swap(false, Ordering::Relaxed) {
                    clock.push(0, number);
                    continue;
                }
                *local = Local::NOTHING;
                *freed += COPY_BYTES;
                self.counts.evicted_pages.fetch_add(1, Ordering::Relaxed);
                tracing::trace!(page = number, "a page was evicted");
            } else {
                let (dropped, bytes) =
                    Self::drop_kept(&mut local, |kept| !std::mem::take(&mut kept.was_touched));
                if !local.kept().is_empty() {
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

impl Index<u32> for Pages {
    type Output = Page;

    /// Returns the page of a number.
    fn index(&self, number: u32) -> &Page {
        &self.table[number as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy() -> Copy {
        (0..PAGE_WORDS).map(|_| AtomicU64::new(0)).collect()
    }

    fn added(pages: &Pages, number: u32) -> &Page {
        pages.add(number, (RemotePtr::NULL, u64::from(number)), State::Full, 0)
    }

    fn with_thread(body: impl Fn(&ComputeThread) + Sync) {
        let run = Cluster::connect("local:size=64KiB").unwrap().run(1, async |ct| {
            body(ct);
            Ok(())
        });
        run.unwrap();
    }

    fn place(page: &Page, first: u16) -> Place {
        Place { page: page.number, first, words: 3, is_encrypted: false }
    }

    fn is_here(page: &Page, first: u16) -> bool {
        matches!(page.find(place(page, first), true, None), Looked::Found(_))
    }

    #[test]
    fn a_record_that_was_read_while_its_page_was_removed_is_dropped() {
        with_thread(|ct| {
            let pages = Pages::new(4, 1 << 20);
            for is_kept_before in [true, false] {
                let page = added(&pages, 0);
                let reading = pages.reads(page, 5, 3).unwrap();
                assert!(pages.reads(page, 5, 3).is_none(), "it is being read");
                assert!(matches!(page.find(place(page, 5), true, None), Looked::BeingRead));
                if is_kept_before {
                    reading.keep(vec![1, 2, 3]);
                    assert!(is_here(page, 5));
                    assert_eq!((pages.local_pages(), pages.used_bytes()), (1, Kept::bytes(3)));
                    pages.remove(page, &ct.pin());
                } else {
                    pages.remove(page, &ct.pin());
                    reading.keep(vec![1, 2, 3]);
                }
                assert_eq!((pages.local_pages(), pages.used_bytes()), (0, 0));
                assert!(!is_here(page, 5) && pages.reads(page, 5, 3).is_none());
            }
        });
    }

    #[test]
    fn a_number_is_not_another_pages_while_an_operation_may_use_it() {
        let run = Cluster::connect("local:size=64KiB").unwrap().run(1, async |ct| {
            let pages = Pages::new(1, 1 << 20);
            for _ in 0..3 {
                let (number, _) = pages.take_number(0, ct).unwrap();
                let (page, operation) = (added(&pages, number), ct.pin());
                pages.remove(page, &ct.pin());
                for _ in 0..10 {
                    ct.try_reclaim().await;
                }
                assert!(pages.take_number(0, ct).is_none() && pages.has_retired_numbers());
                drop(operation);
                for _ in 0..3 {
                    ct.try_reclaim().await;
                }
                let (number, is_doubtful) = pages.take_number(0, ct).unwrap();
                assert!(number == 0 && !is_doubtful && !pages.has_retired_numbers());
                pages.give_doubtful(number);
            }
            Ok(())
        });
        run.unwrap();
    }

    #[test]
    fn a_read_that_is_dropped_or_buried_leaves_nothing() {
        let pages = Pages::new(4, 1 << 20);
        let page = added(&pages, 0);
        drop(pages.reads(page, 5, 3).unwrap());
        assert_eq!(pages.used_bytes(), 0);
        pages.reads(page, 5, 3).unwrap().keep(vec![1, 2, 3]);
        pages.reads(page, 8, 4).unwrap().keep(vec![1, 2, 3, 4]);
        pages.bury(page, 5, 0);
        assert!(!is_here(page, 5) && is_here(page, 8));
        assert_eq!(pages.used_bytes(), Kept::bytes(4));
    }

    #[test]
    fn copies_and_records_are_dropped_in_turn_until_there_is_room() {
        let records = 2 * Kept::bytes(3);
        let pages = Pages::new(4, 2 * COPY_BYTES + records);
        let all: Vec<_> = (0..4).map(|number| added(&pages, number)).collect();
        for page in &all[..2] {
            assert!(pages.take(COPY_BYTES));
            pages.keep(page, copy());
        }
        pages.reads(all[2], 5, 3).unwrap().keep(vec![1, 2, 3]);
        pages.reads(all[2], 8, 3).unwrap().keep(vec![4, 5, 6]);
        // The first one was used, and so was one of the records.
        assert!(is_here(all[0], 0) && is_here(all[2], 8));
        assert!(pages.take(COPY_BYTES));
        assert!(all[0].copy().is_some() && all[1].copy().is_none());
        assert!(pages.take(Kept::bytes(3)));
        assert!(!is_here(all[2], 5) && is_here(all[2], 8));
        // One that is being filled stays.
        assert!(all[0].turn(State::Full, State::Filling));
        assert!(pages.take(Kept::bytes(3)), "instead of the other record");
        assert!(!pages.take(1));
        assert_eq!((pages.local_pages(), pages.kept_bytes()), (1, COPY_BYTES));
    }

    #[test]
    fn an_eviction_that_waits_for_another_one_is_counted() {
        let pages = Pages::new(1, 64);
        let evictions = || pages.tally.sum(|part| &part.evictions);
        std::thread::scope(|scope| {
            let clock = lock(&pages.clock);
            let waits = scope.spawn(|| pages.take(65));
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
            pages.list_again(page);
        }
        for page in &all {
            pages.count_dead(page, 40);
        }
        assert!(pages.take_emptiest(900, 9).is_none());
        assert_eq!(pages.take_emptiest(1100, 9).unwrap().number, 0);
        let emptiest = pages.take_emptiest(1100, 9).unwrap();
        assert_eq!(emptiest.number, 1);
        pages.count_dead(all[9], 1800);
        assert_eq!(pages.take_emptiest(1100, 9).unwrap().number, 9);
        with_thread(|ct| pages.remove(all[9], &ct.pin()));
        pages.stays(emptiest);
        assert_eq!(pages.take_emptiest(1100, 9).unwrap().number, 1);
        assert!(pages.take_emptiest(1100, 9).is_none());
        // In one list: of some, only the first are looked at.
        pages.count_live(all[2], 60);
        pages.count_dead(all[3], 60);
        assert!(pages.take_emptiest(1210, 1).is_none());
        assert_eq!(pages.take_emptiest(1210, 2).unwrap().number, 3);
    }

    #[test]
    fn bytes_are_taken_for_good_only_if_enough_is_left() {
        let pages = Pages::new(4, 4 * COPY_BYTES - 1);
        let page = added(&pages, 0);
        assert!(pages.take(COPY_BYTES));
        pages.keep(page, copy());
        assert!(!pages.take_for_good(2 * COPY_BYTES, 2 * COPY_BYTES));
        assert!(pages.take_for_good(2 * COPY_BYTES, COPY_BYTES), "a copy can be dropped");
        assert!(!pages.take_for_good(COPY_BYTES, COPY_BYTES));
    }

    #[test]
    fn the_last_numbers_are_left() {
        let pages = Pages::new(3, 0);
        with_thread(|ct| {
            let take = |left| pages.take_number(left, ct);
            assert!(take(1).is_some() && take(1).is_some());
            assert_eq!((take(1), take(0)), (None, Some((2, false))));
            pages.give_doubtful(1);
            assert_eq!((take(1), take(0)), (None, Some((1, true))));
        });
    }
}
