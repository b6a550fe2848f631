//! A hash map: keys and values of any length, lock-free, growing while it is used.
//!
//! After RACE hashing (Zuo, Sun, Yang, Zhang and Hua, "One-sided RDMA-Conscious Extendible Hashing for Disaggregated Memory", USENIX ATC 2021):
//! neighbouring buckets that one READ finds, slots that one CAS changes, extendible tables whose outdated addresses a client detects. The claim of a slot
//! is that of Click's table ("A Lock-Free Wait-Free Hash Table", 2007).
//!
//! # The scheme
//!
//! ```text
//!  root ── shard of each memory node ── directory: an entry for each table
//!                                           │ depth, size
//!                                           ▼
//!                                 table: buckets of 8 slots, a window = a bucket and the next
//!                                           │ identity: 64 bits of the key's hash
//!                                           ▼ link: size class, 6 more bits, `blind`, `frozen`
//!                                 entry: key and value, on the same memory node
//! ```
//!
//! A key's hash chooses its shard, its table and its window. The key *claims* a slot once in the life of a table, by a CAS of the identity from vacant:
//! the first vacant slot of its window. It is in the map while the link of its slot is not null. So `update` and `remove` are one CAS of the link, and an
//! insertion of a removed key needs no claim.
//!
//! The directory has one entry for each table. A table of depth `d` has the keys whose hashes end in the `d` bits of its index. An index without its highest
//! bit is that of the table from which it was split, so a client that knows the tables up to some depth looks at the longest index that ends a hash.
//!
//! # Invariants
//!
//! 1. An identity that is not vacant stays. So the slots in front of a key's slot in its window have been claimed before it, and all clients that claim a
//!    slot for a key try the same one first: a key has one slot at most in a table.
//! 2. A link changes by CAS only, and not at all once it is `frozen`. A vacant slot that is frozen can not be claimed.
//! 3. The table that an entry of the directory links to is the only one in which its keys change. An entry's link changes by one CAS, when all
//!    slots of the old table are frozen and the new one has what they link to.
//! 4. The second table of a split can be reached through `sibling` of the first until its own entry is set, which precedes the next
//!    replacement of the first. The chain that sets it clears `sibling`.
//!
//! # When operations take effect
//!
//! Each operation reads its window in a table that the client remembers. It has two ways to know that the table was current.
//!
//! - *By the directory.* It reads the entry of the directory and the window in one chain, the entry first. If the entry shows the remembered table, the table was
//!   current then; what the window shows of a frozen slot is the state up to the moment at which the table was replaced, which comes later. The client remembers
//!   the epoch of its guard with the table.
//! - *By the table.* If the entry has shown the table in the epoch of the operation's guard, the guard protects the table, even if it was replaced since: see
//!   [`Guard::epoch`]. So the operation may read the window alone. All slots of a table are frozen before it is replaced (3). So the table
//!   was current when a link was read that is not frozen, or a vacant identity. If the key has a slot, its link decides; if a slot is vacant, that slot; if the window is
//!   full of other keys, any link in it, since the key has never had a slot there (1).
//!
//! If a frozen slot leaves it open, the operation reads again, with the entry. A writer needs no more than a reader: its CAS fails if the slot was frozen since.
//!
//! | operation | takes effect | round trips: cold, warm, hot |
//! |---|---|---|
//! | `get` | at the READ of the link; of a vacant or null one, if the key is absent | 3 / 2 / 1 |
//! | `insert` | at the CAS of the link; if the key is there, at the READ of the link | 4 / 3 / 3 |
//! | `update`, `upsert` | at the CAS of the link; if a blind CAS of another was faster, immediately before that one | 3 / 2 / 2 |
//! | `remove`, `take` | at the CAS of the link | 3 / 2 / 2 |
//! | `modify`, `compare_and_update` | at the CAS of the link | 4 / 3 / 3 |
//!
//! *Cold*: the handle was just attached. *Warm*: it knows the key's table. *Hot*: it knows the key's slot. An `upsert` of a new key takes as long as an
//! `insert`; an `insert` of a key that is there, 3 / 2 / 2. The WRITE of a new entry is in the chain of the first READ.
//!
//! A hot `get` is one chain of two READs: of the slot's link, and of the entry to which it linked. A warm one is two READs one after the other: of the window, and of
//! the entry. The first operation on a table in an epoch has one more in the first chain, of the directory. Where a round trip costs nothing
//! ([`is_immediate`](ComputeThread::is_immediate)) there are no caches, and each operation reads the directory.
//!
//! An insertion is not faster because a chain is unconditional: a CAS of the link behind a claim that fails would put the entry into the slot of another
//! key.
//!
//! **Overtaken updates.** A link that an `update` or `upsert` has put in place of another is `blind`: its operation did not depend on the value before. If
//! a blind update finds such a link instead of the one it has read, both were there at the same time, and it counts as done immediately before the
//! other. So updates of one key need no retries, however many there are.
//!
//! # Growth
//!
//! A client whose key finds no slot marks the table's entry as `growing`, reads the table, allocates what replaces it, and freezes the slots, each by a
//! CAS. The new tables have the keys that are in the map, distributed again: one table of twice the size up to 4 KiB, then two; one of the
//! same size, if most keys were removed. One chain writes them and exchanges the entry. Readers do not notice. A writer that meets a frozen slot
//! waits for the new table, and makes it itself if that takes too long: the other client may be dead. The new tables are allocated before the first slot is
//! frozen, so if memory is exhausted nothing has changed. Only if the keys need other tables than expected, because clients have inserted meanwhile, are these allocated
//! afterwards; if that fails, the table stays frozen, its keys can be read, and the next writer tries again.
//!
//! # What a dead client, or a dropped future, leaves
//!
//! A claimed slot with a null link is a removed key's. A frozen table is replaced by the next writer. A new entry or table that no link holds is freed by a
//! sweep if its client is dead, and by the chain in flight if only the future was dropped: see [`op::replace`]. The exception is a new level of the directory, of
//! which there are at most 18: if its future is dropped while another client makes the same level, it is lost.
//!
//! # Keys with equal hashes
//!
//! Keys are hashed by SipHash-1-3 with a secret seed of the map, so nobody outside can make keys with equal hashes, or keys of one window. Two keys with the same
//! identity, of 64 bits, would have one slot, so the insertion of the second is an error: with `n` keys the probability of such a pair is below n² / 2^65. `get`
//! and `insert` compare the key with the entry's. `update` and `remove` compare 70 bits of the hash: for a key that is not in the map, the
//! probability that they take another of `n` for it is below n / 2^70. If more keys are in one window than a table has room for, whatever its size, the
//! insertion of one more is an error, too.
//!
//! ```
//! use farfield::prelude::*;
//! use farfield_collections::HashMap;
//!
//! # fn main() -> farfield::Result<()> {
//! Cluster::connect("local:nodes=2")?.run(4, async |ct| {
//!     let root = ct.root_or_init("ages", async || HashMap::<String, u64>::create(ct).await).await?;
//!     let ages = HashMap::attach(root, ct).await?;
//!     ages.upsert("Ada", &36, ct).await?;
//!     ages.modify("Ada", |age| age.map(|age| age + 1), ct).await?;
//!     ct.barrier("counted").await?;
//!     assert!(ages.get("Ada", ct).await?.is_some());
//!     Ok(())
//! })?;
//! # Ok(())
//! # }
//! ```

