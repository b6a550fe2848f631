//! `Block`: where an object's memory is, and how large.
//!
//! Objects have no headers: what an object's block is follows from its type, and from [what its chunk is for](super::grid).

use super::heap::ThreadHeap;
use super::registry::refused;
use super::worker::Worker;
use crate::error::{PointerFault, Result};
use farfield_words::Address;
use farfield_words::{Block, Remote};

/// The block that the object at `address` is in. No round trip, but for a type with a tail the first time that the process
/// sees its chunk, and each time if it is larger than half a chunk.
#[inline]
pub(crate) async fn block_of<T: Remote>(address: Address, ct: &Worker) -> Result<Block> {
    match at_once::<T>(address, ct) {
        Some(block) => block,
        None => ct.heap().look_up(ct, address).await,
    }
}

/// As [`block_of`], if it takes no round trip.
#[inline]
fn at_once<T: Remote>(address: Address, ct: &Worker) -> Option<Result<Block>> {
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
