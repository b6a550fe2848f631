//! Connections over TCP to a memory node.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use super::channel::{MAX_CONTENT_BYTES, Preamble, answer};
use super::config::TcpConfig;
use super::frame::{self, WATCH_BYTES, forwarded_in, words_of};
use super::line::{Arrival, CLOSED, Line};
use super::peers::{PeerNetwork, Peers};
use crate::Endpoint as _;
use crate::chain::SINGLE_WORDS;
use crate::error::Result;
use crate::handshake::{HELLO_BYTES, Secret};
use crate::lanes;
use crate::lanes::node::Network;
use crate::lanes::pipeline::{Credits, MOST_REQUESTS, Request, Ring, Verb};
use crate::lanes::wire::{Completion, Outcome, Refused, Wire};
use crate::question::Transport;
use farfield_words::WORD_BYTES;

/// The places of single operations in a lane's ring.
const PLACES: usize = 512;
/// The words of the rest of a lane's ring. A quarter of it is the longest request.
const RING_WORDS: usize = 16 << 10;
/// The most words of an answer, whose first byte is not one of them.
const MAX_ANSWER_WORDS: usize = MAX_CONTENT_BYTES / WORD_BYTES - 1;

/// TCP, encrypted or not.
pub struct Tcp {
    secret: Secret,
    preamble: Preamble,
    peers: Option<Arc<PeerNetwork>>,
}

impl Tcp {
    pub(super) fn new(secret: &Secret, config: &TcpConfig) -> Self {
        let preamble = Preamble { is_sealed: config.encrypt };
        let peers = || Arc::new(PeerNetwork::new(secret.clone(), preamble, config.nodes.timeout));
        Self { secret: secret.clone(), preamble, peers: config.direct.then(peers) }
    }

    /// Opens a line, and sends the request.
    fn open(
        &self,
        address: SocketAddr,
        hello: &[u8; HELLO_BYTES],
        deadline: Instant,
    ) -> Result<(Line, Vec<u8>), String> {
        let mut line = Line::open(address, &self.secret, self.preamble, deadline)?;
        line.send(hello, deadline)?;
        let reply = line.receive(deadline)?;
        Ok((line, reply))
    }
}

/// A process's connections.
pub type Client = lanes::client::Client<Tcp>;
/// One thread's access to far memory.
pub type TcpEndpoint = lanes::endpoint::LaneEndpoint<Tcp>;

impl Client {
    /// Connects to all memory nodes of a cluster, whose memory must have this version of the layout.
    ///
    /// # Errors
    /// [`Error::CannotConnect`](crate::Error::CannotConnect) naming the first memory node that can not be connected to.
    pub fn connect(config: &TcpConfig, layout: u64) -> Result<Self> {
        Self::connect_with(config, &config.nodes.secret()?, layout)
    }

    pub(super) fn connect_with(config: &TcpConfig, secret: &Secret, layout: u64) -> Result<Self> {
        if !config.encrypt {
            tracing::warn!("connections to memory nodes are not encrypted: encrypt=no");
        }
        Self::connect_by(Tcp::new(secret, config), &config.nodes, secret, layout)
    }
}

impl TcpEndpoint {
    /// Makes the thread's lines to other compute threads, if they may connect to each other.
    pub fn peers(&self) -> Option<Rc<Peers>> {
        let node = self.client.nodes.first()?;
        let network = node.network.peers.as_ref()?;
        Some(Peers::new(Arc::clone(network), node.position.cluster, node.address))
    }

    /// As [`idle`](crate::Endpoint::idle), for a thread that has lines to others: looks for notes, too.
    pub fn idle_with(&self, peers: &Peers) {
        if peers.are_some() {
            self.idle_beside(|| peers.poll(), peers.descriptor());
        } else {
            peers.poll();
            self.idle();
        }
    }
}

impl Network for Tcp {
    type Control = Line;
    type Wire = Connection;

    fn open_control(
        &self,
        address: SocketAddr,
        hello: &[u8; HELLO_BYTES],
        deadline: Instant,
    ) -> Result<(Line, Vec<u8>), String> {
        self.open(address, hello, deadline)
    }

    fn open_lane(
        &self,
        address: SocketAddr,
        hello: &[u8; HELLO_BYTES],
        deadline: Instant,
    ) -> Result<Connection, String> {
        let (line, _) = self.open(address, hello, deadline)?;
        line.does_not_wait()?;
        Ok(Connection::new(line))
    }
}

/// The most bytes of requests to watch that wait for another request.
const MAX_WATCHES: usize = 512 * WATCH_BYTES;

