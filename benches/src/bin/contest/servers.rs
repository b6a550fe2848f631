//! What the servers have in common: their processes, and threads that send them pipelined requests.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Barrier, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use tempfile::TempDir;

use crate::outcome::{Measured, Outcome, Shared, latencies, record};
use crate::workload::{self, Phase, Plan, Request, Worker};

/// How long a server may take to start.
const PATIENCE: Duration = Duration::from_secs(10);

/// A connection to a server.
pub(crate) trait Connection: Sized {
    /// Connects to the server of a socket.
    fn open(socket: &Path) -> Result<Self, String>;

    /// Sends requests at once, and returns what each read has found.
    fn carry_out(&mut self, requests: &[Request]) -> Result<Vec<Option<Vec<u8>>>, String>;

    /// Returns the bytes that the server's records take.
    fn stored_bytes(&mut self) -> Result<u64, String>;
}

/// A server on a Unix socket, which is killed when this is dropped.
pub(crate) struct Server {
    child: Child,
    folder: TempDir,
}

const SOCKET: &str = "socket";

impl Server {
    /// Starts a program with arguments; the last one is followed by the socket.
    pub(crate) fn start(program: &str, args: &[&str]) -> Result<Self, String> {
        let folder = tempfile::tempdir().map_err(|error| format!("a folder for {program}: {error}"))?;
        let child = Command::new(program)
            .args(args)
            .arg(folder.path().join(SOCKET))
            .current_dir(folder.path())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| format!("{program}: {error}"))?;
        Ok(Self { child, folder })
    }

    fn connect<C: Connection>(&self) -> Result<C, String> {
        let until = Instant::now() + PATIENCE;
        loop {
            match C::open(&self.folder.path().join(SOCKET)) {
                Ok(connection) => return Ok(connection),
                Err(error) if Instant::now() > until => return Err(error),
                Err(_) => thread::sleep(Duration::from_millis(10)),
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs the phases on a server, which has no records. Each thread has one connection, and sends a request of each of its workers at once.
pub(crate) fn run<C: Connection>(
    server: &Server,
    (threads, tasks): (usize, usize),
    phases: &[Phase],
    plan: &Plan,
    progress: &ProgressBar,
) -> Outcome {
    let (barrier, shared, measured) = (Barrier::new(threads), Shared::default(), Mutex::new(Vec::new()));
    let work = |index: usize| {
        let first = index * tasks;
        let mut workers: Vec<_> =
            (first..first + tasks).map(|index| Worker::new(plan, index as u64)).collect();
        let mut connection = server.connect::<C>();
        for phase in phases {
            barrier.wait();
            let began = Instant::now();
            let done = match &mut connection {
                Ok(connection) => work(*phase, &mut workers, connection, &shared, progress),
                Err(error) => Err(error.clone()),
            };
            // The threads wait for each other, so each goes on.
            done.unwrap_or_else(|error| shared.fault(error));
            barrier.wait();
            let time = began.elapsed();
            if index == 0 {
                let (latencies, live_bytes) = shared.take();
                let stored = connection.as_mut().map_or(Err(String::new()), Connection::stored_bytes);
                let stored_bytes = stored.unwrap_or_else(|error| {
                    shared.fault(error);
                    0
                });
                let measured = &mut *measured.lock().unwrap_or_else(PoisonError::into_inner);
                measured.push(Measured {
                    phase: *phase,
                    time,
                    latencies,
                    live_bytes,
                    stored_bytes,
                    hit_rate: None,
                });
            }
        }
        if let Ok(connection) = &mut connection {
            check_all(&workers, connection, &shared).unwrap_or_else(|error| shared.fault(error));
        }
    };
    thread::scope(|scope| {
        for index in 0..threads {
            scope.spawn(move || work(index));
        }
    });
    let phases = measured.into_inner().unwrap_or_else(PoisonError::into_inner);
    Outcome { phases, local_bytes: None, fault: shared.take_fault() }
}

fn work(
    phase: Phase,
    workers: &mut [Worker<'_>],
    connection: &mut impl Connection,
    shared: &Shared,
    progress: &ProgressBar,
) -> Result<(), String> {
    let mut latencies = latencies();
    for worker in &mut *workers {
        worker.begin(phase);
    }
    loop {
        let requests: Vec<Request> = workers.iter_mut().filter_map(Worker::next).collect();
        if requests.is_empty() {
            break;
        }
        let began = Instant::now();
        let answers = connection.carry_out(&requests)?;
        record(&mut latencies, began.elapsed(), requests.len() as u64);
        check(&requests, &answers, shared);
        progress.inc(requests.len() as u64);
    }
    shared.add(latencies, workers.iter().map(|worker| worker.live_bytes).sum());
    Ok(())
}

fn check(requests: &[Request], answers: &[Option<Vec<u8>>], shared: &Shared) {
    for (request, answer) in requests.iter().zip(answers) {
        if let Request::Read { record, expected, .. } = request {
            workload::check(*record, *expected, answer.as_deref())
                .unwrap_or_else(|fault| shared.fault(fault));
        }
    }
}

/// Reads all records.
fn check_all(
    workers: &[Worker<'_>],
    connection: &mut impl Connection,
    shared: &Shared,
) -> Result<(), String> {
    let mut all: Vec<_> = workers.iter().map(Worker::all).collect();
    loop {
        let requests: Vec<Request> = all.iter_mut().filter_map(Iterator::next).collect();
        if requests.is_empty() {
            return Ok(());
        }
        check(&requests, &connection.carry_out(&requests)?, shared);
    }
}
