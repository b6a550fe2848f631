//! What a client asks a memory node about another client, on its control connection, after the handshake.
//!
//! Over RDMA a memory node makes the answer true: it closes the other's connections. In shared memory it can only wait for the other's
//! end.

/// A client's question: whether another, of this number, has gone for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Question(pub(super) u32);

/// What it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// Nothing that the other has posted, or will post, takes effect any more.
    Gone,
    /// The memory node can not shut it out: it is another process of its machine, and runs.
    Alive,
}

pub(super) const QUESTION_BYTES: usize = size_of::<u32>();

impl Question {
    pub(super) fn to_bytes(self) -> [u8; QUESTION_BYTES] {
        self.0.to_le_bytes()
    }
    pub(super) fn from_bytes(bytes: [u8; QUESTION_BYTES]) -> Self {
        Self(u32::from_le_bytes(bytes))
    }
}

impl Answer {
    pub(super) fn to_byte(self) -> u8 {
        u8::from(self == Self::Alive)
    }
    pub(super) fn from_byte(byte: u8) -> Option<Self> {
        [Self::Gone, Self::Alive].get(usize::from(byte)).copied()
    }
}
