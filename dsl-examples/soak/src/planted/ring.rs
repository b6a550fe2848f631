//! Bugs of the ring.

use super::bug::{Planted, Structure};
use crate::Check;

/// Clients with even numbers access words one by one, as where they map the memory, but by operations that take time.
pub const MAPPED: &[(&str, &str)] = &[
    ("$place.immediate($ct).ok_or_else(corrupt)?", "$place"),
    ("$word.$operation($($argument),*)?", "$word.$operation($ct $(, $argument)*).await?"),
    (
        "T::LENGTH == Some(size_of::<u64>()) && ct.is_immediate()",
        "T::LENGTH.is_some() && ct.index() % 2 == 0",
    ),
    ("pub(super) fn push_here(", "pub(super) async fn push_here("),
    ("self.slots.push_here(item, ct)?", "self.slots.push_here(item, ct).await?"),
    ("fn push_from(", "async fn push_from("),
    ("self.push_from(ticket, item, met, ct)", "self.push_from(ticket, item, met, ct).await"),
    ("fn push_at(", "async fn push_at("),
    (
        "self.push_at(self.pushed.get(), item, &mut met, ct)?",
        "self.push_at(self.pushed.get(), item, &mut met, ct).await?",
    ),
    ("self.push_at(ticket, item, &mut met, ct)?", "self.push_at(ticket, item, &mut met, ct).await?"),
    ("pub(super) fn pop_here(", "pub(super) async fn pop_here("),
    ("self.slots.pop_here(ct)?", "self.slots.pop_here(ct).await?"),
    ("fn pop_from(", "async fn pop_from("),
    ("self.pop_from(ticket, ct)", "self.pop_from(ticket, ct).await"),
    ("fn pop_at(", "async fn pop_at("),
    ("self.pop_at(self.popped.get(), ct)?", "self.pop_at(self.popped.get(), ct).await?"),
    ("self.pop_at(ticket, ct)?", "self.pop_at(ticket, ct).await?"),
    ("fn advance_here(", "async fn advance_here("),
    ("advance_here(self.tail, next, ct)?", "advance_here(self.tail, next, ct).await?"),
    ("advance_here(self.head, next, ct)?", "advance_here(self.head, next, ct).await?"),
];

pub(super) const BUGS: &[Planted] = &[
    Planted {
        name: "ring_is_full_where_another_has_pushed",
        structure: Structure::Ring,
        edits: &[(
            "State::Before if tail <= ticket.number => {",
            "State::Before | State::Full | State::Popped => {",
        )],
        invariant: "a ring is full if the slot of the next ticket has the item of the round before",
        why: "a push that was overtaken is refused, although there is room",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "ring_push_gives_up",
        structure: Structure::Ring,
        edits: &[(
            "overtaken += 1;",
            "\
                overtaken += 1;
                if overtaken > 0 {
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
            "advance(self.slots.tail, tail, ticket.number + 1, g)?;",
            "advance(self.slots.tail, tail, ticket.number + 2, g)?;",
        )],
        invariant: "no hint is above the first ticket that is not pushed",
        why: "the next client leaves a slot vacant, at which consumers stop",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "ring_has_no_rounds",
        structure: Structure::Ring,
        edits: &[("0 => Self::Vacant,", "_ if !is_full => Self::Vacant,")],
        invariant: "a vacant slot names the round for which it is vacant",
        why: "a client with an old ticket finds its slot vacant again, and pushes behind the end, or finds the ring empty",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "ring_returns_the_item_of_a_failed_cas",
        structure: Structure::Ring,
        edits: &[(
            "popped.ok().map(|_| (T::from_bytes(&item.to_le_bytes()), None))",
            "Some((T::from_bytes(&item.to_le_bytes()), None))",
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
    Planted {
        name: "ring_claims_what_another_has_claimed",
        structure: Structure::MappedRing,
        edits: &[(
            "(State::Vacant, None) if is_claimed(claimed, round, revoked(found)) => {",
            "(State::Vacant, None) if false => {",
        )],
        invariant: "a claim is revoked before another takes its place",
        why: "an item has the upper half of one producer's and the lower half of another's",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "ring_reads_a_claim_after_its_slot_is_vacant",
        structure: Structure::MappedRing,
        edits: &[(
            "\
                let claimed = if is_claimed_item(found) {
                    let claims = here!(self.slot(ticket).claim(), ct);
                    now!(claims.load(), ct)
                } else {
                    0
                };
                let next = vacant(ticket.round + 1, 0);
                let popped = now!(state.compare_exchange(found.bits(), next.bits()), ct);",
            "\
                let next = vacant(ticket.round + 1, 0);
                let popped = now!(state.compare_exchange(found.bits(), next.bits()), ct);
                let claims = here!(self.slot(ticket).claim(), ct);
                let claimed = now!(claims.load(), ct);",
        )],
        invariant: "a claim is read while its slot is full",
        why: "the next producer has claimed the slot before its reader has finished",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "ring_leaves_the_claim_of_a_dead_producer",
        structure: Structure::MappedRing,
        edits: &[
            ("let _ = now!(state.compare_exchange(found.bits(), next.bits()), ct);", ""),
            // No producer fills slots otherwise.
            ("T::LENGTH.is_some() && ct.index() % 2 == 0", "T::LENGTH.is_some()"),
            ("let short = u32::try_from(item).ok();", "let short: Option<u32> = None;"),
        ],
        invariant: "a claim that stays is revoked",
        why: "all producers wait for one that is dead",
        caught_by: Check::Stuck,
        needs_faults: true,
    },
    Planted {
        name: "ring_fills_a_slot_whose_claim_was_revoked",
        structure: Structure::MappedRing,
        edits: &[
            (
                "let next = vacant(round, revoked(found).wrapping_add(1));",
                "let next = vacant(round, revoked(found));",
            ),
            (
                "\
                if met.replace((claimed, found)) == Some((claimed, found)) {",
                "\
                if now!(claims.compare_exchange(claimed, claim(u64::MAX, 0, 0)), ct).is_ok() {",
            ),
        ],
        invariant: "a revoked claim fills no slot",
        why: "its owner makes the slot full when another has claimed it",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
];
