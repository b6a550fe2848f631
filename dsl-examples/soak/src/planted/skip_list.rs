//! Bugs of the skip list.

use super::bug::{Planted, Structure};
use crate::Check;

/// Edits that make half of the towers taller than one level: rare states come often.
pub const TALL_TOWERS: &[(&str, &str)] = &[("const BITS: u32 = 2;", "const BITS: u32 = 1;")];

pub(super) const BUGS: &[Planted] = &[
    Planted {
        name: "skip_list_links_a_level_after_its_tower_was_retired",
        structure: Structure::TallSkipList,
        edits: &[
            (
                "let tower = new.shared();\nlet claim",
                "self.find(&Bound::At(key), true, g).await?;\nlet tower = new.shared();\nlet claim",
            ),
            ("if seen.iter().any(|link| link.tag().dead()) {", "if seen.is_empty() {"),
        ],
        invariant: "an inserter links a level only if no link was marked once it had the lock",
        why: "a search comes to a tower that is freed",
        caught_by: Check::Memory,
        needs_faults: false,
    },
    Planted {
        name: "skip_list_retires_a_tower_while_it_is_raised",
        structure: Structure::TallSkipList,
        edits: &[
            (
                "let link = op::compare_exchange_link(pred.link(level), links[level], new);",
                "\
            self.find(&Bound::At(key), true, g).await?;
            let link = op::compare_exchange_link(pred.link(level), links[level], new);",
            ),
            (
                "if !dead.is_frozen() || dead.is_raised && dead.at.raising().is_held(g).await? {",
                "if !dead.is_frozen() {",
            ),
        ],
        invariant: "a tower is taken out when its lock was seen free after its links were seen marked",
        why: "its inserter links it in a level although it is retired",
        caught_by: Check::Memory,
        needs_faults: false,
    },
    Planted {
        name: "skip_list_retires_a_tower_that_is_linked_in_a_level",
        structure: Structure::TallSkipList,
        edits: &[(
            "\
            if g.chain(unlinks).submit().await?.iter().any(Result::is_err) {
                return Ok(());
            }",
            "g.chain(unlinks).submit().await?;",
        )],
        invariant: "the client that killed a tower takes it out if it has taken it out of each level above",
        why: "a search comes to a tower that is freed",
        caught_by: Check::Memory,
        needs_faults: false,
    },
    Planted {
        name: "skip_list_search_does_not_look_in_the_levels_above",
        structure: Structure::TallSkipList,
        edits: &[("if dead.links.len() == 1 {", "if !dead.links.is_empty() {")],
        invariant: "a search takes a tower out if it has found it in no level above",
        why: "a search comes to a tower that is freed",
        caught_by: Check::Memory,
        needs_faults: false,
    },
    Planted {
        name: "skip_list_unlinks_last_and_retires_nothing",
        structure: Structure::TallSkipList,
        edits: &[(
            "g.chain(op::replace(pred.link(0), word, height as u64, Replacement::existing(behind))).post()",
            "\
            let _ = height;
            g.chain(op::compare_exchange_link(pred.link(0), word, behind)).post()",
        )],
        invariant: "the CAS that takes a tower out of the bottom retires it",
        why: "no thread frees it",
        caught_by: Check::Leak,
        needs_faults: false,
    },
    Planted {
        name: "skip_list_scan_goes_on_from_a_dead_tower",
        structure: Structure::TallSkipList,
        edits: &[("if seen.is_leaving() {", "if seen.is_leaving() && cleans {")],
        invariant: "no search continues from a dead tower to a lower level",
        why: "a scan or a get misses a key that was inserted in front of the dead tower",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "skip_list_scan_passes_the_key_of_a_dead_tower",
        structure: Structure::TallSkipList,
        edits: &[(
            "let next = marked(seen.links[0], false);
            found = match",
            "\
            if seen.is_dead() && from.passes(&seen.key) == false {
                from = Bound::Behind(seen.key);
            }
            let next = marked(seen.links[0], false);
            found = match",
        )],
        invariant: "a scan has passed the keys that it has returned, and no others",
        why: "a scan misses a key whose tower is replaced meanwhile",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "skip_list_removes_what_another_has_removed",
        structure: Structure::TallSkipList,
        edits: &[(
            "\
        if exchanged.is_err() {
            return Ok(false);
        }",
            "\
        if exchanged.is_err() {
            return Ok(true);
        }",
        )],
        invariant: "a key is removed by the client whose CAS marks its bottom link",
        why: "two clients remove one key, or an update is lost",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
];
