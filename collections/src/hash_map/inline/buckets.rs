//! The map in far memory: tables of buckets with values, and the locks of each shard.

use std::marker::PhantomData;

use farfield::prelude::*;

use super::super::directory::Split;
use super::super::layout::{DEEPEST, Shard, TableTag, mask};

/// The slots of a bucket.
pub(super) const SLOTS: usize = 15;
/// The bits of a state that say which slots have keys.
const PRESENT: u64 = (1 << SLOTS) - 1;
/// The version that a change of the keys adds.
const VERSION: u64 = 1 << 16;

/// In place of a checksum: values are being changed, or the table is being replaced. No bucket has it as its checksum.
pub(super) const UNSETTLED: u64 = 0;

/// The locks of a shard.
pub(super) const LOCKS: usize = 1024;
/// The numbers of the locks of neighbouring buckets differ by this, so a table of up to 16 buckets has a lock for each.
const LOCK_STRIDE: u64 = 64;

/// The root of a map, from which [`InlineHashMap::attach`](super::InlineHashMap::attach) makes a handle.
#[remote]
pub struct InlineHashMapRoot<K: Word, V: Word> {
    /// Of the keyed hash.
    pub(super) seed: [u64; 2],
    /// The bits of hashes that are used: all, but for tests.
    pub(super) mask: u64,
    /// Stands for the types of keys and values.
    pub(super) types: u64,
    pub(super) shards: Tail<RemotePtr<InlineShard>>,
    #[local]
    pub(super) stored: PhantomData<fn() -> (K, V)>,
}

/// The part of a map on one memory node.
#[remote]
pub(super) struct InlineShard {
    pub(super) directory: Shard<InlineTable>,
    pub(super) locks: Locks,
}

/// The locks of a shard's tables: see [`lock_of`].
#[remote]
pub(super) struct Locks {
    pub(super) of: [Lock; LOCKS],
}

/// A table of buckets.
#[remote(align = 128)]
pub(super) struct InlineTable {
    /// The table with the other half of the keys, if a split made both.
    pub(super) sibling: TaggedLink<InlineTable, TableTag>,
    /// So that buckets begin at lines of a processor's cache.
    pub(super) padding: [u64; 14],
    pub(super) buckets: Tail<InlineBucket>,
}

impl Split for InlineTable {
    fn sibling(table: Shared<'_, Self>) -> Place<'_, TaggedLink<Self, TableTag>> {
        table.sibling()
    }
}

/// Which slots of a bucket have keys, and a version that each change of that increases.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Word)]
pub(super) struct State(u64);

/// Keys and their values: 256 bytes.
#[remote]
pub(super) struct InlineBucket {
    pub(super) state: Atomic<State>,
    /// The [`checksum`] of the other words, or [`UNSETTLED`].
    pub(super) check: Atomic<u64>,
    pub(super) keys: [Atomic<u64>; SLOTS],
    pub(super) values: [Atomic<u64>; SLOTS],
}

/// The state of a bucket, as a READ of it alone finds it.
#[remote]
pub(super) struct StateWord {
    pub(super) state: Atomic<State>,
}

pub(super) type BucketPlace = Place<'static, InlineBucket>;

impl State {
    /// Returns the slots with keys.
    pub(super) fn present(self) -> impl Iterator<Item = usize> {
        (0..SLOTS).filter(move |slot| self.0 >> slot & 1 == 1)
    }

    /// Returns the number of keys.
    pub(super) fn keys(self) -> usize {
        (self.0 & PRESENT).count_ones() as usize
    }

    /// Returns a slot without a key.
    pub(super) fn vacant(self) -> Option<usize> {
        let slot = (self.0 & PRESENT).trailing_ones() as usize;
        (slot < SLOTS).then_some(slot)
    }

    /// Returns the state after a key was inserted into a slot, or removed from it.
    pub(super) fn toggled(self, slot: usize) -> Self {
        Self((self.0 ^ 1 << slot).wrapping_add(VERSION))
    }

    /// Returns whether bits without a meaning are set.
    pub(super) fn is_corrupt(self) -> bool {
        self.0 & (VERSION - 1) & !PRESENT != 0
    }
}

// ANCHOR: checksum
/// Returns the checksum of a bucket, keyed by the map's seed: the sum of products of two words each, whose halves are folded. Each pair of words is
/// mixed with other words of the key first, so the place of a word matters.
#[inline]
pub(super) fn checksum(seed: [u64; 2], state: State, keys: &[u64; SLOTS], values: &[u64; SLOTS]) -> u64 {
    /// 2^64 over the golden ratio, and over the root of 3: their multiples differ in all bits.
    const STEPS: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0x93cd_3a2c_8198_e269];
    let folded = |one: u64, other: u64| {
        let product = u128::from(one) * u128::from(other);
        product as u64 ^ (product >> 64) as u64
    };
    let (mut left, mut right) = (seed[0], seed[1]);
    let mut sum = folded(state.0 ^ left, right | 1);
    for (key, value) in keys.iter().zip(values) {
        (left, right) = (left.wrapping_add(STEPS[0]), right.wrapping_add(STEPS[1]));
        sum = sum.wrapping_add(folded(key ^ left, value ^ right));
    }
    sum.max(UNSETTLED + 1)
}
// ANCHOR_END: checksum

