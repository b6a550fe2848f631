//! The structures that the processes of the crash test and the corruption test share: two sets, five maps, a stack, three queues, two arrays, and records.
//!
//! Each process has its own handles, [`Structures`]. An operation consists of a target, a verb and a key, and returns at most 62 bits, so
//! all operations have one log format.

use farfield::prelude::*;
use farfield::{ComputeThread, Error};
use farfield_collections::{
    Array, HashMap, InlineHashMap, InterlockedHashTable, OrderedMap, PriorityQueue, Ring, SkipList,
};
use farfield_examples::{HarrisList, LazyList, MsQueue, TreiberStack};

/// Number of keys in each set, and in each map.
pub const KEYS: u64 = 256;
/// Number of delegated counters that are requested. There are more processes, so some counters have no requests any more while their threads live.
pub const TALLIES: usize = 3;
/// Number of records.
pub const RECORDS: usize = 3;
/// Elements of the array that count.
const COUNTS: u64 = 4;
/// What an element of it counts by. No count of it is like the address of a block, which it would prevent from being swept.
const COUNT: u64 = (1 << 40) + 1;
/// Ranges of the other array, and the elements of each.
const RANGES: u64 = 4;
/// The elements of a range of the array.
pub const RANGE: u64 = 8;
/// The priorities of the priority queue.
const PRIORITIES: u64 = 4;
/// The capacity of the ring.
const CAPACITY: u64 = 1024;
/// Words of a record.
const RECORD_WORDS: usize = 16;

/// Words that processes share besides the structures.
#[remote]
pub struct Control {
    /// Number of the next event, over all processes, and [`FIRST_EVENT`]. It orders the events of the history.
    events: Atomic<u64>,
    /// Not 0 when the processes must stop.
    pub stop: Atomic<u64>,
    /// The records, each written as a whole.
    pub records: [Versioned<[u64; RECORD_WORDS]>; RECORDS],
}

/// No number of an event is like the address of a block, which it would prevent from being swept, with all that the block links to.
const FIRST_EVENT: u64 = 1 << 60;

/// The target of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Target {
    /// The lazy list.
    Lazy,
    /// The Harris list.
    Harris,
    /// The stack.
    Stack,
    /// The queue.
    Queue,
    /// The records.
    Records,
    /// The map.
    Map,
    /// The Interlocked Hash Table.
    Interlocked,
    /// The ordered map, whose values are byte strings.
    Ordered,
    /// The skip list.
    Skip,
    /// The map whose buckets have locks.
    Inline,
    /// The array whose elements count.
    Counts,
    /// The array of which ranges are written.
    Ranges,
    /// The bounded queue.
    Ring,
    /// The priority queue. A key is a priority.
    Priority,
    /// The delegated counters of the crash test, which performs their operations itself.
    Tallies,
}

impl Target {
    /// All targets, by number.
    pub const ALL: &[Self] = &[
        Self::Lazy,
        Self::Harris,
        Self::Stack,
        Self::Queue,
        Self::Records,
        Self::Map,
        Self::Interlocked,
        Self::Ordered,
        Self::Skip,
        Self::Inline,
        Self::Counts,
        Self::Ranges,
        Self::Ring,
        Self::Priority,
        Self::Tallies,
    ];
    /// The structures: all but the delegated counters.
    pub const STRUCTURES: &[Self] = match Self::ALL.split_last() {
        Some((_, structures)) => structures,
        None => &[],
    };

    /// Number of keys.
    pub fn keys(self) -> u64 {
        match self {
            Self::Lazy
            | Self::Harris
            | Self::Map
            | Self::Interlocked
            | Self::Ordered
            | Self::Skip
            | Self::Inline => KEYS,
            Self::Stack | Self::Queue | Self::Ring => 1,
            Self::Priority => PRIORITIES,
            Self::Records => RECORDS as u64,
            Self::Counts => COUNTS,
            Self::Ranges => RANGES * RANGE,
            Self::Tallies => TALLIES as u64,
        }
    }

    /// The operations that processes perform at random.
    pub fn operations(self) -> &'static [Operation] {
        use Operation::{Get, Insert, Remove, Upsert};
        match self {
            Self::Lazy | Self::Harris => &[Insert, Insert, Remove, Remove, Get],
            Self::Map | Self::Interlocked | Self::Ordered | Self::Skip | Self::Inline => {
                &[Insert, Insert, Insert, Insert, Get, Upsert, Remove, Remove]
            }
            Self::Stack | Self::Queue | Self::Ring | Self::Priority => &[Insert, Remove],
            Self::Records | Self::Ranges => &[Insert, Get],
            Self::Counts | Self::Tallies => &[Insert],
        }
    }

    /// Returns whether values are removed in an order.
    pub fn is_queue(self) -> bool {
        matches!(self, Self::Stack | Self::Queue | Self::Ring | Self::Priority)
    }
}

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Looks up a key: 1 if present, else 0. Reads a record: its value, [`HALF`] or [`TORN`]. In a map: the key's value, or 0. Reads a range: the value of its element.
    Get,
    /// Inserts a key: 1 if it was absent, else 0. Pushes a value: 1, or 0 if there is no room. Writes a record, or a range: 1. Counts: the count.
    Insert,
    /// Removes a key: 1 if it was present, else 0. Pops a value, or removes a key of a map: the value, or 0 if there is none.
    Remove,
    /// Sets the value of a key of a map, present or absent: 1.
    Upsert,
}

