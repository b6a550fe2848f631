//! The bytes of keys and values.
//!
//! A value names its record, its writer and the writer's write, so that every value that is read can be checked. The layout, in little-endian order:
//!
//! | bytes | contents |
//! |---|---|
//! | 0 to 7 | the number of the record |
//! | 8 to 11 | the writer: a task of the run |
//! | 12 to 15 | the number of the writer's write; 0 for the record's first value |
//! | 16 to 23 | the number of read-modify-writes of the record |
//! | 24 to 31 | a hash of the words above, the *stamp* |
//! | from 32 on | words: the stamp plus the number of the word, from 1; at the end a part of one |
//!
//! Words of two values differ at every place after the header, so a value that is made of two is found.
//!
//! A value that is a word has another layout: see `packing`.

use crate::distribution::fnv;

/// The bytes of a value without its filling.
pub(crate) const HEADER_BYTES: usize = 32;
const WORD: usize = 8;

/// What a value says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Value {
    pub(crate) record: u64,
    pub(crate) writer: u32,
    pub(crate) sequence: u32,
    pub(crate) increments: u64,
}

impl Value {
    /// Returns a value of `size` bytes, and of at least [`HEADER_BYTES`].
    pub(crate) fn encode(self, size: usize) -> Vec<u8> {
        let (header, stamp) = self.header();
        let mut bytes = Vec::with_capacity(size.next_multiple_of(WORD));
        bytes.extend(header.into_iter().flat_map(u64::to_le_bytes));
        bytes.extend(stamp.to_le_bytes());
        bytes.extend((1..).take(filling_words(size)).flat_map(|word| stamp.wrapping_add(word).to_le_bytes()));
        bytes.truncate(size.max(HEADER_BYTES));
        bytes
    }

    /// Returns what a value of `size` bytes says, or a fault.
    pub(crate) fn decode(bytes: &[u8], size: usize) -> Result<Self, String> {
        if bytes.len() != size.max(HEADER_BYTES) {
            return Err(format!("has a value of {} bytes", bytes.len()));
        }
        let (words, tail) = bytes.as_chunks::<WORD>();
        let [record, write, increments, found] = [0, 1, 2, 3].map(|word| u64::from_le_bytes(words[word]));
        let (writer, sequence) = (write as u32, (write >> 32) as u32);
        let value = Self { record, writer, sequence, increments };
        let (_, stamp) = value.header();
        let expected = |word: usize| stamp.wrapping_add(word as u64 + 1).to_le_bytes();
        let filling = &words[HEADER_BYTES / WORD..];
        let is_whole = found == stamp
            && filling.iter().enumerate().all(|(word, found)| *found == expected(word))
            && expected(filling.len()).starts_with(tail);
        if is_whole { Ok(value) } else { Err("has a torn value".to_owned()) }
    }

    /// Returns a hash of what the value says.
    pub(crate) fn stamp(self) -> u64 {
        self.header().1
    }

    /// The words in front of the stamp, and the stamp.
    fn header(self) -> ([u64; 3], u64) {
        let header = [self.record, u64::from(self.sequence) << 32 | u64::from(self.writer), self.increments];
        let stamp = header.into_iter().fold(0, |stamp: u64, word| {
            // The finalizer of SplitMix64.
            let mixed = (stamp.rotate_left(32) ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ mixed >> 31
        });
        (header, stamp)
    }
}

fn filling_words(size: usize) -> usize {
    size.saturating_sub(HEADER_BYTES).div_ceil(WORD)
}

/// The fewest bytes of a key that is a byte string.
pub(crate) const KEY_BYTES: usize = 16;

/// Returns the key of a record as a string of `size` bytes: a hash, as in YCSB, and the number, which makes it unique.
pub(crate) fn key(record: u64, size: usize) -> Vec<u8> {
    let mut key = Vec::with_capacity(size.max(KEY_BYTES));
    key.extend(key_hash(record).to_be_bytes());
    key.extend(record.to_be_bytes());
    key.resize(size.max(KEY_BYTES), b'.');
    key
}

/// Returns the number by which keys that are byte strings are in order.
pub(crate) fn key_hash(record: u64) -> u64 {
    fnv(record)
}

/// Returns the record whose key of `size` bytes this is.
pub(crate) fn of_key(bytes: &[u8], size: usize) -> Option<u64> {
    let record = u64::from_be_bytes(*bytes.get(WORD..)?.first_chunk()?);
    (key(record, size) == bytes).then_some(record)
}

/// An odd number, and the one that undoes a multiplication by it: their product is 1, modulo 2⁶⁴.
const MIXING: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0xf1de_83e1_9937_733d];

