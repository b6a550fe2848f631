//! The pipeline: from chains to work requests, and from completions back to chains. It implements credits and order without knowledge of devices, so
//! it can be tested without one.
//!
//! A single operation is one work request, which is made when it is pushed. A chain's operations become *pieces*, each a work request: a long READ or
//! WRITE several. Requests are made in the order in which chains were pushed, as far as credits go, and wait for the next doorbell. A reliable
//! connection completes them in that order. So a completion with a request's number, its *position*, shows that all requests before it are done too: a
//! chain is done when its last position is, and nothing is done for each.
//!
//! The device never reads or writes a chain's own buffer, but a part of the lane's *ring*. So chains may be dropped, moved and recycled at any time.
//! - Each of the first slots of chains has a *place* there: the words of the single operation in the slot. It is the operation's until its result is
//!   taken, so the result is read there. A slot is not used again before its operation is done, even if its future was dropped.
//! - The rest is a ring of words, in which the oldest is freed first. Pieces use it, and single operations that were queued.
//!
//! Credits: slots of the send queue; READs and atomics that the connection may have outstanding; and words of the ring. A chain without credits is queued
//! until a later completion, so no queue of the device can overflow.
//!
//! # Order
//!
//! The device executes requests in order, but may repeat a READ or an atomic whose answer was lost, after later requests. The specification's table
//! of ordering (InfiniBand, volume 1, "Work request operation ordering") therefore asks for a fence on a WRITE after a READ or an atomic, and on an
//! atomic after a READ; no other pair needs one. A fence makes the device wait for all earlier requests, so it is used only where the order is
//! promised: inside a chain, and after a *detached* chain that is still in flight.
//!
//! # Signals
//!
//! The last request of each chain is signalled, that is, has a completion; of single operations every [`SIGNALLED`]th, and the last before a chain, which
//! may be long, and before a doorbell. A completion takes as many instructions as a single operation, and the rest are complete moments earlier or later.
//!
//! # Words that others try to change by CAS
//!
//! The specification makes atomics atomic with respect to each other, not to WRITEs. A device may execute a CAS that fails as a load and
//! a store of the same word, and a WRITE between the two is lost. `rdma_rxe` of Linux 6.1 does: a lock that its owner had released by a WRITE
//! stayed locked for ever. So a word that is [replaced](RawChain::replace) is replaced by a CAS from its known value.

mod requests;

use std::collections::VecDeque;
use std::ops::Range;

use crate::chain::{Op, RawChain, SINGLE_WORDS};
use crate::error::{Error, Result};
use farfield_words::Address;

/// The limits of a connection; all 0 without one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Credits {
    /// Work requests in the send queue.
    pub(crate) requests: usize,
    /// READs and atomics without an answer.
    pub(crate) reads: usize,
    /// Words of the ring behind the places.
    pub(crate) words: usize,
    /// Places of single operations, at the beginning of the ring.
    pub(crate) places: usize,
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

/// What a pipeline fills: the ring, and the requests of the next doorbell.
pub(crate) trait Outlet: Ring {
    /// Returns where the memory node's device finds a word.
    fn target(&self, at: Address) -> Target;
    /// Adds a request. There is room for as many as there are credits.
    fn add(&mut self, request: Request);
    /// Signals the request that was added last.
    fn signal_last(&mut self);
}

/// The address of a word of far memory for the device of its node, and its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) address: u64,
    #[cfg_attr(not(feature = "_verbs"), allow(dead_code))]
    pub(crate) key: u32,
}

/// A work request, as the pipeline sees it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) verb: Verb,
    pub(crate) target: Target,
    /// The position of the request among all.
    pub(crate) position: u64,
    /// True if it must wait for all earlier requests.
    pub(crate) fence: bool,
    pub(crate) signal: bool,
}

/// What a request does, with words of the ring from the index `ring` on.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Read {
        ring: usize,
        words: usize,
    },
    /// The library copies the words of an *inline* one while it posts.
    Write {
        ring: usize,
        words: usize,
        inline: bool,
    },
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

/// Of so many single operations in sequence, one is signalled.
pub(crate) const SIGNALLED: u64 = 8;

