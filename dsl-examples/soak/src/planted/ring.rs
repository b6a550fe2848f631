//! Bugs of the ring.

use super::bug::{Planted, Structure};
use crate::Check;

pub(super) const BUGS: &[Planted] = &[
    Planted {
        name: "ring_is_full_where_another_has_pushed",
        structure: Structure::Ring,
        edits: &[("if tail <= ticket && self.state(failed.current, ticket) == State::Before {", "if true {")],
        invariant: "a ring is full if the slot of the next ticket has the item of the round before",
        why: "a push that was overtaken is refused, although there is room",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "ring_push_gives_up",
        structure: Structure::Ring,
        edits: &[(
            "ticket = tail.max(ticket + 1);",
            "\
                ticket = tail.max(ticket + 1);
                if ticket > 0 {
                    return Ok(true);
                }",
        )],
        invariant: "a push returns `true` when its item is in the ring",
        why: "an item whose CAS failed is lost",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "ring_advances_its_tail_too_far",
        structure: Structure::Ring,
        edits: &[(
            "advance(self.root.tail(), tail, ticket + 1, g)?;",
            "advance(self.root.tail(), tail, ticket + 2, g)?;",
        )],
        invariant: "no hint is above the first ticket that is not pushed",
        why: "the next client leaves a slot vacant, at which consumers stop",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "ring_has_no_rounds",
        structure: Structure::Ring,
        edits: &[(
            "let [low, high, ..] = (ticket / self.capacity).to_le_bytes();",
            "let [low, high, ..] = (ticket * 0).to_le_bytes();",
        )],
        invariant: "a vacant slot names the round for which it is vacant",
        why: "a client with an old ticket finds its slot vacant again, and pushes behind the end, or finds the ring empty",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "ring_returns_the_item_of_a_failed_cas",
        structure: Structure::Ring,
        edits: &[(
            "\
                if let Ok(replaced) = replaced {
                    advance(self.root.head(), head, ticket + 1, g)?;
                    replaced.retire(g).await?;
                    return item.map(Some).ok_or_else(corrupt);
                }",
            "\
                if let Ok(replaced) = replaced {
                    advance(self.root.head(), head, ticket + 1, g)?;
                    replaced.retire(g).await?;
                }
                if ticket < u64::MAX {
                    return item.map(Some).ok_or_else(corrupt);
                }",
        )],
        invariant: "an item is popped by the client whose CAS empties its slot",
        why: "two clients return one item",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "ring_forgets_to_retire",
        structure: Structure::Ring,
        edits: &[("replaced.retire(g).await?;", "std::mem::forget(replaced);")],
        invariant: "an item that is popped is retired",
        why: "no thread frees it",
        caught_by: Check::Leak,
        needs_faults: false,
    },
];
