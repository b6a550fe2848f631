//! The lazy list in a direct translation: the algorithm of [`lazy_list`](crate::lazy_list) with a round trip for every step.
//!
//! It is correct, and passes every test of the other list. It serves as a comparison: the book's chapter "Fewer round trips" turns
//! it into the other list, step by step, and counts. Each field is read by itself, some are read twice, and operations that could
//! travel in one chain are awaited one by one, as in the list of the tutorial of Remus.
//!
//! | operation | round trips, if it visits `h` nodes, sentinels included, without contention |
//! |---|---|
//! | `get` | 2h |
//! | `insert` | 2h + 7, 2h + 5 if the key is there |
//! | `remove` | 2h + 8, 2h + 5 if the key is not there |
//!
//! A `get` that does not find its key takes one less, and so does every operation that reaches the tail.

use farfield::prelude::*;

/// A node of the list. Its fields are public for the variants in the book's chapter.
#[remote]
pub struct Node<K: Word> {
    /// The element. A sentinel's key has no meaning.
    pub key: K,
    /// The next node. The mark says that this node is not in the set any more.
    #[marks(deleted)]
    pub next: Link<Node<K>>,
    /// Its owner may write `next`.
    pub lock: Lock,
}

/// An ordered set of words, for comparison with `LazyList`, which is the one to use.
#[remote]
pub struct LazyListNaive<K: Word> {
    /// The first sentinel.
    pub head: RemotePtr<Node<K>>,
    /// The last sentinel.
    pub tail: RemotePtr<Node<K>>,
}

impl<K: Word + Ord> LazyListNaive<K> {
    /// Creates an empty list. Three round trips.
    pub async fn create(ct: &ComputeThread) -> Result<RemotePtr<Self>> {
        let tail = Node::new_in(ct, Node::init(K::initial())).await?.write(ct).await?;
        let head = Node::new_in(ct.near(tail), Node::init(K::initial()).next(tail)).await?.write(ct).await?;
        Self::new_in(ct.near(head), Self::init(head, tail)).await?.write(ct).await
    }

