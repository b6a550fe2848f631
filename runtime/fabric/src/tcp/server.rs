//! The memory node's side: one thread that admits clients and executes their operations.
//!
//! It waits for all sockets by readiness. For a while after the last frame it does not sleep, so that a client that sends one operation after the
//! other does not wait for it to wake. A socket that is ready costs a system call to read all frames that have arrived, and one to send all their
//! answers.
//!
//! A connection costs little memory while nothing is under way on it: what arrives is read into the server's own buffer, and only an incomplete record
//! and unsent answers are kept. A client whose unsent answers exceed [`MAX_UNSENT`] is not read from until it has taken some.
//!
//! # When operations take effect
//!
//! This thread alone executes operations and closes connections. So once it has removed a client or a lane, none of its operations takes effect: bytes
//! that have arrived and are not read are dropped with the socket.

use std::collections::{HashMap, VecDeque};
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use rustix::net::sockopt;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::channel::{
    Channel, HEAD_BYTES, Handshake, MAX_BODY_BYTES, MAX_CONTENT_BYTES, PREAMBLE_BYTES, Preamble,
    first_record, seal_answer,
};
use super::frame::{Operation, Operations};
use super::status::NodeStatus;
use crate::error::{self, Error, Result};
use crate::handshake::{ConnectionKind, MAX_SEGMENTS, Nonce, Secret, Segment, Welcome};
use crate::host::{Arena, Host};
use crate::lanes::admission::{Admission, AdmittedLane};
use crate::question::{Answer, Question};
use crate::{Contents, Departure, Stopper};
use farfield_words::geometry::Geometry;
use farfield_words::{Address, WORD_BYTES};

/// The timeout of a client's handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// The most connections in the handshake at a time. Another one replaces the oldest.
const MAX_UNAUTHENTICATED: usize = 256;
/// How long the server does not sleep after the last frame.
const AWAKE: Duration = Duration::from_micros(50);
/// The pause after connections could not be accepted, most likely for lack of descriptors.
const PAUSE: Duration = Duration::from_millis(100);
/// The unsent bytes of answers from which on a client is not read from.
const MAX_UNSENT: usize = 1 << 20;
/// The bytes of room that a connection keeps for unsent answers and incomplete records.
const MAX_KEPT: usize = 4 << 10;
/// The server's buffer for what arrives on a connection.
const INPUT_BYTES: usize = 4 * (HEAD_BYTES + MAX_BODY_BYTES);

const LISTENER: Token = Token(0);
const STOP: Token = Token(1);
const FIRST_CONNECTION: usize = 2;

/// The options of a memory node.
#[derive(Clone, Debug)]
pub struct TcpNodeOptions {
    /// An address, and a port; 0 for any.
    pub listen: SocketAddr,
    /// The number of segments that it hosts.
    pub segments: usize,
    /// The size of each segment.
    pub segment_bytes: u64,
    /// The lease of a client: the longest time between two heartbeats.
    pub lease_ms: u32,
    /// True if clients whose channel is not encrypted are served, too.
    pub serves_plain: bool,
}

/// A listening memory node.
pub struct Server {
    poll: Poll,
    listener: TcpListener,
    address: SocketAddr,
    stop: (mio::net::UnixStream, UnixStream),
    node: Node,
    connections: HashMap<usize, Connection>,
    next_connection: usize,
    /// The connections in the handshake, oldest first, with the times at which they are closed; also some that have finished it.
    handshakes: VecDeque<(Instant, usize)>,
    /// The number of connections in the handshake.
    unauthenticated: usize,
    buffers: Buffers,
}

/// What a connection's messages refer to.
struct Node {
    admission: Admission,
    secret: Secret,
    serves_plain: bool,
    host: Host,
    status: Arc<NodeStatus>,
}

struct Connection {
    stream: TcpStream,
    from: SocketAddr,
    state: State,
    channel: Channel,
    /// What has arrived of a record, or also records that wait for answers to be sent.
    input: Vec<u8>,
    /// Unsent bytes.
    output: Vec<u8>,
}

