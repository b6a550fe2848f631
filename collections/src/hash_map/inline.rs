//! A hash map of words: keys and values of at most 8 bytes, inline in its buckets, which are changed under locks.
//!
//! A key is found by one round trip, and changed by two. [`HashMap`](super::HashMap), which is lock-free, needs one more for each, and an object for each
//! entry. It has the advantage where many clients change the same keys: here they wait for each other, and for the lock of a client that has died.
//!
//! # The scheme
//!
//! ```text
//!  root ── shard of each memory node ┬─ directory: an entry for each table, as that of HashMap
//!                                    │      │ depth, size
//!                                    │      ▼
//!                                    │  table: 1, 3, 7 or 15 buckets of 15 slots
//!                                    │      │ state: present slots, version
//!                                    │      ▼
//!                                    │  keys and values
//!                                    └─ 1024 locks: the index of a table and the number of a bucket choose one
//! ```
//!
//! A key's hash chooses its shard, its table and its bucket, in which it may have any slot. Keys are compared as words.
//!
//! Locks are not in the tables. A client takes the lock in the chain in which it finds out whether the table that it remembers is still the
//! directory's. If it is not, the CAS of a lock in the table would hit memory that was freed, and is another object's by now. A shard lives as long
//! as the map.
//!
//! A bucket has exactly one lock, since its state is one word: keys of one bucket with different locks would overwrite it. So the lock depends on
//! the table's index and the bucket, not on the hash alone. Clients with different views of a table may take different locks for a key; but
//! each reads the directory's entry under its lock, and those to whom it shows the same table agree.
//!
//! # Invariants
//!
//! 1. The words of a bucket change only under its lock, while the entry of the directory links to its table. Under the lock of any of its buckets an entry
//!    does not change: who replaces a table has the locks of all its buckets, and reads the entry under them.
//! 2. The key of a slot does not change while the bucket's state has it as present. An insertion writes key and value before the state.
//! 3. Each change of the present slots adds to the state's version of 48 bits, so a bucket's states do not recur.
//! 4. The second table of a split can be reached through `sibling` of the first until its own entry is set, which precedes the next replacement of
//!    the first. Mostly one chain does all of this, and clears `sibling`.
//! 5. Each change of a bucket ends by writing its checksum. It may be outdated or [unsettled](buckets::UNSETTLED) if the client has died before that. A change of a value,
//!    and a replacement of the table, make it unsettled *before* they take effect.
//!
//! # When operations take effect
//!
//! `get` has two forms. Which one it uses depends on whether the directory's entry has shown the remembered table in the epoch of the operation's guard. If so, the guard
//! protects the table: see [`Guard::epoch`].
//!
//! **One READ.** If the table is protected, `get` reads the bucket. Its result counts if the bucket has its checksum, which is keyed by the map's seed, of 64 bits. Let `t` be the moment at
//! which the word of the checksum was read. The client that wrote this word had a bucket with the same words, as they all agree with it.
//!
//! - At `t` the table was current, and no change of a value had taken effect behind that checksum: both would have made it unsettled before (5).
//! - So at `t` the bucket had this content, except that insertions and removals may have taken effect whose checksum was not written yet, or is never, since the client
//!   died. They take effect by the state. If the first of them took effect before the READ began, the READ would have found its state or a later one, and states do
//!   not recur (3).
//!
//! So this `get` takes effect at `t`, or immediately before the first of these insertions and removals if that is earlier; both are in its interval. The words may be read in any
//! order. If the checksum does not agree, the second form follows, as it does where a round trip costs nothing
//! ([`is_immediate`](ComputeThread::is_immediate)): there, reading a few words takes less time than the checksum.
//!
//! **Four READs.** This form is one chain: READs of the directory's entry, of the bucket's state, of the bucket, and of the state again. If both states are equal, the
//! bucket had this state in between (3), so each present slot had its key (2), in whatever order the words were read: the device may choose the order
//! inside a READ, but operations of a chain are ordered. The value is one word. The state that the READ of the bucket found is not used.
//!
//! If the entry shows the table that the client remembers, the table was current at that READ, the first. It may have been replaced since; then it has not
//! changed since (1), and shows what the map contained immediately before the replacement. So `get` takes effect at the READ of the value's word, of
//! the second state if the key is absent, or immediately before the table's replacement if that came earlier; all of these are in its interval. The
//! guard protects the table from the READ of the entry on, and the client remembers its epoch with the table.
//!
//! The others take the lock, and read the entry and the bucket, in one chain; a second one changes words and releases the lock. What they read
//! stays as it is until then.
//!
//! | operation | takes effect | round trips: cold, warm |
//! |---|---|---|
//! | `get`, `contains` | by one READ: at that of the checksum, or before a change of the state; by four: at that of the value or of the second state, or before the replacement of the table | 2 / 1 |
//! | `insert`, `upsert` of a new key | at the WRITE of the state | 3 / 2 |
//! | `update`, `upsert`, `compare_and_update` | at the WRITE of the value | 3 / 2 |
//! | `remove`, `take` | at the WRITE of the state | 3 / 2 |
//! | `modify` | as the one of these that it amounts to | 3 / 2 |
//! | any that changes nothing | at the READ of the bucket | 2 / 1 |
//!
//! *Cold*: the handle was just attached. *Warm*: it knows the key's table. That it knows the key makes no difference. A `get` of one READ is repeated, with four, if any word of
//! the bucket changes meanwhile. A `get` of four is repeated if a key of the bucket was inserted or removed between its READs; a change of a value does not disturb
//! it, and no lock does.
//!
//! # Growth
//!
//! A client whose key finds no slot releases its lock, and takes those of all buckets of the table, at most 16, in ascending order: so no circle of clients
//! waits. It distributes the keys over a table of twice the size, up to 4 KiB, or over two. One chain writes the new tables; the next makes the checksums of the old one unsettled,
//! exchanges the entry, sets that of the second, and releases the locks. Readers do not notice. All memory is allocated before that chain: if there is none, the map is as it was, and
//! usable. Tables do not shrink: a removed key's slot is free for any key of its bucket.
//!
//! With random keys a table of 4 KiB is full when 65 % of its slots are in use, so between 42 and 46 % are on average: some 42 bytes for each key. Windows of two
//! neighbouring buckets would fill tables further, but have two states and two locks.
//!
//! # What a dead client, or a dropped future, leaves
//!
//! A lock, at most, which the next client takes over when the owner is known to be dead; a future that is dropped releases its own. The data is whole after each
//! WRITE of a chain: an insertion without its state has no effect, other changes are one word, and a split without the entry of the second table is
//! invariant 4. So the next owner repairs nothing. A bucket without its checksum costs each `get` a round trip more until the next change of the bucket, which writes the
//! checksum of all words. A table that no entry links to is freed by a sweep, if its client is dead. A future that
//! is dropped while it replaces a table leaves nothing: see `op::replace`.
//!
//! # Keys with equal hashes
//!
//! Keys are compared exactly, so two keys may have equal hashes. That more than 15 have is an error of the insertion. The hash is keyed, as that of
//! `HashMap`, so nobody outside can make such keys.
//!
//! ```
//! use farfield::prelude::*;
//! use farfield_collections::InlineHashMap;
//!
//! # fn main() -> farfield::Result<()> {
//! Cluster::connect("local:nodes=2")?.run(4, async |ct| {
//!     let root = ct.root_or_init("squares", async || InlineHashMap::<u32, u64>::create(ct).await).await?;
//!     let squares = InlineHashMap::attach(root, ct).await?;
//!     let me = ct.index() as u32;
//!     squares.insert(&me, &u64::from(me).pow(2), ct).await?;
//!     ct.barrier("inserted").await?;
//!     assert_eq!(squares.get(&3, ct).await?, Some(9));
//!     Ok(())
//! })?;
//! # Ok(())
//! # }
//! ```

