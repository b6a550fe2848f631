//! Commands and messages in the book and the README are compared with actual output.
//!
//! A block of `console` or `text` on a page is one of two things. Any other block has no test, and fails here.
//!
//! - *Included*: `{{#include FILE}}` of a file that another test writes or compares: a `.stderr` file of the ui tests, or a file that a
//!   test of the book passes to `shown("FILE", …)`.
//! - *A session*: lines that begin with `$ ` are commands, which are run. The lines after a command are its output. A command without
//!   output has to succeed. A page's sessions run in order. `farfield memnode` runs until the page's end; of several `intset --node-id`
//!   the last is awaited, and then the others. A comment `<!-- before` in front of a block has commands that the page does not show.
//!
//! The comparison is line by line, and ignores the width of gaps. A line `…` stands for any number of lines. In a block of
//! `console,figures` any number stands for any other: decimal, or hexadecimal behind `0x` or of 16 digits. The programs are those of
//! this build, without optimisation, so `intset` does fewer operations than by default.

#![cfg(target_os = "linux")]

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

/// Commands that are run elsewhere, each with the file that runs it.
const RUN_ELSEWHERE: &[(&str, &str)] = &[
    // `cargo xtask ci` runs the README's second command.
    ("cargo test --workspace", "xtask/src/ci.rs"),
    // Long without optimisation; `cargo xtask sim-soak` runs them.
    ("cargo run --release -p farfield-soak --features mutants -- --planted --list", "xtask/src/soak.rs"),
    ("cargo run --release -p farfield-soak --features mutants -- --planted", "xtask/src/soak.rs"),
    // For these `cargo xtask rdma-test` starts a virtual machine.
    ("modprobe rdma_rxe", "xtask/src/rdma/modules.rs"),
    ("rdma link add rxe0 type rxe netdev eth0", "xtask/src/rdma/scripts/init.sh"),
    (
        "cargo build --release -p farfield-cli -p farfield-examples --features farfield-cli/verbs,farfield-examples/verbs",
        "xtask/src/rdma/programs.rs",
    ),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A block of a page.
#[derive(Debug, PartialEq, Eq)]
struct Block {
    page: String,
    line: usize,
    has_figures: bool,
    /// True if it is a comment, whose commands prepare for the next block.
    is_hidden: bool,
    lines: Vec<String>,
}

/// The blocks of `console` and `text` of a page.
fn blocks(page: &str, text: &str) -> Vec<Block> {
    let (mut found, mut open): (Vec<Block>, Option<(Option<Block>, &str)>) = (Vec::new(), None);
    for (number, line) in (1..).zip(text.lines()) {
        let block = |has_figures, is_hidden| Block {
            page: page.to_owned(),
            line: number,
            has_figures,
            is_hidden,
            lines: Vec::new(),
        };
        match &mut open {
            Some((block, end)) if line.trim() == *end => {
                found.extend(block.take());
                open = None;
            }
            Some((block, _)) => {
                if let Some(block) = block {
                    block.lines.push(line.to_owned());
                }
            }
            None => {
                let words = line.trim().strip_prefix("```").map(|words| words.split(',').collect::<Vec<_>>());
                open = match words.as_deref() {
                    Some(["console" | "text", options @ ..]) => {
                        Some((Some(block(options.contains(&"figures"), false)), "```"))
                    }
                    Some(_) => Some((None, "```")),
                    None if line.trim() == "<!-- before" => Some((Some(block(false, true)), "-->")),
                    None => None,
                };
            }
        }
    }
    found
}

/// The pages with their texts.
fn pages() -> Vec<(String, String)> {
    let book = std::fs::read_dir(root().join("book/src")).unwrap().map(|entry| entry.unwrap().path());
    let pages = book.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    let mut pages: Vec<PathBuf> = pages.chain([root().join("README.md")]).collect();
    pages.sort();
    let name = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
    pages.iter().map(|path| (name(path), std::fs::read_to_string(path).unwrap())).collect()
}

/// The sources of all tests, and of everything else.
fn sources() -> &'static (String, String) {
    static SOURCES: OnceLock<(String, String)> = OnceLock::new();
    SOURCES.get_or_init(|| {
        let (mut tests, mut others) = (String::new(), String::new());
        let mut folders: Vec<PathBuf> =
            ["cli", "dsl-examples", "runtime"].map(|folder| root().join(folder)).into();
        while let Some(folder) = folders.pop() {
            for path in std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
                if path.is_dir() && !path.ends_with("target") {
                    folders.push(path);
                } else if path.extension().is_some_and(|extension| extension == "rs")
                    && !path.ends_with(file!())
                {
                    let within = path.strip_prefix(root()).unwrap();
                    let is_test = within.iter().any(|part| part == "tests" || part == "tests.rs");
                    let into = if is_test { &mut tests } else { &mut others };
                    into.push_str(&std::fs::read_to_string(path).unwrap());
                }
            }
        }
        (tests, others)
    })
}

