//! Makes a mutant of a structure for each planted bug.
//!
//! The mutants of a structure are one module, compiled once: a function that planted bugs change has the bodies of all, and chooses by
//! [`mutants::active`](crate::mutants::active), the number of the bug that the run has, or none ("mutant schemata": Untch, Offutt and Harrold, ISSTA
//! 1993). A bug that changes something else, such as a type or a constant, has a copy of the structure for itself; see [`merge`].
//!
//! Writes `structures.rs` to the output folder: the maps with small tables and tall towers, the ring of mapped memory, and the book's broken list;
//! with the feature `mutants` these have mutants, as have the other structures; and the table of the mutants.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs, process};

// The library uses the remaining items.
#[allow(dead_code, unreachable_pub)]
#[path = "../../runtime/testing/src/check.rs"]
mod check;
#[path = "merge.rs"]
mod merge;
#[allow(dead_code, unreachable_pub, unused_imports)]
#[path = "src/planted/mod.rs"]
mod planted;

use check::Check;
use merge::Merged;
use planted::{Planted, Structure};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=merge.rs");
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
    let mut bugs = Vec::new();
    for (group, planted) in planted::PLANTED.iter().enumerate() {
        for (index, bug) in planted.iter().enumerate() {
            let source = source(bug.structure).ok_or_else(|| {
                format!("planted bug `{}`: {:?} has no source to edit", bug.name, bug.structure)
            })?;
            // The edits of all must be possible, in each build.
            let code = source.mutant(bug, source.module)?;
            bugs.push(Bug { number: bugs.len() + 1, at: (group, index), planted: bug, source, code });
        }
    }
    let modules = if cfg!(feature = "mutants") { mutants(&bugs)? } else { sound(&bugs)? };
    let folder = env::var("OUT_DIR").map_err(|error| format!("OUT_DIR: {error}"))?;
    let name = "structures.rs";
    fs::write(Path::new(&folder).join(name), modules).map_err(|error| format!("{name}: {error}"))
}

/// A planted bug.
struct Bug {
    /// From 1 on.
    number: usize,
    /// Where it is in [`planted::PLANTED`].
    at: (usize, usize),
    planted: &'static Planted,
    source: Source,
    /// The structure's source with the bug, in the module that the mutants share.
    code: String,
}

/// The table of the mutants' subjects.
fn table(subjects: &str) -> String {
    format!("/// A subject for each mutant.\npub static MUTANTS: &[Subject] = &[\n{subjects}];\n")
}

/// The modules of all structures, with planted bugs, and the table of their subjects.
fn mutants(bugs: &[Bug]) -> Result<String, String> {
    let (mut modules, mut subjects) = (entries()?, String::new());
    let mut shared: BTreeMap<&str, Merged> = BTreeMap::new();
    for (module, path, edits) in PREPARED {
        shared.insert(module, Merged::new(&edited(path, module, edits)?)?);
    }
    for Bug { number, at: (group, index), planted: bug, source, code } in bugs {
        let merged = match shared.entry(source.module) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let _ = writeln!(modules, "{}", source.tested(source.module));
                let base = edited(source.path, source.module, prepared(source.module))?;
                entry.insert(Merged::new(&base)?)
            }
        };
        let is_merged = !IN_THE_BOOK.contains(&bug.name) && merged.add(*number, code)?;
        if !is_merged {
            modules.push_str(&copy(bug, source)?);
        }
        let module = if is_merged { source.module } else { bug.name };
        let of = if bug.structure == Structure::SmallKeyValueStore { "mutant_of_store" } else { "mutant" };
        let (described, handle) = (described(bug), source.handle);
        let _ = writeln!(
            subjects,
            "    // {described}\n    Subject::{of}::<{module}::{handle}, {number}>(&PLANTED[{group}][{index}]),"
        );
    }
    for (module, merged) in shared {
        let _ =
            writeln!(modules, "/// A structure with planted bugs.\npub mod {module} {{\n{}}}", merged.code());
    }
    Ok(modules + &table(&subjects))
}