impl InlineBucketSnapshot {
    /// Returns the checksum that the bucket should have.
    #[inline]
    pub(super) fn checksum(&self, seed: [u64; 2]) -> u64 {
        checksum(seed, self.state, &self.keys, &self.values)
    }

    /// Returns the slot of a key, if the bucket has a state.
    #[inline]
    pub(super) fn find(&self, state: State, key: u64) -> Option<usize> {
        state.present().find(|slot| self.keys[*slot] == key)
    }

    /// Returns the keys and their values.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (u64, u64)> {
        self.state.present().map(|slot| (self.keys[slot], self.values[slot]))
    }
}

/// Returns the initial values of a bucket with these keys and values, at most [`SLOTS`].
pub(super) fn bucket_of(pairs: &[(u64, u64)], seed: [u64; 2]) -> InlineBucketInit {
    let pair = |slot: usize| pairs.get(slot).copied().unwrap_or_default();
    let state = State((1 << pairs.len()) - 1);
    let (keys, values) = (std::array::from_fn(|slot| pair(slot).0), std::array::from_fn(|slot| pair(slot).1));
    let check = checksum(seed, state, &keys, &values);
    InlineBucket::init().state(state).check(check).keys(keys).values(values)
}

/// Returns the number of buckets of a table: 1, 3, 7, 15 for 384 bytes to 3,968.
pub(super) const fn buckets(scale: u8) -> u64 {
    (2 << scale) - 1
}

/// Returns the bucket of a key.
#[inline]
pub(super) fn home(ident: u64, scale: u8) -> u64 {
    (((ident >> DEEPEST) & mask(32)) * buckets(scale)) >> 32
}

/// Returns the lock of a bucket, in a table with this index.
#[inline]
pub(super) fn lock_of(index: u64, bucket: u64) -> usize {
    (index + LOCK_STRIDE * bucket) as usize % LOCKS
}

/// Returns the locks of all buckets of a table, in ascending order: at most 16.
pub(super) fn locks_of(index: u64, scale: u8) -> Vec<usize> {
    let mut locks: Vec<_> = (0..buckets(scale)).map(|bucket| lock_of(index, bucket)).collect();
    locks.sort_unstable();
    locks.dedup();
    locks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_has_256_bytes_and_a_table_a_lock_for_each_up_to_16() {
        use farfield::Remote;
        assert_eq!(<InlineBucket as Remote>::SIZE, 256);
        for (scale, locks) in [(0, 1), (1, 3), (2, 7), (3, 15), (4, 16), (7, 16)] {
            assert_eq!(locks_of(777, scale).len(), locks);
        }
    }

    #[test]
    fn each_word_of_a_bucket_and_its_place_change_the_checksum() {
        let key = [0x0123_4567_89ab_cdef, 0xfeed_5eed_0ff5_e7b1];
        let (keys, values) = ([0; SLOTS], [0; SLOTS]);
        let with = |state, keys, values| checksum(key, State(state), &keys, &values);
        let mut found = vec![with(0, keys, values), with(1, keys, values), with(VERSION, keys, values)];
        found.push(checksum([key[0], 6], State(0), &keys, &values));
        for slot in 0..SLOTS {
            for word in [1, 1 << 63, u64::MAX] {
                let mut changed = [0; SLOTS];
                changed[slot] = word;
                found.extend([with(0, changed, values), with(0, keys, changed), with(0, changed, changed)]);
            }
        }
        let count = found.len();
        found.sort_unstable();
        found.dedup();
        assert_eq!((found.len(), found.contains(&UNSETTLED)), (count, false));
    }

    #[test]
    fn keys_that_are_inserted_and_removed_change_the_version() {
        let mut state = State(0);
        for slot in 0..SLOTS {
            assert_eq!(state.vacant(), Some(slot));
            state = state.toggled(slot);
        }
        assert_eq!((state.vacant(), state.present().count(), state.keys()), (None, SLOTS, SLOTS));
        let without = state.toggled(3);
        assert_eq!(without.vacant(), Some(3));
        let again = without.toggled(3);
        assert_eq!(again.0 & PRESENT, state.0 & PRESENT);
        assert!(again != state && !again.is_corrupt());
    }
}
