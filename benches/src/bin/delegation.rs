//! Requests between two processes on `shm:`, against a raw exchange through shared memory, and against a channel between two threads.
//!
//! | figure | measurement | held equal |
//! |---|---|---|
//! | `shm.trust.apply.ratio_to_raw` | an awaited `apply` of a function that adds to a counter, over a message there and back through two cache lines, one for each direction | the two threads: the trustee runs its end of the raw exchange as delegated code; 8 bytes each way |
//! | `shm.trust.apply_32.ratio_to_raw` | the same while the trustee has 31 more clients, which are idle | likewise |
//! | `shm.trust.batch16.ratio` | the time of a request by a thread with 16 tasks that await one each, over that with one task | the threads, the function |
//! | `shm.trust.batch16_32.ratio` | the same while the trustee has 31 more clients, which are idle | likewise |
//! | `shm.trust.served.ratio_to_simulated` | the time that the trustee takes for a request in a full batch, over the 20 ns that the simulator charges for it | the function; the trustee measures it itself, from one request of a batch to another, less the time to read its clock |
//! | `shm.trust.apply.ratio_to_channel` | the awaited `apply`, over a request and its answer through two bounded channels of `crossbeam-channel`, between two threads of one process | 8 bytes each way; the trustee sleeps meanwhile, so both have all processors |
//! | `shm.trust.apply.ratio_to_iceoryx2` | the awaited `apply`, over a request and its response through `iceoryx2`, between two processes that poll | 8 bytes each way; the trustee sleeps meanwhile. With the feature `iceoryx2` only |
//!
//! The sides take turns, and the figures are medians of their ratios. Nothing is pinned to a processor. Both ends of every exchange poll, so there must be two
//! processors. A trustee's end of the raw exchange is a loop of loads, stores and an addition, with nothing else to look at.

use std::cell::Cell;
use std::fs::File;
use std::hint::{black_box, spin_loop};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use farfield::memory_node::{MemoryNode, MemoryNodeOptions};
use farfield::prelude::*;
use farfield::{Error, Result};
use memmap2::MmapRaw;

