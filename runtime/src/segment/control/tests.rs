//! The bytes of layout version 7, and their table.

use super::*;

/// Memory that other builds use and checkpoints have these offsets: a change of one requires a new [`LAYOUT_VERSION`].
#[test]
fn every_word_has_its_offset_of_version_6() {
    assert_eq!(LAYOUT_VERSION, 7);
    let (node, page) = (7, Address::new(2, 0x8000));
    for (at, offset) in [
        (magic(node), 0),
        (version(node), 8),
        (taken_chunks(node), 16),
        (freed_chunks(node), 24),
        (live_bytes(node), 32),
        (reserved(node, 0), 40),
        (pool_head(node, 0), 64),
        (pool_head(node, CLASSES), 704),
    ] {
        assert_eq!(at, Address::new(node, offset));
    }
    for (at, offset) in [
        (header(), 0),
        (directory(0), 704),
        (directory(1), 832),
        (Entry::state(directory(0)), 704),
        (Entry::value(directory(0)), 712),
        (Entry::fingerprint(directory(0)), 720),
        (Entry::name(directory(0), 0), 728),
        (Entry::type_name(directory(0), 0), 776),
        (Entry::description(directory(0)), 824),
        (epochs(), 17_088),
        (epoch(), 17_088),
        (used_epoch_slots(), 17_096),
        (requests_for_memory(), 17_104),
        (coalesced_chunks(), 17_112),
        (epoch_slot(0), 17_120),
        (epoch_page(0), 18_128),
        (members(), 19_152),
        (evictions(), 19_152),
        (runs_of_groups(), 19_160),
        (unclean_exits(), 19_168),
        (collected_exits(), 19_176),
        (collector(), 19_184),
        (swept_exits(), 19_192),
        (sweeper(), 19_200),
        (list_of_candidates(), 19_208),
        (swept_bytes(), 19_216),
        (collected_bytes(), 19_224),
        (own_list_of_candidates(), 19_232),
        (left_bytes(), 19_240),
        (options(), 19_248),
        (reserved_word(), 19_256),
        (member(0), 19_264),
        (Record::state(member(1)), 19_328),
        (Record::gone(member(0)), 19_272),
        (Record::heartbeat(member(0)), 19_280),
        (Record::held_bytes(member(0)), 19_288),
        (Record::group(member(0)), 19_296),
        (Record::round(member(0)), 19_304),
        (Record::run(member(0)), 19_312),
        (Record::sweep_answer(member(0)), 19_320),
        (member(SLOTS_HERE), 27_328),
    ] {
        assert_eq!(at, Address::new(0, offset));
    }
    assert_eq!((HEADER_BYTES, CONTROL_BYTES, EpochPage::BYTES), (704, 27_328, 9216));
    assert_eq!((EpochPage::slot(page, 1), EpochPage::record(page, 1)), (page.add(8), page.add(1024 + 64)));
    assert_eq!((ListHead::number(page), ListHead::not_ranges(page)), (page, page.add(8)));
    assert_eq!((ListRange::not_address(page), ListRange::not_blocks(page)), (page, page.add(8)));
}

#[test]
fn words_have_the_names_of_their_fields() {
    for (at, name) in [
        (taken_chunks(3), "taken chunks"),
        (reserved(0, 2), "reserved[2]"),
        (pool(3, Class::of(48).unwrap()), "pool of 48 bytes"),
        (Entry::fingerprint(directory(3)), "directory[3].fingerprint"),
        (Entry::type_name(directory(3), 2), "directory[3].type name[2]"),
        (used_epoch_slots(), "used epoch slots"),
        (epoch_slot(125), "epoch slot[125]"),
        (epoch_page(127), "epoch page[127]"),
        (own_list_of_candidates(), "own list of candidates"),
        (Record::held_bytes(member(125)), "member[125].held bytes"),
        (Address::new(0, CONTROL_BYTES), "unallocated"),
        (Address::new(3, HEADER_BYTES), "unallocated"),
    ] {
        assert_eq!(describe(at), name);
    }
}

/// `FARFIELD_BLESS=1` writes the file anew.
#[test]
fn the_documented_bytes_are_those_of_the_tables() {
    let tables: Vec<String> = TABLES.iter().map(|table| table.to_markdown()).collect();
    let tables = tables.join("\n");
    if std::env::var_os("FARFIELD_BLESS").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/segment/control.md");
        std::fs::write(path, &tables).unwrap();
    } else {
        assert_eq!(
            include_str!("../control.md"),
            tables,
            "FARFIELD_BLESS=1 cargo test -p farfield --lib control"
        );
    }
}
