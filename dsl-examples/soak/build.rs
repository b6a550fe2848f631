//! Makes a mutant of a structure for each planted bug.
//!
//! Writes `mutants.rs` to the output folder: a module for each bug, with the structure's real source and the bug's edits; and `sound.rs`, with the maps
//! with small tables and tall towers, and the ring of mapped memory, which have no bug. Without the feature `mutants` the former has none.

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
    println!("cargo::rerun-if-env-changed={SHARE}");
    println!("cargo::rerun-if-changed=src/planted");
    println!("cargo::rerun-if-changed={ENTRY}");
    println!("cargo::rerun-if-changed=../../runtime/testing/src/check.rs");
    for Source { path, .. } in Structure::ALL.into_iter().filter_map(source) {
        println!("cargo::rerun-if-changed={path}");
        if path == KV {
            let folder = Path::new(KV).with_file_name("");
            println!("cargo::rerun-if-changed={}", folder.display());
        }
        let submodules = Path::new(path).with_extension("");
        if submodules.is_dir() {
            println!("cargo::rerun-if-changed={}", submodules.display());
        }
    }
    if let Err(line) = run() {
        eprintln!("error: {line}");
        process::exit(1);
    }
}

fn run() -> Result<(), String> {
    let (mut modules, mut table) = (String::new(), String::new());
    let share = share()?;
    let planted: &[&[Planted]] = if cfg!(feature = "mutants") { &planted::PLANTED } else { &[] };
    for (group, bugs) in planted.iter().enumerate() {
        for (number, bug) in bugs.iter().enumerate() {
            // Of those that are not made, too, the edits must be possible.
            let (module, kind) = mutant(bug)?;
            if !share.is_none_or(|(part, parts)| number % parts == part || is_always_made(bug)) {
                continue;
            }
            modules.push_str(&module);
            let of =
                if bug.structure == Structure::SmallKeyValueStore { "mutant_of_store" } else { "mutant" };
            let _ = writeln!(table, "    Subject::{of}::<{kind}>(&PLANTED[{group}][{number}]),");
        }
    }
    let text =
        format!("{modules}/// A subject for each mutant.\npub static MUTANTS: &[Subject] = &[\n{table}];\n");
    let folder = env::var("OUT_DIR").map_err(|error| format!("OUT_DIR: {error}"))?;
    for (name, text) in [("mutants.rs", text), ("sound.rs", small_tables()?)] {
        fs::write(Path::new(&folder).join(name), text).map_err(|error| format!("{name}: {error}"))?;
    }
    Ok(())
}

/// The variable that says which mutants of the large structures are made: `1/3` is every third one, from the second on. By default all are.
const SHARE: &str = "FARFIELD_MUTANTS";

/// The share of mutants that are made: the number of a part, and the number of parts.
fn share() -> Result<Option<(usize, usize)>, String> {
    let Ok(text) = env::var(SHARE) else { return Ok(None) };
    let parts =
        text.split_once('/').and_then(|(part, parts)| Some((part.parse().ok()?, parts.parse().ok()?)));
    match parts {
        Some((part, parts)) if part < parts => Ok(Some((part, parts))),
        _ => Err(format!("{SHARE}={text} is not a part of some parts, such as 0/3")),
    }
}

/// Returns whether a bug's mutant is made in each build: its structure is small.
fn is_always_made(bug: &Planted) -> bool {
    let large = [HASH_MAP, INLINE_HASH_MAP, SKIP_LIST, ORDERED_MAP, PRIORITY_QUEUE, INTERLOCKED, KV];
    source(bug.structure).is_none_or(|source| !large.contains(&source.path))
}

/// A structure's source, as users read it.
struct Source {
    /// Its file, relative to this crate. Its submodules are in the folder of the same name.
    path: &'static str,
    /// The macro that implements `Tested` for it.
    makes: &'static str,
    /// The macro's arguments after the type.
    with: &'static str,
    /// The type of its handles.
    handle: &'static str,
}

