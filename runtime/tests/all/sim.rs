//! The simulator from outside: time, order, and findings.

#![allow(clippy::unchecked_time_subtraction)] // a fabric's clock does not go backwards
#![allow(clippy::struct_field_names)] // cells of `Cells`, as they are

use std::time::Duration;

use farfield::error::Error;
use farfield::prelude::*;
use farfield::sim::{Finding, Simulation};
use farfield::{Address, RemotePtr};

/// A network on which a round trip takes 2 us and everything else no time.
const EXACT: &str = "sim:rtt=2us,bandwidth=inf,rate=inf,jitter=0%,doorbell=0ns,compute=0,leaks=ignore";

#[remote]
struct Cells {
    cells: [Atomic<u64>; 8],
    lock: Lock,
}

#[remote]
struct Holder {
    page: Link<Page>,
}

#[remote]
struct Page {
    words: [u64; 16],
}

async fn cells(ct: &ComputeThread) -> Result<RemotePtr<Cells>> {
    ct.root_or_init("cells", async || Cells::new_in(ct, Cells::init()).await?.write(ct).await).await
}

fn simulation(url: &str) -> (Cluster, Simulation) {
    let cluster = Cluster::connect(url).unwrap();
    let simulation = cluster.simulation().unwrap();
    (cluster, simulation)
}

/// Returns the finding of a run on `url`, and its message.
fn finding(
    url: &str,
    threads: usize,
    body: impl AsyncFn(&ComputeThread) -> Result<()> + Sync,
) -> (Finding, String) {
    let (cluster, simulation) = simulation(url);
    match cluster.run(threads, body) {
        Err(Error::Simulation(found)) => {
            assert_eq!(found.to_string().lines().count(), 1, "{found}");
            assert!(!simulation.trace(1000).is_empty());
            (found.finding, found.to_string())
        }
        other => panic!("{url}: {other:?}"),
    }
}

// ---- time ------------------------------------------------------------------------------------------------------

/// Returns the virtual time that `work` takes, in nanoseconds.
async fn nanoseconds<T>(ct: &ComputeThread, work: impl AsyncFnOnce() -> Result<T>) -> Result<u128> {
    let before = ct.now();
    work().await?;
    Ok((ct.now() - before).as_nanos())
}

fn on(url: &str, body: impl AsyncFn(&ComputeThread) -> Result<()> + Sync) {
    Cluster::connect(url).unwrap().run(1, body).unwrap();
}

#[test]
fn durations_count_round_trips() {
    on(EXACT, async |ct| {
        let root = cells(ct).await?;
        let g = &ct.pin();
        let cell = |index| root.cells().at(index);
        assert_eq!(nanoseconds(ct, async || cell(0).load(ct).await).await?, 2000);
        assert_eq!(nanoseconds(ct, async || root.read(g).await).await?, 2000, "independent of its size");
        let three = nanoseconds(ct, async || {
            cell(0).store(ct, 1).await?;
            cell(0).fetch_add(ct, 1).await?;
            cell(0).compare_exchange(ct, 2, 3).await
        });
        assert_eq!(three.await?, 6000);
        let together = nanoseconds(ct, async || ct.tasks(8, async |task| cell(task).load(ct).await).await);
        assert_eq!(together.await?, 2000, "tasks wait together");
        let lock = nanoseconds(ct, async || Ok(root.lock().acquire(ct).await?.release().await?));
        assert_eq!(lock.await?, 4000);
        assert_eq!(nanoseconds(ct, async || Ok(ct.pin())).await?, 0);
        let slept = nanoseconds(ct, async || {
            ct.sleep(Duration::from_micros(7)).await;
            Ok(())
        });
        assert_eq!(slept.await?, 7000);
        Ok(())
    });
}

#[test]
fn bytes_take_time_on_the_link() {
    on("sim:bandwidth=8Mbps,rate=inf,jitter=0%,compute=0,leaks=ignore", async |ct| {
        let root = cells(ct).await?;
        let word = nanoseconds(ct, async || root.cells().at(0).load(ct).await).await?;
        assert_eq!(word, 2000 + 8000, "8 bytes at a byte a microsecond");
        Ok(())
    });
}