/// What a bug does, in a line.
fn described(bug: &Planted) -> String {
    let Planted { name, structure, invariant, why, caught_by, needs_faults, .. } = bug;
    let (caught_by, faults) = (caught_by.name(), if *needs_faults { ", with faults" } else { "" });
    format!("`{name}`, planted in {structure:?}: {why}. Breaks: {invariant}. Caught by {caught_by}{faults}.")
}

/// Bugs of which the book's programs use the structure: it has a copy for itself.
const IN_THE_BOOK: [&str; 1] = ["lazy_list_does_not_validate"];

/// A structure's source, as users read it.
struct Source {
    /// The module that its mutants share.
    module: &'static str,
    /// Its file, relative to this crate. Its submodules are in the folder of the same name.
    path: &'static str,
    /// The macro that implements `Tested` for it.
    makes: &'static str,
    /// The macro's arguments after the type.
    with: &'static str,
    /// The type of its handles.
    handle: &'static str,
}

impl Source {
    /// The implementation of `Tested` for the structure of a module.
    fn tested(&self, module: &str) -> String {
        format!("crate::{}!({module}::{}{});", self.makes, self.handle, self.with)
    }

    /// The source with the edits of a planted bug, as the contents of a module.
    fn mutant(&self, bug: &Planted, module: &str) -> Result<String, String> {
        let edits: Vec<_> = prepared(self.module).iter().chain(bug.edits).copied().collect();
        edited(self.path, module, &edits).map_err(|why| format!("planted bug `{}`: {why}", bug.name))
    }
}

