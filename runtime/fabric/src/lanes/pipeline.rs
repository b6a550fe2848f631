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
use std::ops::Range;

use crate::chain::{Op, RawChain};
use crate::error::{Error, Result};
use farfield_words::Address;

/// The limits of a connection; all 0 without one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Credits {
    /// Work requests in the send queue.
    pub(crate) requests: usize,
    /// READs and atomics without an answer.
    pub(crate) reads: usize,
    /// Words of the ring.
    pub(crate) words: usize,
    /// The most words of an inline WRITE.
    pub(crate) inline_words: usize,
}

impl Credits {
    /// The most words of a piece: a quarter of the ring, so that other pieces fit beside a long one.
    #[inline]
    fn most_words(&self) -> usize {
        self.words / 4
    }
}

/// The memory that the device reads and writes.
pub(crate) trait Ring {
    /// Copies words out of it, from `at` on.
    fn read(&self, at: usize, into: &mut [u64]);
    fn write(&self, at: usize, from: &[u64]);
}

/// A work request, as the pipeline sees it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Request<'a> {
    pub(crate) verb: Verb<'a>,
    pub(crate) at: Address,
    /// The position of the piece among all pieces.
    pub(crate) position: u64,
    /// True if it must wait for all earlier requests.
    pub(crate) fence: bool,
    /// True if it is signalled: it is the last of its chain.
    pub(crate) signal: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verb<'a> {
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

/// The most words of a single operation. A longer READ or WRITE is posted as a chain.
pub(crate) const SINGLE_WORDS: usize = 16;

/// A slot for a chain or a single operation in the pipeline. A thread that has warmed up reuses slots, and a single operation is never moved: it is
/// written into its slot when it is pushed, and its result is read there.
struct Flight {
    /// The chain; `None` for a single operation, and in a free slot.
    chain: Option<RawChain>,
    /// The single operation, whose slot begins at 0, and the words that it writes or reads.
    op: Op,
    words: [u64; SINGLE_WORDS],
    /// The next piece; `None` once all are posted. It changes while [`Requests`] borrow the chain's words, so it is a cell.
    next: Cell<Option<NextPiece>>,
    /// Its result, once it is done.
    result: Option<Result<()>>,
    /// The next flight of the queue.
    after: u32,
    /// The next free slot, if this one is free. Not `after`: a forgotten chain that fails is freed while it is queued.
    after_free: u32,
    /// The words of the single operation; the largest number for a chain.
    single_words: u32,
    /// The round of its thread in which it was polled last, or [`NEVER`].
    looked_at: u64,
    /// True if no future waits for it.
    detached: bool,
    /// True if it is freed when it is done, not taken back.
    forgotten: bool,
}

/// No round of a thread.
const NEVER: u64 = u64::MAX;

/// The next operation, and the number of its words that are posted.
#[derive(Clone, Copy)]
struct NextPiece {
    op: u32,
    words: u32,
}

/// The first piece of a chain.
const FIRST: NextPiece = NextPiece { op: 0, words: 0 };

/// A piece in flight.
#[derive(Clone, Copy, Default)]
struct Piece {
    flight: u32,
    op: u32,
    /// The index of its first word in the operation.
    first: u32,
    /// The index of its words in the ring, and the words of the ring that it occupies.
    ring: u32,
    ring_words: u32,
    /// The words of its answer that the chain receives, and the index of the first in the chain's buffer.
    answer_words: u32,
    answer: u32,
    /// True if it has an answer, and so takes a credit for READs.
    reads: bool,
    last: bool,
}

/// The pieces in flight: a ring of a power of two, indexed by position.
#[derive(Default)]
struct Pieces {
    ring: Box<[Piece]>,
    /// The position of the oldest piece, and that of the next.
    first: u64,
    next: u64,
}

/// The first and the last of a list of flights, if it is not empty, and their number.
#[derive(Default)]
struct Queue {
    first: u32,
    last: u32,
    len: usize,
}

