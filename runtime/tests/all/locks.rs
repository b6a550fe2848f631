//! Locks that are taken twice, released by a panic, or released in vain; on every fabric that needs no other process.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use farfield::prelude::*;
use farfield::sim::Fault;
use farfield::{Address, Error};
use futures_util::future::{try_join, try_join_all};
use futures_util::stream::{FuturesUnordered, TryStreamExt};

const FABRICS: [&str; 3] = ["local:", "local:delay=3", "sim:leaks=ignore"];

#[remote]
struct Cell {
    value: Atomic<u64>,
    lock: Lock,
}

async fn cell(ct: &ComputeThread, name: &str) -> Result<RemotePtr<Cell>> {
    ct.root_or_init(name, async || Cell::new_in(ct, Cell::init()).await?.write(ct).await).await
}

fn everywhere(threads: usize, body: impl AsyncFn(&ComputeThread) -> Result<()> + Sync) {
    for url in FABRICS {
        Cluster::connect(url).unwrap().run(threads, &body).unwrap_or_else(|error| panic!("{url}: {error}"));
    }
}

fn twice<T>(result: Result<T>) -> Address {
    match result {
        Err(Error::LockTakenTwice(twice)) => twice.lock,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it was taken"),
    }
}

// ---- taken twice -------------------------------------------------------------------------------------------------

#[test]
fn a_task_that_waits_for_its_own_lock_gets_an_error() {
    everywhere(1, async |ct| {
        let at = cell(ct, "cell").await?;
        let held = at.lock().acquire(ct).await?;
        assert_eq!(twice(at.lock().acquire(ct).await), at.lock().address());
        assert!(at.lock().try_acquire(ct).await?.is_none());
        held.release().await?;
        // The released lock is not remembered.
        at.lock().acquire(ct).await?.release().await?;
        drop(at.lock().acquire(ct).await?);
        Ok(at.lock().acquire(ct).await?.release().await?)
    });
}

#[test]
fn a_forgotten_guard_holds_its_lock() {
    everywhere(1, async |ct| {
        let at = cell(ct, "cell").await?;
        std::mem::forget(at.lock().acquire(ct).await?);
        assert_eq!(twice(at.lock().acquire(ct).await), at.lock().address());
        Ok(())
    });
}

#[test]
fn lock_and_read_refuses_the_same_lock_twice() {
    everywhere(1, async |ct| {
        let g = &ct.pin();
        let [one, two] = [cell(ct, "one").await?, cell(ct, "two").await?];
        let pair = |cell: RemotePtr<Cell>| (cell.lock(), cell.shared(g));
        let before = ct.metrics();
        assert_eq!(twice(g.lock_and_read([pair(one), pair(two), pair(one)]).await), one.lock().address());
        assert_eq!((ct.metrics() - before).cas, 0, "the mistake is found before an operation is posted");
        // The task already holds one of the locks, or all.
        let held = one.lock().acquire(ct).await?;
        assert_eq!(twice(g.lock_and_read([pair(two), pair(one)]).await), one.lock().address());
        let both = [held, two.lock().acquire(ct).await?];
        assert_eq!(twice(g.lock_and_read([pair(one), pair(two)]).await), one.lock().address());
        drop(both);
        let taken = g.lock_and_read([pair(one), pair(two)]).await?;
        drop(taken);
        Ok(())
    });
}

#[test]
fn a_chain_does_not_take_a_lock_twice() {
    everywhere(1, async |ct| {
        let [one, two] = [cell(ct, "one").await?, cell(ct, "two").await?];
        for is_posted in [false, true] {
            let g = &ct.pin();
            let first = (op::try_lock(one.lock()), op::store(one.value(), 7));
            let chain = g.chain((first, op::try_lock(two.lock()), op::try_lock(one.lock())));
            let refused = if is_posted { chain.post() } else { chain.submit().await.map(drop) };
            assert_eq!(twice(refused), one.lock().address());
            assert!(!one.lock().state(ct).await?.is_held() && !two.lock().state(ct).await?.is_held());
            assert_eq!(one.value().load(ct).await?, 0, "nothing was posted");
        }
        // A lock that is released in between may be taken again.
        let g = &ct.pin();
        let held = one.lock().acquire(ct).await?;
        let ((), again) = g.chain((op::release(held), op::try_lock(one.lock()))).submit().await?;
        let held = again.expect("it was released before");
        Ok(held.release().await?)
    });
}

