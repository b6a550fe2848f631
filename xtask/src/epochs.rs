//! `cargo xtask epochs`: what deferring deletions costs as the number of nodes grows, in the simulator.
//!
//! Runs `epoch_bench` and writes its table (CSV) and a plot (SVG) into the book. Times are virtual, so the files change only
//! when Farfield does.

use std::path::{Path, PathBuf};

use clap::Args;

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

/// The first line of the table.
pub(crate) const HEADER: &str = "mode,remote_percent,nodes,ns_per_op,retired,freed_while_running,trace_hash";

/// What is plotted of a row.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(not(any(feature = "plot", test)), allow(dead_code))] // only the plot looks at them
pub(crate) struct Point {
    pub(crate) mode: String,
    pub(crate) remote_percent: u32,
    pub(crate) nodes: u32,
    pub(crate) ns_per_op: f64,
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
    draw(&csv, &folder.join("epoch-bench.svg"))
}

/// The points of a table.
pub(crate) fn points(csv: &str) -> Result<Vec<Point>, String> {
    let mut lines = csv.lines();
    if lines.next() != Some(HEADER) {
        return Err(format!("its first line is not `{HEADER}`"));
    }
    lines.map(|line| point(line).ok_or_else(|| format!("`{line}` is no row of it"))).collect()
}

fn point(line: &str) -> Option<Point> {
    let cells: Vec<&str> = line.split(',').collect();
    let [mode, remote_percent, nodes, ns_per_op, ..] = cells[..] else { return None };
    (cells.len() == HEADER.split(',').count()).then_some(Point {
        mode: mode.to_owned(),
        remote_percent: remote_percent.parse().ok()?,
        nodes: nodes.parse().ok()?,
        ns_per_op: ns_per_op.parse().ok()?,
    })
}

#[cfg(feature = "plot")]
fn draw(csv: &Path, svg: &Path) -> Result<(), String> {
    let title = String::new();
    crate::plot::run(&crate::plot::Options { title, csv: csv.to_owned(), svg: svg.to_owned() })
}

/// Without the plotting crate this task runs itself again with it, for the plot alone.
#[cfg(not(feature = "plot"))]
fn draw(csv: &Path, svg: &Path) -> Result<(), String> {
    let (csv, svg) = (csv.to_string_lossy(), svg.to_string_lossy());
    let cargo = ["cargo", "run", "--quiet", "--package", "xtask", "--features", "plot", "--"];
    command(&[&cargo[..], &["plot", "epochs", &csv, &svg]].concat(), &[])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_can_be_read() {
        let csv = format!("{HEADER}\nnever,50,4,2000.5,10,8,ab\n");
        let (mode, remote_percent, nodes, ns_per_op) = ("never".to_owned(), 50, 4, 2000.5);
        assert_eq!(points(&csv), Ok(vec![Point { mode, remote_percent, nodes, ns_per_op }]));
        assert!(points("mode\n").unwrap_err().contains("first line"));
        assert!(points(&format!("{HEADER}\nnever,50\n")).unwrap_err().contains("`never,50`"));
    }
}
