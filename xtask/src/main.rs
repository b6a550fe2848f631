//! Farfield's development tasks: `cargo xtask --help` lists them. Each task is a module of its name; [`workspace`] has files, commands and processes.

mod book;
mod ci;
mod contest_crash;
mod corrupt;
mod crash;
mod decisions;
mod drawings;
mod epochs;
mod figures;
mod fuzz;
mod imports;
mod instructions;
mod interlocked;
mod links;
mod markdown;
mod package;
mod rdma;
mod results;
mod sanitize;
mod scaling;
mod soak;
mod tables;
mod tcp;
mod tidy;
mod unrun;
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
    /// Run all checks and tests that a change must pass
    Ci(ci::Options),
    /// Check the architecture's invariants and the style rules
    Tidy(tidy::Options),
    /// Build the book and check its includes and links
    Book {
        /// Open it in a browser
        #[arg(long)]
        open: bool,
    },
    /// Package every crate that users depend on, and build each from its archive
    Package,
    /// Generate the book's drawings from their texts
    Drawings,
    /// Measure the figures that the project claims
    Results(results::Options),
    /// Count the instructions of each operation, under valgrind
    Instructions(instructions::Options),
    /// Soak the example structures in the simulator, and hunt planted bugs
    SimSoak(soak::Options),
    /// Test over RDMA, on a device of this host or in a virtual machine with a software device
    RdmaTest(rdma::Options),
    /// Test over TCP between two network namespaces; needs root's rights
    TcpTest,
    /// Kill processes of a cluster, and check the structures, the memory and the logs
    CrashTest(crash::Options),
    /// Kill processes that have a key-value store, and verify what is found after each kill
    ContestCrash(contest_crash::Options),
    /// Corrupt words of live far memory, and check how programs and tools end
    Corrupt(corrupt::Options),
    /// Fuzz the parsers of untrusted input
    Fuzz(fuzz::Options),
    /// Run the tests of unsafe code under address sanitizer; needs a nightly compiler
    Sanitize,
    /// Measure throughput and latency over threads and memory nodes in the simulator
    Scaling(scaling::Options),
    /// Measure the cost of deferred reclamation over the number of simulated nodes
    Epochs(epochs::Options),
    /// Measure insertions into an Interlocked Hash Table over the number of nodes, in the simulator
    Interlocked(interlocked::Options),
    /// Plot a table of `scaling`, `epochs` or `interlocked`
    #[cfg(feature = "plot")]
    #[command(hide = true)]
    Plot(tables::plot::Options),
}

fn main() -> ExitCode {
    let done = match Args::parse().task {
        Task::Ci(options) => ci::run(&options),
        Task::Tidy(options) => tidy::run(&options),
        Task::Book { open } => book::run().and_then(|()| if open { book::open() } else { Ok(()) }),
        Task::Package => package::run(),
        Task::Drawings => drawings::run(),
        Task::Results(options) => results::run(&options),
        Task::Instructions(options) => instructions::run(&options),
        Task::SimSoak(options) => soak::run(&options),
        Task::RdmaTest(options) => {
            results::recorded_figures().and_then(|recorded| rdma::run(&options, &recorded))
        }
        Task::TcpTest => tcp::run(),
        Task::CrashTest(options) => crash::run(&options),
        Task::ContestCrash(options) => contest_crash::run(&options),
        Task::Corrupt(options) => corrupt::run(&options),
        Task::Fuzz(options) => fuzz::run(&options),
        Task::Sanitize => sanitize::run(),
        Task::Scaling(options) => scaling::run(&options),
        Task::Epochs(options) => epochs::run(&options),
        Task::Interlocked(options) => interlocked::run(&options),
        #[cfg(feature = "plot")]
        Task::Plot(options) => tables::plot::run(&options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(line) => {
            eprintln!("error: {line}");
            ExitCode::from(2)
        }
    }
}
