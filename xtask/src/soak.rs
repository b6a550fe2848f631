//! `cargo xtask sim-soak`: the example structures in the simulator, seed after seed.

use clap::Args;

use crate::workspace::run as command;

/// Of so many seeds with faults, each on all structures, one history may be too hard to be checked: there are 8 in 10,000, all of registers.
const SEEDS_FOR_ONE_UNDECIDED: u32 = 1000;

/// How long to soak.
#[derive(Args)]
pub(crate) struct Options {
    /// Seeds for each structure, without faults and with them
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    seeds: u32,
}

impl Options {
    /// What every change has to pass.
    pub(crate) fn short() -> Self {
        Self { seeds: 1000 }
    }
}

/// Soaks, and hunts planted bugs: a soak that finds nothing counts only if it finds what is there.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    let seeds = format!("0..{}", options.seeds);
    let soak = ["cargo", "run", "--release", "--quiet", "--package", "farfield-soak", "--bin", "soak", "--"];
    command(&[&soak[..], &["--planted"]].concat(), &[])?;
    command(&[&soak[..], &["--seeds", &seeds]].concat(), &[])?;
    // Of many operations without an answer a history may tell too little. Such runs are counted, and there are few of them.
    let most_undecided = (options.seeds / SEEDS_FOR_ONE_UNDECIDED).to_string();
    let faults = ["--seeds", &seeds, "--faults", "--most-undecided", &most_undecided];
    command(&[&soak[..], &faults].concat(), &[])
}
