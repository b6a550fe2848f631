//! `Set`: a set of keys. Each key is a part of its own.

use farfield_testing::Model;

/// A set of keys.
#[derive(Debug)]
pub struct Set;

/// What can be asked of a [`Set`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetOperation {
    /// Whether the key is there.
    Get(u64),
    /// Puts it in; whether it was not there.
    Insert(u64),
    /// Takes it out; whether it was there.
    Remove(u64),
}

impl Model for Set {
    type Operation = SetOperation;
    type Returned = bool;
    /// Whether the part's only key is there.
    type State = bool;

    fn step(present: &mut bool, operation: &SetOperation) -> bool {
        match operation {
            SetOperation::Get(_) => *present,
            SetOperation::Insert(_) => !std::mem::replace(present, true),
            SetOperation::Remove(_) => std::mem::replace(present, false),
        }
    }

    fn part(operation: &SetOperation) -> u64 {
        operation.key()
    }

    fn show(operation: &SetOperation) -> String {
        match operation {
            SetOperation::Get(key) => format!("get({key})"),
            SetOperation::Insert(key) => format!("insert({key})"),
            SetOperation::Remove(key) => format!("remove({key})"),
        }
    }
}

impl SetOperation {
    /// The key that it is about.
    pub fn key(self) -> u64 {
        let (Self::Get(key) | Self::Insert(key) | Self::Remove(key)) = self;
        key
    }

    /// The same with another key.
    #[must_use]
    pub fn with_key(self, key: u64) -> Self {
        match self {
            Self::Get(_) => Self::Get(key),
            Self::Insert(_) => Self::Insert(key),
            Self::Remove(_) => Self::Remove(key),
        }
    }
}
