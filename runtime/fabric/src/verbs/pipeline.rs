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

mod requests;

use std::cell::Cell;
use std::collections::VecDeque;

use super::super::chain::{Chain, Op};
use crate::error::{Error, Result};
use farfield_words::Address;

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
    /// From the chain's own words, which the request borrows: the device has copied them when posting returns.
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
    /// What is posted next; none once all of it is posted. It changes while [`Requests`] borrow the chain's words, so it is a cell.
    next: Cell<Option<NextPiece>>,
    /// How it ended, once it has.
    result: Option<Result<()>>,
    /// In which round of its thread it was looked at last.
    looked_at: Option<u64>,
    /// Whether nobody waits for it.
    detached: bool,
    /// Whether nobody wants it back.
    forgotten: bool,
}

/// The operation that is posted next, and how many of its words have been.
#[derive(Clone, Copy)]
struct NextPiece {
    op: usize,
    words: usize,
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
struct FencePoints {
    reads: u64,
    atomics: u64,
}

/// What of the ring is in use.
struct RingSpace {
    words: usize,
    used: usize,
    /// Where it is used next.
    head: usize,
}

pub(super) struct Pipeline {
    flights: Vec<Option<Flight>>,
    free: Vec<usize>,
    posting: Posting,
}

/// What is posted and what waits: all that posting changes.
struct Posting {
    credits: Credits,
    /// What of the credits is in use.
    requests: usize,
    reads: usize,
    ring_space: RingSpace,
    /// Flights with something to post, in order.
    queue: VecDeque<usize>,
    /// Chains that are posted, whole or in part.
    under_way: usize,
    /// Pieces in flight, and the position of the first.
    pieces: VecDeque<Piece>,
    first: u64,
    /// The READs and atomics of the chain at the head of the queue, and of chains that were left.
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

    /// The connection is another one, which may allow something else. Nothing may be in flight.
    pub(super) fn set_credits(&mut self, credits: Credits) {
        assert!(self.posting.pieces.is_empty());
        self.posting.credits = credits;
        self.posting.ring_space = RingSpace { words: credits.words, used: 0, head: 0 };
    }

    /// Takes a chain over; gives its number, which is that of no other until it is taken back.
    pub(super) fn push(&mut self, chain: Chain) -> usize {
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
        self.flights[number].as_mut().expect("a chain is looked at until it is taken back")
    }

    /// Gives a chain back that is done.
    pub(super) fn take(&mut self, number: usize) -> Option<(Chain, Result<()>)> {
        self.flight(number).result.as_ref()?;
        let Some(Flight { chain, result: Some(result), .. }) = self.flights[number].take() else {
            unreachable!("it is done");
        };
        self.free.push(number);
        Some((chain, result))
    }

    /// Nobody will take a chain back.
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

    /// Whether a chain is looked at for the first time in this round. Whoever looks again has nothing else to do.
    pub(super) fn is_fresh(&mut self, number: usize, round: u64) -> bool {
        self.flight(number).looked_at.replace(round) != Some(round)
    }

    /// Whether a chain waits to be posted.
    pub(super) fn is_queued(&mut self, number: usize) -> bool {
        self.flight(number).next.get().is_some()
    }

    /// Nobody waits for a chain any more, but what is posted from now on must not overtake it.
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

    /// Whether there is something to post.
    pub(super) fn has_queued(&self) -> bool {
        !self.posting.queue.is_empty()
    }

    /// Whether as many chains wait as are under way, at least, so that half of what a thread does at a time shares a doorbell.
    pub(super) fn has_many_queued(&self) -> bool {
        self.posting.queue.len() >= self.posting.under_way.max(1)
    }

    /// How many chains are under way.
    pub(super) fn under_way(&self) -> usize {
        self.posting.under_way
    }

    /// How many pieces are in flight.
    pub(super) fn in_flight(&self) -> usize {
        self.posting.pieces.len()
    }

    /// What is posted, what waits, and the credits in use, for reports of stalls.
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

    /// Everything up to this position is done: its results go to their chains. Gives how many chains that completes.
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

    /// What the piece at a position does, and where.
    pub(super) fn describe(&self, position: u64) -> Option<(&'static str, Address)> {
        let piece = self.posting.pieces.get(position.checked_sub(self.posting.first)? as usize)?;
        let op = &self.flights[piece.flight].as_ref()?.chain.ops()[piece.op];
        Some((op.name(), op.at().add((piece.first * 8) as u64)))
    }

    /// The connection is gone: nothing more will be done. Each chain fails with an error of its own, made from what it was
    /// about to do next. Gives how many.
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
    /// Takes the oldest piece off, and its credits back.
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

/// A READ or an atomic stands at a position.
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
