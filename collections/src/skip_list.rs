//! An ordered map of words: a skip list, lock-free.
//!
//! After Pugh ("Skip Lists: A Probabilistic Alternative to Balanced Trees", 1990), with the marks of Harris (DISC 2001) and Michael (SPAA 2002), as Fraser uses them ("Practical
//! Lock-Freedom", 2004). Reclamation, the replacement of towers and the way in which a search reads several of them at once are this module's own.
//!
//! # The scheme
//!
//! ```text
//!  level 2   head ───────────────────────► 40 ────────────────────► null
//!  level 1   head ──────► 20 ────────────► 40 ────────────► 70 ───► null
//!  bottom    head ─► 10 ► 20 ► 25 ─►(30)─► 40 ─► 50 ─► 60 ─► 70 ───► null      (30) is dead
//! ```
//!
//! A *tower* has a key, its value and a link for each of its levels: one in four has a second level, one in 16 a third. Key and value never change. A link is a tagged link: it also
//! has the height of the tower that it points to, so a tower is read as a whole in one round trip, and a bit that says that the tower *with* the link is dead at this level. Such a link is
//! frozen. All towers are on the memory node of the head, unless that is full, so one chain reaches any of them.
//!
//! - A key is inserted by a CAS of the bottom link in front of it, then linked in the levels above.
//! - It is removed by the CAS that marks the tower's bottom link: the tower is *dead*.
//! - It gets another value by the same CAS, if that makes the bottom link point to a new tower with this key, and marks it.
//!
//! Dead towers are transparent: a search follows their links, whatever their keys are, and takes them out. Levels above the bottom only show the way, so they need not be complete.
//!
//! # Invariants
//!
//! 1. Live towers ascend strictly along the bottom. A live tower is linked at the bottom, and no frozen link is ever changed; so nothing is inserted behind a dead tower.
//! 2. Only links that are marked are taken out. In the levels above, a tower is linked in front of a live one only, so that keys ascend there, those of dead towers too.
//! 3. A tower is linked in a level after all levels below. If any of its links is marked, no search continues from it to a lower level. So a search never uses a link of a tower
//!    that was not linked in that level when it was read.
//! 4. Only its inserter links a tower above the bottom. Meanwhile it holds the tower's lock, and it has seen no link marked since it took the lock. Nobody waits for this lock.
//! 5. **A tower is taken out of the bottom last**, and only by a thread that knows that it is in no level above and never will be: all links were seen marked, then the lock free, then the tower
//!    was found in none of these levels, or taken out of each. The CAS of the bottom link in front of it succeeds once, since a dead tower is not linked again (1, 2). This CAS retires the
//!    tower, whoever has posted it, and whether or not somebody waits for it ([`op::replace`]).
//!
//! So at any moment a tower that is not retired can be reached along the bottom. Whatever a dead client or a dropped future has left half done, the next search that passes finishes
//! it; and a level can not be linked after a tower was retired (4, 5).
//!
//! # When operations take effect
//!
//! With *e* towers visited, the head included; each is a round trip, unless the handle remembers the way.
//!
//! | operation | takes effect | round trips |
//! |---|---|---|
//! | `get` | at the READ of the key's bottom link; if the key is absent, when the bottom link in front of its place was read | e |
//! | `insert` | at the CAS of the bottom link; if the key is there, as `get` | e + 1 |
//! | `update`, `upsert`, `compare_and_update`, `modify` | at the CAS of the tower's bottom link | e + 1 |
//! | `remove`, `take` | at the CAS that marks the tower's bottom link | e + 1 |
//! | `first` | at some moment when the key was the first | 2; 3 behind dead towers |
//! | a scan | each key by itself | 1 a key; 1 for up to 32 that the handle remembers |
//!
//! One tower in four has more levels: its insertion takes one round trip more for each of them, after it has taken effect, and its removal one more for all of them. The last step of
//! each, such as the CAS that retires a tower, is posted, and not waited for.
//!
//! **What a handle remembers.** Towers that it has read, with their links, up to a number of bytes ([`with_cache`](SkipList::with_cache)): the highest, once there are too many. A search walks along
//! these first, without a round trip, and then reads in one chain the head and all towers of this way. A tower counts only if the link by which the search comes to it was read before the tower
//! itself, in this operation, so what was remembered may be outdated: that costs a round trip, never a wrong answer. If the way is known to the end, e is 1.
//!
//! # What a dead client, or a dropped future, leaves
//!
//! A key is inserted or not, removed or not. A dead tower stays at the bottom, where each passage costs a round trip, until a search takes it out: an insertion or a removal, or
//! [`recover`](SkipList::recover). A tower whose inserter died has fewer levels, and its lock counts as free once the client is known to be dead. Its links in the other levels may be to towers
//! that were taken out since. So links above the bottom are [hidden](Tagged::hidden): each tower that is in use can be reached along the bottom. A new tower that no link holds is freed by its chain, or
//! by a sweep if its client is dead.
//!
//! ```
//! use farfield::prelude::*;
//! use farfield_collections::SkipList;
//!
//! # fn main() -> farfield::Result<()> {
//! Cluster::connect("local:")?.run(2, async |ct| {
//!     let root = ct.root_or_init("squares", async || SkipList::<u32, u64>::create(ct).await).await?;
//!     let squares = SkipList::attach(root, ct).await?;
//!     for n in (0..20).filter(|n| n % 2 == ct.index() as u32) {
//!         squares.insert(&n, &u64::from(n * n), ct).await?;
//!     }
//!     ct.barrier("inserted").await?;
//!     let (mut scan, mut found) = (squares.range(5..=7, ct)?, Vec::new());
//!     while let Some(pair) = scan.next().await? {
//!         found.push(pair);
//!     }
//!     assert_eq!(found, [(5, 25), (6, 36), (7, 49)]);
//!     assert_eq!(squares.last(ct).await?, Some((19, 361)));
//!     Ok(())
//! })?;
//! # Ok(())
//! # }
//! ```

