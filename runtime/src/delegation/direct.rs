//! Direct lines: batches that no memory node forwards.
//!
//! Where neither client nor trustee maps the memory, a batch in a mailbox takes two messages, to the memory node and on, and so do its answers. On `tcp:` the two threads
//! connect to each other instead, by a *line* of [`farfield_fabric::tcp`]. Its notes are WRITEs to the pair's words, which change the other end's [mirror](super::mirror) only;
//! all other code is that of mailboxes. So a request takes two messages: one round trip.
//!
//! 1. A trustee writes the address on which its process listens beside its notice. A client that finds the notice connects before it sends its first batch. So all batches of a pair are sent on its line, or
//!    none of them. The client may have given up a connection by the time the trustee accepts it; so the trustee reads the pair's mailboxes until the first note has arrived, and answers where
//!    the batch was.
//! 2. A line carries each note once, and in order, although connections are lost. So slots are what they are elsewhere: no batch is lost, executed twice, or overwritten.
//! 3. Neither end reads the pair's slots on the memory node, where they stay empty; the client reads its notice there while there is no connection, since a trustee without one leaves it there.
//! 4. What a dead thread has sent is taken before its end is dealt with: its process, or the system, closes the connection after the last note. For one that ends without that, the
//!    other end waits a second.
//!
//! If there is no connection within [`PATIENCE`], the pair uses mailboxes, and so do later ones of a trustee that listens there, for a minute. A line that was connected, and for a timeout of the cluster is not connected again,
//! has ended: the client's requests in flight end as if the trustee had, and further ones open another pair.

use std::net::{Ipv6Addr, SocketAddr};
use std::time::Duration;

use super::slots::Header;
use farfield_words::Address;

#[cfg(target_os = "linux")]
pub(super) use self::tcp::*;

/// The words of an address beside a notice.
pub(super) const ADDRESS_WORDS: usize = 3;

/// How long a client waits for its first connection.
pub(super) const PATIENCE: Duration = Duration::from_millis(250);

/// Returns the address that these words are; `None` if they are none.
pub(super) fn address_of([port, low, high]: [u64; ADDRESS_WORDS]) -> Option<SocketAddr> {
    let port = u16::try_from(port).ok().filter(|port| *port != 0)?;
    let ip = Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low));
    Some(SocketAddr::new(ip.to_canonical(), port))
}

/// One end of a line.
#[cfg(target_os = "linux")]
pub(super) struct Line(farfield_fabric::tcp::Peer);
/// No network of this system has lines.
#[cfg(not(target_os = "linux"))]
pub(super) struct Line(std::convert::Infallible);

#[cfg(target_os = "linux")]
impl Line {
    fn state(&self) -> farfield_fabric::tcp::PeerState {
        self.0.state()
    }

    /// Returns whether a batch of the client has arrived: then all of them do.
    pub(super) fn has_carried(&self) -> bool {
        self.0.has_taken()
    }

    /// Returns whether there is a connection.
    pub(super) fn is_linked(&self) -> bool {
        self.state() == farfield_fabric::tcp::PeerState::Linked
    }

    /// Returns whether there will be none any more.
    pub(super) fn has_ended(&self) -> bool {
        self.state() == farfield_fabric::tcp::PeerState::Ended
    }

    /// Sends a batch.
    pub(super) fn send_batch(&self, slot: Address, header: Header, words: &[u64]) {
        self.0.send(slot, header.to_word(), words);
    }

    /// Sends a word.
    pub(super) fn send_word(&self, at: Address, word: u64) {
        self.0.send(at, word, &[]);
    }
}

#[cfg(not(target_os = "linux"))]
impl Line {
    pub(super) fn has_carried(&self) -> bool {
        match self.0 {}
    }
    pub(super) fn is_linked(&self) -> bool {
        match self.0 {}
    }
    pub(super) fn has_ended(&self) -> bool {
        match self.0 {}
    }
    pub(super) fn send_batch(&self, _: Address, _: Header, _: &[u64]) {
        match self.0 {}
    }
    pub(super) fn send_word(&self, _: Address, _: u64) {
        match self.0 {}
    }
}

#[cfg(target_os = "linux")]
mod tcp {
    use std::net::{IpAddr, SocketAddr};
    use std::rc::Rc;

    use farfield_fabric::tcp::{PeerArrival, PeerHello, PeerKey, Peers};
    use farfield_words::ThreadId;

    use super::super::slots::{SLOT_WORDS, Slots};
    use super::super::state::Delegation;
    use super::{ADDRESS_WORDS, Line};
    use crate::io::operations::*;
    use crate::memory::worker::Worker;

    const _: () = assert!(SLOT_WORDS <= farfield_fabric::tcp::MOST_NOTE_WORDS, "a batch is a note");

    /// The number of lines of clients, of which a note makes no pair active.
    const NO_PAIR: usize = usize::MAX;

    /// Returns the words of the address on which a thread's process listens; `None` if its network has no lines.
    pub(in super::super) fn listens(worker: &Worker) -> Option<[u64; ADDRESS_WORDS]> {
        let address = worker.io.endpoint.peers()?.listen(worker.id().number().get())?;
        let ip = match address.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        let bits = ip.to_bits();
        Some([u64::from(address.port()), bits as u64, (bits >> 64) as u64])
    }

    impl Delegation {
        fn peers(worker: &Worker) -> Option<&Rc<Peers>> {
            worker.io.endpoint.peers()
        }

        /// Connects to a trustee, for a pair.
        pub(in super::super) fn calls(
            &self,
            worker: &Worker,
            address: SocketAddr,
            trustee: ThreadId,
            slots: Slots,
        ) -> Option<Line> {
            let (to, from) = (trustee.number().get(), self.me().number().get());
            let hello = PeerHello { to, from, name: slots.block() };
            let key = PeerKey { line: NO_PAIR, words: self.mirror().number(slots.notice())? };
            Self::peers(worker)?.open(address, hello, key).map(Line)
        }

        /// Takes what has arrived on lines: connections, and notes. Returns whether there was news.
        #[inline]
        pub(in super::super) fn take_notes(&self, worker: &Worker) -> bool {
            let Some(peers) = Self::peers(worker).filter(|peers| peers.takes_news()) else { return false };
            for arrival in peers.arrivals() {
                self.meets(peers, arrival);
            }
            peers.take_notes(|key, at, words| {
                self.mirror().put_change(key.words, at, words);
                if let Some(desk) = self.desk().filter(|_| key.line != NO_PAIR) {
                    desk.hears(key.line);
                }
            });
            true
        }

        /// Looks for what has arrived on lines.
        pub(in super::super) fn look_at_lines(worker: &Worker) {
            if let Some(peers) = Self::peers(worker) {
                peers.poll();
            }
        }

        /// A client has connected.
        fn meets(&self, peers: &Rc<Peers>, arrival: PeerArrival) {
            let PeerHello { from, name, .. } = arrival.hello;
            let pair = self.desk().and_then(|desk| Some((desk, desk.pair_of(from, name)?)));
            let (Some((desk, pair)), Some(words)) = (pair, self.mirror().number(name)) else {
                return arrival.refuse();
            };
            desk.with_line(pair, |line| match line {
                Some(Line(line)) => line.resume(arrival),
                None => *line = peers.accept(arrival, PeerKey { line: pair, words }).map(Line),
            });
        }
    }
}
