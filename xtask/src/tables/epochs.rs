//! The table of `cargo xtask epochs`: a row for each mode, share of remote objects and number of nodes.

/// The header of the table.
pub(crate) const HEADER: &str = "mode,remote_percent,nodes,ns_per_op,retired,freed_while_running,trace_hash";

/// The plotted columns of a row.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(not(any(feature = "plot", test)), allow(dead_code))] // only the plot looks at them
pub(crate) struct Point {
    pub(crate) mode: String,
    pub(crate) remote_percent: u32,
    pub(crate) nodes: u32,
    pub(crate) ns_per_op: f64,
}

/// The points of a table.
pub(crate) fn points(csv: &str) -> Result<Vec<Point>, String> {
    super::csv::rows(csv, HEADER, point)
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
