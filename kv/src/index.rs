//! The index: where the record of each key is, in local memory.
//!
//! It is an extendible hash table (Fagin, Nievergelt, Pippenger and Strong, TODS 1979): a directory leads from bits of a key's hash to a *segment* of [`SLOTS`] entries. A full segment is divided in
//! two, and the others stay as they are: so no insertion waits for all of the table, and 50 % to 100 % of the slots are used, 69 % in the mean. An entry is 12 bytes: 32 bits of the key's hash, and the
//! [`Place`] of its record. That makes some 18 bytes a record. The directory has six other bits of the hash, and some of these, so of `n` records one in `2^38 / n` has another one with the same entry; keys
//! are compared in the records.
//!
//! # Locks
//!
//! Each segment has a lock, in a cache line that its users read in any case. A segment is never moved, nor freed before the index is, and the directory is read without a lock. A segment knows
//! the bits of the hash that all its entries have in common, its *position*: at any time each hash has one segment, that with its lowest bits, and who has locked a segment sees whether it is the hash's.
//! It is not if it was divided meanwhile; then the directory was changed before it was unlocked, and leads to the right one.
//!
//! The thread that divides a segment has locked it, and then the index's growth: so one segment is divided at a time. The directory is doubled in place: the second half is added, as a copy of the first one.
//!
//! # Cache misses
//!
//! A segment is [`LINES`] cache lines: its lock and eight *groups* of eight slots or, of the first group, five. A group's places are a line, and its hashes half of one. An entry is in the group of its hash or, if that was full, in the
//! next one that was not; a group that was full once for an entry of its own or of one before is *overfull* until the segment is divided. A look-up reads the groups from that of the hash up to the first one that is not overfull: most often that group
//! alone, whose lines the processor reads at the same time. So it waits for the directory and then, once, for the segment.

use std::hint::black_box;
use std::mem::offset_of;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};

use farfield::{Error, prefetch_line};

use crate::pages::lock;
use crate::record::Place;

/// The entries of a segment.
const SLOTS: usize = 61;
/// The slots of a group.
const GROUP: usize = 8;
/// The groups of a segment.
const GROUPS: usize = 8;
/// The first slot: the words before are the lock, and what the segment says of itself.
const FIRST: usize = GROUP * GROUPS - SLOTS;
/// The cache lines of a segment: eight of places, four of hashes.
const LINES: usize = 12;
/// The bytes of a segment.
const SEGMENT_BYTES: usize = size_of::<Segment>();
const _: () = assert!(SEGMENT_BYTES == 64 * LINES && PLACES_AT == 8 * FIRST && HASHES_AT == 512);
/// Where a segment has the places and the hashes.
const PLACES_AT: usize = ENTRIES_AT + offset_of!(Entries, places);
const HASHES_AT: usize = ENTRIES_AT + offset_of!(Entries, hashes);
/// They are behind the lock: a hint relies on that, and nothing else.
const ENTRIES_AT: usize = SEGMENT_BYTES - size_of::<Entries>();

/// The directory begins with so many bits, which the entries do not have.
const FIRST_BITS: u32 = 6;
/// The directory has at most so many entries a segment. If hashes are distributed well, it has up to four.
const MOST_SPARSE: usize = 16;
/// The most bits of the directory: `2^31` entries are enough for `2^34` records.
const MOST_DEPTH: u32 = 31;

/// A segment in its cache lines.
#[repr(align(64))]
#[derive(Default)]
struct Segment(Mutex<Entries>);

impl Segment {
    /// Asks for what [`Entries::matching`] most likely reads, and the place that this leads to.
    fn prefetch(&self, hash: u32) {
        let start = std::ptr::from_ref(self).cast::<u8>();
        let group = Entries::group(hash);
        for offset in [0, HASHES_AT + group * size_of::<[u32; GROUP]>(), group * size_of::<[u64; GROUP]>()] {
            prefetch_line(start.wrapping_add(offset));
        }
    }
}

