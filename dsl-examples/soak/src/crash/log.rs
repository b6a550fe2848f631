//! A process's log: the invocation and return of each operation, numbered in the history of all processes.
//!
//! An entry is 16 bytes: the event's number, and the operation or result. It is written immediately, so it survives a kill. An invocation
//! is written before the operation begins, and a return after the operation has returned. So an operation without a return may have taken
//! effect or not.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use crate::structures::{Operation, Target};

/// An operation on a key, read from a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The operation.
    pub operation: Operation,
    /// The key.
    pub key: u64,
    /// The event of its invocation.
    pub invoked: u64,
    /// The event of its return, and its result.
    pub returned: Option<(u64, u64)>,
}

impl Call {
    /// The value that it inserts, if the structure holds values: unique over all calls of all processes.
    pub fn value(&self) -> u64 {
        value_of(self.invoked)
    }
}

/// The value that the operation invoked by an event inserts; the inverse function is the same.
///
/// Values are large: a small one could look like an address, and prevent a block from being swept.
pub fn value_of(event: u64) -> u64 {
    (1 << 61) - 1 - event
}

const RETURN: u64 = 1 << 63;
const TARGET_SHIFT: u32 = 58;
const OPERATION_SHIFT: u32 = 56;
const KEYS: u64 = (1 << OPERATION_SHIFT) - 1;

/// A log that is being written.
pub struct Log(File);

impl Log {
    /// An empty log.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn create(path: &Path) -> io::Result<Self> {
        File::create_new(path).map(Self)
    }

    fn write(&mut self, event: u64, what: u64) -> io::Result<()> {
        let mut entry = [0; 16];
        entry[..8].copy_from_slice(&event.to_le_bytes());
        entry[8..].copy_from_slice(&what.to_le_bytes());
        self.0.write_all(&entry)
    }

    /// Records that an operation is about to begin.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn invoked(&mut self, event: u64, target: Target, operation: Operation, key: u64) -> io::Result<()> {
        self.write(event, (target as u64) << TARGET_SHIFT | (operation as u64) << OPERATION_SHIFT | key)
    }

    /// Records its return.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn returned(&mut self, event: u64, answer: u64) -> io::Result<()> {
        self.write(event, RETURN | answer)
    }
}

/// Reads a log; returns each call with its target.
///
/// # Errors
/// Those of the file system, and a log that no process can have written.
pub fn read(path: &Path) -> io::Result<Vec<(Target, Call)>> {
    let mut bytes = Vec::new();
    File::open(path)?.read_to_end(&mut bytes)?;
    let mut calls: Vec<(Target, Call)> = Vec::new();
    let malformed = || io::Error::other(format!("{}: the log is malformed", path.display()));
    for entry in bytes.as_chunks::<16>().0 {
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| entry[at + byte]));
        let (event, what) = (word(0), word(8));
        if what & RETURN != 0 {
            let (_, last) = calls.last_mut().ok_or_else(malformed)?;
            if last.returned.is_some() || event <= last.invoked {
                return Err(malformed());
            }
            last.returned = Some((event, what & !RETURN));
            continue;
        }
        let target = *Target::ALL.get((what >> TARGET_SHIFT) as usize).ok_or_else(malformed)?;
        let operation = match what >> OPERATION_SHIFT & 3 {
            0 => Operation::Get,
            1 => Operation::Insert,
            2 => Operation::Remove,
            _ => Operation::Upsert,
        };
        calls.push((target, Call { operation, key: what & KEYS, invoked: event, returned: None }));
    }
    Ok(calls)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_read_as_it_was_written() {
        let path = std::env::temp_dir().join(format!("farfield-log-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let mut log = Log::create(&path).unwrap();
        log.invoked(3, Target::Harris, Operation::Remove, 7).unwrap();
        log.returned(5, 1 << 61).unwrap();
        log.invoked(9, Target::Records, Operation::Insert, 0).unwrap();
        log.0.write_all(&[1, 2, 3]).unwrap();
        let read = read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let remove = Call { operation: Operation::Remove, key: 7, invoked: 3, returned: Some((5, 1 << 61)) };
        let insert = Call { operation: Operation::Insert, key: 0, invoked: 9, returned: None };
        assert_eq!(read, [(Target::Harris, remove), (Target::Records, insert)]);
    }
}
