//! The memory node's side: it makes the memory, and passes it to clients.
//!
//! It executes no operations. A client's connection carries the handshake and questions; its end shows that the client has ended.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::sync::Arc;

use mio::event::Source;
use mio::net::{UnixListener, UnixStream};

use super::directory::{ClusterDirectory, NameLock};
use super::framed;
use super::passing::{DESCRIPTORS, send_with};
use crate::error::{self, Error, Result};
use crate::handshake::{ConnectionKind, HELLO_BYTES, JOIN_BYTES, Nonce, Welcome};
use crate::host::{Arena, SealedMemory};
use crate::question::{QUESTION_BYTES, Question};
use crate::server::{Buffers, Connection, Listener, MAX_UNSENT, Node, Progress, Role};
use farfield_words::geometry::Geometry;

/// The longest message of a client.
const MAX_MESSAGE_BYTES: usize = 56;
const _: () = assert!(
    HELLO_BYTES <= MAX_MESSAGE_BYTES && JOIN_BYTES <= MAX_MESSAGE_BYTES && QUESTION_BYTES <= JOIN_BYTES
);

/// A cluster's name and files, removed when it is dropped.
struct Place {
    directory: ClusterDirectory,
    name_lock: NameLock,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.directory.remove(&self.name_lock);
    }
}

/// The descriptors that are passed to clients: the memory, and the lock that shows that it is in use.
struct Descriptors {
    memory: SealedMemory,
    in_use: File,
}

/// Accepts processes of this machine.
pub(crate) struct ShmEntrance {
    listener: UnixListener,
    descriptors: Arc<Descriptors>,
    _place: Place,
}

/// A client's connection.
struct ShmConnection {
    stream: UnixStream,
    descriptors: Arc<Descriptors>,
    state: State,
    /// The message that is arriving, and the number of its bytes that have arrived.
    input: [u8; MAX_MESSAGE_BYTES],
    arrived: usize,
    /// Unsent bytes.
    output: Vec<u8>,
}

/// What a connection waits for.
#[derive(Clone, Copy)]
enum State {
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
}

impl ShmEntrance {
    /// Makes the memory of a cluster of this name, and listens.
    ///
    /// # Errors
    /// [`Error::CannotServe`] with the reason; [`Error::System`].
    pub(crate) fn listen(name: &str, geometry: Geometry) -> Result<(Self, Arc<Arena>)> {
        let system = |cause| Error::from(error::System { action: "start a memory node", cause });
        let directory = ClusterDirectory::of_node(name);
        super::directory::check_name(name).map_err(|reason| directory.failed(reason))?;
        let name_lock = directory.claim()?;
        let in_use = directory.prepare().inspect_err(|_| directory.give_up(&name_lock))?;
        let place = Place { directory, name_lock };
        let ranges = (0..u64::from(geometry.segments()))
            .map(|segment| (segment << geometry.stride_log2(), geometry.segment_bytes()));
        let memory = place.directory.make_memory(geometry.mapped_bytes(), ranges)?;
        let arena = Arena::shared(&memory, in_use.try_clone().map_err(system)?, geometry)?;
        let listener = UnixListener::bind(place.directory.socket()).map_err(system)?;
        let descriptors = Arc::new(Descriptors { memory, in_use });
        Ok((Self { listener, descriptors, _place: place }, Arc::new(arena)))
    }
}

impl Listener for ShmEntrance {
    fn source(&mut self) -> &mut dyn Source {
        &mut self.listener
    }

    fn accept(&mut self) -> io::Result<Box<dyn Connection>> {
        let (stream, _) = self.listener.accept()?;
        Ok(Box::new(ShmConnection {
            stream,
            descriptors: Arc::clone(&self.descriptors),
            state: State::Request,
            input: [0; MAX_MESSAGE_BYTES],
            arrived: 0,
            output: Vec::new(),
        }))
    }
}

impl Connection for ShmConnection {
    fn source(&mut self) -> &mut dyn Source {
        &mut self.stream
    }

    fn origin(&self) -> String {
        "a process of this machine".to_owned()
    }

    fn role(&self) -> Role {
        match self.state {
            State::Control { client } => Role::Control { client },
            _ => Role::Unauthenticated,
        }
    }

    fn proceed(&mut self, node: &mut Node, _: &mut Buffers) -> Result<Progress, String> {
        self.flush();
        loop {
            let length = match self.state {
                State::Request => HELLO_BYTES,
                State::Join { .. } => JOIN_BYTES,
                State::Control { .. } => QUESTION_BYTES,
                State::Refused => MAX_MESSAGE_BYTES,
            };
            while self.arrived < length {
                match self.stream.read(&mut self.input[self.arrived..length]) {
                    Ok(0) => return Err("the client has closed it".to_owned()),
                    Ok(bytes) => self.arrived += bytes,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Progress::Drained),
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => return Err(error.to_string()),
                }
            }
            self.arrived = 0;
            let message = self.input;
            let taken = match self.state {
                State::Request => self.take_request(node, &message[..length]),
                State::Join { nonces } => self.take_join(node, nonces, &message[..length]),
                State::Control { .. } => {
                    let bytes = message.first_chunk().copied().ok_or("a question has 8 bytes")?;
                    Ok(Progress::Asked(Question::from_bytes(bytes)))
                }
                State::Refused => Ok(Progress::Drained),
            };
            match taken {
                Ok(Progress::Drained) => {}
                Ok(progress) => return Ok(progress),
                Err(reason) => {
                    tracing::info!(reason, "connection refused");
                    self.output.extend(framed(Err(&reason)));
                    self.state = State::Refused;
                }
            }
            self.flush();
        }
    }

    fn send(&mut self, answer: &[u8]) {
        // A client that asks and reads no answers waits for none.
        if self.output.len() < MAX_UNSENT {
            self.output.extend(answer);
        }
    }
}

impl ShmConnection {
    fn take_request(&mut self, node: &Node, message: &[u8]) -> Result<Progress, String> {
        let hello = node.admission.check_hello(message)?;
        if hello.kind != ConnectionKind::Control {
            return Err("operations on shared memory need no connection".to_owned());
        }
        let (reply, nonce) = node.admission.reply(&hello).map_err(|error| error.to_string())?;
        self.output.extend(framed(Ok(&reply)));
        self.state = State::Join { nonces: (hello.nonce, nonce) };
        Ok(Progress::Drained)
    }

    fn take_join(
        &mut self,
        node: &mut Node,
        nonces: (Nonce, Nonce),
        message: &[u8],
    ) -> Result<Progress, String> {
        let welcome = node.join(message, &nonces, true)?;
        // If the welcome can not be sent, the client is removed with its connection.
        self.state = State::Control { client: welcome.client };
        let message = framed(Ok(&Welcome::to_bytes(Ok(&welcome))));
        let Descriptors { memory, in_use } = &*self.descriptors;
        let passed: [_; DESCRIPTORS] = [memory.as_fd(), in_use.as_fd()];
        match send_with(self.stream.as_fd(), &message, &passed) {
            Ok(sent) => self.output.extend(&message[sent..]),
            Err(error) => tracing::warn!(%error, "no memory was passed to a client"),
        }
        Ok(Progress::Joined)
    }

    /// Sends as many of the unsent bytes as the socket takes. Errors are ignored: a client has ended only when its end of the connection is closed.
    fn flush(&mut self) {
        while !self.output.is_empty() {
            match self.stream.write(&self.output) {
                Ok(sent) => drop(self.output.drain(..sent)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => self.output.clear(),
            }
        }
    }
}