/// Returns whether a line includes a file that a test writes or compares; `None` if it is not an include.
fn included(line: &str) -> Option<bool> {
    let file = line.trim().strip_prefix("{{#include ")?.strip_suffix("}}")?;
    let path = root().join("book/src").join(file);
    let is_case = file.starts_with("../../ui-tests/cases/")
        && file.ends_with(".stderr")
        && path.with_extension("rs").exists();
    let name = format!("\"{}\"", file.rsplit('/').next().unwrap_or(file));
    // A long call has its arguments on lines of their own.
    let is_shown = || sources().0.split("shown(").skip(1).any(|call| call.trim_start().starts_with(&name));
    Some(path.exists() && (is_case || is_shown()))
}

/// A command and its output on the page.
type Step<'a> = (&'a str, Vec<&'a str>);

/// The commands of a session; `None` if the block is not one.
fn session(block: &Block) -> Option<Vec<Step<'_>>> {
    let mut steps: Vec<Step<'_>> = Vec::new();
    for line in &block.lines {
        match line.strip_prefix("$ ") {
            Some(command) => steps.push((command, Vec::new())),
            None => steps.last_mut()?.1.push(line),
        }
    }
    Some(steps)
}

/// The fault of a block without a test.
fn untested(block: &Block) -> Option<String> {
    let included: Vec<Option<bool>> = block.lines.iter().map(|line| included(line)).collect();
    let is_included = included.iter().all(Option::is_some);
    let is_tested = if is_included {
        included.iter().all(|is_tested| *is_tested == Some(true)) && !included.is_empty()
    } else {
        session(block).is_some()
    };
    let Block { page, line, .. } = block;
    (!is_tested).then(|| {
        format!(
            "{page}:{line}: no test makes or compares this block: see dsl-examples/tests/book_listings.rs"
        )
    })
}

/// A line in the form in which it is compared.
fn comparable(line: &str, has_figures: bool) -> String {
    let words = line.split_whitespace().collect::<Vec<_>>().join(" ");
    if !has_figures {
        return words;
    }
    let mut masked = String::new();
    for token in words.split_inclusive(|c: char| !c.is_ascii_alphanumeric()) {
        let (word, end) = token.split_at(token.trim_end_matches(|c: char| !c.is_ascii_alphanumeric()).len());
        let digits = word.strip_prefix("0x").unwrap_or(if word.len() == 16 { word } else { "" });
        let is_hexadecimal = !digits.is_empty() && digits.chars().all(|c| c.is_ascii_hexdigit());
        let is_number = is_hexadecimal || (!word.is_empty() && word.chars().all(|c| c.is_ascii_digit()));
        masked.push_str(if is_number { "#" } else { word });
        masked.push_str(end);
    }
    masked
}

/// Returns whether the printed lines match those shown, in which `…` stands for any lines.
fn matches(shown: &[String], printed: &[String]) -> bool {
    match shown.split_first() {
        None => printed.is_empty(),
        Some((line, rest)) if line == "…" => {
            (0..=printed.len()).any(|from| matches(rest, &printed[from..]))
        }
        Some((line, rest)) => printed.first() == Some(line) && matches(rest, &printed[1..]),
    }
}

/// The difference between a command's output on the page and its actual output.
fn difference(shown: &[&str], printed: &str, has_figures: bool) -> Option<String> {
    let lines = |lines: &mut dyn Iterator<Item = &str>| {
        let mut lines: Vec<String> = lines.map(|line| comparable(line, has_figures)).collect();
        while lines.last().is_some_and(String::is_empty) {
            lines.pop();
        }
        lines
    };
    let same = matches(&lines(&mut shown.iter().copied()), &lines(&mut printed.lines()));
    (!same).then(|| format!("shows\n{}\nbut it prints\n{printed}", shown.join("\n")))
}

/// The path of a program of this build. Builds the command `farfield` first.
fn program(name: &str) -> PathBuf {
    static BUILT: OnceLock<()> = OnceLock::new();
    let programs = Path::new(env!("CARGO_BIN_EXE_hello")).parent().unwrap();
    if name == "farfield" {
        BUILT.get_or_init(|| {
            let profile = if programs.ends_with("release") { "release" } else { "dev" };
            let words = ["build", "--quiet", "--package", "farfield-cli", "--profile", profile];
            let mut cargo = Command::new(env!("CARGO"));
            let built = cargo.args(words).arg("--target-dir").arg(programs.parent().unwrap()).status();
            assert!(built.unwrap().success(), "the command cannot be built");
        });
    }
    programs.join(name)
}

