//! Both ends of lines in one process, and connections that are lost.

use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};

use super::*;

const NODE: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9);
const CLUSTER: u64 = 7;
const HELLO: PeerHello = PeerHello { to: 3, from: 5, name: Address::new(0, 4096) };
const KEY: PeerKey = PeerKey { line: 0, words: 1 };
const TIMEOUT: Duration = Duration::from_secs(5);

fn peers(secret: &[u8], is_sealed: bool, cluster: u64, timeout: Duration) -> Rc<Peers> {
    let network = PeerNetwork::new(Secret::new(secret), Preamble { is_sealed }, timeout);
    Peers::new(Arc::new(network), cluster, NODE)
}

/// Waits for something.
fn until<T>(mut f: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + 2 * TIMEOUT;
    loop {
        if let Some(found) = f() {
            return found;
        }
        assert!(Instant::now() < end, "it has not come");
        std::thread::yield_now();
    }
}

/// Both ends of a line.
fn line(answering: &Rc<Peers>, asking: &Rc<Peers>, hello: PeerHello) -> (Peer, Peer) {
    let near = asking.open(answering.listen(HELLO.to).unwrap(), hello, KEY).unwrap();
    let arrival = until(|| {
        asking.poll();
        answering.arrivals().pop()
    });
    assert_eq!(arrival.hello, hello);
    let other = answering.accept(arrival, PeerKey { line: hello.name.bits() as usize, words: 2 }).unwrap();
    until(|| {
        asking.poll();
        (near.state() == PeerState::Linked).then_some(())
    });
    (other, near)
}

/// One end, which sends numbered notes and checks those that it takes.
struct Checked<'a> {
    peers: &'a Rc<Peers>,
    peer: Peer,
    sent: u64,
    taken: u64,
}

impl Checked<'_> {
    fn send(&mut self, rng: &mut SmallRng) {
        let words = vec![self.sent; rng.random_range(0..MOST_NOTE_WORDS)];
        self.peer.send(HELLO.name.add(self.sent * 8), self.sent, &words);
        self.sent += 1;
    }

    fn take(&mut self) {
        self.peers.poll();
        self.peers.take_notes(|key, at, words| {
            assert_eq!(key, self.peer.with(|end| end.key));
            assert_eq!(at, HELLO.name.add(self.taken * 8));
            assert!(words.iter().all(|word| *word == self.taken), "{words:?} instead of {}", self.taken);
            self.taken += 1;
        });
    }
}

/// Connections are lost at any moment, by either end.
#[test]
fn notes_arrive_once_and_in_order_although_connections_are_lost() {
    for (seed, is_sealed) in [(1, false), (2, true), (3, false), (4, true)] {
        let mut rng = SmallRng::seed_from_u64(seed);
        let (answering, asking) = (
            peers(b"open sesame", is_sealed, CLUSTER, TIMEOUT),
            peers(b"open sesame", is_sealed, CLUSTER, TIMEOUT),
        );
        let (other, near) = line(&answering, &asking, HELLO);
        let mut first = Checked { peers: &answering, peer: other, sent: 0, taken: 0 };
        let mut second = Checked { peers: &asking, peer: near, sent: 0, taken: 0 };
        let mut cuts = 0;
        for _ in 0..4_000 {
            match rng.random_range(0..100) {
                0..30 => first.send(&mut rng),
                30..60 => second.send(&mut rng),
                60..78 => first.take(),
                78..96 => second.take(),
                96 => answering.cut(),
                97 => asking.cut(),
                _ => continue,
            }
            cuts += 1;
            for arrival in answering.arrivals() {
                first.peer.resume(arrival);
            }
        }
        assert!(cuts > 50);
        until(|| {
            first.take();
            second.take();
            answering.arrivals().into_iter().for_each(|arrival| first.peer.resume(arrival));
            ((first.taken, second.taken) == (second.sent, first.sent)).then_some(())
        });
        // All of them are counted once each end has sent one more.
        first.send(&mut rng);
        until(|| {
            second.take();
            (second.taken == first.sent).then_some(())
        });
        second.send(&mut rng);
        until(|| {
            first.take();
            (first.taken == second.sent).then_some(())
        });
        assert_eq!(first.peer.with(|end| end.kept.len()), 0, "notes that were counted are kept");
    }
}

#[test]
fn many_lines_of_a_thread_are_read() {
    let (answering, asking) = (peers(b"", false, CLUSTER, TIMEOUT), peers(b"", false, CLUSTER, TIMEOUT));
    let hello = |name| PeerHello { name: Address::new(0, name), ..HELLO };
    let mut lines: Vec<(Peer, Peer)> =
        (0..MOST_EVENTS as u64 + 9).map(|name| line(&answering, &asking, hello(8 * name))).collect();
    for round in 0..3 {
        for (_, near) in &lines {
            near.send(HELLO.name, round, &[]);
        }
        let mut taken = vec![0; lines.len()];
        until(|| {
            answering.poll();
            answering.take_notes(|key, _, words| {
                assert_eq!(words, [round]);
                taken[key.line / 8] += 1;
            });
            taken.iter().all(|count| *count == 1).then_some(())
        });
    }
    // A place of a line that is closed is another one's.
    drop(lines.remove(7));
    let (other, near) = line(&answering, &asking, HELLO);
    near.send(HELLO.name, 9, &[]);
    until(|| {
        answering.poll();
        let mut found = None;
        answering.take_notes(|key, _, words| found = Some((key, words.to_vec())));
        found.map(|found| assert_eq!(found, (other.with(|end| end.key), vec![9])))
    });
}

