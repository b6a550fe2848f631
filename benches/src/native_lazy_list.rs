//! The lazy list on `crossbeam-epoch`, as one writes it by hand for shared memory.
//!
//! The same algorithm, step by step, as `farfield_examples::LazyList`: the same three fields a node, sentinels told by
//! address, a mark in the link, a pin for each operation. It is what that list costs where nothing is distributed.
//!
//! Why a node may be looked at (all code that touches nodes is in this file):
//!
//! 1. The head and the tail are freed by `Drop` only. The link of every other node, and of the head, leads to a node, never to null; the tail's is
//!    null, and an operation that has reached the tail goes no further.
//! 2. A link changes under its node's lock, and no more once it is marked, which is what `are_neighbours` checks. So a node that was unlinked
//!    keeps its link, which leads to where it led when the node was unlinked.
//! 3. A node is retired by the operation that unlinked it, after that: each node once, since only one operation can mark it.
//! 4. So under a guard, whatever an operation reaches from the head by links that it loads was reachable when the guard was taken, or later: by
//!    induction along the path, by 2 where a node on it was unlinked. What was reachable then is retired later than the guard was taken
//!    (3), and `crossbeam-epoch` frees it after the guard.

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
        // SAFETY: the head's own pointer leads to the head, which is there as long as the list (1).
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

    /// Puts `key` into the set; gives whether it was not there.
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

    /// Takes `key` out of the set; gives whether it was there.
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
                // SAFETY: its mark was set by this call, under its lock, and by no other, since `are_neighbours` refuses a marked node; then the only link that
                // led to it, its predecessor's, was moved on under that one's lock. So it is retired once, after it was unlinked (3).
                unsafe { g.defer_destroy(curr) };
                return true;
            }
        }
    }

    /// The neighbours that `key` belongs between, and whether the second holds it.
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
    /// The second one, and the pointer that led to it.
    here: &'g Node,
    curr: Shared<'g, Node>,
    /// Whether the second holds the key.
    found: bool,
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

/// The node that a pointer leads to, for as long as its guard.
///
/// # Safety
/// It leads to the head, or was reached from there under its guard; it is not the tail's link, which is null.
unsafe fn node(shared: Shared<'_, Node>) -> &Node {
    // SAFETY: such a pointer is not null (1), and its node is freed later than the guard is dropped (4).
    unsafe { shared.deref() }
}

impl Drop for NativeLazyList {
    fn drop(&mut self) {
        // SAFETY: the list is borrowed exclusively, and no operation's references outlive the operation. So no other thread looks at a node that is in the
        // list, and none needs a guard for it. (Nodes that were retired are in the collector's hands.)
        let g = unsafe { crossbeam_epoch::unprotected() };
        let mut curr = self.head.load(Ordering::Relaxed, g).with_tag(0);
        while !curr.is_null() {
            // SAFETY: it was reached from the head, it is not null, and it is freed only below.
            let next = unsafe { node(curr) }.next.load(Ordering::Relaxed, g).with_tag(0);
            // SAFETY: nodes of the list are in a line, so each is reached once; those that were retired are not in it. Each was made by `Owned`.
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

    /// Nodes are unlinked, retired and looked at by all threads at once: under a sanitizer, one that is freed too early is found.
    #[test]
    fn threads_that_insert_and_remove_the_same_keys_look_at_no_freed_node() {
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
