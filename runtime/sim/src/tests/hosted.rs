//! Hosted memory: its times, its faults and its findings.

#![allow(clippy::unchecked_time_subtraction)] // the simulator's clock does not go backwards

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use farfield_fabric::chain::RawChain;
use farfield_fabric::error::{Error, Result};
use farfield_fabric::host::Arena;
use farfield_fabric::{Endpoint, Posted, Ticket};
use farfield_words::{Address, Geometry};

use crate::*;

const RTT: Duration = Duration::from_micros(2);
const ONE_WAY: Duration = Duration::from_nanos(800);
/// A network on which only distances and the NICs' rate of 20 M/s take time.
const EXACT: &str = "jitter=0%,bandwidth=inf,doorbell=0ns,compute=0,timeout=20us";
const SERVICE: Duration = Duration::from_nanos(50);

const MEMORY_NODES: u16 = 2;
/// The word that thread 0 hosts in most tests, the one behind it, and those of thread 1.
const AT: Address = Address::new(0, 64);
const SECOND: Address = Address::new(0, 72);
const OTHER: Address = Address::new(0, 1024);
/// A word of the other memory node.
const ELSEWHERE: Address = Address::new(1, 64);

struct Program<F> {
    world: SharedWorld,
    body: F,
}

impl<T, F: AsyncFn(usize, &Sim) -> T> Body for Program<F> {
    type Output = T;
    fn start(&self, thread: usize) -> ThreadFuture<'_, T> {
        Box::pin(async move { (self.body)(thread, &Sim::new(self.world.clone(), thread as u32)).await })
    }
    fn failed(_: &T) -> bool {
        false
    }
    fn died(&self, _: usize) {}
}

fn simulation(options: &str, seed: u64, meaning: Option<Box<dyn Meaning>>) -> (SharedWorld, Simulation) {
    let mut config = SimConfig::default();
    for option in options.split(',').filter(|option| !option.is_empty()) {
        let (name, value) = option.split_once('=').unwrap();
        assert_eq!(config.set(name, value), Ok(true));
    }
    let geometry = Geometry::new(MEMORY_NODES.into(), 1, 1 << 20).unwrap();
    let arena = Arc::new(Arena::new(geometry).unwrap());
    let world = SharedWorld::new(World::new(config, geometry, arena, seed, meaning));
    (world.clone(), Simulation::new(world))
}

/// Runs a program. Returns the threads' outputs, `None` for dead threads.
fn run_in<T>(
    world: &SharedWorld,
    threads: usize,
    body: impl AsyncFn(usize, &Sim) -> T,
) -> Result<Vec<Option<T>>> {
    let outcomes = simulate(world, threads, 1, &Program { world: world.clone(), body })?;
    let returned = |outcome| match outcome {
        ThreadOutcome::Returned(output) => Some(output),
        ThreadOutcome::Died => None,
    };
    Ok(outcomes.into_iter().map(returned).collect())
}

fn run<T>(options: &str, threads: usize, body: impl AsyncFn(usize, &Sim) -> T) -> Vec<T> {
    let outputs = run_in(&simulation(options, 1, None).0, threads, body).unwrap();
    outputs.into_iter().map(|output| output.expect("no thread dies")).collect()
}

#[track_caller]
fn finding<T>(outcome: Result<T>) -> (Finding, String) {
    match outcome {
        Err(Error::Simulation(found)) => (found.finding, found.to_string()),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("the run has no finding"),
    }
}

fn ticket(posted: Posted) -> Ticket {
    match posted {
        Posted::InFlight(ticket) => ticket,
        Posted::Done(..) => unreachable!("in virtual time"),
    }
}

fn writing(at: Address, words: &[u64]) -> RawChain {
    let mut chain = RawChain::default();
    chain.write(at, words);
    chain
}

fn reading(at: Address) -> RawChain {
    let mut chain = RawChain::default();
    chain.read(at, 1);
    chain
}

/// Posts a chain whose completion no future awaits.
fn post(sim: &Sim, chain: RawChain) {
    sim.forget(ticket(sim.post(chain, 0)));
}

/// Posts a chain and awaits its completion.
async fn submit(sim: &Sim, chain: RawChain) -> Result<RawChain> {
    let ticket = ticket(sim.post(chain, 0));
    let (chain, result) = poll_fn(|_| sim.poll(ticket)).await;
    result.map(|()| chain)
}

