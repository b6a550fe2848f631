//! A process that must not fail, whatever is in far memory.
//!
//! It *fails* if it ends by a signal, panics (also in a thread whose panic the process survives), has more memory than it may, or does not
//! end in time where it has to. An error and exit code 2 are no failure.

use std::fmt::Write;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::workspace::high_water_kib;
use crate::workspace::process::Process;

/// How long a process may take to end that has been told to, and a tool to do its work.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// How much of a message tells it from others.
const MOST_CHARS: usize = 72;
/// How often a process is looked at that is waited for.
const LOOK: Duration = Duration::from_millis(2);
/// How much memory a process may have for itself, besides twice the cluster's.
pub(super) const OWN_KIB: u64 = 64 << 10;
/// How much address space it may have besides: an attempt to get more fails, before the machine suffers.
const SPACE_KIB: u64 = 512 << 10;

/// What a process did that it must not do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// The same for failures of one cause: the process's role, and where it panicked or how it ended.
    pub(crate) kind: String,
    /// What it wrote to its standard error.
    pub(crate) said: String,
}

/// A process whose standard error goes to a file.
pub(crate) struct Watched {
    pub(crate) process: Process,
    role: &'static str,
    log: PathBuf,
    most_kib: u64,
    peak_kib: u64,
    /// Where in the log the part begins that was not looked at yet.
    seen: usize,
    /// How it ended is known, or it was killed: what comes after is of no interest.
    is_over: bool,
}

impl Watched {
    /// Starts a program. `cluster_bytes` says how much memory its cluster has.
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
        // Of one arena of malloc, threads take address space for their stacks only.
        command.env("RUST_BACKTRACE", "1").env("MALLOC_ARENA_MAX", "1");
        let process = Process::spawn(&mut command)?;
        Ok(Self { process, role, log, most_kib, peak_kib: 0, seen: 0, is_over: false })
    }

    /// The most memory that it was seen to have.
    pub(crate) fn peak_kib(&self) -> u64 {
        self.peak_kib
    }

    /// All that it wrote to its standard error.
    pub(crate) fn said(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    fn failure(&self, how: &str) -> Failure {
        Failure { kind: format!("{}: {how}", self.role), said: self.said() }
    }

    /// What it has done since the last look that it must not do. A process that has too much memory is killed.
    pub(crate) fn look(&mut self) -> Option<Failure> {
        if self.is_over {
            return None;
        }
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id()));
        self.peak_kib =
            self.peak_kib.max(status.ok().and_then(|status| high_water_kib(&status)).unwrap_or(0));
        let said = self.said();
        let new = said.get(self.seen..).unwrap_or_default();
        let panicked = new.lines().find_map(|line| Some(line.split_once("panicked at ")?.1.to_owned()));
        self.seen = said.len();
        if let Some(place) = panicked {
            return Some(self.failure(&format!("panicked at {place}")));
        }
        if self.peak_kib > self.most_kib {
            self.kill();
            return Some(self.failure(&format!("more than {} KiB of memory", self.most_kib)));
        }
        None
    }

    fn kill(&mut self) {
        let _ = self.process.0.kill();
        self.is_over = true;
    }

    /// How its end is to be judged.
    fn judge(&mut self, status: ExitStatus) -> Option<Failure> {
        if self.is_over {
            return None;
        }
        let seen = self.look();
        let by_itself = match status.code() {
            Some(0 | 2) => None,
            Some(101) => Some(self.failure("panicked")),
            Some(code) => Some(self.failure(&format!("exit code {code}"))),
            None => {
                let said = self.said();
                let reason = said.lines().find(|line| line.starts_with("memory allocation of "));
                let reason = reason.map_or(String::new(), |_| ", memory allocation failed".to_owned());
                Some(self.failure(&format!("{status}{reason}")))
            }
        };
        seen.or(by_itself)
    }

    /// Whether it has ended, and what it did that it must not do.
    pub(crate) fn has_ended(&mut self) -> (bool, Option<Failure>) {
        match self.process.has_ended() {
            Some(status) => {
                let failure = self.judge(status);
                // Told once.
                self.is_over = true;
                (true, failure)
            }
            None => (false, self.look()),
        }
    }

    /// Waits until it has ended, as it should within [`PATIENCE`]. Otherwise it is killed.
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
                hang.said.push_str(&threads(self.process.id()));
                self.kill();
                return found.or(Some(hang));
            }
            sleep(LOOK);
        }
    }

    /// The error that it ended with: its last line without numbers, or nothing.
    pub(crate) fn error(&self) -> Option<String> {
        let said = self.said();
        let line = said.lines().rev().find_map(|line| line.strip_prefix("error: "))?;
        Some(without_numbers(line))
    }
}

/// What the threads of a process do: a line each, with the thread's name, its state, the processor time that it has had (in ticks), and where it
/// waits in the system.
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

/// A message of which those that differ in numbers only are the same.
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
        let said = "echo \"thread 'keeper' (17) panicked at runtime/src/x.rs:7:9:\" >&2";
        assert_eq!(failure("panic", said).as_deref(), Some("test: panicked at runtime/src/x.rs:7:9:"));
        assert_eq!(failure("silent", "exit 101").as_deref(), Some("test: panicked"));
        let mut watched = shell("survives", &format!("{said}; sleep 100"));
        let began = Instant::now();
        while watched.look().is_none() {
            assert!(began.elapsed() < PATIENCE, "the panic was not seen");
        }
        assert_eq!(watched.look(), None, "it was seen already");
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
    fn messages_are_told_apart_by_their_words() {
        let seen = "0:0x1f8 is no address (epoch 17 of member 3a)";
        assert_eq!(without_numbers(seen), "#:# is no address (epoch # of member #)");
        assert_eq!(without_numbers("bits deadbeefdeadbeef in a face"), "bits # in a face");
    }
}
