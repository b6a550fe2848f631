//! The workspace: where it is, its files, and commands run in it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The workspace's folder.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a member of the workspace").to_owned()
}

/// The files below `folder` with this extension, by path, without what builds leave behind.
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

/// No fault is fine, one is the error; several are printed, each on a line of its own, so that the error is one line.
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

/// Runs a command in the workspace; its output goes where ours does.
pub(crate) fn run(words: &[&str], variables: &[(&str, &str)]) -> Result<(), String> {
    let status =
        command(words, variables).status().map_err(|error| format!("`{}`: {error}", words.join(" ")))?;
    if status.success() { Ok(()) } else { Err(format!("`{}` failed", words.join(" "))) }
}

/// Runs a command in the workspace and gives what it prints on stdout.
pub(crate) fn output(words: &[&str]) -> Result<String, String> {
    let failed = |why: String| format!("`{}`: {why}", words.join(" "));
    let output =
        command(words, &[]).stderr(Stdio::inherit()).output().map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed("it failed".to_owned()));
    }
    String::from_utf8(output.stdout).map_err(|error| failed(error.to_string()))
}

fn command(words: &[&str], variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).envs(variables.iter().copied()).current_dir(root());
    command
}