// ANCHOR: all
mod cache;
pub(crate) mod counters;
mod directory;
mod growth;
pub(crate) mod inline;
pub(crate) mod layout;
mod table;
mod walk;

use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;

use farfield::layout::fingerprint;
use farfield::prelude::*;
use farfield::{Bytes, Error, error};

use crate::entry::{check_size, entry_bytes, new_entry, not_an_entry, split_entry, write_entry};
use cache::HotSlots;
use counters::Counting;
use directory::Directory;
#[allow(clippy::wildcard_imports)] // what the map consists of
use layout::*;
use table::{Decision, Put, Tables};

pub use counters::Counters;
pub use layout::HashMapRoot;
pub use walk::Iter;

/// The cache of a handle, unless [`HashMap::with_cache`] sets another size.
const CACHE_BYTES: usize = 1 << 20;

/// A map in far memory, which grows while it is used. The handle of a thread, for all of its tasks.
pub struct HashMap<K: Bytes, V: Bytes> {
    root: RemotePtr<HashMapRoot<K, V>>,
    tables: Tables,
    stored: PhantomData<fn() -> (K, V)>,
}

impl<K: Bytes, V: Bytes> HashMap<K, V> {
    /// Stands for the types of keys and values.
    const TYPES: u64 = fingerprint::array(fingerprint::wrap("map", K::FINGERPRINT), V::FINGERPRINT as usize);

