//! Rules that the compiler does not know.
//!
//! Each rule looks at lines of source; a line that ends in a comment `// tidy: reason` is excused from it. The tests
//! below plant a breach of each rule and see it found.

use std::path::Path;

use crate::workspace::{files, read, root};

/// The longest that a file of the library or the macros may be, in lines.
const LONGEST_FILE: usize = 500;

/// Files that may contain `unsafe`, besides what `#[remote]` generates.
const UNSAFE_FILES: &[&str] = &[
    "runtime/src/fabric/host/arena.rs",
    "runtime/src/fabric/host/mod.rs",
    "runtime/src/layout/remote.rs",
    "runtime/src/layout/scratch.rs",
    "macros/src/implement.rs",
    "benches/src/native_lazy_list.rs",
];

/// What only a fabric may do: tell the time, start threads.
const FABRIC_ONLY: &[&str] =
    &["Instant::now", "SystemTime", "thread::spawn", "thread::Builder", "thread::scope", "rand::rng()"];

/// What is left over from work in progress.
const UNFINISHED: &[&str] = &["TODO", "FIXME", "XXX", "dbg!(", "todo!(", "unimplemented!("];

/// Checks every source file.
pub(crate) fn run() -> Result<(), String> {
    let root = root();
    let mut breaches = Vec::new();
    for path in files(&root, "rs") {
        let name = path.strip_prefix(&root).expect("below the root").to_string_lossy().replace('\\', "/");
        // The rules themselves name what they forbid, and snapshots are no source.
        if name != "xtask/src/tidy.rs" && !name.ends_with(".expanded.rs") {
            breaches.extend(check(&name, &read(&path)?));
        }
    }
    breaches.extend(readme_example(&root)?);
    match breaches.len() {
        0 => Ok(()),
        _ => Err(breaches.join("\n       ")),
    }
}

/// The breaches in one file.
fn check(name: &str, text: &str) -> Vec<String> {
    let mut breaches = Vec::new();
    let in_library = name.starts_with("runtime/src/") || name.starts_with("macros/src/");
    let in_fabric = name.starts_with("runtime/src/fabric/");
    if in_library && text.lines().count() > LONGEST_FILE {
        breaches.push(format!("{name}: longer than {LONGEST_FILE} lines: does it hold two ideas?"));
    }
    if (in_library || name.starts_with("dsl-examples/src/")) && !text.starts_with("//!") {
        breaches.push(format!("{name}: a module begins with its documentation"));
    }
    for (number, line) in (1..).zip(text.lines()) {
        // loom has a module `thread` too, which starts none.
        let code = line.split("//").next().unwrap_or_default().replace("loom::thread", "loom");
        let mut breach = |rule: String| breaches.push(format!("{name}:{number}: {rule}"));
        for word in UNFINISHED.iter().filter(|word| line.contains(**word)) {
            breach(format!("`{word}` is left over"));
        }
        if line.contains("// tidy: ") {
            continue;
        }
        if name.starts_with("runtime/src/") && !in_fabric {
            for word in FABRIC_ONLY.iter().filter(|word| code.contains(**word)) {
                breach(format!("`{word}`: above the fabrics, ask the endpoint"));
            }
        }
        let has_unsafe = code.contains("unsafe ") && !code.contains("unsafe_") && !code.contains('`');
        if has_unsafe && !UNSAFE_FILES.contains(&name) && !code.trim_start().starts_with("pub unsafe trait") {
            breach("`unsafe` belongs in one of the few files that xtask/src/tidy.rs lists".to_owned());
        }
        if line.contains("/home/") || line.contains("/root/") {
            breach("a path of somebody's machine".to_owned());
        }
    }
    breaches
}

/// The README's example must be the one that the crate's documentation tests.
fn readme_example(root: &Path) -> Result<Vec<String>, String> {
    let readme = read(&root.join("README.md"))?;
    let library = read(&root.join("runtime/src/lib.rs"))?;
    let documented: String =
        library.lines().filter_map(|line| line.strip_prefix("//!")).fold(String::new(), |mut text, line| {
            text.push_str(line.strip_prefix(' ').unwrap_or(line));
            text.push('\n');
            text
        });
    let example = readme.split("```rust\n").nth(1).and_then(|rest| rest.split("```").next());
    Ok(match example {
        Some(example) if documented.contains(example) => vec![],
        Some(_) => vec![
            "README.md: the example is not the one that runtime/src/lib.rs documents and tests".to_owned(),
        ],
        None => vec!["README.md: there is no example".to_owned()],
    })
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
        assert!(breach(library, "//! Runs.\nstd::thread::spawn(f);").contains(":2:"));
        assert!(breach(library, "//! Runs.\nunsafe { f() }").contains("one of the few files"));
        assert!(breach(library, "fn f() {}").contains("begins with its documentation"));
        assert!(breach(library, "//! Runs.\n// TODO: all of it").contains("left over"));
        assert!(breach(library, &"//! Runs.\n".repeat(501)).contains("two ideas"));
        assert!(breach("dsl-examples/tests/a.rs", "let path = \"/home/me\";").contains("machine"));
    }

    #[test]
    fn fabrics_may_tell_the_time() {
        assert_eq!(breach("runtime/src/fabric/host/arena.rs", "//! Arena.\nInstant::now();"), "");
    }
}