mod buckets;
mod growth;
mod operations;
mod walk;

use std::fmt;
use std::marker::PhantomData;

use farfield::layout::fingerprint;
use farfield::prelude::*;
use farfield::{Error, error};

use super::counters::{Counters, Counting};
use super::directory::Directory;
use super::layout::{Shard, TableTag, seed};
use buckets::{InlineShard, InlineTable, Locks};
use operations::{Change, InlineTables};

pub use buckets::InlineHashMapRoot;
pub use walk::InlineIter;

/// The cache of a handle, unless [`InlineHashMap::with_cache`] sets another size.
const CACHE_BYTES: usize = 1 << 20;

/// A map of words in far memory, which grows while it is used. The handle of a thread, for all of its tasks.
///
/// Its methods are those of [`HashMap`](super::HashMap). Keys and values are inline, and changed under locks: see the table of round trips in
/// the source of this module.
pub struct InlineHashMap<K: Word, V: Word> {
    root: RemotePtr<InlineHashMapRoot<K, V>>,
    tables: InlineTables,
    stored: PhantomData<fn() -> (K, V)>,
}

impl<K: Word, V: Word> InlineHashMap<K, V> {
    /// Stands for the types of keys and values.
    const TYPES: u64 =
        fingerprint::array(fingerprint::wrap("inline map", K::FINGERPRINT), V::FINGERPRINT as usize);