    /// Creates an empty map over all memory nodes. Three round trips for each, and one.
    ///
    /// # Errors
    /// [`Error::InvalidPointer`] if the cluster has addresses that a link with a tag can not hold; those of an allocation.
    pub async fn create(ct: &ComputeThread) -> Result<RemotePtr<HashMapRoot<K, V>>> {
        Self::create_masked(u64::MAX, ct).await
    }

    /// Creates a map whose hashes have some bits only: for tests of keys with equal hashes.
    #[doc(hidden)]
    pub async fn create_masked(mask: u64, ct: &ComputeThread) -> Result<RemotePtr<HashMapRoot<K, V>>> {
        ct.check_compressible()?;
        let mut shards = Vec::new();
        for node in 0..ct.nodes() {
            let shard = Shard::new_in(ct.on_node(node as u16), Shard::init()).await?.write(ct).await?;
            let table = growth::new_table(shard, 0, ct).await?.write(ct).await?;
            shard.base().at(0).store(&ct.pin(), table, TableTag::new(0, 0, false)).await?;
            shards.push(shard);
        }
        HashMapRoot::new_in(ct, HashMapRoot::init(seed(ct), mask, Self::TYPES, shards)).await?.write(ct).await
    }

    /// Makes a handle of a map. Three round trips.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the map has other types of keys or values.
    pub async fn attach(root: RemotePtr<HashMapRoot<K, V>>, ct: &ComputeThread) -> Result<Self> {
        let g = &ct.pin();
        let map = root.read(g).await?;
        if map.types != Self::TYPES {
            let value = format!("{root:?}").into();
            let reason = "the map has keys or values of other types";
            return Err(Error::from(error::InvalidArgument { argument: "root", value, reason }));
        }
        let shards = map.shards.read(g).await?;
        let directories = shards.iter().map(|shard| Directory::new(*shard, 0)).collect();
        let (hot, counting) = (HotSlots::new(0), Counting::default());
        let is_immediate = ct.is_immediate();
        let tables = Tables { seed: map.seed, mask: map.mask, directories, hot, counting, is_immediate };
        let map = Self { root, tables, stored: PhantomData }.with_cache(CACHE_BYTES);
        ct.tasks(map.tables.directories.len(), async |shard| {
            map.tables.directories[shard].load_levels(g).await
        })
        .await?;
        Ok(map)
    }

    /// Sets the size of the handle's cache: one half for the directory, one for the slots of keys that were used lately. 1 MiB by default.
    #[must_use]
    pub fn with_cache(mut self, bytes: usize) -> Self {
        let bound = bytes / 2 / Directory::<Table>::TABLE_BYTES / self.tables.directories.len().max(1);
        for directory in &mut self.tables.directories {
            directory.set_bound(bound);
        }
        self.tables.hot = HotSlots::new(if self.tables.is_immediate { 0 } else { bytes / 2 });
        self
    }

    /// Returns what this handle has counted.
    pub fn counters(&self) -> Counters {
        self.tables.counting.get()
    }

    /// Returns the value of a key.
    pub async fn get(&self, key: &K::Borrowed, ct: &ComputeThread) -> Result<Option<V>> {
        self.read(key, ct, V::from_bytes)
            .await?
            .map_or(Ok(None), |value| value.map(Some).ok_or_else(not_an_entry))
    }

    /// Returns whether a key is in the map. Costs as much as [`get`](Self::get).
    pub async fn contains(&self, key: &K::Borrowed, ct: &ComputeThread) -> Result<bool> {
        Ok(self.read(key, ct, |_| ()).await?.is_some())
    }

    /// Reads the value of a key where it is: no allocation but those of `decode`.
    pub async fn read<R>(
        &self,
        key: &K::Borrowed,
        ct: &ComputeThread,
        decode: impl Fn(&[u8]) -> R,
    ) -> Result<Option<R>> {
        let key = K::bytes(key);
        let key = key.as_ref();
        let value = |bytes: &[u8]| {
            let (found, value) = split_entry::<K>(bytes)?;
            (found == key).then(|| decode(value))
        };
        let (hash, g) = (self.tables.hash(key), &ct.pin());
        if let Some(found) = self.tables.get_now(hash, value, g) {
            return found;
        }
        self.tables.get(hash, value, g).await
    }

    /// Inserts a key with a value. Returns `false` if the key is in the map, which does not change then.
    pub async fn insert(&self, key: &K::Borrowed, value: &V::Borrowed, ct: &ComputeThread) -> Result<bool> {
        self.put(key, value, Put::Insert, ct).await
    }

