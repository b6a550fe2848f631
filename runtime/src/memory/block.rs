//! The block of an object: from an address to the memory around it.
//!
//! Objects have no headers: the size of an object's block follows from its type, and from the [use of its chunk](crate::segment::grid).

use super::heap::ThreadHeap;
use super::registry::refused;
use super::worker::Worker;
use crate::error::{self, Error, PointerFault, Result};
use crate::io::operations::*;
use crate::segment::classes::Class;
use crate::segment::grid::{ChunkRun, Use};
use farfield_words::Address;
use farfield_words::{Block, Remote};

/// The block of the object at `address`. No round trip; for a type with a tail one READ the first time that the process
/// sees its chunk, and each time if the object is larger than half a chunk.
#[inline]
pub(crate) async fn block_of<T: Remote>(address: Address, ct: &Worker) -> Result<Block> {
    match known_block::<T>(address, ct) {
        Some(block) => block,
        None => ct.heap().look_up(ct, address).await,
    }
}

/// Like [`block_of`], if it takes no round trip.
#[inline]
fn known_block<T: Remote>(address: Address, ct: &Worker) -> Option<Result<Block>> {
    let heap = ct.heap();
    if let Err(error) = heap.check(address, T::SIZE as u64) {
        return Some(Err(error));
    }
    if !address.bits().is_multiple_of(T::ALIGN as u64) {
        return Some(Err(refused(address, PointerFault::Misaligned { align: T::ALIGN as u32 })));
    }
    (T::TAIL_STRIDE == 0).then(|| of_sized::<T>(address, heap))
}

#[inline]
fn of_sized<T: Remote>(address: Address, heap: &ThreadHeap) -> Result<Block> {
    let bytes = heap.grid.block_bytes(T::SIZE as u64, T::ALIGN as u64);
    match heap.known_class(address) {
        Some(class) if class.bytes() != bytes || !heap.grid.begins_block(address, class) => {
            Err(refused(address, PointerFault::NoObject))
        }
        _ => Ok(heap.grid.whole(Block { address, bytes })),
    }
}

impl ThreadHeap {
    /// The class of the blocks in an address's chunk, if the process knows it.
    #[inline]
    pub(crate) fn known_class(&self, at: Address) -> Option<Class> {
        self.process.known.class(at.segment(), self.grid.chunk_of(at)?)
    }

    /// The block that begins at `at`. One READ if the process does not know the chunk.
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
            Use::Small(class) if self.grid.begins_block(at, class) => {
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
    pub(crate) fn check(&self, address: Address, bytes: u64) -> Result<()> {
        let fault = if address.is_null() {
            PointerFault::Null
        } else if u32::from(address.segment()) >= self.geometry.segments() {
            PointerFault::NoSegment { segments: self.geometry.segments() }
        } else if address.offset() < self.grid.origin(address.segment())
            || address.offset().saturating_add(bytes) > self.grid.limit(address.segment())
        {
            PointerFault::PastSegment { size_bytes: self.geometry.segment_bytes() }
        } else {
            return Ok(());
        };
        Err(Error::from(error::InvalidPointer { address, fault }))
    }
}
