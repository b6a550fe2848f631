//! Walks over all tables of a map: iteration, counting, checking, recovery, destruction.

use std::collections::{HashSet, VecDeque};

use farfield::Error;
use farfield::prelude::*;

use super::super::directory::{Cursor, Known};
use super::super::layout::mask;
#[allow(clippy::wildcard_imports)] // what the map consists of
use super::buckets::*;
use super::operations::InlineTables;

impl InlineTables {
    /// Returns the next table, with its shard and its index, and moves the cursor behind it. `None` at the end.
    async fn next_table<'g>(
        &self,
        cursor: &mut Cursor,
        g: &'g Guard<'_>,
    ) -> Result<Option<(usize, u64, Known<InlineTable>, Shared<'g, InlineTable>)>> {
        cursor.next(&self.directories, &self.counting, g).await
    }

    /// Reads the buckets of a table, each as it was at one moment. One round trip, unless keys are inserted or removed meanwhile.
    async fn read_buckets(
        &self,
        table: Shared<'_, InlineTable>,
        scale: u8,
        g: &Guard<'_>,
    ) -> Result<Vec<InlineBucketSnapshot>> {
        let mut read: Vec<Option<InlineBucketSnapshot>> = (0..buckets(scale)).map(|_| None).collect();
        let mut backoff = g.backoff();
        loop {
            let missing: Vec<_> = (0..read.len()).filter(|number| read[*number].is_none()).collect();
            if missing.is_empty() {
                return Ok(read.into_iter().flatten().collect());
            }
            if missing.len() < read.len() {
                self.counting.count(|counters| counters.retries += 1);
                backoff.wait().await;
            }
            let chain = missing.iter().map(|number| {
                let place = table.buckets().at(*number as u64);
                let bucket = RemotePtr::<InlineBucket>::from_address(place.address());
                (op::load(place.state()), op::read(bucket), op::load(place.state()))
            });
            let seen = g.chain(chain.collect::<Vec<_>>()).submit().await?;
            for (number, (before, mut bucket, after)) in missing.into_iter().zip(seen) {
                // That in the READ of the bucket may have come before its other words, or after them.
                bucket.state = before;
                read[number] = (before == after).then_some(bucket);
            }
        }
    }
}

/// The keys of a map and their values: see [`InlineHashMap::iter`](super::InlineHashMap::iter).
pub struct InlineIter<'a, K: Word, V: Word> {
    tables: &'a InlineTables,
    ct: &'a ComputeThread,
    cursor: Cursor,
    ready: VecDeque<(K, V)>,
}

impl<'a, K: Word, V: Word> InlineIter<'a, K, V> {
    pub(super) fn new(tables: &'a InlineTables, ct: &'a ComputeThread) -> Self {
        Self { tables, ct, cursor: Cursor::default(), ready: VecDeque::new() }
    }

    /// Returns the next key and its value. Two round trips for each table of at most 225 keys. If the future is dropped, no key is lost.
    ///
    /// # Errors
    /// Those of a READ.
    pub async fn next(&mut self) -> Result<Option<(K, V)>> {
        while self.ready.is_empty() {
            let g = &self.ct.pin();
            let mut cursor = self.cursor;
            let Some((_, _, known, table)) = self.tables.next_table(&mut cursor, g).await? else {
                return Ok(None);
            };
            let read = self.tables.read_buckets(table, known.scale(), g).await?;
            let pairs = read.iter().flat_map(|bucket| bucket.pairs());
            let pairs: Option<VecDeque<_>> =
                pairs.map(|(key, value)| Some((K::from_word(key)?, V::from_word(value)?))).collect();
            self.ready = pairs.ok_or_else(not_of_its_types)?;
            self.cursor = cursor;
        }
        Ok(self.ready.pop_front())
    }
}

#[cold]
pub(super) fn not_of_its_types() -> Error {
    Error::other("a word of the map is no key or value of its types")
}

