//! Stalls: what waits for longer than it should is said once, on stderr.
//!
//! Most waits of this library end by a clock of their own, with an error. A program still hangs if what it waits for never happens: a
//! lock whose holder waits for something else, a future that nobody wakes, a task that computes and never gives way. With
//! `FARFIELD_STALL=5s` in the environment whatever waits longer than five seconds is reported: one line for each wait, which says who waits, for
//! what, since when, and what keeps it. Off, which is the default, none of this costs more than a branch where something waits already.
//!
//! | part | what it does |
//! |---|---|
//! | [`setting`] | the limit: from the environment, or a test's default |
//! | [`waits`] | a thread's waits, in a table that others can read |
//! | [`watcher`] | the thread that looks at all tables |
//!
//! # Why a stuck thread is found
//!
//! A thread publishes what it waits for when it *begins* to wait, and when each of its polls begins and ends. The watcher reads that; it needs
//! nothing of the thread that is stuck. In the simulator, where one thread of the system polls all, each simulated thread has its table in
//! virtual time, which the simulation itself looks at as that passes; the watcher looks whether it passes at all.
//!
//! What a line says beyond that (who holds a lock, what a lane has in flight) is found when it is printed, by a function that came with the
//! wait. It runs on the watcher's thread, without any lock of this module, and takes no lock that is held over a wait.
//!
//! # What is printed
//!
//! A library does not print. This is the one exception, and `cargo xtask tidy` knows it: a program that hangs returns no error, and has no
//! other way to say why. Lines go to the stream itself, past the capture of test harnesses, which would show them only after the test.

mod setting;
mod waits;
mod watcher;

use std::io::Write;
use std::time::Duration;

use super::chain::Chain;

pub use setting::{limit, set_default_limit};
pub use waits::{Clock, DescribeFlight, DescribeWait, Task, Waiting, Waits, blocked, blocked_for, lock};
pub use watcher::{WatchedSimulation, watch, watch_simulation};

/// A chain is in flight for a task; gives the key to leave by. `why` has what the fabric knows of it.
pub fn enter_flight(waits: &Waits, task: u32, chain: &Chain, why: DescribeFlight) -> u64 {
    let ops = chain.ops();
    let text = ops.first().map_or_else(String::new, |first| {
        let more =
            if ops.len() > 1 { format!(" and {} more operations", ops.len() - 1) } else { String::new() };
        format!("{} of {} words at {}{more}", first.name(), first.words(), first.at())
    });
    waits.enter_key(Task::Number(task), 0, Box::new(move |_| format!("{text}, in flight; {}", why())))
}

/// Prints one line.
fn print_line(text: &str) {
    let line = format!("farfield: stalled: {}\n", crate::error::Printable(text));
    // There is nobody to tell that nobody can be told.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// A duration for a person: three digits are enough.
fn shown(time: Duration) -> String {
    format!("{time:.1?}")
}
