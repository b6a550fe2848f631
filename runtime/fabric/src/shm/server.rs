//! The memory node of a `shm:` cluster.
//!
//! It makes the memory and then does nothing for an operation. One thread waits for processes that want to be let in; each that is
//! has a thread here, asleep until the process asks something or ends. The end of its connection is how a client's end is known.

use std::collections::HashMap;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::directory::{ClusterDirectory, NameLock};
use super::passing::{DESCRIPTORS, write_with};
use super::{CONTROL_TIMEOUT, DeadlineStream, framed, send};
use crate::error::{self, Error, Result};
use crate::handshake::{
    ConnectionKind, HELLO_BYTES, Hello, JOIN_BYTES, Join, MAX_SEGMENTS, Nonce, Reply, Secret, Segment,
    Welcome,
};
use crate::host::{Arena, SealedMemory};
use crate::question::{Answer, QUESTION_BYTES, Question};
use crate::{Contents, Departure, Stopper};
use farfield_words::geometry::Geometry;

/// Client numbers end here: compute threads' identities are made of them.
const MAX_CLIENTS: u32 = 1 << 24;
/// How long a memory node waits after an `accept` that failed.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// What a memory node hosts.
#[derive(Clone, Debug)]
pub struct ShmNodeOptions {
    /// The name under which it serves.
    pub name: Box<str>,
    /// How much memory it makes.
    pub geometry: Geometry,
    /// How long a client may go without a sign of life.
    pub lease_ms: u32,
}

/// A memory node that listens.
pub struct Server {
    options: ShmNodeOptions,
    contents: Box<dyn Contents>,
    secret: Secret,
    incarnation: u64,
    directory: ClusterDirectory,
    name_lock: NameLock,
    listener: UnixListener,
    /// What is passed to clients: the memory, and the lock that shows that it is used.
    memory: SealedMemory,
    in_use: File,
    arena: Arc<Arena>,
    next_client: AtomicU32,
    refused: AtomicU64,
    /// The connections of the clients that are there.
    clients: Mutex<HashMap<u32, UnixStream>>,
    stop: (UnixStream, UnixStream),
}

impl Server {
    /// Makes the memory, has it formatted, and listens.
    pub fn listen(options: ShmNodeOptions, secret: Secret, contents: Box<dyn Contents>) -> Result<Self> {
        let directory = ClusterDirectory::of_node(&options.name);
        super::directory::check_name(&options.name).map_err(|reason| directory.failed(reason))?;
        let geometry = options.geometry;
        if geometry.segments() as usize > MAX_SEGMENTS {
            let value = geometry.segments().to_string().into();
            let reason = "a cluster in shared memory has up to 1024 segments";
            return Err(Error::from(error::InvalidArgument { argument: "segments", value, reason }));
        }
        let system = |cause| Error::from(error::System { action: "start a memory node", cause });
        let incarnation = getrandom::u64().map_err(Error::other)?.max(1);
        let name_lock = directory.claim()?;
        let ranges = (0..u64::from(geometry.segments()))
            .map(|segment| (segment << geometry.stride_log2(), geometry.segment_bytes()));
        let in_use = directory.prepare().inspect_err(|_| directory.give_up(&name_lock))?;
        let prepare = || {
            let memory = directory.make_memory(geometry.mapped_bytes(), ranges)?;
            let arena = Arena::shared(&memory, in_use.try_clone().map_err(system)?, geometry)?;
            arena.format(&*contents)?;
            let listener = UnixListener::bind(directory.socket()).map_err(system)?;
            listener.set_nonblocking(true).map_err(system)?;
            Ok((memory, arena, listener, UnixStream::pair().map_err(system)?))
        };
        let (memory, arena, listener, stop) =
            prepare().inspect_err(|_: &Error| directory.remove(&name_lock))?;
        Ok(Self {
            options,
            contents,
            secret,
            incarnation,
            directory,
            name_lock,
            listener,
            memory,
            in_use,
            arena: Arc::new(arena),
            next_client: AtomicU32::new(1),
            refused: AtomicU64::new(0),
            clients: Mutex::default(),
            stop,
        })
    }

    /// The memory.
    pub fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// How many processes have been let in, how many of them are there, and how many were refused.
    pub fn counts(&self) -> [u64; 3] {
        let joined = self.next_client.load(Ordering::Relaxed) - 1;
        [joined.into(), self.clients().len() as u64, self.refused.load(Ordering::Relaxed)]
    }

    /// What makes it stop.
    pub fn stopper(&self) -> Result<Stopper> {
        let failed = |cause| Error::from(error::System { action: "start a memory node", cause });
        self.stop.1.try_clone().map(Stopper::new).map_err(failed)
    }

