//! The lazy list written by hand for shared memory, on `crossbeam-epoch`.
//!
//! The algorithm is that of `farfield_examples::LazyList`, step by step: the same three fields a node, sentinels recognised by
//! address, a mark in the link, a pin for each operation. So it shows the cost of that list without distribution.
//!
//! Why an access to a node is safe (all code that accesses nodes is in this file):
//!
//! 1. The head and the tail are freed by `Drop` only. The link of every other node, and of the head, points to a node, never to null. The tail's
//!    is null, and an operation that has reached the tail does not follow it.
//! 2. A link changes only under its node's lock, and no more once it is marked, which `are_neighbours` checks. So an unlinked node keeps the
//!    link that it had when it was unlinked.
//! 3. A node is retired by the operation that unlinked it, after that: each node once, since only one operation can mark it.
//! 4. So under a guard, every node that an operation reaches from the head by links that it loads was reachable when the guard was taken, or
//!    later: by induction along the path, by 2 where a node on it was unlinked. A node that was reachable then is retired after the guard was
//!    taken (3), and `crossbeam-epoch` frees it after the guard is dropped.

use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_epoch::{Atomic, Guard, Owned, Shared};

/// The mark of a node that is not in the set any more.
const DELETED: usize = 1;

/// A node, as large as the other list's.
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
    /// Returns whether `key` is in the set.
    #[must_use]
    pub fn get(&self, key: u64) -> bool {
        let g = &crossbeam_epoch::pin();
        let tail = self.tail.load(Ordering::SeqCst, g);
        // SAFETY: the pointer is that of the head, which lives as long as the list (1).
        let head = unsafe { node(self.head.load(Ordering::SeqCst, g)) };
        let mut curr = head.next.load(Ordering::SeqCst, g);
        loop {
            // SAFETY: `curr` was reached from the head under this guard, and the loop ends at the tail (4).
            let here = unsafe { node(curr) };
            let next = here.next.load(Ordering::SeqCst, g);
            if curr == tail || here.key >= key {
                return curr != tail && here.key == key && next.tag() != DELETED;
            }
            curr = next.with_tag(0);
        }
    }

    /// Inserts `key`. Returns `true` if the key was absent.
    pub fn insert(&self, key: u64) -> bool {
        let g = &crossbeam_epoch::pin();
        loop {
            let Position { pred, here, curr, found } = self.find(key, g);
            if found {
                return false;
            }
            let locked = Locked::neighbours(pred, here);
            if locked.are_neighbours(curr, g) {
                let new = Node::new(key, Atomic::null());
                new.next.store(curr, Ordering::SeqCst);
                locked.pred.next.store(new, Ordering::SeqCst);
                return true;
            }
        }
    }

    /// Removes `key`. Returns `true` if the key was present.
    pub fn remove(&self, key: u64) -> bool {
        let g = &crossbeam_epoch::pin();
        loop {
            let Position { pred, here, curr, found } = self.find(key, g);
            if !found {
                return false;
            }
            let locked = Locked::neighbours(pred, here);
            if locked.are_neighbours(curr, g) {
                let next = locked.curr.next.load(Ordering::SeqCst, g);
                locked.curr.next.store(next.with_tag(DELETED), Ordering::SeqCst);
                locked.pred.next.store(next, Ordering::SeqCst);
                drop(locked);
                // SAFETY: this call alone has marked the node, under its lock, since `are_neighbours` rejects a marked node. Then it changed the only link to
                // the node, that of its predecessor, under the predecessor's lock. So the node is retired once, after it was unlinked (3).
                unsafe { g.defer_destroy(curr) };
                return true;
            }
        }
    }

    /// Finds the neighbours between which `key` belongs, and whether the second has it.
    fn find<'g>(&self, key: u64, g: &'g Guard) -> Position<'g> {
        let tail = self.tail.load(Ordering::SeqCst, g);
        // SAFETY: as in `get`.
        let mut pred = unsafe { node(self.head.load(Ordering::SeqCst, g)) };
        let mut curr = pred.next.load(Ordering::SeqCst, g);
        loop {
            // SAFETY: as in `get`.
            let here = unsafe { node(curr) };
            let next = here.next.load(Ordering::SeqCst, g);
            if curr == tail || here.key >= key {
                let found = curr != tail && here.key == key && next.tag() != DELETED;
                return Position { pred, here, curr, found };
            }
            pred = here;
            curr = next.with_tag(0);
        }
    }
}

/// Two nodes between which a key belongs.
struct Position<'g> {
    pred: &'g Node,
    /// The second node, and the pointer to it.
    here: &'g Node,
    curr: Shared<'g, Node>,
    /// True if the second has the key.
    found: bool,
}

/// Two locked nodes.
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

/// The node that a pointer points to, for the lifetime of its guard.
///
/// # Safety
/// The pointer is that of the head, or was reached from the head under its guard. It is not the tail's link, which is null.
unsafe fn node(shared: Shared<'_, Node>) -> &Node {
    // SAFETY: such a pointer is not null (1), and its node is freed after the guard is dropped (4).
    unsafe { shared.deref() }
}

impl Drop for NativeLazyList {
    fn drop(&mut self) {
        // SAFETY: the list is borrowed exclusively, and no operation's references outlive the operation. So no other thread accesses a node of the list, and
        // no guard is needed. (The collector owns the retired nodes.)
        let g = unsafe { crossbeam_epoch::unprotected() };
        let mut curr = self.head.load(Ordering::Relaxed, g).with_tag(0);
        while !curr.is_null() {
            // SAFETY: `curr` was reached from the head and is not null, and its node is freed only below.
            let next = unsafe { node(curr) }.next.load(Ordering::Relaxed, g).with_tag(0);
            // SAFETY: the nodes form a line, so each is reached once; retired nodes are not in it. Each was made by `Owned`.
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

    /// All threads unlink, retire and read nodes concurrently. A sanitizer finds a node that is freed too early.
    #[test]
    fn threads_that_insert_and_remove_the_same_keys_access_no_freed_node() {
        const KEYS: u64 = 16;
        let set = NativeLazyList::default();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let set = &set;
                scope.spawn(move || {
                    for round in 0..2000_u64 {
                        let key = (round * 7 + thread * 5) % KEYS;
                        match (round + thread) % 3 {
                            0 => set.insert(key),
                            1 => set.remove(key),
                            _ => set.get(key),
                        };
                    }
                });
            }
        });
        for key in 0..KEYS {
            let was_there = set.get(key);
            assert_eq!(set.insert(key), !was_there);
            assert!(set.remove(key) && !set.get(key));
        }
    }
}
