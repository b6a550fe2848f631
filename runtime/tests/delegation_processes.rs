//! Delegation between processes that share memory, are connected by TCP, or of which only one maps the memory. Some are killed: their clients are told, and their handles do not count any more.
//!
//! The other processes run this program in a role that an environment variable names.

#![cfg(target_os = "linux")]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use farfield::memory_node::{MemoryNode, MemoryNodeOptions, Stopper};
use farfield::prelude::*;
use farfield::{Error, StoredTrust};

const ROLE: &str = "FARFIELD_TEST_DELEGATION_ROLE";
const CLUSTER: &str = "FARFIELD_TEST_DELEGATION_CLUSTER";

/// Held by each test: one measures this process's time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A memory node of this process.
struct Node {
    /// By which the others connect.
    url: String,
    /// By which this process does.
    own_url: String,
    stopper: Stopper,
    serves: Option<JoinHandle<()>>,
}

/// A process in a role.
struct Process(Child);

const TCP: &str = "tcp://127.0.0.1:0";

fn shared_memory(name: &str) -> String {
    format!("shm:delegation-{name}-{}", std::process::id())
}

impl Node {
    fn of_shared_memory(name: &str) -> Self {
        Self::new(&[&shared_memory(name)])
    }

    fn of_tcp() -> Self {
        Self::new(&[TCP])
    }

    /// Others map the memory, and this process is connected by TCP.
    fn for_others_to_map(name: &str) -> Self {
        Self::new(&[&shared_memory(name), TCP])
    }

    /// This process maps the memory, and others are connected by TCP.
    fn to_map(name: &str) -> Self {
        let mut node = Self::for_others_to_map(name);
        std::mem::swap(&mut node.url, &mut node.own_url);
        node
    }

    fn new(addresses: &[&str]) -> Self {
        let mut options = MemoryNodeOptions::new(addresses[0]);
        options.listen = addresses.iter().map(|address| (*address).to_owned()).collect();
        options.segment_bytes = 4 << 20;
        options.lease = Duration::from_millis(500);
        let node = MemoryNode::listen(&options).unwrap();
        let (urls, stopper) = (node.urls().to_vec(), node.stopper().unwrap());
        let serves = std::thread::spawn(move || node.serve().unwrap());
        let own_url = urls[urls.len() - 1].clone();
        Self { url: urls[0].clone(), own_url, stopper, serves: Some(serves) }
    }

    fn connect(&self) -> Cluster {
        Cluster::connect(&self.own_url).unwrap()
    }

    /// Starts a process in a role, and waits until it reports that it is ready.
    fn start(&self, role: &str) -> Process {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "other_process", "--ignored", "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .env(CLUSTER, &self.url)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(said.any(|line| line.unwrap().contains("it is ready")), "{role} has ended");
        Process(child)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stopper.stop();
        self.serves.take().unwrap().join().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Reports that the process is ready, and serves until it is killed.
async fn say_and_serve(ct: &ComputeThread) {
    println!("it is ready");
    std::io::stdout().flush().unwrap();
    loop {
        ct.sleep(Duration::from_secs(1)).await;
    }
}

/// A value of the process that waits.
struct Noisy(u64);

static DROPPED: AtomicU64 = AtomicU64::new(0);

impl Drop for Noisy {
    fn drop(&mut self) {
        DROPPED.fetch_add(1, Ordering::SeqCst);
    }
}

async fn find<T: 'static>(ct: &ComputeThread) -> Result<Trust<T>> {
    let stored: RemotePtr<StoredTrust<T>> = ct.lookup("value").await?;
    Trust::open(stored, ct).await
}

#[test]
#[ignore = "the other tests start it as a process, in a role"]
fn other_process() {
    let variable = |name| std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set"));
    let role = variable(ROLE);
    let done = Cluster::connect(&variable(CLUSTER)).unwrap().run(1, async |ct| {
        match role.as_str() {
            "trustee" => {
                let counter = ct.entrust(0_u64).await?.store(ct).await?;
                ct.publish("value", counter).await?;
                say_and_serve(ct).await;
            }
            "client" => {
                let noisy: Trust<Noisy> = find(ct).await?;
                assert_eq!(
                    noisy
                        .apply(ct, 5, |noisy, by: u64| {
                            noisy.0 += by;
                            noisy.0
                        })
                        .await?,
                    5
                );
                say_and_serve(ct).await;
            }
            role => panic!("{role} is no role"),
        }
        Ok(())
    });
    done.unwrap();
}

fn add(count: &mut u64, by: u64) -> u64 {
    *count += by;
    *count
}

#[test]
fn processes_request_of_each_other_until_one_is_killed() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    request_until_the_trustee_is_killed(&Node::of_shared_memory("trustee"));
}

#[test]
fn so_do_processes_of_which_only_one_maps_the_memory() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    request_until_the_trustee_is_killed(&Node::for_others_to_map("mapped-trustee"));
    request_until_the_trustee_is_killed(&Node::to_map("mapped-client"));
}

#[test]
fn a_trustee_serves_clients_that_map_the_memory_and_others_at_one_time() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    for node in [Node::for_others_to_map("both-mapped"), Node::to_map("both-remote")] {
        let _trustee = node.start("trustee");
        let sums = std::thread::scope(|scope| {
            let add_all = |url: &str| {
                let added = Cluster::connect(url)?.run(2, async |ct| {
                    let counter = find::<u64>(ct).await?;
                    let mut last = 0;
                    for _ in 0..200 {
                        let sums = ct.tasks(2, async |_| counter.apply(ct, 1, add).await).await?;
                        assert!(sums[0].min(sums[1]) > last, "{sums:?} after {last}");
                        last = sums[0].max(sums[1]);
                    }
                    Ok(last)
                })?;
                Ok(added.into_iter().max())
            };
            let clients = [&node.url, &node.own_url].map(|url| scope.spawn(move || add_all(url)));
            clients.map(|client| client.join().unwrap())
        });
        let sums: Vec<_> = sums.into_iter().collect::<Result<_>>().unwrap();
        assert_eq!(sums.into_iter().max(), Some(Some(2 * 2 * 2 * 200)));
    }
}

