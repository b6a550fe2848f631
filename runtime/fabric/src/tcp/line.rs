//! A compute process's end of a connection: the socket, its channel, and the bytes that have arrived.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use super::channel::{
    Channel, HEAD_BYTES, Handshake, MAX_BODY_BYTES, MAX_CONTENT_BYTES, PREAMBLE_BYTES, Preamble, answer,
    first_record, seal_answer,
};
use super::connection::keep_alive;
use crate::handshake::Secret;
use crate::question::Transport;
use crate::stall::blocked;

/// What has become of a line.
pub(super) const CLOSED: &str = "it has closed the connection";
const SILENT: &str = "it does not answer";
const TOO_LONG: &str = "a record is longer than any of its kind";

pub(crate) struct Line {
    stream: TcpStream,
    channel: Channel,
    /// The bytes that have arrived and are not parsed yet: a part of `input`.
    input: Box<[u8]>,
    start: usize,
    end: usize,
    /// Room for the contents of a record.
    room: Box<[u8]>,
    /// Sealed records, of which this many bytes are sent.
    output: Vec<u8>,
    sent: usize,
}

/// The state of a socket after a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// All bytes that had arrived are read.
    Drained,
    /// There may be more.
    More,
    /// The other end has closed the connection, or it has failed.
    Ended,
}

impl Line {
    /// A line without a channel, with room for records whose bodies have at most so many bytes.
    fn new(stream: TcpStream, body_bytes: usize) -> Result<Self, String> {
        stream.set_nodelay(true).map_err(reason)?;
        Ok(Self {
            stream,
            channel: Channel::Plain,
            input: vec![0; 2 * (HEAD_BYTES + body_bytes)].into(),
            start: 0,
            end: 0,
            room: vec![0; body_bytes].into(),
            output: Vec::new(),
            sent: 0,
        })
    }

    /// Connects to a memory node and makes the channel.
    ///
    /// # Errors
    /// The reason, in one line.
    pub(super) fn open(
        address: SocketAddr,
        secret: &Secret,
        preamble: Preamble,
        deadline: Instant,
    ) -> Result<Self, String> {
        let _waiting = blocked(|| format!("the memory node at {address} to answer"));
        Self::open_for(MAX_BODY_BYTES, address, secret, preamble, deadline)
    }

    /// Connects and makes the channel, for records whose bodies have at most so many bytes.
    ///
    /// # Errors
    /// The reason, in one line.
    pub(super) fn open_for(
        body_bytes: usize,
        address: SocketAddr,
        secret: &Secret,
        preamble: Preamble,
        deadline: Instant,
    ) -> Result<Self, String> {
        let stream = TcpStream::connect_timeout(&address, remaining(deadline)?).map_err(reason)?;
        let mut line = Self::new(stream, body_bytes)?;
        line.output.extend(preamble.to_bytes());
        if preamble.is_sealed {
            let (handshake, message) =
                Handshake::begin(secret, preamble).map_err(|error| error.to_string())?;
            line.send(&message, deadline)?;
            let message = line.receive(deadline)?;
            line.channel = handshake.complete(&message)?;
        }
        Ok(line)
    }

    /// Makes the channel of a connection that another process has opened by [`open_for`](Self::open_for). It is sealed if `is_sealed`, or if the other one asks for that.
    ///
    /// # Errors
    /// The reason, in one line.
    pub(super) fn accept(
        stream: TcpStream,
        body_bytes: usize,
        secret: &Secret,
        is_sealed: bool,
        deadline: Instant,
    ) -> Result<Self, String> {
        let mut line = Self::new(stream, body_bytes)?;
        while line.end < PREAMBLE_BYTES {
            line.wait(deadline)?;
        }
        let bytes = line.input.first_chunk().copied().unwrap_or_default();
        line.start = PREAMBLE_BYTES;
        let preamble = Preamble::parse(bytes)?;
        if preamble.is_sealed {
            let message = line.receive_bare(deadline)?;
            let (channel, message) = Handshake::answer(secret, preamble, &message)?;
            line.answer(&message, deadline)?;
            line.channel = channel;
        } else if is_sealed {
            return Err("the other end asks for a channel that is not sealed".to_owned());
        }
        Ok(line)
    }

    /// Has the kernel report within this time that the other end takes no bytes.
    pub(super) fn fails_after(&self, timeout: Duration) -> Result<(), String> {
        let limited = rustix::net::sockopt::set_tcp_user_timeout(&self.stream, timeout.as_millis() as u32);
        limited.and_then(|()| keep_alive(self.stream.as_fd())).map_err(|error| reason(error.into()))
    }

