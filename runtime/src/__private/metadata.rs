//! The locations of metadata in far memory, for tests that corrupt it: the targets of `cargo xtask corrupt`.
//!
//! A [`Map`] is computed from a cluster's geometry alone. It determines metadata at fixed addresses. Metadata in blocks (pages of slots, pages of the
//! pool, the list of candidates, descriptions) is found by following addresses that the caller reads. Addresses may be corrupt, so none is followed
//! out of its segment, and no list further than `MOST_PAGES` pages.

use std::ops::Range;

use crate::memory::cache::page_words;
use crate::segment::classes::{CLASSES, Class};
use crate::segment::control::{self, DIRECTORY_ENTRIES, Entry, EpochPage, SLOT_PAGES, SLOTS_HERE};
use crate::segment::grid::{Grid, Use};
use farfield_words::Address;
use farfield_words::WORD_BYTES;
use farfield_words::geometry::Geometry;

/// The limit for the pages of a list of the pool.
const MOST_PAGES: usize = 64;
/// The limit for the words of a list of candidates, and of a description.
const MOST_WORDS: u64 = 1024;
const WORD: u64 = WORD_BYTES as u64;
/// The kind of the words of a list of candidates.
const LIST: &str = "list of candidates";

/// A word of metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// The structure that it belongs to. Words of one kind have the same meaning.
    pub kind: &'static str,
    /// The word's address.
    pub at: Address,
}

impl Metadata {
    /// Returns whether the word belongs to a sweep's list of candidates.
    pub fn is_of_list(&self) -> bool {
        self.kind == LIST
    }
}

/// The locations of metadata in the segments of a cluster.
#[derive(Clone, Copy, Debug)]
pub struct Map {
    geometry: Geometry,
    grid: Grid,
}

/// Reads a word of far memory.
pub type Look<'a> = &'a dyn Fn(Address) -> u64;

impl Map {
    /// Makes the map of a geometry; `None` if it is invalid.
    pub fn new(nodes: u16, segments_per_node: u16, segment_bytes: u64) -> Option<Self> {
        let geometry = Geometry::new(nodes.into(), segments_per_node.into(), segment_bytes).ok()?;
        Some(Self { geometry, grid: Grid::new(geometry) })
    }

    /// Returns the offset of a word in the memory of a `shm:` cluster, in bytes.
    pub fn place(&self, at: Address) -> u64 {
        (u64::from(at.segment()) << self.geometry.stride_log2()) + at.offset()
    }

    /// Returns the size of all segments, in bytes.
    pub fn bytes(&self) -> u64 {
        self.geometry.bytes()
    }

    /// Returns the metadata at fixed addresses: headers, heads of the pool, directory, epochs, members, chunk tables.
    pub fn fixed(&self) -> Vec<Metadata> {
        let mut words = Vec::new();
        for segment in self.segments() {
            let (pools, end) = (control::pool_head(segment, 0), control::pool_head(segment, CLASSES));
            words.extend(range("header", Address::new(segment, 0)..pools));
            let first = self.geometry.node_of(segment) * self.geometry.segments_per_node();
            if segment == first {
                words.extend(range("pool head", pools..end));
            }
            if segment == 0 {
                words.extend(Self::control());
            }
            let table = self.grid.word(segment, 0);
            let chunks = self.grid.chunks(segment);
            words.extend(range("chunk table", table..table.add(chunks * WORD)));
        }
        words
    }

    /// Returns the metadata of segment 0's control block.
    fn control() -> Vec<Metadata> {
        let mut words = Vec::new();
        for index in 0..DIRECTORY_ENTRIES {
            let entry = control::directory(index);
            words.push(metadata("directory state", Entry::state(entry)));
            words.push(metadata("directory value", Entry::value(entry)));
            words.push(metadata("directory fingerprint", Entry::fingerprint(entry)));
            words.extend(range("directory name", Entry::name(entry, 0)..Entry::description(entry)));
            words.push(metadata("directory description", Entry::description(entry)));
        }
        words.extend(range("epoch", control::epoch()..control::epoch_slot(0)));
        words.extend(range("epoch slot", control::epoch_slot(0)..control::epoch_page(0)));
        words.extend(range("slot page", control::epoch_page(0)..control::epoch_page(SLOT_PAGES)));
        words.extend(range("count of members", control::evictions()..control::member(0)));
        words.extend(range("record", control::member(0)..Address::new(0, control::CONTROL_BYTES)));
        words
    }

    /// Returns the metadata in blocks, found through the addresses that `look` reads: pages of slots, pages of the pool, the list of candidates,
    /// descriptions.
    pub fn found(&self, look: Look<'_>) -> Vec<Metadata> {
        let mut words = Vec::new();
        for index in 0..SLOT_PAGES {
            let page = Address::from_bits(look(control::epoch_page(index)));
            if self.is_inside(page, EpochPage::BYTES) {
                let records = EpochPage::record(page, 0);
                words.extend(range("epoch slot on a page", page..records));
                words.extend(range("record on a page", records..page.add(EpochPage::BYTES)));
            }
        }
        for node in 0..self.geometry.nodes() {
            for class in (0..CLASSES).filter_map(Class::from_index) {
                let head = control::pool(node * self.geometry.segments_per_node(), class);
                words.extend(self.pages(look(head), class, look));
            }
        }
        let list = Address::from_bits(look(control::own_list_of_candidates()));
        if self.is_inside(list, MOST_WORDS * WORD) {
            words.extend(range(LIST, list..list.add(MOST_WORDS * WORD)));
        }
        for index in 0..DIRECTORY_ENTRIES {
            let at = Entry::description(control::directory(index));
            let description = Address::from_bits(look(at));
            if self.is_inside(description, WORD) {
                let bytes = look(description).min(MOST_WORDS * WORD).next_multiple_of(WORD) + WORD;
                if self.is_inside(description, bytes) {
                    words.extend(range("description", description..description.add(bytes)));
                }
            }
        }
        words
    }

