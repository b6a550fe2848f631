//! Model of a set of keys. Each key is a part of its own.

use farfield_testing::Model;

/// A set of keys.
#[derive(Debug)]
pub struct Set;

/// Operations of a [`Set`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetOperation {
    /// Returns whether the key is present.
    Get(u64),
    /// Inserts the key; returns `true` if it was absent.
    Insert(u64),
    /// Removes the key; returns `true` if it was present.
    Remove(u64),
}

impl Model for Set {
    type Operation = SetOperation;
    type Returned = bool;
    /// True if the part's only key is present.
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
    /// The key of the operation.
    pub fn key(self) -> u64 {
        let (Self::Get(key) | Self::Insert(key) | Self::Remove(key)) = self;
        key
    }

    /// The same operation on another key.
    #[must_use]
    pub fn with_key(self, key: u64) -> Self {
        match self {
            Self::Get(_) => Self::Get(key),
            Self::Insert(_) => Self::Insert(key),
            Self::Remove(_) => Self::Remove(key),
        }
    }
}
