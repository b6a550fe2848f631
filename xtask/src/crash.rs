//! `cargo xtask crash-test`: processes that work on one cluster in shared memory, and are killed.
//!
//! Four processes insert into and remove from a lazy list and a Harris list. Every 100 ms or so one of them, drawn at random, is
//! killed with SIGKILL and replaced; with `--stops` as many are stopped with SIGSTOP for a while and go on. After each kill the
//! epoch has to advance within two leases. After the last kill the memory of the dead has to come back while the others work on. At the
//! end both lists must be in order, all operations of all processes linearizable, no lock held, and no memory lost.
//!
//! | figure | what it is |
//! |---|---|
//! | `crash.kills` | processes that were killed |
//! | `crash.verified` | whether everything was right: 1 or 0 |
//! | `crash.leaked_bytes` | the bytes of objects that are neither freed nor reachable from a root |
//! | `crash.swept_bytes` | the bytes that were taken back from the dead while others lived |
//! | `crash.swept_after_ms` | how long after the last kill there was nothing more to take back |
//! | `crash.left_bytes` | what was found after that, when nobody lived any more |
//! | `crash.operations` | operations of all processes that returned |
//! | `crash.interrupted` | operations that their process was killed in |
//! | `crash.longest_wait_ms` | the longest that the epoch took to advance after a kill |

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::Args;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::results::Format;
use crate::workspace::{root, run as command};

/// How many processes, and how often one is killed.
#[derive(Args)]
pub(crate) struct Options {
    /// How many processes to kill
    #[arg(long, default_value_t = 200)]
    kills: u32,
    /// How many to stop for a while
    #[arg(long, default_value_t = 0)]
    stops: u32,
    /// What the choices start from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How to print the figures
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

impl Options {
    /// What every change has to pass.
    pub(crate) fn short() -> Self {
        Self { kills: 20, stops: 5, seed: 1, format: Format::Text }
    }
}

const WORKERS: usize = 4;
const BETWEEN_KILLS: std::ops::Range<u64> = 60..140;
const LEASE: Duration = Duration::from_secs(1);
/// How much of it may be found only when nobody lives: where numbers look like addresses.
const MOST_LEFT_BYTES: u64 = 4096;
/// How long after the last kill all memory of the dead has come back, while the others live.
const SWEPT_WITHIN: Duration = Duration::from_secs(30);
const STOPPED: std::ops::Range<u64> = 50..1500;
/// How long a program may take to begin or to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// A process that is killed if it is not waited for.
struct Process(Child);

impl Process {
    fn start(program: &Path, arguments: &[&str]) -> Result<Self, String> {
        let mut start = Command::new(program);
        start.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        start.spawn().map(Self).map_err(|error| format!("{}: {error}", program.display()))
    }

    fn signal(&self, signal: &str) -> Result<(), String> {
        let sent = Command::new("kill").args([signal, &self.0.id().to_string()]).status();
        sent.map(drop).map_err(|error| format!("kill: {error}"))
    }

    fn has_ended(&mut self) -> Option<std::process::ExitStatus> {
        self.0.try_wait().ok().flatten()
    }

