//! Chunks: the parts of a segment.
//!
//! Behind its header (and segment 0's control block) a segment has its chunks, and at its end the *chunk table*, a word for each. All
//! have one size, a 64th of the segment rounded up to a power of two, 1 to 16 KiB; the last may be shorter. So chunks have the same addresses in
//! all segments of more than 512 KiB. A chunk's word is its header. It is kept apart so that blocks need no extra alignment and one READ gets all
//! headers. [`Use`] has the words.
//!
//! So objects need no header: the use of an object's chunk has the size of its block. A search of the table finds adjacent free chunks as one
//! run; they need not be coalesced.

use super::classes::{Class, block_align, block_bytes};
use super::tagged::tagged_words;
use crate::error::Result;
use crate::segment::control;
use crate::segment::decode::corrupted_as;
use farfield_words::Address;
use farfield_words::Block;
use farfield_words::WORD_BYTES;
use farfield_words::geometry::Geometry;

tagged_words! {
    /// The use of a chunk, as its word in the chunk table has it.
    Use: 8 tag bits {
        0 => Untaken @ "the chunk was never taken",
        1 => Free @ "the chunk is free again",
        2 => Large(chunks: u64) @ "the first of this number of chunks, which hold one large object",
        3 => Continued @ "a further one of these chunks",
        4 => Small(class: Class) @ "the chunk is cut into blocks of the class with this number",
    }
}

/// Adjacent chunks of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkRun {
    pub(crate) segment: u16,
    pub(crate) first: u64,
    pub(crate) chunks: u64,
}

/// The addresses of chunks, blocks and words of the chunk table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grid {
    geometry: Geometry,
    segments: u32,
    shift: u32,
    chunk_bytes: u64,
    /// The largest block with a class: larger ones have chunks of their own.
    max_class_bytes: u64,
    /// The offsets of the first chunk and of the table: in segment 0, and in the others.
    origins: [u64; 2],
    tables: [u64; 2],
}

impl Grid {
    pub(crate) fn new(geometry: Geometry) -> Self {
        let segment_bytes = geometry.segment_bytes();
        // Large enough that threads rarely need a new chunk, small enough that a few threads and sizes do not exhaust a small segment.
        let chunk_bytes = (segment_bytes / 64).next_power_of_two().clamp(1024, 16 * 1024);
        let table = |segment| {
            let most_chunks = (segment_bytes - control::first_free(segment)).div_ceil(chunk_bytes);
            segment_bytes - most_chunks * WORD_BYTES as u64
        };
        let origin =
            |segment| control::first_free(segment).next_multiple_of(chunk_bytes / 16).min(table(segment));
        let (origins, tables) = ([origin(0), origin(1)], [table(0), table(1)]);
        let shift = chunk_bytes.trailing_zeros();
        let (segments, max_class_bytes) = (geometry.segments(), chunk_bytes / 2);
        Self { geometry, segments, shift, chunk_bytes, max_class_bytes, origins, tables }
    }

    pub(crate) fn chunk_bytes(&self) -> u64 {
        self.chunk_bytes
    }

    pub(crate) fn segment_bytes(&self) -> u64 {
        self.geometry.segment_bytes()
    }

    /// The cluster's largest address of a word.
    pub(crate) fn last_word(&self) -> Address {
        Address::new((self.segments - 1) as u16, self.segment_bytes() - WORD_BYTES as u64)
    }

    /// The offset of a segment's first chunk.
    #[inline]
    pub(crate) fn origin(&self, segment: u16) -> u64 {
        self.origins[usize::from(segment > 0)]
    }

    /// The offset of the end of a segment's chunks, which is that of the chunk table.
    #[inline]
    pub(crate) fn limit(&self, segment: u16) -> u64 {
        self.tables[usize::from(segment > 0)]
    }

    /// The bytes of a segment's chunks.
    pub(crate) fn bytes(&self, segment: u16) -> u64 {
        self.limit(segment) - self.origin(segment)
    }

    /// Returns whether all chunks of another grid have the same addresses in this one.
    pub(crate) fn extends(&self, other: &Self) -> bool {
        self.shift == other.shift
            && self.origins == other.origins
            && self.tables.iter().zip(other.tables).all(|(mine, its)| *mine >= its)
    }

    /// The number of chunks of a segment.
    pub(crate) fn chunks(&self, segment: u16) -> u64 {
        self.bytes(segment).div_ceil(self.chunk_bytes())
    }

    /// The number of the chunk that an address is in.
    #[inline]
    pub(crate) fn chunk_of(&self, at: Address) -> Option<u64> {
        let is_inside = at.offset() >= self.origin(at.segment()) && at.offset() < self.limit(at.segment());
        is_inside.then(|| self.chunk_at(self.behind_origin(at)))
    }

