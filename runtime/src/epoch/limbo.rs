//! Limbo lists: blocks that a thread has retired and not yet freed.
//!
//! Blocks are retired in the order of their tags, so a list is a queue of *runs*: blocks of one tag. There are few, since a run expires two epochs
//! after its tag. A block is appended to the newest run, and a run that has expired is freed as a whole. So retiring a block is one append, and the
//! queue is looked at once an epoch. Most blocks were objects. The others belong to the library, and are not counted.

use std::collections::VecDeque;

use super::GRACE_EPOCHS;
use farfield_words::{Address, Block};

/// The former contents of a retired block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockKind {
    /// An object of the program: it is counted.
    Object,
    /// Data of the library: a page of the pool, a chunk, a list of candidates.
    Internal,
}

/// In a retired block's size, which is a multiple of a word: the block was not an object.
const INTERNAL: u64 = 1;
/// The number of empty buffers that a list keeps: one for each run that can be in limbo at one time while epochs advance.
const MAX_BUFFERS: usize = 4;

/// Blocks of one tag, in the order of their retirement.
#[derive(Debug, Default)]
pub(crate) struct Run {
    tag: u64,
    /// The size of a block that was not an object has the bit [`INTERNAL`].
    blocks: Vec<Block>,
    /// The number of blocks that were no objects.
    internal: usize,
    bytes: u64,
}

/// One thread's retired blocks, oldest first.
#[derive(Debug)]
pub(crate) struct Limbo {
    /// The run of the last tag, to which blocks are appended. It may be empty.
    newest: Run,
    older: VecDeque<Run>,
    /// The last block of `newest`, if it was an object; null if it was none, or is freed.
    last: Address,
    /// The sums over `older`.
    older_blocks: usize,
    older_internal: usize,
    older_bytes: u64,
    /// Empty buffers of runs.
    buffers: Vec<Vec<Block>>,
}

fn kind_of(block: Block) -> BlockKind {
    if block.bytes & INTERNAL == 0 { BlockKind::Object } else { BlockKind::Internal }
}

impl Run {
    /// The blocks, and what they were.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = (Block, BlockKind)> {
        self.blocks.iter().map(|block| (Block { bytes: block.bytes & !INTERNAL, ..*block }, kind_of(*block)))
    }

    /// The blocks in groups of neighbours in the list that have one size and were the same, and of which each is near the next: their addresses,
    /// size and kind. The sizes in the blocks themselves have no meaning.
    pub(crate) fn same(
        &self,
        is_near: impl Fn(Address, Address) -> bool,
    ) -> impl Iterator<Item = (&[Block], u64, BlockKind)> {
        let groups = self
            .blocks
            .chunk_by(move |one, next| one.bytes == next.bytes && is_near(one.address, next.address));
        groups.map(|group| (group, group[0].bytes & !INTERNAL, kind_of(group[0])))
    }

    /// Returns the number of objects.
    pub(crate) fn objects(&self) -> usize {
        self.blocks.len() - self.internal
    }
}

impl Default for Limbo {
    fn default() -> Self {
        Self {
            newest: Run::default(),
            older: VecDeque::new(),
            last: Address::NULL,
            older_blocks: 0,
            older_internal: 0,
            older_bytes: 0,
            buffers: Vec::new(),
        }
    }
}

impl Limbo {
    #[inline]
    pub(crate) fn push(&mut self, tag: u64, block: Block, kind: BlockKind) {
        if tag != self.newest.tag {
            self.begin_run(tag);
        }
        self.newest.bytes += block.bytes;
        let internal = match kind {
            BlockKind::Object => {
                self.last = block.address;
                0
            }
            BlockKind::Internal => {
                self.last = Address::NULL;
                self.newest.internal += 1;
                INTERNAL
            }
        };
        self.newest.blocks.push(Block { bytes: block.bytes | internal, ..block });
    }

    #[cold]
    fn begin_run(&mut self, tag: u64) {
        let blocks = self.buffers.pop().unwrap_or_default();
        let full = std::mem::replace(&mut self.newest, Run { tag, blocks, ..Run::default() });
        if full.blocks.is_empty() {
            self.recycle(full);
        } else {
            self.add_older(full);
        }
    }

    fn add_older(&mut self, run: Run) {
        self.older_blocks += run.blocks.len();
        self.older_internal += run.internal;
        self.older_bytes += run.bytes;
        self.older.push_back(run);
    }

    /// Adds the blocks of another list.
    pub(crate) fn absorb(&mut self, mut other: Self) {
        self.begin_run(self.newest.tag);
        other.begin_run(0);
        other.older.into_iter().for_each(|run| self.add_older(run));
        self.older.make_contiguous().sort_by_key(|run| run.tag);
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.newest.blocks.is_empty() && self.older.is_empty()
    }

