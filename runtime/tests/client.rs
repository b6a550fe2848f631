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

/// The plainest executor: one future, and a thread that sleeps.
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

/// Work that has begun when the receiver has something, and goes on when the sender is used or dropped.
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
fn an_error_of_the_work_is_the_call_s() {
    let client = client_of("local:size=64KiB", 1, 1, 1);
    let error = block_on(client.call(async |ct| ct.lookup::<Counter>("none").await.map(drop)));
    assert!(matches!(error, Err(Error::RootNotFound { .. })), "{error:?}");
}

#[test]
fn a_call_that_is_dropped_before_it_begins_is_taken_out_of_the_queue() {
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
        // At once, and on this thread: the one thread that could do it is busy.
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
        // The future is dropped, though nothing wakes it any more, and with it the guard.
        assert!(ends.recv().is_err());
        assert!(steps.recv().is_err());
        let guards = client.call(async |ct| Ok(ct.reclamation().await?.held_back_by));
        assert_eq!(block_on(guards).unwrap(), None);
    }
    let counted = block_on(client.call(async |ct| add(ct, 0).await)).unwrap();
    assert_eq!(counted, (1..=STEPS as u64).sum::<u64>());
}

#[test]
fn calls_that_are_dropped_at_any_moment_leave_no_lock_and_no_place_behind() {
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
fn a_deadline_before_the_work_begins_keeps_it_from_beginning() {
    let client = client_of("local:size=64KiB", 1, 1, 1);
    let (work, begun, go_on) = gate();
    let mut busy = client.call(work);
    assert!(poll_once(&mut busy).is_pending());
    begun.recv().unwrap();
    let queued = client.try_call(async |_| -> Result<()> { unreachable!("it is too late") }).unwrap();
    // There is room for one: this one stays in line.
    let in_line = client.call(async |_| -> Result<()> { unreachable!("it is too late") });
    let deadline = Duration::from_millis(1);
    for call in [in_line.deadline(deadline), queued.deadline(deadline)] {
        let error = block_on(call).unwrap_err();
        let Error::DeadlineExceeded(late) = &error else { panic!("{error}") };
        assert_eq!((late.deadline_us, late.has_begun), (1000, false));
        assert_eq!(error.to_string(), "no answer to the call within 1000 us: its work was not begun");
    }
    assert_eq!(client.waiting(), 0);
    go_on.send(()).unwrap();
    block_on(busy).unwrap();
}

#[test]
fn a_thread_that_comes_too_late_does_not_begin_the_work() {
    let client = client_of("local:size=64KiB", 1, 1, 2);
    let (work, begun, go_on) = gate();
    let mut busy = client.call(work);
    assert!(poll_once(&mut busy).is_pending());
    begun.recv().unwrap();
    let late = client.call(async |_| -> Result<()> { unreachable!("it is too late") });
    let mut late = late.deadline(Duration::ZERO);
    // In the queue, with its deadline; nobody polls it when that has passed.
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
    let text = "no answer to the call within 1000 us: its work was cancelled after it had begun";
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
fn a_full_queue_refuses_and_holds_back() {
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
    // Room that comes free is granted to the first in line; one that is dropped with it, or without, holds nobody up.
    drop(queued);
    assert_eq!(client.waiting(), 0);
    let newcomer = client.try_call(note(99)).unwrap_err();
    assert!(matches!(newcomer, Error::ClientFull { .. }), "the line comes first");
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
fn shutdown_does_what_was_accepted_and_refuses_the_rest() {
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
fn a_panic_is_the_caller_s_error_and_the_thread_goes_on() {
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
    // Cancelled while it holds one.
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
    // The one thread has its one task, and the queue is full, too.
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
    // Detached from its client, the call goes on as long as it is not dropped.
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
    // In this time a thread that did not sleep would poll it ten thousands of times.
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
    // In this time a thread that did not sleep would poll it ten thousands of times.
    let polls = polls.load(Ordering::SeqCst);
    assert!(polls < 10, "{polls} polls");
}

#[test]
fn sleeping_threads_give_memory_back_when_others_ask() {
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
                // With the blocks in its lists.
                sleeper.await.map_err(Error::other)?;
            } else {
                // Dropped, it ends the sleep, too.
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
fn beside_a_client_runs_have_the_memory_that_earlier_runs_have_retired() {
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
    use farfield::shm::{MemoryNode, MemoryNodeOptions};
    let name = format!("client-sweep-{}", std::process::id());
    let mut options = MemoryNodeOptions::new(&name);
    options.segment_bytes = 1 << 20;
    options.sweep = true;
    let node = MemoryNode::listen(&options).unwrap();
    let stopper = node.stopper().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| node.serve());
        let url = format!("shm:{name}");
        let client = Cluster::connect(&url).unwrap().client().unwrap();
        // A guard of this process holds back what another retires, until that has left.
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
        // The thread sleeps now, or soon. Nothing but the sweep wakes it.
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
fn what_makes_no_sense_is_refused() {
    let cluster = Cluster::connect("local:size=64KiB").unwrap();
    for (threads, tasks, queue, message) in [
        (0, 1, 1, "threads is 0: a run needs at least one thread"),
        (1, 0, 1, "tasks is 0: a client needs at least one"),
        (1, 1, 0, "queue is 0: a client needs at least one"),
        (1, 1, usize::MAX, "queue is 18446744073709551615: there are not so many"),
    ] {
        let mut options = ClientOptions::new();
        (options.threads, options.tasks, options.queue) = (threads, tasks, queue);
        assert_eq!(cluster.client_with(&options).unwrap_err().to_string(), message);
    }
    let error = Cluster::connect("sim:size=64KiB").unwrap().client().unwrap_err();
    assert!(error.to_string().contains("virtual time"), "{error}");
}