/// The connection of a lane.
pub(crate) struct Connection {
    line: Line,
    ring: Memory,
    /// The frame that is made, and what it has so far.
    frame: Vec<u8>,
    made: Frame,
    /// The frames without an answer, and the places in the ring of their answers' words.
    frames: VecDeque<Frame>,
    places: VecDeque<Place>,
    /// Requests to watch, or to watch no more, which precede the next one.
    watches: Vec<u8>,
    /// Forwarded words that have arrived, if someone watches.
    changes: Vec<u64>,
    keeps_changes: bool,
    /// True if the memory node has closed it, or it has failed; also after it was stopped.
    has_ended: bool,
    /// Set when it is stopped: true if it had ended before.
    had_ended: Option<bool>,
}

/// A frame without an answer.
#[derive(Clone, Copy, Debug, Default)]
struct Frame {
    /// The positions of its first and its last request.
    first: u64,
    last: u64,
    /// The number of its requests with words in the answer, and of these words.
    places: usize,
    words: usize,
}

/// Words of the ring for a part of an answer.
#[derive(Clone, Copy, Debug)]
struct Place {
    at: u32,
    words: u32,
}

/// The ring: ordinary memory of the lane's thread.
pub(crate) struct Memory(Box<[Cell<u64>]>);

impl Ring for Memory {
    #[inline]
    fn read(&self, at: usize, into: &mut [u64]) {
        for (to, from) in into.iter_mut().zip(&self.0[at..]) {
            *to = from.get();
        }
    }

    #[inline]
    fn write(&self, at: usize, from: &[u64]) {
        for (to, from) in self.0[at..].iter().zip(from) {
            to.set(*from);
        }
    }
}

impl Connection {
    fn new(line: Line) -> Self {
        Self {
            line,
            ring: Memory(vec![Cell::new(0); PLACES * SINGLE_WORDS + RING_WORDS].into()),
            frame: Vec::new(),
            made: Frame::default(),
            frames: VecDeque::new(),
            places: VecDeque::new(),
            watches: Vec::new(),
            changes: Vec::new(),
            keeps_changes: false,
            has_ended: false,
            had_ended: None,
        }
    }

    /// Seals the frame, if it has a request.
    fn end_frame(&mut self) {
        if self.frame.is_empty() {
            return;
        }
        self.line.seal(&self.frame);
        self.frame.clear();
        self.frames.push_back(std::mem::take(&mut self.made));
    }

    /// Sends what is sealed.
    fn flush(&mut self) {
        if self.line.has_output() && self.line.flush().is_err() {
            self.has_ended = true;
        }
    }

    /// Reads what has arrived. Returns whether there may be more.
    fn fill(&mut self) -> bool {
        match self.line.fill() {
            Ok(Arrival::Drained) => false,
            Ok(Arrival::More) => true,
            Err(error) if error.kind() == ErrorKind::WouldBlock => false,
            Ok(Arrival::Ended) | Err(_) => {
                self.has_ended = true;
                false
            }
        }
    }

    /// Takes the next answer. Returns the position of the last request that it answers.
    fn take_answer(&mut self) -> Result<Option<u64>, &'static str> {
        let contents = loop {
            let Some(contents) = self.line.record()? else { return Ok(None) };
            match forwarded_in(contents) {
                Some(words) if self.keeps_changes => self.changes.extend(words.iter()),
                Some(_) => {}
                None => break contents,
            }
        };
        let words = answer(contents).map_err(|reason| {
            tracing::warn!(%reason, "a memory node has refused a frame");
            "the memory node has refused it"
        })?;
        let frame = self.frames.pop_front().ok_or("an answer to no request")?;
        let words = words_of(words, frame.words).ok_or("an answer of another length")?;
        let mut words = words.iter();
        for Place { at, words: count } in self.places.drain(..frame.places) {
            for (to, from) in self.ring.0[at as usize..].iter().zip(words.by_ref().take(count as usize)) {
                to.set(from);
            }
        }
        Ok(Some(frame.last))
    }

    /// Returns the failure of the oldest request without an answer.
    fn failure(&self, outcome: Outcome) -> Completion {
        let number = self.frames.front().map_or(u64::MAX, |frame| frame.first);
        Completion { number, outcome, bytes: 0 }
    }
}

impl Wire for Connection {
    type Ring = Memory;
    /// A poll is a system call.
    const LOOKS: u32 = 1;
    const WATCHES: bool = true;