/// The positions of READs and atomics for which later pieces may need a fence: one past the last.
#[derive(Clone, Copy, Debug, Default)]
struct FencePoints {
    reads: u64,
    atomics: u64,
}

/// The verb of a piece. A [replaced](RawChain::replace) word is replaced by a CAS.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
    CompareExchange,
    FetchAdd,
}

/// The use of the ring.
#[derive(Default)]
struct RingSpace {
    words: usize,
    used: usize,
    /// The index of the next free word.
    head: usize,
}

/// Chains between their thread and a connection. A new one has no credits.
#[derive(Default)]
pub(crate) struct Pipeline {
    flights: Vec<Flight>,
    /// The first of a list of free slots through [`Flight::after_free`]; the number of slots if it is empty.
    free: u32,
    posting: Posting,
}

/// Posted and queued chains: the state that posting changes.
#[derive(Default)]
struct Posting {
    credits: Credits,
    /// The credits for READs and atomics in use. Each piece in flight uses one for requests.
    reads: usize,
    ring_space: RingSpace,
    /// Flights with pieces to post, in order: a list through [`Flight::after`].
    queue: Queue,
    /// The number of chains that are posted, wholly or in part.
    under_way: usize,
    pieces: Pieces,
    /// The READs and atomics of the chain at the head of the queue, and of detached chains.
    current: FencePoints,
    detached: FencePoints,
}

impl Pipeline {
    #[cfg(test)]
    pub(crate) fn new(credits: Credits) -> Self {
        let mut pipeline = Self::default();
        pipeline.set_credits(credits);
        pipeline
    }

    /// Sets the credits of a new connection. No piece may be in flight.
    pub(crate) fn set_credits(&mut self, credits: Credits) {
        assert_eq!(self.posting.pieces.len(), 0);
        assert!(credits.requests > 0 && credits.reads > 0 && credits.words >= 4);
        self.posting.credits = credits;
        self.posting.pieces.ring = vec![Piece::default(); credits.requests.next_power_of_two()].into();
        self.posting.ring_space = RingSpace { words: credits.words, used: 0, head: 0 };
    }

    /// Queues a chain. Returns its number, which is unique until the chain is taken back.
    #[inline]
    pub(crate) fn push(&mut self, chain: RawChain) -> usize {
        let is_empty = chain.ops().is_empty();
        let (number, flight) = self.use_slot(u32::MAX);
        flight.chain = Some(chain);
        if is_empty {
            flight.result = Some(Ok(()));
        } else {
            self.enqueue(number);
        }
        number as usize
    }

    /// Queues a single operation of at most [`SINGLE_WORDS`] words, with the words that it writes. Returns its number. It counts as a chain, and
    /// [`take_single`](Self::take_single) takes it back.
    #[allow(clippy::inline_always)] // or the operation is copied through memory
    #[inline(always)]
    pub(crate) fn push_single(&mut self, op: Op, written: &[u64]) -> usize {
        let (number, flight) = self.use_slot(op.words() as u32);
        flight.op = op;
        flight.words[..written.len()].copy_from_slice(written);
        self.enqueue(number);
        number as usize
    }

    /// Takes a slot from the list of free slots.
    #[inline]
    fn use_slot(&mut self, single_words: u32) -> (u32, &mut Flight) {
        if self.free as usize == self.flights.len() {
            self.add_slot();
        }
        let number = self.free;
        let flight = &mut self.flights[number as usize];
        self.free = flight.after_free;
        flight.single_words = single_words;
        flight.looked_at = NEVER;
        (flight.detached, flight.forgotten) = (false, false);
        (number, flight)
    }

