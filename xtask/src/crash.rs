//! `cargo xtask crash-test`: kills processes of a cluster in shared memory, or over TCP.
//!
//! Four processes operate on a lazy list, a Harris list, a stack, a queue, records of several words, and all structures of `farfield-collections`, and each requests the delegated counters of the
//! others. About every 100 ms a random one is
//! killed with SIGKILL and replaced; with `--stops` as many are stopped with SIGSTOP for a while and continued. Over TCP a process that is stopped for
//! longer than its lease is evicted, ends with that error and is replaced, too. After each kill the epoch
//! must advance within two leases. At the end both lists must be in order, the operations of all processes linearizable, each request executed as its answer or its error says, no lock held, and
//! no memory lost. So no acknowledged operation is lost or duplicated, and no read returns a partial record, except as half-written by a
//! dead writer. The cluster is in shared memory; with `--cluster tcp:` it has two memory nodes that listen on loopback, with a secret, and the names
//! of the figures begin with `crash.tcp.`. The test runs twice:
//! - with sweeping (`memnode --sweep`): after the last kill the memory of dead processes must be reclaimed while the others work. The
//!   figures are `crash.…`.
//! - without: the memory of dead processes must stay within [`MOST_LEFT_PER_DEATH`]. `farfield collect` is refused while processes live,
//!   and reclaims all of it afterwards. The figures are `crash.unswept.…`.
//!
//! | figure | meaning |
//! |---|---|
//! | `crash.kills` | processes that were killed |
//! | `crash.evicted` | processes that were evicted because they were stopped for longer than their lease: over TCP |
//! | `crash.verified` | 1 if no fault was found, else 0 |
//! | `crash.leaked_bytes` | bytes of objects that are neither freed nor reachable from a root |
//! | `crash.swept_bytes` | bytes of dead processes that were swept while others lived |
//! | `crash.swept_after_ms` | time from the last kill until all memory was swept |
//! | `crash.left_bytes` | bytes that were found only later, when no process lived |
//! | `crash.unswept.counted_bytes` | bytes of dead processes that `farfield status` counted before the collection |
//! | `crash.unswept.collected_bytes` | bytes that `farfield collect` reclaimed |
//! | `crash.operations` | operations of all processes that returned |
//! | `crash.interrupted` | operations whose process was killed |
//! | `crash.half_written` | reads of records that a killed process left half-written; they are then rewritten |
//! | `crash.longest_wait_ms` | longest time for the epoch to advance after a kill |

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::Args;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::results::Format;
use crate::workspace::process::{Pipes, Process};
use crate::workspace::{self, PROGRAMS, run as command, target};

/// Options of the crash test.
#[derive(Clone, Copy, Args)]
pub(crate) struct Options {
    /// Fabric of the cluster
    #[arg(long, value_enum, default_value_t = Fabric::Shm)]
    cluster: Fabric,
    /// Number of processes to kill
    #[arg(long, default_value_t = 200)]
    kills: u32,
    /// Number of processes to stop for a while
    #[arg(long, default_value_t = 0)]
    stops: u32,
    /// How memory of dead processes is reclaimed; by default the test runs both ways
    #[arg(long, value_enum)]
    way: Option<Way>,
    /// Seed of the random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Output format of the figures
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

impl Options {
    /// The run that every change must pass.
    pub(crate) fn short() -> Self {
        Self { cluster: Fabric::Shm, kills: 20, stops: 5, way: None, seed: 1, format: Format::Text }
    }

    /// The run over TCP that every change must pass.
    pub(crate) fn short_over_tcp() -> Self {
        Self { cluster: Fabric::Tcp, stops: 0, way: Some(Way::Swept), ..Self::short() }
    }
}

/// The fabric of the cluster.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Fabric {
    /// Shared memory
    #[value(name = "shm:")]
    Shm,
    /// Two memory nodes on loopback, with a secret
    #[value(name = "tcp:")]
    Tcp,
}

impl Fabric {
    /// The lease. Only over TCP is a silent process evicted: a busy machine must not delay a heartbeat for that long.
    fn lease(self) -> Duration {
        match self {
            Self::Shm => Duration::from_secs(1),
            Self::Tcp => Duration::from_secs(3),
        }
    }
}

/// How memory of dead processes is reclaimed.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Way {
    /// While other processes live
    Swept,
    /// By `farfield collect`, when no process lives
    Collected,
}

impl Way {
    /// Enough memory for that of all dead processes.
    fn segment_bytes(self, kills: u32) -> u64 {
        match self {
            Self::Swept => 16 << 20,
            Self::Collected => (16 << 20) + u64::from(kills) * MOST_LEFT_PER_DEATH,
        }
    }
}

