//! A thread's I/O alone: no memory, no members, no run. The hooks are recorded.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::num::NonZeroU64;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use farfield_fabric::chain::RawChain;
use farfield_fabric::host::{Arena, Delayed, Host};
use farfield_fabric::stall::DescribeWait;
use farfield_sim::{
    Body, Fault, SharedWorld, Sim, SimConfig, Simulation, ThreadFuture, ThreadOutcome, World, simulate,
};
use farfield_words::{Address, Geometry, ThreadId};

use super::operations::*;
use super::{
    ChainBuffers, Endpoint, Exchange, Identities, Io, IoParts, Purpose, Sleepers, TaskSet, Thread, block_on,
};
use crate::epoch::{Collector, Pin};
use crate::error::{Error, Result};

/// What the layers above are told around operations.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Hook {
    WritesWords(Vec<u64>),
    WritesChain(usize),
    Accesses,
    PostsChain,
}

/// A thread that has I/O and nothing else.
struct Bare {
    io: Io<Self>,
    hooks: RefCell<Vec<Hook>>,
    served: Cell<u32>,
}

impl Thread for Bare {
    fn io(&self) -> &Io<Self> {
        &self.io
    }
    fn writes_words(&self, words: &[u64]) {
        self.hooks.borrow_mut().push(Hook::WritesWords(words.to_vec()));
    }
    fn writes_chain(&self, chain: &RawChain) {
        self.hooks.borrow_mut().push(Hook::WritesChain(chain.ops().len()));
    }
    fn accesses(&self) {
        self.hooks.borrow_mut().push(Hook::Accesses);
    }
    fn posts_chain(&self) {
        self.hooks.borrow_mut().push(Hook::PostsChain);
    }
    fn is_quiet(&self) -> bool {
        false // or its hooks would not be called
    }
    fn counts_chain(&self) {}
    fn waits_for_round_trips(&self, _: u64) {}
    fn serves_requests(&self) {
        self.served.set(self.served.get() + 1);
    }
    fn attends(&self) -> bool {
        false
    }
    fn sleeps_for_others(&self, _: Option<Duration>) -> bool {
        false
    }
    fn serves_others(&self) -> bool {
        false
    }
    fn drives_background(&self) {}
    fn protects(&self) -> Pin {
        self.io.epoch.pin_oldest()
    }
    fn unprotects(&self, pin: Pin) {
        self.io.epoch.unpin(pin);
    }
    fn describes(&self, _: Purpose<'_>) -> DescribeWait {
        Box::new(|_| String::new())
    }
}

const NODES: u64 = 2;
const AT: Address = at(0, 64);
const ELSEWHERE: Address = at(0, 128);
const OTHER_NODE: Address = at(1, 64);

const fn at(segment: u16, offset: u64) -> Address {
    Address::new(segment, offset)
}

fn geometry() -> Geometry {
    Geometry::new(NODES, 1, 1 << 20).unwrap()
}

fn bare(endpoint: Endpoint) -> Bare {
    let parts = IoParts {
        endpoint,
        epoch: Collector::register(&crate::epoch::primitive::Arc::new(Collector::new()), 0),
        identities: Arc::new(Identities::new(None)),
        sleepers: Arc::new(Sleepers::default()),
        stalls: None,
        task: Rc::new(Cell::new(0)),
        id: ThreadId::new(NonZeroU64::new(7).unwrap()),
        geometry: geometry(),
        seed: 1,
        contenders: 1,
    };
    Bare { io: Io::new(parts), hooks: RefCell::default(), served: Cell::new(0) }
}

fn host() -> Host {
    Host::new(Arc::new(Arena::new(geometry()).unwrap()))
}

/// On the host fabric, and behind delays that make every operation wait.
fn on_host(test: impl AsyncFn(&Bare)) {
    for endpoint in [Endpoint::Host(host()), Endpoint::Delayed(Delayed::new(host(), 4, 9, None))] {
        let thread = bare(endpoint);
        block_on(&thread, test(&thread));
    }
}

/// One thread in the simulator, with two memory nodes, a round trip of 2 us and a timeout of 20 us.
struct Simulated<F> {
    world: SharedWorld,
    test: F,
}

impl<F: AsyncFn(&Bare, &Simulation)> Body for Simulated<F> {
    type Output = ();
    fn start(&self, thread: usize) -> ThreadFuture<'_, ()> {
        Box::pin(async move {
            let bare = bare(Endpoint::Sim(Sim::new(self.world.clone(), thread as u32)));
            (self.test)(&bare, &Simulation::new(self.world.clone())).await;
        })
    }
    fn failed((): &()) -> bool {
        false
    }
    fn died(&self, _: usize) {}
}

