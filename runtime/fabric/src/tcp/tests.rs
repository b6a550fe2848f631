//! Both sides over loopback, unauthenticated clients, and a network that alters bytes.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::channel::Preamble;
use super::config::TcpConfig;
use super::frame;
use super::line::Line;
use super::*;
use crate::chain::RawChain;
use crate::contents::tests::Empty;
use crate::error::{Error, Result};
use crate::handshake::{ConnectionKind, Hello, Join, NodePosition, Reply, Secret, Welcome};
use crate::memory_node::{MemoryNode, NodeOptions};
use crate::question::{Asker, Transport};
use crate::{Endpoint, Posted, Stopper};
use farfield_words::Address;

const SEGMENT_BYTES: u64 = 64 * 1024;
const AT: Address = Address::new(0, 4096);

fn options(serves_plain: bool, segments: u16, segment_bytes: u64) -> NodeOptions {
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let tcp = Some(TcpListen { address, serves_plain });
    NodeOptions { shm: None, tcp, nodes: 1, segments, segment_bytes, lease_ms: 60_000 }
}

/// Where memory nodes listen instead of on loopback: an IP address, a blank, and the path of the network namespace that has it.
/// `cargo xtask tcp-test` sets it.
const PLACE: &str = "FARFIELD_TCP_NODES";

/// Listens at [`PLACE`]. A socket belongs to the namespace of the thread that makes it, so a thread that has entered it listens.
fn listen(mut options: NodeOptions, secret: Secret) -> (SocketAddr, MemoryNode) {
    let place = std::env::var(PLACE).unwrap_or_default();
    let listening = thread::spawn(move || {
        let (ip, namespace) = place.split_once(' ').unwrap_or(("127.0.0.1", ""));
        if !namespace.is_empty() {
            let namespace = File::open(namespace).unwrap();
            let network = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(namespace.as_fd(), network).unwrap();
        }
        options.tcp.as_mut().unwrap().address.set_ip(ip.parse().unwrap());
        let node = MemoryNode::listen(&options, secret, Box::new(Empty)).unwrap();
        (node.address().unwrap(), node)
    });
    listening.join().unwrap()
}

/// Memory nodes in threads of this process.
pub(crate) struct Nodes {
    secret: Secret,
    nodes: Vec<(SocketAddr, Stopper, Option<JoinHandle<()>>)>,
}

impl Nodes {
    pub(crate) fn serve(nodes: usize, segments: u16, segment_bytes: u64, secret: &[u8]) -> Self {
        let options = options(true, segments, segment_bytes);
        Self::serve_each(&vec![options; nodes], secret)
    }

    /// Serves one that processes of this machine could map, divided as if there were two.
    pub(crate) fn serve_divided(segments: u16, segment_bytes: u64) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let shm = Some(format!("divided-{}-{number}", std::process::id()).into());
        let options = options(true, segments, segment_bytes);
        Self::serve_each(&[NodeOptions { shm, nodes: 2, ..options }], b"open sesame")
    }

    fn serve_each(nodes: &[NodeOptions], secret: &[u8]) -> Self {
        let secret = Secret::new(secret);
        let node = |options: &NodeOptions| {
            let (address, node) = listen(options.clone(), secret.clone());
            let stopper = node.stopper().unwrap();
            (address, stopper, Some(thread::spawn(move || node.serve().unwrap())))
        };
        Self { secret: secret.clone(), nodes: nodes.iter().map(node).collect() }
    }

    pub(crate) fn config(&self, encrypt: bool) -> TcpConfig {
        let names: Vec<String> = self.nodes.iter().map(|(address, ..)| address.to_string()).collect();
        TcpConfig { encrypt, ..TcpConfig::new(&names.join(",")).unwrap() }
    }

    fn first(&self) -> SocketAddr {
        self.nodes[0].0
    }

    pub(crate) fn client(&self, encrypt: bool) -> Arc<Client> {
        let client = Client::connect_with(&self.config(encrypt), &self.secret, Empty::VERSION).unwrap();
        client.prepare(1).unwrap();
        Arc::new(client)
    }

    fn stop(&mut self) {
        for (_, stopper, serving) in &mut self.nodes {
            stopper.stop();
            if let Some(serving) = serving.take() {
                serving.join().unwrap();
            }
        }
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        self.stop();
    }
}

