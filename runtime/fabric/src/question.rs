//! Questions of a client about another client, on its control connection to a memory node.
//!
//! A question has a number, which the answer repeats. So a late answer is not mistaken for the answer to the next question. [`Asker`] implements this
//! for both fabrics, over any [`Transport`].
//!
//! Over RDMA the memory node enforces the answer: it closes the other client's connections. In shared memory it can only wait for the other process
//! to end.

use std::time::{Duration, Instant};

/// A control connection, as questions see it.
pub(super) trait Transport {
    /// Sends a message before a deadline.
    ///
    /// # Errors
    /// The reason, in one line.
    fn send(&mut self, message: &[u8], until: Instant) -> Result<(), String>;

    /// Receives the next message of the memory node. The received part of an incomplete message is kept beyond the deadline.
    ///
    /// # Errors
    /// The reason, in one line: no message has arrived in time, or none will.
    fn receive(&mut self, until: Instant) -> Result<Vec<u8>, String>;
}

/// Asks questions on one connection, one after the other.
#[derive(Debug, Default)]
pub(super) struct Asker {
    /// The number of the last question.
    asked: u32,
}

impl Asker {
    /// Asks whether a client has gone. Skips answers to earlier questions, and messages that are no answers.
    ///
    /// # Errors
    /// Those of the transport; also if no answer arrives within `timeout`.
    pub(super) fn ask(
        &mut self,
        transport: &mut impl Transport,
        of: u32,
        patience: Duration,
    ) -> Result<Answer, String> {
        let until = Instant::now() + patience;
        self.asked = self.asked.wrapping_add(1);
        let question = Question { number: self.asked, of };
        transport.send(&question.to_bytes(), until)?;
        loop {
            let message = transport.receive(until)?;
            if let Some(answer) = message.try_into().ok().and_then(|bytes| question.answer_in(bytes)) {
                return Ok(answer);
            }
        }
    }
}

/// A client's question: has another client gone for good?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Question {
    /// The number of the question, which its answer repeats.
    pub(super) number: u32,
    /// The other client.
    pub(super) of: u32,
}

/// The answer to a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// No operation that the other client has posted, or will post, takes effect any more.
    Gone,
    /// The other client is a running process of the same machine; the memory node can not disconnect it from the memory.
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
    /// Encodes the answer to it.
    pub(super) fn answered(self, answer: Answer) -> [u8; ANSWER_BYTES] {
        let [a, b, c, d] = self.number.to_le_bytes();
        [a, b, c, d, u8::from(answer == Answer::Alive)]
    }
    /// Decodes the answer to it; `None` if the bytes are an answer to another question, or no answer.
    pub(super) fn answer_in(self, bytes: [u8; ANSWER_BYTES]) -> Option<Answer> {
        let [number @ .., answer] = bytes;
        let answer = *[Answer::Gone, Answer::Alive].get(usize::from(answer))?;
        (u32::from_le_bytes(number) == self.number).then_some(answer)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// A scripted connection to a memory node. `None` stands for a timeout of the client.
    #[derive(Default)]
    struct Fake {
        sent: Vec<Question>,
        arrives: VecDeque<Option<Vec<u8>>>,
    }

    impl Transport for Fake {
        fn send(&mut self, message: &[u8], _until: Instant) -> Result<(), String> {
            self.sent.push(Question::from_bytes(message.try_into().unwrap()));
            Ok(())
        }

        fn receive(&mut self, _until: Instant) -> Result<Vec<u8>, String> {
            match self.arrives.pop_front() {
                Some(Some(message)) => Ok(message),
                Some(None) => Err("it does not answer".to_owned()),
                None => Err("it has closed the connection".to_owned()),
            }
        }
    }

    const PATIENCE: Duration = Duration::from_secs(5);

    #[test]
    fn an_answer_that_comes_late_is_not_taken_for_the_next_one() {
        let (mut fake, mut asker) = (Fake::default(), Asker::default());
        fake.arrives = [None, None].into();
        for of in [1, 2] {
            assert_eq!(asker.ask(&mut fake, of, PATIENCE), Err("it does not answer".to_owned()));
        }
        let third = Question { number: 3, of: 3 };
        let late = fake.sent.iter().map(|question| Some(question.answered(Answer::Gone).to_vec()));
        fake.arrives = late.chain([Some(third.answered(Answer::Alive).to_vec())]).collect();
        assert_eq!(
            asker.ask(&mut fake, 3, PATIENCE),
            Ok(Answer::Alive),
            "not the answers to the earlier questions"
        );
        assert_eq!(fake.sent.iter().map(|question| question.of).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(fake.sent[2], third);
        // The same question has a new number.
        fake.arrives = [Some(third.answered(Answer::Alive).to_vec()), None].into();
        assert_eq!(asker.ask(&mut fake, 3, PATIENCE), Err("it does not answer".to_owned()));
    }

    #[test]
    fn messages_that_are_no_answers_are_skipped() {
        let (mut fake, mut asker) = (Fake::default(), Asker { asked: u32::MAX });
        let right = Question { number: 0, of: 9 }.answered(Answer::Gone).to_vec();
        let [longer, shorter] = [[&right[..], &[0]].concat(), right[1..].to_vec()];
        let unknown = [&right[..4], &[2]].concat();
        let others = [Vec::new(), longer, shorter, unknown, vec![0xff; 5], vec![0; 4096]];
        fake.arrives = others.into_iter().chain([right]).map(Some).collect();
        assert_eq!(asker.ask(&mut fake, 9, PATIENCE), Ok(Answer::Gone));
        assert_eq!(asker.ask(&mut fake, 9, PATIENCE), Err("it has closed the connection".to_owned()));
    }
}
