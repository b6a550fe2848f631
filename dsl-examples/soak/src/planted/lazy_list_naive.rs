//! Bugs of the naive lazy list: most are races between two round trips of an operation.

use super::bug::{Planted, Structure};
use crate::Check;

pub(super) const BUGS: &[Planted] = &[
    Planted {
        name: "lazy_list_naive_unlinks_without_mark",
        structure: Structure::LazyListNaive,
        edits: &[("curr.next().store(g, next.with_deleted()).await?;", "")],
        invariant: "a node that leaves the list is marked first",
        why: "a thread that waits for the removed node's lock inserts behind it, and the key is lost",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "lazy_list_naive_gets_without_a_guard",
        structure: Structure::LazyListNaive,
        edits: &[(
            "\
                let g = &ct.pin();
                let (_, curr) = self.find(key, g).await?;",
            "\
                let mut at = self.head();
                loop {
                    at = at.next().load(&ct.pin()).await?.without_marks().as_ptr();
                    ct.yield_now().await;
                    let g = &ct.pin();
                    if at == self.tail() || at.shared(g).key().read(g).await? >= key {
                        break;
                    }
                }
                let g = &ct.pin();
                let curr = at.shared(g);",
        )],
        invariant: "a pointer is used only under the guard under which it was read",
        why: "a node on the way may be freed before the next guard protects it",
        caught_by: Check::Memory,
        needs_faults: false,
    },
    Planted {
        name: "lazy_list_naive_unlinks_under_the_next_guard",
        structure: Structure::LazyListNaive,
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
                        let (pred, curr) = self.find(key, g).await?;
                        let lock = pred.lock().acquire(g).await?;
                        if pred.next().load(g).await? == curr {
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
            ("pred.next().store(g, next).await?;", ""),
        ],
        invariant: "a node is unlinked before it is retired",
        why: "a thread whose guard is younger than the retirement can still reach the node, and does not delay its reclamation",
        caught_by: Check::Memory,
        needs_faults: false,
    },
    Planted {
        name: "lazy_list_naive_removes_with_one_lock",
        structure: Structure::LazyListNaive,
        edits: &[(
            "\
                let present = curr != self.tail() && curr.key().read(g).await? == key;
                if valid && present {
                    let next = curr.next().load(g).await?;
                    curr.next().store(g, next.with_deleted()).await?;
                    pred.next().store(g, next).await?;
                }
                curr_lock.release().await?;",
            "\
                curr_lock.release().await?;
                let present = curr != self.tail() && curr.key().read(g).await? == key;
                if valid && present {
                    let next = curr.next().load(g).await?;
                    curr.next().store(g, next.with_deleted()).await?;
                    pred.next().store(g, next).await?;
                }",
        )],
        invariant: "the link of a removed node does not change between its READ and the mark",
        why: "a key inserted behind the node in between is lost",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "lazy_list_naive_writes_before_it_validates",
        structure: Structure::LazyListNaive,
        edits: &[(
            "\
                let valid = Self::are_neighbours(pred, curr, g).await?;
                let absent = curr == self.tail() || curr.key().read(g).await? != key;
                if valid && absent {
                    let node = Node::new_in(g.near(pred), Node::init(key).next(curr)).await?;
                    let node = node.write(g).await?;",
            "\
                let node = Node::new_in(g.near(pred), Node::init(key).next(curr)).await?;
                let node = node.write(g).await?;
                let valid = Self::are_neighbours(pred, curr, g).await?;
                let absent = curr == self.tail() || curr.key().read(g).await? != key;
                if valid && absent {",
        )],
        invariant: "a node that was not linked is freed",
        why: "an insertion that fails or starts over leaks its node",
        caught_by: Check::Leak,
        needs_faults: false,
    },
    Planted {
        name: "lazy_list_naive_removes_without_validation",
        structure: Structure::LazyListNaive,
        edits: &[(
            "\
                let present = curr != self.tail() && curr.key().read(g).await? == key;
                if valid && present {",
            "\
                let present = curr != self.tail() && curr.key().read(g).await? == key;
                let valid = true;
                if present {",
        )],
        invariant: "two nodes are neighbours when the second is unlinked",
        why: "two threads remove one key, or a link is written to a node that is not in the list",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "lazy_list_naive_retires_before_it_unlinks",
        structure: Structure::LazyListNaive,
        edits: &[
            (
                "\
                let next = curr.next().load(g).await?;
                curr.next().store(g, next.with_deleted()).await?;",
                "\
                let next = curr.next().load(g).await?;
                g.sched_reclaim(curr).await?;
                curr.next().store(g, next.with_deleted()).await?;",
            ),
            (
                "\
                if valid && present {
                    g.sched_reclaim(curr).await?;
                }",
                "",
            ),
        ],
        invariant: "a retired node is not in the list when its thread dies",
        why: "the guard protects the node until it is unlinked, but if the thread dies first another removal retires it again",
        caught_by: Check::Memory,
        needs_faults: true,
    },
];
