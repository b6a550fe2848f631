//! The Interlocked Hash Table: a tree of lists, whose pairs are changed under locks, and over which all threads iterate together.
//!
//! After Jenkins, Zhou and Spear ("Redesigning Go's Built-In Map to Support Concurrent Operations", PACT 2017). Dewan and Jenkins ("Paving the Way for Distributed
//! Non-Blocking Algorithms and Data Structures in the Partitioned Global Address Space Model", 2020) have ported it to distributed memory, with their reclamation. Keys and values are words, as in
//! [`InlineHashMap`](crate::InlineHashMap), which needs less memory. Here the tables that lead to a key are never replaced, so what a client remembers of them stays true, and the threads of a
//! run can share an iteration.
//!
//! # The scheme
//!
//! ```text
//!  level 0  root, a pointer list of 1,024 slots over all memory nodes
//!             │ slot: lock, link
//!             ├──▶ element list: state, 8 pairs of key and value
//!             └──▶ pointer list of 2,048 slots
//!  level 1          │
//!                   ├──▶ element list
//!                   └──▶ pointer list of 4,096 slots …
//! ```
//!
//! A key's hash chooses its slot in a pointer list, with another seed at each level. A slot's link is null, or leads to an element list, or to a pointer list:
//!
//! ```text
//!  null ── insertion, one CAS ──▶ element list ── insertion of a ninth pair, under the lock ──▶ pointer list
//! ```
//!
//! It never goes back. So a pointer list is never removed, and what a client remembers of one stays true. Lists below a slot are on its memory node. An element list has 144 bytes, and a
//! slot 16: all pointer lists of the first two levels have 32 MiB.
//!
//! # Invariants
//!
//! 1. A slot links to nothing, then to one element list, then to one pointer list: each link has one value of each kind at most.
//! 2. The words of an element list change only under the lock of its slot, while the slot links to it. An element list that is replaced does not change any more.
//! 3. The key of a pair does not change while the state has it as present. An insertion writes key and value before the state.
//! 4. Each change of the present pairs adds to the state's version of 55 bits, so a list's states do not recur.
//! 5. A key is in one list at most: that at the end of its path, which the table's seed determines.
//! 6. The CAS of a lock hits a slot, which lives as long as the table: never memory that was freed.
//!
//! # When operations take effect
//!
//! `get` takes no lock. Its last chain has four READs: of the slot's link, of the list's state, of the list, and of the state again. If the link shows the list, that was
//! current at this READ, and the guard protects it from then on. If both states are equal, the list had this state in between (4), so each present pair had its key (3), in whatever order the
//! words were read. If the list was replaced meanwhile, it shows what it had immediately before (2).
//!
//! Changes take the lock, and read the link and the list, in one chain; a second one changes words and releases the lock.
//!
//! | operation | takes effect | round trips: cold, warm |
//! |---|---|---|
//! | `get`, `contains` | at the READ of the value, of the second state if the key is absent, of the link if that is null; or immediately before the replacement of the list if that came earlier | D + 1 / 1 |
//! | `insert`, `upsert` of a new key | at the WRITE of the state | D + 2 / 2 |
//! | the same, as the first key of a slot | at the CAS of the link | D + 1 / 2 |
//! | the same, as the ninth key of a list | at the CAS of the link, which replaces the list | D + 3 / 3 |
//! | `update`, `upsert`, `compare_and_update` | at the WRITE of the value | D + 2 / 2 |
//! | `remove`, `take` | at the WRITE of the state | D + 2 / 2 |
//! | `modify` | as the one of these that it amounts to | D + 2 / 2 |
//! | any that changes nothing | at the READ of the list, or of the link | D + 1 / 1 |
//! | an iteration | each list at the READ of its value; see below | 2 for 2,048 slots |
//!
//! D is the number of pointer lists on the key's path: 1 up to some 4,000 keys, 2 up to some 8 million. *Warm*: the handle remembers the lists on the path. If its cache has the pointer
//! lists only, operations take one more. A `get` whose list changes meanwhile, but for values, is repeated.
//!
//! # Growth
//!
//! The client that inserts a ninth pair holds the lock of the list. It makes a pointer list, and element lists for the slots of the nine; one chain writes them, and the next replaces the link and
//! releases the lock. All memory is allocated before: if there is none, the insertion is an error and the table is as it was. The replaced list is retired, so that a client that reads it may
//! go on. Removed keys leave room in their lists, which are never merged.
//!
//! # Iteration
//!
//! An iterator reads neighbouring slots, up to 2,048 at once, and then their element lists, on all memory nodes at the same time. It begins at any slot of the root, so that iterators of
//! several clients do not meet. A list whose slot is locked is about to change, or to become a pointer list: the iterator puts it off, and comes back when it has visited the others. It does
//! not wait for the lock then: what it reads counts if the state did not change meanwhile, and else it comes back again. So no dead client holds it up.
//!
//! **Each key comes at most once, and each key that is in the table throughout comes exactly once.** An iterator visits each slot at one moment. If it finds an element list, it returns the keys of that
//! moment, and does not follow the slot again: a key that moves to a pointer list afterwards does not come a second time. If it finds a pointer list, it visits its slots instead, and has
//! returned none of their keys. A key never changes its path (5). So also a key that is removed and inserted again comes once at most. Keys of different lists are those of different moments.
//!
//! [`share`](InterlockedHashTable::share) divides the slots of the root among the threads of a run: together they have each key once, under the same promise.
//!
//! # What a dead client, or a dropped future, leaves
//!
//! A lock, at most, which the next client takes over when the owner is known to be dead; a future that is dropped releases its own. The data is whole after each WRITE of a chain: an insertion
//! without its state has no effect, and other changes are one word. So the next owner repairs nothing. Lists that no slot links to are freed: by their chain, or by a sweep if their client
//! is dead. A replaced list whose client has died before it was retired is freed by a sweep.
//!
//! # Keys with equal hashes
//!
//! Keys are compared exactly, so two keys may have equal hashes. That more than 8 have is an error of the insertion. The hash is keyed, so nobody outside can make such keys.
//!
//! ```
//! use farfield::prelude::*;
//! use farfield_collections::InterlockedHashTable;
//!
//! # fn main() -> farfield::Result<()> {
//! Cluster::connect("local:nodes=2")?.run(4, async |ct| {
//!     let root = ct.root_or_init("squares", async || InterlockedHashTable::<u32, u64>::create(ct).await).await?;
//!     let squares = InterlockedHashTable::attach(root, ct).await?;
//!     for number in (0..1000).filter(|number| number % 4 == ct.index() as u32) {
//!         squares.insert(&number, &u64::from(number).pow(2), ct).await?;
//!     }
//!     ct.barrier("inserted").await?;
//!     assert_eq!(squares.get(&3, ct).await?, Some(9));
//!     // Each key is one thread's.
//!     let (mut mine, mut sum) = (squares.share(ct), 0);
//!     while let Some((_, square)) = mine.next().await? {
//!         sum += square;
//!     }
//!     # let _ = sum;
//!     Ok(())
//! })?;
//! # Ok(())
//! # }
//! ```