/// A page whose sessions are run.
struct Page {
    name: String,
    /// Memory nodes, which are stopped at the end of the page.
    nodes: Vec<Child>,
    /// Addresses of machines on the page, with those of this machine that stand for them.
    machines: Vec<(String, String)>,
}

impl Drop for Page {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            let _ = Command::new("kill").arg(node.id().to_string()).status();
            let _ = node.wait();
        }
        let _ = std::fs::remove_file(self.secret());
    }
}

impl Page {
    /// The URL of the page's cluster in this process.
    fn url(&self) -> String {
        format!("shm:demo-{}-{}", self.name.trim_end_matches(".md"), std::process::id())
    }

    /// The file that stands for `secret`.
    fn secret(&self) -> PathBuf {
        std::env::temp_dir().join(format!("{}-secret", self.url().replace(':', "-")))
    }

    /// Replaces the addresses of machines, `192.168.0.N:PORT`, and the file of their secret, by ones of this machine.
    fn on_this_machine(&mut self, command: &str) -> String {
        use std::os::unix::fs::PermissionsExt;
        let mut command = command.to_owned();
        while let Some(start) = command.find("192.168.0.") {
            let is_part = |c: char| c.is_ascii_digit() || c == '.' || c == ':';
            let length = command[start..].find(|c| !is_part(c)).unwrap_or(command.len() - start);
            let machine = command[start..start + length].to_owned();
            let known =
                self.machines.iter().find(|(shown, _)| *shown == machine).map(|(_, here)| here.clone());
            let here = known.unwrap_or_else(|| {
                // Another program could take the port before the memory node does, which then fails with that reason.
                let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
                self.machines.push((machine.clone(), free.clone()));
                free
            });
            command = command.replace(&machine, &here);
        }
        let secret = self.secret();
        for option in ["--secret-file ", "secret-file="] {
            if command.contains(&format!("{option}secret")) {
                std::fs::write(&secret, "open sesame").unwrap();
                std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
                command = command
                    .replace(&format!("{option}secret"), &format!("{option}{}", secret.to_str().unwrap()));
            }
        }
        command
    }

    /// The words of a command, adapted to this process, the program first.
    fn words(&mut self, command: &str) -> Vec<String> {
        let command = self.on_this_machine(&command.replace("shm:demo", &self.url()));
        let command =
            command.strip_prefix("cargo run --release --bin ").unwrap_or(&command).replace(" -- ", " ");
        // Quotes are only around whole words.
        let quoted = command.split('\'').enumerate().flat_map(|(index, part)| {
            let whole = index % 2 == 1;
            let words: Vec<&str> = if whole { vec![part] } else { part.split_whitespace().collect() };
            words.into_iter().map(str::to_owned).collect::<Vec<_>>()
        });
        let mut words: Vec<String> = quoted.collect();
        if words[0] == "intset" && !words.iter().any(|word| word == "--num-ops") {
            words.extend(["--num-ops", "200"].map(str::to_owned));
        }
        words
    }

    /// Runs a session. Returns the differences.
    fn run(&mut self, block: &Block) -> Vec<String> {
        let (mut faults, mut others) = (Vec::new(), Vec::new());
        let steps = session(block).unwrap_or_default();
        for (index, (command, shown)) in steps.iter().enumerate() {
            if let Some((_, place)) = RUN_ELSEWHERE.iter().find(|(known, _)| known == command) {
                assert!(root().join(place).exists() && shown.is_empty());
                continue;
            }
            let words = self.words(command);
            let mut program = Command::new(program(&words[0]));
            program.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let is_rdma = words.iter().any(|word| word == "devices" || word.starts_with("rdma:"));
            if words.iter().any(|word| word == "memnode") && !is_rdma {
                let mut node = program.spawn().unwrap();
                let mut said = String::new();
                BufReader::new(node.stdout.take().unwrap()).read_line(&mut said).unwrap();
                self.nodes.push(node);
                let listens = words.iter().skip_while(|word| *word != "--listen").nth(1);
                if !said.contains(listens.map_or(&self.url(), |listens| listens)) {
                    faults.push(format!("`{command}` does not start: {said}"));
                }
                continue;
            }
            if words.iter().any(|word| word == "--node-id") && index + 1 < steps.len() {
                others.push((command, program.spawn().unwrap()));
                continue;
            }
            let output = program.output().unwrap_or_else(|error| panic!("`{command}`: {error}"));
            let said = String::from_utf8_lossy(&output.stderr);
            // In a build without RDMA the command must fail because of that, and not because of its arguments.
            let is_right = if is_rdma && cfg!(not(feature = "verbs")) {
                said.contains("--features verbs") && shown.is_empty()
            } else {
                output.status.success()
            };
            if !is_right {
                faults.push(format!("`{command}` fails: {said}"));
            }
            let printed = String::from_utf8_lossy(&output.stdout).replace(&self.url(), "shm:demo");
            if !shown.is_empty()
                && let Some(difference) = difference(shown, &printed, block.has_figures)
            {
                faults.push(format!("for `{command}` it {difference}"));
            }
        }
        for (command, other) in others {
            let output = other.wait_with_output().unwrap();
            if !output.status.success() {
                faults.push(format!("`{command}` fails: {}", String::from_utf8_lossy(&output.stderr)));
            }
        }
        faults.iter().map(|fault| format!("{}:{}: {fault}", block.page, block.line)).collect()
    }
}