#[test]
fn tasks_wait_for_siblings_but_not_for_the_task_that_waits_for_them() {
    everywhere(1, async |ct| {
        let at = cell(ct, "cell").await?;
        let count = async || {
            for _ in 0..20 {
                let held = at.lock().acquire(ct).await?;
                let seen = at.value().load(ct).await?;
                ct.yield_now().await;
                at.value().store(ct, seen + 1).await?;
                held.release().await?;
            }
            Ok(())
        };
        // Tasks of tasks: both sets have tasks of the same numbers.
        ct.tasks(3, async |_| ct.tasks(3, async |_| count().await).await).await?;
        assert_eq!(at.value().load(ct).await?, 9 * 20);
        let held = at.lock().acquire(ct).await?;
        // The waiting task gets the error even while its sibling is busy, which ends at some time.
        let told = ct.tasks(2, async |task| {
            if task == 0 {
                return Ok(ct.tasks(1, async |_| Ok(twice(at.lock().acquire(ct).await))).await?[0]);
            }
            for _ in 0..1000 {
                ct.yield_now().await;
            }
            Ok(at.lock().address())
        });
        assert_eq!(told.await?, [at.lock().address(); 2]);
        drop(held);
        // The locks of an ended task are held by the task that waited for it.
        let guards = ct.tasks(1, async |_| at.lock().acquire(ct).await).await?;
        assert_eq!(twice(at.lock().acquire(ct).await), at.lock().address());
        drop(guards);
        Ok(at.lock().acquire(ct).await?.release().await?)
    });
}

#[test]
fn joined_futures_of_one_task_wait_for_each_others_locks() {
    everywhere(2, async |ct| {
        let [at, other] = [cell(ct, "cell").await?, cell(ct, "other").await?];
        // A combinator that polls only woken futures does not poll a sleeping one.
        let sleeper = async |yields: u64| {
            let held = at.lock().acquire(ct).await?;
            for _ in 0..yields {
                ct.sleep(Duration::from_millis(1)).await;
            }
            Ok::<(), Error>(held.release().await?)
        };
        (0..3).map(&sleeper).collect::<FuturesUnordered<_>>().try_collect::<()>().await?;
        let count = async |waits: usize| -> Result<()> {
            for _ in 0..10 {
                let held = at.lock().acquire(ct).await?;
                let seen = at.value().load(ct).await?;
                match waits {
                    // A future waits in each possible way while it holds the lock.
                    0 => ct.yield_now().await,
                    1 => ct.sleep(Duration::from_micros(20)).await,
                    2 => drop(ct.tasks(2, async |_| other.value().fetch_add(ct, 1).await).await?),
                    3 => drop(other.lock().acquire(ct).await?),
                    _ => drop(ct.try_reclaim().await),
                }
                at.value().store(ct, seen + 1).await?;
                held.release().await?;
            }
            Ok(())
        };
        try_join(count(0), try_join(count(1), try_join(count(2), count(3)))).await?;
        try_join_all((0..4).map(&count)).await?;
        (0..5).map(&count).collect::<FuturesUnordered<_>>().try_collect::<()>().await?;
        ct.barrier("counted").await?;
        assert_eq!(at.value().load(ct).await?, 2 * 130);
        Ok(())
    });
}

// ---- panics ------------------------------------------------------------------------------------------------------

/// Takes a lock, and returns whether the protected data needs recovery.
async fn needs_recovery(at: RemotePtr<Cell>, ct: &ComputeThread) -> Result<bool> {
    let mut held = at.lock().acquire(ct).await?;
    let needed = held.needs_recovery();
    held.recovered();
    held.release().await?;
    Ok(needed)
}

#[test]
fn a_lock_released_by_a_panic_needs_recovery() {
    everywhere(1, async |ct| {
        let at = cell(ct, "cell").await?;
        let held = at.lock().acquire(ct).await?;
        let panics = |held: Option<LockGuard<'_>>| {
            let caught = catch_unwind(AssertUnwindSafe(move || {
                let _held = held;
                std::panic::resume_unwind(Box::new("in the middle of it"));
            }));
            assert!(caught.is_err());
        };
        panics(Some(held));
        assert!(at.lock().state(ct).await?.is_abandoned());
        assert!(needs_recovery(at, ct).await?);
        assert!(!needs_recovery(at, ct).await?, "the previous owner has recovered it");
        // A panic that is over, or one of another holder, does not mark the lock.
        let held = at.lock().acquire(ct).await?;
        panics(None);
        drop(held);
        assert!(!needs_recovery(at, ct).await?);
        // The lock of a chain that was to release it, and whose CAS result was not read.
        let g = &ct.pin();
        let chain = g.chain((op::store(at.value(), 1), op::release(at.lock().acquire(ct).await?)));
        let caught = catch_unwind(AssertUnwindSafe(move || {
            let _chain = chain;
            std::panic::resume_unwind(Box::new("before it is posted"));
        }));
        assert!(caught.is_err() && needs_recovery(at, ct).await?);
        Ok(())
    });
}