/// A slot for a chain or a single operation in the pipeline. A thread that has warmed up reuses slots.
struct Flight {
    /// The position behind its last request, or [`QUEUED`]. It is done once all requests before that are. A free slot is done.
    end: u64,
    /// The single operation, whose slot begins at 0.
    op: Op,
    /// True if the words of the single operation are in its place.
    in_place: bool,
    /// True if no future waits for it.
    detached: bool,
    /// The round of its thread in which it was polled last, or [`NEVER`].
    looked_at: u64,
    /// The next flight of the queue.
    after: u32,
    /// The next free slot, if this one is free. Not `after`: a forgotten chain that fails is freed while it is queued.
    after_free: u32,
    /// The next piece, if it is queued.
    next: NextPiece,
    /// The chain; `None` for a single operation, and in a free slot.
    chain: Option<RawChain>,
    /// Its error, if it has failed.
    error: Option<Error>,
    /// The words of a single operation that is not in its place.
    words: [u64; SINGLE_WORDS],
}

/// The end of a flight of which not all requests are made.
const QUEUED: u64 = u64::MAX;
/// The end of a flight that is done although it has no position.
const DONE: u64 = 0;
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
    position: u64,
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
}

/// The first and the last of a list of flights, if it is not empty, and their number.
#[derive(Default)]
struct Queue {
    first: u32,
    last: u32,
    len: u32,
}

/// The positions of READs, and of READs and atomics, for which later requests may need a fence: one past the last.
#[derive(Clone, Copy, Debug, Default)]
struct FencePoints {
    reads: u64,
    answers: u64,
}

/// The verb of a request. A [replaced](RawChain::replace) word is replaced by a CAS.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
    CompareExchange,
    FetchAdd,
}

/// The use of the ring behind the places.
#[derive(Default)]
struct RingSpace {
    words: usize,
    used: usize,
    /// The index of the next free word.
    head: usize,
}

/// How many READs and atomics, and how many chains' last requests, there were up to a position: the former, and the latter times 2^32. Only differences
/// count, which are small, so that neither disturbs the other even when it has wrapped.
#[derive(Clone, Copy, Default)]
struct Totals(u64);

impl Totals {
    #[inline]
    fn count(&mut self, reads: bool, ends_chain: bool) {
        self.0 = self.0.wrapping_add(u64::from(reads) + (u64::from(ends_chain) << 32));
    }

    /// Returns the number of READs and atomics, which wraps.
    #[inline]
    fn reads(self) -> u32 {
        self.0 as u32
    }

    /// Returns the READs and atomics, and the chains, since `earlier`.
    #[inline]
    fn since(self, earlier: Self) -> (usize, usize) {
        let both = self.0.wrapping_sub(earlier.0);
        (both as u32 as usize, (both >> 32) as usize)
    }
}

/// The most requests in flight, a power of two.
pub(crate) const MOST_REQUESTS: usize = 256;

/// Chains between their thread and a connection. A new one has no credits.
#[derive(Default)]
pub(crate) struct Pipeline {
    flights: Vec<Flight>,
    /// The first of a list of free slots through [`Flight::after_free`]; the number of slots if it is empty.
    free: u32,
    posting: Posting,
    /// Chains whose tickets were given up, until they are done.
    forgotten: Vec<u32>,
}

/// Requests and queued chains: the state that posting changes.
struct Posting {
    credits: Credits,
    /// The position of the oldest request that is not done; that of the first one that waits for the doorbell; and that of the next one.
    first: u64,
    posted: u64,
    next: u64,
    /// The totals of all requests, of those that are posted, and of those that are done.
    made: Totals,
    posted_totals: Totals,
    done: Totals,
    /// The totals after each request in flight: a ring, indexed by position.
    totals: Box<[Totals; MOST_REQUESTS]>,
    /// The position at which credits end; without a connection that of the next request.
    requests_end: u64,
    /// The same for a single operation that needs no fence, whatever its kind; 0 if flights are queued. And the number of READs and atomics, as in
    /// `made`, at which credits for them end.
    usual_end: u64,
    reads_end: u32,
    ring_space: RingSpace,
    /// Flights with requests to make, in order: a list through [`Flight::after`].
    queue: Queue,
    /// The pieces in flight, and single operations outside of their places.
    pieces: VecDeque<Piece>,
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