    /// Creates an empty map over all memory nodes. Three round trips for each, and one. It has 9 KiB on each.
    ///
    /// # Errors
    /// [`Error::InvalidPointer`] if the cluster has addresses that a link with a tag can not hold; those of an allocation.
    pub async fn create(ct: &ComputeThread) -> Result<RemotePtr<InlineHashMapRoot<K, V>>> {
        Self::create_masked(u64::MAX, ct).await
    }

    /// Creates a map whose hashes have some bits only: for tests of keys with equal hashes.
    #[doc(hidden)]
    pub async fn create_masked(mask: u64, ct: &ComputeThread) -> Result<RemotePtr<InlineHashMapRoot<K, V>>> {
        ct.check_compressible()?;
        let (mut shards, seed) = (Vec::new(), seed(ct));
        for node in 0..ct.nodes() {
            let init = InlineShard::init(Shard::init(), Locks::init());
            let shard = InlineShard::new_in(ct.on_node(node as u16), init).await?.write(ct).await?;
            let directory: RemotePtr<Shard<InlineTable>> =
                RemotePtr::from_address(shard.directory().address());
            let table = growth::empty_table(directory, seed, ct).await?.write(ct).await?;
            directory.base().at(0).store(&ct.pin(), table, TableTag::new(0, 0, false)).await?;
            shards.push(shard);
        }
        let init = InlineHashMapRoot::init(seed, mask, Self::TYPES, shards);
        InlineHashMapRoot::new_in(ct, init).await?.write(ct).await
    }

    /// Makes a handle of a map. Three round trips.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the map has other types of keys or values.
    pub async fn attach(root: RemotePtr<InlineHashMapRoot<K, V>>, ct: &ComputeThread) -> Result<Self> {
        let g = &ct.pin();
        let map = root.read(g).await?;
        if map.types != Self::TYPES {
            let value = format!("{root:?}").into();
            let reason = "the map has keys or values of other types";
            return Err(Error::from(error::InvalidArgument { argument: "root", value, reason }));
        }
        let shards = map.shards.read(g).await?;
        let directory = |shard: &RemotePtr<InlineShard>| {
            Directory::new(RemotePtr::from_address(shard.directory().address()), 0)
        };
        let directories = shards.iter().map(directory).collect();
        let counting = Counting::default();
        let is_immediate = ct.is_immediate();
        let tables =
            InlineTables { seed: map.seed, mask: map.mask, shards, directories, counting, is_immediate };
        let map = Self { root, tables, stored: PhantomData }.with_cache(CACHE_BYTES);
        ct.tasks(map.tables.directories.len(), async |shard| {
            map.tables.directories[shard].load_levels(g).await
        })
        .await?;
        Ok(map)
    }

    /// Sets the size of the handle's cache, for the directory. 1 MiB by default: for some 26,000 tables, of 100 keys or so each.
    #[must_use]
    pub fn with_cache(mut self, bytes: usize) -> Self {
        let bound = bytes / Directory::<InlineTable>::TABLE_BYTES / self.tables.directories.len().max(1);
        for directory in &mut self.tables.directories {
            directory.set_bound(bound);
        }
        self
    }

