//! Frames: the contents of the records of a lane.
//!
//! A client's frame is a batch of operations, of one chain or of several, in program order. A memory node executes them in this order and answers by
//! one frame. All numbers are little-endian.
//!
//! | operation | words |
//! |---|---|
//! | READ | address, head |
//! | WRITE | address, head, the words to write |
//! | CAS | address, head, expected word, new word |
//! | FAA | address, head, addend |
//! | WATCH | address, head, a number of the client's |
//! | UNWATCH | address, or 0 for all of this connection's; head |
//!
//! The *head* is the kind in its lowest byte, and the number of words of a READ, WRITE or WATCH in the next four. The address is one in the memory node: its
//! own number of the segment, and the offset.
//!
//! The answer is a byte 0, and the words that the READs, CASs and FAAs have read, in this order; or a byte 1 and the reason of a refusal, after which
//! the connection is closed.
//!
//! Words that a client watches are forwarded to it when others have changed them ([`watches`](crate::server::watches)): a byte 2, and for each change the number
//! of the WATCH, the address, the number of words, and the words.

use super::channel::MAX_CONTENT_BYTES;
use farfield_words::{Address, WORD_BYTES};

/// The most words that an operation reads or writes: it fits a frame, and so does its answer.
pub(super) const MAX_WORDS: usize = MAX_CONTENT_BYTES / WORD_BYTES - 3;

const READ: u64 = 0;
const WRITE: u64 = 1;
const COMPARE_EXCHANGE: u64 = 2;
const FETCH_ADD: u64 = 3;
const WATCH: u64 = 4;
const UNWATCH: u64 = 5;

/// The first byte of forwarded words.
const FORWARDED: u8 = 2;

/// An operation of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation<'a> {
    Read { at: Address, words: usize },
    Write { at: Address, words: Words<'a> },
    CompareExchange { at: Address, expected: u64, new: u64 },
    FetchAdd { at: Address, addend: u64 },
    Watch { at: Address, words: usize, number: u64 },
    Unwatch { at: Address },
}

/// Words in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Words<'a>(&'a [u8]);

impl<'a> Words<'a> {
    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = u64> + 'a {
        self.0.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word))
    }
}

fn head(kind: u64, words: usize) -> u64 {
    kind | (words as u64) << 8
}

fn put<const N: usize>(frame: &mut Vec<u8>, words: [u64; N]) {
    for word in words {
        frame.extend_from_slice(&word.to_le_bytes());
    }
}

/// Appends a READ to a frame.
#[inline]
pub(super) fn put_read(frame: &mut Vec<u8>, at: u64, words: usize) {
    put(frame, [at, head(READ, words)]);
}

/// Appends a WRITE.
#[inline]
pub(super) fn put_write(frame: &mut Vec<u8>, at: u64, words: impl ExactSizeIterator<Item = u64>) {
    put(frame, [at, head(WRITE, words.len())]);
    words.for_each(|word| frame.extend_from_slice(&word.to_le_bytes()));
}

/// Appends a CAS.
#[inline]
pub(super) fn put_compare_exchange(frame: &mut Vec<u8>, at: u64, expected: u64, new: u64) {
    put(frame, [at, head(COMPARE_EXCHANGE, 1), expected, new]);
}

/// Appends an FAA.
#[inline]
pub(super) fn put_fetch_add(frame: &mut Vec<u8>, at: u64, addend: u64) {
    put(frame, [at, head(FETCH_ADD, 1), addend]);
}

/// The bytes of a WATCH. An UNWATCH has fewer.
pub(super) const WATCH_BYTES: usize = 3 * WORD_BYTES;

/// Appends a WATCH.
pub(super) fn put_watch(frame: &mut Vec<u8>, at: u64, words: usize, number: u64) {
    put(frame, [at, head(WATCH, words), number]);
}

/// Appends an UNWATCH.
pub(super) fn put_unwatch(frame: &mut Vec<u8>, at: u64) {
    put(frame, [at, head(UNWATCH, 1)]);
}

/// Returns the contents of a record with forwarded words.
pub(super) fn forwarded(words: &[u64]) -> Vec<u8> {
    let mut contents = Vec::with_capacity(1 + words.len() * WORD_BYTES);
    contents.push(FORWARDED);
    contents.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    contents
}

/// Returns the words of a record with forwarded ones; `None` if it is another.
#[inline]
pub(super) fn forwarded_in(contents: &[u8]) -> Option<Words<'_>> {
    let (first, words) = contents.split_first()?;
    (*first == FORWARDED && words.len().is_multiple_of(WORD_BYTES)).then_some(Words(words))
}

