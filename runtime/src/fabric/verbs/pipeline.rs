//! The pipeline: from chains to work requests, and from completions back to chains. It knows credits and order, and
//! nothing of devices, so it can be tested without one.
//!
//! A chain's operations become *pieces*, each a work request: a long READ or WRITE several. Pieces are posted in the order of
//! their chains as far as credits go, and a reliable connection completes them in that order. So
//! - one number, a piece's *position*, tells from one completion that all pieces before it are done too;
//! - the memory that they use is a ring, in which the oldest is freed first. What the device reads and writes is never a
//!   chain's own buffer, so chains may be dropped, moved and recycled at any time.
//!
//! Credits: slots of the send queue; READs and atomics that the connection may have outstanding; and words of the ring. What has
//! none waits here, and goes out with a later completion, so no queue can overflow.
//!
//! # Order
//!
//! The device executes requests in order, but may send a READ or an atomic again whose answer was lost, after what was posted
//! behind it. The specification's table of ordering (InfiniBand, volume 1, "Work request operation ordering") therefore
//! asks for a fence on a WRITE after a READ or an atomic, and on an atomic after a READ; nothing else needs one. A fence makes the
//! device wait for everything before, so it is used only where the order is promised: inside a chain, and after a chain that
//! nobody waits for (it was *left*) and that is still in flight.
//!
//! # Words that others try to change by CAS
//!
//! The specification makes atomics atomic with respect to each other, not to WRITEs. A device may execute a CAS that fails as a load and
//! a store of the same word, and a WRITE between the two is lost. `rdma_rxe` of Linux 6.1 does, and so a lock stayed locked for ever whose
//! owner had released it by a WRITE. So a word that is [replaced](Chain::replace) is replaced by a CAS from the word that is there.

use std::collections::VecDeque;

use super::super::chain::{Chain, Op};
use crate::error::{Error, Result};
use crate::pointer::Address;

/// What the connection allows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Credits {
    /// Work requests in the send queue.
    pub(super) requests: usize,
    /// READs and atomics that have no answer yet.
    pub(super) reads: usize,
    /// Words of the ring.
    pub(super) words: usize,
    /// The most words of a WRITE that travel in its work request.
    pub(super) inline_words: usize,
}

/// The memory that the device reads and writes.
pub(super) trait Ring {
    /// Copies words out of it, from `at` on.
    fn read(&self, at: usize, into: &mut [u64]);
    fn write(&self, at: usize, from: &[u64]);
}

/// A work request, as the pipeline sees it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Request<'a> {
    pub(super) verb: Verb<'a>,
    pub(super) at: Address,
    /// Where the piece stands among all pieces.
    pub(super) position: u64,
    /// Whether it must wait for what was posted before.
    pub(super) fence: bool,
    /// Whether its completion is to be told: it is the last of its chain.
    pub(super) signal: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verb<'a> {
    Read {
        ring: usize,
        words: usize,
    },
    /// From the ring.
    Write {
        ring: usize,
        words: usize,
    },
    /// From here, while it is being posted.
    WriteInline(&'a [u64]),
    CompareExchange {
        ring: usize,
        expected: u64,
        new: u64,
    },
    FetchAdd {
        ring: usize,
        addend: u64,
    },
}

/// A chain that has been handed over and not been taken back.
struct Flight {
    chain: Chain,
    state: State,
    /// In which round of its thread it was looked at last.
    looked_at: Option<u64>,
    /// Whether nobody waits for it.
    left: bool,
    /// Whether nobody wants it back.
    forgotten: bool,
}

enum State {
    /// The operation that is posted next, and how many of its words have been.
    Queued {
        op: usize,
        words: usize,
    },
    /// All is posted.
    Posted,
    Done(Result<()>),
}

/// A piece in flight.
struct Piece {
    flight: usize,
    op: usize,
    /// Where in the ring its words are, how many, and which of the operation's words they are.
    ring: usize,
    words: usize,
    first: usize,
    /// What the ring gets back.
    ring_words: usize,
    /// Whether words come back, and a credit for READs.
    reads: bool,
    last: bool,
}

/// Positions of pieces that others may have to wait for: one past the last.
#[derive(Clone, Copy, Debug, Default)]
struct Behind {
    reads: u64,
    atomics: u64,
}

