//! A priority queue of words, lock-free and linearizable.
//!
//! It is a [skip list](super::SkipList) whose keys are priorities, and may be equal. The lowest priority comes first; among equal ones the item that was pushed first, in the order in which
//! the pushes took effect.
//!
//! # When operations take effect
//!
//! With *e* towers visited by the search for the priority: see the skip list.
//!
//! | operation | takes effect | round trips |
//! |---|---|---|
//! | `push` | at the CAS of a bottom link | e + 1; for one item in four, one more for each further level |
//! | `pop_min` | see below | 3: the head, the first item, the CAS that marks it; for one item in four, one more. Each client that was faster costs up to two |
//! | `pop_min` of an empty queue | at the READ of the head | 1 |
//! | `peek` | at the READ of the head | 2 |
//!
//! The client that marks an item has popped it. Behind dead towers, an item counts as the first only if the head still links to the first of them after they were all seen dead: one round trip
//! more.
//!
//! **`pop_min` is linearizable.** When the search read the head, or read it once more, there was no live item in front of the item `x` that it found, and `x` was live: it was the first. It
//! is live until it is marked. Smaller items may be pushed in between. So let `pop_min` take effect at the last moment before the mark when `x` was the first. From then on until the mark there is always
//! a smaller item; what others pop or peek meanwhile is smaller than `x`, so it makes no difference to them whether `x` is there.
//!
//! # What a dead client, or a dropped future, leaves
//!
//! An item is pushed or not, popped or not. A popped item whose client has died, or whose future was dropped, is gone. Dead towers are left as in a skip list, and taken out by the operations that
//! pass them.
//!
//! ```
//! use farfield::prelude::*;
//! use farfield_collections::PriorityQueue;
//!
//! # fn main() -> farfield::Result<()> {
//! Cluster::connect("local:")?.run(2, async |ct| {
//!     let root = ct.root_or_init("jobs", async || PriorityQueue::<u32, u64>::create(ct).await).await?;
//!     let jobs = PriorityQueue::attach(root, ct).await?;
//!     jobs.push(7, ct.index() as u64, ct).await?;
//!     ct.barrier("pushed").await?;
//!     assert_eq!(jobs.pop_min(ct).await?.map(|(priority, _)| priority), Some(7));
//!     Ok(())
//! })?;
//! # Ok(())
//! # }
//! ```

use std::fmt;

use farfield::layout::fingerprint;
use farfield::prelude::*;

use crate::skip_list::{Bound, Tower, Towers, invalid};

/// The cache of a handle, unless [`PriorityQueue::with_cache`] sets another size.
const CACHE_BYTES: usize = 1 << 20;

/// The root of a priority queue, from which [`PriorityQueue::attach`] makes a handle.
#[remote]
pub struct PriorityQueueRoot<P: Word, T: Word> {
    /// Stands for the types of priorities and items.
    types: u64,
    head: RemotePtr<Tower<P, T>>,
}

/// A priority queue in far memory. The handle of a thread, for all of its tasks.
pub struct PriorityQueue<P: Word, T: Word> {
    root: RemotePtr<PriorityQueueRoot<P, T>>,
    towers: Towers<P, T>,
}

impl<P: Word + Ord, T: Word> PriorityQueue<P, T> {
    /// Stands for the types of priorities and items.
    const TYPES: u64 =
        fingerprint::array(fingerprint::wrap("priority queue", P::FINGERPRINT), T::FINGERPRINT as usize);

    /// Creates an empty queue. Two round trips.
    ///
    /// # Errors
    /// [`Error::InvalidPointer`](farfield::Error::InvalidPointer) if the cluster has addresses that a link with a tag can not hold; those of an allocation.
    pub async fn create(ct: &ComputeThread) -> Result<RemotePtr<PriorityQueueRoot<P, T>>> {
        ct.check_compressible()?;
        let head = Towers::create_head(ct).await?;
        let root = PriorityQueueRoot::init(Self::TYPES, head);
        PriorityQueueRoot::new_in(ct.near(head), root).await?.write(ct).await
    }