/// The entries of a segment.
#[repr(C)]
pub(crate) struct Entries {
    /// The slots that have an entry, a bit each.
    used: u64,
    /// The bits of the hash that all entries have in common.
    position: u32,
    /// So many they are.
    depth: u8,
    /// The groups that are overfull, a bit each.
    overfull: u8,
    places: [u64; SLOTS],
    /// Of a group's slots beside each other; so those before the first slot have some, too.
    hashes: [[u32; GROUP]; GROUPS],
}

/// The slot of a record in a segment, as long as that is locked.
#[derive(Clone, Copy)]
pub(crate) struct Slot(usize);

impl Default for Entries {
    fn default() -> Self {
        Self::new(0, u32::MAX)
    }
}

impl Entries {
    fn new(depth: u32, position: u32) -> Self {
        Self {
            used: 0,
            position,
            depth: depth as u8,
            overfull: 0,
            places: [0; SLOTS],
            hashes: [[0; GROUP]; GROUPS],
        }
    }

    fn depth(&self) -> u32 {
        self.depth.into()
    }

    /// Returns the group of a hash: of each slot, as many hashes.
    fn group(hash: u32) -> usize {
        (FIRST + (((hash >> 24) as usize * SLOTS) >> 8)) / GROUP
    }

    fn has(&self, position: u32) -> bool {
        position & low_bits(self.depth()) == self.position
    }

    pub(crate) fn is_full(&self) -> bool {
        self.used == u64::MAX << FIRST
    }

    /// Adds a record. There is a free slot.
    pub(crate) fn insert(&mut self, hash: u64, place: Place) {
        self.push(hash as u32, place.to_word());
    }

    fn push(&mut self, hash: u32, place: u64) {
        let free = (!self.used & u64::MAX << FIRST).to_le_bytes();
        let mut group = Self::group(hash);
        while free[group] == 0 {
            self.overfull |= 1 << group;
            group = (group + 1) % GROUPS;
        }
        let position = free[group].trailing_zeros() as usize;
        let slot = GROUP * group + position;
        (self.hashes[group][position], self.places[slot - FIRST]) = (hash, place);
        self.used |= 1 << slot;
    }

    /// Returns the places of the records whose keys have a hash.
    pub(crate) fn find(&self, hash: u64) -> impl Iterator<Item = Place> + '_ {
        // Most likely the place is in this line.
        black_box(self.places[(GROUP * Self::group(hash as u32)).saturating_sub(FIRST)]);
        slots(self.matching(hash as u32)).map(|slot| self.place(slot))
    }

    fn place(&self, slot: usize) -> Place {
        Place::of_word(self.places[slot - FIRST])
    }

    /// Returns the place of a record whose key has a hash, if it is in the hash's group. For hints: no other groups are looked at.
    pub(crate) fn guess(&self, hash: u64) -> Option<Place> {
        let here = self.matching_in(Self::group(hash as u32), hash as u32) & self.used;
        slots(here).next().map(|slot| self.place(slot))
    }

    /// Returns the slots of entries with a hash, a bit each.
    fn matching(&self, hash: u32) -> u64 {
        let first = Self::group(hash);
        let (mut all, mut group) = (0, first);
        loop {
            all |= self.matching_in(group, hash);
            let is_last = self.overfull >> group & 1 == 0;
            group = (group + 1) % GROUPS;
            if is_last || group == first {
                return all & self.used;
            }
        }
    }

    /// Returns the slots of a group that have a hash, or have had it.
    fn matching_in(&self, group: usize, hash: u32) -> u64 {
        let equal = self.hashes[group].map(|other| u8::from(other == hash));
        // Gathers the lowest bits of eight bytes in one.
        let bits = u64::from_le_bytes(equal).wrapping_mul(0x0102_0408_1020_4080) >> 56;
        bits << (GROUP * group)
    }

    /// Returns the slot of a record, if it is there.
    pub(crate) fn slot(&self, hash: u64, place: Place) -> Option<Slot> {
        let place = place.to_word();
        slots(self.matching(hash as u32)).find(|slot| self.places[slot - FIRST] == place).map(Slot)
    }

    /// Puts a record in place of another one.
    pub(crate) fn replace(&mut self, Slot(slot): Slot, new: Place) {
        self.places[slot - FIRST] = new.to_word();
    }

    /// Removes a record.
    pub(crate) fn remove(&mut self, Slot(slot): Slot) {
        self.used &= !(1 << slot);
    }
}