/// What of the ring is in use.
struct Room {
    words: usize,
    used: usize,
    /// Where it is used next.
    head: usize,
}

pub(super) struct Pipeline {
    credits: Credits,
    /// What of the credits is in use.
    requests: usize,
    reads: usize,
    room: Room,
    flights: Vec<Option<Flight>>,
    free: Vec<usize>,
    /// Flights with something to post, in order.
    queue: VecDeque<usize>,
    /// Chains that are posted, whole or in part.
    under_way: usize,
    /// Pieces in flight, and the position of the first.
    pieces: VecDeque<Piece>,
    first: u64,
    /// The READs and atomics of the chain at the head of the queue, and of chains that were left.
    own: Behind,
    left: Behind,
}

impl Pipeline {
    pub(super) fn new(credits: Credits) -> Self {
        assert!(credits.requests > 0 && credits.reads > 0 && credits.words >= 4);
        Self {
            credits,
            requests: 0,
            reads: 0,
            room: Room { words: credits.words, used: 0, head: 0 },
            flights: Vec::new(),
            free: Vec::new(),
            queue: VecDeque::new(),
            under_way: 0,
            pieces: VecDeque::new(),
            first: 0,
            own: Behind::default(),
            left: Behind::default(),
        }
    }

    /// The connection is another one, which may allow something else. Nothing may be in flight.
    pub(super) fn set_credits(&mut self, credits: Credits) {
        assert!(self.pieces.is_empty());
        self.credits = credits;
        self.room = Room { words: credits.words, used: 0, head: 0 };
    }

    /// Takes a chain over; gives its number, which is that of no other until it is taken back.
    pub(super) fn push(&mut self, chain: Chain) -> usize {
        let state =
            if chain.ops().is_empty() { State::Done(Ok(())) } else { State::Queued { op: 0, words: 0 } };
        let waits = matches!(state, State::Queued { .. });
        let flight = Flight { chain, state, looked_at: None, left: false, forgotten: false };
        let number = self.free.pop().unwrap_or(self.flights.len());
        if number == self.flights.len() {
            self.flights.push(None);
        }
        self.flights[number] = Some(flight);
        if waits {
            self.queue.push_back(number);
        }
        number
    }

    fn flight(&mut self, number: usize) -> &mut Flight {
        self.flights[number].as_mut().expect("a chain is looked at until it is taken back")
    }

    /// Gives a chain back that is done.
    pub(super) fn take(&mut self, number: usize) -> Option<(Chain, Result<()>)> {
        let flight = self.flight(number);
        if !matches!(flight.state, State::Done(_)) {
            return None;
        }
        let Some(Flight { chain, state: State::Done(result), .. }) = self.flights[number].take() else {
            unreachable!("it is done");
        };
        self.free.push(number);
        Some((chain, result))
    }

    /// Nobody will take a chain back.
    pub(super) fn forget(&mut self, number: usize) {
        let flight = self.flight(number);
        flight.forgotten = true;
        if matches!(flight.state, State::Done(_)) {
            self.flights[number] = None;
            self.free.push(number);
        }
    }

    fn finish(&mut self, number: usize, result: Result<()>) {
        let flight = self.flight(number);
        flight.state = State::Done(result);
        if flight.forgotten {
            self.flights[number] = None;
            self.free.push(number);
        }
    }

    /// Whether a chain is looked at for the first time in this round. Whoever looks again has nothing else to do.
    pub(super) fn is_fresh(&mut self, number: usize, round: u64) -> bool {
        self.flight(number).looked_at.replace(round) != Some(round)
    }

    /// Whether a chain waits to be posted.
    pub(super) fn is_queued(&mut self, number: usize) -> bool {
        matches!(self.flight(number).state, State::Queued { .. })
    }

    /// Nobody waits for a chain any more, but what is posted from now on must not overtake it.
    pub(super) fn leave(&mut self, number: usize) {
        self.flight(number).left = true;
        for (position, piece) in (self.first..).zip(&self.pieces) {
            if piece.flight == number && piece.reads {
                let flight = self.flights[number].as_ref().expect("it has a piece in flight");
                note(&mut self.left, &flight.chain.ops()[piece.op], position);
            }
        }
    }

