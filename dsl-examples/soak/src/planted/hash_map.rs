//! Bugs of the hash map. All are planted in the map with small tables, of numbers or of byte strings.

use super::bug::{Planted, Structure};
use crate::Check;

/// Edits of the map's source that make its tables as small as possible: they are split early, and the directory soon has several levels.
pub const SMALL_TABLES: &[(&str, &str)] = &[
    ("const LARGEST: u8 = 3;", "const LARGEST: u8 = 0;"),
    ("const BASE_BITS: u32 = 6;", "const BASE_BITS: u32 = 1;"),
];

pub(super) const BUGS: &[Planted] = &[
    Planted {
        name: "hash_map_claims_where_it_likes",
        structure: Structure::SmallHashMap,
        edits: &[
            (
                "\
                    for (bucket, seen) in buckets.into_iter().zip([&seen.home, &seen.next]) {",
                "\
                    let mut vacant = None;
                    for (bucket, seen) in buckets.into_iter().zip([&seen.home, &seen.next]) {",
            ),
            (
                "\
                    VACANT => return Slot::Vacant(slot.ident(), slot.link()),",
                "\
                    VACANT if vacant.is_none() => vacant = Some((slot.ident(), slot.link())),
                    VACANT => {}",
            ),
            (
                "\
                                _ => {}
                            }
                        }
                    }
                    Slot::None
                    }",
                "\
                                _ => {}
                            }
                        }
                    }
                    vacant.map_or(Slot::None, |(ident, link)| Slot::Vacant(ident, link))
                    }",
            ),
            (
                "\
                    Slot::Vacant(ident, slot) => match ident.compare_exchange(g, VACANT, hash.ident).await? {
                        Ok(_) => Some((slot, EntryLink::NULL)),",
                "\
                    Slot::Vacant(ident, slot) => {
                        // Some clients prefer the second bucket.
                        let buckets = seen.known.table.shared(g).buckets();
                        let far = buckets.at(home(hash.ident, seen.known.scale()) + 1).slots().at(0);
                        let is_far = g.index() % 2 == 1 && far.ident().load(g).await? == VACANT;
                        let (ident, slot) = if is_far { (far.ident(), far.link()) } else { (ident, slot) };
                        match ident.compare_exchange(g, VACANT, hash.ident).await? {
                        Ok(_) => Some((slot, EntryLink::NULL)),",
            ),
            (
                "\
                            continue;
                        }
                    },
                    Slot::None => None,",
                "\
                            continue;
                        }
                    }},
                    Slot::None => None,",
            ),
        ],
        invariant: "all clients that claim a slot for a key try the same one first",
        why: "a key has two slots, and both clients of a duplicate insertion believe that they have inserted it",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "hash_map_uses_the_slot_of_another_key",
        structure: Structure::SmallHashMap,
        edits: &[(
            "\
                    Err(_) => {
                        self.counting.count(|counters| counters.retries += 1);
                        (_, seen) = self.look(hash, None, g).await?;
                        continue;
                    }",
            "\
                    Err(_) => Some((slot, EntryLink::NULL)),",
        )],
        invariant: "an entry is put only into the slot that its key has claimed",
        why: "an entry is in the slot that another key was faster to claim, where no lookup of its key finds it",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "hash_map_inserts_into_a_frozen_table",
        structure: Structure::SmallHashMap,
        edits: &[("Err(FROZEN) => None,", "Err(FROZEN) => Some((slot, EntryLink::NULL)),")],
        invariant: "a vacant slot that is frozen can not be claimed",
        why: "a key is inserted into a table whose keys have been copied, and is lost",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "hash_map_modifies_blindly",
        structure: Structure::SmallHashMap,
        edits: &[(
            "let tag = EntryTag::new(Blob::class(&entry).number(), hash.check, false, false);",
            "let tag = EntryTag::new(Blob::class(&entry).number(), hash.check, true, false);",
        )],
        invariant: "a link is blind only if its operation did not depend on the value before",
        why: "an update counts as overtaken by a modification, which has not seen its value",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "hash_map_removes_before_it_updates",
        structure: Structure::SmallHashMap,
        edits: &[(
            "\
                    let word = new.word();
                    match",
            "\
                    let word = new.word();
                    if !link.is_null() {
                        let removal = op::replace(slot, link, bytes(link)?, Replacement::NULL);
                        if let Ok(replaced) = g.chain(removal).submit().await? {
                            replaced.retire(g).await?;
                            link = EntryLink::NULL;
                        }
                    }
                    match",
        )],
        invariant: "an update is one CAS, from the entry before to the new one",
        why: "a lookup misses a key while it is updated",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "hash_map_updates_removed_keys",
        structure: Structure::SmallHashMap,
        edits: &[(
            "\
                    if link.is_null() {
                        if how == Put::Update {
                            return Ok(false);
                        }
                    } else if",
            "\
                    if link.is_null() {
                    } else if",
        )],
        invariant: "an update does not change a key that is absent",
        why: "an update puts back a key that was removed since it was read",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "hash_map_takes_a_hash_for_its_key",
        structure: Structure::SmallHashMap,
        edits: &[
            (
                "ident: (hash.h1 & mask).max(FROZEN + 1)",
                "ident: (hash.h1 & 0x8000_00f0_f000_000f).max(FROZEN + 1)",
            ),
            (
                "\
                    let is_there = link.shared().read_bytes_with(class(link)?, g, &is_key).await?;
                    return if is_there { Ok(false) } else { Err(equal_hashes()) };",
                "\
                    return Ok(false);",
            ),
        ],
        invariant: "two keys differ in their identities, or in what their entries show",
        why: "a key whose identity has few bits is taken for another one",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "hash_map_keeps_the_size_class",
        structure: Structure::HashMapOfBytes,
        edits: &[(
            "let tag = EntryTag::new(class_of_entry, hash.check, is_blind, false);",
            "\
            let class = if link.is_null() { class_of_entry } else { link.tag().class() };
            let tag = EntryTag::new(class, hash.check, is_blind, false);",
        )],
        invariant: "the tag of a link has the size class of its own entry",
        why: "a longer value is read by the size of the value that it has replaced",
        caught_by: Check::Memory,
        needs_faults: false,
    },
    Planted {
        name: "hash_map_frees_replaced_entries",
        structure: Structure::SmallHashMap,
        edits: &[(
            "\
                    self.remember(hash, &seen, slot, (word, blob, tag));
                    replaced.retire(g).await?;",
            "\
                    self.remember(hash, &seen, slot, (word, blob, tag));
                    std::mem::forget(replaced);
                    if !link.is_null() {
                        g.delete(link.shared()).await?;
                    }",
        )],
        invariant: "an entry is freed only when no guard is older than its removal",
        why: "a slower reader that has read the link reads a freed entry",
        caught_by: Check::Memory,
        needs_faults: false,
    },
    Planted {
        name: "hash_map_trusts_remembered_entries",
        structure: Structure::SmallHashMap,
        edits: &[("&& EntryWord::from(slot.link) == hot.word", "&& !slot.link.is_null()")],
        invariant: "a remembered entry is used only if its slot still links to it",
        why: "a reader that remembers a slot returns a value that was replaced",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "hash_map_trusts_remembered_tables",
        structure: Structure::SmallHashMap,
        edits: &[
            (
                "\
                    if known.is(link) {",
                "\
                    if known.is(link) || !link.is_null() {",
            ),
            (
                "\
                    let buckets = link.shared().buckets();",
                "\
                    let buckets = known.table.shared(g).buckets();",
            ),
        ],
        invariant: "a remembered table is used only if the directory still shows it",
        why: "a client uses a table that was replaced, and freed",
        caught_by: Check::Memory,
        needs_faults: false,
    },
    Planted {
        name: "hash_map_remembers_tables_for_too_long",
        structure: Structure::SmallHashMap,
        edits: &[(
            "let (known, is_protected) = (*known, *epoch == g.epoch());",
            "let (known, is_protected) = (*known, *epoch == *epoch);",
        )],
        invariant: "a table is used without the directory's entry only in the epoch in which that has shown it",
        why: "a client reads the window of a table that was replaced, and freed",
        caught_by: Check::Memory,
        needs_faults: false,
    },
    Planted {
        name: "hash_map_takes_frozen_slots_for_current",
        structure: Structure::SmallHashMap,
        edits: &[
            ("Slot::Claimed(_, link) => !link.tag().frozen(),", "Slot::Claimed(..) => true,"),
            // Both are harmless: tables are replaced more often, and more operations begin in the epoch of the replacement.
            (
                "\
                Slot::Vacant(ident, slot) => match ident.compare_exchange(g, VACANT, hash.ident).await? {
                Ok(_) => Some((slot, EntryLink::NULL)),",
                "\
                Slot::Vacant(..) if g.random_range(0..2) == 0 => None,
                Slot::Vacant(ident, slot) => match ident.compare_exchange(g, VACANT, hash.ident).await? {
                Ok(_) => Some((slot, EntryLink::NULL)),",
            ),
            (
                "\
                directory.forget(index);
                replaced.retire(g).await?;",
                "\
                directory.forget(index);
                g.sleep(std::time::Duration::from_micros(20)).await;
                replaced.retire(g).await?;",
            ),
        ],
        invariant: "only a slot that is not frozen shows that its table is current",
        why: "a lookup that does not read the directory's entry returns the value of a replaced table",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "hash_map_misses_frozen_slots",
        structure: Structure::SmallHashMap,
        edits: &[(
            "Slot::Claimed(slot, link) if !link.is_null() && link.tag().check() == hash.check => {",
            "Slot::Claimed(slot, link) if !link.is_null() && link.tag().check() == hash.check && !link.tag().frozen() => {",
        )],
        invariant: "the keys of a frozen table are in the map until the table is replaced",
        why: "a lookup misses a key while its table is split",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "hash_map_freezes_once",
        structure: Structure::SmallHashMap,
        edits: &[(
            "\
            g.chain((idents, links)).submit().await?;
            }",
            "\
            g.chain((idents, links)).submit().await?;
            return table.buckets().read(g, 0..buckets(scale)).await;
            }",
        )],
        invariant: "a table is copied when all of its slots are frozen",
        why: "a slot that changes while it is to be frozen is not frozen, and later changes of it are lost",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "hash_map_replaces_levels",
        structure: Structure::SmallHashMap,
        edits: &[(
            "\
                    self.shard.levels().at(level as usize).compare_exchange(g, RemotePtr::NULL, new).await?;",
            "\
                    self.shard.levels().at(level as usize).store(g, new).await?;",
        )],
        invariant: "a level of the directory is made once",
        why: "two clients that split tables make the same level, and the entries of one are lost",
        caught_by: Check::Leak,
        needs_faults: false,
    },
    Planted {
        name: "hash_map_walks_in_the_order_of_indices",
        structure: Structure::SmallHashMap,
        edits: &[(
            "\
                    let Found { index, known, .. } =
                        directory.load_path(self.reversed.reverse_bits(), counting, g).await?;
                    let step = 1_u64.checked_shl(u64::BITS - known.depth()).unwrap_or(0);",
            "\
                    let Found { index, known, .. } = directory.load_path(self.reversed, counting, g).await?;
                    let mut step = 0;
                    for next in self.reversed + 1..1 << directory.bits() {
                        let Found { index, .. } = directory.load_path(next, counting, g).await?;
                        if index == next {
                            step = next - self.reversed;
                            break;
                        }
                    }",
        )],
        invariant: "a walk visits tables in an order in which the halves of a split stand where the table stood",
        why: "an iteration returns a key twice, which a split has moved to a table further on",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "hash_map_waits_for_ever",
        structure: Structure::SmallHashMap,
        edits: &[("const PATIENCE: usize = 8;", "const PATIENCE: usize = usize::MAX;")],
        invariant: "a table whose client died while it replaced it is replaced by another",
        why: "all clients wait for a dead one",
        caught_by: Check::Stuck,
        needs_faults: true,
    },
    Planted {
        name: "hash_map_does_not_finish_splits",
        structure: Structure::SmallHashMap,
        edits: &[(
            "\
                    } else if bit + 1 == known.depth() {
                        self.finish_split(index, known.depth(), link.shared(), g).await?;
                        continue;
                    }",
            "\
                    }",
        )],
        invariant: "the second half of a split can be reached through the first",
        why: "the client that has split a table dies before it sets the second entry, and all others wait for it",
        caught_by: Check::Stuck,
        needs_faults: true,
    },
];
