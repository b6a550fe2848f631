//! Descriptions of types in far memory: the [text](farfield_words::describe) that a root is published with, behind a word with its length.

use crate::error::Result;
use crate::io::operations::*;
use crate::session::ComputeThread;
use farfield_words::layouts::Layouts;
use farfield_words::{Address, Block, WORD_BYTES};

/// The maximum size of a description, in bytes.
const MAX_DESCRIPTION_BYTES: u64 = 1 << 20;

impl ComputeThread {
    /// Returns the size of the description at an address, in bytes; `None` if no description can be there.
    async fn read_description_bytes(&self, at: Address) -> Result<Option<u64>> {
        if at.is_null() || self.heap().check(at, WORD_BYTES as u64).is_err() {
            return Ok(None);
        }
        let bytes = self.read_word(at).await?;
        let fits = bytes <= MAX_DESCRIPTION_BYTES && self.heap().check(at, bytes + WORD_BYTES as u64).is_ok();
        Ok(fits.then_some(bytes))
    }

    /// Reads the description at an address; `None` if it is invalid.
    pub(crate) async fn read_description(&self, at: Address) -> Result<Option<Layouts>> {
        let Some(bytes) = self.read_description_bytes(at).await? else { return Ok(None) };
        let words = self.read_far(at.add(WORD_BYTES as u64), (bytes as usize).div_ceil(WORD_BYTES)).await?;
        let text: &[u8] = bytemuck::cast_slice(&words);
        Ok(std::str::from_utf8(&text[..bytes as usize]).ok().and_then(Layouts::parse))
    }

    /// Writes a description to far memory. Returns its address.
    pub(crate) async fn publish_description(&self, text: &str) -> Result<u64> {
        let mut words = vec![0; 1 + text.len().div_ceil(WORD_BYTES)];
        words[0] = text.len() as u64;
        bytemuck::cast_slice_mut(&mut words[1..])[..text.len()].copy_from_slice(text.as_bytes());
        let block = self.take_control_page((words.len() * WORD_BYTES) as u64).await?;
        self.write_far(block.address, &words).await?;
        Ok(block.address.bits())
    }

    /// Frees a description whose root is gone.
    pub(crate) async fn forget_description(&self, at: Address) -> Result<()> {
        if let Some(bytes) = self.read_description_bytes(at).await? {
            let bytes = bytes.next_multiple_of(WORD_BYTES as u64) + WORD_BYTES as u64;
            let bytes = self.heap().grid.block_bytes(bytes, WORD_BYTES as u64);
            let block = self.heap().grid.whole(Block { address: at, bytes });
            // Another process may be reading it.
            let _guard = self.pin();
            self.retire_block(block);
        }
        Ok(())
    }
}