/// The source of a structure, if it has one to edit.
fn source(structure: Structure) -> Option<Source> {
    let (path, makes, with, handle) = match structure {
        Structure::LazyList => ("../src/lazy_list.rs", "subject::set", ", recover", "LazyList<u64>"),
        Structure::LazyListNaive => {
            ("../src/lazy_list_naive.rs", "subject::set", ", recover", "LazyListNaive<u64>")
        }
        Structure::HarrisList => ("../src/harris_list.rs", "subject::lock_free_set", "", "HarrisList<u64>"),
        Structure::HashSet => ("../src/hash_set.rs", "subject::set", ", recover", "HashSet"),
        Structure::TreiberStack => ("../src/treiber_stack.rs", "subject::stack", "", "TreiberStack<u64>"),
        Structure::MsQueue => ("../src/ms_queue.rs", "subject::queue", "", "MsQueue<u64>"),
        Structure::Ring | Structure::MappedRing => (RING, "subject::ring", "", "Ring<u64>"),
        Structure::SmallHashMap => (HASH_MAP, "map::map", ", u64", "HashMap<u64, u64>"),
        Structure::HashMapOfBytes => (HASH_MAP, "map::map", ", Vec<u8>", "HashMap<Vec<u8>, Vec<u8>>"),
        Structure::SmallInlineHashMap => {
            (INLINE_HASH_MAP, "map::locking_map", ", u64", "inline::InlineHashMap<u64, u64>")
        }
        Structure::SmallInterlockedHashTable => {
            (INTERLOCKED, "map::locking_map", ", u64", "interlocked::InterlockedHashTable<u64, u64>")
        }
        Structure::TallSkipList => (SKIP_LIST, "map::ordered_map", ", u64, forwards", "SkipList<u64, u64>"),
        Structure::PriorityQueue => {
            (PRIORITY_QUEUE, "subject::priority_queue", "", "PriorityQueue<u64, u64>")
        }
        Structure::SmallOrderedMap => (ORDERED_MAP, "map::ordered_map", ", u64", "OrderedMap<u64, u64>"),
        Structure::OrderedMapOfBytes => {
            (ORDERED_MAP, "map::ordered_map", ", Vec<u8>", "OrderedMap<Vec<u8>, Vec<u8>>")
        }
        Structure::SmallKeyValueStore => (KV, "kv::store", "", "Store"),
        Structure::KeyValueStore
        | Structure::HashMap
        | Structure::InlineHashMap
        | Structure::SkipList
        | Structure::OrderedMap
        | Structure::InterlockedHashTable
        | Structure::Register => return None,
    };
    Some(Source { path, makes, with, handle })
}

const HASH_MAP: &str = "../../collections/src/hash_map.rs";
const INLINE_HASH_MAP: &str = "../../collections/src/hash_map/inline.rs";
const ENTRY: &str = "../../collections/src/entry.rs";
const SKIP_LIST: &str = "../../collections/src/skip_list.rs";
const ORDERED_MAP: &str = "../../collections/src/ordered_map.rs";
const RING: &str = "../../collections/src/ring.rs";
const PRIORITY_QUEUE: &str = "../../collections/src/priority_queue.rs";
/// The modules beside the inline map that it uses.
const BESIDE_INLINE: [&str; 3] = ["counters", "directory", "layout"];
const INTERLOCKED: &str = "../../collections/src/interlocked.rs";
/// The modules of the map that the Interlocked Hash Table uses.
const BESIDE_INTERLOCKED: [&str; 2] = ["counters", "layout"];

const KV: &str = "../../kv/src/lib.rs";
/// The modules of the key-value engine, but for the one whose threads the simulator does not have.
const OF_KV: [&str; 9] = ["error", "index", "lists", "open", "options", "pages", "record", "store", "tally"];