mod lists;
mod walk;

use std::fmt;
use std::marker::PhantomData;

use farfield::layout::fingerprint;
use farfield::prelude::*;
use farfield::{Error, error};

use super::hash_map::Counters;
use super::hash_map::counters::Counting;
use super::hash_map::layout::seed;
use lists::{Cache, Change, List, Lists, ROOT_SLOTS, Slot};
use walk::{Walk, not_of_its_types, part_len};

pub use lists::InterlockedHashTableRoot;
pub use walk::InterlockedIter;

/// The cache of a handle, unless [`InterlockedHashTable::with_cache`] sets another size.
const CACHE_BYTES: usize = 1 << 20;

/// A map of words in far memory, which grows while it is used, and over which all threads of a run iterate together. The handle of a thread, for all of its tasks.
///
/// Its methods are those of [`InlineHashMap`](crate::InlineHashMap), with more iterators. The source of this module has the scheme, and the table of round trips.
pub struct InterlockedHashTable<K: Word, V: Word> {
    root: RemotePtr<InterlockedHashTableRoot<K, V>>,
    lists: Lists,
    stored: PhantomData<fn() -> (K, V)>,
}

impl<K: Word, V: Word> InterlockedHashTable<K, V> {
    /// Stands for the types of keys and values.
    const TYPES: u64 =
        fingerprint::array(fingerprint::wrap("interlocked", K::FINGERPRINT), V::FINGERPRINT as usize);

