//! Both sides over a real device, and unauthenticated clients.
//!
//! `RDMA_ADDRESS` names an address of a device of this machine. Where it is not set, each test is
//! [skipped](crate::skip) aloud; the test bed sets it, and requires the device.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::config::VerbsConfig;
use super::manager::resolve;
use super::objects::objects;
use super::queue::{Completions, Messages};
use super::queue_pair::QueuePair;
use super::region::Domain;
use super::*;
use crate::chain::{Op, RawChain, SINGLE_WORDS};
use crate::contents::tests::Empty;
use crate::error::Error;
use crate::handshake::{ConnectionKind, Hello, Join, NodePosition, Nonce, Reply, Secret, Welcome};
use crate::lanes::wire::Outcome;
use crate::{Endpoint, Posted};
use farfield_words::Address;

const SEGMENT_BYTES: u64 = 64 * 1024;

/// Returns the device's address. Without one the test is skipped with a message, or fails if `rdma` is required.
pub(crate) fn address() -> Option<String> {
    let address = std::env::var("RDMA_ADDRESS").ok();
    if address.is_none() {
        crate::skip::skip("rdma", "RDMA_ADDRESS names no address of an RDMA device");
    }
    address
}

/// Memory nodes in threads of this process.
pub(crate) struct Nodes {
    address: String,
    nodes: Vec<(u16, crate::Stopper, Option<JoinHandle<()>>)>,
}

impl Nodes {
    pub(crate) fn serve(
        address: &str,
        nodes: usize,
        segments: u16,
        bytes: u64,
        secret: Option<&Path>,
    ) -> Self {
        let secret = crate::secret::of_node(secret).unwrap();
        let node = |_| {
            let listen = format!("{address}:0").parse().expect("an address");
            let options =
                VerbsNodeOptions { listen, nodes: 1, segments, segment_bytes: bytes, lease_ms: 60_000 };
            let mut server = Server::listen(&options, secret.clone(), Box::new(Empty)).unwrap();
            let (port, stopper) = (server.address().port(), server.stopper().unwrap());
            (port, stopper, Some(std::thread::spawn(move || server.serve().unwrap())))
        };
        Self { address: address.to_owned(), nodes: (0..nodes).map(node).collect() }
    }

    /// Returns their names for a URL.
    pub(crate) fn names(&self) -> String {
        let names: Vec<String> =
            self.nodes.iter().map(|(port, ..)| format!("{}:{port}", self.address)).collect();
        names.join(",")
    }

