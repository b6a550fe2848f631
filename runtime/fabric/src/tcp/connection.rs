//! The memory node's end of a connection.
//!
//! A connection costs little memory while nothing is under way on it: what arrives is read into the server's own buffer, and only an incomplete record
//! and unsent answers are kept. A client whose unsent answers exceed [`MAX_UNSENT`] is not read from until it has taken some.

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering;
use std::time::Duration;

use mio::event::Source;
use mio::net::{TcpListener, TcpStream};
use rustix::net::sockopt;

use super::channel::{
    Channel, HEAD_BYTES, Handshake, MAX_BODY_BYTES, MAX_CONTENT_BYTES, PREAMBLE_BYTES, Preamble,
    first_record, seal_answer,
};
use super::frame::{self, Operation, Operations};
use crate::error::{self, Error, Result};
use crate::handshake::{ConnectionKind, Nonce, Secret, Welcome};
use crate::question::Question;
use crate::server::{
    Buffers, Connection, INPUT_BYTES, Listener, MAX_UNSENT, Node, Progress, ROOM_BYTES, Role,
};
use farfield_words::WORD_BYTES;

/// The bytes of room that a connection keeps for unsent answers and incomplete records.
const MAX_KEPT: usize = 4 << 10;

// An incomplete record leaves room for more to arrive.
const _: () = assert!(MAX_BODY_BYTES <= ROOM_BYTES && HEAD_BYTES + MAX_BODY_BYTES < INPUT_BYTES);

/// Where a memory node listens for TCP connections.
#[derive(Clone, Debug)]
pub struct TcpListen {
    /// An address, and a port; 0 for any.
    pub address: SocketAddr,
    /// True if clients whose channel is not encrypted are served, too.
    pub serves_plain: bool,
}

/// Accepts TCP connections.
pub(crate) struct TcpEntrance {
    listener: TcpListener,
    serves_plain: bool,
}

/// A client's connection.
struct TcpConnection {
    stream: TcpStream,
    from: SocketAddr,
    serves_plain: bool,
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

impl TcpEntrance {
    /// Listens.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an address that can not be listened on, or may not without a secret; [`Error::System`].
    pub(crate) fn listen(options: &TcpListen, secret: &Secret) -> Result<Self> {
        let invalid = |reason| {
            let value = options.address.to_string().into();
            Error::from(error::InvalidArgument { argument: "listening address", value, reason })
        };
        if secret.is_empty() && !options.address.ip().is_loopback() {
            return Err(invalid(
                "without a secret only this machine is served: listen on a loopback address, or give a secret's file",
            ));
        }
        let listener = TcpListener::bind(options.address).map_err(|cause| {
            invalid(match cause.kind() {
                ErrorKind::AddrInUse => "another program listens there already",
                ErrorKind::AddrNotAvailable => "no network interface of this machine has this address",
                ErrorKind::PermissionDenied => "no permission to listen on this port",
                _ => return Error::from(error::System { action: "listen", cause }),
            })
        })?;
        Ok(Self { listener, serves_plain: options.serves_plain })
    }

    /// Returns the address on which it listens.
    pub(crate) fn address(&self) -> Result<SocketAddr> {
        let failed = |cause| Error::from(error::System { action: "listen", cause });
        self.listener.local_addr().map_err(failed)
    }
}

impl Listener for TcpEntrance {
    fn source(&mut self) -> &mut dyn Source {
        &mut self.listener
    }

    fn accept(&mut self) -> io::Result<Box<dyn Connection>> {
        let (stream, from) = self.listener.accept()?;
        let prepared = stream.set_nodelay(true).and_then(|()| Ok(keep_alive(stream.as_fd())?));
        if let Err(error) = prepared {
            tracing::info!(%from, %error, "connection refused");
            return Err(ErrorKind::ConnectionAborted.into());
        }
        Ok(Box::new(TcpConnection {
            stream,
            from,
            serves_plain: self.serves_plain,
            state: State::Preamble,
            channel: Channel::Plain,
            input: Vec::new(),
            output: Vec::new(),
        }))
    }
}

impl Connection for TcpConnection {
    fn source(&mut self) -> &mut dyn Source {
        &mut self.stream
    }