mod change;
mod search;
mod towers;
mod walk;

use std::collections::VecDeque;
use std::fmt;
use std::ops::{self, RangeBounds};

use farfield::layout::fingerprint;
use farfield::prelude::*;
use farfield::{Error, error};

use change::Change;
pub(crate) use towers::{Bound, Tower, Towers};

pub use towers::SkipListRoot;
pub use walk::SkipScan;

/// The cache of a handle, unless [`SkipList::with_cache`] sets another size.
const CACHE_BYTES: usize = 1 << 20;

/// An ordered map of words in far memory. The handle of a thread, for all of its tasks.
pub struct SkipList<K: Word, V: Word> {
    root: RemotePtr<SkipListRoot<K, V>>,
    towers: Towers<K, V>,
}

impl<K: Word + Ord, V: Word> SkipList<K, V> {
    /// Stands for the types of keys and values.
    const TYPES: u64 =
        fingerprint::array(fingerprint::wrap("skip list", K::FINGERPRINT), V::FINGERPRINT as usize);

    /// Creates an empty list. Two round trips.
    ///
    /// # Errors
    /// [`Error::InvalidPointer`] if the cluster has addresses that a link with a tag can not hold; those of an allocation.
    pub async fn create(ct: &ComputeThread) -> Result<RemotePtr<SkipListRoot<K, V>>> {
        ct.check_compressible()?;
        let head = Towers::create_head(ct).await?;
        let root = SkipListRoot::new_in(ct.near(head), SkipListRoot::init(Self::TYPES, head));
        root.await?.write(ct).await
    }

    /// Makes a handle of a list. One round trip.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the list has other types of keys or values.
    pub async fn attach(root: RemotePtr<SkipListRoot<K, V>>, ct: &ComputeThread) -> Result<Self> {
        let list = root.read(&ct.pin()).await?;
        if list.types != Self::TYPES {
            let reason = "the list has keys or values of other types";
            return Err(invalid("root", format!("{root:?}"), reason));
        }
        Ok(Self { root, towers: Towers::new(list.head, if ct.is_immediate() { 0 } else { CACHE_BYTES }) })
    }