#[test]
fn so_do_processes_that_are_connected_by_tcp() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    request_until_the_trustee_is_killed(&Node::of_tcp());
}

fn request_until_the_trustee_is_killed(node: &Node) {
    let trustee = node.start("trustee");
    let cluster = node.connect();
    let killed = Mutex::new(Some(trustee));
    let counts = cluster.run(2, async |ct| {
        let counter = find::<u64>(ct).await?;
        for _ in 0..1_000 {
            counter.apply(ct, 1, add).await?;
        }
        // Many at a time, some of them large.
        ct.tasks(16, async |task| {
            let padding = vec![1_u64; if task % 4 == 0 { 200 } else { task }];
            let back = counter.apply(ct, padding.clone(), |count, padding: Vec<u64>| {
                *count += padding[0];
                padding
            });
            assert!(back.await? == padding);
            Ok(())
        })
        .await?;
        let panicked = counter.apply(ct, Vec::new(), |_, padding: Vec<u64>| padding[0]).await.unwrap_err();
        assert!(matches!(panicked, Error::DelegatedPanicked(_)), "{panicked}");
        ct.barrier("counted").await?;
        let count = counter.apply(ct, 0, add).await?;
        ct.barrier("read").await?;
        if ct.index() == 0 {
            drop(killed.lock().unwrap().take());
        }
        ct.barrier("killed").await?;
        let gone = counter.apply(ct, 1, add).await.unwrap_err();
        assert!(
            matches!(&gone, Error::TrusteeGone(gone) if gone.function.contains("delegation_processes.rs")),
            "{gone}"
        );
        let again = counter.apply(ct, 1, add).await.unwrap_err();
        assert!(matches!(again, Error::TrusteeGone(gone) if !gone.may_have_run));
        Ok(count)
    });
    for count in counts.unwrap() {
        assert_eq!(count, 2_032);
    }
}

/// Returns the processor time of a process, in ticks of 10 ms.
fn ticks(process: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    // The fields behind the name, which may have spaces.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

#[test]
fn a_trustee_and_a_client_with_nothing_to_do_sleep_and_are_woken() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    use_rarely(&Node::of_shared_memory("idle"), MOST_TICKS);
}

/// The one that maps the memory sleeps until the other one wakes it through the memory node. That one looks for what is not forwarded, with pauses, while they have a pair.
#[test]
fn so_does_each_of_two_of_which_only_one_maps_the_memory() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    use_rarely(&Node::for_others_to_map("idle-mapped"), [MOST_TICKS[0], u64::MAX]);
    use_rarely(&Node::to_map("idle-remote"), [u64::MAX, MOST_TICKS[1]]);
}

/// The most processor time of trustee and client, in ticks of 10 ms, of at least 1.25 s.
const MOST_TICKS: [u64; 2] = [25, 50];

fn use_rarely(node: &Node, most: [u64; 2]) {
    let trustee = node.start("trustee");
    let cluster = node.connect();
    let done = cluster.run(1, async |ct| {
        let counter = find::<u64>(ct).await?;
        assert_eq!(counter.apply(ct, 1, add).await?, 1);
        let before = [trustee.0.id(), std::process::id()].map(ticks);
        let requests = async || {
            for expected in 2..52 {
                // Long enough to fall asleep, on either side.
                ct.sleep(Duration::from_millis(20)).await;
                let napping = counter.apply(ct, 1, |count, by: u64| {
                    std::thread::sleep(Duration::from_millis(5));
                    add(count, by)
                });
                assert_eq!(napping.await?, expected);
            }
            Ok(())
        };
        // Without being woken, a sleeper looks once in a second.
        ct.within(Duration::from_secs(20), requests()).await?;
        let after = [trustee.0.id(), std::process::id()].map(ticks);
        let busy = [0, 1].map(|side| after[side] - before[side]);
        assert!(busy[0] < most[0] && busy[1] < most[1], "{busy:?} ticks of 10 ms of trustee and client");
        Ok(())
    });
    done.unwrap();
}

#[test]
fn the_handles_of_a_killed_process_do_not_count() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    for node in [
        Node::of_shared_memory("client"),
        Node::of_tcp(),
        Node::for_others_to_map("killed-mapped"),
        Node::to_map("killed-remote"),
    ] {
        kill_a_client(&node);
    }
}

fn kill_a_client(node: &Node) {
    DROPPED.store(0, Ordering::SeqCst);
    let cluster = node.connect();
    let done = std::thread::scope(|scope| {
        cluster.run(1, async |ct| {
            let stored = ct.entrust(Noisy(0)).await?.store(ct).await?;
            ct.publish("value", stored).await?;
            let started = scope.spawn(|| node.start("client"));
            // This thread serves the client meanwhile.
            while !started.is_finished() {
                ct.sleep(Duration::from_millis(1)).await;
            }
            let client = started.join().unwrap();
            let taken: Trust<Noisy> = Trust::take(ct.unpublish("value").await?, ct).await?;
            drop(taken);
            for _ in 0..10 {
                ct.sleep(Duration::from_millis(10)).await;
            }
            assert_eq!(DROPPED.load(Ordering::SeqCst), 0, "the client has a handle");
            drop(client);
            while DROPPED.load(Ordering::SeqCst) == 0 {
                ct.sleep(Duration::from_millis(10)).await;
            }
            Ok(())
        })
    });
    done.unwrap();
}
