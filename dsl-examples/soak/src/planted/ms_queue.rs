//! Bugs of the Michael-Scott queue.

use super::bug::{Planted, Structure};
use crate::Check;

pub(super) const BUGS: &[Planted] = &[
    Planted {
        name: "ms_queue_trusts_its_guess",
        structure: Structure::MsQueue,
        edits: &[("Some(dummy) if head == guess =>", "Some(dummy) if true =>")],
        invariant: "the front of the queue is the successor of the dummy that `head` links to",
        why: "the node behind an old dummy is no longer the front of the queue, or was freed",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "ms_queue_leaves_tail_behind",
        structure: Structure::MsQueue,
        edits: &[("if tail == head {", "if false {")],
        invariant: "`tail` leaves a dummy before it is retired",
        why: "if the enqueuing thread dies before moving it, `tail` links to a dummy whose memory is used again",
        caught_by: Check::Memory,
        needs_faults: true,
    },
    Planted {
        name: "ms_queue_moves_tail_back",
        structure: Structure::MsQueue,
        edits: &[("op::compare_exchange_link(self.tail(), tail, last)", "op::store(self.tail(), last)")],
        invariant: "`tail` moves forward only",
        why: "others may have moved `tail` on and retired the node that it is set back to",
        caught_by: Check::Memory,
        needs_faults: false,
    },
    Planted {
        name: "ms_queue_frees_immediately",
        structure: Structure::MsQueue,
        edits: &[("g.sched_reclaim(head).await?;", "ct.delete(head).await?;")],
        invariant: "an old dummy is freed when no guard protects it any more",
        why: "others may be about to read the old dummy's link",
        caught_by: Check::Memory,
        needs_faults: false,
    },
    Planted {
        name: "ms_queue_enqueue_gives_up",
        structure: Structure::MsQueue,
        edits: &[(
            "\
                    Err(changed) => {
                        walk.visit(tail)?;
                        node = changed.new;",
            "\
                    Err(changed) => {
                        return Ok(());
                        node = changed.new;",
        )],
        invariant: "an enqueue returns when its value is in the queue",
        why: "a value whose CAS failed is lost",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "ms_queue_dequeues_without_a_guard",
        structure: Structure::MsQueue,
        edits: &[(
            "\
                pub async fn dequeue(&self, ct: &ComputeThread) -> Result<Option<T>> {
                    let g = &ct.pin();",
            "\
                pub async fn dequeue(&self, ct: &ComputeThread) -> Result<Option<T>> {
                    let seen = self.head().load(&ct.pin()).await?.as_ptr();
                    ct.sleep(std::time::Duration::from_micros(5)).await;
                    if seen.shared(&ct.pin()).next().load(&ct.pin()).await?.is_null() {
                        return Ok(None);
                    }
                    let g = &ct.pin();",
        )],
        invariant: "a pointer is used only under the guard under which it was read",
        why: "while the thread sleeps without a guard another thread retires the dummy, and it is freed",
        caught_by: Check::Memory,
        needs_faults: false,
    },
    Planted {
        name: "ms_queue_unlinks_under_the_next_guard",
        structure: Structure::MsQueue,
        edits: &[(
            "pub async fn dequeue(&self, ct: &ComputeThread) -> Result<Option<T>> {",
            "\
                pub async fn dequeue(&self, ct: &ComputeThread) -> Result<Option<T>> {
                    let (head, next, value) = {
                        let g = &ct.pin();
                        let head = self.head().load(g).await?;
                        let tail = self.tail().load(g).await?;
                        let next = head.next().load(g).await?;
                        if next.is_null() {
                            return Ok(None);
                        }
                        if tail == head {
                            self.help_tail(tail, next, g).await?;
                        }
                        let value = next.value().read(g).await?;
                        g.sched_reclaim(head).await?;
                        (head.as_ptr(), next.as_ptr(), value)
                    };
                    let g = &ct.pin();
                    match self.head().compare_exchange(g, head.shared(g), next).await? {
                        Ok(_) => Ok(Some(value)),
                        Err(_) => self.dequeue_another(ct).await,
                    }
                }
                async fn dequeue_another(&self, ct: &ComputeThread) -> Result<Option<T>> {",
        )],
        invariant: "a node is unlinked before it is retired",
        why: "a thread whose guard is younger than the retirement can still reach the dummy, and retires it again if its CAS wins",
        caught_by: Check::Memory,
        needs_faults: false,
    },
    Planted {
        name: "ms_queue_retires_the_new_dummy",
        structure: Structure::MsQueue,
        edits: &[("g.sched_reclaim(head).await?;", "g.sched_reclaim(next).await?;")],
        invariant: "the retired node is the old dummy",
        why: "`head` links to a node that is freed",
        caught_by: Check::Memory,
        needs_faults: false,
    },
    Planted {
        name: "ms_queue_returns_the_value_of_a_failed_cas",
        structure: Structure::MsQueue,
        edits: &[(
            "\
                if moved.is_ok() {
                    self.known.set(next.as_ptr());
                    g.sched_reclaim(head).await?;
                    return Ok(Some(value));
                }",
            "\
                if moved.is_ok() {
                    self.known.set(next.as_ptr());
                    g.sched_reclaim(head).await?;
                }
                return Ok(Some(value));",
        )],
        invariant: "a value is taken by the thread whose CAS moves `head` to its node",
        why: "two threads return one value",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "ms_queue_forgets_to_retire",
        structure: Structure::MsQueue,
        edits: &[("g.sched_reclaim(head).await?;", "")],
        invariant: "an old dummy is retired",
        why: "no thread frees it",
        caught_by: Check::Leak,
        needs_faults: false,
    },
    Planted {
        name: "ms_queue_is_empty_where_its_ends_meet",
        structure: Structure::MsQueue,
        edits: &[("if next.is_null() {", "if next.is_null() || tail == head {")],
        invariant: "the queue is empty if its dummy has no successor",
        why: "an enqueue has returned before it has moved `tail`, and its value is not found",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
];
