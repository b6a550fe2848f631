//! An ordered map: a B-tree whose nodes are changed by one CAS, lock-free.
//!
//! The slots of a node are written once, as in the Bz-tree (Arulraj, Levandoski, Minhas and Larson, "`BzTree`: A High-Performance Latch-Free Range Index for Non-Volatile Memory",
//! PVLDB 2018), but a header of one word says which of them are live, so no CAS of several words is needed. Clients remember the nodes above the leaves, as in Sherman (Wang, Lu and
//! Shu, SIGMOD 2022).
//!
//! # The scheme
//!
//! ```text
//!  root ── top ── node ─┬─ header: live slots, frozen
//!                       ├─ claims: slots that were claimed
//!                       └─ 60 slots: separator, link to a child ──── leaf ─┬─ header, claims
//!                                                                          └─ 60 slots: key, value
//! ```
//!
//! A *leaf* has keys and values, the others have *separators* and links to children. A child has the keys from its separator on, below the next one; this range never changes. An operation
//! finds a leaf by the nodes that its handle remembers, and asks for one READ of the leaf.
//!
//! - To **insert**, or to change a value, a client claims a slot by an FAA of `claims` in the chain that reads the leaf. A second chain writes the slot, and exchanges the header by
//!   a CAS: the new slot is live, and that of the old value is not.
//! - To **remove**, a CAS of the header suffices.
//! - A node without free slots is **replaced**, by one or by two. Its header is frozen by a CAS, and its live slots are copied to new nodes. These are linked to by claimed slots of the
//!   parent, whose header is exchanged by a CAS: all at once the new slots are live, and the old one is not. A node with few live slots is replaced together with a neighbour.
//!
//! So there is nothing between a split and no split: there are no links between neighbours, and a client that dies at any moment leaves nothing to be undone.
//!
//! Where keys are byte strings, a slot has the 8 bytes behind the prefix that all keys of the node's range have in common. A longer separator is in a byte string of its own; a leaf links to
//! an *entry* with the whole key and the value. The link has 7 bits of a hash of the key, so a key's entry is mostly the only one that is read. Where values are byte strings and
//! keys are words, it is the same, but a slot has the whole key.
//!
//! # Invariants
//!
//! 1. A slot is written only by the client that has claimed it, and before it becomes live. It becomes live once, and ceases to be once. So a header never recurs, and what a live slot has
//!    does not change.
//! 2. A header changes by CAS only, and not at all once it is frozen.
//! 3. The keys of a leaf are different, since a CAS that adds one fails if any slot became live since the client has read them all.
//! 4. A node is *current* from the moment at which the top's link, or a live slot of a current node, links to it, until it is replaced. It is frozen before that. So a node that
//!    was current, and is not frozen, is current.
//! 5. An object is retired by the client that makes its link null: that of a slot which is not live. Whoever replaces a node does that with all such slots, and makes the null links of
//!    claimed slots different from null, so that nobody can put something there any more.
//! 6. A slot's words are `UNWRITTEN`, a random number, or null, until the client that claimed it writes them. If it writes others later, since its CAS has failed and it wants another value
//!    now, the CAS that makes the slot live sets a bit of the header, for good.
//!
//! The words of a READ come in any order on a real device: one that has found a slot live may have read that slot before it was written. By (6) this shows. In a header without that bit,
//! a live slot has the words that were written first, so a READ with no unwritten word in a live slot has found what these have. Any other is repeated, as two READs in one chain: of
//! the header, and of the leaf behind it. So is one that finds a key or a value which is `UNWRITTEN` by chance.
//!
//! # What a handle remembers
//!
//! It remembers nodes above the leaves, with the epoch of the guard under which they were current. A guard of that epoch protects such a node, and the children that were live then, even if they have
//! been replaced since: see [`Guard::epoch`]. So an operation may read the leaf without anything else, and knows by (4) whether it is current: a frozen leaf costs another round trip, to read its
//! parent anew. In a later epoch, the first operation of a handle below a node reads the heads of that node and of those above it which it has not read in that epoch, by one chain from the top on. Each
//! node has a random identity, so memory that was freed and is another node's by now is not mistaken for the node. What a client makes of a parent when it splits or merges its children, its
//! handle knows without a READ.
//!
//! # When operations take effect
//!
//! | operation | takes effect | round trips: cold, warm |
//! |---|---|---|
//! | `get`, `contains` | at the READ of the header; if the leaf is frozen, at the READ that then finds its parent | h / 1 |
//! | `insert`, `update`, `upsert`, `compare_and_update`, `modify` | at the CAS of the header | h + 1 / 2 |
//! | `remove`, `take` | at the CAS of the header | h + 1 / 2 |
//! | any that changes nothing | at the READ of the header | h / 1 |
//! | a scan | each leaf at the READ of its header | h / 1 for up to 16 leaves of one parent |
//!
//! `h` is the number of levels: 2 up to some 900 keys, 3 up to 35,000, 4 up to 1.4 million. *Cold*: the handle was just attached. *Warm*: it knows the nodes above the leaf, and has used
//! one below the leaf's parent in this epoch; else there is one more. Where there are entries, `get` needs one more, and so do the others if there is a key of the same 8 bytes. An insertion into a full
//! leaf takes 5: of the old leaf, of a claim in the parent, to freeze, to write the new ones, and to exchange the parent's header. With it the key is inserted. A full parent is replaced before.
//!
//! # Scans
//!
//! A scan has each key that is in the map throughout, once, in order; with a value that it had meanwhile. A key that is inserted or removed meanwhile it has or not. Each leaf is read as of one moment.
//!
//! # What a dead client, or a dropped future, leaves
//!
//! A claimed slot, which is used when the node is replaced. A frozen node: it can be read, and the next client that would change it replaces it. An object that a slot links to which is not live: it
//! is freed when the node is replaced, or the map is destroyed. An object that no slot links to is freed by its chain, or by a sweep if its client is dead. The exception is a new top, of which
//! there are as many as levels: if its future is dropped while another client makes one, it is lost.
//!
//! ```
//! use farfield::prelude::*;
//! use farfield_collections::OrderedMap;
//!
//! # fn main() -> farfield::Result<()> {
//! Cluster::connect("local:nodes=2")?.run(4, async |ct| {
//!     let root = ct.root_or_init("ages", async || OrderedMap::<String, u64>::create(ct).await).await?;
//!     let ages = OrderedMap::attach(root, ct).await?;
//!     let name = ["Ada", "Grace", "Barbara", "Frances"][ct.index()];
//!     ages.insert(name, &(30 + name.len() as u64), ct).await?;
//!     ct.barrier("inserted").await?;
//!     let mut names = ages.range("B".to_owned().., ct)?;
//!     assert_eq!(names.next().await?, Some(("Barbara".to_owned(), 37)));
//!     assert_eq!(names.next().await?, Some(("Frances".to_owned(), 37)));
//!     Ok(())
//! })?;
//! # Ok(())
//! # }
//! ```

