//! The candidates of a [sweep](super::sweep): blocks that look as if nobody used them, and which of them somebody has vetoed.
//!
//! Blocks lie side by side in chunks, so a bit says of each whether it is a candidate; two more say how it was vetoed. In far memory
//! a list is made of words: its number, how many ranges there are, for each range where it is and what it is cut into, and then the bits
//! of all ranges, three times. That is a 40th of the memory that the ranges are, where blocks have the smallest size, and less
//! where they are larger.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Result;
use crate::segment::control::{ListHead, ListRange};
use crate::segment::decode::corrupted_as;
use crate::segment::grid::Grid;
use farfield_words::Address;
use farfield_words::Block;
use farfield_words::WORD_BYTES;
use farfield_words::link_targets;

/// A list is no larger than this part of a segment, or half a chunk.
const LIST_SHARE: u64 = 32;
/// How many times each bit is there: asked, used, kept.
const COPIES: usize = 3;
const BITS: usize = u64::BITS as usize;
const COUNT_SHIFT: u32 = 48;

/// Blocks of one size that lie side by side, and which of them are candidates.
#[derive(Clone)]
pub(crate) struct BlockRange {
    first: Block,
    count: usize,
    asked: Vec<u64>,
}

impl BlockRange {
    /// So many blocks from the first one on, none of them a candidate. There are fewer than 2^16.
    pub(crate) fn new(first: Block, count: usize) -> Self {
        Self { first, count, asked: vec![0; count.div_ceil(BITS)] }
    }

    pub(crate) fn blocks(&self) -> impl Iterator<Item = Block> + use<> {
        let Block { address, bytes } = self.first;
        (0..self.count as u64).map(move |index| Block { address: address.add(index * bytes), bytes })
    }

    /// A block is a candidate.
    pub(crate) fn ask(&mut self, index: usize) {
        self.asked[index / BITS] |= 1 << (index % BITS);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.asked.iter().all(|word| *word == 0)
    }

    /// How many bytes its candidates have.
    pub(crate) fn asked_bytes(&self) -> u64 {
        self.first.bytes * self.asked.iter().map(|word| u64::from(word.count_ones())).sum::<u64>()
    }

    /// How many words of a list it takes.
    pub(crate) fn words(&self) -> usize {
        ListRange::WORDS + COPIES * self.asked.len()
    }

    fn to_words(&self) -> [u64; ListRange::WORDS] {
        let not_blocks = !(self.first.bytes | (self.count as u64) << COUNT_SHIFT);
        ListRange { not_address: !self.first.address.bits(), not_blocks }.to_words()
    }

    /// What a list's words say; nothing is asked yet. Nothing if such blocks can not be there.
    fn decode(grid: &Grid, words: &[u64]) -> Option<Self> {
        let ListRange { not_address, not_blocks } = ListRange::from_words(words);
        let (address, blocks) = (Address::from_bits(!not_address), !not_blocks);
        let (bytes, count) = (blocks & ((1 << COUNT_SHIFT) - 1), blocks >> COUNT_SHIFT);
        // The last chunk of a segment may be shorter than a block that is counted in chunks.
        let slack = grid.chunk_bytes();
        let all = bytes.checked_mul(count)?;
        let can_be = all > 0
            && bytes.is_multiple_of(WORD_BYTES as u64)
            && address.offset().is_multiple_of(WORD_BYTES as u64)
            && grid.has(address, all.saturating_sub(slack).max(1));
        can_be.then(|| Self::new(Block { address, bytes }, count as usize))
    }

    /// Where its blocks end.
    fn end(&self) -> Address {
        self.first.address.add(self.first.bytes * self.count as u64)
    }
}

/// Where a range is, and where its bits are.
struct Cut {
    first: Block,
    count: usize,
    bit: usize,
}

/// A list. A candidate is known by the place of its bit.
pub(crate) struct Candidates {
    /// Tells this list from all others.
    pub(crate) number: u64,
    /// In the order of their addresses; none overlap.
    ranges: Vec<Cut>,
    asked: Vec<u64>,
    used: Marks,
    kept: Marks,
}

