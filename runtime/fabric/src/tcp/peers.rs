//! Lines between compute threads, without a memory node between them.
//!
//! What a thread writes to a memory node for another one takes two messages, there and on. A *peer line* is a TCP connection from process to process, whose channel is
//! that of a connection to a memory node. A line carries *notes*: words, and the address that they are for. A note changes only what its
//! receiver knows of the address, not the memory node's words.
//!
//! # Each note once, in order
//!
//! An end counts the notes that it has taken, and tells its count with each note that it sends. It keeps its own notes until the other end has counted them.
//!
//! 1. A connection begins by the counts of both ends, and each end sends the notes that it has kept beyond the other's count, before later ones. So the first note on
//!    a connection is the one behind the last that the other end has taken.
//! 2. Notes on a connection arrive in order, or it fails: TCP, and the numbers of the channel. So each is taken once, in the order in which they were sent.
//! 3. An end reads from its newest connection only. Notes that an older one still has were not counted, and are sent again.
//!
//! The end that has connected connects again while the line is open, as long as an attempt succeeds within the timeout. If none does, or the other end has closed the line, the
//! line has *ended*: what was not answered may have arrived.
//!
//! # Who is admitted
//!
//! Both ends prove that they know the cluster's secret, by the channel's handshake and by an HMAC over random numbers of both, as on connections to memory nodes. A process listens on the address
//! by which it reaches its first memory node: without a secret only on loopback.
//!
//! # Costs
//!
//! A note is written by one system call. A look at a thread's lines is one system call for each of up to two; of more, one that tells which have something, and one for each of those. A process with a
//! trustee has one thread that accepts connections, and sleeps; each connection is made by a thread of its own, so no compute thread waits for it. A line has 4 KiB of buffers.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};

use super::channel::Preamble;
use super::line::{Arrival, Line};
use crate::handshake::{Nonce, Proof, Secret, is_peer_proof, peer_proof};
use crate::question::Transport;
use farfield_words::{Address, WORD_BYTES};

/// The most words of a note.
pub const MOST_NOTE_WORDS: usize = 64;
/// The words of a record before those of its note: the sender's count, and the address.
const HEAD_WORDS: usize = 2;
/// The longest body of a record, with what sealing adds.
const BODY_BYTES: usize = (HEAD_WORDS + MOST_NOTE_WORDS) * WORD_BYTES + 16;
/// The most connections that a process is asked for at one time; further ones are closed.
const MOST_OPENING: usize = 64;
/// The pause between two attempts to connect again.
const RETRY: Duration = Duration::from_millis(20);
/// The lines that are read one by one. Of more, the kernel tells which have something.
const MOST_READ: usize = 2;
/// The lines that are read in one look, of those.
const MOST_EVENTS: usize = 64;

const HELLO_BYTES: usize = 5 * WORD_BYTES + size_of::<Nonce>();

/// What the end that connects says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerHello {
    /// The thread that is called.
    pub to: u64,
    /// The thread that calls.
    pub from: u64,
    /// The line's name: the address of the words for which it carries notes.
    pub name: Address,
}

impl PeerHello {
    fn to_bytes(self, cluster: u64, taken: u64, nonce: &Nonce) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        let words = [cluster, self.to, self.from, self.name.bits(), taken];
        for (to, word) in bytes.chunks_exact_mut(WORD_BYTES).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes[HELLO_BYTES - nonce.len()..].copy_from_slice(nonce);
        bytes
    }

    /// Returns the cluster, the names, and the count.
    fn of_bytes(bytes: &[u8]) -> Option<(u64, Self, u64)> {
        if bytes.len() != HELLO_BYTES {
            return None;
        }
        let mut words = words_of(bytes);
        let mut next = || words.next();
        let (cluster, to, from) = (next()?, next()?, next()?);
        let name = Address::from_bits(next()?);
        Some((cluster, Self { to, from, name }, next()?))
    }
}

