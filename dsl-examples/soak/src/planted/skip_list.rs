//! Bugs of the skip list.

use super::bug::{Planted, Structure};
use crate::Check;

/// Edits that give half of the towers more than one level: rare states come often.
pub const TALL_TOWERS: &[(&str, &str)] = &[("const BITS: u32 = 2;", "const BITS: u32 = 1;")];

/// How long a slow client pauses.
const PAUSE: &str = "\
const PAUSE: std::time::Duration = std::time::Duration::from_micros(80);

/// What becomes of a key.
";

pub(super) const BUGS: &[Planted] = &[
    // The pauses stand for a client that is slow at this place: otherwise few seeds reach the states in between.
    Planted {
        name: "skip_list_links_a_level_after_its_tower_was_retired",
        structure: Structure::TallSkipList,
        edits: &[
            (
                "let tower = new.shared();\nlet claim",
                "g.sleep(PAUSE).await;\nlet tower = new.shared();\nlet claim",
            ),
            ("if seen.iter().any(|link| link.tag().dead()) {", "if seen.is_empty() {"),
            ("/// What becomes of a key.\n", PAUSE),
        ],
        invariant: "an inserter links a level only if no link was marked once it had the lock",
        why: "a search comes to a tower that is freed",
        caught_by: Check::Memory,
        needs_faults: false,
    },
    Planted {
        name: "skip_list_retires_a_tower_while_a_level_is_being_linked",
        structure: Structure::TallSkipList,
        edits: &[
            (
                "let link = exchange_link(pred, level, links[level], new);",
                "g.sleep(PAUSE).await;\nlet link = exchange_link(pred, level, links[level], new);",
            ),
            (
                "if !dead.is_frozen() || dead.is_raised && dead.at.raising().is_held(g).await? {",
                "if !dead.is_frozen() {",
            ),
            ("/// What becomes of a key.\n", PAUSE),
        ],
        invariant: "a tower is taken out when its lock was seen free after its links were seen marked",
        why: "its inserter links it in a level although it is retired",
        caught_by: Check::Memory,
        needs_faults: false,
    },
    Planted {
        name: "skip_list_retires_a_tower_that_is_linked_in_a_level",
        structure: Structure::TallSkipList,
        edits: &[
            ("_ => return Ok(()),", "_ => {}"),
            (
                "let exchange = op::publish(old.link(0), old.links[0], behind);",
                "g.sleep(PAUSE).await;\nlet exchange = op::publish(old.link(0), old.links[0], behind);",
            ),
            ("/// What becomes of a key.\n", PAUSE),
        ],
        invariant: "the client that killed a tower takes it out if its search has found it in each level above",
        why: "a search comes to a tower that is freed",
        caught_by: Check::Error,
        needs_faults: false,
    },
    Planted {
        name: "skip_list_update_leaves_the_old_tower_alive",
        structure: Structure::TallSkipList,
        edits: &[("TowerTag::new(height as u8, true)", "TowerTag::new(height as u8, false)")],
        invariant: "live towers ascend strictly along the bottom",
        why: "a key has its old value after an update",
        caught_by: Check::Linearizability,
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
        name: "skip_list_scan_passes_the_key_of_a_dead_tower",
        structure: Structure::TallSkipList,
        edits: &[
            (
                "let next = marked(seen.links[0], false);\nfound = if",
                "\
                if !from.passes(&seen.key) {
                    from = Bound::Behind(seen.key);
                }
                let next = marked(seen.links[0], false);
                found = if",
            ),
            (
                "self.unlink(place, old, frozen, behind, g).await?;",
                "g.sleep(PAUSE).await;\nself.unlink(place, old, frozen, behind, g).await?;",
            ),
            ("/// What becomes of a key.\n", PAUSE),
        ],
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
