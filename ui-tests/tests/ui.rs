//! Programs that must not compile, with the compiler's messages, and programs that must compile.
//!
//! `cases/` has a folder for each topic. A case in its folder `fail` must not compile, and the compiler's messages must be those
//! in the `.stderr` file beside it. A case in its folder `pass` must compile and run: it is a program of this package, in [`ACCEPTED`]. The messages are those of the release
//! that `rust-toolchain.toml` pins. `TRYBUILD=overwrite cargo test -p farfield-ui-tests` writes them anew: read the
//! difference before you commit it.
//!
//! After all cases have passed, the test prints the number of failing cases as `ui.cases N`. [`TOPICS`] has the number of cases of
//! each topic, so a case that is lost, or is in a folder that the test does not read, fails the test.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Each topic, with its number of cases that must fail and of cases that must pass. A new case raises a number.
const TOPICS: &[(&str, usize, usize)] = &[
    ("bounds", 7, 0),
    ("cfg", 1, 1),
    ("closures", 2, 1),
    ("delegated", 26, 1),
    ("entry", 2, 0),
    ("fetch", 3, 0),
    ("lifetimes", 19, 1),
    ("marks", 10, 1),
    ("message", 10, 0),
    ("names", 7, 0),
    ("options", 14, 0),
    ("shapes", 10, 2),
    ("tag", 9, 1),
    ("tail", 3, 0),
    ("types", 17, 0),
    ("word", 4, 0),
];

/// The cases that must compile, and the programs that cargo has built of them.
const ACCEPTED: &[(&str, &str)] = &[
    ("cfg/pass/on_the_struct.rs", env!("CARGO_BIN_EXE_cfg-on-the-struct")),
    ("closures/pass/async_closure.rs", env!("CARGO_BIN_EXE_closures-async-closure")),
    ("delegated/pass/everything.rs", env!("CARGO_BIN_EXE_delegated-everything")),
    (
        "lifetimes/pass/snapshot_that_borrows_nothing.rs",
        env!("CARGO_BIN_EXE_lifetimes-snapshot-that-borrows-nothing"),
    ),
    ("marks/pass/the_same_bit_in_two_links.rs", env!("CARGO_BIN_EXE_marks-the-same-bit-in-two-links")),
    ("shapes/pass/anywhere.rs", env!("CARGO_BIN_EXE_shapes-anywhere")),
    ("shapes/pass/generic.rs", env!("CARGO_BIN_EXE_shapes-generic")),
    ("tag/pass/fields_of_every_width.rs", env!("CARGO_BIN_EXE_tag-fields-of-every-width")),
];

fn cases() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("cases")
}

/// All files below a folder, in order.
fn below(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("a readable entry").path()).collect();
    paths.sort();
    paths.into_iter().flat_map(|path| if path.is_dir() { below(&path) } else { vec![path] }).collect()
}

/// The cases of a topic in its folder `fail` or `pass`.
fn in_folder(topic: &str, folder: &str) -> Vec<PathBuf> {
    let folder = cases().join(topic).join(folder);
    if !folder.exists() {
        return Vec::new();
    }
    below(&folder).into_iter().filter(|path| path.extension().is_some_and(|found| found == "rs")).collect()
}

/// The faults of the files below `cases/`, given the cases that must fail and those that must pass.
fn faults(mistakes: &[PathBuf], accepted: &[PathBuf], all: &[PathBuf]) -> Vec<String> {
    let mut faults = Vec::new();
    for path in all {
        let words = path.with_extension("stderr");
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("rs") if mistakes.contains(path) => {
                if !all.contains(&words) {
                    faults
                        .push(format!("{}: a case that must fail has no .stderr beside it", path.display()));
                }
            }
            Some("rs") if accepted.contains(path) => {}
            Some("stderr") if mistakes.contains(&path.with_extension("rs")) => {}
            Some("stderr") => faults.push(format!("{}: belongs to no case that must fail", path.display())),
            _ => faults.push(format!("{}: is in no topic's folder `fail` or `pass`", path.display())),
        }
    }
    faults
}

/// The compiler's flags for the cases. trybuild passes others when it builds their dependencies than when it checks the cases, so all would be built twice.
const FLAGS: [&str; 5] = ["--cfg", "trybuild", "-A", "dead_code", "--diagnostic-width=140"];
/// Where cargo finds flags that replace those of its command line.
const FLAGS_VARIABLE: &str = "CARGO_ENCODED_RUSTFLAGS";