    /// Sets the size of the handle's cache, 1 MiB by default: 10,000 towers. Where a round trip costs nothing, there is none by default.
    #[must_use]
    pub fn with_cache(self, bytes: usize) -> Self {
        Self { towers: self.towers.with_cache(bytes), ..self }
    }

    /// Returns the value of a key.
    pub async fn get(&self, key: &K, ct: &ComputeThread) -> Result<Option<V>> {
        self.towers.get(*key, &ct.pin()).await
    }

    /// Returns whether a key is in the list. Costs as much as [`get`](Self::get).
    pub async fn contains(&self, key: &K, ct: &ComputeThread) -> Result<bool> {
        Ok(self.get(key, ct).await?.is_some())
    }

    /// Inserts a key with a value. Returns `false` if the key is in the list, which does not change then.
    ///
    /// # Errors
    /// Those of an allocation, as for each change: the list is as it was then.
    pub async fn insert(&self, key: &K, value: &V, ct: &ComputeThread) -> Result<bool> {
        let insert = |old: Option<V>| if old.is_some() { Change::Keep } else { Change::Store(*value) };
        Ok(self.towers.change(*key, insert, &ct.pin()).await?.is_none())
    }

    /// Gives a key a value, whether or not it is in the list.
    pub async fn upsert(&self, key: &K, value: &V, ct: &ComputeThread) -> Result<()> {
        self.towers.change(*key, |_| Change::Store(*value), &ct.pin()).await.map(drop)
    }

    /// Changes the value of a key. Returns `false` if the key is not in the list.
    pub async fn update(&self, key: &K, value: &V, ct: &ComputeThread) -> Result<bool> {
        let update = |old: Option<V>| if old.is_some() { Change::Store(*value) } else { Change::Keep };
        Ok(self.towers.change(*key, update, &ct.pin()).await?.is_some())
    }

    /// Changes the value of a key from `expected` to `new`. Returns `false` if the key is not in the list, or has another value.
    pub async fn compare_and_update(
        &self,
        key: &K,
        expected: &V,
        new: &V,
        ct: &ComputeThread,
    ) -> Result<bool> {
        let is_it = |old: Option<V>| old.is_some_and(|old| old.to_word() == expected.to_word());
        let update = |old| if is_it(old) { Change::Store(*new) } else { Change::Keep };
        self.towers.change(*key, update, &ct.pin()).await.map(is_it)
    }

    /// Removes a key. Returns whether it was in the list.
    pub async fn remove(&self, key: &K, ct: &ComputeThread) -> Result<bool> {
        Ok(self.take(key, ct).await?.is_some())
    }

    /// Removes a key. Returns its value, if it was in the list.
    pub async fn take(&self, key: &K, ct: &ComputeThread) -> Result<Option<V>> {
        self.towers.change(*key, |_| Change::Remove, &ct.pin()).await
    }

    /// Inserts, changes or removes a key, atomically: `f` makes the new value of the old one, where `None` is for a key that is not in the list. It is called again if the key has
    /// changed meanwhile. Returns the old value.
    pub async fn modify(
        &self,
        key: &K,
        mut f: impl FnMut(Option<V>) -> Option<V>,
        ct: &ComputeThread,
    ) -> Result<Option<V>> {
        let modify = |old| f(old).map_or(Change::Remove, Change::Store);
        self.towers.change(*key, modify, &ct.pin()).await
    }

    /// Returns the values of several keys. The round trips of the slowest.
    pub async fn get_many(&self, keys: &[&K], ct: &ComputeThread) -> Result<Vec<Option<V>>> {
        ct.tasks(keys.len(), async |task| self.get(keys[task], ct).await).await
    }

    /// Returns the first key and its value: at some moment meanwhile, it was the first.
    pub async fn first(&self, ct: &ComputeThread) -> Result<Option<(K, V)>> {
        let g = &ct.pin();
        Ok(self.towers.front(false, g).await?.found.map(|found| (found.key, found.value)))
    }

