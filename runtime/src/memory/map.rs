//! A map of far memory: the uses of chunks, and marks of blocks.

use super::candidates::BlockRange;
use crate::segment::classes::{Class, block_align};
use crate::segment::grid::{ChunkRun, Grid, Use};
use farfield_words::Address;
use farfield_words::Block;
use farfield_words::MOST_MARKS;
use farfield_words::WORD_BYTES;
use farfield_words::mark_bits;

/// The uses of chunks, and the marked blocks.
pub(crate) struct Map {
    pub(crate) grid: Grid,
    /// By segment.
    pub(crate) tables: Vec<Vec<Use>>,
    /// By segment, a bit for each word. The bit of a marked block's first word is set.
    marks: Vec<Vec<u64>>,
}

impl Map {
    pub(crate) fn new(grid: Grid, tables: Vec<Vec<Use>>, segment_bytes: u64) -> Self {
        let words = (segment_bytes as usize / WORD_BYTES).div_ceil(u64::BITS as usize);
        let marks = tables.iter().map(|_| vec![0; words]).collect();
        Self { grid, tables, marks }
    }

    /// The block that begins at an address, if there is one.
    pub(crate) fn block(&self, at: Address) -> Option<Block> {
        let table = self.tables.get(usize::from(at.segment()))?;
        let chunk = self.grid.chunk_of(at)?;
        match table.get(chunk as usize)? {
            Use::Small(class) if self.grid.begins_block(at, class.bytes()) => {
                Some(Block { address: at, bytes: class.bytes() })
            }
            Use::Large(chunks) => {
                let run = ChunkRun { segment: at.segment(), first: chunk, chunks: *chunks };
                let whole = run.first + run.chunks <= table.len() as u64;
                let align = self.grid.large_align(at.offset());
                whole.then(|| self.grid.large(run, align)).filter(|block| block.address == at)
            }
            _ => None,
        }
    }

    /// The block that a link leads to, if there is one: `link` is its word, taken for an address.
    pub(crate) fn target(&self, link: Address) -> Option<Block> {
        let starts = mark_bits(WORD_BYTES)..=MOST_MARKS;
        let starts = starts.map(|bits| Address::from_bits(link.bits() >> bits << bits));
        starts.filter_map(|start| self.block(start)).find(|block| {
            // A block that is no class's may have any alignment.
            let align = self.grid.class_of(block.bytes).map_or(u64::MAX, |class| block_align(class.bytes()));
            block.address.marks_of(link, align).is_some()
        })
    }

    /// The index of the word with a block's bit, and the bit.
    fn bit(at: Address) -> (usize, u64) {
        let word = at.offset() as usize / WORD_BYTES;
        (word / u64::BITS as usize, 1 << (word % u64::BITS as usize))
    }

    pub(crate) fn is_marked(&self, at: Address) -> bool {
        let (index, bit) = Self::bit(at);
        self.marks[usize::from(at.segment())][index] & bit != 0
    }

    /// Marks a block. Returns `false` if it was marked.
    pub(crate) fn mark(&mut self, block: Block) -> bool {
        let (index, bit) = Self::bit(block.address);
        let marks = &mut self.marks[usize::from(block.address.segment())][index];
        let is_new = *marks & bit == 0;
        *marks |= bit;
        is_new
    }

    /// Marks the blocks that are marked in another map.
    pub(crate) fn mark_all_of(&mut self, other: &Self) {
        for (mine, theirs) in self.marks.iter_mut().flatten().zip(other.marks.iter().flatten()) {
            *mine |= theirs;
        }
    }

    /// Returns whether the large block that begins in a chunk is marked.
    pub(crate) fn is_large_marked(&self, segment: u16, first: u64, chunks: u64) -> bool {
        // Its address depends on its alignment, so it may be at any word of the first chunks.
        let start = self.grid.start(segment, first).offset();
        let end = start + self.grid.chunk_bytes() * chunks.min(2);
        let last = (self.marks[usize::from(segment)].len() * u64::BITS as usize * WORD_BYTES) as u64;
        (start..end.min(last)).step_by(WORD_BYTES).any(|offset| self.is_marked(Address::new(segment, offset)))
    }

