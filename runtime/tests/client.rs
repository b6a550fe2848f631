//! Clients: work that other threads and executors send to compute threads.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use farfield::prelude::*;
use farfield::{Client, ClientOptions, Error, Result};
use futures_channel::oneshot;

#[remote]
struct Counter {
    value: Atomic<u64>,
}

async fn counter(ct: &ComputeThread) -> Result<Counter> {
    let root =
        ct.root_or_init("counter", async || Counter::new_in(ct, Counter::init()).await?.write(ct).await);
    Counter::attach(root.await?, ct).await
}

async fn add(ct: &ComputeThread, addend: u64) -> Result<u64> {
    counter(ct).await?.value().fetch_add(ct, addend).await
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The simplest executor: one future, and a thread that sleeps.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
        thread::park();
    }
}

/// Polls a future once.
fn poll_once<T>(future: &mut (impl Future<Output = T> + Unpin)) -> Poll<T> {
    std::pin::Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

fn client_of(url: &str, threads: usize, tasks: usize, queue: usize) -> Client {
    let mut options = ClientOptions::new();
    (options.threads, options.tasks, options.queue) = (threads, tasks, queue);
    Cluster::connect(url).unwrap().client_with(&options).unwrap()
}

/// Work that sends to the receiver when it begins, and continues when the sender is used or dropped.
fn gate() -> (impl AsyncFnOnce(&ComputeThread) -> Result<()> + Send, mpsc::Receiver<()>, oneshot::Sender<()>)
{
    let (has_begun, begun) = mpsc::channel();
    let (go_on, may_go_on) = oneshot::channel();
    let work = async move |_: &ComputeThread| {
        has_begun.send(()).unwrap();
        let _ = may_go_on.await;
        Ok(())
    };
    (work, begun, go_on)
}

/// Counts how many are dropped.
struct Dropped(Arc<AtomicUsize>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn is_send_sync_clone<T: Send + Sync + Clone + 'static>() {}
fn is_send<T: Send + 'static>(_: &T) {}

#[test]
fn a_client_is_send_sync_and_clone_and_its_calls_are_send() {
    is_send_sync_clone::<Client>();
    let client = client_of("local:size=64KiB", 1, 1, 1);
    let call = client.call(async |ct| {
        // A guard is not `Send`.
        let guard = ct.pin();
        ct.yield_now().await;
        drop(guard);
        Ok(())
    });
    is_send(&call);
    block_on(call).unwrap();
}

#[test]
fn calls_of_many_threads_are_all_done() {
    for url in ["local:size=1MiB", "local:size=1MiB,delay=5"] {
        let client = client_of(url, 2, 8, 4);
        thread::scope(|scope| {
            for _ in 0..4 {
                let client = client.clone();
                scope.spawn(move || {
                    for _ in 0..200 {
                        block_on(client.call(async |ct| add(ct, 1).await)).unwrap();
                    }
                });
            }
        });
        assert_eq!(block_on(client.call(async |ct| add(ct, 0).await)).unwrap(), 800, "{url}");
        block_on(client.shutdown()).unwrap();
    }
}

#[test]
fn a_call_returns_the_error_of_its_work() {
    let client = client_of("local:size=64KiB", 1, 1, 1);
    let error = block_on(client.call(async |ct| ct.lookup::<Counter>("none").await.map(drop)));
    assert!(matches!(error, Err(Error::RootNotFound { .. })), "{error:?}");
}

#[test]
fn a_call_dropped_before_it_begins_leaves_the_queue() {
    let client = client_of("local:size=64KiB", 1, 1, 1);
    let (work, begun, go_on) = gate();
    let mut busy = client.call(work);
    assert!(poll_once(&mut busy).is_pending());
    begun.recv().unwrap();
    let drops = Arc::new(AtomicUsize::new(0));
    for number in 1..=100 {
        let captured = Dropped(Arc::clone(&drops));
        let call = client.try_call(async move |_| {
            drop(captured);
            Ok(())
        });
        assert_eq!(client.waiting(), 1);
        drop(call.unwrap());
        // Dropped immediately, and on this thread: the only thread of the client is busy.
        assert_eq!((client.waiting(), drops.load(Ordering::SeqCst)), (0, number));
    }
    go_on.send(()).unwrap();
    block_on(busy).unwrap();
}

#[test]
fn a_call_that_is_dropped_is_cancelled_at_any_await() {
    const STEPS: usize = 5;
    let client = client_of("local:size=1MiB,delay=3", 1, 4, 4);
    for last in 0..STEPS {
        let (reached, steps) = mpsc::channel();
        let (ended, ends) = mpsc::channel::<()>();
        let mut call = client.call(async move |ct| {
            let _ended = ended;
            let counter = counter(ct).await?;
            for step in 0..STEPS {
                let guard = ct.pin();
                counter.value().fetch_add(&guard, 1).await?;
                reached.send(step).unwrap();
                if step == last {
                    std::future::pending::<()>().await;
                }
            }
            Ok(())
        });
        assert!(poll_once(&mut call).is_pending());
        while steps.recv().unwrap() != last {}
        drop(call);
        // The future and its guard are dropped, although nothing wakes the future.
        assert!(ends.recv().is_err());
        assert!(steps.recv().is_err());
        let guards = client.call(async |ct| Ok(ct.reclamation().await?.held_back_by));
        assert_eq!(block_on(guards).unwrap(), None);
    }
    let counted = block_on(client.call(async |ct| add(ct, 0).await)).unwrap();
    assert_eq!(counted, (1..=STEPS as u64).sum::<u64>());
}

#[test]
fn calls_dropped_at_any_moment_hold_no_lock_and_no_place_in_the_queue() {
    #[remote]
    struct Guarded {
        lock: Lock,
        value: Atomic<u64>,
    }
    let client = client_of("local:size=1MiB,delay=7", 2, 3, 2);
    let increment = async |ct: &ComputeThread| {
        let root =
            ct.root_or_init("guarded", async || Guarded::new_in(ct, Guarded::init()).await?.write(ct).await);
        let guarded = root.await?;
        let g = &ct.pin();
        let lock = guarded.lock().acquire(g).await?;
        let seen = guarded.value().load(g).await?;
        ct.yield_now().await;
        guarded.value().store(g, seen + 1).await?;
        lock.release().await?;
        Ok(())
    };
    thread::scope(|scope| {
        for caller in 0..3_usize {
            let client = client.clone();
            scope.spawn(move || {
                for turn in 0..200 {
                    let mut call = client.call(increment);
                    for _ in 0..(turn * 7 + caller) % 23 {
                        if poll_once(&mut call).is_ready() {
                            break;
                        }
                        thread::yield_now();
                    }
                }
            });
        }
    });
    assert_eq!(client.waiting(), 0);
    block_on(async {
        client.call(increment).await.unwrap();
        client.shutdown().await.unwrap();
    });
}

#[test]
fn a_call_whose_deadline_passes_in_the_queue_does_not_begin() {
    let client = client_of("local:size=64KiB", 1, 1, 1);
    let (work, begun, go_on) = gate();
    let mut busy = client.call(work);
    assert!(poll_once(&mut busy).is_pending());
    begun.recv().unwrap();
    let queued =
        client.try_call(async |_| -> Result<()> { unreachable!("its deadline has passed") }).unwrap();
    // The queue has room for one call: this one waits in line.
    let in_line = client.call(async |_| -> Result<()> { unreachable!("its deadline has passed") });
    let deadline = Duration::from_millis(1);
    for call in [in_line.deadline(deadline), queued.deadline(deadline)] {
        let error = block_on(call).unwrap_err();
        let Error::DeadlineExceeded(late) = &error else { panic!("{error}") };
        assert_eq!((late.deadline_us, late.has_begun), (1000, false));
        assert_eq!(error.to_string(), "not done within 1000 us: the work was not begun");
    }
    assert_eq!(client.waiting(), 0);
    go_on.send(()).unwrap();
    block_on(busy).unwrap();
}

#[test]
fn a_thread_skips_queued_work_whose_deadline_has_passed() {
    let client = client_of("local:size=64KiB", 1, 1, 2);
    let (work, begun, go_on) = gate();
    let mut busy = client.call(work);
    assert!(poll_once(&mut busy).is_pending());
    begun.recv().unwrap();
    let late = client.call(async |_| -> Result<()> { unreachable!("its deadline has passed") });
    let mut late = late.deadline(Duration::ZERO);
    // The call is in the queue, and is not polled after its deadline.
    let sent = client.try_call(async |_| Ok(())).unwrap();
    assert!(matches!(poll_once(&mut late), Poll::Ready(Err(Error::DeadlineExceeded { .. }))));
    go_on.send(()).unwrap();
    block_on(sent).unwrap();
}

#[test]
fn a_deadline_after_the_work_has_begun_cancels_it() {
    let client = client_of("local:size=64KiB", 1, 1, 1);
    let (has_begun, begun) = mpsc::channel();
    let mut stuck = client.call(async move |_| {
        has_begun.send(()).unwrap();
        std::future::pending::<Result<()>>().await
    });
    assert!(poll_once(&mut stuck).is_pending());
    begun.recv().unwrap();
    let error = block_on(stuck.deadline(Duration::from_millis(1))).unwrap_err();
    let text = "not done within 1000 us: the work was cancelled after it had begun";
    assert_eq!(error.to_string(), text);
    // Its future is dropped.
    assert!(begun.recv().is_err());
}

#[test]
fn a_call_s_deadline_overrides_the_client_s() {
    let mut options = ClientOptions::new();
    options.deadline = Some(Duration::ZERO);
    let client = Cluster::connect("local:size=64KiB").unwrap().client_with(&options).unwrap();
    let late = client.call(async |_| -> Result<()> { std::future::pending().await });
    assert!(matches!(block_on(late), Err(Error::DeadlineExceeded { .. })));
    let slow = client.call(async |ct| {
        ct.sleep(Duration::from_millis(5)).await;
        Ok(())
    });
    block_on(slow.deadline(Duration::MAX)).unwrap();
}

#[test]
fn a_full_queue_refuses_some_calls_and_delays_others_in_order() {
    let client = client_of("local:size=64KiB", 1, 1, 2);
    let (work, begun, go_on) = gate();
    let mut busy = client.call(work);
    assert!(poll_once(&mut busy).is_pending());
    begun.recv().unwrap();
    let order = Arc::new(std::sync::Mutex::new(Vec::new()));
    let note = |number: u32| {
        let order = Arc::clone(&order);
        async move |_: &ComputeThread| {
            order.lock().unwrap().push(number);
            Ok(())
        }
    };
    let queued = [client.try_call(note(0)).unwrap(), client.try_call(note(1)).unwrap()];
    let full = client.try_call(note(99)).unwrap_err();
    assert!(full.to_string().starts_with("the client's queue is full: 2 calls wait"), "{full}");
    let mut line: Vec<_> = (2..6).map(|number| client.call(note(number))).collect();
    for call in &mut line {
        assert!(poll_once(call).is_pending());
    }
    assert_eq!(client.waiting(), 2);
    // Room that becomes free is granted to the first call in line. A call that is dropped, with granted room or without, delays no other.
    drop(queued);
    assert_eq!(client.waiting(), 0);
    let newcomer = client.try_call(note(99)).unwrap_err();
    assert!(matches!(newcomer, Error::ClientFull { .. }), "waiting calls come first");
    drop(line.remove(0));
    drop(line.remove(2));
    for call in &mut line {
        assert!(poll_once(call).is_pending());
    }
    assert_eq!(client.waiting(), 2);
    go_on.send(()).unwrap();
    for call in line {
        block_on(call).unwrap();
    }
    assert_eq!(*order.lock().unwrap(), [3, 4]);
    block_on(busy).unwrap();
}

#[test]
fn shutdown_executes_accepted_calls_and_refuses_later_ones() {
    let client = client_of("local:size=1MiB", 1, 1, 2);
    let (work, begun, go_on) = gate();
    let mut busy = client.call(work);
    assert!(poll_once(&mut busy).is_pending());
    begun.recv().unwrap();
    let accepted = [0, 1].map(|_| client.try_call(async |ct| add(ct, 1).await).unwrap());
    let mut in_line = client.call(async |ct| add(ct, 1).await);
    assert!(poll_once(&mut in_line).is_pending());
    let mut shutdown = Box::pin(client.shutdown());
    assert!(poll_once(&mut shutdown).is_pending());
    assert!(client.is_closed());
    let closed = "the client is shut down: make another with `cluster.client()`";
    assert_eq!(block_on(in_line).unwrap_err().to_string(), closed);
    assert_eq!(block_on(client.call(async |ct| add(ct, 1).await)).unwrap_err().to_string(), closed);
    assert_eq!(client.try_call(async |ct| add(ct, 1).await).unwrap_err().to_string(), closed);
    go_on.send(()).unwrap();
    block_on(shutdown).unwrap();
    assert_eq!(accepted.map(|call| block_on(call).unwrap()), [0, 1]);
    block_on(busy).unwrap();
    block_on(client.clone().shutdown()).unwrap();
}

#[test]
fn dropping_the_last_handle_ends_the_threads_and_the_run() {
    let cluster = Cluster::connect("local:size=64KiB").unwrap();
    let client = cluster.client().unwrap();
    assert!(matches!(cluster.clear(), Err(Error::InvalidArgument { .. })), "a run is under way");
    let call = client.call(async |ct| Ok(ct.threads()));
    drop(client);
    // The call is a handle, too.
    assert_eq!(block_on(call).unwrap(), 1);
    cluster.clear().unwrap();
}

#[test]
fn a_panic_is_an_error_of_the_call_and_the_thread_continues() {
    struct PanicsWhenDropped;
    impl Drop for PanicsWhenDropped {
        fn drop(&mut self) {
            assert!(thread::panicking(), "in a destructor");
        }
    }
    let client = client_of("local:size=1MiB,delay=2", 1, 2, 2);
    let error = block_on(client.call(async |ct| {
        let _guard = ct.pin();
        add(ct, 1).await?;
        let seen = add(ct, 0).await?;
        assert_eq!(seen, 7, "not what was expected\nand more");
        Ok(())
    }));
    let error = error.unwrap_err().to_string();
    assert!(error.starts_with("the work of the call panicked: assertion"), "{error}");
    assert!(!error.contains('\n'), "{error}");
    let kept = block_on(client.call(async |_| {
        let _kept = PanicsWhenDropped;
        Ok(())
    }));
    assert!(matches!(kept, Err(Error::CallPanicked { .. })), "{kept:?}");
    // The work is cancelled while it holds one.
    let (has_begun, begun) = mpsc::channel();
    let mut cancelled = client.call(async move |_| {
        let _kept = PanicsWhenDropped;
        has_begun.send(()).unwrap();
        std::future::pending::<Result<()>>().await
    });
    assert!(poll_once(&mut cancelled).is_pending());
    begun.recv().unwrap();
    drop(cancelled);
    assert_eq!(block_on(client.call(async |ct| add(ct, 0).await)).unwrap(), 1);
    let held_back = client.call(async |ct| Ok(ct.reclamation().await?.held_back_by));
    assert_eq!(block_on(held_back).unwrap(), None);
}

#[test]
fn nested_calls_need_no_room() {
    let client = client_of("local:size=1MiB", 1, 1, 1);
    let within = client.clone();
    let (work, begun, go_on) = gate();
    let mut outer = client.call(async move |ct| {
        work(ct).await?;
        let inner = within.clone();
        let nested = within.call(async move |ct| {
            inner.call(async |ct| add(ct, 1).await).await?;
            add(ct, 1).await
        });
        nested.await
    });
    assert!(poll_once(&mut outer).is_pending());
    begun.recv().unwrap();
    // The only thread runs its only task, and the queue is full.
    let queued = client.try_call(async |ct| add(ct, 10).await).unwrap();
    go_on.send(()).unwrap();
    assert_eq!(block_on(outer).unwrap(), 1);
    assert_eq!(block_on(queued).unwrap(), 2);
}

#[test]
fn a_call_can_not_shut_its_client_down() {
    let client = client_of("local:size=64KiB", 1, 1, 1);
    let within = client.clone();
    let error = block_on(client.call(async move |_| within.shutdown().await)).unwrap_err();
    assert!(error.to_string().contains("it would wait for itself"), "{error}");
    assert!(!client.is_closed());
}

#[test]
fn the_last_handle_may_be_dropped_by_a_call() {
    let client = client_of("local:size=64KiB", 2, 2, 2);
    let (has_ended, ended) = mpsc::channel::<()>();
    let within = client.clone();
    let call = client.try_call(async move |ct| {
        let _has_ended = has_ended;
        ct.sleep(Duration::from_millis(1)).await;
        drop(within);
        Ok(())
    });
    drop(client);
    // The call continues without its client, until it is dropped.
    block_on(call.unwrap()).unwrap();
    assert!(ended.recv().is_err());
}

#[test]
fn a_future_of_another_crate_wakes_a_sleeping_thread_and_is_polled_seldom() {
    let cluster = Cluster::connect("local:size=64KiB").unwrap();
    let client = cluster.client().unwrap();
    let polls = Arc::new(AtomicUsize::new(0));
    let polled = Arc::clone(&polls);
    let (send, mut receive) = oneshot::channel::<u32>();
    let (has_begun, begun) = mpsc::channel();
    let mut call = client.call(async move |_| {
        has_begun.send(()).unwrap();
        poll_fn(move |context| {
            polled.fetch_add(1, Ordering::SeqCst);
            std::pin::Pin::new(&mut receive).poll(context)
        })
        .await
        .map_err(Error::other)
    });
    assert!(poll_once(&mut call).is_pending());
    begun.recv().unwrap();
    // A thread that did not sleep would poll it tens of thousands of times meanwhile.
    thread::sleep(Duration::from_millis(100));
    let polls = polls.load(Ordering::SeqCst);
    assert!(polls < 10, "{polls} polls");
    send.send(7).unwrap();
    assert_eq!(block_on(call).unwrap(), 7);
}

#[test]
fn a_thread_of_a_run_sleeps_until_it_is_woken() {
    let cluster = Cluster::connect("local:size=64KiB").unwrap();
    let (send, receive) = oneshot::channel();
    let ends = std::sync::Mutex::new((Some(send), Some(receive)));
    let polls = AtomicUsize::new(0);
    let values = cluster.run(2, async |ct| {
        if ct.index() == 0 {
            let mut receive = ends.lock().unwrap().1.take().unwrap();
            let receive = poll_fn(|context| {
                polls.fetch_add(1, Ordering::SeqCst);
                std::pin::Pin::new(&mut receive).poll(context)
            });
            return receive.await.map_err(Error::other);
        }
        ct.sleep(Duration::from_millis(50)).await;
        ends.lock().unwrap().0.take().unwrap().send(7).unwrap();
        Ok(0)
    });
    assert_eq!(values.unwrap(), [7, 0]);
    // A thread that did not sleep would poll it tens of thousands of times meanwhile.
    let polls = polls.load(Ordering::SeqCst);
    assert!(polls < 10, "{polls} polls");
}

#[test]
fn sleeping_threads_return_cached_memory_on_request() {
    #[remote]
    struct Large {
        words: [u64; 64],
    }
    let cluster = Cluster::connect("local:size=1MiB").unwrap();
    let (to_sleeper, sleeper) = oneshot::channel::<()>();
    let (is_asleep, asleep) = mpsc::channel();
    let (to_sleeper, sleeper, is_asleep, asleep) = (
        std::sync::Mutex::new(Some(to_sleeper)),
        std::sync::Mutex::new(Some(sleeper)),
        std::sync::Mutex::new(is_asleep),
        std::sync::Mutex::new(asleep),
    );
    cluster
        .run(2, async |ct| {
            let mut objects = Vec::new();
            if ct.index() == 0 {
                while let Ok(object) = Large::new_in(ct, Large::init([0; 64])).await {
                    objects.push(object.write(ct).await?);
                }
                let count = objects.len();
                for object in objects {
                    ct.delete(object).await?;
                }
                let sleeper = sleeper.lock().unwrap().take().unwrap();
                is_asleep.lock().unwrap().send(count).unwrap();
                // It sleeps with the blocks in its lists.
                sleeper.await.map_err(Error::other)?;
            } else {
                // Dropping the sender ends the sleep, too.
                let to_sleeper = to_sleeper.lock().unwrap().take().unwrap();
                let count = asleep.lock().unwrap().recv().unwrap();
                for _ in 0..count - count / 100 {
                    objects.push(Large::new_in(ct, Large::init([0; 64])).await?.write(ct).await?);
                }
                to_sleeper.send(()).unwrap();
            }
            Ok(())
        })
        .unwrap();
}

#[test]
fn runs_beside_a_client_reuse_memory_retired_by_earlier_runs() {
    #[remote]
    struct Large {
        words: [u64; 64],
    }
    let cluster = Cluster::connect("local:size=256KiB").unwrap();
    let client = cluster.client().unwrap();
    for _ in 0..100 {
        let retired = cluster.run(1, async |ct| {
            let g = ct.pin();
            for _ in 0..60 {
                let object = Large::new_in(ct, Large::init([0; 64])).await?.write(ct).await?;
                g.sched_reclaim(object.shared(&g)).await?;
            }
            Ok(())
        });
        retired.unwrap();
    }
    block_on(client.shutdown()).unwrap();
}

#[cfg(target_os = "linux")]
#[test]
fn a_sleeping_thread_answers_a_sweep() {
    use farfield::memory_node::{MemoryNode, MemoryNodeOptions};
    let name = format!("client-sweep-{}", std::process::id());
    let mut options = MemoryNodeOptions::new(&format!("shm:{name}"));
    options.segment_bytes = 1 << 20;
    options.sweep = true;
    let node = MemoryNode::listen(&options).unwrap();
    let stopper = node.stopper().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| node.serve());
        let url = format!("shm:{name}");
        let client = Cluster::connect(&url).unwrap().client().unwrap();
        // A guard of this process protects the garbage of another process until that one has left.
        let (has_begun, begun) = mpsc::channel();
        let (go_on, may_go_on) = oneshot::channel::<()>();
        let pinned = client.try_call(async move |ct| {
            let guard = ct.pin();
            has_begun.send(()).unwrap();
            let _ = may_go_on.await;
            drop(guard);
            Ok(())
        });
        begun.recv().unwrap();
        let other = Cluster::connect(&url).unwrap();
        let retires = async |ct: &ComputeThread| {
            let counter = Counter::new_in(ct, Counter::init()).await?.write(ct).await?;
            let g = ct.pin();
            g.sched_reclaim(counter.shared(&g)).await
        };
        other.run(1, retires).unwrap();
        drop(other);
        go_on.send(()).unwrap();
        block_on(pinned.unwrap()).unwrap();
        // The thread sleeps now, or soon. Only the sweep wakes it.
        let watches = Cluster::connect(&url).unwrap();
        let swept = watches.run(1, async |ct| {
            for _ in 0..1000 {
                if ct.status().await?.swept_bytes > 0 {
                    return Ok(true);
                }
                ct.sleep(Duration::from_millis(10)).await;
            }
            Ok(false)
        });
        block_on(client.shutdown()).unwrap();
        drop(client);
        stopper.stop();
        assert_eq!(swept.unwrap(), [true]);
    });
}

#[test]
fn options_out_of_range_are_refused() {
    let cluster = Cluster::connect("local:size=64KiB").unwrap();
    for (threads, tasks, queue, message) in [
        (0, 1, 1, "threads is 0: a run needs at least one thread"),
        (1, 0, 1, "tasks is 0: a client needs at least one"),
        (1, 1, 0, "queue is 0: a client needs at least one"),
        (1, 1, usize::MAX, "queue is 18446744073709551615: a client has at most 4294967294"),
    ] {
        let mut options = ClientOptions::new();
        (options.threads, options.tasks, options.queue) = (threads, tasks, queue);
        assert_eq!(cluster.client_with(&options).unwrap_err().to_string(), message);
    }
    let error = Cluster::connect("sim:size=64KiB").unwrap().client().unwrap_err();
    assert!(error.to_string().contains("virtual time"), "{error}");
}