#[test]
fn a_memory_node_serves_one_operation_after_another() {
    on("sim:bandwidth=inf,rate=1M,jitter=0%,doorbell=0ns,compute=0,leaks=ignore", async |ct| {
        let root = cells(ct).await?;
        let load = async |task: usize| root.cells().at(task).load(ct).await;
        ct.sleep(Duration::from_micros(10)).await;
        let ten = nanoseconds(ct, async || ct.tasks(8, load).await).await?;
        assert_eq!(ten, 2000 + 7000, "the last of eight waits for seven");
        Ok(())
    });
}

#[test]
fn a_nic_rings_one_doorbell_after_another() {
    on("sim:nodes=8,bandwidth=inf,rate=inf,jitter=0%,doorbell=500ns,compute=0,leaks=ignore", async |ct| {
        let mut nodes = Vec::new();
        for node in 0..8 {
            nodes.push(Cells::new_in(ct.on_node(node), Cells::init()).await?.write(ct).await?);
        }
        let spread = async |task: usize| nodes[task].cells().at(0).load(ct).await;
        assert_eq!(nanoseconds(ct, async || ct.tasks(8, spread).await).await?, 2000 + 7 * 500);
        assert_eq!(nanoseconds(ct, async || spread(0).await).await?, 2000, "an idle NIC takes no time");
        let together = async |task: usize| nodes[3].cells().at(task).load(ct).await;
        let took = nanoseconds(ct, async || ct.tasks(8, together).await).await?;
        assert_eq!(took, 2000, "chains that are posted to one memory node at one time share a doorbell");
        Ok(())
    });
}

#[test]
fn jitter_stays_within_its_bounds() {
    on("sim:bandwidth=inf,rate=inf,jitter=10%,compute=0,leaks=ignore", async |ct| {
        let root = cells(ct).await?;
        let mut seen = Vec::new();
        for _ in 0..200 {
            seen.push(nanoseconds(ct, async || root.cells().at(0).load(ct).await).await?);
        }
        // Two fifths of the rtt each way vary by a tenth.
        assert!(seen.iter().all(|took| (1840..=2160).contains(took)), "{seen:?}");
        assert!(seen.iter().any(|took| *took < 1870) && seen.iter().any(|took| *took > 2130), "{seen:?}");
        Ok(())
    });
}

// ---- order -----------------------------------------------------------------------------------------------------

async fn contend(ct: &ComputeThread) -> Result<()> {
    let root = cells(ct).await?;
    ct.tasks(2, async |task| {
        for _ in 0..10 {
            let lock = root.lock().acquire(ct).await?;
            root.cells().at(task).fetch_add(ct, 1).await?;
            lock.release().await?;
        }
        Ok(())
    })
    .await?;
    ct.barrier("done").await
}

#[test]
fn a_seed_determines_the_trace() {
    let hash = |url: &str| {
        let (cluster, simulation) = simulation(url);
        cluster.run(4, contend).unwrap();
        // Four threads with two tasks that each take, add and release ten times.
        assert!(simulation.operations() > 4 * 2 * 10 * 3, "{}", simulation.operations());
        (simulation.trace_hash(), simulation.now(), simulation.trace(usize::MAX))
    };
    for url in ["sim:seed=5", "sim:seed=5,nodes=3", "sim:seed=5,jitter=0%,rate=inf", "sim:seed=5,stall=1%"] {
        assert_eq!(hash(url), hash(url), "{url}");
    }
    let hashes: std::collections::HashSet<u64> =
        (0..50).map(|seed| hash(&format!("sim:seed={seed}")).0).collect();
    assert_eq!(hashes.len(), 50);
}

#[test]
fn the_clock_and_the_trace_go_on_from_run_to_run() {
    let (cluster, simulation) = simulation("sim:seed=1");
    cluster.run(2, contend).unwrap();
    let (before, hash) = (simulation.now(), simulation.trace_hash());
    let later = cluster.run(3, async |ct| Ok(ct.now() >= before));
    assert_eq!(later.unwrap(), [true; 3]);
    assert_ne!(simulation.trace_hash(), hash);
}