/// The operations of a client's frame. An incomplete or unknown one is an error, after which there is none.
pub(super) struct Operations<'a>(&'a [u8]);

impl<'a> Operations<'a> {
    pub(super) fn new(frame: &'a [u8]) -> Self {
        Self(frame)
    }

    fn word(&mut self) -> Option<u64> {
        let (word, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*word))
    }

    fn operation(&mut self) -> Option<Operation<'a>> {
        let at = Address::from_bits(self.word()?);
        let head = self.word()?;
        let (kind, count) = (head & 0xff, (head >> 8) as usize);
        if count == 0 || count > MAX_WORDS {
            return None;
        }
        Some(match (kind, count) {
            (READ, words) => Operation::Read { at, words },
            (WRITE, words) => {
                let (words, rest) = self.0.split_at_checked(words * WORD_BYTES)?;
                self.0 = rest;
                Operation::Write { at, words: Words(words) }
            }
            (COMPARE_EXCHANGE, 1) => {
                Operation::CompareExchange { at, expected: self.word()?, new: self.word()? }
            }
            (FETCH_ADD, 1) => Operation::FetchAdd { at, addend: self.word()? },
            (WATCH, words) => Operation::Watch { at, words, number: self.word()? },
            (UNWATCH, 1) => Operation::Unwatch { at },
            _ => return None,
        })
    }
}

/// The refusal of a frame that has something else than operations.
pub(super) const NO_OPERATION: &str = "a frame with an unknown or incomplete operation";

impl<'a> Iterator for Operations<'a> {
    type Item = Result<Operation<'a>, &'static str>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let operation = self.operation();
        if operation.is_none() {
            self.0 = &[];
        }
        Some(operation.ok_or(NO_OPERATION))
    }
}

/// Returns the words of an answer, if it has so many.
pub(super) fn words_of(answer: &[u8], words: usize) -> Option<Words<'_>> {
    (answer.len() == words * WORD_BYTES).then_some(Words(answer))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn operations_are_parsed_as_they_were_written() {
        let mut frame = Vec::new();
        let at = Address::new(3, 4096);
        put_read(&mut frame, at.bits(), 5);
        put_write(&mut frame, at.bits(), [7, 8, 9].into_iter());
        put_compare_exchange(&mut frame, at.bits(), 10, 11);
        put_fetch_add(&mut frame, at.bits(), u64::MAX);
        put_watch(&mut frame, at.bits(), 6, 77);
        put_unwatch(&mut frame, at.bits());
        let parsed: Vec<_> = Operations::new(&frame).map(Result::unwrap).collect();
        let [read, Operation::Write { at: to, words }, cas, faa, watch, unwatch] = parsed[..] else {
            panic!("{parsed:?}")
        };
        assert_eq!(read, Operation::Read { at, words: 5 });
        assert_eq!((to, words.iter().collect::<Vec<_>>()), (at, vec![7, 8, 9]));
        assert_eq!(cas, Operation::CompareExchange { at, expected: 10, new: 11 });
        assert_eq!(faa, Operation::FetchAdd { at, addend: u64::MAX });
        assert_eq!(watch, Operation::Watch { at, words: 6, number: 77 });
        assert_eq!(unwatch, Operation::Unwatch { at });
        // Cut anywhere, it has an operation that is incomplete, unless it is cut between two.
        for end in 0..frame.len() {
            let complete = Operations::new(&frame[..end]).all(|operation| operation.is_ok());
            assert_eq!(complete, [0, 16, 56, 88, 112, 136].contains(&end), "{end}");
        }
    }

    #[test]
    fn heads_of_no_operation_are_refused() {
        for head in [
            6 | 1 << 8,
            READ,
            WRITE,
            WATCH,
            head(UNWATCH, 2),
            head(READ, MAX_WORDS + 1),
            head(FETCH_ADD, 2),
            head(0, 1 << 40),
        ] {
            let mut frame = Vec::new();
            put(&mut frame, [8, head, 1, 2, 3]);
            assert_eq!(Operations::new(&frame).next(), Some(Err(NO_OPERATION)), "{head:#x}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let parsed: Vec<_> = Operations::new(&bytes).collect();
            let refused = parsed.iter().filter(|operation| operation.is_err()).count();
            prop_assert!(refused <= 1);
            if refused == 1 {
                prop_assert!(parsed.last().unwrap().is_err());
            }
            crate::tcp::parse_any(&bytes);
        }
    }
}