fn one() -> Nodes {
    Nodes::serve(1, 1, SEGMENT_BYTES, b"open sesame")
}

fn deadline() -> Instant {
    Instant::now() + Duration::from_secs(10)
}

fn execute(endpoint: &TcpEndpoint, chain: RawChain) -> (RawChain, Result<()>) {
    let Posted::InFlight(ticket) = endpoint.post(chain, 0) else { panic!("it takes time") };
    loop {
        if let Poll::Ready(done) = endpoint.poll(ticket) {
            return done;
        }
        endpoint.idle();
    }
}

/// Adds 1 to a word. Returns its value before.
fn add(endpoint: &TcpEndpoint) -> Result<u64> {
    let mut chain = RawChain::default();
    let slot = chain.fetch_add(AT, 1);
    let (chain, result) = execute(endpoint, chain);
    result.map(|()| chain.word(slot))
}

/// Asserts that a correct client is served.
fn works(nodes: &Nodes) {
    add(&TcpEndpoint::new(&nodes.client(true), Some(0), None)).unwrap();
}

const SEALED: Preamble = Preamble { is_sealed: true };
const HELLO: Hello =
    Hello { kind: ConnectionKind::Control, node: 0, cluster: 0, incarnation: 0, nonce: [3; 16] };

/// Returns the reason for which a request is refused.
fn refused(nodes: &Nodes, hello: &[u8]) -> String {
    let mut line = Line::open(nodes.first(), &nodes.secret, SEALED, deadline()).unwrap();
    line.send(hello, deadline()).unwrap();
    line.receive(deadline()).unwrap_err()
}

#[test]
fn chains_longer_than_a_frame_arrive_in_order() {
    let nodes = Nodes::serve(1, 1, 4 << 20, b"open sesame");
    for encrypt in [true, false] {
        let client = nodes.client(encrypt);
        let endpoint = TcpEndpoint::new(&client, Some(0), None);
        let words: Vec<u64> = (0..100_000).map(|word| word ^ u64::from(encrypt)).collect();
        let mut chain = RawChain::default();
        chain.write(AT, &words);
        let read = chain.read(AT, words.len());
        let added = chain.fetch_add(AT, 5);
        let (chain, result) = execute(&endpoint, chain);
        result.unwrap();
        assert_eq!(chain.words(read), words);
        assert_eq!(chain.word(added), words[0]);
    }
}

/// Waits for forwarded words. Returns the changes: the number of the watch, the address, and the words.
fn changes(endpoint: &TcpEndpoint) -> Vec<(u64, Address, Vec<u64>)> {
    let (mut changes, until) = (Vec::new(), deadline());
    while !endpoint.has_changes() {
        assert!(Instant::now() < until, "nothing is forwarded");
        endpoint.idle();
    }
    endpoint.take_changes(|number, at, words| changes.push((number, at, words.to_vec())));
    changes
}

/// Executes a chain that `make` fills.
fn run(endpoint: &TcpEndpoint, make: impl FnOnce(&mut RawChain)) {
    let mut chain = RawChain::default();
    make(&mut chain);
    execute(endpoint, chain).1.unwrap();
}