impl InlineTables {
    /// Returns the number of keys.
    pub(super) async fn len(&self, ct: &ComputeThread) -> Result<u64> {
        let (mut cursor, mut len) = (Cursor::default(), 0);
        loop {
            let g = &ct.pin();
            let Some((_, _, known, table)) = self.next_table(&mut cursor, g).await? else {
                return Ok(len);
            };
            let states = (0..buckets(known.scale())).map(|number| table.buckets().at(number).state());
            let states = g.chain(states.map(op::load).collect::<Vec<_>>()).submit().await?;
            len += states.into_iter().map(State::keys).sum::<usize>() as u64;
        }
    }

    /// Checks the invariants: see [`InlineHashMap::check`](super::InlineHashMap::check).
    pub(super) async fn check<K: Word, V: Word>(&self, ct: &ComputeThread) -> Result<u64> {
        let (mut cursor, mut len) = (Cursor::default(), 0);
        for shard in &self.shards {
            let locks = read_locks(*shard, ct).await?;
            if let Some(lock) = locks.iter().position(|lock| lock.is_held() || lock.is_abandoned()) {
                let what = format!("lock {lock} of the shard {shard:?} is not free: {:?}", locks[lock]);
                return Err(Error::other(what));
            }
        }
        loop {
            let g = &ct.pin();
            let Some((shard, index, known, table)) = self.next_table(&mut cursor, g).await? else {
                return Ok(len);
            };
            let fault =
                |what: String| Error::other(format!("{table:?}, table {index} of shard {shard}: {what}"));
            if index >> known.depth() != 0 {
                return Err(fault(format!("it has depth {}", known.depth())));
            }
            let read = self.read_buckets(table, known.scale(), g).await?;
            for (number, bucket) in read.iter().enumerate() {
                if bucket.state.is_corrupt() {
                    return Err(fault(format!("bucket {number} has the state {:?}", bucket.state)));
                }
                let mut keys = HashSet::new();
                for slot in bucket.state.present() {
                    let (key, value) = (bucket.keys[slot], bucket.values[slot]);
                    let hash = self.hash(key);
                    let is_here = hash.shard(self.shards.len()) == shard
                        && hash.ident & mask(known.depth()) == index
                        && home(hash.ident, known.scale()) == number as u64;
                    let fault = |what| {
                        Err(fault(format!(
                            "slot {slot} of bucket {number}, key {key:#x}, {what}: {value:#x}"
                        )))
                    };
                    if !is_here {
                        return fault("is outside of its bucket");
                    }
                    if !keys.insert(key) {
                        return fault("is a second one");
                    }
                    if K::from_word(key).is_none() || V::from_word(value).is_none() {
                        return fault("is no key and value");
                    }
                    len += 1;
                }
            }
        }
    }

    /// Finishes splits, and releases the locks of dead clients.
    pub(super) async fn recover(&self, ct: &ComputeThread) -> Result<()> {
        let mut cursor = Cursor::default();
        loop {
            let g = &ct.pin();
            // Looking for each half of a split gives it its entry.
            if self.next_table(&mut cursor, g).await?.is_none() {
                break;
            }
        }
        for shard in &self.shards {
            let locks = read_locks(*shard, ct).await?;
            for (number, state) in locks.iter().enumerate() {
                if state.is_held() || state.is_abandoned() {
                    let mut lock = shard.locks().of().at(number).acquire(ct).await?;
                    lock.recovered();
                    lock.release().await?;
                }
            }
        }
        Ok(())
    }

    /// Frees all but the root.
    pub(super) async fn destroy(self, ct: &ComputeThread) -> Result<()> {
        let mut cursor = Cursor::default();
        let mut tables = Vec::new();
        loop {
            let g = &ct.pin();
            let Some((_, _, known, _)) = self.next_table(&mut cursor, g).await? else { break };
            tables.push(known.table);
        }
        for table in tables {
            ct.delete(table).await?;
        }
        for (directory, shard) in self.directories.iter().zip(&self.shards) {
            directory.delete_levels(ct).await?;
            ct.delete(*shard).await?;
        }
        Ok(())
    }
}

/// Reads the locks of a shard. One READ.
async fn read_locks(
    shard: RemotePtr<InlineShard>,
    ct: &ComputeThread,
) -> Result<Box<[farfield::LockState; LOCKS]>> {
    let locks = RemotePtr::<Locks>::from_address(shard.locks().address());
    Ok(Box::new(locks.read(&ct.pin()).await?.of))
}