#[test]
fn long_reads_are_torn() {
    let mut torn = 0;
    for seed in 0..40 {
        let cluster = Cluster::connect(&format!("sim:seed={seed}")).unwrap();
        let seen = cluster.run(2, async |ct| {
            let root = cells(ct).await?;
            if ct.index() == 0 {
                let page = Page::new_in(ct, Page::init([7; 16])).await?;
                root.cells().at(0).store(ct, page.as_ptr().address().bits()).await?;
                let pause = ct.random_range(0..10_000);
                ct.sleep(Duration::from_nanos(pause)).await;
                let page = page.write(ct).await?;
                ct.barrier("read").await?;
                ct.delete(page).await?;
                ct.delete(root).await?;
                return Ok(0);
            }
            let mut bits = 0;
            while bits == 0 {
                bits = root.cells().at(0).load(ct).await?;
            }
            let page = RemotePtr::<Page>::from_address(Address::from_bits(bits));
            let mut torn = 0;
            for _ in 0..10 {
                let words = page.read(&ct.pin()).await?.words;
                torn += u64::from(words.contains(&0) && words.contains(&7));
            }
            ct.barrier("read").await?;
            Ok(torn)
        });
        torn += seen.unwrap()[1];
    }
    assert!(torn > 0, "no read of 40 runs met the write that it overlapped");
}

#[test]
fn a_trace_names_the_task() {
    let (cluster, simulation) = simulation("sim:");
    let run = cluster.run(1, async |ct| {
        ct.tasks(3, async |_| {
            let page = Page::new_in(ct, Page::init([1; 16])).await?.write(ct).await?;
            ct.delete(page).await
        })
        .await
    });
    run.unwrap();
    let trace = simulation.trace(100);
    for task in 0..3 {
        for what in ["alloc ", "WRITE ", "free  "] {
            assert!(trace.contains(&format!("  0.{task}  {what}")), "{what} of task {task}:\n{trace}");
        }
    }
}

// ---- memory ----------------------------------------------------------------------------------------------------

#[test]
fn a_read_of_freed_memory_is_found() {
    let (found, report) = finding("sim:seed=3", 1, async |ct| {
        let page = Page::new_in(ct, Page::init([1; 16])).await?.write(ct).await?;
        ct.delete(page).await?;
        page.read(&ct.pin()).await.map(drop)
    });
    assert_eq!(found, Finding::UseAfterFree);
    for part in
        ["READ of 128 bytes", "the `Page` at 0:0x", "allocated by thread 0", "freed by thread 0", "seed 3"]
    {
        assert!(report.contains(part), "{part}: {report}");
    }
}

/// The compiler refuses a `Shared` after its guard. `as_ptr` returns a pointer without that bound, whose use the simulator reports.
#[test]
fn a_plain_pointer_kept_for_longer_than_its_guard_is_found() {
    let (found, report) = finding("sim:seed=4", 1, async |ct| {
        let holder = Holder::new_in(ct, Holder::init()).await?.write(ct).await?;
        let page = Page::new_in(ct, Page::init([1; 16])).await?;
        let kept = {
            let g = &ct.pin();
            let page = holder.page().store(g, page).await?;
            holder.page().store(g, Shared::NULL).await?;
            g.sched_reclaim(page).await?;
            page.as_ptr()
        };
        for _ in 0..8 {
            ct.try_reclaim().await;
        }
        kept.words().read(&ct.pin()).await.map(drop)
    });
    assert_eq!(found, Finding::UseAfterFree);
    assert!(report.contains("READ of 128 bytes") && report.contains("the `Page` at 0:0x"), "{report}");
}

#[test]
fn a_write_that_lands_in_freed_memory_is_found() {
    let (found, report) = finding("sim:", 1, async |ct| {
        let root = cells(ct).await?;
        // The release is posted, and the lock freed before it arrives.
        drop(root.lock().acquire(ct).await?);
        ct.delete(root).await?;
        ct.sleep(Duration::from_micros(10)).await;
        Ok(())
    });
    assert_eq!(found, Finding::UseAfterFree);
    assert!(report.contains("WRITE of 8 bytes"), "{report}");
}

