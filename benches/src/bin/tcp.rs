//! A memory node over TCP on loopback, against a minimal exchange of messages, and against Redis.
//!
//! | figure | measurement | held equal |
//! |---|---|---|
//! | `tcp.roundtrip.ratio_to_raw` | an awaited READ of 8 bytes without encryption, over a message there and back | two processes; bytes each way; both ends wait in the same way: they poll, then yield between polls, then sleep until the socket is readable |
//! | `tcp.encrypted.ratio_to_raw` | the same READ with encryption, over the same message | likewise |
//! | `tcp.trust.apply.ratio_to_raw` | an awaited request to another process's value without encryption, over the same message | likewise; the trustee shares the memory node's processor |
//! | `tcp.pipelining.speedup` | READs a second of a thread with 16 tasks, over those with one; encrypted | the thread, the word |
//! | `tcp.throughput.ratio_to_redis` | READs of a word a second of a thread with 64 tasks, without encryption, over `GET`s of 8 bytes with 64 pipelined, by one client thread | loopback, one server process each |
//! | `tcp.clients_64.ratio` | encrypted READs of a word a second of 64 threads of 8 processes with 8 tasks each, over the best of 1 to 32 threads | the memory node, the word; threads have a connection each |
//!
//! The sides take turns, and the figures are medians of their ratios. Both ends have a processor each, but for the many threads. Without
//! `redis-server` its figure is skipped.

#[path = "../../../runtime/tests/skip/mod.rs"]
mod skip;

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use farfield::memory_node::{MemoryNode, MemoryNodeOptions};
use farfield::prelude::*;
use farfield::{Error, Result};
use farfield_benches::rounds::median;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

const RUNS: usize = 31;
const MESSAGES: usize = 2_000;
const OPERATIONS: u32 = 4_000;
const IN_FLIGHT: u32 = 64;
/// The numbers of processes and of threads of each, the most last.
const CLIENTS: [(usize, usize); 7] = [(1, 1), (1, 2), (1, 4), (1, 8), (2, 8), (4, 8), (8, 8)];
const CLIENT_RUNS: usize = 7;
const CLIENT_MS: u64 = 400;
const CLIENT_TASKS: usize = 8;
/// The bytes of the frame of a READ without encryption, and of its answer.
const REQUEST_BYTES: usize = 2 + 16;
const ANSWER_BYTES: usize = 2 + 1 + 8;

/// The name of the trustee's value.
const VALUE: &str = "value";