#[test]
fn what_others_write_to_watched_words_is_forwarded_in_order() {
    // The watched words are in the second memory node, whose own number of the segment is another one.
    let nodes = Nodes::serve(2, 1, SEGMENT_BYTES, b"open sesame");
    let at = Address::new(1, 4096);
    for encrypt in [true, false] {
        let (client, other) = (nodes.client(encrypt), nodes.client(encrypt));
        let (watching, writing) =
            (TcpEndpoint::new(&client, Some(0), None), TcpEndpoint::new(&other, Some(0), None));
        run(&writing, |chain| chain.write(at, &[0; 8]));
        assert!(watching.watch(at, 4, 7) && watching.is_watching());
        run(&watching, |chain| {
            chain.read(at, 4);
            // Its own change.
            chain.write(at, &[9]);
        });
        run(&writing, |chain| {
            // It overlaps both ends of the range, and then a CAS fails.
            chain.write(at, &[1, 2, 3, 4, 5]);
            chain.compare_exchange(at, 8, 9);
            chain.compare_exchange(at, 1, 6);
            chain.fetch_add(at.add(24), 10);
            chain.write(at.add(32), &[1]);
        });
        let expected = [(7, at, vec![1, 2, 3, 4]), (7, at, vec![6]), (7, at.add(24), vec![14])];
        assert_eq!(changes(&watching), expected);
        // Another number from now on.
        assert!(watching.watch(at, 1, 8));
        run(&watching, |chain| _ = chain.read(at, 1));
        run(&writing, |chain| chain.write(at, &[20, 21]));
        assert_eq!(changes(&watching), [(8, at, vec![20])]);
        watching.unwatch(at);
        run(&watching, |chain| _ = chain.read(at, 1));
        run(&writing, |chain| chain.write(at, &[30]));
        run(&watching, |chain| _ = chain.read(at, 1));
        assert!(!watching.has_changes());
    }
}

#[test]
fn the_watches_of_a_closed_connection_end() {
    let nodes = one();
    let writing = TcpEndpoint::new(&nodes.client(true), Some(0), None);
    for number in 0..3 {
        let watching = TcpEndpoint::new(&nodes.client(true), Some(0), None);
        assert!(watching.watch(AT, 1, number));
        run(&watching, |chain| _ = chain.read(AT, 1));
        run(&writing, |chain| chain.write(AT, &[number + 1]));
        assert_eq!(changes(&watching), [(number, AT, vec![number + 1])]);
    }
    run(&writing, |chain| chain.write(AT, &[9]));
    works(&nodes);
}

#[test]
fn the_watches_of_a_thread_end_with_it() {
    let nodes = one();
    let (client, writing) = (nodes.client(true), TcpEndpoint::new(&nodes.client(true), Some(0), None));
    for number in 0..3 {
        // On the connection of the thread before.
        let watching = TcpEndpoint::new(&client, Some(0), None);
        assert!(watching.watch(AT.add(8 * number), 1, number));
        run(&watching, |chain| _ = chain.read(AT, 1));
        run(&writing, |chain| chain.write(AT, &[5, 6, 7]));
        let mut found = Vec::new();
        while found.is_empty() {
            found = changes(&watching);
            // What was forwarded to the thread before may still arrive.
            found.retain(|(of, ..)| *of == number);
        }
        assert_eq!(found, [(number, AT.add(8 * number), vec![5 + number])]);
        run(&writing, |chain| chain.write(AT, &[1, 2, 3]));
    }
    let next = TcpEndpoint::new(&client, Some(0), None);
    run(&next, |chain| _ = chain.read(AT, 1));
    run(&writing, |chain| chain.write(AT, &[8, 9, 10]));
    run(&next, |chain| _ = chain.read(AT, 1));
    assert!(!next.has_changes() && !next.is_watching());
}

/// More answers than its socket and its own buffers take.
#[test]
fn a_client_that_reads_no_answers_delays_no_other() {
    const FRAMES: usize = 1000;
    let nodes = Nodes::serve(1, 1, 4 << 20, b"open sesame");
    let (mut control, _, welcome, key) = join(&nodes);
    let [mut silent, mut other] = [1, 2].map(|number| lane(&nodes, &welcome, &key, number, 0).unwrap());
    silent.does_not_wait().unwrap();
    let mut frame = Vec::new();
    frame::put_read(&mut frame, AT.bits(), 8000);
    for _ in 0..FRAMES {
        silent.seal(&frame);
        silent.flush().unwrap();
    }
    for before in 0..10_u64 {
        let mut frame = Vec::new();
        frame::put_fetch_add(&mut frame, AT.bits(), 1);
        other.send(&frame, deadline()).unwrap();
        assert_eq!(other.receive(deadline()).unwrap(), before.to_le_bytes());
    }
    assert!(Asker::default().ask(&mut control, 99, Duration::from_secs(5)).is_ok());
    // It gets all answers once it reads.
    let (mut taken, until) = (0, deadline());
    while taken < FRAMES {
        assert!(Instant::now() < until, "{taken} answers");
        silent.flush().unwrap();
        let _ = silent.fill();
        while let Some(answer) = silent.record().unwrap() {
            assert_eq!(answer.len(), 1 + 8 * 8000);
            taken += 1;
        }
    }
}

