//! Bugs of the Interlocked Hash Table. All are planted in the table with small lists.

use super::bug::{Planted, Structure};
use crate::Check;

/// Edits of the table's source that make its lists small, so that element lists become pointer lists early, and iterators visit few slots at once.
pub const SMALL_LISTS: &[(&str, &str)] = &[
    ("const PAIRS: usize = 8;", "const PAIRS: usize = 2;"),
    ("const ROOT_SLOTS: u64 = 1024;", "const ROOT_SLOTS: u64 = 4;"),
    ("const LISTS_PER_CHAIN: usize = 128;", "const LISTS_PER_CHAIN: usize = 2;"),
];

pub(super) const BUGS: &[Planted] = &[
    Planted {
        name: "interlocked_frees_a_list_that_is_read",
        structure: Structure::SmallInterlockedHashTable,
        edits: &[(
            "replaced.retire(g).await?;\nOk(has_room)",
            "\
            std::mem::forget(replaced);
            g.delete(link.shared()).await?;
            Ok(has_room)",
        )],
        invariant: "an element list is freed only when no guard is older than its replacement",
        why: "an element list is turned into a pointer list, and freed, while an iterator reads it",
        caught_by: Check::Memory,
        needs_faults: false,
    },
    Planted {
        name: "interlocked_forgets_to_retire",
        structure: Structure::SmallInterlockedHashTable,
        edits: &[(
            "replaced.retire(g).await?;\nOk(has_room)",
            "\
            std::mem::forget(replaced);
            Ok(has_room)",
        )],
        invariant: "an element list that is replaced is retired",
        why: "no thread frees it",
        caught_by: Check::Leak,
        needs_faults: false,
    },
    Planted {
        name: "interlocked_iterates_over_moved_keys_again",
        structure: Structure::SmallInterlockedHashTable,
        edits: &[(
            "visited.leaves.push(Leaf { list: *list, path: *path, pairs });",
            "\
            visited.leaves.push(Leaf { list: *list, path: *path, pairs });
            let slot: SlotPlace = again.list.slots().at(again.slots.start);
            let link = slot.link().load(g).await?;
            if link.tag().pointers() {
                visited.again.push(again.clone());
            }",
        )],
        invariant: "an iterator visits a slot at one moment, and does not follow it again",
        why: "a key that has moved to a pointer list meanwhile is counted twice",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "interlocked_iterator_forgets_a_locked_list",
        structure: Structure::SmallInterlockedHashTable,
        edits: &[("visited.again.push(again);", "")],
        invariant: "an iterator comes back for a list that was locked",
        why: "its keys are missed",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "interlocked_iterator_trusts_a_torn_list",
        structure: Structure::SmallInterlockedHashTable,
        edits: &[
            ("if before == after {", "if true {"),
            // Harmless with the comparison: as if the READs of a chain were far apart in time.
            (
                "g.chain(lists.collect::<Vec<_>>()).submit().await\n});",
                "\
                let early = g.chain(lists.collect::<Vec<_>>()).submit().await?;
                g.sleep(std::time::Duration::from_micros(5)).await;
                let lists = chunks[chunk].iter().map(|(_, list, _)| {
                    let list = list.shared(g);
                    (op::load(list.state()), op::read(list), op::load(list.state()))
                });
                let late = g.chain(lists.collect::<Vec<_>>()).submit().await?;
                let both = early.into_iter().zip(late);
                let torn = both.map(|((before, mut seen, _), (_, late, after))| {
                    seen.values = late.values;
                    (before, seen, after)
                });
                Ok(torn.collect::<Vec<_>>())
                });",
            ),
        ],
        invariant: "an iterator uses a list only if its state was the same before and after the READ",
        why: "a key is returned with the value of another, which has its place by now",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "interlocked_waits_for_the_dead",
        structure: Structure::SmallInterlockedHashTable,
        edits: &[(
            "let lock = spot.slot.lock().acquire(g).await?;",
            "\
            let mut backoff = g.backoff();
            let lock = loop {
                backoff.wait().await;
                if let Some(lock) = g.chain(op::try_lock(spot.slot.lock())).submit().await? {
                    break lock;
                }
            };",
        )],
        invariant: "the lock of a dead client is taken over",
        why: "all others wait for it",
        caught_by: Check::Stuck,
        needs_faults: true,
    },
    Planted {
        name: "interlocked_does_not_recover_locks",
        structure: Structure::SmallInterlockedHashTable,
        edits: &[("for lock in visited.locked {", "for lock in visited.locked.into_iter().skip(1) {")],
        invariant: "recovery releases each lock of a dead client",
        why: "a lock stays held, and the next client waits until it has found out that the owner is dead",
        caught_by: Check::Error,
        needs_faults: true,
    },
    Planted {
        name: "interlocked_changes_a_replaced_list",
        structure: Structure::SmallInterlockedHashTable,
        edits: &[(
            "lock.recovered();\nif Known::of(link) != Some(known) {",
            "lock.recovered();\nif link.is_null() {",
        )],
        invariant: "an element list is changed only while its slot links to it",
        why: "a key is inserted into a list that no client reads any more",
        caught_by: Check::Memory,
        needs_faults: false,
    },
    Planted {
        name: "interlocked_get_reads_a_replaced_list",
        structure: Structure::SmallInterlockedHashTable,
        edits: &[(
            "if Known::of(link) != Some(known) {\nself.counting.count(|counters| counters.stale += 1);\nself.learn(&mut spot, Known::of(link));\ncontinue;\n}\nlet (state, seen)",
            "let (state, seen)",
        )],
        invariant: "a remembered element list is read only if the slot still links to it",
        why: "a lookup returns what the list had before it was replaced, or what its memory has since",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "interlocked_shows_a_key_too_early",
        structure: Structure::SmallInterlockedHashTable,
        edits: &[(
            "g.chain((key, value, state, op::release(lock))).submit().await?;",
            "g.chain((state, key, value, op::release(lock))).submit().await?;",
        )],
        invariant: "an insertion writes key and value before the state",
        why: "a lookup finds the key and the value that the place had before",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "interlocked_releases_too_early",
        structure: Structure::SmallInterlockedHashTable,
        edits: &[
            (
                "g.chain((key, value, state, op::release(lock))).submit().await?;",
                "g.chain((op::release(lock), key, value, state)).submit().await?;",
            ),
            (
                "g.chain((state, op::release(lock))).submit().await?;",
                "g.chain((op::release(lock), state)).submit().await?;",
            ),
        ],
        invariant: "a lock is released after the last WRITE under it",
        why: "the next owner reads the list before it is changed, and its own change is overwritten",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "interlocked_claims_to_be_the_first",
        structure: Structure::SmallInterlockedHashTable,
        edits: &[("self.learn(spot, Known::of(refused.current));\nOk(false)", "Ok(true)")],
        invariant: "a slot's first key is inserted by the client whose CAS links its list",
        why: "of two clients that insert the first key of a slot, one has lost its own",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "interlocked_has_one_seed",
        structure: Structure::SmallInterlockedHashTable,
        edits: &[("SEED_STEP.wrapping_mul(level as u64)", "SEED_STEP.wrapping_mul(level as u64 / 8)")],
        invariant: "each level has a seed of its own",
        why: "keys that share a slot share most of the slots below it, and an insertion finds no level that separates them",
        caught_by: Check::Error,
        needs_faults: false,
    },
    Planted {
        name: "interlocked_drops_a_pair",
        structure: Structure::SmallInterlockedHashTable,
        edits: &[("for pair in pairs {\ngroups", "for pair in pairs.into_iter().skip(1) {\ngroups")],
        invariant: "the lists below a new pointer list have all pairs of the list that it replaces",
        why: "a key is lost when its list becomes a pointer list",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "interlocked_expands_what_it_read_before",
        structure: Structure::SmallInterlockedHashTable,
        edits: &[(
            "let pairs = list.pairs(list.state).collect();",
            "\
            let pairs = list.pairs(list.state).collect();
            lock.release().await?;
            let lock = spot.slot.lock().acquire(g).await?;",
        )],
        invariant: "a list is replaced under the lock under which its pairs were read",
        why: "what another client has changed meanwhile is undone",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "interlocked_takes_removed_keys_for_present",
        structure: Structure::SmallInterlockedHashTable,
        edits: &[(
            "state.present().find(|pair| self.keys[*pair] == key)",
            "(0..PAIRS).find(|pair| self.keys[*pair] == key)",
        )],
        invariant: "the key of a pair counts only if the state has the pair as present",
        why: "a lookup finds a key that was removed",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "interlocked_remembers_lists_of_other_slots",
        structure: Structure::SmallInterlockedHashTable,
        edits: &[("(of == slot.address()).then_some(known)", "Some(known)")],
        invariant: "what is remembered of a slot is that slot's",
        why: "a key is searched, and inserted, below another slot's pointer list",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
];
