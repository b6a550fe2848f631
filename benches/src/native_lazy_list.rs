//! The lazy list on `crossbeam-epoch`, as one writes it by hand for shared memory.
//!
//! The same algorithm, step by step, as `farfield_examples::LazyList`: the same three fields a node, sentinels told by
//! address, a mark in the link, a pin for each operation. It is what that list costs where nothing is distributed.

use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_epoch::{Atomic, Guard, Owned, Shared};

/// The mark of a node that has left the set.
const DELETED: usize = 1;

/// A node; the lock is there so that nodes are as large as the other list's.
struct Node {
    key: u64,
    next: Atomic<Node>,
    lock: AtomicU64,
}

impl Node {
    fn new(key: u64, next: Atomic<Node>) -> Owned<Self> {
        Owned::new(Self { key, next, lock: AtomicU64::new(0) })
    }

    fn lock(&self) {
        while self.lock.compare_exchange(0, 1, Ordering::SeqCst, Ordering::SeqCst).is_err() {
            std::hint::spin_loop();
        }
    }

    fn unlock(&self) {
        self.lock.store(0, Ordering::SeqCst);
    }
}

/// An ordered set of 64-bit keys in local memory.
pub struct NativeLazyList {
    head: Atomic<Node>,
    tail: Atomic<Node>,
}

impl Default for NativeLazyList {
    fn default() -> Self {
        let tail = Atomic::from(Node::new(0, Atomic::null()));
        let head = Atomic::from(Node::new(0, tail.clone()));
        Self { head, tail }
    }
}

impl NativeLazyList {
    /// Whether `key` is in the set.
    #[must_use]
    pub fn get(&self, key: u64) -> bool {
        let g = &crossbeam_epoch::pin();
        let tail = self.tail.load(Ordering::SeqCst, g);
        let mut curr = node(self.head.load(Ordering::SeqCst, g)).next.load(Ordering::SeqCst, g);
        loop {
            let here = node(curr);
            let next = here.next.load(Ordering::SeqCst, g);
            if curr == tail || here.key >= key {
                return curr != tail && here.key == key && next.tag() != DELETED;
            }
            curr = next.with_tag(0);
        }
    }

    /// Puts `key` into the set; gives whether it was not there.
    pub fn insert(&self, key: u64) -> bool {
        let g = &crossbeam_epoch::pin();
        loop {
            let (pred, curr, found) = self.find(key, g);
            if found {
                return false;
            }
            let locked = Locked::neighbours(node(pred), node(curr));
            if locked.are_neighbours(curr, g) {
                let new = Node::new(key, Atomic::null());
                new.next.store(curr, Ordering::SeqCst);
                locked.pred.next.store(new, Ordering::SeqCst);
                return true;
            }
        }
    }

    /// Takes `key` out of the set; gives whether it was there.
    pub fn remove(&self, key: u64) -> bool {
        let g = &crossbeam_epoch::pin();
        loop {
            let (pred, curr, found) = self.find(key, g);
            if !found {
                return false;
            }
            let locked = Locked::neighbours(node(pred), node(curr));
            if locked.are_neighbours(curr, g) {
                let next = locked.curr.next.load(Ordering::SeqCst, g);
                locked.curr.next.store(next.with_tag(DELETED), Ordering::SeqCst);
                locked.pred.next.store(next, Ordering::SeqCst);
                drop(locked);
                // SAFETY: no link leads to it any more, and only this thread unlinked it, under its lock.
                unsafe { g.defer_destroy(curr) };
                return true;
            }
        }
    }

    /// The neighbours that `key` belongs between, and whether the second holds it.
    fn find<'g>(&self, key: u64, g: &'g Guard) -> (Shared<'g, Node>, Shared<'g, Node>, bool) {
        let tail = self.tail.load(Ordering::SeqCst, g);
        let mut pred = self.head.load(Ordering::SeqCst, g);
        let mut curr = node(pred).next.load(Ordering::SeqCst, g);
        loop {
            let here = node(curr);
            let next = here.next.load(Ordering::SeqCst, g);
            if curr == tail || here.key >= key {
                return (pred, curr, curr != tail && here.key == key && next.tag() != DELETED);
            }
            pred = curr;
            curr = next.with_tag(0);
        }
    }
}

/// Two nodes whose locks are held.
struct Locked<'g> {
    pred: &'g Node,
    curr: &'g Node,
}

impl<'g> Locked<'g> {
    fn neighbours(pred: &'g Node, curr: &'g Node) -> Self {
        pred.lock();
        curr.lock();
        Self { pred, curr }
    }

    fn are_neighbours(&self, curr: Shared<'_, Node>, g: &Guard) -> bool {
        self.pred.next.load(Ordering::SeqCst, g) == curr
            && self.curr.next.load(Ordering::SeqCst, g).tag() != DELETED
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.curr.unlock();
        self.pred.unlock();
    }
}

fn node(shared: Shared<'_, Node>) -> &Node {
    // SAFETY: every pointer here was loaded from a link of the list, under a guard that outlives its lifetime; links lead to
    // live nodes or, at the tail, are null, and nobody goes past the tail.
    unsafe { shared.deref() }
}

impl Drop for NativeLazyList {
    fn drop(&mut self) {
        // SAFETY: the exclusive borrow proves that no other thread has a pointer into the list.
        let g = unsafe { crossbeam_epoch::unprotected() };
        let mut curr = self.head.load(Ordering::Relaxed, g).with_tag(0);
        while !curr.is_null() {
            let next = node(curr).next.load(Ordering::Relaxed, g).with_tag(0);
            // SAFETY: each node is reached once, and nobody else can reach it.
            drop(unsafe { curr.into_owned() });
            curr = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_set() {
        let set = NativeLazyList::default();
        assert!(!set.get(5));
        for key in [5, 1, 9, 0, u64::MAX] {
            assert!(set.insert(key));
            assert!(!set.insert(key));
        }
        let found: Vec<u64> = [0, 1, 2, 5, 9, 10, u64::MAX].into_iter().filter(|key| set.get(*key)).collect();
        assert_eq!(found, [0, 1, 5, 9, u64::MAX]);
        assert!(set.remove(5));
        assert!(!set.remove(5));
        assert!(!set.get(5));
        assert!(set.get(9));
    }
}
