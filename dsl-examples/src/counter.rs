//! A number that every thread of the cluster can add to.
//!
//! Each operation is one one-sided operation of the network, so it takes one round trip and takes effect when that
//! operation reaches the memory node.
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

/// A number in far memory.
#[remote]
pub struct Counter {
    value: Atomic<u64>,
}

impl Counter {
    /// A new counter at 0. One round trip.
    pub async fn create(ct: &ComputeThread) -> Result<RemotePtr<Self>> {
        Self::new_in(ct, Self::init()).await?.write(ct).await
    }

    /// Adds `amount` and gives what the number was. One round trip.
    pub async fn add(&self, amount: u64, ct: &ComputeThread) -> Result<u64> {
        self.value().fetch_add(ct, amount).await
    }

    /// The number. One round trip.
    pub async fn get(&self, ct: &ComputeThread) -> Result<u64> {
        self.value().load(ct).await
    }
}
// ANCHOR_END: counter
