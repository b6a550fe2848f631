//! The map in far memory.

use std::marker::PhantomData;

use farfield::prelude::*;
use farfield::{Bytes, Remote, SizeClass};
use siphasher::sip128::SipHasher13;
use std::hash::{BuildHasher as _, RandomState};

/// The slots of a bucket.
pub(super) const SLOTS: usize = 8;
/// The slots of a line of a processor's cache.
pub(super) const LINE: usize = 4;
/// The slots of a window: of two neighbouring buckets.
pub(super) const WINDOW: usize = 2 * SLOTS;

/// The identity of a slot that no key has claimed.
pub(super) const VACANT: u64 = 0;
/// The identity of such a slot in a frozen table.
pub(super) const FROZEN: u64 = 1;

/// The scale of a table that is split when it is full, rather than replaced by a larger one: 4 KiB.
pub(super) const LARGEST: u8 = 3;
/// The scale beyond which no table is made: 64 KiB. More than 4,000 keys in one differ in nothing that a split looks at.
pub(super) const LIMIT: u8 = 7;
/// The bytes of a table of scale 0.
const SMALLEST_BYTES: u64 = 512;
const BUCKET_BYTES: u64 = 128;

/// The entries of the directory that a shard holds itself: those of indices of this many bits.
pub(super) const BASE_BITS: u32 = 6;
pub(super) const BASE: usize = 1 << BASE_BITS;
/// The most bits of the indices of a directory that a handle reads as a whole at once: 16 KiB.
pub(super) const WHOLE_BITS: u32 = BASE_BITS + 5;
/// The other entries are in levels, each as large as all before it.
pub(super) const LEVELS: usize = 18;
/// The most bits of an index.
pub(super) const DEEPEST: u32 = BASE_BITS + LEVELS as u32;

// ANCHOR: entry_tag
/// The tag of the link to an entry.
#[tag(class: 8, check: 6, blind, frozen)]
pub(super) struct EntryTag;
// ANCHOR_END: entry_tag

/// The tag of the link to a table: how many bits of a hash choose it, and how large it is.
#[tag(depth: 5, scale: 4, growing)]
pub(super) struct TableTag;

/// The root of a map, from which [`HashMap::attach`](super::HashMap::attach) makes a handle.
#[remote]
pub struct HashMapRoot<K: Bytes, V: Bytes> {
    /// Of the keyed hash.
    pub(super) seed: [u64; 2],
    /// The bits of hashes that are used: all, but for tests.
    pub(super) mask: u64,
    /// Stands for the types of keys and values.
    pub(super) types: u64,
    pub(super) shards: Tail<RemotePtr<Shard<Table>>>,
    #[local]
    pub(super) stored: PhantomData<fn() -> (K, V)>,
}

/// The part of a map on one memory node: its directory.
#[remote]
pub(super) struct Shard<T: Remote> {
    pub(super) base: [TaggedLink<T, TableTag>; BASE],
    /// Level `k` has the entries of indices from `BASE << k` on, as many.
    pub(super) levels: [Link<Level<T>>; LEVELS],
}

/// Entries of the directory.
#[remote]
pub(super) struct Level<T: Remote> {
    pub(super) entries: Tail<TaggedLink<T, TableTag>>,
}

/// As many entries of a directory as a shard has itself, as one READ finds them.
#[remote]
pub(super) struct Entries<T: Remote> {
    pub(super) entries: [TaggedLink<T, TableTag>; BASE],
}

/// A table of slots.
#[remote(align = 128)]
pub(super) struct Table {
    /// The table with the other half of the keys, if a split made both.
    pub(super) sibling: TaggedLink<Table, TableTag>,
    /// So that each bucket has two lines of a processor's cache.
    pub(super) padding: [u64; 14],
    pub(super) buckets: Tail<Bucket>,
}

// ANCHOR: bucket
/// A slot: the identity of a key, and the link to its entry.
#[remote]
pub(super) struct KeySlot {
    pub(super) ident: Atomic<u64>,
    pub(super) link: TaggedLink<Blob, EntryTag>,
}

/// Eight slots, on two lines of a processor's cache.
#[remote]
pub(super) struct Bucket {
    pub(super) slots: [KeySlot; SLOTS],
}
// ANCHOR_END: bucket

/// Two neighbouring buckets, as one READ finds them.
#[remote]
pub(super) struct Window {
    pub(super) home: Bucket,
    pub(super) next: Bucket,
}

pub(super) type TableLink<'g, T = Table> = Tagged<'g, T, TableTag>;
pub(super) type TableWord<T = Table> = TaggedWord<T, TableTag>;
pub(super) type EntryLink<'g> = Tagged<'g, Blob, EntryTag>;
pub(super) type EntryWord = TaggedWord<Blob, EntryTag>;
pub(super) type EntryPlace<'g> = Place<'g, TaggedLink<Blob, EntryTag>>;
pub(super) type DirectoryPlace<T = Table> = Place<'static, TaggedLink<T, TableTag>>;

/// Returns the number of buckets of a table.
pub(super) const fn buckets(scale: u8) -> u64 {
    (SMALLEST_BYTES << scale) / BUCKET_BYTES - 1
}

/// The lowest `bits` bits.
pub(super) const fn mask(bits: u32) -> u64 {
    (1 << bits) - 1
}

/// Returns the class of an entry, which each link to one has.
pub(super) fn class(link: EntryLink<'_>) -> Result<SizeClass> {
    SizeClass::from_number(link.tag().class())
        .ok_or_else(|| farfield::Error::other(format!("the link {link:?} has no size class")))
}

/// Returns the seed of a new map's hashes.
pub(crate) fn seed(ct: &ComputeThread) -> [u64; 2] {
    // A run of the simulator is repeatable. Elsewhere nobody can guess the seed, which comes from the operating system.
    if ct.cluster().simulation().is_some() {
        [ct.random(), ct.random()]
    } else {
        [RandomState::new().hash_one(0), RandomState::new().hash_one(1)]
    }
}

/// The hash of a key: what its slot knows of it.
///
/// Keys with the same identity have one slot. Other keys than the slot's are mostly known by `check`, and always by the entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hash {
    /// The identity of its slot. Also chooses the shard, the table and the bucket.
    pub(super) ident: u64,
    /// More bits, for the link.
    pub(super) check: u8,
}

impl Hash {
    // ANCHOR: hash
    /// Hashes a key by SipHash-1-3, of 128 bits.
    #[inline]
    pub(super) fn of(seed: [u64; 2], mask: u64, key: &[u8]) -> Self {
        let hash = SipHasher13::new_with_keys(seed[0], seed[1]).hash(key);
        Self { ident: (hash.h1 & mask).max(FROZEN + 1), check: (hash.h2 & 63) as u8 }
    }
    // ANCHOR_END: hash

    /// Returns the number of its shard.
    #[inline]
    pub(super) fn shard(self, shards: usize) -> usize {
        (((self.ident >> 48) * shards as u64) >> 16) as usize
    }
}

/// Returns the bucket at which a key's window begins.
#[inline]
pub(super) fn home(ident: u64, scale: u8) -> u64 {
    (((ident >> DEEPEST) & mask(32)) * (buckets(scale) - 1)) >> 32
}

/// A line of slots, as a READ of them alone finds them.
#[remote]
pub(super) struct Line {
    pub(super) slots: [KeySlot; LINE],
}

/// The link of a slot, as a READ of it alone finds it.
#[remote]
pub(super) struct SlotWord {
    pub(super) link: TaggedLink<Blob, EntryTag>,
}