/// Reads one word.
async fn read(sim: &Sim, at: Address) -> Result<u64> {
    submit(sim, reading(at)).await.map(|chain| chain.buffer()[0])
}

/// Waits until the thread is polled and a condition holds.
async fn until(condition: impl Fn() -> bool) {
    poll_fn(|_| if condition() { Poll::Ready(()) } else { Poll::Pending }).await;
}

/// Waits until a hosted word has this value.
async fn until_word(sim: &Sim, at: Address, word: u64) {
    until(|| sim.load_here(at) == word).await;
}

async fn sleep(sim: &Sim, time: Duration) {
    let ticket = sim.sleep_until(sim.now() + time, 0);
    poll_fn(|_| sim.poll(ticket).map(drop)).await;
}

fn node_of(result: Result<RawChain>) -> u16 {
    match result {
        Err(Error::NodeUnreachable(unreachable)) => unreachable.node,
        other => panic!("{other:?}"),
    }
}

// ---- times ---------------------------------------------------------------------------------------------------------

#[test]
fn a_write_reaches_the_host_after_one_way_and_completes_after_a_round_trip() {
    let times = run(EXACT, 2, async |thread, sim| {
        if thread == 0 {
            sim.host(AT, 1);
            until_word(sim, AT, 7).await;
            return sim.now();
        }
        sleep(sim, RTT).await;
        submit(sim, writing(AT, &[7])).await.unwrap();
        assert_eq!(read(sim, AT).await.unwrap(), 7);
        sim.now()
    });
    assert_eq!(times, [RTT + ONE_WAY, 3 * RTT]);
}

#[test]
fn a_host_that_is_busy_is_polled_when_its_work_is_done() {
    let times = run("jitter=0%,doorbell=0ns", 2, async |thread, sim| {
        if thread == 0 {
            sim.host(AT, 2);
            sim.compute(Work::Time(10 * RTT));
            until(|| (sim.load_here(AT), sim.load_here(SECOND)) == (7, 8)).await;
            return sim.now();
        }
        post(sim, writing(AT, &[7]));
        submit(sim, writing(SECOND, &[8])).await.unwrap();
        Duration::ZERO
    });
    // Each of the two polls loads two words, for 10 ns each.
    assert_eq!(times[0], 10 * RTT + Duration::from_nanos(40));
}

/// With the default costs of computing. Nobody awaits the acknowledgements.
#[test]
fn a_ping_pong_takes_less_than_a_round_trip() {
    const ROUNDS: u32 = 1000;
    for options in ["", EXACT, "jitter=0%"] {
        let times = run(options, 2, async |thread, sim| {
            let (mine, other) = if thread == 0 { (AT, OTHER) } else { (OTHER, AT) };
            sim.host(mine, 1);
            sleep(sim, RTT).await;
            let began = sim.now();
            for round in 1..=ROUNDS.into() {
                if thread == 0 {
                    post(sim, writing(other, &[round]));
                }
                until_word(sim, mine, round).await;
                if thread == 1 {
                    post(sim, writing(other, &[round]));
                }
            }
            sim.now().saturating_sub(began)
        });
        let rtts = times[0].as_secs_f64() / RTT.as_secs_f64() / f64::from(ROUNDS);
        println!("ping-pong with `{options}`: {rtts:.3} rtt");
        assert!((0.8..=1.25).contains(&rtts), "{options}: {rtts} rtt");
    }
}

#[test]
fn chains_that_queue_at_a_hosts_nic_delay_its_doorbells() {
    const CHAINS: usize = 20;
    let times = run(EXACT, 1 + CHAINS, async |thread, sim| {
        let word = AT.add(8 * thread as u64);
        if thread == 0 {
            sim.host(AT, 1 + CHAINS);
            // All chains have arrived.
            sleep(sim, RTT + ONE_WAY + Duration::from_nanos(1)).await;
            submit(sim, reading(ELSEWHERE)).await.unwrap();
        } else {
            sleep(sim, RTT).await;
            submit(sim, writing(word, &[1])).await.unwrap();
        }
        sim.now()
    });
    let service = SERVICE * CHAINS as u32;
    assert_eq!(times[0], RTT + ONE_WAY + service + RTT, "its doorbell comes last");
    assert_eq!(times[1..].iter().max(), Some(&(2 * RTT + service - SERVICE)));
}

