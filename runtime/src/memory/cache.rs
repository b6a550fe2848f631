//! A thread's free blocks of a memory node, by class.

use super::pool::{PageBlock, Release};
use crate::epoch::BlockKind;
use crate::segment::classes::{CLASSES, Class};
use crate::segment::grid::{ChunkRun, Grid};
use farfield_words::Address;
use farfield_words::Block;
use farfield_words::WORD_BYTES;

/// A flag in an entry of a page: the entry stands for all blocks from this address to the end of the chunk.
const REST: u64 = 1;

/// Adjacent free blocks of one class.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) start: Address,
    pub(crate) bytes: u64,
}

/// The memory for blocks of one class, apart from its list of free blocks.
pub(crate) struct ClassCache {
    class: Class,
    bytes: u64,
    /// The piece that blocks are cut from when the list is empty, and the pieces for later.
    rest: Piece,
    further: Vec<Piece>,
    /// The head of the pool's list when it was last read.
    pub(crate) head: u64,
}

/// Free blocks of one memory node.
pub(crate) struct NodeCache {
    /// The free blocks of each class, by its index: the path of allocation and freeing.
    lists: [Vec<Address>; CLASSES],
    /// For each class its index in `classes` plus 1; 0 if it has not been used.
    positions: [u8; CLASSES],
    classes: Vec<ClassCache>,
    /// The segment to take the next chunk from, among those of this node.
    pub(crate) current_segment: u16,
    /// For each segment of the node, the chunk behind the free one that was taken last. Segments at the end may be missing.
    searched: Vec<u32>,
    /// Bytes of objects allocated less those freed, modulo 2^64, that are not added to the node's count yet.
    pub(crate) live: u64,
    /// Chunks to return.
    pub(crate) runs: Vec<ChunkRun>,
}

/// Free blocks on their way to the pool.
pub(crate) struct Batch {
    pub(crate) node: u16,
    pub(crate) class: Class,
    /// The block that their addresses are written to.
    pub(crate) page: Address,
    pub(crate) block: PageBlock,
    /// The words of the page: the link to the next page, the entries, and 0 if there is room for more.
    pub(crate) words: Vec<u64>,
}

impl ClassCache {
    fn cut(&mut self) -> Option<Address> {
        while self.rest.bytes < self.bytes {
            self.rest = self.further.pop()?;
        }
        let start = self.rest.start;
        self.rest = Piece { start: start.add(self.bytes), bytes: self.rest.bytes - self.bytes };
        Some(start)
    }

    fn is_empty(&self) -> bool {
        self.rest.bytes < self.bytes && self.further.is_empty()
    }
}

impl NodeCache {
    pub(crate) fn new(current_segment: u16) -> Self {
        let lists = [const { Vec::new() }; CLASSES];
        Self {
            lists,
            positions: [0; CLASSES],
            classes: Vec::new(),
            current_segment,
            searched: Vec::new(),
            live: 0,
            runs: Vec::new(),
        }
    }

    /// Returns the chunk at which a search for a free one begins, in a segment of the node.
    pub(crate) fn searched(&self, position: usize) -> u64 {
        self.searched.get(position).copied().unwrap_or_default().into()
    }

    pub(crate) fn set_searched(&mut self, position: usize, chunk: u64) {
        if self.searched.len() <= position {
            self.searched.resize(position + 1, 0);
        }
        self.searched[position] = chunk as u32;
    }

    pub(crate) fn class(&mut self, class: Class) -> &mut ClassCache {
        let position = usize::from(self.positions[class.index()]);
        if position > 0 { &mut self.classes[position - 1] } else { self.new_class(class) }
    }

    #[cold]
    fn new_class(&mut self, class: Class) -> &mut ClassCache {
        let rest = Piece { start: Address::NULL, bytes: 0 };
        self.classes.push(ClassCache { class, bytes: class.bytes(), rest, further: Vec::new(), head: 0 });
        self.positions[class.index()] = self.classes.len() as u8;
        self.classes.last_mut().expect("one was pushed")
    }