fn words_of(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.chunks_exact(WORD_BYTES).map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()))
}

// ---- the process ---------------------------------------------------------------------------------------------------

/// What the threads of a process need for peer lines.
pub(crate) struct PeerNetwork {
    ways: Arc<Ways>,
    listener: Mutex<Option<Listener>>,
}

/// What the threads need that open and accept connections.
struct Ways {
    secret: Secret,
    preamble: Preamble,
    timeout: Duration,
    /// The threads that take connections.
    inboxes: Mutex<HashMap<u64, Arc<Inbox>>>,
    /// The connections that are being accepted.
    opening: AtomicUsize,
}

/// Connections that wait for their thread, and whether there are some.
#[derive(Default)]
struct Inbox {
    arrivals: Mutex<Vec<PeerArrival>>,
    has_some: AtomicBool,
}

/// A process's socket for connections of others.
struct Listener {
    address: SocketAddr,
    socket: OwnedFd,
    accepting: Option<JoinHandle<()>>,
}

/// A connection for a thread.
pub struct PeerArrival {
    /// What the other end has said.
    pub hello: PeerHello,
    taken: u64,
    line: Line,
}

impl PeerNetwork {
    pub(super) fn new(secret: Secret, preamble: Preamble, timeout: Duration) -> Self {
        let ways =
            Ways { secret, preamble, timeout, inboxes: Mutex::default(), opening: AtomicUsize::new(0) };
        Self { ways: Arc::new(ways), listener: Mutex::default() }
    }

    /// Returns where the process listens. At its first call, it begins to: on the address by which it reaches a memory node.
    ///
    /// # Errors
    /// The reason, in one line.
    pub(crate) fn listen(&self, cluster: u64, node: SocketAddr) -> Result<SocketAddr, String> {
        let mut listener = locked(&self.listener);
        if let Some(listener) = &*listener {
            return Ok(listener.address);
        }
        let begun = Listener::begin(&self.ways, cluster, node).map_err(|error| error.to_string())?;
        Ok(listener.insert(begun).address)
    }

    /// Opens a connection in a thread of its own.
    fn call(
        &self,
        address: SocketAddr,
        hello: PeerHello,
        cluster: u64,
        taken: u64,
    ) -> Receiver<Result<Line, String>> {
        let (done, call) = channel();
        let ways = Arc::clone(&self.ways);
        let name = "farfield-call".to_owned();
        let begun = Builder::new()
            .name(name)
            .spawn(move || drop(done.send(ways.open(address, hello, cluster, taken))));
        if let Err(error) = begun {
            tracing::warn!(%error, "no thread for a connection");
        }
        call
    }
}

