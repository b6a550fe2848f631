//! What Farfield costs where nothing is far: `get` on the embedded fabric against the same list by hand.
//!
//! Held equal: the algorithm (the lazy list's `get`, a pin for each call), the keys (0 to 255, all in the set), the
//! order in which they are asked for (one generator, one seed), the size of a node (24 bytes), the thread, the process,
//! the build. Each side visits 128.5 nodes a call on average.
//!
//! Both lists are chains of dependent loads. The hand-written one needs two instructions from a link to the next node's
//! link (take off the mark, load) and waits for memory. Farfield's needs more, and this is where the rest goes:
//!
//! - an address is a segment and an offset: a shift and an addition before each load;
//! - each access is checked: null, alignment, segment, end of the segment;
//! - one READ brings the whole node, three words, where the other loads the two it looks at;
//! - READs and their bytes are counted;
//! - the state of a future that could wait is written down, though on this fabric it never does.
//!
//! `cargo bench --bench abstraction` has criterion measure both; `-- --ratio` times them in turn, many times, and prints
//! the median of the ratios as `abstraction.get.ratio`.

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::Criterion;
use farfield::prelude::*;
use farfield_benches::NativeLazyList;
use farfield_examples::LazyList;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;

const KEYS: u64 = 256;
/// Pairs of timings that a ratio is the median of.
const ROUNDS: usize = 101;
/// How often each key is asked for in a timing.
const REPEATS: usize = 20;

/// Every key, several times, in an order that no predictor knows.
fn questions() -> Vec<u64> {
    let mut keys: Vec<u64> = (0..KEYS).cycle().take(KEYS as usize * REPEATS).collect();
    keys.shuffle(&mut SmallRng::seed_from_u64(1));
    keys
}

fn native() -> NativeLazyList {
    let list = NativeLazyList::default();
    for key in (0..KEYS).rev() {
        list.insert(key);
    }
    list
}

async fn farfield(ct: &ComputeThread) -> farfield::Result<LazyList<u64>> {
    let list = LazyList::attach(LazyList::create(ct).await?, ct).await?;
    for key in (0..KEYS).rev() {
        list.insert(key, ct).await?;
    }
    Ok(list)
}

fn time_native(list: &NativeLazyList, questions: &[u64]) -> Duration {
    let started = Instant::now();
    for key in questions {
        assert!(black_box(list.get(black_box(*key))));
    }
    started.elapsed()
}

async fn time_farfield(
    list: &LazyList<u64>,
    questions: &[u64],
    ct: &ComputeThread,
) -> farfield::Result<Duration> {
    let started = Instant::now();
    for key in questions {
        assert!(black_box(list.get(black_box(*key), ct).await?));
    }
    Ok(started.elapsed())
}

/// The median of the ratios of many pairs of timings, each pair taken back to back.
async fn ratio(ct: &ComputeThread) -> farfield::Result<f64> {
    let (questions, native, farfield) = (questions(), native(), farfield(ct).await?);
    let mut ratios = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let native = time_native(&native, &questions);
        let farfield = time_farfield(&farfield, &questions, ct).await?;
        ratios.push(farfield.as_secs_f64() / native.as_secs_f64());
    }
    ratios.sort_by(f64::total_cmp);
    Ok(ratios[ROUNDS / 2])
}

fn with_thread<R: Send>(body: impl AsyncFn(&ComputeThread) -> farfield::Result<R> + Sync) -> R {
    let results = Cluster::connect("local:").and_then(|cluster| cluster.run(1, body));
    results.expect("an embedded cluster runs").pop().expect("one thread ran")
}

fn main() {
    if std::env::args().any(|arg| arg == "--ratio") {
        println!("abstraction.get.ratio {:.3}", with_thread(ratio));
        return;
    }
    let mut criterion = Criterion::default().configure_from_args();
    let (questions, native) = (questions(), native());
    let mut group = criterion.benchmark_group("get");
    group.throughput(criterion::Throughput::Elements(questions.len() as u64));
    group.bench_function("native", |bencher| bencher.iter(|| time_native(&native, &questions)));
    group.bench_function("farfield", |bencher| {
        bencher.iter_custom(|iterations| {
            with_thread(async |ct| {
                let list = farfield(ct).await?;
                let mut total = Duration::ZERO;
                for _ in 0..iterations {
                    total += time_farfield(&list, &questions, ct).await?;
                }
                Ok(total)
            })
        });
    });
    group.finish();
    criterion.final_summary();
}
