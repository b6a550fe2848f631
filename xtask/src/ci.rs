//! The steps that every change must pass.

use std::cell::Cell;
use std::time::Instant;

use clap::Args;

use crate::workspace::{self, output, read, root};
use crate::{book, contest_crash, corrupt, crash, fuzz, package, rdma, results, soak, tidy};

/// Build folder of loom: its `cfg` changes every crate, and would evict the ordinary build.
const LOOM_TARGET: &str = "target/loom";

/// What a run leaves behind.
#[derive(Args)]
pub(crate) struct Options {
    /// Delete what the steps have built as soon as no later step needs it: the most on disk is then 5 GB instead of 15
    #[arg(long)]
    delete_builds: bool,
    /// Begin with the step of this name, such as `crash test`: those before it have passed
    #[arg(long, value_name = "STEP")]
    from: Option<String>,
}

impl Options {
    /// Deletes what the workspace's members were built into, without their dependencies.
    fn delete_members(&self, profile: &str) -> Result<(), String> {
        if self.delete_builds {
            workspace::run(&["cargo", "clean", "--quiet", "--workspace", "--profile", profile], &[])?;
        }
        Ok(())
    }

    /// Deletes a build folder of its own flags.
    fn delete(&self, target: &str) -> Result<(), String> {
        let folder = root().join(target);
        if self.delete_builds && folder.exists() {
            std::fs::remove_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        }
        Ok(())
    }
}

/// Runs all steps in order, and prints the time of each and the disk space that it leaves.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    let skipped = root().join("target/skipped");
    match std::fs::remove_file(&skipped) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(format!("{}: {error}", skipped.display()));
        }
        _ => {}
    }
    println!("== {}", free_space()?);
    let variables = [("FARFIELD_SKIPPED", skipped.to_str().ok_or("the workspace's path is not UTF-8")?)];
    let tests = test_command()?;
    let tests: Vec<&str> = tests.split_whitespace().collect();
    let clippy = ["cargo", "clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"];
    let doc = ["cargo", "doc", "--workspace", "--no-deps", "--quiet"];
    let loom = ["cargo", "test", "--release", "--quiet", "-p", "farfield", "--lib", "loom"];
    let steps = Steps { from: Cell::new(options.from.as_deref()) };
    steps.step("formatting", || workspace::run(&["cargo", "fmt", "--all", "--check"], &[]))?;
    steps.step("tidiness", || tidy::run(&tidy::Options::default()))?;
    steps.step("lints", || workspace::run(&clippy, &[]))?;
    steps.step("tests", || workspace::run(&tests, &variables))?;
    steps.step("plots", || {
        workspace::run(&["cargo", "test", "--quiet", "-p", "xtask", "--features", "plot", "plot"], &[])
    })?;
    steps.step("documentation", || workspace::run(&doc, &[("RUSTDOCFLAGS", "-D warnings")]))?;
    options.delete_members("dev")?;
    steps.step("model checking", || {
        workspace::run(&loom, &[("RUSTFLAGS", "--cfg loom"), ("CARGO_TARGET_DIR", LOOM_TARGET)])
    })?;
    options.delete(LOOM_TARGET)?;
    // Tests with a thousand seeds, which only optimised builds run.
    let programs = [
        &["cargo", "test", "--release", "--quiet"],
        &workspace::PROGRAMS[..],
        &["--test", "planted_runtime", "--test", "planted", "--bin", "soak"],
    ];
    let programs = programs.concat();
    steps.step("crash recovery", || workspace::run(&programs, &[]))?;
    steps.step("packages", package::run)?;
    steps.step("book", book::run)?;
    steps.step("instructions", || {
        workspace::run(&["cargo", "xtask", "instructions", "--check"], &variables)
    })?;
    steps.step("lints with RDMA", || {
        // The other features of the benchmarks are linted here, too.
        let features = format!("{},farfield-benches/instructions,farfield-benches/iceoryx2", rdma::FEATURES);
        let clippy = ["clippy", "--all-targets", "--quiet", "--features", &features];
        let packages = rdma::PACKAGES.iter().flat_map(|package| ["--package", package]);
        let arguments: Vec<&str> =
            ["cargo"].into_iter().chain(clippy).chain(packages).chain(["--", "-D", "warnings"]).collect();
        workspace::run(&arguments, &[])
    })?;
    steps.step("documentation with RDMA", || {
        let doc = ["cargo", "doc", "--features", "verbs", "--no-deps", "--quiet"];
        let doc = [&doc[..], &["--package", "farfield-fabric", "--package", "farfield"]].concat();
        workspace::run(&doc, &[("RUSTDOCFLAGS", "-D warnings")])
    })?;
    steps.step("RDMA", || rdma::run(&rdma::Options::checks(), &results::recorded_figures()?))?;
    options.delete(rdma::TARGET)?;
    steps.step("TCP", || workspace::run(&["cargo", "xtask", "tcp-test"], &variables))?;
    steps.step("sets", sets)?;
    steps.step("fuzz", || fuzz::run(&fuzz::Options::short()))?;
    options.delete(fuzz::TARGET)?;
    steps.step("crash test", || crash::run(&crash::Options::short()))?;
    steps.step("crash test over TCP", || crash::run(&crash::Options::short_over_tcp()))?;
    steps.step("crash test of the key-value engine", || {
        contest_crash::run(&contest_crash::Options::short())
    })?;
    steps.step("corruption", || corrupt::run(&corrupt::Options::short()))?;
    steps.step("soak", || soak::run(&soak::Options::short()))?;
    if let Some(unknown) = steps.from.get() {
        return Err(format!("there is no step {unknown}"));
    }
    // Tests that were skipped: see `runtime/tests/skip`.
    for line in std::fs::read_to_string(&skipped).unwrap_or_default().lines() {
        println!("== {line}");
    }
    Ok(())
}

