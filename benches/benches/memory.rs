//! Allocation and reclamation on the embedded fabric, against the system's allocator, `crossbeam-epoch` and `seize`.
//!
//! | figure | one operation | against |
//! |---|---|---|
//! | `alloc.single` | allocates an object of 64 bytes, writes it, and frees it later, in batches of 1,000 | `Box` |
//! | `alloc.cross` | the same, of two threads: each frees what the other has allocated | `Box` |
//! | `epoch.pin` | pins and unpins | `crossbeam-epoch`, with a registered handle |
//! | `epoch.retire` | pins, makes a `Box` of 64 bytes, retires it in a `LocalEpoch`, unpins; with the reclamation that each side does by itself | `crossbeam-epoch` |
//! | `epoch.retire_to_seize` | the same | `seize` |
//! | `epoch.retire_far` | the same of an object in far memory | `crossbeam-epoch` and a `Box` |
//! | `atomic_object.…` | a quarter each of read, write, compare-and-exchange and exchange | `AtomicU64` |
//!
//! The last follows figure 3 of Dewan and Jenkins. A `StampedLink` has a counterpart of 16 bytes in Chapel and none in the
//! standard library, so its peer is `AtomicU64` too; its write and its exchange are a load and a CAS.
//!
//! Held equal: the sizes, the order of allocating and freeing, the threads, the process, the build. Farfield's objects are in far
//! memory, so each is written to an image first and then, word by word, to its block. Its operations are counted, and freeing
//! checks the address.
//!
//! `cargo bench --bench memory` measures the sides by criterion; `-- --ratio` times them in turn, many times, and prints the
//! medians of the ratios.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use criterion::Criterion;
use farfield::prelude::*;
use farfield::{LocalEpoch, LocalThread};

/// Objects of a batch.
const BATCH: usize = 1000;
/// Batches of a timing.
const BATCHES: usize = 20;
/// Operations of a timing of pins.
const PINS: usize = 1 << 16;
/// The number of pairs of timings whose median ratio is printed.
const ROUNDS: usize = 51;

type Words = [u64; 8];

#[remote]
struct Object {
    words: [u64; 8],
}

fn boxes() -> Duration {
    let mut batch: Vec<Box<Words>> = Vec::with_capacity(BATCH);
    let started = Instant::now();
    for turn in 0..BATCHES {
        batch.extend((0..BATCH).map(|number| Box::new(black_box([(turn + number) as u64; 8]))));
        black_box(&batch);
        batch.clear();
    }
    started.elapsed()
}

async fn new_object(word: u64, ct: &ComputeThread) -> Result<RemotePtr<Object>> {
    Object::new_in(ct, Object::init(black_box([word; 8]))).await?.write(ct).await
}

async fn far_objects(ct: &ComputeThread) -> Result<Duration> {
    let mut batch = Vec::with_capacity(BATCH);
    let started = Instant::now();
    for turn in 0..BATCHES {
        for number in 0..BATCH {
            batch.push(new_object((turn + number) as u64, ct).await?);
        }
        for object in batch.drain(..) {
            ct.delete(object).await?;
        }
    }
    Ok(started.elapsed())
}

/// A thread's ends of the channels: for its own batches, and for the other thread's.
type End<T> = (SyncSender<Vec<T>>, Receiver<Vec<T>>);

/// A pair of channels between two threads.
fn pair<T>() -> [End<T>; 2] {
    let (to_second, from_first) = sync_channel(2);
    let (to_first, from_second) = sync_channel(2);
    [(to_second, from_second), (to_first, from_first)]
}

const PEER: &str = "the other thread is running";

fn boxes_crossing() -> Duration {
    let started = Instant::now();
    std::thread::scope(|scope| {
        for (to, from) in pair::<Box<Words>>() {
            scope.spawn(move || {
                for turn in 0..BATCHES {
                    let batch: Vec<Box<Words>> =
                        (0..BATCH).map(|number| Box::new(black_box([(turn + number) as u64; 8]))).collect();
                    to.send(batch).expect(PEER);
                    drop(from.recv().expect(PEER));
                }
            });
        }
    });
    started.elapsed()
}

fn far_objects_crossing(cluster: &Cluster) -> Duration {
    let ends = pair::<RemotePtr<Object>>().map(|end| std::sync::Mutex::new(Some(end)));
    let started = Instant::now();
    let run = cluster.run(2, async |ct| {
        let end = ends[ct.index()].lock().expect("no thread panics while it holds the lock").take();
        let (to, from) = end.expect("each thread takes its own");
        for turn in 0..BATCHES {
            let mut batch = Vec::with_capacity(BATCH);
            for number in 0..BATCH {
                batch.push(new_object((turn + number) as u64, ct).await?);
            }
            to.send(batch).expect(PEER);
            for object in from.recv().expect(PEER) {
                ct.delete(object).await?;
            }
        }
        Ok(())
    });
    run.expect("an embedded cluster runs");
    started.elapsed()
}

