//! Corrupts words in the memory of a cluster, by command.
//!
//! Each line of the standard input is a command, with one line of answer:
//!
//! | command | effect | answer |
//! |---|---|---|
//! | `occupy` | assigns all records in the control block to the first process, so that other processes get records on pages | `occupied` |
//! | `case K` | corrupts the word of case `K`, if it is of the selected kind | kind, address, old and new value, how, and the word's name; or `other` |
//! | `list K` | waits until a sweep has made a list of candidates, and corrupts a word of it; after a timeout, as `case K` | the same |
//! | `restore` | restores the word if it still has the corrupted value | `restored` or `changed` |

use std::io::{self, BufRead, Write};
use std::time::{Duration, Instant};

use super::cases;
use super::memory::Memory;

/// Timeout and polling period of the wait for a list of candidates, which exists for some ticks of keepers.
const TIMEOUT: Duration = Duration::from_millis(500);
const POLL: Duration = Duration::from_micros(500);

/// Waits for a list of candidates until the timeout.
fn of_list(memory: &Memory, seed: u64, number: u64) -> Option<cases::Case> {
    let began = Instant::now();
    loop {
        let case = cases::case_of_list(memory, seed, number);
        if case.is_some() || began.elapsed() > TIMEOUT {
            return case;
        }
        std::thread::sleep(POLL);
    }
}

/// Executes commands until the standard input ends. Corrupts only words whose kind begins with `only`.
///
/// # Errors
/// Those of the system.
pub fn run(memory: &Memory, seed: u64, only: &str) -> io::Result<()> {
    let mut corrupted = None;
    for line in io::stdin().lock().lines() {
        let line = line?;
        let answer = match line.split_once(' ') {
            None if line == "occupy" => memory.occupy_records().map(|()| "occupied".to_owned())?,
            None if line == "restore" => {
                let restored = match corrupted.take() {
                    Some(cases::Case { at, old, new, .. }) if memory.word(at) == new => {
                        memory.set(at, old).map(|()| true)?
                    }
                    _ => false,
                };
                if restored { "restored" } else { "changed" }.to_owned()
            }
            Some((what @ ("case" | "list"), number)) => {
                let number = number.parse().map_err(io::Error::other)?;
                let of_list = if what == "list" { of_list(memory, seed, number) } else { None };
                let case = of_list.unwrap_or_else(|| cases::case(memory, seed, number));
                if case.kind.starts_with(only) {
                    memory.set(case.at, case.new)?;
                    let text = case.to_string();
                    corrupted = Some(case);
                    text
                } else {
                    "other".to_owned()
                }
            }
            _ => return Err(io::Error::other(format!("`{line}` is no command"))),
        };
        let mut out = io::stdout().lock();
        writeln!(out, "{answer}")?;
        out.flush()?;
    }
    Ok(())
}