#[test]
fn memory_that_was_never_allocated_is_not_accessed() {
    let (found, report) = finding("sim:", 1, async |ct| {
        RemotePtr::<Page>::from_address(Address::new(0, 1 << 20)).read(&ct.pin()).await.map(drop)
    });
    assert_eq!(found, Finding::WildAccess);
    assert!(report.contains("where no object was ever allocated"), "{report}");
    let (found, report) = finding("sim:", 1, async |ct| {
        let cells = cells(ct).await?;
        RemotePtr::<Page>::from_address(cells.address()).read(&ct.pin()).await.map(drop)
    });
    assert_eq!(found, Finding::WildAccess);
    assert!(report.contains("past the end of the `Cells`"), "{report}");
}

#[test]
fn a_second_free_is_found() {
    let (found, report) = finding("sim:", 1, async |ct| {
        let page = Page::new_in(ct, Page::init([1; 16])).await?.write(ct).await?;
        ct.delete(page).await?;
        ct.delete(page).await
    });
    assert_eq!(found, Finding::DoubleFree);
    assert!(report.contains("free of 0:0x") && report.contains("`Page`"), "{report}");
    let (found, _) = finding("sim:", 1, async |ct| {
        let page = Page::new_in(ct, Page::init([1; 16])).await?.write(ct).await?;
        let g = &ct.pin();
        g.sched_reclaim(page.shared(g)).await?;
        g.sched_reclaim(page.shared(g)).await
    });
    assert_eq!(found, Finding::DoubleFree);
}

#[test]
fn unreachable_objects_at_the_end_are_found() {
    let lose = async |ct: &ComputeThread| {
        let page = Page::new_in(ct, Page::init([1; 16])).await?.write(ct).await?;
        // An object that is reachable from a root is no leak.
        if ct.cluster().url().contains("seed=2") {
            cells(ct).await?.cells().at(3).store(ct, page.address().bits()).await?;
        }
        Ok(())
    };
    let (found, report) = finding("sim:seed=1", 2, lose);
    assert_eq!(found, Finding::Leak);
    assert!(report.contains("the `Page` at") && report.contains("(and 1 more)"), "{report}");
    assert_eq!(finding("sim:seed=2", 2, lose).0, Finding::Leak, "the second object has replaced the first");
    Cluster::connect("sim:seed=2").unwrap().run(1, lose).unwrap();
    Cluster::connect("sim:seed=1,leaks=ignore").unwrap().run(1, lose).unwrap();
}

// ---- runs that do not end --------------------------------------------------------------------------------------

#[test]
fn a_deadlock_is_reported() {
    let (found, report) = finding("sim:", 2, async |ct| {
        let root = cells(ct).await?;
        root.cells().at(2).fetch_add(ct, 1).await?;
        if ct.index() == 1 { std::future::pending().await } else { Ok(()) }
    });
    assert_eq!(found, Finding::Deadlock);
    assert!(report.contains("thread 1 waits after `FAA") && report.contains("Cells.cells+16"), "{report}");
}

#[test]
fn a_lock_that_is_never_released_is_reported() {
    let (found, report) = finding("sim:", 2, async |ct| {
        let root = cells(ct).await?;
        let _held = root.lock().acquire(ct).await?;
        ct.barrier("never").await
    });
    assert_eq!(found, Finding::Livelock);
    assert!(
        report.contains("Cells.lock free -> held by thread") && report.contains("failed: it is held by"),
        "{report}"
    );
}

#[test]
fn endless_yielding_is_reported() {
    let (found, _) = finding("sim:", 1, async |ct| {
        let root = cells(ct).await?;
        while root.cells().at(0).load(ct).await? == 0 {
            ct.yield_now().await;
        }
        Ok(())
    });
    assert_eq!(found, Finding::Livelock);
}

