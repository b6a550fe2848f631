//! The pipeline: from chains to work requests, and from completions back to chains. It implements credits and order without knowledge of devices, so
//! it can be tested without one.
//!
//! A chain's operations become *pieces*, each a work request: a long READ or WRITE several. Pieces are posted in the order of
//! their chains as far as credits go, and a reliable connection completes them in that order. So
//! - a completion with a piece's number, its *position*, shows that all pieces before it are done too;
//! - the memory that they use is a ring, in which the oldest is freed first. The device never reads or writes a chain's own buffer. So chains may be
//!   dropped, moved and recycled at any time.
//!
//! Credits: slots of the send queue; READs and atomics that the connection may have outstanding; and words of the ring. A piece without credits waits
//! here until a later completion, so no queue can overflow.
//!
//! # Order
//!
//! The device executes requests in order, but may repeat a READ or an atomic whose answer was lost, after later requests. The specification's table
//! of ordering (InfiniBand, volume 1, "Work request operation ordering") therefore asks for a fence on a WRITE after a READ or an atomic, and on an
//! atomic after a READ; no other pair needs one. A fence makes the device wait for all earlier requests, so it is used only where the order is
//! promised: inside a chain, and after a *detached* chain that is still in flight.
//!
//! # Words that others try to change by CAS
//!
//! The specification makes atomics atomic with respect to each other, not to WRITEs. A device may execute a CAS that fails as a load and
//! a store of the same word, and a WRITE between the two is lost. `rdma_rxe` of Linux 6.1 does: a lock that its owner had released by a WRITE
//! stayed locked for ever. So a word that is [replaced](RawChain::replace) is replaced by a CAS from its known value.

mod requests;

use std::cell::Cell;
use std::collections::VecDeque;

use super::super::chain::{Op, RawChain};
use crate::error::{Error, Result};
use farfield_words::Address;

/// The limits of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Credits {
    /// Work requests in the send queue.
    pub(super) requests: usize,
    /// READs and atomics without an answer.
    pub(super) reads: usize,
    /// Words of the ring.
    pub(super) words: usize,
    /// The most words of an inline WRITE.
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
    /// The position of the piece among all pieces.
    pub(super) position: u64,
    /// True if it must wait for all earlier requests.
    pub(super) fence: bool,
    /// True if it is signalled: it is the last of its chain.
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
    /// From the chain's own words, which the request borrows: the library copies them while it posts.
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

/// A chain in the pipeline.
struct Flight {
    chain: RawChain,
    /// The next piece; `None` once all are posted. It changes while [`Requests`] borrow the chain's words, so it is a cell.
    next: Cell<Option<NextPiece>>,
    /// Its result, once it is done.
    result: Option<Result<()>>,
    /// The round of its thread in which it was polled last.
    looked_at: Option<u64>,
    /// True if no future waits for it.
    detached: bool,
    /// True if it is freed when it is done, not taken back.
    forgotten: bool,
}

/// The next operation, and the number of its words that are posted.
#[derive(Clone, Copy)]
struct NextPiece {
    op: usize,
    words: usize,
}

/// A piece in flight.
struct Piece {
    flight: usize,
    op: usize,
    /// The index of its words in the ring, their number, and the index of the first in the operation.
    ring: usize,
    words: usize,
    first: usize,
    /// The words of the ring that it occupies.
    ring_words: usize,
    /// True if it has an answer, and so takes a credit for READs.
    reads: bool,
    last: bool,
}

/// The positions of READs and atomics for which later pieces may need a fence: one past the last.
#[derive(Clone, Copy, Debug, Default)]
struct FencePoints {
    reads: u64,
    atomics: u64,
}

/// The use of the ring.
struct RingSpace {
    words: usize,
    used: usize,
    /// The index of the next free word.
    head: usize,
}

pub(super) struct Pipeline {
    flights: Vec<Option<Flight>>,
    free: Vec<usize>,
    posting: Posting,
}

/// Posted and queued chains: the state that posting changes.
struct Posting {
    credits: Credits,
    /// The credits in use.
    requests: usize,
    reads: usize,
    ring_space: RingSpace,
    /// Flights with pieces to post, in order.
    queue: VecDeque<usize>,
    /// The number of chains that are posted, wholly or in part.
    under_way: usize,
    /// Pieces in flight, and the position of the first.
    pieces: VecDeque<Piece>,
    first: u64,
    /// The READs and atomics of the chain at the head of the queue, and of detached chains.
    current: FencePoints,
    detached: FencePoints,
}

