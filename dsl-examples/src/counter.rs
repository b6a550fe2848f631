//! A counter that all threads of the cluster share.
//!
//! Each operation is a single one-sided operation. It takes one round trip, and takes effect when the memory node executes it.
//!
//! ```
//! use farfield::prelude::*;
//! use farfield_examples::Counter;
//!
//! # fn main() -> farfield::Result<()> {
//! Cluster::connect("local:")?.run(4, async |ct| {
//!     let root = ct.root_or_init("hits", async || Counter::create(ct).await).await?;
//!     let hits = Counter::attach(root, ct).await?;
//!     hits.add(2, ct).await?;
//!     ct.barrier("added").await?;
//!     assert_eq!(hits.get(ct).await?, 8);
//!     Ok(())
//! })?;
//! # Ok(())
//! # }
//! ```

// ANCHOR: counter
use farfield::prelude::*;

/// A counter in far memory.
#[remote]
pub struct Counter {
    value: Atomic<u64>,
}

impl Counter {
    /// Creates a counter at 0. One round trip.
    pub async fn create(ct: &ComputeThread) -> Result<RemotePtr<Self>> {
        Self::new_in(ct, Self::init()).await?.write(ct).await
    }

    /// Adds `amount` and returns the previous value. One round trip.
    pub async fn add(&self, amount: u64, ct: &ComputeThread) -> Result<u64> {
        self.value().fetch_add(ct, amount).await
    }

    /// Returns the value. One round trip.
    pub async fn get(&self, ct: &ComputeThread) -> Result<u64> {
        self.value().load(ct).await
    }
}
// ANCHOR_END: counter