    /// Returns the metadata on the pages of a list of the pool.
    fn pages(&self, head: u64, class: Class, look: Look<'_>) -> Vec<Metadata> {
        let (mut words, mut link) = (Vec::new(), head);
        for _ in 0..MOST_PAGES {
            let (page, is_member) = (Address::from_bits(link & !1), link & 1 != 0);
            let most = if is_member { class.words() } else { usize::MAX };
            let bytes = page_words(self.grid.chunk_bytes()).min(most) as u64 * WORD;
            if !self.is_inside(page, bytes) {
                break;
            }
            words.push(metadata("link of a pool page", page));
            words.extend(range("entry of a pool page", page.add(WORD)..page.add(bytes)));
            link = look(page);
        }
        words
    }

    /// Returns the ranges of chunks that are in use, for any purpose.
    pub fn heap(&self, look: Look<'_>) -> Vec<Range<Address>> {
        let mut used = Vec::new();
        for segment in self.segments() {
            for chunk in 0..self.grid.chunks(segment) {
                let usage = Use::from_word(look(self.grid.word(segment, chunk)));
                if !matches!(usage, None | Some(Use::Untaken | Use::Free)) {
                    let end = self.grid.start(segment, chunk + 1).offset().min(self.grid.limit(segment));
                    used.push(self.grid.start(segment, chunk)..Address::new(segment, end));
                }
            }
        }
        used
    }

    /// Returns the name of a word in front of a segment's chunks.
    pub fn describe(&self, at: Address) -> String {
        control::describe(at)
    }

    /// Returns the addresses of the states of the records in the control block.
    pub fn records(&self) -> impl Iterator<Item = Address> + use<> {
        (0..SLOTS_HERE).map(control::member)
    }

    fn segments(&self) -> Range<u16> {
        0..self.geometry.segments() as u16
    }

    /// Returns whether the range is aligned to words and inside a segment's chunks.
    fn is_inside(&self, at: Address, bytes: u64) -> bool {
        u32::from(at.segment()) < self.geometry.segments()
            && at.bits().is_multiple_of(WORD)
            && self.grid.chunk_of(at).is_some()
            && at.offset().saturating_add(bytes) <= self.grid.limit(at.segment())
    }
}

fn metadata(kind: &'static str, at: Address) -> Metadata {
    Metadata { kind, at }
}

/// Returns the words of a range.
fn range(kind: &'static str, range: Range<Address>) -> impl Iterator<Item = Metadata> {
    (range.start.bits()..range.end.bits())
        .step_by(WORD_BYTES)
        .map(move |bits| metadata(kind, Address::from_bits(bits)))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_word_of_the_control_blocks_and_tables_occurs_once() {
        let map = Map::new(2, 2, 1 << 19).unwrap();
        let words = map.fixed();
        let places: HashSet<u64> = words.iter().map(|word| word.at.bits()).collect();
        assert_eq!(places.len(), words.len());
        let control = (0..control::CONTROL_BYTES).step_by(WORD_BYTES).map(|offset| Address::new(0, offset));
        let headers = (1..4).map(|segment| Address::new(segment, 0));
        let tables = (0..4).map(|segment| map.grid.word(segment, map.grid.chunks(segment) - 1));
        for at in control.chain(headers).chain(tables) {
            assert!(places.contains(&at.bits()), "{at}");
        }
        let kind = |at: Address| words.iter().find(|word| word.at == at).map(|word| word.kind);
        assert_eq!(kind(control::used_epoch_slots()), Some("epoch"));
        assert_eq!(kind(control::own_list_of_candidates()), Some("count of members"));
        assert_eq!(kind(control::member(125)), Some("record"));
        assert_eq!(kind(control::directory(3)), Some("directory state"));
    }

    #[test]
    fn pages_are_found_by_addresses_inside_their_segment() {
        let map = Map::new(1, 1, 1 << 19).unwrap();
        let (page, behind) = (map.grid.start(0, 2), Address::new(0, (1 << 19) - 8));
        let head = control::pool(0, Class::of(64).unwrap());
        let look = |first: u64, next: u64| {
            move |at: Address| match at {
                at if at == head => first,
                at if at == page => next,
                _ => 0,
            }
        };
        assert_eq!(map.found(&look(behind.bits(), 0)), []);
        assert_eq!(map.found(&look(page.bits() | 1, 0)).len(), 8);
        let words = page_words(map.grid.chunk_bytes());
        assert_eq!(map.found(&look(page.bits(), 0)).len(), words);
        // A page that links to itself.
        assert_eq!(map.found(&look(page.bits(), page.bits())).len(), MOST_PAGES * words);
    }
}