#[remote]
struct Counter {
    value: Atomic<u64>,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words[..] {
        [] => measure(),
        ["memnode"] => memory_node(),
        ["echo"] => echo(),
        ["client", node] => client(node),
        ["trustee", node] => trustee(node),
        _ => Err(Error::other("usage: tcp, without arguments")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

/// A process of this program that listens, and is killed when it is dropped.
struct Server(Child, SocketAddr);

impl Server {
    fn start(words: &[&str]) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe().map_err(Error::other)?);
        let mut child = command.args(words).stdout(Stdio::piped()).spawn().map_err(Error::other)?;
        let mut line = String::new();
        let output = child.stdout.take().ok_or_else(|| Error::other("it has no output"))?;
        BufReader::new(output).read_line(&mut line).map_err(Error::other)?;
        let address = line.trim().parse().map_err(|_| Error::other(format!("`{line}` is no address")))?;
        Ok(Self(child, address))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn memory_node() -> Result<()> {
    let mut options = MemoryNodeOptions::new("tcp://127.0.0.1:0?encrypt=no");
    options.segment_bytes = 16 << 20;
    let node = MemoryNode::listen(&options)?;
    println!("{}", node.urls()[0].trim_start_matches("tcp://"));
    node.serve()
}

/// Publishes a value, prints the memory node's address, and serves requests until it is killed.
fn trustee(node: &str) -> Result<()> {
    Cluster::connect(&format!("tcp://{node}?encrypt=no"))?.run(1, async |ct| -> Result<()> {
        ct.publish(VALUE, ct.entrust(0_u64).await?.store(ct).await?).await?;
        println!("{node}");
        loop {
            ct.sleep(Duration::from_secs(1)).await;
        }
    })?;
    Ok(())
}

/// Reads a number of threads at a time, READs with them for a while, and prints the number of READs.
fn client(node: &str) -> Result<()> {
    let ours = Ours(Cluster::connect(&format!("tcp://{node}"))?);
    println!("ready");
    for line in std::io::stdin().lines() {
        let threads = line.map_err(Error::other)?.parse().map_err(Error::other)?;
        let counts = ours.run(threads, async |ct, counter| {
            let until = Instant::now() + Duration::from_millis(CLIENT_MS);
            let counts = ct.tasks(CLIENT_TASKS, async |_| {
                let mut count = 0.0;
                while Instant::now() < until {
                    counter.value().load(ct).await?;
                    count += 1.0;
                }
                Ok(count)
            });
            Ok(counts.await?.into_iter().sum())
        })?;
        println!("{}", counts.into_iter().sum::<f64>());
    }
    Ok(())
}

/// A process of this program that is a client, and is killed when it is dropped.
struct ClientProcess(Child, BufReader<std::process::ChildStdout>);

impl ClientProcess {
    fn start(node: &Server) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe().map_err(Error::other)?);
        command.args(["client", &node.1.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(Error::other)?;
        let output = child.stdout.take().ok_or_else(|| Error::other("it has no output"))?;
        let mut client = Self(child, BufReader::new(output));
        client.line().map(|_| client)
    }

    fn begin(&mut self, threads: usize) -> Result<()> {
        let input = self.0.stdin.as_mut().ok_or_else(|| Error::other("it has no input"))?;
        writeln!(input, "{threads}").map_err(Error::other)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.1.read_line(&mut line).map_err(Error::other)?;
        Ok(line.trim().to_owned())
    }

    fn count(&mut self) -> Result<f64> {
        let line = self.line()?;
        line.parse().map_err(|_| Error::other(format!("a client said `{line}`")))
    }
}

impl Drop for ClientProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The processors that this process may use.
struct Processors(CpuSet);

impl Processors {
    fn of_this_process() -> Result<Self> {
        sched_getaffinity(None).map(Self).map_err(Error::other)
    }

    /// Lets this thread, and what it starts from now on, run on one of the processors only, counted from 0. Without that the system may put two ends that
    /// take turns on one processor or on two, for seconds, which decides the time of a message. If there is only one, both ends have it.
    fn restrict_to(&self, number: usize) -> Result<()> {
        let allowed: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| self.0.is_set(*cpu)).collect();
        let mut only = CpuSet::new();
        only.set(allowed[number.min(allowed.len() - 1)]);
        sched_setaffinity(None, &only).map_err(Error::other)
    }

    fn restrict_to_none(&self) -> Result<()> {
        sched_setaffinity(None, &self.0).map_err(Error::other)
    }
}

/// Returns the READs of 64 threads over those of the best number of fewer: the median of the rounds' ratios.
fn many_clients(node: &Server) -> Result<f64> {
    let (most, _) = CLIENTS[CLIENTS.len() - 1];
    let mut processes = (0..most).map(|_| ClientProcess::start(node)).collect::<Result<Vec<_>>>()?;
    let mut counts = CLIENTS.map(|_| Vec::new());
    for _ in 0..CLIENT_RUNS {
        for ((used, threads), counts) in CLIENTS.iter().zip(&mut counts) {
            let used = &mut processes[..*used];
            used.iter_mut().try_for_each(|process| process.begin(*threads))?;
            let count = used.iter_mut().map(ClientProcess::count).sum::<Result<f64>>()?;
            counts.push(count);
        }
    }
    let medians = counts.each_ref().map(|counts| median(counts.clone()));
    eprintln!("READs in {CLIENT_MS} ms by clients {CLIENTS:?}: {medians:?}");
    let (all, fewer) = counts.split_last().ok_or_else(|| Error::other("there are clients"))?;
    let best = (0..fewer.len()).max_by(|a, b| medians[*a].total_cmp(&medians[*b]));
    let best = &fewer[best.ok_or_else(|| Error::other("there are fewer clients, too"))?];
    // The two of a round are measured within seconds.
    Ok(median(all.iter().zip(best).map(|(all, best)| all / best).collect()))
}

/// How both ends of the minimal exchange wait: as a lane, and as a memory node.
#[derive(Default)]
struct Waiting {
    attempts: u32,
    since: Option<Instant>,
}

impl Waiting {
    /// As a lane: attempts, then a yield between two, then sleep.
    fn as_lane(&mut self, socket: &TcpStream) {
        self.attempts += 1;
        if self.attempts >= 128 {
            sleep_until_readable(socket);
        } else if self.attempts >= 8 && self.attempts.is_multiple_of(2) {
            std::thread::yield_now();
        }
    }

    /// As a memory node: a yield between two attempts for 50 us, then sleep.
    fn as_node(&mut self, socket: &TcpStream) {
        if self.since.get_or_insert_with(Instant::now).elapsed() >= Duration::from_micros(50) {
            sleep_until_readable(socket);
        } else {
            std::thread::yield_now();
        }
    }
}

fn sleep_until_readable(socket: &TcpStream) {
    let timeout = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
    let _ = poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&timeout));
}

