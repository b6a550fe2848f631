//! The memory node whose processor accesses its memory: the loop of one thread that admits clients, answers their questions, and executes the
//! operations of those that are on a network.
//!
//! | module | contents |
//! |---|---|
//! | here | the loop: waits for sockets, ends connections, stops |
//! | `connection` | what a kind of connection implements: [`Listener`], [`Connection`] |
//! | `node` | what connections refer to: the memory, the clients, the secret |
//! | `watches` | words of which connections want to know the changes |
//!
//! The kinds of connections are those of [`shm`](crate::shm), whose processes map the memory, and of [`tcp`](crate::tcp). A memory node may have
//! both: they share its numbers of clients, and each may ask about any other.
//!
//! The loop waits for all sockets by readiness. For a while after the last frame it does not sleep, so that a client that sends one operation after the
//! other does not wait for it to wake. A socket that is ready costs a system call to read all frames that have arrived, and one to send all their
//! answers.
//!
//! # When operations take effect
//!
//! This thread alone executes operations of clients on a network, and closes their connections. So once it has removed a client or a lane, none of its
//! operations takes effect: bytes that have arrived and are not read are dropped with the socket. A client that maps the memory can not be removed. It
//! has gone when the kernel has closed its end of the connection: see [`shm`](crate::shm).

mod connection;
mod node;
pub(crate) mod watches;

use std::collections::{HashMap, VecDeque};
use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::{Events, Interest, Poll, Registry, Token};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

pub(crate) use connection::{
    Buffers, Connection, INPUT_BYTES, Listener, MAX_UNSENT, Progress, ROOM_BYTES, Role,
};
pub(crate) use node::{Node, NodeOptions};

use crate::admission::AdmittedLane;
use crate::error::{self, Error, Result};
use crate::question::{Answer, Question};
use crate::status::NodeStatus;
use crate::{Departure, Stopper};

/// The timeout of a client's handshake.
pub(crate) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// The most connections in the handshake at a time. Another one replaces the oldest.
const MAX_UNAUTHENTICATED: usize = 256;
/// How long the server does not sleep after the last frame.
const AWAKE: Duration = Duration::from_micros(50);
/// The pause after connections could not be accepted, most likely for lack of descriptors.
const PAUSE: Duration = Duration::from_millis(100);

const STOP: Token = Token(0);
const FIRST_LISTENER: usize = 1;

/// A listening memory node.
pub(crate) struct Server {
    poll: Poll,
    stop: (mio::net::UnixStream, UnixStream),
    node: Node,
    listeners: Vec<Box<dyn Listener>>,
    /// By number; listeners have the numbers before the first.
    connections: HashMap<usize, Box<dyn Connection>>,
    next_connection: usize,
    /// The connections in the handshake, oldest first, with the times at which they are closed; also some that have finished it.
    handshakes: VecDeque<(Instant, usize)>,
    /// The number of connections in the handshake.
    unauthenticated: usize,
    buffers: Buffers,
}

impl Server {
    /// Makes the server of connections that these listeners accept.
    pub(crate) fn new(node: Node, mut listeners: Vec<Box<dyn Listener>>) -> Result<Self> {
        let system = |cause| Error::from(error::System { action: "start a memory node", cause });
        raise_descriptor_limit();
        let poll = Poll::new().map_err(system)?;
        let stop = UnixStream::pair().map_err(system)?;
        stop.0.set_nonblocking(true).map_err(system)?;
        let mut stop = (mio::net::UnixStream::from_std(stop.0), stop.1);
        poll.registry().register(&mut stop.0, STOP, Interest::READABLE).map_err(system)?;
        for (number, listener) in (FIRST_LISTENER..).zip(&mut listeners) {
            let registered = poll.registry().register(listener.source(), Token(number), Interest::READABLE);
            registered.map_err(system)?;
        }
        Ok(Self {
            poll,
            stop,
            node,
            next_connection: FIRST_LISTENER + listeners.len(),
            listeners,
            connections: HashMap::new(),
            handshakes: VecDeque::new(),
            unauthenticated: 0,
            buffers: Buffers::new(),
        })
    }

    /// Returns its status, which other threads may read.
    pub(crate) fn status(&self) -> Arc<NodeStatus> {
        Arc::clone(&self.node.status)
    }

    /// Returns the handle that stops it.
    pub(crate) fn stopper(&self) -> Result<Stopper> {
        let failed = |cause| Error::from(error::System { action: "start a memory node", cause });
        self.stop.1.try_clone().map(Stopper::new).map_err(failed)
    }

