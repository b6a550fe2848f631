//! `cargo xtask fuzz`: fuzzes the parsers of untrusted input with libFuzzer.
//!
//! The targets are in `runtime/fuzz`, as for `cargo fuzz`. This task builds them with the stable compiler, whose coverage instrumentation
//! for libFuzzer is an ordinary option. (With a nightly compiler, `cargo fuzz run url` in `runtime` adds a sanitizer.) An input that fails
//! is written to `runtime/fuzz/artifacts`, and the task fails.

use std::process::Command;

use clap::Args;

use crate::workspace::{self, create_folder, root};

/// The length of the run.
#[derive(Args)]
pub(crate) struct Options {
    /// Seconds for each target
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Only the targets whose names begin with PREFIX
    #[arg(long, value_name = "PREFIX")]
    only: Option<String>,
}

impl Options {
    /// The run that every change must pass.
    pub(crate) fn short() -> Self {
        Self { seconds: 5, only: None }
    }
}

/// Build folder of the fuzz targets, which have flags of their own.
pub(crate) const TARGET: &str = "target/fuzz";

const TARGETS: [&str; 11] = [
    "url",
    "handshake",
    "tcp",
    "welcome",
    "geometry",
    "checkpoint",
    "description",
    "words",
    "metrics",
    "page",
    "encrypted",
];

/// Coverage instrumentation for libFuzzer.
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
                     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
                     -Cllvm-args=-sanitizer-coverage-trace-compares -Cdebug-assertions -Ccodegen-units=1";

pub(crate) fn run(options: &Options) -> Result<(), String> {
    let fuzz = root().join("runtime/fuzz");
    let target = root().join(TARGET);
    let (manifest, target_text) = (fuzz.join("Cargo.toml"), target.display().to_string());
    let manifest = manifest.display().to_string();
    // With `--target`, build scripts and macros are built without the flags.
    let host = workspace::output(&["rustc", "--print", "host-tuple"])?;
    let host = host.trim();
    let build = ["cargo", "build", "--release", "--quiet", "--target", host, "--manifest-path", &manifest];
    workspace::run(&build, &[("RUSTFLAGS", FLAGS), ("CARGO_TARGET_DIR", &target_text)])?;
    let prefix = options.only.as_deref().unwrap_or_default();
    let chosen: Vec<&str> = TARGETS.into_iter().filter(|name| name.starts_with(prefix)).collect();
    if chosen.is_empty() {
        return Err(format!("--only {prefix}: no target has this prefix"));
    }
    for name in chosen {
        let program = target.join(host).join("release").join(name).display().to_string();
        let found = target.join("corpus").join(name);
        let artifacts = fuzz.join("artifacts").join(name);
        for folder in [&found, &artifacts] {
            create_folder(folder)?;
        }
        let corpus = fuzz.join("corpus").join(name).display().to_string();
        let (found, artifacts) = (found.display().to_string(), format!("{}/", artifacts.display()));
        let time = format!("-max_total_time={}", options.seconds);
        let artifacts = format!("-artifact_prefix={artifacts}");
        let words =
            [&*program, &time, &artifacts, "-max_len=8192", "-timeout=5", "-verbosity=0", &found, &corpus];
        // Its log is long, and printed only after a failure.
        let ran =
            Command::new(words[0]).args(&words[1..]).output().map_err(|error| format!("{name}: {error}"))?;
        if !ran.status.success() {
            eprint!("{}", String::from_utf8_lossy(&ran.stderr));
            return Err(format!("fuzzing {name} failed: see runtime/fuzz/artifacts/{name}"));
        }
        println!("fuzz {name}: {} s, no failure", options.seconds);
    }
    Ok(())
}
