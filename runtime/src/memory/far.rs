//! Reads and writes of any number of words, and blocks for the library's own data.

use super::placement::Target;
use super::worker::Worker;
use crate::error::{self, Error, Result};
use crate::io::operations::*;
use farfield_sim::ObjectType;
use farfield_words::Address;
use farfield_words::Block;
use farfield_words::WORD_BYTES;

/// The largest number of words in one READ or WRITE of a long range.
pub(crate) const WORDS_PER_READ: usize = 1024;

impl Worker {
    /// Reads any number of words.
    pub(crate) async fn read_far(&self, at: Address, words: usize) -> Result<Vec<u64>> {
        let mut read = Vec::with_capacity(words);
        while read.len() < words {
            let count = (words - read.len()).min(WORDS_PER_READ);
            let from = at.add((read.len() * WORD_BYTES) as u64);
            self.read_words(from, count, |words| {
                read.extend_from_slice(words);
                Ok(())
            })
            .await?;
        }
        Ok(read)
    }

    /// Writes any number of words.
    pub(crate) async fn write_far(&self, at: Address, words: &[u64]) -> Result<()> {
        for (index, part) in words.chunks(WORDS_PER_READ).enumerate() {
            self.write_words(at.add((index * WORDS_PER_READ * WORD_BYTES) as u64), part).await?;
        }
        Ok(())
    }

    /// Frees a block of the library's own that no other thread has seen.
    pub(crate) fn put_control_page(&self, block: Block) {
        self.heap().holdings.forget(block.address);
        self.heap().put(block);
    }

    /// Allocates a zeroed block on the first memory node for data of the library.
    pub(crate) async fn take_control_page(&self, bytes: u64) -> Result<Block> {
        let block = self.take_control_block(bytes).await?;
        self.write_far(block.address, &vec![0; bytes as usize / WORD_BYTES]).await?;
        Ok(block)
    }

    /// Like [`take_control_page`](Self::take_control_page), with arbitrary contents.
    pub(crate) async fn take_control_block(&self, bytes: u64) -> Result<Block> {
        let heap = self.heap();
        let block = heap.allocate(self, Target::on(0), bytes, WORD_BYTES as u64).await?;
        heap.uncount(block);
        heap.holdings.note_written(block.address);
        heap.note_block(block.address, bytes, ObjectType::internal("epoch slots"));
        if heap.geometry.node_of(block.address.segment()) > 0 {
            self.put_control_page(block);
            return Err(Error::from(error::OutOfMemory { size_bytes: bytes, segments: vec![0] }));
        }
        Ok(block)
    }
}