    /// Creates an empty table over all memory nodes. Two round trips. It has 16 KiB.
    ///
    /// If it fails, nothing is left. If its future is dropped, the parts that were written are lost until a sweep.
    ///
    /// # Errors
    /// [`Error::InvalidPointer`] if the cluster has addresses that a link with a tag can not hold; those of an allocation.
    pub async fn create(ct: &ComputeThread) -> Result<RemotePtr<InterlockedHashTableRoot<K, V>>> {
        Self::create_masked(u64::MAX, ct).await
    }

    /// Creates a table whose hashes have some bits only: for tests of keys with equal hashes.
    #[doc(hidden)]
    pub async fn create_masked(
        mask: u64,
        ct: &ComputeThread,
    ) -> Result<RemotePtr<InterlockedHashTableRoot<K, V>>> {
        ct.check_compressible()?;
        let parts = ct.nodes().min(ROOT_SLOTS as usize);
        let written = ct.tasks(parts, async |part| {
            let slots = (0..part_len(part as u64, parts as u64)).map(|_| Slot::init()).collect();
            let part = List::new_in(ct.on_node(part as u16), List::init(slots));
            // A failure of one does not lose the others.
            Ok(async { part.await?.write(ct).await }.await)
        });
        let (mut parts, mut failed) = (Vec::new(), None);
        for part in written.await? {
            match part {
                Ok(part) => parts.push(part),
                Err(error) => failed = Some(error),
            }
        }
        let made = async {
            failed.map_or(Ok(()), Err)?;
            let init = InterlockedHashTableRoot::init(seed(ct), mask, Self::TYPES, parts.clone());
            InterlockedHashTableRoot::new_in(ct, init).await?.write(ct).await
        };
        let root = made.await;
        if root.is_err() {
            for part in parts {
                ct.delete(part).await?;
            }
        }
        root
    }

    /// Makes a handle of a table. Two round trips.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the table has other types of keys or values, or is corrupt.
    pub async fn attach(root: RemotePtr<InterlockedHashTableRoot<K, V>>, ct: &ComputeThread) -> Result<Self> {
        let g = &ct.pin();
        let refused = |reason| {
            let value = format!("{root:?}").into();
            Error::from(error::InvalidArgument { argument: "root", value, reason })
        };
        let table = root.read(g).await?;
        if table.types != Self::TYPES {
            return Err(refused("the table has keys or values of other types"));
        }
        if !(1..=ROOT_SLOTS).contains(&table.parts.len()) {
            return Err(refused("the table has no root, or too many parts of one"));
        }
        let parts = table.parts.read(g).await?;
        let (cache, counting) = (Cache::new(CACHE_BYTES), Counting::default());
        let lists = Lists { seed: table.seed, mask: table.mask, parts, cache, counting };
        Ok(Self { root, lists, stored: PhantomData })
    }

    /// Sets the size of the handle's cache, for links of slots. 1 MiB by default: for some 30,000 slots, of which those that link to pointer lists are kept longest.
    #[must_use]
    pub fn with_cache(mut self, bytes: usize) -> Self {
        self.lists.cache = Cache::new(bytes);
        self
    }

