//! The programs that the tests run.

use std::path::PathBuf;

use crate::workspace::{output, root};

/// Builds them, in one go, and says where they are.
pub(super) fn build() -> Result<Vec<PathBuf>, String> {
    eprintln!("building the programs with the feature verbs");
    let features = "farfield-cli/verbs,farfield-examples/verbs,farfield-benches/verbs";
    output(&[
        "cargo",
        "build",
        "--profile",
        "bench",
        "--quiet",
        "--bin",
        "farfield",
        "--bin",
        "intset",
        "-p",
        "farfield-cli",
        "-p",
        "farfield-examples",
        "-p",
        "farfield-benches",
        "--bin",
        "raw_verbs",
        "--features",
        features,
        "--target-dir",
        FOLDER,
    ])?;
    let folder = root().join(FOLDER).join("release");
    let mut programs = ["farfield", "intset", "raw_verbs"].map(|name| folder.join(name)).to_vec();
    programs.push(tests()?);
    Ok(programs)
}

/// The library's own tests as a program, the fabrics' conformance suite among them; under a name that does not change.
fn tests() -> Result<PathBuf, String> {
    let messages = output(&[
        "cargo",
        "test",
        "--release",
        "--quiet",
        "-p",
        "farfield",
        "--lib",
        "--features",
        "verbs",
        "--target-dir",
        FOLDER,
        "--no-run",
        "--message-format",
        "json",
    ])?;
    let mut built = messages.lines().filter_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        message.get("executable")?.as_str().map(PathBuf::from)
    });
    let built = built.next_back().ok_or("cargo does not say where the tests are")?;
    let named = built.with_file_name(TESTS);
    let failed = |error: std::io::Error| format!("{}: {error}", named.display());
    std::fs::copy(&built, &named).map_err(failed)?;
    Ok(named)
}

/// What the library's tests are called where they run.
pub(super) const TESTS: &str = "farfield-tests";

/// Where the build goes: with other features every crate is another one, which would push the ordinary build out.
const FOLDER: &str = "target/verbs";
