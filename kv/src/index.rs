//! The index: where the record of each key is, in local memory.
//!
//! It is an extendible hash table (Fagin, Nievergelt, Pippenger and Strong, TODS 1979), in [`SHARDS`] shards with a lock each. A shard has a directory of *segments* of
//! [`SLOTS`] entries. A full segment is divided in two, and the others stay as they are: so no insertion waits for all of a shard, and 50 % to 100 % of the
//! slots are used, 69 % in the mean. An entry is 12 bytes: 32 bits of the key's hash, and the [`Place`] of its record. That makes some 18 bytes a record. The position in the directory
//! is given by bits of the hash, too, so of `n` records one in `2^32 / n` has another one with the same entry; keys are compared in the records.
//!
//! # Cache misses
//!
//! A segment is [`LINES`] cache lines. All hashes are compared without a branch, so the processor reads their lines at the same time. An entry may be in any slot, and is in one of the eight of its *group* if
//! one of them was free: their places are one line, which is read meanwhile. So a look-up waits for the directory and then, once, for the segment.

use std::hint::black_box;
use std::sync::{Mutex, MutexGuard, PoisonError};

use farfield::prefetch;

/// The number of shards.
pub(crate) const SHARDS: usize = 64;
/// The entries of a segment.
const SLOTS: usize = 63;
/// The slots of a group.
const GROUP: usize = 8;
/// The cache lines of a segment: four of hashes, eight of places.
const LINES: usize = 12;
/// The bytes of a segment.
const SEGMENT_BYTES: usize = size_of::<Segment>();
const _: () = assert!(SEGMENT_BYTES == 64 * LINES);
/// So many segments of a shard are allocated one by one, and then as many at a time.
const CHUNK: usize = 8;

/// Where a record is: its page, the word where it begins, and its words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) page: u32,
    pub(crate) first: u16,
    pub(crate) words: u16,
}

impl Place {
    fn to_word(self) -> u64 {
        u64::from(self.page) << 32 | u64::from(self.first) << 16 | u64::from(self.words)
    }

    fn of_word(word: u64) -> Self {
        Self { page: (word >> 32) as u32, first: (word >> 16) as u16, words: word as u16 }
    }
}

/// What is behind the last slot of each array has another meaning: see the methods.
#[repr(C, align(64))]
#[derive(Clone)]
struct Segment {
    places: [u64; SLOTS + 1],
    hashes: [u32; SLOTS + 1],
}

impl Segment {
    fn new(depth: u32) -> Self {
        let mut new = Self { places: [0; SLOTS + 1], hashes: [0; SLOTS + 1] };
        new.hashes[SLOTS] = depth;
        new
    }

    /// The slots that have an entry, a bit each.
    fn used(&self) -> u64 {
        self.places[SLOTS]
    }

    /// The bits of the hash that all its entries have in common.
    fn depth(&self) -> u32 {
        self.hashes[SLOTS]
    }

    fn is_full(&self) -> bool {
        self.used() == (1 << SLOTS) - 1
    }

    /// Returns the first slot of a hash's group.
    fn group(hash: u32) -> usize {
        GROUP * (hash as usize % (SLOTS / GROUP + 1))
    }

    /// Adds an entry: there is a free slot.
    fn push(&mut self, hash: u32, place: u64) {
        let free = !self.used() & ((1 << SLOTS) - 1);
        let near = free & 0xff << Self::group(hash);
        let slot = if near == 0 { free } else { near }.trailing_zeros() as usize;
        (self.hashes[slot], self.places[slot]) = (hash, place);
        self.places[SLOTS] |= 1 << slot;
    }

    fn clear(&mut self, slot: usize) {
        self.places[SLOTS] &= !(1 << slot);
    }

    /// Returns the slots of entries with a hash, a bit each.
    fn matching(&self, hash: u32) -> u64 {
        let equal = self.hashes.map(|other| u8::from(other == hash));
        let (groups, _) = equal.as_chunks::<GROUP>();
        // Gathers the lowest bits of eight bytes in one.
        let bits = |group: &[u8; GROUP]| u64::from_le_bytes(*group).wrapping_mul(0x0102_0408_1020_4080) >> 56;
        let all = groups.iter().rev().fold(0, |all, group| all << GROUP | bits(group));
        all & self.used()
    }

    /// Asks for what [`matching`](Self::matching) reads, and the place that it most likely leads to.
    fn prefetch(&self, hash: u32) {
        prefetch(&self.hashes);
        prefetch(&self.places[SLOTS]);
        prefetch(&self.places[Self::group(hash)]);
    }

