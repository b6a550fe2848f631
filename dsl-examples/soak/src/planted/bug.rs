//! A planted bug of a structure, and the check that must detect it.

use crate::Check;

/// A structure that is soaked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Structure {
    /// An ordered set whose updates lock two nodes.
    LazyList,
    /// A lazy list that uses a round trip for each step.
    LazyListNaive,
    /// An ordered set without locks.
    HarrisList,
    /// A set of many lazy lists.
    HashSet,
    /// A stack without locks.
    TreiberStack,
    /// A queue without locks.
    MsQueue,
    /// A bounded queue without locks.
    Ring,
    /// The same queue, half of whose clients access words one by one, as where they map the memory.
    MappedRing,
    /// A map without locks.
    HashMap,
    /// The same map with small tables, which are split early.
    SmallHashMap,
    /// The same, of byte strings of several lengths.
    HashMapOfBytes,
    /// A map of words inline in buckets, which are changed under locks.
    InlineHashMap,
    /// The same map with small buckets and tables, which are replaced early, and few locks, which tables share.
    SmallInlineHashMap,
    /// An ordered map without locks.
    SkipList,
    /// The same map with taller towers, so that more of them are linked in several levels.
    TallSkipList,
    /// An ordered map without locks, whose nodes are changed by one CAS.
    OrderedMap,
    /// The same map with small nodes, which are replaced early.
    SmallOrderedMap,
    /// The same, of byte strings of several lengths.
    OrderedMapOfBytes,
    /// A priority queue without locks.
    PriorityQueue,
    /// A tree of lists of words, which are changed under locks.
    InterlockedHashTable,
    /// The same table with small lists, which become pointer lists early.
    SmallInterlockedHashTable,
    /// A value of several words: tests `Versioned`, which no example uses.
    Register,
    /// The key-value engine `farfield-kv`.
    KeyValueStore,
    /// The same with small pages, which are full early.
    SmallKeyValueStore,
}

/// A planted bug of a structure, and the check that must detect it.
#[derive(Clone, Copy, Debug)]
pub struct Planted {
    /// Its name: the structure and the mistake.
    pub name: &'static str,
    /// The structure with the bug.
    pub structure: Structure,
    /// Edits of the structure's source, in order: a passage, and its replacement. The passage must occur exactly once, indentation aside.
    pub edits: &'static [(&'static str, &'static str)],
    /// The invariant that it breaks. No other bug of the structure breaks the same.
    pub invariant: &'static str,
    /// The harm that follows.
    pub why: &'static str,
    /// The check that must detect it.
    pub caught_by: Check,
    /// True if it does harm only when threads die.
    pub needs_faults: bool,
}

impl Structure {
    /// All structures.
    pub const ALL: [Self; 24] = [
        Self::LazyList,
        Self::LazyListNaive,
        Self::HarrisList,
        Self::HashSet,
        Self::TreiberStack,
        Self::MsQueue,
        Self::Ring,
        Self::MappedRing,
        Self::HashMap,
        Self::SmallHashMap,
        Self::HashMapOfBytes,
        Self::InlineHashMap,
        Self::SmallInlineHashMap,
        Self::SkipList,
        Self::TallSkipList,
        Self::OrderedMap,
        Self::SmallOrderedMap,
        Self::OrderedMapOfBytes,
        Self::PriorityQueue,
        Self::InterlockedHashTable,
        Self::SmallInterlockedHashTable,
        Self::Register,
        Self::KeyValueStore,
        Self::SmallKeyValueStore,
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::LazyList => "lazy-list",
            Self::LazyListNaive => "lazy-list-naive",
            Self::HarrisList => "harris-list",
            Self::HashSet => "hash-set",
            Self::TreiberStack => "treiber-stack",
            Self::MsQueue => "ms-queue",
            Self::Ring => "ring",
            Self::MappedRing => "ring-mapped",
            Self::HashMap => "hash-map",
            Self::SmallHashMap => "hash-map-small",
            Self::HashMapOfBytes => "hash-map-of-bytes",
            Self::InlineHashMap => "inline-hash-map",
            Self::SmallInlineHashMap => "inline-hash-map-small",
            Self::SkipList => "skip-list",
            Self::TallSkipList => "skip-list-tall",
            Self::OrderedMap => "ordered-map",
            Self::SmallOrderedMap => "ordered-map-small",
            Self::OrderedMapOfBytes => "ordered-map-of-bytes",
            Self::PriorityQueue => "priority-queue",
            Self::InterlockedHashTable => "interlocked",
            Self::SmallInterlockedHashTable => "interlocked-small",
            Self::Register => "register",
            Self::KeyValueStore => "kv",
            Self::SmallKeyValueStore => "kv-small",
        }
    }

    /// The structure as users use it: itself, unless it has small tables or nodes, tall towers or other keys. Bugs of both are hunted together.
    #[must_use]
    pub fn original(self) -> Self {
        match self {
            Self::SmallHashMap | Self::HashMapOfBytes => Self::HashMap,
            Self::SmallInlineHashMap => Self::InlineHashMap,
            Self::MappedRing => Self::Ring,
            Self::TallSkipList => Self::SkipList,
            Self::SmallOrderedMap | Self::OrderedMapOfBytes => Self::OrderedMap,
            Self::SmallInterlockedHashTable => Self::InterlockedHashTable,
            Self::SmallKeyValueStore => Self::KeyValueStore,
            other => other,
        }
    }

    /// Returns whether it is a map or a store, whose runs take several times as long as others.
    pub fn is_map(self) -> bool {
        matches!(
            self.original(),
            Self::HashMap
                | Self::InlineHashMap
                | Self::SkipList
                | Self::OrderedMap
                | Self::InterlockedHashTable
                | Self::KeyValueStore
        )
    }
}