    #[cold]
    fn add_slot(&mut self) {
        let after_free = u32::try_from(self.flights.len() + 1).expect("a thread has fewer chains in flight");
        self.flights.push(Flight {
            chain: None,
            op: Op::fetch_add(Address::NULL, 0),
            words: [0; SINGLE_WORDS],
            next: Cell::new(None),
            result: None,
            after: 0,
            after_free,
            single_words: u32::MAX,
            looked_at: NEVER,
            detached: false,
            forgotten: false,
        });
    }

    /// Adds a flight to the queue.
    #[inline]
    fn enqueue(&mut self, number: u32) {
        self.flights[number as usize].next.set(Some(FIRST));
        let queue = &mut self.posting.queue;
        if queue.len == 0 {
            queue.first = number;
        } else {
            self.flights[queue.last as usize].after = number;
        }
        queue.last = number;
        queue.len += 1;
    }

    fn flight(&mut self, number: usize) -> &mut Flight {
        &mut self.flights[number]
    }

    /// Returns whether a chain is done.
    #[inline]
    pub(crate) fn is_done(&self, number: usize) -> bool {
        self.flights[number].result.is_some()
    }

    /// Takes back a chain that is done. A single operation becomes a chain.
    #[allow(clippy::inline_always)] // or the chain is copied once more
    #[inline(always)]
    pub(crate) fn take(&mut self, number: usize) -> (RawChain, Result<()>) {
        let flight = &mut self.flights[number];
        let chain = flight.chain.take().unwrap_or_else(|| flight.single_as_chain());
        (chain, self.free(number))
    }

    /// Takes back a single operation that is done. If it has succeeded, returns what `result` makes of its words: those that it has read are the first.
    #[inline]
    pub(crate) fn take_single<R>(
        &mut self,
        number: usize,
        result: impl FnOnce(&Op, &[u64; SINGLE_WORDS]) -> R,
    ) -> Result<R> {
        self.free(number)?;
        let flight = &self.flights[number];
        Ok(result(&flight.op, &flight.words))
    }

    /// Frees the slot of a chain that is done. Returns its result.
    #[inline]
    fn free(&mut self, number: usize) -> Result<()> {
        let flight = &mut self.flights[number];
        let Some(result) = flight.result.take() else { unreachable!("it is done, and is taken back once") };
        flight.after_free = std::mem::replace(&mut self.free, number as u32);
        result
    }

    /// Frees a chain when it is done.
    pub(crate) fn forget(&mut self, number: usize) {
        let flight = self.flight(number);
        flight.forgotten = true;
        if flight.result.is_some() {
            self.drop_forgotten(number);
        }
    }

    #[cold]
    fn drop_forgotten(&mut self, number: usize) {
        self.flights[number].chain = None;
        // No future waits for the result, so an error is dropped.
        drop(self.free(number));
    }

    /// Returns whether a chain is polled for the first time in this round. A second poll shows that its thread has no other work.
    pub(crate) fn is_fresh(&mut self, number: usize, round: u64) -> bool {
        std::mem::replace(&mut self.flight(number).looked_at, round) != round
    }

    /// Returns whether a chain waits to be posted.
    pub(crate) fn is_queued(&mut self, number: usize) -> bool {
        self.flight(number).next.get().is_some()
    }

    /// Detaches a chain: later chains must not overtake it.
    pub(crate) fn detach(&mut self, number: usize) {
        self.flight(number).detached = true;
        let Posting { pieces, detached, .. } = &mut self.posting;
        for position in pieces.first..pieces.next {
            let Some(piece) = pieces.get(position) else { continue };
            if piece.flight as usize == number && piece.reads {
                let op = self.flights[number].op(piece.op).expect("it has a piece in flight");
                detached.note(Kind::of(op), position);
            }
        }
    }

    /// Returns whether chains are queued.
    pub(crate) fn has_queued(&self) -> bool {
        self.posting.queue.len > 0
    }

    /// Returns whether at least as many chains are queued as are under way, so that half of a thread's concurrent chains share a doorbell.
    pub(crate) fn has_many_queued(&self) -> bool {
        self.posting.queue.len >= self.posting.under_way.max(1)
    }

