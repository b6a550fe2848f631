//! What the processes of the crash test and of the corruption test work on: two sets, a stack, a queue, and records.
//!
//! Each process has handles of its own, [`Structures`]. An operation is named by a structure, a verb and a key, and has an answer of 62 bits: so
//! logs and judges need to know one form only.

use farfield::prelude::*;
use farfield::{ComputeThread, Error};
use farfield_examples::{HarrisList, LazyList, MsQueue, TreiberStack};

/// How many keys there are in each set.
pub const KEYS: u64 = 256;
/// How many records there are.
pub const RECORDS: usize = 3;
/// Words of a record.
const RECORD_WORDS: usize = 16;

/// What processes share besides the structures.
#[remote]
pub struct Stage {
    /// The number of the next event. It grows with time, whichever process asks: so it is the clock of the history.
    pub events: Atomic<u64>,
    /// Not 0 once the processes are to end.
    pub stop: Atomic<u64>,
    /// Values that are replaced whole.
    pub records: [Versioned<[u64; RECORD_WORDS]>; RECORDS],
}

/// What an operation is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Which {
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
}

impl Which {
    /// All, each in the place of its number.
    pub const ALL: [Self; 5] = [Self::Lazy, Self::Harris, Self::Stack, Self::Queue, Self::Records];
    /// The sets.
    pub const SETS: [Self; 2] = [Self::Lazy, Self::Harris];

    /// How many keys it has.
    pub fn keys(self) -> u64 {
        match self {
            Self::Lazy | Self::Harris => KEYS,
            Self::Stack | Self::Queue => 1,
            Self::Records => RECORDS as u64,
        }
    }
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Looks whether a key is there: 1 or 0. Reads a record: its value, [`HALF`] or [`TORN`].
    Get,
    /// Puts a key in: 1 if it was not there, else 0. Puts a value on the stack or into the queue, or writes a record: 1.
    Insert,
    /// Takes a key out: 1 if it was there, else 0. Takes a value off the stack or out of the queue: the value, or 0 if there is none.
    Remove,
}

/// The largest answer.
const LARGEST: u64 = (1 << 62) - 1;
/// A record is half-written: a writer has died over it.
pub const HALF: u64 = LARGEST - 1;
/// A record that no process has written was read.
pub const TORN: u64 = LARGEST;

/// The value of a record, made of one number. It is 0 in all words before the record is written.
fn record_of(value: u64) -> [u64; RECORD_WORDS] {
    std::array::from_fn(|word| value.wrapping_mul(2 * word as u64 + 1))
}

/// The roots' names.
pub(crate) const STAGE: &str = "stage";
pub(crate) const LAZY_LIST: &str = "lazy list";
pub(crate) const HARRIS_LIST: &str = "Harris list";
pub(crate) const STACK: &str = "stack";
pub(crate) const QUEUE: &str = "queue";

/// A process's handles.
pub struct Structures {
    /// What is shared besides.
    pub stage: RemotePtr<Stage>,
    /// A set with locks.
    pub lazy: LazyList<u64>,
    /// A set without locks.
    pub harris: HarrisList<u64>,
    /// A stack.
    pub stack: TreiberStack<u64>,
    /// A queue.
    pub queue: MsQueue<u64>,
}

impl Structures {
    /// Handles to all structures, which are made if they are not there.
    ///
    /// # Errors
    /// Those of the cluster.
    pub async fn attach(ct: &ComputeThread) -> Result<Self> {
        let stage = async || Stage::new_in(ct, Stage::init([record_of(0); RECORDS])).await?.write(ct).await;
        let stage = ct.root_or_init(STAGE, stage).await?;
        let lazy = ct.root_or_init(LAZY_LIST, async || LazyList::<u64>::create(ct).await).await?;
        let harris = ct.root_or_init(HARRIS_LIST, async || HarrisList::<u64>::create(ct).await).await?;
        let stack = ct.root_or_init(STACK, async || TreiberStack::<u64>::create(ct).await).await?;
        let queue = ct.root_or_init(QUEUE, async || MsQueue::<u64>::create(ct).await).await?;
        Ok(Self {
            stage,
            lazy: LazyList::attach(lazy, ct).await?,
            harris: HarrisList::attach(harris, ct).await?,
            stack: TreiberStack::attach(stack, ct).await?,
            queue: MsQueue::attach(queue, ct).await?,
        })
    }

