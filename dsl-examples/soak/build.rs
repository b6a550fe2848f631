//! Makes a broken copy of a structure for each planted bug.
//!
//! Writes `mutants.rs` to the output folder: a module for each bug, with the structure's real source and one edit.

use std::path::Path;
use std::{env, fs, process};

// The library uses the rest of it.
#[allow(dead_code, unreachable_pub, unused_imports)]
#[path = "src/planted/mod.rs"]
mod planted;

use planted::{Bug, Planted, Structure};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/planted");
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
            let planted = format!("&PLANTED[{group}][{number}]");
            let mutant = match bug.bug {
                Bug::Edit { search, replacement } => Some(mutant(bug, &[(search, replacement)])?),
                Bug::Edits(edits) => Some(mutant(bug, edits)?),
                Bug::Runtime(_) => None,
            };
            let subject = match mutant {
                Some((module, kind)) => {
                    modules.push_str(&module);
                    format!("Subject::mutant::<{kind}>({planted})")
                }
                None => format!("Subject::on_broken_runtime({planted})"),
            };
            table.extend(["    ", &subject, ",\n"]);
        }
    }
    let text = format!(
        "{modules}/// A subject for each planted bug.\npub static MUTANTS: &[Subject] = &[\n{table}];\n"
    );
    let folder = env::var("OUT_DIR").map_err(|error| format!("OUT_DIR: {error}"))?;
    fs::write(Path::new(&folder).join("mutants.rs"), text).map_err(|error| format!("mutants.rs: {error}"))
}

/// The source of a structure that users read.
struct Source {
    /// Its file, seen from this crate.
    path: &'static str,
    /// The macro that makes it a subject.
    makes: &'static str,
    /// Whether it can put right what dead threads have left.
    recovers: bool,
    /// The type of a handle.
    handle: &'static str,
}

/// Where to find a structure, if it is an example.
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

/// The module of a bug, and the type of its handles.
fn mutant(bug: &Planted, edits: &[(&str, &str)]) -> Result<(String, String), String> {
    let Planted { name, structure, invariant, why, caught_by, needs_faults, .. } = bug;
    let Source { path, makes, recovers, handle } = source(*structure)
        .ok_or_else(|| format!("planted bug `{name}`: {structure:?} has no source to edit"))?;
    let source = fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    let mut code = without_indentation(&without_examples(&source));
    for (search, replacement) in edits {
        let search = without_indentation(search);
        let found = code.matches(&search).count();
        if found != 1 {
            return Err(format!(
                "planted bug `{name}`: what it replaces occurs {found} times in {path}, and must occur once"
            ));
        }
        code = code.replace(&search, replacement);
    }
    // An example's other structures are found from here by another path.
    let code = code.replace("crate::LazyList", "farfield_examples::LazyList");
    let (caught_by, faults) = (caught_by.name(), if *needs_faults { ", with faults" } else { "" });
    let (kind, recover) = (format!("{name}::{handle}"), if recovers { ", recover" } else { "" });
    let module = format!(
        "/// Planted in {structure:?}: {why}. Breaks: {invariant}. Caught by {caught_by}{faults}.\n\
         pub mod {name} {{\n{code}}}\ncrate::subject::{makes}!({kind}{recover});\n\n"
    );
    Ok((module, kind))
}

/// The lines of a text, each without the blanks in front of it.
fn without_indentation(text: &str) -> String {
    let ends_a_line = if text.ends_with('\n') { "\n" } else { "" };
    text.lines().map(str::trim_start).collect::<Vec<_>>().join("\n") + ends_a_line
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
