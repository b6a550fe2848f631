//! Thread identities: the words by which locks name their owners.

use std::fmt;
use std::num::NonZeroU64;

/// Bits of a lock's token below the identity: a sequence number and the mark that it is a token.
const TOKEN_SHIFT: u32 = 16;

/// Identifies a compute thread among all live threads of the cluster. Never zero, so that a lock's word can name its owner.
///
/// On `local:` and `sim:` no identity is used twice. On `shm:` and `rdma:` an identity consists of the process's number, which is never used twice,
/// and a number in the process. That number may be used again after 16,777,215 threads of the process, if its thread has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ThreadId(NonZeroU64);

impl fmt::Display for ThreadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl ThreadId {
    /// Bits of a lock's token below the identity of its owner.
    pub const TOKEN_SHIFT: u32 = TOKEN_SHIFT;

    /// Makes the identity with this number.
    pub const fn new(number: NonZeroU64) -> Self {
        Self(number)
    }

    /// Returns the identity with this number; `None` for 0.
    pub const fn of_word(word: u64) -> Option<Self> {
        match NonZeroU64::new(word) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    /// Returns its number.
    pub const fn number(self) -> NonZeroU64 {
        self.0
    }

    /// Returns the identity in a token; `None` for 0 and for an abandoned lock's word.
    pub const fn of_token(token: u64) -> Option<Self> {
        match NonZeroU64::new(token >> TOKEN_SHIFT) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_names_its_owner_and_a_free_or_abandoned_word_none() {
        let id = ThreadId::new(NonZeroU64::new(0x0012_3456).unwrap());
        let token = id.number().get() << ThreadId::TOKEN_SHIFT | 0xabcd;
        assert_eq!(ThreadId::of_token(token), Some(id));
        assert_eq!(id.to_string(), "0x123456");
        for free in [0, 1, 0xffff] {
            assert_eq!(ThreadId::of_token(free), None);
        }
    }
}
