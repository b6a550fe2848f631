//! The command `farfield`.
//!
//! | module | subcommands |
//! |---|---|
//! | `memnode`, `metrics` | `memnode`: hosts segments, and serves metrics over HTTP |
//! | `inspect` | `status`, `roots`, `dump`: show the state of a cluster |
//! | `maintain` | `evict`, `collect`, `checkpoint`, `restore`: maintain a cluster |
//! | `ping` | `ping`: measures times of operations |
//! | `devices` (with RDMA) | `devices`: lists RDMA devices |

#![forbid(unsafe_code)]

// First, since the others use its macro.
#[macro_use]
mod format;

#[cfg(feature = "_verbs")]
mod devices;
mod inspect;
mod maintain;
mod memnode;
mod metrics;
mod ping;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use farfield::error::Printable;

/// Run memory nodes, inspect clusters, and write and restore checkpoints.
#[derive(Parser)]
#[command(name = "farfield", version)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Host segments and admit processes until interrupted (Ctrl-C, SIGTERM)
    Memnode(memnode::Options),
    /// Show a cluster's processes, epoch, memory and roots
    Status(inspect::StatusOptions),
    /// List a cluster's roots with their types
    Roots(inspect::RootsOptions),
    /// Print a root's object field by field, and the objects that its links point to
    Dump(inspect::DumpOptions),
    /// Evict a process that has ended without leaving
    Evict(maintain::EvictOptions),
    /// Reclaim the memory of dead processes, while no process uses the cluster
    Collect(maintain::CollectOptions),
    /// Write all objects and roots to a file, while no process uses the cluster
    Checkpoint(maintain::FileOptions),
    /// Fill a new, empty cluster from a checkpoint
    Restore(maintain::FileOptions),
    /// Print a shell's completion script for this command
    Completions {
        /// Shell of the script
        shell: Shell,
    },
    /// Measure the times of operations on each memory node
    Ping(ping::Options),
    /// List the RDMA devices of this machine, and the ports and addresses that connections use
    #[cfg(feature = "_verbs")]
    Devices(devices::Options),
    /// List the RDMA devices of this machine (not in this build: it needs the feature `verbs`)
    #[cfg(not(feature = "_verbs"))]
    Devices(Ignored),
}

/// The arguments of a subcommand that this build does not have. All are accepted, so that the error names the missing feature.
#[cfg(not(feature = "_verbs"))]
#[derive(clap::Args)]
struct Ignored {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

fn main() -> ExitCode {
    let done = match Args::parse().command {
        Command::Memnode(options) => memnode::run(&options),
        Command::Status(options) => inspect::status(&options),
        Command::Roots(options) => inspect::roots(&options),
        Command::Dump(options) => inspect::dump(&options),
        Command::Evict(options) => maintain::evict(&options),
        Command::Collect(options) => maintain::collect(&options),
        Command::Checkpoint(options) => maintain::checkpoint(&options),
        Command::Restore(options) => maintain::restore(&options),
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
    let printed = format::output_error().map_or(Ok(()), |error| {
        Err(farfield::Error::other(format!("can not write to the standard output: {error}")))
    });
    match done.and(printed) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", Printable(error));
            ExitCode::from(2)
        }
    }
}
