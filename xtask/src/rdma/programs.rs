//! The programs that the tests run.

use std::path::PathBuf;

use crate::workspace::{output, root};

/// Build folder: other features change every crate, and would evict the ordinary build.
pub(crate) const TARGET: &str = "target/verbs";
/// The packages that are built, and their features for RDMA.
pub(crate) const PACKAGES: &[&str] =
    &["farfield-fabric", "farfield", "farfield-cli", "farfield-examples", "farfield-benches"];
pub(crate) const FEATURES: &str =
    "farfield-fabric/verbs,farfield/verbs,farfield-cli/verbs,farfield-examples/verbs,farfield-benches/verbs";

/// The programs.
const PROGRAMS: &[&str] =
    &["farfield", "intset", "delegated_counter", "bank", "raw_verbs", "counted_verbs", "map_verbs"];
/// The names of the fabrics' tests in the test bed: linked to rdma-core, and loading it.
pub(super) const TESTS: &str = "farfield-tests";
pub(super) const TESTS_DLOPEN: &str = "farfield-tests-dlopen";

/// Builds the programs, with the profile of benches since some are measured; returns their paths.
pub(super) fn build() -> Result<Vec<PathBuf>, String> {
    eprintln!("building the programs with RDMA");
    let mut arguments = vec!["cargo", "build", "--profile", "bench", "--quiet", "--features", FEATURES];
    arguments.extend(PROGRAMS.iter().flat_map(|program| ["--bin", program]));
    arguments.extend(PACKAGES.iter().flat_map(|package| ["--package", package]));
    arguments.extend(["--target-dir", TARGET]);
    output(&arguments)?;
    let folder = root().join(TARGET).join("release");
    let mut programs: Vec<PathBuf> = PROGRAMS.iter().map(|name| folder.join(name)).collect();
    programs.push(tests("verbs", TESTS)?);
    programs.push(tests("verbs-dlopen", TESTS_DLOPEN)?);
    Ok(programs)
}

/// Builds the fabrics' own tests, the conformance suite among them, as a program with a fixed name.
fn tests(feature: &str, name: &str) -> Result<PathBuf, String> {
    let command = format!(
        "cargo test --quiet --package farfield-fabric --lib --features {feature} --target-dir {TARGET} --no-run --message-format json"
    );
    let messages = output(&command.split_whitespace().collect::<Vec<_>>())?;
    let mut built = messages.lines().filter_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        message.get("executable")?.as_str().map(PathBuf::from)
    });
    let built = built.next_back().ok_or("cargo printed no path of the tests")?;
    let named = built.with_file_name(name);
    let failed = |error: std::io::Error| format!("{}: {error}", named.display());
    std::fs::copy(&built, &named).map_err(failed)?;
    Ok(named)
}