/// The largest result.
const LARGEST: u64 = (1 << 62) - 1;
/// A record is half-written: its writer died.
pub const HALF: u64 = LARGEST - 1;
/// A READ returned a record that no process has written.
pub const TORN: u64 = LARGEST;

/// The words of a record, computed from its value. All are 0 for value 0.
fn record_of(value: u64) -> [u64; RECORD_WORDS] {
    std::array::from_fn(|word| value.wrapping_mul(2 * word as u64 + 1))
}

/// Names of the roots.
pub(crate) const CONTROL: &str = "control";
pub(crate) const LAZY_LIST: &str = "lazy list";
pub(crate) const HARRIS_LIST: &str = "Harris list";
pub(crate) const STACK: &str = "stack";
pub(crate) const QUEUE: &str = "queue";
pub(crate) const MAP: &str = "map";
pub(crate) const INTERLOCKED: &str = "interlocked";
pub(crate) const ORDERED: &str = "ordered";
pub(crate) const SKIP: &str = "skip";
pub(crate) const INLINE: &str = "inline";
pub(crate) const COUNTERS: &str = "counts";
pub(crate) const RANGE_ARRAY: &str = "ranges";
pub(crate) const RING: &str = "ring";
pub(crate) const PRIORITY: &str = "priority";
/// The bits of hashes that the Interlocked Hash Table uses: of so few slots that element lists become pointer lists.
const INTERLOCKED_MASK: u64 = 15;

/// A process's handles.
pub struct Structures {
    /// The other shared words.
    pub control: RemotePtr<Control>,
    /// A set with locks.
    pub lazy: LazyList<u64>,
    /// A set without locks.
    pub harris: HarrisList<u64>,
    /// A stack.
    pub stack: TreiberStack<u64>,
    /// A queue.
    pub queue: MsQueue<u64>,
    /// A map without locks.
    pub map: HashMap<u64, u64>,
    /// A map with locks.
    pub interlocked: InterlockedHashTable<u64, u64>,
    /// An ordered map without locks.
    pub ordered: OrderedMap<u64, Vec<u8>>,
    /// Another one.
    pub skip: SkipList<u64, u64>,
    /// Another map with locks.
    pub inline: InlineHashMap<u64, u64>,
    /// An array whose elements count.
    pub counts: Array<u64>,
    /// An array of which ranges are written.
    pub ranges: Array<u64>,
    /// A bounded queue.
    pub ring: Ring<u64>,
    /// A priority queue.
    pub priority: PriorityQueue<u64, u64>,
}

impl Structures {
    /// Handles to all structures; creates them if they do not exist.
    ///
    /// # Errors
    /// Those of the cluster.
    pub async fn attach(ct: &ComputeThread) -> Result<Self> {
        let control = async || {
            let init = Control::init([record_of(0); RECORDS]).events(FIRST_EVENT);
            Control::new_in(ct, init).await?.write(ct).await
        };
        let control = ct.root_or_init(CONTROL, control).await?;
        let lazy = ct.root_or_init(LAZY_LIST, async || LazyList::<u64>::create(ct).await).await?;
        let harris = ct.root_or_init(HARRIS_LIST, async || HarrisList::<u64>::create(ct).await).await?;
        let stack = ct.root_or_init(STACK, async || TreiberStack::<u64>::create(ct).await).await?;
        let queue = ct.root_or_init(QUEUE, async || MsQueue::<u64>::create(ct).await).await?;
        let map = ct.root_or_init(MAP, async || HashMap::<u64, u64>::create(ct).await).await?;
        let interlocked =
            async || InterlockedHashTable::<u64, u64>::create_masked(INTERLOCKED_MASK, ct).await;
        let interlocked = ct.root_or_init(INTERLOCKED, interlocked).await?;
        let ordered = async || OrderedMap::<u64, Vec<u8>>::create(ct).await;
        let ordered = ct.root_or_init(ORDERED, ordered).await?;
        let skip = ct.root_or_init(SKIP, async || SkipList::<u64, u64>::create(ct).await).await?;
        let inline = ct.root_or_init(INLINE, async || InlineHashMap::<u64, u64>::create(ct).await).await?;
        let counts = ct.root_or_init(COUNTERS, async || Array::<u64>::create(COUNTS, ct).await).await?;
        let ranges = async || Array::<u64>::create_in_blocks(RANGES * RANGE, RANGE - 1, ct).await;
        let ranges = ct.root_or_init(RANGE_ARRAY, ranges).await?;
        let ring = ct.root_or_init(RING, async || Ring::<u64>::create(CAPACITY, ct).await).await?;
        let priority = async || PriorityQueue::<u64, u64>::create(ct).await;
        let priority = ct.root_or_init(PRIORITY, priority).await?;
        Ok(Self {
            control,
            lazy: LazyList::attach(lazy, ct).await?,
            harris: HarrisList::attach(harris, ct).await?,
            stack: TreiberStack::attach(stack, ct).await?,
            queue: MsQueue::attach(queue, ct).await?,
            map: HashMap::attach(map, ct).await?,
            interlocked: InterlockedHashTable::attach(interlocked, ct).await?,
            ordered: OrderedMap::attach(ordered, ct).await?,
            skip: SkipList::attach(skip, ct).await?,
            inline: InlineHashMap::attach(inline, ct).await?,
            counts: Array::attach(counts, ct).await?,
            ranges: Array::attach(ranges, ct).await?,
            ring: Ring::attach(ring, ct).await?,
            priority: PriorityQueue::attach(priority, ct).await?,
        })
    }

