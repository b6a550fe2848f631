//! `cargo xtask epochs`: the cost of deferred reclamation over the number of nodes, in the simulator.
//!
//! Runs `epoch_bench`, and writes its table (CSV) and a plot (SVG) into the book. Times are virtual, so the files change only if Farfield
//! changes.

use std::path::PathBuf;

use clap::Args;

use crate::tables::epochs::points;
use crate::tables::{draw, folder};
use crate::workspace::{output, run as command, write};

/// Options of `cargo xtask epochs`.
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
    command(&["cargo", "build", "--release", "--quiet", "--bin", "epoch_bench"], &[])?;
    let folder = folder(options.to.as_deref())?;
    let printed = output(&["target/release/epoch_bench", "--max-nodes", &options.max_nodes.to_string()])?;
    let rows: Vec<&str> = printed.lines().filter(|line| line.contains(',')).collect();
    let table = rows.join("\n") + "\n";
    points(&table).map_err(|why| format!("`epoch_bench` printed no table: {why}"))?;
    let csv = folder.join("epoch-bench.csv");
    write(&csv, table)?;
    for line in printed.lines().filter(|line| line.starts_with("epoch_bench.")) {
        println!("{line}");
    }
    draw("epochs", &csv, &folder.join("epoch-bench.svg"))
}