    /// Whether there is something to post.
    pub(super) fn has_queued(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Whether as many chains wait as are under way, at least, so that half of what a thread does at a time shares a doorbell.
    pub(super) fn has_many_queued(&self) -> bool {
        self.queue.len() >= self.under_way.max(1)
    }

    /// How many chains are under way.
    pub(super) fn under_way(&self) -> usize {
        self.under_way
    }

    /// How many pieces are in flight.
    pub(super) fn in_flight(&self) -> usize {
        self.pieces.len()
    }

    /// What is posted, what waits, and the credits in use, for reports of stalls.
    pub(super) fn describe_use(&self) -> String {
        let Credits { requests, reads, words, .. } = self.credits;
        format!(
            "{} requests posted in all, {} of them in flight; {} chains under way, {} wait to be posted; credits in use: {} of {requests} \
             requests, {} of {reads} READs and atomics, {} of {words} words",
            self.first + self.pieces.len() as u64,
            self.pieces.len(),
            self.under_way,
            self.queue.len(),
            self.requests,
            self.reads,
            self.room.used
        )
    }

    /// The next request to post, unless nothing waits or credits have run out; what it writes is put in the ring.
    pub(super) fn next(&mut self, ring: &impl Ring) -> Option<Request<'_>> {
        let number = *self.queue.front()?;
        let flight = self.flights[number].as_mut().expect("what is queued is not taken back");
        let State::Queued { op: index, words: first } = flight.state else {
            unreachable!("what is queued has something to post")
        };
        let op = &flight.chain.ops()[index];
        let reads = has_answer(op);
        // A quarter of the ring: while one such piece is under way others still find room.
        let most = self.credits.words / 4;
        let words = (op.words() - first).min(most);
        let inline = !reads && words <= self.credits.inline_words;
        let ring_words = if inline { 0 } else { words };
        if self.requests == self.credits.requests || reads && self.reads == self.credits.reads {
            return None;
        }
        let (ring_at, ring_words) = self.room.find(ring_words)?;
        let end_of_op = first + words == op.words();
        let starts = index == 0 && first == 0;
        let last = end_of_op && index + 1 == flight.chain.ops().len();
        let position = self.first + self.pieces.len() as u64;
        let behind = |behind: &Behind| match op {
            Op::Read { .. } => 0,
            Op::Write { replaces: false, .. } => behind.reads.max(behind.atomics),
            Op::Write { replaces: true, .. } | Op::CompareExchange { .. } | Op::FetchAdd { .. } => {
                behind.reads
            }
        };
        let fence = behind(&self.own).max(behind(&self.left)) > self.first;
        note(if flight.left { &mut self.left } else { &mut self.own }, op, position);
        self.under_way += usize::from(starts);
        self.requests += 1;
        self.reads += usize::from(reads);
        if ring_words > 0 {
            self.room.used += ring_words;
            let head = ring_at + words;
            self.room.head = if head == self.room.words { 0 } else { head };
        }
        self.pieces.push_back(Piece {
            flight: number,
            op: index,
            ring: ring_at,
            words,
            first,
            ring_words,
            reads,
            last,
        });
        if last {
            flight.state = State::Posted;
            self.queue.pop_front();
            self.own = Behind::default();
        } else if end_of_op {
            flight.state = State::Queued { op: index + 1, words: 0 };
        } else {
            flight.state = State::Queued { op: index, words: first + words };
        }
        let (ops, buffer) = flight.chain.parts();
        let verb = match &ops[index] {
            Op::Read { .. } => Verb::Read { ring: ring_at, words },
            Op::Write { slot, replaces: true, .. } => {
                let (expected, new) = (buffer[slot.start - 1], buffer[slot.start]);
                Verb::CompareExchange { ring: ring_at, expected, new }
            }
            Op::Write { slot, replaces: false, .. } => {
                let from = &buffer[slot.start + first..][..words];
                if inline {
                    Verb::WriteInline(from)
                } else {
                    ring.write(ring_at, from);
                    Verb::Write { ring: ring_at, words }
                }
            }
            Op::CompareExchange { expected, new, .. } => {
                Verb::CompareExchange { ring: ring_at, expected: *expected, new: *new }
            }
            Op::FetchAdd { addend, .. } => Verb::FetchAdd { ring: ring_at, addend: *addend },
        };
        let at = ops[index].at().add((first * 8) as u64);
        Some(Request { verb, at, position, fence, signal: last })
    }

