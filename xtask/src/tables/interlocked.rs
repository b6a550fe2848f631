//! The table of `cargo xtask interlocked`: a row for each number of nodes.

/// The header of the table.
pub(crate) const HEADER: &str =
    "nodes,insert_ns,get_ns,share_ns,insert_chains,pointer_lists,waits,trace_hash";

/// The plotted columns of a row.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(not(any(feature = "plot", test)), allow(dead_code))] // only the plot looks at them
pub(crate) struct Point {
    pub(crate) nodes: u32,
    pub(crate) insert_ns: f64,
    pub(crate) get_ns: f64,
    pub(crate) share_ns: f64,
}

/// The points of a table.
pub(crate) fn points(csv: &str) -> Result<Vec<Point>, String> {
    super::csv::rows(csv, HEADER, point)
}

fn point(line: &str) -> Option<Point> {
    let cells: Vec<&str> = line.split(',').collect();
    let [nodes, insert_ns, get_ns, share_ns, ..] = cells[..] else { return None };
    (cells.len() == HEADER.split(',').count()).then_some(Point {
        nodes: nodes.parse().ok()?,
        insert_ns: insert_ns.parse().ok()?,
        get_ns: get_ns.parse().ok()?,
        share_ns: share_ns.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_can_be_read() {
        let csv = format!("{HEADER}\n4,6000.5,5000.0,800.1,2.9,1024,9,ab\n");
        let point = Point { nodes: 4, insert_ns: 6000.5, get_ns: 5000.0, share_ns: 800.1 };
        assert_eq!(points(&csv), Ok(vec![point]));
        assert!(points("nodes\n").unwrap_err().contains("first line"));
        assert!(points(&format!("{HEADER}\n4,5\n")).unwrap_err().contains("`4,5`"));
    }
}
