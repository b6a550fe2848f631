//! Model of a register.

use farfield_testing::Model;

/// A register; initially 0.
#[derive(Debug)]
pub struct Register;

/// Operations of a [`Register`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Returns the value.
    Read,
    /// Replaces its value, and returns the new one.
    Write(u64),
}

impl Model for Register {
    type Operation = Access;
    type Returned = u64;
    type State = u64;

    fn step(value: &mut u64, access: &Access) -> u64 {
        if let Access::Write(new) = *access {
            *value = new;
        }
        *value
    }

    fn show(access: &Access) -> String {
        match access {
            Access::Read => "read()".to_owned(),
            Access::Write(value) => format!("write({value})"),
        }
    }
}
