//! The candidates of a [sweep](crate::sweep): blocks that seem to be lost, and the vetoes against them.
//!
//! Blocks are adjacent in chunks, so a list has three bits for each block of a range: *listed*, if it is a candidate, and its vetoes, *used* and
//! *kept*. In far memory a list consists of its number, the number of ranges, for each range its address and the size and number of its blocks,
//! and then three bitmaps of all ranges, one for each kind of bit. That is a 40th of the memory of the ranges for blocks of the smallest size,
//! and less for larger ones.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Result;
use crate::segment::classes::{MAX_ALIGN, block_align};
use crate::segment::control::{ListHead, ListRange};
use crate::segment::decode::corrupted_as;
use crate::segment::grid::Grid;
use farfield_words::Address;
use farfield_words::Block;
use farfield_words::WORD_BYTES;
use farfield_words::link_target;

/// The divisor of a segment's size that bounds the size of a list. Half a chunk is always allowed.
const LIST_SHARE: u64 = 32;
/// The number of bitmaps: listed, used, kept.
const BITMAPS: usize = 3;
const BITS: usize = u64::BITS as usize;
const COUNT_SHIFT: u32 = 48;

/// Adjacent blocks of one size, and a bitmap of the candidates among them.
#[derive(Clone)]
pub(crate) struct BlockRange {
    first: Block,
    count: usize,
    listed: Vec<u64>,
}

impl BlockRange {
    /// A range of `count` blocks, fewer than 2^16, without candidates.
    pub(crate) fn new(first: Block, count: usize) -> Self {
        Self { first, count, listed: vec![0; count.div_ceil(BITS)] }
    }

    pub(crate) fn blocks(&self) -> impl Iterator<Item = Block> + use<> {
        let Block { address, bytes } = self.first;
        (0..self.count as u64).map(move |index| Block { address: address.add(index * bytes), bytes })
    }

    /// Adds a block to the candidates.
    pub(crate) fn add(&mut self, index: usize) {
        self.listed[index / BITS] |= 1 << (index % BITS);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.listed.iter().all(|word| *word == 0)
    }

    /// The number of bytes of the candidates.
    pub(crate) fn candidate_bytes(&self) -> u64 {
        self.first.bytes * self.listed.iter().map(|word| u64::from(word.count_ones())).sum::<u64>()
    }

    /// The number of words that the range takes in a list.
    pub(crate) fn words(&self) -> usize {
        ListRange::WORDS + BITMAPS * self.listed.len()
    }

    fn to_words(&self) -> [u64; ListRange::WORDS] {
        let not_blocks = !(self.first.bytes | (self.count as u64) << COUNT_SHIFT);
        ListRange { not_address: !self.first.address.bits(), not_blocks }.to_words()
    }

    /// Decodes a range without candidates. `None` if no such blocks can be there.
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

    /// The address behind its last block.
    fn end(&self) -> Address {
        self.first.address.add(self.first.bytes * self.count as u64)
    }
}

/// The blocks of a range, and the index of its first bit.
struct IndexedRange {
    first: Block,
    count: usize,
    bit: usize,
}

impl IndexedRange {
    /// The block of a bit.
    fn block(&self, index: usize) -> Block {
        let bytes = self.first.bytes;
        Block { address: self.first.address.add((index - self.bit) as u64 * bytes), bytes }
    }
}

/// A list of candidates. A candidate is identified by the index of its bit.
pub(crate) struct Candidates {
    /// Distinguishes this list from all others.
    pub(crate) number: u64,
    /// In the order of their addresses, without overlaps.
    ranges: Vec<IndexedRange>,
    listed: Vec<u64>,
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

/// The indices of the bits that are set.
pub(crate) fn bits(words: impl Iterator<Item = u64>) -> impl Iterator<Item = usize> {
    words.enumerate().flat_map(|(index, word)| {
        let rest = |word: &u64| Some(word & (word - 1)).filter(|word| *word != 0);
        std::iter::successors(Some(word).filter(|word| *word != 0), rest)
            .map(move |word| index * BITS + word.trailing_zeros() as usize)
    })
}

impl Candidates {
    pub(crate) fn new(number: u64, ranges: &[BlockRange]) -> Self {
        let (mut indexed, mut listed) = (Vec::new(), Vec::new());
        for range in ranges {
            indexed.push(IndexedRange { first: range.first, count: range.count, bit: listed.len() * BITS });
            listed.extend_from_slice(&range.listed);
        }
        let [used, kept] = [(); 2].map(|()| Marks::new(listed.len()));
        Self { number, ranges: indexed, listed, used, kept }
    }