/// Returns the numbers of the bits that are set.
fn slots(mut bits: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let slot = (bits != 0).then(|| bits.trailing_zeros() as usize);
        bits &= bits.wrapping_sub(1);
        slot
    })
}

fn low_bits(count: u32) -> u32 {
    1_u32.checked_shl(count).map_or(u32::MAX, |end| end - 1)
}

/// Returns the bits of a hash of which the directory has some, the lowest ones: first those that entries do not have.
fn position(hash: u64) -> u32 {
    (hash as u32) << FIRST_BITS | (hash >> (u64::BITS - FIRST_BITS)) as u32
}

/// An array that is doubled in place: its parts are the first `2^START` elements, and then as many as there are before.
struct Doubling<T, const START: u32> {
    parts: [OnceLock<Box<[T]>>; 32],
}

impl<T, const START: u32> Doubling<T, START> {
    fn new(elements: impl Iterator<Item = T>) -> Self {
        let new = Self { parts: [const { OnceLock::new() }; 32] };
        new.double(0, elements);
        new
    }

    /// Returns the part that has an element, and its place there.
    fn part(index: u32) -> (usize, usize) {
        let log = (index | 1 << (START - 1)).ilog2();
        let before = 1_u32 << log & !low_bits(START);
        ((log + 1 - START) as usize, (index - before) as usize)
    }

    /// Returns an element. The array was doubled until it is there.
    fn get(&self, index: u32) -> &T {
        let (part, position) = Self::part(index);
        &self.parts[part].get().expect("a part that was added")[position]
    }

    /// Adds a part, if it is not there.
    fn double(&self, part: usize, elements: impl Iterator<Item = T>) {
        self.parts[part].get_or_init(|| elements.collect());
    }
}

/// Segments that are allocated together. The first chunk has one for each entry of the first directory, and each other one a sixteenth of what is there before, up to a limit. So there are few, and their
/// addresses stay in the processor's cache; and little memory is allocated before it is used.
type Chunk = OnceLock<Box<[Segment]>>;

/// Chunks for each doubling of the segments, as long as chunks grow: `2^DIVISION`.
const DIVISION: u32 = 4;
/// The most segments of a chunk, as a power of two.
const LARGEST: u32 = 8;
/// The chunk table begins with so many, as a power of two.
const FIRST_CHUNKS: u32 = 4;

/// Returns the chunk that has a segment, the segment's place there, and the segments of the chunk.
fn chunk_of(segment: u32) -> (u32, u32, usize) {
    let log = segment.checked_ilog2().unwrap_or(0);
    if log < FIRST_BITS {
        return (0, segment, 1 << FIRST_BITS);
    }
    let size = (log - DIVISION).min(LARGEST);
    let before = ((size + DIVISION - FIRST_BITS) << DIVISION) + 1;
    (before + (segment >> size) - (1 << DIVISION), segment & low_bits(size), 1 << size)
}

/// The index of all records.
#[repr(align(64))]
pub(crate) struct Index {
    /// The number of bits that the directory distinguishes.
    depth: AtomicU32,
    /// The segment of each value of these bits: its chunk, and its place there in the lowest bits.
    directory: Doubling<AtomicU32, FIRST_BITS>,
    chunks: Doubling<Chunk, FIRST_CHUNKS>,
    /// The number of segments. It is locked by the thread that divides one, after the segment.
    growth: Mutex<u32>,
    bytes: AtomicUsize,
}

/// What [`Index::divide`] allocates.
struct Needed {
    chunk_table: usize,
    chunk: usize,
    directory: usize,
}

impl Needed {
    fn bytes(&self) -> usize {
        self.chunk_table * size_of::<Chunk>()
            + self.chunk * SEGMENT_BYTES
            + self.directory * size_of::<AtomicU32>()
    }
}

