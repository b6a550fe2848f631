//! `Queue`: the operations of a structure that a pipeline uses.

use farfield::prelude::*;
use farfield::{Error, Remote};
use farfield_collections::{PriorityQueue, PriorityQueueRoot, Ring, RingRoot};
use farfield_examples::MsQueue;

/// The order in which a queue returns what is pushed into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// One client's pops return the items of one client's pushes in the order of those pushes.
    Fifo,
    /// The same of those items whose priorities do not decrease from push to push.
    Priority,
}

/// A queue of numbers in far memory; the handle of a thread.
pub(crate) trait Queue: Sized {
    type Root: Remote;
    const ORDER: Order;

    /// Creates an empty queue, for `capacity` items if it has a bound.
    async fn create(capacity: u64, ct: &ComputeThread) -> Result<RemotePtr<Self::Root>>;
    async fn open(root: RemotePtr<Self::Root>, ct: &ComputeThread) -> Result<Self>;
    /// Adds an item. Returns `false` if the queue is full.
    async fn try_push(&self, item: u64, priority: u64, ct: &ComputeThread) -> Result<bool>;
    /// Removes an item, unless the queue is empty.
    async fn try_pop(&self, ct: &ComputeThread) -> Result<Option<u64>>;
    /// Checks the queue, and frees it. No other client may use it.
    ///
    /// # Errors
    /// One that names the fault.
    async fn check_and_destroy(self, ct: &ComputeThread) -> Result<()>;
}

fn is_empty(left: u64) -> Result<()> {
    if left == 0 { Ok(()) } else { Err(Error::other(format!("{left} items are left in it"))) }
}

impl Queue for Ring<u64> {
    type Root = RingRoot<u64>;
    const ORDER: Order = Order::Fifo;

    async fn create(capacity: u64, ct: &ComputeThread) -> Result<RemotePtr<Self::Root>> {
        Self::create(capacity, ct).await
    }
    async fn open(root: RemotePtr<Self::Root>, ct: &ComputeThread) -> Result<Self> {
        Self::attach(root, ct).await
    }
    async fn try_push(&self, item: u64, _: u64, ct: &ComputeThread) -> Result<bool> {
        self.try_push(&item, ct).await
    }
    async fn try_pop(&self, ct: &ComputeThread) -> Result<Option<u64>> {
        self.try_pop(ct).await
    }
    async fn check_and_destroy(self, ct: &ComputeThread) -> Result<()> {
        is_empty(self.check(ct).await?)?;
        self.destroy(ct).await
    }
}

impl Queue for MsQueue<u64> {
    type Root = Self;
    const ORDER: Order = Order::Fifo;

    async fn create(_: u64, ct: &ComputeThread) -> Result<RemotePtr<Self>> {
        Self::create(ct).await
    }
    async fn open(root: RemotePtr<Self>, ct: &ComputeThread) -> Result<Self> {
        Self::attach(root, ct).await
    }
    async fn try_push(&self, item: u64, _: u64, ct: &ComputeThread) -> Result<bool> {
        self.enqueue(item, ct).await.map(|()| true)
    }
    async fn try_pop(&self, ct: &ComputeThread) -> Result<Option<u64>> {
        self.dequeue(ct).await
    }
    async fn check_and_destroy(self, ct: &ComputeThread) -> Result<()> {
        is_empty(self.dequeue(ct).await?.map_or(0, |_| 1))?;
        self.destroy(ct).await
    }
}

impl Queue for PriorityQueue<u64, u64> {
    type Root = PriorityQueueRoot<u64, u64>;
    const ORDER: Order = Order::Priority;

    async fn create(_: u64, ct: &ComputeThread) -> Result<RemotePtr<Self::Root>> {
        Self::create(ct).await
    }
    async fn open(root: RemotePtr<Self::Root>, ct: &ComputeThread) -> Result<Self> {
        Self::attach(root, ct).await
    }
    async fn try_push(&self, item: u64, priority: u64, ct: &ComputeThread) -> Result<bool> {
        self.push(priority, item, ct).await.map(|()| true)
    }
    async fn try_pop(&self, ct: &ComputeThread) -> Result<Option<u64>> {
        Ok(self.pop_min(ct).await?.map(|(_, item)| item))
    }
    async fn check_and_destroy(self, ct: &ComputeThread) -> Result<()> {
        is_empty(self.check(ct).await?)?;
        self.destroy(ct).await
    }
}