#[test]
fn frames_with_anything_else_than_valid_operations_end_the_connection_with_the_reason() {
    let nodes = one();
    let (_control, _, welcome, key) = join(&nodes);
    let frame = |put: &dyn Fn(&mut Vec<u8>)| {
        let mut frame = Vec::new();
        put(&mut frame);
        frame
    };
    let refused = [
        (frame(&|frame| frame.extend([7; 40])), "unknown or incomplete"),
        (frame(&|frame| frame.extend([7; 3])), "unknown or incomplete"),
        (frame(&|frame| frame::put_read(frame, 0, 1)), "null"),
        (frame(&|frame| frame::put_watch(frame, 0, 1, 1)), "null"),
        (frame(&|frame| frame::put_watch(frame, 8, 1025, 1)), "1024"),
        (frame(&|frame| frame::put_read(frame, SEGMENT_BYTES, 1)), "0x10000"),
        (frame(&|frame| frame::put_fetch_add(frame, Address::new(1, 64).bits(), 1)), "segment"),
        (frame(&|frame| (0..2).for_each(|_| frame::put_read(frame, 8, 8000))), "too long"),
    ];
    for (number, (frame, reason)) in (1..).zip(refused) {
        let mut lane = lane(&nodes, &welcome, &key, number, 0).unwrap();
        lane.send(&frame, deadline()).unwrap();
        let said = lane.receive(deadline()).unwrap_err();
        assert!(said.contains(reason), "{reason}: {said}");
        assert_eq!(lane.receive(deadline()).unwrap_err(), super::line::CLOSED);
    }
}

#[test]
fn a_lane_needs_the_key_and_a_new_number() {
    let nodes = one();
    let (_control, _, welcome, key) = join(&nodes);
    let open = |number, replaced, key: &[u8; 32]| lane(&nodes, &welcome, key, number, replaced);
    assert!(open(1, 0, &[0; 32]).err().unwrap().contains("secret"));
    let mut first = open(2, 0, &key).unwrap();
    assert!(open(2, 0, &key).err().unwrap().contains("secret"), "a recorded request");
    assert!(open(1, 0, &key).err().unwrap().contains("secret"));
    let mut frame = Vec::new();
    frame::put_fetch_add(&mut frame, AT.bits(), 1);
    first.send(&frame, deadline()).unwrap();
    assert_eq!(first.receive(deadline()).unwrap(), 0_u64.to_le_bytes(), "the first lane is unchanged");
    let mut second = open(3, 2, &key).unwrap();
    assert!(first.receive(deadline()).is_err(), "the one that was replaced is closed");
    second.send(&frame, deadline()).unwrap();
    assert_eq!(second.receive(deadline()).unwrap(), 1_u64.to_le_bytes());
}

#[test]
fn clients_without_the_secret_are_refused_and_others_served() {
    let nodes = one();
    works(&nodes);
    let with = |secret: &[u8]| Secret::new(secret);
    for encrypt in [true, false] {
        let refused = Client::connect_with(&nodes.config(encrypt), &with(b"guess"), Empty::VERSION);
        let refused = refused.map(drop).unwrap_err().to_string();
        assert!(refused.contains("does not know the cluster's secret"), "{refused}");
        assert!(refused.contains(&nodes.first().to_string()) && !refused.contains('\n'), "{refused}");
    }
    assert!(refused(&nodes, b"GET / HTTP/1.1").contains("not Farfield's protocol"));
    assert!(refused(&nodes, &[]).contains("not Farfield's protocol"));
    let mut other = HELLO.with_secret(&nodes.secret);
    other[3] += 1;
    assert!(refused(&nodes, &other).contains("different versions"));
    assert!(refused(&nodes, &HELLO.with_secret(&with(b"guess"))).contains("secret"));
    let old = Hello { incarnation: 7, ..HELLO };
    assert!(refused(&nodes, &old.with_secret(&nodes.secret)).contains("was restarted"));
    let lane = Hello { kind: ConnectionKind::Lane, nonce: Hello::lane(99, 1, 0), ..HELLO };
    assert!(refused(&nodes, &lane.to_bytes(&[0; 32])).contains("does not know this client"));
    works(&nodes);
}