impl Index {
    pub(crate) fn new() -> Self {
        let segments = 1_u32 << FIRST_BITS;
        let segment = |position| Segment(Mutex::new(Entries::new(FIRST_BITS, position)));
        let first =
            Needed { chunk_table: 1 << FIRST_CHUNKS, chunk: 1 << FIRST_BITS, directory: 1 << FIRST_BITS };
        let chunks = Doubling::new((0..1 << FIRST_CHUNKS).map(|_| Chunk::new()));
        chunks.get(0).get_or_init(|| (0..segments).map(segment).collect());
        Self {
            chunks,
            depth: AtomicU32::new(FIRST_BITS),
            directory: Doubling::new((0..segments).map(AtomicU32::new)),
            growth: Mutex::new(segments),
            bytes: AtomicUsize::new(first.bytes()),
        }
    }

    /// Returns the segment of an entry of the directory.
    fn segment(&self, entry: u32) -> &Segment {
        let (chunk, place) = (entry >> LARGEST, entry & low_bits(LARGEST));
        &self.chunks.get(chunk).get().expect("a chunk that was added")[place as usize]
    }

    /// Returns the segment that has had the keys of a hash just now.
    fn segment_of(&self, hash: u64) -> &Segment {
        // Its entries were written before.
        let depth = self.depth.load(Ordering::Acquire);
        let entry = self.directory.get(position(hash) & low_bits(depth));
        self.segment(entry.load(Ordering::Acquire))
    }

    /// Tells the processor that a hash will be looked up, so that several look-ups wait for memory at the same time, or one while other work is done.
    pub(crate) fn prefetch(&self, hash: u64) {
        self.segment_of(hash).prefetch(hash as u32);
    }