/// Edits that come before those of a planted bug.
fn prepared(structure: Structure) -> &'static [(&'static str, &'static str)] {
    match structure {
        Structure::SmallHashMap | Structure::HashMapOfBytes => planted::SMALL_TABLES,
        Structure::SmallInlineHashMap => planted::SMALL_INLINE_TABLES,
        Structure::SmallOrderedMap | Structure::OrderedMapOfBytes => planted::SMALL_NODES,
        Structure::MappedRing => planted::MAPPED,
        Structure::TallSkipList | Structure::PriorityQueue => planted::TALL_TOWERS,
        Structure::SmallInterlockedHashTable => planted::SMALL_LISTS,
        Structure::SmallKeyValueStore => planted::SMALL_PAGES,
        _ => &[],
    }
}

/// Modules with the maps whose tables are small, or whose towers are tall, and with the ring of mapped memory, and no bug.
fn small_tables() -> Result<String, String> {
    let ring = edited(RING, "ring_of_mapped_memory", planted::MAPPED)?;
    let skip_list = edited(SKIP_LIST, "tall_skip_list", planted::TALL_TOWERS)?;
    let hash_map = edited(HASH_MAP, "hash_map_with_small_tables", planted::SMALL_TABLES)?;
    let inline = edited(INLINE_HASH_MAP, "inline_hash_map_with_small_tables", planted::SMALL_INLINE_TABLES)?;
    let ordered_map = edited(ORDERED_MAP, "ordered_map_with_small_nodes", planted::SMALL_NODES)?;
    let entry = whole(Path::new(ENTRY))?;
    let interlocked = edited(INTERLOCKED, "interlocked_with_small_lists", planted::SMALL_LISTS)?;
    let kv = edited(KV, "kv_with_small_pages", planted::SMALL_PAGES)?;
    Ok(format!(
        "/// The entries of the maps.\npub mod entry {{\n{entry}}}\n\n\
         /// The map, with small tables.\npub mod hash_map_with_small_tables {{\n{hash_map}}}\n\n\
         /// The inline map, with small tables.\npub mod inline_hash_map_with_small_tables {{\n{inline}}}\n\n\
         /// The ring, half of whose clients access words one by one.\npub mod ring_of_mapped_memory {{\n{ring}}}\n\n\
         /// The skip list, with tall towers.\npub mod tall_skip_list {{\n{skip_list}}}\n\n\
         /// The ordered map, with small nodes.\npub mod ordered_map_with_small_nodes {{\n{ordered_map}}}\n\n\
         /// The Interlocked Hash Table, with small lists.\npub mod interlocked_with_small_lists {{\n{interlocked}}}\n\n\
         /// The key-value engine, with small pages.\npub mod kv_with_small_pages {{\n{kv}}}\n\n"
    ))
}

/// The module of a mutant, and the type of its handles.
fn mutant(bug: &Planted) -> Result<(String, String), String> {
    let Planted { name, structure, edits, invariant, why, caught_by, needs_faults } = bug;
    let Source { path, makes, with, handle } = source(*structure)
        .ok_or_else(|| format!("planted bug `{name}`: {structure:?} has no source to edit"))?;
    let edits: Vec<_> = prepared(*structure).iter().chain(*edits).copied().collect();
    // Other structures have another path here.
    let code = edited(path, name, &edits)?.replace("crate::LazyList", "farfield_examples::LazyList");
    let (caught_by, faults) = (caught_by.name(), if *needs_faults { ", with faults" } else { "" });
    let kind = format!("{name}::{handle}");
    let module = format!(
        "/// Planted in {structure:?}: {why}. Breaks: {invariant}. Caught by {caught_by}{faults}.\n\
         pub mod {name} {{\n{code}}}\ncrate::{makes}!({kind}{with});\n\n"
    );
    Ok((module, kind))
}

/// A structure's source with edits, as the contents of a module.
fn edited(path: &str, name: &str, edits: &[(&str, &str)]) -> Result<String, String> {
    let mut code = without_indentation(&source_of(path)?);
    for (search, replacement) in edits {
        let search = without_indentation(search);
        let found = code.matches(&search).count();
        if found != 1 {
            return Err(format!(
                "planted bug `{name}`: a passage that it replaces occurs {found} times in {path}, not once: {search}"
            ));
        }
        code = code.replace(&search, replacement);
    }
    // A crate is a module here.
    Ok(if path == KV { code.replace("crate::", &format!("crate::mutants::{name}::")) } else { code })
}

