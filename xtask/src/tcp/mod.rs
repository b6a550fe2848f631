//! `cargo xtask tcp-test`: tests over TCP between two machines, which are network namespaces of this one.
//!
//! | test | what must hold |
//! |---|---|
//! | fabric | the conformance suite and the fabric's own tests pass, with their memory nodes at the other end of the cable |
//! | sets | `intset` verifies every structure on two memory nodes, with one and two threads, one and eight tasks |
//! | interruptions | while the cable is out for less than the timeout, operations wait; the set is verified |
//! | cut, at either end | every client of several under load ends within its timeout, with an error that names the memory node; when the cable is in again, the memory nodes serve |
//!
//! It needs root's rights, for the namespaces, and `ip`. Where they can not be made, it prints that it is skipped; if `FARFIELD_REQUIRE` names
//! `namespaces`, as in `.ci/run`, it fails.

mod namespaces;

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::workspace::process::Process;
use crate::workspace::skip::skip;
use crate::workspace::{self, output, target};
use namespaces::{End, Namespaces};

/// Timeout of the fabric's tests.
const TESTS_LIMIT: Duration = Duration::from_secs(300);
/// Timeout of a program.
const PATIENCE: Duration = Duration::from_secs(60);
/// The clients whose cable is cut, and the threads of each.
const CLIENTS: usize = 4;
const THREADS: &str = "2";
/// The timeout of their operations.
const TIMEOUT: Duration = Duration::from_secs(1);
/// The time by which a process may end later than that: it ends its threads and leaves the cluster, by operations that fail, too.
const GRACE: Duration = Duration::from_secs(20);
/// How often the cable is out for less than the timeout, and for how long.
const INTERRUPTIONS: u32 = 4;
const INTERRUPTION: Duration = Duration::from_millis(300);

/// Runs all tests.
pub(crate) fn run() -> Result<(), String> {
    if let Err(why) = Namespaces::new() {
        skip("namespaces", &why);
        return Ok(());
    }
    let build =
        "cargo build --release --quiet -p farfield-cli -p farfield-examples --bin farfield --bin intset";
    workspace::run(&build.split(' ').collect::<Vec<_>>(), &[])?;
    let tests = fabric_tests()?;
    let secret = tempfile::tempdir().map_err(|error| format!("temporary folder: {error}"))?;
    let bed = Bed {
        secret: workspace::secret(secret.path())?,
        programs: target().join("release"),
        namespaces: Namespaces::new()?,
    };
    test("fabric", || bed.fabric(&tests))?;
    test("sets", || bed.sets())?;
    test("interruptions", || bed.interruptions())?;
    for end in End::BOTH {
        test(&format!("cut at the {end:?}' end").to_lowercase(), || bed.cut(end))?;
    }
    Ok(())
}

fn test(name: &str, work: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    let began = Instant::now();
    work().map_err(|why| format!("{name}: {why}"))?;
    println!("{name}: {:.1} s", began.elapsed().as_secs_f64());
    Ok(())
}

/// Builds the fabrics' own tests; returns their path.
fn fabric_tests() -> Result<PathBuf, String> {
    let command =
        "cargo test --release --quiet --package farfield-fabric --lib --no-run --message-format json";
    let messages = output(&command.split(' ').collect::<Vec<_>>())?;
    let mut built = messages.lines().filter_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        message.get("executable")?.as_str().map(PathBuf::from)
    });
    built.next_back().ok_or_else(|| "cargo printed no path of the tests".to_owned())
}

/// The two machines, and the programs.
struct Bed {
    namespaces: Namespaces,
    programs: PathBuf,
    /// The file with the secret.
    secret: String,
}

/// Memory nodes, and their URL with its first option.
struct MemoryNodes {
    _nodes: Vec<Process>,
    url: String,
}

impl Bed {
    /// Runs a program at an end, until it is dropped.
    fn start(&self, end: End, program: &Path, arguments: &[&str]) -> Result<Process, String> {
        let mut command = self.namespaces.command(end, program);
        let place = format!("{} {}", End::Nodes.address(), self.namespaces.path(End::Nodes).display());
        // Stalls are part of these tests.
        command.args(arguments).env("FARFIELD_STALL", "0").env("FARFIELD_TCP_NODES", place);
        Process::spawn(command.stderr(Stdio::piped()))
    }