    /// Returns the number of a new event.
    ///
    /// # Errors
    /// Those of an atomic operation.
    pub async fn event(&self, ct: &ComputeThread) -> Result<u64> {
        Ok(self.control.events().fetch_add(ct, 1).await?.wrapping_sub(FIRST_EVENT))
    }

    /// Performs an operation. `value`, from 1 to below [`HALF`], is inserted if the structure holds values.
    ///
    /// # Errors
    /// Those of the structures; [`Error::InvalidArgument`] for an operation that a structure does not have.
    pub async fn perform(
        &self,
        target: Target,
        operation: Operation,
        key: u64,
        value: u64,
        ct: &ComputeThread,
    ) -> Result<u64> {
        match (target, operation) {
            (Target::Lazy, Operation::Get) => self.lazy.get(key, ct).await.map(u64::from),
            (Target::Lazy, Operation::Insert) => self.lazy.insert(key, ct).await.map(u64::from),
            (Target::Lazy, Operation::Remove) => self.lazy.remove(key, ct).await.map(u64::from),
            (Target::Harris, Operation::Get) => self.harris.get(key, ct).await.map(u64::from),
            (Target::Harris, Operation::Insert) => self.harris.insert(key, ct).await.map(u64::from),
            (Target::Harris, Operation::Remove) => self.harris.remove(key, ct).await.map(u64::from),
            (Target::Stack, Operation::Insert) => self.stack.push(value, ct).await.map(|()| 1),
            (Target::Stack, Operation::Remove) => Ok(self.stack.pop(ct).await?.unwrap_or(0)),
            (Target::Queue, Operation::Insert) => self.queue.enqueue(value, ct).await.map(|()| 1),
            (Target::Queue, Operation::Remove) => Ok(self.queue.dequeue(ct).await?.unwrap_or(0)),
            (Target::Records, Operation::Insert) => self
                .control
                .records()
                .at(key as usize % RECORDS)
                .write(ct, record_of(value))
                .await
                .map(|()| 1),
            (Target::Records, Operation::Get) => {
                match self.control.records().at(key as usize % RECORDS).read(ct).await {
                    Ok(record) if record == record_of(record[0]) => Ok(record[0].min(TORN)),
                    Ok(_) => Ok(TORN),
                    Err(Error::HalfWritten(_)) => Ok(HALF),
                    Err(error) => Err(error),
                }
            }
            (Target::Map, Operation::Get) => Ok(self.map.get(&key, ct).await?.unwrap_or(0)),
            (Target::Map, Operation::Insert) => self.map.insert(&key, &value, ct).await.map(u64::from),
            (Target::Map, Operation::Remove) => Ok(self.map.take(&key, ct).await?.unwrap_or(0)),
            (Target::Map, Operation::Upsert) => self.map.upsert(&key, &value, ct).await.map(|()| 1),
            (Target::Interlocked, Operation::Get) => Ok(self.interlocked.get(&key, ct).await?.unwrap_or(0)),
            (Target::Interlocked, Operation::Insert) => {
                self.interlocked.insert(&key, &value, ct).await.map(u64::from)
            }
            (Target::Interlocked, Operation::Remove) => {
                Ok(self.interlocked.take(&key, ct).await?.unwrap_or(0))
            }
            (Target::Interlocked, Operation::Upsert) => {
                self.interlocked.upsert(&key, &value, ct).await.map(|()| 1)
            }
            (Target::Ordered, Operation::Get) => Ok(self.ordered.get(&key, ct).await?.map_or(0, number)),
            (Target::Ordered, Operation::Insert) => {
                self.ordered.insert(&key, &value.to_le_bytes(), ct).await.map(u64::from)
            }
            (Target::Ordered, Operation::Remove) => Ok(self.ordered.take(&key, ct).await?.map_or(0, number)),
            (Target::Ordered, Operation::Upsert) => {
                self.ordered.upsert(&key, &value.to_le_bytes(), ct).await.map(|()| 1)
            }
            (Target::Skip, Operation::Get) => Ok(self.skip.get(&key, ct).await?.unwrap_or(0)),
            (Target::Skip, Operation::Insert) => self.skip.insert(&key, &value, ct).await.map(u64::from),
            (Target::Skip, Operation::Remove) => Ok(self.skip.take(&key, ct).await?.unwrap_or(0)),
            (Target::Skip, Operation::Upsert) => self.skip.upsert(&key, &value, ct).await.map(|()| 1),
            (Target::Inline, Operation::Get) => Ok(self.inline.get(&key, ct).await?.unwrap_or(0)),
            (Target::Inline, Operation::Insert) => self.inline.insert(&key, &value, ct).await.map(u64::from),
            (Target::Inline, Operation::Remove) => Ok(self.inline.take(&key, ct).await?.unwrap_or(0)),
            (Target::Inline, Operation::Upsert) => self.inline.upsert(&key, &value, ct).await.map(|()| 1),
            (Target::Counts, Operation::Insert) => {
                // What it does not count by is no count of its.
                let before = self.counts.fetch_add(key % COUNTS, COUNT, ct).await?;
                Ok(if before % COUNT == 0 { before / COUNT + 1 } else { TORN })
            }
            (Target::Ranges, Operation::Insert) => {
                let first = key % (RANGES * RANGE) / RANGE * RANGE;
                self.ranges.write(first, &[value; RANGE as usize], ct).await.map(|()| 1)
            }
            (Target::Ranges, Operation::Get) => {
                let (first, element) = (key % (RANGES * RANGE) / RANGE * RANGE, (key % RANGE) as usize);
                Ok(self.ranges.read(first..first + RANGE, ct).await?[element].min(TORN))
            }
            (Target::Ring, Operation::Insert) => self.ring.try_push(&value, ct).await.map(u64::from),
            (Target::Ring, Operation::Remove) => Ok(self.ring.try_pop(ct).await?.unwrap_or(0)),
            (Target::Priority, Operation::Insert) => {
                self.priority.push(key % PRIORITIES, value, ct).await.map(|()| 1)
            }
            (Target::Priority, Operation::Remove) => {
                Ok(self.priority.pop_min(ct).await?.map_or(0, |(_, value)| value))
            }
            _ => Err(Error::other(format!("{target:?} has no {operation:?}"))),
        }
    }
}