    /// The chunks of a large object. The word of the first chunk has their number; words that contradict it end the run.
    fn run(&self, segment: u16, first: u64) -> ChunkRun {
        let table = &self.tables[usize::from(segment)][first as usize..];
        let most = if let Use::Large(chunks) = table[0] { chunks.max(1) } else { 1 };
        let further = table[1..].iter().take_while(|usage| **usage == Use::Continued).count() as u64;
        ChunkRun { segment, first, chunks: most.min(1 + further) }
    }

    /// Visits the chunks in use: each with blocks of a class, and each run of other chunks.
    pub(crate) fn for_each_chunk(&self, mut each: impl FnMut(u16, u64, Option<Class>, Block)) {
        for (segment, table) in (0..).zip(&self.tables) {
            let mut chunk = 0;
            while chunk < table.len() as u64 {
                match table[chunk as usize] {
                    Use::Free => chunk += 1,
                    Use::Small(class) => {
                        let (address, bytes) = self.grid.blocks(segment, chunk, class);
                        each(segment, chunk, Some(class), Block { address, bytes });
                        chunk += 1;
                    }
                    Use::Large(_) | Use::Continued | Use::Untaken => {
                        let run = self.run(segment, chunk);
                        let (address, bytes) =
                            (self.grid.start(segment, chunk), run.chunks * self.grid.chunk_bytes());
                        each(segment, chunk, None, Block { address, bytes });
                        chunk += run.chunks;
                    }
                }
            }
        }
    }

    /// The blocks that are marked neither here nor in `free`.
    pub(crate) fn candidates(&self, free: Option<&Self>) -> Vec<BlockRange> {
        let mut candidates = Vec::new();
        self.for_each_chunk(|segment, chunk, class, all| {
            let range = if let Some(class) = class {
                let first = Block { bytes: class.bytes(), ..all };
                let mut range = BlockRange::new(first, (all.bytes / class.bytes()) as usize);
                for (index, Block { address, .. }) in range.blocks().enumerate() {
                    if !self.is_marked(address) && free.is_none_or(|free| !free.is_marked(address)) {
                        range.add(index);
                    }
                }
                range
            } else {
                let chunks = all.bytes / self.grid.chunk_bytes();
                let mut range = BlockRange::new(all, 1);
                // Without its first chunk the run was read while a thread wrote its words, and that thread has it under another address.
                let is_whole = self.tables[usize::from(segment)][chunk as usize] != Use::Continued;
                if is_whole && !self.is_large_marked(segment, chunk, chunks) {
                    range.add(0);
                }
                range
            };
            if !range.is_empty() {
                candidates.push(range);
            }
        });
        candidates
    }

    /// Returns whether the chunks of a block have the same use in another map.
    pub(crate) fn agrees(&self, other: &Self, block: Block) -> bool {
        let Some(first) = self.grid.chunk_of(block.address) else { return false };
        let segment = usize::from(block.address.segment());
        let chunks = block.bytes.div_ceil(self.grid.chunk_bytes());
        (first..first + chunks).all(|chunk| {
            let usage = |map: &Self| map.tables[segment].get(chunk as usize).copied();
            usage(self) == usage(other)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farfield_words::geometry::Geometry;

    #[test]
    fn a_link_with_any_marks_leads_to_its_block_and_no_other_word_does() {
        let grid = Grid::new(Geometry::new(1, 1, 1 << 20).unwrap());
        let small = |bytes| Use::Small(Class::of(bytes).unwrap());
        let tables = vec![vec![small(64), small(40), Use::Large(2), Use::Continued]];
        let map = Map::new(grid, tables, 1 << 20);
        let in_chunk = |chunk: u64, offset: u64| grid.start(0, chunk).add(offset);
        let target = |at: Address| map.target(at).map(|block| (block.address, block.bytes));
        let (first, second) = (in_chunk(0, 0), in_chunk(0, 64));
        assert_eq!([target(first), target(first.add(63))], [Some((first, 64)); 2]);
        assert_eq!([target(second), target(second.add(33))], [Some((second, 64)); 2]);
        let narrow = in_chunk(1, 40);
        assert_eq!([target(narrow), target(narrow.add(7))], [Some((narrow, 40)); 2]);
        assert_eq!([target(narrow.add(8)), target(narrow.add(39))], [None; 2]);
        let large = in_chunk(2, 0);
        assert_eq!([target(large), target(large.add(63))], [Some((large, 2 * grid.chunk_bytes())); 2]);
        assert_eq!([target(large.add(64)), target(in_chunk(3, 0)), target(Address::NULL)], [None; 3]);
    }
}