/// The source of a structure, if it has one to edit.
fn source(structure: Structure) -> Option<Source> {
    let (module, path, makes, with, handle) = match structure {
        Structure::LazyList => {
            ("lazy_list", "../src/lazy_list.rs", "subject::set", ", recover", "LazyList<u64>")
        }
        Structure::LazyListNaive => {
            let path = "../src/lazy_list_naive.rs";
            ("lazy_list_naive", path, "subject::set", ", recover", "LazyListNaive<u64>")
        }
        Structure::HarrisList => {
            ("harris_list", "../src/harris_list.rs", "subject::lock_free_set", "", "HarrisList<u64>")
        }
        Structure::HashSet => ("hash_set", "../src/hash_set.rs", "subject::set", ", recover", "HashSet"),
        Structure::TreiberStack => {
            ("treiber_stack", "../src/treiber_stack.rs", "subject::stack", "", "TreiberStack<u64>")
        }
        Structure::MsQueue => ("ms_queue", "../src/ms_queue.rs", "subject::queue", "", "MsQueue<u64>"),
        Structure::Ring => ("ring", RING, "subject::ring", "", "Ring<u64>"),
        Structure::MappedRing => ("ring_of_mapped_memory", RING, "subject::ring", "", "Ring<u64>"),
        Structure::SmallHashMap => {
            ("hash_map_with_small_tables", HASH_MAP, "map::map", ", u64", "HashMap<u64, u64>")
        }
        Structure::HashMapOfBytes => {
            let handle = "HashMap<Vec<u8>, Vec<u8>>";
            ("hash_map_with_small_tables", HASH_MAP, "map::map", ", Vec<u8>", handle)
        }
        Structure::SmallInlineHashMap => {
            let (module, handle) = ("inline_hash_map_with_small_tables", "inline::InlineHashMap<u64, u64>");
            (module, INLINE_HASH_MAP, "map::locking_map", ", u64", handle)
        }
        Structure::SmallInterlockedHashTable => {
            let (module, handle) =
                ("interlocked_with_small_lists", "interlocked::InterlockedHashTable<u64, u64>");
            (module, INTERLOCKED, "map::locking_map", ", u64", handle)
        }
        Structure::TallSkipList => {
            ("tall_skip_list", SKIP_LIST, "map::ordered_map", ", u64, forwards", "SkipList<u64, u64>")
        }
        Structure::PriorityQueue => {
            let (module, handle) = ("priority_queue_with_tall_towers", "PriorityQueue<u64, u64>");
            (module, PRIORITY_QUEUE, "subject::priority_queue", "", handle)
        }
        Structure::SmallOrderedMap => {
            let (module, handle) = ("ordered_map_with_small_nodes", "OrderedMap<u64, u64>");
            (module, ORDERED_MAP, "map::ordered_map", ", u64", handle)
        }
        Structure::OrderedMapOfBytes => {
            let (module, handle) = ("ordered_map_with_small_nodes", "OrderedMap<Vec<u8>, Vec<u8>>");
            (module, ORDERED_MAP, "map::ordered_map", ", Vec<u8>", handle)
        }
        Structure::SmallKeyValueStore => ("kv_with_small_pages", KV, "kv::store", "", "Store"),
        Structure::KeyValueStore
        | Structure::HashMap
        | Structure::InlineHashMap
        | Structure::SkipList
        | Structure::OrderedMap
        | Structure::InterlockedHashTable
        | Structure::Register => return None,
    };
    Some(Source { module, path, makes, with, handle })
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

/// The structures with small tables and tall towers, and the ring of mapped memory: a module, the file, and the edits. They are soaked without a bug, too.
const PREPARED: [(&str, &str, Edits); 7] = [
    // Half of its clients access words one by one.
    ("ring_of_mapped_memory", RING, planted::MAPPED),
    ("tall_skip_list", SKIP_LIST, planted::TALL_TOWERS),
    ("hash_map_with_small_tables", HASH_MAP, planted::SMALL_TABLES),
    ("inline_hash_map_with_small_tables", INLINE_HASH_MAP, planted::SMALL_INLINE_TABLES),
    ("ordered_map_with_small_nodes", ORDERED_MAP, planted::SMALL_NODES),
    ("interlocked_with_small_lists", INTERLOCKED, planted::SMALL_LISTS),
    ("kv_with_small_pages", KV, planted::SMALL_PAGES),
];

/// Passages and their replacements.
type Edits = &'static [(&'static str, &'static str)];

/// Edits that come before those of a planted bug.
fn prepared(module: &str) -> Edits {
    if module == "priority_queue_with_tall_towers" {
        return planted::TALL_TOWERS;
    }
    PREPARED.iter().find(|(name, ..)| *name == module).map_or(&[], |(_, _, edits)| edits)
}

/// The module with the entries that the maps share.
fn entries() -> Result<String, String> {
    Ok(format!("/// The entries of the maps.\npub mod entry {{\n{}}}\n", whole(Path::new(ENTRY))?))
}

/// The prepared structures, without a bug, and the book's.
fn sound(bugs: &[Bug]) -> Result<String, String> {
    let mut modules = entries()?;
    for (module, path, edits) in PREPARED {
        let code = edited(path, module, edits)?;
        let _ = writeln!(modules, "/// A structure that is soaked.\npub mod {module} {{\n{code}}}");
    }
    for Bug { planted, source, .. } in bugs.iter().filter(|bug| IN_THE_BOOK.contains(&bug.planted.name)) {
        modules.push_str(&copy(planted, source)?);
    }
    Ok(modules + &table(""))
}

/// A module of its own with a bug's mutant.
fn copy(bug: &Planted, source: &Source) -> Result<String, String> {
    let code = source.mutant(bug, bug.name)?;
    let (name, described, tested) = (bug.name, described(bug), source.tested(bug.name));
    Ok(format!("/// {described}\npub mod {name} {{\n{code}}}\n{tested}\n"))
}

/// A structure's source with edits, as the contents of a module.
fn edited(path: &str, module: &str, edits: &[(&str, &str)]) -> Result<String, String> {
    let mut code = without_indentation(&source_of(path)?);
    for (search, replacement) in edits {
        let search = without_indentation(search);
        let found = code.matches(&search).count();
        if found != 1 {
            return Err(format!(
                "a passage that is replaced occurs {found} times in {path}, not once: {search}"
            ));
        }
        code = code.replace(&search, replacement);
    }
    // Other structures have another path here.
    let code = code.replace("crate::LazyList", "farfield_examples::LazyList");
    // A crate is a module here.
    Ok(if path == KV { code.replace("crate::", &format!("crate::mutants::{module}::")) } else { code })
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