    /// Seals a record for [`flush`](Self::flush).
    pub(super) fn seal(&mut self, contents: &[u8]) {
        self.channel.seal(contents, &mut self.output);
    }

    /// From now on reading and writing does not wait.
    pub(super) fn does_not_wait(&self) -> Result<(), String> {
        self.stream.set_nonblocking(true).map_err(reason)
    }

    /// Returns whether sealed bytes wait to be sent.
    pub(super) fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    /// Sends sealed bytes, as many as the socket takes.
    pub(super) fn flush(&mut self) -> std::io::Result<()> {
        while self.sent < self.output.len() {
            match self.stream.write(&self.output[self.sent..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(bytes) => self.sent += bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        self.output.clear();
        self.sent = 0;
        Ok(())
    }

    /// Reads the bytes that have arrived, as many as there is room for.
    pub(super) fn fill(&mut self) -> std::io::Result<Arrival> {
        if self.start > 0 {
            self.input.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let free = &mut self.input[self.end..];
        let room = free.len();
        match self.stream.read(free) {
            Ok(0) => Ok(Arrival::Ended),
            Ok(bytes) => {
                self.end += bytes;
                Ok(if bytes < room { Arrival::Drained } else { Arrival::More })
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(Arrival::More),
            Err(error) => Err(error),
        }
    }

    /// Takes the next record that has arrived as a whole, and opens it. Returns the contents.
    ///
    /// # Errors
    /// [`ALTERED`](super::channel::ALTERED), or that it is too long.
    pub(super) fn record(&mut self) -> Result<Option<&[u8]>, &'static str> {
        let arrived = &self.input[self.start..self.end];
        let head = arrived.first_chunk::<HEAD_BYTES>();
        if head.is_some_and(|head| usize::from(u16::from_le_bytes(*head)) > self.room.len()) {
            return Err(TOO_LONG);
        }
        let Some(body) = first_record(arrived) else { return Ok(None) };
        self.start += HEAD_BYTES + body.len();
        self.channel.open(body, &mut self.room).map(Some)
    }

    /// Closes it in both directions.
    pub(super) fn close(&self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }

    /// Sends a message of the handshake, or a question.
    fn send_sealed(&mut self, deadline: Instant) -> Result<(), String> {
        while self.has_output() {
            self.stream.set_write_timeout(Some(remaining(deadline)?)).map_err(reason)?;
            self.flush().map_err(reason)?;
        }
        Ok(())
    }

    /// Sends a message that [`receive`](Transport::receive) accepts.
    pub(super) fn answer(&mut self, message: &[u8], deadline: Instant) -> Result<(), String> {
        seal_answer(&mut self.channel, Ok(message), &mut self.output);
        self.send_sealed(deadline)
    }

    /// Waits for bytes.
    fn wait(&mut self, until: Instant) -> Result<(), String> {
        self.stream.set_read_timeout(Some(remaining(until)?)).map_err(reason)?;
        match self.fill() {
            Ok(Arrival::Ended) => Err(CLOSED.to_owned()),
            Ok(_) => Ok(()),
            Err(error) => Err(reason(error)),
        }
    }

    /// Waits for a message that is no answer of a memory node.
    pub(super) fn receive_bare(&mut self, until: Instant) -> Result<Vec<u8>, String> {
        loop {
            if let Some(contents) = self.record()? {
                return Ok(contents.to_vec());
            }
            self.wait(until)?;
        }
    }
}

impl Transport for Line {
    fn send(&mut self, message: &[u8], until: Instant) -> Result<(), String> {
        assert!(message.len() <= MAX_CONTENT_BYTES);
        self.seal(message);
        self.send_sealed(until)
    }

    fn receive(&mut self, until: Instant) -> Result<Vec<u8>, String> {
        let contents = self.receive_bare(until)?;
        answer(&contents).map(<[u8]>::to_vec)
    }
}

impl AsFd for Line {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

fn remaining(deadline: Instant) -> Result<Duration, String> {
    let remaining = deadline.saturating_duration_since(Instant::now());
    if remaining.is_zero() { Err(SILENT.to_owned()) } else { Ok(remaining) }
}

fn reason(error: std::io::Error) -> String {
    match error.kind() {
        ErrorKind::ConnectionRefused => "no memory node listens there".to_owned(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut => SILENT.to_owned(),
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => CLOSED.to_owned(),
        _ => error.to_string(),
    }
}
