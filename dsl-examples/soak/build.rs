//! Makes a mutant of a structure for each planted bug.
//!
//! Writes `mutants.rs` to the output folder: a module for each bug, with the structure's real source and the bug's edits.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs, process};

// The library uses the remaining items.
#[allow(dead_code, unreachable_pub)]
#[path = "../../runtime/testing/src/check.rs"]
mod check;
#[allow(dead_code, unreachable_pub, unused_imports)]
#[path = "src/planted/mod.rs"]
mod planted;

use check::Check;
use planted::{Planted, Structure};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/planted");
    println!("cargo::rerun-if-changed=../../runtime/testing/src/check.rs");
    for source in Structure::ALL.into_iter().filter_map(source) {
        println!("cargo::rerun-if-changed={}", source.path);
    }
    if let Err(line) = run() {
        eprintln!("error: {line}");
        process::exit(1);
    }
}

fn run() -> Result<(), String> {
    let (mut modules, mut table) = (String::new(), String::new());
    for (group, bugs) in planted::PLANTED.iter().enumerate() {
        for (number, bug) in bugs.iter().enumerate() {
            let (module, kind) = mutant(bug)?;
            modules.push_str(&module);
            let _ = writeln!(table, "    Subject::mutant::<{kind}>(&PLANTED[{group}][{number}]),");
        }
    }
    let text =
        format!("{modules}/// A subject for each mutant.\npub static MUTANTS: &[Subject] = &[\n{table}];\n");
    let folder = env::var("OUT_DIR").map_err(|error| format!("OUT_DIR: {error}"))?;
    fs::write(Path::new(&folder).join("mutants.rs"), text).map_err(|error| format!("mutants.rs: {error}"))
}

/// A structure's source, as users read it.
struct Source {
    /// Its file, relative to this crate.
    path: &'static str,
    /// The macro that implements `Tested` for it.
    makes: &'static str,
    /// True if it has a method `recover`.
    recovers: bool,
    /// The type of its handles.
    handle: &'static str,
}

/// The source of a structure, if it is an example.
fn source(structure: Structure) -> Option<Source> {
    let (path, makes, recovers, handle) = match structure {
        Structure::LazyList => ("../src/lazy_list.rs", "set", true, "LazyList<u64>"),
        Structure::LazyListNaive => ("../src/lazy_list_naive.rs", "set", true, "LazyListNaive<u64>"),
        Structure::HarrisList => ("../src/harris_list.rs", "lock_free_set", false, "HarrisList<u64>"),
        Structure::HashSet => ("../src/hash_set.rs", "set", true, "HashSet"),
        Structure::TreiberStack => ("../src/treiber_stack.rs", "stack", false, "TreiberStack<u64>"),
        Structure::MsQueue => ("../src/ms_queue.rs", "queue", false, "MsQueue<u64>"),
        Structure::Register => return None,
    };
    Some(Source { path, makes, recovers, handle })
}

/// The module of a mutant, and the type of its handles.
fn mutant(bug: &Planted) -> Result<(String, String), String> {
    let Planted { name, structure, edits, invariant, why, caught_by, needs_faults } = bug;
    let Source { path, makes, recovers, handle } = source(*structure)
        .ok_or_else(|| format!("planted bug `{name}`: {structure:?} has no source to edit"))?;
    let source = fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    let mut code = without_indentation(&without_examples(&source));
    for (search, replacement) in *edits {
        let search = without_indentation(search);
        let found = code.matches(&search).count();
        if found != 1 {
            return Err(format!(
                "planted bug `{name}`: a passage that it replaces occurs {found} times in {path}, not once"
            ));
        }
        code = code.replace(&search, replacement);
    }
    // Other structures have another path here.
    let code = code.replace("crate::LazyList", "farfield_examples::LazyList");
    let (caught_by, faults) = (caught_by.name(), if *needs_faults { ", with faults" } else { "" });
    let (kind, recover) = (format!("{name}::{handle}"), if recovers { ", recover" } else { "" });
    let module = format!(
        "/// Planted in {structure:?}: {why}. Breaks: {invariant}. Caught by {caught_by}{faults}.\n\
         pub mod {name} {{\n{code}}}\ncrate::subject::{makes}!({kind}{recover});\n\n"
    );
    Ok((module, kind))
}

/// The lines of a text without their indentation.
fn without_indentation(text: &str) -> String {
    let ends_a_line = if text.ends_with('\n') { "\n" } else { "" };
    text.lines().map(str::trim_start).collect::<Vec<_>>().join("\n") + ends_a_line
}

/// The source without the module's documentation and without examples, which would be tested again here.
fn without_examples(source: &str) -> String {
    let mut in_example = false;
    let mut kept = String::new();
    for line in source.lines() {
        let trimmed = line.trim_start();
        let fence = trimmed.starts_with("/// ```");
        if !(trimmed.starts_with("//!") || fence || in_example) {
            kept.push_str(line);
            kept.push('\n');
        }
        in_example ^= fence;
    }
    kept
}