mod entries;
mod leaf;
mod node;
mod restructure;
mod scan;
mod tree;
mod walk;

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};

use farfield::layout::fingerprint;
use farfield::prelude::*;

use crate::Key;
use crate::entry::{check_size, entry_bytes, not_an_entry, split_entry, write_entry};
use entries::{Entries, Sought};
use leaf::{Decision, invalid};
use node::{Contents, Node, NodeOf, NodeTag, NodeWord, SLOTS};
use scan::{Direction, Rest};
use tree::Tree;

pub use node::Value;
pub use scan::Scan;

/// The bytes of the nodes that a handle remembers, unless [`OrderedMap::with_cache`] sets another bound.
const CACHE_BYTES: usize = 4 << 20;

/// The bounds of a range, in the order of keys.
type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// The root of a map, from which [`OrderedMap::attach`] makes a handle.
#[remote]
pub struct OrderedMapRoot<K: Key + Value, V: Value> {
    /// Stands for the types of keys and values.
    types: u64,
    top: TaggedLink<NodeOf<K, V>, NodeTag>,
    #[local]
    stored: PhantomData<fn() -> (K, V)>,
}

/// A map in far memory whose keys are in order. The handle of a thread, for all of its tasks.
pub struct OrderedMap<K: Key + Value, V: Value> {
    root: RemotePtr<OrderedMapRoot<K, V>>,
    tree: Tree<NodeOf<K, V>>,
}

