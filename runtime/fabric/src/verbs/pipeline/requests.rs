//! From chains to work requests: the next piece of the oldest chain, if credits allow.
//!
//! A short WRITE is *inline*: the library copies its words from the chain while it posts. So a request borrows them, and all requests of a doorbell
//! must be able to exist at a time. Therefore the state that posting changes ([`Posting`]) is separate from the chains, except for one cell of each:
//! [`Requests`] borrows the former mutably and the chains immutably.

use super::{
    FencePoints, Flight, NextPiece, Piece, Pipeline, Posting, Request, Ring, Verb, note_fence_point,
};
use crate::chain::Op;

/// The requests that can be posted now. They borrow their inline words from the chains. So any number of them can exist at a time, and until the last
/// is dropped no chain is changed, completed or returned.
pub(in crate::verbs) struct Requests<'a> {
    flights: &'a [Option<Flight>],
    posting: &'a mut Posting,
}

impl Pipeline {
    /// Returns the requests that can be posted now.
    pub(in crate::verbs) fn requests(&mut self) -> Requests<'_> {
        Requests { flights: &self.flights, posting: &mut self.posting }
    }
}

impl<'a> Requests<'a> {
    /// Takes the next queued request if credits allow, and copies its payload into the ring unless it is inline.
    pub(in crate::verbs) fn next(&mut self, ring: &impl Ring) -> Option<Request<'a>> {
        let Self { flights, posting } = self;
        let flights: &'a [Option<Flight>] = flights;
        let number = *posting.queue.front()?;
        let flight = flights[number].as_ref().expect("a queued chain is in the pipeline");
        let NextPiece { op: index, words: first } =
            flight.next.get().expect("a queued chain has a piece to post");
        let op = &flight.chain.ops()[index];
        let reads = has_answer(op);
        // A quarter of the ring, so that other pieces fit beside a long one.
        let most = posting.credits.words / 4;
        let words = (op.words() - first).min(most);
        let inline = !reads && words <= posting.credits.inline_words;
        let ring_words = if inline { 0 } else { words };
        if posting.requests == posting.credits.requests || reads && posting.reads == posting.credits.reads {
            return None;
        }
        let (ring_at, ring_words) = posting.ring_space.find(ring_words)?;
        let end_of_op = first + words == op.words();
        let starts = index == 0 && first == 0;
        let last = end_of_op && index + 1 == flight.chain.ops().len();
        let position = posting.first + posting.pieces.len() as u64;
        let fence_point = |fence_point: &FencePoints| match op {
            Op::Read { .. } => 0,
            Op::Write { replaces: false, .. } => fence_point.reads.max(fence_point.atomics),
            Op::Write { replaces: true, .. } | Op::CompareExchange { .. } | Op::FetchAdd { .. } => {
                fence_point.reads
            }
        };
        let fence = fence_point(&posting.current).max(fence_point(&posting.detached)) > posting.first;
        note_fence_point(
            if flight.detached { &mut posting.detached } else { &mut posting.current },
            op,
            position,
        );
        posting.under_way += usize::from(starts);
        posting.requests += 1;
        posting.reads += usize::from(reads);
        if ring_words > 0 {
            posting.ring_space.used += ring_words;
            let head = ring_at + words;
            posting.ring_space.head = if head == posting.ring_space.words { 0 } else { head };
        }
        posting.pieces.push_back(Piece {
            flight: number,
            op: index,
            ring: ring_at,
            words,
            first,
            ring_words,
            reads,
            last,
        });
        flight.next.set(if last {
            posting.queue.pop_front();
            posting.current = FencePoints::default();
            None
        } else if end_of_op {
            Some(NextPiece { op: index + 1, words: 0 })
        } else {
            Some(NextPiece { op: index, words: first + words })
        });
        let verb = match op {
            Op::Read { .. } => Verb::Read { ring: ring_at, words },
            Op::Write { slot, replaces: true, .. } => {
                let both = flight.chain.written(&(slot.start - 1..slot.start + 1));
                Verb::CompareExchange { ring: ring_at, expected: both[0], new: both[1] }
            }
            Op::Write { slot, replaces: false, .. } => {
                let start = slot.start + first;
                let from = flight.chain.written(&(start..start + words));
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
        let at = op.at().add((first * 8) as u64);
        Some(Request { verb, at, position, fence, signal: last })
    }
}

/// Returns whether an operation has an answer with words, so that it takes a credit for READs. A [replaced](RawChain::replace) word is replaced by a
/// CAS.
fn has_answer(op: &Op) -> bool {
    !matches!(op, Op::Write { replaces: false, .. })
}