    /// The words of a list without vetoes.
    pub(crate) fn to_words(&self, ranges: &[BlockRange]) -> Vec<u64> {
        let head = ListHead { number: self.number, not_ranges: !(ranges.len() as u64) };
        let mut words = head.to_words().to_vec();
        words.extend(ranges.iter().flat_map(BlockRange::to_words));
        words.extend_from_slice(&self.listed);
        words.resize(words.len() + (BITMAPS - 1) * self.listed.len(), 0);
        words
    }

    /// The maximum number of words of a list.
    pub(crate) fn max_words(grid: &Grid) -> usize {
        (grid.segment_bytes() / LIST_SHARE).max(grid.chunk_bytes() / 2) as usize / WORD_BYTES
    }

    /// Decodes the ranges of a list, whose words were read at `at`, without their candidates. Also returns the number of words of a bitmap.
    ///
    /// # Errors
    /// [`Error::Corrupted`](crate::Error::Corrupted) if the memory has no such blocks, or they are not in the order of their addresses.
    pub(crate) fn decode_ranges(grid: &Grid, at: Address, words: &[u64]) -> Result<(Vec<BlockRange>, usize)> {
        let (mut ranges, mut bits, mut end) = (Vec::new(), 0, Address::NULL);
        for (index, of_range) in words.chunks_exact(ListRange::WORDS).enumerate() {
            let range = BlockRange::decode(grid, of_range)
                .filter(|range| range.first.address >= end)
                .ok_or_else(|| {
                    let at = at.add(index as u64 * ListRange::BYTES);
                    corrupted_as(
                        "list of candidates",
                        at,
                        of_range[0],
                        "no such blocks can be at this address",
                    )
                })?;
            end = range.end();
            bits += range.listed.len();
            ranges.push(range);
        }
        Ok((ranges, bits))
    }

    /// The list with these decoded ranges, and this bitmap of candidates.
    pub(crate) fn from_bits(number: u64, ranges: &[BlockRange], listed: Vec<u64>) -> Self {
        Self { listed, ..Self::new(number, ranges) }
    }

    /// The offset of the vetoes in a list, and their number of words: the bitmap of used blocks, then that of kept ones.
    pub(crate) fn vetoes(&self) -> (u64, usize) {
        let before = ListHead::WORDS + ListRange::WORDS * self.ranges.len() + self.listed.len();
        ((before * WORD_BYTES) as u64, (BITMAPS - 1) * self.listed.len())
    }

    /// The vetoed candidates: used, and kept.
    pub(crate) fn vetoed(&self) -> [&Marks; 2] {
        [&self.used, &self.kept]
    }

    /// The indices of all candidates.
    pub(crate) fn indices(&self) -> impl Iterator<Item = usize> {
        bits(self.listed.iter().copied())
    }

    /// The number of bits in a bitmap: all indices are below.
    pub(crate) fn index_bound(&self) -> usize {
        self.listed.len() * BITS
    }

    pub(crate) fn block(&self, index: usize) -> Block {
        self.ranges[self.ranges.partition_point(|range| range.bit <= index) - 1].block(index)
    }

    /// The candidate that an address is in, and its range.
    fn range_at(&self, at: Address) -> Option<(&IndexedRange, usize)> {
        let range =
            &self.ranges[self.ranges.partition_point(|range| range.first.address <= at).checked_sub(1)?];
        let within = (at.bits() - range.first.address.bits()) / range.first.bytes;
        let index = range.bit + within as usize;
        (within < range.count as u64 && self.is_listed(index)).then_some((range, index))
    }

    /// The candidate that an address is in.
    pub(crate) fn at(&self, at: Address) -> Option<usize> {
        self.range_at(at).map(|(_, index)| index)
    }

    fn is_listed(&self, index: usize) -> bool {
        self.listed[index / BITS] & 1 << (index % BITS) != 0
    }

