//! Bugs of the inline hash map. All are planted in the map with small tables.

use super::bug::{Planted, Structure};
use crate::Check;

/// Edits of the map's source that make its buckets and tables small, so that they are replaced early, and its locks few, so that tables share them.
/// A table has up to 3 buckets before it is split.
pub const SMALL_INLINE_TABLES: &[(&str, &str)] = &[
    ("const LARGEST: u8 = 3;", "const LARGEST: u8 = 1;"),
    ("const BASE_BITS: u32 = 6;", "const BASE_BITS: u32 = 1;"),
    ("const SLOTS: usize = 15;", "const SLOTS: usize = 3;"),
    ("const LOCKS: usize = 1024;", "const LOCKS: usize = 32;"),
    ("const LOCK_STRIDE: u64 = 64;", "const LOCK_STRIDE: u64 = 2;"),
];

pub(super) const BUGS: &[Planted] = &[
    Planted {
        name: "inline_hash_map_shows_a_key_too_early",
        structure: Structure::SmallInlineHashMap,
        edits: &[(
            "g.chain((pair, state, check, release(lock))).submit().await?;",
            "g.chain((state, pair, check, release(lock))).submit().await?;",
        )],
        invariant: "an insertion writes key and value before the state",
        why: "a lookup finds the slot's last key, which was removed, or its value",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "inline_hash_map_reads_the_first_state_late",
        structure: Structure::SmallInlineHashMap,
        edits: &[
            (
                "g.chain((op::load(guess.entry), op::peek(state), op::peek(bucket), op::peek(state)));",
                "g.chain((op::load(guess.entry), op::peek(bucket), op::peek(state), op::peek(state)));",
            ),
            (
                "let (link, before, bucket, after) = chain.submit().await?;",
                "let (link, bucket, before, after) = chain.submit().await?;",
            ),
        ],
        invariant: "a lookup reads the first state before the bucket",
        why: "a lookup finds a key that was being inserted, with the value of the slot's last key",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "inline_hash_map_gets_from_a_replaced_table",
        structure: Structure::SmallInlineHashMap,
        edits: &[(
            "\
            let (link, before, bucket, after) = chain.submit().await?;
            if !guess.known.is(link) {",
            "\
            let (link, before, bucket, after) = chain.submit().await?;
            if link.is_null() {",
        )],
        invariant: "a lookup uses a remembered table only if the directory still shows it",
        why: "a lookup reads a table that was replaced, and misses what has changed since",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "inline_hash_map_changes_a_replaced_table",
        structure: Structure::SmallInlineHashMap,
        edits: &[(
            "\
            lock.recovered();
            if !guess.known.is(link) {",
            "\
            lock.recovered();
            if link.is_null() {",
        )],
        invariant: "a bucket changes only while the directory shows its table",
        why: "a key is inserted into a table that was replaced, or freed",
        caught_by: Check::Memory,
        needs_faults: false,
    },
    Planted {
        name: "inline_hash_map_trusts_what_it_read_before_its_lock",
        structure: Structure::SmallInlineHashMap,
        edits: &[(
            "\
            let lock = guess.lock.acquire(g).await?;
            seen = g.chain(read()).submit().await?;
            lock",
            "\
            guess.lock.acquire(g).await?",
        )],
        invariant: "a bucket is read under the lock under which it is changed",
        why: "a client that has waited for a lock overwrites the state that its owner has written",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "inline_hash_map_releases_before_it_writes",
        structure: Structure::SmallInlineHashMap,
        edits: &[
            (
                "g.chain((state, check, release(lock))).submit().await?;",
                "g.chain((release(lock), state, check)).submit().await?;",
            ),
            (
                "g.chain((unsettled, value, check, release(lock))).submit().await?;",
                "g.chain((release(lock), unsettled, value, check)).submit().await?;",
            ),
        ],
        invariant: "a lock is released after the last WRITE under it",
        why: "the next owner reads the bucket before it is changed, and its own change is overwritten",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "inline_hash_map_locks_by_the_hash",
        structure: Structure::SmallInlineHashMap,
        edits: &[(
            "let lock = part.lock(lock_of(index, bucket));",
            "let lock = part.lock(lock_of(ident, bucket));",
        )],
        invariant: "all keys of a bucket have one lock",
        why: "two clients change a bucket's state at the same time, and one change is lost",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "inline_hash_map_grows_under_one_lock",
        structure: Structure::SmallInlineHashMap,
        edits: &[(
            "let locks = self.lock_all(part, &locks_of(index, known.scale()), g).await?;",
            "\
            let only = lock_of(index, home(hash.ident, known.scale()));
            let locks = self.lock_all(part, &[only], g).await?;",
        )],
        invariant: "a table is replaced under the locks of all of its buckets",
        why: "a key that is inserted into another bucket, which has been copied, is lost",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "inline_hash_map_locks_in_any_order",
        structure: Structure::SmallInlineHashMap,
        edits: &[(
            "let locks = self.lock_all(part, &locks_of(index, known.scale()), g).await?;",
            "\
            let mut numbers = locks_of(index, known.scale());
            if g.index() % 2 == 1 {
                numbers.reverse();
            }
            let locks = self.lock_all(part, &numbers, g).await?;",
        )],
        invariant: "all clients take the locks of a table in the same order",
        why: "two clients wait for each other",
        caught_by: Check::Stuck,
        needs_faults: false,
    },
    Planted {
        name: "inline_hash_map_grows_a_replaced_table",
        structure: Structure::SmallInlineHashMap,
        edits: &[(
            "\
            if !known.is(link) {
                directory.learn(index, link, g);
                return Ok(());
            }",
            "",
        )],
        invariant: "a table is replaced only while the directory shows it",
        why: "a client that has waited for the locks replaces the new table by the keys of the old one",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "inline_hash_map_splits_by_another_bit",
        structure: Structure::SmallInlineHashMap,
        edits: &[(
            "let is_upper = |ident: u64| ident >> depth & 1 == 1;",
            "let is_upper = |ident: u64| ident >> (depth + 1) & 1 == 1;",
        )],
        invariant: "the halves of a split have the keys whose indices lead to them",
        why: "a key is in the half in which no lookup looks for it",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "inline_hash_map_frees_replaced_tables",
        structure: Structure::SmallInlineHashMap,
        edits: &[(
            "replaced.retire(g).await",
            "\
            std::mem::forget(replaced);
            g.delete(table).await",
        )],
        invariant: "a table is freed only when no guard is older than its replacement",
        why: "a lookup that has read the directory's entry reads a freed table",
        caught_by: Check::Memory,
        needs_faults: false,
    },
    Planted {
        name: "inline_hash_map_takes_a_hash_for_its_key",
        structure: Structure::SmallInlineHashMap,
        edits: &[("self.keys[*slot] == key", "(self.keys[*slot] ^ key) % 32 == 0")],
        invariant: "keys are compared as a whole",
        why: "a key of which a few bits are equal is taken for another",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "inline_hash_map_finds_removed_keys",
        structure: Structure::SmallInlineHashMap,
        edits: &[(
            "state.present().find(|slot| self.keys[*slot] == key)",
            "(0..SLOTS).find(|slot| self.keys[*slot] == key)",
        )],
        invariant: "the key of a slot counts only if the state has the slot as present",
        why: "a lookup finds a key that was removed",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "inline_hash_map_drops_a_key",
        structure: Structure::SmallInlineHashMap,
        edits: &[(
            "let plan = Plan::new(&pairs, hash.ident, known).ok_or_else(too_many_equal)?;",
            "let plan = Plan::new(&pairs[1..], hash.ident, known).ok_or_else(too_many_equal)?;",
        )],
        invariant: "the tables that replace another have all of its keys",
        why: "a key is lost when its table is replaced",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "inline_hash_map_remembers_tables_for_too_long",
        structure: Structure::SmallInlineHashMap,
        edits: &[(
            "let (known, is_protected) = (*known, *epoch == g.epoch());",
            "let (known, is_protected) = (*known, *epoch == *epoch);",
        )],
        invariant: "a table is used without the directory's entry only in the epoch in which that has shown it",
        why: "a lookup reads a bucket of a table that was replaced, and freed",
        caught_by: Check::Memory,
        needs_faults: false,
    },
    Planted {
        name: "inline_hash_map_trusts_a_torn_bucket",
        structure: Structure::SmallInlineHashMap,
        edits: &[
            ("if seen.check == seen.checksum(self.seed) {", "if seen.check != UNSETTLED {"),
            // Harmless with the checksum: as if the words of a READ were far apart in time.
            (
                "let seen = bucket.read(g).await?;",
                "\
                let early = bucket.read(g).await?;
                let mut seen = bucket.read(g).await?;
                seen.values = early.values;",
            ),
        ],
        invariant: "a bucket that one READ has found is used only if it has its checksum",
        why: "a lookup finds a key that was being inserted, with the value of the slot's last key",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "inline_hash_map_leaves_checksums_of_replaced_tables",
        structure: Structure::SmallInlineHashMap,
        edits: &[
            (
                "let unsettle: Vec<_> = places.map(|bucket|",
                "let unsettle: Vec<_> = places.take(0).map(|bucket|",
            ),
            // All are harmless: tables are replaced more often, and more operations begin in the epoch of the replacement.
            (
                "let Some(slot) = bucket.state.vacant() else {",
                "let Some(slot) = bucket.state.vacant().filter(|_| g.random_range(0..3) > 0) else {",
            ),
            (
                "\
                if Contents::of(&pairs, Some(hash.ident), known.scale()).is_some() {
                return Ok(());
                }",
                "",
            ),
            (
                "replaced.retire(g).await",
                "\
                g.sleep(std::time::Duration::from_micros(20)).await;
                replaced.retire(g).await",
            ),
        ],
        invariant: "no bucket of a replaced table has a checksum",
        why: "a lookup that does not read the directory's entry returns the value of a replaced table",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "inline_hash_map_hides_the_second_half",
        structure: Structure::SmallInlineHashMap,
        edits: &[
            ("lower.set(|table| table.sibling(), word);", ""),
            // Harmless with the sibling, and more often met by a death than a gap in a chain.
            (
                "match g.chain((unsettle, replace, link_upper, releases)).submit().await? {",
                "\
                let (_, replaced) = g.chain((unsettle, replace)).submit().await?;
                for _ in 0..8 {
                    g.backoff().wait().await;
                }
                g.chain((link_upper, releases)).submit().await?;
                match ((), replaced, (), ()) {",
            ),
        ],
        invariant: "the second table of a split can be reached through the first",
        why: "the client that has split a table dies before it sets the second entry, and all others wait for it",
        caught_by: Check::Stuck,
        needs_faults: true,
    },
];