    /// Performs an operation. `value` is what is put in, if the structure holds values: from 1 on, and below [`HALF`].
    ///
    /// # Errors
    /// Those of the structures; [`Error::InvalidArgument`] for an operation that a structure does not have.
    pub async fn perform(
        &self,
        which: Which,
        operation: Operation,
        key: u64,
        value: u64,
        ct: &ComputeThread,
    ) -> Result<u64> {
        match (which, operation) {
            (Which::Lazy, Operation::Get) => self.lazy.get(key, ct).await.map(u64::from),
            (Which::Lazy, Operation::Insert) => self.lazy.insert(key, ct).await.map(u64::from),
            (Which::Lazy, Operation::Remove) => self.lazy.remove(key, ct).await.map(u64::from),
            (Which::Harris, Operation::Get) => self.harris.get(key, ct).await.map(u64::from),
            (Which::Harris, Operation::Insert) => self.harris.insert(key, ct).await.map(u64::from),
            (Which::Harris, Operation::Remove) => self.harris.remove(key, ct).await.map(u64::from),
            (Which::Stack, Operation::Insert) => self.stack.push(value, ct).await.map(|()| 1),
            (Which::Stack, Operation::Remove) => Ok(self.stack.pop(ct).await?.unwrap_or(0)),
            (Which::Queue, Operation::Insert) => self.queue.enqueue(value, ct).await.map(|()| 1),
            (Which::Queue, Operation::Remove) => Ok(self.queue.dequeue(ct).await?.unwrap_or(0)),
            (Which::Records, Operation::Insert) => {
                self.stage.records().at(key as usize % RECORDS).write(ct, record_of(value)).await.map(|()| 1)
            }
            (Which::Records, Operation::Get) => {
                match self.stage.records().at(key as usize % RECORDS).read(ct).await {
                    Ok(record) if record == record_of(record[0]) => Ok(record[0].min(TORN)),
                    Ok(_) => Ok(TORN),
                    Err(Error::HalfWritten(_)) => Ok(HALF),
                    Err(error) => Err(error),
                }
            }
            (Which::Stack | Which::Queue, Operation::Get) | (Which::Records, Operation::Remove) => {
                Err(Error::other(format!("{which:?} has no {operation:?}")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_in_comes_out() -> Result<()> {
        farfield::Cluster::connect("local:")?.run(1, async |ct| {
            let all = Structures::attach(ct).await?;
            for which in Which::ALL {
                assert_eq!(Which::ALL[which as usize], which);
                let out = if which == Which::Records { Operation::Get } else { Operation::Remove };
                assert_eq!(all.perform(which, out, 0, 0, ct).await?, 0, "{which:?}");
                assert_eq!(all.perform(which, Operation::Insert, 0, 77, ct).await?, 1, "{which:?}");
                let expected = if Which::SETS.contains(&which) { 1 } else { 77 };
                assert_eq!(all.perform(which, out, 0, 0, ct).await?, expected, "{which:?}");
            }
            let mut torn = record_of(5);
            torn[9] = 1;
            all.stage.records().at(2).write(ct, torn).await?;
            assert_eq!(all.perform(Which::Records, Operation::Get, 2, 0, ct).await?, TORN);
            assert!(all.perform(Which::Stack, Operation::Get, 0, 0, ct).await.is_err());
            Ok(())
        })?;
        Ok(())
    }
}