#[test]
fn a_line_that_one_end_has_closed_ends_after_its_last_note() {
    let (answering, asking) = (peers(b"", false, CLUSTER, TIMEOUT), peers(b"", false, CLUSTER, TIMEOUT));
    for it_closes in [false, true] {
        let (other, near) = line(&answering, &asking, HELLO);
        let (closed, open, peers) =
            if it_closes { (near, other, &answering) } else { (other, near, &asking) };
        // It is not read before it closes the line.
        open.send(HELLO.name, 1, &[]);
        closed.send(HELLO.name, 8, &[9]);
        drop(closed);
        let mut taken = Vec::new();
        until(|| {
            peers.poll();
            peers.take_notes(|_, _, words| taken.extend_from_slice(words));
            (open.state() == PeerState::Ended).then_some(())
        });
        assert_eq!(taken, [8, 9]);
        open.send(HELLO.name, 1, &[]);
    }
}

#[test]
fn a_line_that_the_other_end_does_not_know_has_ended() {
    let (answering, asking) = (peers(b"", false, CLUSTER, TIMEOUT), peers(b"", false, CLUSTER, TIMEOUT));
    let near = asking.open(answering.listen(HELLO.to).unwrap(), HELLO, KEY).unwrap();
    let refused = until(|| {
        asking.poll();
        answering.arrivals().pop()
    });
    refused.refuse();
    until(|| {
        asking.poll();
        (near.state() == PeerState::Ended).then_some(())
    });
    // Nor if the thread has ended: nothing is left for others to find.
    let (address, others) =
        (answering.listen(HELLO.to).unwrap(), Peers::new(Arc::clone(&answering.network), CLUSTER, NODE));
    others.listen(HELLO.to + 1).unwrap();
    drop(answering);
    let near = asking.open(address, HELLO, KEY).unwrap();
    until(|| {
        asking.poll();
        (near.state() == PeerState::Ended).then_some(())
    });
    assert!(!others.poll() && others.arrivals().is_empty());
}

#[test]
fn other_secrets_clusters_and_channels_are_refused() {
    let short = Duration::from_millis(300);
    let answering = peers(b"open sesame", true, CLUSTER, short);
    let address = answering.listen(HELLO.to).unwrap();
    let others = [
        ("another secret", peers(b"close sesame", true, CLUSTER, short)),
        ("no secret", peers(b"", true, CLUSTER, short)),
        ("another cluster", peers(b"open sesame", true, CLUSTER + 1, short)),
        ("a plain channel", peers(b"open sesame", false, CLUSTER, short)),
    ];
    for (case, asking) in others {
        let near = asking.open(address, HELLO, KEY).unwrap();
        until(|| {
            asking.poll();
            assert_ne!(near.state(), PeerState::Linked, "{case}");
            (near.state() == PeerState::Ended).then_some(())
        });
        assert!(answering.arrivals().is_empty(), "{case}");
    }
    // In a plain channel, the proofs are all that there is.
    let answering = peers(b"open sesame", false, CLUSTER, short);
    let asking = peers(b"close sesame", false, CLUSTER, short);
    let near = asking.open(answering.listen(HELLO.to).unwrap(), HELLO, KEY).unwrap();
    until(|| {
        asking.poll();
        (near.state() == PeerState::Ended).then_some(())
    });
    assert!(answering.arrivals().is_empty());
}

#[test]
fn what_is_no_record_of_a_line_ends_it_or_is_lost() {
    let (answering, asking) = (peers(b"", false, CLUSTER, TIMEOUT), peers(b"", false, CLUSTER, TIMEOUT));
    // A count of notes that were not sent; a record without an address; half a word.
    for record in [&[9_u64.to_le_bytes(), 0_u64.to_le_bytes(), [1; 8]].concat()[..], &[0; 16], &[0; 12]] {
        let (other, near) = line(&answering, &asking, HELLO);
        near.with(|end| {
            end.line.as_mut().unwrap().seal(record);
            end.flush();
        });
        until(|| {
            answering.poll();
            (other.state() == PeerState::Ended).then_some(())
        });
        answering.take_notes(|_, _, words| panic!("{words:?}"));
    }
    let (other, near) = line(&answering, &asking, HELLO);
    near.with(|end| {
        end.line.as_mut().unwrap().seal(&[0; BODY_BYTES + 1]);
        end.flush();
    });
    until(|| {
        answering.poll();
        (other.state() == PeerState::Lost).then_some(())
    });
}