    /// Locks the segment that has the keys of a hash. Never held across an `await`.
    pub(crate) fn lock(&self, hash: u64) -> MutexGuard<'_, Entries> {
        loop {
            let entries = lock(&self.segment_of(hash).0);
            // Else it was divided meanwhile.
            if entries.has(position(hash)) {
                return entries;
            }
        }
    }

    /// Divides a segment that is full, if `take` takes the bytes that this allocates. Look again then which one has a hash.
    ///
    /// # Errors
    /// One that says so if the bytes are not taken, or if too many keys have nearly the same hash.
    pub(crate) fn divide(
        &self,
        mut old: MutexGuard<'_, Entries>,
        take: impl FnOnce(usize) -> bool,
    ) -> farfield::Result<()> {
        let mut segments = lock(&self.growth);
        let depth = self.depth.load(Ordering::Relaxed);
        let length = 1_usize << depth;
        let is_deepest = old.depth() == depth;
        if is_deepest && (length >= MOST_SPARSE * *segments as usize || depth == MOST_DEPTH) {
            return Err(Error::other("too many keys have nearly the same hash"));
        }
        let (chunk, place, chunk_segments) = chunk_of(*segments);
        let new = chunk << LARGEST | place;
        let adds_chunk = place == 0;
        let adds_table = adds_chunk && chunk >= 1 << FIRST_CHUNKS && chunk.is_power_of_two();
        let needed = Needed {
            chunk_table: if adds_table { chunk as usize } else { 0 },
            chunk: if adds_chunk { chunk_segments } else { 0 },
            directory: if is_deepest { length } else { 0 },
        };
        if needed.bytes() > 0 && !take(needed.bytes()) {
            return Err(Error::other(
                "the budget of local memory is exhausted: the index has no room for another record",
            ));
        }
        self.bytes.fetch_add(needed.bytes(), Ordering::Relaxed);
        if adds_table {
            let (part, _) = Doubling::<Chunk, FIRST_CHUNKS>::part(chunk);
            self.chunks.double(part, (0..chunk).map(|_| Chunk::new()));
        }
        if adds_chunk {
            self.chunks.get(chunk).get_or_init(|| (0..chunk_segments).map(|_| Segment::default()).collect());
        }
        if is_deepest {
            let copied = (0..length as u32).map(|index| self.directory.get(index).load(Ordering::Relaxed));
            let (part, _) = Doubling::<AtomicU32, FIRST_BITS>::part(length as u32);
            self.directory.double(part, copied.map(AtomicU32::new));
            self.depth.store(depth + 1, Ordering::Release);
        }
        *segments += 1;
        old.divide(&mut lock(&self.segment(new).0));
        // Nobody has come to the new one before.
        let step = 1_usize << old.depth();
        let high = old.position as usize | step >> 1;
        for index in (high..1 << self.depth.load(Ordering::Relaxed)).step_by(step) {
            self.directory.get(index as u32).store(new, Ordering::Release);
        }
        Ok(())
    }

    /// Returns the bytes that it has allocated.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl Entries {
    /// Moves the entries to an empty segment that have the next bit of the hash.
    fn divide(&mut self, high: &mut Self) {
        let (depth, position) = (self.depth(), self.position);
        let bit = 1_u32 << (depth - FIRST_BITS);
        let all = std::mem::replace(self, Self::new(depth + 1, position));
        *high = Self::new(depth + 1, position | 1 << depth);
        for slot in slots(all.used) {
            let hash = all.hashes[slot / GROUP][slot % GROUP];
            let half = if hash & bit == 0 { &mut *self } else { &mut *high };
            half.push(hash, all.places[slot - FIRST]);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use rand::rngs::SmallRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    fn place(number: u64) -> Place {
        Place {
            page: number as u32,
            first: (number >> 3) as u16,
            words: 7,
            is_encrypted: number.is_multiple_of(3),
        }
    }

    fn insert(index: &Index, hash: u64, place: Place) -> farfield::Result<()> {
        loop {
            let mut entries = index.lock(hash);
            if !entries.is_full() {
                entries.insert(hash, place);
                return Ok(());
            }
            index.divide(entries, |_| true)?;
        }
    }

    #[test]
    fn chunks_have_all_segments_in_turn_and_few_that_are_not_used() {
        let (mut chunks, mut end) = (0, 0);
        for segment in 0..1_u32 << 16 {
            let (chunk, place, size) = chunk_of(segment);
            if segment == end {
                (chunks, end) = (chunks + 1, segment + size as u32);
                assert!(place == 0 && (segment == 0 || size == 256 || end - segment <= segment / 16));
            }
            assert_eq!((chunk, place), (chunks - 1, size as u32 - (end - segment)));
        }
    }

    #[test]
    fn groups_have_as_many_hashes_as_slots() {
        let mut hashes = [0; GROUPS];
        for top in 0..256 {
            hashes[Entries::group(top << 24 | 5)] += 1;
        }
        assert!((20..=22).contains(&hashes[0]), "of five slots: {hashes:?}");
        assert!(hashes[1..].iter().all(|hashes| (33..=34).contains(hashes)), "{hashes:?}");
    }

    #[test]
    fn entries_of_a_full_group_are_in_the_next_ones() {
        let mut entries = Entries::new(FIRST_BITS, 0);
        let hash = |number: u64| 0xff00_0000 | number;
        for number in 0..SLOTS as u64 {
            entries.insert(hash(number), place(number));
            let overfull = if number < 8 { 0 } else { 0x80 | ((1 << ((number + FIRST as u64 - 8) / 8)) - 1) };
            assert_eq!(u64::from(entries.overfull), overfull, "{number}");
            assert_eq!(entries.guess(hash(number)), (number < 8).then(|| place(number)));
        }
        assert!(entries.is_full());
        for number in (0..SLOTS as u64).rev() {
            assert!(entries.find(hash(number)).eq([place(number)]));
            let slot = entries.slot(hash(number), place(number)).unwrap();
            entries.remove(slot);
            assert_eq!(entries.find(hash(number)).next(), None);
        }
    }

    #[test]
    fn records_are_found_replaced_and_removed() {
        let (index, mut expected) = (Index::new(), HashMap::new());
        let mut rng = SmallRng::seed_from_u64(1);
        for number in 0..100_000 {
            let hash: u64 = rng.random();
            insert(&index, hash, place(number)).unwrap();
            expected.insert(hash, place(number));
        }
        let bytes = index.bytes() / expected.len();
        assert!((16..=24).contains(&bytes), "{bytes} bytes a record");
        for (number, (hash, old)) in expected.iter_mut().enumerate() {
            let new = place(number as u64 + 1_000_000);
            let mut entries = index.lock(*hash);
            assert!(entries.find(*hash).any(|found| found == *old));
            let slot = entries.slot(*hash, *old).unwrap();
            entries.replace(slot, new);
            assert!(entries.slot(*hash, *old).is_none());
            *old = new;
        }
        for (hash, old) in &expected {
            let mut entries = index.lock(*hash);
            let slot = entries.slot(*hash, *old).unwrap();
            entries.remove(slot);
            assert!(entries.slot(*hash, *old).is_none());
            assert!(!entries.find(*hash).any(|found| found == *old));
        }
    }

    #[test]
    fn the_directory_leads_to_the_segment_of_each_of_its_entries() {
        let index = Index::new();
        let mut rng = SmallRng::seed_from_u64(2);
        for number in 0..50_000 {
            insert(&index, rng.random(), place(number)).unwrap();
        }
        let depth = index.depth.load(Ordering::Relaxed);
        let mut entries_of = HashMap::new();
        for position in 0..1 << depth {
            let number = index.directory.get(position).load(Ordering::Relaxed);
            let entries = index.segment(number).0.lock().unwrap();
            assert!(entries.has(position) && entries.depth() <= depth);
            *entries_of.entry(number).or_insert(0_u64) += 1 << entries.depth();
        }
        assert_eq!(entries_of.len(), *index.growth.lock().unwrap() as usize);
        // A segment of half as many bits has twice as many entries.
        assert!(entries_of.values().all(|entries| *entries == 1 << depth));
    }

    /// Threads that divide segments, and double the directory, while others look up and remove what they have added.
    #[test]
    fn no_record_is_lost_while_segments_are_divided() {
        const THREADS: u64 = 4;
        let index = &Index::new();
        let bytes = &AtomicUsize::new(index.bytes());
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                scope.spawn(move || {
                    let mut rng = SmallRng::seed_from_u64(thread);
                    let mut mine = Vec::new();
                    for number in 0..20_000 {
                        let (hash, place) = (rng.random(), place(number * THREADS + thread));
                        loop {
                            let mut entries = index.lock(hash);
                            if !entries.is_full() {
                                break entries.insert(hash, place);
                            }
                            let take = |more| bytes.fetch_add(more, Ordering::Relaxed) < usize::MAX;
                            index.divide(entries, take).unwrap();
                        }
                        mine.push((hash, place));
                        let (hash, place) = mine[rng.random_range(0..mine.len())];
                        assert!(index.lock(hash).slot(hash, place).is_some());
                        if number % 4 == 3 {
                            let (hash, place) = mine.swap_remove(rng.random_range(0..mine.len()));
                            let mut entries = index.lock(hash);
                            let slot = entries.slot(hash, place).unwrap();
                            entries.remove(slot);
                        }
                    }
                    for (hash, place) in mine {
                        assert!(index.lock(hash).slot(hash, place).is_some());
                    }
                });
            }
        });
        assert_eq!(index.bytes(), bytes.load(Ordering::Relaxed), "what was taken is what was allocated");
    }

    #[test]
    fn equal_hashes_are_kept_apart_by_their_places_up_to_a_limit() {
        let index = Index::new();
        for number in 0..SLOTS as u64 {
            insert(&index, 7, place(number)).unwrap();
        }
        assert_eq!(index.lock(7).find(7).count(), SLOTS);
        let error = insert(&index, 7, place(99)).unwrap_err().to_string();
        assert!(error.contains("nearly the same hash"), "{error}");
        let mut entries = index.lock(7);
        // Of its group or not, the entry is the one with that place; and another hash has none there.
        for number in 0..SLOTS as u64 {
            let slot = entries.slot(7, place(number)).unwrap();
            entries.replace(slot, place(number + 100));
            assert!(
                entries.slot(7, place(number)).is_none() && entries.slot(15, place(number + 100)).is_none()
            );
        }
        assert_eq!(entries.find(7).count(), SLOTS);
    }

    #[test]
    fn nothing_is_allocated_that_was_not_taken() {
        let index = Index::new();
        let error = loop {
            let (before, hash) = (index.bytes(), 7);
            let mut entries = index.lock(hash);
            if !entries.is_full() {
                entries.insert(hash, place(1));
                continue;
            }
            let refused = index.divide(entries, |_| false).unwrap_err();
            assert_eq!(index.bytes(), before);
            break refused.to_string();
        };
        assert!(error.contains("budget"), "{error}");
        assert_eq!(index.lock(7).find(7).count(), SLOTS);
    }
}