    #[inline]
    pub(crate) fn add_live(&mut self, bytes: u64) {
        self.live = self.live.wrapping_add(bytes);
    }

    /// A free block.
    #[inline]
    pub(crate) fn take(&mut self, class: Class) -> Option<Address> {
        self.lists[class.index()].pop().or_else(|| self.cut(class))
    }

    #[inline(never)]
    fn cut(&mut self, class: Class) -> Option<Address> {
        self.class(class).cut()
    }

    /// Adds a free block. Returns the number of blocks of the class.
    #[inline]
    pub(crate) fn put(&mut self, class: Class, block: Address) -> usize {
        self.put_all(class, std::iter::once(block))
    }

    /// Adds free blocks. Returns the number of blocks of the class.
    #[inline]
    pub(crate) fn put_all(&mut self, class: Class, blocks: impl Iterator<Item = Address>) -> usize {
        if self.positions[class.index()] == 0 {
            self.new_class(class);
        }
        let list = &mut self.lists[class.index()];
        list.extend(blocks);
        list.len()
    }

    /// Returns whether `block` was added last.
    #[inline]
    pub(crate) fn ends_with(&self, class: Class, block: Address) -> bool {
        self.lists[class.index()].last() == Some(&block)
    }

    pub(crate) fn put_piece(&mut self, class: Class, piece: Piece) {
        self.class(class).further.push(piece);
    }

    /// Adds the blocks that the entries of a page list.
    pub(crate) fn put_entries(&mut self, grid: &Grid, class: Class, entries: &[u64]) {
        self.class(class);
        for entry in entries.iter().take_while(|entry| **entry != 0) {
            let at = Address::from_bits(entry & !REST);
            if entry & REST == 0 {
                self.lists[class.index()].push(at);
            } else {
                self.put_piece(class, Piece { start: at, bytes: grid.rest(at, class) });
            }
        }
    }

    /// Visits all free memory, as address and bytes.
    pub(crate) fn for_each(&self, grid: &Grid, mut each: impl FnMut(Address, u64)) {
        for cache in &self.classes {
            self.lists[cache.class.index()].iter().for_each(|at| each(*at, cache.bytes));
            cache.further.iter().chain([&cache.rest]).for_each(|piece| each(piece.start, piece.bytes));
        }
        self.runs
            .iter()
            .for_each(|run| each(grid.start(run.segment, run.first), run.chunks * grid.chunk_bytes()));
    }

    /// The number of free bytes.
    pub(crate) fn bytes(&self, grid: &Grid) -> u64 {
        let of_class = |cache: &ClassCache| {
            let pieces: u64 = cache.further.iter().map(|piece| piece.bytes).sum();
            self.lists[cache.class.index()].len() as u64 * cache.bytes + cache.rest.bytes + pieces
        };
        let chunks: u64 = self.runs.iter().map(|run| run.chunks).sum();
        self.classes.iter().map(of_class).sum::<u64>() + chunks * grid.chunk_bytes()
    }

    /// A class with more than `keep` blocks; if `keep` is 0, also one that has only pieces.
    pub(crate) fn surplus(&self, keep: usize) -> Option<Class> {
        let blocks = |cache: &ClassCache| self.lists[cache.class.index()].len();
        let too_many = |cache: &&ClassCache| blocks(cache) > keep || (keep == 0 && !cache.is_empty());
        self.classes.iter().find(too_many).map(|cache| cache.class)
    }

    /// Returns whether many blocks are smaller than a page, and there is no block for a page.
    pub(crate) fn lacks_page(&mut self, page: Class) -> bool {
        let is_many = |cache: &ClassCache| {
            cache.class.words() < page.words()
                && self.lists[cache.class.index()].len() > 4 * cache.class.words()
        };
        self.classes.iter().any(is_many) && self.lists[page.index()].is_empty() && self.class(page).is_empty()
    }