/// Runs a test of this program again, with [`FLAGS`]. Returns `false` if it has them.
fn runs_with_flags(test: &str) -> bool {
    let flags = FLAGS.join("\u{1f}");
    if std::env::var(FLAGS_VARIABLE).is_ok_and(|found| found == flags) {
        return false;
    }
    let filters = std::env::args().filter(|argument| argument.starts_with("trybuild="));
    let mut again = Command::new(std::env::current_exe().expect("a running program"));
    again.args(["--exact", test, "--nocapture"]).args(filters).env(FLAGS_VARIABLE, flags);
    assert!(again.status().expect("the program of this test").success(), "see above");
    true
}

#[test]
fn every_mistake_is_explained_where_it_is() {
    if runs_with_flags("every_mistake_is_explained_where_it_is") {
        return;
    }
    let (mut mistakes, mut accepted) = (Vec::new(), Vec::new());
    for (topic, failing, passing) in TOPICS {
        let (fail, pass) = (in_folder(topic, "fail"), in_folder(topic, "pass"));
        let found = (fail.len(), pass.len());
        assert_eq!(found, (*failing, *passing), "{topic}: the numbers of cases found, and those in TOPICS");
        mistakes.extend(fail);
        accepted.extend(pass);
    }
    assert_eq!(faults(&mistakes, &accepted, &below(&cases())), [""; 0]);
    assert_eq!(recorded_figure(), Some(mistakes.len()), "`ui.cases` in the book's table of results");
    assert_eq!(not_built(&accepted), [""; 0]);
    {
        // `TestCases` runs the cases when it is dropped, and panics if one fails. They are checked all at once, since none of them is to be built.
        let cases = trybuild::TestCases::new();
        for case in &mistakes {
            cases.compile_fail(case);
        }
    }
    // On a line of its own, whatever the test harness has printed before it.
    println!("\nui.cases {}", mistakes.len());
}

/// The cases that must compile, and are no program in [`ACCEPTED`].
fn not_built(accepted: &[PathBuf]) -> Vec<String> {
    let is_built = |case: &&PathBuf| ACCEPTED.iter().any(|(path, _)| case.ends_with(path));
    accepted.iter().filter(|case| !is_built(case)).map(|case| case.display().to_string()).collect()
}

#[test]
fn accepted_programs_run() {
    for (case, program) in ACCEPTED {
        let output = Command::new(program).output().unwrap_or_else(|error| panic!("{case}: {error}"));
        assert!(output.status.success(), "{case}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// The number of cases in the book's table of results.
fn recorded_figure() -> Option<usize> {
    let table = Path::new(env!("CARGO_MANIFEST_DIR")).join("../book/src/results/figures.md");
    let table = std::fs::read_to_string(table).ok()?;
    let line = table.lines().find(|line| line.starts_with("| `ui.cases` |"))?;
    line.split('|').nth(2)?.split_whitespace().next()?.parse().ok()
}

#[test]
fn files_of_no_case_are_found() {
    let paths = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
    let (mistakes, accepted) = (paths(&["a/fail/x.rs", "a/fail/y.rs"]), paths(&["a/pass/z.rs"]));
    let sound = paths(&["a/fail/x.rs", "a/fail/x.stderr", "a/fail/y.rs", "a/fail/y.stderr", "a/pass/z.rs"]);
    assert_eq!(faults(&mistakes, &accepted, &sound), [""; 0]);
    for (file, fault) in [
        ("a/fail/gone.stderr", "belongs to no case"),
        ("a/pass/z.stderr", "belongs to no case"),
        ("a/failing/x.rs", "in no topic's folder"),
        ("a/x.rs", "in no topic's folder"),
        ("new/fail/x.rs", "in no topic's folder"),
    ] {
        let found = faults(&mistakes, &accepted, &[sound.clone(), paths(&[file])].concat());
        assert!(found.len() == 1 && found[0].contains(file) && found[0].contains(fault), "{file}: {found:?}");
    }
    assert!(
        faults(&mistakes, &accepted, &sound[..3])[0].contains("y.rs: a case that must fail has no .stderr")
    );
}
