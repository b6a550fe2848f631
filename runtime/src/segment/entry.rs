//! An entry of the directory: from words to its state and its name, and back.

use super::control::{self, DIRECTORY_ENTRIES, Entry, NAME_BYTES, NAME_WORDS};
use super::decode::corrupted;
use super::tagged::tagged_words;
use crate::error::Result;
use farfield_words::Address;
use farfield_words::ThreadId;
use farfield_words::WORD_BYTES;

tagged_words! {
    /// The state of an entry.
    State: 3 tag bits {
        0 => Empty @ "the entry has no name",
        1 => Naming(thread: ThreadId) @ "the thread writes a name",
        2 => Vacant @ "a name without a root",
        3 => Initialising(thread: ThreadId) @ "the thread makes the root",
        4 => Ready @ "a root, or a barrier",
    }
}

/// The thread that an entry's state names, if any.
pub(crate) fn claimant(state: u64) -> Option<ThreadId> {
    match State::from_word(state) {
        Some(State::Naming(id) | State::Initialising(id)) => Some(id),
        _ => None,
    }
}

/// The entries that threads work on: the address, the name if it has one yet, and the thread. `peek` reads a word.
pub(crate) fn claims(peek: impl Fn(Address) -> u64) -> Vec<(Address, String, ThreadId)> {
    let claim = |index| {
        let entry = control::directory(index);
        let owner = claimant(peek(Entry::state(entry)))?;
        let name = std::array::from_fn(|word| peek(Entry::name(entry, word)));
        Some((entry, unpack(&name), owner))
    };
    (0..DIRECTORY_ENTRIES).filter_map(claim).collect()
}

/// A name as an entry has it: its length in the first byte, then its bytes.
pub(crate) type PackedName = [u64; NAME_WORDS];

pub(crate) fn pack(name: &str) -> PackedName {
    let mut bytes = [0; NAME_WORDS * WORD_BYTES];
    let mut length = name.len().min(NAME_BYTES);
    while !name.is_char_boundary(length) {
        length -= 1;
    }
    bytes[0] = length as u8;
    bytes[1..=length].copy_from_slice(&name.as_bytes()[..length]);
    bytemuck::cast(bytes)
}

pub(crate) fn unpack(name: &PackedName) -> String {
    let bytes: &[u8] = bytemuck::cast_slice(name);
    let length = usize::from(bytes[0]).min(NAME_BYTES);
    String::from_utf8_lossy(&bytes[1..=length]).into_owned()
}

impl Entry {
    /// A new entry, whose state is yet to be written.
    pub(crate) fn new(name: PackedName, fingerprint: u64, type_name: &str) -> Self {
        Self { state: 0, value: 0, fingerprint, name, type_name: pack(type_name), description: 0 }
    }

    /// The state of the entry, which was read at `index`.
    pub(crate) fn decode_state(&self, index: usize) -> Result<State> {
        let address = Self::state(control::directory(index));
        State::from_word(self.state)
            .ok_or_else(|| corrupted(address, self.state, "an entry has no such state"))
    }

    /// All words but the state, which is the first.
    pub(crate) fn words_behind_state(self) -> [u64; Self::WORDS - 1] {
        let [_, words @ ..] = self.to_words();
        words
    }
}

#[cfg(test)]
mod tests;