    /// Everything up to this position is done: its results go to their chains. Gives how many chains that completes.
    pub(super) fn complete(&mut self, position: u64, ring: &impl Ring) -> usize {
        let mut chains = 0;
        while self.first <= position
            && let Some(piece) = self.pieces.pop_front()
        {
            self.give_back(&piece);
            let flight = self.flights[piece.flight].as_mut().expect("it has a piece in flight");
            let (ops, words) = flight.chain.parts();
            match &ops[piece.op] {
                Op::Read { slot, .. } => {
                    ring.read(piece.ring, &mut words[slot.start + piece.first..][..piece.words]);
                }
                Op::CompareExchange { slot, .. } | Op::FetchAdd { slot, .. } => {
                    ring.read(piece.ring, &mut words[*slot..=*slot]);
                }
                Op::Write { .. } => {}
            }
            if piece.last {
                self.under_way -= 1;
                self.finish(piece.flight, Ok(()));
                chains += 1;
            }
        }
        chains
    }

    fn give_back(&mut self, piece: &Piece) {
        self.first += 1;
        self.requests -= 1;
        self.reads -= usize::from(piece.reads);
        self.room.used -= piece.ring_words;
    }

    /// What the piece at a position does, and where.
    pub(super) fn describe(&self, position: u64) -> Option<(&'static str, Address)> {
        let piece = self.pieces.get(position.checked_sub(self.first)? as usize)?;
        let op = &self.flights[piece.flight].as_ref()?.chain.ops()[piece.op];
        Some((op.name(), op.at().add((piece.first * 8) as u64)))
    }

    /// The connection is gone: nothing more will be done. Each chain fails with an error of its own, made from what it was
    /// about to do next. Gives how many.
    pub(super) fn fail(&mut self, mut error: impl FnMut(&'static str, Address) -> Error) -> usize {
        let mut failed = 0;
        while let Some(piece) = self.pieces.pop_front() {
            self.give_back(&piece);
            // A chain of several pieces fails with the first, and may have been forgotten.
            if let Some(Flight { chain, state: State::Queued { .. } | State::Posted, .. }) =
                &self.flights[piece.flight]
            {
                let op = &chain.ops()[piece.op];
                let error = error(op.name(), op.at());
                self.finish(piece.flight, Err(error));
                failed += 1;
            }
        }
        while let Some(number) = self.queue.pop_front() {
            if let Some(Flight { chain, state: State::Queued { op, .. }, .. }) = &self.flights[number] {
                let op = &chain.ops()[*op];
                let error = error(op.name(), op.at());
                self.finish(number, Err(error));
                failed += 1;
            }
        }
        self.under_way = 0;
        (self.own, self.left) = Default::default();
        failed
    }
}

impl Room {
    /// Where so many words are free in one stretch, and how many that takes: what is left at the end is skipped.
    fn find(&self, words: usize) -> Option<(usize, usize)> {
        if words == 0 {
            return Some((0, 0));
        }
        let to_end = self.words - self.head;
        let (at, taken) = if words <= to_end { (self.head, words) } else { (0, to_end + words) };
        (self.used + taken <= self.words).then_some((at, taken))
    }
}

/// Whether words come back from an operation, so that it takes a credit for READs. A word that is [replaced](Chain::replace) is
/// replaced by a CAS.
fn has_answer(op: &Op) -> bool {
    !matches!(op, Op::Write { replaces: false, .. })
}

/// A READ or an atomic stands at a position.
fn note(behind: &mut Behind, op: &Op, position: u64) {
    match op {
        Op::Read { .. } => behind.reads = behind.reads.max(position + 1),
        Op::Write { replaces: true, .. } | Op::CompareExchange { .. } | Op::FetchAdd { .. } => {
            behind.atomics = behind.atomics.max(position + 1);
        }
        Op::Write { replaces: false, .. } => {}
    }
}

#[cfg(test)]
mod tests;