#[test]
fn doorbells_of_a_host_delay_chains_that_arrive() {
    let times = run("jitter=0%,bandwidth=inf,compute=0", 2, async |thread, sim| {
        if thread == 0 {
            sim.host(AT, 1);
            sleep(sim, RTT + ONE_WAY - Duration::from_nanos(10)).await;
            post(sim, reading(ELSEWHERE));
            until_word(sim, AT, 1).await;
        } else {
            sleep(sim, RTT).await;
            submit(sim, writing(AT, &[1])).await.unwrap();
        }
        sim.now()
    });
    let remaining = Duration::from_nanos(90);
    assert_eq!(times, [RTT + ONE_WAY + remaining, 2 * RTT + remaining]);
}

#[test]
fn stores_of_the_host_are_read_by_chains_and_take_no_round_trip() {
    let times = run(EXACT, 2, async |thread, sim| {
        if thread == 0 {
            sim.host(AT, 1);
            sim.store_here(AT, 5);
            assert_eq!((sim.load_here(AT), sim.now()), (5, Duration::ZERO));
            until_word(sim, AT, 6).await;
        } else {
            sleep(sim, RTT).await;
            let mut chain = RawChain::default();
            let found = chain.fetch_add(AT, 1);
            assert_eq!(submit(sim, chain).await.unwrap().word(found), 5);
        }
        sim.now()
    });
    assert_eq!(times, [RTT + ONE_WAY, 2 * RTT]);
}

// ---- order and determinism -----------------------------------------------------------------------------------------

#[test]
fn chains_of_one_thread_arrive_in_order() {
    for seed in 0..20 {
        let (world, _) = simulation("jitter=100%", seed, None);
        run_in(&world, 3, async |thread, sim| {
            let slot = |thread: usize| AT.add(8 * thread as u64);
            if thread == 0 {
                sim.host(slot(1), 2);
                let last = Cell::new([0, 0]);
                until(|| {
                    let words = [sim.load_here(slot(1)), sim.load_here(slot(2))];
                    let before = last.replace(words);
                    assert!(before[0] <= words[0] && before[1] <= words[1], "{before:?}, then {words:?}");
                    words == [100, 100]
                })
                .await;
                return;
            }
            sleep(sim, RTT).await;
            for number in 1..=100 {
                post(sim, writing(slot(thread), &[number]));
                if number % 7 == 0 {
                    sleep(sim, RTT / 10).await;
                }
            }
        })
        .unwrap();
    }
}

/// Clients write requests into the words of a server, which answers in the words that they host.
async fn delegate(thread: usize, sim: &Sim) -> Duration {
    const CLIENTS: usize = 3;
    const REQUESTS: u64 = 50;
    let (request, response) =
        (|client: usize| AT.add(8 * client as u64), |client: usize| OTHER.add(8 * client as u64));
    if thread > 0 {
        sim.host(response(thread), 1);
        sleep(sim, RTT).await;
        for number in 1..=REQUESTS {
            post(sim, writing(request(thread), &[number]));
            until_word(sim, response(thread), number).await;
        }
        return sim.now();
    }
    sim.host(request(1), CLIENTS);
    let mut served = [0; CLIENTS];
    while served != [REQUESTS; CLIENTS] {
        until(|| (0..CLIENTS).any(|client| sim.load_here(request(client + 1)) != served[client])).await;
        for (client, served) in served.iter_mut().enumerate() {
            let word = sim.load_here(request(client + 1));
            if word != *served {
                *served = word;
                sim.compute(Work::RequestServed);
                post(sim, writing(response(client + 1), &[word]));
            }
        }
    }
    sim.now()
}

#[test]
fn a_run_is_a_function_of_its_seed() {
    let hash = |seed| {
        let (world, simulation) = simulation("", seed, None);
        let times = run_in(&world, 4, delegate).unwrap();
        (simulation.trace_hash(), times)
    };
    assert_eq!(hash(1), hash(1));
    assert_eq!(hash(2), hash(2));
    assert_ne!(hash(1).0, hash(2).0);
}

