//! What a kind of connection implements, so that the server can serve it.

use std::io;

use mio::event::Source;

use super::Node;
use crate::admission::AdmittedLane;
use crate::question::Question;

/// The unsent bytes of answers from which on a client is not read from.
pub(crate) const MAX_UNSENT: usize = 1 << 20;
/// The size of the buffer for the contents of a message.
pub(crate) const ROOM_BYTES: usize = 64 << 10;
/// The size of the buffer for what arrives: several messages.
pub(crate) const INPUT_BYTES: usize = 4 * ROOM_BYTES;

/// Accepts connections of one kind.
pub(crate) trait Listener: Send {
    /// Returns the socket that becomes readable when a connection waits.
    fn source(&mut self) -> &mut dyn Source;

    /// Accepts a connection that waits.
    ///
    /// # Errors
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if none waits; [`ConnectionAborted`](io::ErrorKind::ConnectionAborted) if this one can not be served,
    /// but others may.
    fn accept(&mut self) -> io::Result<Box<dyn Connection>>;
}

/// A connection, closed when it is dropped.
pub(crate) trait Connection: Send {
    /// Returns its socket, which does not block.
    fn source(&mut self) -> &mut dyn Source;

    /// Returns a description of the client, for the log.
    fn origin(&self) -> String;

    /// Returns what it is used for.
    fn role(&self) -> Role;

    /// Sends what was unsent, and handles what has arrived, until something concerns other connections. Then it must be called again.
    ///
    /// # Errors
    /// The reason for which the connection must be closed, in one line.
    fn proceed(&mut self, node: &mut Node, buffers: &mut Buffers) -> Result<Progress, String>;

    /// Sends the answer to a question when the connection [proceeds](Self::proceed).
    fn send(&mut self, answer: &[u8]);

    /// Sends changes of words that it watches: see [`watches`](super::watches). Returns `false` if it can not, or its client takes no more bytes.
    fn forward(&mut self, _changes: &[u64]) -> bool {
        false
    }
}

/// What a connection is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// It is in the handshake, or was refused and will be closed by the client.
    Unauthenticated,
    /// Questions of a client.
    Control { client: u32 },
    /// Operations of a client.
    Lane { client: u32, lane: u32 },
}

impl Role {
    pub(crate) fn client(self) -> Option<u32> {
        match self {
            Self::Control { client } | Self::Lane { client, .. } => Some(client),
            Self::Unauthenticated => None,
        }
    }
}

/// How far a connection has proceeded.
pub(crate) enum Progress {
    /// All that had arrived is handled, or waits for answers to be sent.
    Drained,
    /// The connection was admitted.
    Joined,
    /// It was admitted as this lane.
    Opened(AdmittedLane),
    /// It asks whether a process is gone.
    Asked(Question),
    /// Watched words have changed.
    Changed,
}

/// The server's buffers, for what arrives, for the contents of a message, and for an answer.
pub(crate) struct Buffers {
    pub(crate) input: Box<[u8]>,
    pub(crate) room: Box<[u8]>,
    pub(crate) answer: Vec<u8>,
}

impl Buffers {
    pub(super) fn new() -> Self {
        Self { input: vec![0; INPUT_BYTES].into(), room: vec![0; ROOM_BYTES].into(), answer: Vec::new() }
    }
}
