//! Makes a broken copy of a structure for each planted bug.
//!
//! Writes `mutants.rs` to the output folder: a module for each bug, with the structure's real source and one edit.

use std::path::Path;
use std::{env, fs, process};

// The library uses the rest of it.
#[allow(dead_code, unreachable_pub)]
#[path = "src/planted.rs"]
mod planted;

use planted::{PLANTED, Planted, Structure};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/planted.rs");
    for structure in Structure::ALL {
        println!("cargo::rerun-if-changed={}", path(structure));
    }
    if let Err(line) = run() {
        eprintln!("error: {line}");
        process::exit(1);
    }
}

fn run() -> Result<(), String> {
    let mutants = PLANTED.iter().map(mutant).collect::<Result<String, String>>()?;
    let table = PLANTED.iter().enumerate().map(|(number, bug)| {
        let (name, (_, handle)) = (bug.name, kind(bug.structure));
        format!("    Subject::planted::<{name}::{handle}<u64>>(&PLANTED[{number}]),\n")
    });
    let table: String = table.collect();
    let text = format!(
        "{mutants}/// A subject for each planted bug.\npub static MUTANTS: &[Subject] = &[\n{table}];\n"
    );
    let folder = env::var("OUT_DIR").map_err(|error| format!("OUT_DIR: {error}"))?;
    fs::write(Path::new(&folder).join("mutants.rs"), text).map_err(|error| format!("mutants.rs: {error}"))
}

/// Where a structure's source is, seen from this crate.
fn path(structure: Structure) -> &'static str {
    match structure {
        Structure::LazyList => "../src/lazy_list.rs",
        Structure::LazyListNaive => "../src/lazy_list_naive.rs",
        Structure::HarrisList => "../src/harris_list.rs",
        Structure::HashSet => "../src/hash_set.rs",
        Structure::TreiberStack => "../src/treiber_stack.rs",
        Structure::MsQueue => "../src/ms_queue.rs",
    }
}

/// The macro that makes a structure a subject, and the name of its handle.
fn kind(structure: Structure) -> (&'static str, &'static str) {
    match structure {
        Structure::LazyList => ("set", "LazyList"),
        Structure::LazyListNaive => ("set", "LazyListNaive"),
        Structure::HarrisList => ("set", "HarrisList"),
        Structure::HashSet => ("set", "HashSet"),
        Structure::TreiberStack => ("stack", "TreiberStack"),
        Structure::MsQueue => ("queue", "MsQueue"),
    }
}

/// The module of one bug.
fn mutant(bug: &Planted) -> Result<String, String> {
    let Planted { name, structure, search, replacement, why, caught_by, needs_faults } = bug;
    let path = path(*structure);
    let source = fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    let found = source.matches(search).count();
    if found != 1 {
        return Err(format!(
            "planted bug `{name}`: what it replaces occurs {found} times in {path}, and must occur once"
        ));
    }
    let code = without_examples(&source.replace(search, replacement));
    let (makes, handle) = kind(*structure);
    let (caught_by, faults) = (caught_by.name(), if *needs_faults { ", with faults" } else { "" });
    Ok(format!(
        "/// Planted in {structure:?}: {why}. Caught by {caught_by}{faults}.\npub mod {name} {{\n{code}}}\n\
         crate::subject::{makes}!({name}::{handle}<u64>);\n\n"
    ))
}

/// The source without the module's own documentation and without examples, which would be tested once more here.
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
