//! Bugs of the lazy list.

use super::bug::{Planted, Structure};
use crate::Check;

pub(super) const BUGS: &[Planted] = &[
    // ANCHOR: validate
    Planted {
        name: "lazy_list_does_not_validate",
        structure: Structure::LazyList,
        edits: &[("pred.next == curr && !seen.next.is_deleted()", "true")],
        invariant: "two nodes are neighbours when a node is linked between them",
        why: "the nodes found without locks may have changed before the locks were taken",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    // ANCHOR_END: validate
    Planted {
        name: "lazy_list_does_not_mark",
        structure: Structure::LazyList,
        edits: &[("op::store(curr.next(), next.with_deleted())", "()")],
        invariant: "a node that leaves the list is marked first",
        why: "a thread that waits for the removed node's lock can not see that it is unlinked, and inserts behind it",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "lazy_list_unlocks_curr_early",
        structure: Structure::LazyList,
        edits: &[(
            "let next = curr_seen.next;",
            "\
                    let next = curr_seen.next;
                    curr_lock.release().await?;
                    let curr_lock = curr.lock().acquire(g).await?;",
        )],
        invariant: "the link of a removed node does not change between its READ and the mark",
        why: "a key inserted behind the node between the READ of its link and the mark is lost",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "lazy_list_unlocks_pred_early",
        structure: Structure::LazyList,
        edits: &[(
            "g.chain((link, op::release(curr_lock), op::release(pred_lock)))",
            "\
                    pred_lock.release().await?;
                    g.chain((link, op::release(curr_lock)))",
        )],
        invariant: "a link is written by the owner of its node's lock only",
        why: "the predecessor may be removed before the new node is linked to it, and the mark is overwritten",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "lazy_list_validates_without_mark",
        structure: Structure::LazyList,
        edits: &[(
            "pred.next == curr && !seen.next.is_deleted()",
            "pred.next.without_marks() == curr && !seen.next.is_deleted()",
        )],
        invariant: "no node is linked behind a marked node",
        why: "a removed predecessor still links to `curr`, and a node inserted behind it is lost",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "lazy_list_frees_immediately",
        structure: Structure::LazyList,
        edits: &[("g.sched_reclaim(curr).await?;", "ct.delete(curr).await?;")],
        invariant: "a removed node is freed when no guard protects it any more",
        why: "other threads may be reading the removed node",
        caught_by: Check::Memory,
        needs_faults: false,
    },
    Planted {
        name: "lazy_list_keeps_lock",
        structure: Structure::LazyList,
        edits: &[(
            "g.chain((link, op::release(curr_lock), op::release(pred_lock)))",
            "\
                    std::mem::forget(curr_lock);
                    g.chain((link, op::release(pred_lock)))",
        )],
        invariant: "an operation has released its locks when it returns",
        why: "its thread takes a lock that it holds itself: an error, which names the lock; others wait for it forever",
        caught_by: Check::Error,
        needs_faults: false,
    },
    Planted {
        name: "lazy_list_starts_over_with_its_locks",
        structure: Structure::LazyList,
        edits: &[("drop(locks);", "std::mem::forget(locks);")],
        invariant: "an operation that starts over holds no lock",
        why: "its second attempt takes locks that it holds itself: an error, which names the lock",
        caught_by: Check::Error,
        needs_faults: false,
    },
    Planted {
        name: "lazy_list_gets_without_a_guard",
        structure: Structure::LazyList,
        edits: &[(
            "\
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
                }",
            "\
                let mut at = self.head().next().load(&ct.pin()).await?.without_marks().as_ptr();
                loop {
                    ct.yield_now().await;
                    let g = &ct.pin();
                    let curr = at.shared(g);
                    let node = curr.read(g).await?;
                    if curr == self.tail() || node.key >= key {
                        return Ok(curr != self.tail() && node.key == key && !node.next.is_deleted());
                    }
                    at = node.next.without_marks().as_ptr();
                }",
        )],
        invariant: "a pointer is used only under the guard under which it was read",
        why: "each step has a guard of its own, and the next node may be freed between two of them",
        caught_by: Check::Memory,
        needs_faults: false,
    },
    Planted {
        name: "lazy_list_unlinks_under_the_next_guard",
        structure: Structure::LazyList,
        edits: &[
            (
                "\
                pub async fn remove(&self, key: K, ct: &ComputeThread) -> Result<bool> {
                    let g = &ct.pin();",
                "\
                pub async fn remove(&self, key: K, ct: &ComputeThread) -> Result<bool> {
                    if !self.mark_and_retire(key, ct).await? {
                        return Ok(false);
                    }
                    let mut backoff = ct.backoff();
                    loop {
                        let g = &ct.pin();
                        let Position { pred, curr, .. } = self.find(key, g).await?;
                        let lock = pred.lock().acquire(g).await?;
                        let seen = pred.read(g).await?;
                        if seen.next == curr {
                            let next = curr.next().load(g).await?;
                            if next.is_deleted() {
                                pred.next().store(g, next.without_marks()).await?;
                            }
                            lock.release().await?;
                            return Ok(true);
                        }
                        drop(lock);
                        backoff.wait().await;
                    }
                }
                async fn mark_and_retire(&self, key: K, ct: &ComputeThread) -> Result<bool> {
                    let g = &ct.pin();",
            ),
            (", op::store(pred.next(), next));", ", ());"),
        ],
        invariant: "a node is unlinked before it is retired",
        why: "a thread whose guard is younger than the retirement can still reach the node, and does not delay its reclamation",
        caught_by: Check::Memory,
        needs_faults: false,
    },
    Planted {
        name: "lazy_list_retires_its_neighbour",
        structure: Structure::LazyList,
        edits: &[("g.sched_reclaim(curr).await?;", "g.sched_reclaim(pred).await?;")],
        invariant: "the retired node is the unlinked one",
        why: "the predecessor is in the list, and is freed",
        caught_by: Check::Memory,
        needs_faults: false,
    },
    Planted {
        name: "lazy_list_forgets_to_retire",
        structure: Structure::LazyList,
        edits: &[("g.sched_reclaim(curr).await?;", "")],
        invariant: "a removed node is retired",
        why: "no thread frees it",
        caught_by: Check::Leak,
        needs_faults: false,
    },
    Planted {
        name: "lazy_list_recovers_released_locks_only",
        structure: Structure::LazyList,
        edits: &[("if seen.lock.is_held() || seen.lock.is_abandoned() {", "if seen.lock.is_abandoned() {")],
        invariant: "recovery frees the locks that dead threads hold",
        why: "a node stays locked by a thread that died with its lock",
        caught_by: Check::Error,
        needs_faults: true,
    },
    Planted {
        name: "lazy_list_retires_before_it_unlinks",
        structure: Structure::LazyList,
        edits: &[
            (
                "let next = curr_seen.next;",
                "\
                let next = curr_seen.next;
                g.sched_reclaim(curr).await?;",
            ),
            (
                "\
                submit().await?;
                g.sched_reclaim(curr).await?;",
                "submit().await?;",
            ),
        ],
        invariant: "a retired node is not in the list when its thread dies",
        why: "the guard protects the node until it is unlinked, but if the thread dies first another removal retires it again",
        caught_by: Check::Memory,
        needs_faults: true,
    },
];