/// Receives a message. Returns false at the end of the connection.
fn receive(
    socket: &mut TcpStream,
    bytes: &mut [u8],
    mut wait: impl FnMut(&mut Waiting, &TcpStream),
) -> std::io::Result<bool> {
    let (mut received, mut waiting) = (0, Waiting::default());
    while received < bytes.len() {
        match socket.read(&mut bytes[received..]) {
            Ok(0) => return Ok(false),
            Ok(length) => received += length,
            Err(error) if error.kind() == ErrorKind::WouldBlock => wait(&mut waiting, socket),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Answers messages of one connection.
fn echo() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(Error::other)?;
    println!("{}", listener.local_addr().map_err(Error::other)?);
    let (mut socket, _) = listener.accept().map_err(Error::other)?;
    prepare(&socket)?;
    let mut request = [0; REQUEST_BYTES];
    while receive(&mut socket, &mut request, Waiting::as_node).map_err(Error::other)? {
        socket.write_all(&[7; ANSWER_BYTES]).map_err(Error::other)?;
    }
    Ok(())
}

fn prepare(socket: &TcpStream) -> Result<()> {
    socket.set_nodelay(true).and_then(|()| socket.set_nonblocking(true)).map_err(Error::other)
}

/// Returns the median time of a message there and back.
fn raw(socket: &mut TcpStream) -> Result<f64> {
    let mut times = Vec::new();
    for _ in 0..MESSAGES {
        let began = Instant::now();
        socket.write_all(&[5; REQUEST_BYTES]).map_err(Error::other)?;
        receive(socket, &mut [0; ANSWER_BYTES], Waiting::as_lane).map_err(Error::other)?;
        times.push(began.elapsed().as_secs_f64());
    }
    Ok(median(times))
}

/// A cluster of one memory node, with the counter of this benchmark.
struct Ours(Cluster);

impl Ours {
    fn connect(node: &Server, encrypt: &str) -> Result<Self> {
        Cluster::connect(&format!("tcp://{}?encrypt={encrypt}", node.1)).map(Self)
    }

    /// Runs a measurement with the counter.
    fn run(
        &self,
        threads: usize,
        body: impl AsyncFn(&ComputeThread, RemotePtr<Counter>) -> Result<f64> + Sync,
    ) -> Result<Vec<f64>> {
        self.0.run(threads, async |ct| {
            let new = async || Counter::new_in(ct, Counter::init()).await?.write(ct).await;
            let counter = ct.root_or_init("counter", new).await?;
            body(ct, counter).await
        })
    }

    /// Returns the median time of an awaited READ.
    fn read(&self) -> Result<f64> {
        let times = self.run(1, async |ct, counter| {
            let mut times = Vec::new();
            for _ in 0..MESSAGES {
                let began = Instant::now();
                counter.value().load(ct).await?;
                times.push(began.elapsed().as_secs_f64());
            }
            Ok(median(times))
        })?;
        Ok(times[0])
    }

    /// Returns the median time of an awaited request to the trustee's value.
    fn request(&self) -> Result<f64> {
        let times = self.run(1, async |ct, _| {
            let value = Trust::<u64>::open(ct.lookup(VALUE).await?, ct).await?;
            let mut times = Vec::new();
            for _ in 0..MESSAGES {
                let began = Instant::now();
                value.apply(ct, 1, |value, by: u64| *value += by).await?;
                times.push(began.elapsed().as_secs_f64());
            }
            Ok(median(times))
        })?;
        Ok(times[0])
    }

    /// Returns the READs a second by so many tasks.
    fn rate(&self, tasks: u32, each: u32) -> Result<f64> {
        let rates = self.run(1, async |ct, counter| {
            let began = Instant::now();
            ct.tasks(tasks as usize, async |_| {
                for _ in 0..each {
                    counter.value().load(ct).await?;
                }
                Ok(())
            })
            .await?;
            Ok(f64::from(tasks * each) / began.elapsed().as_secs_f64())
        })?;
        Ok(rates[0])
    }
}

fn measure() -> Result<()> {
    let processors = Processors::of_this_process()?;
    processors.restrict_to(0)?;
    let (node, echo, redis) = (Server::start(&["memnode"])?, Server::start(&["echo"])?, Redis::start());
    let trustee = Server::start(&["trustee", &node.1.to_string()])?;
    processors.restrict_to(1)?;
    let mut socket = TcpStream::connect(echo.1).map_err(Error::other)?;
    prepare(&socket)?;
    let (plain, sealed) = (Ours::connect(&node, "no")?, Ours::connect(&node, "yes")?);
    let mut ratios = Vec::new();
    for _ in 0..RUNS {
        ratios.push(plain.request()? / raw(&mut socket)?);
    }
    println!("tcp.trust.apply.ratio_to_raw {:.3}", median(ratios));
    // It has nothing more to do, and would have some of the memory node's time.
    drop(trustee);
    let mut ratios = [const { Vec::new() }; 3];
    for _ in 0..RUNS {
        let raw = raw(&mut socket)?;
        ratios[0].push(plain.read()? / raw);
        ratios[1].push(sealed.read()? / raw);
        ratios[2].push(sealed.rate(16, OPERATIONS)? / sealed.rate(1, OPERATIONS)?);
    }
    let [plain_ratio, sealed_ratio, speedup] = ratios.map(median);
    println!("tcp.roundtrip.ratio_to_raw {plain_ratio:.3}");
    println!("tcp.encrypted.ratio_to_raw {sealed_ratio:.3}");
    println!("tcp.pipelining.speedup {speedup:.3}");
    match redis {
        Ok(mut redis) => {
            let mut ratios = Vec::new();
            for _ in 0..RUNS {
                ratios.push(plain.rate(IN_FLIGHT, OPERATIONS)? / redis.rate()?);
            }
            println!("tcp.throughput.ratio_to_redis {:.3}", median(ratios));
        }
        Err(why) => skip::skip("redis", &why.to_string()),
    }
    // The clients leave before their memory node is killed.
    drop((plain, sealed, node, echo));
    processors.restrict_to_none()?;
    println!("tcp.clients_64.ratio {:.3}", many_clients(&Server::start(&["memnode"])?)?);
    Ok(())
}

/// `redis-server`, and a connection to it.
struct Redis(Child, TcpStream);

impl Redis {
    fn start() -> Result<Self> {
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let address = free.map_err(Error::other)?;
        let child = Command::new("redis-server")
            .args(["--port", &address.port().to_string(), "--save", "", "--appendonly", "no"])
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| Error::other(format!("redis-server: {error}")))?;
        let until = Instant::now() + Duration::from_secs(10);
        let socket = loop {
            match TcpStream::connect(address) {
                Ok(socket) => break socket,
                Err(error) if Instant::now() > until => return Err(Error::other(error)),
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
            }
        };
        let mut redis = Self(child, socket);
        prepare(&redis.1)?;
        redis.ask(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$8\r\n01234567\r\n", b"+OK\r\n".len())?;
        Ok(redis)
    }

    fn ask(&mut self, request: &[u8], answer_bytes: usize) -> Result<()> {
        self.1.write_all(request).map_err(Error::other)?;
        receive(&mut self.1, &mut vec![0; answer_bytes], Waiting::as_lane).map_err(Error::other)?;
        Ok(())
    }

    /// Returns the `GET`s a second, 64 at a time.
    fn rate(&mut self) -> Result<f64> {
        let request = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n".repeat(IN_FLIGHT as usize);
        let began = Instant::now();
        for _ in 0..OPERATIONS {
            self.ask(&request, b"$8\r\n01234567\r\n".len() * IN_FLIGHT as usize)?;
        }
        Ok(f64::from(OPERATIONS * IN_FLIGHT) / began.elapsed().as_secs_f64())
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