// ---- the end of hosting --------------------------------------------------------------------------------------------

#[test]
fn words_that_are_no_longer_hosted_are_with_their_memory_node() {
    for end in ["the thread ends", "unhost", "free"] {
        let (world, simulation) = simulation(EXACT, 1, None);
        let outputs = run_in(&world, 2, async |thread, sim| {
            if thread == 0 {
                sim.host(AT, 1);
                sim.store_here(AT, 5);
                match end {
                    "unhost" => sim.unhost(AT),
                    "free" => {
                        let watch = Watch::new(world.clone(), Rc::default(), false);
                        watch.allocated(0, AT, 8, ObjectType::internal("slot"));
                        watch.freed(0, AT);
                    }
                    _ => return,
                }
                return sleep(sim, 10 * RTT).await;
            }
            sleep(sim, RTT).await;
            // Chains to the host would wait for ever.
            simulation.inject(Fault::cut(1, MEMORY_NODES, Duration::from_secs(1)));
            assert_eq!(read(sim, AT).await.unwrap(), 5);
        });
        assert_eq!(outputs.unwrap().len(), 2);
    }
}

#[test]
fn a_run_does_not_inherit_hosted_words() {
    let (world, _) = simulation(EXACT, 1, None);
    let host = async |_: usize, sim: &Sim| sim.host(AT, 1);
    run_in(&world, 1, host).unwrap();
    run_in(&world, 2, async |thread, sim| {
        if thread == 1 {
            submit(sim, writing(AT, &[1])).await.unwrap();
            sim.host(AT, 1);
            assert_eq!(sim.load_here(AT), 1);
        }
    })
    .unwrap();
}

// ---- faults --------------------------------------------------------------------------------------------------------

#[test]
fn chains_to_a_dead_host_fail_at_their_timeouts_and_change_nothing() {
    let (world, simulation) = simulation(EXACT, 1, None);
    let outputs = run_in(&world, 2, async |thread, sim| {
        if thread == 0 {
            sim.host(AT, 1);
            return until(|| false).await;
        }
        sleep(sim, RTT).await;
        submit(sim, writing(AT, &[1])).await.unwrap();
        simulation.inject(Fault::crash(0).at(sim.now() + ONE_WAY / 2));
        for word in [2, 3] {
            // The first is under way when the host dies.
            let posted = sim.now();
            assert_eq!(node_of(submit(sim, writing(AT, &[word])).await), MEMORY_NODES);
            assert_eq!(sim.now(), posted + Duration::from_micros(20));
        }
        assert_eq!(world.lock().peek(AT), 1);
        assert_eq!(read(sim, ELSEWHERE).await.unwrap(), 0);
        // Another thread takes the words over.
        sim.host(AT, 1);
        assert_eq!(sim.load_here(AT), 1);
        submit(sim, writing(AT, &[4])).await.unwrap();
        assert_eq!(sim.load_here(AT), 4);
        sim.unhost(AT);
        assert_eq!(read(sim, AT).await.unwrap(), 4);
    });
    assert_eq!(outputs.unwrap(), [None, Some(())]);
    let trace = simulation.trace(100);
    assert!(trace.contains("compute node 0 did not answer") && !trace.contains("memory node"), "{trace}");
}

/// The host dies at any moment of long chains: those that complete have taken effect, and later ones not at all.
#[test]
fn a_host_dies_while_chains_are_executed_and_queued() {
    for step in 0..200 {
        let (world, simulation) = simulation("timeout=3us,rate=1M", step, None);
        let dies_at = RTT + RTT / 50 * step as u32;
        let all = || (0..64).map(|word| world.lock().peek(AT.add(8 * word))).collect::<Vec<u64>>();
        let when_dead = RefCell::new(Vec::new());
        simulation.inject(Fault::crash(0).at(dies_at));
        let outputs = run_in(&world, 4, async |thread, sim| {
            if thread == 0 {
                sim.host(AT, 64);
                return until(|| false).await;
            }
            if thread == 3 {
                sleep(sim, dies_at + Duration::from_nanos(1)).await;
                return when_dead.replace(all()).clear();
            }
            sleep(sim, RTT).await;
            let at = AT.add(8 * 8 * thread as u64);
            let tickets = [1, 2, 3].map(|number| ticket(sim.post(writing(at, &[number; 8]), 0)));
            let mut done = 0;
            for ticket in tickets {
                let (_, result) = poll_fn(|_| sim.poll(ticket)).await;
                match result {
                    Ok(()) => done += 1,
                    Err(error) => assert!(matches!(error, Error::NodeUnreachable(_)), "{error}"),
                }
            }
            let world = world.lock();
            let words: Vec<u64> = (0..8).map(|word| world.peek(at.add(8 * word))).collect();
            assert!(words.iter().all(|word| (done..=3).contains(word)), "{done} done: {words:?}");
        });
        assert!(outputs.unwrap()[1..].iter().all(Option::is_some));
        assert_eq!(all(), *when_dead.borrow(), "it is dead");
    }
}