    /// The candidate that a word points to, if it is a link of any kind: it has the address at which the block's object begins, and marks.
    pub(crate) fn in_word(&self, word: u64) -> Option<usize> {
        let link = link_target(word);
        let (range, index) = self.range_at(link)?;
        let Block { address, bytes } = range.block(index);
        let is_target = if range.count > 1 {
            address.marks_of(link, block_align(bytes)).is_some()
        } else {
            // Perhaps a run of chunks: the object begins at the first multiple of its alignment, which the list does not have.
            let mut aligns = (0..=MAX_ALIGN.trailing_zeros()).map(|bits| 1 << bits);
            let start = |align| Address::new(address.segment(), address.offset().next_multiple_of(align));
            aligns.any(|align| start(align).marks_of(link, MAX_ALIGN).is_some())
        };
        is_target.then_some(index)
    }

    /// Vetoes the object at an address as used.
    pub(crate) fn mark_used(&self, at: Address) {
        if let Some(index) = self.at(at) {
            self.used.set(index);
        }
    }

    /// Vetoes the candidates that a word points to as used.
    pub(crate) fn mark_targets_used(&self, word: u64) {
        if let Some(index) = self.in_word(word) {
            self.used.set(index);
        }
    }

    /// Vetoes all candidates that overlap a range of bytes as kept.
    pub(crate) fn mark_kept(&self, at: Address, bytes: u64) {
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
            bits.filter(|index| self.is_listed(*index)).for_each(|index| self.kept.set(index));
        }
    }

    pub(crate) fn mark_all_used(&self) {
        self.indices().for_each(|index| self.used.set(index));
    }
}

/// Decodes words as a list, and uses it.
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
        candidates.mark_targets_used(*word);
        candidates.mark_used(at);
        candidates.mark_kept(at, *word);
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
            ranges[0].add(index);
        }
        ranges[1].add(0);
        (Candidates::new(2, &ranges), ranges)
    }

    fn vetoed(candidates: &Candidates) -> [Vec<usize>; 2] {
        candidates.vetoed().map(|marks| bits(marks.words()).collect())
    }

    #[test]
    fn any_address_in_a_candidate_finds_it() {
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
    fn a_word_points_to_the_beginning_of_a_candidate_with_marks() {
        let (candidates, _) = candidates();
        let found = |offset: u64| candidates.in_word(Address::new(1, offset).bits());
        // Blocks of 48 bytes are aligned to 16.
        for (start, end, index) in [(4096, 4096 + 16, 0), (4096 + 48, 4096 + 64, 1), (16384, 16384 + 64, 128)]
        {
            assert_eq!([found(start), found(start + 7), found(end - 1)], [Some(index); 3]);
        }
        assert_eq!([4096 + 16, 16384 + 64, 16384 + 4095, 16384 + 4096].map(found), [None; 4]);
        assert_eq!(candidates.in_word(Address::new(1, 4096 + 48).compress().unwrap()), Some(1));
        // Where chunks begin at a multiple of 1,024 only, an object in them may begin at one of 2,048 or 4,096.
        let mut range = BlockRange::new(block(17 << 10, 40_000), 1);
        range.add(0);
        let candidates = Candidates::new(2, &[range]);
        let found = |kib: u64| candidates.in_word(Address::new(1, kib << 10 | 63).bits());
        assert_eq!([16, 17, 18, 19, 20, 24].map(found), [None, Some(0), Some(0), None, Some(0), None]);
    }

    #[test]
    fn candidates_that_overlap_a_range_are_kept() {
        let (candidates, _) = candidates();
        candidates.mark_kept(Address::new(1, 4096 + 48), 1);
        assert_eq!(vetoed(&candidates), [vec![], vec![1]]);
        candidates.mark_kept(Address::new(1, 4096 + 64 * 48 - 1), 2);
        assert_eq!(vetoed(&candidates), [vec![], vec![1, 63, 64]]);
        candidates.mark_kept(Address::new(1, 0), 1 << 20);
        assert_eq!(vetoed(&candidates), [vec![], vec![0, 1, 63, 64, 69, 128]]);
        candidates.mark_used(Address::new(1, 20_000));
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
    fn impossible_ranges_are_an_error() {
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