fn crossbeam_pins(handle: &crossbeam_epoch::LocalHandle) -> Duration {
    let started = Instant::now();
    for _ in 0..PINS {
        black_box(handle.pin());
    }
    started.elapsed()
}

fn far_pins(ct: &ComputeThread) -> Duration {
    let started = Instant::now();
    for _ in 0..PINS {
        black_box(ct.pin());
    }
    started.elapsed()
}

fn crossbeam_retires(handle: &crossbeam_epoch::LocalHandle) -> Duration {
    let started = Instant::now();
    for number in 0..BATCH * BATCHES {
        let guard = handle.pin();
        let object = crossbeam_epoch::Owned::new(black_box([number as u64; 8])).into_shared(&guard);
        // SAFETY: the object was made by `Owned` in the line above and its pointer was not copied, so no thread can reach it, and it is retired once.
        unsafe { guard.defer_destroy(object) };
    }
    started.elapsed()
}

fn seize_retires(collector: &seize::Collector) -> Duration {
    use seize::Guard as _;
    let started = Instant::now();
    for number in 0..BATCH * BATCHES {
        let guard = collector.enter();
        let object = Box::into_raw(Box::new(black_box([number as u64; 8])));
        // SAFETY: the object was made by `Box::into_raw` in the line above, which `reclaim::boxed` undoes. Its pointer was not copied, so no thread can
        // reach it, and it is retired once.
        unsafe { guard.defer_retire(object, seize::reclaim::boxed) };
    }
    started.elapsed()
}

fn local_retires(thread: &LocalThread) -> Duration {
    let started = Instant::now();
    for number in 0..BATCH * BATCHES {
        let guard = thread.pin();
        guard.retire(Box::new(black_box([number as u64; 8])));
    }
    started.elapsed()
}

async fn far_retires(ct: &ComputeThread) -> Result<Duration> {
    let started = Instant::now();
    for number in 0..BATCH * BATCHES {
        let g = ct.pin();
        let object = new_object(number as u64, ct).await?;
        g.sched_reclaim(object.shared(&g)).await?;
    }
    Ok(started.elapsed())
}

/// The three kinds of atomic objects.
#[remote]
struct Cells {
    atomic: Atomic<u64>,
    link: Link<Object>,
    stamped: StampedLink<Object>,
}

/// Operations of a timing of mixes.
const MIXED: usize = 1 << 14;

fn native_mix() -> Duration {
    let cell = AtomicU64::new(0);
    let started = Instant::now();
    for turn in 0..MIXED as u64 / 4 {
        let seen = black_box(cell.load(SeqCst));
        let _ = black_box(cell.compare_exchange(seen, turn, SeqCst, SeqCst));
        cell.store(black_box(turn + 1), SeqCst);
        black_box(cell.swap(turn, SeqCst));
    }
    started.elapsed()
}

async fn atomic_mix(cells: RemotePtr<Cells>, ct: &ComputeThread) -> Result<Duration> {
    let cell = cells.atomic();
    let started = Instant::now();
    for turn in 0..MIXED as u64 / 4 {
        let seen = black_box(cell.load(ct).await?);
        let _ = black_box(cell.compare_exchange(ct, seen, turn).await?);
        cell.store(ct, black_box(turn + 1)).await?;
        black_box(cell.swap(ct, turn).await?);
    }
    Ok(started.elapsed())
}

async fn link_mix(
    cells: RemotePtr<Cells>,
    [first, second]: [RemotePtr<Object>; 2],
    ct: &ComputeThread,
) -> Result<Duration> {
    let (g, cell) = (&ct.pin(), cells.link());
    let started = Instant::now();
    for _ in 0..MIXED / 4 {
        let seen = black_box(cell.load(g).await?);
        let _ = black_box(cell.compare_exchange(g, seen, first).await?);
        cell.store(g, black_box(second)).await?;
        black_box(cell.swap(g, first).await?);
    }
    Ok(started.elapsed())
}

async fn stamped_mix(
    cells: RemotePtr<Cells>,
    [first, second]: [RemotePtr<Object>; 2],
    ct: &ComputeThread,
) -> Result<Duration> {
    let (g, cell) = (&ct.pin(), cells.stamped());
    let started = Instant::now();
    for _ in 0..MIXED / 4 {
        let seen = black_box(cell.load(g).await?);
        let _ = black_box(cell.compare_exchange(g, seen, first).await?);
        cell.store(g, black_box(second)).await?;
        black_box(cell.swap(g, first).await?);
    }
    Ok(started.elapsed())
}

