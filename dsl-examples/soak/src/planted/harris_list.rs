//! Bugs of the Harris list.

use super::bug::{Planted, Structure};
use crate::Check;

pub(super) const BUGS: &[Planted] = &[
    Planted {
        name: "harris_list_does_not_mark",
        structure: Structure::HarrisList,
        edits: &[(
            "if curr.next().compare_exchange(g, next, next.with_deleted()).await?.is_ok() {",
            "if curr.next().compare_exchange(g, next, next).await?.is_ok() {",
        )],
        invariant: "a key is removed by the one CAS that marks its node",
        why: "two threads remove one key, and keys are inserted behind a node that is not in the list",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "harris_list_marks_blindly",
        structure: Structure::HarrisList,
        edits: &[(
            "if curr.next().compare_exchange(g, next, next.with_deleted()).await?.is_ok() {",
            "curr.next().store(g, next.with_deleted()).await?; {",
        )],
        invariant: "the link of a node is the expected one when it is marked",
        why: "a key inserted behind the node since its link was read is lost, and two threads remove one key",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "harris_list_insert_keeps_old_link",
        structure: Structure::HarrisList,
        edits: &[("node.set(|node| node.next(), curr);", "")],
        invariant: "a new node links to the node that its CAS expects",
        why: "the new node skips nodes inserted before the node that it links to",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "harris_list_retires_twice",
        structure: Structure::HarrisList,
        edits: &[(
            "\
                    } else {
                        self.find(key, g).await?;
                    }",
            "\
                    } else {
                        self.find(key, g).await?;
                        g.sched_reclaim(curr).await?;
                    }",
        )],
        invariant: "a node is retired only by the thread whose CAS unlinked it",
        why: "the thread that unlinked the node retires it too, so it is freed twice",
        caught_by: Check::Memory,
        needs_faults: false,
    },
    Planted {
        name: "harris_list_forgets_to_retire",
        structure: Structure::HarrisList,
        edits: &[(
            "\
                        g.sched_reclaim(curr).await?;
                        curr = next;",
            "\
                        curr = next;",
        )],
        invariant: "a node that a search unlinks is retired",
        why: "no thread frees a node that a search has unlinked",
        caught_by: Check::Leak,
        needs_faults: false,
    },
    Planted {
        name: "harris_list_gets_without_a_guard",
        structure: Structure::HarrisList,
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
        name: "harris_list_unlinks_under_the_next_guard",
        structure: Structure::HarrisList,
        edits: &[
            (
                "\
                g.sched_reclaim(curr).await?;
                curr = next;",
                "curr = next;",
            ),
            (
                "\
                pub async fn remove(&self, key: K, ct: &ComputeThread) -> Result<bool> {
                    let g = &ct.pin();",
                "\
                pub async fn remove(&self, key: K, ct: &ComputeThread) -> Result<bool> {
                    let removed = self.mark_and_retire(key, ct).await?;
                    if removed {
                        self.find(key, &ct.pin()).await?;
                    }
                    Ok(removed)
                }
                async fn mark_and_retire(&self, key: K, ct: &ComputeThread) -> Result<bool> {
                    let g = &ct.pin();",
            ),
            (
                "\
                if pred.next().compare_exchange(g, curr, next).await?.is_ok() {
                    g.sched_reclaim(curr).await?;
                } else {
                    self.find(key, g).await?;
                }",
                "g.sched_reclaim(curr).await?;",
            ),
        ],
        invariant: "a node is unlinked before it is retired",
        why: "a thread whose guard is younger than the retirement can still reach the node, and does not delay its reclamation",
        caught_by: Check::Memory,
        needs_faults: false,
    },
    Planted {
        name: "harris_list_unlinks_blindly",
        structure: Structure::HarrisList,
        edits: &[(
            "\
                if pred.next().compare_exchange(g, curr, next).await?.is_err() {
                    self.restarts.set(self.restarts.get() + 1);
                    backoff.wait().await;
                    continue 'restart;
                }",
            "pred.next().store(g, next).await?;",
        )],
        invariant: "a node is unlinked by a CAS that expects the link to it, unmarked",
        why: "a node inserted at the predecessor since it was read is lost, and so is the predecessor's mark",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "harris_list_carries_the_mark_over",
        structure: Structure::HarrisList,
        edits: &[(
            "\
                let next = node.next.without_marks();
                if pred.next().compare_exchange(g, curr, next).await?.is_err() {",
            "\
                let next = node.next.without_marks();
                if pred.next().compare_exchange(g, curr, node.next).await?.is_err() {",
        )],
        invariant: "only the removal of a node marks its link",
        why: "the link that unlinks the node has the node's mark, so its predecessor is removed from the set as well",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "harris_list_forgets_failed_nodes",
        structure: Structure::HarrisList,
        edits: &[(
            "\
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
                }",
            "\
                let new = Node::new_in(ct.near(pred), Node::init(key).next(curr)).await?.write(ct).await?;
                if pred.next().compare_exchange(g, curr, new).await?.is_ok() {
                    return Ok(true);
                }",
        )],
        invariant: "a node that was not linked is used again or freed",
        why: "each attempt of an insertion writes a new node, and leaks it",
        caught_by: Check::Leak,
        needs_faults: false,
    },
    Planted {
        name: "harris_list_retires_before_it_unlinks",
        structure: Structure::HarrisList,
        edits: &[
            (
                "\
                g.sched_reclaim(curr).await?;
                curr = next;",
                "curr = next;",
            ),
            (
                "\
                if pred.next().compare_exchange(g, curr, next).await?.is_ok() {
                    g.sched_reclaim(curr).await?;
                } else {
                    self.find(key, g).await?;
                }",
                "\
                g.sched_reclaim(curr).await?;
                if pred.next().compare_exchange(g, curr, next).await?.is_err() {
                    self.find(key, g).await?;
                }",
            ),
        ],
        invariant: "a retired node is not in the list when its thread dies",
        why: "a thread of the same process frees the node, which is still linked",
        caught_by: Check::Memory,
        needs_faults: true,
    },
];