    /// Sets the credits of a new connection. No request may be in flight.
    pub(crate) fn set_credits(&mut self, credits: Credits) {
        let posting = &mut self.posting;
        assert_eq!(posting.first, posting.next);
        assert!(credits.requests > 0 && credits.reads > 0 && credits.words >= 4);
        assert!(credits.requests <= MOST_REQUESTS);
        posting.credits = credits;
        posting.pieces.reserve(credits.requests);
        posting.ring_space = RingSpace { words: credits.words, used: 0, head: 0 };
        posting.renew_credits();
    }

    /// Pushes a chain, and makes its requests as far as credits go. Returns its number, which is unique until the chain is taken back.
    #[inline]
    pub(crate) fn push(&mut self, chain: RawChain, outlet: Option<&mut impl Outlet>) -> usize {
        let (number, flight) = self.use_slot();
        flight.in_place = false;
        if chain.ops().is_empty() {
            flight.chain = Some(chain);
            flight.end = DONE;
            return number as usize;
        }
        flight.chain = Some(chain);
        self.enqueue(number);
        if let Some(outlet) = outlet
            && self.posting.queue.len == 1
        {
            self.make_requests(outlet);
        }
        number as usize
    }

    /// Pushes a single operation of at most [`SINGLE_WORDS`] words, with the words that it writes. Returns its number. It counts as a chain, and
    /// [`take_single`](Self::take_single) takes it back.
    ///
    /// The operation is a function, so that the compiler knows its kind wherever it is used.
    #[allow(clippy::inline_always)] // or the operation is copied through memory
    #[inline(always)]
    pub(crate) fn push_single(
        &mut self,
        op: impl Fn() -> Op,
        written: &[u64],
        target: Target,
        outlet: Option<&mut impl Outlet>,
    ) -> usize {
        if self.free as usize >= self.flights.len() {
            self.add_slot();
        }
        match outlet {
            Some(outlet) if self.posting.has_credits(self.free, Kind::of(&op())) => {
                let fence = self.posting.detached.fence(Kind::of(&op()), self.posting.first);
                self.make_single(op, written, target, fence, outlet)
            }
            _ => self.queue_single(op(), written),
        }
    }

    /// As [`push_single`](Self::push_single), if there are a slot, and credits for the request, and it needs no fence. If not, returns `None` and has no
    /// effect.
    #[allow(clippy::inline_always)] // as above
    #[inline(always)]
    pub(crate) fn try_push_single(
        &mut self,
        op: impl Fn() -> Op,
        written: &[u64],
        target: Target,
        outlet: &mut impl Outlet,
    ) -> Option<usize> {
        let can_make = self.posting.has_usual_credits(self.free, Kind::of(&op()));
        let has_slot = (self.free as usize) < self.flights.len();
        (can_make && has_slot).then(|| self.make_single(op, written, target, false, outlet))
    }

    /// Makes the request of a single operation, for which there are a slot and credits. Returns its number.
    #[allow(clippy::inline_always)] // as above
    #[inline(always)]
    fn make_single(
        &mut self,
        op: impl Fn() -> Op,
        written: &[u64],
        target: Target,
        fence: bool,
        outlet: &mut impl Outlet,
    ) -> usize {
        let Self { flights, free, posting, .. } = self;
        let number = *free;
        let flight = &mut flights[number as usize];
        flight.end = posting.make_single(number, op(), written, target, fence, outlet);
        flight.begin();
        flight.op = op();
        flight.in_place = true;
        *free = flight.after_free;
        number as usize
    }

    #[cold]
    fn queue_single(&mut self, op: Op, written: &[u64]) -> usize {
        let (number, flight) = self.use_slot();
        flight.op = op;
        flight.in_place = false;
        flight.words[..written.len()].copy_from_slice(written);
        self.enqueue(number);
        number as usize
    }

    /// Takes a slot from the list of free slots.
    #[inline]
    fn use_slot(&mut self) -> (u32, &mut Flight) {
        if self.free as usize >= self.flights.len() {
            self.add_slot();
        }
        let Self { flights, free, .. } = self;
        let number = *free;
        let flight = &mut flights[number as usize];
        *free = flight.after_free;
        flight.begin();
        (number, flight)
    }

    #[cold]
    fn add_slot(&mut self) {
        let after_free = u32::try_from(self.flights.len() + 1).expect("a thread has fewer chains in flight");
        self.flights.push(Flight {
            end: DONE,
            op: Op::fetch_add(Address::NULL, 0),
            in_place: false,
            detached: false,
            looked_at: NEVER,
            after: 0,
            after_free,
            next: FIRST,
            chain: None,
            error: None,
            words: [0; SINGLE_WORDS],
        });
    }

