//! The memory node of a `shm:` cluster.
//!
//! It makes the memory, and executes no operations. One thread accepts connections. Each client has a thread here, asleep until the client asks
//! a question or ends. The end of its connection shows that a client has ended.

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

/// Client numbers are below this: they are part of compute threads' identities.
const MAX_CLIENTS: u32 = 1 << 24;
/// The pause of a memory node after a failed `accept`.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// The options of a memory node.
#[derive(Clone, Debug)]
pub struct ShmNodeOptions {
    /// The cluster's name.
    pub name: Box<str>,
    /// The geometry of its memory.
    pub geometry: Geometry,
    /// The lease of a client: the longest time between two heartbeats.
    pub lease_ms: u32,
}

/// A listening memory node.
pub struct Server {
    options: ShmNodeOptions,
    contents: Box<dyn Contents>,
    secret: Secret,
    incarnation: u64,
    directory: ClusterDirectory,
    name_lock: NameLock,
    listener: UnixListener,
    /// The descriptors that are passed to clients: the memory, and the lock that shows that it is in use.
    memory: SealedMemory,
    in_use: File,
    arena: Arc<Arena>,
    next_client: AtomicU32,
    refused: AtomicU64,
    /// The connections of the present clients.
    clients: Mutex<HashMap<u32, UnixStream>>,
    stop: (UnixStream, UnixStream),
}

impl Server {
    /// Makes and formats the memory, and listens.
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
            arena.format(&*contents, true)?;
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

    /// Returns the memory.
    pub fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// Returns the numbers of processes that were admitted, that are connected, and that were refused.
    pub fn counts(&self) -> [u64; 3] {
        let joined = self.next_client.load(Ordering::Relaxed) - 1;
        [joined.into(), self.clients().len() as u64, self.refused.load(Ordering::Relaxed)]
    }

    /// Returns the handle that stops it.
    pub fn stopper(&self) -> Result<Stopper> {
        let failed = |cause| Error::from(error::System { action: "start a memory node", cause });
        self.stop.1.try_clone().map(Stopper::new).map_err(failed)
    }

    fn clients(&self) -> std::sync::MutexGuard<'_, HashMap<u32, UnixStream>> {
        // Every update leaves the map consistent.
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves until its stopper stops it; then closes all connections and removes the files. A client that has ended is marked once it can not
    /// write to the memory any more.
    pub fn serve(&self) {
        thread::scope(|scope| {
            loop {
                let mut waited =
                    [PollFd::new(&self.stop.0, PollFlags::IN), PollFd::new(&self.listener, PollFlags::IN)];
                // After an interruption by a signal, the loop polls again.
                let _ = poll(&mut waited, None);
                if !waited[0].revents().is_empty() {
                    break;
                }
                loop {
                    let stream = match self.listener.accept() {
                        Ok((stream, _)) => stream,
                        Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                        Err(error) => {
                            // Most likely out of descriptors: waiting clients keep waiting.
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

    /// Admits a process, and answers its questions until it ends.
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
        // A client has ended only when the kernel has closed its end: a client that reads no answers may still write to memory.
        while !matches!(stream.read(&mut bytes), Ok(0) | Err(_)) {}
        self.clients().remove(&client);
        tracing::info!(client, "client has ended");
        self.contents.mark_departed(client, Departure::FromCluster, &|at| self.arena.word(at).ok());
    }

    /// Performs the handshake. Returns the client's number.
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
        let client = client
            .map_err(|_| refuse("too many clients have connected since it was started: start it again"))?;
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
        // Entered before its welcome, so that no answer says that it has gone.
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
