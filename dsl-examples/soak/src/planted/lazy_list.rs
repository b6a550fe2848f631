//! Bugs of the lazy list.

use super::{Bug, Check, Planted, Structure};

pub(super) const BUGS: &[Planted] = &[
    // ANCHOR: validate
    Planted {
        name: "lazy_list_does_not_validate",
        structure: Structure::LazyList,
        bug: Bug::Edit { search: "pred.next == curr && !seen.next.is_deleted()", replacement: "true" },
        invariant: "two nodes are neighbours when a node is linked between them",
        why: "what was found without locks may have changed before they were taken",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    // ANCHOR_END: validate
    Planted {
        name: "lazy_list_does_not_mark",
        structure: Structure::LazyList,
        bug: Bug::Edit { search: "chain.store(curr.next(), next.with_deleted());", replacement: "" },
        invariant: "a node that leaves the list is marked first",
        why: "whoever waits for the removed node's lock can not see that it is out of the list, and inserts behind it",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "lazy_list_unlocks_curr_early",
        structure: Structure::LazyList,
        bug: Bug::Edit {
            search: "\
                    let next = curr_seen.next;
                    let mut chain = g.chain();",
            replacement: "\
                    let next = curr_seen.next;
                    curr_lock.release().await?;
                    let curr_lock = curr.lock().acquire(g).await?;
                    let mut chain = g.chain();",
        },
        invariant: "the link of a removed node does not change between its READ and the mark",
        why: "a key inserted behind the node between the READ of its link and the mark is lost",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "lazy_list_unlocks_pred_early",
        structure: Structure::LazyList,
        bug: Bug::Edit {
            search: "\
                    let mut chain = g.chain();
                    chain.store(pred.next(), node);
                    chain.release(curr_lock);
                    chain.release(pred_lock);",
            replacement: "\
                    pred_lock.release().await?;
                    let mut chain = g.chain();
                    chain.store(pred.next(), node);
                    chain.release(curr_lock);",
        },
        invariant: "a link is written by the owner of its node's lock only",
        why: "the predecessor may be removed before the new node is linked to it, and the mark is overwritten",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "lazy_list_validates_without_mark",
        structure: Structure::LazyList,
        bug: Bug::Edit {
            search: "pred.next == curr && !seen.next.is_deleted()",
            replacement: "pred.next.without_marks() == curr && !seen.next.is_deleted()",
        },
        invariant: "no node is linked behind a marked node",
        why: "a predecessor that has been removed still leads to `curr`, and what is inserted behind it is lost",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "lazy_list_frees_at_once",
        structure: Structure::LazyList,
        bug: Bug::Edit { search: "g.sched_reclaim(curr).await?;", replacement: "ct.delete(curr).await?;" },
        invariant: "a removed node is freed when no guard protects it any more",
        why: "other threads may stand on the removed node",
        caught_by: Check::Memory,
        needs_faults: false,
    },
    Planted {
        name: "lazy_list_keeps_lock",
        structure: Structure::LazyList,
        bug: Bug::Edit {
            search: "\
                    chain.store(pred.next(), node);
                    chain.release(curr_lock);",
            replacement: "\
                    chain.store(pred.next(), node);
                    std::mem::forget(curr_lock);",
        },
        invariant: "an operation has released its locks when it returns",
        why: "its thread takes a lock that it holds itself: an error, which names the lock; others wait for it for ever",
        caught_by: Check::Error,
        needs_faults: false,
    },
    Planted {
        name: "lazy_list_starts_over_with_its_locks",
        structure: Structure::LazyList,
        bug: Bug::Edit { search: "drop(locks);", replacement: "std::mem::forget(locks);" },
        invariant: "an operation that starts over holds no lock",
        why: "its second attempt takes locks that it holds itself: an error, which names the lock",
        caught_by: Check::Error,
        needs_faults: false,
    },
];
