//! Entries: a key and its value, as one byte string.

use farfield::prelude::*;
use farfield::{Bytes, Error, error};

/// The most bytes of a value.
const MAX_VALUE_BYTES: usize = 1 << 20;
/// The most bytes of a key.
const MAX_KEY_BYTES: usize = 65_000;

/// The bytes of the length of a key, if it has any.
const fn prefix<K: Bytes>() -> usize {
    if K::LENGTH.is_some() { 0 } else { size_of::<u16>() }
}

/// Refuses a key or a value that is too long.
pub(crate) fn check_size(key: &[u8], value: &[u8]) -> Result<()> {
    let refused = |argument, length: usize, reason| {
        let value = format!("{length} bytes").into();
        Err(Error::from(error::InvalidArgument { argument, value, reason }))
    };
    if value.len() > MAX_VALUE_BYTES {
        return refused("value", value.len(), "a value has at most 1 MiB");
    }
    if key.len() > MAX_KEY_BYTES {
        return refused("key", key.len(), "a key has at most 65,000 bytes");
    }
    Ok(())
}

pub(crate) fn entry_bytes<K: Bytes>(key: &[u8], value: &[u8]) -> usize {
    prefix::<K>() + key.len() + value.len()
}

/// Writes an entry: the length of the key, if keys have different lengths, the key, and the value.
pub(crate) fn write_entry<K: Bytes>(key: &[u8], value: &[u8], out: &mut [u8]) {
    let (length, rest) = out.split_at_mut(prefix::<K>());
    length.copy_from_slice(&(key.len() as u16).to_le_bytes()[..length.len()]);
    rest[..key.len()].copy_from_slice(key);
    rest[key.len()..].copy_from_slice(value);
}

pub(crate) fn new_entry<K: Bytes>(key: &[u8], value: &[u8]) -> Result<Vec<u8>> {
    check_size(key, value)?;
    let mut entry = vec![0; entry_bytes::<K>(key, value)];
    write_entry::<K>(key, value, &mut entry);
    Ok(entry)
}

/// Returns the key and the value of an entry, or `None` if the bytes are none.
pub(crate) fn split_entry<K: Bytes>(entry: &[u8]) -> Option<(&[u8], &[u8])> {
    if let Some(length) = K::LENGTH {
        return entry.split_at_checked(length);
    }
    let (length, rest) = entry.split_first_chunk()?;
    rest.split_at_checked(usize::from(u16::from_le_bytes(*length)))
}

#[cold]
pub(crate) fn not_an_entry() -> Error {
    Error::other("an entry of the map has no key and value of its types")
}
