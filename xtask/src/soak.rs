//! `cargo xtask sim-soak`: runs the example structures in the simulator.

use clap::Args;

use crate::workspace::{PROGRAMS, run as command, target};

/// One undecided history is allowed for this number of seeds with faults of all structures. Of 10,000 seeds 8 are undecided, nearly
/// all of registers.
const SEEDS_FOR_ONE_UNDECIDED: u32 = 1000;

/// The length of the soak.
#[derive(Args)]
pub(crate) struct Options {
    /// Seeds of each structure, both without and with faults
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    seeds: u32,
}

impl Options {
    /// The run that every change must pass.
    pub(crate) fn short() -> Self {
        Self { seeds: 1000 }
    }
}

/// Soaks, after hunting the planted bugs: a soak without findings is evidence only if it detects them.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    let seeds = format!("0..{}", options.seeds);
    command(&[&["cargo", "build", "--release", "--quiet"], &PROGRAMS[..]].concat(), &[])?;
    if options.seeds > Options::short().seeds {
        // Tests with thousands of seeds, which only optimised builds run.
        command(&["cargo", "test", "--release", "--quiet", "-p", "farfield", "--lib", "--", "evicted"], &[])?;
    }
    let program = target().join("release/soak").display().to_string();
    let soak = [program.as_str()];
    command(&[&soak[..], &["--planted"]].concat(), &[])?;
    command(&[&soak[..], &["--seeds", &seeds]].concat(), &[])?;
    // A history with many operations without results may be undecidable. Such runs are counted, and few are allowed.
    let most_undecided = (options.seeds / SEEDS_FOR_ONE_UNDECIDED).to_string();
    let faults = ["--seeds", &seeds, "--faults", "--most-undecided", &most_undecided];
    command(&[&soak[..], &faults].concat(), &[])
}