#[test]
fn a_link_to_a_host_heals_after_a_cut() {
    let (world, simulation) = simulation(EXACT, 1, None);
    let (cut, host) = (Duration::from_micros(10), MEMORY_NODES);
    let outputs = run_in(&world, 3, async |thread, sim| {
        if thread == 0 {
            sim.host(AT, 1);
            until_word(sim, AT, 1).await;
            until_word(sim, AT, 2).await;
            return sim.now();
        }
        if thread == 1 {
            sleep(sim, RTT).await;
            simulation.inject(Fault::cut(1, host, cut));
            submit(sim, writing(AT, &[2])).await.unwrap();
            return sim.now();
        }
        // The links of other threads, and to memory nodes, are not cut.
        sleep(sim, RTT).await;
        submit(sim, writing(AT, &[1])).await.unwrap();
        sim.now()
    });
    let healed = RTT + cut + ONE_WAY;
    assert_eq!(outputs.unwrap(), [Some(healed), Some(healed + RTT - ONE_WAY), Some(2 * RTT)]);
    assert!(simulation.trace(100).contains("link to compute node 0 is cut"));
}

#[test]
fn faults_of_memory_nodes_take_the_numbers_of_hosts() {
    let (world, simulation) = simulation(EXACT, 1, None);
    simulation.inject(Fault::slow(MEMORY_NODES, 3));
    for node in [MEMORY_NODES, MEMORY_NODES + 1, 99] {
        simulation.inject(Fault::memory_crash(node));
        simulation.inject(Fault::cut(0, node, RTT));
    }
    simulation.inject(Fault::slow(99, 3));
    let outputs = run_in(&world, 2, async |thread, sim| {
        if thread == 0 {
            sim.host(AT, 1);
            return until_word(sim, AT, 1).await;
        }
        sleep(sim, RTT).await;
        submit(sim, writing(AT, &[1])).await.unwrap();
        assert_eq!(sim.now(), 2 * RTT + 2 * (RTT - 2 * ONE_WAY), "its memory is three times slower");
    });
    assert_eq!(outputs.unwrap().len(), 2);
}

#[test]
fn no_fault_by_chance_panics() {
    for seed in 0..100 {
        let options =
            "crash=0.5%,stall=1%,cut=2%,memory-crash=1%,slow=30%,timeout=20us,limit=20ms,threads-per-node=2";
        let (world, _) = simulation(options, seed, None);
        if let Err(error) = run_in(&world, 4, delegate) {
            let (finding, report) = finding::<()>(Err(error));
            assert!(matches!(finding, Finding::Deadlock), "{report}"); // lost requests are not posted again
        }
    }
}

// ---- findings ------------------------------------------------------------------------------------------------------

#[test]
fn threads_that_all_wait_for_hosted_words_are_a_deadlock() {
    let (world, _) = simulation("", 1, None);
    let outcome = run_in(&world, 2, async |thread, sim| {
        let mine = if thread == 0 { AT } else { OTHER };
        sim.host(mine, 2);
        sleep(sim, RTT).await;
        if thread == 1 {
            submit(sim, writing(AT, &[1])).await.unwrap();
        }
        until_word(sim, mine, 2).await;
    });
    let (finding, report) = finding(outcome);
    assert_eq!(finding, Finding::Deadlock);
    for thread in [0, 1] {
        let waits = report.split(&format!("thread {thread} waits")).nth(1).expect(&report);
        let waits = waits.split(';').next().unwrap();
        assert!(waits.contains("for words in its hosted memory: 2 words at "), "{report}");
    }
    assert!(!report.contains("does not know"), "{report}");
}

