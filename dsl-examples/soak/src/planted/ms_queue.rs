//! Bugs of the Michael-Scott queue.

use super::{Bug, Check, Planted, Structure};

pub(super) const BUGS: &[Planted] = &[
    Planted {
        name: "ms_queue_trusts_its_guess",
        structure: Structure::MsQueue,
        bug: Bug::Edit { search: "Some(dummy) if head == guess =>", replacement: "Some(dummy) if true =>" },
        invariant: "the front of the queue is the successor of the dummy that `head` links to",
        why: "the node behind an old dummy is not the front of the queue any more, if it is a node at all",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "ms_queue_leaves_tail_behind",
        structure: Structure::MsQueue,
        bug: Bug::Edit { search: "if tail == head {", replacement: "if false {" },
        invariant: "`tail` leaves a dummy before it is retired",
        why: "if whoever enqueued dies before moving it, `tail` links to a dummy whose memory is used again",
        caught_by: Check::Memory,
        needs_faults: true,
    },
    Planted {
        name: "ms_queue_moves_tail_back",
        structure: Structure::MsQueue,
        bug: Bug::Edit {
            search: "drop(chain.compare_exchange_link(self.tail(), tail, last));",
            replacement: "chain.store(self.tail(), last);",
        },
        invariant: "`tail` moves forward only",
        why: "others may have moved `tail` on and retired the node that it is set back to",
        caught_by: Check::Memory,
        needs_faults: false,
    },
    Planted {
        name: "ms_queue_frees_at_once",
        structure: Structure::MsQueue,
        bug: Bug::Edit { search: "g.sched_reclaim(head).await?;", replacement: "ct.delete(head).await?;" },
        invariant: "an old dummy is freed when no guard protects it any more",
        why: "others may be about to read the old dummy's link",
        caught_by: Check::Memory,
        needs_faults: false,
    },
    Planted {
        name: "ms_queue_enqueue_gives_up",
        structure: Structure::MsQueue,
        bug: Bug::Edit {
            search: "\
                    Err(changed) => {
                        node = changed.new;",
            replacement: "\
                    Err(changed) => {
                        return Ok(());
                        node = changed.new;",
        },
        invariant: "an enqueue returns when its value is in the queue",
        why: "a value whose CAS failed is lost",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
];