/// Locks what no code can leave half changed.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Ways {
    fn nonce() -> Result<Nonce, String> {
        let mut nonce = Nonce::default();
        getrandom::fill(&mut nonce).map_err(|error| error.to_string())?;
        Ok(nonce)
    }

    /// Opens a connection, and proves that this end knows the secret.
    fn open(&self, address: SocketAddr, hello: PeerHello, cluster: u64, taken: u64) -> Result<Line, String> {
        let deadline = Instant::now() + self.timeout;
        let mut line = Line::open_for(BODY_BYTES, address, &self.secret, self.preamble, deadline)?;
        let hello = hello.to_bytes(cluster, taken, &Self::nonce()?);
        line.send(&hello, deadline)?;
        let reply = line.receive(deadline)?;
        let (nonce, proof) = reply.split_at_checked(size_of::<Nonce>()).ok_or("its reply is too short")?;
        if !is_peer_proof(&self.secret, false, [&hello, nonce], proof) {
            return Err("it does not know the cluster's secret".to_owned());
        }
        line.send(&peer_proof(&self.secret, true, [&hello, nonce]), deadline)?;
        self.prepare(&line)?;
        Ok(line)
    }

    /// Accepts a connection whose other end proves that it knows the secret.
    fn accept(&self, stream: std::net::TcpStream, cluster: u64) -> Result<PeerArrival, String> {
        let deadline = Instant::now() + self.timeout;
        let mut line = Line::accept(stream, BODY_BYTES, &self.secret, self.preamble.is_sealed, deadline)?;
        let message = line.receive_bare(deadline)?;
        let (of, hello, taken) = PeerHello::of_bytes(&message).ok_or("the hello has another length")?;
        if of != cluster {
            return Err("it is of another cluster".to_owned());
        }
        let nonce = Self::nonce()?;
        let proof: Proof = peer_proof(&self.secret, false, [&message, &nonce]);
        line.answer(&[&nonce[..], &proof].concat(), deadline)?;
        let proof = line.receive_bare(deadline)?;
        if !is_peer_proof(&self.secret, true, [&message, &nonce], &proof) {
            return Err("it does not know the cluster's secret".to_owned());
        }
        self.prepare(&line)?;
        Ok(PeerArrival { hello, taken, line })
    }

    fn prepare(&self, line: &Line) -> Result<(), String> {
        line.fails_after(self.timeout)?;
        line.does_not_wait()
    }

    /// Leaves a connection to its thread. There is none if the thread has ended.
    fn arrived(&self, arrival: PeerArrival) {
        let inbox = locked(&self.inboxes).get(&arrival.hello.to).map(Arc::clone);
        let Some(inbox) = inbox else { return arrival.refuse() };
        let mut arrivals = locked(&inbox.arrivals);
        arrivals.push(arrival);
        inbox.has_some.store(true, Ordering::Relaxed);
    }
}

impl Listener {
    fn begin(ways: &Arc<Ways>, cluster: u64, node: SocketAddr) -> std::io::Result<Self> {
        // Sends nothing: the kernel only looks for the way.
        let any: IpAddr = if node.is_ipv4() { [0; 4].into() } else { [0_u16; 8].into() };
        let probe = UdpSocket::bind((any, 0))?;
        probe.connect(node)?;
        let listener = TcpListener::bind((probe.local_addr()?.ip(), 0))?;
        let (address, socket) = (listener.local_addr()?, listener.try_clone()?.into());
        let ways = Arc::clone(ways);
        let accept = move || {
            // Until the listener is shut down.
            for stream in listener.incoming() {
                let stream = match stream {
                    Ok(stream) => stream,
                    Err(error) if error.kind() == ErrorKind::InvalidInput => return,
                    Err(error) => {
                        tracing::info!(%error, "a connection of a compute thread was not accepted");
                        std::thread::sleep(RETRY);
                        continue;
                    }
                };
                if ways.opening.fetch_add(1, Ordering::Relaxed) >= MOST_OPENING {
                    ways.opening.fetch_sub(1, Ordering::Relaxed);
                    continue;
                }
                let accepting = Arc::clone(&ways);
                let accept = move || {
                    match accepting.accept(stream, cluster) {
                        Ok(arrival) => accepting.arrived(arrival),
                        Err(reason) => tracing::info!(reason, "a connection of a compute thread was refused"),
                    }
                    accepting.opening.fetch_sub(1, Ordering::Relaxed);
                };
                if Builder::new().name("farfield-answer".to_owned()).spawn(accept).is_err() {
                    ways.opening.fetch_sub(1, Ordering::Relaxed);
                }
            }
        };
        let accepting = Some(Builder::new().name("farfield-accept".to_owned()).spawn(accept)?);
        Ok(Self { address, socket, accepting })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
    }
}

// ---- an end --------------------------------------------------------------------------------------------------------

/// What a thread knows a line by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerKey {
    /// Its own number for the line.
    pub line: usize,
    /// Its number for the words that the notes are for.
    pub words: u64,
}

/// The state of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerState {
    /// There is a connection, and the other end's count is known.
    Linked,
    /// There is none, for now.
    Lost,
    /// There will be none: notes do not arrive any more.
    Ended,
}

