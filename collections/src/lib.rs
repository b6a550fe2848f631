//! Data structures over far memory, for programs that depend on them.
//!
//! They stand on the public interface of [`farfield`] alone. Each is right when any of its futures is dropped at any `await`, and when its clients die.

mod array;
mod entry;
mod hash_map;
mod interlocked;
mod key;
mod ordered_map;
mod priority_queue;
mod ring;
mod skip_list;

pub use array::{Array, ArrayRoot};
pub use hash_map::inline::{InlineHashMap, InlineHashMapRoot, InlineIter};
pub use hash_map::{Counters, HashMap, HashMapRoot, Iter};
pub use interlocked::{InterlockedHashTable, InterlockedHashTableRoot, InterlockedIter};
pub use key::Key;
pub use ordered_map::{OrderedMap, OrderedMapRoot, Scan, Value};
pub use priority_queue::{PriorityQueue, PriorityQueueRoot};
pub use ring::{Ring, RingRoot};
pub use skip_list::{SkipList, SkipListRoot, SkipScan};
