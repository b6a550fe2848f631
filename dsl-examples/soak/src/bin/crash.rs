//! `crash`: the processes of the crash test. `cargo xtask crash-test` starts and kills them.

use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use clap::{Parser, Subcommand};
use farfield::{Cluster, Error, Result};
use farfield_soak::crash::{judge, work};

/// Period at which the watch runs its thread while no line arrives.
const POLL: Duration = Duration::from_millis(2);

/// The processes of the crash test.
#[derive(Parser)]
#[command(name = "crash", version)]
struct Args {
    #[command(subcommand)]
    role: Role,
}

#[derive(Subcommand)]
enum Role {
    /// Operate on all structures until stopped or killed
    Work {
        /// The cluster's URL
        cluster: String,
        /// File for the log of operations; must not exist
        log: PathBuf,
        /// Seed of the random choices
        seed: u64,
    },
    /// Print the epoch for each line of the standard input
    Watch {
        /// The cluster's URL
        cluster: String,
    },
    /// Stop all processes
    Stop {
        /// The cluster's URL
        cluster: String,
    },
    /// Check the structures, the memory and the logs, and print the result
    Judge {
        /// The cluster's URL
        cluster: String,
        /// Directory of the logs
        logs: PathBuf,
    },
}

fn main() -> ExitCode {
    let done = match Args::parse().role {
        Role::Work { cluster, log, seed } => work::work(&cluster, &log, seed),
        Role::Watch { cluster } => watch(&cluster),
        Role::Stop { cluster } => judge::stop(&cluster),
        Role::Judge { cluster, logs } => judge::judge(&cluster, &logs).map(|verdict| show(&verdict)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn watch(url: &str) -> Result<()> {
    Cluster::connect(url)?.run(1, async |ct| {
        let (asks, asked) = mpsc::channel();
        std::thread::spawn(move || std::io::stdin().lock().lines().try_for_each(|line| asks.send(line)));
        loop {
            // A thread that never runs would delay the reclamation of dead processes' memory.
            ct.yield_now().await;
            match asked.recv_timeout(POLL) {
                Ok(line) => drop(line.map_err(Error::other)?),
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => break,
            }
            let mut out = std::io::stdout().lock();
            writeln!(out, "{}", ct.reclamation().await?.epoch).map_err(Error::other)?;
            out.flush().map_err(Error::other)?;
        }
        Ok(())
    })?;
    Ok(())
}

fn show(verdict: &judge::Verdict) {
    let judge::Verdict { returned, interrupted, half_written, faults, live_bytes, reachable_bytes } = verdict;
    println!("returned {returned}\ninterrupted {interrupted}\nhalf_written {half_written}");
    println!("live_bytes {live_bytes}\nreachable_bytes {reachable_bytes}");
    for fault in faults {
        println!("fault {fault}");
    }
}
