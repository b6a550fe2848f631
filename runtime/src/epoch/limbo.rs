//! Limbo lists: what a thread has retired and not yet freed.
//!
//! Blocks are retired in the order of their tags, so those that may be freed are always at the front. Most were objects; the
//! others are the library's own, which are not counted.

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

/// A retired block and the epoch it was retired in.
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

    /// Takes over what another list holds.
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

    /// How many objects there are.
    pub(crate) fn objects(&self) -> usize {
        self.objects
    }

    /// The block that was retired last.
    pub(crate) fn last(&self) -> Option<Block> {
        self.retired.back().map(|retired| retired.block)
    }

    /// How many bytes its blocks have.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether a block may be freed now that the epoch is `epoch`.
    pub(crate) fn has_expired(&self, epoch: u64) -> bool {
        self.retired.front().is_some_and(|oldest| oldest.tag + GRACE_EPOCHS <= epoch)
    }

    /// The next block that may be freed now that the epoch is `epoch`, and its kind.
    pub(crate) fn pop_expired(&mut self, epoch: u64) -> Option<(Block, BlockKind)> {
        if self.has_expired(epoch) { self.pop_any() } else { None }
    }

    /// The next block whatever its tag: for when nobody can hold a pointer.
    pub(crate) fn pop_any(&mut self) -> Option<(Block, BlockKind)> {
        let Retired { block, kind, .. } = self.retired.pop_front()?;
        self.bytes -= block.bytes;
        self.objects -= usize::from(kind == BlockKind::Object);
        Some((block, kind))
    }
}