/// Returns the number that a value of the ordered map stands for; what no client has written if it has not 8 bytes.
fn number(value: Vec<u8>) -> u64 {
    value.try_into().map_or(u64::MAX, u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inserted_values_are_returned() -> Result<()> {
        farfield::Cluster::connect("local:")?.run(1, async |ct| {
            let all = Structures::attach(ct).await?;
            assert!(Target::ALL.iter().enumerate().all(|(number, target)| *target as usize == number));
            for &target in Target::STRUCTURES {
                let out = if target.operations().contains(&Operation::Remove) {
                    Operation::Remove
                } else {
                    Operation::Get
                };
                let counts = target == Target::Counts;
                assert_eq!(all.perform(target, Operation::Insert, 0, 77, ct).await?, 1, "{target:?}");
                if counts {
                    assert_eq!(all.perform(target, Operation::Insert, 0, 77, ct).await?, 2, "{target:?}");
                    continue;
                }
                let expected = if matches!(target, Target::Lazy | Target::Harris) { 1 } else { 77 };
                assert_eq!(all.perform(target, out, 0, 0, ct).await?, expected, "{target:?}");
                let after = if out == Operation::Get { 77 } else { 0 };
                assert_eq!(all.perform(target, out, 0, 0, ct).await?, after, "{target:?}");
            }
            let mut torn = record_of(5);
            torn[9] = 1;
            all.control.records().at(2).write(ct, torn).await?;
            assert_eq!(all.perform(Target::Records, Operation::Get, 2, 0, ct).await?, TORN);
            assert!(all.perform(Target::Stack, Operation::Get, 0, 0, ct).await.is_err());
            Ok(())
        })?;
        Ok(())
    }
}