/// Returns the key of a record as a word: a hash that is unique.
pub(crate) fn word_key(record: u64) -> u64 {
    let mixed = record.wrapping_mul(MIXING[0]);
    (mixed ^ mixed >> 32).wrapping_mul(MIXING[0])
}

/// Returns the record of a word: [`word_key`] backwards.
pub(crate) fn of_word_key(key: u64) -> u64 {
    let mixed = key.wrapping_mul(MIXING[1]);
    (mixed ^ mixed >> 32).wrapping_mul(MIXING[1])
}

/// Returns the first record of a writer's share of the loaded ones.
pub(crate) fn share_start(writer: u64, writers: u64, records: u64) -> u64 {
    (u128::from(writer) * u128::from(records) / u128::from(writers.max(1))) as u64
}

/// Returns the writer that has loaded a record.
pub(crate) fn loader(record: u64, writers: u64, records: u64) -> u64 {
    (((u128::from(record) + 1) * u128::from(writers) - 1) / u128::from(records.max(1))) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUE: Value = Value { record: 7, writer: 3, sequence: 9, increments: 2 };

    #[test]
    fn values_of_each_size_are_decoded() {
        for size in HEADER_BYTES..200 {
            let bytes = VALUE.encode(size);
            assert_eq!(bytes.len(), size);
            assert_eq!(Value::decode(&bytes, size), Ok(VALUE));
            assert!(Value::decode(&bytes, size + 1).is_err() && Value::decode(&bytes[1..], size).is_err());
        }
    }

    #[test]
    fn every_changed_byte_is_found() {
        let bytes = VALUE.encode(77);
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert_eq!(Value::decode(&changed, 77), Err("has a torn value".to_owned()), "byte {at}");
        }
    }

    #[test]
    fn a_value_made_of_two_is_found_wherever_it_was_torn() {
        let (one, other) = (VALUE.encode(100), Value { sequence: 10, ..VALUE }.encode(100));
        for at in (WORD..100).step_by(WORD) {
            // The first word is the same in both.
            let torn = [&one[..at], &other[at..]].concat();
            assert_eq!(Value::decode(&torn, 100).is_ok(), at == WORD, "torn at {at}");
        }
    }

    #[test]
    fn keys_are_unique_and_of_their_size() {
        let keys: std::collections::HashSet<Vec<u8>> = (0..1000).map(|record| key(record, 20)).collect();
        assert!(keys.len() == 1000 && keys.iter().all(|key| key.len() == 20));
    }

    #[test]
    fn a_key_tells_its_record() {
        for record in (0..1000).chain([u64::MAX, 1 << 63, 0x1234_5678_9abc_def0]) {
            assert_eq!(of_word_key(word_key(record)), record);
            for size in [16, 20, 100] {
                let mut key = key(record, size);
                assert_eq!(of_key(&key, size), Some(record));
                assert_eq!((of_key(&key, size + 1), of_key(&key[1..], size)), (None, None));
                key[3] ^= 1;
                assert_eq!(of_key(&key, size), None);
            }
        }
        assert_eq!(of_key(b"short", 16), None);
    }

    #[test]
    fn keys_are_in_the_order_of_their_hashes() {
        let mut records: Vec<u64> = (0..1000).collect();
        records.sort_unstable_by_key(|record| (key_hash(*record), *record));
        assert!(records.windows(2).all(|pair| key(pair[0], 40) < key(pair[1], 40)));
    }

    #[test]
    fn each_record_is_in_the_share_of_its_loader() {
        for (writers, records) in [(1, 10), (3, 10), (7, 3), (64, 1000)] {
            for writer in 0..writers {
                let share = share_start(writer, writers, records)..share_start(writer + 1, writers, records);
                assert!(share.clone().all(|record| loader(record, writers, records) == writer), "{share:?}");
            }
            assert_eq!(share_start(writers, writers, records), records);
        }
    }
}