    /// Makes a handle of a queue. One round trip.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](farfield::Error::InvalidArgument) if the queue has other types of priorities or items.
    pub async fn attach(root: RemotePtr<PriorityQueueRoot<P, T>>, ct: &ComputeThread) -> Result<Self> {
        let queue = root.read(&ct.pin()).await?;
        if queue.types != Self::TYPES {
            let reason = "the queue has priorities or items of other types";
            return Err(invalid("root", format!("{root:?}"), reason));
        }
        Ok(Self { root, towers: Towers::new(queue.head, if ct.is_immediate() { 0 } else { CACHE_BYTES }) })
    }

    /// Sets the size of the handle's cache: see [`SkipList::with_cache`](super::SkipList::with_cache).
    #[must_use]
    pub fn with_cache(self, bytes: usize) -> Self {
        Self { towers: self.towers.with_cache(bytes), ..self }
    }

    /// Adds an item behind those with lower and equal priorities.
    ///
    /// # Errors
    /// Those of an allocation: the queue is as it was then.
    pub async fn push(&self, priority: P, item: T, ct: &ComputeThread) -> Result<()> {
        let g = &ct.pin();
        let mut backoff = g.backoff();
        loop {
            let place = self.towers.find(&Bound::Behind(priority), true, g).await?;
            if self.towers.insert(&place, priority, item, g).await? {
                return Ok(());
            }
            backoff.wait().await;
        }
    }

    /// Removes the first item. Returns it with its priority, or `None` if the queue is empty. Never waits for another client.
    ///
    /// If its future is dropped, the item may be removed, and is gone.
    ///
    /// # Errors
    /// Those of access to far memory.
    pub async fn pop_min(&self, ct: &ComputeThread) -> Result<Option<(P, T)>> {
        let g = &ct.pin();
        let mut backoff = g.backoff();
        loop {
            let place = self.towers.front(true, g).await?;
            let Some(first) = &place.found else { return Ok(None) };
            if self.towers.kill(&place, first, None, g).await? {
                return Ok(Some((first.key, first.value)));
            }
            backoff.wait().await;
        }
    }

    /// Returns the first item and its priority, or `None` if the queue is empty.
    ///
    /// # Errors
    /// Those of access to far memory.
    pub async fn peek(&self, ct: &ComputeThread) -> Result<Option<(P, T)>> {
        let g = &ct.pin();
        Ok(self.towers.front(false, g).await?.found.map(|first| (first.key, first.value)))
    }

    /// Returns the number of items: exact while nobody changes the queue. A round trip for each item.
    ///
    /// # Errors
    /// Those of access to far memory.
    pub async fn len(&self, ct: &ComputeThread) -> Result<u64> {
        self.towers.count(&ct.pin()).await
    }

    /// Returns whether the queue is empty. Costs as much as [`peek`](Self::peek).
    ///
    /// # Errors
    /// Those of access to far memory.
    pub async fn is_empty(&self, ct: &ComputeThread) -> Result<bool> {
        Ok(self.peek(ct).await?.is_none())
    }

    /// Checks the invariants of a queue that nobody changes: see [`SkipList::check`](super::SkipList::check). Returns the number of items.
    ///
    /// # Errors
    /// One that names the first fault.
    pub async fn check(&self, ct: &ComputeThread) -> Result<u64> {
        self.towers.check(true, ct).await
    }

    /// Takes out what dead clients have left: see [`SkipList::recover`](super::SkipList::recover).
    ///
    /// # Errors
    /// Those of access to far memory.
    pub async fn recover(&self, ct: &ComputeThread) -> Result<()> {
        self.towers.recover(ct).await
    }

    /// Frees the queue. Nobody may use it any more. One round trip for each item.
    ///
    /// # Errors
    /// Those of access to far memory.
    pub async fn destroy(self, ct: &ComputeThread) -> Result<()> {
        self.towers.destroy(ct).await?;
        ct.delete(self.root).await
    }
}

impl<P: Word, T: Word> fmt::Debug for PriorityQueue<P, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PriorityQueue").field("root", &self.root).finish_non_exhaustive()
    }
}
