//! Rules about source text that the compiler does not check.
//!
//! Each rule checks lines of source. A file can not exempt itself: the lists below have all exceptions. The tests plant a breach of each
//! rule, which must be found.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use crate::imports::{Graph, Level, Packages};
use crate::workspace::{files, output, read, report, root};
use crate::{decisions, drawings, links, results, unrun};

/// The value of `--imports` for all crates.
const ALL: &str = "all";

/// Options of `cargo xtask tidy`.
#[derive(clap::Args, Default)]
pub(crate) struct Options {
    /// Print the imports of each room, of one crate or of all, instead of checking
    #[arg(long, value_name = "CRATE", num_args = 0..=1, default_missing_value = ALL)]
    imports: Option<String>,
    /// Print the public items that documentation hides, instead of checking
    #[arg(long, conflicts_with = "imports")]
    hidden: bool,
    /// With `--imports`: print the imports of each file
    #[arg(long, requires = "imports")]
    files: bool,
}

/// Files that may contain `unsafe`; each must contain it.
const UNSAFE_FILES: &[&str] = &[
    "runtime/fabric/src/host/arena.rs",
    "runtime/fabric/src/host/mapping.rs",
    "runtime/fabric/src/host/mod.rs",
    "runtime/fabric/src/prefetch.rs",
    "runtime/fabric/src/program.rs",
    "runtime/fabric/src/unposted.rs",
    "runtime/fabric/src/verbs/batch.rs",
    "runtime/fabric/src/verbs/device.rs",
    "runtime/fabric/src/verbs/identifier.rs",
    "runtime/fabric/src/verbs/manager.rs",
    "runtime/fabric/src/verbs/queue.rs",
    "runtime/fabric/src/verbs/queue_pair.rs",
    "runtime/fabric/src/verbs/region.rs",
    "runtime/src/cell/blob.rs",
    "runtime/words/src/array.rs",
    "runtime/words/src/describe.rs",
    "runtime/words/src/remote.rs",
    "runtime/words/src/scratch.rs",
    "macros/src/implement.rs",
    "benches/src/native_lazy_list.rs",
    "benches/benches/memory.rs",
    "benches/src/bin/raw_verbs.rs",
    "benches/src/bin/hash_map/lmdb.rs",
    "benches/src/bin/delegation.rs",
    "benches/src/bin/shared_memory.rs",
    "ui-tests/cases/delegated/fail/unsafe_method.rs",
    "xtask/src/sanitize.rs",
];

/// Only fabrics may use these: clocks, threads, and unseeded random numbers.
const FABRIC_ONLY: &[&str] =
    &["Instant::now", "SystemTime", "thread::spawn", "thread::Builder", "thread::scope", "rand::rng()"];

/// The library's crates.
const LIBRARY: &[&str] = &["runtime/src/", "runtime/words/src/", "runtime/fabric/src/", "runtime/sim/src/"];
/// The library's crate that [`FABRIC_ONLY`] does not bind.
const FABRICS: &str = "runtime/fabric/src/";
/// Code that uses the library and is bound, too.
const STRUCTURES: &str = "dsl-examples/src/";

/// A folder, and a crate that its public interface must not name: a new major version of that crate would break the interface.
const PRIVATE_CRATES: &[(&str, &str)] = &[
    ("runtime/src/", "rand"),
    ("runtime/fabric/src/", "rand"),
    ("runtime/sim/src/", "rand"),
    ("runtime/testing/src/", "todc_utils"),
];

/// Leaf waits: futures written by hand, blocking threads, retry loops, rather than waits for another future. ARCHITECTURE.md's table of
/// waits lists each one of the library, with the clock that ends it.
const LEAF_WAITS: &[&str] = &[
    "poll_fn(",
    " Future for ",
    ".park(",
    ".park_deadline(",
    ".wait(",
    ".wait_for(",
    ".wait_a_round_trip_for(",
    ".wait_timeout",
    ".recv()",
    ".recv_timeout(",
    " poll(&mut waited",
    "thread::sleep(",
    ".join()",
    ".accept()",
    "Stream::connect(",
    "net::connect(",
    ".read_exact(",
    ".lock_shared(",
    "recvmsg(",
    "sendmsg(",
    "yield_now()",
    ".give_way()",
    "ct.park(",
    "pace.park(",
];

