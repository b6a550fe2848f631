//! A cluster whose memory is corrupted: its memory node, two programs, and the hand.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use super::watched::{Failure, PATIENCE, Watched};
use crate::workspace::process::Process;

/// Memory nodes, segments of each, and bytes of each of those: small, so that much of it is in use.
const NODES: u16 = 2;
const SEGMENTS: u16 = 2;
const SEGMENT_BYTES: u64 = 512 << 10;
/// The memory of a cluster.
pub(super) const CLUSTER_BYTES: u64 = NODES as u64 * SEGMENTS as u64 * SEGMENT_BYTES;
const LEASE_MS: &str = "300";
const PROGRAMS: usize = 2;
/// How long a program may be without an operation before it counts as one that waits.
const STILL: Duration = Duration::from_millis(200);

/// In which way a cluster is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Manner {
    /// Memory of the dead is swept.
    pub(super) sweeps: bool,
    /// All records in the control block are taken, so that pages of slots are used.
    pub(super) is_crowded: bool,
}

/// Where programs are, and where logs go.
pub(super) struct Places {
    pub(super) programs: PathBuf,
    pub(super) logs: PathBuf,
    pub(super) seed: u64,
    pub(super) only: String,
}

impl Places {
    pub(super) fn farfield(&self) -> PathBuf {
        self.programs.join("farfield")
    }

    pub(super) fn watched(
        &self,
        role: &'static str,
        log: &str,
        program: &Path,
        arguments: &[&str],
    ) -> Result<Watched, String> {
        Watched::start(role, program, arguments, self.logs.join(log), CLUSTER_BYTES)
    }
}

/// A memory node that serves.
pub(super) struct MemoryNode {
    pub(super) watched: Watched,
    pub(super) url: String,
    /// Where it serves metrics.
    pub(super) metrics: String,
    /// Not closed: it may say more.
    _out: BufReader<ChildStdout>,
}

impl MemoryNode {
    pub(super) fn start(places: &Places, name: &str, sweeps: bool) -> Result<Self, String> {
        let url = format!("shm:corrupt-{}-{name}", std::process::id());
        let (nodes, segments, size) = (NODES.to_string(), SEGMENTS.to_string(), SEGMENT_BYTES.to_string());
        let mut arguments = vec!["memnode", "--cluster", &url, "--nodes", &nodes, "--segments", &segments];
        arguments.extend(["--segment-size", &size, "--lease", LEASE_MS, "--metrics", "127.0.0.1:0"]);
        arguments.extend(sweeps.then_some("--sweep"));
        let mut watched =
            places.watched("memory node", &format!("memory-node-{name}"), &places.farfield(), &arguments)?;
        let out = watched.process.0.stdout.take().ok_or("the memory node has no output")?;
        let mut out = BufReader::new(out);
        let mut line = || {
            let mut line = String::new();
            out.read_line(&mut line).map(|_| line).map_err(|error| format!("the memory node: {error}"))
        };
        let (served, metrics) = (line()?, line()?);
        let metrics =
            metrics.trim().strip_prefix("metrics on http://").and_then(|at| at.strip_suffix("/metrics"));
        let metrics =
            metrics.ok_or_else(|| format!("the memory node did not start: {served}{}", watched.said()))?;
        let metrics = metrics.to_owned();
        Ok(Self { watched, url, metrics, _out: out })
    }

    /// Tells it to end, and waits for that.
    pub(super) fn end(mut self) -> Result<Option<Failure>, String> {
        self.watched.process.signal("-TERM")?;
        Ok(self.watched.end())
    }
}

/// A line-by-line conversation with a process.
struct Talk {
    ask: Option<ChildStdin>,
    answers: Receiver<String>,
}

impl Talk {
    fn with(process: &mut Process) -> Result<Self, String> {
        let (ask, Some(out)) = (process.0.stdin.take(), process.0.stdout.take()) else {
            return Err("a process has no pipes".to_owned());
        };
        let (send, answers) = mpsc::channel();
        std::thread::spawn(move || {
            BufReader::new(out).lines().map_while(Result::ok).try_for_each(|line| send.send(line))
        });
        Ok(Self { ask, answers })
    }

    /// The answer to a line; nothing if the process has ended, or does not answer in time.
    fn ask(&mut self, line: &str) -> Option<String> {
        self.ask.as_mut()?.write_all(format!("{line}\n").as_bytes()).ok()?;
        self.answers.recv_timeout(PATIENCE).ok()
    }
}

/// A program that works on the cluster.
pub(super) struct Program {
    pub(super) watched: Watched,
    talk: Talk,
    operations: u64,
}