    pub(crate) fn blocks(&self) -> impl Iterator<Item = Block> {
        self.older.iter().chain([&self.newest]).flat_map(Run::blocks).map(|(block, _)| block)
    }

    /// Returns the number of objects.
    pub(crate) fn objects(&self) -> usize {
        self.len() - self.internal()
    }

    /// Returns the number of blocks of the library's own.
    pub(crate) fn internal(&self) -> usize {
        self.older_internal + self.newest.internal
    }

    /// Returns the number of blocks: of objects and of the library.
    fn len(&self) -> usize {
        self.older_blocks + self.newest.blocks.len()
    }

    /// Returns whether the object at `address` was retired last, and is not freed.
    #[inline]
    pub(crate) fn ends_with(&self, address: Address) -> bool {
        self.last == address
    }

    /// Returns the sum of the blocks' sizes, in bytes.
    #[inline]
    pub(crate) fn bytes(&self) -> u64 {
        self.older_bytes + self.newest.bytes
    }

    /// Returns whether the first block may be freed in epoch `epoch`.
    pub(crate) fn has_expired(&self, epoch: u64) -> bool {
        let oldest = self.older.front().unwrap_or(&self.newest);
        !oldest.blocks.is_empty() && oldest.tag + GRACE_EPOCHS <= epoch
    }

    /// Removes the first run if it may be freed in epoch `epoch`.
    pub(crate) fn pop_expired(&mut self, epoch: u64) -> Option<Run> {
        if self.has_expired(epoch) { self.pop_any() } else { None }
    }

    /// Removes the first run, for any tag. For quiescent points, at which no thread has a pointer.
    pub(crate) fn pop_any(&mut self) -> Option<Run> {
        if self.older.is_empty() {
            self.last = Address::NULL;
            self.begin_run(self.newest.tag);
        }
        let run = self.older.pop_front()?;
        self.older_blocks -= run.blocks.len();
        self.older_internal -= run.internal;
        self.older_bytes -= run.bytes;
        Some(run)
    }

    /// Keeps the buffer of a run whose blocks are freed.
    pub(crate) fn recycle(&mut self, mut run: Run) {
        if self.buffers.len() < MAX_BUFFERS {
            run.blocks.clear();
            self.buffers.push(run.blocks);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn block(number: u64) -> Block {
        Block { address: Address::new(0, 64 * number), bytes: 8 * number }
    }

    fn drain(limbo: &mut Limbo, epoch: u64) -> Vec<(u64, BlockKind)> {
        let mut freed = Vec::new();
        while let Some(run) = limbo.pop_expired(epoch) {
            freed.extend(run.blocks().map(|(block, kind)| (block.bytes / 8, kind)));
            limbo.recycle(run);
        }
        freed
    }

    use BlockKind::{Internal, Object};

    #[test]
    fn blocks_expire_in_the_order_of_their_retirement_two_epochs_after_their_tag() {
        let mut limbo = Limbo::default();
        for (tag, number, kind) in [(5, 1, Object), (5, 2, Internal), (6, 3, Object), (8, 4, Object)] {
            limbo.push(tag, block(number), kind);
            assert_eq!(limbo.ends_with(block(number).address), kind == Object);
        }
        assert_eq!((limbo.objects(), limbo.bytes()), (3, 80));
        assert_eq!(drain(&mut limbo, 6), []);
        assert_eq!(drain(&mut limbo, 7), [(1, Object), (2, Internal)]);
        assert_eq!((limbo.objects(), limbo.bytes(), limbo.is_empty()), (2, 56, false));
        assert_eq!(drain(&mut limbo, 10), [(3, Object), (4, Object)]);
        assert_eq!((limbo.objects(), limbo.bytes(), limbo.is_empty()), (0, 0, true));
        assert!(!limbo.ends_with(block(4).address), "its block may be another object's");
        assert!(!limbo.has_expired(u64::MAX) && limbo.pop_any().is_none());
        limbo.push(8, block(5), Object);
        assert_eq!(limbo.blocks().collect::<Vec<_>>(), [block(5)]);
    }

    #[test]
    fn the_blocks_of_another_list_expire_with_their_own_tags() {
        let (mut limbo, mut other) = (Limbo::default(), Limbo::default());
        for (tag, number) in [(3, 1), (6, 2)] {
            limbo.push(tag, block(number), Object);
            other.push(tag + 1, block(number + 2), Object);
        }
        limbo.absorb(other);
        limbo.push(6, block(5), Object);
        assert_eq!((limbo.objects(), limbo.bytes()), (5, 8 * 15));
        assert_eq!(drain(&mut limbo, 6), [(1, Object), (3, Object)]);
        assert_eq!(drain(&mut limbo, 8), [(2, Object)]);
        // A later tag that is first in the list delays the others, and no block comes early.
        assert_eq!(drain(&mut limbo, 9), [(4, Object), (5, Object)]);
        limbo.absorb(Limbo::default());
        assert!(limbo.is_empty());
    }
}