#[test]
fn every_listing_is_what_its_command_prints() {
    let (mut faults, mut sessions) = (Vec::new(), 0);
    for (name, text) in pages() {
        let mut page = Page { name: name.clone(), nodes: Vec::new(), machines: Vec::new() };
        for mut block in blocks(&name, &text) {
            if name == "README.md" {
                // The README has commands without a prompt.
                block.lines.iter_mut().for_each(|line| *line = format!("$ {line}"));
            }
            if let Some(fault) = untested(&block) {
                faults.push(fault);
            } else if session(&block).is_some() {
                sessions += 1;
                faults.extend(page.run(&block));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(sessions >= 20, "only {sessions} sessions were found");
}

/// Quoted errors: in tables with the head "it says", and in double quotes on lines with "compiler says".
fn quoted_errors(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut is_table = false;
    for line in text.lines() {
        is_table = line.starts_with("| it says |") || (is_table && line.starts_with('|'));
        if is_table && let Some(said) = line.strip_prefix("| `").and_then(|line| line.split('`').next()) {
            found.push(said);
        }
        if line.contains("compiler says") {
            found.extend(line.split('"').skip(1).step_by(2));
        }
    }
    found
}

#[test]
fn every_quoted_error_is_tested() {
    let cases = root().join("ui-tests/cases");
    let mut messages = String::new();
    let mut folders = vec![cases];
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "stderr") {
                messages.push_str(&std::fs::read_to_string(path).unwrap());
            }
        }
    }
    let mut count = 0;
    for (page, text) in pages() {
        for error in quoted_errors(&text) {
            count += 1;
            for part in error.split('…').map(str::trim) {
                let is_tested =
                    messages.contains(part) || (sources().0.contains(part) && sources().1.contains(part));
                assert!(is_tested, "{page}: no test sees the error `{part}`");
            }
        }
    }
    assert_eq!(count, 10, "quotations were found");
}

#[test]
fn a_listing_without_a_test_is_found() {
    let first = |text: &str| blocks("page.md", text).remove(0);
    for untested_text in [
        "```text\nerror: it failed\n```",
        "```console\nhello\n```",
        "```text\n{{#include simulator/nowhere.txt}}\n```",
        "```text\n{{#include ../../README.md}}\n```",
        "```text\n{{#include simulator/trace.txt}}\nand more\n```",
        "```text\n```",
    ] {
        let fault = untested(&first(untested_text));
        assert!(fault.is_some_and(|fault| fault.starts_with("page.md:1: no test")), "{untested_text}");
    }
    for tested in ["```console\n$ hello\n4 threads\n```", "```text\n{{#include simulator/trace.txt}}\n```"] {
        assert_eq!(untested(&first(tested)), None);
    }
    assert!(blocks("page.md", "```rust\n$ hello\n```\n```toml\na\n```").is_empty());
    assert_eq!(
        quoted_errors("| it says | x |\n|---|---|\n| `no … room` | y |\n\n| `a` | b |"),
        ["no … room"]
    );
}

#[test]
fn differences_are_found() {
    let shown = ["epoch 7, at 0:0x1c00", "", "  …", "key: 5"];
    let printed = "epoch 12,   at 1:0xfe0\n\nfirst\nsecond\nkey: 6\n";
    assert_eq!(difference(&shown, printed, true), None);
    assert!(difference(&shown, printed, false).is_some(), "figures are compared in blocks without `figures`");
    for other in [
        "epoch 12, at 1:0xfe0\n\nkey: 6\nmore\n",
        "epoch twelve, at 1:0xfe0\n\nkey: 6\n",
        "epoch 1, at 0:0x1\n\nlock: 6",
        "",
    ] {
        assert!(difference(&shown, other, true).is_some(), "{other:?}");
    }
    let mut page = Page { name: "planted.md".to_owned(), nodes: Vec::new(), machines: Vec::new() };
    let mut run = |text: &str| page.run(&blocks("planted.md", text).remove(0)).join("\n");
    assert_eq!(run("```console\n$ hello\n4 threads say hello, far memory\n```"), "");
    assert!(
        run("```console\n$ hello\n5 threads say hello, far memory\n```").contains("but it prints\n4 threads")
    );
    assert!(
        run("```console\n$ intset --colour red\n```")
            .contains("planted.md:1: `intset --colour red` fails: error: ")
    );
}