impl<K: Key + Value, V: Value> OrderedMap<K, V> {
    /// Stands for the types of keys and values.
    const TYPES: u64 =
        fingerprint::array(fingerprint::wrap("ordered map", K::FINGERPRINT), V::FINGERPRINT as usize);

    /// Creates an empty map. Three round trips.
    ///
    /// # Errors
    /// [`farfield::Error::InvalidPointer`] if the cluster has addresses that a link with a tag can not hold; those of an allocation.
    pub async fn create(ct: &ComputeThread) -> Result<RemotePtr<OrderedMapRoot<K, V>>> {
        ct.check_compressible()?;
        let home = ct.random_range(0..ct.nodes() as u64);
        let leaf = NodeOf::<K, V>::allocate(ct.on_node(home as u16), ct.random(), 0).await?;
        let leaf = leaf.write(ct).await?;
        let mut top = NodeOf::<K, V>::allocate(ct, ct.random(), SLOTS as u64).await?;
        let child = NodeWord::new(leaf, NodeTag::new(0, false))?;
        Node::fill(&mut top, &Contents { home, keys: vec![0], held: vec![], children: vec![child] });
        let top = top.write(ct).await?;
        let root = OrderedMapRoot::init(Self::TYPES).top(TaggedWord::new(top, NodeTag::new(1, false))?);
        OrderedMapRoot::new_in(ct.near(top), root).await?.write(ct).await
    }

    /// Makes a handle of a map. Three round trips.
    ///
    /// # Errors
    /// [`farfield::Error::InvalidArgument`] if the map has other types of keys or values.
    pub async fn attach(root: RemotePtr<OrderedMapRoot<K, V>>, ct: &ComputeThread) -> Result<Self> {
        let g = &ct.pin();
        let read = root.read(g).await?;
        if read.types != Self::TYPES {
            return Err(invalid("root", format!("{root:?}"), "the map has keys or values of other types"));
        }
        let entries = Entries { bytes: entry_bytes::<K>, write: write_entry::<K>, split: split_entry::<K> };
        let map = Self { root, tree: Tree::new(root.top(), K::LENGTH.is_some(), entries) };
        map.tree.read_top(g).await?;
        Ok(map.with_cache(CACHE_BYTES))
    }

    /// Bounds the nodes that the handle remembers, in bytes: 4 MiB by default, for some three million keys. The highest node it always remembers.
    #[must_use]
    pub fn with_cache(mut self, bytes: usize) -> Self {
        self.tree.set_bound(bytes);
        self
    }

    /// Returns the value of a key.
    ///
    /// # Errors
    /// Those of a READ.
    pub async fn get(&self, key: &K::Borrowed, ct: &ComputeThread) -> Result<Option<V>> {
        let value = self.read(key, ct, V::from_bytes).await?;
        value.map_or(Ok(None), |value| value.map(Some).ok_or_else(not_an_entry))
    }

    /// Returns whether a key is in the map. Costs as much as [`get`](Self::get).
    ///
    /// # Errors
    /// Those of a READ.
    pub async fn contains(&self, key: &K::Borrowed, ct: &ComputeThread) -> Result<bool> {
        Ok(self.read(key, ct, |_| ()).await?.is_some())
    }

    /// Reads the value of a key where it is: no allocation but those of `decode`.
    ///
    /// # Errors
    /// Those of a READ.
    pub async fn read<R>(
        &self,
        key: &K::Borrowed,
        ct: &ComputeThread,
        decode: impl Fn(&[u8]) -> R,
    ) -> Result<Option<R>> {
        let (ordered, stored) = (K::ordered(key), K::bytes(key));
        let sought = Sought { ordered: ordered.as_ref(), stored: stored.as_ref() };
        self.tree.get(sought, decode, &ct.pin()).await
    }