    /// Returns what this handle has counted. It remembers no slots, so it counts no use of one; `retries` are READs of a bucket that was changed meanwhile,
    /// and `waits` those for locks.
    pub fn counters(&self) -> Counters {
        self.tables.counting.get()
    }

    /// Returns the value of a key. Takes no lock, and waits for none.
    pub async fn get(&self, key: &K, ct: &ComputeThread) -> Result<Option<V>> {
        self.tables.get(key.to_word(), &ct.pin()).await?.map(value).transpose()
    }

    /// Returns whether a key is in the map. Costs as much as [`get`](Self::get).
    pub async fn contains(&self, key: &K, ct: &ComputeThread) -> Result<bool> {
        Ok(self.tables.get(key.to_word(), &ct.pin()).await?.is_some())
    }

    /// Inserts a key with a value. Returns `false` if the key is in the map, which does not change then.
    ///
    /// # Errors
    /// Those of a lock and of an allocation; the map is as it was after the latter. An error if too many keys have equal hashes.
    pub async fn insert(&self, key: &K, value: &V, ct: &ComputeThread) -> Result<bool> {
        let new = value.to_word();
        let insert = |old: Option<u64>| if old.is_some() { Change::Keep } else { Change::Store(new) };
        Ok(self.tables.change(key.to_word(), insert, &ct.pin()).await?.is_none())
    }

    /// Gives a key a value, whether or not it is in the map.
    ///
    /// # Errors
    /// Those of [`insert`](Self::insert).
    pub async fn upsert(&self, key: &K, value: &V, ct: &ComputeThread) -> Result<()> {
        let new = value.to_word();
        self.tables.change(key.to_word(), |_| Change::Store(new), &ct.pin()).await.map(drop)
    }

    /// Changes the value of a key. Returns `false` if the key is not in the map.
    pub async fn update(&self, key: &K, value: &V, ct: &ComputeThread) -> Result<bool> {
        let new = value.to_word();
        let update = |old: Option<u64>| if old.is_some() { Change::Store(new) } else { Change::Keep };
        Ok(self.tables.change(key.to_word(), update, &ct.pin()).await?.is_some())
    }

    /// Changes the value of a key from `expected` to `new`. Returns `false` if the key is not in the map, or has another value.
    pub async fn compare_and_update(
        &self,
        key: &K,
        expected: &V,
        new: &V,
        ct: &ComputeThread,
    ) -> Result<bool> {
        let (expected, new) = (Some(expected.to_word()), new.to_word());
        let update = |old| if old == expected { Change::Store(new) } else { Change::Keep };
        Ok(self.tables.change(key.to_word(), update, &ct.pin()).await? == expected)
    }

    /// Removes a key. Returns whether it was in the map.
    pub async fn remove(&self, key: &K, ct: &ComputeThread) -> Result<bool> {
        Ok(self.tables.change(key.to_word(), |_| Change::Remove, &ct.pin()).await?.is_some())
    }

    /// Removes a key. Returns its value, if it was in the map.
    pub async fn take(&self, key: &K, ct: &ComputeThread) -> Result<Option<V>> {
        let taken = self.tables.change(key.to_word(), |_| Change::Remove, &ct.pin()).await?;
        taken.map(value).transpose()
    }

    /// Inserts, changes or removes a key, atomically: `f` makes the new value of the old one, where `None` is for a key that is not in the map. It
    /// is called under the lock, and again if the table has to grow. Returns the old value.
    ///
    /// # Errors
    /// Those of [`insert`](Self::insert).
    pub async fn modify(
        &self,
        key: &K,
        mut f: impl FnMut(Option<V>) -> Option<V>,
        ct: &ComputeThread,
    ) -> Result<Option<V>> {
        let modify = |old: Option<u64>| match old.map(V::from_word) {
            // The caller gets the error.
            Some(None) => Change::Keep,
            old => f(old.flatten()).map_or(Change::Remove, |new| Change::Store(new.to_word())),
        };
        let old = self.tables.change(key.to_word(), modify, &ct.pin()).await?;
        old.map(value).transpose()
    }

