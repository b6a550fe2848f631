//! The planted bugs: one edit each of a structure's real source.
//!
//! A checker that finds nothing proves something only if it finds what is there. So each bug below is made from the
//! source that users read, by replacing one passage, and must be caught by the check named here within 1,000 seeds. The
//! build script makes the edits; a passage that it does not find exactly once fails the build, so that a change of a
//! structure can not quietly disarm a bug.

/// The structures that are soaked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Structure {
    /// An ordered set whose updates lock two nodes.
    LazyList,
    /// The same, a round trip for each step.
    LazyListNaive,
    /// An ordered set without locks.
    HarrisList,
    /// A set of many lazy lists.
    HashSet,
    /// A stack without locks.
    TreiberStack,
    /// A queue without locks.
    MsQueue,
}

/// What can find something wrong with a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// No order of the operations explains what they returned.
    Linearizability,
    /// Freed memory was used or freed again, or a pointer led nowhere.
    Memory,
    /// Memory was still allocated when the structure had been destroyed.
    Leak,
    /// Everybody waited, or the run did not end.
    Stuck,
    /// An operation failed, or found the structure out of order at a quiescent point.
    Error,
}

/// A bug, as an edit of a structure's source.
#[derive(Clone, Copy, Debug)]
pub struct Planted {
    /// What it is called: a structure and what is wrong with it.
    pub name: &'static str,
    /// Where it is planted.
    pub structure: Structure,
    /// The passage that is replaced; it occurs exactly once.
    pub search: &'static str,
    /// What it is replaced by.
    pub replacement: &'static str,
    /// Why that is wrong.
    pub why: &'static str,
    /// What must catch it.
    pub caught_by: Check,
    /// Whether it does harm only if threads die.
    pub needs_faults: bool,
}

impl Structure {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::LazyList,
        Self::LazyListNaive,
        Self::HarrisList,
        Self::HashSet,
        Self::TreiberStack,
        Self::MsQueue,
    ];

    /// What it is called on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::LazyList => "lazy-list",
            Self::LazyListNaive => "lazy-list-naive",
            Self::HarrisList => "harris-list",
            Self::HashSet => "hash-set",
            Self::TreiberStack => "treiber-stack",
            Self::MsQueue => "ms-queue",
        }
    }

    /// Whether its threads never wait for each other, so that nobody's death can stop the others.
    pub fn is_lock_free(self) -> bool {
        matches!(self, Self::HarrisList | Self::TreiberStack | Self::MsQueue)
    }
}

impl Check {
    /// What it is called in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Linearizability => "linearizability",
            Self::Memory => "memory",
            Self::Leak => "leak",
            Self::Stuck => "stuck",
            Self::Error => "error",
        }
    }
}