    /// Gives a key a value, whether or not it is in the map.
    pub async fn upsert(&self, key: &K::Borrowed, value: &V::Borrowed, ct: &ComputeThread) -> Result<()> {
        self.put(key, value, Put::Upsert, ct).await.map(drop)
    }

    /// Changes the value of a key. Returns `false` if the key is not in the map.
    pub async fn update(&self, key: &K::Borrowed, value: &V::Borrowed, ct: &ComputeThread) -> Result<bool> {
        self.put(key, value, Put::Update, ct).await
    }

    async fn put(
        &self,
        key: &K::Borrowed,
        value: &V::Borrowed,
        how: Put,
        ct: &ComputeThread,
    ) -> Result<bool> {
        let (key, value) = (K::bytes(key), V::bytes(value));
        let (key, value) = (key.as_ref(), value.as_ref());
        check_size(key, value)?;
        let g = &ct.pin();
        let hash = self.tables.hash(key);
        let length = entry_bytes::<K>(key, value);
        let mut entry = Blob::zeroed_in(g.near(self.tables.directory(hash).shard), length).await?;
        write_entry::<K>(key, value, Blob::bytes_mut(&mut entry));
        let is_key = |bytes: &[u8]| split_entry::<K>(bytes).is_some_and(|(found, _)| found == key);
        self.tables.put(hash, entry, how, is_key, g).await
    }

    /// Changes the value of a key from `expected` to `new`. Returns `false` if the key is not in the map, or has another value.
    pub async fn compare_and_update(
        &self,
        key: &K::Borrowed,
        expected: &V::Borrowed,
        new: &V::Borrowed,
        ct: &ComputeThread,
    ) -> Result<bool> {
        let (expected, new) = (V::bytes(expected), V::bytes(new));
        let (expected, new) = (expected.as_ref(), new.as_ref());
        let mut is_equal = false;
        self.decide(key, ct, |key, value| {
            is_equal = value == Some(expected);
            Ok(if is_equal { Decision::Store(new_entry::<K>(key, new)?) } else { Decision::Keep })
        })
        .await?;
        Ok(is_equal)
    }

    /// Removes a key. Returns whether it was in the map.
    pub async fn remove(&self, key: &K::Borrowed, ct: &ComputeThread) -> Result<bool> {
        let key = K::bytes(key);
        let read = None::<fn(&[u8])>;
        Ok(self.tables.remove(self.tables.hash(key.as_ref()), read, &ct.pin()).await?.is_some())
    }

    /// Removes a key. Returns its value, if it was in the map.
    pub async fn take(&self, key: &K::Borrowed, ct: &ComputeThread) -> Result<Option<V>> {
        let key = K::bytes(key);
        let key = key.as_ref();
        let read = |bytes: &[u8]| {
            let (found, value) = split_entry::<K>(bytes)?;
            (found == key).then(|| V::from_bytes(value))?
        };
        let removed = self.tables.remove(self.tables.hash(key), Some(read), &ct.pin()).await?;
        removed.map(|value| value.flatten().ok_or_else(not_an_entry)).transpose()
    }

    /// Inserts, changes or removes a key, atomically: `f` makes the new value of the old one, where `None` is for a key that is not in the map. It
    /// is called again if the value has changed meanwhile. Returns the old value.
    pub async fn modify(
        &self,
        key: &K::Borrowed,
        f: impl FnMut(Option<V>) -> Option<V>,
        ct: &ComputeThread,
    ) -> Result<Option<V>>
    where
        V: std::borrow::Borrow<V::Borrowed> + Clone,
    {
        let f = RefCell::new(f);
        let mut old = None;
        self.decide(key, ct, |key, value| {
            old = value.map(|value| V::from_bytes(value).ok_or_else(not_an_entry)).transpose()?;
            Ok(match (f.borrow_mut())(old.clone()) {
                Some(new) => Decision::Store(new_entry::<K>(key, V::bytes(new.borrow()).as_ref())?),
                None => Decision::Remove,
            })
        })
        .await?;
        Ok(old)
    }

