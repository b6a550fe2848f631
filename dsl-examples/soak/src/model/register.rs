//! `Register`: a value that is read and replaced.

use super::{Model, Step};

/// A register; 0 until it is written.
#[derive(Debug)]
pub struct Register;

/// What can be asked of a [`Register`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Its value.
    Read,
    /// Replaces its value, and returns the new one.
    Write(u64),
}

impl Model for Register {
    type Operation = Access;
    type Returned = u64;
    type State = u64;

    fn show(operation: Access) -> String {
        match operation {
            Access::Read => "read()".to_owned(),
            Access::Write(value) => format!("write({value})"),
        }
    }

    fn part(_: Access) -> u64 {
        0
    }

    /// A value that was read can be read again.
    fn puts(_: Access) -> Option<u64> {
        None
    }

    fn takes(_: Access) -> bool {
        false
    }

    fn taken(_: u64) -> Option<u64> {
        None
    }

    fn step(step: &Step<Self>, value: &mut u64) -> bool {
        if let Access::Write(new) = step.operation {
            *value = new;
        }
        step.agrees(*value)
    }
}
