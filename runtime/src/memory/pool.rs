//! The pool: blocks that no thread holds.
//!
//! Threads give it what they have too much of, and everything when they end; they ask it before they take a new chunk.
//! One lock guards it, taken once per batch, never on the path of an allocation that the thread's own lists can serve.

use std::collections::HashMap;
use std::sync::Mutex;

use super::limbo::Limbo;
use super::registry::Registry;
use crate::pointer::Address;

#[derive(Debug, Default)]
pub(crate) struct Pool {
    pub(crate) registry: Registry,
    shared: Mutex<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Free blocks by node and size.
    free: HashMap<(u16, u64), Vec<Address>>,
    /// Unused pieces of chunks by node.
    pieces: HashMap<u16, Vec<Piece>>,
    /// What threads had retired when they ended.
    limbo: Vec<Limbo>,
}

/// A run of unused bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) start: Address,
    pub(crate) bytes: u64,
}

impl Piece {
    /// The bytes before the first one that is aligned to `align`.
    pub(crate) fn padding(&self, align: u64) -> u64 {
        self.start.offset().next_multiple_of(align) - self.start.offset()
    }
}

impl Pool {
    fn shared(&self) -> std::sync::MutexGuard<'_, Shared> {
        // Lists of addresses are whole at every moment, also when their user panicked.
        self.shared.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub(crate) fn give(&self, node: u16, block_bytes: u64, blocks: impl IntoIterator<Item = Address>) {
        self.shared().free.entry((node, block_bytes)).or_default().extend(blocks);
    }

    /// Moves up to `most` blocks to `into`.
    pub(crate) fn take(&self, node: u16, block_bytes: u64, most: usize, into: &mut Vec<Address>) {
        if let Some(free) = self.shared().free.get_mut(&(node, block_bytes)) {
            let keep = free.len().saturating_sub(most);
            into.extend(free.drain(keep..));
        }
    }

    pub(crate) fn give_piece(&self, node: u16, piece: Piece) {
        self.shared().pieces.entry(node).or_default().push(piece);
    }

    /// A piece that a block of `bytes` bytes aligned to `align` can be cut from.
    pub(crate) fn take_piece(&self, node: u16, bytes: u64, align: u64) -> Option<Piece> {
        let mut shared = self.shared();
        let pieces = shared.pieces.get_mut(&node)?;
        let position = pieces.iter().position(|piece| piece.padding(align) + bytes <= piece.bytes)?;
        Some(pieces.swap_remove(position))
    }

    pub(crate) fn adopt(&self, limbo: Limbo) {
        if limbo.len() > 0 {
            self.shared().limbo.push(limbo);
        }
    }

    /// What ended threads had retired.
    pub(crate) fn orphans(&self) -> Vec<Limbo> {
        std::mem::take(&mut self.shared().limbo)
    }
}