/// One end of a line.
struct End {
    line: Option<Line>,
    /// True if the other end's count is known since the connection was made.
    is_linked: bool,
    has_ended: bool,
    /// The notes that were sent, and taken.
    sent: u64,
    taken: u64,
    /// The last notes that were sent: the address, and the words.
    kept: VecDeque<Vec<u64>>,
    /// Lists for further ones.
    spare: Vec<Vec<u64>>,
    record: Vec<u8>,
    /// How the end connects, if it is the one that does.
    caller: Option<Caller>,
    /// What its notes are passed on with.
    key: PeerKey,
    /// The kernel's list of the thread's connections, and the end's place among its lines.
    epoll: Rc<OwnedFd>,
    index: usize,
}

/// How an end connects.
struct Caller {
    address: SocketAddr,
    hello: PeerHello,
    call: Option<Receiver<Result<Line, String>>>,
    /// When there was no connection first, and when another attempt may begin.
    lost_since: Instant,
    next: Instant,
}

impl End {
    fn new(epoll: Rc<OwnedFd>, index: usize, key: PeerKey, caller: Option<Caller>) -> Self {
        Self {
            line: None,
            is_linked: false,
            has_ended: false,
            sent: 0,
            taken: 0,
            kept: VecDeque::new(),
            spare: Vec::new(),
            record: Vec::new(),
            caller,
            key,
            epoll,
            index,
        }
    }

    fn state(&self) -> PeerState {
        if self.has_ended {
            PeerState::Ended
        } else if self.is_linked {
            PeerState::Linked
        } else {
            PeerState::Lost
        }
    }

    fn send(&mut self, at: Address, head: u64, words: &[u64]) {
        assert!(words.len() < MOST_NOTE_WORDS, "a note of {} words", 1 + words.len());
        if self.has_ended {
            return;
        }
        let mut note = self.spare.pop().unwrap_or_default();
        note.clear();
        note.extend([at.bits(), head]);
        note.extend_from_slice(words);
        self.kept.push_back(note);
        self.sent += 1;
        if self.is_linked {
            self.put(self.kept.len() - 1);
            self.flush();
        }
    }

    /// Seals a note that is kept.
    fn put(&mut self, index: usize) {
        let Self { line: Some(line), kept, record, taken, .. } = self else { return };
        record.clear();
        record.extend(taken.to_le_bytes());
        for word in &kept[index] {
            record.extend(word.to_le_bytes());
        }
        line.seal(record);
    }

    fn flush(&mut self) {
        if let Some(line) = &mut self.line
            && line.has_output()
            && line.flush().is_err()
        {
            self.lose();
        }
    }

    /// Uses a connection from now on. Its other end's count is told by it.
    fn connect(&mut self, line: Line) {
        (self.line, self.is_linked) = (Some(line), false);
        let data = epoll::EventData::new_u64(self.index as u64);
        let added =
            self.line.as_ref().map(|line| epoll::add(&*self.epoll, line, data, epoll::EventFlags::IN));
        if let Some(Err(error)) = added {
            tracing::warn!(%error, "a connection to a compute thread can not be waited for");
            self.lose();
        }
    }

    /// Uses a connection whose other end has this count, and is told this one's.
    fn resume(&mut self, mut line: Line, count: u64) {
        line.seal(&self.taken.to_le_bytes());
        self.connect(line);
        self.link(count);
    }

    /// The other end has this count at the beginning of a connection.
    fn link(&mut self, count: u64) {
        self.counted(count);
        if self.line.is_some() {
            self.is_linked = true;
            (0..self.kept.len()).for_each(|index| self.put(index));
            self.flush();
        }
    }

