//! The lazy list: an ordered set whose `get` takes no lock.
//!
//! After Heller, Herlihy, Luchangco, Moir, Scherer and Shavit, "A Lazy Concurrent List-Based Set Algorithm" (OPODIS
//! 2005). A sorted list between two sentinels; a node is *in* the set if it is reachable from the head and its link is
//! not marked `deleted`.
//!
//! Invariants:
//! - the keys of the nodes between the sentinels ascend strictly;
//! - only the owner of a node's lock writes the node's link, so a link that was read under the lock stays as read;
//! - a marked node stays marked, and the tail stays reachable from it, so a search that is at the node can continue.
//!
//! Sentinels are recognised by their addresses, never by their keys. So every key can be in the set, the smallest and the
//! largest of its type included.
//!
//! | operation | takes effect | round trips, if it visits `h` nodes, sentinels included, on one memory node without contention |
//! |---|---|---|
//! | `get` | at the READ of the last node, or between two such reads, while the key was absent | h |
//! | `insert` | at the WRITE of the predecessor's link | h + 2, h if the key is there |
//! | `remove` | at the WRITE of the mark | h + 2, h if the key is not there |
//!
//! A thread that dies may leave locks taken and a removal half done: a marked node that is still reachable. The next owner of such a
//! lock finishes the removal before anything else. The key left the set with the mark.
//!
//! An unsuccessful `insert` or `remove` takes no lock. An unmarked node with the key shows that the key was present at that READ. Two
//! neighbours around the key show that it was absent while the search passed between them, as in `get`.
//!
//! ```
//! use farfield::prelude::*;
//! use farfield_examples::LazyList;
//!
//! # fn main() -> farfield::Result<()> {
//! Cluster::connect("local:")?.run(4, async |ct| {
//!     let root = ct.root_or_init("set", async || LazyList::<u64>::create(ct).await).await?;
//!     let set = LazyList::attach(root, ct).await?;
//!     assert!(set.insert(ct.index() as u64, ct).await?);
//!     ct.barrier("inserted").await?;
//!     assert!(set.get(3, ct).await?);
//!     Ok(())
//! })?;
//! # Ok(())
//! # }
//! ```

// ANCHOR: all
// ANCHOR: imports
use std::cell::Cell;

use farfield::prelude::*;
// ANCHOR_END: imports

// ANCHOR: node
/// A node of the list.
#[remote]
pub struct Node<K: Word> {
    /// The element. A sentinel's key has no meaning.
    key: K,
    /// The next node. The mark says that this node is not in the set any more.
    #[marks(deleted)]
    next: Link<Node<K>>,
    /// Its owner may write `next`.
    lock: Lock,
}
// ANCHOR_END: node

// ANCHOR: list
/// An ordered set of words, with a `get` that takes no lock.
#[remote]
pub struct LazyList<K: Word> {
    head: RemotePtr<Node<K>>,
    tail: RemotePtr<Node<K>>,
    /// How often this handle's updates had to start over.
    #[local]
    restarts: Cell<u64>,
}
// ANCHOR_END: list

// ANCHOR: position
/// The position of a key: between two neighbours, as they were read.
struct Position<'g, K: Word> {
    pred: Shared<'g, Node<K>>,
    curr: Shared<'g, Node<K>>,
    /// True if `curr` had the key and was not marked when it was read.
    found: bool,
}
// ANCHOR_END: position

impl<K: Word + Ord> LazyList<K> {
    // ANCHOR: create
    /// Creates an empty list. Three round trips.
    pub async fn create(ct: &ComputeThread) -> Result<RemotePtr<Self>> {
        Self::create_at(ct, ct).await
    }

