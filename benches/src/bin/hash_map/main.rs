//! The maps of `farfield-collections` against maps of one process, LMDB and Redis.
//!
//! | command | figures | measurement |
//! |---|---|---|
//! | `hash_map native` | `native.hash-map.…` | one thread on `local:`, against `papaya`, `dashmap` and `scc`: see `native` |
//! | `hash_map ordered` | `native.ordered-map.…` | one thread on `local:`, against `scc::TreeIndex`: see `ordered` |
//! | `hash_map shared` | `shm.hash-map.…` | processes on `shm:`, against LMDB and Redis: see `shared` |
//! | `hash_map memory` | `hash-map.bytes_per_record.ratio` | the blocks that the allocator has handed out for it: see `memory` |
//!
//! The sides of a comparison take turns in rounds, and a figure is the median of the rounds' ratios. Medians of the times are on the standard error.

#![allow(clippy::cast_precision_loss)] // counts of at most some millions

mod lmdb;
mod memory;
mod native;
mod ordered;
mod records;
mod redis;
mod shared;

use std::process::ExitCode;

use farfield::Error;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["native"] => native::measure(),
        ["ordered"] => ordered::measure(),
        ["shared"] => shared::measure(),
        ["memory"] => memory::measure(),
        ["worker", url, folder] => shared::work(url, folder),
        _ => Err(Error::other("usage: hash_map native | ordered | shared | memory")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}