    /// Starts two memory nodes, and waits until they serve.
    fn memory_nodes(&self) -> Result<MemoryNodes, String> {
        let listen = format!("tcp://{}:0", End::Nodes.address());
        let arguments =
            ["memnode", "--segments", "2", "--segment-size", "16MiB", "--sweep", "--listen", &listen];
        let arguments = [&arguments[..], &["--secret-file", &self.secret]].concat();
        let (mut nodes, mut addresses) = (Vec::new(), Vec::new());
        for _ in 0..2 {
            let mut node = self.start(End::Nodes, &self.programs.join("farfield"), &arguments)?;
            let mut line = String::new();
            let printed = node.0.stdout.as_mut().ok_or("the memory node has no output")?;
            BufReader::new(printed).read_line(&mut line).map_err(|error| error.to_string())?;
            let address = line.split_once("tcp://").and_then(|(_, rest)| rest.split_once(": "));
            let Some((address, _)) = address else {
                return Err(format!(
                    "a memory node did not start: {}",
                    Ended::of(&mut node, PATIENCE)?.errors
                ));
            };
            addresses.push(address.to_owned());
            nodes.push(node);
        }
        let url = format!("tcp://{}?secret-file={}", addresses.join(","), self.secret);
        Ok(MemoryNodes { _nodes: nodes, url })
    }

    /// Starts `intset` beside the clients' end.
    fn intset(&self, url: &str, arguments: &str) -> Result<Process, String> {
        let mut words = vec!["--cluster", url, "--format", "json"];
        words.extend(arguments.split_whitespace());
        self.start(End::Clients, &self.programs.join("intset"), &words)
    }

    fn fabric(&self, tests: &Path) -> Result<(), String> {
        let mut tests = self.start(End::Clients, tests, &["tcp", "--test-threads", "1"])?;
        let ended = Ended::of(&mut tests, TESTS_LIMIT)?;
        let needed = ["conformance::tests::tcp_conforms", "tcp::tests::an_altered_byte"];
        let has = |test: &&str| {
            ended.printed.lines().any(|line| {
                line.strip_prefix("test ").is_some_and(|line| line.starts_with(test) && line.ends_with(" ok"))
            })
        };
        if ended.code == Some(0) && needed.iter().all(has) {
            Ok(())
        } else {
            Err(format!("the fabric's tests failed:\n{}{}", ended.printed, ended.errors))
        }
    }

    fn sets(&self) -> Result<(), String> {
        let nodes = self.memory_nodes()?;
        for structure in ["lazy-list", "lazy-list-naive", "harris-list", "hash-set"] {
            for threads in [1, 2] {
                for tasks in [1, 8] {
                    let options = format!(
                        "--structure {structure} --threads {threads} --tasks {tasks} --num-ops 1000 --key-ub 128 --insert 20 --remove 20"
                    );
                    verified(&mut self.intset(&nodes.url, &options)?)
                        .map_err(|why| format!("{options}: {why}"))?;
                }
            }
        }
        Ok(())
    }

    fn interruptions(&self) -> Result<(), String> {
        let nodes = self.memory_nodes()?;
        let url = format!("{},timeout=20s", nodes.url);
        let options =
            "--structure lazy-list --threads 2 --tasks 4 --num-ops 20000 --key-ub 64 --insert 30 --remove 30";
        let mut set = self.intset(&url, options)?;
        self.await_members(&nodes, 1)?;
        let mut during = 0;
        for number in 0..INTERRUPTIONS {
            let end = End::BOTH[number as usize % 2];
            self.namespaces.switch(end, false)?;
            sleep(INTERRUPTION);
            during += u32::from(set.has_ended().is_none());
            self.namespaces.switch(end, true)?;
            sleep(INTERRUPTION);
        }
        verified(&mut set)?;
        if during == 0 { Err("the program had ended before".to_owned()) } else { Ok(()) }
    }

