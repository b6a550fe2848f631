//! The records of the comparisons.

/// The records of a map that has grown.
pub(crate) const RECORDS: u64 = 1_000_000;
/// The bytes of the keys and values of LMDB's, Redis's and their peers' records.
pub(crate) const KEY_BYTES: usize = 16;
pub(crate) const VALUE_BYTES: usize = 128;

pub(crate) type Key = [u8; KEY_BYTES];
pub(crate) type Value = [u8; VALUE_BYTES];

/// Returns the key of a record.
pub(crate) fn key(record: u64) -> Key {
    let mut key = [b'k'; KEY_BYTES];
    // Multiplication by an odd number is a bijection: neighbouring records have keys that are not neighbours in a tree.
    key[8..].copy_from_slice(&record.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    key
}

/// Returns a value of a record. Its first bytes are the record's number.
pub(crate) fn value(record: u64, version: u8) -> Value {
    let mut value = [version; VALUE_BYTES];
    value[..8].copy_from_slice(&record.to_le_bytes());
    value
}

/// Returns whether some bytes are a value of a record.
pub(crate) fn is_value(bytes: &[u8], record: u64) -> bool {
    bytes.len() == VALUE_BYTES && bytes[..8] == record.to_le_bytes()
}