    /// Returns the last key and its value. Like the last of a scan: no key behind it was in the list throughout.
    pub async fn last(&self, ct: &ComputeThread) -> Result<Option<(K, V)>> {
        let g = &ct.pin();
        let last = self.towers.find(&Bound::Last, false, g).await?.pred;
        Ok((last.at != self.towers.head).then_some((last.key, last.value)))
    }

    /// Returns a scan of the keys in a range, in ascending order.
    ///
    /// It has every key that is in the list throughout the scan, once, with a value that the key had meanwhile. A key that is inserted or removed meanwhile it has, or not. Keys always ascend.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the bounds are reversed.
    pub fn range<'a>(
        &'a self,
        bounds: impl RangeBounds<K>,
        ct: &'a ComputeThread,
    ) -> Result<SkipScan<'a, K, V>> {
        let (from, to) = (bounds.start_bound().cloned(), bounds.end_bound().cloned());
        let is_reversed = match (from, to) {
            (ops::Bound::Excluded(from), ops::Bound::Excluded(to)) => from >= to,
            (
                ops::Bound::Included(from) | ops::Bound::Excluded(from),
                ops::Bound::Included(to) | ops::Bound::Excluded(to),
            ) => from > to,
            _ => false,
        };
        if is_reversed {
            let value = format!("({from:?}, {to:?})");
            return Err(invalid("bounds", value, "a range begins below its end"));
        }
        let from = match from {
            ops::Bound::Included(from) => Bound::At(from),
            ops::Bound::Excluded(from) => Bound::Behind(from),
            ops::Bound::Unbounded => Bound::First,
        };
        Ok(SkipScan { towers: &self.towers, ct, from, to, ready: VecDeque::new(), is_done: false })
    }

    /// Returns a scan of all keys: see [`range`](Self::range).
    #[allow(clippy::iter_not_returning_iterator)] // each key is a READ, which an `Iterator` could not wait for
    pub fn iter<'a>(&'a self, ct: &'a ComputeThread) -> SkipScan<'a, K, V> {
        let (to, ready) = (ops::Bound::Unbounded, VecDeque::new());
        SkipScan { towers: &self.towers, ct, from: Bound::First, to, ready, is_done: false }
    }

    /// Returns the number of keys: exact while nobody changes the list. As many round trips as a scan.
    pub async fn len(&self, ct: &ComputeThread) -> Result<u64> {
        self.towers.len(ct).await
    }

    /// Returns whether no key is in the list. Costs as much as [`first`](Self::first).
    pub async fn is_empty(&self, ct: &ComputeThread) -> Result<bool> {
        Ok(self.first(ct).await?.is_none())
    }

    /// Checks the invariants of a list that nobody changes: that live keys ascend, that towers which are linked in a level are linked at the bottom, in the same order, and that no tower is
    /// locked. Returns the number of keys.
    ///
    /// # Errors
    /// One that names the first fault.
    pub async fn check(&self, ct: &ComputeThread) -> Result<u64> {
        self.towers.check(false, ct).await
    }

    /// Takes out what dead clients have left: dead towers. Nobody need call it: a change that passes them does the same. A round trip for each tower, and a search for each dead one.
    ///
    /// # Errors
    /// Those of a READ.
    pub async fn recover(&self, ct: &ComputeThread) -> Result<()> {
        self.towers.recover(ct).await
    }

    /// Frees the list. Nobody may use it any more. One round trip for each tower.
    ///
    /// # Errors
    /// Those of a READ.
    pub async fn destroy(self, ct: &ComputeThread) -> Result<()> {
        self.towers.destroy(ct).await?;
        ct.delete(self.root).await
    }
}

#[cold]
pub(crate) fn invalid(argument: &'static str, value: String, reason: &'static str) -> Error {
    Error::from(error::InvalidArgument { argument, value: value.into(), reason })
}

impl<K: Word, V: Word> fmt::Debug for SkipList<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SkipList").field("root", &self.root).finish_non_exhaustive()
    }
}
