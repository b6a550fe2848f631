//! Commands of the host with a timeout.

use std::fs::File;
use std::io::Read;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use crate::workspace::process::Process;

/// A command's stdout; a one-line error if it fails or takes longer than `limit`.
pub(super) fn output(command: &mut Command, limit: Duration) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let failed = |why: String| format!("{name}: {why}");
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut process = Process(child.map_err(|error| failed(error.to_string()))?);
    let (stdout, stderr) = (drain(process.0.stdout.take()), drain(process.0.stderr.take()));
    let status = process.wait(limit);
    drop(process);
    let status = status.ok_or_else(|| failed(format!("stopped after {} s", limit.as_secs())))?;
    let [stdout, stderr] = [stdout, stderr].map(|reader| reader.join().unwrap_or_default());
    if status.success() {
        return Ok(stdout);
    }
    let last = stderr.lines().rev().find(|line| !line.trim().is_empty());
    Err(failed(last.map_or_else(|| status.to_string(), |line| line.trim().to_owned())))
}

/// Runs a command with its output in `log`; `None` if it was stopped after `limit`.
pub(super) fn logged(
    command: &mut Command,
    log: File,
    limit: Duration,
) -> Result<Option<ExitStatus>, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let failed = |error: std::io::Error| format!("{name}: {error}");
    // A file, not a pipe: a background process of the command could keep a pipe open for ever.
    let copy = log.try_clone().map_err(failed)?;
    let child = command.stdin(Stdio::null()).stdout(log).stderr(copy).spawn().map_err(failed)?;
    Ok(Process(child).wait(limit))
}

/// Returns whether a program is on the path.
pub(super) fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Reads a pipe to its end, so that its writer never blocks.
fn drain(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // The bytes that were read before an error are kept.
            let _ = pipe.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn the_output_is_stdout() {
        assert_eq!(output(&mut shell("echo out; echo err >&2"), LONG), Ok("out\n".to_owned()));
    }

    #[test]
    fn an_error_is_the_last_line_of_stderr() {
        let error = output(&mut shell("echo one >&2; echo two >&2; exit 3"), LONG).unwrap_err();
        assert_eq!(error, "sh: two");
        assert!(output(&mut shell("exit 3"), LONG).unwrap_err().contains('3'));
    }

    #[test]
    fn a_command_is_stopped_after_its_timeout() {
        let error = output(Command::new("sleep").arg("1000"), Duration::from_millis(20)).unwrap_err();
        assert!(error.starts_with("sleep: stopped"), "{error}");
    }

    #[test]
    fn programs_are_found_on_the_path() {
        assert!(is_installed("cargo"));
        assert!(!is_installed("no-such-program"));
    }
}
