//! Limbo lists: blocks that a thread has retired and not yet freed.
//!
//! Blocks are retired in the order of their tags, so the blocks that may be freed are at the front. Most blocks were objects. The others belong to
//! the library, and are not counted.

use std::collections::VecDeque;

use super::GRACE_EPOCHS;
use farfield_words::Block;

/// The former contents of a retired block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockKind {
    /// An object of the program: it is counted.
    Object,
    /// Data of the library: a page of the pool, a chunk, a list of candidates.
    Internal,
}

/// A retired block and its tag.
#[derive(Clone, Copy, Debug)]
struct Retired {
    tag: u64,
    block: Block,
    kind: BlockKind,
}

/// One thread's retired blocks, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Limbo {
    retired: VecDeque<Retired>,
    objects: usize,
    bytes: u64,
}

impl Limbo {
    pub(crate) fn push(&mut self, tag: u64, block: Block, kind: BlockKind) {
        self.bytes += block.bytes;
        self.objects += usize::from(kind == BlockKind::Object);
        self.retired.push_back(Retired { tag, block, kind });
    }

    /// Appends the blocks of another list.
    pub(crate) fn absorb(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.objects += other.objects;
        self.retired.extend(other.retired);
        self.retired.make_contiguous().sort_by_key(|retired| retired.tag);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.retired.is_empty()
    }

    pub(crate) fn blocks(&self) -> impl Iterator<Item = Block> {
        self.retired.iter().map(|retired| retired.block)
    }

    /// Returns the number of objects.
    pub(crate) fn objects(&self) -> usize {
        self.objects
    }

    /// Returns the block that was retired last.
    pub(crate) fn last(&self) -> Option<Block> {
        self.retired.back().map(|retired| retired.block)
    }

    /// Returns the sum of the blocks' sizes, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns whether the first block may be freed in epoch `epoch`.
    pub(crate) fn has_expired(&self, epoch: u64) -> bool {
        self.retired.front().is_some_and(|oldest| oldest.tag + GRACE_EPOCHS <= epoch)
    }

    /// Removes the first block if it may be freed in epoch `epoch`. Also returns its kind.
    pub(crate) fn pop_expired(&mut self, epoch: u64) -> Option<(Block, BlockKind)> {
        if self.has_expired(epoch) { self.pop_any() } else { None }
    }

    /// Removes the first block, for any tag. For quiescent points, at which no thread has a pointer.
    pub(crate) fn pop_any(&mut self) -> Option<(Block, BlockKind)> {
        let Retired { block, kind, .. } = self.retired.pop_front()?;
        self.bytes -= block.bytes;
        self.objects -= usize::from(kind == BlockKind::Object);
        Some((block, kind))
    }
}
