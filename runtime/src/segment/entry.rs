//! An entry of the directory: its state, its name and what it says, as words.

use memoffset::offset_of;
use std::num::NonZeroU64;

use super::control::{self, DIRECTORY_ENTRIES, ENTRY_WORDS, Entry, NAME_BYTES, NAME_WORDS};
use super::decode::corrupted;
use crate::error::Result;
use farfield_words::Address;
use farfield_words::ThreadId;
use farfield_words::WORD_BYTES;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Empty,
    Naming(ThreadId),
    Vacant,
    Initialising(ThreadId),
    Ready,
}

const TAG_BITS: u32 = 3;

impl State {
    pub(crate) fn word(self) -> u64 {
        match self {
            Self::Empty => 0,
            Self::Naming(id) => id.number().get() << TAG_BITS | 1,
            Self::Vacant => 2,
            Self::Initialising(id) => id.number().get() << TAG_BITS | 3,
            Self::Ready => 4,
        }
    }

    pub(crate) fn from_word(word: u64) -> Option<Self> {
        let id = NonZeroU64::new(word >> TAG_BITS).map(ThreadId::new);
        match (word & ((1 << TAG_BITS) - 1), id) {
            (0, None) => Some(Self::Empty),
            (1, Some(id)) => Some(Self::Naming(id)),
            (2, None) => Some(Self::Vacant),
            (3, Some(id)) => Some(Self::Initialising(id)),
            (4, None) => Some(Self::Ready),
            _ => None,
        }
    }
}

/// The thread that an entry's state names, if it does.
pub(crate) fn claimant(state: u64) -> Option<ThreadId> {
    match State::from_word(state) {
        Some(State::Naming(id) | State::Initialising(id)) => Some(id),
        _ => None,
    }
}

/// The entries that threads work on: where each is, its name if it has one yet, and its thread. `peek` reads a word.
pub(crate) fn claims(peek: impl Fn(Address) -> u64) -> Vec<(Address, String, ThreadId)> {
    let claim = |index| {
        let entry = control::entry(index);
        let owner = claimant(peek(entry))?;
        let at = offset_of!(Entry, name) as u64;
        let name = std::array::from_fn(|word| peek(entry.add(at + (word * WORD_BYTES) as u64)));
        Some((entry, unpack(&name), owner))
    };
    (0..DIRECTORY_ENTRIES).filter_map(claim).collect()
}

/// A name as an entry holds it: its length in the first byte, then its bytes.
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

/// An entry as it was read.
pub(crate) struct View<'a>(pub(crate) &'a [u64]);

impl View<'_> {
    pub(crate) fn state(&self, index: usize) -> Result<State> {
        let word = self.0[offset_of!(Entry, state) / WORD_BYTES];
        let address = control::entry(index);
        State::from_word(word).ok_or_else(|| corrupted(address, word, "an entry is in no such state"))
    }
    pub(crate) fn value(&self) -> u64 {
        self.0[offset_of!(Entry, value) / WORD_BYTES]
    }
    pub(crate) fn fingerprint(&self) -> u64 {
        self.0[offset_of!(Entry, fingerprint) / WORD_BYTES]
    }
    pub(crate) fn name(&self) -> PackedName {
        self.packed(offset_of!(Entry, name))
    }
    pub(crate) fn type_name(&self) -> PackedName {
        self.packed(offset_of!(Entry, type_name))
    }
    pub(crate) fn description(&self) -> u64 {
        self.0[offset_of!(Entry, description) / WORD_BYTES]
    }
    fn packed(&self, offset: usize) -> PackedName {
        std::array::from_fn(|word| self.0[offset / WORD_BYTES + word])
    }
}

/// What an entry says, apart from its state.
#[derive(Clone, Copy)]
pub(crate) struct Body {
    pub(crate) value: u64,
    pub(crate) fingerprint: u64,
    pub(crate) name: PackedName,
    pub(crate) type_name: PackedName,
    /// Where the description of the root's type is, or 0.
    pub(crate) description: u64,
}

impl Body {
    pub(crate) fn new(name: PackedName, fingerprint: u64, type_name: &str) -> Self {
        Self { value: 0, fingerprint, name, type_name: pack(type_name), description: 0 }
    }

    pub(crate) fn words(&self) -> [u64; ENTRY_WORDS - 1] {
        let mut words = [0; ENTRY_WORDS - 1];
        words[0] = self.value;
        words[1] = self.fingerprint;
        words[2..2 + NAME_WORDS].copy_from_slice(&self.name);
        words[2 + NAME_WORDS..2 + 2 * NAME_WORDS].copy_from_slice(&self.type_name);
        words[2 + 2 * NAME_WORDS] = self.description;
        words
    }
}

#[cfg(test)]
mod tests;
