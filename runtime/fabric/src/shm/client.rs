//! The client's side: a process that is connected to a `shm:` cluster.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};

use super::directory::ClusterDirectory;
use super::passing::Passed;
use super::{CONTROL_TIMEOUT, DeadlineStream, ShmConfig, receive};
use crate::error::Result;
use crate::handshake::{ConnectionKind, Hello, Join, NodePosition, Nonce, Reply, Welcome, cluster_of};
use crate::host::{Arena, SealedMemory};
use crate::question::{ANSWER_BYTES, Answer, Asker, Transport};
use crate::secret;
use crate::stall::{blocked, lock};

/// A process's connection to a cluster; closed when it is dropped.
pub struct Client {
    arena: Arc<Arena>,
    number: u32,
    lease: Duration,
    disconnects: bool,
    control: Mutex<Control>,
}

/// The control connection to the memory node, after the handshake.
pub(super) struct Control {
    line: Line,
    asker: Asker,
}

/// The transport of questions and answers.
struct Line {
    stream: UnixStream,
    /// The received part of an answer.
    answer: [u8; ANSWER_BYTES],
    arrived: usize,
}

impl Transport for Line {
    fn send(&mut self, message: &[u8], until: Instant) -> Result<(), String> {
        DeadlineStream { stream: &self.stream, time: until }
            .write_all(message)
            .map_err(|error| error.to_string())
    }

    fn receive(&mut self, until: Instant) -> Result<Vec<u8>, String> {
        let mut stream = DeadlineStream { stream: &self.stream, time: until };
        while self.arrived < ANSWER_BYTES {
            match stream.read(&mut self.answer[self.arrived..]) {
                Ok(0) => return Err("it has closed the connection".to_owned()),
                Ok(bytes) => self.arrived += bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        self.arrived = 0;
        Ok(self.answer.to_vec())
    }
}

impl Control {
    pub(super) fn new(stream: UnixStream) -> Self {
        let line = Line { stream, answer: [0; ANSWER_BYTES], arrived: 0 };
        Self { line, asker: Asker::default() }
    }

    /// Returns whether a process has gone; `None` if the memory node does not answer in time.
    pub(super) fn is_gone(&mut self, client: u32, timeout: Duration) -> Option<bool> {
        let answer = self.asker.ask(&mut self.line, client, timeout).ok()?;
        Some(answer == Answer::Gone)
    }

    /// Returns whether the connection has ended. Costs a system call.
    pub(super) fn is_lost(&self) -> bool {
        // A late answer to read is no end of the connection.
        let mut waited = [PollFd::new(&self.line.stream, PollFlags::RDHUP)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        matches!(poll(&mut waited, Some(&at_once)), Ok(1..))
    }
}

/// Connects to a memory node. The timeout applies if the memory node is suspended and the kernel's queue of connections is full.
pub(super) fn connect(socket: &Path, timeout: Duration) -> std::io::Result<UnixStream> {
    let stream = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&stream, Timeout::Send, Some(timeout))?;
    rustix::net::connect(&stream, &SocketAddrUnix::new(socket)?)?;
    Ok(stream.into())
}

impl Client {
    /// # Errors
    /// [`Error::CannotConnect`](crate::Error::CannotConnect) with the reason; those of mapping memory.
    pub fn connect(config: &ShmConfig, layout: u64) -> Result<Self> {
        let directory = ClusterDirectory::of_client(&config.name);
        let _waiting = blocked(|| format!("the memory node of `shm:{}` to let this process in", config.name));
        let failed = |reason: String| directory.failed(reason);
        let secret = secret::of_client(config.secret_file.as_deref())?;
        directory.check()?;
        let connection = connect(&directory.socket(), CONTROL_TIMEOUT).map_err(|error| {
            failed(match error.kind() {
                ErrorKind::ConnectionRefused | ErrorKind::NotFound => {
                    "its memory node has ended: start it again".to_owned()
                }
                ErrorKind::WouldBlock => "its memory node accepts no connections".to_owned(),
                _ => error.to_string(),
            })
        })?;
        let silent = |error: std::io::Error| {
            failed(match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut => "its memory node does not answer".to_owned(),
                _ => format!("its memory node has closed the connection ({error})"),
            })
        };
        let mut control = DeadlineStream::after(&connection, CONTROL_TIMEOUT);
        let mut nonce = Nonce::default();
        getrandom::fill(&mut nonce).map_err(|error| failed(error.to_string()))?;
        let hello = Hello { kind: ConnectionKind::Control, node: 0, cluster: 0, incarnation: 0, nonce };
        control.write_all(&hello.with_secret(&secret)).map_err(silent)?;
        let bytes = receive(&mut control).map_err(silent)?.map_err(failed)?;
        let reply = Reply::parse(&bytes, &secret, &nonce).map_err(|reason| failed(reason.to_owned()))?;
        let position = NodePosition { cluster: cluster_of(&[reply.incarnation]), node: 0, nodes: 1 };
        let join = Join { position, process: 0 };
        control.write_all(&join.to_bytes(&secret, &nonce, &reply.nonce)).map_err(silent)?;
        // The welcome brings descriptors; before it, any would be closed.
        let mut passed = Passed::new(&mut control);
        let bytes = receive(&mut passed).map_err(silent)?.map_err(failed)?;
        let welcome = Welcome::parse(&bytes, layout).map_err(failed)?;
        if !welcome.is_mapped_evenly() {
            return Err(failed("its segments are not where this build expects them".to_owned()));
        }
        let [memory, in_use] = passed.descriptors().map_err(failed)?;
        let unfit = |reason| failed(format!("its memory can not be used: {reason}"));
        let memory = SealedMemory::received(memory).map_err(unfit)?;
        if memory.bytes() != welcome.geometry.mapped_bytes() {
            let [has, needs] = [memory.bytes(), welcome.geometry.mapped_bytes()];
            return Err(unfit(format!("it has {has} bytes, and its segments take {needs}")));
        }
        let arena = Arena::shared(&memory, in_use.into(), welcome.geometry)?;
        let lease = Duration::from_millis(u64::from(welcome.lease_ms));
        Ok(Self {
            arena: Arc::new(arena),
            number: welcome.client,
            lease,
            disconnects: welcome.disconnects,
            control: Mutex::new(Control::new(connection)),
        })
    }

    /// Returns the shared memory.
    pub fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// Returns the process's number, which no other client of the memory node ever has.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns the lease: the longest time between two heartbeats of a process.
    pub fn lease(&self) -> Duration {
        self.lease
    }

    /// Returns whether the memory node has clients that it can disconnect while they are alive, since they are on a network.
    pub fn disconnects(&self) -> bool {
        self.disconnects
    }

    fn control(&self) -> std::sync::MutexGuard<'_, Control> {
        lock(&self.control, || "another thread's question to the memory node".to_owned())
    }

    /// Returns whether a process has gone, so that it can not write to the memory any more; `None` if the memory node does not answer.
    pub fn is_gone(&self, client: u32) -> Option<bool> {
        let _waiting = blocked(|| format!("the memory node to say whether process {client} has gone"));
        self.control().is_gone(client, CONTROL_TIMEOUT)
    }

    /// Returns whether the memory node is gone. Costs a system call.
    pub fn is_lost(&self) -> bool {
        self.control().is_lost()
    }
}