    fn find(&self, hash: u32, place: u64) -> Option<usize> {
        let is_there = |slot: &usize| {
            self.places[*slot] == place && self.hashes[*slot] == hash && self.used() >> slot & 1 == 1
        };
        // Most likely it is there: then not all hashes are compared.
        let group = Self::group(hash);
        let near = (group..SLOTS.min(group + GROUP)).find(is_there);
        near.or_else(|| slots(self.matching(hash)).find(is_there))
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

/// The segments of a shard. They are never moved; and few allocations have them all, so the addresses of these stay in the processor's cache.
struct Segments {
    chunks: Vec<Box<[Segment]>>,
    count: usize,
}

impl Segments {
    /// Returns the chunk of a segment, and its place there.
    fn position(index: usize) -> (usize, usize) {
        if index < CHUNK { (index, 0) } else { (CHUNK - 1 + index / CHUNK, index % CHUNK) }
    }

    fn get(&self, index: usize) -> &Segment {
        let (chunk, position) = Self::position(index);
        &self.chunks[chunk][position]
    }

    fn get_mut(&mut self, index: usize) -> &mut Segment {
        let (chunk, position) = Self::position(index);
        &mut self.chunks[chunk][position]
    }

    /// Returns for how many more chunks the vector will have room when another segment is added, and how many segments are allocated.
    fn more(&self) -> (usize, usize) {
        if Self::position(self.count).0 < self.chunks.len() {
            return (0, 0);
        }
        let is_full = self.chunks.len() == self.chunks.capacity();
        let chunks = if is_full { (self.chunks.len() / 4).max(4) } else { 0 };
        (chunks, if self.count < CHUNK { 1 } else { CHUNK })
    }

    /// Returns the bytes that [`push`](Self::push) allocates.
    fn growth(&self) -> usize {
        let (chunks, segments) = self.more();
        chunks * size_of::<Box<[Segment]>>() + segments * SEGMENT_BYTES
    }

    fn push(&mut self, segment: Segment) {
        let (chunks, segments) = self.more();
        self.chunks.reserve_exact(chunks);
        if segments > 0 {
            self.chunks.push(vec![Segment::new(0); segments].into_boxed_slice());
        }
        self.count += 1;
        *self.get_mut(self.count - 1) = segment;
    }

    fn bytes(&self) -> usize {
        let segments: usize = self.chunks.iter().map(|chunk| chunk.len()).sum();
        segments * SEGMENT_BYTES + self.chunks.capacity() * size_of::<Box<[Segment]>>()
    }
}

/// Where a shard has a record, as long as it is not changed.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    segment: usize,
    slot: usize,
}

/// A part of the index.
pub(crate) struct Shard {
    /// The number of bits that the directory distinguishes.
    depth: u32,
    /// The segment of each value of these bits.
    directory: Vec<u32>,
    segments: Segments,
    records: usize,
}

impl Shard {
    fn new() -> Self {
        let mut segments = Segments { chunks: Vec::new(), count: 0 };
        segments.push(Segment::new(0));
        Self { depth: 0, directory: vec![0], segments, records: 0 }
    }

    fn segment_of(&self, hash: u32) -> usize {
        let index = if self.depth == 0 { 0 } else { hash >> (u32::BITS - self.depth) };
        self.directory[index as usize] as usize
    }

    /// Returns the places of the records whose keys have a hash.
    pub(crate) fn find(&self, hash: u64) -> impl Iterator<Item = Place> + '_ {
        let segment = self.segments.get(self.segment_of(hash as u32));
        // Most likely the place is in this line.
        black_box(segment.places[Segment::group(hash as u32)]);
        slots(segment.matching(hash as u32)).map(|slot| Place::of_word(segment.places[slot]))
    }

    /// Returns the entry of a record, if it is there.
    pub(crate) fn entry(&self, hash: u64, place: Place) -> Option<Entry> {
        let segment = self.segment_of(hash as u32);
        let slot = self.segments.get(segment).find(hash as u32, place.to_word())?;
        Some(Entry { segment, slot })
    }

    /// Puts a record in place of that of an entry.
    pub(crate) fn replace(&mut self, entry: Entry, new: Place) {
        self.segments.get_mut(entry.segment).places[entry.slot] = new.to_word();
    }

    /// Removes an entry.
    pub(crate) fn remove(&mut self, entry: Entry) {
        self.segments.get_mut(entry.segment).clear(entry.slot);
        self.records -= 1;
    }

    /// Returns the bytes that [`insert`](Self::insert) may allocate.
    pub(crate) fn growth(&self, hash: u64) -> usize {
        let segment = self.segments.get(self.segment_of(hash as u32));
        if !segment.is_full() {
            return 0;
        }
        let is_deepest = segment.depth() == self.depth;
        let directory = if is_deepest { self.directory.len() * size_of::<u32>() } else { 0 };
        self.segments.growth() + directory
    }

    /// Adds a record. Returns `false` if so many others have nearly the same hash that there is no room.
    pub(crate) fn insert(&mut self, hash: u64, place: Place) -> bool {
        loop {
            let index = self.segment_of(hash as u32);
            let segment = self.segments.get_mut(index);
            if !segment.is_full() {
                segment.push(hash as u32, place.to_word());
                self.records += 1;
                return true;
            }
            let depth = segment.depth();
            if depth == self.depth {
                // A directory has an entry for some 20 records. More than one for each is one for hashes that are all the same.
                if self.directory.len() > self.records || depth == u32::BITS {
                    return false;
                }
                self.directory = self.directory.iter().flat_map(|segment| [*segment; 2]).collect();
                self.depth += 1;
            }
            self.divide(index);
        }
    }