/// The name of a figure.
fn figure_name(cluster: Fabric, way: Way, name: &str) -> String {
    let fabric = if cluster == Fabric::Tcp { "tcp." } else { "" };
    let way = if way == Way::Collected { "unswept." } else { "" };
    format!("crash.{fabric}{way}{name}")
}

const WORKERS: usize = 4;
/// Memory nodes of a cluster over TCP: a process is dead when both have closed its connections.
const TCP_NODES: usize = 2;
/// Exit code of a worker whose operation failed, for example because it was evicted.
const EVICTED: i32 = 2;
const BETWEEN_KILLS: std::ops::Range<u64> = 60..140;
/// Limit of the bytes that only a collection without processes finds: numbers in memory may look like the addresses of blocks, and such a block keeps all that it leads to, for example the rest of a
/// list of towers. In eight runs of 2 to 4 million operations it was 1 to 73 KiB, where 3 to 5 MiB were swept.
const MOST_LEFT_BYTES: u64 = 256 << 10;
/// Timeout after the last kill for sweeping all memory of dead processes.
const SWEPT_WITHIN: Duration = Duration::from_secs(30);
/// Limit of the average bytes that a dead worker leaks: it has two threads and fourteen structures, one with nodes of 1 KiB, of which it replaces many. See the book's chapter
/// "When a client dies".
const MOST_LEFT_PER_DEATH: u64 = 512 << 10;
/// The shortest time for which a process is stopped, in milliseconds; the longest is one and a half leases.
const STOPPED_MS: u64 = 50;
/// Timeout for a program to start or to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// A process that prints the epoch on request.
struct Watch {
    process: Process,
    pipes: Pipes,
}

impl Watch {
    fn start(program: &Path, url: &str) -> Result<Self, String> {
        let mut process = Process::start(program, &["watch", url])?;
        let pipes = Pipes::of(&mut process)?;
        Ok(Self { process, pipes })
    }

    fn epoch(&mut self) -> Result<u64, String> {
        let answer = self.pipes.ask("?", PATIENCE).ok_or("the watch does not answer")?;
        answer.parse().map_err(|_| format!("the watch answered {answer:?}"))
    }

    /// Ends it.
    fn end(mut self) -> Result<(), String> {
        self.pipes.close();
        self.process.end("the watch", PATIENCE)
    }
}

/// The command `farfield`.
struct Farfield {
    program: PathBuf,
    url: String,
}

impl Farfield {
    fn new(programs: &Path, cluster: Fabric, url: &str) -> Self {
        // On a busy machine a memory node may answer a new process late.
        let timeout = if cluster == Fabric::Tcp { ",timeout=10s" } else { "" };
        Self { program: programs.join("farfield"), url: format!("{url}{timeout}") }
    }

    fn figure(&self, name: &str) -> Result<u64, String> {
        let failed = |error: &dyn std::fmt::Display| format!("farfield status: {error}");
        let ran = Command::new(&self.program).args(["status", &self.url, "--format", "json"]).output();
        let ran = ran.map_err(|error| failed(&error))?;
        if !ran.status.success() {
            return Err(failed(&String::from_utf8_lossy(&ran.stderr).trim()));
        }
        let status: serde_json::Value =
            serde_json::from_slice(&ran.stdout).map_err(|error| failed(&error))?;
        status[name].as_u64().ok_or_else(|| failed(&format_args!("it has no {name}")))
    }

    /// Runs `farfield collect`: returns the bytes reclaimed, or its refusal.
    fn collect(&self) -> Result<u64, String> {
        let ran = Command::new(&self.program).args(["collect", "--cluster", &self.url]).output();
        let ran = ran.map_err(|error| format!("farfield collect: {error}"))?;
        if !ran.status.success() {
            return Err(String::from_utf8_lossy(&ran.stderr).trim().to_owned());
        }
        let printed = String::from_utf8_lossy(&ran.stdout);
        let bytes = printed.split(' ').next().and_then(|bytes| bytes.parse().ok());
        bytes.ok_or_else(|| format!("farfield collect printed {printed:?}"))
    }

    /// Waits until all deaths are counted, or the timeout; returns whether they are.
    fn wait_until_counted(&self, deaths: u64) -> Result<bool, String> {
        let began = Instant::now();
        while began.elapsed() <= SWEPT_WITHIN {
            if self.figure("evictions")? >= deaths {
                return Ok(true);
            }
            sleep(Duration::from_millis(20));
        }
        Ok(false)
    }