impl Pipeline {
    pub(super) fn new(credits: Credits) -> Self {
        assert!(credits.requests > 0 && credits.reads > 0 && credits.words >= 4);
        let posting = Posting {
            credits,
            requests: 0,
            reads: 0,
            ring_space: RingSpace { words: credits.words, used: 0, head: 0 },
            queue: VecDeque::new(),
            under_way: 0,
            pieces: VecDeque::new(),
            first: 0,
            current: FencePoints::default(),
            detached: FencePoints::default(),
        };
        Self { flights: Vec::new(), free: Vec::new(), posting }
    }

    /// Sets the credits of a new connection. No piece may be in flight.
    pub(super) fn set_credits(&mut self, credits: Credits) {
        assert!(self.posting.pieces.is_empty());
        self.posting.credits = credits;
        self.posting.ring_space = RingSpace { words: credits.words, used: 0, head: 0 };
    }

    /// Queues a chain. Returns its number, which is unique until the chain is taken back.
    pub(super) fn push(&mut self, chain: RawChain) -> usize {
        let waits = !chain.ops().is_empty();
        let (next, result) =
            if waits { (Some(NextPiece { op: 0, words: 0 }), None) } else { (None, Some(Ok(()))) };
        let flight = Flight {
            chain,
            next: Cell::new(next),
            result,
            looked_at: None,
            detached: false,
            forgotten: false,
        };
        let number = self.free.pop().unwrap_or(self.flights.len());
        if number == self.flights.len() {
            self.flights.push(None);
        }
        self.flights[number] = Some(flight);
        if waits {
            self.posting.queue.push_back(number);
        }
        number
    }

    fn flight(&mut self, number: usize) -> &mut Flight {
        self.flights[number].as_mut().expect("a chain is polled until it is taken back")
    }

    /// Returns a chain if it is done.
    pub(super) fn take(&mut self, number: usize) -> Option<(RawChain, Result<()>)> {
        self.flight(number).result.as_ref()?;
        let Some(Flight { chain, result: Some(result), .. }) = self.flights[number].take() else {
            unreachable!("it is done");
        };
        self.free.push(number);
        Some((chain, result))
    }

    /// Frees a chain when it is done.
    pub(super) fn forget(&mut self, number: usize) {
        let flight = self.flight(number);
        flight.forgotten = true;
        if flight.result.is_some() {
            self.flights[number] = None;
            self.free.push(number);
        }
    }

    fn finish(&mut self, number: usize, result: Result<()>) {
        let flight = self.flight(number);
        flight.next.set(None);
        flight.result = Some(result);
        if flight.forgotten {
            self.flights[number] = None;
            self.free.push(number);
        }
    }

    /// Returns whether a chain is polled for the first time in this round. A second poll shows that its thread has no other work.
    pub(super) fn is_fresh(&mut self, number: usize, round: u64) -> bool {
        self.flight(number).looked_at.replace(round) != Some(round)
    }

    /// Returns whether a chain waits to be posted.
    pub(super) fn is_queued(&mut self, number: usize) -> bool {
        self.flight(number).next.get().is_some()
    }

    /// Detaches a chain: later chains must not overtake it.
    pub(super) fn detach(&mut self, number: usize) {
        self.flight(number).detached = true;
        let Posting { first, pieces, detached, .. } = &mut self.posting;
        for (position, piece) in (*first..).zip(&*pieces) {
            if piece.flight == number && piece.reads {
                let flight = self.flights[number].as_ref().expect("it has a piece in flight");
                note_fence_point(detached, &flight.chain.ops()[piece.op], position);
            }
        }
    }

    /// Returns whether chains are queued.
    pub(super) fn has_queued(&self) -> bool {
        !self.posting.queue.is_empty()
    }

    /// Returns whether at least as many chains are queued as are under way, so that half of a thread's concurrent chains share a doorbell.
    pub(super) fn has_many_queued(&self) -> bool {
        self.posting.queue.len() >= self.posting.under_way.max(1)
    }