    /// Makes of a key what `decide` makes of its value.
    async fn decide(
        &self,
        key: &K::Borrowed,
        ct: &ComputeThread,
        mut decide: impl FnMut(&[u8], Option<&[u8]>) -> Result<Decision>,
    ) -> Result<()> {
        let key = K::bytes(key);
        let key = key.as_ref();
        let mut failed = None;
        let decision = |entry: Option<&[u8]>| {
            let value = match entry.map(split_entry::<K>) {
                None => None,
                Some(Some((found, value))) if found == key => Some(value),
                Some(_) => return None,
            };
            Some(decide(key, value).unwrap_or_else(|error| {
                failed = Some(error);
                Decision::Keep
            }))
        };
        self.tables.modify(self.tables.hash(key), decision, &ct.pin()).await?;
        failed.map_or(Ok(()), Err)
    }

    /// Returns the values of several keys. The round trips of the slowest.
    pub async fn get_many(&self, keys: &[&K::Borrowed], ct: &ComputeThread) -> Result<Vec<Option<V>>> {
        ct.tasks(keys.len(), async |task| self.get(keys[task], ct).await).await
    }

    /// Inserts several keys, in any order. The round trips of the slowest. Returns for each whether it was absent.
    pub async fn insert_many(
        &self,
        pairs: &[(&K::Borrowed, &V::Borrowed)],
        ct: &ComputeThread,
    ) -> Result<Vec<bool>> {
        ct.tasks(pairs.len(), async |task| self.insert(pairs[task].0, pairs[task].1, ct).await).await
    }

    /// Gives several keys values, in any order. The round trips of the slowest.
    pub async fn upsert_many(
        &self,
        pairs: &[(&K::Borrowed, &V::Borrowed)],
        ct: &ComputeThread,
    ) -> Result<()> {
        let upsert = async |task: usize| self.upsert(pairs[task].0, pairs[task].1, ct).await;
        ct.tasks(pairs.len(), upsert).await.map(drop)
    }

    /// Changes the values of several keys, in any order. The round trips of the slowest. Returns for each whether it was in the map.
    pub async fn update_many(
        &self,
        pairs: &[(&K::Borrowed, &V::Borrowed)],
        ct: &ComputeThread,
    ) -> Result<Vec<bool>> {
        ct.tasks(pairs.len(), async |task| self.update(pairs[task].0, pairs[task].1, ct).await).await
    }

    /// Removes several keys, in any order. The round trips of the slowest. Returns for each whether it was in the map.
    pub async fn remove_many(&self, keys: &[&K::Borrowed], ct: &ComputeThread) -> Result<Vec<bool>> {
        ct.tasks(keys.len(), async |task| self.remove(keys[task], ct).await).await
    }

    /// Returns an iteration over the keys and their values. It has every key that is in the map throughout, once. A key that is inserted or removed
    /// meanwhile it has, or not.
    #[allow(clippy::iter_not_returning_iterator)] // each table is a READ, which an `Iterator` could not wait for
    pub fn iter<'a>(&'a self, ct: &'a ComputeThread) -> Iter<'a, K, V> {
        Iter::new(&self.tables, ct)
    }

    /// Returns the number of keys: exact while nobody changes the map. Two round trips for each table of at most 248 keys; no entry is read.
    pub async fn len(&self, ct: &ComputeThread) -> Result<u64> {
        self.tables.len(ct).await
    }

    /// Returns whether no key is in the map. See [`len`](Self::len).
    pub async fn is_empty(&self, ct: &ComputeThread) -> Result<bool> {
        Ok(self.len(ct).await? == 0)
    }

    /// Checks the invariants of a map that nobody changes: that each key is in its window, once, before any vacant slot; that links say of their
    /// entries what is true; that no table is frozen; and that the directory has each table once. Returns the number of keys.
    ///
    /// # Errors
    /// One that names the first fault.
    pub async fn check(&self, ct: &ComputeThread) -> Result<u64> {
        self.tables.check::<K, V>(ct).await
    }

    /// Finishes what dead clients have left half done: tables that were being replaced. Nobody need call it: an operation that meets such a table does
    /// the same. Four round trips for each table.
    pub async fn recover(&self, ct: &ComputeThread) -> Result<()> {
        self.tables.recover(ct).await
    }

    /// Frees the map. Nobody may use it any more. Three round trips for each table of at most 248 keys.
    pub async fn destroy(self, ct: &ComputeThread) -> Result<()> {
        self.tables.destroy(ct).await?;
        ct.delete(self.root).await
    }
}

impl<K: Bytes, V: Bytes> fmt::Debug for HashMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HashMap")
            .field("root", &self.root)
            .field("counters", &self.counters())
            .finish_non_exhaustive()
    }
}
// ANCHOR_END: all
