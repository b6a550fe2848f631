//! Corrupts words in the memory of a cluster, as it is told.
//!
//! The hand does what it reads from its standard input, line by line, and answers with one line each:
//!
//! | line | what it does | answer |
//! |---|---|---|
//! | `crowd` | takes all records in the control block for the first process, so that others get theirs on pages | `crowded` |
//! | `case K` | corrupts the word of case `K`, if it is of the kind that is asked for | kind, address, old and new value, how, and the word's name; or `other` |
//! | `list K` | waits until a sweep has made a list of candidates, and corrupts a word of that; if there is none soon, as `case K` | the same |
//! | `mend` | puts the word back if it is still as corrupted | `mended` or `changed` |

use std::io::{self, BufRead, Write};
use std::time::{Duration, Instant};

use super::choice;
use super::memory::Memory;

/// For how long a list of candidates is waited for, and how often the hand looks for one: it lasts for some ticks of keepers.
const PATIENCE: Duration = Duration::from_millis(500);
const LOOK: Duration = Duration::from_micros(500);

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
