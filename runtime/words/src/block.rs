//! Blocks: where an object's memory is, and how large.

use crate::Address;

/// A block of far memory. Objects have no headers: what an object's block is follows from its type and from what its chunk is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Its first word's address.
    pub address: Address,
    /// Its size.
    pub bytes: u64,
}
