//! A cluster whose memory is corrupted: its memory node, two programs, and the injector.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::ChildStdout;
use std::time::{Duration, Instant};

use super::watched::{Failure, PATIENCE, Watched};
use crate::workspace::process::{Pipes, Process};

/// Number of memory nodes, segments of each, and bytes of each segment: small, so that most memory is in use.
const NODES: u16 = 2;
const SEGMENTS: u16 = 2;
const SEGMENT_BYTES: u64 = 512 << 10;
/// The memory of a cluster.
pub(super) const CLUSTER_BYTES: u64 = NODES as u64 * SEGMENTS as u64 * SEGMENT_BYTES;
const LEASE_MS: &str = "300";
const PROGRAMS: usize = 2;
/// How long a program may perform no operation before it counts as waiting.
const WAITING_AFTER: Duration = Duration::from_millis(200);

/// The setup of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Setup {
    /// True if memory of dead processes is swept.
    pub(super) sweeps: bool,
    pub(super) records: Records,
}

/// The process records in the control block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Records {
    Free,
    /// All belong to one process, so that the others use pages of slots.
    Occupied,
}

/// Folders of programs and logs, and options of all clusters.
pub(super) struct Paths {
    pub(super) programs: PathBuf,
    pub(super) logs: PathBuf,
    pub(super) seed: u64,
    pub(super) only: String,
}

impl Paths {
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

/// A running memory node.
pub(super) struct MemoryNode {
    pub(super) watched: Watched,
    pub(super) url: String,
    /// Its address for metrics.
    pub(super) metrics: String,
    /// Kept open, since the node may print more.
    _out: BufReader<ChildStdout>,
}

impl MemoryNode {
    pub(super) fn start(paths: &Paths, name: &str, sweeps: bool) -> Result<Self, String> {
        let url = format!("shm:corrupt-{}-{name}", std::process::id());
        let (nodes, segments, size) = (NODES.to_string(), SEGMENTS.to_string(), SEGMENT_BYTES.to_string());
        let mut arguments = vec!["memnode", "--cluster", &url, "--nodes", &nodes, "--segments", &segments];
        arguments.extend(["--segment-size", &size, "--lease", LEASE_MS, "--metrics", "127.0.0.1:0"]);
        arguments.extend(sweeps.then_some("--sweep"));
        let mut watched =
            paths.watched("memory node", &format!("memory-node-{name}"), &paths.farfield(), &arguments)?;
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
            metrics.ok_or_else(|| format!("the memory node did not start: {served}{}", watched.stderr()))?;
        let metrics = metrics.to_owned();
        Ok(Self { watched, url, metrics, _out: out })
    }

    /// Ends it; returns a failure.
    pub(super) fn end(mut self) -> Result<Option<Failure>, String> {
        self.watched.process.signal("-TERM")?;
        Ok(self.watched.end())
    }
}

/// A program that operates on the cluster.
pub(super) struct Program {
    pub(super) watched: Watched,
    pipes: Pipes,
    operations: u64,
}

/// The state of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProgramState {
    /// It performs operations.
    Working,
    /// It runs, and has performed no operation for a while.
    Waiting,
    Ended,
}

impl Program {
    fn start(paths: &Paths, url: &str, log: &str, seed: u64) -> Result<Self, String> {
        let seed = seed.to_string();
        let program = paths.programs.join("corrupt");
        let mut watched = paths.watched("program", log, &program, &["worker", url, &seed])?;
        let pipes = Pipes::of(&mut watched.process)?;
        Ok(Self { watched, pipes, operations: 0 })
    }