/// What a connection waits for.
#[derive(Clone, Copy)]
enum State {
    Preamble,
    /// The first message of Noise.
    Handshake(Preamble),
    Request,
    /// The request to join.
    Join {
        nonces: (Nonce, Nonce),
    },
    /// Nothing: the client was refused, reads the reason and closes the connection.
    Refused,
    /// Questions.
    Control {
        client: u32,
    },
    /// Frames.
    Lane {
        client: u32,
        lane: u32,
    },
}

impl State {
    fn is_authenticated(self) -> bool {
        matches!(self, Self::Control { .. } | Self::Lane { .. })
    }

    fn client(self) -> Option<u32> {
        match self {
            Self::Control { client } | Self::Lane { client, .. } => Some(client),
            _ => None,
        }
    }
}

/// How far a connection has proceeded.
enum Progress {
    /// All that had arrived is handled, or waits for answers to be sent.
    Drained,
    /// The connection was admitted.
    Joined,
    /// It was admitted as this lane.
    Opened(AdmittedLane),
    /// It asks whether a process is gone.
    Asked(Question),
}

/// The server's buffers, for what arrives, for the contents of a record, and for an answer.
struct Buffers {
    input: Box<[u8]>,
    room: Box<[u8]>,
    answer: Vec<u8>,
}

