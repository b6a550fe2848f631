//! Limbo lists: what a thread has retired and not yet freed.
//!
//! Objects are retired in the order of their tags, so those that may be freed are always at the front.

use std::collections::VecDeque;

use super::epoch::GRACE_EPOCHS;
use super::heap::Block;

/// A retired block and the epoch it was retired in.
#[derive(Clone, Copy, Debug)]
struct Retired {
    tag: u64,
    block: Block,
}

/// One thread's retired blocks, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Limbo {
    retired: VecDeque<Retired>,
    bytes: u64,
}

impl Limbo {
    pub(crate) fn push(&mut self, tag: u64, block: Block) {
        self.bytes += block.bytes;
        self.retired.push_back(Retired { tag, block });
    }

    pub(crate) fn len(&self) -> usize {
        self.retired.len()
    }

    /// The block that was retired last.
    pub(crate) fn last(&self) -> Option<Block> {
        self.retired.back().map(|retired| retired.block)
    }

    /// How many bytes its blocks have.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The next block that may be freed now that the epoch is `epoch`.
    pub(crate) fn pop_expired(&mut self, epoch: u64) -> Option<Block> {
        let expired = self.retired.front().is_some_and(|oldest| oldest.tag + GRACE_EPOCHS <= epoch);
        if expired { self.pop_any() } else { None }
    }

    /// The next block whatever its tag: for when nobody can hold a pointer.
    pub(crate) fn pop_any(&mut self) -> Option<Block> {
        let block = self.retired.pop_front()?.block;
        self.bytes -= block.bytes;
        Some(block)
    }
}
