//! `cargo xtask epochs`: what deferring deletions costs as the number of nodes grows, in the simulator.
//!
//! Runs `epoch_bench` and writes its table (CSV) and a plot (SVG) into the book. Times are virtual, so the files change only
//! when Farfield does.

use std::path::PathBuf;

use clap::Args;

use crate::tables::draw;
use crate::tables::epochs::points;
use crate::workspace::{output, root, run as command};

/// Where the files go.
#[derive(Args)]
pub(crate) struct Options {
    /// Up to so many nodes, from 1 in powers of two
    #[arg(long, default_value_t = 64)]
    max_nodes: u16,
    /// Where the files go, if not into the book
    #[arg(long)]
    to: Option<PathBuf>,
}

/// Runs the program and writes the files.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    command(&["cargo", "build", "--release", "--quiet", "--bin", "epoch_bench"], &[])?;
    let folder = options.to.clone().unwrap_or_else(|| root().join("book/src/results"));
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let printed = output(&["target/release/epoch_bench", "--max-nodes", &options.max_nodes.to_string()])?;
    let rows: Vec<&str> = printed.lines().filter(|line| line.contains(',')).collect();
    let table = rows.join("\n") + "\n";
    points(&table).map_err(|why| format!("`epoch_bench` printed no table: {why}"))?;
    let csv = folder.join("epoch-bench.csv");
    std::fs::write(&csv, table).map_err(|error| format!("{}: {error}", csv.display()))?;
    for line in printed.lines().filter(|line| line.starts_with("epoch_bench.")) {
        println!("{line}");
    }
    draw("epochs", &csv, &folder.join("epoch-bench.svg"))
}