/// The only file of the library that prints: see its head.
const PRINTS: &str = "runtime/fabric/src/stall/mod.rs";
/// The file that generates programs' attributes, which print errors as programs do.
const PROGRAMS: &str = "runtime/src/entry.rs";
/// Code that prints.
const PRINTING: &[&str] = &["println!(", "print!(", "stderr()", "stdout()"];

/// Remains of unfinished work.
const UNFINISHED: &[&str] = &["TODO", "FIXME", "XXX", "dbg!(", "todo!(", "unimplemented!("];

/// Text that a test prints when its subject is missing. Such a test passes, so its output is hidden.
const SILENT: &[&str] = &["SKIPPED:", "NOT TESTED"];

/// Checks every source file, or prints the list that an option selects.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    let metadata = output(&["cargo", "metadata", "--no-deps", "--format-version", "1"])?;
    let sources = files(&root(), "rs").into_iter().map(|path| Ok((relative(&path), read(&path)?)));
    let sources = sources.collect::<Result<BTreeMap<_, _>, String>>()?;
    let unrun = unrun::breaches(&metadata, &root(), &sources)?;
    let packages = Packages::new(&metadata, sources)?;
    let graph = Graph::new(&packages)?;
    if let Some(of) = &options.imports {
        let level = if options.files { Level::Files } else { Level::Rooms };
        return print(&graph.list((of != ALL).then_some(of), level)?);
    }
    if options.hidden {
        return print(&graph.list_hidden());
    }
    let mut breaches = graph.check();
    breaches.extend(unrun);
    breaches.extend(rules()?);
    report(&breaches)
}

fn print(text: &str) -> Result<(), String> {
    std::io::stdout().write_all(text.as_bytes()).map_err(|error| format!("stdout: {error}"))
}

/// A file's path relative to the workspace's folder.
fn relative(path: &Path) -> String {
    path.strip_prefix(root()).expect("below the root").to_string_lossy().replace('\\', "/")
}

/// Checks the rules about lines.
fn rules() -> Result<Vec<String>, String> {
    let root = root();
    let mut breaches = Vec::new();
    let mut waits = Vec::new();
    for path in files(&root, "rs") {
        let name = relative(&path);
        // This file contains the forbidden words, and snapshots are generated.
        if name != "xtask/src/tidy.rs" && !name.ends_with(".expanded.rs") {
            let text = read(&path)?;
            breaches.extend(check(&name, &text));
            if is_library(&name) {
                let file = short(&name);
                let found = leaf_waits(&file, &text);
                waits.push((file, found));
            }
        }
    }
    breaches.extend(unlisted_waits(&waits, &read(&root.join("ARCHITECTURE.md"))?));
    breaches
        .extend(readme_example(&read(&root.join("README.md"))?, &read(&root.join("runtime/src/lib.rs"))?));
    breaches.extend(links::broken(&root)?);
    breaches.extend(results::check_tables()?);
    breaches.extend(drawings::breaches(&root)?);
    breaches.extend(decisions::breaches(&root.join("docs/decisions"))?);
    let needed = needed_rust(&read(&root.join("Cargo.toml"))?)?;
    let readme = root.join("README.md");
    if !read(&readme)?.lines().any(|line| rust_versions(line).next().is_some()) {
        breaches.push("README.md: names no oldest supported version of Rust".to_owned());
    }
    let books = files(&root.join("book/src"), "md");
    for path in books.into_iter().chain(files(&root, "toml")).chain([readme, root.join("ARCHITECTURE.md")]) {
        let name = relative(&path);
        breaches.extend(other_rust(&name, &read(&path)?, &needed));
    }
    Ok(breaches)
}

/// The oldest Rust that the workspace supports.
fn needed_rust(manifest: &str) -> Result<String, String> {
    let version = manifest.lines().find_map(|line| line.strip_prefix("rust-version = "));
    let version = version.ok_or("Cargo.toml: no line begins with `rust-version = `")?;
    Ok(version.trim_matches('"').to_owned())
}

