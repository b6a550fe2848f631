//! Values, locks, memory and epochs that a thread keeps from others: the report names that thread.
//!
//! Waits for memory and for the epoch end after 100 ms of real time. So a case repeats them until one has been reported.

use farfield::{Address, Error};

use super::*;

#[remote]
struct Thing {
    words: [u64; 16],
    next: Link<Thing>,
}

fn word(at: Address, index: u64) -> Place<'static, Atomic<u64>> {
    Place::from_address(at.add(8 * index))
}

/// Leaves the value as a writer that stops between two words of its last chain, until [`finish_writing`].
pub(super) async fn stop_in_the_middle(at: RemotePtr<Node>, ct: &ComputeThread) -> Result<()> {
    let lock = at.lock().acquire(ct).await?;
    let token = word(at.lock().address(), 0).load(ct).await?;
    for (index, value) in [token, 7, 99].into_iter().enumerate() {
        word(at.value().address(), index as u64).store(ct, value).await?;
    }
    Ok(lock.release().await?)
}

/// Ends the write.
pub(super) async fn finish_writing(at: RemotePtr<Node>, ct: &ComputeThread) -> Result<()> {
    for (index, value) in [(1, 8), (0, 0)] {
        word(at.value().address(), index).store(ct, value).await?;
    }
    Ok(())
}

/// A reader, task 0, and a writer, task 1, wait for a value.
pub(super) async fn use_value(at: RemotePtr<Node>, ct: &ComputeThread) -> Result<()> {
    ct.tasks(
        2,
        async |task| {
            if task == 0 { at.value().read(ct).await.map(drop) } else { at.value().write(ct, 3).await }
        },
    )
    .await
    .map(drop)
}

/// Makes a thing and retires it.
pub(super) async fn make_and_retire(ct: &ComputeThread) -> Result<()> {
    let g = &ct.pin();
    let thing = Thing::new_in(g, Thing::init([7; 16])).await?.write(g).await?;
    g.sched_reclaim(thing.shared(g)).await
}

/// Retires things until that fails, and returns the error; `None` if the report was read first: then it may not fail any more.
pub(super) async fn until_it_fails(ct: &ComputeThread, began: Instant) -> Option<Error> {
    while !is_report_read(began) {
        if let Err(error) = make_and_retire(ct).await {
            return Some(error);
        }
    }
    None
}

/// Prints a value of a case, for the test that has started it.
pub(super) fn tell(what: &str, value: impl std::fmt::Display) {
    eprintln!("{SAYS}{what}={value}");
}

/// Returns the value that a case has printed.
fn said(lines: &[String], what: &str) -> String {
    let says = format!("{SAYS}{what}=");
    lines
        .iter()
        .find_map(|line| line.strip_prefix(&says))
        .unwrap_or_else(|| panic!("{what} in {lines:#?}"))
        .to_owned()
}

/// Checks that there is a line about this wait, and that each one has all of these parts.
pub(super) fn assert_each_reported_with(lines: &[String], about: &str, what: &[&str]) {
    let told: Vec<_> = lines.iter().filter(|line| line.contains(about)).collect();
    assert!(!told.is_empty(), "{about} in {lines:#?}");
    assert!(told.iter().all(|line| what.iter().all(|what| line.contains(what))), "{what:?} in {told:#?}");
}

#[test]
fn a_value_half_written_by_a_live_writer_is_reported_for_reader_and_writer() {
    const TEST: &str = "held::a_value_half_written_by_a_live_writer_is_reported_for_reader_and_writer";
    if let Some((_, cluster)) = case() {
        let run = cluster.run(2, async |ct| {
            let at = node(ct).await?;
            if ct.index() == 0 {
                tell("writer", ct.id());
                tell("value", at.value().address());
                stop_in_the_middle(at, ct).await?;
                ct.barrier("stopped").await?;
                a_long_time(ct).await;
                return finish_writing(at, ct).await;
            }
            ct.barrier("stopped").await?;
            use_value(at, ct).await
        });
        run.unwrap();
        return;
    }
    for cluster in ["local:size=1MiB", "local:size=1MiB,delay=3", "sim:", "sim:threads-per-node=2"] {
        let lines = stalls(TEST, "value", cluster, "50ms", &["the write lock of", "to be written"]);
        let field = if cluster.starts_with("sim:") { " (Node.value)" } else { "" };
        let at = format!("the value at {}{field}", said(&lines, "value"));
        let holder = format!("held by thread {} of this process, which runs", said(&lines, "writer"));
        assert_reported_once(&lines, &["thread 1 (", "task 0: ", &format!("{at} to be written, {holder}")]);
        assert_reported_once(
            &lines,
            &["thread 1 (", "task 1: ", &format!("the write lock of {at}, {holder}")],
        );
    }
}

#[test]
fn of_several_locks_the_last_one_waited_for_is_reported() {
    const TEST: &str = "held::of_several_locks_the_last_one_waited_for_is_reported";
    if let Some((_, cluster)) = case() {
        let run = cluster.run(3, async |ct| {
            let make = async || Node::new_in(ct, Node::init(1)).await?.write(ct).await;
            let nodes = [node(ct).await?, ct.root_or_init("second", make).await?];
            if ct.index() == 1 {
                let g = &ct.pin();
                ct.barrier("held").await?;
                let locks = nodes.map(|node| (node.shared(g).lock(), node.shared(g)));
                return ct.tasks(1, async |_| g.lock_and_read(locks).await.map(drop)).await.map(drop);
            }
            let held = nodes[ct.index() / 2].lock().acquire(ct).await?;
            if ct.index() == 2 {
                tell("holder", ct.id());
                tell("lock", nodes[1].lock().address());
            }
            ct.barrier("held").await?;
            if ct.index() == 2 {
                a_long_time(ct).await;
            } else {
                // In virtual time, the other thread has tried both by then.
                ct.sleep(Duration::from_millis(10)).await;
            }
            Ok(held.release().await?)
        });
        run.unwrap();
        return;
    }
    for cluster in ["local:size=1MiB", "local:size=1MiB,delay=3", "sim:"] {
        let lines = stalls(TEST, "locks", cluster, "100ms", &["the lock at"]);
        let field = if cluster == "sim:" { " (Node.lock)" } else { "" };
        let lock = format!("the lock at {}{field}", said(&lines, "lock"));
        let holder = format!("held by thread {} of this process, which runs", said(&lines, "holder"));
        assert_reported_once(&lines, &["thread 1 (", "task 0: ", &format!("{lock}, {holder}")]);
    }
}

