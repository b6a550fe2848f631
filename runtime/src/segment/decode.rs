//! Decoding: from a word of far memory to a bounded value.
//!
//! Every process of the cluster can write any word, and memory fails. So every word of the runtime's own is decoded before it is used: each kind has one
//! function that returns a value within its bounds, or [`Error::Corrupted`] with the word and its address. A decoded value needs no further
//! check: an address points to memory with room for its data, a count is bounded by the memory or by the number of processes, and epochs are
//! far from the end of their range. A bounded value may still be wrong: a plausible word can not be distinguished from the right one.
//!
//! | words | decoded by |
//! |---|---|
//! | the epoch, used slots, pages of slots, options, addresses of lists | here |
//! | an entry of the directory | [`entry`](super::entry) |
//! | a member's record | [`record`](super::record) |
//! | a chunk's use | [`Grid::usage`] |
//! | the pool's links and pages | `memory/pool` |
//! | a list of candidates | `memory/candidates` |
//!
//! Words that are only compared or shown may have any value: announcements of epochs, the collector and the sweeper, and counters of evictions,
//! unclean exits, requests and bytes, which are added with wrapping. A count of taken chunks passes the number of chunks when threads find a
//! segment full; readers clamp it. A memory node looks for records word by word; its arena checks each address, and a word out of bounds counts
//! as 0.

use super::control::{self, EpochPage, ListHead, MAX_PROCESSES};
use crate::epoch::FIRST_EPOCH;
use crate::error::{self, Error, Result};
use crate::segment::grid::Grid;
use farfield_words::Address;
use farfield_words::WORD_BYTES;

/// The last valid epoch: at a million a second it is 146,000 years away.
pub(crate) const LAST_EPOCH: u64 = 1 << 62;

/// The error for a word that the runtime did not write; `what` names the word.
#[cold]
pub(crate) fn corrupted_as(
    what: impl Into<Box<str>>,
    address: Address,
    word: u64,
    reason: &'static str,
) -> Error {
    Error::from(error::Corrupted { what: what.into(), address, word, reason })
}

/// Like [`corrupted_as`], for a word in front of the chunks.
#[cold]
pub(crate) fn corrupted(address: Address, word: u64, reason: &'static str) -> Error {
    corrupted_as(control::describe(address), address, word, reason)
}

/// The cluster's epoch.
pub(crate) fn epoch(word: u64) -> Result<u64> {
    if (FIRST_EPOCH..=LAST_EPOCH).contains(&word) {
        return Ok(word);
    }
    Err(corrupted(control::epoch(), word, "an epoch is between 1 and 2^62"))
}

/// The number of slots that were ever used.
pub(crate) fn used_slots(word: u64) -> Result<usize> {
    if word <= MAX_PROCESSES as u64 {
        return Ok(word as usize);
    }
    Err(corrupted(control::used_epoch_slots(), word, "there are fewer slots"))
}

/// The address of a page of further slots, if there is one.
pub(crate) fn slot_page(grid: &Grid, index: usize, word: u64) -> Result<Option<Address>> {
    optional_part(grid, control::epoch_page(index), word, EpochPage::BYTES)
}

/// The address of a list of candidates, if there is one. The word was read at `at`.
pub(crate) fn list(grid: &Grid, at: Address, word: u64) -> Result<Option<Address>> {
    optional_part(grid, at, word, ListHead::BYTES)
}

/// The address of a block of the library's own on the first memory node.
fn optional_part(grid: &Grid, at: Address, word: u64, bytes: u64) -> Result<Option<Address>> {
    let part = Address::from_bits(word);
    if part.is_null() {
        return Ok(None);
    }
    if grid.is_on_node(part, 0) && part.offset().is_multiple_of(WORD_BYTES as u64) && grid.has(part, bytes) {
        return Ok(Some(part));
    }
    Err(corrupted(at, word, "no such block can be at this address"))
}

/// The options of the cluster.
pub(crate) fn options(word: u64) -> Result<u64> {
    if word & !control::SWEEPS == 0 {
        return Ok(word);
    }
    Err(corrupted(control::options(), word, "some of these options do not exist"))
}

/// Decodes words as each kind, in clusters of several sizes, and uses the values.
#[cfg(any(fuzzing, test))]
pub(crate) fn any(words: &[u64]) {
    use farfield_words::geometry::Geometry;
    for (nodes, segments, bytes) in [(1, 1, 1 << 16), (2, 3, 1 << 20), (1, 2, 1 << 40)] {
        let grid = Grid::new(Geometry::new(nodes, segments, bytes).expect("they are possible"));
        for (index, word) in words.iter().enumerate() {
            let _ = (epoch(*word), used_slots(*word), options(*word));
            let _ = (
                slot_page(&grid, index % control::SLOT_PAGES, *word),
                list(&grid, control::own_list_of_candidates(), *word),
            );
            let _ = super::entry::claimant(*word);
            let segment = (index % 7) as u16;
            let chunk = index as u64 % grid.chunks(segment);
            drop(grid.usage(segment, chunk, *word).map(|usage| assert_eq!(usage.to_word(), *word)));
        }
        super::record::decode_any(words);
        crate::memory::pool::decode_any(&grid, words);
        crate::memory::candidates::decode_any(&grid, words);
    }
}

#[cfg(test)]
proptest::proptest! {
    #[test]
    fn no_words_panic(words in proptest::collection::vec(near_edges(), 0..160)) {
        any(&words);
    }
}

/// Words near the valid ones, as most corrupt words are, or any words.
#[cfg(test)]
fn near_edges() -> impl proptest::strategy::Strategy<Value = u64> {
    use proptest::prelude::*;
    prop_oneof![
        any::<u64>(),
        0_u64..8,
        (0_u32..64).prop_map(|bit| 1 << bit),
        (0_u32..64).prop_map(|bit| !(1 << bit)),
        (0_u64..8, 0_u64..1 << 20).prop_map(|(segment, offset)| segment << 48 | offset),
        (0_u64..8, 0_u64..1 << 20).prop_map(|(segment, offset)| !(segment << 48 | offset)),
        (0_u64..1 << 10, 0_u64..8).prop_map(|(rest, tag)| rest << 8 | tag),
    ]
}