/// The versions of Rust that a line names, in prose or in a manifest: `1.89` of `Rust 1.89 or newer`.
fn rust_versions(line: &str) -> impl Iterator<Item = &str> {
    let is_about_rust = line.contains("Rust ") || line.starts_with("rust-version = ");
    let words = line.split(|c: char| !c.is_ascii_digit() && c != '.').map(|word| word.trim_matches('.'));
    words.filter(move |word| is_about_rust && word.starts_with("1.") && word.len() > 2)
}

/// The places where a file names a version of Rust that is not the oldest supported one.
fn other_rust(name: &str, text: &str, needed: &str) -> Vec<String> {
    let lines = (1..).zip(text.lines());
    let others = lines.flat_map(|(number, line)| rust_versions(line).map(move |version| (number, version)));
    let others = others.filter(|(_, version)| *version != needed);
    let breach =
        |(number, version)| format!("{name}:{number}: Rust {version}, but Cargo.toml needs {needed}");
    others.map(breach).collect()
}

/// Checks one file.
fn check(name: &str, text: &str) -> Vec<String> {
    let mut breaches = Vec::new();
    let in_library = is_library(name);
    let is_documented = in_library || name.starts_with("macros/src/") || name.starts_with(STRUCTURES);
    if is_documented && !text.starts_with("//!") {
        breaches.push(format!("{name}: a module begins with its documentation"));
    }
    // Tests may print.
    let last = without_tests(name, text).lines().count();
    let is_test = name.contains("tests/") && !name.starts_with("ui-tests/cases/");
    for (number, line) in (1..).zip(text.lines()) {
        // loom's module `thread` starts no threads.
        let code = line.split("//").next().unwrap_or_default().replace("loom::thread", "loom");
        let mut breach = |rule: String| breaches.push(format!("{name}:{number}: {rule}"));
        for word in UNFINISHED.iter().filter(|word| line.contains(**word)) {
            breach(format!("`{word}` marks unfinished work"));
        }
        if in_library && !name.starts_with(FABRICS) || name.starts_with(STRUCTURES) {
            for word in FABRIC_ONLY.iter().filter(|word| code.contains(**word)) {
                breach(format!("`{word}`: above the fabrics, ask the endpoint"));
            }
        }
        let is_printing = PRINTING.iter().any(|word| code.contains(word));
        if is_printing && in_library && ![PRINTS, PROGRAMS].contains(&name) && number <= last {
            breach("a library does not print: return an error, or trace".to_owned());
        }
        if is_unsafe(&code) && !UNSAFE_FILES.contains(&name) {
            breach("`unsafe` belongs in one of the few files that xtask/src/tidy.rs lists".to_owned());
        }
        if name.starts_with("runtime/tests/skip/") {
            // The module that prints this text.
        } else if SILENT.iter().any(|word| line.contains(word)) {
            breach("a test that does not find its subject calls `skip` (runtime/tests/skip)".to_owned());
        }
        if is_test && code.contains("else { return }") {
            breach("a test that returns early passes: call `skip`, which reports it".to_owned());
        }
        if line.contains("/home/") || line.contains("/root/") {
            breach("a path of a developer's machine".to_owned());
        }
    }
    for (_, private) in PRIVATE_CRATES.iter().filter(|(folder, _)| name.starts_with(folder)) {
        let exposed = exposed(text, private).into_iter();
        breaches.extend(exposed.map(|(number, word)| {
            format!("{name}:{number}: the public interface names `{word}` of the crate `{private}`")
        }));
    }
    if UNSAFE_FILES.contains(&name) && !text.lines().any(is_unsafe) {
        breaches.push(format!("{name}: has no `unsafe`: remove it from the list in xtask/src/tidy.rs"));
    }
    breaches
}