    /// Serves until its stopper stops it; then closes all connections, and what it listens on.
    ///
    /// # Errors
    /// [`Error::System`] if it can not wait for its sockets.
    pub(crate) fn serve(mut self) -> Result<()> {
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
                    STOP => {
                        // Before the listeners, in whose places another memory node may listen then.
                        self.connections.clear();
                        return Ok(());
                    }
                    Token(number) if number < FIRST_LISTENER + self.listeners.len() => {
                        accepts_again = Some(now);
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
        for listener in 0..self.listeners.len() {
            loop {
                match self.listeners[listener].accept() {
                    Ok(connection) => self.begin(connection, now),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                    Err(error) => {
                        // Most likely out of descriptors: waiting clients keep waiting.
                        tracing::warn!(%error, "no connection can be accepted");
                        return Err(error);
                    }
                }
            }
        }
        Ok(())
    }

    /// Waits for the handshake of a new connection.
    fn begin(&mut self, mut connection: Box<dyn Connection>, now: Instant) {
        while self.unauthenticated >= MAX_UNAUTHENTICATED
            && let Some((_, oldest)) = self.handshakes.pop_front()
        {
            self.close_unauthenticated(oldest, "newer connections have taken its place");
        }
        let number = self.next_connection;
        self.next_connection += 1;
        if let Err(error) = register(self.poll.registry(), &mut *connection, number) {
            return tracing::info!(from = connection.origin(), %error, "connection refused");
        }
        self.connections.insert(number, connection);
        self.handshakes.push_back((now + HANDSHAKE_TIMEOUT, number));
        self.unauthenticated += 1;
    }

    /// Closes a connection that is in the handshake still.
    fn close_unauthenticated(&mut self, number: usize, reason: &str) {
        if self.connections.get(&number).is_some_and(|connection| connection.role() == Role::Unauthenticated)
        {
            self.end(number, reason);
        }
    }

    /// Handles what has arrived on a connection. Returns whether it has arrived on a lane.
    fn proceed(&mut self, number: usize) -> bool {
        loop {
            let Some(connection) = self.connections.get_mut(&number) else { return false };
            let is_lane = matches!(connection.role(), Role::Lane { .. });
            self.node.watches.serve(number);
            match connection.proceed(&mut self.node, &mut self.buffers) {
                Ok(Progress::Drained) => return is_lane,
                Ok(Progress::Joined) => self.unauthenticated -= 1,
                Ok(Progress::Opened(AdmittedLane { client, replaced, .. })) => {
                    self.unauthenticated -= 1;
                    // Chains that the client has abandoned may still be on their way: without their connection they do not arrive.
                    let abandoned = Role::Lane { client, lane: replaced };
                    self.connections.retain(|_, connection| connection.role() != abandoned);
                    self.forget_watches();
                }
                Ok(Progress::Changed) => self.forward(),
                Ok(Progress::Asked(question)) => self.answer(number, question),
                Err(reason) => {
                    // Operations before a refused one have taken effect.
                    self.forward();
                    self.end(number, &reason);
                    return false;
                }
            }
        }
    }

    /// Sends the changes of watched words to the connections that watch them. A connection whose client takes no more bytes loses its watches.
    fn forward(&mut self) {
        for (number, changes) in self.node.watches.take_changes() {
            let takes = |connection: &mut Box<dyn Connection>| connection.forward(&changes);
            if !self.connections.get_mut(&number).is_some_and(takes) {
                self.node.watches.retain(|connection| connection != number);
            }
        }
    }

    /// Removes the watches of connections that are closed.
    fn forget_watches(&mut self) {
        let Self { node, connections, .. } = self;
        node.watches.retain(|connection| connections.contains_key(&connection));
    }

    /// Removes a connection that has ended, and all of a client's if it was its control connection.
    fn end(&mut self, number: usize, reason: &str) {
        let Some(connection) = self.connections.remove(&number) else { return };
        tracing::info!(from = connection.origin(), reason, "connection closed");
        match connection.role() {
            Role::Unauthenticated => {
                self.unauthenticated -= 1;
                self.node.status.clients.refused();
            }
            Role::Control { client } => self.disconnect_client(client, Departure::FromNode),
            Role::Lane { .. } => self.forget_watches(),
        }
    }

    /// Closes all connections of a client: no operation of it takes effect in this node's memory any more.
    fn disconnect_client(&mut self, client: u32, departure: Departure) {
        self.connections.retain(|_, connection| connection.role().client() != Some(client));
        self.forget_watches();
        if let Some(process) = self.node.admission.remove(client, &self.node.status.clients) {
            tracing::info!(client, process, "client has departed");
            self.node.mark(process, departure);
        }
    }

    /// Answers a client's question about a process, which disconnects that process if it is on a network.
    fn answer(&mut self, number: usize, question: Question) {
        let process = question.of;
        let is_alive = match self.node.admission.client_of(process) {
            Some((_, true)) => true,
            Some((client, false)) => {
                tracing::info!(process, "client disconnected: another has found its lease expired");
                self.disconnect_client(client, Departure::FromCluster);
                false
            }
            None => false,
        };
        if !is_alive {
            self.node.mark(process, Departure::FromCluster);
        }
        if let Some(connection) = self.connections.get_mut(&number) {
            connection.send(&question.answered(if is_alive { Answer::Alive } else { Answer::Gone }));
        }
    }
}

fn register(registry: &Registry, connection: &mut dyn Connection, number: usize) -> std::io::Result<()> {
    registry.register(connection.source(), Token(number), Interest::READABLE | Interest::WRITABLE)
}

/// Raises the limit of open descriptors to what the system allows this process.
fn raise_descriptor_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        // A lower limit remains: connections beyond it wait.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    }
}