    /// Inserts a key with a value. Returns `false` if the key is in the map, which does not change then.
    ///
    /// # Errors
    /// [`farfield::Error::InvalidArgument`] for a key of more than 65,000 bytes, or a value of more than 1 MiB; those of an allocation. The map is as it was then.
    pub async fn insert(&self, key: &K::Borrowed, value: &V::Borrowed, ct: &ComputeThread) -> Result<bool> {
        self.put(key, value, |is_there| !is_there, ct).await.map(|was_there| !was_there)
    }

    /// Gives a key a value, whether or not it is in the map.
    ///
    /// # Errors
    /// Those of [`insert`](Self::insert).
    pub async fn upsert(&self, key: &K::Borrowed, value: &V::Borrowed, ct: &ComputeThread) -> Result<()> {
        self.put(key, value, |_| true, ct).await.map(drop)
    }

    /// Changes the value of a key. Returns `false` if the key is not in the map.
    ///
    /// # Errors
    /// Those of [`insert`](Self::insert).
    pub async fn update(&self, key: &K::Borrowed, value: &V::Borrowed, ct: &ComputeThread) -> Result<bool> {
        self.put(key, value, |is_there| is_there, ct).await
    }

    /// Puts a value if `puts` says so of whether the key is there. Returns whether it was.
    async fn put(
        &self,
        key: &K::Borrowed,
        value: &V::Borrowed,
        puts: impl Fn(bool) -> bool,
        ct: &ComputeThread,
    ) -> Result<bool> {
        let (ordered, stored, value) = (K::ordered(key), K::bytes(key), V::bytes(value));
        let sought = Sought { ordered: ordered.as_ref(), stored: stored.as_ref() };
        let value = value.as_ref();
        check_size(sought.stored, value)?;
        let mut was_there = false;
        let decide = |found: Option<&[u8]>| {
            was_there = found.is_some();
            Ok(if puts(was_there) { Decision::Put(value) } else { Decision::Keep })
        };
        self.tree.change(sought, true, false, decide, &ct.pin()).await?;
        Ok(was_there)
    }

    /// Changes the value of a key from `expected` to `new`. Returns `false` if the key is not in the map, or has another value.
    ///
    /// # Errors
    /// Those of [`insert`](Self::insert).
    pub async fn compare_and_update(
        &self,
        key: &K::Borrowed,
        expected: &V::Borrowed,
        new: &V::Borrowed,
        ct: &ComputeThread,
    ) -> Result<bool> {
        let (expected, new) = (V::bytes(expected), V::bytes(new));
        let (expected, new) = (expected.as_ref(), new.as_ref());
        check_size(&[], new)?;
        let mut is_equal = false;
        let decide = |found: Option<&[u8]>| {
            is_equal = found == Some(expected);
            Ok(if is_equal { Decision::Put(new) } else { Decision::Keep })
        };
        self.decide(key, true, decide, ct).await?;
        Ok(is_equal)
    }

    /// Removes a key. Returns whether it was in the map.
    ///
    /// # Errors
    /// Those of a READ.
    pub async fn remove(&self, key: &K::Borrowed, ct: &ComputeThread) -> Result<bool> {
        let (ordered, stored) = (K::ordered(key), K::bytes(key));
        let sought = Sought { ordered: ordered.as_ref(), stored: stored.as_ref() };
        let mut was_there = false;
        let decide = |found: Option<&[u8]>| {
            was_there = found.is_some();
            Ok(Decision::<&[u8]>::Remove)
        };
        self.tree.change(sought, false, false, decide, &ct.pin()).await?;
        Ok(was_there)
    }

    /// Removes a key. Returns its value, if it was in the map.
    ///
    /// # Errors
    /// Those of a READ.
    pub async fn take(&self, key: &K::Borrowed, ct: &ComputeThread) -> Result<Option<V>> {
        let mut taken = None;
        let decide = |found: Option<&[u8]>| {
            taken = found.map(|found| V::from_bytes(found).ok_or_else(not_an_entry)).transpose()?;
            Ok(Decision::<&[u8]>::Remove)
        };
        self.decide(key, false, decide, ct).await?;
        Ok(taken)
    }

