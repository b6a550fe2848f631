//! Writing into the memory of a cluster from outside.
//!
//! The hand is no member: it opens the memory that the memory node has open, by the node's number and `/proc`, and reads and writes words of the
//! file. So it works whatever is in far memory, and nothing in the cluster knows of it.
//!
//! It does what it reads from its standard input, line by line, and answers with one line each:
//!
//! | line | what it does | answer |
//! |---|---|---|
//! | `crowd` | takes all records in the control block for the first process, so that others get theirs on pages | `crowded` |
//! | `case K` | corrupts the word of case `K`, if it is of the kind that is asked for | kind, address, old and new value, how, and the word's name; or `other` |
//! | `list K` | waits until a sweep has made a list of candidates, and corrupts a word of that; if there is none soon, as `case K` | the same |
//! | `mend` | puts the word back if it is still as corrupted | `mended` or `changed` |

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use farfield::__private::Address;
use farfield::__private::metadata::Map;

use super::choice;

/// For how long a list of candidates is waited for, and how often the hand looks for one: it lasts for some ticks of keepers.
const PATIENCE: Duration = Duration::from_millis(500);
const LOOK: Duration = Duration::from_micros(500);

/// Far memory, as the hand sees it.
pub struct Memory {
    file: File,
    map: Map,
}

impl Memory {
    /// The memory that a process has open: a file of that name, or one without a name.
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

    /// Where what is.
    pub fn map(&self) -> &Map {
        &self.map
    }

    /// A word; 0 where there is no memory.
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

    /// Gives every record of the control block to the first process, before there is any: all that come get theirs on pages.
    fn crowd(&self) -> io::Result<()> {
        // The state of a record is its process's number and one.
        self.map.records().try_for_each(|record| self.set(record, 2))?;
        Ok(())
    }
}

/// Waits for a list of candidates, for a while.
fn of_list(memory: &Memory, seed: u64, number: u64) -> Option<choice::Case> {
    let began = Instant::now();
    loop {
        let case = choice::case_of_list(memory, seed, number);
        if case.is_some() || began.elapsed() > PATIENCE {
            return case;
        }
        std::thread::sleep(LOOK);
    }
}

/// Does what it is told until there is nothing more to read. Only words whose kind begins with `only` are corrupted.
///
/// # Errors
/// Those of the system.
pub fn run(memory: &Memory, seed: u64, only: &str) -> io::Result<()> {
    let mut corrupted = None;
    for line in io::stdin().lock().lines() {
        let line = line?;
        let answer = match line.split_once(' ') {
            None if line == "crowd" => memory.crowd().map(|()| "crowded".to_owned())?,
            None if line == "mend" => {
                let was_there = match corrupted.take() {
                    Some(choice::Case { at, old, new, .. }) if memory.word(at) == new => {
                        memory.set(at, old).map(|()| true)?
                    }
                    _ => false,
                };
                if was_there { "mended" } else { "changed" }.to_owned()
            }
            Some((what @ ("case" | "list"), number)) => {
                let number = number.parse().map_err(io::Error::other)?;
                let of_list = if what == "list" { of_list(memory, seed, number) } else { None };
                let case = of_list.unwrap_or_else(|| choice::case(memory, seed, number));
                if case.kind.starts_with(only) {
                    memory.set(case.at, case.new)?;
                    let text = case.to_string();
                    corrupted = Some(case);
                    text
                } else {
                    "other".to_owned()
                }
            }
            _ => return Err(io::Error::other(format!("`{line}` is nothing to do"))),
        };
        let mut out = io::stdout().lock();
        writeln!(out, "{answer}")?;
        out.flush()?;
    }
    Ok(())
}