    /// Returns the number of chains under way.
    pub(crate) fn under_way(&self) -> usize {
        self.posting.under_way
    }

    /// Returns the number of pieces in flight.
    pub(crate) fn in_flight(&self) -> usize {
        self.posting.pieces.len()
    }

    /// Describes posted and queued chains and the credits in use, for reports of stalls.
    pub(crate) fn describe_use(&self) -> String {
        let posting = &self.posting;
        let Credits { requests, reads, words, .. } = posting.credits;
        format!(
            "{} requests posted in all, {} of them in flight; {} chains under way, {} wait to be posted; credits in use: {} of {requests} \
             requests, {} of {reads} READs and atomics, {} of {words} words",
            posting.pieces.next,
            posting.pieces.len(),
            posting.under_way,
            posting.queue.len,
            posting.pieces.len(),
            posting.reads,
            posting.ring_space.used
        )
    }

    /// Completes all pieces up to this position, and copies their results to their chains. Returns how many chains are done.
    #[allow(clippy::inline_always)] // it has one caller whose cost matters
    #[inline(always)]
    pub(crate) fn complete(&mut self, position: u64, ring: &impl Ring) -> usize {
        let mut chains = 0;
        while self.posting.pieces.first <= position
            && let Some(piece) = self.posting.pop_piece()
        {
            let number = piece.flight;
            let flight = &mut self.flights[number as usize];
            if piece.answer_words > 0 {
                let into = &mut flight.words()[piece.answer as usize..][..piece.answer_words as usize];
                ring.read(piece.ring as usize, into);
            }
            if piece.last {
                self.posting.under_way -= 1;
                chains += 1;
                flight.result = Some(Ok(()));
                if flight.forgotten {
                    self.drop_forgotten(number as usize);
                }
            }
        }
        chains
    }

    /// Returns the operation and address of the piece at a position.
    pub(crate) fn describe(&self, position: u64) -> Option<(&'static str, Address)> {
        let piece = self.posting.pieces.get(position)?;
        let op = self.flights[piece.flight as usize].op(piece.op)?;
        Some((op.name(), op.at().add(u64::from(piece.first) * 8)))
    }

    /// Fails all chains after the loss of the connection, each with an error for its next operation. Returns their number.
    pub(crate) fn fail(&mut self, mut error: impl FnMut(&'static str, Address) -> Error) -> usize {
        let mut failed = 0;
        loop {
            let (number, op) = if let Some(piece) = self.posting.pop_piece() {
                (piece.flight, Some(piece.op))
            } else if self.posting.queue.len > 0 {
                let number = self.posting.queue.first;
                let flight = &self.flights[number as usize];
                self.posting.queue.pop(flight.after);
                (number, flight.next.get().map(|next| next.op))
            } else {
                break;
            };
            let flight = &mut self.flights[number as usize];
            // A chain of several pieces fails with the first, and may have been forgotten.
            if let (None, Some(op)) = (&flight.result, op.and_then(|op| flight.op(op))) {
                flight.result = Some(Err(error(op.name(), op.at())));
                flight.next.set(None);
                if flight.forgotten {
                    self.drop_forgotten(number as usize);
                }
                failed += 1;
            }
        }
        self.posting.under_way = 0;
        (self.posting.current, self.posting.detached) = Default::default();
        failed
    }
}

impl Flight {
    /// Returns its operations.
    #[inline]
    fn ops(&self) -> &[Op] {
        self.chain.as_ref().map_or(std::slice::from_ref(&self.op), RawChain::ops)
    }

    /// Returns an operation of its chain, if it has one.
    fn op(&self, index: u32) -> Option<&Op> {
        self.ops().get(index as usize)
    }

