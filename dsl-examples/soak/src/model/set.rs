//! `Set`: a set of keys. Each key is a part of its own.

use super::{Model, Step};

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

    fn show(operation: SetOperation) -> String {
        match operation {
            SetOperation::Get(key) => format!("get({key})"),
            SetOperation::Insert(key) => format!("insert({key})"),
            SetOperation::Remove(key) => format!("remove({key})"),
        }
    }

    fn part(operation: SetOperation) -> u64 {
        let (SetOperation::Get(key) | SetOperation::Insert(key) | SetOperation::Remove(key)) = operation;
        key
    }

    /// A key may come back, so nothing can be said of what becomes of it.
    fn puts(_: SetOperation) -> Option<u64> {
        None
    }

    fn takes(_: SetOperation) -> bool {
        false
    }

    fn taken(_: bool) -> Option<u64> {
        None
    }

    fn step(step: &Step<Self>, present: &mut bool) -> bool {
        step.agrees(match step.operation {
            SetOperation::Get(_) => *present,
            SetOperation::Insert(_) => !std::mem::replace(present, true),
            SetOperation::Remove(_) => std::mem::replace(present, false),
        })
    }
}
