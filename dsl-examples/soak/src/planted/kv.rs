//! Bugs of the key-value engine.

use super::bug::{Planted, Structure};
use crate::Check;

/// Small pages, which are full early and rebuilt often, and small values.
pub const SMALL_PAGES: &[(&str, &str)] = &[
    ("pub(crate) const PAGE_WORDS: usize = 2045;", "pub(crate) const PAGE_WORDS: usize = 64;"),
    ("pub const MOST_VALUE_BYTES: usize = 8 << 10;", "pub const MOST_VALUE_BYTES: usize = 256;"),
];

pub(super) const BUGS: &[Planted] = &[
    Planted {
        name: "kv_links_a_page_when_it_is_full",
        structure: Structure::SmallKeyValueStore,
        edits: &[
            (
                "\
            let new = FarPage::new_in(ct, FarPage::init(vec![0; PAGE_WORDS]).sequence(sequence)).await?;
            let far = new.as_ptr();
            link.store(g, new).await?;
            far",
                "\
            let new = FarPage::new_in(ct, FarPage::init(vec![0; PAGE_WORDS]).sequence(sequence)).await?;
            new.write(ct).await?",
            ),
            (
                "self.pages.has_filled(&self.pages[page]);",
                "\
                self.root.pages().at(page.into()).store(&ct.pin(), self.pages[page].far()).await?;
                self.pages.has_filled(&self.pages[page]);",
            ),
        ],
        invariant: "the root links to a page before a record is added to it",
        why: "the records of the pages that are not full are not found again",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "kv_evicts_a_page_that_is_filled",
        structure: Structure::SmallKeyValueStore,
        edits: &[(
            "if !page.is(State::Full) || page.was_touched.swap(false, Ordering::Relaxed) {",
            "if page.was_touched.swap(false, Ordering::Relaxed) {",
        )],
        invariant: "a page that is filled is in local memory",
        why: "its records are read from far memory before they have arrived there",
        caught_by: Check::Error,
        needs_faults: false,
    },
    Planted {
        name: "kv_page_is_full_before_its_writes_are_over",
        structure: Structure::SmallKeyValueStore,
        edits: &[(
            "\
            self.settle(ct).await?;
            let settled = lock(&lane.unsettled).take();",
            "let settled = lock(&lane.unsettled).take();",
        )],
        invariant: "a page is full when all WRITEs of its records are over",
        why: "it is evicted, and its records are read from far memory before they have arrived there",
        caught_by: Check::Error,
        needs_faults: false,
    },
    Planted {
        name: "kv_replaces_a_record_that_is_not_current",
        structure: Structure::SmallKeyValueStore,
        edits: &[(
            "let Some(slot) = entries.slot(hash, old.place) else",
            "let Some(slot) = entries.find(hash).next().and_then(|place| entries.slot(hash, place)) else",
        )],
        invariant: "a record is replaced only if the index leads to it",
        why: "a rebuild, or another write, misses an update in between",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "kv_counts_a_dead_record_twice",
        structure: Structure::SmallKeyValueStore,
        edits: &[(
            "entries.remove(slot);",
            "\
            entries.remove(slot);
            self.forget(&found.record);",
        )],
        invariant: "a record is counted as dead once",
        why: "pages seem to be emptier than they are, and the wrong ones are rebuilt",
        caught_by: Check::Error,
        needs_faults: false,
    },
    Planted {
        name: "kv_numbers_nonces_anew_at_each_opening",
        structure: Structure::SmallKeyValueStore,
        edits: &[("nonce[..4].copy_from_slice(&self.openings.to_le_bytes());", "")],
        invariant: "a nonce has the number of the opening",
        why: "two records are encrypted with the same nonce",
        caught_by: Check::Error,
        needs_faults: false,
    },
    Planted {
        name: "kv_opening_keeps_both_records_of_a_key",
        structure: Structure::SmallKeyValueStore,
        edits: &[(
            "\
            if age(&old) > age(new) {
                return self.bury(new, g);",
            "\
            if age(&old) > age(new) {
                return Ok(());",
        )],
        invariant: "of two live records of a key, opening buries the older one",
        why: "when the newer one has died, the older one is found again",
        caught_by: Check::Error,
        needs_faults: true,
    },
    Planted {
        name: "kv_opening_ignores_the_order_of_pages",
        structure: Structure::SmallKeyValueStore,
        edits: &[(
            "let age = |record: &Record| (self.pages[record.place.page].sequence(), record.place.first);",
            "let age = |record: &Record| record.place.first;",
        )],
        invariant: "of two live records of a key, opening takes the one in the page that was filled later",
        why: "the value of a stale page comes back",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "kv_buries_a_record_before_the_new_one_is_added",
        structure: Structure::SmallKeyValueStore,
        edits: &[
            (
                "let Some(new) = self.append(lane, record, g)? else { return Ok(Added::Full) };",
                "\
            if g.is_immediate() || self.fills_near(lane, old) {
                self.post_burial(old, g)?;
            }
            let Some(new) = self.append(lane, record, g)? else { return Ok(Added::Full) };",
            ),
            (
                "/// Returns the segment of far memory that has a record.",
                "\
            fn fills_near(&self, lane: &Lane, old: &Record) -> bool {
                let segment = |page: u32| self.pages[page].far().address().segment();
                let filling = lock(&lane.filling).as_ref().map(|filling| segment(filling.page));
                filling == Some(self.segment_of(old))
            }

            /// Returns the segment of far memory that has a record.",
            ),
        ],
        invariant: "a record is buried after the WRITE of the one that replaces it",
        why: "if the process dies in between, the key has no record",
        caught_by: Check::Linearizability,
        needs_faults: true,
    },
    Planted {
        name: "kv_buries_a_record_of_another_node_too_early",
        structure: Structure::SmallKeyValueStore,
        edits: &[("if !g.is_immediate() && self.segment_of(&new) != self.segment_of(old) {", "if false {")],
        invariant: "a record is buried when the one that replaces it is in far memory, if they are on different memory nodes",
        why: "the burial overtakes the WRITE of the new record, which is lost with its process",
        caught_by: Check::Linearizability,
        needs_faults: true,
    },
    Planted {
        name: "kv_burial_overtakes_its_record",
        structure: Structure::SmallKeyValueStore,
        edits: &[
            (
                "if g.is_immediate() || page.writer() == g.index() || !page.is(State::Filling) {",
                "if page.first_words() {",
            ),
            (
                "/// Returns the words of records that are live.",
                "\
            pub(crate) fn first_words(&self) -> bool {
                true
            }

            /// Returns the words of records that are live.",
            ),
        ],
        invariant: "a record is in far memory when another thread buries it",
        why: "the record arrives after its burial, and is found again when the store is opened",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "kv_deletes_in_local_memory_only",
        structure: Structure::SmallKeyValueStore,
        edits: &[(
            "\
                    self.count_user(None, Some(found.record.head));
                    self.bury(&found.record, g)?;",
            "\
                    self.count_user(None, Some(found.record.head));
                    self.forget(&found.record);",
        )],
        invariant: "a deleted record is buried",
        why: "the key is found again when the store is opened",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "kv_rebuilds_a_record_that_is_not_whole",
        structure: Structure::SmallKeyValueStore,
        edits: &[("let used = page.used();\nlet words", "let used = PAGE_WORDS;\nlet words")],
        invariant: "a rebuild looks at the records of a page that are whole",
        why: "the page can not be rebuilt",
        caught_by: Check::Error,
        needs_faults: true,
    },
    Planted {
        name: "kv_takes_the_last_bytes_of_the_budget_twice",
        structure: Structure::SmallKeyValueStore,
        edits: &[("if used + bytes <= self.budget {", "if used < self.budget {")],
        invariant: "what is allocated was in the budget before",
        why: "the budget is exceeded",
        caught_by: Check::Error,
        needs_faults: false,
    },
    Planted {
        name: "kv_forgets_to_free_a_page",
        structure: Structure::SmallKeyValueStore,
        edits: &[("g.sched_reclaim(far.shared(g)).await?;", "let _ = far;")],
        invariant: "a page to which the root does not link any more is freed",
        why: "no process frees it",
        caught_by: Check::Leak,
        needs_faults: false,
    },
];
