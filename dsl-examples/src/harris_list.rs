//! The Harris list: an ordered set without locks.
//!
//! After Harris, "A Pragmatic Implementation of Non-Blocking Linked-Lists" (DISC 2001), with the changes of Michael,
//! "High Performance Dynamic Lock-Free Hash Tables and List-Based Sets" (SPAA 2002): a search that meets a marked node
//! unlinks it and continues, one node at a time. A node is removed in two steps: marking its link `deleted` takes it out of
//! the set, and no insertion behind it can succeed any more. A CAS on its predecessor's link then unlinks it.
//!
//! Invariants:
//! - the keys between the sentinels ascend strictly;
//! - the link of a marked node never changes again;
//! - a node is retired by the thread whose CAS unlinked it. Exactly one CAS does: it expects an unmarked link to the node, in a
//!   predecessor that is in the list, and no operation links a marked node again.
//!
//! | operation | takes effect | round trips, if it visits `h` nodes without contention |
//! |---|---|---|
//! | `get` | at the READ of the last node, or while the key was absent | h + 1 |
//! | `insert` | at the CAS of the predecessor's link | h + 2, h + 1 if the key is there |
//! | `remove` | at the CAS that marks | h + 3, h + 1 if the key is not there |
//!
//! The list is lock-free: an operation starts over only when a CAS of another operation has succeeded.
//!
//! ```
//! use farfield::prelude::*;
//! use farfield_examples::HarrisList;
//!
//! # fn main() -> farfield::Result<()> {
//! Cluster::connect("local:")?.run(4, async |ct| {
//!     let root = ct.root_or_init("set", async || HarrisList::<u64>::create(ct).await).await?;
//!     let set = HarrisList::attach(root, ct).await?;
//!     assert!(set.insert(ct.index() as u64, ct).await?);
//!     ct.barrier("inserted").await?;
//!     assert!(set.get(3, ct).await?);
//!     Ok(())
//! })?;
//! # Ok(())
//! # }
//! ```

use std::cell::Cell;

use farfield::prelude::*;

/// A node of the list.
#[remote]
pub struct Node<K: Word> {
    /// The element. A sentinel's key has no meaning.
    key: K,
    /// The next node. The mark says that this node is not in the set any more.
    #[marks(deleted)]
    next: Link<Node<K>>,
}

/// An ordered set of words without locks.
#[remote]
pub struct HarrisList<K: Word> {
    head: RemotePtr<Node<K>>,
    tail: RemotePtr<Node<K>>,
    /// How often this handle's searches had to start over.
    #[local]
    restarts: Cell<u64>,
}

/// The position of a key: `pred` linked to `curr`, both unmarked, when they were read.
struct Position<'g, K: Word> {
    pred: Shared<'g, Node<K>>,
    curr: Shared<'g, Node<K>>,
    /// The successor of `curr`.
    next: Shared<'g, Node<K>, NodeMarked>,
    /// True if `curr` has the key.
    found: bool,
}

impl<K: Word + Ord> HarrisList<K> {
    /// Creates an empty list. Three round trips.
    pub async fn create(ct: &ComputeThread) -> Result<RemotePtr<Self>> {
        let tail = Node::new_in(ct, Node::init(K::initial())).await?.write(ct).await?;
        let head = Node::new_in(ct.near(tail), Node::init(K::initial()).next(tail)).await?.write(ct).await?;
        Self::new_in(ct.near(head), Self::init(head, tail)).await?.write(ct).await
    }

    /// Returns whether `key` is in the set. Passes marked nodes without unlinking them.
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

    /// Finds the unmarked neighbours between which `key` belongs. Unlinks the marked nodes on the way.
    async fn find<'g>(&self, key: K, g: &'g Guard<'_>) -> Result<Position<'g, K>> {
        let mut backoff = g.backoff();
        'restart: loop {
            let mut pred = self.head().shared(g);
            let mut curr = pred.next().load(g).await?.without_marks();
            let mut walk = Walk::new();
            loop {
                walk.visit(curr)?;
                let node = curr.read(g).await?;
                if node.next.is_deleted() {
                    // `curr` is not in the set: unlink it, unless another thread has.
                    let next = node.next.without_marks();
                    if pred.next().compare_exchange(g, curr, next).await?.is_err() {
                        self.restarts.set(self.restarts.get() + 1);
                        backoff.wait().await;
                        continue 'restart;
                    }
                    g.sched_reclaim(curr).await?;
                    curr = next;
                    continue;
                }
                if curr == self.tail() || node.key >= key {
                    let found = curr != self.tail() && node.key == key;
                    return Ok(Position { pred, curr, next: node.next, found });
                }
                pred = curr;
                curr = node.next.without_marks();
            }
        }
    }

    /// Inserts `key`. Returns `true` if the key was absent.
    pub async fn insert(&self, key: K, ct: &ComputeThread) -> Result<bool> {
        let g = &ct.pin();
        let mut backoff = ct.backoff();
        let mut node: Option<Owned<Node<K>>> = None;
        loop {
            let Position { pred, curr, found, .. } = self.find(key, g).await?;
            if found {
                return Ok(false);
            }
            // The object of an earlier attempt needs only a new link.
            let new = match node.take() {
                Some(mut node) => {
                    node.set(|node| node.next(), curr);
                    node
                }
                None => Node::new_in(ct.near(pred), Node::init(key).next(curr)).await?,
            };
            match pred.next().compare_exchange(g, curr, new).await? {
                Ok(_) => return Ok(true),
                Err(changed) => node = Some(changed.new),
            }
            backoff.wait().await;
        }
    }

    /// Removes `key`. Returns `true` if the key was present.
    pub async fn remove(&self, key: K, ct: &ComputeThread) -> Result<bool> {
        let g = &ct.pin();
        let mut backoff = ct.backoff();
        loop {
            let Position { pred, curr, next, found } = self.find(key, g).await?;
            if !found {
                return Ok(false);
            }
            if curr.next().compare_exchange(g, next, next.with_deleted()).await?.is_ok() {
                // Out of the set. If this CAS fails, a search unlinks and retires the node.
                if pred.next().compare_exchange(g, curr, next).await?.is_ok() {
                    g.sched_reclaim(curr).await?;
                } else {
                    self.find(key, g).await?;
                }
                return Ok(true);
            }
            backoff.wait().await;
        }
    }

    /// How often this handle's searches started over.
    pub fn restarts(&self) -> u64 {
        self.restarts.get()
    }

    /// Returns the keys in ascending order. No other thread may change the set meanwhile. One READ a node.
    ///
    /// A thread that died in a removal may have left a marked node. It is not in the set, and the next search that passes it
    /// unlinks it.
    ///
    /// # Errors
    /// The error names a node that is out of order.
    #[allow(clippy::iter_not_returning_iterator)] // each step is a READ, which an `Iterator` could not wait for
    pub async fn iter(&self, ct: &ComputeThread) -> Result<Vec<K>> {
        let g = &ct.pin();
        let mut keys: Vec<K> = Vec::new();
        let mut curr = self.head().next().load(g).await?.without_marks();
        let mut walk = Walk::new();
        while curr != self.tail() {
            walk.visit(curr)?;
            let node = curr.read(g).await?;
            if !node.next.is_deleted() {
                if keys.last().is_some_and(|last| *last >= node.key) {
                    return Err(farfield::Error::other(format!(
                        "the node {curr:?} of key {:?} is out of order",
                        node.key
                    )));
                }
                keys.push(node.key);
            }
            curr = node.next.without_marks();
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