    /// Inserts, changes or removes a key, atomically: `f` makes the new value of the old one, where `None` is for a key that is not in the map. It
    /// is called again if the leaf has changed meanwhile. Returns the old value.
    ///
    /// # Errors
    /// Those of [`insert`](Self::insert).
    pub async fn modify(
        &self,
        key: &K::Borrowed,
        mut f: impl FnMut(Option<V>) -> Option<V>,
        ct: &ComputeThread,
    ) -> Result<Option<V>>
    where
        V: std::borrow::Borrow<V::Borrowed> + Clone,
    {
        let mut old = None;
        let decide = |found: Option<&[u8]>| {
            old = found.map(|found| V::from_bytes(found).ok_or_else(not_an_entry)).transpose()?;
            Ok(match f(old.clone()) {
                Some(new) => {
                    let new = V::bytes(new.borrow()).as_ref().to_vec();
                    check_size(&[], &new)?;
                    Decision::Put(new)
                }
                None => Decision::Remove,
            })
        };
        self.decide(key, true, decide, ct).await?;
        Ok(old)
    }

    /// Makes of a key what `decide` makes of its value.
    async fn decide<B: AsRef<[u8]>>(
        &self,
        key: &K::Borrowed,
        claims: bool,
        decide: impl FnMut(Option<&[u8]>) -> Result<Decision<B>>,
        ct: &ComputeThread,
    ) -> Result<()> {
        let (ordered, stored) = (K::ordered(key), K::bytes(key));
        let sought = Sought { ordered: ordered.as_ref(), stored: stored.as_ref() };
        check_size(sought.stored, &[])?;
        self.tree.change(sought, claims, true, decide, &ct.pin()).await
    }

    /// Returns the values of several keys. The round trips of the slowest.
    ///
    /// # Errors
    /// Those of a READ.
    pub async fn get_many(&self, keys: &[&K::Borrowed], ct: &ComputeThread) -> Result<Vec<Option<V>>> {
        ct.tasks(keys.len(), async |task| self.get(keys[task], ct).await).await
    }

    /// Returns the first key, and its value.
    ///
    /// # Errors
    /// Those of a READ.
    pub async fn first(&self, ct: &ComputeThread) -> Result<Option<(K, V)>> {
        self.scan(Bound::Unbounded, Bound::Unbounded, Direction::Up, ct).next().await
    }

    /// Returns the last key, and its value.
    ///
    /// # Errors
    /// Those of a READ.
    pub async fn last(&self, ct: &ComputeThread) -> Result<Option<(K, V)>> {
        self.scan(Bound::Unbounded, Bound::Unbounded, Direction::Down, ct).next().await
    }

    /// Returns a scan over the keys of a range, in ascending order. It has each key that is in the map throughout, once. A key that is inserted or removed meanwhile it has, or not.
    ///
    /// # Errors
    /// [`farfield::Error::InvalidArgument`] if the range ends before it begins.
    pub fn range<'a>(&'a self, range: impl RangeBounds<K>, ct: &'a ComputeThread) -> Result<Scan<'a, K, V>>
    where
        K: fmt::Debug,
    {
        let (low, high) = Self::bounds(&range)?;
        Ok(self.scan(low, high, Direction::Up, ct))
    }