    /// Returns what this handle has counted. `directory_misses` are slots that it did not remember, and `stale` element lists that had been replaced; `growths` are pointer lists
    /// that it made, `retries` READs of a list that was changed meanwhile, and `waits` those for locks.
    pub fn counters(&self) -> Counters {
        self.lists.counting.get()
    }

    /// Returns the value of a key. Takes no lock, and waits for none.
    pub async fn get(&self, key: &K, ct: &ComputeThread) -> Result<Option<V>> {
        self.lists.get(key.to_word(), &ct.pin()).await?.map(value).transpose()
    }

    /// Returns whether a key is in the table. Costs as much as [`get`](Self::get).
    pub async fn contains(&self, key: &K, ct: &ComputeThread) -> Result<bool> {
        Ok(self.lists.get(key.to_word(), &ct.pin()).await?.is_some())
    }

    /// Inserts a key with a value. Returns `false` if the key is in the table, which does not change then.
    ///
    /// # Errors
    /// Those of a lock and of an allocation; the table is as it was after the latter. An error if too many keys have equal hashes.
    pub async fn insert(&self, key: &K, value: &V, ct: &ComputeThread) -> Result<bool> {
        let new = value.to_word();
        let insert = |old: Option<u64>| if old.is_some() { Change::Keep } else { Change::Store(new) };
        Ok(self.lists.change(key.to_word(), insert, &ct.pin()).await?.is_none())
    }

    /// Gives a key a value, whether or not it is in the table.
    ///
    /// # Errors
    /// Those of [`insert`](Self::insert).
    pub async fn upsert(&self, key: &K, value: &V, ct: &ComputeThread) -> Result<()> {
        let new = value.to_word();
        self.lists.change(key.to_word(), |_| Change::Store(new), &ct.pin()).await.map(drop)
    }

    /// Changes the value of a key. Returns `false` if the key is not in the table.
    pub async fn update(&self, key: &K, value: &V, ct: &ComputeThread) -> Result<bool> {
        let new = value.to_word();
        let update = |old: Option<u64>| if old.is_some() { Change::Store(new) } else { Change::Keep };
        Ok(self.lists.change(key.to_word(), update, &ct.pin()).await?.is_some())
    }

    /// Changes the value of a key from `expected` to `new`. Returns `false` if the key is not in the table, or has another value.
    pub async fn compare_and_update(
        &self,
        key: &K,
        expected: &V,
        new: &V,
        ct: &ComputeThread,
    ) -> Result<bool> {
        let (expected, new) = (Some(expected.to_word()), new.to_word());
        let update = |old| if old == expected { Change::Store(new) } else { Change::Keep };
        Ok(self.lists.change(key.to_word(), update, &ct.pin()).await? == expected)
    }

    /// Removes a key. Returns whether it was in the table.
    pub async fn remove(&self, key: &K, ct: &ComputeThread) -> Result<bool> {
        Ok(self.lists.change(key.to_word(), |_| Change::Remove, &ct.pin()).await?.is_some())
    }

    /// Removes a key. Returns its value, if it was in the table.
    pub async fn take(&self, key: &K, ct: &ComputeThread) -> Result<Option<V>> {
        let taken = self.lists.change(key.to_word(), |_| Change::Remove, &ct.pin()).await?;
        taken.map(value).transpose()
    }

    /// Inserts, changes or removes a key, atomically: `f` makes the new value of the old one, where `None` is for a key that is not in the table. It
    /// is called again if another client was faster, or the key's list has to grow twice. Returns the old value.
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
        let old = self.lists.change(key.to_word(), modify, &ct.pin()).await?;
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