    /// Returns the number of chains under way.
    pub(super) fn under_way(&self) -> usize {
        self.posting.under_way
    }

    /// Returns the number of pieces in flight.
    pub(super) fn in_flight(&self) -> usize {
        self.posting.pieces.len()
    }

    /// Describes posted and queued chains and the credits in use, for reports of stalls.
    pub(super) fn describe_use(&self) -> String {
        let posting = &self.posting;
        let Credits { requests, reads, words, .. } = posting.credits;
        format!(
            "{} requests posted in all, {} of them in flight; {} chains under way, {} wait to be posted; credits in use: {} of {requests} \
             requests, {} of {reads} READs and atomics, {} of {words} words",
            posting.first + posting.pieces.len() as u64,
            posting.pieces.len(),
            posting.under_way,
            posting.queue.len(),
            posting.requests,
            posting.reads,
            posting.ring_space.used
        )
    }

    /// Completes all pieces up to this position, and copies their results to their chains. Returns how many chains are done.
    pub(super) fn complete(&mut self, position: u64, ring: &impl Ring) -> usize {
        let mut chains = 0;
        while self.posting.first <= position
            && let Some(piece) = self.posting.pop_piece()
        {
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
                self.posting.under_way -= 1;
                self.finish(piece.flight, Ok(()));
                chains += 1;
            }
        }
        chains
    }

    /// Returns the operation and address of the piece at a position.
    pub(super) fn describe(&self, position: u64) -> Option<(&'static str, Address)> {
        let piece = self.posting.pieces.get(position.checked_sub(self.posting.first)? as usize)?;
        let op = &self.flights[piece.flight].as_ref()?.chain.ops()[piece.op];
        Some((op.name(), op.at().add((piece.first * 8) as u64)))
    }

    /// Fails all chains after the loss of the connection, each with an error for its next operation. Returns their number.
    pub(super) fn fail(&mut self, mut error: impl FnMut(&'static str, Address) -> Error) -> usize {
        let mut failed = 0;
        while let Some(piece) = self.posting.pop_piece() {
            // A chain of several pieces fails with the first, and may have been forgotten.
            if let Some(Flight { chain, result: None, .. }) = &self.flights[piece.flight] {
                let op = &chain.ops()[piece.op];
                let error = error(op.name(), op.at());
                self.finish(piece.flight, Err(error));
                failed += 1;
            }
        }
        while let Some(number) = self.posting.queue.pop_front() {
            if let Some(Flight { chain, next, result: None, .. }) = &self.flights[number]
                && let Some(NextPiece { op, .. }) = next.get()
            {
                let op = &chain.ops()[op];
                let error = error(op.name(), op.at());
                self.finish(number, Err(error));
                failed += 1;
            }
        }
        self.posting.under_way = 0;
        (self.posting.current, self.posting.detached) = Default::default();
        failed
    }
}

impl Posting {
    /// Removes the oldest piece, and frees its credits.
    fn pop_piece(&mut self) -> Option<Piece> {
        let piece = self.pieces.pop_front()?;
        self.first += 1;
        self.requests -= 1;
        self.reads -= usize::from(piece.reads);
        self.ring_space.used -= piece.ring_words;
        Some(piece)
    }
}

impl RingSpace {
    /// Returns the index of `words` contiguous free words, and the number of words that they occupy with those skipped at the ring's end.
    fn find(&self, words: usize) -> Option<(usize, usize)> {
        if words == 0 {
            return Some((0, 0));
        }
        let to_end = self.words - self.head;
        let (at, taken) = if words <= to_end { (self.head, words) } else { (0, to_end + words) };
        (self.used + taken <= self.words).then_some((at, taken))
    }
}

/// Records the position of a READ or an atomic.
fn note_fence_point(fence_point: &mut FencePoints, op: &Op, position: u64) {
    match op {
        Op::Read { .. } => fence_point.reads = fence_point.reads.max(position + 1),
        Op::Write { replaces: true, .. } | Op::CompareExchange { .. } | Op::FetchAdd { .. } => {
            fence_point.atomics = fence_point.atomics.max(position + 1);
        }
        Op::Write { replaces: false, .. } => {}
    }
}

#[cfg(test)]
mod tests;
