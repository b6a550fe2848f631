//! A hash set: many lazy lists, spread over the memory nodes.
//!
//! A list is on one memory node, that of its head, so that an insertion's image and link travel in one chain. So all its
//! traffic goes to that node. Sixty-four lists, on the nodes in turn, spread the traffic. The table of lists never changes, so a
//! handle reads it once. A list's handle is made at the first access to a key of the list, and is cached. After that each
//! operation is one operation of a lazy list.
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

/// The number of lists.
pub const BUCKETS: usize = 64;

/// A set of 64-bit keys, without order, over all memory nodes.
#[remote]
pub struct HashSet {
    buckets: [RemotePtr<LazyList<u64>>; BUCKETS],
    /// Handles to the lists, which live as long as the set.
    #[local]
    lists: Cached<LazyList<u64>, BUCKETS>,
}

impl HashSet {
    /// Creates an empty set. Three round trips for each bucket, and one.
    pub async fn create(ct: &ComputeThread) -> Result<RemotePtr<Self>> {
        let mut buckets = [RemotePtr::NULL; BUCKETS];
        for (number, bucket) in buckets.iter_mut().enumerate() {
            *bucket = LazyList::create_at(ct.on_node(number as u16), ct).await?;
        }
        Self::new_in(ct, Self::init(buckets)).await?.write(ct).await
    }

    /// The list of a key, by its hash's upper bits (Fibonacci hashing; Knuth, volume 3, section 6.4). One round trip at the first
    /// access to the list.
    async fn list(&self, key: u64, ct: &ComputeThread) -> Result<Rc<LazyList<u64>>> {
        self.lists.get(self.bucket(key), ct).await
    }

    fn bucket(&self, key: u64) -> RemotePtr<LazyList<u64>> {
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.buckets()[(hash >> (u64::BITS - BUCKETS.trailing_zeros())) as usize]
    }

    /// Returns whether `key` is in the set.
    pub async fn get(&self, key: u64, ct: &ComputeThread) -> Result<bool> {
        self.list(key, ct).await?.get(key, ct).await
    }

    /// Inserts `key`. Returns `true` if the key was absent.
    pub async fn insert(&self, key: u64, ct: &ComputeThread) -> Result<bool> {
        self.list(key, ct).await?.insert(key, ct).await
    }

    /// Removes `key`. Returns `true` if the key was present.
    pub async fn remove(&self, key: u64, ct: &ComputeThread) -> Result<bool> {
        self.list(key, ct).await?.remove(key, ct).await
    }

    /// Returns the keys in ascending order. No other thread may change the set meanwhile. One READ a node.
    ///
    /// # Errors
    /// As [`LazyList::iter`](crate::LazyList::iter); also a key that is in the wrong list.
    #[allow(clippy::iter_not_returning_iterator)] // each step is a READ, which an `Iterator` could not wait for
    pub async fn iter(&self, ct: &ComputeThread) -> Result<Vec<u64>> {
        let mut keys = Vec::new();
        for bucket in self.buckets() {
            for key in self.lists.get(bucket, ct).await?.iter(ct).await? {
                if self.bucket(key) != bucket {
                    return Err(farfield::Error::other(format!("the key {key} is in the wrong list")));
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

    /// Frees the set. No other thread may use it any more. One READ a node.
    pub async fn destroy(self, ct: &ComputeThread) -> Result<()> {
        for bucket in self.buckets() {
            LazyList::attach(bucket, ct).await?.destroy(ct).await?;
        }
        ct.delete(self.this()).await
    }
}
