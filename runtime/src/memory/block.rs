//! The block of an object: from an address to the memory around it.
//!
//! Objects have no headers: the size of an object's block follows from its type, and from the [use of its chunk](crate::segment::grid).

use super::heap::ThreadHeap;
use super::registry::refused;
use super::worker::Worker;
use crate::error::{Error, PointerFault, Result};
use crate::io::operations::*;
use crate::segment::classes::Class;
use crate::segment::grid::{ChunkRun, Use};
use farfield_words::Address;
use farfield_words::{Block, Remote, WORD_BYTES};

/// The block of the object at `address`, if the process knows its chunk; with a constant size. Otherwise [`block_of`] returns it. No round trip.
#[inline(always)]
#[allow(clippy::inline_always)] // most of it is a constant of the type
pub(crate) fn known_block<T: Remote>(address: Address, heap: &ThreadHeap) -> Option<Block> {
    let bytes = heap.grid.block_bytes(T::SIZE as u64, T::ALIGN as u64);
    let class = heap.grid.class_of(bytes)?;
    // A process knows a chunk only if it is one, so the address needs no other check.
    let behind_origin = heap.grid.behind_origin(address);
    let chunk = heap.grid.chunk_at(behind_origin);
    let is_object = T::TAIL_STRIDE == 0
        && heap.grid.divides_chunk(address, behind_origin, bytes)
        && address.offset() + bytes <= heap.grid.limit(address.segment())
        && heap.process.known.has_class(address.segment(), chunk, class);
    is_object.then_some(Block { address, bytes })
}

/// The block of the object at `address`, unless its type has a tail: then [`ThreadHeap::look_up`] returns it. No round trip.
#[cold]
pub(crate) fn block_of<T: Remote>(address: Address, heap: &ThreadHeap) -> Option<Result<Block>> {
    if let Err(error) = heap.check(address, T::SIZE as u64) {
        return Some(Err(error));
    }
    if !address.bits().is_multiple_of(T::ALIGN as u64) {
        return Some(Err(refused(address, PointerFault::Misaligned { align: T::ALIGN as u32 })));
    }
    if T::TAIL_STRIDE > 0 {
        return None;
    }
    let bytes = heap.grid.block_bytes(T::SIZE as u64, T::ALIGN as u64);
    Some(match heap.known_class(address) {
        Some(class) if class.bytes() != bytes || !heap.grid.begins_block(address, bytes) => {
            Err(refused(address, PointerFault::NoObject))
        }
        _ => Ok(heap.grid.whole(Block { address, bytes })),
    })
}

/// The block of the object at `address`, whose tail has `tail` elements. No round trip.
pub(crate) fn sized_block_of<T: Remote>(address: Address, tail: u64, heap: &ThreadHeap) -> Result<Block> {
    let bytes = tail.saturating_mul(T::TAIL_STRIDE as u64).saturating_add(T::SIZE as u64);
    heap.check(address, bytes)?;
    let bytes = heap.grid.block_bytes(bytes.next_multiple_of(WORD_BYTES as u64), T::ALIGN as u64);
    match heap.known_class(address) {
        Some(class) if class.bytes() != bytes || !heap.grid.begins_block(address, bytes) => {
            Err(refused(address, PointerFault::NoObject))
        }
        _ => Ok(heap.grid.whole(Block { address, bytes })),
    }
}

impl ThreadHeap {
    /// The class of the blocks in an address's chunk, if the process knows it.
    pub(crate) fn known_class(&self, at: Address) -> Option<Class> {
        self.process.known.class(at.segment(), self.grid.chunk_of(at)?)
    }

    /// The block that begins at `at`. One READ if the process does not know the chunk, or if the block has chunks of its own.
    pub(crate) async fn look_up(&self, ct: &Worker, at: Address) -> Result<Block> {
        let none = || refused(at, PointerFault::NoObject);
        let chunk = self.grid.chunk_of(at).ok_or_else(none)?;
        let usage = if let Some(class) = self.known_class(at) {
            Use::Small(class)
        } else {
            let word = ct.read_word(self.grid.word(at.segment(), chunk)).await?;
            self.grid.usage(at.segment(), chunk, word)?
        };
        match usage {
            Use::Small(class) if self.grid.begins_block(at, class.bytes()) => {
                self.process.known.learn(&self.grid, at.segment(), chunk, Some(class));
                Ok(Block { address: at, bytes: class.bytes() })
            }
            Use::Large(chunks) => {
                let run = ChunkRun { segment: at.segment(), first: chunk, chunks };
                let align = self.grid.large_align(at.offset());
                let block = self.grid.large(run, align);
                if block.address == at { Ok(block) } else { Err(none()) }
            }
            _ => Err(none()),
        }
    }

    /// Checks that `address` can be an object's: inside a segment and past its control structures.
    ///
    /// # Errors
    /// [`Error::InvalidPointer`].
    #[inline]
    pub(crate) fn check(&self, address: Address, bytes: u64) -> Result<()> {
        if self.grid.has(address, bytes) { Ok(()) } else { Err(self.outside(address)) }
    }

    #[cold]
    fn outside(&self, address: Address) -> Error {
        refused(
            address,
            if address.is_null() {
                PointerFault::Null
            } else if u32::from(address.segment()) >= self.geometry.segments() {
                PointerFault::NoSegment { segments: self.geometry.segments() }
            } else {
                PointerFault::PastSegment { size_bytes: self.geometry.segment_bytes() }
            },
        )
    }
}
