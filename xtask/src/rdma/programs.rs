//! The programs that the tests run.

use std::path::PathBuf;

use crate::workspace::{output, root};

/// Where the build goes: with other features every crate is another one, which would push the ordinary build out.
pub(crate) const TARGET: &str = "target/verbs";
/// What is built, and the features that make it speak RDMA.
pub(crate) const PACKAGES: &[&str] =
    &["farfield-fabric", "farfield", "farfield-cli", "farfield-examples", "farfield-benches"];
pub(crate) const FEATURES: &str =
    "farfield-fabric/verbs,farfield/verbs,farfield-cli/verbs,farfield-examples/verbs,farfield-benches/verbs";

/// The programs.
const PROGRAMS: &[&str] = &["farfield", "intset", "raw_verbs"];
/// What the fabrics' tests are called where they run: linked to rdma-core, and loading it.
pub(super) const TESTS: &str = "farfield-tests";
pub(super) const TESTS_DLOPEN: &str = "farfield-tests-dlopen";

/// Builds them, as benches are built because some are measured, and says where they are.
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

/// The fabrics' own tests as a program, the conformance suite among them; under a name that does not change.
fn tests(feature: &str, name: &str) -> Result<PathBuf, String> {
    let command = format!(
        "cargo test --quiet --package farfield-fabric --lib --features {feature} --target-dir {TARGET} --no-run --message-format json"
    );
    let messages = output(&command.split_whitespace().collect::<Vec<_>>())?;
    let mut built = messages.lines().filter_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        message.get("executable")?.as_str().map(PathBuf::from)
    });
    let built = built.next_back().ok_or("cargo does not say where the tests are")?;
    let named = built.with_file_name(name);
    let failed = |error: std::io::Error| format!("{}: {error}", named.display());
    std::fs::copy(&built, &named).map_err(failed)?;
    Ok(named)
}
