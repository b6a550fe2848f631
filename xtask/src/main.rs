//! Farfield's development tasks.
//!
//! | command | what it does |
//! |---|---|
//! | `cargo xtask ci` | everything that a change must pass, in order; stops at the first failure |
//! | `cargo xtask tidy` | holds the architecture's invariants and the house rules |
//! | `cargo xtask book` | builds the book and checks its includes and links |
//! | `cargo xtask results` | measures every figure that the project claims |

mod book;
mod ci;
mod markdown;
mod results;
mod tidy;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Farfield's development tasks.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Run everything that a change must pass
    Ci,
    /// Hold the architecture's invariants and the house rules
    Tidy,
    /// Build the book and check its includes and links
    Book {
        /// Show it in a browser
        #[arg(long)]
        open: bool,
    },
    /// Measure the figures that the project claims
    Results(results::Options),
}

fn main() -> ExitCode {
    let done = match Args::parse().task {
        Task::Ci => ci::run(),
        Task::Tidy => tidy::run(),
        Task::Book { open } => book::run().and_then(|()| if open { book::open() } else { Ok(()) }),
        Task::Results(options) => results::run(&options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(line) => {
            eprintln!("error: {line}");
            ExitCode::from(2)
        }
    }
}