impl Server {
    /// Maps the memory and listens.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an address that can not be listened on, or may not without a secret, and for bad sizes; [`Error::System`].
    pub fn listen(options: &TcpNodeOptions, secret: Secret, contents: Box<dyn Contents>) -> Result<Self> {
        let invalid = |argument, value: String, reason| {
            Error::from(error::InvalidArgument { argument, value: value.into(), reason })
        };
        if options.segments == 0 || options.segments > MAX_SEGMENTS {
            let reason = "a memory node has 1 to 1024 segments";
            return Err(invalid("segments", options.segments.to_string(), reason));
        }
        if secret.is_empty() && !options.listen.ip().is_loopback() {
            let reason = "without a secret only this machine is served: listen on a loopback address, or give a secret's file";
            return Err(invalid("listening address", options.listen.to_string(), reason));
        }
        let own = Geometry::rounded(1, options.segments as u64, options.segment_bytes)
            .map_err(farfield_words::Error::from)?;
        let arena = Arc::new(Arena::new(own)?);
        let mut listener = TcpListener::bind(options.listen).map_err(|cause| {
            let reason = match cause.kind() {
                ErrorKind::AddrInUse => "another program listens there already",
                ErrorKind::AddrNotAvailable => "no network interface of this machine has this address",
                ErrorKind::PermissionDenied => "no permission to listen on this port",
                _ => return Error::from(error::System { action: "listen", cause }),
            };
            invalid("listening address", options.listen.to_string(), reason)
        })?;
        let system = |cause| Error::from(error::System { action: "start a memory node", cause });
        raise_descriptor_limit();
        let address = listener.local_addr().map_err(system)?;
        let poll = Poll::new().map_err(system)?;
        let stop = UnixStream::pair().map_err(system)?;
        stop.0.set_nonblocking(true).map_err(system)?;
        let mut stop = (mio::net::UnixStream::from_std(stop.0), stop.1);
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE).map_err(system)?;
        poll.registry().register(&mut stop.0, STOP, Interest::READABLE).map_err(system)?;
        Ok(Self {
            poll,
            listener,
            address,
            stop,
            node: Node {
                admission: Admission::new(own, options.lease_ms, contents, secret.clone())?,
                secret,
                serves_plain: options.serves_plain,
                host: Host::new(Arc::clone(&arena)),
                status: Arc::new(NodeStatus::new(arena)),
            },
            connections: HashMap::new(),
            next_connection: FIRST_CONNECTION,
            handshakes: VecDeque::new(),
            unauthenticated: 0,
            buffers: Buffers {
                input: vec![0; INPUT_BYTES].into(),
                room: vec![0; MAX_BODY_BYTES].into(),
                answer: Vec::new(),
            },
        })
    }

    /// Returns the port on which it listens.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Returns its status, which other threads may read.
    pub fn status(&self) -> Arc<NodeStatus> {
        Arc::clone(&self.node.status)
    }

    /// Returns the handle that stops it.
    pub fn stopper(&self) -> Result<Stopper> {
        let failed = |cause| Error::from(error::System { action: "start a memory node", cause });
        self.stop.1.try_clone().map(Stopper::new).map_err(failed)
    }

    /// Serves until its stopper stops it; then closes all connections.
    ///
    /// # Errors
    /// [`Error::System`] if it can not wait for its sockets.
    pub fn serve(&mut self) -> Result<()> {
        let mut events = Events::with_capacity(256);
        let (mut now, mut awake_until) = (Instant::now(), Instant::now());
        // When connections are accepted that could not be before.
        let mut accepts_again: Option<Instant> = None;
        loop {
            let timeout = if now < awake_until {
                Some(Duration::ZERO)
            } else {
                let late = self.handshakes.front().map(|(until, _)| *until);
                [late, accepts_again]
                    .into_iter()
                    .flatten()
                    .min()
                    .map(|next| next.saturating_duration_since(now))
            };
            if let Err(cause) = self.poll.poll(&mut events, timeout)
                && cause.kind() != ErrorKind::Interrupted
            {
                return Err(error::System { action: "wait for connections", cause }.into());
            }
            if timeout == Some(Duration::ZERO) && events.is_empty() {
                // The next frame may come from a thread that waits for this processor.
                std::thread::yield_now();
            }
            let mut has_frames = false;
            for event in &events {
                match event.token() {
                    LISTENER => accepts_again = Some(now),
                    STOP => {
                        self.connections.clear();
                        self.node.admission.clear();
                        return Ok(());
                    }
                    Token(number) => has_frames |= self.proceed(number),
                }
            }
            now = Instant::now();
            if has_frames {
                awake_until = now + AWAKE;
            }
            if accepts_again.is_some_and(|at| at <= now) {
                accepts_again = self.accept_all(now).err().map(|_| now + PAUSE);
            }
            while let Some((until, number)) = self.handshakes.front().copied()
                && until <= now
            {
                self.handshakes.pop_front();
                self.close_unauthenticated(number, "it did not finish the handshake");
            }
        }
    }

    /// Accepts all connections that wait.
    fn accept_all(&mut self, now: Instant) -> std::io::Result<()> {
        loop {
            let (mut stream, from) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => continue,
                Err(error) => {
                    // Most likely out of descriptors: waiting clients keep waiting.
                    tracing::warn!(%error, "no connection can be accepted");
                    return Err(error);
                }
            };
            while self.unauthenticated >= MAX_UNAUTHENTICATED
                && let Some((_, oldest)) = self.handshakes.pop_front()
            {
                self.close_unauthenticated(oldest, "newer connections have taken its place");
            }
            let number = self.next_connection;
            self.next_connection += 1;
            let interest = Interest::READABLE | Interest::WRITABLE;
            let prepared = stream
                .set_nodelay(true)
                .and_then(|()| Ok(keep_alive(stream.as_fd())?))
                .and_then(|()| self.poll.registry().register(&mut stream, Token(number), interest));
            if let Err(error) = prepared {
                tracing::info!(%from, %error, "connection refused");
                continue;
            }
            let connection = Connection {
                stream,
                from,
                state: State::Preamble,
                channel: Channel::Plain,
                input: Vec::new(),
                output: Vec::new(),
            };
            self.connections.insert(number, connection);
            self.handshakes.push_back((now + HANDSHAKE_TIMEOUT, number));
            self.unauthenticated += 1;
        }
    }

    /// Closes a connection that is in the handshake still.
    fn close_unauthenticated(&mut self, number: usize, reason: &str) {
        if self.connections.get(&number).is_some_and(|connection| !connection.state.is_authenticated()) {
            self.end(number, reason);
        }
    }

    /// Handles what has arrived on a connection. Returns whether it has arrived on a lane.
    fn proceed(&mut self, number: usize) -> bool {
        loop {
            let Some(connection) = self.connections.get_mut(&number) else { return false };
            let is_lane = matches!(connection.state, State::Lane { .. });
            match connection.proceed(&mut self.node, &mut self.buffers) {
                Ok(Progress::Drained) => return is_lane,
                Ok(Progress::Joined) => self.unauthenticated -= 1,
                Ok(Progress::Opened(AdmittedLane { client, replaced, .. })) => {
                    self.unauthenticated -= 1;
                    // Chains that the client has abandoned may still be on their way: without their connection they do not arrive.
                    self.connections.retain(
                        |_, connection| !matches!(connection.state, State::Lane { client: of, lane } if (of, lane) == (client, replaced)),
                    );
                }
                Ok(Progress::Asked(question)) => self.answer(number, question),
                Err(reason) => {
                    self.end(number, &reason);
                    return false;
                }
            }
        }
    }

    /// Removes a connection that has ended, and all of a client's if it was its control connection.
    fn end(&mut self, number: usize, reason: &str) {
        let Some(Connection { state, from, .. }) = self.connections.remove(&number) else { return };
        tracing::info!(%from, reason, "connection closed");
        if !state.is_authenticated() {
            self.unauthenticated -= 1;
            self.node.status.clients.refused();
        }
        if let State::Control { client } = state {
            self.disconnect_client(client, Departure::FromNode);
        }
    }

    /// Closes all connections of a client: no operation of it takes effect in this node's memory any more.
    fn disconnect_client(&mut self, client: u32, departure: Departure) {
        self.connections.retain(|_, connection| connection.state.client() != Some(client));
        if let Some(process) = self.node.admission.remove(client, &self.node.status.clients) {
            tracing::info!(client, process, "client has departed");
            self.node.mark(process, departure);
        }
    }

    /// Answers a client's question about a process, which disconnects that process.
    fn answer(&mut self, number: usize, question: Question) {
        let process = question.of;
        if let Some(client) = self.node.admission.client_of(process) {
            tracing::info!(process, "client disconnected: another has found its lease expired");
            self.disconnect_client(client, Departure::FromCluster);
        }
        self.node.mark(process, Departure::FromCluster);
        if let Some(Connection { channel, output, .. }) = self.connections.get_mut(&number) {
            seal_answer(channel, Ok(&question.answered(Answer::Gone)), output);
        }
    }
}