    /// Adds a flight to the queue.
    fn enqueue(&mut self, number: u32) {
        self.posting.usual_end = 0;
        let flight = &mut self.flights[number as usize];
        (flight.end, flight.next) = (QUEUED, FIRST);
        let queue = &mut self.posting.queue;
        if queue.len == 0 {
            queue.first = number;
        } else {
            self.flights[queue.last as usize].after = number;
        }
        queue.last = number;
        queue.len += 1;
    }

    /// Returns whether a chain is done.
    #[inline]
    pub(crate) fn is_done(&self, number: usize) -> bool {
        self.flights[number].end <= self.posting.first
    }

    /// Takes back a chain that is done. A single operation becomes a chain. `ring` is that of the connection.
    pub(crate) fn take(&mut self, number: usize, ring: Option<&impl Ring>) -> (RawChain, Result<()>) {
        self.leave_place(number, ring);
        let flight = &mut self.flights[number];
        let chain = flight.chain.take().unwrap_or_else(|| flight.single_as_chain());
        let result = flight.error.take().map_or(Ok(()), Err);
        self.free(number);
        (chain, result)
    }

    /// Takes back a single operation if it is done, and copies the first of its words, `into.len()` of them: what it has read. `ring` is that of the
    /// connection.
    #[allow(clippy::inline_always)] // or words are copied through memory
    #[inline(always)]
    pub(crate) fn take_single(
        &mut self,
        number: usize,
        into: &mut [u64],
        ring: Option<&impl Ring>,
    ) -> Option<Result<()>> {
        if !self.is_done(number) {
            return None;
        }
        let taken = ring.and_then(|ring| self.try_take_single(number, into, ring));
        Some(taken.map_or_else(|| self.take_displaced(number, into), Ok))
    }

    /// As [`take_single`](Self::take_single), if the operation is done and its words are in its place. If not, returns `None` and has no effect.
    #[allow(clippy::inline_always)] // as above
    #[inline(always)]
    pub(crate) fn try_take_single(
        &mut self,
        number: usize,
        into: &mut [u64],
        ring: &impl Ring,
    ) -> Option<()> {
        let flight = self.flights.get_mut(number)?;
        if flight.end > self.posting.first || !flight.in_place {
            return None;
        }
        ring.read(number * SINGLE_WORDS, into);
        flight.after_free = std::mem::replace(&mut self.free, number as u32);
        Some(())
    }

    #[cold]
    fn take_displaced(&mut self, number: usize, into: &mut [u64]) -> Result<()> {
        let flight = &mut self.flights[number];
        into.copy_from_slice(&flight.words[..into.len()]);
        let result = flight.error.take().map_or(Ok(()), Err);
        self.free(number);
        result
    }

    /// Copies the words of a single operation out of its place, which is used again or freed.
    fn leave_place(&mut self, number: usize, ring: Option<&impl Ring>) {
        let flight = &mut self.flights[number];
        if let Some(ring) = ring
            && flight.in_place
        {
            ring.read(number * SINGLE_WORDS, &mut flight.words);
            flight.in_place = false;
        }
    }

    /// Copies the words of all single operations that are done out of their places: the connection will be dropped with its ring.
    pub(crate) fn leave_places(&mut self, ring: &impl Ring) {
        for number in 0..self.flights.len() {
            if self.is_done(number) {
                self.leave_place(number, Some(ring));
            }
        }
    }

    /// Frees the slot of a chain that is done.
    #[inline]
    fn free(&mut self, number: usize) {
        self.flights[number].after_free = std::mem::replace(&mut self.free, number as u32);
    }

    /// Frees a chain when it is done.
    pub(crate) fn forget(&mut self, number: usize) {
        self.forgotten.push(number as u32);
        self.drop_forgotten();
    }

    /// Frees the forgotten chains that are done.
    #[cold]
    fn drop_forgotten(&mut self) {
        let mut forgotten = std::mem::take(&mut self.forgotten);
        forgotten.retain(|number| {
            let number = *number as usize;
            if self.is_done(number) {
                let flight = &mut self.flights[number];
                // No future waits for the result, so an error is dropped.
                (flight.chain, flight.error) = (None, None);
                self.free(number);
                return false;
            }
            true
        });
        self.forgotten = forgotten;
    }