/// Public declarations that name a crate or an item imported from it: the item's first line, and the word.
///
/// A declaration extends from `pub` to the `{`, `;`, `=` or `,` that ends it. Items with restricted visibility, and bodies, are not
/// checked.
fn exposed(text: &str, of: &str) -> Vec<(usize, String)> {
    let words = |code: &str| {
        let words = code.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty());
        words.map(str::to_owned).collect::<Vec<_>>()
    };
    let code: Vec<&str> = text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect();
    let mut theirs = vec![of.to_owned()];
    for line in code.iter().filter(|line| line.trim_start().starts_with(&format!("use {of}::"))) {
        // The last word of each path is the imported name.
        let paths = line.split(['{', '}', ',', ';']).filter_map(|path| words(path).pop());
        theirs.extend(paths.filter(|word| word != "self"));
    }
    let mut found = Vec::new();
    for (start, line) in code.iter().enumerate().filter(|(_, line)| line.trim_start().starts_with("pub ")) {
        let is_use = line.trim_start().starts_with("pub use ");
        let mut declaration = String::new();
        for part in &code[start..] {
            let end = part.find(if is_use { &[';'][..] } else { &['{', ';'] });
            // A field ends with its line.
            let is_field =
                part.trim_end().ends_with(',') && !declaration.contains('(') && !line.contains('(');
            declaration.push_str(&part[..end.unwrap_or(part.len())]);
            if end.is_some() || is_field {
                break;
            }
        }
        found.extend(
            words(&declaration).into_iter().find(|word| theirs.contains(word)).map(|word| (start + 1, word)),
        );
    }
    found
}

/// The part of a file before its tests.
fn without_tests<'a>(file: &str, text: &'a str) -> &'a str {
    let is_test = file.contains("tests") || file.contains("/conformance/");
    let ends = ["\n#[cfg(test)]\nmod tests {", "\n#[cfg(all(test, not(loom)))]\nmod tests {"];
    let end = ends.iter().filter_map(|end| text.find(end)).min();
    if is_test { "" } else { &text[..end.unwrap_or(text.len())] }
}

/// Returns whether a file belongs to the library.
fn is_library(name: &str) -> bool {
    LIBRARY.iter().any(|folder| name.starts_with(folder))
}

/// A file's name in ARCHITECTURE.md's table of waits: without `runtime/` and `src/`.
fn short(name: &str) -> String {
    name.replacen("runtime/", "", 1).replacen("src/", "", 1)
}

/// Number of leaf waits in a file of the library.
fn leaf_waits(file: &str, text: &str) -> usize {
    let code = without_tests(file, text).lines().map(|line| line.split("//").next().unwrap_or_default());
    code.filter(|line| LEAF_WAITS.iter().any(|wait| line.contains(wait))).count()
}

/// The files whose number of waits differs from ARCHITECTURE.md's table, whose rows begin with the file and the number.
fn unlisted_waits(found: &[(String, usize)], architecture: &str) -> Vec<String> {
    let rows = architecture.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| `")?.split('|');
        let file = cells.next()?.trim().strip_suffix('`')?;
        Some((file, cells.next()?.trim().parse::<usize>().ok()?))
    });
    let listed: Vec<(&str, usize)> = rows.collect();
    let listed_of = |file: &str| listed.iter().find(|(listed, _)| *listed == file).map_or(0, |row| row.1);
    let mut breaches = Vec::new();
    for (file, waits) in found.iter().filter(|(file, waits)| listed_of(file) != *waits) {
        breaches.push(format!(
            "{file}: has {waits} waits, but ARCHITECTURE.md's table of waits has {}: each needs a row with the clock that ends it",
            listed_of(file)
        ));
    }
    let is_gone = |row: &&(&str, usize)| !found.iter().any(|(file, _)| file == row.0);
    breaches.extend(
        listed
            .iter()
            .filter(is_gone)
            .map(|(file, _)| format!("ARCHITECTURE.md: has waits of {file}, which does not exist")),
    );
    breaches
}

/// Returns whether a line contains the keyword, not only a longer name such as that of a lint.
fn is_unsafe(code: &str) -> bool {
    code.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == "unsafe")
}