    /// The number of the chunk so many bytes behind the beginning of the first.
    #[inline]
    pub(crate) fn chunk_at(&self, behind_origin: u64) -> u64 {
        behind_origin >> self.shift
    }

    pub(crate) fn start(&self, segment: u16, chunk: u64) -> Address {
        Address::new(segment, self.origin(segment) + (chunk << self.shift))
    }

    /// The offset of the end of a chunk.
    #[inline]
    fn end(&self, segment: u16, chunk: u64) -> u64 {
        (self.origin(segment) + ((chunk + 1) << self.shift)).min(self.limit(segment))
    }

    /// The use of a chunk, from its word.
    ///
    /// # Errors
    /// [`Error::Corrupted`](crate::Error::Corrupted) if the word is no valid use, or one that the segment has no room for.
    pub(crate) fn usage(&self, segment: u16, chunk: u64, word: u64) -> Result<Use> {
        let can_be = |usage: &Use| match *usage {
            Use::Large(chunks) => chunks <= self.chunks(segment).saturating_sub(chunk),
            Use::Small(class) => self.class_of(class.bytes()) == Some(class),
            Use::Untaken | Use::Free | Use::Continued => true,
        };
        Use::from_word(word).filter(can_be).ok_or_else(|| {
            let what = format!("chunk table[{chunk}] of segment {segment}");
            corrupted_as(what, self.word(segment, chunk), word, "the chunk can not have this use")
        })
    }

    /// Returns whether a range of bytes is inside a segment's chunks.
    #[inline]
    pub(crate) fn has(&self, at: Address, bytes: u64) -> bool {
        u32::from(at.segment()) < self.segments
            && at.offset() >= self.origin(at.segment())
            && at.offset().saturating_add(bytes) <= self.limit(at.segment())
    }

    /// Returns whether an address is on a memory node.
    pub(crate) fn is_on_node(&self, at: Address, node: u16) -> bool {
        self.geometry.segments_of(node).contains(&at.segment())
    }

    /// A chunk's word in the table.
    pub(crate) fn word(&self, segment: u16, chunk: u64) -> Address {
        Address::new(segment, self.limit(segment)).add(chunk * WORD_BYTES as u64)
    }

    /// The chunk whose word in the table is at an address.
    pub(crate) fn chunk_of_word(&self, at: Address) -> Option<u64> {
        let within = at.offset().checked_sub(self.limit(at.segment()))?;
        Some(within / WORD_BYTES as u64).filter(|chunk| *chunk < self.chunks(at.segment()))
    }

    /// The size of the block for an object: that of a class, or the object's if it has chunks of its own.
    #[inline]
    pub(crate) fn block_bytes(&self, bytes: u64, align: u64) -> u64 {
        let rounded = block_bytes(bytes, align);
        if self.class_of(rounded).is_some() {
            return rounded;
        }
        bytes.next_multiple_of(align.max(WORD_BYTES as u64))
    }

    /// The class of blocks of a size, unless they need chunks of their own.
    #[inline]
    pub(crate) fn class_of(&self, block_bytes: u64) -> Option<Class> {
        if block_bytes > self.max_class_bytes { None } else { Class::of(block_bytes) }
    }

    /// All blocks of `class` in a chunk: the first one's address and the bytes of all.
    pub(crate) fn blocks(&self, segment: u16, chunk: u64, class: Class) -> (Address, u64) {
        let start = self.start(segment, chunk);
        let first = start.offset().next_multiple_of(block_align(class.bytes()));
        let bytes = self.end(segment, chunk).saturating_sub(first);
        (Address::new(segment, first), bytes - bytes % class.bytes())
    }

    /// The bytes of the blocks of `class` from `at` to the end of its chunk.
    pub(crate) fn rest(&self, at: Address, class: Class) -> u64 {
        let bytes = self.chunk_of(at).map_or(0, |chunk| self.end(at.segment(), chunk) - at.offset());
        bytes - bytes % class.bytes()
    }

    /// The alignment of a large block, from its size or its offset.
    pub(crate) fn large_align(&self, bytes: u64) -> u64 {
        block_align(bytes).min(self.chunk_bytes())
    }

    /// The number of chunks of a segment that a large block takes.
    pub(crate) fn chunks_for(&self, segment: u16, block_bytes: u64) -> u64 {
        // An alignment divides a chunk's size, so the padding is the same in every chunk.
        let origin = self.origin(segment);
        let padding = origin.next_multiple_of(self.large_align(block_bytes)) - origin;
        (block_bytes + padding).div_ceil(self.chunk_bytes())
    }

    /// The large block in a run of chunks.
    pub(crate) fn large(&self, run: ChunkRun, align: u64) -> Block {
        let start = self.start(run.segment, run.first);
        let address = Address::new(run.segment, start.offset().next_multiple_of(align));
        let end = self.end(run.segment, run.first + run.chunks - 1);
        Block { address, bytes: end.saturating_sub(address.offset()) }
    }

