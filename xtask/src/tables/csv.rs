//! Tables as CSV.

/// The rows of a CSV with this header.
#[cfg_attr(not(any(feature = "plot", test)), allow(dead_code))] // only plots read tables of `scaling`
pub(super) fn rows<T>(csv: &str, header: &str, row: impl Fn(&str) -> Option<T>) -> Result<Vec<T>, String> {
    let mut lines = csv.lines();
    if lines.next() != Some(header) {
        return Err(format!("its first line is not `{header}`"));
    }
    lines.map(|line| row(line).ok_or_else(|| format!("`{line}` is no row of it"))).collect()
}