/// Takes and releases a lock when dropped, during a panic that began before.
struct LocksWhenDropped<'a>(RemotePtr<Cell>, &'a ComputeThread);

impl Drop for LocksWhenDropped<'_> {
    fn drop(&mut self) {
        use std::future::Future;
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let mut acquired = std::pin::pin!(self.0.lock().acquire(self.1));
        match acquired.as_mut().poll(&mut context) {
            std::task::Poll::Ready(held) => drop(held.unwrap()),
            std::task::Poll::Pending => panic!("an embedded cluster completes immediately"),
        }
    }
}

#[test]
fn a_lock_taken_during_a_panic_needs_no_recovery() {
    let cluster = Cluster::connect("local:").unwrap();
    let run = cluster.run(1, async |ct| {
        let at = cell(ct, "cell").await?;
        let caught = catch_unwind(AssertUnwindSafe(|| {
            let _locks = LocksWhenDropped(at, ct);
            std::panic::resume_unwind(Box::new("before the lock is taken"));
        }));
        assert!(caught.is_err());
        needs_recovery(at, ct).await
    });
    assert_eq!(run.unwrap(), [false]);
}

/// A panic marks all locks of its thread, those of other tasks too.
#[test]
fn a_thread_that_panics_leaves_its_locks_in_need_of_recovery() {
    for url in ["local:", "local:delay=3"] {
        let cluster = Cluster::connect(url).unwrap();
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            cluster.run(2, async |ct| {
                let cells = [cell(ct, "one").await?, cell(ct, "two").await?];
                ct.barrier("made").await?;
                if ct.index() == 1 {
                    return Ok(());
                }
                ct.tasks(2, async |task| {
                    let _held = cells[task].lock().acquire(ct).await?;
                    while task == 0 || !cells[0].lock().state(ct).await?.is_held() {
                        ct.yield_now().await;
                    }
                    std::panic::resume_unwind(Box::new("with two locks"));
                    #[allow(unreachable_code)]
                    Ok(())
                })
                .await
                .map(drop)
            })
        }));
        assert!(panicked.is_err());
        let told = cluster.run(1, async |ct| {
            let cells = [cell(ct, "one").await?, cell(ct, "two").await?];
            Ok([needs_recovery(cells[0], ct).await?, needs_recovery(cells[1], ct).await?])
        });
        assert_eq!(told.unwrap(), [[true; 2]], "{url}");
    }
}

// ---- releases that fail ------------------------------------------------------------------------------------------

const CUT: &str = "sim:rtt=2us,timeout=100us,jitter=0%,compute=0,leaks=ignore";

/// Cuts the link to the memory node for longer than the timeout. With `late`, operations that are posted now arrive, but
/// their answers do not.
fn cut(ct: &ComputeThread, late: bool) {
    let fault = Fault::cut(0, 0, Duration::from_micros(200));
    let fault = if late { fault.at(ct.now() + Duration::from_micros(1)) } else { fault };
    ct.cluster().simulation().expect("it is simulated").inject(fault);
}

#[test]
fn a_failed_release_can_be_retried() {
    for late in [false, true] {
        let run = Cluster::connect(CUT).unwrap().run(1, async |ct| {
            let at = cell(ct, "cell").await?;
            let held = at.lock().acquire(ct).await?;
            cut(ct, late);
            let failed = held.release().await.expect_err("the link is cut");
            assert!(matches!(failed.error, Error::NodeUnreachable(_)), "{failed}");
            assert!(failed.to_string().contains("may still be held"), "{failed}");
            let failed = if late { failed } else { failed.guard.release().await.expect_err("still cut") };
            ct.sleep(Duration::from_micros(150)).await;
            assert_eq!(at.lock().state(ct).await?.is_held(), !late);
            failed.guard.release().await?;
            assert!(!at.lock().state(ct).await?.is_held());
            Ok(!needs_recovery(at, ct).await?)
        });
        assert_eq!(run.unwrap(), [true]);
    }
}

