//! `cargo xtask sanitize`: the tests that attack the arguments for `unsafe`, under address sanitizer.
//!
//! Where a comment argues why a pointer may be followed, a test follows it in the cases that the argument excludes, or nearly: the last word, a
//! buffer that has just been given back, an object that moved, a future that was dropped in flight. Without a sanitizer most wrong
//! accesses look right. With it, what is freed, out of bounds, or on a stack frame that is gone is found where it happens.
//!
//! | what | by which test |
//! |---|---|
//! | far memory's bounds and alignment, buffers on the stack, requests of RDMA, chains given up, connections lost, the conformance suite on the host and in shared memory | the library's own |
//! | casts of words to plain data, padding, generated layouts | `macro_*`, `versioned` |
//! | allocation and reclamation: an object that is freed and used again | `memory`, `local_epoch`, `cached` |
//! | futures that are dropped, threads that end with chains in flight | `chain`, `locks`, `runs`, `client` |
//! | mappings that outlive threads and processes, killed ones among them | `shm`, `killed` |
//! | the epochs that the benchmarks compare with | `farfield-benches` |
//!
//! What it can not see: far memory itself is one mapping, so a wrong address inside it is a word like another. The tests of
//! `fabric/host/arena` therefore compare addresses. Memory that was never written is not tracked either, nor are data races: both
//! sanitizers need a standard library that was built with them, so the sources of one, which a toolchain does not bring by itself.
//!
//! `allocator` is left out, which takes six minutes with it, and has no `unsafe` of its own; and what measures time.
//!
//! Needs a nightly compiler, and is skipped where there is none. It takes two and a half minutes of processor time once the dependencies are
//! built, so it is no part of `cargo xtask ci`: run it after a change to `unsafe`, or to what such a block relies on.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::workspace::{self, create_folder, output, root, target, write};

const TOOLCHAIN: &str = "nightly";
const FLAGS: &str = "-Zsanitizer=address";

/// The library's crates, whose own tests are run. `unsafe` is in the first two.
const LIBRARY: &[&str] = &["farfield-words", "farfield-fabric", "farfield-sim", "farfield"];

/// The library's tests that are programs of their own.
const TESTS: &[&str] = &[
    "cached",
    "chain",
    "client",
    "killed",
    "local_epoch",
    "locks",
    "macro_remote",
    "macro_shapes",
    "macro_word",
    "memory",
    "runs",
    "shm",
    "versioned",
];

/// What tests leak on purpose: a process that dies drops nothing, and a program may forget a guard.
const LEAKS: &str = "leak:whoever_dies_or_gives_up_while_it_is_alone_keeps_nobody_out\n\
                     leak:a_write_that_is_leaked_ends_with_its_thread\n";

/// A program that the sanitizer must find at fault, since otherwise it finds nothing at all.
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
        // A pointer into the frame of a function that has returned is found, too.
        ("ASAN_OPTIONS", "detect_stack_use_after_return=1"),
    ];
    let host = output(&["rustc", "--print", "host-tuple"])?;
    // With a target named, build scripts and macros are built without the flags.
    let cargo = ["rustup", "run", TOOLCHAIN, "cargo", "test", "--quiet", "--target", host.trim()];
    let mut library: Vec<&str> = [&cargo[..], &["--lib"]].concat();
    library.extend(LIBRARY.iter().flat_map(|package| ["--package", package]));
    library.extend(TESTS.iter().flat_map(|test| ["--test", test]));
    if has_rdma() {
        library.extend(["--features", "verbs"]);
    } else {
        println!("sanitize: without RDMA: rdma-core's headers are not installed");
    }
    workspace::run(&library, &variables)?;
    let peers = [&cargo[..], &["--package", "farfield-benches", "--lib"]].concat();
    workspace::run(&peers, &variables)?;
    println!("sanitize: nothing found, by {version}");
    Ok(())
}

/// The nightly compiler's version, if there is one.
fn nightly() -> Option<String> {
    let asked = Command::new("rustup")
        .args(["run", TOOLCHAIN, "rustc", "--version"])
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let version = String::from_utf8(asked.stdout).ok()?;
    asked.status.success().then(|| version.trim().to_owned())
}

/// Whether rdma-core can be linked.
fn has_rdma() -> bool {
    let asked = Command::new("pkg-config").args(["--exists", "libibverbs", "librdmacm"]).status();
    asked.is_ok_and(|status| status.success())
}

/// A use of freed memory is reported.
fn finds_a_fault(folder: &Path) -> Result<(), String> {
    let (source, program) = (folder.join("faulty.rs"), folder.join("faulty"));
    write(&source, FAULTY)?;
    let (source, program) = (source.display().to_string(), program.display().to_string());
    let build = ["rustup", "run", TOOLCHAIN, "rustc", "--edition", "2024", FLAGS, "-o", &program, &source];
    workspace::run(&build, &[])?;
    let ran = Command::new(&program).current_dir(root()).output();
    let ran = ran.map_err(|error| format!("{program}: {error}"))?;
    let said = String::from_utf8_lossy(&ran.stderr);
    if said.contains("heap-use-after-free") {
        return Ok(());
    }
    Err(format!("the sanitizer of {TOOLCHAIN} finds no use of freed memory: it is of no use"))
}
