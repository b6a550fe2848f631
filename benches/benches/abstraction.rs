//! The cost of Farfield in local memory: the lazy list on the embedded fabric against the same list written by hand.
//!
//! Held equal: the algorithm, step by step, with a pin for each call; the keys and their order (one generator, one seed); the
//! size of a node (24 bytes); the thread, the process, the build.
//!
//! - `get`: all keys of 0 to 255 are in the set, so a call visits 128.5 nodes on average;
//! - `update`: each of 512 keys is inserted and removed in turn, so half are present, and a call visits about 128 nodes.
//!
//! Both lists are chains of dependent loads. From node to node the list by hand removes the mark and loads; the rest of its work
//! overlaps with the latency of the load. So does most of Farfield's additional work:
//!
//! - each access is checked: null, alignment, segment, end of the segment;
//! - one READ copies the whole node, three words; the other list loads the two words that it needs;
//! - READs and their bytes are counted;
//! - a future stores its state, though on this fabric it never waits;
//! - with several segments a comparison shows that the address is in the segment of the one before. Otherwise it would have to be translated before
//!   each load, which does not overlap with it: so clusters of one segment and of four are measured.
//!
//! `cargo bench --bench abstraction` measures both by criterion; `-- --ratio` times them in turn, many times, and prints
//! the medians of the ratios: `abstraction.get.ratio`, `abstraction.update.ratio`, and `abstraction.get.segments_4.ratio`.
//!
//! `abstraction.chase.nodes_4.ratio` has Farfield on both sides: a cycle of 256 objects, each READ depending on the one before, which are at random on four
//! memory nodes, so in four segments, or all on one. Most of its READs are in another segment than the one before.

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::Criterion;
use farfield::prelude::*;
use farfield_benches::NativeLazyList;
use farfield_benches::rounds::median;
use farfield_examples::LazyList;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;

const KEYS: u64 = 256;
/// The number of pairs of timings whose median ratio is printed.
const ROUNDS: usize = 101;
/// How often a timing uses each key.
const REPEATS: usize = 20;

/// An object of a cycle, as large as a node of the lists.
#[remote]
struct Step {
    next: Link<Step>,
    words: [u64; 2],
}

/// Every key of 0 to `end`, several times, in an order that branch predictors cannot learn.
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

/// Inserts an absent key or removes a present one. `present` has the state of the keys, the same for both sides.
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

/// The median of the ratios of many pairs of timings, the two of a pair in direct succession.
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

/// Makes a cycle of as many objects as there are keys, on the first of the cluster's memory nodes, in an order without regard to the nodes. Returns one.
async fn cycle(nodes: u64, ct: &ComputeThread) -> farfield::Result<RemotePtr<Step>> {
    let (mut steps, g) = (Vec::new(), &ct.pin());
    for number in 0..KEYS {
        let site = ct.on_node((number % nodes) as u16);
        steps.push(Step::new_in(site, Step::init([0; 2])).await?.write(ct).await?);
    }
    steps.shuffle(&mut SmallRng::seed_from_u64(1));
    for (step, next) in steps.iter().zip(steps.iter().cycle().skip(1)) {
        step.next().store(g, *next).await?;
    }
    Ok(steps[0])
}

async fn time_chase(first: RemotePtr<Step>, ct: &ComputeThread) -> farfield::Result<Duration> {
    let (g, started) = (&ct.pin(), Instant::now());
    let mut step = first.shared(g);
    for _ in 0..KEYS * REPEATS as u64 {
        step = step.read(g).await?.next;
    }
    black_box(step);
    Ok(started.elapsed())
}

async fn chase_ratio(ct: &ComputeThread) -> farfield::Result<f64> {
    let (on_one, on_four) = (cycle(1, ct).await?, cycle(4, ct).await?);
    let mut ratios = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let on_one = time_chase(on_one, ct).await?;
        ratios.push(time_chase(on_four, ct).await?.as_secs_f64() / on_one.as_secs_f64());
    }
    Ok(median(ratios))
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
        println!("abstraction.chase.nodes_4.ratio {:.3}", with_thread("local:nodes=4", chase_ratio));
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