    /// The other end has taken so many notes.
    fn counted(&mut self, count: u64) {
        if count > self.sent {
            tracing::warn!(
                count,
                sent = self.sent,
                "the other end of a line counts notes that were not sent"
            );
            return self.end();
        }
        while self.kept.len() as u64 > self.sent - count {
            self.spare.extend(self.kept.pop_front());
        }
    }

    fn lose(&mut self) {
        (self.line, self.is_linked) = (None, false);
        if let Some(caller) = &mut self.caller {
            caller.lost_since = Instant::now();
            caller.next = caller.lost_since;
        }
    }

    fn end(&mut self) {
        (self.line, self.is_linked, self.has_ended) = (None, false, true);
    }

    /// Connects, if it is the end that does and there is no connection.
    fn call(&mut self, network: &PeerNetwork, cluster: u64) {
        let Some(caller) = &mut self.caller else { return };
        match caller.call.as_ref().map(Receiver::try_recv) {
            Some(Err(TryRecvError::Empty)) => {}
            Some(Ok(Ok(line))) => {
                caller.call = None;
                self.connect(line);
            }
            Some(result) => {
                caller.call = None;
                caller.next = Instant::now() + RETRY;
                if let Ok(Err(reason)) = result {
                    tracing::info!(address = %caller.address, reason, "no connection to a compute thread");
                }
                if caller.lost_since.elapsed() >= network.ways.timeout {
                    self.end();
                }
            }
            None if Instant::now() >= caller.next => {
                caller.call = Some(network.call(caller.address, caller.hello, cluster, self.taken));
            }
            None => {}
        }
    }

    /// Reads what has arrived, and passes notes on: the address, and the words.
    fn read(&mut self, mut each: impl FnMut(Address, &[u64])) {
        self.flush();
        loop {
            let Some(line) = &mut self.line else { return };
            let arrival = match line.fill() {
                Err(error) if error.kind() == ErrorKind::WouldBlock => Arrival::Drained,
                other => other.unwrap_or(Arrival::Ended),
            };
            loop {
                let mut words = [0; HEAD_WORDS + MOST_NOTE_WORDS];
                let Some(line) = &mut self.line else { return };
                let count = match line.record() {
                    Ok(Some(record)) => {
                        let count = record.len() / WORD_BYTES;
                        words.iter_mut().zip(words_of(record)).for_each(|(to, word)| *to = word);
                        if record.len().is_multiple_of(WORD_BYTES) && count <= words.len() {
                            count
                        } else {
                            0
                        }
                    }
                    Ok(None) => break,
                    Err(reason) => {
                        tracing::warn!(reason, "a connection to a compute thread is closed");
                        self.lose();
                        return;
                    }
                };
                match &words[..count] {
                    [count] if !self.is_linked => self.link(*count),
                    [count, at, words @ ..] if self.is_linked && !words.is_empty() => {
                        self.counted(*count);
                        if self.has_ended {
                            return;
                        }
                        self.taken += 1;
                        each(Address::from_bits(*at), words);
                    }
                    // It has closed the line.
                    _ => self.end(),
                }
            }
            match arrival {
                Arrival::Drained => return,
                Arrival::More => {}
                Arrival::Ended => {
                    self.lose();
                    return;
                }
            }
        }
    }

    /// Tells the other end that the line is closed, after all notes.
    fn close(&mut self) {
        if let Some(mut line) = self.line.take() {
            // With bytes that were not read, the kernel would reset the connection, and the other end could lose the last notes.
            let _ = line.fill();
            line.seal(&[]);
            let _ = line.flush();
        }
    }
}

// ---- a thread ------------------------------------------------------------------------------------------------------

/// The lines of a thread.
pub struct Peers {
    network: Arc<PeerNetwork>,
    cluster: u64,
    /// The address of a memory node.
    node: SocketAddr,
    /// Where connections for the thread arrive, and its number once there may be some.
    inbox: Arc<Inbox>,
    thread: Cell<Option<u64>>,
    ends: RefCell<Vec<Option<End>>>,
    /// The number of lines.
    count: Cell<usize>,
    /// The kernel's list of their connections.
    epoll: OnceCell<Rc<OwnedFd>>,
    events: RefCell<Vec<epoll::Event>>,
    /// The notes that were taken, and not passed on: the two words of the line's key, the address, the number of words, and the words.
    notes: RefCell<Vec<u64>>,
    has_news: Cell<bool>,
}