impl Connection {
    /// Handles what has arrived, until something concerns other connections. Then it must be called again.
    ///
    /// # Errors
    /// The reason for which the connection must be closed, in one line.
    fn proceed(&mut self, node: &mut Node, buffers: &mut Buffers) -> Result<Progress, String> {
        self.flush()?;
        loop {
            if self.output.len() > MAX_UNSENT {
                // Its socket becomes writable.
                return Ok(Progress::Drained);
            }
            // What is left from before has no whole record, or some that have waited; then there may be no room for more.
            let kept = self.input.len();
            buffers.input[..kept].copy_from_slice(&self.input);
            let is_whole = self.next_message(&buffers.input[..kept]).is_some();
            let arrived = if is_whole { Some(0) } else { self.read(&mut buffers.input[kept..])? };
            let end = kept + arrived.unwrap_or(0);
            let (progress, handled) = self.handle(node, buffers, end)?;
            self.input.clear();
            self.input.extend_from_slice(&buffers.input[handled..end]);
            if self.input.is_empty() && self.input.capacity() > MAX_KEPT {
                self.input = Vec::new();
            }
            self.flush()?;
            // After fewer bytes than there was room for, the socket becomes readable again. Messages that are left have waited for answers to be sent.
            let is_drained = !is_whole
                && arrived.is_none_or(|bytes| bytes < INPUT_BYTES - kept)
                && self.next_message(&self.input).is_none();
            match progress {
                Progress::Drained if !is_drained => {}
                progress => return Ok(progress),
            }
        }
    }

