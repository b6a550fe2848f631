//! The `farfield` command.

#![forbid(unsafe_code)]

#[cfg(feature = "_verbs")]
mod devices;
mod format;
mod keep;
mod look;
mod memnode;
mod metrics;
mod ping;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use farfield::error::Printable;

/// Memory nodes, and what there is to see of a cluster.
#[derive(Parser)]
#[command(name = "farfield", version)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Host segments and let processes in until told to stop (Ctrl-C, SIGTERM)
    Memnode(memnode::Options),
    /// Show a cluster's processes, epoch, memory and roots
    Status(look::StatusOptions),
    /// List a cluster's roots with their types
    Roots(look::RootsOptions),
    /// Print the object that a root names, field by field, and what it leads to
    Dump(look::DumpOptions),
    /// Evict a process that has ended without leaving
    Evict(keep::EvictOptions),
    /// Take back the memory that dead processes have left in a cluster that nobody uses
    Collect(keep::CollectOptions),
    /// Write a cluster that nobody uses to a file
    Checkpoint(keep::FileOptions),
    /// Fill a new, empty cluster from such a file
    Restore(keep::FileOptions),
    /// Print what a shell needs to complete this command
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print how long round trips to each memory node take
    Ping(ping::Options),
    /// List the RDMA devices of this machine and what Farfield would use
    #[cfg(feature = "_verbs")]
    Devices(devices::Options),
    /// List the RDMA devices of this machine (not in this build: it needs the feature `verbs`)
    #[cfg(not(feature = "_verbs"))]
    Devices(Anything),
}

/// The arguments of a command that is not there.
#[cfg(not(feature = "_verbs"))]
#[derive(clap::Args)]
struct Anything {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

fn main() -> ExitCode {
    let done = match Args::parse().command {
        Command::Memnode(options) => memnode::run(&options),
        Command::Status(options) => look::status(&options),
        Command::Roots(options) => look::roots(&options),
        Command::Dump(options) => look::dump(&options),
        Command::Evict(options) => keep::evict(&options),
        Command::Collect(options) => keep::collect(&options),
        Command::Checkpoint(options) => keep::checkpoint(&options),
        Command::Restore(options) => keep::restore(&options),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Args::command(), "farfield", &mut std::io::stdout());
            Ok(())
        }
        Command::Ping(options) => ping::run(&options),
        #[cfg(feature = "_verbs")]
        Command::Devices(options) => devices::run(&options),
        #[cfg(not(feature = "_verbs"))]
        Command::Devices(_) => {
            Err(farfield::Error::other("this build has no RDMA: it needs `--features verbs`"))
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", Printable(error));
            ExitCode::from(2)
        }
    }
}