/// The median of the ratios of many pairs of timings, the two of a pair in direct succession.
fn median(mut pair: impl FnMut() -> (Duration, Duration)) -> f64 {
    let mut ratios: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let (ours, theirs) = pair();
            ours.as_secs_f64() / theirs.as_secs_f64()
        })
        .collect();
    ratios.sort_by(f64::total_cmp);
    ratios[ROUNDS / 2]
}

/// Runs a future that is ready at its first poll, as all futures of one thread on the embedded fabric are.
fn ready<T>(work: impl Future<Output = Result<T>>) -> T {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(work).poll(&mut context) {
        std::task::Poll::Ready(result) => result.expect("the heap is large enough"),
        std::task::Poll::Pending => panic!("an operation of the embedded fabric waits"),
    }
}

fn with_thread<R: Send>(body: impl AsyncFn(&ComputeThread) -> Result<R> + Sync) -> R {
    let results = Cluster::connect("local:").and_then(|cluster| cluster.run(1, body));
    results.expect("an embedded cluster runs").pop().expect("one thread ran")
}

fn print_ratios() {
    let print = |name: &str, ratio: f64| println!("{name}.ratio {ratio:.3}");
    with_thread(async |ct| {
        let crossbeam = crossbeam_epoch::Collector::new().register();
        let (seize, epoch) = (seize::Collector::new(), LocalEpoch::new());
        let local = epoch.register();
        print("alloc.single", median(|| (ready(far_objects(ct)), boxes())));
        print("epoch.pin", median(|| (far_pins(ct), crossbeam_pins(&crossbeam))));
        print("epoch.retire", median(|| (local_retires(&local), crossbeam_retires(&crossbeam))));
        print("epoch.retire_to_seize", median(|| (local_retires(&local), seize_retires(&seize))));
        print("epoch.retire_far", median(|| (ready(far_retires(ct)), crossbeam_retires(&crossbeam))));
        let cells = Cells::new_in(ct, Cells::init()).await?.write(ct).await?;
        let objects = [new_object(1, ct).await?, new_object(2, ct).await?];
        print("atomic_object.atomic", median(|| (ready(atomic_mix(cells, ct)), native_mix())));
        print("atomic_object.link", median(|| (ready(link_mix(cells, objects, ct)), native_mix())));
        print(
            "atomic_object.stamped_link",
            median(|| (ready(stamped_mix(cells, objects, ct)), native_mix())),
        );
        Ok(())
    });
    let cluster = Cluster::connect("local:").expect("there is memory");
    print("alloc.cross", median(|| (far_objects_crossing(&cluster), boxes_crossing())));
}

fn main() {
    if std::env::args().any(|arg| arg == "--ratio") {
        return print_ratios();
    }
    let mut criterion = Criterion::default().configure_from_args();
    let repeat =
        |iterations: u64, mut work: Box<dyn FnMut() -> Duration + '_>| (0..iterations).map(|_| work()).sum();
    let crossbeam = crossbeam_epoch::Collector::new().register();
    let (seize, epoch) = (seize::Collector::new(), LocalEpoch::new());
    let local = epoch.register();
    let mut group = criterion.benchmark_group("memory");
    group.bench_function("alloc/box", |bencher| bencher.iter_custom(|n| repeat(n, Box::new(boxes))));
    group.bench_function("alloc/farfield", |bencher| {
        bencher.iter_custom(|n| with_thread(async |ct| Ok(repeat(n, Box::new(|| ready(far_objects(ct)))))));
    });
    group.bench_function("pin/crossbeam", |bencher| {
        bencher.iter_custom(|n| repeat(n, Box::new(|| crossbeam_pins(&crossbeam))));
    });
    group.bench_function("pin/farfield", |bencher| {
        bencher.iter_custom(|n| with_thread(async |ct| Ok(repeat(n, Box::new(|| far_pins(ct))))));
    });
    group.bench_function("retire/crossbeam", |bencher| {
        bencher.iter_custom(|n| repeat(n, Box::new(|| crossbeam_retires(&crossbeam))));
    });
    group.bench_function("retire/seize", |bencher| {
        bencher.iter_custom(|n| repeat(n, Box::new(|| seize_retires(&seize))));
    });
    group.bench_function("retire/local", |bencher| {
        bencher.iter_custom(|n| repeat(n, Box::new(|| local_retires(&local))));
    });
    group.bench_function("retire/farfield", |bencher| {
        bencher.iter_custom(|n| with_thread(async |ct| Ok(repeat(n, Box::new(|| ready(far_retires(ct)))))));
    });
    group.finish();
    criterion.final_summary();
}