/// A bit for each block.
pub(crate) struct Marks(Vec<AtomicU64>);

impl Marks {
    fn new(words: usize) -> Self {
        Self((0..words).map(|_| AtomicU64::new(0)).collect())
    }

    fn set(&self, index: usize) {
        self.0[index / BITS].fetch_or(1 << (index % BITS), Ordering::Relaxed);
    }

    pub(crate) fn words(&self) -> impl Iterator<Item = u64> {
        self.0.iter().map(|word| word.load(Ordering::Relaxed))
    }
}

/// The places of the bits that are set.
pub(crate) fn bits(words: impl Iterator<Item = u64>) -> impl Iterator<Item = usize> {
    words.enumerate().flat_map(|(index, word)| {
        let rest = |word: &u64| Some(word & (word - 1)).filter(|word| *word != 0);
        std::iter::successors(Some(word).filter(|word| *word != 0), rest)
            .map(move |word| index * BITS + word.trailing_zeros() as usize)
    })
}

impl Candidates {
    pub(crate) fn new(number: u64, ranges: &[BlockRange]) -> Self {
        let (mut cuts, mut asked) = (Vec::new(), Vec::new());
        for range in ranges {
            cuts.push(Cut { first: range.first, count: range.count, bit: asked.len() * BITS });
            asked.extend_from_slice(&range.asked);
        }
        let [used, kept] = [(); 2].map(|()| Marks::new(asked.len()));
        Self { number, ranges: cuts, asked, used, kept }
    }

    /// The words of a list before anything is vetoed.
    pub(crate) fn to_words(&self, ranges: &[BlockRange]) -> Vec<u64> {
        let head = ListHead { number: self.number, not_ranges: !(ranges.len() as u64) };
        let mut words = head.to_words().to_vec();
        words.extend(ranges.iter().flat_map(BlockRange::to_words));
        words.extend_from_slice(&self.asked);
        words.resize(words.len() + (COPIES - 1) * self.asked.len(), 0);
        words
    }

    /// The most words that a list has.
    pub(crate) fn most_words(grid: &Grid) -> usize {
        (grid.segment_bytes() / LIST_SHARE).max(grid.chunk_bytes() / 2) as usize / WORD_BYTES
    }

    /// The ranges that a list's words say, which were read at `at`, and how many words the bits are; nothing is asked yet.
    ///
    /// # Errors
    /// [`Error::Corrupted`](crate::Error::Corrupted) if the memory has no such blocks, or they are not in the order of their addresses.
    pub(crate) fn decode_ranges(grid: &Grid, at: Address, words: &[u64]) -> Result<(Vec<BlockRange>, usize)> {
        let (mut ranges, mut bits, mut end) = (Vec::new(), 0, Address::NULL);
        for (index, of_lot) in words.chunks_exact(ListRange::WORDS).enumerate() {
            let range = BlockRange::decode(grid, of_lot)
                .filter(|range| range.first.address >= end)
                .ok_or_else(|| {
                    let at = at.add(index as u64 * ListRange::BYTES);
                    corrupted_as("list of candidates", at, of_lot[0], "no such blocks can be there")
                })?;
            end = range.end();
            bits += range.asked.len();
            ranges.push(range);
        }
        Ok((ranges, bits))
    }

    /// The list whose ranges are known by now, and whose bits are these.
    pub(crate) fn from_bits(number: u64, ranges: &[BlockRange], asked: Vec<u64>) -> Self {
        Self { asked, ..Self::new(number, ranges) }
    }

    /// Where the words of the vetoes are in a list, from its beginning, and how many there are: first those of blocks that are used, then
    /// those of blocks that are kept.
    pub(crate) fn vetoes(&self) -> (u64, usize) {
        let before = ListHead::WORDS + ListRange::WORDS * self.ranges.len() + self.asked.len();
        ((before * WORD_BYTES) as u64, (COPIES - 1) * self.asked.len())
    }

    /// Those that are used, and those that are kept.
    pub(crate) fn vetoed(&self) -> [&Marks; 2] {
        [&self.used, &self.kept]
    }