    fn clients(&self) -> std::sync::MutexGuard<'_, HashMap<u32, UnixStream>> {
        // A map of streams is whole at every moment.
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves until it is told to stop; then all connections are closed and the files removed. A client that has ended is marked
    /// when nothing of it writes to the memory any more.
    pub fn serve(&self) {
        thread::scope(|scope| {
            loop {
                let mut waited =
                    [PollFd::new(&self.stop.0, PollFlags::IN), PollFd::new(&self.listener, PollFlags::IN)];
                // Interrupted by a signal, it looks again.
                let _ = poll(&mut waited, None);
                if !waited[0].revents().is_empty() {
                    break;
                }
                loop {
                    let stream = match self.listener.accept() {
                        Ok((stream, _)) => stream,
                        Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                        Err(error) => {
                            // Out of descriptors, most likely: those who wait go on waiting.
                            tracing::warn!(%error, "no connection can be accepted");
                            let _ = poll(&mut [PollFd::new(&self.stop.0, PollFlags::IN)], Some(&PAUSE));
                            break;
                        }
                    };
                    let started = thread::Builder::new()
                        .name("client".to_owned())
                        .spawn_scoped(scope, move || self.serve_client(stream));
                    if let Err(error) = started {
                        tracing::warn!(%error, "no thread for a client");
                    }
                }
            }
            for stream in self.clients().values() {
                let _ = stream.shutdown(std::net::Shutdown::Both);
            }
        });
        self.directory.remove(&self.name_lock);
    }

    /// Lets a process in, and answers it until it ends.
    fn serve_client(&self, mut stream: UnixStream) {
        let _ = stream.set_nonblocking(false);
        let client = match self.admit(&stream) {
            Ok(client) => client,
            Err(reason) => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                return tracing::info!(%reason, "connection refused");
            }
        };
        tracing::info!(client, "client has joined");
        let _ = stream.set_read_timeout(None);
        let _ = stream.set_write_timeout(Some(CONTROL_TIMEOUT));
        let mut bytes = [0; QUESTION_BYTES];
        while stream.read_exact(&mut bytes).is_ok() {
            let question = Question::from_bytes(bytes);
            let is_there = self.clients().contains_key(&question.of);
            let answer = if is_there { Answer::Alive } else { Answer::Gone };
            if stream.write_all(&question.answered(answer)).is_err() {
                break;
            }
        }
        // A client is over only when the kernel has closed its end: one that reads no answers may still write to memory.
        while !matches!(stream.read(&mut bytes), Ok(0) | Err(_)) {}
        self.clients().remove(&client);
        tracing::info!(client, "client has ended");
        self.contents.mark_departed(client, Departure::FromCluster, &|at| self.arena.word(at).ok());
    }

    /// The handshake; gives the client's number.
    fn admit(&self, stream: &UnixStream) -> Result<u32, String> {
        let text = |error: std::io::Error| error.to_string();
        let connection = stream;
        let stream = &mut DeadlineStream::after(connection, CONTROL_TIMEOUT);
        let mut hello_bytes = [0; HELLO_BYTES];
        stream.read_exact(&mut hello_bytes).map_err(text)?;
        let mut refuse = |reason: &str| {
            let _ = send(&mut *stream, Err(reason));
            reason.to_owned()
        };
        let hello = Hello::parse(&hello_bytes).map_err(&mut refuse)?;
        if hello.kind != ConnectionKind::Control || !hello.is_proven_by(&hello_bytes, &self.secret) {
            return Err(refuse("the client does not know the cluster's secret"));
        }
        let mut nonce = Nonce::default();
        getrandom::fill(&mut nonce).map_err(|error| error.to_string())?;
        let reply = Reply { incarnation: self.incarnation, nonce };
        send(stream, Ok(&reply.to_bytes(&self.secret, &hello.nonce))).map_err(text)?;
        let mut join = [0; JOIN_BYTES];
        stream.read_exact(&mut join).map_err(text)?;
        let mut refuse = |reason: &str| {
            let _ = send(&mut *stream, Err(reason));
            reason.to_owned()
        };
        Join::parse(&join, &self.secret, &hello.nonce, &nonce).map_err(&mut refuse)?;
        let order = Ordering::Relaxed;
        let client =
            self.next_client.fetch_update(order, order, |next| (next < MAX_CLIENTS).then_some(next + 1));
        let client = client.map_err(|_| refuse("too many clients have connected since it was started"))?;
        let geometry = self.options.geometry;
        let segments = (0..u64::from(geometry.segments()))
            .map(|segment| Segment { base: segment << geometry.stride_log2(), rkey: 0 });
        let welcome = Welcome {
            client,
            layout: self.contents.layout_version(),
            lease_ms: self.options.lease_ms,
            geometry,
            segments: segments.collect(),
        };
        // Known before it is welcome: nobody may think that it has gone already.
        let known = connection.try_clone().map_err(text)?;
        self.clients().insert(client, known);
        let message = framed(Ok(&Welcome::to_bytes(Ok(&welcome))));
        let passed: [_; DESCRIPTORS] = [self.memory.as_fd(), self.in_use.as_fd()];
        if let Err(error) = write_with(stream, &message, &passed) {
            self.clients().remove(&client);
            return Err(error.to_string());
        }
        Ok(client)
    }
}
