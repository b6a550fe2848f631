//! Blocks: the address and size of an object's memory.

use crate::Address;

/// A block of far memory. Objects have no headers: a block's size follows from the object's type and from the use of its chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Its first word's address.
    pub address: Address,
    /// Its size.
    pub bytes: u64,
}
