//! `cargo xtask contest-crash`: kills processes that have a store of `farfield-kv`, and verifies what is found after each kill.
//!
//! This is the test `kv/tests/killed.rs`, optimised, with as many kills as asked for. A process writes and deletes as fast as it can, while pages are evicted and rebuilt, and is killed after 0 to 150 ms. The
//! next one opens the store and reads all keys: each must have the value of the last write that had returned, or of one that was interrupted. The test's head lists its figures, `contest.crash.…`, which this
//! task prints.

use clap::Args;

use crate::results::Format;
use crate::workspace::captured;

/// Options of the crash test of the key-value engine.
#[derive(Clone, Copy, Args)]
pub(crate) struct Options {
    /// Number of processes to kill
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    kills: u32,
    /// Seed of the random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Output format of the figures
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

impl Options {
    /// The run that every change must pass.
    pub(crate) fn short() -> Self {
        Self { kills: 20, seed: 1, format: Format::Text }
    }
}

const TEST: [&str; 10] = [
    "cargo",
    "test",
    "--release",
    "--quiet",
    "-p",
    "farfield-kv",
    "--test",
    "killed",
    "--",
    "what_a_killed_process_has_written_is_found_again",
];

/// The beginning of the figures' names.
const PREFIX: &str = "contest.crash.";

pub(crate) fn run(options: &Options) -> Result<(), String> {
    let variables =
        [("FARFIELD_KV_KILLS", options.kills.to_string()), ("FARFIELD_KV_SEED", options.seed.to_string())];
    let variables: Vec<(&str, &str)> =
        variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let (printed, has_passed) = captured(&[&TEST[..], &["--exact", "--nocapture"]].concat(), &variables)?;
    let figures = figures(&printed);
    match options.format {
        Format::Text => figures.iter().for_each(|(name, value)| println!("{name} {value}")),
        Format::Json => {
            let object: serde_json::Map<_, _> =
                figures.iter().map(|(name, value)| ((*name).to_owned(), (*value).into())).collect();
            println!("{}", serde_json::Value::Object(object));
        }
    }
    judge(&figures, has_passed, options.kills)
}

/// The figures among the lines that the test has printed.
fn figures(printed: &str) -> Vec<(&str, u64)> {
    let lines = printed.lines().filter(|line| line.starts_with(PREFIX));
    lines
        .filter_map(|line| line.split_once(' '))
        .filter_map(|(name, value)| Some((name, value.parse().ok()?)))
        .collect()
}

/// Checks that the test has passed, and has killed and verified what it was asked for, or more: a test of another name passes, too.
fn judge(figures: &[(&str, u64)], has_passed: bool, kills: u32) -> Result<(), String> {
    let is_at_least = |name, least| figures.iter().any(|(of, value)| *of == name && *value >= least);
    if !has_passed {
        Err("the test has found a fault, or has failed".to_owned())
    } else if is_at_least("contest.crash.kills", kills.into()) && is_at_least("contest.crash.verified", 1) {
        Ok(())
    } else {
        Err(format!("the test has not verified the store after {kills} kills"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_must_have_killed_and_verified() {
        let printed = "\nrunning 1 test\ncontest.crash.kills 20\ncontest.crash.verified 1\ntest result: ok.";
        for kills in [1, 20] {
            assert_eq!(judge(&figures(printed), true, kills), Ok(()));
        }
        assert!(judge(&figures(printed), false, 20).unwrap_err().contains("fault"));
        for other in [
            printed.replace("kills 20", "kills 19"),
            printed.replace("verified 1", "verified 0"),
            String::new(),
        ] {
            assert!(judge(&figures(&other), true, 20).unwrap_err().contains("after 20 kills"), "{other}");
        }
    }
}
