//! `cargo xtask interlocked`: insertions into an Interlocked Hash Table over the number of nodes, in the simulator.
//!
//! Runs `interlocked_bench`, and writes its table (CSV) and a plot (SVG) into the book. Times are virtual, so the files change only if Farfield
//! changes.

use std::path::PathBuf;

use clap::Args;

use crate::tables::interlocked::points;
use crate::tables::{draw, folder};
use crate::workspace::{output, run as command, target, write};

/// Options of `cargo xtask interlocked`.
#[derive(Args)]
pub(crate) struct Options {
    /// Largest number of nodes; it grows from 1 in powers of two
    #[arg(long, default_value_t = 64)]
    max_nodes: u16,
    /// Folder of the files; by default that of the book
    #[arg(long)]
    to: Option<PathBuf>,
}

/// Runs the program and writes the files.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    command(&["cargo", "build", "--release", "--quiet", "--bin", "interlocked_bench"], &[])?;
    let folder = folder(options.to.as_deref())?;
    let program = target().join("release/interlocked_bench");
    let printed = output(&[&program.to_string_lossy(), "--max-nodes", &options.max_nodes.to_string()])?;
    let rows: Vec<&str> = printed.lines().filter(|line| line.contains(',')).collect();
    let table = rows.join("\n") + "\n";
    points(&table).map_err(|why| format!("`interlocked_bench` printed no table: {why}"))?;
    let csv = folder.join("interlocked-bench.csv");
    write(&csv, table)?;
    for line in printed.lines().filter(|line| line.starts_with("sim.interlocked.")) {
        println!("{line}");
    }
    draw("interlocked", &csv, &folder.join("interlocked-bench.svg"))
}
