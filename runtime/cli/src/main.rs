//! The `farfield` command.

#![forbid(unsafe_code)]

#[cfg(feature = "_verbs")]
mod devices;
mod memnode;
mod ping;

use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};

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

/// How to print.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// One JSON object
    Json,
}

fn main() -> ExitCode {
    let done = match Args::parse().command {
        Command::Memnode(options) => memnode::run(&options),
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
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}
