//! A process that must not fail, whatever far memory contains.
//!
//! It *fails* if it ends by a signal, panics (even in a thread whose panic the process survives), exceeds its memory limit, or does not end
//! in time. An error with exit code 2 is no failure.

use std::fmt::Write;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::workspace::high_water_kib;
use crate::workspace::process::Process;

/// Timeout of a process to end on command, and of a tool.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// Number of characters that identify a message.
const MOST_CHARS: usize = 72;
/// Period of polling a process.
const POLL: Duration = Duration::from_millis(2);
/// Memory limit of a process, besides twice the cluster's memory.
pub(super) const OWN_KIB: u64 = 64 << 10;
/// Limit of its address space beyond that: larger allocations fail, and the machine is safe.
const SPACE_KIB: u64 = 512 << 10;

/// A failure of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// Equal for failures of one cause: the process's role, and where it panicked or how it ended.
    pub(crate) kind: String,
    /// Its standard error.
    pub(crate) stderr: String,
}

/// A process whose standard error goes to a file.
pub(crate) struct Watched {
    pub(crate) process: Process,
    role: &'static str,
    log: PathBuf,
    most_kib: u64,
    peak_kib: u64,
    /// Bytes of the log that have been checked.
    checked_bytes: usize,
    /// True if its end has been judged, or it was killed.
    is_over: bool,
}

impl Watched {
    /// Starts a program. `cluster_bytes` is the memory of its cluster.
    pub(crate) fn start(
        role: &'static str,
        program: &Path,
        arguments: &[&str],
        log: PathBuf,
        cluster_bytes: u64,
    ) -> Result<Self, String> {
        let most_kib = 2 * (cluster_bytes >> 10) + OWN_KIB;
        let failed = |error: std::io::Error| format!("{}: {error}", log.display());
        let stderr = File::create(&log).map_err(failed)?;
        let limited = format!("ulimit -c 0; ulimit -v {}; exec \"$0\" \"$@\"", most_kib + SPACE_KIB);
        let mut command = Command::new("sh");
        command.args(["-c", &limited]).arg(program).args(arguments).stderr(Stdio::from(stderr));
        // With one arena of malloc, threads need address space for their stacks only.
        command.env("RUST_BACKTRACE", "1").env("MALLOC_ARENA_MAX", "1");
        let process = Process::spawn(&mut command)?;
        Ok(Self { process, role, log, most_kib, peak_kib: 0, checked_bytes: 0, is_over: false })
    }

    /// The peak of its memory.
    pub(crate) fn peak_kib(&self) -> u64 {
        self.peak_kib
    }

    /// Its standard error.
    pub(crate) fn stderr(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    fn failure(&self, how: &str) -> Failure {
        Failure { kind: format!("{}: {how}", self.role), stderr: self.stderr() }
    }

    /// A failure since the last check. A process that exceeds its memory limit is killed.
    pub(crate) fn check(&mut self) -> Option<Failure> {
        if self.is_over {
            return None;
        }
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap_or_default();
        self.peak_kib = self.peak_kib.max(high_water_kib(&status).unwrap_or(0));
        let stderr = self.stderr();
        let new = stderr.get(self.checked_bytes..).unwrap_or_default();
        let panicked = new.lines().find_map(|line| Some(line.split_once("panicked at ")?.1.to_owned()));
        self.checked_bytes = stderr.len();
        if let Some(place) = panicked {
            return Some(self.failure(&format!("panicked at {place}")));
        }
        if self.peak_kib > self.most_kib {
            let mut large = self.failure(&format!("more than {} KiB of memory", self.most_kib));
            let is_of_memory = |line: &&str| line.starts_with("Vm") || line.starts_with("Rss");
            let sizes: Vec<&str> = status.lines().filter(is_of_memory).collect();
            let _ = writeln!(large.stderr, "{}\n{}", sizes.join("\n"), threads(self.process.id()));
            self.kill();
            return Some(large);
        }
        None
    }

    fn kill(&mut self) {
        let _ = self.process.0.kill();
        self.is_over = true;
    }

    /// The failure in its end, if there is one.
    fn judge(&mut self, status: ExitStatus) -> Option<Failure> {
        if self.is_over {
            return None;
        }
        let found = self.check();
        let by_itself = match status.code() {
            Some(0 | 2) => None,
            Some(101) => Some(self.failure("panicked")),
            Some(code) => Some(self.failure(&format!("exit code {code}"))),
            None => {
                let stderr = self.stderr();
                let reason = stderr.lines().find(|line| line.starts_with("memory allocation of "));
                let reason = reason.map_or(String::new(), |_| ", memory allocation failed".to_owned());
                Some(self.failure(&format!("{status}{reason}")))
            }
        };
        found.or(by_itself)
    }

    /// Returns whether it has ended, and a failure.
    pub(crate) fn has_ended(&mut self) -> (bool, Option<Failure>) {
        match self.process.has_ended() {
            Some(status) => {
                let failure = self.judge(status);
                // Judged once.
                self.is_over = true;
                (true, failure)
            }
            None => (false, self.check()),
        }
    }

    /// Waits for its end; kills it after [`PATIENCE`]. Returns a failure.
    pub(crate) fn end(&mut self) -> Option<Failure> {
        self.end_within(PATIENCE)
    }

    fn end_within(&mut self, patience: Duration) -> Option<Failure> {
        let began = Instant::now();
        let mut found = None;
        loop {
            let (has_ended, failure) = self.has_ended();
            found = found.or(failure);
            if has_ended {
                return found;
            }
            if began.elapsed() > patience {
                let mut hang = self.failure("does not end");
                hang.stderr.push_str(&threads(self.process.id()));
                self.kill();
                return found.or(Some(hang));
            }
            sleep(POLL);
        }
    }

    /// The error that it ended with: its last line without numbers.
    pub(crate) fn error(&self) -> Option<String> {
        let stderr = self.stderr();
        let line = stderr.lines().rev().find_map(|line| line.strip_prefix("error: "))?;
        Some(without_numbers(line))
    }
}

/// The threads of a process, a line each: name, state, processor time in ticks, and the kernel function in which it waits.
fn threads(pid: u32) -> String {
    let mut text = String::new();
    for entry in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
        let read = |name| fs::read_to_string(entry.path().join(name)).unwrap_or_default();
        let (name, stat, waits) = (read("comm"), read("stat"), read("wchan"));
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let field = |index: usize| fields.get(index).copied().unwrap_or_default();
        let _ = writeln!(text, "thread {}: {}, {} ticks, {waits}", name.trim(), field(0), field(11));
    }
    text
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.log);
    }
}