fn simulated(test: impl AsyncFn(&Bare, &Simulation)) {
    simulated_threads(1, test);
}

fn simulated_threads(threads: usize, test: impl AsyncFn(&Bare, &Simulation)) {
    let mut config = SimConfig::default();
    assert_eq!(config.set("timeout", "20us"), Ok(true));
    let arena = Arc::new(Arena::new(geometry()).unwrap());
    let world = SharedWorld::new(World::new(config, geometry(), arena, 1, None));
    let outcomes = simulate(&world, threads, 7, &Simulated { world: world.clone(), test }).unwrap();
    assert!(outcomes.iter().all(|outcome| matches!(outcome, ThreadOutcome::Returned(()))));
}

fn is_unreachable<T>(result: Result<T>) -> bool {
    matches!(result, Err(Error::NodeUnreachable(_)))
}

/// Polls a future once.
async fn poll_once<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = std::pin::pin!(future);
    std::future::poll_fn(|context| match future.as_mut().poll(context) {
        std::task::Poll::Ready(value) => std::task::Poll::Ready(Some(value)),
        std::task::Poll::Pending => std::task::Poll::Ready(None),
    })
    .await
}

#[test]
fn an_operation_calls_its_hook_once_before_it_takes_effect_and_is_counted() {
    let thread = bare(Endpoint::Host(host()));
    block_on(&thread, async {
        thread.write_word(AT, 5).await.unwrap();
        assert_eq!(thread.compare_exchange_word(AT, 5, 6).await.unwrap(), 5);
        assert_eq!(thread.compare_exchange_word(AT, 5, 7).await.unwrap(), 6);
        assert_eq!(thread.fetch_add_word(AT, 2).await.unwrap(), 6);
        assert_eq!(thread.read_word(AT).await.unwrap(), 8);
    });
    let expected =
        [Hook::WritesWords(vec![5]), Hook::WritesWords(vec![6]), Hook::WritesWords(vec![7]), Hook::Accesses];
    assert_eq!(*thread.hooks.borrow(), expected);
    let metrics = thread.io.counters.snapshot(0, 0, 0);
    assert_eq!(
        (metrics.writes, metrics.cas, metrics.cas_failed, metrics.faa, metrics.reads),
        (1, 2, 1, 1, 1)
    );
    assert_eq!(metrics.chains, 5);
}

#[test]
fn a_chain_takes_effect_in_order_and_is_one_chain() {
    on_host(async |thread| {
        let mut chain = thread.empty_chain();
        chain.write(AT, &[1, 2]);
        let swapped = chain.compare_exchange(AT, 1, 3);
        let failed = chain.compare_exchange(AT, 1, 4);
        let read = chain.read(AT, 2);
        let done = thread.submit(chain).await.unwrap();
        assert_eq!((done.word(swapped), done.word(failed), done.words(read)), (1, 3, &[3, 2][..]));
        drop(done);
        assert_eq!(*thread.hooks.borrow(), [Hook::WritesChain(4), Hook::PostsChain]);
        let metrics = thread.io.counters.snapshot(0, 0, 0);
        assert_eq!(
            (metrics.chains, metrics.cas_failed, metrics.write_bytes, metrics.read_bytes),
            (1, 1, 16, 16)
        );
    });
}

#[test]
fn a_chain_whose_future_is_dropped_takes_effect_and_protects_memory_until_then() {
    simulated(async |thread, _| {
        drop(thread.write_word(ELSEWHERE, 0).await);
        assert!(poll_once(thread.write_word(AT, 5)).await.is_none(), "a round trip takes time");
        assert_eq!(thread.io.epoch.guards(), 1, "the chain may still write");
        thread.flush_detached().await.unwrap();
        assert_eq!(thread.io.epoch.guards(), 0);
        assert_eq!(thread.read_word(AT).await.unwrap(), 5);
    });
}

#[test]
fn the_result_of_a_dropped_future_goes_to_its_second_callback() {
    simulated(async |thread, _| {
        let unwanted = Rc::new(Cell::new(0));
        for wanted in [false, true] {
            let (mut chain, sink) = (thread.empty_chain(), Rc::clone(&unwanted));
            let slot = chain.fetch_add(AT, 3);
            let submitted =
                thread.submit_or(chain, move |_, done| done.word(slot) + 1, move |_, value| sink.set(value));
            if wanted {
                assert_eq!(submitted.await.unwrap(), 4);
                assert_eq!(unwanted.get(), 1, "no second call");
            } else {
                assert!(poll_once(submitted).await.is_none());
                assert_eq!(unwanted.get(), 0);
                thread.flush_detached().await.unwrap();
                assert_eq!(unwanted.get(), 1);
            }
        }
    });
}

