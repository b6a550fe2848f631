//! The index: where the record of each key is, in local memory.
//!
//! It is an extendible hash table (Fagin, Nievergelt, Pippenger and Strong, TODS 1979), in [`SHARDS`] shards with a lock each. A shard has a directory of *segments* of
//! [`SLOTS`] entries. A full segment is divided in two, and the others stay as they are: so no insertion waits for all of a shard, and 50 % to 100 % of the
//! slots are used, 69 % in the mean. An entry is 12 bytes: 32 bits of the key's hash, and the [`Place`] of its record. That makes some 18 bytes a record. The position in the directory
//! is given by bits of the hash, too, so of `n` records one in `2^32 / n` has another one with the same entry; keys are compared in the records.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The number of shards.
pub(crate) const SHARDS: usize = 64;
/// The entries of a segment.
const SLOTS: usize = 64;
/// The bytes of a segment.
const SEGMENT_BYTES: usize = size_of::<Segment>();

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

struct Segment {
    /// The bits of the hash that all its entries have in common.
    depth: u8,
    used: u8,
    hashes: [u32; SLOTS],
    places: [u64; SLOTS],
}

impl Segment {
    fn new(depth: u8) -> Box<Self> {
        Box::new(Self { depth, used: 0, hashes: [0; SLOTS], places: [0; SLOTS] })
    }

    fn push(&mut self, hash: u32, place: u64) {
        let slot = usize::from(self.used);
        (self.hashes[slot], self.places[slot]) = (hash, place);
        self.used += 1;
    }

    fn find(&self, hash: u32, place: u64) -> Option<usize> {
        (0..usize::from(self.used)).find(|slot| self.hashes[*slot] == hash && self.places[*slot] == place)
    }
}

/// A part of the index.
pub(crate) struct Shard {
    /// The number of bits that the directory distinguishes.
    depth: u32,
    /// The segment of each value of these bits.
    directory: Vec<u32>,
    #[allow(clippy::vec_box)]
    // a vector of segments would need three times its bytes for a moment when it grows
    segments: Vec<Box<Segment>>,
    records: usize,
}

impl Shard {
    fn new() -> Self {
        Self { depth: 0, directory: vec![0], segments: vec![Segment::new(0)], records: 0 }
    }

    fn segment_of(&self, hash: u32) -> usize {
        let index = if self.depth == 0 { 0 } else { hash >> (u32::BITS - self.depth) };
        self.directory[index as usize] as usize
    }

    /// Returns the places of the records whose keys have a hash.
    pub(crate) fn find(&self, hash: u64) -> impl Iterator<Item = Place> + '_ {
        let segment = &self.segments[self.segment_of(hash as u32)];
        let slots = 0..usize::from(segment.used);
        slots
            .filter(move |slot| segment.hashes[*slot] == hash as u32)
            .map(|slot| Place::of_word(segment.places[slot]))
    }

    /// Puts a record in place of another one. Returns `false` if that is not there.
    pub(crate) fn replace(&mut self, hash: u64, old: Place, new: Place) -> bool {
        let segment = self.segment_of(hash as u32);
        let segment = &mut self.segments[segment];
        let Some(slot) = segment.find(hash as u32, old.to_word()) else { return false };
        segment.places[slot] = new.to_word();
        true
    }

    /// Removes a record. Returns `false` if it is not there.
    pub(crate) fn remove(&mut self, hash: u64, old: Place) -> bool {
        let segment = self.segment_of(hash as u32);
        let segment = &mut self.segments[segment];
        let Some(slot) = segment.find(hash as u32, old.to_word()) else { return false };
        let last = usize::from(segment.used) - 1;
        (segment.hashes[slot], segment.places[slot]) = (segment.hashes[last], segment.places[last]);
        segment.used -= 1;
        self.records -= 1;
        true
    }

    /// Returns the bytes that [`insert`](Self::insert) may allocate.
    pub(crate) fn growth(&self, hash: u64) -> usize {
        let segment = &self.segments[self.segment_of(hash as u32)];
        if usize::from(segment.used) < SLOTS {
            0
        } else {
            let is_deepest = u32::from(segment.depth) == self.depth;
            let directory = if is_deepest { self.directory.len() * size_of::<u32>() } else { 0 };
            SEGMENT_BYTES + self.more_segments() * size_of::<Box<Segment>>() + directory
        }
    }

    /// Returns for how many more segments the vector will have room before another one is added.
    fn more_segments(&self) -> usize {
        if self.segments.len() < self.segments.capacity() { 0 } else { (self.segments.len() / 4).max(4) }
    }

    /// Adds a record. Returns `false` if so many others have nearly the same hash that there is no room.
    pub(crate) fn insert(&mut self, hash: u64, place: Place) -> bool {
        loop {
            let index = self.segment_of(hash as u32);
            let segment = &mut self.segments[index];
            if usize::from(segment.used) < SLOTS {
                segment.push(hash as u32, place.to_word());
                self.records += 1;
                return true;
            }
            let depth = u32::from(segment.depth);
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
        let old = &mut self.segments[index];
        let depth = old.depth + 1;
        let bit = 1 << (u32::BITS - u32::from(depth));
        let (mut low, mut high) = (Segment::new(depth), Segment::new(depth));
        for slot in 0..usize::from(old.used) {
            let half = if old.hashes[slot] & bit == 0 { &mut low } else { &mut high };
            half.push(old.hashes[slot], old.places[slot]);
        }
        **old = *low;
        let new = self.segments.len() as u32;
        self.segments.reserve_exact(self.more_segments());
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
        self.segments.len() * SEGMENT_BYTES
            + self.segments.capacity() * size_of::<Box<Segment>>()
            + self.directory.capacity() * size_of::<u32>()
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
            assert!(shard.replace(*hash, *old, new) && !shard.replace(*hash, *old, new));
            *old = new;
        }
        for (hash, old) in &expected {
            let mut shard = index.shard(*hash);
            assert!(shard.remove(*hash, *old) && !shard.remove(*hash, *old));
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
        assert_eq!(shard.find(7).count(), SLOTS);
    }
}