    fn cut(&self, end: End) -> Result<(), String> {
        let nodes = self.memory_nodes()?;
        let url = format!("{},timeout={}ms", nodes.url, TIMEOUT.as_millis());
        let options = format!(
            "--structure hash-set --threads {THREADS} --tasks 4 --num-ops 1000000000 --key-ub 256 --insert 20 --remove 20"
        );
        let clients: Result<Vec<Process>, String> =
            (0..CLIENTS).map(|_| self.intset(&url, &options)).collect();
        let mut clients = clients?;
        self.await_members(&nodes, CLIENTS)?;
        sleep(TIMEOUT);
        for client in &mut clients {
            if client.has_ended().is_some() {
                return Err(format!("a client ended before: {}", Ended::of(client, PATIENCE)?.errors));
            }
        }
        self.namespaces.switch(end, false)?;
        let began = Instant::now();
        let mut longest = Duration::ZERO;
        for client in &mut clients {
            let left = (TIMEOUT + GRACE).saturating_sub(began.elapsed());
            let Ended { code, errors, .. } = Ended::of(client, left)?;
            let is_named = ["memory node 0 ", "memory node 1 "].iter().any(|node| errors.contains(node));
            if code != Some(2) || !is_named || !errors.contains("did not answer within") {
                return Err(format!("a client ended with code {code:?}: {errors}"));
            }
            longest = longest.max(began.elapsed());
        }
        println!("every client has ended {:.1} s after the cut", longest.as_secs_f64());
        self.namespaces.switch(end, true)?;
        self.await_members(&nodes, 0)?;
        let options = "--structure hash-set --num-ops 1000 --key-ub 128";
        verified(&mut self.intset(&nodes.url, options)?).map_err(|why| format!("after the cut: {why}"))
    }

    /// Waits until the memory nodes are reached, and this number of processes has joined the cluster.
    fn await_members(&self, nodes: &MemoryNodes, number: usize) -> Result<(), String> {
        let began = Instant::now();
        let mut errors = String::new();
        while began.elapsed() < PATIENCE {
            let status = ["status", &nodes.url, "--format", "json"];
            let mut status = self.start(End::Clients, &self.programs.join("farfield"), &status)?;
            let status = Ended::of(&mut status, PATIENCE)?;
            let parsed: serde_json::Value = serde_json::from_str(&status.printed).unwrap_or_default();
            // The command is a member, too.
            if parsed["members"].as_array().is_some_and(|members| members.len() > number) {
                return Ok(());
            }
            errors = status.errors;
        }
        Err(format!("{number} clients have not joined within {PATIENCE:?}: {errors}"))
    }
}

/// Waits for the end of `intset`, which must have verified its set.
fn verified(set: &mut Process) -> Result<(), String> {
    let ended = Ended::of(set, PATIENCE)?;
    let report: Option<serde_json::Value> = serde_json::from_str(&ended.printed).ok();
    if ended.code == Some(0) && report.is_some_and(|report| report["verified"] == true) {
        Ok(())
    } else {
        Err(format!("the set is not verified: {}{}", ended.printed, ended.errors))
    }
}

/// A process that has ended, and what it has printed.
struct Ended {
    code: Option<i32>,
    printed: String,
    errors: String,
}

impl Ended {
    /// Waits for its end, for at most `patience`. Its output is read meanwhile.
    fn of(process: &mut Process, patience: Duration) -> Result<Self, String> {
        let reader = |from: Option<Box<dyn Read + Send>>| {
            std::thread::spawn(move || {
                let mut text = String::new();
                from.map(|mut from| from.read_to_string(&mut text)).transpose().map(|_| text)
            })
        };
        let printed = reader(process.0.stdout.take().map(|out| Box::new(out) as _));
        let errors = reader(process.0.stderr.take().map(|out| Box::new(out) as _));
        let status = process.wait(patience);
        if status.is_none() {
            // Its pipes close.
            let _ = process.0.kill();
        }
        let text = |reader: std::thread::JoinHandle<std::io::Result<String>>| {
            reader.join().ok().and_then(Result::ok).unwrap_or_default()
        };
        let (printed, errors) = (text(printed), text(errors));
        match status {
            Some(status) => Ok(Self { code: status.code(), printed, errors }),
            None => Err(format!("it has not ended after {patience:?}: {printed}{errors}")),
        }
    }
}