    /// Returns the words that the slots of its operations index.
    #[inline]
    fn words(&mut self) -> &mut [u64] {
        match &mut self.chain {
            Some(chain) => chain.parts().1,
            None => &mut self.words,
        }
    }

    /// Returns words that an operation writes.
    #[inline]
    fn written(&self, words: Range<usize>) -> &[u64] {
        match &self.chain {
            Some(chain) => chain.written(words),
            None => &self.words[words],
        }
    }

    /// Makes a chain of the single operation, for a thread that polls it as one.
    #[cold]
    fn single_as_chain(&self) -> RawChain {
        let mut chain = RawChain::default();
        chain.add_first(&self.op, &self.words);
        chain
    }
}

impl Posting {
    /// Removes the oldest piece, and frees its credits.
    #[inline]
    fn pop_piece(&mut self) -> Option<&Piece> {
        let piece = self.pieces.pop()?;
        self.reads -= usize::from(piece.reads);
        self.ring_space.used -= piece.ring_words as usize;
        Some(piece)
    }
}

impl Pieces {
    #[inline]
    fn len(&self) -> usize {
        (self.next - self.first) as usize
    }

    /// Returns the index of a position in the ring.
    #[inline]
    fn index(&self, position: u64) -> usize {
        position as usize & (self.ring.len() - 1)
    }

    /// Returns the piece at a position, if it is in flight.
    fn get(&self, position: u64) -> Option<&Piece> {
        (self.first..self.next).contains(&position).then(|| &self.ring[self.index(position)])
    }

    /// Adds a piece. There must be a credit for its request.
    #[inline]
    fn push(&mut self, piece: Piece) {
        let index = self.index(self.next);
        self.ring[index] = piece;
        self.next += 1;
    }

    /// Removes the oldest piece.
    #[inline]
    fn pop(&mut self) -> Option<&Piece> {
        if self.first == self.next {
            return None;
        }
        let index = self.index(self.first);
        self.first += 1;
        Some(&self.ring[index])
    }
}

impl Queue {
    /// Removes the first flight, which `after` follows if there is another.
    #[inline]
    fn pop(&mut self, after: u32) {
        self.first = after;
        self.len -= 1;
    }
}

impl RingSpace {
    /// Takes `words` contiguous words if they are free. Returns the index of the first, and the number of words that they occupy with those
    /// skipped at the ring's end.
    #[inline]
    fn take(&mut self, words: usize) -> Option<(usize, usize)> {
        let to_end = self.words - self.head;
        let (at, taken) = if words <= to_end { (self.head, words) } else { (0, to_end + words) };
        if self.used + taken > self.words {
            return None;
        }
        self.used += taken;
        let head = at + words;
        self.head = if head == self.words { 0 } else { head };
        Some((at, taken))
    }
}

impl Kind {
    #[inline]
    fn of(op: &Op) -> Self {
        match op {
            Op::Read { .. } => Self::Read,
            Op::Write { replaces: false, .. } => Self::Write,
            Op::Write { replaces: true, .. } | Op::CompareExchange { .. } => Self::CompareExchange,
            Op::FetchAdd { .. } => Self::FetchAdd,
        }
    }
}

impl FencePoints {
    /// Records the position of a READ or an atomic.
    #[inline]
    fn note(&mut self, kind: Kind, position: u64) {
        match kind {
            Kind::Read => self.reads = self.reads.max(position + 1),
            Kind::CompareExchange | Kind::FetchAdd => self.atomics = self.atomics.max(position + 1),
            Kind::Write => {}
        }
    }

    /// Returns whether a piece needs a fence, if the oldest one in flight has the position `first`.
    #[inline]
    fn fence(&self, kind: Kind, first: u64) -> bool {
        match kind {
            Kind::Read => false,
            Kind::CompareExchange | Kind::FetchAdd => self.reads > first,
            Kind::Write => self.reads.max(self.atomics) > first,
        }
    }
}

#[cfg(test)]
mod tests;