/// An end of a line. It is closed when this is dropped.
pub struct Peer {
    of: Rc<Peers>,
    index: usize,
}

impl Peers {
    pub(crate) fn new(network: Arc<PeerNetwork>, cluster: u64, node: SocketAddr) -> Rc<Self> {
        Rc::new(Self {
            network,
            cluster,
            node,
            inbox: Arc::default(),
            thread: Cell::new(None),
            ends: RefCell::default(),
            count: Cell::new(0),
            epoll: OnceCell::new(),
            events: RefCell::default(),
            notes: RefCell::default(),
            has_news: Cell::new(false),
        })
    }

    /// Returns where the process listens for connections to this thread, which has this number; `None` if it can not.
    pub fn listen(&self, thread: u64) -> Option<SocketAddr> {
        if self.thread.replace(Some(thread)) != Some(thread) {
            locked(&self.network.ways.inboxes).insert(thread, Arc::clone(&self.inbox));
        }
        let listening = self.network.listen(self.cluster, self.node);
        listening.inspect_err(|reason| tracing::warn!(reason, "no connections of compute threads")).ok()
    }

    fn add(self: &Rc<Self>, key: PeerKey, caller: Option<Caller>) -> Option<Peer> {
        let epoll = if let Some(epoll) = self.epoll.get() {
            epoll
        } else {
            let made = epoll::create(epoll::CreateFlags::CLOEXEC).ok()?;
            self.epoll.get_or_init(|| Rc::new(made))
        };
        let mut ends = self.ends.borrow_mut();
        let index = ends.iter().position(Option::is_none).unwrap_or_else(|| {
            ends.push(None);
            ends.len() - 1
        });
        ends[index] = Some(End::new(Rc::clone(epoll), index, key, caller));
        self.count.set(self.count.get() + 1);
        Some(Peer { of: Rc::clone(self), index })
    }

    /// Returns whether there are lines.
    #[inline]
    pub fn are_some(&self) -> bool {
        self.count.get() > 0
    }

    /// Opens a line. Its notes are passed on with this key.
    pub fn open(self: &Rc<Self>, address: SocketAddr, hello: PeerHello, key: PeerKey) -> Option<Peer> {
        let now = Instant::now();
        self.add(key, Some(Caller { address, hello, call: None, lost_since: now, next: now }))
    }

    /// Takes the connections that other threads have made to this one.
    pub fn arrivals(&self) -> Vec<PeerArrival> {
        let mut arrivals = locked(&self.inbox.arrivals);
        self.inbox.has_some.store(false, Ordering::Relaxed);
        std::mem::take(&mut *arrivals)
    }

    /// Accepts a line. Its notes are passed on with this key.
    pub fn accept(self: &Rc<Self>, arrival: PeerArrival, key: PeerKey) -> Option<Peer> {
        let peer = self.add(key, None)?;
        peer.resume(arrival);
        Some(peer)
    }