const ROUNDS: usize = 31;
/// A side's time in a round is that of its fastest block: in others the system may have run other processes.
const BLOCKS: u64 = 20;
const MESSAGES: u64 = 192;
const IDLE_CLIENTS: usize = 31;
/// The requests of a full batch, and the batches in which a request is measured.
const FULL_BATCH: usize = 18;
const FULL_BATCHES: usize = 12;
/// What the simulator charges a trustee for a request, by default: `compute=served:20ns`.
const SIMULATED_NS: f64 = 20.0;
/// The lines of the raw exchange, and one by which a trustee that sleeps is told to go on.
const LINES: usize = 3;
const LINE_WORDS: usize = 8;
/// Polls before an end of the raw exchange yields its processor.
const POLLS: u32 = 10_000;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words[..] {
        [] => measure(None),
        // For profilers: only one side, for so many rounds.
        ["only", side, rounds] => rounds.parse().map_err(Error::other).and_then(|n| measure(Some((side, n)))),
        ["trustee", url, file] => trustee(url, file),
        ["idle", url] => idle(url),
        #[cfg(feature = "iceoryx2")]
        ["iceoryx2", name] => iceoryx::serve(name),
        _ => Err(Error::other("usage: delegation, without arguments")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

/// A file that both processes have mapped.
struct Lines(MmapRaw);

impl Lines {
    fn map(file: &File) -> Result<Self> {
        let map = MmapRaw::map_raw(file).map_err(Error::other)?;
        if map.len() < LINES * LINE_WORDS * 8 {
            return Err(Error::other("the file is too short"));
        }
        Ok(Self(map))
    }

    /// Returns a word of a line.
    fn word(&self, line: usize, word: usize) -> &AtomicU64 {
        assert!(line < LINES && word < LINE_WORDS);
        #[allow(clippy::cast_ptr_alignment)] // a multiple of 8 from the begin of a page
        // SAFETY: by the assertion and the check in `map` the word is inside the mapping, which lives as long as `self`, at a multiple of 8 from the begin of
        // a page. Both processes access it as an `AtomicU64` only, and nothing shortens the file.
        unsafe {
            &*self.0.as_mut_ptr().cast::<AtomicU64>().add(line * LINE_WORDS + word)
        }
    }

    fn send(&self, line: usize, number: u64, value: u64) {
        self.word(line, 1).store(value, Ordering::Relaxed);
        self.word(line, 0).store(number, Ordering::Release);
    }

    /// Waits for a message.
    fn receive(&self, line: usize, number: u64) -> u64 {
        let mut polls = 0;
        while self.word(line, 0).load(Ordering::Acquire) != number {
            polls += 1;
            if polls % POLLS == 0 {
                std::thread::yield_now();
            }
            spin_loop();
        }
        self.word(line, 1).load(Ordering::Relaxed)
    }
}

/// The value of the trustee.
struct Value {
    count: u64,
    lines: Lines,
    is_over: Rc<Cell<bool>>,
    /// The times of three requests of each batch: the first, the second and the last.
    stamps: Vec<Instant>,
}

/// The function of all measurements.
fn add(value: &mut Value, by: u64) -> u64 {
    value.count += by;
    value.count
}

/// The same, and the time is kept.
fn stamp(value: &mut Value, by: u64) -> u64 {
    value.stamps.push(Instant::now());
    add(value, by)
}

/// Returns the times in picoseconds from the first to the second request of a batch, and from that to the last: the shortest of all batches.
fn spans(value: &mut Value, (): ()) -> [u64; 2] {
    let (stamps, _) = value.stamps.as_chunks::<3>();
    let span = |from: usize| stamps.iter().map(|stamps| stamps[from + 1] - stamps[from]).min();
    let spans = [0, 1].map(|from| span(from).map_or(u64::MAX, |span| 1000 * span.as_nanos() as u64));
    value.stamps.clear();
    spans
}

/// The trustee's end of the raw exchange, from message `first` on.
fn echo(value: &mut Value, first: u64) {
    for number in first..first + BLOCKS * MESSAGES {
        let by = value.lines.receive(0, number);
        value.count += by;
        value.lines.send(1, number, value.count);
    }
}

/// Sleeps until the client says a number.
fn pause(value: &mut Value, number: u64) {
    while value.lines.word(2, 0).load(Ordering::Acquire) != number {
        std::thread::sleep(Duration::from_micros(100));
    }
}

fn trustee(url: &str, file: &str) -> Result<()> {
    let file = File::options().read(true).write(true).open(file).map_err(Error::other)?;
    Cluster::connect(url)?.run(1, async |ct| {
        let is_over = Rc::new(Cell::new(false));
        let value = Value {
            count: 0,
            lines: Lines::map(&file)?,
            is_over: Rc::clone(&is_over),
            stamps: Vec::with_capacity(3 * FULL_BATCHES),
        };
        ct.publish("value", ct.entrust(value).await?.store(ct).await?).await?;
        println!("ready");
        while !is_over.get() {
            ct.sleep(Duration::from_millis(10)).await;
        }
        drop(Trust::<Value>::take(ct.unpublish("value").await?, ct).await?);
        Ok(())
    })?;
    Ok(())
}

/// A process with clients that make one request each, and then none, until its input ends.
fn idle(url: &str) -> Result<()> {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let is_over = &is_over;
        scope.spawn(|| {
            let _ = std::io::stdin().read(&mut [0]);
            is_over.store(true, Ordering::Release);
        });
        Cluster::connect(url)?.run(IDLE_CLIENTS, async |ct| {
            let value = Trust::<Value>::open(ct.lookup("value").await?, ct).await?;
            value.apply(ct, 1, add).await?;
            ct.barrier("connected").await?;
            if ct.index() == 0 {
                println!("ready");
            }
            while !is_over.load(Ordering::Acquire) {
                ct.sleep(Duration::from_millis(200)).await;
            }
            Ok(())
        })
    })?;
    Ok(())
}

/// Another process of this program.
struct Process {
    child: Child,
    _output: BufReader<ChildStdout>,
}