/// Replaces the numbers of a message, so that messages which differ only in numbers are equal.
fn without_numbers(line: &str) -> String {
    let is_number = |word: &str| {
        word.starts_with(|c: char| c.is_ascii_digit())
            || word.starts_with("0x")
            || word.len() > 12 && word.chars().all(|c| c.is_ascii_hexdigit())
    };
    let mut text = String::new();
    let mut word = String::new();
    for c in line.chars().chain([' ']) {
        if c.is_ascii_alphanumeric() {
            word.push(c);
            continue;
        }
        text.push_str(if is_number(&word) { "#" } else { &word });
        word.clear();
        text.push(c);
    }
    text.trim_end().chars().take(MOST_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(name: &str, script: &str) -> Watched {
        let log = std::env::temp_dir().join(format!("farfield-watched-{}-{name}", std::process::id()));
        Watched::start("test", Path::new("sh"), &["-c", script], log, 1 << 20).unwrap()
    }

    fn failure(name: &str, script: &str) -> Option<String> {
        let mut watched = shell(name, script);
        let found = watched.end_within(Duration::from_millis(1500));
        found.map(|failure| failure.kind)
    }

    #[test]
    fn errors_are_no_failures() {
        assert_eq!(failure("fine", "exit 0"), None);
        assert_eq!(failure("error", "echo 'error: no' >&2; exit 2"), None);
    }

    #[test]
    fn a_process_that_aborts_is_found() {
        let found =
            failure("abort", "echo 'memory allocation of 7 bytes failed' >&2; kill -ABRT $$").unwrap();
        assert!(found.contains("signal: 6") && found.contains("memory allocation failed"), "{found}");
        assert!(failure("segv", "kill -SEGV $$").unwrap().contains("signal: 11"));
    }

    #[test]
    fn a_panic_is_found_also_if_the_process_survives_it() {
        let stderr = "echo \"thread 'keeper' (17) panicked at runtime/src/x.rs:7:9:\" >&2";
        assert_eq!(failure("panic", stderr).as_deref(), Some("test: panicked at runtime/src/x.rs:7:9:"));
        assert_eq!(failure("silent", "exit 101").as_deref(), Some("test: panicked"));
        let mut watched = shell("survives", &format!("{stderr}; sleep 100"));
        let began = Instant::now();
        while watched.check().is_none() {
            assert!(began.elapsed() < PATIENCE, "the panic was not found");
        }
        assert_eq!(watched.check(), None, "it was reported already");
    }

    #[test]
    fn a_process_that_does_not_end_is_found() {
        assert_eq!(failure("hang", "exec sleep 100").as_deref(), Some("test: does not end"));
    }

    #[test]
    fn a_process_with_too_much_memory_is_found() {
        // The standard input is read into a variable of the shell.
        let fill = "v=$(head -c 100000000 /dev/zero | tr '\\0' x); exec sleep 100";
        assert_eq!(failure("memory", fill).as_deref(), Some("test: more than 67584 KiB of memory"));
    }

    #[test]
    fn messages_are_distinguished_by_their_words() {
        let message = "0:0x1f8 is no address (epoch 17 of member 3a)";
        assert_eq!(without_numbers(message), "#:# is no address (epoch # of member #)");
        assert_eq!(without_numbers("bits deadbeefdeadbeef in a face"), "bits # in a face");
    }
}