    fn credits(&self) -> Credits {
        // All WRITEs are inline: their words are copied into the frame.
        let inline_words = RING_WORDS / 4;
        Credits {
            requests: MOST_REQUESTS,
            reads: MOST_REQUESTS,
            words: RING_WORDS,
            places: PLACES,
            inline_words,
        }
    }

    fn ring(&self) -> &Memory {
        &self.ring
    }

    #[inline]
    fn add(&mut self, request: Request) {
        let Request { verb, target, position, .. } = request;
        let (sent, read) = match verb {
            Verb::Read { words, .. } => (0, words),
            Verb::Write { words, .. } => (words, 0),
            Verb::CompareExchange { .. } => (2, 1),
            Verb::FetchAdd { .. } => (1, 1),
        };
        let bytes = self.watches.len() + (2 + sent) * WORD_BYTES;
        if self.frame.len() + bytes > MAX_CONTENT_BYTES || self.made.words + read > MAX_ANSWER_WORDS {
            self.end_frame();
        }
        if self.frame.is_empty() {
            self.made.first = position;
        }
        self.made.last = position;
        let (frame, at) = (&mut self.frame, target.address);
        if !self.watches.is_empty() {
            frame.append(&mut self.watches);
        }
        let place = match verb {
            Verb::Read { ring, words } => {
                frame::put_read(frame, at, words);
                ring
            }
            Verb::Write { ring, words, .. } => {
                let words = self.ring.0[ring..ring + words].iter().map(Cell::get);
                return frame::put_write(frame, at, words);
            }
            Verb::CompareExchange { ring, expected, new } => {
                frame::put_compare_exchange(frame, at, expected, new);
                ring
            }
            Verb::FetchAdd { ring, addend } => {
                frame::put_fetch_add(frame, at, addend);
                ring
            }
        };
        self.places.push_back(Place { at: place as u32, words: read as u32 });
        self.made.places += 1;
        self.made.words += read;
    }

    /// The answer to a frame is the completion of its last request.
    fn signal_last(&mut self) {}

    fn post(&mut self) -> Result<(), Refused> {
        self.end_frame();
        self.flush();
        if self.has_ended { Err(Refused) } else { Ok(()) }
    }

    fn completions(&mut self, mut each: impl FnMut(Completion)) -> usize {
        self.flush();
        let mut found = 0;
        loop {
            // Also if sending has failed: answers, and the reason of a refusal, may have arrived before.
            let may_have_more = self.fill();
            loop {
                match self.take_answer() {
                    Ok(Some(number)) => each(Completion { number, outcome: Outcome::Done, bytes: 0 }),
                    Ok(None) => break,
                    Err(reason) => {
                        tracing::warn!(reason, "a connection is closed");
                        self.line.close();
                        self.has_ended = true;
                        each(self.failure(Outcome::Failed(reason)));
                        return found + 1;
                    }
                }
                found += 1;
            }
            if self.has_ended {
                each(self.failure(if self.had_ended.is_some() {
                    Outcome::Flushed
                } else {
                    Outcome::NoAnswer
                }));
                return found + 1;
            }
            if !may_have_more {
                return found;
            }
        }
    }

    fn has_ended(&mut self) -> bool {
        self.had_ended.unwrap_or(self.has_ended)
    }

    fn state(&mut self) -> &'static str {
        if self.has_ended {
            CLOSED
        } else if self.line.has_output() {
            "whose socket takes no more bytes"
        } else {
            "which is connected"
        }
    }

    fn stop(&mut self) {
        self.line.close();
        self.had_ended = Some(self.has_ended);
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        // With bytes to send, the socket's readiness to take them counts, too.
        (!self.has_ended && !self.line.has_output()).then(|| self.line.as_fd())
    }

    fn watch(&mut self, at: u64, words: usize, number: u64) -> bool {
        let has_room = self.watches.len() < MAX_WATCHES;
        if has_room {
            frame::put_watch(&mut self.watches, at, words, number);
            self.keeps_changes = true;
        }
        has_room
    }

    fn unwatch(&mut self, at: u64) {
        // Without room it goes on, and its number tells that it is an old one.
        if self.watches.len() < MAX_WATCHES {
            frame::put_unwatch(&mut self.watches, at);
        }
    }

    fn unwatch_all(&mut self) {
        self.watches.clear();
        frame::put_unwatch(&mut self.watches, 0);
        self.changes.clear();
        self.keeps_changes = false;
    }

    fn take_changes(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.changes)
    }

    fn has_changes(&self) -> bool {
        !self.changes.is_empty()
    }
}