    /// Waits until all memory of dead processes is swept, or the timeout; returns the time.
    fn wait_until_swept(&self) -> Result<Duration, String> {
        let began = Instant::now();
        while began.elapsed() <= SWEPT_WITHIN && self.figure("uncollected")? > 0 {
            sleep(Duration::from_millis(20));
        }
        Ok(began.elapsed())
    }
}

/// The state of the test.
struct Test {
    program: PathBuf,
    url: String,
    logs: PathBuf,
    started: u32,
    rng: SmallRng,
}

impl Test {
    fn worker(&mut self) -> Result<Worker, String> {
        self.started += 1;
        let log = self.logs.join(self.started.to_string());
        let seed = self.rng.random::<u64>().to_string();
        let arguments = ["work", &self.url, &log.display().to_string(), &seed];
        let process = Process::start(&self.program, &arguments)?;
        Ok(Worker { process, log, was_stopped: false })
    }
}

/// A process that works.
struct Worker {
    process: Process,
    /// Made when it has joined the cluster.
    log: PathBuf,
    /// True if it has been stopped for a while.
    was_stopped: bool,
}

impl Worker {
    /// Returns whether an ended worker may have been evicted: one that was stopped, over TCP.
    fn was_evicted(&self, cluster: Fabric, status: ExitStatus) -> bool {
        self.was_stopped && cluster == Fabric::Tcp && status.code() == Some(EVICTED)
    }
}

pub(crate) fn run(options: &Options) -> Result<(), String> {
    command(&[&["cargo", "build", "--release", "--quiet"], &PROGRAMS[..]].concat(), &[])?;
    let programs = target().join("release");
    let mut figures = Vec::new();
    for way in [Way::Swept, Way::Collected] {
        if options.way.is_some_and(|only| only != way) {
            continue;
        }
        let logs = tempfile::tempdir().map_err(|error| format!("temporary folder: {error}"))?;
        let nodes = MemoryNodes::start(options, way, &programs)?;
        let tested = test(options, way, &programs, nodes, logs.path())?;
        let named = |(name, value)| (figure_name(options.cluster, way, name), value);
        figures.extend(tested.into_iter().map(named));
    }
    match options.format {
        Format::Text => figures.iter().for_each(|(name, value)| println!("{name} {value}")),
        Format::Json => {
            let object: serde_json::Map<_, _> =
                figures.iter().map(|(name, value)| (name.clone(), (*value).into())).collect();
            println!("{}", serde_json::Value::Object(object));
        }
    }
    let right = figures.iter().all(|(name, value)| match name.rsplit('.').next() {
        Some("verified") => *value == 1,
        Some("leaked_bytes") => *value == 0,
        _ => true,
    });
    if right { Ok(()) } else { Err("the crash test has found a fault".to_owned()) }
}

