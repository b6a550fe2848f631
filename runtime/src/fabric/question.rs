//! What a client asks a memory node about another client, on its control connection, after the handshake.
//!
//! A question has a number, which comes back with the answer. A client that has stopped waiting for one so does not take it for the answer
//! to its next question.
//!
//! Over RDMA a memory node makes the answer true: it closes the other's connections. In shared memory it can only wait for the other's
//! end.

/// A client's question: whether another has gone for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Question {
    /// Tells it from the client's other questions.
    pub(super) number: u32,
    /// The other.
    pub(super) of: u32,
}

/// What it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// Nothing that the other has posted, or will post, takes effect any more.
    Gone,
    /// The memory node can not shut it out: it is another process of its machine, and runs.
    Alive,
}

pub(super) const QUESTION_BYTES: usize = 8;
pub(super) const ANSWER_BYTES: usize = 5;

impl Question {
    pub(super) fn to_bytes(self) -> [u8; QUESTION_BYTES] {
        (u64::from(self.of) << 32 | u64::from(self.number)).to_le_bytes()
    }
    pub(super) fn from_bytes(bytes: [u8; QUESTION_BYTES]) -> Self {
        let word = u64::from_le_bytes(bytes);
        Self { number: word as u32, of: (word >> 32) as u32 }
    }
    /// The answer to it.
    pub(super) fn answered(self, answer: Answer) -> [u8; ANSWER_BYTES] {
        let [a, b, c, d] = self.number.to_le_bytes();
        [a, b, c, d, u8::from(answer == Answer::Alive)]
    }
    /// What bytes say of it; nothing if they are an answer to another question, or none.
    pub(super) fn answer_in(self, bytes: [u8; ANSWER_BYTES]) -> Option<Answer> {
        let [number @ .., answer] = bytes;
        let answer = *[Answer::Gone, Answer::Alive].get(usize::from(answer))?;
        (u32::from_le_bytes(number) == self.number).then_some(answer)
    }
}
