//! `IntSet`: what the driver asks of a set.

use farfield::{ComputeThread, RemotePtr, Result};

use crate::hash_set::BUCKETS;
use crate::{HarrisList, HashSet, LazyList, LazyListNaive};

/// A set of 64-bit keys in far memory.
#[allow(async_fn_in_trait)] // its futures stay on their compute thread, so nobody needs them to be `Send`
pub trait IntSet: farfield::Remote {
    /// A new, empty set.
    async fn create(ct: &ComputeThread) -> Result<RemotePtr<Self>>;
    /// A handle to a set.
    async fn attach(root: RemotePtr<Self>, ct: &ComputeThread) -> Result<Self>;
    /// Whether a key is in the set.
    async fn get(&self, key: u64, ct: &ComputeThread) -> Result<bool>;
    /// Puts a key into the set; gives whether it was not there.
    async fn insert(&self, key: u64, ct: &ComputeThread) -> Result<bool>;
    /// Takes a key out of the set; gives whether it was there.
    async fn remove(&self, key: u64, ct: &ComputeThread) -> Result<bool>;
    /// All keys in ascending order, checked, at a quiescent point.
    async fn keys(&self, ct: &ComputeThread) -> Result<Vec<u64>>;

    /// How many objects an empty set consists of.
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
// The table, and what each list consists of.
int_set!(HashSet: 1 + 3 * BUCKETS as u64);