#[test]
fn preambles_and_handshakes_of_others_are_refused_with_the_reason() {
    let nodes = one();
    let says = |bytes: &[u8]| {
        let mut stream = TcpStream::connect(nodes.first()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.write_all(bytes).unwrap();
        let mut answer = [0; 128];
        let length = stream.read(&mut answer).unwrap();
        String::from_utf8_lossy(&answer[..length]).into_owned()
    };
    let mut newer = SEALED.to_bytes();
    newer[3] += 1;
    assert!(says(&newer).contains("versions"));
    assert!(says(b"GET / HTTP/1.1").contains("not Farfield's"));
    let forged = [&SEALED.to_bytes()[..], &48_u16.to_le_bytes(), &[7; 48]].concat();
    assert!(says(&forged).contains("secret"));
    works(&nodes);
}

#[test]
fn a_memory_node_refuses_plain_channels_unless_they_are_allowed() {
    let options = options(false, 1, SEGMENT_BYTES);
    let node = MemoryNode::listen(&options, Secret::new(b""), Box::new(Empty)).unwrap();
    let (address, stopper) = (node.address().unwrap(), node.stopper().unwrap());
    let serving = thread::spawn(move || node.serve().unwrap());
    let config = TcpConfig { encrypt: false, ..TcpConfig::new(&address.to_string()).unwrap() };
    let refused = Client::connect_with(&config, &Secret::new(b""), Empty::VERSION);
    let refused = refused.map(drop).unwrap_err().to_string();
    assert!(refused.contains("encrypted connections only"), "{refused}");
    stopper.stop();
    serving.join().unwrap();
}

#[test]
fn addresses_that_can_not_be_served_are_refused_in_a_line() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let _taken = TcpListener::bind(taken).unwrap();
    let of = |listen: SocketAddr, segments, segment_bytes, secret: &[u8]| {
        let tcp = Some(TcpListen { address: listen, serves_plain: false });
        let options = NodeOptions { tcp, ..options(false, segments, segment_bytes) };
        let refused = MemoryNode::listen(&options, Secret::new(secret), Box::new(Empty));
        let refused = refused.map(drop).unwrap_err();
        assert!(matches!(refused, Error::InvalidArgument(_)), "{refused}");
        let refused = refused.to_string();
        assert!(!refused.contains('\n'), "{refused}");
        refused
    };
    let any = "127.0.0.1:0".parse().unwrap();
    assert!(of(taken, 1, SEGMENT_BYTES, b"").contains("another program listens there"));
    assert!(
        of("192.0.2.1:0".parse().unwrap(), 1, SEGMENT_BYTES, b"open sesame").contains("no network interface")
    );
    assert!(of("0.0.0.0:0".parse().unwrap(), 1, SEGMENT_BYTES, b"").contains("without a secret"));
    assert!(of(any, 0, SEGMENT_BYTES, b"").contains("number of segments is 1 times 0: "));
    assert!(of(any, 1025, SEGMENT_BYTES, b"").contains("segments is 1025: "));
    assert!(of(any, 1, 8, b"").contains("segment size is 8: "));
}

#[test]
fn a_process_that_another_finds_gone_is_evicted() {
    let nodes = Nodes::serve(2, 1, SEGMENT_BYTES, b"open sesame");
    let [first, second] = [(); 2].map(|()| nodes.client(true));
    let endpoint = TcpEndpoint::new(&first, Some(0), None);
    add(&endpoint).unwrap();
    assert_eq!(second.is_gone(first.number()), Some(true));
    let error = add(&endpoint).unwrap_err();
    let number = first.number();
    assert!(matches!(&error, Error::Evicted(evicted) if evicted.process == number), "{error}");
    let endpoint = TcpEndpoint::new(&second, Some(0), None);
    assert_eq!(add(&endpoint).unwrap(), 1);
}

