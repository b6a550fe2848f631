//! Single operations on the embedded fabric against the same operations of raw atomics.
//!
//! Held equal: the memory model (sequentially consistent words), the accessed words and their order, the number of
//! different objects (64, all in the first cache), the thread, the build. Farfield adds to each operation: the check of the
//! address, a counter, a result or an error, and one poll of a future.
//!
//! | operation | raw |
//! |---|---|
//! | `load`, `store`, `compare_exchange` | one `AtomicU64` |
//! | `snapshot_3`, `snapshot_64` | as many loads into an array |
//! | `read_64_random` | a copy of a `Box` of 64 bytes; a million of both, allocated in turn, and read in one random order, no READ depending on another |
//! | `chain_4` | a load, a store, a compare-and-exchange and an addition of four words of one object |
//!
//! The objects of `read_64_random` are in no cache, so its time is that of the memory, as long as enough READs are under way at the same time. A processor
//! looks ahead over some hundred instructions: the fewer a READ takes, the more READs overlap. Far memory asks for huge pages, which the allocator of
//! `Box` does not: that is a part of the comparison.
//!
//! Without a network a chain has no benefit: this benchmark shows its overhead.
//!
//! `cargo bench --bench operations` measures all by criterion; `-- --ratio` times both sides in turn, many times, and
//! prints the medians of the ratios as `ops.<operation>.ratio`.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use criterion::Criterion;
use farfield::prelude::*;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;

/// The number of objects of a timing, but for `read_64_random`.
const OBJECTS: usize = 64;
/// The number of its objects. Each timing reads others, until all have been read.
const RANDOM_OBJECTS: usize = 1 << 20;
/// Operations of a timing.
const OPERATIONS: usize = 1 << 14;
/// The number of pairs of timings whose median ratio is printed.
const ROUNDS: usize = 101;

#[remote]
struct Small {
    words: [u64; 3],
}

#[remote]
struct Large {
    words: [u64; 64],
}

#[remote]
struct Line {
    words: [u64; 8],
}

#[remote]
struct Four {
    first: Atomic<u64>,
    second: Atomic<u64>,
    third: Atomic<u64>,
    fourth: Atomic<u64>,
}

struct Far {
    small: Vec<RemotePtr<Small>>,
    large: Vec<RemotePtr<Large>>,
    four: Vec<RemotePtr<Four>>,
    /// In random order.
    lines: Vec<RemotePtr<Line>>,
}

/// The raw counterpart.
struct Raw {
    /// As many words as the largest object has.
    words: Vec<[AtomicU64; 64]>,
    /// In the same order as the far ones.
    #[allow(clippy::vec_box)] // each is allocated by itself, like a far object
    lines: Vec<Box<[u64; 8]>>,
}

/// Allocates the objects: as many for `read_64_random` as are asked for.
async fn objects(random: usize, ct: &ComputeThread) -> Result<(Raw, Far)> {
    let mut far = Far { small: Vec::new(), large: Vec::new(), four: Vec::new(), lines: Vec::new() };
    for _ in 0..OBJECTS {
        far.small.push(Small::new_in(ct, Small::init([1; 3])).await?.write(ct).await?);
        far.large.push(Large::new_in(ct, Large::init([1; 64])).await?.write(ct).await?);
        far.four.push(Four::new_in(ct, Four::init()).await?.write(ct).await?);
    }
    let words = (0..OBJECTS).map(|_| [const { AtomicU64::new(0) }; 64]).collect();
    let mut raw = Raw { words, lines: Vec::new() };
    for number in 0..random as u64 {
        far.lines.push(Line::new_in(ct, Line::init([number; 8])).await?.write(ct).await?);
        raw.lines.push(Box::new([number; 8]));
    }
    raw.lines.shuffle(&mut SmallRng::seed_from_u64(1));
    far.lines.shuffle(&mut SmallRng::seed_from_u64(1));
    Ok((raw, far))
}

/// The part of the random objects that a round reads.
fn part<T>(lines: &[T], round: usize) -> &[T] {
    let parts = RANDOM_OBJECTS / OPERATIONS;
    &lines[round % parts * OPERATIONS..][..OPERATIONS]
}

/// The time of `OPERATIONS` executions of an expression, which gets the object's number and its own. Both sides are such loops: an asynchronous closure
/// would copy its variables to and fro at each call.
macro_rules! time {
    (|$at:pat_param, $turn:pat_param| $operation:expr) => {{
        let started = Instant::now();
        for turn in 0..OPERATIONS {
            let ($at, $turn) = (black_box(turn) % OBJECTS, turn as u64);
            $operation;
        }
        started.elapsed()
    }};
}

#[derive(Clone, Copy)]
enum Operation {
    Load,
    Store,
    CompareExchange,
    Snapshot3,
    Snapshot64,
    Read64Random,
    Chain4,
}

const ALL: [(Operation, &str); 7] = [
    (Operation::Load, "load"),
    (Operation::Store, "store"),
    (Operation::CompareExchange, "compare_exchange"),
    (Operation::Snapshot3, "snapshot_3"),
    (Operation::Snapshot64, "snapshot_64"),
    (Operation::Read64Random, "read_64_random"),
    (Operation::Chain4, "chain_4"),
];

