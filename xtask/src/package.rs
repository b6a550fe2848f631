//! Packages: `cargo xtask package` builds every crate that users depend on from the archive that cargo would publish.
//!
//! Each package must contain its licences, its README and its manifest. A licence is a link to the workspace's file, which cargo replaces
//! by the text.
//!
//! The crates depend on each other, and none is published yet. Cargo's own verification resolves them from the archives, but keeps the
//! unpacked sources of an unpublished version, so a second run would build old sources. Therefore the archives are created without
//! verification, unpacked into a separate workspace, and built there.

use std::path::Path;

use crate::workspace::{self, output, root, target};

/// The crates that users depend on (those without `publish = false`), with their folders.
const PACKAGES: [(&str, &str); 9] = [
    ("farfield-words", "runtime/words"),
    ("farfield-fabric", "runtime/fabric"),
    ("farfield-sim", "runtime/sim"),
    ("farfield-macros", "macros"),
    ("farfield", "runtime"),
    ("farfield-collections", "collections"),
    ("farfield-kv", "kv"),
    ("farfield-testing", "runtime/testing"),
    ("farfield-cli", "cli"),
];
/// Files that every package must contain.
const FILES: [&str; 4] = ["Cargo.toml", "LICENSE-APACHE", "LICENSE-MIT", "README.md"];
/// Beginnings of lines that every manifest must contain.
const METADATA: [&str; 7] = [
    "description = ",
    "license.workspace",
    "readme = ",
    "documentation = ",
    "keywords = ",
    "categories = ",
    "[package.metadata.docs.rs]",
];

/// Checks file lists and manifests, then packages all of [`PACKAGES`] and builds them from their archives.
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
    let command = ["cargo", "package", "--quiet", "--allow-dirty", "--no-verify"].into_iter();
    workspace::run(&command.chain(packages).collect::<Vec<_>>(), &[])?;
    build_archives()
}

/// Unpacks the archives into a workspace in which each crate replaces its published version, and builds it.
fn build_archives() -> Result<(), String> {
    let archives = target().join("package");
    let folder = archives.join("unpacked");
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    match std::fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    std::fs::create_dir_all(&folder).map_err(failed)?;
    let text = |path: &Path| path.to_str().map(str::to_owned).ok_or("the workspace's path is not UTF-8");
    for (package, _) in PACKAGES {
        let archive = text(&archives.join(format!("{}.crate", unpacked(package))))?;
        // `-m` sets the time of unpacking: all archives have the same time, so cargo would consider changed files built.
        workspace::run(&["tar", "-xzmf", &archive, "-C", &text(&folder)?], &[])?;
    }
    std::fs::write(folder.join("Cargo.toml"), manifest()).map_err(failed)?;
    std::fs::copy(root().join("Cargo.lock"), folder.join("Cargo.lock")).map_err(failed)?;
    let manifest = text(&folder.join("Cargo.toml"))?;
    // With what the steps before have built of other crates.
    let built = text(&target())?;
    let command = ["cargo", "check", "--quiet", "--workspace", "--manifest-path", &manifest];
    workspace::run(&command, &[("CARGO_TARGET_DIR", &built)])
}

/// The folder inside a package's archive.
fn unpacked(package: &str) -> String {
    format!("{package}-{}", env!("CARGO_PKG_VERSION"))
}

/// The manifest of the workspace of unpacked archives.
fn manifest() -> String {
    let members: Vec<String> =
        PACKAGES.iter().map(|(package, _)| format!("{:?}", unpacked(package))).collect();
    let patches: Vec<String> = PACKAGES
        .iter()
        .map(|(package, _)| format!("{package} = {{ path = {:?} }}\n", unpacked(package)))
        .collect();
    format!(
        "[workspace]\nresolver = \"3\"\nmembers = [{}]\n\n[patch.crates-io]\n{}",
        members.join(", "),
        patches.concat()
    )
}

/// The required files that are missing in a package's list.
fn missing_files(listed: &str) -> impl Iterator<Item = &'static str> + '_ {
    FILES.into_iter().filter(|file| !listed.lines().any(|line| line == *file))
}

/// The required lines that are missing in a manifest.
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