    /// All of them.
    pub(crate) fn indices(&self) -> impl Iterator<Item = usize> {
        bits(self.asked.iter().copied())
    }

    /// How many there could be.
    pub(crate) fn most(&self) -> usize {
        self.asked.len() * BITS
    }

    pub(crate) fn block(&self, index: usize) -> Block {
        let range = &self.ranges[self.ranges.partition_point(|range| range.bit <= index) - 1];
        let bytes = range.first.bytes;
        Block { address: range.first.address.add((index - range.bit) as u64 * bytes), bytes }
    }

    /// The candidate that an address is in.
    pub(crate) fn at(&self, at: Address) -> Option<usize> {
        let range =
            &self.ranges[self.ranges.partition_point(|range| range.first.address <= at).checked_sub(1)?];
        let within = (at.bits() - range.first.address.bits()) / range.first.bytes;
        (within < range.count as u64)
            .then_some(range.bit + within as usize)
            .filter(|index| self.is_asked(*index))
    }

    fn is_asked(&self, index: usize) -> bool {
        self.asked[index / BITS] & 1 << (index % BITS) != 0
    }

    /// The candidates that a word leads to if it is a link, of whichever kind.
    pub(crate) fn in_word(&self, word: u64) -> impl Iterator<Item = usize> {
        // Marks are below a block's size.
        link_targets(word).filter_map(|at| self.at(at))
    }

    /// The object at an address is used.
    pub(crate) fn uses(&self, at: Address) {
        if let Some(index) = self.at(at) {
            self.used.set(index);
        }
    }

    /// So are those that a word leads to.
    pub(crate) fn uses_word(&self, word: u64) {
        self.in_word(word).for_each(|index| self.used.set(index));
    }

    /// Everything is kept that some bytes are part of.
    pub(crate) fn keeps(&self, at: Address, bytes: u64) {
        let (start, end) = (at.bits(), at.bits().saturating_add(bytes));
        let after = self.ranges.partition_point(|range| range.first.address <= at);
        for range in &self.ranges[after.saturating_sub(1)..] {
            let (from, size) = (range.first.address.bits(), range.first.bytes);
            if from >= end {
                break;
            }
            let first = start.saturating_sub(from) / size;
            let last = (end - from).div_ceil(size).min(range.count as u64);
            let bits = (first..last).map(|index| range.bit + index as usize);
            bits.filter(|index| self.is_asked(*index)).for_each(|index| self.kept.set(index));
        }
    }

    pub(crate) fn uses_everything(&self) {
        self.indices().for_each(|index| self.used.set(index));
    }
}

