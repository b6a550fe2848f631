//! What is wrong with a record, or with an argument.

use std::fmt;

/// What is wrong with a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// Its words are not those of a record.
    NotARecord,
    /// It is encrypted, and the store has no key.
    NoKey,
    /// It was encrypted by another key than the store's.
    OtherKey,
    /// It is not what was encrypted.
    Tampered,
    /// It is the record of a key that the index does not have there.
    Misplaced,
    /// It could not be encrypted.
    Encryption,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotARecord => "far memory has no record where the index says",
            Self::NoKey => "a record is encrypted, and the store was started without a key",
            Self::OtherKey => "a record was encrypted by another key",
            Self::Tampered => "a record is not what the store has encrypted: far memory was tampered with",
            Self::Misplaced => "far memory has another key's record where the index says",
            Self::Encryption => "a record could not be encrypted",
        })
    }
}

impl std::error::Error for Fault {}

impl From<Fault> for farfield::Error {
    fn from(fault: Fault) -> Self {
        Self::other(fault)
    }
}

/// Returns the error for an argument that can not be used.
#[cold]
pub(crate) fn invalid(argument: &'static str, value: String, reason: &'static str) -> farfield::Error {
    farfield::Error::from(farfield::error::InvalidArgument { argument, value: value.into(), reason })
}