#[test]
fn a_failed_chain_is_compensated_until_the_exchange_takes_effect() {
    simulated(async |thread, simulation| {
        let token = thread.token();
        thread.write_word(AT, token).await.unwrap();
        simulation.inject(Fault::cut(0, 0, Duration::from_micros(500)));
        let mut release = thread.empty_chain();
        release.replace(AT, token, 0);
        let exchange = Exchange::new(AT, token, 0);
        assert!(is_unreachable(thread.submit_compensated(release, exchange).await.map(drop)));
        assert!(thread.may_still_exchange(AT));
        assert_eq!(thread.io.epoch.guards(), 1, "the word's object is not reused meanwhile");
        while thread.may_still_exchange(AT) {
            assert!(thread.time() < Duration::from_millis(50), "it is posted again");
            thread.sleep_for(Duration::from_micros(50)).await;
            // The other memory node answers: any operation posts exchanges that are due.
            thread.read_word(OTHER_NODE).await.unwrap();
        }
        assert_eq!(thread.io.epoch.guards(), 0);
        assert_eq!(thread.read_word(AT).await.unwrap(), 0);
    });
}

#[test]
fn a_thread_that_ends_gives_up_its_compensations_and_their_pins() {
    simulated(async |thread, simulation| {
        let token = thread.token();
        thread.write_word(AT, token).await.unwrap();
        simulation.inject(Fault::cut(0, 0, Duration::from_secs(1)));
        assert!(is_unreachable(
            thread.submit_compensated(replace(thread, token), Exchange::new(AT, token, 0)).await.map(drop)
        ));
        thread.sleep_for(Duration::from_micros(50)).await;
        assert_eq!(thread.io.epoch.guards(), 1);
        thread.give_up_compensations();
        thread.forget_detached();
        assert_eq!(thread.io.epoch.guards(), 0);
        assert!(!thread.may_still_exchange(AT));
    });
}

fn replace(thread: &Bare, token: u64) -> RawChain {
    let mut chain = thread.empty_chain();
    chain.replace(AT, token, 0);
    chain
}

/// Locks that a detached chain releases, as a test sees them.
#[derive(Default)]
struct Locks {
    released: Cell<u32>,
    given_back: Cell<u32>,
}

impl super::detached::Releases<Bare> for Locks {
    fn locks_are_released(&self, _: &Bare) {
        self.released.set(self.released.get() + 1);
    }
    fn release_locks(&self, _: &Bare) {
        self.given_back.set(self.given_back.get() + 1);
    }
}

#[test]
fn the_error_of_a_posted_chain_is_the_next_operations() {
    simulated(async |thread, simulation| {
        simulation.inject(Fault::cut(0, 0, Duration::from_micros(100)));
        let locks = Rc::new(Locks::default());
        let mut chain = thread.empty_chain();
        chain.write(AT, &[1]);
        thread.post(chain, Rc::clone(&locks) as _).expect("its outcome is not known");
        thread.sleep_for(Duration::from_micros(200)).await;
        assert!(is_unreachable(thread.read_word(OTHER_NODE).await), "an operation on another node");
        assert_eq!((locks.released.get(), locks.given_back.get()), (0, 1));
        assert_eq!(thread.read_word(OTHER_NODE).await.unwrap(), 0, "it is returned once");
        let mut chain = thread.empty_chain();
        chain.write(AT, &[2]);
        thread.post(chain, Rc::clone(&locks) as _).unwrap();
        thread.flush_detached().await.unwrap();
        assert_eq!((locks.released.get(), locks.given_back.get()), (1, 1));
    });
}

