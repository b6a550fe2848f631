//! What the compiler says about mistakes, and what it must accept.
//!
//! One folder a topic under `cases/`. A case in a folder `fail` must not compile, and the compiler's words must be those
//! in the `.stderr` file beside it; a case in a folder `pass` must compile and run. Messages are those of the release
//! that `rust-toolchain.toml` pins. `TRYBUILD=overwrite cargo test -p farfield-ui-tests` writes them anew: read the
//! difference before you commit it.
//!
//! The number of failing cases is printed as `ui.cases N`, after all of them have passed.

use std::path::{Path, PathBuf};

/// The fewest cases that must fail: fewer would mean that they were not found.
const LEAST_FAILING: usize = 25;

/// The files with this extension in the folders called `folder` of all topics.
fn files(folder: &str, extension: &str) -> Vec<PathBuf> {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases");
    let topics = std::fs::read_dir(&cases).expect("the cases are there");
    let mut files: Vec<PathBuf> = topics
        .filter_map(|topic| std::fs::read_dir(topic.expect("a readable topic").path().join(folder)).ok())
        .flatten()
        .map(|file| file.expect("a readable case").path())
        .filter(|file| file.extension().is_some_and(|found| found == extension))
        .collect();
    files.sort();
    files
}

#[test]
fn every_mistake_is_explained_where_it_is() {
    let mistakes = files("fail", "rs");
    assert!(mistakes.len() >= LEAST_FAILING, "only {} cases were found", mistakes.len());
    for expected in files("fail", "stderr") {
        assert!(expected.with_extension("rs").exists(), "{} belongs to no case", expected.display());
    }
    let accepted = files("pass", "rs");
    assert!(!accepted.is_empty(), "no case was found that must pass");
    {
        // Runs all of them, and fails if one does, when it is dropped.
        let cases = trybuild::TestCases::new();
        for case in &mistakes {
            cases.compile_fail(case);
        }
        for case in &accepted {
            cases.pass(case);
        }
    }
    println!("ui.cases {}", mistakes.len());
}