    fn first(&self) -> SocketAddr {
        format!("{}:{}", self.address, self.nodes[0].0).parse().unwrap()
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

/// A correct first message of a client.
const HELLO: Hello =
    Hello { kind: ConnectionKind::Control, node: 0, cluster: 0, incarnation: 0, nonce: [3; 16] };

fn no_secret() -> Secret {
    Secret::new(b"")
}

/// Makes an unconnected end with its buffers.
fn end(to: SocketAddr) -> (QueuePair, Arc<Completions>, Messages) {
    let (id, device) = resolve(to, deadline(), |_| 24).unwrap();
    let domain = Domain::new(device).unwrap();
    let completions = Completions::new(device, 8, true).unwrap();
    let messages = Messages::new(&domain, 1 << 15).unwrap();
    let Ok(queue_pair) = QueuePair::new(id, &domain, &completions, 4, 0) else {
        panic!("the device is full")
    };
    messages.expect(&queue_pair).unwrap();
    (queue_pair, completions, messages)
}

fn deadline() -> Instant {
    Instant::now() + Duration::from_secs(10)
}

/// Returns the reason for which a request with these bytes is refused.
fn refused(to: SocketAddr, data: &[u8]) -> String {
    let (queue_pair, _completions, _messages) = end(to);
    manager::connect(queue_pair.id(), data, 4, deadline()).unwrap_err()
}

/// Asserts that a correct client is served.
fn works(nodes: &Nodes) {
    let verbs = connect(&VerbsConfig::new(&nodes.names()).unwrap());
    let mut chain = RawChain::default();
    chain.fetch_add(Address::new(0, 4096), 1);
    let Posted::InFlight(ticket) = verbs.post(chain, 0) else { panic!("it takes time") };
    loop {
        if let Poll::Ready((_, result)) = verbs.poll(ticket) {
            return result.unwrap();
        }
    }
}

fn execute(verbs: &Verbs, chain: RawChain) -> RawChain {
    let Posted::InFlight(ticket) = verbs.post(chain, 0) else { panic!("it takes time") };
    loop {
        if let Poll::Ready((chain, result)) = verbs.poll(ticket) {
            result.unwrap();
            return chain;
        }
        verbs.idle();
    }
}

/// A lock's owner replaces its word while another thread tries to take the lock. With a WRITE in place of `replace`, `rdma_rxe` of Linux 6.1 loses
/// about one in ten thousand: a failing CAS stores the word that it has found.
#[test]
fn all_connections_end_with_the_client() {
    let Some(address) = address() else { return };
    let nodes = Nodes::serve(&address, 2, 1, 1 << 16, None);
    let client = Client::connect(&VerbsConfig::new(&nodes.names()).unwrap(), Empty::VERSION).unwrap();
    client.prepare(3).unwrap();
    let node = Arc::downgrade(&client.nodes[1]);
    assert!(node.upgrade().is_some());
    drop(client);
    assert!(node.upgrade().is_none());
}

#[test]
fn a_word_is_replaced_beside_failing_cas() {
    const CHAINS: u64 = 5_000;
    const AT_A_TIME: u64 = 8;
    let Some(address) = address() else { return };
    let nodes = Nodes::serve(&address, 1, 1, SEGMENT_BYTES, None);
    let client =
        Arc::new(Client::connect(&VerbsConfig::new(&nodes.names()).unwrap(), Empty::VERSION).unwrap());
    client.prepare(2).unwrap();
    let at = Address::new(0, 4096);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let verbs = Verbs::new(&client, Some(1), None);
            while !is_over.load(Ordering::Relaxed) {
                let mut chain = RawChain::default();
                for _ in 0..AT_A_TIME {
                    chain.compare_exchange(at, u64::MAX, 0);
                }
                execute(&verbs, chain);
            }
        });
        let verbs = Verbs::new(&client, Some(0), None);
        let (mut lost, mut own) = (0, 0);
        for _ in 0..CHAINS {
            let mut chain = RawChain::default();
            let slots: Vec<_> = (own..own + AT_A_TIME)
                .map(|own| {
                    chain.replace(at, own, own + 1);
                    chain.read(at, 1)
                })
                .collect();
            let done = execute(&verbs, chain);
            lost += slots.iter().zip(own + 1..).filter(|(slot, new)| done.word(**slot) != *new).count();
            own += AT_A_TIME;
        }
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(lost, 0, "of {own} were lost");
    });
}

#[test]
fn clients_without_the_secret_are_refused_and_others_served() {
    let Some(address) = address() else { return };
    let nodes = Nodes::serve(&address, 1, 1, SEGMENT_BYTES, None);
    let to = nodes.first();
    works(&nodes);
    // Bytes that are no packets, on the port of RoCE.
    let socket = std::net::UdpSocket::bind((address.as_str(), 0)).unwrap();
    for length in 0..200 {
        socket.send_to(&vec![length as u8; length * 7], (address.as_str(), 4791)).unwrap();
    }
    assert!(refused(to, b"GET / HTTP/1.1").contains("not Farfield's protocol"));
    assert!(refused(to, &[]).contains("not Farfield's protocol"));
    assert!(refused(to, &[0xff; 56]).contains("not Farfield's protocol"));
    let mut other = HELLO.with_secret(&no_secret());
    other[3] += 1;
    assert!(refused(to, &other).contains("different versions"));
    assert!(refused(to, &HELLO.with_secret(&Secret::new(b"guess"))).contains("secret"));
    let old = Hello { incarnation: 7, ..HELLO };
    assert!(refused(to, &old.with_secret(&no_secret())).contains("was restarted"));
    let lane = Hello { kind: ConnectionKind::Lane, nonce: Hello::lane(99, 1, 0), ..HELLO };
    assert!(refused(to, &lane.to_bytes(&[0; 32])).contains("does not know this client"));
    works(&nodes);
}

