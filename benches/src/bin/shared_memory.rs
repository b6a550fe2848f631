//! Processes that share memory against threads, and their `fetch_add` against the processor's.
//!
//! | figure | measurement | held equal |
//! |---|---|---|
//! | `shm.throughput.ratio` | operations a second of three processes with a thread each, over those of one process with three threads | the cluster, a lazy list of 512 keys of 1024, 10 % inserts and 10 % removals, the operations of each thread |
//! | `shm.fetch_add.ratio_to_raw` | a `fetch_add` of a process that did not make the memory, against `AtomicU64::fetch_add` | the process, the mapping's file, the page, the build |
//!
//! Both sides take turns; the figures are medians of their ratios.

use std::hint::black_box;
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use farfield::memory_node::{MemoryNode, MemoryNodeOptions};
use farfield::prelude::*;
use farfield::{Error, Result};
use farfield_benches::rounds::median;
use farfield_examples::LazyList;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

const KEYS: u64 = 1024;
const OPERATIONS: u64 = 100_000;
const PARTS: u16 = 3;
/// Pairs of runs, and pairs of timings.
const RUNS: u32 = 9;
const TIMINGS: usize = 301;
const ADDITIONS: u64 = 1 << 14;

#[remote]
struct Counter {
    value: Atomic<u64>,
    /// A word of the same cache line, for the raw side.
    raw: Atomic<u64>,
}