/// Thread 0 keeps a guard while thread 1 waits, again and again.
fn waits_for_a_guard(cluster: &Cluster, ends: impl Fn(&Error) -> bool + Sync) {
    let (is_over, began) = (AtomicBool::new(false), Instant::now());
    let run = cluster.run(2, async |ct| {
        loop {
            let guard = (ct.index() == 0).then(|| ct.pin());
            ct.barrier("pinned").await?;
            if ct.index() == 1 {
                // An allocation waits each time while the guard is kept. A wait for the epoch fails immediately from the second time on.
                for _ in 0..3 {
                    let error = until_it_fails(ct, began).await;
                    assert!(error.as_ref().is_none_or(&ends), "{error:?}");
                }
                is_over
                    .store(ct.cluster().simulation().is_some() || is_report_read(began), Ordering::Relaxed);
            }
            ct.barrier("told").await?;
            drop(guard);
            if is_over.load(Ordering::Relaxed) {
                return Ok(());
            }
            ct.barrier("dropped").await?;
        }
    });
    run.unwrap();
}

#[test]
fn a_shortage_of_memory_is_reported_with_its_cause() {
    const TEST: &str = "held::a_shortage_of_memory_is_reported_with_its_cause";
    if let Some((_, cluster)) = case() {
        waits_for_a_guard(&cluster, |error| matches!(error, Error::OutOfMemory(_)));
        return;
    }
    for (cluster, holder) in [
        ("local:size=1MiB,max-retired=1GiB", "thread 0 of this process is behind, with a guard"),
        ("local:size=1MiB,max-retired=1GiB,delay=3", "thread 0 of this process is behind, with a guard"),
        (
            "sim:rtt=10us,size=1MiB,max-retired=1GiB,leaks=ignore,threads-per-node=2",
            "thread 0 of this process is behind, with a guard",
        ),
        (
            "sim:rtt=10us,size=1MiB,max-retired=1GiB,leaks=ignore",
            "thread 0 on compute node 0 is behind, with a guard",
        ),
    ] {
        let lines = stalls(TEST, "memory", cluster, "1ms", &["free memory; "]);
        assert_each_reported_with(
            &lines,
            "free memory; ",
            &["thread 1 (", "task 0: ", "free memory; the epoch is ", holder],
        );
    }
}

#[test]
fn an_epoch_that_does_not_advance_is_reported_with_the_guards_thread() {
    const TEST: &str = "held::an_epoch_that_does_not_advance_is_reported_with_the_guards_thread";
    if let Some((_, cluster)) = case() {
        waits_for_a_guard(&cluster, |error| matches!(error, Error::ReclamationHeldBack(_)));
        return;
    }
    for (cluster, holder) in [
        ("local:size=1MiB,max-retired=16KiB", "thread 0 of this process is behind, with a guard"),
        ("local:size=1MiB,max-retired=16KiB,delay=3", "thread 0 of this process is behind, with a guard"),
        (
            "sim:rtt=10us,size=1MiB,max-retired=16KiB,leaks=ignore,threads-per-node=2",
            "thread 0 of this process is behind, with a guard",
        ),
        (
            "sim:rtt=10us,size=1MiB,max-retired=16KiB,leaks=ignore",
            "thread 0 on compute node 0 is behind, with a guard",
        ),
    ] {
        let lines = stalls(TEST, "epoch", cluster, "1ms", &["the epoch is "]);
        assert_each_reported_with(&lines, "the epoch is ", &["thread 1 (", "task 0: ", holder]);
    }
}

/// Thread 1 dies with allocated objects, and thread 0 keeps a guard.
#[test]
fn a_simulated_sweep_that_waits_for_a_guard_is_reported_with_the_guards_thread() {
    const TEST: &str = "held::a_simulated_sweep_that_waits_for_a_guard_is_reported_with_the_guards_thread";
    if let Some((_, cluster)) = case() {
        let run = cluster.run_surviving(3, async |ct| {
            let at = node(ct).await?;
            let _guard = (ct.index() == 0).then(|| ct.pin());
            if ct.index() == 1 {
                let _thing = Thing::new_in(ct, Thing::init([7; 16])).await?.write(ct).await?;
                ct.cluster().simulation().expect("simulated").inject(farfield::sim::Fault::crash(1));
            }
            at.value().read(ct).await?;
            a_long_time(ct).await;
            Ok(())
        });
        assert_eq!(run.unwrap(), [Some(()), None, Some(())]);
        return;
    }
    let about = "its sweep of dead members' memory; ";
    let lines = stalls(TEST, "sweep", "sim:dead=marked,sweep=yes,leaks=ignore", "50ms", &[about]);
    assert_each_reported_with(
        &lines,
        about,
        &[
            "farfield: stalled: thread ",
            "the epoch is ",
            "thread 0 on compute node 0 is behind, with a guard",
        ],
    );
    assert_eq!(lines.iter().filter(|line| line.contains(about)).count(), 1, "{lines:#?}");
}