    /// Returns the values of several keys. The round trips of the slowest.
    pub async fn get_many(&self, keys: &[&K], ct: &ComputeThread) -> Result<Vec<Option<V>>> {
        ct.tasks(keys.len(), async |task| self.get(keys[task], ct).await).await
    }

    /// Inserts several keys, in any order. The round trips of the slowest. Returns for each whether it was absent.
    pub async fn insert_many(&self, pairs: &[(&K, &V)], ct: &ComputeThread) -> Result<Vec<bool>> {
        ct.tasks(pairs.len(), async |task| self.insert(pairs[task].0, pairs[task].1, ct).await).await
    }

    /// Gives several keys values, in any order. The round trips of the slowest.
    pub async fn upsert_many(&self, pairs: &[(&K, &V)], ct: &ComputeThread) -> Result<()> {
        let upsert = async |task: usize| self.upsert(pairs[task].0, pairs[task].1, ct).await;
        ct.tasks(pairs.len(), upsert).await.map(drop)
    }

    /// Changes the values of several keys, in any order. The round trips of the slowest. Returns for each whether it was in the map.
    pub async fn update_many(&self, pairs: &[(&K, &V)], ct: &ComputeThread) -> Result<Vec<bool>> {
        ct.tasks(pairs.len(), async |task| self.update(pairs[task].0, pairs[task].1, ct).await).await
    }

    /// Removes several keys, in any order. The round trips of the slowest. Returns for each whether it was in the map.
    pub async fn remove_many(&self, keys: &[&K], ct: &ComputeThread) -> Result<Vec<bool>> {
        ct.tasks(keys.len(), async |task| self.remove(keys[task], ct).await).await
    }

    /// Returns an iteration over the keys and their values. It has every key that is in the map throughout, once. A key that is inserted or removed
    /// meanwhile it has, or not. The keys of a bucket are those of one moment.
    #[allow(clippy::iter_not_returning_iterator)] // each table is a READ, which an `Iterator` could not wait for
    pub fn iter<'a>(&'a self, ct: &'a ComputeThread) -> InlineIter<'a, K, V> {
        InlineIter::new(&self.tables, ct)
    }

    /// Returns the number of keys: exact while nobody changes the map. Two round trips for each table of at most 225 keys, which read the states of
    /// its buckets.
    ///
    /// # Errors
    /// Those of a READ.
    pub async fn len(&self, ct: &ComputeThread) -> Result<u64> {
        self.tables.len(ct).await
    }

    /// Returns whether no key is in the map. See [`len`](Self::len).
    ///
    /// # Errors
    /// Those of a READ.
    pub async fn is_empty(&self, ct: &ComputeThread) -> Result<bool> {
        Ok(self.len(ct).await? == 0)
    }

    /// Checks the invariants of a map that nobody changes: that each key is in its bucket, once; that keys and values are of their types; that no lock is
    /// held or abandoned; and that the directory has each table once. Returns the number of keys.
    ///
    /// # Errors
    /// One that names the first fault.
    pub async fn check(&self, ct: &ComputeThread) -> Result<u64> {
        self.tables.check::<K, V>(ct).await
    }

    /// Finishes what dead clients have left half done: splits whose second table has no entry yet, and locks. Nobody need call it: an operation that
    /// meets them does the same. One round trip for each table, and two for each lock of a dead client.
    ///
    /// # Errors
    /// Those of a lock.
    pub async fn recover(&self, ct: &ComputeThread) -> Result<()> {
        self.tables.recover(ct).await
    }

    /// Frees the map. Nobody may use it any more. Two round trips for each table of at most 225 keys.
    ///
    /// # Errors
    /// Those of a READ.
    pub async fn destroy(self, ct: &ComputeThread) -> Result<()> {
        self.tables.destroy(ct).await?;
        ct.delete(self.root).await
    }
}

/// Decodes a value.
#[inline]
fn value<V: Word>(word: u64) -> Result<V> {
    V::from_word(word).ok_or_else(walk::not_of_its_types)
}

impl<K: Word, V: Word> fmt::Debug for InlineHashMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InlineHashMap")
            .field("root", &self.root)
            .field("counters", &self.counters())
            .finish_non_exhaustive()
    }
}
