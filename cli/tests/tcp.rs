//! The command on a cluster over TCP: memory nodes on loopback. Clients are processes that run this program in a role, which an environment variable
//! names.

#![cfg(target_os = "linux")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use farfield::prelude::*;
use farfield::{ClientOptions, Result};

const FARFIELD: &str = env!("CARGO_BIN_EXE_farfield");

fn farfield(arguments: &[&str]) -> Output {
    Command::new(FARFIELD).args(arguments).env_remove("FARFIELD_SECRET_FILE").output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// `farfield memnode`, until it is dropped, and its address.
struct Node(Child, String);

impl Node {
    fn start(options: &[&str]) -> Self {
        let start = ["memnode", "--segment-size", "8MiB"];
        let mut child =
            Command::new(FARFIELD).args(start).args(options).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.split_once("tcp://").and_then(|(_, rest)| rest.split_once(": "));
        let address = address.unwrap_or_else(|| panic!("no address in {line:?}")).0.to_owned();
        Self(child, address)
    }

    fn signal(&self, signal: &str) {
        assert!(Command::new("kill").args([signal, &self.0.id().to_string()]).status().unwrap().success());
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // One that was killed has ended already.
        if self.0.try_wait().unwrap().is_none() {
            self.signal("-CONT");
            self.signal("-TERM");
            assert!(self.0.wait().unwrap().success());
        }
    }
}

fn secret(name: &str) -> PathBuf {
    let file = std::env::temp_dir().join(format!("farfield-tcp-{name}-{}", std::process::id()));
    std::fs::write(&file, name).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    file
}

#[test]
fn two_memory_nodes_are_a_cluster() {
    let nodes = [(); 2].map(|()| Node::start(&["--listen", "tcp://127.0.0.1:0"]));
    let url = format!("tcp://{},{}", nodes[0].1, nodes[1].1);
    let ping = farfield(&["ping", &url, "--count", "10"]);
    assert!(ping.status.success(), "{}", stderr(&ping));
    let output = farfield(&["status", &url, "--format", "json"]);
    let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(status["members"][0]["this"], true);
    assert_eq!(status["nodes"].as_array().unwrap().len(), 2);
}

#[test]
fn each_mistake_is_an_error_of_one_line() {
    let (right, wrong) = (secret("right"), secret("wrong"));
    let [right, wrong] = [&right, &wrong].map(|file| file.to_str().unwrap());
    let node = Node::start(&["--listen", "tcp://127.0.0.1:0", "--secret-file", right]);
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let at = |option: &str| format!("tcp://{}{option}", node.1);
    for (arguments, message) in [
        (&["memnode", "--listen", &at("")][..], "another program listens there already"),
        (&["memnode", "--listen", "tcp://0.0.0.0:0"], "without a secret only this machine is served"),
        (&["memnode", "--listen", "tcp://10.99.98.97:0", "--secret-file", right], "no network interface"),
        (&["memnode", "--listen", "127.0.0.1:0"], "listens on shm:NAME, tcp://ADDR:PORT or rdma://ADDR:PORT"),
        (&["memnode", "--listen", "tcp://localhost"], "not an address and a port"),
        (&["memnode", "--listen", "udp://127.0.0.1:0"], "listens on `shm`, `tcp` or `rdma`"),
        (&["memnode", "--listen", "tcp://127.0.0.1:0?encrypt=maybe"], "`encrypt`, `yes` or `no`"),
        (
            &["memnode", "--listen", "tcp://127.0.0.1:0", "--listen", "rdma://127.0.0.1:0"],
            "not atomic with those of processors",
        ),
        (
            &["memnode", "--cluster", "shm:mixed", "--listen", "rdma://127.0.0.1:0"],
            "not atomic with those of processors",
        ),
        (
            &["memnode", "--listen", "tcp://127.0.0.1:0", "--nodes", "2"],
            "memory nodes is 2: only the segments",
        ),
        (&["ping", &at(&format!("?secret-file={wrong}"))], "does not know the cluster's secret"),
        (&["ping", &at("")], "does not know the cluster's secret"),
        (&["ping", &at(&format!("?secret-file={right},encrypt=no"))], "serves encrypted connections only"),
        (&["ping", &at("?encrypt=maybe")], "encrypt=maybe is neither `yes` nor `no`"),
        (&["ping", &at("?speed=9")], "unknown option `speed`"),
        (&["ping", "tcp://nowhere.invalid:7000"], "nowhere.invalid:7000"),
        (&["ping", &format!("tcp://{nobody}")], "no memory node listens there"),
        (&["ping", "tcp://127.0.0.1"], "is not HOST:PORT"),
        (&["ping", "tcp:127.0.0.1:7"], "write tcp://HOST:PORT,HOST:PORT"),
    ] {
        let output = farfield(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let said = stderr(&output);
        assert!(said.contains(message) && said.lines().count() == 1, "{arguments:?}: {said}");
    }
    let served = farfield(&["ping", &at(&format!("?secret-file={right}")), "--count", "10"]);
    assert!(served.status.success(), "{}", stderr(&served));
    for file in [right, wrong] {
        std::fs::remove_file(file).unwrap();
    }
}

/// The role of a process, and the URL of its cluster.
const ROLE: &str = "FARFIELD_TEST_TCP_ROLE";
const CLUSTER: &str = "FARFIELD_TEST_TCP_CLUSTER";

/// The idle connections of the role `lanes`: lanes, and others that send nothing.
const IDLE: usize = 2000;

#[remote]
struct Counter {
    value: Atomic<u64>,
}

/// Returns a counter on the first memory node.
async fn counter(ct: &ComputeThread) -> Result<RemotePtr<Counter>> {
    let new = async || Counter::new_in(ct.on_node(0), Counter::init()).await?.write(ct).await;
    ct.root_or_init("counter", new).await
}

/// A process in a role, until it is dropped.
struct Client(Child);

impl Client {
    /// Starts it with as many descriptors as the system allows, and waits until it reports that it is ready.
    fn start(role: &str, url: &str) -> Self {
        let mut child = Command::new("sh")
            .args(["-c", "ulimit -n $(ulimit -H -n) && exec \"$@\"", "sh"])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "client", "--ignored", "--nocapture", "--test-threads=1"])
            // A stall is what some of them are for.
            .env("FARFIELD_STALL", "0")
            .env(ROLE, role)
            .env(CLUSTER, url)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stdout.as_mut().unwrap()).lines();
        if !said.any(|line| line.unwrap().contains("it is ready")) {
            let mut error = String::new();
            child.stderr.take().unwrap().read_to_string(&mut error).unwrap();
            panic!("{role} has ended: {error}");
        }
        Self(child)
    }

    /// Waits for its end, for at most `patience`. Returns what it has printed as an error.
    fn error(&mut self, patience: Duration) -> String {
        let began = Instant::now();
        while self.0.try_wait().unwrap().is_none() {
            assert!(began.elapsed() < patience, "a client has not ended after {patience:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
        let mut said = String::new();
        self.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        said
    }
}

impl Drop for Client {
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

/// The program of a client.
#[test]
#[ignore = "the other tests start it as a process, in a role"]
fn client() {
    let variable = |name| std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set"));
    let (role, url) = (variable(ROLE), variable(CLUSTER));
    let cluster = Cluster::connect(&url).unwrap();
    match role.as_str() {
        // It has served a call, and serves no other.
        "idle" => {
            let mut options = ClientOptions::new();
            options.threads = 2;
            let client = cluster.client_with(&options).unwrap();
            let calls = async {
                let counter = client.call(counter).await?;
                client.call(async move |ct| counter.value().fetch_add(ct, 1).await).await
            };
            tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(calls).unwrap();
            say_and_wait();
        }
        "busy" => {
            println!("it is ready");
            let slowest = AtomicU64::new(0);
            let ended = cluster.run(2, async |ct| {
                let counter = counter(ct).await?;
                let adds = async |_| -> Result<()> {
                    loop {
                        let began = Instant::now();
                        let added = counter.value().fetch_add(ct, 1).await;
                        slowest.fetch_max(began.elapsed().as_millis() as u64, Relaxed);
                        added?;
                    }
                };
                ct.tasks(8, adds).await
            });
            eprintln!("{}\n{}", slowest.into_inner(), ended.unwrap_err());
        }
        "lanes" => {
            let address = url.trim_start_matches("tcp://").split('?').next().unwrap();
            let _others: Vec<_> = (0..IDLE).map(|_| TcpStream::connect(address).unwrap()).collect();
            let all = Barrier::new(IDLE);
            let ended: Result<Vec<()>> = cluster.run(IDLE, async |ct| {
                let add = async { counter(ct).await?.value().fetch_add(ct, 1).await };
                if let Err(error) = add.await {
                    // The others would wait for this one.
                    eprintln!("{error}");
                    std::process::exit(1);
                }
                if all.wait().is_leader() {
                    say_and_wait();
                }
                loop {
                    std::thread::park();
                }
            });
            ended.unwrap();
        }
        _ => panic!("there is no role {role}"),
    }
}

/// Returns a process's time on processors, from `/proc`: the sum of two fields, in hundredths of a second.
fn processor_time(process: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    // The name, in parentheses, may have blanks.
    let fields = stat.rsplit_once(')').unwrap().1.split_whitespace();
    Duration::from_millis(
        10 * fields.skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum::<u64>(),
    )
}

/// Under one percent of a core each, while their keepers renew leases of 500 ms.
#[test]
fn idle_memory_nodes_and_clients_use_little_processor_time() {
    const WATCHED: Duration = Duration::from_secs(5);
    let nodes = [(); 2].map(|()| Node::start(&["--listen", "tcp://127.0.0.1:0"]));
    let url = format!("tcp://{},{}", nodes[0].1, nodes[1].1);
    let clients = [(); 3].map(|()| Client::start("idle", &url));
    let processes: Vec<u32> =
        nodes.iter().map(|node| node.0.id()).chain(clients.iter().map(|client| client.0.id())).collect();
    let times = || processes.iter().map(|process| processor_time(*process)).collect::<Vec<_>>();
    let (began, before) = (Instant::now(), times());
    std::thread::sleep(WATCHED);
    let after = times();
    let used: Vec<Duration> =
        after.iter().zip(&before).map(|(after, before)| after.saturating_sub(*before)).collect();
    eprintln!("memory nodes and clients used {used:?} in {:?}", began.elapsed());
    assert!(used.iter().all(|used| *used < began.elapsed() / 100), "{used:?} in {:?}", began.elapsed());
}

/// Starts clients under load, sends a signal to one of two memory nodes, and waits for the clients' errors.
fn clients_fail_after(signal: &str) {
    /// The timeout of an operation, in the URL, and as much again for a busy machine.
    const MOST_MS: u64 = 2 * 1000;
    /// A process that ends leaves the cluster, by operations that fail, too.
    const END: Duration = Duration::from_secs(20);
    let nodes = [(); 2].map(|()| Node::start(&["--listen", "tcp://127.0.0.1:0"]));
    let url = format!("tcp://{},{}?timeout=1s", nodes[0].1, nodes[1].1);
    let mut clients = [(); 4].map(|()| Client::start("busy", &url));
    let counted = |least: u64| {
        let cluster = Cluster::connect(&url).unwrap();
        let counts = cluster.run(1, async |ct| {
            let counter = counter(ct).await?;
            while counter.value().load(ct).await? < least {}
            Ok(())
        });
        counts.unwrap();
    };
    counted(10_000);
    nodes[0].signal(signal);
    let began = Instant::now();
    for client in &mut clients {
        let said = client.error(END.saturating_sub(began.elapsed()));
        let (slowest_ms, error) = said.split_once('\n').unwrap();
        assert!(error.contains("memory node 0 did not answer within 1000000 us"), "{said}");
        assert!(slowest_ms.parse::<u64>().unwrap() <= MOST_MS, "{said}");
        eprintln!(
            "{signal}: an operation took {slowest_ms} ms, and the client ended after {:?}",
            began.elapsed()
        );
    }
}

#[test]
fn clients_of_a_killed_memory_node_end_with_an_error_within_their_timeout() {
    clients_fail_after("-KILL");
}

#[test]
fn clients_of_a_frozen_memory_node_end_with_an_error_within_their_timeout() {
    clients_fail_after("-STOP");
}

/// As many lanes, and as many connections that send nothing.
#[test]
fn thousands_of_idle_and_garbage_connections_take_little_memory_and_keep_no_client_from_being_served() {
    const GARBAGE: usize = 10_000;
    const MOST_KIB: u64 = (64 + 8) << 10;
    let node = Node::start(&["--listen", "tcp://127.0.0.1:0"]);
    let url = format!("tcp://{}", node.1);
    let began = Instant::now();
    // All of its threads begin at the same time.
    let _idle = Client::start("lanes", &format!("{url}?timeout=60s"));
    eprintln!("{IDLE} lanes and other connections after {:?}", began.elapsed());
    let cluster = Cluster::connect(&url).unwrap();
    let ended = cluster.run(1, async |ct| {
        let counter = counter(ct).await?;
        for number in 0..GARBAGE {
            let mut stream = TcpStream::connect(&node.1).unwrap();
            let _ = stream.write_all(&[number as u8; 100]);
            if number % 100 == 0 {
                counter.value().fetch_add(ct, 1).await?;
            }
        }
        counter.value().load(ct).await
    });
    assert_eq!(ended.unwrap(), [(IDLE + GARBAGE / 100) as u64]);
    let status = std::fs::read_to_string(format!("/proc/{}/status", node.0.id())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
    let peak: u64 = peak.unwrap().parse().unwrap();
    eprintln!("{GARBAGE} garbage connections after {:?}; its peak is {peak} KiB", began.elapsed());
    assert!(peak <= MOST_KIB, "{peak} KiB");
}

/// It accepts connections still: the kernel does.
#[test]
fn a_frozen_memory_node_is_an_error_within_the_timeout() {
    let node = Node::start(&["--listen", "tcp://127.0.0.1:0"]);
    node.signal("-STOP");
    let began = Instant::now();
    let output = farfield(&["ping", &format!("tcp://{}?timeout=500ms", node.1)]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("does not answer"), "{}", stderr(&output));
    assert!(began.elapsed() < Duration::from_secs(5));
}

/// Processes of its own machine map the memory, and others come over TCP: they see the same cluster.
#[test]
fn a_memory_node_of_shared_memory_listens_on_tcp() {
    let name = format!("shm:two-ways-{}", std::process::id());
    let node = Node::start(&["--cluster", &name, "--nodes", "2", "--listen", "tcp://127.0.0.1:0"]);
    let mapped = farfield::Cluster::connect(&name).unwrap();
    let remote = farfield::Cluster::connect(&format!("tcp://{}", node.1)).unwrap();
    for url in [&name, &format!("tcp://{}", node.1)] {
        let output = farfield(&["status", url, "--format", "json"]);
        let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(status["members"].as_array().unwrap().len(), 3, "this one, and the two here: {status}");
        assert_eq!(status["nodes"].as_array().unwrap().len(), 2, "{status}");
    }
    drop((mapped, remote));
}