impl Process {
    /// Starts a process, and waits until it is ready.
    fn start(words: &[&str]) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe().map_err(Error::other)?);
        command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(Error::other)?;
        let output = child.stdout.take().ok_or_else(|| Error::other("it has no output"))?;
        let mut output = BufReader::new(output);
        let mut line = String::new();
        output.read_line(&mut line).map_err(Error::other)?;
        if line.is_empty() {
            let _ = child.wait();
            return Err(Error::other("the other process failed"));
        }
        Ok(Self { child, _output: output })
    }

    /// Waits for the process to end; its input ends.
    fn end(mut self) -> Result<()> {
        drop(self.child.stdin.take());
        let status = self.child.wait().map_err(Error::other)?;
        if status.success() { Ok(()) } else { Err(Error::other("the other process failed")) }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn measure(only: Option<(&str, usize)>) -> Result<()> {
    let url = format!("shm:bench-{}", std::process::id());
    let mut options = MemoryNodeOptions::new(&url);
    options.segment_bytes = 16 << 20;
    let node = MemoryNode::listen(&options)?;
    let stopper = node.stopper()?;
    let mut file = tempfile::NamedTempFile::new().map_err(Error::other)?;
    file.write_all(&[0; LINES * LINE_WORDS * 8]).map_err(Error::other)?;
    std::thread::scope(|scope| {
        scope.spawn(|| node.serve());
        let measured = compare(&url, &file, only);
        stopper.stop();
        measured
    })
}

fn compare(url: &str, file: &tempfile::NamedTempFile, only: Option<(&str, usize)>) -> Result<()> {
    let path =
        file.path().to_str().ok_or_else(|| Error::other("the folder of temporary files has an odd name"))?;
    let trustee = Process::start(&["trustee", url, path])?;
    let lines = Lines::map(file.as_file())?;
    Cluster::connect(url)?.run(1, async |ct| {
        let value = Trust::<Value>::open(ct.lookup("value").await?, ct).await?;
        let mut client = Client {
            ct,
            value,
            lines: &lines,
            message: 0,
            pauses: 0,
            channel: Channel::start(),
            #[cfg(feature = "iceoryx2")]
            peer: iceoryx::Peer::start()?,
        };
        if let Some((side, rounds)) = only {
            client.only(side, rounds).await?;
        } else {
            client.rounds("", true).await?;
            let idle = Process::start(&["idle", url])?;
            client.rounds("_32", false).await?;
            idle.end()?;
        }
        client.value.post(ct, (), |value, ()| value.is_over.set(true)).await
    })?;
    trustee.end()
}

/// The client's side of all exchanges.
struct Client<'a> {
    ct: &'a ComputeThread,
    value: Trust<Value>,
    lines: &'a Lines,
    /// The number of the last raw message.
    message: u64,
    pauses: u64,
    channel: Channel,
    #[cfg(feature = "iceoryx2")]
    peer: iceoryx::Peer,
}