    fn origin(&self) -> String {
        self.from.to_string()
    }

    fn role(&self) -> Role {
        match self.state {
            State::Control { client } => Role::Control { client },
            State::Lane { client, lane } => Role::Lane { client, lane },
            _ => Role::Unauthenticated,
        }
    }

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
            if node.watches.has_changes() && matches!(progress, Progress::Drained) {
                // Others wait for them; this client for its answer, which is sent next.
                return Ok(Progress::Changed);
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

    fn send(&mut self, answer: &[u8]) {
        seal_answer(&mut self.channel, Ok(answer), &mut self.output);
    }

    fn forward(&mut self, changes: &[u64]) -> bool {
        if self.output.len() > MAX_UNSENT {
            return false;
        }
        self.channel.seal(&frame::forwarded(changes), &mut self.output);
        // If it has failed, its next event ends it.
        self.flush().is_ok()
    }
}

impl TcpConnection {
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
                State::Preamble => self.take_preamble(message),
                State::Handshake(preamble) => self.take_handshake(node, preamble, message),
                State::Refused => Ok(Progress::Drained),
                _ => {
                    let contents = self.channel.open(message, room)?;
                    match self.state {
                        State::Lane { .. } => {
                            let executed = execute(node, contents, answer).map(|()| Progress::Drained);
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
                Err(reason) if self.role() != Role::Unauthenticated => {
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

    fn take_preamble(&mut self, message: &[u8]) -> Result<Progress, String> {
        let bytes = message.try_into().map_err(|_| "the preamble has 8 bytes")?;
        let preamble = Preamble::parse(bytes)?;
        if !preamble.is_sealed && !self.serves_plain {
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
        let welcome = node.join(message, &nonces, false)?;
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

/// Executes the operations of a frame in their order, and makes the answer.
///
/// # Errors
/// The reason of a refusal. The operations before the refused one have taken effect.
fn execute(node: &mut Node, frame: &[u8], answer: &mut Vec<u8>) -> Result<(), String> {
    let Node { host, watches, .. } = node;
    let text = |error: Error| error.to_string();
    answer.clear();
    answer.push(0);
    for operation in Operations::new(frame) {
        match operation? {
            Operation::Read { at, words } => {
                if answer.len() + words * WORD_BYTES > MAX_CONTENT_BYTES {
                    return Err("the answer to a frame is too long".to_owned());
                }
                for word in host.words(at, words).map_err(text)? {
                    answer.extend_from_slice(&word.load(Ordering::SeqCst).to_le_bytes());
                }
            }
            Operation::Write { at, words } => {
                let words = words.iter();
                let count = words.len();
                host.write_each(at, words).map_err(text)?;
                watches.changed(host, at, count);
            }
            Operation::CompareExchange { at, expected, new } => {
                let old = host.exchange_for_others(at, expected, new).map_err(text)?;
                if old == expected {
                    watches.changed(host, at, 1);
                }
                answer.extend_from_slice(&old.to_le_bytes());
            }
            Operation::FetchAdd { at, addend } => {
                let old = host.fetch_add(at, addend).map_err(text)?;
                watches.changed(host, at, 1);
                answer.extend_from_slice(&old.to_le_bytes());
            }
            Operation::Watch { at, words, number } => {
                host.words(at, words).map_err(text)?;
                watches.add(at, words, number)?;
            }
            Operation::Unwatch { at } => watches.remove(at),
        }
    }
    Ok(())
}

/// Has the kernel find out in some 20 s that the other end has ended without closing the connection.
pub(super) fn keep_alive(socket: BorrowedFd<'_>) -> rustix::io::Result<()> {
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, Duration::from_secs(10))?;
    sockopt::set_tcp_keepintvl(socket, Duration::from_secs(3))?;
    sockopt::set_tcp_keepcnt(socket, 3)
}