/// The time of a run's slowest thread.
#[remote]
struct Slowest {
    nanoseconds: Atomic<u64>,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words[..] {
        [] => measure(),
        ["fetch-add", name] => fetch_add(name),
        ["drive", url, run, part, parts, threads] => drive(url, run, part, parts, threads),
        _ => Err(Error::other("usage: shared_memory, without arguments")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn measure() -> Result<()> {
    let name = format!("bench-{}", std::process::id());
    let mut options = MemoryNodeOptions::new(&format!("shm:{name}"));
    options.segment_bytes = 16 << 20;
    let node = MemoryNode::listen(&options)?;
    let stopper = node.stopper()?;
    std::thread::scope(|scope| {
        scope.spawn(|| node.serve());
        let measured = both(&name);
        stopper.stop();
        measured
    })
}

fn both(name: &str) -> Result<()> {
    let url = format!("shm:{name}");
    let mut ratios = Vec::new();
    for _ in 0..RUNS {
        let apart = together(&url, "apart", PARTS, 1)?;
        let one = together(&url, "one", 1, usize::from(PARTS))?;
        ratios.push(one.as_secs_f64() / apart.as_secs_f64());
    }
    println!("shm.throughput.ratio {:.3}", median(ratios));
    // This process has made the memory; the child maps it.
    let output = child(&["fetch-add", name]).output().map_err(Error::other)?;
    print!("{}", String::from_utf8_lossy(&output.stdout));
    if output.status.success() { Ok(()) } else { Err(Error::other("the other process failed")) }
}

fn child(words: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap_or_default());
    command.args(words).stderr(Stdio::inherit());
    command
}

/// Runs the workload in `parts` processes with `threads` threads each. Returns the time of the slowest thread.
fn together(url: &str, run: &str, parts: u16, threads: usize) -> Result<Duration> {
    let start = |part: u16| {
        let (part, parts, threads) = (part.to_string(), parts.to_string(), threads.to_string());
        child(&["drive", url, run, &part, &parts, &threads]).spawn().map_err(Error::other)
    };
    let children: Result<Vec<_>> = (0..parts).map(start).collect();
    for mut child in children? {
        if !child.wait().map_err(Error::other)?.success() {
            return Err(Error::other("a process failed"));
        }
    }
    let took = Cluster::connect(url)?
        .run(1, async |ct| ct.lookup::<Slowest>("slowest").await?.nanoseconds().swap(ct, 0).await)?;
    Ok(Duration::from_nanos(took[0]))
}

/// The run of one process.
fn drive(url: &str, run: &str, part: &str, parts: &str, threads: &str) -> Result<()> {
    let number = |word: &str| word.parse().map_err(|_| Error::other(format!("`{word}` is not a number")));
    let cluster = Cluster::connect(url)?.in_group(run, number(part)?, number(parts)?)?;
    cluster.run(number(threads)?.into(), async |ct| {
        let root = ct.root_or_init("list", async || LazyList::<u64>::create(ct).await).await?;
        let slowest =
            ct.root_or_init("slowest", async || Slowest::new_in(ct, Slowest::init()).await?.write(ct).await);
        let slowest = slowest.await?;
        let list = LazyList::attach(root, ct).await?;
        for key in (0..KEYS).step_by(2).filter(|key| *key as usize / 2 % ct.threads() == ct.index()) {
            list.insert(key, ct).await?;
        }
        ct.barrier("filled").await?;
        let mut rng = SmallRng::seed_from_u64(ct.index() as u64);
        let began = ct.now();
        for _ in 0..OPERATIONS {
            let key = rng.random_range(0..KEYS);
            match rng.random_range(0..100) {
                0..10 => list.insert(key, ct).await?,
                10..20 => list.remove(key, ct).await?,
                _ => list.get(key, ct).await?,
            };
        }
        let took = ct.now().saturating_sub(began);
        slowest.nanoseconds().fetch_max(ct, took.as_nanos() as u64).await?;
        ct.barrier("done").await
    })?;
    Ok(())
}

/// The memory of a cluster that this process's parent serves. It has a path only in the parent's table of descriptors.
fn memory_of(name: &str) -> Result<std::path::PathBuf> {
    let folder = format!("/proc/{}/fd", std::os::unix::process::parent_id());
    let shown = format!("/memfd:farfield-{name} ");
    let descriptors =
        std::fs::read_dir(folder).map_err(Error::other)?.filter_map(|entry| Some(entry.ok()?.path()));
    let is_it = |path: &std::path::PathBuf| {
        std::fs::read_link(path).is_ok_and(|link| link.to_string_lossy().starts_with(&shown))
    };
    descriptors
        .into_iter()
        .find(is_it)
        .ok_or_else(|| Error::other("the parent serves no memory of this name"))
}

/// Adds to a word of far memory, and to a word of the same page that is mapped by hand, in turn.
fn fetch_add(name: &str) -> Result<()> {
    let file =
        std::fs::File::options().read(true).write(true).open(memory_of(name)?).map_err(Error::other)?;
    // SAFETY: the memory node has sealed the size of its memory, so the mapping stays valid. Concurrent writes of other processes are
    // harmless, because this process accesses one word of the mapping, atomically.
    let map = unsafe { memmap2::MmapOptions::new().map_mut(&file) }.map_err(Error::other)?;
    let ratios = Cluster::connect(&format!("shm:{name}"))?.run(1, async |ct| {
        let counter =
            ct.root_or_init("counter", async || Counter::new_in(ct, Counter::init()).await?.write(ct).await);
        let counter = counter.await?;
        let offset = counter.raw().address().offset() as usize;
        assert!(offset + 8 <= map.len() && offset.is_multiple_of(8));
        #[allow(clippy::cast_ptr_alignment)]
        // the offset is a multiple of 8, and the mapping begins at a page
        // SAFETY: by the assertion above the whole word is inside the mapping, at a multiple of 8 from its start, which is that of a page. `map` is
        // declared outside this closure, so it outlives the reference, and nothing else in this program accesses it. Other processes access the
        // word atomically, as this one does.
        let raw = unsafe { &*map.as_ptr().add(offset).cast::<AtomicU64>() };
        let mut ratios = Vec::with_capacity(TIMINGS);
        for _ in 0..TIMINGS {
            let began = Instant::now();
            for _ in 0..ADDITIONS {
                black_box(counter.value().fetch_add(ct, 1).await?);
            }
            let ours = began.elapsed();
            let began = Instant::now();
            for _ in 0..ADDITIONS {
                black_box(raw.fetch_add(1, SeqCst));
            }
            ratios.push(ours.as_secs_f64() / began.elapsed().as_secs_f64());
        }
        assert_eq!(counter.raw().load(ct).await?, raw.load(SeqCst), "it is the same word");
        Ok(ratios)
    })?;
    println!("shm.fetch_add.ratio_to_raw {:.3}", median(ratios.into_iter().flatten().collect()));
    Ok(())
}