    /// Changes the values of several keys, in any order. The round trips of the slowest. Returns for each whether it was in the table.
    pub async fn update_many(&self, pairs: &[(&K, &V)], ct: &ComputeThread) -> Result<Vec<bool>> {
        ct.tasks(pairs.len(), async |task| self.update(pairs[task].0, pairs[task].1, ct).await).await
    }

    /// Removes several keys, in any order. The round trips of the slowest. Returns for each whether it was in the table.
    pub async fn remove_many(&self, keys: &[&K], ct: &ComputeThread) -> Result<Vec<bool>> {
        ct.tasks(keys.len(), async |task| self.remove(keys[task], ct).await).await
    }

    /// Returns an iteration over the keys and their values, from a random slot on. Each key comes at most once, and each key that is in the table throughout exactly once, also if its
    /// list becomes a pointer list meanwhile. A key that is inserted or removed meanwhile comes, or not. The keys of a list are those of one moment.
    #[allow(clippy::iter_not_returning_iterator)] // lists are READs, which an `Iterator` could not wait for
    pub fn iter<'a>(&'a self, ct: &'a ComputeThread) -> InterlockedIter<'a, K, V> {
        self.iter_from(ct.random_range(0..ROOT_SLOTS), ct)
    }

    /// Returns an iteration as [`iter`](Self::iter) does, from a slot of the root on: modulo 1,024, which it has. It ends before this slot.
    pub fn iter_from<'a>(&'a self, slot: u64, ct: &'a ComputeThread) -> InterlockedIter<'a, K, V> {
        InterlockedIter::new(&self.lists, ct, Walk::from(&self.lists, slot))
    }

    /// Returns an iteration over this thread's share of the keys, with the promise of [`iter`](Self::iter): all threads of the run together have each key once. A share is on as few memory nodes as
    /// possible.
    pub fn share<'a>(&'a self, ct: &'a ComputeThread) -> InterlockedIter<'a, K, V> {
        InterlockedIter::new(&self.lists, ct, Walk::share(&self.lists, ct.index(), ct.threads()))
    }

    /// Returns the number of keys: exact while nobody changes the table. Two round trips for 2,048 slots.
    ///
    /// # Errors
    /// Those of a READ.
    pub async fn len(&self, ct: &ComputeThread) -> Result<u64> {
        self.lists.len(ct).await
    }

    /// Returns whether no key is in the table. See [`len`](Self::len).
    ///
    /// # Errors
    /// Those of a READ.
    pub async fn is_empty(&self, ct: &ComputeThread) -> Result<bool> {
        Ok(self.len(ct).await? == 0)
    }

    /// Checks the invariants of a table that nobody changes: that each key is at the end of its path, once; that keys and values are of their types; that no lock is held or
    /// abandoned; and that pointer lists have the slots of their level. Returns the number of keys.
    ///
    /// # Errors
    /// One that names the first fault.
    pub async fn check(&self, ct: &ComputeThread) -> Result<u64> {
        self.lists.check::<K, V>(ct).await
    }

    /// Releases the locks of dead clients. Nobody need call it: an operation that meets one does the same. Two round trips for 2,048 slots, and two for each lock of a dead client.
    ///
    /// # Errors
    /// Those of a lock.
    pub async fn recover(&self, ct: &ComputeThread) -> Result<()> {
        self.lists.recover(ct).await
    }

    /// Frees the table. Nobody may use it any more. Two round trips for 2,048 slots.
    ///
    /// # Errors
    /// Those of a READ.
    pub async fn destroy(self, ct: &ComputeThread) -> Result<()> {
        self.lists.destroy(ct).await?;
        ct.delete(self.root).await
    }
}

/// Decodes a value.
#[inline]
fn value<V: Word>(word: u64) -> Result<V> {
    V::from_word(word).ok_or_else(not_of_its_types)
}

impl<K: Word, V: Word> fmt::Debug for InterlockedHashTable<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InterlockedHashTable")
            .field("root", &self.root)
            .field("counters", &self.counters())
            .finish_non_exhaustive()
    }
}