/// It posts the same request again and again, and the host's answers are the same: many times those that make a livelock.
#[test]
fn a_host_that_is_polled_often_is_not_in_a_livelock() {
    run("jitter=0%,limit=2s", 2, async |thread, sim| {
        const REQUESTS: u64 = 400_000;
        let (mine, other) = if thread == 0 { (AT, OTHER) } else { (OTHER, AT) };
        sim.host(mine, 1);
        sleep(sim, RTT).await;
        for request in 1..=REQUESTS {
            if thread == 1 {
                post(sim, writing(other, &[request % 2]));
            }
            until_word(sim, mine, request % 2).await;
            if thread == 0 {
                post(sim, writing(other, &[request % 2]));
            }
        }
    });
}

/// The other thread waits for a host that waits for it.
#[test]
fn a_host_whose_words_do_not_change_does_not_hide_a_livelock() {
    let (world, _) = simulation("limit=1s", 1, None);
    let outcome = run_in(&world, 2, async |thread, sim| {
        if thread == 0 {
            sim.host(AT, 1);
            return until_word(sim, AT, 1).await;
        }
        let mut entry = None;
        while read(sim, ELSEWHERE).await.unwrap() == 0 {
            let ticket = sim.retry(4, 0, LoopKind::Attempt, &mut entry);
            poll_fn(|_| sim.poll(ticket).map(drop)).await;
        }
    });
    let (finding, report) = finding(outcome);
    assert_eq!(finding, Finding::Livelock, "{report}");
    assert!(report.contains("thread 0 waits after no operation, for words in its hosted memory"), "{report}");
}

#[test]
fn a_chain_to_hosted_and_other_memory_is_a_wild_access() {
    let mixed: [fn(&mut RawChain); 4] = [
        |chain| chain.write(SECOND, &[1, 2]),
        |chain| chain.write(Address::new(0, 56), &[1, 2]),
        |chain| {
            chain.write(AT, &[1]);
            chain.fetch_add(OTHER, 1);
        },
        |chain| {
            chain.read(OTHER, 1);
            chain.read(AT, 1);
        },
    ];
    for add in mixed {
        let (world, _) = simulation("", 1, None);
        let outcome = run_in(&world, 2, async |thread, sim| {
            if thread == 0 {
                sim.host(AT, 2);
                return until_word(sim, AT, 1).await;
            }
            sleep(sim, RTT).await;
            let mut chain = RawChain::default();
            add(&mut chain);
            submit(sim, chain).await.map(drop).expect_err("it is refused");
        });
        let (finding, report) = finding(outcome);
        assert_eq!(finding, Finding::WildAccess, "{report}");
        assert!(report.contains("partly in memory that thread 0 hosts"), "{report}");
    }
    // Scans read blocks, hosted or not.
    run("", 2, async |thread, sim| {
        if thread == 0 {
            sim.host(AT, 2);
            return sleep(sim, 4 * RTT).await;
        }
        sleep(sim, RTT).await;
        let mut chain = RawChain::default();
        chain.scan(Address::new(0, 56), 2);
        chain.scan(AT, 8);
        submit(sim, chain).await.unwrap();
    });
}

#[test]
fn the_hosts_accesses_to_a_freed_block_are_findings() {
    for stores in [false, true] {
        let (world, simulation) = simulation("", 1, Some(Box::new(NoMeaning)));
        let outcome = run_in(&world, 1, async |_, sim| {
            let watch = Watch::new(world.clone(), Rc::default(), false);
            watch.allocated(0, AT, 16, ObjectType::internal("slots"));
            sim.host(AT, 2);
            sim.store_here(SECOND, 9);
            assert_eq!(sim.load_here(SECOND), 9);
            watch.freed(0, AT);
            // The block is ordinary memory now; this host makes a mistake.
            sim.host(AT, 2);
            if stores {
                sim.store_here(SECOND, 1);
            } else {
                sim.load_here(SECOND);
            }
            sleep(sim, RTT).await;
        });
        let (finding, report) = finding(outcome);
        assert!(simulation.trace(100).contains("WRITE"), "{report}");
        assert_eq!(finding, Finding::UseAfterFree, "{report}");
    }
}
