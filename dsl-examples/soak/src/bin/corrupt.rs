//! `corrupt`: the processes of the corruption test. `cargo xtask corrupt` starts them.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use farfield::__private::metadata::Map;
use farfield::{Error, Result};
use farfield_soak::corrupt::memory::Memory;
use farfield_soak::corrupt::{injector, worker};

/// The processes of the corruption test.
#[derive(Parser)]
#[command(name = "corrupt", version)]
struct Args {
    #[command(subcommand)]
    role: Role,
}

#[derive(Subcommand)]
enum Role {
    /// Operate on all structures until the standard input ends
    Worker {
        /// The cluster's URL
        cluster: String,
        /// Seed of the random choices
        seed: u64,
    },
    /// Corrupt words of a cluster's memory, as commands on the standard input say
    Inject {
        /// Process id of the memory node
        pid: u32,
        /// Seed of the random choices
        seed: u64,
        /// Number of memory nodes
        nodes: u16,
        /// Number of segments of each memory node
        segments: u16,
        /// Bytes of each segment
        segment_bytes: u64,
        /// Prefix of the kinds of words that are corrupted
        #[arg(default_value = "")]
        only: String,
    },
}

fn main() -> ExitCode {
    match run(Args::parse().role) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(role: Role) -> Result<()> {
    match role {
        Role::Worker { cluster, seed } => worker::run(&cluster, seed),
        Role::Inject { pid, seed, nodes, segments, segment_bytes, only } => {
            let map = Map::new(nodes, segments, segment_bytes);
            let map = map.ok_or_else(|| Error::other("no memory has this many nodes, segments and bytes"))?;
            let memory = Memory::of_process(pid, map);
            injector::run(&memory.map_err(Error::other)?, seed, &only).map_err(Error::other)
        }
    }
}
