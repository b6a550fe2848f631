//! What Farfield costs where nothing is far: the lazy list on the embedded fabric against the same list by hand.
//!
//! Held equal: the algorithm, step by step, a pin for each call; the keys and the order in which they are asked for (one
//! generator, one seed); the size of a node (24 bytes); the thread, the process, the build.
//!
//! - `get`: all keys of 0 to 255 are in the set, so a call visits 128.5 nodes on average;
//! - `update`: each of 512 keys is put in and taken out in turn, so half are there, and a call visits about 128.
//!
//! Both lists are chains of dependent loads. From a node to the next the hand-written one takes off the mark and loads,
//! and the rest of its work hides behind the wait for the load. So does most of Farfield's, which does more:
//!
//! - each access is checked: null, alignment, segment, end of the segment;
//! - one READ brings the whole node, three words, where the other loads the two it looks at;
//! - READs and their bytes are counted;
//! - the state of a future that could wait is written down, though on this fabric it never does;
//! - with several segments an address is a number and an offset: a shift and an addition before each load. This does not
//!   hide, which is why one segment is measured and four are.
//!
//! `cargo bench --bench abstraction` has criterion measure both; `-- --ratio` times them in turn, many times, and prints
//! the medians of the ratios: `abstraction.get.ratio`, `abstraction.update.ratio`, and `abstraction.get.segments_4.ratio`.

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

/// Every key of 0 to `end`, several times, in an order that no predictor knows.
fn questions(end: u64) -> Vec<u64> {
    let mut keys: Vec<u64> = (0..end).cycle().take(KEYS as usize * REPEATS).collect();
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

/// Puts in what is not there, takes out what is: in `present`, which both sides follow.
fn update_native(list: &NativeLazyList, questions: &[u64], present: &mut [bool]) -> Duration {
    let started = Instant::now();
    for key in questions {
        let present = &mut present[*key as usize];
        assert!(if *present { list.remove(black_box(*key)) } else { list.insert(black_box(*key)) });
        *present = !*present;
    }
    started.elapsed()
}

async fn update_farfield(
    list: &LazyList<u64>,
    questions: &[u64],
    present: &mut [bool],
    ct: &ComputeThread,
) -> farfield::Result<Duration> {
    let started = Instant::now();
    for key in questions {
        let present = &mut present[*key as usize];
        let done = if *present {
            list.remove(black_box(*key), ct).await?
        } else {
            list.insert(black_box(*key), ct).await?
        };
        assert!(done);
        *present = !*present;
    }
    Ok(started.elapsed())
}

/// The median of the ratios of many pairs of timings, each pair taken back to back.
async fn get_ratio(ct: &ComputeThread) -> farfield::Result<f64> {
    let (questions, native, farfield) = (questions(KEYS), native(), farfield(ct).await?);
    let mut ratios = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let native = time_native(&native, &questions);
        let farfield = time_farfield(&farfield, &questions, ct).await?;
        ratios.push(farfield.as_secs_f64() / native.as_secs_f64());
    }
    Ok(median(ratios))
}

async fn update_ratio(ct: &ComputeThread) -> farfield::Result<f64> {
    let (questions, native, farfield) = (questions(2 * KEYS), native(), farfield(ct).await?);
    let mut native_has: Vec<bool> = (0..2 * KEYS).map(|key| key < KEYS).collect();
    let mut farfield_has = native_has.clone();
    let mut ratios = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let native = update_native(&native, &questions, &mut native_has);
        let farfield = update_farfield(&farfield, &questions, &mut farfield_has, ct).await?;
        ratios.push(farfield.as_secs_f64() / native.as_secs_f64());
    }
    Ok(median(ratios))
}

fn median(mut ratios: Vec<f64>) -> f64 {
    ratios.sort_by(f64::total_cmp);
    ratios[ratios.len() / 2]
}

fn with_thread<R: Send>(url: &str, body: impl AsyncFn(&ComputeThread) -> farfield::Result<R> + Sync) -> R {
    let results = Cluster::connect(url).and_then(|cluster| cluster.run(1, body));
    results.expect("an embedded cluster runs").pop().expect("one thread ran")
}

fn main() {
    if std::env::args().any(|arg| arg == "--ratio") {
        println!("abstraction.get.ratio {:.3}", with_thread("local:", get_ratio));
        println!("abstraction.update.ratio {:.3}", with_thread("local:", update_ratio));
        println!("abstraction.get.segments_4.ratio {:.3}", with_thread("local:segments=4", get_ratio));
        return;
    }
    let mut criterion = Criterion::default().configure_from_args();
    let (questions, native) = (questions(KEYS), native());
    let mut group = criterion.benchmark_group("get");
    group.throughput(criterion::Throughput::Elements(questions.len() as u64));
    group.bench_function("native", |bencher| bencher.iter(|| time_native(&native, &questions)));
    group.bench_function("farfield", |bencher| {
        bencher.iter_custom(|iterations| {
            with_thread("local:", async |ct| {
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
