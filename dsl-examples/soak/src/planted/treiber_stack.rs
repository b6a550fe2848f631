//! Bugs of the Treiber stack.

use super::{Bug, Check, Planted, Structure};

pub(super) const BUGS: &[Planted] = &[
    Planted {
        name: "treiber_stack_frees_at_once",
        structure: Structure::TreiberStack,
        bug: Bug::Edit { search: "g.sched_reclaim(top).await?;", replacement: "ct.delete(top).await?;" },
        invariant: "a popped node is freed when no guard protects it any more",
        why: "others read the popped node, and its address comes back as the top while they hold its old link",
        caught_by: Check::Memory,
        needs_faults: false,
    },
    Planted {
        name: "treiber_stack_push_gives_up",
        structure: Structure::TreiberStack,
        bug: Bug::Edit {
            search: "Err(changed) => (top, node) = (changed.current, changed.new),",
            replacement: "Err(_) => return Ok(()),",
        },
        invariant: "a push returns when its value is on the stack",
        why: "a value whose CAS failed is lost",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "treiber_stack_trusts_its_guess",
        structure: Structure::TreiberStack,
        bug: Bug::Edit {
            search: "guessed.filter(|_| top == guess)",
            replacement: "guessed.filter(|_| true)",
        },
        invariant: "the link of a pop's CAS is that of the node which the CAS expects",
        why: "what it peeked at is another node than the top, or none any more",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
];