/// A release fails, in each way of releasing a lock: the owner's thread continues, and so do the threads that wait for the lock.
#[test]
fn a_failed_release_is_retried_in_the_background() {
    for (late, way) in [false, true].into_iter().flat_map(|late| (0..5).map(move |way| (late, way))) {
        let run = Cluster::connect(CUT).unwrap().run(2, async |ct| {
            let at = cell(ct, "cell").await?;
            if ct.index() == 1 {
                while at.value().load(ct).await? == 0 {
                    ct.sleep(Duration::from_micros(10)).await;
                }
                return needs_recovery(at, ct).await;
            }
            let held = at.lock().acquire(ct).await?;
            at.value().store(ct, 1).await?;
            if way != 4 {
                cut(ct, late);
            }
            match way {
                0 => drop(held),
                1 => drop(held.release().await.expect_err("the link is cut")),
                2 => {
                    let g = &ct.pin();
                    let chain = g.chain((op::store(at.value(), 2), op::release(held)));
                    chain.submit().await.expect_err("the link is cut");
                }
                3 => {
                    let g = &ct.pin();
                    g.chain((op::store(at.value(), 2), op::release(held))).post()?;
                }
                _ => {
                    // The answer of an acquisition is lost.
                    held.release().await?;
                    cut(ct, late);
                    assert!(at.lock().acquire(ct).await.is_err());
                }
            }
            // The thread continues, although some of its operations fail, too.
            while ct.now() < Duration::from_millis(2) {
                ct.sleep(Duration::from_micros(50)).await;
                drop(at.value().load(ct).await);
            }
            Ok(false)
        });
        // If the chain's changes may be missing, the next owner learns it from `needs_recovery`.
        let is_told = !late && (way == 2 || way == 3);
        assert_eq!(
            run.unwrap_or_else(|error| panic!("{late} {way}: {error}")),
            [false, is_told],
            "{late} {way}"
        );
    }
}

/// A claimed name is released if its root could not be published.
#[test]
fn a_name_whose_root_could_not_be_published_is_free_again() {
    let run = Cluster::connect(CUT).unwrap().run(2, async |ct| {
        if ct.index() == 1 {
            ct.sleep(Duration::from_micros(60)).await;
            return cell(ct, "cell").await?.value().load(ct).await;
        }
        let made = ct.root_or_init("cell", async || {
            let made = Cell::new_in(ct, Cell::init().value(1)).await?.write(ct).await?;
            ct.sleep(Duration::from_micros(100)).await;
            cut(ct, false);
            Ok(made)
        });
        assert!(matches!(made.await, Err(Error::NodeUnreachable(_))));
        while ct.now() < Duration::from_millis(2) {
            ct.sleep(Duration::from_micros(50)).await;
            drop(ct.lookup::<Cell>("none").await);
        }
        Ok(0)
    });
    assert_eq!(run.unwrap(), [0, 0], "the waiting thread created the root");
}

/// One operation of each attempt loses its answer, or is lost itself. The name is free again afterwards, also if that operation is the CAS that claims it.
#[test]
fn a_name_whose_claim_has_lost_its_answer_is_free_again() {
    let run = Cluster::connect(CUT).unwrap().run(1, async |ct| {
        let (mut claims, step) = (0, Duration::from_nanos(100));
        for number in 0..80 {
            let fault = Fault::cut(0, 0, Duration::from_micros(200)).at(ct.now() + number * step);
            ct.cluster().simulation().expect("it is simulated").inject(fault);
            let make = async || Cell::new_in(ct, Cell::init().value(1)).await?.write(ct).await;
            let failed = ct.root_or_init("cell", make).await.err().map(|error| error.to_string());
            claims += u32::from(failed.is_some_and(|error| error.contains("CAS of")));
            ct.sleep(Duration::from_micros(400)).await;
            let again = ct.within(Duration::from_millis(5), ct.root_or_init("cell", make)).await;
            again.map_err(|error| Error::other(format!("attempt {number}: {error}")))?;
            ct.unpublish::<Cell>("cell").await?;
        }
        Ok(claims)
    });
    let [claims] = run.unwrap()[..] else { panic!("one thread") };
    assert!(claims >= 20, "{claims} attempts to claim the name failed");
}