fn raw(operation: Operation, Raw { words: raw, lines }: &Raw, round: usize) -> Duration {
    match operation {
        Operation::Load => time!(|at, _| {
            black_box(raw[at][0].load(SeqCst));
        }),
        Operation::Store => time!(|at, turn| raw[at][0].store(turn, SeqCst)),
        Operation::CompareExchange => time!(|at, _| {
            let word = &raw[at][0];
            let _ = black_box(word.compare_exchange(0, 0, SeqCst, SeqCst));
        }),
        Operation::Snapshot3 => time!(|at, _| {
            let words: [u64; 3] = std::array::from_fn(|word| raw[at][word].load(SeqCst));
            black_box(&words);
        }),
        Operation::Snapshot64 => time!(|at, _| {
            let words: [u64; 64] = std::array::from_fn(|word| raw[at][word].load(SeqCst));
            black_box(&words);
        }),
        Operation::Read64Random => {
            let started = Instant::now();
            for line in part(lines, round) {
                let words: [u64; 8] = **line;
                black_box(&words);
            }
            started.elapsed()
        }
        Operation::Chain4 => time!(|at, turn| {
            let [first, second, third, fourth, ..] = &raw[at];
            let loaded = first.load(SeqCst);
            second.store(turn, SeqCst);
            let exchanged = third.compare_exchange(0, 0, SeqCst, SeqCst);
            let added = fourth.fetch_add(1, SeqCst);
            let _ = black_box((loaded, exchanged, added));
        }),
    }
}

async fn far(operation: Operation, objects: &Far, round: usize, ct: &ComputeThread) -> Result<Duration> {
    let g = &ct.pin();
    let Far { small, large, four, lines } = objects;
    let first = |at: usize| four[at].first();
    Ok(match operation {
        Operation::Load => time!(|at, _| black_box(first(at).load(g).await?)),
        Operation::Store => time!(|at, turn| first(at).store(g, turn).await?),
        Operation::CompareExchange => {
            time!(|at, _| black_box(four[at].third().compare_exchange(g, 0, 0).await?).ok())
        }
        Operation::Snapshot3 => time!(|at, _| black_box(&small[at].read(g).await?)),
        Operation::Snapshot64 => time!(|at, _| black_box(&large[at].read(g).await?)),
        Operation::Read64Random => {
            let started = Instant::now();
            for line in part(lines, round) {
                black_box(&line.read(g).await?);
            }
            started.elapsed()
        }
        Operation::Chain4 => time!(|at, turn| {
            let (load, store) = (op::load(four[at].first()), op::store(four[at].second(), turn));
            let (exchange, add) =
                (op::compare_exchange(four[at].third(), 0, 0), op::fetch_add(four[at].fourth(), 1));
            let _ = black_box(g.chain((load, store, exchange, add)).submit().await?);
        }),
    })
}

/// The median of the ratios of many pairs of timings, the two of a pair in direct succession.
async fn ratio(operation: Operation, (near, objects): &(Raw, Far), ct: &ComputeThread) -> Result<f64> {
    let mut ratios = Vec::with_capacity(ROUNDS);
    for round in 0..ROUNDS {
        let raw = raw(operation, near, round);
        ratios.push(far(operation, objects, round, ct).await?.as_secs_f64() / raw.as_secs_f64());
    }
    ratios.sort_by(f64::total_cmp);
    Ok(ratios[ROUNDS / 2])
}

fn with_thread<R: Send>(body: impl AsyncFn(&ComputeThread) -> Result<R> + Sync) -> R {
    let results = Cluster::connect("local:").and_then(|cluster| cluster.run(1, body));
    results.expect("an embedded cluster runs").pop().expect("one thread ran")
}

fn main() {
    if std::env::args().any(|arg| arg == "--ratio") {
        with_thread(async |ct| {
            let objects = objects(RANDOM_OBJECTS, ct).await?;
            for (operation, name) in ALL {
                println!("ops.{name}.ratio {:.3}", ratio(operation, &objects, ct).await?);
            }
            Ok(())
        });
        return;
    }
    let mut criterion = Criterion::default().configure_from_args();
    for (operation, name) in ALL {
        let random = if matches!(operation, Operation::Read64Random) { RANDOM_OBJECTS } else { 0 };
        let mut group = criterion.benchmark_group(name);
        group.throughput(criterion::Throughput::Elements(OPERATIONS as u64));
        group.bench_function("raw", |bencher| {
            bencher.iter_custom(|iterations| {
                with_thread(async |ct| {
                    let (near, _) = objects(random, ct).await?;
                    Ok((0..iterations).map(|round| raw(operation, &near, round as usize)).sum())
                })
            });
        });
        group.bench_function("farfield", |bencher| {
            bencher.iter_custom(|iterations| {
                with_thread(async |ct| {
                    let (_, objects) = objects(random, ct).await?;
                    let mut total = Duration::ZERO;
                    for round in 0..iterations {
                        total += far(operation, &objects, round as usize, ct).await?;
                    }
                    Ok(total)
                })
            });
        });
        group.finish();
    }
    criterion.final_summary();
}
