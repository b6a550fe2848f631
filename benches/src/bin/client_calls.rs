//! Calls of a client against requests and answers over channels, and the cost of an idle client.
//!
//! | figure | measurement | held equal |
//! |---|---|---|
//! | `client.call.ratio_to_mpsc` | a `client.call` that loads one `Atomic`, against a request over `tokio::sync::mpsc` that another thread answers with an `AtomicU64`'s load over a `oneshot` | the caller, a tokio runtime of one thread that waits for each answer; one thread on the other side, which may sleep; a queue of 1024; the build |
//! | `client.idle.core_percent` | processor time of this process over the time that passes, while a cluster and a client of two threads have nothing to do; the larger of that on `local:` and on `shm:`, whose keeper runs | |
//!
//! Both sides of the ratio take turns; the figure is the median of the ratios of pairs. The idle client has served calls before, which
//! have freed memory. The memory node of `shm:` is in the process, and its time is counted.

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use farfield::memory_node::{MemoryNode, MemoryNodeOptions};
use farfield::prelude::*;
use farfield::{Client, ClientOptions, Error, Result};
use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, oneshot};

/// Calls of a timing, and pairs of timings.
const CALLS: u32 = 500;
const TIMINGS: usize = 101;
/// The idle time before the measurement of processor time, and its length.
const QUIET: Duration = Duration::from_millis(500);
const WATCHED: Duration = Duration::from_secs(5);

#[remote]
struct Counter {
    value: Atomic<u64>,
}

fn main() -> ExitCode {
    match measure() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn runtime() -> Result<Runtime> {
    Builder::new_current_thread().build().map_err(Error::other)
}

fn measure() -> Result<()> {
    let ratio = ratio_to_mpsc()?;
    println!("client.call.ratio_to_mpsc {ratio:.3}");
    let local = idle("local:size=16MiB")?;
    let name = format!("bench-{}", std::process::id());
    let mut options = MemoryNodeOptions::new(&format!("shm:{name}"));
    options.segment_bytes = 16 << 20;
    let node = MemoryNode::listen(&options)?;
    let stopper = node.stopper()?;
    let shared = std::thread::scope(|scope| {
        scope.spawn(|| node.serve());
        let measured = idle(&format!("shm:{name}"));
        stopper.stop();
        measured
    })?;
    eprintln!("idle: {local:.3} % of a core on local:, {shared:.3} % on shm:");
    println!("client.idle.core_percent {:.3}", local.max(shared));
    Ok(())
}

async fn counter(ct: &ComputeThread) -> Result<RemotePtr<Counter>> {
    let root =
        ct.root_or_init("counter", async || Counter::new_in(ct, Counter::init()).await?.write(ct).await);
    root.await
}

type Request = (usize, oneshot::Sender<u64>);

fn ratio_to_mpsc() -> Result<f64> {
    let client = Cluster::connect("local:size=1MiB")?.client()?;
    let (requests, mut waiting) = mpsc::channel::<Request>(1024);
    let server = std::thread::spawn(move || {
        let words = [const { AtomicU64::new(0) }; 8];
        let serve = async {
            while let Some((word, answer)) = waiting.recv().await {
                let _ = answer.send(words[word].load(SeqCst));
            }
        };
        runtime().map(|runtime| runtime.block_on(serve))
    });
    let runtime = runtime()?;
    let mut ratios = Vec::new();
    runtime.block_on(async {
        let counter = client.call(counter).await?;
        for _ in 0..TIMINGS {
            let began = Instant::now();
            for _ in 0..CALLS {
                client.call(async move |ct| counter.value().load(ct).await).await?;
            }
            let calls = began.elapsed();
            let began = Instant::now();
            for call in 0..CALLS {
                let (answer, answered) = oneshot::channel();
                requests.send((call as usize % 8, answer)).await.map_err(Error::other)?;
                answered.await.map_err(Error::other)?;
            }
            let messages = began.elapsed();
            ratios.push(calls.as_secs_f64() / messages.as_secs_f64());
            eprintln!("{:?} a call, {:?} a request", calls / CALLS, messages / CALLS);
        }
        drop(requests);
        client.shutdown().await
    })?;
    server.join().map_err(|_| Error::other("the server has panicked"))??;
    ratios.sort_by(f64::total_cmp);
    Ok(ratios[ratios.len() / 2])
}

/// Processor time of this process with an idle client, in percent of real time.
fn idle(url: &str) -> Result<f64> {
    let mut options = ClientOptions::new();
    options.threads = 2;
    let client = Cluster::connect(url)?.client_with(&options)?;
    let runtime = runtime()?;
    runtime.block_on(work(&client))?;
    std::thread::sleep(QUIET);
    let (began, before) = (Instant::now(), processor_time());
    std::thread::sleep(WATCHED);
    let (took, used) = (began.elapsed(), processor_time().saturating_sub(before));
    runtime.block_on(client.shutdown())?;
    Ok(100.0 * used.as_secs_f64() / took.as_secs_f64())
}

/// Calls that leave memory to reclaim.
async fn work(client: &Client) -> Result<()> {
    for _ in 0..1000 {
        let allocates = client.call(async |ct| {
            let counter = Counter::new_in(ct, Counter::init()).await?.write(ct).await?;
            counter.value().fetch_add(ct, 1).await?;
            ct.delete(counter).await
        });
        allocates.await?;
    }
    Ok(())
}

/// The processor time of all threads of this process, so far.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.cast_unsigned(), u32::try_from(time.tv_nsec).unwrap_or_default())
}
