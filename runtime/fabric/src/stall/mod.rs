//! Stalls: each wait that lasts too long is reported once, on stderr.
//!
//! Most waits of this library have a timeout, and end with an error. A program still hangs if what it waits for never happens: a lock whose owner
//! waits too, a future that is never woken, a task that computes and never yields. With `FARFIELD_STALL=5s` in the environment each wait longer than
//! five seconds is reported by one line: the waiting thread, what it waits for, since when, and the obstacle. By default this is off, and costs a
//! branch for each wait.
//!
//! | module | contents |
//! |---|---|
//! | `setting` | the limit: from the environment, or a test's default |
//! | `waits` | a thread's waits, in a table that others can read |
//! | `watcher` | the thread that checks all tables |
//!
//! # Why a stuck thread is found
//!
//! A thread publishes what it waits for when it *begins* to wait, and when each of its polls begins and ends. The watcher reads that, and needs no
//! action of the stuck thread. In the simulator, where one system thread polls all, each simulated thread has a table in virtual time, which the
//! simulation checks as time passes; the watcher checks that time passes.
//!
//! Further details of a line (the owner of a lock, the requests in flight on a lane) come from a function that was stored with the wait. The
//! watcher's thread calls it when the line is printed, without any lock of this module; it takes no lock that is held over a wait.
//!
//! # Output
//!
//! The library does not print, with this one exception, which `cargo xtask tidy` knows: a program that hangs returns no error that could explain it.
//! Lines go to the stream itself, past the capture of test harnesses, which would show them only after the test.

mod setting;
mod waits;
mod watcher;

use std::io::Write;
use std::time::Duration;

use super::chain::Op;

pub use setting::{limit, set_default_limit};
pub use waits::{Clock, DescribeFlight, DescribeWait, Task, Waiting, Waits, blocked, blocked_for, lock};
pub use watcher::{WatchedSimulation, watch, watch_simulation};

/// Enters the wait of a task for a chain in flight. Returns its key for [`Waits::leave`]. `why` returns the fabric's details.
pub fn enter_flight(waits: &Waits, task: u32, ops: &[Op], why: DescribeFlight) -> u64 {
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
    // A failure to write to stderr can not be reported.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Formats a duration for a message.
fn shown(time: Duration) -> String {
    format!("{time:.1?}")
}