#[test]
fn services_leave_the_error_of_a_posted_chain_to_the_program() {
    simulated(async |thread, simulation| {
        simulation.inject(Fault::cut(0, 0, Duration::from_micros(300)));
        let mut chain = thread.empty_chain();
        chain.write(AT, &[1]);
        thread.post(chain, Rc::new(Locks::default())).expect("its outcome is not known");
        thread.sleep_for(Duration::from_micros(100)).await;
        let service = thread.in_service(async {
            assert_eq!(thread.read_word(OTHER_NODE).await.unwrap(), 0);
            assert_eq!(thread.read_array(OTHER_NODE).await.unwrap(), [0; 2]);
            assert!(is_unreachable(thread.read_word(AT).await), "its own error");
            thread.flush_detached().await.unwrap();
        });
        service.await;
        let mut chain = thread.empty_chain();
        let slot = chain.fetch_add(OTHER_NODE, 1);
        let owned = thread.submit_or(chain, move |_, done| done.word(slot), |_, _| ()).await;
        assert_eq!(owned.unwrap(), 0, "or what the result owns would be lost");
        assert!(is_unreachable(thread.read_word(OTHER_NODE).await), "the program's operation");
        assert_eq!(thread.read_word(OTHER_NODE).await.unwrap(), 1, "it is returned once");
    });
}

#[test]
fn a_set_polls_its_tasks_in_turn_and_drops_them_at_the_first_error() {
    on_host(async |thread| {
        let done = TaskSet::new(
            thread,
            (0..5).map(async |task| {
                for _ in 0..task {
                    thread.fetch_add_word(AT, 1).await?;
                }
                assert_eq!(u64::from(thread.task_number()), task, "the running task has its number");
                Ok(task)
            }),
        );
        assert_eq!(done.await.unwrap(), [0, 1, 2, 3, 4]);
        assert_eq!(thread.task_number(), 0);
        assert_eq!(thread.read_word(AT).await.unwrap(), 10);

        let waiting = Rc::new(());
        let failing = TaskSet::new(
            thread,
            (0..3).map(|task| {
                let waiting = Rc::clone(&waiting);
                async move {
                    if task < 2 {
                        std::future::pending::<()>().await;
                    }
                    drop(waiting);
                    Err::<(), _>(Error::other("task 2"))
                }
            }),
        );
        assert_eq!(failing.await.unwrap_err().to_string(), "task 2");
        assert_eq!(Rc::strong_count(&waiting), 1, "the others are dropped");
    });
}

#[test]
fn sleepers_do_not_wake_early_and_requests_are_served_meanwhile() {
    let thread = bare(Endpoint::Host(host()));
    let served = thread.served.get();
    let tasks = [3_u64, 1, 2].map(async |ms| {
        let until = thread.time() + Duration::from_millis(ms);
        thread.sleep_for(Duration::from_millis(ms)).await;
        assert!(thread.time() >= until);
        Ok(())
    });
    block_on(&thread, TaskSet::new(&thread, tasks.into_iter())).unwrap();
    assert!(thread.served.get() > served);
}

#[test]
fn a_list_of_released_locks_is_reused_once_no_chain_refers_to_it() {
    let buffers = ChainBuffers::default();
    let (first, second) = (buffers.releases(), buffers.releases());
    assert!(!Rc::ptr_eq(&first, &second), "the first is in use");
    let address = Rc::as_ptr(&first);
    drop(first);
    assert_eq!(Rc::as_ptr(&buffers.releases()), address);
    assert_ne!(Rc::as_ptr(&buffers.releases()), Rc::as_ptr(&second));
}

/// Two threads write into words that the other hosts in the memory of its compute node.
#[test]
fn a_thread_is_polled_when_a_word_that_it_hosts_has_changed() {
    const ROUNDS: u32 = 100;
    simulated_threads(2, async |thread, simulation| {
        let sim = thread.io.endpoint.virtual_time().expect("simulated");
        let begins = thread.fetch_add_word(OTHER_NODE, 1).await.unwrap() == 0;
        let (mine, other) = if begins { (AT, ELSEWHERE) } else { (ELSEWHERE, AT) };
        let write = || {
            let mut chain = thread.empty_chain();
            chain.write(other, &[1]);
            thread.post(chain, Rc::new(Locks::default())).unwrap();
        };
        let take = async || {
            std::future::poll_fn(|_| match sim.load_here(mine) {
                0 => std::task::Poll::Pending,
                _ => std::task::Poll::Ready(()),
            })
            .await;
            sim.store_here(mine, 0);
        };
        sim.host(mine, 1);
        thread.sleep_for(Duration::from_micros(1)).await;
        let began = simulation.now();
        for _ in 0..ROUNDS {
            if begins {
                write();
                take().await;
            } else {
                take().await;
                write();
            }
        }
        assert!(simulation.now() < began + ROUNDS * simulation.rtt() * 5 / 4);
        thread.flush_detached().await.unwrap();
    });
}