    /// A block as it was allocated: one with chunks of its own ends at their end.
    #[inline]
    pub(crate) fn whole(&self, block: Block) -> Block {
        if block.bytes <= self.max_class_bytes {
            return block;
        }
        let end = |run: ChunkRun| self.end(run.segment, run.first + run.chunks - 1);
        let bytes = self.run_of(block).map_or(block.bytes, |run| end(run) - block.address.offset());
        Block { bytes, ..block }
    }

    /// The chunks that hold a large object.
    pub(crate) fn run_of(&self, block: Block) -> Option<ChunkRun> {
        let first = self.chunk_of(block.address)?;
        let within = block.address.offset() - self.start(block.address.segment(), first).offset();
        Some(ChunkRun {
            segment: block.address.segment(),
            first,
            chunks: (within + block.bytes).div_ceil(self.chunk_bytes()),
        })
    }

    /// Returns whether a block of `bytes` bytes, the size of a class, can begin at `at`, which is in a chunk of that class.
    #[inline]
    pub(crate) fn begins_block(&self, at: Address, bytes: u64) -> bool {
        self.has(at, bytes) && self.divides_chunk(at, self.behind_origin(at), bytes)
    }

    /// The bytes from a segment's first chunk to an address. If the address is before it, more than a segment has.
    #[inline]
    pub(crate) fn behind_origin(&self, at: Address) -> u64 {
        at.offset().wrapping_sub(self.origin(at.segment()))
    }

    /// Like [`begins_block`](Self::begins_block), for a block that ends before the segment's chunks do. What it returns for an address in no chunk has
    /// no meaning.
    #[inline]
    pub(crate) fn divides_chunk(&self, at: Address, behind_origin: u64, bytes: u64) -> bool {
        let align = block_align(bytes);
        let within = behind_origin & (self.chunk_bytes - 1);
        if within + bytes > self.chunk_bytes {
            return false;
        }
        if align == bytes {
            // The first block begins at the first multiple of the size, so all multiples begin one.
            return at.offset().is_multiple_of(bytes);
        }
        // From the beginning of the chunk to its first block.
        let padding = at.offset().wrapping_sub(within).wrapping_neg() & (align - 1);
        let from_first = within.wrapping_sub(padding);
        // A chunk has far fewer than 2^32 bytes, and 32 bits are divided faster than 64.
        (from_first as u32).is_multiple_of(bytes as u32) && from_first < self.chunk_bytes
    }
}