/// Reads words as a list, and uses it.
#[cfg(any(fuzzing, test))]
pub(crate) fn decode_any(grid: &Grid, words: &[u64]) {
    let ranges = &words[..words.len() / 2];
    let Ok((ranges, bits)) = Candidates::decode_ranges(grid, Address::new(0, 1 << 15), ranges) else {
        return;
    };
    assert!(bits * WORD_BYTES <= 1 << 40, "no more than there is memory");
    if bits > 1 << 16 {
        return;
    }
    let candidates = Candidates::from_bits(2, &ranges, vec![u64::MAX; bits]);
    for word in words {
        let at = Address::from_bits(*word);
        candidates.uses_word(*word);
        candidates.uses(at);
        candidates.keeps(at, *word);
        if let Some(index) = candidates.at(at) {
            assert!(grid.has(candidates.block(index).address, 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farfield_words::geometry::Geometry;

    fn grid() -> Grid {
        Grid::new(Geometry::new(1, 2, 1 << 20).unwrap())
    }

    fn block(offset: u64, bytes: u64) -> Block {
        Block { address: Address::new(1, offset), bytes }
    }

    fn candidates() -> (Candidates, Vec<BlockRange>) {
        let mut ranges = vec![BlockRange::new(block(4096, 48), 70), BlockRange::new(block(16384, 40_000), 1)];
        for index in [0, 1, 63, 64, 69] {
            ranges[0].ask(index);
        }
        ranges[1].ask(0);
        (Candidates::new(2, &ranges), ranges)
    }

    fn vetoed(candidates: &Candidates) -> [Vec<usize>; 2] {
        candidates.vetoed().map(|marks| bits(marks.words()).collect())
    }

    #[test]
    fn a_candidate_is_known_by_any_address_in_it() {
        let (candidates, _) = candidates();
        let indices: Vec<_> = candidates.indices().collect();
        assert_eq!(indices, [0, 1, 63, 64, 69, 128]);
        for index in indices {
            let Block { address, bytes } = candidates.block(index);
            assert_eq!(candidates.at(address), Some(index));
            assert_eq!(candidates.at(address.add(bytes - 1)), Some(index));
        }
        // Before all, between two, behind the last of a range, behind all.
        for offset in [4088, 4096 + 2 * 48, 4096 + 70 * 48, 16384 + 40_000] {
            assert_eq!(candidates.at(Address::new(1, offset)), None, "{offset}");
        }
        assert_eq!(candidates.at(Address::new(0, 4096)), None);
    }

    #[test]
    fn what_some_bytes_are_part_of_is_kept() {
        let (candidates, _) = candidates();
        candidates.keeps(Address::new(1, 4096 + 48), 1);
        assert_eq!(vetoed(&candidates), [vec![], vec![1]]);
        candidates.keeps(Address::new(1, 4096 + 64 * 48 - 1), 2);
        assert_eq!(vetoed(&candidates), [vec![], vec![1, 63, 64]]);
        candidates.keeps(Address::new(1, 0), 1 << 20);
        assert_eq!(vetoed(&candidates), [vec![], vec![0, 1, 63, 64, 69, 128]]);
        candidates.uses(Address::new(1, 20_000));
        assert_eq!(vetoed(&candidates)[0], [128]);
    }

    #[test]
    fn a_list_is_read_as_it_was_written() {
        let (candidates, ranges) = candidates();
        let words = candidates.to_words(&ranges);
        assert_eq!(words.len(), ListHead::WORDS + ranges.iter().map(BlockRange::words).sum::<usize>());
        let end = ListHead::WORDS + !words[1] as usize * ListRange::WORDS;
        let ranges_at = Address::new(1, 8192 + ListHead::BYTES);
        let (read, bits) =
            Candidates::decode_ranges(&grid(), ranges_at, &words[ListHead::WORDS..end]).unwrap();
        let read = Candidates::from_bits(words[0], &read, words[end..end + bits].to_vec());
        assert_eq!(read.vetoes(), (((end + bits) * WORD_BYTES) as u64, 2 * bits));
        assert!(read.indices().eq(candidates.indices()));
        assert_eq!(read.block(128), block(16384, 40_000));
    }

    #[test]
    fn lots_that_can_not_be_are_an_error() {
        let (_, ranges) = candidates();
        let ranges: Vec<_> = ranges.iter().flat_map(BlockRange::to_words).collect();
        let decode = |words: &[u64]| Candidates::decode_ranges(&grid(), Address::new(1, 8192), words);
        assert!(decode(&ranges).is_ok());
        let turned: Vec<_> = [&ranges[2..], &ranges[..2]].concat();
        assert!(decode(&turned).is_err(), "not in order");
        let range =
            |at: u64, bytes: u64, count: u64| [!Address::new(1, at).bits(), !(bytes | count << COUNT_SHIFT)];
        for (at, bytes, count) in [
            (1 << 15, 0, 5),
            (1 << 15, 16, 0),
            (1 << 15, 12, 1),
            ((1 << 15) + 4, 16, 1),
            (1 << 15, (1 << COUNT_SHIFT) - 8, (1 << 16) - 1),
            (1 << 19, 1 << 12, 1 << 10),
            (8, 16, 1),
        ] {
            let error = decode(&[ranges.clone(), range(at, bytes, count).to_vec()].concat()).map(drop);
            assert!(error.is_err(), "{at:#x}: {count} blocks of {bytes} bytes");
            assert!(decode(&range(at, bytes, count)).is_err(), "{at:#x}: {count} blocks of {bytes} bytes");
        }
    }
}