    /// Reads what has arrived, and connects again what was lost. Returns whether there is news: notes, connections of others, or a line in another state.
    pub fn poll(&self) -> bool {
        let mut has_news = self.inbox.has_some.load(Ordering::Relaxed);
        if !self.are_some() {
            return self.has_found(has_news);
        }
        let mut ends = self.ends.borrow_mut();
        for end in ends.iter_mut().flatten().filter(|end| end.line.is_none() && !end.has_ended) {
            end.call(&self.network, self.cluster);
            has_news |= end.has_ended;
        }
        let mut notes = self.notes.borrow_mut();
        let mut read = |end: &mut End| {
            let (before, PeerKey { line, words: number }) = (end.state(), end.key);
            end.read(|at, words| {
                notes.extend([line as u64, number, at.bits(), words.len() as u64]);
                notes.extend_from_slice(words);
            });
            has_news |= end.state() != before;
        };
        if self.count.get() <= MOST_READ {
            ends.iter_mut().flatten().for_each(&mut read);
        } else if let Some(epoll) = self.epoll.get() {
            let mut events = self.events.borrow_mut();
            events.clear();
            events.reserve(MOST_EVENTS);
            let room = rustix::buffer::spare_capacity(&mut events);
            if epoll::wait(epoll, room, Some(&Timespec::default())).is_ok() {
                for event in &*events {
                    if let Some(Some(end)) = ends.get_mut(event.data.u64() as usize) {
                        read(end);
                    }
                }
            }
            // Connections with room for output are not among them.
            ends.iter_mut().flatten().for_each(End::flush);
        }
        has_news |= !notes.is_empty();
        self.has_found(has_news)
    }

    /// Notes that there is news. Returns whether there is some.
    #[inline]
    fn has_found(&self, news: bool) -> bool {
        let has_news = news || self.has_news.get();
        self.has_news.set(has_news);
        has_news
    }

    /// Returns whether there is news. It has been taken then.
    #[inline]
    pub fn takes_news(&self) -> bool {
        self.has_news.get() && self.has_news.replace(false)
    }

    /// Passes notes on: the line's key, the address, and the words.
    pub fn take_notes(&self, mut each: impl FnMut(PeerKey, Address, &[u64])) {
        let mut notes = self.notes.take();
        let mut rest = &notes[..];
        while let [line, number, at, count, following @ ..] = rest
            && let Some((words, following)) = following.split_at_checked(*count as usize)
        {
            each(PeerKey { line: *line as usize, words: *number }, Address::from_bits(*at), words);
            rest = following;
        }
        notes.clear();
        let mut kept = self.notes.borrow_mut();
        if kept.is_empty() {
            *kept = notes;
        }
    }

    /// Returns what becomes readable when notes arrive, if there are lines.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.epoll.get().filter(|_| self.are_some()).map(|epoll| epoll.as_fd())
    }

    /// Closes all connections as if the network had. For tests.
    #[doc(hidden)]
    pub fn cut(&self) {
        for end in self.ends.borrow_mut().iter_mut().flatten() {
            end.lose();
        }
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.get() {
            locked(&self.network.ways.inboxes).remove(&thread);
        }
    }
}

impl Peer {
    fn with<R>(&self, f: impl FnOnce(&mut End) -> R) -> R {
        let mut ends = self.of.ends.borrow_mut();
        f(ends[self.index].as_mut().expect("it is open until this is dropped"))
    }

    /// Returns the line's state.
    pub fn state(&self) -> PeerState {
        self.with(|end| end.state())
    }

    /// Returns whether a note of the other end has arrived.
    pub fn has_taken(&self) -> bool {
        self.with(|end| end.taken > 0)
    }

    /// Sends a note of at most [`MOST_NOTE_WORDS`] words, of which `head` is the first.
    pub fn send(&self, at: Address, head: u64, words: &[u64]) {
        self.with(|end| end.send(at, head, words));
    }

    /// Uses a connection of the other end from now on.
    pub fn resume(&self, arrival: PeerArrival) {
        self.with(|end| end.resume(arrival.line, arrival.taken));
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        if let Some(mut end) = self.of.ends.borrow_mut()[self.index].take() {
            end.close();
            self.of.count.set(self.of.count.get() - 1);
        }
    }
}

impl PeerArrival {
    /// Refuses the connection: there is no such line.
    pub fn refuse(mut self) {
        self.line.seal(&[]);
        let _ = self.line.flush();
    }
}

#[cfg(test)]
mod tests;
