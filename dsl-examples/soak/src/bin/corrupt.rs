//! `corrupt`: the processes of the corruption test. `cargo xtask corrupt` starts them.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use farfield::__private::metadata::Map;
use farfield::{Error, Result};
use farfield_soak::corrupt::memory::Memory;
use farfield_soak::corrupt::{hand, program};

/// The processes of the corruption test.
#[derive(Parser)]
#[command(name = "corrupt", version)]
struct Args {
    #[command(subcommand)]
    role: Role,
}

#[derive(Subcommand)]
enum Role {
    /// Work on all structures until the standard input ends
    Program {
        /// The cluster
        cluster: String,
        /// What the choices start from
        seed: u64,
    },
    /// Corrupt words of a cluster's memory, as the standard input says
    Hand {
        /// The process that is the memory node
        pid: u32,
        /// What the choices start from
        seed: u64,
        /// How many memory nodes there are
        nodes: u16,
        /// How many segments each has
        segments: u16,
        /// The bytes of each
        segment_bytes: u64,
        /// How the kinds of words begin that are corrupted
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
        Role::Program { cluster, seed } => program::run(&cluster, seed),
        Role::Hand { pid, seed, nodes, segments, segment_bytes, only } => {
            let map = Map::new(nodes, segments, segment_bytes);
            let map = map.ok_or_else(|| Error::other("there is no such memory"))?;
            let memory = Memory::of_process(pid, map);
            hand::run(&memory.map_err(Error::other)?, seed, &only).map_err(Error::other)
        }
    }
}
