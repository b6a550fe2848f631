//! A hash set: many lazy lists, spread over the memory nodes.
//!
//! A list lives on one memory node, near its head, so that an insertion's image and link travel in one chain; so all its
//! traffic goes to that node. Sixty-four of them, on the nodes in turn, share the traffic out. The table of lists never
//! changes, so a handle reads it once; a list's handle is made when a key first falls into it, and kept. From then on each
//! operation is that of one list.
//!
//! | operation | takes effect, costs |
//! |---|---|
//! | `get`, `insert`, `remove` | as the [lazy list's](crate::LazyList), in the bucket of the key |
//!
//! ```
//! use farfield::prelude::*;
//! use farfield_examples::HashSet;
//!
//! # fn main() -> farfield::Result<()> {
//! Cluster::connect("local:nodes=4")?.run(4, async |ct| {
//!     let root = ct.root_or_init("set", async || HashSet::create(ct).await).await?;
//!     let set = HashSet::attach(root, ct).await?;
//!     assert!(set.insert(ct.index() as u64, ct).await?);
//!     ct.barrier("inserted").await?;
//!     assert!(set.get(3, ct).await?);
//!     Ok(())
//! })?;
//! # Ok(())
//! # }
//! ```

use std::rc::Rc;

use farfield::Cached;
use farfield::prelude::*;

use crate::LazyList;

/// How many lists there are.
pub const BUCKETS: usize = 64;

/// A set of 64-bit keys, without order, over all memory nodes.
#[remote]
pub struct HashSet {
    buckets: [RemotePtr<LazyList<u64>>; BUCKETS],
    /// Handles to them: they live as long as the set does.
    #[local]
    lists: Cached<LazyList<u64>, BUCKETS>,
}

impl HashSet {
    /// A new, empty set. Three round trips for each bucket, and one.
    pub async fn create(ct: &ComputeThread) -> Result<RemotePtr<Self>> {
        let mut buckets = [RemotePtr::NULL; BUCKETS];
        for (number, bucket) in buckets.iter_mut().enumerate() {
            *bucket = LazyList::create_at(ct.on_node(number as u16), ct).await?;
        }
        Self::new_in(ct, Self::init(buckets)).await?.write(ct).await
    }

    /// The list that a key belongs to: its hash's upper bits (Fibonacci hashing; Knuth, volume 3, section 6.4). One round
    /// trip when a key first falls into it.
    async fn list(&self, key: u64, ct: &ComputeThread) -> Result<Rc<LazyList<u64>>> {
        self.lists.get(self.bucket(key), ct).await
    }

    fn bucket(&self, key: u64) -> RemotePtr<LazyList<u64>> {
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.buckets()[(hash >> (u64::BITS - BUCKETS.trailing_zeros())) as usize]
    }

    /// Whether `key` is in the set.
    pub async fn get(&self, key: u64, ct: &ComputeThread) -> Result<bool> {
        self.list(key, ct).await?.get(key, ct).await
    }

    /// Puts `key` into the set; gives whether it was not there.
    pub async fn insert(&self, key: u64, ct: &ComputeThread) -> Result<bool> {
        self.list(key, ct).await?.insert(key, ct).await
    }

    /// Takes `key` out of the set; gives whether it was there.
    pub async fn remove(&self, key: u64, ct: &ComputeThread) -> Result<bool> {
        self.list(key, ct).await?.remove(key, ct).await
    }

    /// The keys in ascending order, while no other thread changes the set. One READ a node.
    ///
    /// # Errors
    /// As [`LazyList::iter`](crate::LazyList::iter), and a key that is in another list than its own.
    #[allow(clippy::iter_not_returning_iterator)] // each step is a READ, which an `Iterator` could not wait for
    pub async fn iter(&self, ct: &ComputeThread) -> Result<Vec<u64>> {
        let mut keys = Vec::new();
        for bucket in self.buckets() {
            for key in self.lists.get(bucket, ct).await?.iter(ct).await? {
                if self.bucket(key) != bucket {
                    return Err(farfield::Error::other(format!(
                        "the key {key} is in another list than its own"
                    )));
                }
                keys.push(key);
            }
        }
        keys.sort_unstable();
        Ok(keys)
    }

    /// As [`LazyList::recover`](crate::LazyList::recover).
    pub async fn recover(&self, ct: &ComputeThread) -> Result<()> {
        for bucket in self.buckets() {
            self.lists.get(bucket, ct).await?.recover(ct).await?;
        }
        Ok(())
    }

    /// Frees the set, while no other thread uses it. One READ a node.
    pub async fn destroy(self, ct: &ComputeThread) -> Result<()> {
        for bucket in self.buckets() {
            LazyList::attach(bucket, ct).await?.destroy(ct).await?;
        }
        ct.delete(self.this()).await
    }
}
