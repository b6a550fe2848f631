//! `IntSet`: the operations of a set that the program `intset` uses.

use farfield::{ComputeThread, RemotePtr, Result};

use crate::hash_set::BUCKETS;
use crate::{HarrisList, HashSet, LazyList, LazyListNaive};

/// A set of 64-bit keys in far memory.
#[allow(async_fn_in_trait)] // its futures stay on their compute thread, so they need not be `Send`
pub trait IntSet: farfield::Remote {
    /// Creates an empty set.
    async fn create(ct: &ComputeThread) -> Result<RemotePtr<Self>>;
    /// Returns a handle to a set. One READ.
    async fn attach(root: RemotePtr<Self>, ct: &ComputeThread) -> Result<Self>;
    /// Returns whether a key is in the set.
    async fn get(&self, key: u64, ct: &ComputeThread) -> Result<bool>;
    /// Inserts a key. Returns `true` if it was absent.
    async fn insert(&self, key: u64, ct: &ComputeThread) -> Result<bool>;
    /// Removes a key. Returns `true` if it was present.
    async fn remove(&self, key: u64, ct: &ComputeThread) -> Result<bool>;
    /// Returns all keys in ascending order, and verifies the structure. The set must be quiescent.
    async fn keys(&self, ct: &ComputeThread) -> Result<Vec<u64>>;

    /// The number of objects of an empty set.
    const OVERHEAD_OBJECTS: u64;
}

macro_rules! int_set {
    ($structure:ty: $overhead:expr) => {
        impl IntSet for $structure {
            async fn create(ct: &ComputeThread) -> Result<RemotePtr<Self>> {
                Self::create(ct).await
            }
            async fn attach(root: RemotePtr<Self>, ct: &ComputeThread) -> Result<Self> {
                Self::attach(root, ct).await
            }
            async fn get(&self, key: u64, ct: &ComputeThread) -> Result<bool> {
                self.get(key, ct).await
            }
            async fn insert(&self, key: u64, ct: &ComputeThread) -> Result<bool> {
                self.insert(key, ct).await
            }
            async fn remove(&self, key: u64, ct: &ComputeThread) -> Result<bool> {
                self.remove(key, ct).await
            }
            async fn keys(&self, ct: &ComputeThread) -> Result<Vec<u64>> {
                self.iter(ct).await
            }
            const OVERHEAD_OBJECTS: u64 = $overhead;
        }
    };
}
// Two sentinels and the list itself.
int_set!(LazyList<u64>: 3);
int_set!(LazyListNaive<u64>: 3);
int_set!(HarrisList<u64>: 3);
// The table, and three objects for each list.
int_set!(HashSet: 1 + 3 * BUCKETS as u64);
