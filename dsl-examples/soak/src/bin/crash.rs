//! `crash`: the processes of the crash test. `cargo xtask crash-test` starts and kills them.

use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use clap::{Parser, Subcommand};
use farfield::{Cluster, Error, Result};
use farfield_soak::crash::{judge, work};

/// How often the watch does something though nobody asks it.
const LOOK: Duration = Duration::from_millis(2);

/// The processes of the crash test.
#[derive(Parser)]
#[command(name = "crash", version)]
struct Args {
    #[command(subcommand)]
    role: Role,
}

#[derive(Subcommand)]
enum Role {
    /// Work on all structures until told to stop, or killed
    Work {
        /// The cluster
        cluster: String,
        /// Where to log each operation: a new file
        log: PathBuf,
        /// What the choices start from
        seed: u64,
    },
    /// Print the epoch for each line that is read
    Watch {
        /// The cluster
        cluster: String,
    },
    /// Tell all to stop
    Stop {
        /// The cluster
        cluster: String,
    },
    /// Look at what is left, and print it
    Judge {
        /// The cluster
        cluster: String,
        /// The directory of the logs
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
            // A thread that is never heard of would keep the memory of the dead from coming back.
            ct.yield_now().await;
            match asked.recv_timeout(LOOK) {
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
