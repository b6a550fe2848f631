//! `cargo xtask sim-soak`: the example structures in the simulator, seed after seed.

use clap::Args;

use crate::workspace::run as command;

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
    command(&[&soak[..], &["--seeds", &seeds, "--faults"]].concat(), &[])
}
