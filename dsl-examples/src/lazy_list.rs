//! The lazy list: an ordered set whose `get` takes no lock.
//!
//! After Heller, Herlihy, Luchangco, Moir, Scherer and Shavit, "A Lazy Concurrent List-Based Set Algorithm" (OPODIS
//! 2005). A sorted list between two sentinels; a node is *in* the set if it is reachable from the head and its link is
//! not marked `deleted`.
//!
//! Invariants:
//! - the keys of the nodes between the sentinels ascend strictly;
//! - only the owner of a node's lock writes the node's link, so what is read under the lock stays true;
//! - a marked node stays marked, and its link goes on leading towards the tail, so whoever stands on it finds the way.
//!
//! Sentinels are told from nodes by their addresses, never by their keys, so every key can be in the set, the smallest
//! and the largest of its type included.
//!
//! | operation | takes effect | round trips, if it visits `h` nodes, sentinels included, on one memory node without contention |
//! |---|---|---|
//! | `get` | at the READ of the last node, or between two such reads, while the key was absent | h |
//! | `insert` | at the WRITE of the predecessor's link | h + 2, h if the key is there |
//! | `remove` | at the WRITE of the mark | h + 2, h if the key is not there |
//!
//! A thread that dies leaves its locks taken, and a removal perhaps half done: a node that is marked and still reachable. Whoever takes
//! such a lock from it finishes the removal before anything else; the set has been without the key since the mark.
//!
//! An unsuccessful `insert` or `remove` does not lock: the node it stopped at shows, unmarked, that the key was there at
//! that READ; or two neighbours show that it was absent while the search passed between them, as in `get`.
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
    /// What the node stands for; a sentinel's means nothing.
    key: K,
    /// The next node, and whether this one has left the set.
    #[marks(deleted)]
    next: Link<Node<K>>,
    /// Whoever holds it may write `next`.
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
/// Where a key belongs: between two neighbours, as they were read.
struct Position<'g, K: Word> {
    pred: Shared<'g, Node<K>>,
    curr: Shared<'g, Node<K>>,
    /// Whether `curr` holds the key and was not deleted when it was read.
    found: bool,
}
// ANCHOR_END: position

impl<K: Word + Ord> LazyList<K> {
    // ANCHOR: create
    /// A new, empty list. Three round trips.
    pub async fn create(ct: &ComputeThread) -> Result<RemotePtr<Self>> {
        Self::create_at(ct, ct).await
    }

    /// A new, empty list on the memory node of a site. Three round trips.
    pub async fn create_at<'a>(site: impl Into<Site<'a>>, ct: &ComputeThread) -> Result<RemotePtr<Self>> {
        let tail = Node::new_in(site, Node::init(K::initial())).await?.write(ct).await?;
        let head = Node::new_in(ct.near(tail), Node::init(K::initial()).next(tail)).await?.write(ct).await?;
        Self::new_in(ct.near(head), Self::init(head, tail)).await?.write(ct).await
    }
    // ANCHOR_END: create

    // ANCHOR: get
    /// Whether `key` is in the set.
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
    /// The neighbours that `key` belongs between, by READs alone.
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
    /// Whether two nodes that were read under their locks are neighbours in the list.
    fn are_neighbours(
        pred: &NodeSnapshot<'_, K>,
        curr: Shared<'_, Node<K>>,
        seen: &NodeSnapshot<'_, K>,
    ) -> bool {
        // The predecessor's link has no mark and leads to `curr`; a tail has no mark to look for.
        pred.next == curr && !seen.next.is_deleted()
    }
    // ANCHOR_END: validate

    // ANCHOR: insert
    /// Puts `key` into the set; gives whether it was not there.
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
                let mut chain = g.chain();
                chain.store(pred.next(), node);
                chain.release(curr_lock);
                chain.release(pred_lock);
                chain.submit().await?;
                return Ok(true);
            }
            self.start_over(&mut backoff, [pred_lock, curr_lock]).await;
        }
    }
    // ANCHOR_END: insert

    // ANCHOR: remove
    /// Takes `key` out of the set; gives whether it was there.
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
                let mut chain = g.chain();
                chain.store(curr.next(), next.with_deleted());
                chain.store(pred.next(), next);
                chain.release(curr_lock);
                chain.release(pred_lock);
                chain.submit().await?;
                g.sched_reclaim(curr).await?;
                return Ok(true);
            }
            self.start_over(&mut backoff, [pred_lock, curr_lock]).await;
        }
    }
    // ANCHOR_END: remove

    // ANCHOR: recover
    /// Puts right what the last owner of one of two locks has left, and releases both.
    async fn recover_one_of<'g>(
        &self,
        [(pred, pred_lock), (curr, curr_lock)]: [(Shared<'g, Node<K>>, LockGuard<'g>); 2],
        g: &'g Guard<'_>,
    ) -> Result<()> {
        // One at a time: what is released meanwhile is said to be in need again.
        if pred_lock.needs_recovery() {
            drop(curr_lock);
            self.recover_node(pred, pred_lock, g).await
        } else {
            drop(pred_lock);
            self.recover_node(curr, curr_lock, g).await
        }
    }

    /// Puts right what the last owner of a node's lock has left, and releases the lock.
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
        // The owner was removing this node; whether it is out yet, its predecessor knows, whose lock the owner has, too.
        drop(lock);
        let Position { pred, .. } = self.find(seen.key, g).await?;
        let lock = pred.lock().acquire(g).await?;
        let seen = pred.read(g).await?;
        if lock.needs_recovery() && !seen.next.is_deleted() {
            return self.finish_removal(pred, seen, lock, g).await;
        }
        Ok(())
    }

    /// Takes the successor of a node that is in the list out of it, if it is marked: under the node's lock only one who died
    /// can have left it so.
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

    /// Puts right whatever threads that died have left, and frees the locks that they held. One READ a node, and a few
    /// round trips for each such lock. Others may use the list.
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

    /// The list has changed since the search: gives the locks back, without waiting for that, and waits for a while.
    async fn start_over(&self, backoff: &mut Backoff<'_>, locks: [LockGuard<'_>; 2]) {
        drop(locks);
        self.restarts.set(self.restarts.get() + 1);
        backoff.wait().await;
    }

    /// How often this handle's updates found that the list had changed under them and started over.
    pub fn restarts(&self) -> u64 {
        self.restarts.get()
    }

    // ANCHOR: iter
    /// The keys in ascending order, while no other thread changes the set. One READ a node.
    ///
    /// # Errors
    /// An error says which node breaks the order, is marked, or is locked: at a quiescent point none is.
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
    /// Frees the list, while no other thread uses it. One READ a node.
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