/// All planted bugs.
pub const PLANTED: &[Planted] = &[
    // ANCHOR: validate
    Planted {
        name: "lazy_list_does_not_validate",
        structure: Structure::LazyList,
        search: "pred.next == curr && !seen.next.is_deleted()",
        replacement: "true",
        why: "what was found without locks may have changed before they were taken",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    // ANCHOR_END: validate
    Planted {
        name: "lazy_list_does_not_mark",
        structure: Structure::LazyList,
        search: "chain.store(curr.next(), next.with_deleted());",
        replacement: "",
        why: "whoever waits for the removed node's lock can not see that it is out of the list, and inserts behind it",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "lazy_list_unlocks_curr_early",
        structure: Structure::LazyList,
        search: "\
                let next = curr_seen.next;
                let mut chain = g.chain();",
        replacement: "\
                let next = curr_seen.next;
                curr_lock.release().await?;
                let curr_lock = curr.lock().acquire(g).await?;
                let mut chain = g.chain();",
        why: "a key inserted behind the node between the READ of its link and the mark is lost",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "lazy_list_unlocks_pred_early",
        structure: Structure::LazyList,
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
        why: "the predecessor may be removed before the new node is linked to it, and the mark is overwritten",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "lazy_list_validates_without_mark",
        structure: Structure::LazyList,
        search: "pred.next == curr && !seen.next.is_deleted()",
        replacement: "pred.next.without_marks() == curr && !seen.next.is_deleted()",
        why: "a predecessor that has been removed still leads to `curr`, and what is inserted behind it is lost",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "lazy_list_frees_at_once",
        structure: Structure::LazyList,
        search: "g.sched_reclaim(curr).await?;",
        replacement: "ct.delete(curr).await?;",
        why: "other threads may stand on the removed node",
        caught_by: Check::Memory,
        needs_faults: false,
    },
    Planted {
        name: "lazy_list_keeps_lock",
        structure: Structure::LazyList,
        search: "\
                chain.store(pred.next(), node);
                chain.release(curr_lock);",
        replacement: "\
                chain.store(pred.next(), node);
                std::mem::forget(curr_lock);",
        why: "nobody can update the list at that node any more",
        caught_by: Check::Stuck,
        needs_faults: false,
    },
    Planted {
        name: "lazy_list_starts_over_with_its_locks",
        structure: Structure::LazyList,
        search: "drop(locks);",
        replacement: "std::mem::forget(locks);",
        why: "it takes locks that it holds itself: an error, which names the lock",
        caught_by: Check::Error,
        needs_faults: false,
    },
    Planted {
        name: "lazy_list_naive_leaves_half_a_removal",
        structure: Structure::LazyListNaive,
        search: "if next.is_deleted() {",
        replacement: "if false && next.is_deleted() {",
        why: "a node stays reachable that is out of the set, and nobody can insert there",
        caught_by: Check::Stuck,
        needs_faults: true,
    },
    Planted {
        name: "harris_list_does_not_mark",
        structure: Structure::HarrisList,
        search: "if curr.next().compare_exchange(g, next, next.with_deleted()).await?.is_ok() {",
        replacement: "if curr.next().compare_exchange(g, next, next).await?.is_ok() {",
        why: "two threads remove one key, and keys are inserted behind a node that is out of the list",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "harris_list_marks_blindly",
        structure: Structure::HarrisList,
        search: "if curr.next().compare_exchange(g, next, next.with_deleted()).await?.is_ok() {",
        replacement: "curr.next().store(g, next.with_deleted()).await?; {",
        why: "a key inserted behind the node since its link was read is lost, and two threads remove one key",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "harris_list_insert_keeps_old_link",
        structure: Structure::HarrisList,
        search: "node.set(|node| node.next(), curr);",
        replacement: "",
        why: "the new node skips what came between it and the node that it was made for",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "harris_list_retires_twice",
        structure: Structure::HarrisList,
        search: "\
                } else {
                    self.find(key, g).await?;
                }",
        replacement: "\
                } else {
                    self.find(key, g).await?;
                    g.sched_reclaim(curr).await?;
                }",
        why: "whoever did unlink the node retires it too, so that it is freed twice",
        caught_by: Check::Memory,
        needs_faults: false,
    },
    Planted {
        name: "harris_list_forgets_to_retire",
        structure: Structure::HarrisList,
        search: "\
                    g.sched_reclaim(curr).await?;
                    curr = next;",
        replacement: "\
                    curr = next;",
        why: "nobody frees a node that a search has unlinked",
        caught_by: Check::Leak,
        needs_faults: false,
    },
    Planted {
        name: "treiber_stack_frees_at_once",
        structure: Structure::TreiberStack,
        search: "g.sched_reclaim(top).await?;",
        replacement: "ct.delete(top).await?;",
        why: "others read the popped node, and its address comes back as the top while they hold its old link",
        caught_by: Check::Memory,
        needs_faults: false,
    },
    Planted {
        name: "treiber_stack_push_gives_up",
        structure: Structure::TreiberStack,
        search: "Err(changed) => (top, node) = (changed.current, changed.new),",
        replacement: "Err(_) => return Ok(()),",
        why: "a value whose CAS failed is lost",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "treiber_stack_trusts_its_guess",
        structure: Structure::TreiberStack,
        search: "guessed.filter(|_| top == guess)",
        replacement: "guessed.filter(|_| true)",
        why: "what it peeked at is another node than the top, or none any more",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "ms_queue_trusts_its_guess",
        structure: Structure::MsQueue,
        search: "Some(dummy) if head == guess =>",
        replacement: "Some(dummy) if true =>",
        why: "the node behind an old dummy is not the front of the queue any more, if it is a node at all",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "ms_queue_leaves_tail_behind",
        structure: Structure::MsQueue,
        search: "if tail == head {",
        replacement: "if false {",
        why: "if whoever enqueued dies before moving it, `tail` links to a dummy whose memory is used again",
        caught_by: Check::Memory,
        needs_faults: true,
    },
    Planted {
        name: "ms_queue_moves_tail_back",
        structure: Structure::MsQueue,
        search: "drop(chain.compare_exchange_link(self.tail(), tail, last));",
        replacement: "chain.store(self.tail(), last);",
        why: "others may have moved `tail` on and retired the node that it is set back to",
        caught_by: Check::Memory,
        needs_faults: false,
    },
    Planted {
        name: "ms_queue_frees_at_once",
        structure: Structure::MsQueue,
        search: "g.sched_reclaim(head).await?;",
        replacement: "ct.delete(head).await?;",
        why: "others may be about to read the old dummy's link",
        caught_by: Check::Memory,
        needs_faults: false,
    },
    Planted {
        name: "ms_queue_enqueue_gives_up",
        structure: Structure::MsQueue,
        search: "\
                Err(changed) => {
                    node = changed.new;",
        replacement: "\
                Err(changed) => {
                    return Ok(());
                    node = changed.new;",
        why: "a value whose CAS failed is lost",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
];