impl Client<'_> {
    async fn rounds(&mut self, clients: &str, with_channel: bool) -> Result<()> {
        let (mut one, mut sixteen, mut raw, mut channel) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut served = Vec::new();
        #[cfg(feature = "iceoryx2")]
        let mut peer = Vec::new();
        for _ in 0..ROUNDS {
            one.push(self.apply(1).await?);
            raw.push(self.raw().await?);
            sixteen.push(self.apply(16).await?);
            served.push(self.served().await?);
            if with_channel {
                channel.push(self.without_trustee(|client| client.channel.exchange()).await?);
                #[cfg(feature = "iceoryx2")]
                peer.push(self.without_trustee(|client| client.peer.exchange()).await?);
            }
        }
        eprintln!(
            "ns, clients{clients}: apply {:.0}, raw {:.0}, apply with 16 tasks {:.1}, channel {:.0}",
            median(one.clone()),
            median(raw.clone()),
            median(sixteen.clone()),
            median(channel.clone())
        );
        println!("shm.trust.apply{clients}.ratio_to_raw {:.3}", ratio(&one, &raw));
        println!("shm.trust.batch16{clients}.ratio {:.3}", ratio(&sixteen, &one));
        if with_channel {
            eprintln!("ns, served {:.1}", median(served.clone()));
            println!("shm.trust.served.ratio_to_simulated {:.3}", median(served) / SIMULATED_NS);
            println!("shm.trust.apply.ratio_to_channel {:.3}", ratio(&one, &channel));
            #[cfg(feature = "iceoryx2")]
            {
                eprintln!("ns, iceoryx2 {:.0}", median(peer.clone()));
                println!("shm.trust.apply.ratio_to_iceoryx2 {:.3}", ratio(&one, &peer));
            }
        }
        Ok(())
    }

    async fn only(&mut self, side: &str, rounds: usize) -> Result<()> {
        let mut times = Vec::new();
        for _ in 0..rounds {
            times.push(match side {
                "raw" => self.raw().await?,
                "channel" => self.without_trustee(|client| client.channel.exchange()).await?,
                #[cfg(feature = "iceoryx2")]
                "iceoryx2" => self.without_trustee(|client| client.peer.exchange()).await?,
                "served" => self.served().await?,
                tasks => self.apply(tasks.parse().map_err(Error::other)?).await?,
            });
        }
        eprintln!("{side}: {:.1} ns", median(times));
        Ok(())
    }

    /// Returns the time of an awaited request in nanoseconds, by each of some tasks.
    async fn apply(&self, tasks: usize) -> Result<f64> {
        let (ct, value, each) = (self.ct, &self.value, MESSAGES / tasks as u64);
        let mut fastest = f64::INFINITY;
        for _ in 0..BLOCKS {
            let began = Instant::now();
            if tasks == 1 {
                for _ in 0..each {
                    black_box(value.apply(ct, 1, add).await?);
                }
            } else {
                let done = ct.tasks(tasks, async |_| {
                    for _ in 0..each {
                        black_box(value.apply(ct, 1, add).await?);
                    }
                    Ok(())
                });
                done.await?;
            }
            fastest = fastest.min(nanoseconds(began));
        }
        Ok(fastest)
    }

    /// Returns the time in nanoseconds that the trustee takes for a request in a full batch.
    async fn served(&mut self) -> Result<f64> {
        let (ct, value) = (self.ct, &self.value);
        let mut shortest = [u64::MAX; 2];
        for _ in 0..BLOCKS {
            self.pauses += 1;
            value.post(ct, self.pauses, pause).await?;
            // It leaves in the next round of the thread. While the trustee sleeps, the others become batches as large as possible.
            ct.yield_now().await;
            for request in 0..FULL_BATCHES * FULL_BATCH {
                let function =
                    if [0, 1, FULL_BATCH - 1].contains(&(request % FULL_BATCH)) { stamp } else { add };
                value.post(ct, 1, function).await?;
            }
            ct.yield_now().await;
            self.lines.word(2, 0).store(self.pauses, Ordering::Release);
            let spans = value.apply(ct, (), spans).await?;
            shortest = [0, 1].map(|span| shortest[span].min(spans[span]));
        }
        #[allow(clippy::cast_precision_loss)] // microseconds
        Ok(shortest[1].saturating_sub(shortest[0]) as f64 / 1000.0 / (FULL_BATCH - 3) as f64)
    }

    /// Returns the time of a raw message there and back.
    async fn raw(&mut self) -> Result<f64> {
        let first = self.message + 1;
        self.value.post(self.ct, first, echo).await?;
        // It leaves in the next round of the thread.
        self.ct.yield_now().await;
        let mut fastest = f64::INFINITY;
        for _ in 0..BLOCKS {
            let began = Instant::now();
            for _ in 0..MESSAGES {
                self.message += 1;
                self.lines.send(0, self.message, 1);
                black_box(self.lines.receive(1, self.message));
            }
            fastest = fastest.min(nanoseconds(began));
        }
        Ok(fastest)
    }

    /// Measures something else while the trustee sleeps.
    async fn without_trustee(&mut self, measure: impl FnOnce(&Self) -> Result<f64>) -> Result<f64> {
        self.pauses += 1;
        self.value.post(self.ct, self.pauses, pause).await?;
        self.ct.yield_now().await;
        let took = measure(self)?;
        self.lines.word(2, 0).store(self.pauses, Ordering::Release);
        // Until the trustee is awake.
        self.value.apply(self.ct, 1, add).await?;
        Ok(took)
    }
}

/// A thread that answers requests.
struct Channel {
    requests: crossbeam_channel::Sender<u64>,
    answers: crossbeam_channel::Receiver<u64>,
}