#[test]
fn a_run_that_changes_memory_for_ever_is_out_of_time() {
    let (found, report) = finding("sim:limit=1ms", 2, async |ct| {
        let root = cells(ct).await?;
        loop {
            root.cells().at(0).fetch_add(ct, 1).await?;
        }
    });
    assert_eq!(found, Finding::OutOfTime);
    assert!(report.contains("not done after 1000.000 us") && report.contains("thread 1 waits"), "{report}");
}

#[test]
fn many_reads_without_a_write_are_no_livelock() {
    let (cluster, _) = simulation("sim:leaks=ignore");
    cluster
        .run(2, async |ct| {
            let root = cells(ct).await?;
            if ct.index() == 0 {
                for _ in 0..20_000 {
                    root.cells().at(1).load(ct).await?;
                }
            }
            ct.barrier("met").await
        })
        .unwrap();
}

#[test]
fn a_sleeper_is_waited_for() {
    let (cluster, simulation) = simulation("sim:leaks=ignore");
    let run = cluster.run(4, async |ct| {
        if ct.index() == 0 {
            ct.sleep(Duration::from_secs(20)).await;
        }
        ct.barrier("met").await
    });
    run.unwrap();
    assert!(simulation.now() > Duration::from_secs(20));
}

#[test]
fn one_run_at_a_time() {
    let cluster = Cluster::connect("sim:").unwrap();
    let second = || match cluster.run(1, async |_| Ok(())) {
        Err(Error::InvalidArgument(argument)) => Ok(argument.to_string()),
        other => panic!("{other:?}"),
    };
    // On another thread of the system, since a run inside a run is always refused.
    let refused = cluster.run(1, async |_| std::thread::scope(|scope| scope.spawn(second).join().unwrap()));
    assert!(refused.unwrap()[0].contains("one run at a time"));
}

// ---- cancellation ----------------------------------------------------------------------------------------------

/// Chains overtake each other, but a compensation must not overtake the operation that it undoes.
#[farfield::test(sim, cluster = "sim:jitter=100%,limit=1s", seeds = 0..200)]
async fn an_acquisition_that_is_dropped_in_flight_releases_the_lock(ct: &ComputeThread) -> Result<()> {
    let root = cells(ct).await?;
    {
        let mut acquisition = std::pin::pin!(root.lock().acquire(ct));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(acquisition.as_mut().poll(&mut context).is_pending());
    }
    Ok(root.lock().acquire(ct).await?.release().await?)
}

// ---- order of words --------------------------------------------------------------------------------------------

/// A word that is read before another, which lies in front of it, may be older.
#[test]
fn the_words_of_a_read_have_no_order_if_it_is_asked_for() {
    let torn = |url: &str| {
        let cluster = Cluster::connect(url).unwrap();
        let run = cluster.run(2, async |ct| {
            let root = cells(ct).await?;
            let mut torn = 0;
            for round in 1..100 {
                if ct.index() == 0 {
                    // The last word first.
                    let stores = (op::store(root.cells().at(7), round), op::store(root.cells().at(0), round));
                    ct.pin().chain(stores).submit().await?;
                } else {
                    let g = ct.pin();
                    let read = root.read(&g).await?;
                    torn += u32::from(read.cells[7] < read.cells[0]);
                }
            }
            Ok(torn)
        });
        run.unwrap().into_iter().sum::<u32>()
    };
    let all =
        |words: &str| (0..50).map(|seed| torn(&format!("sim:seed={seed},jitter=90%{words}"))).sum::<u32>();
    assert_eq!(all(""), 0);
    assert!(all(",words=any") > 0);
}

/// A root is published by a WRITE of its words, and then of its state: a READ of both may find the new state and the old words.
#[farfield::test(sim, cluster = "sim:jitter=90%,stall=3%,words=any,leaks=ignore", threads = 4, seeds = 0..1000)]
async fn a_root_that_was_just_published_is_not_read_as_null(ct: &ComputeThread) -> Result<()> {
    for name in ["a", "b", "c"] {
        let root =
            ct.root_or_init(name, async || Cells::new_in(ct, Cells::init()).await?.write(ct).await).await?;
        assert!(!root.is_null());
        root.cells().at(0).fetch_add(ct, 1).await?;
    }
    Ok(())
}