    /// Divides a full segment by the next bit of the hashes.
    fn divide(&mut self, index: usize) {
        let old = self.segments.get_mut(index);
        let depth = old.depth() + 1;
        let bit = 1 << (u32::BITS - depth);
        let (mut low, mut high) = (Segment::new(depth), Segment::new(depth));
        for slot in 0..SLOTS {
            let half = if old.hashes[slot] & bit == 0 { &mut low } else { &mut high };
            half.push(old.hashes[slot], old.places[slot]);
        }
        *old = low;
        let new = self.segments.count as u32;
        self.segments.push(high);
        for (position, segment) in self.directory.iter_mut().enumerate() {
            let hash = (position as u32) << (u32::BITS - self.depth);
            if *segment as usize == index && hash & bit != 0 {
                *segment = new;
            }
        }
    }

    /// Returns the bytes that it has allocated.
    pub(crate) fn bytes(&self) -> usize {
        self.segments.bytes() + self.directory.capacity() * size_of::<u32>()
    }
}

/// The index of all records.
pub(crate) struct Index {
    shards: Box<[Mutex<Shard>]>,
}

impl Index {
    pub(crate) fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::new(Shard::new())).collect() }
    }

    /// Tells the processor that a hash will be looked up, so that several look-ups wait for memory at the same time, or one while other work is done.
    pub(crate) fn prefetch(&self, hash: u64) {
        let shard = self.shard(hash);
        shard.segments.get(shard.segment_of(hash as u32)).prefetch(hash as u32);
    }

    /// Locks the part that has the keys of a hash. Never held across an `await`.
    pub(crate) fn shard(&self, hash: u64) -> MutexGuard<'_, Shard> {
        // Its operations do not panic half way.
        self.shards[(hash >> 58) as usize % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn records(&self) -> usize {
        self.sum(|shard| shard.records)
    }

    /// Returns the bytes that it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.sum(Shard::bytes) + size_of_val(&*self.shards)
    }

    fn sum(&self, of: impl Fn(&Shard) -> usize) -> usize {
        self.shards.iter().map(|shard| of(&shard.lock().unwrap_or_else(PoisonError::into_inner))).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use rand::rngs::SmallRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    fn place(number: u64) -> Place {
        Place { page: number as u32, first: (number >> 3) as u16, words: 7 }
    }

    #[test]
    fn a_place_is_a_word() {
        let place = Place { page: u32::MAX - 1, first: 2047, words: u16::MAX };
        assert_eq!(Place::of_word(place.to_word()), place);
    }

    #[test]
    fn records_are_found_replaced_and_removed() {
        let (index, mut expected) = (Index::new(), HashMap::new());
        let mut rng = SmallRng::seed_from_u64(1);
        for number in 0..100_000 {
            let hash: u64 = rng.random();
            assert!(index.shard(hash).insert(hash, place(number)));
            expected.insert(hash, place(number));
        }
        assert_eq!(index.records(), expected.len());
        let bytes = index.bytes() / expected.len();
        assert!((16..=24).contains(&bytes), "{bytes} bytes a record");
        for (number, (hash, old)) in expected.iter_mut().enumerate() {
            let new = place(number as u64 + 1_000_000);
            let mut shard = index.shard(*hash);
            assert!(shard.find(*hash).any(|found| found == *old));
            let entry = shard.entry(*hash, *old).unwrap();
            shard.replace(entry, new);
            assert!(shard.entry(*hash, *old).is_none());
            *old = new;
        }
        for (hash, old) in &expected {
            let mut shard = index.shard(*hash);
            let entry = shard.entry(*hash, *old).unwrap();
            shard.remove(entry);
            assert!(shard.entry(*hash, *old).is_none());
            assert!(!shard.find(*hash).any(|found| found == *old));
        }
        assert_eq!(index.records(), 0);
    }

    #[test]
    fn equal_hashes_are_kept_apart_by_their_places_up_to_a_limit() {
        let index = Index::new();
        let mut shard = index.shard(7);
        for number in 0..SLOTS as u64 {
            assert!(shard.insert(7, place(number)));
        }
        assert_eq!(shard.find(7).count(), SLOTS);
        assert!(!shard.insert(7, place(99)));
        // Of its group or not, the entry is the one with that place; and another hash has none there.
        for number in 0..SLOTS as u64 {
            let entry = shard.entry(7, place(number)).unwrap();
            shard.replace(entry, place(number + 100));
            assert!(
                shard.entry(7, place(number)).is_none() && shard.entry(15, place(number + 100)).is_none()
            );
        }
        assert_eq!(shard.find(7).count(), SLOTS);
    }
}
