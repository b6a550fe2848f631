//! A process's log: each operation's invocation and return, with its place in the history of all processes.
//!
//! An entry is 16 bytes: the event's number, and what it is. It is written at once, so that it is there also if the process is
//! killed in the next instant. An invocation is written before the operation begins, a return after it has returned: so an operation
//! without a return may have taken effect or not.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use crate::stage::{Operation, Which};

/// An operation on a key, as a log shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// What is done.
    pub operation: Operation,
    /// The event that it began with.
    pub invoked: u64,
    /// The event that it ended with, and its answer.
    pub returned: Option<(u64, u64)>,
}

impl Call {
    /// The value that it puts in, where the structure holds values: no other call of any process has the same.
    pub fn value(&self) -> u64 {
        value_of(self.invoked)
    }
}

/// The value that the operation puts in which an event began; the event, if it is given the value.
///
/// A large number: a small one would look like an address, and keep from being swept what is there.
pub fn value_of(event: u64) -> u64 {
    (1 << 61) - 1 - event
}

const RETURN: u64 = 1 << 63;
const WHICH_SHIFT: u32 = 58;
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

    /// An operation is about to begin.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn invoked(&mut self, event: u64, which: Which, operation: Operation, key: u64) -> io::Result<()> {
        self.write(event, (which as u64) << WHICH_SHIFT | (operation as u64) << OPERATION_SHIFT | key)
    }

    /// It has ended.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn returned(&mut self, event: u64, answer: u64) -> io::Result<()> {
        self.write(event, RETURN | answer)
    }
}

/// Reads a log; gives each call with the structure and the key that it was on.
///
/// # Errors
/// Those of the file system, and a log that no process can have written.
pub fn read(path: &Path) -> io::Result<Vec<(Which, u64, Call)>> {
    let mut bytes = Vec::new();
    File::open(path)?.read_to_end(&mut bytes)?;
    let mut calls: Vec<(Which, u64, Call)> = Vec::new();
    let strange = || io::Error::other(format!("{}: no process writes such a log", path.display()));
    for entry in bytes.as_chunks::<16>().0 {
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| entry[at + byte]));
        let (event, what) = (word(0), word(8));
        if what & RETURN != 0 {
            let (_, _, last) = calls.last_mut().ok_or_else(strange)?;
            if last.returned.is_some() || event <= last.invoked {
                return Err(strange());
            }
            last.returned = Some((event, what & !RETURN));
            continue;
        }
        let which = *Which::ALL.get((what >> WHICH_SHIFT) as usize).ok_or_else(strange)?;
        let operation = match what >> OPERATION_SHIFT & 3 {
            0 => Operation::Get,
            1 => Operation::Insert,
            2 => Operation::Remove,
            _ => return Err(strange()),
        };
        calls.push((which, what & KEYS, Call { operation, invoked: event, returned: None }));
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
        log.invoked(3, Which::Harris, Operation::Remove, 7).unwrap();
        log.returned(5, 1 << 61).unwrap();
        log.invoked(9, Which::Records, Operation::Insert, 0).unwrap();
        log.0.write_all(&[1, 2, 3]).unwrap();
        let read = read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let remove = Call { operation: Operation::Remove, invoked: 3, returned: Some((5, 1 << 61)) };
        let insert = Call { operation: Operation::Insert, invoked: 9, returned: None };
        assert_eq!(read, [(Which::Harris, 7, remove), (Which::Records, 0, insert)]);
    }
}
