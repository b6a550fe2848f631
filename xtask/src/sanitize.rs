//! `cargo xtask sanitize`: runs the tests of unsafe code under address sanitizer.
//!
//! Where a comment proves that a pointer is valid, a test uses it at the limits of the proof: the last word, a buffer just after its
//! release, an object that moved, a future that was dropped in flight. Most invalid accesses go unnoticed without a sanitizer. It detects
//! accesses to freed memory, out of bounds, or to a dead stack frame where they happen.
//!
//! | subject | tests |
//! |---|---|
//! | bounds and alignment of far memory, stack buffers, RDMA requests, abandoned chains, lost connections, the conformance suite on the host and in shared memory | the library's unit tests |
//! | casts of words to plain data, padding, generated layouts | `macro_*`, `versioned` |
//! | allocation and reclamation: an object that is freed and reused | `memory`, `local_epoch`, `cached` |
//! | dropped futures, threads that end with chains in flight | `chain`, `locks`, `runs`, `client` |
//! | mappings that outlive threads and processes, also killed ones | `shm`, `killed` |
//! | the epoch implementations that benchmarks compare with | `farfield-benches` |
//!
//! Limits: far memory is one mapping, so a wrong address inside it is valid for the sanitizer; the tests of `fabric/host/arena` therefore
//! compare addresses. Uninitialised memory and data races are not detected: both sanitizers need a standard library built with them, hence
//! its sources, which toolchains do not include.
//!
//! `allocator` is omitted: it takes six minutes under the sanitizer and contains no `unsafe`. So are tests that measure time.
//!
//! The task needs a nightly compiler, and is skipped without one. It takes two and a half minutes of processor time after the dependencies
//! are built, so it is not part of `cargo xtask ci`. Run it after a change of `unsafe` code, or of code that such a block relies on.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::workspace::{self, create_folder, output, root, target, write};

const TOOLCHAIN: &str = "nightly";
const FLAGS: &str = "-Zsanitizer=address";

/// The library's crates, whose unit tests are run. `unsafe` is in the first two.
const LIBRARY: &[&str] = &["farfield-words", "farfield-fabric", "farfield-sim", "farfield"];

/// The library's integration tests that are programs of their own.
const PROGRAMS: &[&str] = &["client", "killed", "shm"];

/// Of `runtime/tests/all`, the files whose tests are run.
const TESTS: &[&str] = &[
    "cached::",
    "chain::",
    "local_epoch::",
    "locks::",
    "macro_remote::",
    "macro_shapes::",
    "macro_word::",
    "memory::",
    "runs::",
    "versioned::",
];

/// Tests with intended leaks: a process that dies drops no values, and a program may forget a guard.
const LEAKS: &str = "leak:a_sole_member_that_dies_or_is_cancelled_excludes_no_other\n\
                     leak:a_write_that_is_leaked_ends_with_its_thread\n";

/// A program with a fault that the sanitizer must detect. Otherwise the absence of reports is no evidence.
const FAULTY: &str = "
fn main() {
    let freed = Box::new(std::env::args().count());
    let pointer = &raw const *freed;
    drop(freed);
    std::process::exit(i32::from(unsafe { pointer.read_volatile() } == 7));
}
";

pub(crate) fn run() -> Result<(), String> {
    let Some(version) = nightly() else {
        println!(
            "sanitize: NOT RUN: there is no {TOOLCHAIN} toolchain: rustup toolchain install {TOOLCHAIN}"
        );
        return Ok(());
    };
    let folder = target().join("sanitize");
    create_folder(&folder)?;
    finds_a_fault(&folder)?;
    let leaks = folder.join("leaks.txt");
    write(&leaks, LEAKS)?;
    let options = format!("suppressions={}:print_suppressions=0", leaks.display());
    let folder = folder.display().to_string();
    let variables = [
        ("RUSTFLAGS", FLAGS),
        ("CARGO_TARGET_DIR", &*folder),
        ("LSAN_OPTIONS", &*options),
        // Also detect pointers into the frames of functions that have returned.
        ("ASAN_OPTIONS", "detect_stack_use_after_return=1"),
    ];
    let host = output(&["rustc", "--print", "host-tuple"])?;
    // With `--target`, build scripts and macros are built without the flags.
    let cargo = ["rustup", "run", TOOLCHAIN, "cargo", "test", "--quiet", "--target", host.trim()];
    let mut library: Vec<&str> = [&cargo[..], &["--lib"]].concat();
    library.extend(LIBRARY.iter().flat_map(|package| ["--package", package]));
    library.extend(PROGRAMS.iter().flat_map(|test| ["--test", test]));
    let mut all: Vec<&str> = [&cargo[..], &["--package", "farfield", "--test", "all"]].concat();
    if has_rdma() {
        library.extend(["--features", "verbs"]);
        all.extend(["--features", "verbs"]);
    } else {
        println!("sanitize: without RDMA: rdma-core's headers are not installed");
    }
    all.push("--");
    all.extend(TESTS);
    workspace::run(&library, &variables)?;
    workspace::run(&all, &variables)?;
    let peers = [&cargo[..], &["--package", "farfield-benches", "--lib"]].concat();
    workspace::run(&peers, &variables)?;
    println!("sanitize: no fault found, by {version}");
    Ok(())
}

/// The nightly compiler's version, if there is one.
fn nightly() -> Option<String> {
    let ran = Command::new("rustup")
        .args(["run", TOOLCHAIN, "rustc", "--version"])
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let version = String::from_utf8(ran.stdout).ok()?;
    ran.status.success().then(|| version.trim().to_owned())
}

/// Returns whether rdma-core can be linked.
fn has_rdma() -> bool {
    let status = Command::new("pkg-config").args(["--exists", "libibverbs", "librdmacm"]).status();
    status.is_ok_and(|status| status.success())
}

/// Checks that a use of freed memory is reported.
fn finds_a_fault(folder: &Path) -> Result<(), String> {
    let (source, program) = (folder.join("faulty.rs"), folder.join("faulty"));
    write(&source, FAULTY)?;
    let (source, program) = (source.display().to_string(), program.display().to_string());
    let build = ["rustup", "run", TOOLCHAIN, "rustc", "--edition", "2024", FLAGS, "-o", &program, &source];
    workspace::run(&build, &[])?;
    let ran = Command::new(&program).current_dir(root()).output();
    let ran = ran.map_err(|error| format!("{program}: {error}"))?;
    if String::from_utf8_lossy(&ran.stderr).contains("heap-use-after-free") {
        return Ok(());
    }
    Err(format!("the sanitizer of {TOOLCHAIN} does not detect a use of freed memory"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_with_intended_leaks_exist() {
        let sources = workspace::files(&root().join("runtime"), "rs");
        let texts: Vec<String> = sources.iter().map(|path| workspace::read(path).unwrap()).collect();
        for name in LEAKS.lines().map(|line| line.strip_prefix("leak:").unwrap()) {
            let declaration = format!("fn {name}() {{");
            assert!(texts.iter().any(|text| text.contains(&declaration)), "{name}");
        }
    }
}
