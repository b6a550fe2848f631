//! The workspace's packages, as described by cargo.

use std::collections::BTreeMap;

use serde_json::Value;

/// A package of the workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Package {
    /// Its name in its manifest.
    pub(super) name: String,
    /// Its folder, relative to the workspace.
    pub(super) folder: String,
    /// Its build targets, without tests.
    pub(super) targets: Vec<Target>,
    /// The packages of the workspace that it depends on, except for tests, by their names in its code.
    pub(super) dependencies: BTreeMap<String, String>,
}

/// A library, a program, a benchmark or a build script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// Its root file, relative to the workspace.
    pub(super) root: String,
    /// The name by which other targets of the package import it.
    pub(super) library: Option<String>,
}

/// All packages of the workspace, and their sources.
#[derive(Debug, Default)]
pub(crate) struct Packages {
    pub(super) packages: Vec<Package>,
    /// The text of each file, by its path relative to the workspace.
    pub(super) sources: BTreeMap<String, String>,
}

impl Packages {
    /// Parses the output of `cargo metadata --no-deps`. `sources` has each `.rs` file of the workspace.
    pub(crate) fn new(metadata: &str, sources: BTreeMap<String, String>) -> Result<Self, String> {
        let metadata: Value = serde_json::from_str(metadata).map_err(|error| format!("metadata: {error}"))?;
        let root = text(&metadata, "workspace_root")?;
        let inside = |path: &str| {
            let inside = path.strip_prefix(root).map(|path| path.trim_start_matches('/').to_owned());
            inside.ok_or_else(|| format!("{path}: outside the workspace"))
        };
        let described = array(&metadata, "packages")?;
        let members: Vec<&str> = described.iter().filter_map(|package| package["name"].as_str()).collect();
        let mut packages = Vec::new();
        for package in described {
            let manifest = inside(text(package, "manifest_path")?)?;
            let mut targets = Vec::new();
            for target in array(package, "targets")? {
                let kinds: Vec<&str> = array(target, "kind")?.iter().filter_map(Value::as_str).collect();
                if !kinds.contains(&"test") {
                    let is_library = kinds.iter().any(|kind| kind.ends_with("lib") || *kind == "proc-macro");
                    let name = text(target, "name")?.replace('-', "_");
                    let library = is_library.then_some(name);
                    targets.push(Target { root: inside(text(target, "src_path")?)?, library });
                }
            }
            let mut dependencies = BTreeMap::new();
            for dependency in array(package, "dependencies")? {
                let name = text(dependency, "name")?;
                if members.contains(&name) && dependency["kind"] != "dev" {
                    let in_code = dependency["rename"].as_str().unwrap_or(name).replace('-', "_");
                    dependencies.insert(in_code, name.to_owned());
                }
            }
            let folder = manifest.trim_end_matches("Cargo.toml").trim_end_matches('/').to_owned();
            packages.push(Package { name: text(package, "name")?.to_owned(), folder, targets, dependencies });
        }
        Ok(Self { packages, sources })
    }
}

fn text<'a>(value: &'a Value, key: &str) -> Result<&'a str, String> {
    value[key].as_str().ok_or_else(|| format!("metadata: `{key}` is not a text"))
}

fn array<'a>(value: &'a Value, key: &str) -> Result<&'a [Value], String> {
    value[key].as_array().map(Vec::as_slice).ok_or_else(|| format!("metadata: `{key}` is not a list"))
}