#[test]
fn a_memory_node_that_stops_is_unreachable_within_the_timeout() {
    let mut nodes = one();
    let mut config = nodes.config(true);
    config.nodes.timeout = Duration::from_secs(1);
    let client = Arc::new(Client::connect_with(&config, &nodes.secret, Empty::VERSION).unwrap());
    client.prepare(1).unwrap();
    let endpoint = TcpEndpoint::new(&client, Some(0), None);
    add(&endpoint).unwrap();
    nodes.stop();
    let began = Instant::now();
    let error = add(&endpoint).unwrap_err();
    assert!(matches!(error, Error::NodeUnreachable(_)), "{error}");
    assert!(began.elapsed() < Duration::from_secs(5));
}

/// The timeout of clients behind a [`Network`].
const TIMEOUT: Duration = Duration::from_millis(300);

/// A network between clients and a memory node, which forwards bytes and can change one.
struct Network {
    address: SocketAddr,
    flips: Arc<AtomicU64>,
    loses: Arc<AtomicBool>,
}

impl Network {
    /// In each direction of each connection it changes the byte after `flips`, and forwards nothing while it `loses`.
    fn to(node: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (flips, loses) = (Arc::new(AtomicU64::new(u64::MAX)), Arc::new(AtomicBool::new(false)));
        let network = Self { address, flips: Arc::clone(&flips), loses: Arc::clone(&loses) };
        thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                let node = TcpStream::connect(node).unwrap();
                for (mut from, mut to) in
                    [(client.try_clone().unwrap(), node.try_clone().unwrap()), (node, client)]
                {
                    let (flips, loses) = (Arc::clone(&flips), Arc::clone(&loses));
                    thread::spawn(move || {
                        let mut bytes = [0; 4096];
                        while let Ok(length @ 1..) = from.read(&mut bytes) {
                            for byte in &mut bytes[..length] {
                                // The byte that brings the count to 0 is changed.
                                if flips.fetch_sub(1, Ordering::Relaxed) == 1 {
                                    *byte ^= 0x10;
                                }
                            }
                            if !loses.load(Ordering::Relaxed) && to.write_all(&bytes[..length]).is_err() {
                                break;
                            }
                        }
                        let _ = to.shutdown(Shutdown::Both);
                    });
                }
            }
        });
        network
    }

    /// Connects through it, with a short timeout, for a number of threads.
    fn client(&self, nodes: &Nodes, threads: usize) -> Arc<Client> {
        let mut config = TcpConfig::new(&self.address.to_string()).unwrap();
        config.nodes.timeout = TIMEOUT;
        let client = Arc::new(Client::connect_with(&config, &nodes.secret, Empty::VERSION).unwrap());
        client.prepare(threads).unwrap();
        client
    }

    fn endpoint(&self, nodes: &Nodes) -> TcpEndpoint {
        TcpEndpoint::new(&self.client(nodes, 1), Some(0), None)
    }
}

/// Every byte of an operation's record, in either direction. Its operation takes effect at most once.
#[test]
fn an_altered_byte_ends_the_connection_with_an_error() {
    let nodes = one();
    let network = Network::to(nodes.first());
    let endpoint = network.endpoint(&nodes);
    let mut value = add(&endpoint).unwrap();
    // A record of one FAA has 42 bytes, and its answer 27.
    for byte in 1..=69 {
        network.flips.store(byte, Ordering::Relaxed);
        let error = add(&endpoint).unwrap_err();
        assert!(
            matches!(&error, Error::NodeUnreachable(_) | Error::OperationFailed(_) | Error::CannotConnect(_)),
            "{error}"
        );
        let said = error.to_string();
        if let Error::OperationFailed(_) = error {
            assert!(said.contains("memory node 0") && said.contains("record"), "{said}");
        }
        network.flips.store(u64::MAX, Ordering::Relaxed);
        // The lane connects again, but not sooner than a timeout after the last attempt.
        let until = deadline();
        let after = loop {
            match add(&endpoint) {
                Ok(after) => break after,
                Err(error) => assert!(Instant::now() < until, "{error}"),
            }
        };
        // It took effect if the answer was altered, and at most once.
        assert!((value + 1..=value + 2).contains(&after), "byte {byte}: {after} after {value}");
        assert_eq!(after == value + 2, byte > 42, "byte {byte}");
        value = after;
    }
}

