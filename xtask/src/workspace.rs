//! The workspace: its files, and commands run in it.

pub(crate) mod process;
#[path = "../../runtime/tests/skip/mod.rs"]
pub(crate) mod skip;

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The packages of the programs that are tested optimised, in all steps the same, so that each is built once.
pub(crate) const PROGRAMS: [&str; 5] = ["-p", "farfield-cli", "-p", "farfield-soak", MUTANTS];
/// The feature of `soak` that has the planted bugs.
pub(crate) const MUTANTS: &str = "--features=farfield-soak/mutants";

/// The workspace's folder.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a member of the workspace").to_owned()
}

/// Cargo's build folder: `target`, or `CARGO_TARGET_DIR`.
pub(crate) fn target() -> PathBuf {
    target_in(std::env::var_os("CARGO_TARGET_DIR"))
}

/// A relative `CARGO_TARGET_DIR` starts at cargo's current folder, which is the workspace's.
fn target_in(variable: Option<OsString>) -> PathBuf {
    root().join(variable.filter(|path| !path.is_empty()).unwrap_or_else(|| "target".into()))
}

/// The files below `folder` with this extension, sorted by path, without build products.
pub(crate) fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = entry.file_name();
            if path.is_dir() {
                let built = name == "target"
                    || path.ends_with("book/book")
                    || name.to_string_lossy().starts_with(".git");
                if !built {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|found| found == extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// A file's text.
pub(crate) fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Writes a file.
pub(crate) fn write(path: &Path, text: impl AsRef<[u8]>) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

/// Writes the secret of a test's cluster to a file in a folder, which only its owner can read. Returns its path.
pub(crate) fn secret(folder: &Path) -> Result<String, String> {
    let path = folder.join("secret");
    let made = File::options().write(true).create_new(true).mode(0o600).open(&path);
    let written = made.and_then(|mut file| write!(file, "a test's, of process {}", std::process::id()));
    written.map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(path.display().to_string())
}

/// Creates a folder, and those above it.
pub(crate) fn create_folder(path: &Path) -> Result<(), String> {
    std::fs::create_dir_all(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Returns no fault as success, and one as the error. Several are printed, a line each, and the error is their number.
pub(crate) fn report(faults: &[String]) -> Result<(), String> {
    match faults {
        [] => Ok(()),
        [fault] => Err(fault.clone()),
        several => {
            for fault in several {
                eprintln!("{fault}");
            }
            Err(format!("{} faults", several.len()))
        }
    }
}

/// Runs a command in the workspace, with this process's stdout and stderr.
pub(crate) fn run(words: &[&str], variables: &[(&str, &str)]) -> Result<(), String> {
    let status =
        command(words, variables).status().map_err(|error| format!("`{}`: {error}", words.join(" ")))?;
    if status.success() { Ok(()) } else { Err(format!("`{}` failed", words.join(" "))) }
}

/// Runs a command in the workspace; returns its stdout.
pub(crate) fn output(words: &[&str]) -> Result<String, String> {
    let (printed, has_succeeded) = captured(words, UNWATCHED)?;
    if has_succeeded { Ok(printed) } else { Err(format!("`{}`: it failed", words.join(" "))) }
}

/// Runs a command in the workspace, with this process's stderr; returns its stdout, and whether it has succeeded.
pub(crate) fn captured(words: &[&str], variables: &[(&str, &str)]) -> Result<(String, bool), String> {
    let failed = |why: String| format!("`{}`: {why}", words.join(" "));
    let ran = command(words, variables).stderr(Stdio::inherit()).output();
    let ran = ran.map_err(|error| failed(error.to_string()))?;
    let printed = String::from_utf8(ran.stdout).map_err(|error| failed(error.to_string()))?;
    Ok((printed, ran.status.success()))
}

/// A command's stdout, its time, and its peak memory if the system reports it.
pub(crate) struct Measured {
    pub(crate) printed: String,
    pub(crate) seconds: f64,
    pub(crate) peak_kib: Option<u64>,
}

/// Turns reports of stalls off: they would disturb measurements.
const UNWATCHED: &[(&str, &str)] = &[("FARFIELD_STALL", "0")];

/// Runs a command in the workspace and measures it.
pub(crate) fn measured(words: &[&str]) -> Result<Measured, String> {
    let failed = |why: String| format!("`{}`: {why}", words.join(" "));
    let started = Instant::now();
    let mut child = command(words, UNWATCHED)
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .map_err(|error| failed(error.to_string()))?;
    let mut stdout = child.stdout.take().expect("it is piped");
    let reader = thread::spawn(move || {
        let mut printed = String::new();
        stdout.read_to_string(&mut printed).map(|_| printed)
    });
    let status = format!("/proc/{}/status", child.id());
    let mut peak_kib = None;
    let ended = loop {
        // The system reports the peak until now, so the last sample before the end counts.
        let seen = std::fs::read_to_string(&status).ok().and_then(|status| high_water_kib(&status));
        peak_kib = peak_kib.max(seen);
        match child.try_wait().map_err(|error| failed(error.to_string()))? {
            Some(ended) => break ended,
            None => thread::sleep(Duration::from_millis(5)),
        }
    };
    let seconds = started.elapsed().as_secs_f64();
    let printed =
        reader.join().expect("reading does not panic").map_err(|error| failed(error.to_string()))?;
    if ended.success() {
        Ok(Measured { printed, seconds, peak_kib })
    } else {
        Err(failed("it failed".to_owned()))
    }
}

/// `VmHWM` of a process's status.
pub(crate) fn high_water_kib(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// A command in the workspace. Programs below `target/` are in cargo's build folder.
fn command(words: &[&str], variables: &[(&str, &str)]) -> Command {
    let program = match words[0].strip_prefix("target/") {
        Some(built) => target().join(built).into_os_string(),
        None => words[0].into(),
    };
    let mut command = Command::new(program);
    command.args(&words[1..]).envs(variables.iter().copied()).current_dir(root());
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_in_cargos_build_folder() {
        assert_eq!(target_in(None), root().join("target"));
        assert_eq!(target_in(Some("".into())), root().join("target"));
        assert_eq!(target_in(Some("elsewhere".into())), root().join("elsewhere"));
        assert_eq!(target_in(Some("/built".into())), Path::new("/built"));
    }
}
