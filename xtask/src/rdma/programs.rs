//! The programs that the tests run.

use std::path::PathBuf;

use crate::workspace::{output, root};

/// Builds them, in one go, and says where they are.
pub(super) fn build() -> Result<Vec<PathBuf>, String> {
    eprintln!("building the programs with the feature verbs");
    let features = "farfield-cli/verbs,farfield-examples/verbs";
    output(&[
        "cargo",
        "build",
        "--release",
        "--quiet",
        "--bin",
        "farfield",
        "--bin",
        "intset",
        "-p",
        "farfield-cli",
        "-p",
        "farfield-examples",
        "--features",
        features,
        "--target-dir",
        FOLDER,
    ])?;
    let folder = root().join(FOLDER).join("release");
    Ok(["farfield", "intset"].map(|name| folder.join(name)).to_vec())
}

/// Where the build goes: with other features every crate is another one, which would push the ordinary build out.
const FOLDER: &str = "target/verbs";