#[test]
fn a_network_that_loses_everything_is_noticed_within_the_timeout_and_what_was_given_up_never_arrives() {
    let nodes = one();
    let network = Network::to(nodes.first());
    let endpoint = network.endpoint(&nodes);
    assert_eq!(add(&endpoint).unwrap(), 0);
    network.loses.store(true, Ordering::Relaxed);
    let began = Instant::now();
    let error = add(&endpoint).unwrap_err();
    assert!(matches!(error, Error::NodeUnreachable(_)), "{error}");
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    network.loses.store(false, Ordering::Relaxed);
    let until = deadline();
    let after = loop {
        match add(&endpoint) {
            Ok(after) => break after,
            Err(error) => assert!(Instant::now() < until, "{error}"),
        }
    };
    assert_eq!(after, 1);
}

/// The first operation of each fails when its connection is silent, a later one when it can not connect again.
#[test]
fn threads_of_an_unreachable_memory_node_do_not_wait_one_after_the_other() {
    const THREADS: u32 = 16;
    let nodes = one();
    let network = Network::to(nodes.first());
    let client = network.client(&nodes, THREADS as usize);
    network.loses.store(true, Ordering::Relaxed);
    thread::scope(|scope| {
        for thread in 0..THREADS as usize {
            let endpoint = TcpEndpoint::new(&client, Some(thread), None);
            scope.spawn(move || {
                let until = Instant::now() + 5 * TIMEOUT;
                while Instant::now() < until {
                    let began = Instant::now();
                    let error = add(&endpoint).unwrap_err();
                    assert!(matches!(error, Error::NodeUnreachable(_)), "{error}");
                    assert!(began.elapsed() < TIMEOUT * THREADS / 2, "{:?}", began.elapsed());
                }
            });
        }
    });
}

#[test]
fn idle_and_garbage_connections_keep_no_client_from_being_served() {
    const IDLE: usize = 300;
    const GARBAGE: usize = 2_000;
    let nodes = one();
    let client = nodes.client(true);
    let endpoint = TcpEndpoint::new(&client, Some(0), None);
    let idle: Vec<TcpStream> = (0..IDLE).map(|_| TcpStream::connect(nodes.first()).unwrap()).collect();
    for number in 0..GARBAGE {
        let mut stream = TcpStream::connect(nodes.first()).unwrap();
        let _ = stream.write_all(&[number as u8; 100]);
        if number % 100 == 0 {
            add(&endpoint).unwrap();
        }
    }
    works(&nodes);
    drop(idle);
    works(&nodes);
}

/// Opens a lane by hand.
fn lane(
    nodes: &Nodes,
    welcome: &Welcome,
    key: &[u8; 32],
    number: u32,
    replaced: u32,
) -> std::result::Result<Line, String> {
    let nonce = Hello::lane(welcome.client, number, replaced);
    let hello = Hello { kind: ConnectionKind::Lane, nonce, ..HELLO }.to_bytes(key);
    let mut lane = Line::open(nodes.first(), &nodes.secret, SEALED, deadline()).unwrap();
    lane.send(&hello, deadline()).unwrap();
    lane.receive(deadline()).map(|_| lane)
}

/// Joins by hand. Returns the control connection, its reply, and what a lane needs.
fn join(nodes: &Nodes) -> (Line, Reply, Welcome, [u8; 32]) {
    let mut line = Line::open(nodes.first(), &nodes.secret, SEALED, deadline()).unwrap();
    line.send(&HELLO.with_secret(&nodes.secret), deadline()).unwrap();
    let reply = Reply::parse(&line.receive(deadline()).unwrap(), &nodes.secret, &HELLO.nonce).unwrap();
    let join = Join { position: NodePosition { cluster: 5, node: 0, nodes: 1 }, process: 0 };
    line.send(&join.to_bytes(&nodes.secret, &HELLO.nonce, &reply.nonce), deadline()).unwrap();
    let welcome = Welcome::parse(&line.receive(deadline()).unwrap(), Empty::VERSION).unwrap();
    let key = nodes.secret.key(&HELLO.nonce, &reply.nonce);
    (line, reply, welcome, key)
}
