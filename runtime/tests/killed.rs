//! A process is killed while others wait for it: each wait ends. The killed processes run this program in a role that an environment
//! variable names. They report when they are ready, and are killed with SIGKILL.
//!
//! The memory node listens on `shm:` and on `tcp://`. Each test runs for all pairs of ways by which those who wait and the killed process reach it.
//!
//! ARCHITECTURE.md has the list of all waits on words that a dead client may have left.

#![cfg(target_os = "linux")]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use farfield::memory_node::{MemoryNode, MemoryNodeOptions, Stopper};
use farfield::prelude::*;
use farfield::{Address, Error, Result};

/// The role of a process, and the URL of its cluster.
const ROLE: &str = "FARFIELD_TEST_KILLED_ROLE";
const CLUSTER: &str = "FARFIELD_TEST_KILLED_CLUSTER";

const LEASE: Duration = Duration::from_millis(500);

#[remote]
struct Record {
    state: Versioned<[u64; 3]>,
    lock: Lock,
    next: Link<Record>,
}

async fn record(ct: &ComputeThread) -> Result<RemotePtr<Record>> {
    ct.root_or_init("record", async || Record::new_in(ct, Record::init([0; 3])).await?.write(ct).await).await
}

/// A memory node of this process, with the ways by which processes reach it.
struct Node {
    /// The way of those who wait.
    url: String,
    /// The way of the process that is killed.
    victims: String,
    stopper: Stopper,
    serves: Option<JoinHandle<()>>,
}

/// The numbers of the ways of those who wait, and of the killed process.
const WAYS: [[usize; 2]; 4] = [[0, 0], [0, 1], [1, 0], [1, 1]];

impl Node {
    fn new(name: &str, ways: [usize; 2]) -> Self {
        let [waits, killed] = ways;
        let name = format!("shm:killed-{name}-{waits}-{killed}-{}", std::process::id());
        let mut options = MemoryNodeOptions::new(&name);
        options.listen.push("tcp://127.0.0.1:0".to_owned());
        options.segment_bytes = 1 << 20;
        options.lease = LEASE;
        let node = MemoryNode::listen(&options).unwrap();
        let (url, victims) = (node.urls()[waits].clone(), node.urls()[killed].clone());
        let stopper = node.stopper().unwrap();
        let serves = std::thread::spawn(move || node.serve().unwrap());
        Self { url, victims, stopper, serves: Some(serves) }
    }

    fn connect(&self) -> Cluster {
        Cluster::connect(&self.url).unwrap()
    }

    /// Starts a process in a role, and waits until it reports that it is ready.
    fn start(&self, role: &str) -> Victim {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "victim", "--ignored", "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .env(CLUSTER, &self.victims)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(said.any(|line| line.unwrap().contains("it is ready")), "{role} has ended");
        Victim(child)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stopper.stop();
        self.serves.take().unwrap().join().unwrap();
    }
}

struct Victim(Child);

impl Victim {
    fn kill(self) {
        drop(self);
    }

