//! Bugs of the ordered map.

use super::bug::{Planted, Structure};
use crate::Check;

/// Edits that make nodes small, so that they are replaced early.
pub const SMALL_NODES: &[(&str, &str)] =
    &[("pub(super) const SLOTS: usize = 60;", "pub(super) const SLOTS: usize = 6;")];

const MAP: Structure = Structure::SmallOrderedMap;

pub(super) const BUGS: &[Planted] = &[
    Planted {
        name: "ordered_map_inserts_a_key_twice",
        structure: MAP,
        edits: &[(
            "\
                if let Err(now) = g.chain(put).submit().await?.1 {",
            "\
                if let Err(now) = g.chain(put).submit().await?.1 {
                    let again = op::compare_exchange(N::header(at), now, now.with(mine));
                    if !now.is_frozen() && g.chain(again).submit().await?.is_ok() {
                        return Ok(());
                    }",
        )],
        invariant: "a key is inserted by a CAS that fails if any slot became live since the client has read them",
        why: "two clients that insert the same key first, into an empty leaf too, both do",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "ordered_map_inserts_into_a_replaced_leaf",
        structure: MAP,
        edits: &[(
            "\
                if header.is_frozen() {
                    fresh = 2;
                    if frozen",
            "\
                if header.count() > SLOTS {
                    fresh = 2;
                    if frozen",
        )],
        invariant: "a frozen header does not change",
        why: "what is inserted into a leaf that was just split, merged or removed is lost",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "ordered_map_reads_a_replaced_leaf",
        structure: MAP,
        edits: &[(
            "\
                if !leaf.header.is_frozen() {
                    return Ok(leaf);",
            "\
                if leaf.header.count() <= SLOTS {
                    return Ok(leaf);",
        )],
        invariant: "a reader that finds a frozen leaf reads its parent anew",
        why: "who follows a link that he took before a split returns old values",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "ordered_map_scans_replaced_leaves",
        structure: MAP,
        edits: &[(
            "!header.is_frozen() && (g.is_immediate()",
            "header.count() <= SLOTS && (g.is_immediate()",
        )],
        invariant: "a scan uses leaves that were current",
        why: "it misses keys that were inserted into what has replaced a leaf",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "ordered_map_scans_past_a_replaced_leaf",
        structure: MAP,
        edits: &[(
            "read.truncate(read.iter().take_while(|leaf| is_usable(leaf)).count());",
            "read.retain(is_usable);",
        )],
        invariant: "a scan goes on with the first leaf that it could not use",
        why: "forwards or backwards, it skips over a split or a merge",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "ordered_map_returns_a_claim_that_is_not_the_last",
        structure: MAP,
        edits: &[(
            "g.chain(op::compare_exchange(N::claims(at), last, free)).post()",
            "{
                let _ = (last, free);
                g.chain(op::fetch_add(N::claims(at), u64::MAX)).post()
            }",
        )],
        invariant: "a slot is written by the client that has claimed it",
        why: "two clients have the same slot, which is reused before its reader has finished",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "ordered_map_splits_with_an_old_decision",
        structure: MAP,
        edits: &[(
            "pending.filter(|pending| old[0].is_exact && old[0].header == pending.header.frozen());",
            "pending.filter(|_| old.len() == 1);",
        )],
        invariant: "a split inserts what was decided for the leaf's last header",
        why: "a key that was inserted meanwhile is there twice, or a value is lost",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "ordered_map_reports_what_a_split_left_out",
        structure: MAP,
        edits: &[("Ok(Outcome::Replaced(pending.is_some()))", "Ok(Outcome::Replaced(true))")],
        invariant: "an insertion is done when a new leaf has its key",
        why: "it is lost if the leaf has changed before it was frozen",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "ordered_map_replaces_a_node_twice",
        structure: MAP,
        edits: &[(
            "\
                now = found;
                if now.is_frozen() || !claim.edges.iter().all(|edge| now.has(edge.slot)) {",
            "\
                now = found;
                if now.is_frozen() {",
        )],
        invariant: "one client replaces a node",
        why: "two have the same range, and one of them hides the other",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "ordered_map_frees_live_children",
        structure: MAP,
        edits: &[("let dead = (0..last).filter(|slot| !node.header.has(*slot));", "let dead = 0..last;")],
        invariant: "who replaces a node frees what its dead slots link to, and no more",
        why: "readers use freed leaves",
        caught_by: Check::Memory,
        needs_faults: false,
    },
    Planted {
        name: "ordered_map_trusts_an_earlier_epoch",
        structure: MAP,
        edits: &[("self.epoch.get() == g.epoch()", "g.epoch() == g.epoch()")],
        invariant: "a guard protects the children that were live in its epoch",
        why: "a node that was found in an earlier one may be freed",
        caught_by: Check::Memory,
        needs_faults: false,
    },
    Planted {
        name: "ordered_map_does_not_look_whether_a_node_is_linked",
        structure: MAP,
        edits: &[(
            "if !is_linked || !path[valid].0.see(head, g) {",
            "if !is_linked && valid == 0 || !path[valid].0.see(head, g) {",
        )],
        invariant: "a node that is remembered is current only if its parent has it as live",
        why: "a stale node is taken for current, and its children may be freed",
        caught_by: Check::Memory,
        needs_faults: false,
    },
    Planted {
        name: "ordered_map_loses_what_was_not_inserted",
        structure: Structure::OrderedMapOfBytes,
        edits: &[(
            "\
                for node in &old {
                    self.clean(node, level, g).await?;
                }",
            "",
        )],
        invariant: "who replaces a node frees what its dead slots link to",
        why: "an entry whose insertion has failed is never freed",
        caught_by: Check::Leak,
        needs_faults: false,
    },
    Planted {
        name: "ordered_map_leaves_claimed_slots_open",
        structure: Structure::OrderedMapOfBytes,
        edits: &[(
            "entries.retain(|(_, link)| *link != dead_entry);",
            "entries.retain(|(_, link)| !link.is_null());",
        )],
        invariant: "nothing is put into a slot of a replaced node",
        why: "an entry that comes late is never freed",
        caught_by: Check::Leak,
        needs_faults: false,
    },
    Planted {
        name: "ordered_map_trusts_what_was_not_written",
        structure: MAP,
        edits: &[(
            "if !g.is_immediate() && !N::is_whole(&read) {",
            "if !g.is_immediate() && header.is_corrupt() {",
        )],
        invariant: "a READ of a leaf has what its live slots have, or is repeated behind the header",
        why: "its words have no order: it has a new header, and a slot from before it was written",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
];
