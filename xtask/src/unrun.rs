//! Tests that nothing runs, which cargo does not report: a file of `tests/all` that its `main.rs` does not declare, and tests in a program
//! whose manifest says `test = false`.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

/// The folder of the files that are one program of tests.
const ALL: &str = "/tests/all/";
/// What a file with tests contains.
const TESTS: &[&str] = &["#[test]", "#[farfield::test", "#[cfg(test)]"];

/// Returns the breaches in a workspace: its metadata by cargo, its folder, and its sources by their paths relative to the folder.
pub(crate) fn breaches(
    metadata: &str,
    root: &Path,
    sources: &BTreeMap<String, String>,
) -> Result<Vec<String>, String> {
    let metadata: Value =
        serde_json::from_str(metadata).map_err(|error| format!("cargo metadata: {error}"))?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let targets = packages.flat_map(|package| package["targets"].as_array().into_iter().flatten());
    let untested = targets.filter(|target| target["kind"][0] == "bin" && target["test"] == false);
    let paths = untested.filter_map(|target| Path::new(target["src_path"].as_str()?).strip_prefix(root).ok());
    let mut breaches = undeclared(sources);
    for path in paths {
        breaches.extend(untested_tests(&path.to_string_lossy(), sources));
    }
    Ok(breaches)
}

/// The files of `tests/all` that no `mod` declares.
fn undeclared(sources: &BTreeMap<String, String>) -> Vec<String> {
    let files = sources.keys().filter_map(|path| {
        let (package, file) = path.split_once(ALL)?;
        Some((path, package, file.strip_suffix(".rs").filter(|name| *name != "main")?))
    });
    let is_undeclared = |package: &str, name: &str| {
        let main = sources.get(&format!("{package}{ALL}main.rs"));
        !main.is_some_and(|main| main.lines().any(|line| line == format!("mod {name};")))
    };
    files
        .filter(|(_, package, name)| is_undeclared(package, name))
        .map(|(path, package, name)| {
            format!("{path}: nothing runs it: {package}{ALL}main.rs does not declare `mod {name};`")
        })
        .collect()
}

/// The files of a program that have tests. Its root is in a folder of its own if it is called `main.rs`.
fn untested_tests(program: &str, sources: &BTreeMap<String, String>) -> Vec<String> {
    let folder = program.strip_suffix("main.rs");
    let files =
        sources.iter().filter(|(path, _)| *path == program || folder.is_some_and(|of| path.starts_with(of)));
    let with_tests = files.filter(|(_, text)| TESTS.iter().any(|test| text.contains(test)));
    with_tests
        .map(|(path, _)| {
            format!("{path}: has tests, but its package's Cargo.toml says `test = false` for {program}")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(files: &[(&str, &str)]) -> BTreeMap<String, String> {
        files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
    }

    #[test]
    fn a_file_that_is_not_declared_is_found() {
        let main = ("a/tests/all/main.rs", "//! All.\n\nmod declared;\n// mod other;\n");
        let files = sources(&[main, ("a/tests/all/declared.rs", ""), ("a/tests/all/other.rs", "")]);
        let found = undeclared(&files);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("a/tests/all/other.rs: nothing runs it"), "{found:?}");
    }

    #[test]
    fn tests_of_a_program_without_tests_are_found() {
        let files = sources(&[
            ("a/src/bin/one.rs", "#[test]\nfn f() {}"),
            ("a/src/bin/two/main.rs", "mod part;"),
            ("a/src/bin/two/part.rs", "#[cfg(test)]\nmod tests {}"),
            ("a/src/lib.rs", "#[cfg(test)]\nmod tests {}"),
        ]);
        let targets = |test: bool| {
            let target = |path| serde_json::json!({ "kind": ["bin"], "test": test, "src_path": path });
            let targets = [target("/w/a/src/bin/one.rs"), target("/w/a/src/bin/two/main.rs")];
            serde_json::json!({ "packages": [{ "targets": targets }] }).to_string()
        };
        let found = breaches(&targets(false), Path::new("/w"), &files).unwrap();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("a/src/bin/one.rs: has tests"), "{found:?}");
        assert!(found[1].starts_with("a/src/bin/two/part.rs: has tests"), "{found:?}");
        assert!(breaches(&targets(true), Path::new("/w"), &files).unwrap().is_empty());
    }
}