    fn stop(&self) {
        let sent = Command::new("kill").args(["-STOP", &self.0.id().to_string()]).status();
        assert!(sent.unwrap().success());
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn say_and_wait() -> ! {
    println!("it is ready");
    std::io::stdout().flush().unwrap();
    loop {
        std::thread::park();
    }
}

/// The program of a process that is killed.
#[test]
#[ignore = "the other tests start it as a process, in a role"]
fn victim() {
    let variable = |name| std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set"));
    let (role, url) = (variable(ROLE), variable(CLUSTER));
    let cluster = Cluster::connect(&url).unwrap();
    if role == "group" {
        // It waits for part 2, which never comes.
        let cluster = cluster.in_group("three", 1, 3).unwrap();
        std::thread::spawn(|| say_and_wait());
        let _ = cluster.run(1, async |_| Ok(()));
        return;
    }
    let role = role.as_str();
    let cluster = if role == "barrier" { cluster.in_group("two", 1, 2).unwrap() } else { cluster };
    let done: Result<Vec<()>> = cluster.run(1, async |ct| {
        if role == "name" {
            ct.root_or_init::<Record>("record", async || say_and_wait()).await?;
        }
        if role == "barrier" {
            ct.barrier("both").await?;
            say_and_wait();
        }
        let at = record(ct).await?;
        match role {
            "lock" => {
                let _held = at.lock().acquire(ct).await?;
                say_and_wait();
            }
            "locks" => {
                let g = &ct.pin();
                let _held = g.lock_and_read([(at.lock(), at.shared(g))]).await?;
                say_and_wait();
            }
            "guard" => {
                let _guard = ct.pin();
                say_and_wait();
            }
            "value" => {
                stop_in_the_middle(at, ct).await?;
                say_and_wait();
            }
            _ => Err(Error::other(format!("there is no role {role}"))),
        }
    });
    done.unwrap();
}

/// Leaves the value as a writer that stops between two words of its last chain.
async fn stop_in_the_middle(at: RemotePtr<Record>, ct: &ComputeThread) -> Result<()> {
    let word = |address: Address, index: u64| {
        Place::<Atomic<u64>>::from_address(Address::new(address.segment(), address.offset() + 8 * index))
    };
    let lock = at.lock().acquire(ct).await?;
    let token = word(at.lock().address(), 0).load(ct).await?;
    for (index, value) in [token, 7, 99].into_iter().enumerate() {
        word(at.state().address(), index as u64).store(ct, value).await?;
    }
    Ok(lock.release().await?)
}

/// Kills a process in a role while `waits` waits for it, for all pairs of ways.
fn killed<R: Send>(role: &str, waits: impl AsyncFn(&ComputeThread) -> Result<R> + Sync) -> Vec<R> {
    WAYS.iter().map(|ways| killed_by(*ways, role, &waits)).collect()
}

fn killed_by<R: Send>(
    ways: [usize; 2],
    role: &str,
    waits: impl AsyncFn(&ComputeThread) -> Result<R> + Sync,
) -> R {
    let node = Node::new(role, ways);
    let cluster = node.connect();
    let victim = node.start(role);
    let mut ended = std::thread::scope(|scope| {
        let waits = scope.spawn(|| cluster.run(1, &waits));
        victim.kill();
        waits.join().unwrap().unwrap()
    });
    ended.pop().unwrap()
}

#[test]
fn a_lock_of_a_killed_process_is_taken_over() {
    for role in ["lock", "locks"] {
        let told = killed(role, async |ct| {
            let at = record(ct).await?;
            let held = at.lock().acquire(ct).await?;
            let told = held.needs_recovery();
            held.release().await?;
            Ok(told)
        });
        assert_eq!(told, [true; 4]);
    }
}

#[test]
fn a_name_claimed_by_a_killed_process_passes_to_the_next_claimant() {
    killed("name", async |ct| record(ct).await?.state().read(ct).await);
}

#[test]
fn a_value_that_a_killed_process_was_writing_is_written_anew() {
    let seen = killed("value", async |ct| {
        let at = record(ct).await?;
        match at.state().read(ct).await {
            Err(Error::HalfWritten(_)) => {}
            other => panic!("{other:?}"),
        }
        at.state().write(ct, [3; 3]).await?;
        at.state().read(ct).await
    });
    assert_eq!(seen, [[3; 3]; 4]);
}

#[test]
fn a_guard_of_a_killed_process_holds_nothing_back() {
    let reclaimed = killed("guard", async |ct| {
        let at = record(ct).await?;
        while ct.metrics().reclaimed == 0 {
            let g = &ct.pin();
            let new = Record::new_in(g, Record::init([1; 3])).await?;
            at.next().store(g, new).await?;
            let old = at.next().swap(g, Shared::NULL).await?;
            g.sched_reclaim(old).await?;
            ct.sleep(Duration::from_micros(100)).await;
        }
        Ok(ct.metrics().reclaimed)
    });
    assert!(reclaimed.iter().all(|count| *count > 0));
}

#[test]
fn a_barrier_that_a_killed_process_never_reaches_is_broken() {
    for ways in WAYS {
        let node = Node::new("barrier", ways);
        let cluster = node.connect().in_group("two", 0, 2).unwrap();
        let ended = std::thread::scope(|scope| {
            let run = scope.spawn(|| {
                cluster.run(1, async |ct| {
                    ct.barrier("both").await?;
                    ct.barrier("never").await
                })
            });
            node.start("barrier").kill();
            run.join().unwrap()
        });
        assert!(matches!(ended, Err(Error::BarrierBroken(_))), "{ended:?}");
    }
}

/// After a part is killed while it waits for the others, another process can take its part.
#[test]
fn a_group_replaces_a_process_that_was_killed_while_it_waited() {
    for ways in WAYS {
        let node = Node::new("group", ways);
        let run = |part: u16| {
            // Parts of one group by both ways.
            let url = if part == 1 { &node.victims } else { &node.url };
            let cluster = Cluster::connect(url).unwrap();
            // The part is taken until the killed process is evicted. If all others come before, the run can not begin.
            loop {
                match cluster.in_group("three", part, 3)?.run(1, async |ct| ct.barrier("met").await) {
                    Err(error)
                        if ["has this part", "has ended before the run began"]
                            .iter()
                            .any(|reason| error.to_string().contains(reason)) =>
                    {
                        std::thread::yield_now();
                    }
                    other => return other.map(drop),
                }
            }
        };
        std::thread::scope(|scope| {
            let first = scope.spawn(|| run(0));
            node.start("group").kill();
            let others = [1, 2].map(|part| scope.spawn(move || run(part)));
            for met in [first].into_iter().chain(others) {
                met.join().unwrap().unwrap();
            }
        });
    }
}

/// A process on a network is disconnected when its lease has expired, by one that maps the memory as well.
#[test]
fn a_lock_of_a_silent_process_on_a_network_is_taken_over() {
    for ways in [[0, 1], [1, 1]] {
        let node = Node::new("silent", ways);
        let cluster = node.connect();
        let victim = node.start("lock");
        victim.stop();
        let told = cluster.run(1, async |ct| {
            let held = record(ct).await?.lock().acquire(ct).await?;
            let told = held.needs_recovery();
            held.release().await?;
            Ok(told)
        });
        assert_eq!(told.unwrap(), [true]);
    }
}

/// A guard keeps its garbage from being freed while it leaves, which takes longer than its lease.
#[test]
fn a_process_that_leaves_slowly_is_not_evicted() {
    let node = Node::new("leaves", [1, 1]);
    let (stays, leaves) = (node.connect(), node.connect());
    let (is_pinned, has_left) = (Barrier::new(2), AtomicBool::new(false));
    let evictions = std::thread::scope(|scope| {
        let stays = scope.spawn(|| {
            stays.run(1, async |ct| {
                record(ct).await?;
                let mut guard = ct.pin();
                is_pinned.wait();
                while !has_left.load(Ordering::Relaxed) {
                    // The epoch advances now and then.
                    std::thread::sleep(LEASE * 2 / 5);
                    drop(guard);
                    guard = ct.pin();
                }
                drop(guard);
                Ok(ct.status().await?.evictions)
            })
        });
        is_pinned.wait();
        let retired = leaves.run(1, async |ct| {
            let at = record(ct).await?;
            for _ in 0..3 {
                let g = &ct.pin();
                let new = Record::new_in(g, Record::init([1; 3])).await?;
                at.next().store(g, new).await?;
                let old = at.next().swap(g, Shared::NULL).await?;
                g.sched_reclaim(old).await?;
            }
            Ok(())
        });
        retired.unwrap();
        drop(leaves);
        has_left.store(true, Ordering::Relaxed);
        stays.join().unwrap()
    });
    assert_eq!(evictions.unwrap(), [0]);
}

/// A process that maps the memory can still write to it: it stays a member.
#[test]
fn a_silent_process_that_maps_the_memory_is_not_evicted() {
    for ways in [[0, 0], [1, 0]] {
        let node = Node::new("mapped", ways);
        let cluster = node.connect();
        let victim = node.start("lock");
        victim.stop();
        std::thread::sleep(4 * LEASE);
        let refused = cluster.run(1, async |ct| {
            let members = ct.status().await?.members;
            let silent = members.iter().find(|member| !member.is_this).expect("it is a member").number;
            match ct.evict(silent).await {
                Err(Error::InvalidArgument(refused)) => Ok(refused.to_string()),
                other => panic!("{other:?}"),
            }
        });
        let refused = refused.unwrap().pop().unwrap();
        assert!(refused.contains("it is alive"), "{refused}");
    }
}