    /// Returns the next message, without its length, if it has arrived as a whole; and the bytes that it takes.
    fn next_message<'a>(&self, bytes: &'a [u8]) -> Option<(&'a [u8], usize)> {
        if matches!(self.state, State::Preamble) {
            return bytes.get(..PREAMBLE_BYTES).map(|message| (message, PREAMBLE_BYTES));
        }
        first_record(bytes).map(|body| (body, HEAD_BYTES + body.len()))
    }

    /// Handles the messages among the first `end` bytes of the buffer, until one concerns other connections or too many answers are unsent. Returns the
    /// number of bytes that it has handled.
    fn handle(
        &mut self,
        node: &mut Node,
        buffers: &mut Buffers,
        end: usize,
    ) -> Result<(Progress, usize), String> {
        let Buffers { input, room, answer } = buffers;
        let mut handled = 0;
        while self.output.len() <= MAX_UNSENT
            && let Some((message, bytes)) = self.next_message(&input[handled..end])
        {
            handled += bytes;
            let progress = match self.state {
                State::Preamble => self.take_preamble(node, message),
                State::Handshake(preamble) => self.take_handshake(node, preamble, message),
                State::Refused => Ok(Progress::Drained),
                _ => {
                    let contents = self.channel.open(message, room)?;
                    match self.state {
                        State::Lane { .. } => {
                            let executed = node.execute(contents, answer).map(|()| Progress::Drained);
                            if executed.is_ok() {
                                self.channel.seal(answer, &mut self.output);
                            }
                            executed
                        }
                        State::Control { .. } => match contents.try_into() {
                            Ok(question) => Ok(Progress::Asked(Question::from_bytes(question))),
                            Err(_) => Err("a question of another length".to_owned()),
                        },
                        State::Join { nonces } => self.take_join(node, nonces, contents),
                        _ => self.take_request(node, contents),
                    }
                }
            };
            match progress {
                Ok(Progress::Drained) => {}
                Ok(other) => return Ok((other, handled)),
                Err(reason) if self.state.is_authenticated() => {
                    // The client reads the reason before the end of the connection.
                    seal_answer(&mut self.channel, Err(&reason), &mut self.output);
                    let _ = self.flush();
                    return Err(reason);
                }
                Err(reason) => {
                    tracing::info!(from = %self.from, reason, "connection refused");
                    seal_answer(&mut self.channel, Err(&reason), &mut self.output);
                    self.state = State::Refused;
                }
            }
        }
        Ok((Progress::Drained, handled))
    }

    fn take_preamble(&mut self, node: &Node, message: &[u8]) -> Result<Progress, String> {
        let bytes = message.try_into().map_err(|_| "the preamble has 8 bytes")?;
        let preamble = Preamble::parse(bytes)?;
        if !preamble.is_sealed && !node.serves_plain {
            return Err("the memory node serves encrypted connections only: leave out encrypt=no".to_owned());
        }
        self.state = if preamble.is_sealed { State::Handshake(preamble) } else { State::Request };
        Ok(Progress::Drained)
    }

    fn take_handshake(
        &mut self,
        node: &Node,
        preamble: Preamble,
        message: &[u8],
    ) -> Result<Progress, String> {
        let (channel, answer) = Handshake::answer(&node.secret, preamble, message)?;
        seal_answer(&mut self.channel, Ok(&answer), &mut self.output);
        self.channel = channel;
        self.state = State::Request;
        Ok(Progress::Drained)
    }

    fn take_request(&mut self, node: &mut Node, message: &[u8]) -> Result<Progress, String> {
        let hello = node.admission.check_hello(message)?;
        match hello.kind {
            ConnectionKind::Control => {
                let (reply, nonce) = node.admission.reply(&hello).map_err(|error| error.to_string())?;
                seal_answer(&mut self.channel, Ok(&reply), &mut self.output);
                self.state = State::Join { nonces: (hello.nonce, nonce) };
                Ok(Progress::Drained)
            }
            ConnectionKind::Lane => {
                let admitted = node.admission.lane(&hello, message)?;
                seal_answer(&mut self.channel, Ok(&[]), &mut self.output);
                self.state = State::Lane { client: admitted.client, lane: admitted.lane };
                Ok(Progress::Opened(admitted))
            }
        }
    }

    fn take_join(
        &mut self,
        node: &mut Node,
        nonces: (Nonce, Nonce),
        message: &[u8],
    ) -> Result<Progress, String> {
        let Node { admission, host, status, .. } = node;
        let arena = host.arena();
        // A client addresses this memory by this node's own numbers of its segments.
        let segments = (0..arena.geometry().segments())
            .map(|segment| Segment { base: Address::new(segment as u16, 0).bits(), rkey: 0 });
        let format = |node, cluster, contents: &dyn Contents| {
            arena.format(contents, node == 0).map_err(|error| error.to_string())?;
            // The position never changes.
            let _ = status.position.set((node, cluster));
            Ok(())
        };
        let welcome = admission.join(message, &nonces, segments, format, &status.clients)?;
        self.state = State::Control { client: welcome.client };
        seal_answer(&mut self.channel, Ok(&Welcome::to_bytes(Ok(&welcome))), &mut self.output);
        Ok(Progress::Joined)
    }

    /// Reads what has arrived. `None` if nothing has.
    fn read(&mut self, into: &mut [u8]) -> Result<Option<usize>, String> {
        loop {
            match self.stream.read(into) {
                Ok(0) => return Err("the client has closed it".to_owned()),
                Ok(bytes) => return Ok(Some(bytes)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    /// Sends as many of the unsent bytes as the socket takes.
    fn flush(&mut self) -> Result<(), String> {
        let mut sent = 0;
        while sent < self.output.len() {
            match self.stream.write(&self.output[sent..]) {
                Ok(bytes) => sent += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        self.output.drain(..sent);
        if self.output.is_empty() && self.output.capacity() > MAX_KEPT {
            self.output = Vec::new();
        }
        Ok(())
    }
}

impl Node {
    /// Executes the operations of a frame in their order, and makes the answer.
    ///
    /// # Errors
    /// The reason of a refusal. The operations before the refused one have taken effect.
    fn execute(&self, frame: &[u8], answer: &mut Vec<u8>) -> Result<(), String> {
        let text = |error: Error| error.to_string();
        answer.clear();
        answer.push(0);
        for operation in Operations::new(frame) {
            match operation? {
                Operation::Read { at, words } => {
                    if answer.len() + words * WORD_BYTES > MAX_CONTENT_BYTES {
                        return Err("the answer to a frame is too long".to_owned());
                    }
                    for word in self.host.words(at, words).map_err(text)? {
                        answer.extend_from_slice(&word.load(Ordering::SeqCst).to_le_bytes());
                    }
                }
                Operation::Write { at, words } => self.host.write_each(at, words.iter()).map_err(text)?,
                Operation::CompareExchange { at, expected, new } => {
                    let old = self.host.compare_exchange(at, expected, new).map_err(text)?;
                    answer.extend_from_slice(&old.to_le_bytes());
                }
                Operation::FetchAdd { at, addend } => {
                    let old = self.host.fetch_add(at, addend).map_err(text)?;
                    answer.extend_from_slice(&old.to_le_bytes());
                }
            }
        }
        Ok(())
    }

    /// Marks a process's record, if this is the first memory node.
    fn mark(&self, process: u32, departure: Departure) {
        self.admission.mark(process, departure, &|at| self.host.words(at, 1).ok()?.first());
    }
}

/// Has the kernel find out in some 20 s that the other end has ended without closing the connection.
fn keep_alive(socket: BorrowedFd<'_>) -> rustix::io::Result<()> {
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, Duration::from_secs(10))?;
    sockopt::set_tcp_keepintvl(socket, Duration::from_secs(3))?;
    sockopt::set_tcp_keepcnt(socket, 3)
}

/// Raises the limit of open descriptors to what the system allows this process.
fn raise_descriptor_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        // A lower limit remains: connections beyond it wait.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    }
}