    /// Returns whether a chain is polled for the first time in this round. A second poll shows that its thread has no other work.
    pub(crate) fn is_fresh(&mut self, number: usize, round: u64) -> bool {
        std::mem::replace(&mut self.flights[number].looked_at, round) != round
    }

    /// Returns whether a chain that is not done has requests that are not posted.
    pub(crate) fn is_waiting(&self, number: usize) -> bool {
        self.flights[number].end > self.posting.posted
    }

    /// Detaches a chain: later chains must not overtake it.
    pub(crate) fn detach(&mut self, number: usize) {
        let Self { flights, posting, .. } = self;
        let flight = &mut flights[number];
        flight.detached = true;
        if flight.in_place && flight.end > posting.first {
            posting.detached.note(Kind::of(&flight.op), flight.end - 1);
        }
        for piece in posting.pieces.iter().filter(|piece| piece.flight as usize == number) {
            let op = flights[number].op(piece.op).expect("it has a piece in flight");
            posting.detached.note(Kind::of(op), piece.position);
        }
        posting.renew_credits();
    }

    /// Returns whether chains are queued.
    #[inline]
    pub(crate) fn has_queued(&self) -> bool {
        self.posting.queue.len > 0
    }

    /// Returns whether requests wait for a doorbell.
    #[inline]
    pub(crate) fn has_requests(&self) -> bool {
        self.posting.posted != self.posting.next
    }

    /// Returns whether chains wait for a doorbell, or are queued.
    #[inline]
    pub(crate) fn has_waiting(&self) -> bool {
        self.has_requests() || self.has_queued()
    }

    /// Returns whether at least as many chains wait as are under way, so that half of a thread's concurrent chains share a doorbell.
    #[inline]
    pub(crate) fn has_many_waiting(&self) -> bool {
        self.waiting() >= self.under_way().max(1)
    }

    /// Returns the number of chains that are not posted, or not wholly.
    #[inline]
    fn waiting(&self) -> usize {
        let Posting { made, posted_totals, queue, .. } = &self.posting;
        made.since(*posted_totals).1 + queue.len as usize
    }

    /// Returns the number of chains that are posted and not done.
    #[inline]
    pub(crate) fn under_way(&self) -> usize {
        self.posting.posted_totals.since(self.posting.done).1
    }

    /// Returns the number of requests in flight.
    #[inline]
    pub(crate) fn in_flight(&self) -> usize {
        (self.posting.posted - self.posting.first) as usize
    }

    /// The doorbell has rung for all requests that were made.
    #[inline]
    pub(crate) fn was_posted(&mut self) {
        self.posting.posted = self.posting.next;
        self.posting.posted_totals = self.posting.made;
    }

    /// Describes posted and queued chains and the credits in use, for reports of stalls.
    pub(crate) fn describe_use(&self) -> String {
        let posting = &self.posting;
        let Credits { requests, reads, words, .. } = posting.credits;
        format!(
            "{} requests posted in all, {} of them in flight; {} chains under way, {} wait to be posted; credits in use: {} of {requests} \
             requests, {} of {reads} READs and atomics, {} of {words} words",
            posting.posted,
            self.in_flight(),
            self.under_way(),
            self.waiting(),
            posting.next - posting.first,
            posting.reads(),
            posting.ring_space.used
        )
    }

    /// Completes all posted requests before this position, and copies the results of pieces to their chains. Returns how many chains are done.
    #[allow(clippy::inline_always)] // it has one caller whose cost matters
    #[inline(always)]
    pub(crate) fn complete(&mut self, end: u64, ring: &impl Ring) -> usize {
        let posting = &mut self.posting;
        let end = posting.posted.min(end);
        if end <= posting.first {
            return 0;
        }
        if !posting.pieces.is_empty() {
            posting.complete_pieces(end, &mut self.flights, ring);
        }
        let done = *posting.totals(end - 1);
        let before = std::mem::replace(&mut posting.done, done);
        posting.first = end;
        posting.renew_credits();
        let chains = posting.done.since(before).1;
        if !self.forgotten.is_empty() {
            self.drop_forgotten();
        }
        chains
    }