    /// Creates an empty list on the memory node of `site`. Three round trips.
    pub async fn create_at<'a>(site: impl Into<Site<'a>>, ct: &ComputeThread) -> Result<RemotePtr<Self>> {
        let tail = Node::new_in(site, Node::init(K::initial())).await?.write(ct).await?;
        let head = Node::new_in(ct.near(tail), Node::init(K::initial()).next(tail)).await?.write(ct).await?;
        Self::new_in(ct.near(head), Self::init(head, tail)).await?.write(ct).await
    }
    // ANCHOR_END: create

    // ANCHOR: get
    /// Returns whether `key` is in the set.
    pub async fn get(&self, key: K, ct: &ComputeThread) -> Result<bool> {
        let g = &ct.pin();
        let mut curr = self.head().next().load(g).await?.without_marks();
        let mut walk = Walk::new();
        loop {
            let node = curr.read(g).await?;
            if curr == self.tail() || node.key >= key {
                return Ok(curr != self.tail() && node.key == key && !node.next.is_deleted());
            }
            walk.visit(curr)?;
            curr = node.next.without_marks();
        }
    }
    // ANCHOR_END: get

    // ANCHOR: find
    /// Finds the neighbours between which `key` belongs, by READs alone.
    async fn find<'g>(&self, key: K, g: &'g Guard<'_>) -> Result<Position<'g, K>> {
        let mut pred = self.head().shared(g);
        let mut curr = pred.next().load(g).await?.without_marks();
        let mut walk = Walk::new();
        loop {
            let node = curr.read(g).await?;
            if curr == self.tail() || node.key >= key {
                let found = curr != self.tail() && node.key == key && !node.next.is_deleted();
                return Ok(Position { pred, curr, found });
            }
            walk.visit(curr)?;
            pred = curr;
            curr = node.next.without_marks();
        }
    }
    // ANCHOR_END: find

    // ANCHOR: validate
    /// Returns whether two nodes that were read under their locks are neighbours in the list.
    fn are_neighbours(
        pred: &NodeSnapshot<'_, K>,
        curr: Shared<'_, Node<K>>,
        seen: &NodeSnapshot<'_, K>,
    ) -> bool {
        // `curr` is without marks, so the comparison includes the predecessor's mark. A tail is never marked.
        pred.next == curr && !seen.next.is_deleted()
    }
    // ANCHOR_END: validate

    // ANCHOR: insert
    /// Inserts `key`. Returns `true` if the key was absent.
    pub async fn insert(&self, key: K, ct: &ComputeThread) -> Result<bool> {
        let g = &ct.pin();
        let mut backoff = ct.backoff();
        loop {
            let Position { pred, curr, found } = self.find(key, g).await?;
            if found {
                return Ok(false);
            }
            let both = [(pred.lock(), pred), (curr.lock(), curr)];
            let [(pred_lock, pred_seen), (curr_lock, curr_seen)] = g.lock_and_read(both).await?;
            if pred_lock.needs_recovery() || curr_lock.needs_recovery() {
                self.recover_one_of([(pred, pred_lock), (curr, curr_lock)], g).await?;
                continue;
            }
            if Self::are_neighbours(&pred_seen, curr, &curr_seen) {
                let node = Node::new_in(ct.near(pred), Node::init(key).next(curr)).await?;
                let link = op::store(pred.next(), node);
                g.chain((link, op::release(curr_lock), op::release(pred_lock))).submit().await?;
                return Ok(true);
            }
            self.start_over(&mut backoff, [pred_lock, curr_lock]).await;
        }
    }
    // ANCHOR_END: insert

    // ANCHOR: remove
    /// Removes `key`. Returns `true` if the key was present.
    pub async fn remove(&self, key: K, ct: &ComputeThread) -> Result<bool> {
        let g = &ct.pin();
        let mut backoff = ct.backoff();
        loop {
            let Position { pred, curr, found } = self.find(key, g).await?;
            if !found {
                return Ok(false);
            }
            let both = [(pred.lock(), pred), (curr.lock(), curr)];
            let [(pred_lock, pred_seen), (curr_lock, curr_seen)] = g.lock_and_read(both).await?;
            if pred_lock.needs_recovery() || curr_lock.needs_recovery() {
                self.recover_one_of([(pred, pred_lock), (curr, curr_lock)], g).await?;
                continue;
            }
            if Self::are_neighbours(&pred_seen, curr, &curr_seen) {
                let next = curr_seen.next;
                let unlink = (op::store(curr.next(), next.with_deleted()), op::store(pred.next(), next));
                g.chain((unlink, op::release(curr_lock), op::release(pred_lock))).submit().await?;
                g.sched_reclaim(curr).await?;
                return Ok(true);
            }
            self.start_over(&mut backoff, [pred_lock, curr_lock]).await;
        }
    }
    // ANCHOR_END: remove

    // ANCHOR: recover
    /// Finishes the removal that the dead owner of one of two locks may have begun, and releases both.
    async fn recover_one_of<'g>(
        &self,
        [(pred, pred_lock), (curr, curr_lock)]: [(Shared<'g, Node<K>>, LockGuard<'g>); 2],
        g: &'g Guard<'_>,
    ) -> Result<()> {
        // One at a time: a lock that is released before `recovered` stays marked for its next owner.
        if pred_lock.needs_recovery() {
            drop(curr_lock);
            self.recover_node(pred, pred_lock, g).await
        } else {
            drop(pred_lock);
            self.recover_node(curr, curr_lock, g).await
        }
    }

    /// Finishes the removal that the dead owner of a node's lock may have begun, and releases the lock.
    pub(crate) async fn recover_node<'g>(
        &self,
        node: Shared<'g, Node<K>>,
        lock: LockGuard<'g>,
        g: &'g Guard<'_>,
    ) -> Result<()> {
        let seen = node.read(g).await?;
        if !seen.next.is_deleted() {
            return self.finish_removal(node, seen, lock, g).await;
        }
        // The owner was removing this node, and had the lock of its predecessor too, whose link shows if the node is unlinked.
        drop(lock);
        let Position { pred, .. } = self.find(seen.key, g).await?;
        let lock = pred.lock().acquire(g).await?;
        let seen = pred.read(g).await?;
        if lock.needs_recovery() && !seen.next.is_deleted() {
            return self.finish_removal(pred, seen, lock, g).await;
        }
        Ok(())
    }

    /// Unlinks the successor of a node in the list if it is marked. Under the node's lock only a dead thread can have left a
    /// marked successor.
    async fn finish_removal<'g>(
        &self,
        node: Shared<'g, Node<K>>,
        seen: NodeSnapshot<'g, K>,
        mut lock: LockGuard<'g>,
        g: &'g Guard<'_>,
    ) -> Result<()> {
        let curr = seen.next;
        if node != self.tail() && curr != self.tail() {
            let next = curr.next().load(g).await?;
            if next.is_deleted() {
                node.next().store(g, next.without_marks()).await?;
                let out = curr;
                g.sched_reclaim(out).await?;
            }
        }
        lock.recovered();
        Ok(lock.release().await?)
    }

    /// Finishes the removals that dead threads have begun, and frees their locks. One READ a node, and a few round trips for
    /// each such lock. Other threads may use the list meanwhile.
    pub async fn recover(&self, ct: &ComputeThread) -> Result<()> {
        let g = &ct.pin();
        let mut curr = self.head().shared(g);
        let mut walk = Walk::new();
        loop {
            walk.visit(curr)?;
            let seen = curr.read(g).await?;
            if seen.lock.is_held() || seen.lock.is_abandoned() {
                let lock = curr.lock().acquire(g).await?;
                if lock.needs_recovery() {
                    self.recover_node(curr, lock, g).await?;
                }
            }
            if curr == self.tail() {
                return Ok(());
            }
            curr = curr.next().load(g).await?.without_marks();
        }
    }
    // ANCHOR_END: recover

    /// After a failed validation: releases the locks without waiting for it, and backs off.
    async fn start_over(&self, backoff: &mut Backoff<'_>, locks: [LockGuard<'_>; 2]) {
        drop(locks);
        self.restarts.set(self.restarts.get() + 1);
        backoff.wait().await;
    }

    /// How often this handle's updates started over because the list had changed.
    pub fn restarts(&self) -> u64 {
        self.restarts.get()
    }

    // ANCHOR: iter
    /// Returns the keys in ascending order. No other thread may change the set meanwhile. One READ a node.
    ///
    /// # Errors
    /// The error names a node that is out of order, marked or locked. In a quiescent list there is none.
    #[allow(clippy::iter_not_returning_iterator)] // each step is a READ, which an `Iterator` could not wait for
    pub async fn iter(&self, ct: &ComputeThread) -> Result<Vec<K>> {
        let g = &ct.pin();
        let mut keys: Vec<K> = Vec::new();
        let mut curr = self.head().next().load(g).await?.without_marks();
        while curr != self.tail() {
            let node = curr.read(g).await?;
            let fault = if node.next.is_deleted() {
                Some("is marked but reachable")
            } else if node.lock.is_held() {
                Some("is locked")
            } else if keys.last().is_some_and(|last| *last >= node.key) {
                Some("is out of order")
            } else {
                None
            };
            if let Some(fault) = fault {
                return Err(farfield::Error::other(format!(
                    "the node {curr:?} of key {:?} {fault}",
                    node.key
                )));
            }
            keys.push(node.key);
            curr = node.next.without_marks();
        }
        Ok(keys)
    }
    // ANCHOR_END: iter

    // ANCHOR: destroy
    /// Frees the list. No other thread may use it any more. One READ a node.
    pub async fn destroy(self, ct: &ComputeThread) -> Result<()> {
        let g = &ct.pin();
        let mut curr = self.head().shared(g);
        let mut walk = Walk::new();
        while !curr.is_null() {
            walk.visit(curr)?;
            let next = curr.next().load(g).await?.without_marks();
            ct.delete(curr).await?;
            curr = next;
        }
        ct.delete(self.this()).await
    }
    // ANCHOR_END: destroy
}
// ANCHOR_END: all