/// The objects of a failed connection are destroyed: first the queue pair, then the objects from which it was made.
/// `FARFIELD_CONNECTIONS` asks for another number of them. Several are made at a time, so that making and destroying interleave.
#[test]
fn failed_connections_leave_no_object_behind() {
    const AT_A_TIME: usize = 8;
    let asked = std::env::var("FARFIELD_CONNECTIONS").map_or(10_000, |number| number.parse().unwrap());
    let Some(address) = address() else { return };
    let folder = std::env::temp_dir().join(format!("farfield-leaks-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let secret = folder.join("secret");
    std::fs::write(&secret, "open sesame").unwrap();
    std::fs::set_permissions(&secret, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let nodes = Nodes::serve(&address, 1, 1, SEGMENT_BYTES, Some(&secret));
    let config = VerbsConfig::new(&nodes.names()).unwrap();
    let before = objects();
    let tried = AtomicUsize::new(0);
    let fail = || {
        while tried.fetch_add(1, Ordering::Relaxed) < asked {
            let Err(refused) = Client::connect(&config, Empty::VERSION) else { panic!("it knows no secret") };
            assert!(refused.to_string().contains("does not know the cluster's secret"), "{refused}");
        }
    };
    let began = Instant::now();
    std::thread::scope(|scope| (0..AT_A_TIME).for_each(|_| drop(scope.spawn(fail))));
    println!("{asked} connections failed in {:.1?}", began.elapsed());
    // The memory node destroys its ends in its own time.
    let until = deadline();
    while objects() != before && Instant::now() < until {
        std::thread::yield_now();
    }
    assert_eq!(objects(), before, "after {asked} connections");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_lane_needs_the_key_and_a_new_number() {
    let Some(address) = address() else { return };
    let nodes = Nodes::serve(&address, 1, 1, SEGMENT_BYTES, None);
    let (queue_pair, completions, messages) = end(nodes.first());
    let (data, _) =
        manager::connect(queue_pair.id(), &HELLO.with_secret(&no_secret()), 0, deadline()).unwrap();
    let reply = Reply::parse(&data, &no_secret(), &HELLO.nonce).unwrap();
    let join = Join { position: NodePosition { cluster: 5, node: 0, nodes: 1 }, process: 0 };
    messages.send(&queue_pair, &join.to_bytes(&no_secret(), &HELLO.nonce, &reply.nonce)).unwrap();
    let bytes = message(&completions).expect("it is welcome");
    let welcome = Welcome::parse(&messages.received(bytes), Empty::VERSION).unwrap();
    let key = no_secret().key(&HELLO.nonce, &reply.nonce);
    let replacing = |number, replaced, key: &[u8]| {
        let nonce = Hello::lane(welcome.client, number, replaced);
        Hello { kind: ConnectionKind::Lane, nonce, ..HELLO }.to_bytes(key)
    };
    let lane = |number, key: &[u8]| replacing(number, 0, key);
    assert!(refused(nodes.first(), &lane(1, &[0; 32])).contains("secret"));
    let (first, _completions, _messages) = end(nodes.first());
    manager::connect(first.id(), &lane(2, &key), 4, deadline()).unwrap();
    assert!(refused(nodes.first(), &lane(2, &key)).contains("secret"), "a recorded request");
    assert!(refused(nodes.first(), &lane(1, &key)).contains("secret"));
    assert!(first.id().channel().next().is_none(), "the first lane is unchanged");
    let (second, _completions, _messages) = end(nodes.first());
    manager::connect(second.id(), &replacing(3, 2, &key), 4, deadline()).unwrap();
    let event = first.id().channel().wait(deadline()).expect("the one that was replaced is closed");
    assert!(matches!(event.kind, manager::EventKind::Ended));
}

/// Returns the number of bytes of the next message; `None` if the connection ends before.
fn message(completions: &Completions) -> Option<u32> {
    let until = deadline();
    let mut received = None;
    while received.is_none() && Instant::now() < until {
        completions.take(|completion| match completion.outcome {
            Outcome::Done if completion.number == queue::RECEIVED => received = Some(Some(completion.bytes)),
            Outcome::Done => {}
            _ => received = Some(None),
        });
        std::thread::yield_now();
    }
    received.expect("an answer or an end, in time")
}

#[test]
fn a_client_without_a_proof_gets_no_segment_table() {
    let Some(address) = address() else { return };
    let nodes = Nodes::serve(&address, 1, 1, SEGMENT_BYTES, None);
    let nonce: Nonce = HELLO.nonce;
    for garbage in [&b"please"[..], &[0xff; 56], &[0; 1000]] {
        let (queue_pair, completions, messages) = end(nodes.first());
        manager::connect(queue_pair.id(), &HELLO.with_secret(&no_secret()), 0, deadline()).unwrap();
        messages.send(&queue_pair, garbage).unwrap();
        let answer =
            message(&completions).map(|bytes| Welcome::parse(&messages.received(bytes), Empty::VERSION));
        assert!(!matches!(answer, Some(Ok(_))), "{nonce:?}");
    }
    works(&nodes);
}

/// Refused before a device is opened: this test needs none.
#[test]
fn a_memory_node_of_impossible_segments_is_refused() {
    let listen = "127.0.0.1:0".parse().unwrap();
    for (segments, segment_bytes, said) in [
        (0, SEGMENT_BYTES, "number of segments is 1 times 0: "),
        (1025, SEGMENT_BYTES, "segments is 1025: "),
        (1, 0, "segment size is 0: "),
        (1, 27_335, "segment size is 27335: "),
        (1, (1 << 48) + 8, "segment size is 281474976710664: "),
        (1024, u64::MAX, "segment size is 18446744073709551615: "),
    ] {
        let options = VerbsNodeOptions { listen, nodes: 1, segments, segment_bytes, lease_ms: 60_000 };
        let refused = Server::listen(&options, no_secret(), Box::new(Empty)).map(drop).unwrap_err();
        assert!(matches!(refused, Error::InvalidArgument(_)), "{refused}");
        let refused = refused.to_string();
        assert!(refused.starts_with(said) && !refused.contains('\n'), "{refused}");
    }
}

#[test]
fn a_memory_node_has_one_position() {
    let Some(address) = address() else { return };
    let nodes = Nodes::serve(&address, 2, 1, SEGMENT_BYTES, None);
    works(&nodes);
    let names = nodes.names();
    let (first, second) = names.split_once(',').unwrap();
    for wrong in [first.to_owned(), second.to_owned(), format!("{second},{first}")] {
        let error = Client::connect(&VerbsConfig::new(&wrong).unwrap(), Empty::VERSION)
            .map(drop)
            .unwrap_err()
            .to_string();
        assert!(error.contains("of another cluster of 2"), "{error}");
    }
    works(&nodes);
}

/// Serves a memory node, and connects a thread to it.
fn one_thread() -> Option<(Nodes, Verbs)> {
    let nodes = Nodes::serve(&address()?, 1, 1, SEGMENT_BYTES, None);
    let verbs = connect(&VerbsConfig::new(&nodes.names()).unwrap());
    Some((nodes, verbs))
}

/// Connects a thread.
fn connect(config: &VerbsConfig) -> Verbs {
    let client = Arc::new(Client::connect(config, Empty::VERSION).unwrap());
    client.prepare(1).unwrap();
    Verbs::new(&client, Some(0), None)
}

#[test]
fn fenced_operations_complete() {
    let Some((_nodes, verbs)) = one_thread() else { return };
    for round in 0..500 {
        let mut chain = RawChain::default();
        let (word, other) = (Address::new(0, 4096), Address::new(0, 8192));
        let before = chain.read(word, 1);
        chain.write(word, &[round]);
        let added_to = chain.fetch_add(word, 1);
        chain.write(other, &[round]);
        let after = chain.read(other, 1);
        let Posted::InFlight(ticket) = verbs.post(chain, 0) else { panic!("it takes time") };
        let (chain, result) = loop {
            if let Poll::Ready(done) = verbs.poll(ticket) {
                break done;
            }
        };
        result.unwrap();
        assert_eq!([before, added_to, after].map(|slot| chain.word(slot)), [round, round, round]);
    }
}

#[test]
fn single_operations_have_the_results_of_chains_also_if_they_are_abandoned() {
    let Some((_nodes, verbs)) = one_thread() else { return };
    let at = Address::new(0, 4096);
    let words: [u64; SINGLE_WORDS] = std::array::from_fn(|word| word as u64 + 7);
    let done = |op: Op, written: &[u64]| {
        let op = &op;
        let posted = verbs.try_post_single(|| op.clone(), written);
        let ticket = posted.unwrap_or_else(|| verbs.post_single(|| op.clone(), written, || 0).unwrap());
        loop {
            let mut read = [0; SINGLE_WORDS];
            if verbs.try_poll_single(ticket, &mut read[..op.words()]).is_some() {
                return read;
            }
            if let Poll::Ready(result) = verbs.poll_single(ticket, &mut read[..op.words()]) {
                result.unwrap();
                return read;
            }
            verbs.idle();
        }
    };
    for _ in 0..100 {
        done(Op::write(at, words.len()), &words);
        assert_eq!(done(Op::read(at, words.len()), &[]), words);
        assert_eq!(done(Op::compare_exchange(at, 7, 9), &[])[0], 7);
        assert_eq!(done(Op::compare_exchange(at, 7, 8), &[])[0], 9, "it fails");
        // As a thread polls one whose future was dropped; the next one is never polled.
        let abandoned = verbs.post_single(|| Op::fetch_add(at, 1), &[], || 0).unwrap();
        verbs.detach(abandoned);
        verbs.forget(verbs.post_single(|| Op::fetch_add(at, 5), &[], || 0).unwrap());
        let (chain, result) = loop {
            if let Poll::Ready(done) = verbs.poll(abandoned) {
                break done;
            }
            verbs.idle();
        };
        result.unwrap();
        assert_eq!(chain.buffer(), [9]);
        assert_eq!(done(Op::read(at, 1), &[])[0], 15);
        assert!(
            verbs.post_single(|| Op::read(Address::new(9, 64), 1), &[], || 0).is_err(),
            "no such segment"
        );
    }
    assert!(!verbs.is_underway());
}

#[test]
fn a_memory_node_that_stops_is_unreachable_within_the_timeout() {
    let Some(address) = address() else { return };
    let mut nodes = Nodes::serve(&address, 1, 1, SEGMENT_BYTES, None);
    let mut config = VerbsConfig::new(&nodes.names()).unwrap();
    config.nodes.timeout = Duration::from_secs(1);
    let verbs = connect(&config);
    let read = || {
        let mut chain = RawChain::default();
        chain.read(Address::new(0, 4096), 1);
        let Posted::InFlight(ticket) = verbs.post(chain, 0) else { panic!("it takes time") };
        loop {
            if let Poll::Ready((_, result)) = verbs.poll(ticket) {
                return result;
            }
            verbs.idle();
        }
    };
    read().unwrap();
    nodes.stop();
    let began = Instant::now();
    let error = read().unwrap_err();
    assert!(matches!(error, Error::NodeUnreachable(_) | Error::CannotConnect(_)), "{error}");
    assert!(began.elapsed() < Duration::from_secs(5));
}