    /// Returns the operation and address of the request at a position.
    pub(crate) fn describe(&self, position: u64) -> Option<(&'static str, Address)> {
        let Self { flights, posting, .. } = self;
        if let Some(piece) = posting.pieces.iter().find(|piece| piece.position == position) {
            let op = flights[piece.flight as usize].op(piece.op)?;
            return Some((op.name(), op.at().add(u64::from(piece.first) * 8)));
        }
        let is_it = |flight: &&Flight| flight.in_place && flight.end == position + 1;
        let flight = flights.iter().find(is_it).filter(|_| position >= posting.first)?;
        Some((flight.op.name(), flight.op.at()))
    }

    /// Fails all chains after the loss of the connection, each with an error for its next operation. Returns their number.
    pub(crate) fn fail(&mut self, mut error: impl FnMut(&'static str, Address) -> Error) -> usize {
        let Self { flights, posting, .. } = self;
        let mut failed = 0;
        for (number, flight) in
            flights.iter_mut().enumerate().filter(|(_, flight)| flight.end > posting.first)
        {
            let piece = posting.pieces.iter().find(|piece| piece.flight as usize == number);
            let op = piece.map_or(if flight.in_place { 0 } else { flight.next.op }, |piece| piece.op);
            let op = flight.op(op).expect("a chain that is not done has an operation that is not");
            let error = error(op.name(), op.at());
            (flight.error, flight.end, flight.in_place) = (Some(error), DONE, false);
            failed += 1;
        }
        posting.pieces.clear();
        posting.queue = Queue::default();
        (posting.first, posting.posted) = (posting.next, posting.next);
        (posting.posted_totals, posting.done) = (posting.made, posting.made);
        (posting.current, posting.detached) = Default::default();
        posting.credits = Credits::default();
        posting.renew_credits();
        self.drop_forgotten();
        failed
    }
}

impl Flight {
    /// Begins the use of the slot by another chain.
    #[inline]
    fn begin(&mut self) {
        self.looked_at = NEVER;
        self.detached = false;
    }

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

impl Default for Posting {
    fn default() -> Self {
        Self {
            credits: Credits::default(),
            first: 0,
            posted: 0,
            next: 0,
            made: Totals::default(),
            posted_totals: Totals::default(),
            done: Totals::default(),
            totals: Box::new([Totals::default(); MOST_REQUESTS]),
            requests_end: 0,
            usual_end: 0,
            reads_end: 0,
            ring_space: RingSpace::default(),
            queue: Queue::default(),
            pieces: VecDeque::new(),
            current: FencePoints::default(),
            detached: FencePoints::default(),
        }
    }
}

impl Posting {
    /// Returns the totals after a request in flight.
    #[inline]
    fn totals(&mut self, position: u64) -> &mut Totals {
        &mut self.totals[position as usize % MOST_REQUESTS]
    }

    /// Computes where credits end. To be called after changes of the credits, of `first`, `done` and `detached`, and after the queue became empty.
    #[inline]
    fn renew_credits(&mut self) {
        self.requests_end = self.first + self.credits.requests as u64;
        let is_usual = self.queue.len == 0 && self.detached.answers <= self.first;
        self.usual_end = if is_usual { self.requests_end } else { 0 };
        self.reads_end = self.done.reads().wrapping_add(self.credits.reads as u32);
    }

    /// Returns the credits for READs and atomics in use.
    #[inline]
    fn reads(&self) -> usize {
        self.made.since(self.done).0
    }

    /// Completes the pieces before a position, and frees their words of the ring.
    fn complete_pieces(&mut self, end: u64, flights: &mut [Flight], ring: &impl Ring) {
        while let Some(piece) = self.pieces.front()
            && piece.position < end
        {
            if piece.answer_words > 0 {
                let words = flights[piece.flight as usize].words();
                ring.read(
                    piece.ring as usize,
                    &mut words[piece.answer as usize..][..piece.answer_words as usize],
                );
            }
            self.ring_space.used -= piece.ring_words as usize;
            self.pieces.pop_front();
        }
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
        if kind == Kind::Read {
            self.reads = self.reads.max(position + 1);
        }
        if kind != Kind::Write {
            self.answers = self.answers.max(position + 1);
        }
    }

    /// Returns whether a request needs a fence, if the oldest one in flight has the position `first`.
    #[inline]
    fn fence(&self, kind: Kind, first: u64) -> bool {
        match kind {
            Kind::Read => false,
            Kind::CompareExchange | Kind::FetchAdd => self.reads > first,
            Kind::Write => self.answers > first,
        }
    }
}

#[cfg(test)]
mod tests;