/// Runs the steps, from one on.
struct Steps<'a> {
    /// The first step, until it was found.
    from: Cell<Option<&'a str>>,
}

impl Steps<'_> {
    fn step(&self, name: &str, work: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
        if self.from.get().is_some_and(|first| first != name) {
            return Ok(());
        }
        self.from.set(None);
        println!("== {name}");
        let started = Instant::now();
        work().map_err(|why| format!("{name}: {why}"))?;
        println!("== {name}: {:.0} s, {}", started.elapsed().as_secs_f64(), free_space()?);
        Ok(())
    }
}

/// The space that is left where programs are built: a full disk fails in the middle of a step, with the linker's words.
fn free_space() -> Result<String, String> {
    let printed = output(&["df", "-Pk", &root().display().to_string()])?;
    let kib = printed.lines().nth(1).and_then(|line| line.split_whitespace().nth(3)?.parse::<u64>().ok());
    let kib = kib.ok_or_else(|| format!("df printed no free space: {printed}"))?;
    Ok(format!("{} MB free", kib * 1024 / 1_000_000))
}

/// The README's test command, so that CI runs the same tests.
fn test_command() -> Result<String, String> {
    let readme = read(&root().join("README.md"))?;
    let mut commands = readme.lines().filter(|line| line.starts_with("cargo "));
    let (Some(_), Some(tests), None) = (commands.next(), commands.next(), commands.next()) else {
        return Err(
            "README.md: there must be exactly two commands, the second of which runs the tests".to_owned()
        );
    };
    Ok(tests.to_owned())
}

/// Short runs of `intset` for every structure; each verifies its set.
fn sets() -> Result<(), String> {
    let build =
        "cargo build --release --quiet -p farfield-cli -p farfield-examples --bin farfield --bin intset";
    workspace::run(&build.split_whitespace().collect::<Vec<_>>(), &[])?;
    let program = workspace::target().join("release/intset").display().to_string();
    for structure in ["lazy-list", "harris-list", "hash-set"] {
        for (threads, tasks, share, cluster) in [
            ("2", "1", "10", "local:"),
            ("8", "8", "50", "local:nodes=2"),
            ("2", "8", "50", "local:delay=5"),
            ("8", "2", "50", "sim:nodes=2"),
        ] {
            let command = format!(
                "{program} --structure {structure} --cluster {cluster} --threads {threads} \
                 --tasks {tasks} --insert {share} --remove {share} --num-ops 2000 --key-ub 256 --format json"
            );
            let printed = output(&command.split_whitespace().collect::<Vec<_>>())?;
            let report: serde_json::Value =
                serde_json::from_str(&printed).map_err(|error| format!("{printed}: {error}"))?;
            if report["verified"] != true {
                return Err(format!("{structure} on {cluster} is not verified: {printed}"));
            }
        }
    }
    Ok(())
}