/// The source of a structure, as the contents of a module.
fn source_of(path: &str) -> Result<String, String> {
    if path == KV {
        let mut modules = String::new();
        for name in OF_KV {
            let module = whole(&Path::new(KV).with_file_name(name).with_extension("rs"))?;
            let _ = writeln!(modules, "/// A module of the key-value engine.\npub mod {name} {{\n{module}}}");
        }
        return Ok(modules
            + "pub use open::Opened;\npub use options::Options;\npub use record::MOST_VALUE_BYTES;\npub use store::Store;\n");
    }
    let code = whole(Path::new(path))?;
    if path == INTERLOCKED {
        // Beside the map, of which it uses modules.
        let code = code.replace("(crate::InlineHashMap)", "(farfield_collections::InlineHashMap)");
        let mut modules =
            format!("/// The Interlocked Hash Table.\npub mod interlocked {{\n{code}}}\nmod hash_map {{\n");
        for name in BESIDE_INTERLOCKED {
            let beside = whole(&Path::new(HASH_MAP).with_extension("").join(name).with_extension("rs"))?;
            let _ = writeln!(modules, "pub mod {name} {{\n{beside}}}");
        }
        return Ok(modules + "pub use counters::Counters;\n}\n");
    }
    if path == PRIORITY_QUEUE {
        // It is a module beside the skip list, and so it is here.
        let code = code
            .replace("crate::skip_list", "self::skip_list")
            .replace("(super::SkipList", "(farfield_collections::SkipList");
        return Ok(format!(
            "/// The skip list.\npub mod skip_list {{\n{}}}\n{code}",
            whole(Path::new(SKIP_LIST))?
        ));
    }
    if path != INLINE_HASH_MAP {
        return Ok(code);
    }
    // It is a module of the map's, beside those that both use. Its documentation names the map.
    let code = code.replace("(super::HashMap)", "(farfield_collections::HashMap)");
    let mut modules = format!("/// The inline map.\npub mod inline {{\n{code}}}\n");
    for name in BESIDE_INLINE {
        let beside = whole(&Path::new(path).with_file_name(name).with_extension("rs"))?;
        let _ = writeln!(modules, "mod {name} {{\n{beside}}}");
    }
    Ok(modules)
}

/// A module's source, with those of its submodules in place.
fn whole(path: &Path) -> Result<String, String> {
    let source = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut code = String::new();
    // The inline map is another structure.
    let without = without_examples(&source).replace("pub(crate) mod inline;\n", "");
    for line in without.lines() {
        let line =
            if line.ends_with(';') { line.replace("pub(crate) mod ", "mod ") } else { line.to_owned() };
        match line.strip_prefix("mod ").and_then(|rest| rest.strip_suffix(';')) {
            Some(name) => {
                let submodule = whole(&path.with_extension("").join(name).with_extension("rs"))?;
                let _ = writeln!(code, "mod {name} {{\n{submodule}}}");
            }
            None => {
                let _ = writeln!(code, "{line}");
            }
        }
    }
    // Maps share the module; so do their copies.
    Ok(code
        .replace("crate::entry", "crate::mutants::entry")
        .replace("crate::Key", "farfield_collections::Key"))
}

/// The lines of a text without their indentation.
fn without_indentation(text: &str) -> String {
    let ends_a_line = if text.ends_with('\n') { "\n" } else { "" };
    text.lines().map(str::trim_start).collect::<Vec<_>>().join("\n") + ends_a_line
}

/// The source without the module's documentation, and without the examples and the tests at its end, which would be tested again here.
fn without_examples(source: &str) -> String {
    let mut in_example = false;
    let mut kept = String::new();
    for line in source.lines().take_while(|line| *line != "#[cfg(test)]") {
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