/// How a program fares.
pub(super) enum Fares {
    /// It works.
    Well,
    /// It is there, and has done nothing for a while.
    Still,
    /// It has ended.
    Over,
}

impl Program {
    fn start(places: &Places, url: &str, log: &str, seed: u64) -> Result<Self, String> {
        let seed = seed.to_string();
        let program = places.programs.join("corrupt");
        let mut watched = places.watched("program", log, &program, &["program", url, &seed])?;
        let talk = Talk::with(&mut watched.process)?;
        Ok(Self { watched, talk, operations: 0 })
    }

    /// Whether it has done something since it was last asked.
    pub(super) fn fares(&mut self) -> (Fares, Option<Failure>) {
        let began = Instant::now();
        loop {
            let (has_ended, failure) = self.watched.has_ended();
            if has_ended || failure.is_some() {
                return (if has_ended { Fares::Over } else { Fares::Still }, failure);
            }
            let Some(operations) = self.talk.ask("?").and_then(|answer| answer.parse().ok()) else {
                // It is about to end, or something is very wrong: its end will tell.
                return (Fares::Still, None);
            };
            if operations > self.operations {
                self.operations = operations;
                return (Fares::Well, None);
            }
            if began.elapsed() > STILL {
                return (Fares::Still, None);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits until it has done something, where nothing is corrupt: it may have to wait for a processor.
    pub(super) fn begins(&mut self) -> bool {
        let began = Instant::now();
        loop {
            match self.fares() {
                (Fares::Well, None) => return true,
                (Fares::Still, None) if began.elapsed() < PATIENCE => {}
                _ => return false,
            }
        }
    }

    /// Tells it to end.
    pub(super) fn tell_to_end(&mut self) {
        self.talk.ask = None;
    }
}

/// All of a cluster's processes.
pub(super) struct Cluster {
    pub(super) node: MemoryNode,
    pub(super) programs: Vec<Program>,
    hand: Process,
    talk: Talk,
    started: u64,
    name: String,
}

impl Cluster {
    pub(super) fn start(places: &Places, name: String, manner: Manner) -> Result<Self, String> {
        let node = MemoryNode::start(places, &name, manner.sweeps)?;
        let (pid, seed) = (node.watched.process.id().to_string(), places.seed.to_string());
        let (nodes, segments, size) = (NODES.to_string(), SEGMENTS.to_string(), SEGMENT_BYTES.to_string());
        let arguments = ["hand", &pid, &seed, &nodes, &segments, &size, &places.only];
        let mut hand = Process::start(&places.programs.join("corrupt"), &arguments)?;
        let talk = Talk::with(&mut hand)?;
        let mut cluster = Self { node, programs: Vec::new(), hand, talk, started: 0, name };
        if manner.is_crowded {
            cluster.tell_hand("crowd")?;
        }
        Ok(cluster)
    }

    pub(super) fn url(&self) -> &str {
        &self.node.url
    }

    /// Starts the programs that are not there, and waits until each has done something, or ended.
    pub(super) fn start_programs(&mut self, places: &Places) -> Result<(), String> {
        while self.programs.len() < PROGRAMS {
            self.started += 1;
            let log = format!("program-{}-{}", self.name, self.started);
            self.programs.push(Program::start(places, self.url(), &log, places.seed + self.started)?);
        }
        Ok(())
    }

    /// Kills a program. The others evict it, and sweep up what it leaves if they do so at all.
    pub(super) fn kill_one(&mut self) {
        drop(self.programs.pop());
    }

    /// Has the hand do something; gives what it says.
    pub(super) fn tell_hand(&mut self, line: &str) -> Result<String, String> {
        let failed = || format!("the hand does not answer to `{line}`");
        let answer = self.talk.ask(line).ok_or_else(failed)?;
        match self.hand.has_ended() {
            None => Ok(answer),
            Some(status) => Err(format!("the hand has ended: {status}")),
        }
    }

    /// Ends the programs; gives what they did that they must not do, and the errors that they ended with.
    pub(super) fn end_programs(&mut self) -> (Vec<Failure>, Vec<String>) {
        self.programs.iter_mut().for_each(Program::tell_to_end);
        let mut failures = Vec::new();
        let mut errors = Vec::new();
        for mut program in self.programs.drain(..) {
            failures.extend(program.watched.end());
            errors.extend(program.watched.error());
        }
        (failures, errors)
    }

    /// Ends everything.
    pub(super) fn end(mut self) -> Result<(Vec<Failure>, Vec<String>), String> {
        let (mut failures, errors) = self.end_programs();
        failures.extend(self.node.end()?);
        Ok((failures, errors))
    }
}