    /// Waits for its end.
    fn end(&mut self, what: &str) -> Result<(), String> {
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            match self.has_ended() {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(format!("{what} failed: {status}")),
                None => sleep(Duration::from_millis(2)),
            }
        }
        Err(format!("{what} has not ended after {PATIENCE:?}"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A process that prints the epoch when asked.
struct Watch {
    process: Process,
    ask: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Watch {
    fn start(program: &Path, url: &str) -> Result<Self, String> {
        let mut process = Process::start(program, &["watch", url])?;
        let (Some(ask), Some(answers)) = (process.0.stdin.take(), process.0.stdout.take()) else {
            return Err("the watch has no pipes".to_owned());
        };
        Ok(Self { process, ask, answers: BufReader::new(answers) })
    }

    fn epoch(&mut self) -> Result<u64, String> {
        let failed = |error: std::io::Error| format!("the watch: {error}");
        self.ask.write_all(b"?\n").map_err(failed)?;
        self.ask.flush().map_err(failed)?;
        let mut line = String::new();
        self.answers.read_line(&mut line).map_err(failed)?;
        line.trim().parse().map_err(|_| format!("the watch said {line:?}"))
    }

    /// Ends it.
    fn end(self) -> Result<(), String> {
        let Self { mut process, ask, answers: _ } = self;
        drop(ask);
        process.end("the watch")
    }
}

/// What `farfield status` says.
struct Status {
    program: PathBuf,
    url: String,
}

impl Status {
    fn figure(&self, name: &str) -> Result<u64, String> {
        let failed = |error: &dyn std::fmt::Display| format!("farfield status: {error}");
        let said = Command::new(&self.program).args(["status", &self.url, "--format", "json"]).output();
        let said = said.map_err(|error| failed(&error))?;
        if !said.status.success() {
            return Err(failed(&String::from_utf8_lossy(&said.stderr).trim()));
        }
        let said: serde_json::Value = serde_json::from_slice(&said.stdout).map_err(|error| failed(&error))?;
        said[name].as_u64().ok_or_else(|| failed(&format_args!("it has no {name}")))
    }

    /// Waits until all memory of the dead has come back, or should have; gives how long that took.
    fn wait_until_swept(&self) -> Result<Duration, String> {
        let began = Instant::now();
        while began.elapsed() <= SWEPT_WITHIN && self.figure("unswept")? > 0 {
            sleep(Duration::from_millis(20));
        }
        Ok(began.elapsed())
    }
}

/// The test as it runs.
struct Test {
    program: PathBuf,
    url: String,
    logs: PathBuf,
    started: u32,
    rng: SmallRng,
}

impl Test {
    fn worker(&mut self) -> Result<Process, String> {
        self.started += 1;
        let log = self.logs.join(self.started.to_string()).display().to_string();
        let seed = self.rng.random::<u64>().to_string();
        Process::start(&self.program, &["work", &self.url, &log, &seed])
    }
}

pub(crate) fn run(options: &Options) -> Result<(), String> {
    let build = ["cargo", "build", "--release", "--quiet", "-p", "farfield-cli", "-p", "farfield-soak"];
    command(&build, &[])?;
    let programs = root().join("target/release");
    let name = format!("crash-{}", std::process::id());
    let url = format!("shm:{name}");
    let logs = std::env::temp_dir().join(&name);
    fs::create_dir(&logs).map_err(|error| format!("{}: {error}", logs.display()))?;
    let tested = test(options, &programs, url, &logs);
    let _ = fs::remove_dir_all(&logs);
    let figures = tested?;
    match options.format {
        Format::Text => figures.iter().for_each(|(name, value)| println!("{name} {value}")),
        Format::Json => {
            let object: serde_json::Map<_, _> =
                figures.iter().map(|(name, value)| ((*name).to_owned(), (*value).into())).collect();
            println!("{}", serde_json::Value::Object(object));
        }
    }
    let right = figures.iter().all(|(name, value)| match *name {
        "crash.verified" => *value == 1,
        "crash.leaked_bytes" => *value == 0,
        _ => true,
    });
    if right { Ok(()) } else { Err("the crash test has found something".to_owned()) }
}

type Figures = Vec<(&'static str, u64)>;

fn test(options: &Options, programs: &Path, url: String, logs: &Path) -> Result<Figures, String> {
    let program = programs.join("crash");
    let lease = LEASE.as_millis().to_string();
    let memnode = ["memnode", "--cluster", &url, "--segment-size", "16MiB", "--lease", &lease];
    let mut node = Process::start(&programs.join("farfield"), &memnode)?;
    let mut said = String::new();
    let out = node.0.stdout.take().ok_or("the memory node has no output")?;
    let mut out = BufReader::new(out);
    out.read_line(&mut said).map_err(|error| format!("the memory node: {error}"))?;
    if said.is_empty() {
        return Err("the memory node did not start".to_owned());
    }
    let rng = SmallRng::seed_from_u64(options.seed);
    let mut test =
        Test { program: program.clone(), url: url.clone(), logs: logs.to_owned(), started: 0, rng };
    let mut watch = Watch::start(&program, &url)?;
    let mut workers = Vec::new();
    for _ in 0..WORKERS {
        workers.push(test.worker()?);
    }
    let (mut longest, mut faults) = (Duration::ZERO, Vec::new());
    let mut acts: Vec<bool> = Vec::new();
    let all = options.kills + options.stops;
    for act in 0..all {
        // Stops are spread evenly among kills.
        let stops_before = |act: u32| u64::from(act) * u64::from(options.stops) / u64::from(all.max(1));
        acts.push(stops_before(act + 1) > stops_before(act));
    }
    for is_stop in acts {
        sleep(Duration::from_millis(test.rng.random_range(BETWEEN_KILLS)));
        let chosen = test.rng.random_range(0..WORKERS);
        for (number, worker) in workers.iter_mut().enumerate() {
            if let Some(status) = worker.has_ended() {
                return Err(format!("worker {number} has ended by itself: {status}"));
            }
        }
        if is_stop {
            workers[chosen].signal("-STOP")?;
            sleep(Duration::from_millis(test.rng.random_range(STOPPED)));
            workers[chosen].signal("-CONT")?;
            continue;
        }
        workers[chosen].signal("-KILL")?;
        let (killed_at, epoch) = (Instant::now(), watch.epoch()?);
        workers[chosen] = test.worker()?;
        while watch.epoch()? < epoch + 2 {
            if killed_at.elapsed() > 10 * LEASE {
                return Err("reclamation has stopped after a kill".to_owned());
            }
            sleep(Duration::from_millis(1));
        }
        longest = longest.max(killed_at.elapsed());
        if killed_at.elapsed() > 2 * LEASE {
            faults.push(format!("the epoch took {:?} to advance after a kill", killed_at.elapsed()));
        }
    }
    let status = Status { program: programs.join("farfield"), url: url.clone() };
    let swept_after = status.wait_until_swept()?;
    if swept_after > SWEPT_WITHIN {
        faults.push(format!("the memory of the dead has not come back after {SWEPT_WITHIN:?}"));
    }
    let swept_bytes = status.figure("swept_bytes")?;
    let collected_bytes = status.figure("collected_bytes")?;
    Process::start(&program, &["stop", &url])?.end("stopping")?;
    for (number, worker) in workers.iter_mut().enumerate() {
        worker.end(&format!("worker {number}"))?;
    }
    watch.end()?;
    let mut judge = Command::new(&program);
    let judged = judge.args(["judge", &url, &logs.display().to_string()]).output();
    let judged = judged.map_err(|error| format!("judge: {error}"))?;
    if !judged.status.success() {
        return Err(format!("the judge failed: {}", String::from_utf8_lossy(&judged.stderr).trim()));
    }
    let found = String::from_utf8_lossy(&judged.stdout);
    let figure = |name: &str| {
        let line = found.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|value| value.parse::<u64>().ok()).ok_or_else(|| format!("the judge gave no {name}"))
    };
    faults.extend(found.lines().filter_map(|line| line.strip_prefix("fault ")).map(str::to_owned));
    let left_bytes = status.figure("collected_bytes")? - collected_bytes;
    if left_bytes > MOST_LEFT_BYTES {
        faults.push(format!("{left_bytes} bytes of the dead did not come back while others lived"));
    }
    for fault in &faults {
        eprintln!("crash-test: {fault}");
    }
    node.signal("-TERM")?;
    node.end("the memory node")?;
    Ok(vec![
        ("crash.kills", options.kills.into()),
        ("crash.verified", faults.is_empty().into()),
        ("crash.leaked_bytes", figure("live_bytes")?.abs_diff(figure("reachable_bytes")?)),
        ("crash.swept_bytes", swept_bytes),
        ("crash.swept_after_ms", swept_after.as_millis() as u64),
        ("crash.left_bytes", left_bytes),
        ("crash.operations", figure("returned")?),
        ("crash.interrupted", figure("interrupted")?),
        ("crash.longest_wait_ms", longest.as_millis() as u64),
    ])
}