    /// Fills `words` with a word for the next page and up to `entries` entries: the blocks that were freed first and then, unless only the
    /// surplus is released, uncut pieces.
    pub(crate) fn fill(&mut self, class: Class, entries: usize, release: Release, words: &mut Vec<u64>) {
        let blocks = &mut self.lists[class.index()];
        words.clear();
        words.push(0);
        let count = entries.min(blocks.len());
        words.extend(blocks.drain(..count).map(Address::bits));
        let cache = self.class(class);
        while release != Release::Surplus && words.len() <= entries {
            let piece = if cache.rest.bytes >= cache.bytes {
                cache.rest.bytes = 0;
                cache.rest.start
            } else if let Some(piece) = cache.further.pop() {
                piece.start
            } else {
                break;
            };
            words.push(piece.bits() | REST);
        }
        if words.len() <= entries {
            words.push(0);
        }
    }

    /// Moves all free memory to `spare`.
    pub(crate) fn drain(&mut self, node: u16, spare: &mut Spare) {
        spare.live.push((node, std::mem::take(&mut self.live)));
        spare.runs.extend(self.runs.drain(..).map(|run| (node, run)));
        for cache in &mut self.classes {
            let class = cache.class;
            spare.blocks.extend(self.lists[class.index()].drain(..).map(|block| (node, class, block)));
            let rest = std::mem::replace(&mut cache.rest.bytes, 0);
            let rest = Piece { start: cache.rest.start, bytes: rest };
            let pieces = cache.further.drain(..).chain([rest]).filter(|piece| piece.bytes >= cache.bytes);
            spare.pieces.extend(pieces.map(|piece| (node, class, piece)));
        }
    }
}

/// The free blocks that the entries of a page list, as address and bytes.
pub(crate) fn free_blocks(
    grid: &Grid,
    class: Class,
    entries: &[u64],
) -> impl Iterator<Item = (Address, u64)> {
    entries.iter().take_while(|entry| **entry != 0).map(move |entry| {
        let at = Address::from_bits(entry & !REST);
        (at, if entry & REST == 0 { class.bytes() } else { grid.rest(at, class) })
    })
}

/// The free memory of ended threads of a process, by memory node and class.
#[derive(Debug, Default)]
pub(crate) struct Spare {
    pub(crate) blocks: Vec<(u16, Class, Address)>,
    pub(crate) pieces: Vec<(u16, Class, Piece)>,
    pub(crate) runs: Vec<(u16, ChunkRun)>,
    pub(crate) live: Vec<(u16, u64)>,
}

impl Spare {
    /// Adds a freed block.
    pub(crate) fn put(&mut self, grid: &Grid, node: u16, block: Block, kind: BlockKind) {
        match grid.class_of(block.bytes) {
            Some(class) => self.blocks.push((node, class, block.address)),
            None => self.runs.extend(grid.run_of(block).map(|run| (node, run))),
        }
        if kind == BlockKind::Object {
            self.live.push((node, block.bytes.wrapping_neg()));
        }
    }

    /// Visits all free memory, as address and bytes.
    pub(crate) fn for_each(&self, grid: &Grid, mut each: impl FnMut(Address, u64)) {
        self.blocks.iter().for_each(|(_, class, at)| each(*at, class.bytes()));
        self.pieces.iter().for_each(|(_, _, piece)| each(piece.start, piece.bytes));
        let runs = self.runs.iter();
        runs.for_each(|(_, run)| each(grid.start(run.segment, run.first), run.chunks * grid.chunk_bytes()));
    }

    pub(crate) fn append(&mut self, other: &mut Self) {
        self.blocks.append(&mut other.blocks);
        self.pieces.append(&mut other.pieces);
        self.runs.append(&mut other.runs);
        self.live.append(&mut other.live);
    }

    /// Takes the changes of live bytes, without the blocks.
    pub(crate) fn take_live_counts(&mut self) -> Self {
        Self { live: std::mem::take(&mut self.live), ..Self::default() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.pieces.is_empty() && self.runs.is_empty() && self.live.is_empty()
    }
}

/// The number of words of a page of the pool, by the size of chunks: an 8th of a chunk, 2 KiB at most.
pub(crate) fn page_words(chunk_bytes: u64) -> usize {
    (chunk_bytes / 8).clamp(64, 2048) as usize / WORD_BYTES
}