type Figures = Vec<(&'static str, u64)>;

/// The memory nodes of the cluster.
struct MemoryNodes {
    url: String,
    nodes: Vec<Process>,
    /// The folder with the secret, of a cluster that has one.
    _secret: Option<tempfile::TempDir>,
}

impl MemoryNodes {
    /// Starts them, and waits until they serve.
    fn start(options: &Options, way: Way, programs: &Path) -> Result<Self, String> {
        let program = programs.join("farfield");
        let lease = options.cluster.lease().as_millis().to_string();
        let size = way.segment_bytes(options.kills).to_string();
        let mut memnode = vec!["memnode", "--segment-size", &size, "--lease", &lease];
        memnode.extend((way == Way::Swept).then_some("--sweep"));
        if options.cluster == Fabric::Shm {
            let url = format!("shm:crash-{}-{}", std::process::id(), way as u8);
            memnode.extend(["--cluster", &url]);
            let (node, _) = memory_node(&program, &memnode)?;
            return Ok(Self { url, nodes: vec![node], _secret: None });
        }
        let folder = tempfile::tempdir().map_err(|error| format!("temporary folder: {error}"))?;
        let secret = workspace::secret(folder.path())?;
        memnode.extend(["--listen", "tcp://127.0.0.1:0", "--secret-file", &secret]);
        let (mut nodes, mut addresses) = (Vec::new(), Vec::new());
        for _ in 0..TCP_NODES {
            let (node, line) = memory_node(&program, &memnode)?;
            let address = line.split_once("tcp://").and_then(|(_, rest)| rest.split_once(": "));
            addresses.push(address.ok_or_else(|| format!("a memory node printed {line:?}"))?.0.to_owned());
            nodes.push(node);
        }
        let url = format!("tcp://{}?secret-file={secret}", addresses.join(","));
        Ok(Self { url, nodes, _secret: Some(folder) })
    }

    /// Ends them.
    fn end(mut self) -> Result<(), String> {
        for node in &mut self.nodes {
            node.signal("-TERM")?;
            node.end("the memory node", PATIENCE)?;
        }
        Ok(())
    }
}

/// Starts a memory node, and waits until it serves. Returns the line that it has printed.
fn memory_node(program: &Path, arguments: &[&str]) -> Result<(Process, String), String> {
    let mut node = Process::start(program, arguments)?;
    let mut line = String::new();
    let out = node.0.stdout.take().ok_or("the memory node has no output")?;
    let mut out = BufReader::new(out);
    out.read_line(&mut line).map_err(|error| format!("the memory node: {error}"))?;
    // Kept open, since it may print more.
    node.0.stdout = Some(out.into_inner());
    if line.is_empty() { Err("the memory node did not start".to_owned()) } else { Ok((node, line)) }
}

/// Kills and stops workers, and replaces those that were killed or evicted. Returns the longest time for the epoch to advance after a kill, and the
/// numbers of evicted workers, and of all members that have died: a worker that is killed before it has joined is none.
fn kill_and_stop(
    options: &Options,
    test: &mut Test,
    workers: &mut [Worker],
    watch: &mut Watch,
    faults: &mut Vec<String>,
) -> Result<(Duration, u64, u64), String> {
    let (mut longest, mut evicted, mut deaths) = (Duration::ZERO, 0, 0);
    let all = options.kills + options.stops;
    let lease = options.cluster.lease();
    let stopped = STOPPED_MS..lease.as_millis() as u64 * 3 / 2;
    // Stops are spread evenly among kills.
    let stops_before = |act: u32| u64::from(act) * u64::from(options.stops) / u64::from(all.max(1));
    for act in 0..all {
        sleep(Duration::from_millis(test.rng.random_range(BETWEEN_KILLS)));
        let chosen = test.rng.random_range(0..WORKERS);
        for (number, worker) in workers.iter_mut().enumerate() {
            let Some(status) = worker.process.has_ended() else { continue };
            if !worker.was_evicted(options.cluster, status) {
                return Err(format!("worker {number} ended by itself: {status}"));
            }
            evicted += 1;
            *worker = test.worker()?;
        }
        if stops_before(act + 1) > stops_before(act) {
            workers[chosen].process.signal("-STOP")?;
            sleep(Duration::from_millis(test.rng.random_range(stopped.clone())));
            workers[chosen].process.signal("-CONT")?;
            workers[chosen].was_stopped = true;
            continue;
        }
        deaths += u64::from(workers[chosen].log.exists());
        workers[chosen].process.signal("-KILL")?;
        let (killed_at, epoch) = (Instant::now(), watch.epoch()?);
        workers[chosen] = test.worker()?;
        while watch.epoch()? < epoch + 2 {
            if killed_at.elapsed() > 10 * lease {
                return Err("reclamation has stopped after a kill".to_owned());
            }
            sleep(Duration::from_millis(1));
        }
        longest = longest.max(killed_at.elapsed());
        if killed_at.elapsed() > 2 * lease {
            faults.push(format!("the epoch took {:?} to advance after a kill", killed_at.elapsed()));
        }
    }
    Ok((longest, evicted, deaths + evicted))
}

/// Waits for the end of all workers. Returns the number of evicted ones: one that was stopped last may notice only now that it was.
fn end_workers(cluster: Fabric, workers: &mut [Worker]) -> Result<u64, String> {
    let mut evicted = 0;
    for (number, worker) in workers.iter_mut().enumerate() {
        match worker.process.wait(PATIENCE) {
            Some(status) if worker.was_evicted(cluster, status) => evicted += 1,
            _ => worker.process.end(&format!("worker {number}"), PATIENCE)?,
        }
    }
    Ok(evicted)
}

/// Runs the judge, and returns what it prints.
fn judge(program: &Path, url: &str, logs: &Path) -> Result<String, String> {
    let judged = Command::new(program).args(["judge", url, &logs.display().to_string()]).output();
    let judged = judged.map_err(|error| format!("judge: {error}"))?;
    if !judged.status.success() {
        return Err(format!("the judge failed: {}", String::from_utf8_lossy(&judged.stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&judged.stdout).into_owned())
}

fn test(
    options: &Options,
    way: Way,
    programs: &Path,
    nodes: MemoryNodes,
    logs: &Path,
) -> Result<Figures, String> {
    let program = programs.join("crash");
    let url = nodes.url.clone();
    let rng = SmallRng::seed_from_u64(options.seed);
    let mut test =
        Test { program: program.clone(), url: url.clone(), logs: logs.to_owned(), started: 0, rng };
    let mut watch = Watch::start(&program, &url)?;
    let mut workers = Vec::new();
    for _ in 0..WORKERS {
        workers.push(test.worker()?);
    }
    let mut faults = Vec::new();
    let (longest, mut evicted, deaths) =
        kill_and_stop(options, &mut test, &mut workers, &mut watch, &mut faults)?;
    let farfield = Farfield::new(programs, options.cluster, &url);
    let mut of_way: Figures = Vec::new();
    let mut counted = 0;
    if way == Way::Swept {
        let swept_after = farfield.wait_until_swept()?;
        if swept_after > SWEPT_WITHIN {
            faults.push(format!("the memory of dead processes was not swept within {SWEPT_WITHIN:?}"));
        }
        of_way.push(("swept_bytes", farfield.figure("swept_bytes")?));
        of_way.push(("swept_after_ms", swept_after.as_millis() as u64));
    } else {
        if !farfield.wait_until_counted(deaths)? {
            faults.push("not all killed processes were evicted".to_owned());
        }
        if farfield.figure("uncollected")? < deaths {
            faults.push("not all deaths are counted".to_owned());
        }
        if farfield.figure("swept_bytes")? > 0 {
            faults.push("memory was swept in a cluster without sweeping".to_owned());
        }
        let names = |refused: &str| {
            workers.iter().any(|worker| refused.contains(&format!("(pid {})", worker.process.id())))
        };
        match farfield.collect() {
            Err(refused) if names(&refused) => {}
            other => faults.push(format!("a collection while others live: {other:?}")),
        }
        counted = farfield.figure("uncollected_bytes")?;
        of_way.push(("counted_bytes", counted));
    }
    let collected_before = farfield.figure("collected_bytes")?;
    Process::start(&program, &["stop", &url])?.end("stopping", PATIENCE)?;
    evicted += end_workers(options.cluster, &mut workers)?;
    // A worker that ends while another delays the reclamation of its garbage leaves memory, too; the watch sweeps it.
    if way == Way::Swept && farfield.wait_until_swept()? > SWEPT_WITHIN {
        faults.push("the memory of ended workers was not swept".to_owned());
    }
    watch.end()?;
    if way == Way::Collected {
        let collected = farfield.collect()?;
        let most = (u64::from(options.kills) + evicted) * MOST_LEFT_PER_DEATH;
        if collected > most {
            faults.push(format!("dead processes have leaked {collected} bytes, more than {most}"));
        }
        // The count includes objects that were linked or freed after their process had counted them.
        if collected < counted / 2 {
            faults.push(format!(
                "only {collected} of the {counted} bytes that dead processes held were collected"
            ));
        }
        if farfield.collect()? > 0 {
            faults.push("a second collection has found memory".to_owned());
        }
        of_way.push(("collected_bytes", collected));
    }
    let found = judge(&program, &url, logs)?;
    let figure = |name: &str| {
        let line = found.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|value| value.parse::<u64>().ok()).ok_or_else(|| format!("the judge printed no {name}"))
    };
    faults.extend(found.lines().filter_map(|line| line.strip_prefix("fault ")).map(str::to_owned));
    if way == Way::Swept {
        let left_bytes = farfield.figure("collected_bytes")? - collected_before;
        if left_bytes > MOST_LEFT_BYTES {
            faults.push(format!("{left_bytes} bytes of dead processes were not swept while others lived"));
        }
        of_way.push(("left_bytes", left_bytes));
    }
    let leaked_bytes = figure("live_bytes")?.checked_sub(figure("reachable_bytes")?);
    let leaked_bytes = leaked_bytes.ok_or("fewer bytes are live than are reachable")?;
    for fault in &faults {
        eprintln!("crash-test: {fault}");
    }
    nodes.end()?;
    let figures: Figures = vec![
        ("kills", options.kills.into()),
        ("evicted", evicted),
        ("verified", faults.is_empty().into()),
        ("leaked_bytes", leaked_bytes),
        ("operations", figure("returned")?),
        ("interrupted", figure("interrupted")?),
        ("half_written", figure("half_written")?),
        ("longest_wait_ms", longest.as_millis() as u64),
    ];
    Ok([figures, of_way].concat())
}
