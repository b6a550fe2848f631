//! The structures that the processes of the crash test and the corruption test share: two sets, two maps, a stack, a queue, and records.
//!
//! Each process has its own handles, [`Structures`]. An operation consists of a target, a verb and a key, and returns at most 62 bits, so
//! all operations have one log format.

use farfield::prelude::*;
use farfield::{ComputeThread, Error};
use farfield_collections::{HashMap, InterlockedHashTable, OrderedMap, SkipList};
use farfield_examples::{HarrisList, LazyList, MsQueue, TreiberStack};

/// Number of keys in each set, and in each map.
pub const KEYS: u64 = 256;
/// Number of delegated counters that are requested. There are more processes, so some counters have no requests any more while their threads live.
pub const TALLIES: usize = 3;
/// Number of records.
pub const RECORDS: usize = 3;
/// Words of a record.
const RECORD_WORDS: usize = 16;

/// Words that processes share besides the structures.
#[remote]
pub struct Control {
    /// Number of the next event, over all processes. It orders the events of the history.
    pub events: Atomic<u64>,
    /// Not 0 when the processes must stop.
    pub stop: Atomic<u64>,
    /// The records, each written as a whole.
    pub records: [Versioned<[u64; RECORD_WORDS]>; RECORDS],
}

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
    /// The delegated counters of the crash test, which performs their operations itself.
    Tallies,
}

impl Target {
    /// All targets, by number.
    pub const ALL: [Self; 10] = [
        Self::Lazy,
        Self::Harris,
        Self::Stack,
        Self::Queue,
        Self::Records,
        Self::Map,
        Self::Interlocked,
        Self::Ordered,
        Self::Skip,
        Self::Tallies,
    ];
    /// The structures.
    pub const STRUCTURES: [Self; 9] = [
        Self::Lazy,
        Self::Harris,
        Self::Stack,
        Self::Queue,
        Self::Records,
        Self::Map,
        Self::Interlocked,
        Self::Ordered,
        Self::Skip,
    ];
    /// The maps.
    pub const MAPS: [Self; 4] = [Self::Map, Self::Interlocked, Self::Ordered, Self::Skip];
    /// The sets.
    pub const SETS: [Self; 2] = [Self::Lazy, Self::Harris];

    /// Number of keys.
    pub fn keys(self) -> u64 {
        match self {
            Self::Lazy | Self::Harris | Self::Map | Self::Interlocked | Self::Ordered | Self::Skip => KEYS,
            Self::Stack | Self::Queue => 1,
            Self::Records => RECORDS as u64,
            Self::Tallies => TALLIES as u64,
        }
    }
}

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Looks up a key: 1 if present, else 0. Reads a record: its value, [`HALF`] or [`TORN`]. In a map: the key's value, or 0.
    Get,
    /// Inserts a key: 1 if it was absent, else 0. Pushes or enqueues a value, or writes a record: 1.
    Insert,
    /// Removes a key: 1 if it was present, else 0. Pops or dequeues a value, or removes a key of a map: the value, or 0 if there is none.
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
}

impl Structures {
    /// Handles to all structures; creates them if they do not exist.
    ///
    /// # Errors
    /// Those of the cluster.
    pub async fn attach(ct: &ComputeThread) -> Result<Self> {
        let control =
            async || Control::new_in(ct, Control::init([record_of(0); RECORDS])).await?.write(ct).await;
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
        })
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
            (Target::Stack | Target::Queue, Operation::Get)
            | (Target::Tallies, _)
            | (Target::Records, Operation::Remove)
            | (_, Operation::Upsert) => Err(Error::other(format!("{target:?} has no {operation:?}"))),
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
            assert!(Target::ALL.into_iter().enumerate().all(|(number, target)| target as usize == number));
            for target in Target::STRUCTURES {
                let out = if target == Target::Records { Operation::Get } else { Operation::Remove };
                assert_eq!(all.perform(target, out, 0, 0, ct).await?, 0, "{target:?}");
                assert_eq!(all.perform(target, Operation::Insert, 0, 77, ct).await?, 1, "{target:?}");
                let expected = if Target::SETS.contains(&target) { 1 } else { 77 };
                assert_eq!(all.perform(target, out, 0, 0, ct).await?, expected, "{target:?}");
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