    /// Its state since the last call, and a failure.
    pub(super) fn state(&mut self) -> (ProgramState, Option<Failure>) {
        let began = Instant::now();
        loop {
            let (has_ended, failure) = self.watched.has_ended();
            if has_ended || failure.is_some() {
                return (if has_ended { ProgramState::Ended } else { ProgramState::Waiting }, failure);
            }
            let Some(operations) = self.pipes.ask("?", PATIENCE).and_then(|answer| answer.parse().ok())
            else {
                // It is about to end; its end is judged then.
                return (ProgramState::Waiting, None);
            };
            if operations > self.operations {
                self.operations = operations;
                return (ProgramState::Working, None);
            }
            if began.elapsed() > WAITING_AFTER {
                return (ProgramState::Waiting, None);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits for its first operation in an intact cluster; on a busy machine that takes a while. Returns whether it was performed.
    pub(super) fn works(&mut self) -> bool {
        let began = Instant::now();
        loop {
            match self.state() {
                (ProgramState::Working, None) => return true,
                (ProgramState::Waiting, None) if began.elapsed() < PATIENCE => {}
                _ => return false,
            }
        }
    }

    /// Closes its standard input, so that it ends.
    pub(super) fn close_input(&mut self) {
        self.pipes.close();
    }
}

/// All of a cluster's processes.
pub(super) struct Cluster {
    pub(super) node: MemoryNode,
    pub(super) programs: Vec<Program>,
    injector: Process,
    pipes: Pipes,
    started: u64,
    name: String,
}

impl Cluster {
    pub(super) fn start(paths: &Paths, name: String, setup: Setup) -> Result<Self, String> {
        let node = MemoryNode::start(paths, &name, setup.sweeps)?;
        let (pid, seed) = (node.watched.process.id().to_string(), paths.seed.to_string());
        let (nodes, segments, size) = (NODES.to_string(), SEGMENTS.to_string(), SEGMENT_BYTES.to_string());
        let arguments = ["inject", &pid, &seed, &nodes, &segments, &size, &paths.only];
        let mut injector = Process::start(&paths.programs.join("corrupt"), &arguments)?;
        let pipes = Pipes::of(&mut injector)?;
        let mut cluster = Self { node, programs: Vec::new(), injector, pipes, started: 0, name };
        if setup.records == Records::Occupied {
            cluster.inject("occupy")?;
        }
        Ok(cluster)
    }

    pub(super) fn url(&self) -> &str {
        &self.node.url
    }

    /// Starts the missing programs.
    pub(super) fn start_programs(&mut self, paths: &Paths) -> Result<(), String> {
        while self.programs.len() < PROGRAMS {
            self.started += 1;
            let log = format!("program-{}-{}", self.name, self.started);
            self.programs.push(Program::start(paths, self.url(), &log, paths.seed + self.started)?);
        }
        Ok(())
    }

    /// Kills a program. The others evict it, and sweep its memory if the cluster sweeps.
    pub(super) fn kill_one(&mut self) {
        drop(self.programs.pop());
    }

    /// Sends a command to the injector; returns its answer.
    pub(super) fn inject(&mut self, line: &str) -> Result<String, String> {
        let failed = || format!("the injector does not answer `{line}`");
        let answer = self.pipes.ask(line, PATIENCE).ok_or_else(failed)?;
        match self.injector.has_ended() {
            None => Ok(answer),
            Some(status) => Err(format!("the injector has ended: {status}")),
        }
    }

    /// Ends the programs; returns their failures and errors.
    pub(super) fn end_programs(&mut self) -> (Vec<Failure>, Vec<String>) {
        self.programs.iter_mut().for_each(Program::close_input);
        let mut failures = Vec::new();
        let mut errors = Vec::new();
        for mut program in self.programs.drain(..) {
            failures.extend(program.watched.end());
            errors.extend(program.watched.error());
        }
        (failures, errors)
    }

    /// Ends all processes; returns the failures and errors.
    pub(super) fn end(mut self) -> Result<(Vec<Failure>, Vec<String>), String> {
        let (mut failures, errors) = self.end_programs();
        failures.extend(self.node.end()?);
        Ok((failures, errors))
    }
}