impl Channel {
    fn start() -> Self {
        let (requests, received) = crossbeam_channel::bounded(1);
        let (answer, answers) = crossbeam_channel::bounded(1);
        // It ends when its requests do.
        std::thread::spawn(move || {
            let mut count = 0;
            for by in received {
                count += by;
                if answer.send(count).is_err() {
                    break;
                }
            }
        });
        Self { requests, answers }
    }

    fn exchange(&self) -> Result<f64> {
        let mut fastest = f64::INFINITY;
        for _ in 0..BLOCKS {
            let began = Instant::now();
            for _ in 0..MESSAGES {
                self.requests.send(1).map_err(Error::other)?;
                black_box(self.answers.recv().map_err(Error::other)?);
            }
            fastest = fastest.min(nanoseconds(began));
        }
        Ok(fastest)
    }
}

/// Requests and responses through `iceoryx2`.
#[cfg(feature = "iceoryx2")]
mod iceoryx {
    use super::{
        AtomicBool, BLOCKS, Duration, Error, Instant, MESSAGES, Ordering, POLLS, Process, Read, Result,
        black_box, nanoseconds, spin_loop,
    };
    use iceoryx2::port::client::Client;
    use iceoryx2::prelude::*;
    use iceoryx2::service::port_factory::request_response::PortFactory;

    type Service = PortFactory<ipc::Service, u64, (), u64, ()>;

    fn service(name: &str) -> Result<Service> {
        let node = NodeBuilder::new().create::<ipc::Service>().map_err(Error::other)?;
        let name = name.try_into().map_err(Error::other)?;
        node.service_builder(&name).request_response::<u64, u64>().open_or_create().map_err(Error::other)
    }

    /// Answers requests until the input ends.
    pub(super) fn serve(name: &str) -> Result<()> {
        let service = service(name)?;
        let server = service.server_builder().create().map_err(Error::other)?;
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _ = std::io::stdin().read(&mut [0]);
                is_over.store(true, Ordering::Release);
            });
            println!("ready");
            let (mut count, mut polls) = (0, 0);
            while !is_over.load(Ordering::Acquire) {
                match server.receive().map_err(Error::other)? {
                    Some(request) => {
                        count += *request;
                        request.send_copy(count).map_err(Error::other)?;
                        polls = 0;
                    }
                    None if polls < POLLS => {
                        polls += 1;
                        spin_loop();
                    }
                    // Other sides have their turn.
                    None => std::thread::sleep(Duration::from_micros(100)),
                }
            }
            Ok(())
        })
    }

    /// A process that answers requests, and this one's client of it.
    pub(super) struct Peer {
        client: Client<ipc::Service, u64, (), u64, ()>,
        _server: Process,
    }

    impl Peer {
        pub(super) fn start() -> Result<Self> {
            let name = format!("farfield-bench-{}", std::process::id());
            let server = Process::start(&["iceoryx2", &name])?;
            let client = service(&name)?.client_builder().create().map_err(Error::other)?;
            Ok(Self { client, _server: server })
        }

        /// Returns the time of a request and its response.
        pub(super) fn exchange(&self) -> Result<f64> {
            let mut fastest = f64::INFINITY;
            for _ in 0..BLOCKS {
                let began = Instant::now();
                for _ in 0..MESSAGES {
                    let pending = self.client.send_copy(1).map_err(Error::other)?;
                    let response = loop {
                        if let Some(response) = pending.receive().map_err(Error::other)? {
                            break response;
                        }
                        spin_loop();
                    };
                    black_box(*response);
                }
                fastest = fastest.min(nanoseconds(began));
            }
            Ok(fastest)
        }
    }
}

/// Returns the time of a message of a block.
#[allow(clippy::cast_precision_loss)] // far below 2^52
fn nanoseconds(began: Instant) -> f64 {
    began.elapsed().as_secs_f64() * 1e9 / MESSAGES as f64
}

/// Returns the median of the ratios of two sides' times in the same round.
fn ratio(times: &[f64], others: &[f64]) -> f64 {
    median(times.iter().zip(others).map(|(time, other)| time / other).collect())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}