/// Checks that the README's example is the one in the library's documentation, which is tested.
fn readme_example(readme: &str, library: &str) -> Vec<String> {
    let documented: String =
        library.lines().filter_map(|line| line.strip_prefix("//!")).fold(String::new(), |mut text, line| {
            text.push_str(line.strip_prefix(' ').unwrap_or(line));
            text.push('\n');
            text
        });
    let example = readme.split("```rust\n").nth(1).and_then(|rest| rest.split("```").next());
    match example {
        Some(example) if documented.contains(example) => vec![],
        Some(_) => vec![
            "README.md: the example is not the one that runtime/src/lib.rs documents and tests".to_owned(),
        ],
        None => vec!["README.md: there is no example".to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breach(name: &str, text: &str) -> String {
        check(name, text).join("; ")
    }

    #[test]
    fn sound_code_passes() {
        assert_eq!(breach("runtime/src/place/atomic.rs", "//! Atomics.\nfn load() {}\n"), "");
    }

    #[test]
    fn each_planted_breach_is_found() {
        let library = "runtime/src/cluster/run.rs";
        assert!(breach(library, "//! Runs.\nlet now = Instant::now();").contains("ask the endpoint"));
        for word in FABRIC_ONLY {
            assert!(breach(library, &format!("//! Runs.\nstd::{word};")).contains(":2:"), "{word}");
        }
        assert!(breach("dsl-examples/src/a.rs", "//! A.\nInstant::now();").contains("ask the endpoint"));
        for code in [
            "unsafe { f() }",
            "pub unsafe trait T {}",
            "unsafe{f()}",
            "#[allow(unsafe_code)] unsafe fn f() {}",
        ] {
            assert!(
                breach(library, &format!("//! Runs.\n{code}")).contains("one of the few files"),
                "{code}"
            );
        }
        assert!(breach(UNSAFE_FILES[0], "//! Safe now.\nfn f() {}").contains("remove it"));
        assert!(breach(library, "fn f() {}").contains("begins with its documentation"));
        for word in UNFINISHED {
            assert!(breach("benches/src/a.rs", &format!("// {word}")).contains("unfinished work"), "{word}");
        }
        let early = "let Some(device) = device() else { return };";
        assert!(breach("runtime/tests/a.rs", early).contains("returns early passes"));
        assert_eq!(breach("runtime/tests/a.rs", &format!("// {early}")), "");
        for word in SILENT {
            assert!(
                breach("benches/src/a.rs", &format!("eprintln!(\"{word}\");")).contains("calls `skip`"),
                "{word}"
            );
        }
        assert!(breach("dsl-examples/tests/a.rs", "let path = \"/home/me\";").contains("machine"));
    }

    #[test]
    fn types_of_a_private_crate_stay_private() {
        let file = |code: &str| {
            format!("//! A.\nuse rand::rngs::SmallRng;\nuse rand::{{Rng, RngExt as _}};\n{code}\n")
        };
        for exposed in [
            "    pub fn rng(&self) -> RefMut<'_, SmallRng> {",
            "    pub fn rng(\n        &self,\n    ) -> SmallRng {",
            "    pub async fn draw(rng: &mut impl Rng, a: u64) -> Result<()> {",
            "    pub rng: SmallRng,",
            "pub struct A(pub SmallRng);",
            "pub use rand::Rng;",
            "pub type Generator = SmallRng;",
            "pub fn f() -> rand::rngs::StdRng {",
            "pub trait Draw: Rng {",
        ] {
            let found = breach("runtime/src/cluster/a.rs", &file(exposed));
            assert!(found.contains("a.rs:4: the public interface names"), "{exposed}: {found}");
        }
        let search =
            "//! A.\nuse todc_utils::linearizability::history::History;\npub fn search(of: History<u8>) {";
        assert!(breach("runtime/testing/src/a.rs", search).contains("names `History`"));
        for sound in [
            "    pub(crate) fn rng(&self) -> SmallRng {",
            "    pub fn random(&self) -> u64 {\n        SmallRng::seed_from_u64(1).random()",
            "    pub a: u64,\n    rng: SmallRng,",
            "/// Unlike `rand`'s.\npub fn random() -> u64 { // not rand",
        ] {
            assert_eq!(breach("runtime/src/cluster/a.rs", &file(sound)), "", "{sound}");
        }
        assert_eq!(
            breach("dsl-examples/src/a.rs", &file("pub fn f(rng: SmallRng) {")),
            "",
            "not the library's"
        );
    }

    #[test]
    fn another_rust_than_the_manifest_needs_is_found() {
        let needed = needed_rust("[workspace.package]\nrust-version = \"1.89\"\n").unwrap();
        assert_eq!(needed, "1.89");
        assert!(needed_rust("edition = \"2024\"").is_err());
        for (text, other) in [
            ("Farfield needs Rust 1.89 or newer.", None),
            ("The oldest supported Rust is 1.88; a file pins another.", Some("1.88")),
            ("rust-version = \"1.90\"", Some("1.90")),
            ("rust-version.workspace = true", None),
            ("Measured with rustc 1.95.0: 1.19 times.", None),
        ] {
            let found = other_rust("README.md", &format!("# Farfield\n{text}"), &needed);
            let expected = other.map(|other| format!("README.md:2: Rust {other}, but Cargo.toml needs 1.89"));
            assert_eq!(found, Vec::from_iter(expected), "{text}");
        }
    }

    #[test]
    fn a_wait_that_no_table_lists_is_found() {
        let text = "//! A.\npoll_fn(|_| x).await; // poll_fn(\nlet x = thread.join();\n#[cfg(test)]\nmod tests {\npoll_fn(";
        assert_eq!(leaf_waits("task/a.rs", text), 2);
        assert_eq!(leaf_waits("task/a/tests.rs", text), 0);
        for wait in LEAF_WAITS {
            assert_eq!(leaf_waits("task/a.rs", &format!("x{wait}")), 1, "{wait}");
        }
        let found = [("task/a.rs".to_owned(), 2), ("task/b.rs".to_owned(), 0)];
        assert_eq!(unlisted_waits(&found, "| `task/a.rs` | 2 | an answer | a clock |"), [""; 0]);
        let few = unlisted_waits(&found, "| `task/a.rs` | 1 | an answer | a clock |");
        assert!(
            few[0].contains("task/a.rs: has 2 waits, but ARCHITECTURE.md's table of waits has 1"),
            "{few:?}"
        );
        assert_eq!(unlisted_waits(&found, "").len(), 1);
        assert_eq!(short("runtime/src/task/a.rs"), "task/a.rs");
        assert_eq!(short("runtime/fabric/src/host/a.rs"), "fabric/host/a.rs");
        let gone = unlisted_waits(&found, "| `task/a.rs` | 2 | x | y |\n| `task/c.rs` | 1 | x | y |");
        assert_eq!(gone, ["ARCHITECTURE.md: has waits of task/c.rs, which does not exist"]);
    }

    #[test]
    fn only_stalls_are_printed() {
        let printing = "//! A.\neprintln!(\"a\");\n#[cfg(test)]\nmod tests {\n    println!(\"b\");\n}\n";
        let found = breach("runtime/src/cluster/a.rs", printing);
        assert!(found.contains("a.rs:2: a library does not print") && !found.contains(":5:"), "{found}");
        assert_eq!(breach(PRINTS, printing), "");
        assert_eq!(breach("dsl-examples/src/a.rs", printing), "");
    }

    #[test]
    fn fabrics_may_read_the_clock() {
        let text = "//! Delayed.\nInstant::now();";
        assert_eq!(breach("runtime/fabric/src/delayed.rs", text), "");
        assert!(breach("runtime/sim/src/run.rs", text).contains("ask the endpoint"));
    }

    #[test]
    fn lints_about_unsafe_are_not_unsafe() {
        assert_eq!(
            breach("ui-tests/tests/a.rs", "#![forbid(unsafe_code)] #![deny(unsafe_op_in_unsafe_fn)]"),
            ""
        );
    }

    #[test]
    fn a_listed_file_exists() {
        for name in UNSAFE_FILES {
            assert!(root().join(name).exists(), "{name}");
        }
    }

    #[test]
    fn the_readme_shows_what_the_library_tests() {
        let library = "//! ```\n//! let a = 1;\n//!\n//! let b = 2;\n//! ```\n";
        assert!(readme_example("# Farfield\n```rust\nlet a = 1;\n\nlet b = 2;\n```\n", library).is_empty());
        assert!(readme_example("```rust\nlet a = 7;\n```\n", library)[0].contains("not the one"));
        assert!(readme_example("# Farfield\n", library)[0].contains("no example"));
    }
}
