//! Packages: `cargo xtask package` builds every crate that users depend on from the archive that cargo would publish.
//!
//! The crates depend on each other, and none is published yet. Cargo verifies such a set in one call: it serves their archives to each other.
//! Before that, the file list of each package must have its licences, its README and its manifest; a licence is a link to the workspace's file,
//! which cargo replaces by the text.

use crate::workspace::{self, output, root};

/// The crates that users depend on, with their folders: those without `publish = false`.
const PACKAGES: [(&str, &str); 7] = [
    ("farfield-words", "runtime/words"),
    ("farfield-fabric", "runtime/fabric"),
    ("farfield-sim", "runtime/sim"),
    ("farfield-macros", "macros"),
    ("farfield", "runtime"),
    ("farfield-testing", "runtime/testing"),
    ("farfield-cli", "cli"),
];
/// The files that every package has.
const FILES: [&str; 4] = ["Cargo.toml", "LICENSE-APACHE", "LICENSE-MIT", "README.md"];
/// The lines that every manifest has, by their beginnings.
const METADATA: [&str; 7] = [
    "description = ",
    "license.workspace",
    "readme = ",
    "documentation = ",
    "keywords = ",
    "categories = ",
    "[package.metadata.docs.rs]",
];

/// Checks the file lists, then packages and builds all of [`PACKAGES`].
pub(crate) fn run() -> Result<(), String> {
    let mut faults = Vec::new();
    for (package, folder) in PACKAGES {
        let listed =
            output(&["cargo", "package", "--quiet", "--list", "--allow-dirty", "--package", package])?;
        faults.extend(missing_files(&listed).map(|file| format!("the package {package} has no {file}")));
        let manifest = workspace::read(&root().join(folder).join("Cargo.toml"))?;
        faults.extend(missing_metadata(&manifest).map(|line| format!("{folder}/Cargo.toml has no `{line}`")));
    }
    workspace::report(&faults)?;
    let packages = PACKAGES.iter().flat_map(|(package, _)| ["--package", package]);
    let command: Vec<&str> =
        ["cargo", "package", "--quiet", "--allow-dirty"].into_iter().chain(packages).collect();
    workspace::run(&command, &[])
}

/// The required files that a package's list lacks.
fn missing_files(listed: &str) -> impl Iterator<Item = &'static str> + '_ {
    FILES.into_iter().filter(|file| !listed.lines().any(|line| line == *file))
}

/// The required lines that a manifest lacks.
fn missing_metadata(manifest: &str) -> impl Iterator<Item = &'static str> + '_ {
    METADATA.into_iter().filter(|start| !manifest.lines().any(|line| line.starts_with(start)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_without_a_license_is_found() {
        let whole = "Cargo.lock\nCargo.toml\nLICENSE-APACHE\nLICENSE-MIT\nREADME.md\nsrc/lib.rs\n";
        assert_eq!(missing_files(whole).count(), 0);
        let planted = whole.replace("LICENSE-MIT\n", "LICENSE-MIT.txt\n");
        assert_eq!(missing_files(&planted).collect::<Vec<_>>(), ["LICENSE-MIT"]);
    }

    #[test]
    fn every_license_is_the_workspaces_and_every_manifest_is_complete() {
        for (package, folder) in PACKAGES {
            let folder = root().join(folder);
            for license in ["LICENSE-APACHE", "LICENSE-MIT"] {
                let text = workspace::read(&folder.join(license)).unwrap();
                assert_eq!(text, workspace::read(&root().join(license)).unwrap(), "{package}");
            }
            let manifest = workspace::read(&folder.join("Cargo.toml")).unwrap();
            assert!(manifest.contains(&format!("name = \"{package}\"\n")));
            assert_eq!(missing_metadata(&manifest).collect::<Vec<_>>(), Vec::<&str>::new(), "{package}");
            let planted = manifest.replace("readme = ", "# readme = ");
            assert_eq!(missing_metadata(&planted).collect::<Vec<_>>(), ["readme = "]);
        }
    }

    #[test]
    fn every_crate_that_is_published_is_listed() {
        let described = output(&["cargo", "metadata", "--no-deps", "--format-version", "1"]).unwrap();
        let described: serde_json::Value = serde_json::from_str(&described).unwrap();
        let packages = described["packages"].as_array().unwrap();
        let mut published: Vec<&str> = packages
            .iter()
            .filter(|package| package["publish"].is_null())
            .map(|package| package["name"].as_str().unwrap())
            .collect();
        let mut listed: Vec<&str> = PACKAGES.iter().map(|(package, _)| *package).collect();
        published.sort_unstable();
        listed.sort_unstable();
        assert_eq!(published, listed);
    }
}