    // ANCHOR: find
    /// Finds the neighbours between which `key` belongs.
    pub async fn find<'g>(
        &self,
        key: K,
        g: &'g Guard<'_>,
    ) -> Result<(Shared<'g, Node<K>>, Shared<'g, Node<K>>)> {
        let mut pred = self.head().shared(g);
        let mut curr = pred.next().load(g).await?.without_marks();
        let mut walk = Walk::new();
        while curr != self.tail() && curr.key().read(g).await? < key {
            walk.visit(curr)?;
            pred = curr;
            curr = pred.next().load(g).await?.without_marks();
        }
        Ok((pred, curr))
    }
    // ANCHOR_END: find

    // ANCHOR: get
    /// Returns whether `key` is in the set.
    pub async fn get(&self, key: K, ct: &ComputeThread) -> Result<bool> {
        let g = &ct.pin();
        let (_, curr) = self.find(key, g).await?;
        if curr == self.tail() || curr.key().read(g).await? != key {
            return Ok(false);
        }
        Ok(!curr.next().load(g).await?.is_deleted())
    }
    // ANCHOR_END: get

    // ANCHOR: neighbours
    /// Returns whether two locked nodes are neighbours in the list.
    pub async fn are_neighbours(
        pred: Shared<'_, Node<K>>,
        curr: Shared<'_, Node<K>>,
        g: &Guard<'_>,
    ) -> Result<bool> {
        Ok(pred.next().load(g).await? == curr && !curr.next().load(g).await?.is_deleted())
    }
    // ANCHOR_END: neighbours

    // ANCHOR: insert
    /// Inserts `key`. Returns `true` if the key was absent.
    pub async fn insert(&self, key: K, ct: &ComputeThread) -> Result<bool> {
        let g = &ct.pin();
        let mut backoff = ct.backoff();
        loop {
            let (pred, curr) = self.find(key, g).await?;
            let pred_lock = pred.lock().acquire(g).await?;
            if pred_lock.needs_recovery() {
                self.recover_node(pred, pred_lock, g).await?;
                continue;
            }
            let curr_lock = curr.lock().acquire(g).await?;
            if curr_lock.needs_recovery() {
                pred_lock.release().await?;
                self.recover_node(curr, curr_lock, g).await?;
                continue;
            }
            let valid = Self::are_neighbours(pred, curr, g).await?;
            let absent = curr == self.tail() || curr.key().read(g).await? != key;
            if valid && absent {
                let node = Node::new_in(g.near(pred), Node::init(key).next(curr)).await?;
                let node = node.write(g).await?;
                pred.next().store(g, node).await?;
            }
            curr_lock.release().await?;
            pred_lock.release().await?;
            if valid {
                return Ok(absent);
            }
            backoff.wait().await;
        }
    }
    // ANCHOR_END: insert

    // ANCHOR: remove
    /// Removes `key`. Returns `true` if the key was present.
    pub async fn remove(&self, key: K, ct: &ComputeThread) -> Result<bool> {
        let g = &ct.pin();
        let mut backoff = ct.backoff();
        loop {
            let (pred, curr) = self.find(key, g).await?;
            let pred_lock = pred.lock().acquire(g).await?;
            if pred_lock.needs_recovery() {
                self.recover_node(pred, pred_lock, g).await?;
                continue;
            }
            let curr_lock = curr.lock().acquire(g).await?;
            if curr_lock.needs_recovery() {
                pred_lock.release().await?;
                self.recover_node(curr, curr_lock, g).await?;
                continue;
            }
            let valid = Self::are_neighbours(pred, curr, g).await?;
            let present = curr != self.tail() && curr.key().read(g).await? == key;
            if valid && present {
                let next = curr.next().load(g).await?;
                curr.next().store(g, next.with_deleted()).await?;
                pred.next().store(g, next).await?;
            }
            curr_lock.release().await?;
            pred_lock.release().await?;
            if valid && present {
                g.sched_reclaim(curr).await?;
            }
            if valid {
                return Ok(present);
            }
            backoff.wait().await;
        }
    }
    // ANCHOR_END: remove

    /// Finishes the removal that the dead owner of a node's lock may have begun, and releases the lock.
    async fn recover_node<'g>(
        &self,
        mut node: Shared<'g, Node<K>>,
        mut lock: LockGuard<'g>,
        g: &'g Guard<'_>,
    ) -> Result<()> {
        if node.next().load(g).await?.is_deleted() {
            // Its removal may be unfinished. The lock of its predecessor is needed to finish it.
            drop(lock);
            node = self.find(node.key().read(g).await?, g).await?.0;
            lock = node.lock().acquire(g).await?;
        }
        let curr = node.next().load(g).await?;
        if lock.needs_recovery() && !curr.is_deleted() && node != self.tail() {
            let next = if curr == self.tail() { curr } else { curr.next().load(g).await? };
            if next.is_deleted() {
                node.next().store(g, next.without_marks()).await?;
                g.sched_reclaim(curr).await?;
            }
        }
        if !curr.is_deleted() {
            lock.recovered();
        }
        Ok(lock.release().await?)
    }

    /// Finishes the removals that dead threads have begun, and frees their locks. Other threads may use the list meanwhile.
    pub async fn recover(&self, ct: &ComputeThread) -> Result<()> {
        let g = &ct.pin();
        let mut curr = self.head().shared(g);
        let mut walk = Walk::new();
        loop {
            walk.visit(curr)?;
            let lock = curr.lock().acquire(g).await?;
            if lock.needs_recovery() {
                self.recover_node(curr, lock, g).await?;
            }
            if curr == self.tail() {
                return Ok(());
            }
            curr = curr.next().load(g).await?.without_marks();
        }
    }

    /// Returns the keys in ascending order. No other thread may change the set meanwhile. Two READs a node.
    ///
    /// # Errors
    /// The error names a node that is out of order, marked or locked. In a quiescent list there is none.
    #[allow(clippy::iter_not_returning_iterator)] // each step is a READ, which an `Iterator` could not wait for
    pub async fn iter(&self, ct: &ComputeThread) -> Result<Vec<K>> {
        let g = &ct.pin();
        let mut keys: Vec<K> = Vec::new();
        let mut curr = self.head().next().load(g).await?.without_marks();
        while curr != self.tail() {
            let (key, next) = (curr.key().read(g).await?, curr.next().load(g).await?);
            let locked = curr.lock().state(g).await?.is_held();
            if next.is_deleted() || locked || keys.last().is_some_and(|last| *last >= key) {
                return Err(farfield::Error::other(format!(
                    "the node {curr:?} of key {key:?} is marked, locked or out of order"
                )));
            }
            keys.push(key);
            curr = next.without_marks();
        }
        Ok(keys)
    }

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
}
