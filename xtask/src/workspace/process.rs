//! Child processes.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Period of polling a process.
const LOOK: Duration = Duration::from_millis(2);

/// A child process that is killed when it is dropped.
pub(crate) struct Process(pub(crate) Child);

impl Process {
    /// Starts a program with pipes for its standard input and output.
    pub(crate) fn start(program: &Path, arguments: &[&str]) -> Result<Self, String> {
        Self::spawn(Command::new(program).args(arguments))
    }

    /// Starts a command with pipes for its standard input and output.
    pub(crate) fn spawn(command: &mut Command) -> Result<Self, String> {
        let started = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        started.map(Self).map_err(|error| format!("{}: {error}", command.get_program().display()))
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    pub(crate) fn signal(&self, signal: &str) -> Result<(), String> {
        let sent = Command::new("kill").args([signal, &self.0.id().to_string()]).status();
        sent.map(drop).map_err(|error| format!("kill: {error}"))
    }

    pub(crate) fn has_ended(&mut self) -> Option<ExitStatus> {
        self.0.try_wait().ok().flatten()
    }

    /// Waits for its end, for at most `patience`.
    pub(crate) fn wait(&mut self, patience: Duration) -> Option<ExitStatus> {
        let began = Instant::now();
        loop {
            let ended = self.has_ended();
            if ended.is_some() || began.elapsed() >= patience {
                return ended;
            }
            sleep(LOOK);
        }
    }

    /// Waits for its end, which must be a success.
    pub(crate) fn end(&mut self, what: &str, patience: Duration) -> Result<(), String> {
        match self.wait(patience) {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(format!("{what} failed: {status}")),
            None => Err(format!("{what} has not ended after {patience:?}")),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The pipes to a process that answers each line with a line.
pub(crate) struct Pipes {
    requests: Option<ChildStdin>,
    answers: Receiver<String>,
}

impl Pipes {
    pub(crate) fn of(process: &mut Process) -> Result<Self, String> {
        let (requests, Some(out)) = (process.0.stdin.take(), process.0.stdout.take()) else {
            return Err("a process has no pipes".to_owned());
        };
        let (send, answers) = mpsc::channel();
        std::thread::spawn(move || {
            BufReader::new(out).lines().map_while(Result::ok).try_for_each(|line| send.send(line))
        });
        Ok(Self { requests, answers })
    }

    /// The answer to a line; none if the process has ended, or does not answer in time.
    pub(crate) fn ask(&mut self, line: &str, patience: Duration) -> Option<String> {
        self.requests.as_mut()?.write_all(format!("{line}\n").as_bytes()).ok()?;
        self.answers.recv_timeout(patience).ok()
    }

    /// Closes the process's standard input: its command to end.
    pub(crate) fn close(&mut self) {
        self.requests = None;
    }
}
