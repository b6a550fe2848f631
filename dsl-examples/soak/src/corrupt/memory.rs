//! The memory of a cluster, accessed by a process that is no member.
//!
//! A [`Memory`] is the file that the memory node has open, found through the node's process id in `/proc`. Words are read and written in
//! that file directly, without a connection to the cluster. So corrupt memory does not affect it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use farfield::__private::Address;
use farfield::__private::metadata::Map;

/// Far memory as a file.
pub struct Memory {
    file: File,
    map: Map,
}

impl Memory {
    /// The memory that a process has open: a file of that name, or a `memfd`.
    ///
    /// # Errors
    /// Those of the system; one if the process has no such file open.
    pub fn of_process(pid: u32, map: Map) -> io::Result<Self> {
        let folder = format!("/proc/{pid}/fd");
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            let Ok(target) = fs::read_link(&path) else { continue };
            let is_memory = target.ends_with("memory") || target.to_string_lossy().starts_with("/memfd:");
            if is_memory {
                let file = OpenOptions::new().read(true).write(true).open(&path)?;
                if file.metadata()?.len() >= map.bytes() {
                    return Ok(Self { file, map });
                }
            }
        }
        Err(io::Error::other(format!("{folder}: no far memory")))
    }

    /// Memory in a file, for tests.
    ///
    /// # Errors
    /// Those of the system.
    pub fn in_file(path: &Path, map: Map) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        Ok(Self { file, map })
    }

    /// The map of its words.
    pub fn map(&self) -> &Map {
        &self.map
    }

    /// A word; 0 outside memory.
    pub fn word(&self, at: Address) -> u64 {
        let mut bytes = [0; 8];
        let read = self.file.read_exact_at(&mut bytes, self.map.place(at));
        if read.is_ok() { u64::from_le_bytes(bytes) } else { 0 }
    }

    /// Writes a word.
    ///
    /// # Errors
    /// Those of the system.
    pub fn set(&self, at: Address, word: u64) -> io::Result<()> {
        self.file.write_all_at(&word.to_le_bytes(), self.map.place(at))
    }

    /// Assigns every record of the control block to the first process, before any process registers. Later processes get records on pages.
    pub(super) fn occupy_records(&self) -> io::Result<()> {
        // The state of a record is its process's number plus one.
        self.map.records().try_for_each(|record| self.set(record, 2))?;
        Ok(())
    }
}