    /// Returns a scan over the keys of a range, in descending order.
    ///
    /// # Errors
    /// Those of [`range`](Self::range).
    pub fn range_back<'a>(
        &'a self,
        range: impl RangeBounds<K>,
        ct: &'a ComputeThread,
    ) -> Result<Scan<'a, K, V>>
    where
        K: fmt::Debug,
    {
        let (low, high) = Self::bounds(&range)?;
        Ok(self.scan(low, high, Direction::Down, ct))
    }

    /// Returns a scan over all keys, in ascending order.
    #[allow(clippy::iter_not_returning_iterator)] // a leaf is a READ, which an `Iterator` could not wait for
    pub fn iter<'a>(&'a self, ct: &'a ComputeThread) -> Scan<'a, K, V> {
        self.scan(Bound::Unbounded, Bound::Unbounded, Direction::Up, ct)
    }

    fn scan<'a>(
        &'a self,
        low: Bound<Vec<u8>>,
        high: Bound<Vec<u8>>,
        direction: Direction,
        ct: &'a ComputeThread,
    ) -> Scan<'a, K, V> {
        Scan::new(&self.tree, Rest { low, high, direction }, ct)
    }

    /// Returns the bounds of a range, in the order of keys.
    fn bounds(range: &impl RangeBounds<K>) -> Result<Bounds>
    where
        K: fmt::Debug,
    {
        let ordered = |key: &K| K::ordered(key.as_borrowed()).as_ref().to_vec();
        let bounds = (range.start_bound().map(ordered), range.end_bound().map(ordered));
        if let (Bound::Included(low) | Bound::Excluded(low), Bound::Included(high) | Bound::Excluded(high)) =
            &bounds
            && low > high
        {
            let range = format!("{:?} to {:?}", range.start_bound(), range.end_bound());
            return Err(invalid("range", range, "it ends before it begins"));
        }
        Ok(bounds)
    }

    /// Returns the number of keys: exact while nobody changes the map. Two round trips for each node above the leaves.
    ///
    /// # Errors
    /// Those of a READ.
    pub async fn len(&self, ct: &ComputeThread) -> Result<u64> {
        self.tree.len(&ct.pin()).await
    }

    /// Returns whether no key is in the map.
    ///
    /// # Errors
    /// Those of a READ.
    pub async fn is_empty(&self, ct: &ComputeThread) -> Result<bool> {
        Ok(self.first(ct).await?.is_none())
    }

    /// Checks the invariants of a map that nobody changes: that nodes have the keys of their ranges, that no key is there twice, and that no node is frozen. Returns the
    /// number of keys.
    ///
    /// # Errors
    /// One that names the first fault.
    pub async fn check(&self, ct: &ComputeThread) -> Result<u64> {
        self.tree.check(&ct.pin()).await
    }

    /// Finishes what dead clients have left half done: nodes that were being replaced. Nobody need call it: a change of such a node does the same.
    ///
    /// # Errors
    /// Those of an allocation.
    pub async fn recover(&self, ct: &ComputeThread) -> Result<()> {
        self.tree.recover(&ct.pin()).await
    }

    /// Frees the map. Nobody may use it any more. Two round trips for each node, and one for each entry.
    ///
    /// # Errors
    /// Those of a READ.
    pub async fn destroy(self, ct: &ComputeThread) -> Result<()> {
        self.tree.destroy(ct).await?;
        ct.delete(self.root).await
    }
}

impl<V: Value> OrderedMap<String, V> {
    /// Returns a scan over the keys that begin with a prefix, in ascending order.
    pub fn prefix<'a>(&'a self, prefix: &str, ct: &'a ComputeThread) -> Scan<'a, String, V> {
        let (low, high) = prefixed(prefix.as_bytes());
        self.scan(low, high, Direction::Up, ct)
    }
}

impl<V: Value> OrderedMap<Vec<u8>, V> {
    /// Returns a scan over the keys that begin with a prefix, in ascending order.
    pub fn prefix<'a>(&'a self, prefix: &[u8], ct: &'a ComputeThread) -> Scan<'a, Vec<u8>, V> {
        let (low, high) = prefixed(prefix);
        self.scan(low, high, Direction::Up, ct)
    }
}

/// Returns the range of the byte strings that begin with a prefix.
fn prefixed(prefix: &[u8]) -> Bounds {
    let mut end = prefix.to_vec();
    while end.pop_if(|last| *last == u8::MAX).is_some() {}
    let high = match end.last_mut() {
        Some(last) => {
            *last += 1;
            Bound::Excluded(end)
        }
        None => Bound::Unbounded,
    };
    (Bound::Included(prefix.to_vec()), high)
}

impl<K: Key + Value, V: Value> fmt::Debug for OrderedMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OrderedMap").field("root", &self.root).finish_non_exhaustive()
    }
}