/// Computes a grid from a geometry whose numbers an untrusted peer may have sent, and checks it.
#[cfg(any(fuzzing, test))]
pub(crate) fn derive(geometry: Geometry) {
    let (segments, bytes, grid) = (geometry.segments(), geometry.segment_bytes(), Grid::new(geometry));
    for segment in [0, (segments - 1) as u16] {
        let chunks = grid.chunks(segment);
        assert!(grid.origin(segment) <= grid.limit(segment) && grid.limit(segment) <= bytes);
        assert!(grid.limit(segment) + chunks * 8 <= bytes, "the chunk table has room");
        if chunks > 0 {
            assert!(geometry.check(grid.start(segment, chunks - 1), 1).is_ok());
            assert!(geometry.check(grid.word(segment, chunks - 1), 1).is_ok());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(segment_bytes: u64) -> Grid {
        Grid::new(Geometry::new(1, 2, segment_bytes).unwrap())
    }

    #[test]
    fn chunks_tile_a_segment() {
        for bytes in [28_672, 43_072, 65_536, 1 << 20, (1 << 28) - 8, 1 << 30] {
            let grid = grid(bytes);
            for segment in [0, 1] {
                let chunks = grid.chunks(segment);
                assert!(grid.word(segment, chunks).offset() <= bytes, "the table has room");
                let word = |chunk| grid.chunk_of_word(grid.word(segment, chunk));
                assert_eq!((word(0), word(chunks)), ((chunks > 0).then_some(0), None));
                let mut next = grid.origin(segment);
                for chunk in 0..chunks {
                    let start = grid.start(segment, chunk);
                    assert_eq!(start.offset(), next);
                    next = grid.end(segment, chunk);
                    assert_eq!(grid.chunk_of(start), Some(chunk));
                    assert_eq!(grid.chunk_of(Address::new(segment, next - 8)), Some(chunk));
                }
                assert_eq!(next, grid.limit(segment));
                assert_eq!(grid.chunk_of(Address::new(segment, next)), None);
                assert_eq!(grid.chunk_of(Address::new(segment, grid.origin(segment) - 8)), None);
            }
        }
    }

    #[test]
    fn chunks_have_the_same_addresses_in_larger_segments() {
        for (bytes, larger) in [(513 << 10, 1 << 20), (1 << 20, 1 << 30), ((1 << 28) - 8, 1 << 28)] {
            let (grid, larger) = (grid(bytes), grid(larger));
            for segment in [0, 1] {
                let chunks = grid.chunks(segment);
                assert!(chunks <= larger.chunks(segment));
                assert!((0..chunks).all(|chunk| grid.start(segment, chunk) == larger.start(segment, chunk)));
            }
            assert!(larger.extends(&grid) && !grid.extends(&larger));
        }
    }

    #[test]
    fn small_segments_are_cut_smaller() {
        assert!(!grid(1 << 20).extends(&grid(512 << 10)) && grid(512 << 10).extends(&grid(300 << 10)));
    }

    #[test]
    fn blocks_begin_where_they_can() {
        for (segment_bytes, chunk) in [(1 << 22, 3), (100_000, 3), (1 << 22, u64::MAX)] {
            let grid = grid(segment_bytes);
            // The last chunk may be shorter.
            let chunk = chunk.min(grid.chunks(1) - 1);
            for class in (0..super::super::classes::CLASSES).filter_map(Class::from_index) {
                let Some(class) = grid.class_of(class.bytes()) else { continue };
                let (first, bytes) = grid.blocks(1, chunk, class);
                assert_eq!(grid.rest(first, class), bytes);
                let blocks = (0..bytes / class.bytes()).map(|number| first.add(number * class.bytes()));
                let words = (grid.start(1, chunk).offset()..grid.end(1, chunk)).step_by(WORD_BYTES);
                let begun = words.map(|offset| Address::new(1, offset));
                let begun = begun.filter(|at| grid.begins_block(*at, class.bytes()));
                assert!(begun.eq(blocks), "{class:?} in chunk {chunk} of {segment_bytes} bytes");
            }
        }
    }

    #[test]
    fn a_large_block_has_the_chunks_that_it_was_made_of() {
        // In some of these segments the first chunk is aligned as a large block, in others it is not.
        let small = (50_000..70_000).step_by(8);
        for (segment, segment_bytes) in
            small.chain([1 << 22, 1 << 26]).flat_map(|bytes| [(0, bytes), (1, bytes)])
        {
            let grid = grid(segment_bytes);
            for bytes in [grid.chunk_bytes() / 2 + 8, grid.chunk_bytes(), 5 * grid.chunk_bytes() + 8] {
                for align in [8, 64, 1024] {
                    let bytes = grid.block_bytes(bytes, align);
                    let run = ChunkRun { segment, first: 7, chunks: grid.chunks_for(segment, bytes) };
                    let block = grid.large(run, grid.large_align(bytes));
                    assert!(block.bytes >= bytes && block.address.offset().is_multiple_of(align));
                    assert_eq!(grid.run_of(block), Some(run));
                    assert_eq!(grid.whole(Block { bytes, ..block }), block, "as its object knows it");
                }
            }
        }
    }

    #[test]
    fn uses_survive_encoding() {
        let class = Class::of(24).unwrap();
        let grid = grid(1 << 30);
        for usage in [Use::Untaken, Use::Free, Use::Large(60_000), Use::Continued, Use::Small(class)] {
            assert_eq!(grid.usage(1, 7, usage.to_word()).unwrap(), usage);
        }
    }

    #[test]
    fn an_invalid_use_is_an_error() {
        let grid = grid(1 << 20);
        let last = grid.chunks(1) - 1;
        assert!(grid.usage(1, last, Use::Large(1).to_word()).is_ok());
        assert_eq!(
            grid.usage(1, last, Use::Large(2).to_word()).unwrap_err().to_string(),
            format!(
                "far memory is corrupted: the chunk table[{last}] of segment 1 at {} is 0x202: the chunk can not have this use",
                grid.word(1, last)
            )
        );
        // In smaller segments chunks are smaller.
        let too_large = Use::Small(Class::of(8192).unwrap()).to_word();
        assert!(grid.usage(0, 0, too_large).is_ok() && self::grid(1 << 19).usage(0, 0, too_large).is_err());
        for word in [2, 5, 0x100, 0x101, 0x103, u64::MAX, 0xff04] {
            assert!(grid.usage(0, 0, word).is_err(), "{word:#x}");
        }
    }

    proptest::proptest! {
        #[test]
        fn every_geometry_has_a_grid(numbers: [u64; 3], shifts in [0..64_u32, 0..64, 0..64]) {
            let [nodes, per_node, bytes] = std::array::from_fn(|index| numbers[index] >> shifts[index]);
            for (nodes, per_node, bytes) in [(nodes, per_node, bytes), (nodes % 300, per_node % 300, bytes / 8 * 8)] {
                if let Ok(geometry) = Geometry::new(nodes, per_node, bytes) {
                    derive(geometry);
                }
            }
        }
    }
}
