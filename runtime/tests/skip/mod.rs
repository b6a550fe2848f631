//! Tests whose subject is missing on this machine: they report it, or fail.
//!
//! A test that returns early passes, and its output is hidden because it passes. So a test that can not do its work calls
//! [`skip`]: it writes a line to the process's stderr, which the test harness does not capture, and adds it to the file that
//! `FARFIELD_SKIPPED` names, from which `cargo xtask ci` prints a summary. Where the subject is listed in `FARFIELD_REQUIRE`
//! (`rdma`, `root`, separated by commas), a missing one is a failure: the RDMA test bed requires `rdma`.

use std::fs::OpenOptions;
use std::io::Write;

/// Reports that the running test does not test `subject` here, and why.
///
/// # Panics
/// If the subject is required.
pub(crate) fn skip(subject: &str, why: &str) {
    let required = std::env::var("FARFIELD_REQUIRE").unwrap_or_default();
    assert!(!is_required(subject, &required), "`{subject}` is required (FARFIELD_REQUIRE={required}): {why}");
    let thread = std::thread::current();
    let line = format!("SKIPPED: {} does not test {subject}: {why}\n", thread.name().unwrap_or("a test"));
    let _ = std::io::stderr().write_all(line.as_bytes());
    if let Some(path) = std::env::var_os("FARFIELD_SKIPPED") {
        let mut file =
            OpenOptions::new().create(true).append(true).open(path).expect("FARFIELD_SKIPPED is a file");
        file.write_all(line.as_bytes()).expect("FARFIELD_SKIPPED can be written");
    }
}

fn is_required(subject: &str, required: &str) -> bool {
    required.split(',').any(|required| required.trim() == subject)
}

#[test]
fn a_subject_is_required_by_its_name() {
    assert!(is_required("rdma", "rdma") && is_required("rdma", "root, rdma"));
    assert!(!is_required("rdma", "") && !is_required("rdma", "rdmas,root"));
}
